//! Content of a row: the member that wrote it, and the data as it is packed; no data where something was removed.

use crate::shared_state::digest::{Digest, digest};

/// No packed value begins with this byte.
const HAS_WRITER: u8 = 0xc1;

/// An installation of a master, as its rows name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Writer(Digest);

impl Writer {
    /// The one of an instance, of whatever length.
    pub(super) fn new(instance: &str) -> Self {
        Self(digest(instance.as_bytes()))
    }

    /// The content of a row of this writer.
    pub(super) fn put_before(&self, packed: &[u8]) -> Vec<u8> {
        let Self(writer) = self;
        [&[HAS_WRITER], &writer[..], packed].concat()
    }
}

/// Takes the content of a row apart. The first rows of all named no writer.
pub(super) fn split(content: &[u8]) -> (Option<Writer>, &[u8]) {
    let behind = content.strip_prefix(&[HAS_WRITER]);
    match behind.and_then(|behind| behind.split_first_chunk()) {
        Some((writer, packed)) => (Some(Writer(*writer)), packed),
        None => (None, content),
    }
}
