//! ZMTP commands: READY and ERROR of the handshake, SUBSCRIBE, CANCEL, PING and PONG of 3.1.
//!
//! A command is a frame with the command flag whose body is a short name and its own bytes.
//! Unknown names are kept: they are skipped, and counted against the command rate.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::codec::CodecError;

/// Longest context of a PING (RFC 37/ZMTP 3.1: 16 bytes).
const PING_CONTEXT: usize = 16;

/// Longest property value that is compared: an identity has at most 255 bytes.
const VALUE_SEEN: usize = 255;

/// Socket types: the value of READY's `Socket-Type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketType {
    /// Sends a request, waits for the reply.
    Req,
    /// Sends requests without waiting.
    Dealer,
    /// Routes by identity; as a peer of a ROUTER it behaves as a DEALER does.
    Router,
    /// Replies to one request at a time.
    Rep,
    /// Publishes.
    Pub,
    /// Publishes, and receives subscriptions.
    Xpub,
    /// Subscribes.
    Sub,
    /// Subscribes with raw messages.
    Xsub,
}

impl SocketType {
    const ALL: [(Self, &'static str); 8] = [
        (Self::Req, "REQ"),
        (Self::Dealer, "DEALER"),
        (Self::Router, "ROUTER"),
        (Self::Rep, "REP"),
        (Self::Pub, "PUB"),
        (Self::Xpub, "XPUB"),
        (Self::Sub, "SUB"),
        (Self::Xsub, "XSUB"),
    ];

    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Req => "REQ",
            Self::Dealer => "DEALER",
            Self::Router => "ROUTER",
            Self::Rep => "REP",
            Self::Pub => "PUB",
            Self::Xpub => "XPUB",
            Self::Sub => "SUB",
            Self::Xsub => "XSUB",
        }
    }

    fn from_wire(value: &[u8]) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|(_, name)| name.as_bytes().eq_ignore_ascii_case(value))
            .map(|(kind, _)| *kind)
    }
}

/// Properties of READY that matter here; others are checked and skipped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ready {
    /// `Socket-Type`; `None` if it is missing or of a kind not known here.
    pub socket_type: Option<SocketType>,
    /// `Identity`; empty if it is not given.
    pub identity: Bytes,
}

/// One command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// The handshake's only step with NULL.
    Ready(Ready),
    /// The peer refuses us, with its reason.
    Error(Bytes),
    /// Subscribes to messages whose first frame has this prefix.
    Subscribe(Bytes),
    /// Cancels such a subscription.
    Cancel(Bytes),
    /// Asks for a PONG with the same context.
    Ping {
        /// Timeout of the sender in tenths of a second; 0 is none.
        ttl: u16,
        /// Up to `PING_CONTEXT` bytes to send back.
        context: Bytes,
    },
    /// Answers a PING.
    Pong(Bytes),
    /// An unknown command.
    Unknown {
        /// The name as received.
        name: Bytes,
        /// Bytes that follow the name.
        body: Bytes,
    },
}

impl Command {
    /// Parses the body of a command frame.
    ///
    /// # Errors
    ///
    /// A length points past the end, or a known command has a body that it cannot have.
    pub fn parse(mut frame: Bytes) -> Result<Self, CodecError> {
        let name_len = usize::from(frame.first().copied().ok_or(CodecError::Command("name"))?);
        if name_len == 0 || frame.len() - 1 < name_len {
            return Err(CodecError::Command("name"));
        }
        frame.advance(1);
        let name = frame.split_to(name_len);
        let body = frame;
        match name.as_ref() {
            b"READY" => Ready::parse(body).map(Self::Ready),
            b"ERROR" => {
                let length = usize::from(*body.first().ok_or(CodecError::Command("ERROR"))?);
                let reason = body.get(1..=length).ok_or(CodecError::Command("ERROR"))?;
                Ok(Self::Error(body.slice_ref(reason)))
            }
            b"SUBSCRIBE" => Ok(Self::Subscribe(body)),
            b"CANCEL" => Ok(Self::Cancel(body)),
            b"PING" => {
                let mut context = body;
                if context.len() < 2 || context.len() > 2 + PING_CONTEXT {
                    return Err(CodecError::Command("PING"));
                }
                let ttl = context.get_u16();
                Ok(Self::Ping { ttl, context })
            }
            b"PONG" => {
                if body.len() > PING_CONTEXT {
                    return Err(CodecError::Command("PONG"));
                }
                Ok(Self::Pong(body))
            }
            _ => Ok(Self::Unknown { name, body }),
        }
    }

