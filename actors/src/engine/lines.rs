//! Lines of a program, each with its line feed, as Python's `readline` gives them, and none longer
//! than a bound.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio_util::codec::Decoder;

/// See the module.
pub(super) struct Lines {
    longest: usize,
    /// How much of the buffer is known to hold no line feed.
    seen: usize,
}

impl Lines {
    /// Lines of up to so many bytes.
    pub(super) fn new(longest: usize) -> Self {
        Self { longest, seen: 0 }
    }
}

impl Decoder for Lines {
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

    /// What the program printed last may have no line feed.
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
    fn lines_keep_their_ends_and_the_last_one_needs_none() {
        let mut lines = Lines::new(4);
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
    fn a_line_that_is_too_long_is_refused_before_it_ends() {
        for text in [&b"abcde"[..], b"abcd\n"] {
            let mut buffer = BytesMut::from(text);
            assert!(Lines::new(4).decode(&mut buffer).is_err(), "{text:?}");
        }
    }
}
