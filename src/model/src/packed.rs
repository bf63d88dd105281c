//! A msgpack value that stays opaque above the wire.

use bytes::Bytes;

/// One complete msgpack value in the dialect that events and caches use (bin types).
///
/// Made by `wire` and by the code that builds loads; carried by messages, events and the store
/// without being unpacked on the way.
#[derive(Clone, PartialEq, Eq)]
pub struct Packed(Bytes);

impl Packed {
    /// Takes bytes that are one complete msgpack value.
    pub fn new(bytes: impl Into<Bytes>) -> Self {
        Self(bytes.into())
    }

    /// The bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.0
    }

    /// The bytes, by value.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }
}

impl AsRef<[u8]> for Packed {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Debug for Packed {
    /// Only the length: a load may hold pillar data.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Packed({} bytes)", self.0.len())
    }
}
