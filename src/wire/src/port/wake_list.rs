//! Wake list of connection tasks: wakes them from other threads without a system call for each.
//!
//! Waking a task of a single-threaded runtime from outside costs a write to its eventfd. A
//! publication would pay that once a subscriber, a busy worker once a reply. Instead the sender
//! queues the connections with work here and notifies once; one task on the listener's own thread
//! then wakes them, which there costs next to nothing.

use std::sync::Arc;
use std::task::Poll;

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;

pub(super) struct WakeList<T> {
    waiting: Mutex<Vec<Arc<T>>>,
    waker: AtomicWaker,
}

impl<T> WakeList<T> {
    pub(super) fn new() -> Self {
        Self {
            waiting: Mutex::new(Vec::new()),
            waker: AtomicWaker::new(),
        }
    }

    /// Queues one and notifies.
    pub(super) fn notify(&self, item: Arc<T>) {
        let first = {
            let mut waiting = self.waiting.lock();
            waiting.push(item);
            waiting.len() == 1
        };
        // Only the first one since the last round finds the task asleep.
        if first {
            self.waker.wake();
        }
    }

    /// Queues many and notifies once.
    pub(super) fn notify_all(&self, items: &mut Vec<Arc<T>>) {
        if items.is_empty() {
            return;
        }
        self.waiting.lock().append(items);
        self.waker.wake();
    }

    /// Passes every queued item to `wake`, for ever.
    pub(super) async fn answer(&self, wake: impl Fn(&T)) {
        let mut round = Vec::new();
        std::future::poll_fn(|cx| {
            self.waker.register(cx.waker());
            std::mem::swap(&mut round, &mut *self.waiting.lock());
            for item in round.drain(..) {
                wake(&item);
            }
            Poll::<()>::Pending
        })
        .await;
    }
}
