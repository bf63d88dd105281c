//! Frames of the event sockets (`master_event_pub.ipc`, `master_event_pull.ipc`).
//!
//! A frame is the packed map `{"head": {}, "body": bin}` (stock `salt/transport/frame.py`,
//! `frame_msg_ipc`), on some sockets and versions after its length in four bytes. The body of an
//! event is its tag, two line feeds and the packed data (`salt/utils/event.py`, `pack`).
//!
//! Which version wants which framing is decided above, and so is who may connect.

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

/// The largest frame that is read unless said otherwise, in bytes: stock's stream buffers end
/// there too.
pub const DEFAULT_MAX_FRAME: usize = 100 << 20;

/// How much is reserved ahead for a frame whose end has not come, in bytes.
const RESERVE_AHEAD: usize = 64 << 10;

/// How a frame is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// After its length, four bytes, big endian. What 3006 reads, and what all versions send.
    Prefixed,
    /// By itself. What 3007 and 3008 read.
    Bare,
}

/// Why bytes on an event socket were refused.
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

/// An event as it goes out, packed once and shared by all subscribers.
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

/// Reads frames from an event socket and yields their bodies.
///
/// Whether a connection sends prefixes is told by its first byte: releases differ (stock's length
/// prefix came with 3006.26, 3007.15 and 3008.2), and several may be installed on one host.
#[derive(Debug)]
pub struct PullDecoder {
    max_frame: usize,
    framing: Option<Framing>,
    /// Below this many buffered bytes there is no use in looking again.
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

    /// How the peer delimits its frames, once it has sent something.
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

    /// Waits for more. Little is reserved on the word of a peer.
    fn wait(&mut self, src: &mut BytesMut, wanted: usize) -> Option<Bytes> {
        self.wanted = wanted;
        src.reserve(wanted.saturating_sub(src.len()).min(RESERVE_AHEAD));
        None
    }

    /// Where the body lies in the frame at the start of `input`, and where that frame ends.
    fn parse(&self, input: &[u8]) -> Result<(Range<usize>, usize), FrameError> {
        // Of a head nothing is known but that it is small.
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
