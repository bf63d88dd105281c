//! Framing of ZMTP for the listeners: a ROUTER for REQ, DEALER and ROUTER peers, a PUB for SUB and
//! XSUB peers.

use bytes::{BufMut, Bytes, BytesMut};
use tokio_util::codec::Decoder;

use super::codec::{Codec, HEADER_MAX, Item, put_command, put_frame_header};
use super::command::{Command, Ready, SocketType};
use super::greeting::Greeting;
use crate::port::framing::{Framing, Greeted, Introduction, PeerMessage, Side};
use crate::port::{Close, SizeLimits};

/// Most frames, and bytes, before the empty delimiter. libzmq's own sockets send at most an
/// identity for each hop.
const ENVELOPE_FRAMES: usize = 8;
const ENVELOPE_BYTES: usize = 1024;

/// Greeting and READY as one piece: a peer with the NULL mechanism reads them in sequence.
pub(crate) fn hello(side: Side) -> Bytes {
    let socket_type = match side {
        Side::Request => SocketType::Router,
        Side::Publish => SocketType::Pub,
    };
    let mut hello = BytesMut::with_capacity(128);
    Greeting::V31.encode(&mut hello);
    let ready = Ready {
        socket_type: Some(socket_type),
        identity: Bytes::new(),
    };
    put_command(&Command::Ready(ready), &mut hello);
    hello.freeze()
}

/// The frame headers of a publication: topic (`zmq_filtering`), if any, and payload.
pub(crate) fn publication_head(topic: Option<&[u8]>, payload: usize) -> Bytes {
    let topic_length = topic.map_or(0, <[u8]>::len);
    let mut head = BytesMut::with_capacity(2 * HEADER_MAX + topic_length);
    if let Some(topic) = topic {
        put_frame_header(topic.len(), true, &mut head);
        head.extend_from_slice(topic);
    }
    put_frame_header(payload, false, &mut head);
    head.freeze()
}

/// An incomplete message.
#[derive(Default)]
struct Partial {
    /// Frames before the delimiter.
    envelope: Vec<Bytes>,
    delimited: bool,
    payload: Option<Bytes>,
}

impl Partial {
    fn add(&mut self, frame: Bytes) -> Result<(), Close> {
        if self.delimited {
            // Stock uses the frame after the delimiter and ignores what follows.
            self.payload.get_or_insert(frame);
        } else if frame.is_empty() {
            self.delimited = true;
        } else {
            let held: usize = self.envelope.iter().map(Bytes::len).sum();
            if self.envelope.len() >= ENVELOPE_FRAMES || held + frame.len() > ENVELOPE_BYTES {
                return Err(Close::Envelope);
            }
            // Copied: the received bytes share a whole read buffer, and a reply holds them for long.
            self.envelope.push(Bytes::copy_from_slice(&frame));
        }
        Ok(())
    }
}

/// Framing of one ZMTP connection.
pub(crate) struct Zmtp {
    side: Side,
    codec: Codec,
    message: Partial,
    greeted: bool,
    /// Whether the peer speaks 3.1.
    modern: bool,
}

impl Zmtp {
    pub(crate) fn new(side: Side, sizes: SizeLimits) -> Self {
        Self {
            side,
            codec: Codec::new(sizes),
            message: Partial::default(),
            greeted: false,
            modern: false,
        }
    }

