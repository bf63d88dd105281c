//! Greeting: the 64 bytes that open every ZMTP connection.
//!
//! Layout (libzmq `zmtp_engine.cpp`; bytes seen from stock minions in protocol.md section 2):
//! `ff`, eight bytes of padding, `7f`, major, minor, mechanism (20 bytes, zero padded),
//! as-server, 31 bytes of filler. Peers older than ZMTP 3.0 are refused: every libzmq since 4.0
//! speaks 3.0.

use bytes::BufMut;

use super::codec::CodecError;

/// Length of a greeting.
pub(crate) const GREETING_LEN: usize = 64;

const MECHANISM: std::ops::Range<usize> = 12..32;

/// A peer's greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Greeting {
    /// Minor version of ZMTP 3: 0 or 1. Only a peer with 1 understands PING, SUBSCRIBE and CANCEL
    /// as commands.
    pub minor: u8,
}

impl Greeting {
    /// ZMTP 3.1, the listeners' version.
    pub const V31: Self = Self { minor: 1 };

    /// ZMTP 3.0, the version of an end that cannot answer a PING while it is idle.
    pub(crate) const V30: Self = Self { minor: 0 };

    /// Appends the 64 bytes.
    pub fn encode(self, out: &mut impl BufMut) {
        out.put_slice(&[0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, self.minor]);
        out.put_slice(b"NULL");
        out.put_bytes(0, GREETING_LEN - 16);
    }

    /// Parses a greeting, or refuses as early as the bytes allow: a peer that is not ZMTP is
    /// detected by its first byte. `None` means that more bytes are needed.
    ///
    /// # Errors
    ///
    /// The peer is not ZMTP, is older than 3.0, or wants another mechanism than NULL.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, CodecError> {
        if bytes.first().is_some_and(|first| *first != 0xff) {
            return Err(CodecError::Signature);
        }
        if bytes.get(9).is_some_and(|last| *last != 0x7f) {
            return Err(CodecError::Signature);
        }
        if let Some(major) = bytes.get(10).filter(|major| **major < 3) {
            return Err(CodecError::Version(*major));
        }
        let Some(whole) = bytes.get(..GREETING_LEN) else {
            return Ok(None);
        };
        let mechanism = &whole[MECHANISM];
        let (name, padding) = mechanism.split_at(4);
        if name != b"NULL" || padding.iter().any(|byte| *byte != 0) {
            return Err(CodecError::Mechanism);
        }
        // A later major version must step down to ours, so it is 3.1.
        let minor = if whole[10] > 3 { 1 } else { whole[11].min(1) };
        Ok(Some(Self { minor }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greeting_round_trips_and_every_prefix_needs_more() {
        for greeting in [Greeting::V30, Greeting::V31] {
            let mut bytes = Vec::new();
            greeting.encode(&mut bytes);
            assert_eq!(bytes.len(), GREETING_LEN);
            for end in 0..GREETING_LEN {
                assert!(
                    Greeting::parse(&bytes[..end])
                        .expect("a prefix is fine")
                        .is_none()
                );
            }
            assert_eq!(Greeting::parse(&bytes).expect("whole"), Some(greeting));
        }
    }

    #[test]
    fn other_protocols_are_refused_at_their_first_wrong_byte() {
        assert!(matches!(
            Greeting::parse(b"GET "),
            Err(CodecError::Signature)
        ));
        assert!(matches!(
            Greeting::parse(b"\xff\0\0\0\0\0\0\0\x01\x7f\x01"),
            Err(CodecError::Version(1))
        ));
        let mut curve = Vec::new();
        Greeting::V31.encode(&mut curve);
        curve[12..17].copy_from_slice(b"CURVE");
        assert!(matches!(
            Greeting::parse(&curve),
            Err(CodecError::Mechanism)
        ));
        let mut longer = Vec::new();
        Greeting::V31.encode(&mut longer);
        longer[16] = b'X';
        assert!(matches!(
            Greeting::parse(&longer),
            Err(CodecError::Mechanism)
        ));
    }
}
