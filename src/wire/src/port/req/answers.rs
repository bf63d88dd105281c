//! Memory of replies that wait for their readers.
//!
//! A reply is charged from the moment it is left for its connection until the kernel has taken all
//! of it. When an account is spent, the connection whose reply has waited longest is closed: a peer
//! that reads is never that one for long, so whoever does not read pays for the bound.
//!
//! Not here: how slowly a single peer may read while there is room ([`Progress`](crate::port::Progress)).

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::connection::Connection;
use crate::port::metrics::Close;

/// The account of the replies to one group of peers.
pub(super) struct AnswerBudget {
    /// In bytes. One reply always fits when no other one waits.
    limit: usize,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    bytes: usize,
    next: u64,
    /// In the order in which they were charged.
    replies: BTreeMap<u64, (usize, Weak<Connection>)>,
}

/// What one reply holds of the account; given back when it is dropped.
pub(super) struct Charge {
    budget: Arc<AnswerBudget>,
    number: u64,
}

impl AnswerBudget {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            limit,
            waiting: Mutex::default(),
        })
    }

    /// Bytes that wait.
    pub(super) fn held(&self) -> usize {
        self.waiting.lock().bytes
    }

    /// Charges a reply of `bytes` to `connection`, and closes those that have waited longest until
    /// it fits. Must not be called with the state of a connection locked.
    pub(super) fn charge(self: &Arc<Self>, connection: &Arc<Connection>, bytes: usize) -> Charge {
        let (number, closed) = {
            let mut waiting = self.waiting.lock();
            let closed = waiting.make_room(self.limit.saturating_sub(bytes));
            let number = waiting.next;
            waiting.next += 1;
            waiting.bytes += bytes;
            let entry = (bytes, Arc::downgrade(connection));
            waiting.replies.insert(number, entry);
            (number, closed)
        };
        for connection in closed {
            connection.end(Close::AnswerMemory);
        }
        Charge {
            budget: Arc::clone(self),
            number,
        }
    }
}

impl Waiting {
    /// Takes replies out of the account, the oldest first, until at most `bytes` are left, and says
    /// whose they are.
    fn make_room(&mut self, bytes: usize) -> Vec<Arc<Connection>> {
        let mut closed = Vec::new();
        while self.bytes > bytes {
            let Some((_, (size, connection))) = self.replies.pop_first() else {
                break;
            };
            self.bytes -= size;
            closed.extend(connection.upgrade());
        }
        closed
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut waiting = self.budget.waiting.lock();
        if let Some((bytes, _)) = waiting.replies.remove(&self.number) {
            waiting.bytes -= bytes;
        }
    }
}
