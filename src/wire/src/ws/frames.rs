//! Frames of RFC 6455, as both ends read and write them: limits first, fragments put together.
//!
//! What a peer announces is checked before any memory is reserved for it.

use std::io::Cursor;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tungstenite::protocol::frame::FrameHeader;
use tungstenite::protocol::frame::coding::{Control, Data, OpCode};

use crate::port::{Close, SizeLimits};

/// Longest payload of a control frame (RFC 6455, 5.5).
const CONTROL: u64 = 125;

/// Key by which a client masks a frame.
pub(super) type Mask = [u8; 4];

/// One frame of the peer, or a message whose last frame it is.
pub(super) enum Received {
    /// A part of a message.
    Part,
    /// A message.
    Message(Data, Bytes),
    /// To be answered by a pong with the same payload.
    Ping(Bytes),
    /// The peer closes, with this status and reason.
    Close(Bytes),
    /// A pong.
    Pong,
}

/// Reader of one end's frames.
pub(super) struct FrameReader {
    /// Whether the peer masks its frames, as clients must and servers must not.
    is_masked: bool,
    sizes: SizeLimits,
    /// The frames of an incomplete message, and its kind.
    message: Option<Message>,
}

struct Message {
    kind: Data,
    frames: Vec<Bytes>,
    length: usize,
}

impl FrameReader {
    pub(super) fn new(is_masked: bool, sizes: SizeLimits) -> Self {
        Self {
            is_masked,
            sizes,
            message: None,
        }
    }

    /// Sets the size limits from the next frame on.
    pub(super) fn set_sizes(&mut self, sizes: SizeLimits) {
        self.sizes = sizes;
    }

    /// Whether a message has begun that is no longer in the buffer.
    pub(super) fn in_message(&self) -> bool {
        self.message.is_some()
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
        let is_reserved = header.rsv1 || header.rsv2 || header.rsv3;
        if header.mask.is_some() != self.is_masked || is_reserved {
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

    /// Takes the next whole frame out of the buffer.
    pub(super) fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<Received>, Close> {
        let Some((header, size, length)) = self.header(buffer)? else {
            return Ok(None);
        };
        if buffer.len() < size + length {
            return Ok(None);
        }
        buffer.advance(size);
        let mut payload = buffer.split_to(length);
        if let Some(mask) = header.mask {
            apply(mask, &mut payload);
        }
        let payload = payload.freeze();
        Ok(Some(match header.opcode {
            OpCode::Data(kind) => self.data(kind, header.is_final, payload),
            OpCode::Control(Control::Ping) => Received::Ping(payload),
            OpCode::Control(Control::Close) => Received::Close(payload),
            OpCode::Control(_) => Received::Pong,
        }))
    }

    fn data(&mut self, kind: Data, is_final: bool, payload: Bytes) -> Received {
        let mut message = self.message.take().unwrap_or(Message {
            kind,
            frames: Vec::new(),
            length: 0,
        });
        if !is_final {
            message.length += payload.len();
            message.frames.push(payload);
            self.message = Some(message);
            return Received::Part;
        }
        let payload = match message.frames.is_empty() {
            true => payload,
            false => {
                message.frames.push(payload);
                message.frames.concat().into()
            }
        };
        Received::Message(message.kind, payload)
    }

    /// Bytes that the buffer lacks before the next frame is whole, as far as known; at least 1.
    pub(super) fn missing(&self, buffer: &[u8]) -> usize {
        match self.header(buffer) {
            Ok(Some((_, size, length))) => (size + length).saturating_sub(buffer.len()).max(1),
            _ => 1,
        }
    }
}

fn apply(mask: Mask, payload: &mut [u8]) {
    for (byte, key) in payload.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= key;
    }
}

/// Appends the header of a whole message.
pub(super) fn put_header(opcode: OpCode, length: usize, mask: Option<Mask>, out: &mut BytesMut) {
    let header = FrameHeader {
        opcode,
        mask,
        ..FrameHeader::default()
    };
    let length = u64::try_from(length).unwrap_or(u64::MAX);
    let written = header.format(length, &mut out.writer());
    written.expect("invariant: memory takes what is written");
}

/// Appends a whole frame, masked by `mask` where the sender is a client.
pub(super) fn put_frame(opcode: OpCode, payload: &[u8], mask: Option<Mask>, out: &mut BytesMut) {
    put_header(opcode, payload.len(), mask, out);
    let begin = out.len();
    out.put_slice(payload);
    if let (Some(mask), Some(written)) = (mask, out.get_mut(begin..)) {
        apply(mask, written);
    }
}
