//! Observer interface for the subscribers of a listener.
//!
//! Facts of the wire only: connections, topics, heartbeats. Which minion is behind a connection is
//! not known here.

use std::net::SocketAddr;

use bytes::Bytes;

use crate::port::metrics::Close;

/// Observer of subscribers. Called on the connections' own tasks, so it must neither wait nor take
/// long; calls about one connection come in order.
pub trait SubscriberWatch: Send + Sync {
    /// The connection, which is new or known, subscribed to messages whose first frame has this
    /// prefix. A ZeroMQ connection without subscriptions gets nothing, and is not reported; one of
    /// another transport subscribes to everything by connecting.
    fn subscribed(&self, connection: u64, address: SocketAddr, topic: &[u8]);

    /// The connection sends a registration. Gives the name under which it receives from now on
    /// only what concerns it; `None` if the registration proves none.
    fn registers(&self, connection: u64, words: &Bytes) -> Option<Bytes>;

    /// The connection was silent, and was sent a PING.
    fn asked(&self, connection: u64);

    /// The PING was answered.
    fn answered(&self, connection: u64);

    /// A connection that had subscribed has ended.
    fn left(&self, connection: u64, reason: Close);
}
