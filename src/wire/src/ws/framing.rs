//! Framing of websockets for the listeners.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tungstenite::handshake::machine::TryParse;
use tungstenite::handshake::server::{Request, create_response, write_response};
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

use super::frames::{FrameReader, Received, put_frame, put_header};
use crate::port::framing::{Framing, Greeted, Introduction, PeerMessage, Side};
use crate::port::{Close, SizeLimits};
use crate::tcp::framing::put_bin_header;

/// Longest head of the HTTP request; aiohttp sends some 300 bytes.
const HTTP_HEAD: usize = 4 << 10;

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
        None,
        &mut head,
    );
    head.put_slice(&packed);
    head.freeze()
}

/// Only browsers send `Origin`. A page of any site could otherwise reach the port through the
/// browser of a user inside the firewall.
const FROM_A_PAGE: &[u8] =
    b"HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// Framing of one websocket.
pub(crate) struct WebSocket {
    side: Side,
    frames: FrameReader,
}

impl WebSocket {
    pub(crate) fn new(side: Side, sizes: SizeLimits) -> Self {
        Self {
            side,
            frames: FrameReader::new(true, sizes),
        }
    }
}

/// A close frame with the status that the peer gave, if any.
fn goodbye(status: &[u8]) -> Bytes {
    control(Control::Close, status.get(..2).unwrap_or_default())
}

fn control(kind: Control, payload: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(2 + payload.len());
    put_frame(OpCode::Control(kind), payload, None, &mut frame);
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
        let received = self.frames.next(buffer)?;
        Ok(received.map(|received| match (received, self.side) {
            (Received::Part, _) => PeerMessage::Part,
            (Received::Message(Data::Binary, payload), Side::Request) => {
                PeerMessage::Request(Vec::new(), payload)
            }
            (Received::Message(Data::Text, payload), _) if payload.as_ref() == b"close" => {
                PeerMessage::Close(goodbye(&[]))
            }
            (Received::Message(..) | Received::Pong, _) => PeerMessage::Ignored,
            (Received::Ping(payload), _) => PeerMessage::Ping(control(Control::Pong, &payload)),
            (Received::Close(status), _) => PeerMessage::Close(goodbye(&status)),
        }))
    }

    fn missing(&self, buffer: &[u8]) -> usize {
        self.frames.missing(buffer)
    }

    fn at_message(&self, buffer: &[u8]) -> bool {
        buffer.first().is_some_and(|first| first & 0x08 == 0)
    }

    fn in_message(&self) -> bool {
        self.frames.in_message()
    }

    fn set_sizes(&mut self, sizes: SizeLimits) {
        self.frames.set_sizes(sizes);
    }

    /// aiohttp answers from the minion's one loop, which jobs block: silence would prove nothing.
    fn ping(&self) -> Option<Bytes> {
        None
    }

    fn put_reply_head(&self, _: &[Bytes], payload: usize, out: &mut BytesMut) {
        put_header(OpCode::Data(Data::Binary), payload, None, out);
    }
}
