//! Codec that cuts packed values out of a stream without lengths.
//!
//! Each byte is scanned once, however the value arrives: the decoder records its position and how
//! many values are still owed, so that a peer that sends byte by byte costs no more than another.
//! Nesting needs no memory here; the reader of the value checks its depth.

use bytes::{Bytes, BytesMut};
use tokio_util::codec::Decoder;

use crate::msgpack::{Cursor, DecodeError, Token};

/// Why the bytes of a peer cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// Not packed values.
    #[error("the bytes are no packed value")]
    Malformed(#[source] DecodeError),
    /// An announced or received length is over the limit.
    #[error("a value of {announced} bytes or more is over the limit of {limit}")]
    TooLong {
        /// Shortest length that the value can have.
        announced: usize,
        /// The limit.
        limit: usize,
    },
    /// The stream ended or failed (only through `Framed`).
    #[error("cannot read from the peer")]
    Io(#[from] std::io::Error),
}

/// Decoder of one whole packed value after the other.
#[derive(Debug)]
pub struct Codec {
    limit: usize,
    /// Scanned bytes of the incomplete value.
    scanned: usize,
    /// Values that are still owed, those inside arrays and maps included.
    owed: usize,
    /// Missing bytes at the last scan.
    missing: usize,
}

impl Codec {
    /// A codec for values of at most `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            scanned: 0,
            owed: 1,
            missing: 1,
        }
    }

    /// Sets the limit from the next scan on.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// Minimum number of missing bytes, as the last attempt to decode found.
    pub fn missing(&self) -> usize {
        self.missing
    }

    fn check(&self, announced: usize) -> Result<(), CodecError> {
        if announced > self.limit {
            return Err(CodecError::TooLong {
                announced,
                limit: self.limit,
            });
        }
        Ok(())
    }
}

impl Decoder for Codec {
    type Item = Bytes;
    type Error = CodecError;

    fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Bytes>, CodecError> {
        let mut cursor = Cursor::new(buffer.get(self.scanned..).unwrap_or_default());
        while self.owed > 0 {
            let before = cursor;
            match cursor.token() {
                Ok(token) => {
                    let more = match token {
                        Token::Array(length) => length as usize,
                        Token::Map(length) => (length as usize).saturating_mul(2),
                        _ => 0,
                    };
                    self.owed = (self.owed - 1).saturating_add(more);
                    self.scanned = buffer.len() - cursor.left();
                    // Each value has a byte at least.
                    self.check(self.scanned.saturating_add(self.owed))?;
                }
                Err(DecodeError::Truncated { missing }) => {
                    self.missing = missing.max(1).saturating_add(self.owed - 1);
                    self.check(self.scanned + before.left().saturating_add(self.missing))?;
                    return Ok(None);
                }
                Err(malformed) => return Err(CodecError::Malformed(malformed)),
            }
        }
        let value = buffer.split_to(self.scanned).freeze();
        *self = Self::new(self.limit);
        Ok(Some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `{"a": [1, b"xyz"], "b": nil}`, then `7`.
    const STREAM: &[u8] = b"\x82\xa1a\x92\x01\xc4\x03xyz\xa1b\xc0\x07";

    #[test]
    fn values_are_the_same_however_they_arrive() {
        for size in 1..=STREAM.len() {
            let (mut codec, mut buffer) = (Codec::new(100), BytesMut::new());
            let mut values = Vec::new();
            for piece in STREAM.chunks(size) {
                buffer.extend_from_slice(piece);
                while let Some(value) = codec.decode(&mut buffer).expect("well formed") {
                    values.push(value);
                }
            }
            assert_eq!(values, [&STREAM[..STREAM.len() - 1], b"\x07"], "{size}");
            assert!(buffer.is_empty());
        }
    }

    #[test]
    fn announced_length_over_the_limit_is_refused_early() {
        let refused: [&[u8]; 5] = [
            // 4 GiB of bytes, of text, of items, of entries.
            b"\xc6\xff\xff\xff\xff",
            b"\x81\xdb\xff\xff\xff\xff",
            b"\xdd\xff\xff\xff\xff",
            b"\xdf\xff\xff\xff\xff",
            // 101 bytes in all.
            b"\xc4\x63",
        ];
        for bytes in refused {
            let refusal = Codec::new(100).decode(&mut BytesMut::from(bytes));
            assert!(
                matches!(refusal, Err(CodecError::TooLong { .. })),
                "{bytes:?}"
            );
        }
        let mut codec = Codec::new(100);
        assert!(matches!(
            codec.decode(&mut BytesMut::from(&b"\xc4\x62"[..])),
            Ok(None)
        ));
        assert_eq!(codec.missing(), 0x62);
        let nonsense = Codec::new(100).decode(&mut BytesMut::from(&b"\xc1"[..]));
        assert!(matches!(nonsense, Err(CodecError::Malformed(_))));
    }

    #[test]
    fn nesting_needs_no_memory() {
        let mut buffer = BytesMut::from(&vec![0x91; 1_000_000][..]);
        let mut codec = Codec::new(2_000_000);
        assert!(matches!(codec.decode(&mut buffer), Ok(None)));
        buffer.extend_from_slice(b"\xc0");
        let value = codec.decode(&mut buffer).expect("well formed");
        assert_eq!(value.map(|value| value.len()), Some(1_000_001));
    }
}
