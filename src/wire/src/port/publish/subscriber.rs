//! Bounded queue of a subscriber, shared with the publishers.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use super::PubMessage;
use super::delivery::Outgoing;
use crate::port::accept::{Admission, Gate};
use crate::port::limits::PubLimits;

/// Most messages in one write.
pub(super) const BATCH: usize = 16;

pub(super) struct Subscriber {
    pub(super) number: u64,
    pub(super) address: SocketAddr,
    pub(super) gate: Arc<Gate>,
    state: Mutex<SubscriberState>,
}

#[derive(Default)]
struct SubscriberState {
    queue: VecDeque<PubMessage>,
    /// Messages and bytes not yet written, those being written included.
    messages: usize,
    bytes: usize,
    asleep: bool,
    /// The connection is to be closed.
    dismissed: bool,
    waker: Option<Waker>,
}

impl Subscriber {
    pub(super) fn new(admission: &Admission) -> Arc<Self> {
        Arc::new(Self {
            number: admission.number,
            address: admission.peer,
            gate: Arc::clone(&admission.gate),
            state: Mutex::default(),
        })
    }

    /// Bytes not yet written.
    pub(super) fn queued_bytes(&self) -> usize {
        self.state.lock().bytes
    }

    /// Drops the queue: the connection has ended.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.waker = None;
        state.queue = VecDeque::new();
    }

    /// Queues the message, or reports that there is no room. `crowded`: all subscribers together
    /// hold so much that only those with an empty queue get more.
    pub(super) fn push(
        self: &Arc<Self>,
        message: &PubMessage,
        limits: &PubLimits,
        crowded: bool,
        wake: &mut Vec<Arc<Self>>,
    ) -> bool {
        let size = message.size(self.gate.transport);
        let mut state = self.state.lock();
        let full = state.dismissed
            || state.messages >= limits.queue.max(1)
            || (state.messages > 0 && (crowded || state.bytes + size > limits.queue_bytes));
        if full {
            return false;
        }
        state.queue.push_back(message.clone());
        state.messages += 1;
        state.bytes += size;
        if std::mem::take(&mut state.asleep) {
            wake.push(Arc::clone(self));
        }
        true
    }

    /// Asks the task to close the connection; `true` if it sleeps and is to be woken.
    pub(super) fn dismiss(&self) -> bool {
        let mut state = self.state.lock();
        state.dismissed = true;
        state.queue = VecDeque::new();
        std::mem::take(&mut state.asleep)
    }

    pub(super) fn is_dismissed(&self) -> bool {
        self.state.lock().dismissed
    }

    pub(super) fn wake(&self) {
        if let Some(waker) = &self.state.lock().waker {
            waker.wake_by_ref();
        }
    }

    /// Whether there is something to write that is not being written yet; if not, the next
    /// publication wakes the task of `cx`.
    pub(super) fn poll_work(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if state.dismissed || !state.queue.is_empty() {
            return Poll::Ready(());
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            empty => *empty = Some(cx.waker().clone()),
        }
        state.asleep = true;
        Poll::Pending
    }

    /// Frees the room of what was written, and takes the next items to write.
    pub(super) fn exchange(&self, messages: usize, bytes: usize, sending: &mut VecDeque<Outgoing>) {
        let mut state = self.state.lock();
        state.asleep = false;
        state.messages = state.messages.saturating_sub(messages);
        state.bytes = state.bytes.saturating_sub(bytes);
        while sending.len() < BATCH {
            let Some(message) = state.queue.pop_front() else {
                break;
            };
            sending.push_back(Outgoing::Message(message, self.gate.transport));
        }
        if state.queue.is_empty() && state.queue.capacity() > BATCH {
            state.queue = VecDeque::new();
        }
    }
}
