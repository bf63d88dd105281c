//! ZMTP framing as a `tokio_util` codec: first a greeting, then commands and frames.
//!
//! The decoder never reserves memory: it reports the missing bytes of an announced frame
//! ([`Codec::missing`]), and refuses one over a limit by its header. The order of items (READY
//! before messages, for example) is checked by the connection.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio_util::codec::{Decoder, Encoder};

use super::command::Command;
use super::greeting::{GREETING_LEN, Greeting};
use crate::port::SizeLimits;

const MORE: u8 = 0b001;
const LONG: u8 = 0b010;
const COMMAND: u8 = 0b100;

/// Longest header of a frame: flags and an eight-byte length.
pub(crate) const HEADER_MAX: usize = 9;

/// Why the bytes of a peer cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// Not ZMTP at all.
    #[error("the peer does not open with a ZMTP signature")]
    Signature,
    /// ZMTP 1 or 2.
    #[error("ZMTP revision {0} is too old")]
    Version(u8),
    /// CURVE, PLAIN or GSSAPI.
    #[error("the peer wants another mechanism than \"NULL\"")]
    Mechanism,
    /// Reserved flag bits, a command with the MORE flag, or a length with its top bit set.
    #[error("flags {0:#04x} do not open a frame")]
    Flags(u8),
    /// The announced frame is too large.
    #[error("a frame of {announced} bytes is over the limit of {limit}")]
    Frame {
        /// Length that the header gives.
        announced: u64,
        /// The limit.
        limit: usize,
    },
    /// The frames of a message are too large together.
    #[error("a message of {announced} bytes or more is over the limit of {limit}")]
    Message {
        /// Length of the frames so far, the announced one included.
        announced: u64,
        /// The limit.
        limit: usize,
    },
    /// A message has too many frames.
    #[error("a message of more than {0} frames")]
    Frames(usize),
    /// The announced command is too large.
    #[error("a command of {announced} bytes is over the limit of {limit}")]
    CommandSize {
        /// Length that the header gives.
        announced: u64,
        /// The limit.
        limit: usize,
    },
    /// A command with an invalid body.
    #[error("the command \"{0}\" is malformed")]
    Command(&'static str),
    /// The stream ended or failed (only through `Framed`).
    #[error("cannot read from the peer")]
    Io(#[from] std::io::Error),
}

/// One item read from, or written to, a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// The first 64 bytes.
    Greeting(Greeting),
    /// A command.
    Command(Command),
    /// One frame of a message.
    Frame {
        /// Another frame of the same message follows.
        more: bool,
        /// Its bytes, cut from the buffer that was read into.
        payload: Bytes,
    },
}

/// Codec of [`Item`]s.
#[derive(Debug)]
pub struct Codec {
    limits: SizeLimits,
    greeted: bool,
    /// Bytes and number of the finished frames of the incomplete message.
    message: (usize, usize),
}

struct Header {
    flags: u8,
    size: usize,
    length: usize,
}

impl Codec {
    /// A codec that expects a greeting first.
    pub fn new(limits: SizeLimits) -> Self {
        Self {
            limits,
            greeted: false,
            message: (0, 0),
        }
    }

    /// Sets the limits from the next header on.
    pub(crate) fn set_limits(&mut self, limits: SizeLimits) {
        self.limits = limits;
    }

    /// Whether a message has begun and its last frame is missing.
    pub(crate) fn in_message(&self) -> bool {
        self.message.1 > 0
    }

    /// Whether the next item in `buffer` is a command. `false` if there is none.
    pub(crate) fn at_command(&self, buffer: &[u8]) -> bool {
        buffer.first().is_some_and(|flags| flags & COMMAND != 0)
    }

    /// Bytes that `buffer` lacks for another item, as far as known.
    pub fn missing(&self, buffer: &[u8]) -> usize {
        if !self.greeted {
            return GREETING_LEN.saturating_sub(buffer.len());
        }
        match self.header(buffer) {
            Ok(Some(header)) => (header.size + header.length).saturating_sub(buffer.len()),
            _ => 1,
        }
    }

    fn header(&self, buffer: &[u8]) -> Result<Option<Header>, CodecError> {
        let Some(&flags) = buffer.first() else {
            return Ok(None);
        };
        let command = flags & COMMAND != 0;
        if flags & !(MORE | LONG | COMMAND) != 0 || (command && flags & MORE != 0) {
            return Err(CodecError::Flags(flags));
        }
        let (size, announced) = if flags & LONG == 0 {
            let Some(&length) = buffer.get(1) else {
                return Ok(None);
            };
            (2, u64::from(length))
        } else {
            let Some(length) = buffer.get(1..).and_then(|rest| rest.first_chunk::<8>()) else {
                return Ok(None);
            };
            (HEADER_MAX, u64::from_be_bytes(*length))
        };
        let length = usize::try_from(announced).unwrap_or(usize::MAX);
        let limits = &self.limits;
        if command {
            if length > limits.command {
                return Err(CodecError::CommandSize {
                    announced,
                    limit: limits.command,
                });
            }
        } else {
            if length > limits.frame {
                return Err(CodecError::Frame {
                    announced,
                    limit: limits.frame,
                });
            }
            let (bytes, frames) = self.message;
            let total = bytes.saturating_add(length);
            if total > limits.message {
                let announced = u64::try_from(total).unwrap_or(u64::MAX);
                return Err(CodecError::Message {
                    announced,
                    limit: limits.message,
                });
            }
            if frames >= limits.frames {
                return Err(CodecError::Frames(limits.frames));
            }
        }
        Ok(Some(Header {
            flags,
            size,
            length,
        }))
    }
}

