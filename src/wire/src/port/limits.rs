//! Limits of a listener: sizes, counts and deadlines, with defaults for a Salt master.
//!
//! Only numbers are here. They are enforced elsewhere: sizes in `codec`, counts in `accept`,
//! deadlines in `link`, the rest in the listeners.

use std::time::Duration;

use bytes::Bytes;

/// Size limits for a peer, in bytes unless said otherwise.
///
/// They are checked against what a peer *announces*, before any of it is read or reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeLimits {
    /// One frame.
    pub frame: usize,
    /// All frames of a message together.
    pub message: usize,
    /// Number of frames in a message.
    pub frames: usize,
    /// One command, its name and READY's properties included.
    pub command: usize,
}

impl SizeLimits {
    /// For an unauthenticated peer: 16 MiB. An `_auth` is below 8 KiB, but the command line
    /// publishes in clear, and the first message after a restart of ours may be a large return.
    /// The total of all such peers is bounded by [`ReqLimits::in_flight`].
    pub const UNKNOWN_PEER: Self = Self {
        frame: 16 << 20,
        message: 16 << 20,
        frames: 64,
        command: 1 << 10,
    };

    /// For an authenticated peer: 128 MiB, more than stock's 100 MiB stream buffers.
    pub(crate) const KNOWN_PEER: Self = Self {
        frame: 128 << 20,
        message: 128 << 20,
        frames: 64,
        command: 1 << 10,
    };
}

/// Heartbeat of a silent ZMTP 3.1 peer: when it gets a PING, and when it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// Silence after which a PING is sent. Zero sends none; then the idle deadline applies.
    pub interval: Duration,
    /// Silence after the PING that closes the connection.
    pub timeout: Duration,
}

/// Minimum rate of a transfer in either direction.
///
/// At any moment the transfer must have moved `bytes_per_second` for each second past `grace`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Grace period of every transfer, however short.
    pub grace: Duration,
    /// The slowest rate tolerated after that.
    pub bytes_per_second: u64,
}

impl Progress {
    /// Maximum time of a transfer after `bytes` of it.
    pub(super) fn allowance(&self, bytes: u64) -> Duration {
        let micros = bytes.saturating_mul(1_000_000) / self.bytes_per_second.max(1);
        self.grace.saturating_add(Duration::from_micros(micros))
    }
}

/// Token bucket: `burst` at once, then `per_second`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Size of the bucket.
    pub burst: u32,
    /// Refill each second.
    pub per_second: u32,
}

/// Limits of every connection of both listeners.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerLimits {
    /// Connections in all. An eighth of them is reserved for known networks: those in which a
    /// minion has lately authenticated, on whichever port. One network has a quarter of the
    /// reserve.
    pub connections: usize,
    /// Connections from one IPv4 address or IPv6 network of 64 bits. High, because whole sites sit
    /// behind one NAT.
    pub per_address: usize,
    /// From accept to a complete READY.
    pub handshake: Duration,
    /// Heartbeats for 3.1 peers. Stock's values on its ROUTER and PUB sockets are 10 s and 30 s.
    pub heartbeat: Heartbeat,
    /// Idle timeout of a connection that cannot be sent a PING (3.0 peers). `None` leaves it to
    /// TCP keepalive.
    pub idle: Option<Duration>,
    /// The slowest transfer tolerated.
    pub progress: Progress,
    /// Commands, and other traffic that carries no request.
    pub commands: Rate,
    /// Drain time of a stopping listener, for replies and queued messages.
    pub drain: Duration,
}

impl Default for PeerLimits {
    fn default() -> Self {
        Self {
            connections: 65_536,
            per_address: 16_384,
            handshake: Duration::from_secs(10),
            heartbeat: Heartbeat {
                interval: Duration::from_secs(10),
                timeout: Duration::from_secs(30),
            },
            idle: Some(Duration::from_secs(3600)),
            progress: Progress {
                grace: Duration::from_secs(10),
                bytes_per_second: 16 << 10,
            },
            commands: Rate {
                burst: 64,
                per_second: 10,
            },
            drain: Duration::from_secs(2),
        }
    }
}

