//! Pending reply to a request, sent once what it promises is durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use saltern_base::trace::{Span, SpanParent};
use saltern_wire::port::ReplyHandle;
use tokio::sync::oneshot;

use crate::shared::latency::Latency;
use crate::shared::window::Ticket;

/// Reply to a peer, sent when its request has been carried out. Dropped unsent, the peer gets an
/// error: its request was not handled.
pub struct PendingReply {
    to: To,
    done: Bytes,
    failed: Bytes,
    _place: Option<Ticket>,
    _latency: Option<Latency>,
    /// The request's span, which ends with the answer.
    span: Option<Span>,
}

/// Receiver of the reply.
enum To {
    /// A peer of the request port.
    Peer(ReplyHandle),
    /// Several tasks that must all end first.
    Shared(Arc<Shared>),
    /// A task of this process, which learns whether all is done.
    Inside(oneshot::Sender<()>),
}

/// Reply shared by several tasks. The last one sends it; if one of them is dropped, the reply is
/// dropped with the last one.
struct Shared {
    whole: Mutex<Option<PendingReply>>,
    open: AtomicUsize,
    has_failed: AtomicBool,
}

impl Shared {
    fn settle(&self, is_done: bool) {
        if !is_done {
            self.has_failed.store(true, Ordering::SeqCst);
        }
        if self.open.fetch_sub(1, Ordering::SeqCst) > 1 {
            return;
        }
        let Some(whole) = self.whole.lock().take() else {
            return;
        };
        match self.has_failed.load(Ordering::SeqCst) {
            true => whole.failed(),
            false => whole.done(),
        }
    }
}

impl PendingReply {
    /// Splits the reply into `parts`: it is sent when all of them are, as done if all are.
    pub(crate) fn split(self, parts: usize) -> Vec<Self> {
        if parts < 2 {
            return vec![self];
        }
        let (done, failed) = (self.done.clone(), self.failed.clone());
        let shared = Arc::new(Shared {
            whole: Mutex::new(Some(self)),
            open: AtomicUsize::new(parts),
            has_failed: AtomicBool::new(false),
        });
        let part = || Self {
            to: To::Shared(shared.clone()),
            done: done.clone(),
            failed: failed.clone(),
            _place: None,
            _latency: None,
            span: None,
        };
        std::iter::repeat_with(part).take(parts).collect()
    }

    /// Reply within this process, and a future that resolves when it is sent or dropped, with
    /// whether all is done.
    pub(crate) fn inside() -> (Self, impl Future<Output = bool>) {
        let (end, ended) = oneshot::channel();
        let answer = Self {
            to: To::Inside(end),
            done: Bytes::new(),
            failed: Bytes::new(),
            _place: None,
            _latency: None,
            span: None,
        };
        (answer, async move { ended.await.is_ok() })
    }

    /// Reply whose text is set later ([`PendingReply::with`]).
    pub(crate) fn new(reply: ReplyHandle, place: Ticket) -> Self {
        Self {
            to: To::Peer(reply),
            done: Bytes::new(),
            failed: Bytes::new(),
            _place: Some(place),
            _latency: None,
            span: None,
        }
    }

    /// Ends the latency measurement with the reply.
    pub(crate) fn timed(self, latency: Option<Latency>) -> Self {
        Self {
            _latency: latency,
            ..self
        }
    }

    /// Reply without a worker's slot, whose text on success is set later ([`PendingReply::saying`]).
    #[cfg(test)]
    pub(crate) fn without_place(reply: ReplyHandle, failed: Bytes) -> Self {
        Self {
            to: To::Peer(reply),
            done: failed.clone(),
            failed,
            _place: None,
            _latency: None,
            span: None,
        }
    }

    /// Sets the texts for success and failure.
    pub(crate) fn with(self, done: Bytes, failed: Bytes) -> Self {
        Self {
            done,
            failed,
            ..self
        }
    }

    /// Attaches the request's span.
    pub(crate) fn traced(self, span: Option<Span>) -> Self {
        Self { span, ..self }
    }

    /// The request's position in a trace.
    pub(crate) fn place(&self) -> Option<SpanParent> {
        match &self.to {
            To::Shared(shared) => shared.whole.lock().as_ref().and_then(Self::place),
            To::Peer(_) | To::Inside(_) => self.span.as_ref().map(|span| span.place().clone()),
        }
    }

    /// Frees the worker's slot: the reply waits elsewhere.
    pub(crate) fn leaving(self) -> Self {
        Self {
            _place: None,
            ..self
        }
    }

    /// Replaces the text for success.
    pub(crate) fn saying(self, done: Bytes) -> Self {
        Self { done, ..self }
    }

    /// Whether the peer no longer waits for the reply.
    pub(crate) fn is_unwanted(&self) -> bool {
        match &self.to {
            To::Peer(reply) => reply.is_gone(),
            To::Inside(end) => end.is_closed(),
            To::Shared(shared) => {
                let whole = shared.whole.lock();
                whole.as_ref().is_none_or(Self::is_unwanted)
            }
        }
    }

    /// Sends the peer the success text.
    pub(crate) fn done(self) {
        match self.to {
            To::Peer(reply) => reply.send(self.done),
            // A receiver that has gone away gets nothing.
            To::Inside(end) => _ = end.send(()),
            To::Shared(shared) => shared.settle(true),
        }
    }

    /// Sends the peer the failure text.
    pub(crate) fn failed(mut self) {
        if let Some(span) = &mut self.span {
            span.set("error.type", "not_done");
        }
        match self.to {
            To::Peer(reply) => reply.send(self.failed),
            To::Shared(shared) => shared.settle(false),
            To::Inside(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::testing::{NOT_HANDLED, Port, in_system};

    /// The peer's reply for parts that end so: done, failed, dropped.
    async fn said(ends: &[Option<bool>]) -> Bytes {
        let mut port = Port::open();
        let (request, reply) = port.ask(b"x").await;
        let (done, failed) = (Bytes::from_static(b"done"), Bytes::from_static(b"failed"));
        let answer = PendingReply::without_place(request.reply, failed).saying(done);
        let parts = answer.split(ends.len());
        assert_eq!(parts.len(), ends.len().max(1));
        for (part, end) in parts.into_iter().zip(ends) {
            match end {
                Some(true) => part.done(),
                Some(false) => part.failed(),
                None => drop(part),
            }
        }
        reply.await.unwrap()
    }

    #[test]
    fn split_reply_ends_as_its_worst_part() {
        in_system(async {
            assert_eq!(said(&[Some(true)]).await, "done");
            assert_eq!(said(&[Some(true), Some(true), Some(true)]).await, "done");
            assert_eq!(said(&[Some(true), Some(false), Some(true)]).await, "failed");
            assert_eq!(said(&[Some(true), None, Some(true)]).await, NOT_HANDLED);
        });
    }
}
