//! The answer to a request, carried along until what it promises is true.

use bytes::Bytes;
use saltern_wire::zmtp::ReplyHandle;
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
    /// Somebody in this process, to whom it is enough that it is over.
    Inside(oneshot::Sender<()>),
}

impl To {
    fn say(self, words: Bytes) {
        match self {
            Self::Peer(reply) => reply.send(words),
            Self::Inside(end) => drop(end),
        }
    }
}

impl Answer {
    /// An answer for this process, and its end: that resolves when the answer is given or dropped.
    pub(crate) fn inside() -> (Self, impl Future<Output = ()>) {
        let (end, ended) = oneshot::channel();
        let answer = Self {
            to: To::Inside(end),
            done: Bytes::new(),
            failed: Bytes::new(),
            _place: None,
        };
        (answer, async move { drop(ended.await) })
    }

    /// `done` is sent after success, `failed` otherwise.
    pub(crate) fn new(reply: ReplyHandle, done: Bytes, failed: Bytes, place: Ticket) -> Self {
        Self {
            to: To::Peer(reply),
            done,
            failed,
            _place: Some(place),
        }
    }

    /// An answer that keeps no worker's place: it waits elsewhere, and what it says on success is
    /// not known yet ([`Answer::saying`]).
    pub(crate) fn without_place(reply: ReplyHandle, failed: Bytes) -> Self {
        Self {
            to: To::Peer(reply),
            done: failed.clone(),
            failed,
            _place: None,
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
        self.to.say(self.done);
    }

    /// Tells the peer that it was not done.
    pub(crate) fn failed(self) {
        self.to.say(self.failed);
    }
}