/// Limits of the request listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReqLimits {
    /// Limits of every connection.
    pub peers: PeerLimits,
    /// Sizes until [`ReplyHandle::authenticated`](super::ReplyHandle::authenticated).
    pub before_auth: SizeLimits,
    /// Sizes from then on.
    pub after_auth: SizeLimits,
    /// Unanswered requests that a DEALER or ROUTER peer may have; a REQ peer has one. At the limit
    /// the socket is not read.
    pub window: usize,
    /// Bytes of large messages (those that outgrow one read) held over all connections, from their
    /// arrival to their reply; a quarter of it for unauthenticated peers. Readers of large
    /// messages wait when it is used up. Raised if need be to hold one message of the largest
    /// size.
    pub in_flight: usize,
    /// Bytes of replies that wait for their readers over all connections; a quarter of it for
    /// unauthenticated peers. When it is used up, a connection is closed: the largest holder in
    /// the network that holds most, stalled readers first. Small replies count when several of
    /// them wait at one connection.
    pub answers: usize,
    /// Requests of one connection that may be refused in a row; then it is closed.
    pub refusals: u32,
    /// Sent when a [`ReplyHandle`](super::ReplyHandle) is dropped without a reply.
    pub unanswered: Bytes,
}

impl Default for ReqLimits {
    fn default() -> Self {
        Self {
            peers: PeerLimits::default(),
            before_auth: SizeLimits::UNKNOWN_PEER,
            after_auth: SizeLimits::KNOWN_PEER,
            window: 64,
            in_flight: 512 << 20,
            answers: 256 << 20,
            refusals: 32,
            // What stock's channel/server.py says when a worker fails, as old-style msgpack: 38
            // bytes are too many for fixraw, and clients of use_bin_type=False expect no str8.
            unanswered: Bytes::from_static(b"\xda\x00\x26Some exception handling minion payload"),
        }
    }
}

/// Limits of the publish listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PubLimits {
    /// Limits of every connection.
    pub peers: PeerLimits,
    /// Messages queued for one subscriber (`pub_hwm`). Further ones are dropped for it.
    pub queue: usize,
    /// Bytes queued for one subscriber; one message always fits an empty queue.
    pub queue_bytes: usize,
    /// Bytes of publications that all queues together keep alive. At the limit only subscribers
    /// with an empty queue get more.
    pub pinned: usize,
    /// A subscriber with queued messages that takes none of them for this time is closed; so is
    /// one that is slower than `peers.progress` allows.
    pub drain_timeout: Duration,
    /// Subscriptions of one connection.
    pub subscriptions: usize,
    /// Longest topic, in bytes.
    pub topic: usize,
}

impl Default for PubLimits {
    fn default() -> Self {
        Self {
            // A 3.0 subscriber sends nothing once it has subscribed, so its silence means nothing:
            // keepalive and the write side find the dead ones.
            peers: PeerLimits {
                idle: None,
                ..PeerLimits::default()
            },
            queue: 1000,
            queue_bytes: 64 << 20,
            pinned: 256 << 20,
            drain_timeout: Duration::from_secs(60),
            subscriptions: 128,
            topic: 512,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowance_grows_with_the_bytes_moved() {
        let progress = Progress {
            grace: Duration::from_secs(10),
            bytes_per_second: 1000,
        };
        assert_eq!(progress.allowance(0), Duration::from_secs(10));
        assert_eq!(progress.allowance(5000), Duration::from_secs(15));
        assert!(progress.allowance(u64::MAX) >= Duration::from_secs(10));
    }

    #[test]
    fn the_default_for_unanswered_requests_is_one_msgpack_text() {
        let reply = ReqLimits::default().unanswered;
        assert_eq!(reply.len(), 3 + 0x26);
        assert_eq!(&reply[3..], b"Some exception handling minion payload");
    }
}
