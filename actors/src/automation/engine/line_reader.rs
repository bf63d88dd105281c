//! Line decoder for a program's output: each line with its line feed, as Python's `readline` gives
//! them, up to a bound.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio_util::codec::Decoder;

/// Decoder of bounded lines.
pub(super) struct LineReader {
    longest: usize,
    /// How much of the buffer was searched for a line feed already.
    seen: usize,
}

impl LineReader {
    /// Decoder of lines of up to `longest` bytes.
    pub(super) fn new(longest: usize) -> Self {
        Self { longest, seen: 0 }
    }
}

impl Decoder for LineReader {
    type Item = Bytes;
    type Error = io::Error;

    fn decode(&mut self, buffer: &mut BytesMut) -> io::Result<Option<Bytes>> {
        let fresh = buffer.get(self.seen..).unwrap_or_default();
        let end = fresh.iter().position(|byte| *byte == b'\n');
        let end = end.map(|place| self.seen + place + 1);
        if end.unwrap_or(buffer.len()) > self.longest {
            let message = format!("a line has more than {} bytes", self.longest);
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        self.seen = if end.is_some() { 0 } else { buffer.len() };
        Ok(end.map(|end| buffer.split_to(end).freeze()))
    }

    /// The last line may have no line feed.
    fn decode_eof(&mut self, buffer: &mut BytesMut) -> io::Result<Option<Bytes>> {
        if let Some(line) = self.decode(buffer)? {
            return Ok(Some(line));
        }
        self.seen = 0;
        Ok((!buffer.is_empty()).then(|| buffer.split().freeze()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_keep_their_line_feed_and_the_last_needs_none() {
        let mut lines = LineReader::new(4);
        let mut buffer = BytesMut::from(&b"a\n"[..]);
        assert_eq!(
            lines.decode(&mut buffer).unwrap().as_deref(),
            Some(&b"a\n"[..])
        );
        buffer.extend_from_slice(b"bc");
        assert_eq!(lines.decode(&mut buffer).unwrap(), None);
        buffer.extend_from_slice(b"d\n\ne");
        assert_eq!(
            lines.decode(&mut buffer).unwrap().as_deref(),
            Some(&b"bcd\n"[..])
        );
        assert_eq!(
            lines.decode_eof(&mut buffer).unwrap().as_deref(),
            Some(&b"\n"[..])
        );
        assert_eq!(
            lines.decode_eof(&mut buffer).unwrap().as_deref(),
            Some(&b"e"[..])
        );
        assert_eq!(lines.decode_eof(&mut buffer).unwrap(), None);
    }

    #[test]
    fn overlong_line_is_refused_before_its_end() {
        for text in [&b"abcde"[..], b"abcd\n"] {
            let mut buffer = BytesMut::from(text);
            assert!(LineReader::new(4).decode(&mut buffer).is_err(), "{text:?}");
        }
    }
}
