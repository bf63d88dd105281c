//! Framing of websockets for the listeners.

use std::io::Cursor;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tungstenite::handshake::machine::TryParse;
use tungstenite::handshake::server::{Request, create_response, write_response};
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

use crate::port::framing::{Framing, Greeted, Introduction, PeerMessage, Side};
use crate::port::{Close, SizeLimits};
use crate::tcp::framing::put_bin_header;

/// Longest head of the HTTP request; aiohttp sends some 300 bytes.
const HTTP_HEAD: usize = 4 << 10;

/// Longest payload of a control frame (RFC 6455, 5.5).
const CONTROL: u64 = 125;

const REFUSAL: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// The bytes in front of a publication's payload: the header of a binary message, which holds the
/// payload as packed bytes.
pub(crate) fn publication_head(payload: usize) -> Bytes {
    let mut packed = BytesMut::with_capacity(8);
    put_bin_header(payload, &mut packed);
    let mut head = BytesMut::with_capacity(24);
    put_header(
        OpCode::Data(Data::Binary),
        packed.len() + payload,
        &mut head,
    );
    head.put_slice(&packed);
    head.freeze()
}

/// Appends the header of a whole message. A server masks nothing.
fn put_header(opcode: OpCode, length: usize, out: &mut BytesMut) {
    out.put_u8(0x80 | u8::from(opcode));
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short), _) if u64::from(short) <= CONTROL => out.put_u8(short),
        (_, Ok(middle)) => {
            out.put_u8(126);
            out.put_u16(middle);
        }
        _ => {
            out.put_u8(127);
            out.put_u64(u64::try_from(length).unwrap_or(u64::MAX));
        }
    }
}

/// Only browsers send `Origin`. A page of any site could otherwise reach the port through the
/// browser of a user inside the firewall.
const FROM_A_PAGE: &[u8] =
    b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// Framing of one websocket.
pub(crate) struct WebSocket {
    side: Side,
    sizes: SizeLimits,
    /// The frames of an incomplete message, and its kind.
    message: Option<Message>,
}

struct Message {
    kind: Data,
    frames: Vec<Bytes>,
    length: usize,
}

impl WebSocket {
    pub(crate) fn new(side: Side, sizes: SizeLimits) -> Self {
        Self {
            side,
            sizes,
            message: None,
        }
    }

    /// The header of the frame at the front, its own size and that of its payload, once it is
    /// complete; refused if it announces too much.
    fn header(&self, buffer: &[u8]) -> Result<Option<(FrameHeader, usize, usize)>, Close> {
        let mut cursor = Cursor::new(buffer);
        let Ok(parsed) = FrameHeader::parse(&mut cursor) else {
            return Err(Close::Malformed);
        };
        let Some((header, length)) = parsed else {
            return Ok(None);
        };
        if header.mask.is_none() || header.rsv1 || header.rsv2 || header.rsv3 {
            return Err(Close::Malformed);
        }
        let held = match (header.opcode, &self.message) {
            (OpCode::Control(_), _) if length > CONTROL || !header.is_final => {
                return Err(Close::CommandSize);
            }
            (OpCode::Control(_), _) => 0,
            (OpCode::Data(Data::Continue), Some(message)) => {
                if message.frames.len() >= self.sizes.frames {
                    return Err(Close::Frames);
                }
                message.length
            }
            (OpCode::Data(Data::Text | Data::Binary), None) => 0,
            (OpCode::Data(_), _) => return Err(Close::Malformed),
        };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > self.sizes.frame {
            return Err(Close::FrameSize);
        }
        if held.saturating_add(length) > self.sizes.message {
            return Err(Close::MessageSize);
        }
        let size = usize::try_from(cursor.position()).unwrap_or(usize::MAX);
        Ok(Some((header, size, length)))
    }

