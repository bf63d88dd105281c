//! The bounds of a server: sizes, counts and deadlines.

use std::time::Duration;

/// Bounds of one [`HttpServer`](super::HttpServer).
///
/// What it holds at most is `connections` × (`head_bytes` + `body_bytes`), and what the handler
/// answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpLimits {
    /// Connections in all; each carries one request.
    pub connections: usize,
    /// Connections from one IPv4 address or IPv6 network of 64 bits.
    pub per_address: usize,
    /// Request line and headers together, in bytes. No less than 8 KiB, which the parser needs.
    pub head_bytes: usize,
    /// Number of headers.
    pub headers: usize,
    /// The body, in bytes.
    pub body_bytes: usize,
    /// From the first byte of a connection's plain text to the end of the headers.
    pub head_time: Duration,
    /// The whole connection: TLS, request, handler, and the peer's reading of the answer.
    pub exchange_time: Duration,
    /// How long a stopping server lets exchanges that have begun go on.
    pub drain: Duration,
}

impl HttpLimits {
    /// The least that `head_bytes` can be.
    pub const LEAST_HEAD_BYTES: usize = 8 << 10;
}

impl Default for HttpLimits {
    /// For those who only ask: no body, a few connections.
    fn default() -> Self {
        Self {
            connections: 64,
            per_address: 32,
            head_bytes: Self::LEAST_HEAD_BYTES,
            headers: 64,
            body_bytes: 0,
            head_time: Duration::from_secs(5),
            exchange_time: Duration::from_secs(30),
            drain: Duration::from_secs(2),
        }
    }
}
