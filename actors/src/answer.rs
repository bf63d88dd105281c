//! The answer to a request, carried along until what it promises is true.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use saltern_base::trace::{Place, Span};
use saltern_wire::port::ReplyHandle;
use tokio::sync::oneshot;

use crate::latency::Latency;
use crate::window::Ticket;

/// Bytes for the peer, to be sent when its request has been carried out. Dropped without being
/// sent, the peer is told that its request was not handled.
pub struct Answer {
    to: To,
    done: Bytes,
    failed: Bytes,
    _place: Option<Ticket>,
    _latency: Option<Latency>,
    /// The request's span, which ends with the answer.
    span: Option<Span>,
}

/// Who waits for an answer.
enum To {
    /// A peer of the request port.
    Peer(ReplyHandle),
    /// Somebody who waits for other things too.
    Shared(Arc<Shared>),
    /// Somebody in this process, who hears whether all is done.
    Inside(oneshot::Sender<()>),
}

/// An answer that several things are promised with. The last of them gives it; if one of them is
/// dropped, nobody does, and the answer is dropped with the last one.
struct Shared {
    whole: Mutex<Option<Answer>>,
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

impl Answer {
    /// So many answers that make this one together: it is given when all of them are, as done if all
    /// are.
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

    /// An answer for this process, and its end: that resolves when the answer is given or dropped,
    /// and says whether all is done.
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

    /// An answer of which it is not known yet what it says ([`Answer::with`]).
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

    /// The same answer, whose end is the end of what this measures.
    pub(crate) fn timed(self, latency: Option<Latency>) -> Self {
        Self {
            _latency: latency,
            ..self
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
            _latency: None,
            span: None,
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

    /// The same answer to a request with this span.
    pub(crate) fn traced(self, span: Option<Span>) -> Self {
        Self { span, ..self }
    }

    /// Where the request is in a trace.
    pub(crate) fn place(&self) -> Option<Place> {
        match &self.to {
            To::Shared(shared) => shared.whole.lock().as_ref().and_then(Self::place),
            To::Peer(_) | To::Inside(_) => self.span.as_ref().map(|span| span.place().clone()),
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
            To::Shared(shared) => {
                let whole = shared.whole.lock();
                whole.as_ref().is_none_or(Self::is_unwanted)
            }
        }
    }

    /// Tells the peer that all is done.
    pub(crate) fn done(self) {
        match self.to {
            To::Peer(reply) => reply.send(self.done),
            // Who has ceased to wait is not told.
            To::Inside(end) => _ = end.send(()),
            To::Shared(shared) => shared.settle(true),
        }
    }

    /// Tells the peer that it was not done.
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
    use crate::testing::{NOT_HANDLED, Port, in_system};

    /// What the peer hears when the parts of its answer come to these ends: done, failed, dropped.
    async fn said(ends: &[Option<bool>]) -> Bytes {
        let mut port = Port::open();
        let (request, reply) = port.ask(b"x").await;
        let (done, failed) = (Bytes::from_static(b"done"), Bytes::from_static(b"failed"));
        let answer = Answer::without_place(request.reply, failed).saying(done);
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
    fn an_answer_of_several_parts_is_as_good_as_the_worst() {
        in_system(async {
            assert_eq!(said(&[Some(true)]).await, "done");
            assert_eq!(said(&[Some(true), Some(true), Some(true)]).await, "done");
            assert_eq!(said(&[Some(true), Some(false), Some(true)]).await, "failed");
            assert_eq!(said(&[Some(true), None, Some(true)]).await, NOT_HANDLED);
        });
    }
}
