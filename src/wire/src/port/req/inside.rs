//! Requests of a task of this process, on behalf of a client of another listener (HTTP).
//!
//! They are delivered to the same [`RequestSink`](super::RequestSink) as those of connections, so
//! that the same queues, bounds and checks hold for them.

use std::net::SocketAddr;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::{Incoming, Peer, Receiver, ReplyHandle, Standing};

/// The listener of whose client a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InsideListener {
    /// The HTTP API.
    Api,
    /// The web console.
    Console,
    /// The uplink of the syndic: a master above.
    Syndic,
}

/// Reply to a task of this process.
pub(super) struct InsideReply {
    to: oneshot::Sender<Bytes>,
    standing: Standing,
    listener: InsideListener,
}

impl InsideReply {
    pub(super) fn standing(&self) -> Standing {
        self.standing
    }

    pub(super) fn listener(&self) -> InsideListener {
        self.listener
    }

    pub(super) fn is_gone(&self) -> bool {
        self.to.is_closed()
    }

    pub(super) fn send(self, payload: Bytes) {
        // A receiver that has gone away gets nothing.
        let _ = self.to.send(payload);
    }
}

impl Incoming {
    /// Request of a listener's client at `address`, made by a task of this process, and a future of its
    /// reply: `None` when it was dropped unanswered, for want of room or by a fault.
    pub fn inside(
        (listener, address): (InsideListener, SocketAddr),
        standing: Standing,
        payload: Bytes,
    ) -> (Self, impl Future<Output = Option<Bytes>> + Send + use<>) {
        let (to, reply) = oneshot::channel();
        let incoming = Self {
            peer: Peer {
                address,
                connection: 0,
                identity: Bytes::new(),
            },
            payload,
            received: Instant::now(),
            reply: ReplyHandle {
                receiver: Some(Receiver::Inside(InsideReply {
                    to,
                    standing,
                    listener,
                })),
                extras: None,
            },
        };
        (incoming, async move { reply.await.ok() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request() -> (Incoming, impl Future<Output = Option<Bytes>>) {
        let address = SocketAddr::from(([192, 0, 2, 7], 8000));
        let client = (InsideListener::Console, address);
        Incoming::inside(client, Standing::Known, Bytes::from_static(b"x"))
    }

    #[tokio::test]
    async fn inside_request_gets_its_reply() {
        let (incoming, reply) = request();
        assert_eq!(incoming.reply.standing(), Standing::Known);
        assert_eq!(incoming.reply.inside(), Some(InsideListener::Console));
        incoming.reply.refused();
        incoming.reply.send(Bytes::from_static(b"y"));
        assert_eq!(reply.await, Some(Bytes::from_static(b"y")));
    }

    #[tokio::test]
    async fn inside_request_without_reply_is_reported() {
        let (incoming, reply) = request();
        drop(incoming);
        assert_eq!(reply.await, None);
        let (incoming, reply) = request();
        incoming.reply.hang_up();
        assert_eq!(reply.await, None);
        let (incoming, reply) = request();
        drop(reply);
        assert!(incoming.reply.is_gone());
    }
}