    fn accepts(&self) -> &'static [SocketType] {
        match self.side {
            Side::Request => &[SocketType::Req, SocketType::Dealer, SocketType::Router],
            Side::Publish => &[SocketType::Sub, SocketType::Xsub],
        }
    }

    fn introduced(&self, ready: Ready) -> Greeted {
        let is_served = |kind: &SocketType| self.accepts().contains(kind);
        let Some(kind) = ready.socket_type.filter(is_served) else {
            let reason = Command::Error(Bytes::from_static(b"Invalid socket type"));
            return Greeted::Refused(encoded(&reason), Close::SocketType);
        };
        let introduction = Introduction {
            // Copied: the received bytes share a whole read buffer.
            identity: Bytes::copy_from_slice(&ready.identity),
            lockstep: kind == SocketType::Req,
            receives_all: false,
        };
        Greeted::Done(introduction, Bytes::new())
    }

    fn frame(&mut self, more: bool, payload: Bytes) -> Result<PeerMessage, Close> {
        match self.side {
            Side::Request => {
                self.message.add(payload)?;
                if more {
                    return Ok(PeerMessage::Part);
                }
                let message = std::mem::take(&mut self.message);
                let payload = message.payload.ok_or(Close::Envelope)?;
                Ok(PeerMessage::Request(message.envelope, payload))
            }
            Side::Publish if more => Err(Close::Frames),
            Side::Publish => Ok(match payload.first() {
                Some(1) => PeerMessage::Subscribe(payload.slice(1..)),
                Some(0) => PeerMessage::Cancel(payload.slice(1..)),
                // PUB ignores all else that its peers send, as libzmq does.
                _ => PeerMessage::Ignored,
            }),
        }
    }

    fn command(&self, command: Command) -> Result<PeerMessage, Close> {
        Ok(match command {
            Command::Ping { context, .. } => PeerMessage::Ping(encoded(&Command::Pong(context))),
            Command::Subscribe(topic) if self.side == Side::Publish => {
                PeerMessage::Subscribe(topic)
            }
            Command::Cancel(topic) if self.side == Side::Publish => PeerMessage::Cancel(topic),
            Command::Error(_) => return Err(Close::PeerError),
            Command::Ready(_) => return Err(Close::Handshake),
            Command::Pong(_)
            | Command::Subscribe(_)
            | Command::Cancel(_)
            | Command::Unknown { .. } => PeerMessage::Ignored,
        })
    }
}

impl Framing for Zmtp {
    fn greet(&mut self, buffer: &mut BytesMut) -> Result<Greeted, Close> {
        // A message before READY is refused by its first byte, not read first.
        while !(self.greeted && self.at_message(buffer)) {
            let Some(item) = self.codec.decode(buffer)? else {
                return Ok(Greeted::Incomplete);
            };
            match item {
                Item::Greeting(greeting) => {
                    self.modern = greeting.minor >= 1;
                    self.greeted = true;
                }
                Item::Command(Command::Ready(ready)) => return Ok(self.introduced(ready)),
                Item::Command(Command::Error(_)) => return Err(Close::PeerError),
                Item::Command(_) | Item::Frame { .. } => return Err(Close::Handshake),
            }
        }
        Err(Close::Handshake)
    }

    fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<PeerMessage>, Close> {
        let Some(item) = self.codec.decode(buffer)? else {
            return Ok(None);
        };
        match item {
            Item::Frame { more, payload } => self.frame(more, payload).map(Some),
            Item::Command(command) => self.command(command).map(Some),
            // The codec gives one greeting, and the handshake took it.
            Item::Greeting(_) => Err(Close::Handshake),
        }
    }

    fn missing(&self, buffer: &[u8]) -> usize {
        self.codec.missing(buffer)
    }

    fn at_message(&self, buffer: &[u8]) -> bool {
        !buffer.is_empty() && !self.codec.at_command(buffer)
    }

    fn in_message(&self) -> bool {
        self.codec.in_message()
    }

    fn set_sizes(&mut self, sizes: SizeLimits) {
        self.codec.set_limits(sizes);
    }

    fn ping(&self) -> Option<Bytes> {
        self.modern.then(|| {
            encoded(&Command::Ping {
                ttl: 0,
                context: Bytes::new(),
            })
        })
    }

    fn put_reply_head(&self, envelope: &[Bytes], payload: usize, out: &mut BytesMut) {
        for frame in envelope {
            put_frame_header(frame.len(), true, out);
            out.put_slice(frame);
        }
        put_frame_header(0, true, out);
        put_frame_header(payload, false, out);
    }
}

/// Encodes a command.
fn encoded(command: &Command) -> Bytes {
    let mut bytes = BytesMut::with_capacity(64);
    put_command(command, &mut bytes);
    bytes.freeze()
}
