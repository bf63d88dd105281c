//! What a listener says of its subscribers to whoever keeps a list of them.
//!
//! Facts of the wire only: connections, topics, signs of life. Who is behind a connection is not
//! known here.

use std::net::SocketAddr;

use bytes::Bytes;

use crate::port::metrics::Close;

/// Hears of subscribers. Called on the connections' own tasks, so it must neither wait nor take
/// long; calls about one connection come in their order.
pub trait SubscriberWatch: Send + Sync {
    /// The connection, which is new or known, asked for messages whose first frame begins so. A
    /// connection of ZeroMQ that asks for nothing gets nothing, and is not told of; one of another
    /// transport asks for everything by being there.
    fn subscribed(&self, connection: u64, address: SocketAddr, topic: &[u8]);

    /// The connection says who it is. Gives the name under which it gets from now on only what
    /// concerns it; nothing if the words do not prove one.
    fn registers(&self, connection: u64, words: &Bytes) -> Option<Bytes>;

    /// The connection was silent, and was asked for a sign of life.
    fn asked(&self, connection: u64);

    /// It gave one.
    fn answered(&self, connection: u64);

    /// A connection that had subscribed has ended.
    fn left(&self, connection: u64, reason: Close);
}
