//! Digests of what is compared with its row, short enough to remember for each minion.

use openssl::sha::sha256;

/// The first half of a SHA-256.
pub(super) type Digest = [u8; 16];

/// The digest of some content.
pub(super) fn digest(content: &[u8]) -> Digest {
    let mut digest = Digest::default();
    let length = digest.len();
    digest.copy_from_slice(sha256(content).split_at(length).0);
    digest
}
