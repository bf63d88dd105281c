//! The answer to a request, carried along until what it promises is true.

use bytes::Bytes;
use saltern_wire::port::ReplyHandle;
use tokio::sync::oneshot;

use crate::window::Ticket;

/// Bytes for the peer, to be sent when its request has been carried out. Dropped without being
/// sent, the peer is told that its request was not handled.
pub struct Answer {
    to: To,
    done: Bytes,
    failed: Bytes,
    _place: Option<Ticket>,
}

/// Who waits for an answer.
enum To {
    /// A peer of the request port.
    Peer(ReplyHandle),
    /// Somebody in this process, who hears whether all is done.
    Inside(oneshot::Sender<()>),
}

impl Answer {
    /// An answer for this process, and its end: that resolves when the answer is given or dropped,
    /// and says whether all is done.
    pub(crate) fn inside() -> (Self, impl Future<Output = bool>) {
        let (end, ended) = oneshot::channel();
        let answer = Self {
            to: To::Inside(end),
            done: Bytes::new(),
            failed: Bytes::new(),
            _place: None,
        };
        (answer, async move { ended.await.is_ok() })
    }

    /// An answer of which it is not known yet what it says ([`Answer::with`]).
    pub(crate) fn new(reply: ReplyHandle, place: Ticket) -> Self {
        Self {
            to: To::Peer(reply),
            done: Bytes::new(),
            failed: Bytes::new(),
            _place: Some(place),
        }
    }

    /// An answer that keeps no worker's place: it waits elsewhere, and what it says on success is
    /// not known yet ([`Answer::saying`]).
    #[cfg(test)]
    pub(crate) fn without_place(reply: ReplyHandle, failed: Bytes) -> Self {
        Self {
            to: To::Peer(reply),
            done: failed.clone(),
            failed,
            _place: None,
        }
    }

    /// The same answer with these words for success and failure.
    pub(crate) fn with(self, done: Bytes, failed: Bytes) -> Self {
        Self {
            done,
            failed,
            ..self
        }
    }

    /// The same answer, which gives its worker's place up: it waits elsewhere.
    pub(crate) fn leaving(self) -> Self {
        Self {
            _place: None,
            ..self
        }
    }

    /// The same answer with other words for success.
    pub(crate) fn saying(self, done: Bytes) -> Self {
        Self { done, ..self }
    }

    /// Whether nobody waits for the answer any more.
    pub(crate) fn is_unwanted(&self) -> bool {
        match &self.to {
            To::Peer(reply) => reply.is_gone(),
            To::Inside(end) => end.is_closed(),
        }
    }

    /// Tells the peer that all is done.
    pub(crate) fn done(self) {
        match self.to {
            To::Peer(reply) => reply.send(self.done),
            // Who has ceased to wait is not told.
            To::Inside(end) => _ = end.send(()),
        }
    }

    /// Tells the peer that it was not done.
    pub(crate) fn failed(self) {
        if let To::Peer(reply) = self.to {
            reply.send(self.failed);
        }
    }
}
