//! Frames of the event sockets (`master_event_pub.ipc`, `master_event_pull.ipc`).
//!
//! A frame is the packed map `{"head": {}, "body": bin}` (stock `salt/transport/frame.py`,
//! `frame_msg_ipc`), on some sockets and versions after its length in four bytes. The body of an
//! event is its tag, two line feeds and the packed data (`salt/utils/event.py`, `pack`).
//!
//! The caller chooses the framing by version, and decides on access.

use std::io;
use std::ops::Range;

use bytes::{Buf, Bytes, BytesMut};
use tokio_util::codec::Decoder;

use crate::msgpack::{Budget, Cursor, DecodeError, Dialect, Encoder, Limits, Token, skip};

/// Between the tag and the data (`TAGEND` in `salt/utils/event.py`).
const TAG_END: &[u8] = b"\n\n";

/// The bytes of a length prefix.
const PREFIX: usize = 4;

/// The first byte of a frame without prefix: a map of two entries. As the first byte of a length
/// it would announce more than 2 GiB.
const BARE_FRAME: u8 = 0x82;

/// Default limit of a frame, in bytes: that of stock's stream buffers.
const DEFAULT_MAX_FRAME: usize = 100 << 20;

/// Bytes reserved ahead for an incomplete frame.
const RESERVE_AHEAD: usize = 64 << 10;

/// Framing of an event socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// Prefixed with its length, four bytes, big endian. What 3006 reads, and what all versions
    /// send.
    Prefixed,
    /// Self-delimiting. What 3007 and 3008 read.
    Bare,
}