impl Decoder for Codec {
    type Item = Item;
    type Error = CodecError;

    fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Item>, CodecError> {
        if !self.greeted {
            let Some(greeting) = Greeting::parse(buffer)? else {
                return Ok(None);
            };
            buffer.advance(GREETING_LEN);
            self.greeted = true;
            return Ok(Some(Item::Greeting(greeting)));
        }
        let Some(header) = self.header(buffer)? else {
            return Ok(None);
        };
        if buffer.len() < header.size + header.length {
            return Ok(None);
        }
        buffer.advance(header.size);
        let payload = buffer.split_to(header.length).freeze();
        if header.flags & COMMAND != 0 {
            return Command::parse(payload).map(|command| Some(Item::Command(command)));
        }
        let more = header.flags & MORE != 0;
        self.message = if more {
            (self.message.0 + header.length, self.message.1 + 1)
        } else {
            (0, 0)
        };
        Ok(Some(Item::Frame { more, payload }))
    }
}

impl Encoder<Item> for Codec {
    type Error = CodecError;

    fn encode(&mut self, item: Item, out: &mut BytesMut) -> Result<(), CodecError> {
        match item {
            Item::Greeting(greeting) => greeting.encode(out),
            Item::Command(command) => put_command(&command, out),
            Item::Frame { more, payload } => {
                put_frame_header(payload.len(), more, out);
                out.put_slice(&payload);
            }
        }
        Ok(())
    }
}

/// Appends the header of a message frame of `length` bytes.
pub(crate) fn put_frame_header(length: usize, more: bool, out: &mut impl BufMut) {
    put_header(length, if more { MORE } else { 0 }, out);
}

/// Appends a whole command frame.
pub(crate) fn put_command(command: &Command, out: &mut BytesMut) {
    let mut body = BytesMut::with_capacity(64);
    command.encode_body(&mut body);
    put_header(body.len(), COMMAND, out);
    out.put_slice(&body);
}

fn put_header(length: usize, flags: u8, out: &mut impl BufMut) {
    if let Ok(short) = u8::try_from(length) {
        out.put_u8(flags);
        out.put_u8(short);
    } else {
        out.put_u8(flags | LONG);
        out.put_u64(u64::try_from(length).unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: SizeLimits = SizeLimits {
        frame: 1000,
        message: 1500,
        frames: 3,
        command: 100,
    };

    fn greeted() -> Codec {
        Codec {
            greeted: true,
            ..Codec::new(LIMITS)
        }
    }

    fn decode(bytes: &[u8]) -> Result<Option<Item>, CodecError> {
        greeted().decode(&mut BytesMut::from(bytes))
    }

    #[test]
    fn header_over_a_limit_is_refused_alone() {
        let refused = [
            (&b"\x02\x40\0\0\0\0\0\0\0"[..], "4611686018427387904"),
            (
                b"\x02\xff\xff\xff\xff\xff\xff\xff\xff",
                "18446744073709551615",
            ),
            (b"\x02\0\0\0\0\0\0\x03\xe9", "1001"),
            (b"\x04\x65", "101"),
            (b"\x05\x01", "0x05"),
            (b"\x08\x01", "0x08"),
        ];
        for (bytes, hint) in refused {
            let error = decode(bytes).expect_err("over a limit").to_string();
            assert!(error.contains(hint), "{error}");
        }
        assert!(
            matches!(decode(b"\x02\0\0\0\0\0\0\x03\xe8"), Ok(None)),
            "at the limit"
        );
    }

    #[test]
    fn frames_of_a_message_are_summed() {
        let mut codec = greeted();
        let mut buffer = BytesMut::new();
        put_frame_header(1000, true, &mut buffer);
        buffer.put_bytes(b'x', 1000);
        assert!(codec.decode(&mut buffer).expect("first").is_some());
        assert!(codec.in_message());
        put_frame_header(501, false, &mut buffer);
        assert!(matches!(
            codec.decode(&mut buffer),
            Err(CodecError::Message {
                announced: 1501,
                limit: 1500
            })
        ));

        let mut codec = greeted();
        let mut buffer = BytesMut::from(&b"\x01\0\x01\0\x01\0\x01\0"[..]);
        for _ in 0..3 {
            assert!(codec.decode(&mut buffer).expect("three are fine").is_some());
        }
        assert!(matches!(
            codec.decode(&mut buffer),
            Err(CodecError::Frames(3))
        ));
    }

    #[test]
    fn missing_is_the_rest_of_an_announced_frame() {
        let codec = greeted();
        assert_eq!(codec.missing(b""), 1);
        assert_eq!(codec.missing(b"\x00"), 1);
        assert_eq!(codec.missing(b"\x00\x05ab"), 3);
        assert_eq!(Codec::new(LIMITS).missing(b"\xff"), 63);
    }
}
