//! Limits of a server: sizes, counts and deadlines.

use std::time::Duration;

/// Limits of one [`HttpServer`](super::HttpServer).
///
/// Memory is bounded by `connections` × (2 × `head_bytes` + HTTP/2's windows) + `requests` ×
/// `body_bytes`, plus the handlers' responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpLimits {
    /// Connections in all.
    pub connections: usize,
    /// Connections from one IPv4 address or IPv6 network of 64 bits.
    pub per_address: usize,
    /// Requests in all whose response has not ended; long streams are not counted.
    pub requests: usize,
    /// Requests at a time on one connection of HTTP/2, long streams included.
    pub http2_streams: u32,
    /// Request line and headers together, in bytes. At least 8 KiB, which the parser needs.
    pub head_bytes: usize,
    /// Number of headers.
    pub headers: usize,
    /// The body, in bytes.
    pub body_bytes: usize,
    /// The TLS handshake; and from the first byte of a request, or from the start of the
    /// connection, to the end of the headers.
    pub head_time: Duration,
    /// From the end of the headers to the end of the body.
    pub body_time: Duration,
    /// One request: its body, the handler, and the peer's reading of the response. A long stream
    /// has this time for its head, and whenever the peer reads nothing.
    pub exchange_time: Duration,
    /// How long a connection is kept without a request.
    pub idle_time: Duration,
    /// How long a stopping server lets running exchanges go on.
    pub drain: Duration,
}

impl HttpLimits {
    /// Minimum of `head_bytes`.
    pub(crate) const MIN_HEAD_BYTES: usize = 8 << 10;

    /// `head_bytes`, as the parsers take it.
    pub(super) fn head_bytes(&self) -> usize {
        self.head_bytes.max(Self::MIN_HEAD_BYTES)
    }
}

impl Default for HttpLimits {
    /// For read-only pages: no body, a few connections.
    fn default() -> Self {
        Self {
            connections: 64,
            per_address: 32,
            requests: 64,
            http2_streams: 32,
            head_bytes: Self::MIN_HEAD_BYTES,
            headers: 64,
            body_bytes: 0,
            head_time: Duration::from_secs(5),
            body_time: Duration::from_secs(10),
            exchange_time: Duration::from_secs(30),
            idle_time: Duration::from_secs(60),
            drain: Duration::from_secs(2),
        }
    }
}