/// Why an event frame was refused.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// A frame longer than allowed.
    #[error("event frame of {bytes} bytes or more is longer than {limit}")]
    TooLong {
        /// The length as far as it is known.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// Not MessagePack.
    #[error("event frame is malformed")]
    Malformed(#[from] DecodeError),
    /// MessagePack, but not `{"head": …, "body": bytes}`.
    #[error("event frame has no body")]
    NoBody,
    /// The body has no line feeds between tag and data, or a tag that is no text.
    #[error("event body has no tag")]
    NoTag,
    /// The peer left in the middle of a frame.
    #[error("connection ended inside an event frame")]
    CutOff,
    /// The socket failed.
    #[error("event socket failed")]
    Io(#[from] io::Error),
}

/// Encoded event, packed once and shared by all subscribers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventFrame {
    prefixed: Bytes,
    body: usize,
}

impl EventFrame {
    /// Frames an event. `packed_data` is a map in the bin dialect, `_stamp` included.
    pub fn new(tag: &str, packed_data: &[u8]) -> Self {
        Self::of_body(&[tag.as_bytes(), TAG_END, packed_data])
    }

    /// Frames a body that is split in parts.
    fn of_body(parts: &[&[u8]]) -> Self {
        // The longest header of a body takes five bytes.
        const HEAD: usize = PREFIX + b"\x82\xa4head\x80\xa4body".len() + 5;
        let size: usize = parts.iter().map(|part| part.len()).sum();
        let mut out = Vec::with_capacity(HEAD + size);
        out.extend_from_slice(&[0; PREFIX]);
        let mut encoder = Encoder::new(&mut out, Dialect::Bin);
        encoder
            .map(2)
            .str("head")
            .map(0)
            .str("body")
            .bin_header(size);
        let body = out.len();
        for part in parts {
            out.extend_from_slice(part);
        }
        let len = u32::try_from(out.len() - PREFIX).expect("invariant: events stay below 4 GiB");
        let (prefix, _) = out
            .split_first_chunk_mut()
            .expect("invariant: the prefix was written");
        *prefix = len.to_be_bytes();
        Self {
            prefixed: out.into(),
            body,
        }
    }

    /// The bytes to write; cheap.
    pub fn bytes(&self, framing: Framing) -> Bytes {
        match framing {
            Framing::Prefixed => self.prefixed.clone(),
            Framing::Bare => self.prefixed.slice(PREFIX..),
        }
    }

    /// The body (see [`split_body`]); cheap.
    pub fn body(&self) -> Bytes {
        self.prefixed.slice(self.body..)
    }
}

/// Splits the body of an event into its tag and its packed data.
///
/// # Errors
/// [`FrameError::NoTag`] if there is no tag. The data is not looked at.
pub fn split_body(body: &[u8]) -> Result<(&str, &[u8]), FrameError> {
    let end = body.windows(TAG_END.len()).position(|pair| pair == TAG_END);
    let (tag, rest) = end
        .and_then(|end| body.split_at_checked(end))
        .ok_or(FrameError::NoTag)?;
    let data = rest.strip_prefix(TAG_END).ok_or(FrameError::NoTag)?;
    Ok((
        std::str::from_utf8(tag).map_err(|_| FrameError::NoTag)?,
        data,
    ))
}

/// Decoder of the frames of an event socket, which yields their bodies.
///
/// The first byte of a connection shows whether it sends prefixes: releases differ (stock's length
/// prefix came with 3006.26, 3007.15 and 3008.2), and several may be installed on one host.
#[derive(Debug)]
pub struct PullDecoder {
    max_frame: usize,
    framing: Option<Framing>,
    /// Buffered bytes below which another attempt is useless.
    wanted: usize,
}

impl PullDecoder {
    /// A decoder for one connection that refuses frames above `max_frame` bytes.
    pub fn new(max_frame: usize) -> Self {
        Self {
            max_frame,
            framing: None,
            wanted: 0,
        }
    }

    /// The peer's framing, once it has sent something.
    pub fn framing(&self) -> Option<Framing> {
        self.framing
    }

    fn prefixed(&mut self, src: &mut BytesMut) -> Result<Option<Bytes>, FrameError> {
        let Some(prefix) = src.first_chunk::<PREFIX>() else {
            return Ok(self.wait(src, PREFIX));
        };
        let len = u32::from_be_bytes(*prefix) as usize;
        self.check(len)?;
        if src.len() < PREFIX + len {
            return Ok(self.wait(src, PREFIX + len));
        }
        src.advance(PREFIX);
        let frame = src.split_to(len).freeze();
        let (body, end) = self.parse(&frame)?;
        if end < len {
            return Err(DecodeError::Trailing { extra: len - end }.into());
        }
        Ok(Some(frame.slice(body)))
    }

    fn bare(&mut self, src: &mut BytesMut) -> Result<Option<Bytes>, FrameError> {
        match self.parse(src) {
            Ok((body, end)) => {
                self.check(end)?;
                Ok(Some(src.split_to(end).freeze().slice(body)))
            }
            Err(FrameError::Malformed(DecodeError::Truncated { missing })) => {
                let wanted = src.len().saturating_add(missing.max(1));
                self.check(wanted)?;
                Ok(self.wait(src, wanted))
            }
            Err(error) => Err(error),
        }
    }

    fn check(&self, bytes: usize) -> Result<(), FrameError> {
        if bytes > self.max_frame {
            return Err(FrameError::TooLong {
                bytes,
                limit: self.max_frame,
            });
        }
        Ok(())
    }

    /// Waits for more. Little is reserved on the announcement of a peer.
    fn wait(&mut self, src: &mut BytesMut, wanted: usize) -> Option<Bytes> {
        self.wanted = wanted;
        src.reserve(wanted.saturating_sub(src.len()).min(RESERVE_AHEAD));
        None
    }

    /// The range of the body in the frame at the start of `input`, and the end of that frame.
    fn parse(&self, input: &[u8]) -> Result<(Range<usize>, usize), FrameError> {
        // A head may hold anything, but it is small.
        let limits = Limits {
            depth: 8,
            bytes: usize::MAX,
            items: 256,
        };
        let mut budget = Budget::new(input, &limits)?;
        let mut cursor = Cursor::new(input);
        let Token::Map(entries) = cursor.token()? else {
            return Err(FrameError::NoBody);
        };
        let mut body = None;
        for _ in 0..budget.open_map(entries)? {
            let key = cursor.token()?;
            if !matches!(
                key,
                Token::Raw(b"body") | Token::Str8(b"body") | Token::Bin(b"body")
            ) {
                if matches!(key, Token::Array(_) | Token::Map(_)) {
                    return Err(DecodeError::KeyNotHashable.into());
                }
                skip(&mut cursor, &mut budget)?;
                continue;
            }
            let (Token::Raw(bytes) | Token::Str8(bytes) | Token::Bin(bytes)) = cursor.token()?
            else {
                return Err(FrameError::NoBody);
            };
            let end = input.len() - cursor.left();
            body = Some(end - bytes.len()..end);
        }
        Ok((body.ok_or(FrameError::NoBody)?, input.len() - cursor.left()))
    }
}

impl Default for PullDecoder {
    fn default() -> Self {
        Self::new(DEFAULT_MAX_FRAME)
    }
}

impl Decoder for PullDecoder {
    type Item = Bytes;
    type Error = FrameError;

    fn decode(&mut self, src: &mut BytesMut) -> Result<Option<Bytes>, FrameError> {
        let Some(first) = src.first() else {
            return Ok(None);
        };
        if src.len() < self.wanted {
            return Ok(None);
        }
        self.wanted = 0;
        let framing = *self.framing.get_or_insert(match *first {
            BARE_FRAME => Framing::Bare,
            _ => Framing::Prefixed,
        });
        match framing {
            Framing::Prefixed => self.prefixed(src),
            Framing::Bare => self.bare(src),
        }
    }

    fn decode_eof(&mut self, src: &mut BytesMut) -> Result<Option<Bytes>, FrameError> {
        match self.decode(src)? {
            None if !src.is_empty() => Err(FrameError::CutOff),
            frame => Ok(frame),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::msgpack::vector_tests::stock_frames;

    const EVENT: &[u8] = b"\x82\xa4head\x80\xa4body\xc4\x05t\n\n\x80\x07";

    fn prefixed(frame: &[u8]) -> Vec<u8> {
        [&(frame.len() as u32).to_be_bytes()[..], frame].concat()
    }

    /// Feeds the input in pieces of `step` bytes.
    fn read(input: &[u8], step: usize, max_frame: usize) -> Result<Vec<Bytes>, FrameError> {
        let mut decoder = PullDecoder::new(max_frame);
        let (mut buffer, mut bodies) = (BytesMut::new(), Vec::new());
        for piece in input.chunks(step) {
            buffer.extend_from_slice(piece);
            while let Some(body) = decoder.decode(&mut buffer)? {
                bodies.push(body);
            }
        }
        while let Some(body) = decoder.decode_eof(&mut buffer)? {
            bodies.push(body);
        }
        Ok(bodies)
    }

    #[test]
    fn events_are_framed_as_by_stock() {
        let mut seen = 0;
        for event in stock_frames() {
            let frame = EventFrame::new(&event.tag, &event.data);
            assert_eq!(frame.bytes(Framing::Prefixed), event.prefixed);
            assert_eq!(frame.bytes(Framing::Bare), event.prefixed[PREFIX..]);
            assert_eq!(
                split_body(&frame.body()).unwrap(),
                (&event.tag[..], &event.data[..])
            );
            assert_eq!(read(&event.prefixed, 999, 1 << 20).unwrap(), [frame.body()]);
            seen += 1;
        }
        assert_eq!(seen, 9);
    }

    #[test]
    fn the_bytes_of_a_frame_are_shared() {
        let frame = EventFrame::new("tag", b"\x80");
        let (one, two) = (
            frame.bytes(Framing::Bare),
            frame.clone().bytes(Framing::Prefixed),
        );
        assert_eq!(one.as_ptr(), two[PREFIX..].as_ptr());
    }

    #[test]
    fn both_framings_are_detected_and_read_in_any_pieces() {
        let body = Bytes::from_static(b"t\n\n\x80\x07");
        for (stream, framing) in [
            (EVENT.repeat(3), Framing::Bare),
            (prefixed(EVENT).repeat(3), Framing::Prefixed),
        ] {
            for step in 1..=stream.len() {
                assert_eq!(read(&stream, step, 100).unwrap(), vec![body.clone(); 3]);
            }
            let mut decoder = PullDecoder::default();
            assert_eq!(decoder.framing(), None);
            assert!(decoder.decode(&mut stream[..].into()).unwrap().is_some());
            assert_eq!(decoder.framing(), Some(framing));
        }
    }

    #[test]
    fn heads_and_other_keys_are_skipped() {
        for frame in [
            &b"\x82\xa4body\xa1x\xa4head\x81\xa3mid\x05"[..],
            b"\x83\xa4head\xc0\x05\x91\xc0\xc4\x04body\xda\x00\x01x",
            b"\x81\xd9\x04body\xc6\x00\x00\x00\x01x",
        ] {
            assert_eq!(read(&prefixed(frame), 3, 100).unwrap(), ["x"]);
        }
    }

    #[test]
    fn hostile_frames_end_the_connection() {
        for (input, expected) in [
            (&b"\x7f\xff\xff\xff"[..], "too long"),
            (b"\xff\xff\xff\xff\x82", "too long"),
            (b"\x00\x00\x00\x65", "too long"),
            (b"\x82\xa4head\x80\xa4body\xc6\xff\xff\xff\xff", "too long"),
            (b"\x82\xa4head\xdb\xff\xff\xff\xff", "too long"),
            (b"\x00\x00\x00\x01\xc1", "malformed"),
            (b"\x00\x00\x00\x00", "malformed"),
            (b"\x00\x00\x00\x08\x81\xa4body\xa0\xc0", "malformed"),
            (b"\x82\xa4head\xdd\xff\xff\xff\xff", "malformed"),
            (b"\x82\x90\xc0\xc0\xc0", "malformed"),
            (b"\x00\x00\x00\x01\x80", "no body"),
            (b"\x00\x00\x00\x07\x81\xa4body\x05", "no body"),
            (b"\x82\xa1a\x01\xa1b\x02", "no body"),
            (b"\x82\xa4head\x80\xa4bod", "cut off"),
            (b"\x00\x00\x00", "cut off"),
        ] {
            for step in [1, 100] {
                let refused = match read(input, step, 100) {
                    Err(FrameError::TooLong { .. }) => "too long",
                    Err(FrameError::Malformed(_)) => "malformed",
                    Err(FrameError::NoBody) => "no body",
                    Err(FrameError::CutOff) => "cut off",
                    other => panic!("{other:?}"),
                };
                assert_eq!(refused, expected, "{input:x?}");
            }
        }
    }

    #[test]
    fn the_largest_frame_is_exactly_as_long_as_allowed() {
        for stream in [EVENT.to_vec(), prefixed(EVENT)] {
            assert_eq!(read(&stream, 4, EVENT.len()).unwrap().len(), 1);
            let refused = read(&stream, 4, EVENT.len() - 1);
            assert!(matches!(refused, Err(FrameError::TooLong { .. })));
        }
    }

    #[test]
    fn a_body_needs_a_tag() {
        assert_eq!(
            split_body(b"a/b\n\n\x80\n\n").unwrap(),
            ("a/b", &b"\x80\n\n"[..])
        );
        assert_eq!(split_body(b"\n\n").unwrap(), ("", &b""[..]));
        for body in [&b""[..], b"tag", b"tag\n\x80", b"\xff\n\n\x80"] {
            assert!(matches!(split_body(body), Err(FrameError::NoTag)));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_the_same_in_any_pieces(
            input in proptest::collection::vec(
                prop_oneof![any::<u8>(), Just(0), Just(0x82), Just(0xa1), 0_u8..9], 0..60),
            step in 1_usize..60,
        ) {
            let (one, two) = (read(&input, step, 50), read(&input, input.len().max(1), 50));
            prop_assert_eq!(one.ok(), two.ok());
        }

        #[test]
        fn every_event_comes_back(
            tag in "[a-z/]{0,30}", data in proptest::collection::vec(any::<u8>(), 0..300)
        ) {
            let frame = EventFrame::new(&tag, &data);
            for framing in [Framing::Prefixed, Framing::Bare] {
                let bodies = read(&frame.bytes(framing), 7, 1000).unwrap();
                prop_assert_eq!(split_body(&bodies[0]).unwrap(), (&tag[..], &data[..]));
            }
        }
    }
}