    fn data(&mut self, kind: Data, is_final: bool, payload: Bytes) -> PeerMessage {
        let mut message = self.message.take().unwrap_or(Message {
            kind,
            frames: Vec::new(),
            length: 0,
        });
        if !is_final {
            message.length += payload.len();
            message.frames.push(payload);
            self.message = Some(message);
            return PeerMessage::Part;
        }
        let payload = match message.frames.is_empty() {
            true => payload,
            false => {
                message.frames.push(payload);
                message.frames.concat().into()
            }
        };
        match (message.kind, self.side) {
            (Data::Binary, Side::Request) => PeerMessage::Request(Vec::new(), payload),
            (Data::Text, _) if payload.as_ref() == b"close" => PeerMessage::Close(goodbye(&[])),
            _ => PeerMessage::Ignored,
        }
    }
}

/// A close frame with the status that the peer gave, if any.
fn goodbye(status: &[u8]) -> Bytes {
    control(Control::Close, status.get(..2).unwrap_or_default())
}

fn control(kind: Control, payload: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(2 + payload.len());
    put_header(OpCode::Control(kind), payload.len(), &mut frame);
    frame.put_slice(payload);
    frame.freeze()
}

impl Framing for WebSocket {
    fn greet(&mut self, buffer: &mut BytesMut) -> Result<Greeted, Close> {
        let refused = || Greeted::Refused(Bytes::from_static(REFUSAL), Close::Handshake);
        let (size, request) = match Request::try_parse(buffer) {
            // Refused also when all of it arrives at once.
            Ok(Some((size, _))) if size > HTTP_HEAD => return Ok(refused()),
            Ok(Some(request)) => request,
            Ok(None) if buffer.len() < HTTP_HEAD => return Ok(Greeted::Incomplete),
            Ok(None) | Err(_) => return Ok(refused()),
        };
        buffer.advance(size);
        if request.headers().contains_key("Origin") {
            let answer = Bytes::from_static(FROM_A_PAGE);
            return Ok(Greeted::Refused(answer, Close::Origin));
        }
        let mut answer = BytesMut::with_capacity(160).writer();
        let written =
            create_response(&request).and_then(|response| write_response(&mut answer, &response));
        if written.is_err() {
            return Ok(refused());
        }
        let introduction = Introduction {
            identity: Bytes::new(),
            lockstep: false,
            receives_all: self.side == Side::Publish,
        };
        Ok(Greeted::Done(introduction, answer.into_inner().freeze()))
    }

    fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<PeerMessage>, Close> {
        let Some((header, size, length)) = self.header(buffer)? else {
            return Ok(None);
        };
        if buffer.len() < size + length {
            return Ok(None);
        }
        buffer.advance(size);
        let mut payload = buffer.split_to(length);
        let mask = header.mask.unwrap_or_default();
        for (byte, key) in payload.iter_mut().zip(mask.iter().cycle()) {
            *byte ^= key;
        }
        let payload = payload.freeze();
        Ok(Some(match header.opcode {
            OpCode::Data(kind) => self.data(kind, header.is_final, payload),
            OpCode::Control(Control::Ping) => PeerMessage::Ping(control(Control::Pong, &payload)),
            OpCode::Control(Control::Close) => PeerMessage::Close(goodbye(&payload)),
            OpCode::Control(_) => PeerMessage::Ignored,
        }))
    }

    fn missing(&self, buffer: &[u8]) -> usize {
        match self.header(buffer) {
            Ok(Some((_, size, length))) => (size + length).saturating_sub(buffer.len()).max(1),
            _ => 1,
        }
    }

    fn at_message(&self, buffer: &[u8]) -> bool {
        buffer.first().is_some_and(|first| first & 0x08 == 0)
    }

    fn in_message(&self) -> bool {
        self.message.is_some()
    }

    fn set_sizes(&mut self, sizes: SizeLimits) {
        self.sizes = sizes;
    }

    /// aiohttp answers from the minion's one loop, which jobs block: silence would prove nothing.
    fn ping(&self) -> Option<Bytes> {
        None
    }

    fn put_reply_head(&self, _: &[Bytes], payload: usize, out: &mut BytesMut) {
        put_header(OpCode::Data(Data::Binary), payload, out);
    }
}
