//! The answer to a request, carried along until what it promises is true.

use bytes::Bytes;
use saltern_wire::zmtp::ReplyHandle;

use crate::window::Ticket;

/// Bytes for the peer, to be sent when its request has been carried out. Dropped without being
/// sent, the peer is told that its request was not handled.
pub struct Answer {
    reply: ReplyHandle,
    done: Bytes,
    failed: Bytes,
    _place: Option<Ticket>,
}

impl Answer {
    /// `done` is sent after success, `failed` otherwise.
    pub(crate) fn new(reply: ReplyHandle, done: Bytes, failed: Bytes, place: Ticket) -> Self {
        Self {
            reply,
            done,
            failed,
            _place: Some(place),
        }
    }

    /// An answer that keeps no worker's place: it waits elsewhere, and what it says on success is
    /// not known yet ([`Answer::saying`]).
    pub(crate) fn without_place(reply: ReplyHandle, failed: Bytes) -> Self {
        Self {
            reply,
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
        self.reply.is_gone()
    }

    /// Tells the peer that all is done.
    pub(crate) fn done(self) {
        self.reply.send(self.done);
    }

    /// Tells the peer that it was not done.
    pub(crate) fn failed(self) {
        self.reply.send(self.failed);
    }
}