    /// Appends the body of the command frame (name and rest, without flags and length).
    pub(crate) fn encode_body(&self, out: &mut BytesMut) {
        match self {
            Self::Ready(ready) => {
                put_name(out, b"READY");
                if let Some(kind) = ready.socket_type {
                    put_property(out, b"Socket-Type", kind.name().as_bytes());
                    // libzmq sends its identity for these types, even if empty, and for no other.
                    if matches!(
                        kind,
                        SocketType::Req | SocketType::Dealer | SocketType::Router
                    ) {
                        put_property(out, b"Identity", &ready.identity);
                    }
                }
            }
            Self::Error(reason) => {
                put_name(out, b"ERROR");
                let reason = reason.get(..255).unwrap_or(reason);
                out.put_u8(u8::try_from(reason.len()).unwrap_or(u8::MAX));
                out.put_slice(reason);
            }
            Self::Subscribe(topic) => {
                put_name(out, b"SUBSCRIBE");
                out.put_slice(topic);
            }
            Self::Cancel(topic) => {
                put_name(out, b"CANCEL");
                out.put_slice(topic);
            }
            Self::Ping { ttl, context } => {
                put_name(out, b"PING");
                out.put_u16(*ttl);
                out.put_slice(context);
            }
            Self::Pong(context) => {
                put_name(out, b"PONG");
                out.put_slice(context);
            }
            Self::Unknown { name, body } => {
                put_name(out, name);
                out.put_slice(body);
            }
        }
    }
}

impl Ready {
    fn parse(mut body: Bytes) -> Result<Self, CodecError> {
        const BROKEN: CodecError = CodecError::Command("READY");
        let mut ready = Self {
            socket_type: None,
            identity: Bytes::new(),
        };
        while body.has_remaining() {
            let name_len = usize::from(body.get_u8());
            if name_len == 0 || body.remaining() < name_len + 4 {
                return Err(BROKEN);
            }
            let name = body.split_to(name_len);
            let value_len = usize::try_from(body.get_u32()).map_err(|_| BROKEN)?;
            if value_len > body.remaining() {
                return Err(BROKEN);
            }
            let value = body.split_to(value_len);
            if name.eq_ignore_ascii_case(b"Socket-Type") {
                ready.socket_type = SocketType::from_wire(&value);
            } else if name.eq_ignore_ascii_case(b"Identity") {
                if value.len() > VALUE_SEEN {
                    return Err(BROKEN);
                }
                ready.identity = value;
            }
        }
        Ok(ready)
    }
}

fn put_name(out: &mut BytesMut, name: &[u8]) {
    let name = name.get(..255).unwrap_or(name);
    out.put_u8(u8::try_from(name.len()).unwrap_or(u8::MAX));
    out.put_slice(name);
}

fn put_property(out: &mut BytesMut, name: &[u8], value: &[u8]) {
    put_name(out, name);
    out.put_u32(u32::try_from(value.len()).unwrap_or(0));
    out.put_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &'static [u8]) -> Result<Command, CodecError> {
        Command::parse(Bytes::from_static(bytes))
    }

    #[test]
    fn ready_of_a_stock_minion_is_parsed() {
        let seen = b"\x05READY\x0bSocket-Type\0\0\0\x03REQ\x08Identity\0\0\0\x0csalt-req/m/1";
        let Ok(Command::Ready(ready)) = parse(seen) else {
            panic!("not a READY")
        };
        assert_eq!(ready.socket_type, Some(SocketType::Req));
        assert_eq!(ready.identity.as_ref(), b"salt-req/m/1");
    }

    #[test]
    fn lengths_past_the_end_are_refused() {
        for broken in [
            &b""[..],
            b"\x00",
            b"\x05REA",
            b"\x05READY\x0bSocket",
            b"\x05READY\x0bSocket-Type\0\0\0\xffREQ",
            b"\x05READY\x0bSocket-Type\xff\xff\xff\xffREQ",
            b"\x05READY\x00\0\0\0\0",
            b"\x04PING\0",
            b"\x04PING\0\0aaaaaaaaaaaaaaaaa",
            b"\x04PONGaaaaaaaaaaaaaaaaa",
            b"\x05ERROR\x09short",
        ] {
            assert!(parse(broken).is_err(), "{broken:?} was taken");
        }
    }
}
