//! Framing of Salt's TCP transport for the listeners.

use bytes::{BufMut, Bytes, BytesMut};
use tokio_util::codec::Decoder;

use super::codec::{Codec, CodecError};
use crate::msgpack::{Dialect, Encoder, Limits, MapView, RawValue};
use crate::port::framing::{Framing, Greeted, Introduction, PeerMessage, Side};
use crate::port::{Close, SizeLimits};

/// Longest head of a request: stock's holds one UUID.
const HEAD: usize = 1 << 10;

/// The bytes in front of a publication's payload: `{"head": {}, "body": <bytes>`.
///
/// Stock 3006 sends the payload's map itself as the body, later ones its bytes; the clients of all
/// three take the bytes.
pub(crate) fn publication_head(payload: usize) -> Bytes {
    let mut head = BytesMut::with_capacity(24);
    head.put_slice(b"\x82\xa4head\x80\xa4body");
    put_bin_header(payload, &mut head);
    head.freeze()
}

/// The header of a `bin` of `length` bytes.
pub(crate) fn put_bin_header(length: usize, out: &mut BytesMut) {
    if let Ok(short) = u8::try_from(length) {
        out.put_slice(&[0xc4, short]);
    } else if let Ok(middle) = u16::try_from(length) {
        out.put_u8(0xc5);
        out.put_u16(middle);
    } else {
        out.put_u8(0xc6);
        // A publication is never longer than a load may be.
        out.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    }
}

/// Splits a frame into head and body.
pub(super) fn parts(frame: Bytes) -> Option<(RawValue, RawValue)> {
    let mut frame = MapView::parse(frame, &Limits::WIRE).ok()?;
    Some((frame.remove("head")?, frame.remove("body")?))
}

/// Appends a packed head in front of a packed body, which follows.
pub(super) fn put_head(head: &[u8], out: &mut BytesMut) {
    let mut packed = Vec::with_capacity(12 + head.len());
    Encoder::new(&mut packed, Dialect::Bin)
        .map(2)
        .str("head")
        .raw(head)
        .str("body");
    out.put_slice(&packed);
}

/// Framing of one TCP connection.
pub(crate) struct SaltTcp {
    side: Side,
    codec: Codec,
}

impl SaltTcp {
    pub(crate) fn new(side: Side, sizes: SizeLimits) -> Self {
        Self {
            side,
            codec: Codec::new(sizes.message),
        }
    }
}

impl Framing for SaltTcp {
    fn greet(&mut self, _: &mut BytesMut) -> Result<Greeted, Close> {
        let introduction = Introduction {
            identity: Bytes::new(),
            lockstep: false,
            receives_all: self.side == Side::Publish,
        };
        Ok(Greeted::Done(introduction, Bytes::new()))
    }

    fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<PeerMessage>, Close> {
        let Some(frame) = self.codec.decode(buffer)? else {
            return Ok(None);
        };
        let (head, body) = parts(frame).ok_or(Close::Malformed)?;
        Ok(Some(match self.side {
            Side::Request if head.bytes().len() > HEAD => return Err(Close::Envelope),
            // Copied: kept for as long as the request, which may be much smaller than its frame.
            Side::Request => {
                let head = Bytes::copy_from_slice(head.bytes());
                PeerMessage::Request(vec![head], body.into_bytes())
            }
            Side::Publish => PeerMessage::Registration(body.into_bytes()),
        }))
    }

    fn missing(&self, _: &[u8]) -> usize {
        self.codec.missing()
    }

    fn at_message(&self, buffer: &[u8]) -> bool {
        !buffer.is_empty()
    }

    fn in_message(&self) -> bool {
        false
    }

    fn set_sizes(&mut self, sizes: SizeLimits) {
        self.codec.set_limit(sizes.message);
    }

    fn ping(&self) -> Option<Bytes> {
        None
    }

    fn put_reply_head(&self, envelope: &[Bytes], _: usize, out: &mut BytesMut) {
        // Stock's client requires a head, so an empty one is better than none.
        let head = envelope.first().map_or(&b"\x80"[..], Bytes::as_ref);
        put_head(head, out);
    }
}

impl From<CodecError> for Close {
    fn from(error: CodecError) -> Self {
        match error {
            CodecError::Malformed(_) => Self::Malformed,
            CodecError::TooLong { .. } => Self::MessageSize,
            CodecError::Io(_) => Self::Io,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publication_is_a_head_and_bytes() {
        for length in [0, 255, 256, 65_535, 65_536] {
            let payload = vec![b'x'; length];
            let frame = [&publication_head(length)[..], &payload].concat();
            let (head, body) = parts(frame.into()).expect("well formed");
            assert_eq!(head.bytes().as_ref(), b"\x80");
            assert_eq!(body.as_bytes(), Some(&payload[..]), "{length}");
        }
    }

    #[test]
    fn request_head_is_returned_with_the_reply() {
        let mut framing = SaltTcp::new(Side::Request, SizeLimits::UNKNOWN_PEER);
        let request = b"\x82\xa4head\x81\xa3mid\xa13\xa4body\x81\xa3enc\xa3aes";
        let mut buffer = BytesMut::from(&request[..]);
        let Ok(Some(PeerMessage::Request(envelope, payload))) = framing.next(&mut buffer) else {
            panic!("a request");
        };
        assert_eq!(payload.as_ref(), b"\x81\xa3enc\xa3aes");
        let mut reply = BytesMut::new();
        framing.put_reply_head(&envelope, 1, &mut reply);
        assert_eq!(reply.as_ref(), b"\x82\xa4head\x81\xa3mid\xa13\xa4body");
    }
}
