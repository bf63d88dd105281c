//! The part of a connection that others reach: where replies are left, and who has an identity.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use parking_lot::Mutex;

use super::Core;
use crate::port::accept::{Admission, Gate};
use crate::port::metrics::Close;

/// The part of a connection that others reach.
pub(super) struct Connection {
    pub(super) core: Arc<Core>,
    pub(super) gate: Arc<Gate>,
    number: u64,
    address: SocketAddr,
    /// Whether the peer, or one at its address, has proved who it is.
    known: AtomicBool,
    state: Mutex<ConnectionState>,
}

#[derive(Default)]
struct ConnectionState {
    replies: VecDeque<Reply>,
    /// The task sleeps and has to be woken for new work.
    asleep: bool,
    /// Somebody wants the connection to end, for this reason.
    ending: Option<Close>,
    closed: bool,
    waker: Option<Waker>,
}

pub(super) struct Reply {
    /// What the request wants back with its reply, as it came.
    pub(super) envelope: Vec<Bytes>,
    pub(super) payload: Bytes,
}

impl Connection {
    pub(super) fn new(core: Arc<Core>, admission: &Admission) -> Arc<Self> {
        let known = core.remembers(admission.peer.ip());
        Arc::new(Self {
            core,
            gate: Arc::clone(&admission.gate),
            number: admission.number,
            address: admission.peer,
            known: AtomicBool::new(known),
            state: Mutex::default(),
        })
    }

    pub(super) fn authenticated(&self) {
        if !self.known.swap(true, Ordering::Relaxed) {
            self.core.remember(self.address.ip());
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    pub(super) fn is_known(&self) -> bool {
        self.known.load(Ordering::Relaxed)
    }

    /// Leaves a reply for the task to write.
    pub(super) fn reply(self: Arc<Self>, reply: Reply) {
        {
            let mut state = self.state.lock();
            if state.closed {
                drop(state);
                self.gate.metrics.dropped.inc();
                return;
            }
            state.replies.push_back(reply);
            if !std::mem::take(&mut state.asleep) {
                return;
            }
        }
        let core = Arc::clone(&self.core);
        core.bell.ring(self);
    }

    /// Ends the connection; what it was asked remains unanswered.
    pub(super) fn end(self: Arc<Self>, reason: Close) {
        {
            let mut state = self.state.lock();
            state.ending.get_or_insert(reason);
            if !std::mem::take(&mut state.asleep) {
                return;
            }
        }
        let core = Arc::clone(&self.core);
        core.bell.ring(self);
    }

    pub(super) fn wake(&self) {
        if let Some(waker) = &self.state.lock().waker {
            waker.wake_by_ref();
        }
    }

    /// Whether there is work; if not, the next work wakes the task of `cx`.
    pub(super) fn poll_work(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if state.ending.is_some() || !state.replies.is_empty() {
            return Poll::Ready(());
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            empty => *empty = Some(cx.waker().clone()),
        }
        state.asleep = true;
        Poll::Pending
    }

    pub(super) fn next_reply(&self) -> Result<Option<Reply>, Close> {
        let mut state = self.state.lock();
        // The task runs: it looks here again before it sleeps, so nobody need wake it.
        state.asleep = false;
        match state.ending {
            Some(reason) => Err(reason),
            None => Ok(state.replies.pop_front()),
        }
    }

    fn close(&self) {
        let unsent = {
            let mut state = self.state.lock();
            state.closed = true;
            state.waker = None;
            std::mem::take(&mut state.replies)
        };
        self.gate
            .metrics
            .dropped
            .inc_by(u64::try_from(unsent.len()).unwrap_or(0));
    }
}

/// Gives the identity back and refuses late replies, also if the task panics.
pub(super) struct Registered {
    connection: Arc<Connection>,
    /// The identity, if the peer gave one.
    identity: Option<Bytes>,
}

impl Registered {
    /// Enters the connection under the identity of its peer and closes the one that had it.
    ///
    /// Only from the same address: an identity is no secret (a minion's id and process id), and
    /// libzmq's ROUTER_HANDOVER lets anybody cut anybody off with it. A minion whose address
    /// changed loses nothing, for its old connection is dead and its replies go to the new one.
    pub(super) fn new(connection: Arc<Connection>, identity: &Bytes) -> Self {
        if identity.is_empty() {
            return Self {
                connection,
                identity: None,
            };
        }
        let mut identities = connection.core.identities.lock();
        let elsewhere = identities
            .get(identity)
            .is_some_and(|other| other.address.ip() != connection.address.ip());
        let earlier = if elsewhere {
            None
        } else {
            identities.insert(identity.clone(), Arc::clone(&connection))
        };
        drop(identities);
        if let Some(earlier) = earlier {
            earlier.end(Close::Handover);
        }
        Self {
            connection,
            identity: (!elsewhere).then(|| identity.clone()),
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(identity) = &self.identity {
            let mut identities = self.connection.core.identities.lock();
            if identities
                .get(identity)
                .is_some_and(|current| current.number == self.connection.number)
            {
                identities.remove(identity);
            }
        }
        self.connection.close();
    }
}
