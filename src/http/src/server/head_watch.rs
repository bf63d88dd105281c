//! Sees whether a request's head has both `content-length` and `transfer-encoding` (RFC 9112, 6.3),
//! which the parser settles without a trace: the coding wins, the length is gone, the connection ends
//! with the response.
//!
//! It looks at the bytes of a connection between two requests, where a head begins. Where bytes came
//! with a head or behind it (a body, a second request), it cannot tell where the next head begins, and
//! sees no more of this connection. Then what the parser does has to do.

/// The two names, and the longer one's length.
const LENGTH: &[u8] = b"content-length";
const CODING: &[u8] = b"transfer-encoding";
const MAX_NAME_BYTES: usize = CODING.len();

/// Watches the heads of one connection.
#[derive(Debug, Default)]
pub(super) struct HeadWatch {
    line: Line,
    has_length: bool,
    has_coding: bool,
    /// The request line has been seen.
    has_begun: bool,
    /// The empty line has been seen.
    is_over: bool,
    /// It is not known where the next head begins.
    is_lost: bool,
}

/// The line at hand.
#[derive(Debug, Default)]
struct Line {
    /// Its first bytes, in lower case.
    name: [u8; MAX_NAME_BYTES],
    /// All of its bytes before the colon.
    length: usize,
    has_colon: bool,
}

impl HeadWatch {
    /// Sees bytes that arrived between two requests.
    pub(super) fn see(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.is_lost || self.is_over {
                self.is_lost = true;
                return;
            }
            self.see_byte(*byte);
        }
    }

    fn see_byte(&mut self, byte: u8) {
        let line = &mut self.line;
        match byte {
            b'\n' => {
                let is_empty = line.length == 0 && !line.has_colon;
                self.is_over = is_empty && self.has_begun;
                self.has_begun |= !is_empty;
                self.line = Line::default();
            }
            b'\r' => {}
            b':' if !line.has_colon => {
                line.has_colon = true;
                let name = line.name.get(..line.length);
                self.has_length |= name == Some(LENGTH);
                self.has_coding |= name == Some(CODING);
            }
            _ if line.has_colon => {}
            other => {
                if let Some(place) = line.name.get_mut(line.length) {
                    *place = other.to_ascii_lowercase();
                }
                line.length += 1;
            }
        }
    }

    /// Bytes arrived during a request.
    pub(super) fn lose(&mut self) {
        self.is_lost = true;
    }

    /// A request begins; whether its head was seen to have both.
    pub(super) fn take(&mut self) -> bool {
        // A head that is not over is another one's.
        let has_both = self.is_over && self.has_length && self.has_coding;
        let is_lost = self.is_lost || !self.is_over;
        *self = Self {
            is_lost,
            ..Self::default()
        };
        has_both
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: &str = "POST / HTTP/1.1\r\ncontent-length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
    const ONE: &str =
        "POST / HTTP/1.1\r\nx: content-length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";

    #[test]
    fn head_with_length_and_coding_is_seen_however_it_is_cut() {
        for size in 1..BOTH.len() {
            let mut watch = HeadWatch::default();
            for (head, expected) in [(ONE, false), (BOTH, true), (ONE, false)] {
                for part in head.as_bytes().chunks(size) {
                    watch.see(part);
                }
                assert_eq!(watch.take(), expected, "{size}");
            }
        }
        let mut watch = HeadWatch::default();
        watch.see(b"\r\n");
        watch.see(BOTH.replace("\r\n", "\n").as_bytes());
        assert!(watch.take());
    }

    #[test]
    fn nothing_is_seen_where_a_head_may_begin_anywhere() {
        let first: fn(&mut HeadWatch) = |watch| watch.see(format!("{ONE}0").as_bytes());
        for lose in [
            first,
            |watch| {
                watch.see(ONE.as_bytes());
                watch.see(b"0");
            },
            |watch| {
                watch.see(ONE.as_bytes());
                assert!(!watch.take());
                watch.lose();
            },
        ] {
            let mut watch = HeadWatch::default();
            lose(&mut watch);
            assert!(!watch.take());
            watch.see(BOTH.as_bytes());
            assert!(!watch.take());
        }
        let mut watch = HeadWatch::default();
        // The first of two requests that came at once is known.
        watch.see(format!("{BOTH}{BOTH}").as_bytes());
        assert_eq!((watch.take(), watch.take()), (true, false));
    }
}
