//! Limits of a server: sizes, counts and deadlines.

use std::time::Duration;

/// Limits of one [`HttpServer`](super::HttpServer).
///
/// Memory is bounded by `connections` × (`head_bytes` + `body_bytes`), plus the handler's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpLimits {
    /// Connections in all; each carries one request.
    pub connections: usize,
    /// Connections from one IPv4 address or IPv6 network of 64 bits.
    pub per_address: usize,
    /// Request line and headers together, in bytes. At least 8 KiB, which the parser needs.
    pub head_bytes: usize,
    /// Number of headers.
    pub headers: usize,
    /// The body, in bytes.
    pub body_bytes: usize,
    /// From the first byte of a connection's plain text to the end of the headers.
    pub head_time: Duration,
    /// The whole connection: TLS, request, handler, and the peer's reading of the answer.
    pub exchange_time: Duration,
    /// How long a stopping server lets running exchanges go on.
    pub drain: Duration,
}

impl HttpLimits {
    /// Minimum of `head_bytes`.
    pub(crate) const MIN_HEAD_BYTES: usize = 8 << 10;
}

impl Default for HttpLimits {
    /// For read-only pages: no body, a few connections.
    fn default() -> Self {
        Self {
            connections: 64,
            per_address: 32,
            head_bytes: Self::MIN_HEAD_BYTES,
            headers: 64,
            body_bytes: 0,
            head_time: Duration::from_secs(5),
            exchange_time: Duration::from_secs(30),
            drain: Duration::from_secs(2),
        }
    }
}
