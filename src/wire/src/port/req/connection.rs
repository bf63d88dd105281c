//! Shared part of a request connection: its queue of replies, and its identity.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use parking_lot::Mutex;

use super::answers::{AnswerBudget, Charge};
use super::{Core, Standing};
use crate::port::accept::{Admission, Gate};
use crate::port::metrics::Close;
use crate::port::network::network;

/// Up to this number of waiting replies of at most this size, in bytes, are not charged: nearly
/// all of them are written at once.
const UNCHARGED_BYTES: usize = 4 << 10;
const UNCHARGED: usize = 1;

/// Requests refused in a row that make a connection suspect: a minion with an expired session
/// sends one such request, then authenticates.
const SUSPICIOUS: u32 = 2;

/// Shared part of a request connection.
pub(super) struct Connection {
    pub(super) core: Arc<Core>,
    pub(super) gate: Arc<Gate>,
    number: u64,
    address: SocketAddr,
    /// Whether the peer, or one of its network, has authenticated.
    known: AtomicBool,
    /// Whether the peer itself has.
    proved: AtomicBool,
    /// Requests refused since the last authenticated one.
    refusals: AtomicU32,
    state: Mutex<ConnectionState>,
}

#[derive(Default)]
struct ConnectionState {
    replies: VecDeque<Reply>,
    /// The task sleeps and must be woken for new work.
    asleep: bool,
    /// The task waits for the peer to read, and must be woken to end.
    writing: bool,
    /// The connection is to be closed, for this reason.
    ending: Option<Close>,
    closed: bool,
    waker: Option<Waker>,
}

pub(super) struct Reply {
    /// The envelope to send back with the reply, as received.
    pub(super) envelope: Vec<Bytes>,
    pub(super) payload: Bytes,
    /// Its share of the reply budget.
    charge: Option<Charge>,
}

impl Reply {
    pub(super) fn new(envelope: Vec<Bytes>, payload: Bytes) -> Self {
        Self {
            envelope,
            payload,
            charge: None,
        }
    }

    /// Records that the kernel has taken a part of it.
    pub(super) fn moved(&self) {
        if let Some(charge) = &self.charge {
            charge.moved();
        }
    }

    fn size(&self) -> usize {
        let envelope: usize = self.envelope.iter().map(Bytes::len).sum();
        self.payload.len() + envelope
    }
}

impl Connection {
    pub(super) fn new(core: Arc<Core>, admission: &Admission) -> Arc<Self> {
        Arc::new(Self {
            core,
            gate: Arc::clone(&admission.gate),
            number: admission.number,
            address: admission.peer,
            known: AtomicBool::new(admission.is_known),
            proved: AtomicBool::new(false),
            refusals: AtomicU32::new(0),
            state: Mutex::default(),
        })
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn network(&self) -> IpAddr {
        network(self.address.ip())
    }

    pub(super) fn authenticated(&self) {
        if self.refusals.load(Ordering::Relaxed) > 0 {
            self.refusals.store(0, Ordering::Relaxed);
        }
        if !self.proved.swap(true, Ordering::Relaxed) {
            self.known.store(true, Ordering::Relaxed);
        }
        // With each request, or a network would be forgotten while its connection lasts.
        self.core.networks.remember(self.address.ip());
    }

    pub(super) fn refused(&self) {
        self.refusals.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether so many requests in a row were refused that it is to be closed.
    pub(super) fn is_refused_too_often(&self) -> bool {
        self.refusals.load(Ordering::Relaxed) >= self.core.limits.refusals.max(1)
    }

    pub(super) fn standing(&self) -> Standing {
        if self.refusals.load(Ordering::Relaxed) >= SUSPICIOUS {
            Standing::Suspect
        } else if self.proved.load(Ordering::Relaxed) {
            Standing::Proved
        } else if self.is_known() {
            Standing::Known
        } else {
            Standing::Unknown
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    pub(super) fn is_known(&self) -> bool {
        self.known.load(Ordering::Relaxed)
    }

    /// Queues a reply for the task to write.
    pub(super) fn reply(self: Arc<Self>, mut reply: Reply) {
        {
            let size = reply.size();
            let mut state = self.state.lock();
            if !state.closed && (size > UNCHARGED_BYTES || state.replies.len() >= UNCHARGED) {
                // Unlocked: this connection may be evicted itself.
                drop(state);
                reply.charge = Some(self.answer_budget().charge(&self, size));
                state = self.state.lock();
            }
            // A connection that is to be closed writes nothing any more.
            if state.closed || state.ending.is_some() {
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
        core.wake_list.notify(self);
    }

    fn answer_budget(&self) -> &Arc<AnswerBudget> {
        match self.is_known() {
            true => &self.core.answers_to_known,
            false => &self.core.answers_to_strangers,
        }
    }

    /// Closes the connection; its requests remain unanswered.
    pub(super) fn end(self: Arc<Self>, reason: Close) {
        let mut state = self.state.lock();
        state.ending.get_or_insert(reason);
        // Freed at once, not only when the task runs.
        let unsent = std::mem::take(&mut state.replies);
        let is_asleep = std::mem::take(&mut state.asleep);
        let is_writing = std::mem::take(&mut state.writing);
        drop(state);
        self.count_dropped(&unsent);
        if !is_asleep && !is_writing {
            return;
        }
        let core = Arc::clone(&self.core);
        core.wake_list.notify(self);
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

    /// During a write of a reply: why the connection is to be closed, if it is; if not, the task
    /// of `cx` is woken when it is.
    pub(super) fn poll_ending(&self, cx: &mut Context<'_>) -> Poll<Close> {
        let mut state = self.state.lock();
        if let Some(reason) = state.ending {
            return Poll::Ready(reason);
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            empty => *empty = Some(cx.waker().clone()),
        }
        state.writing = true;
        Poll::Pending
    }

    pub(super) fn next_reply(&self) -> Result<Option<Reply>, Close> {
        let mut state = self.state.lock();
        // The task runs: it checks again before it sleeps, so no wake-up is needed.
        state.asleep = false;
        state.writing = false;
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
        self.count_dropped(&unsent);
    }

    fn count_dropped(&self, unsent: &VecDeque<Reply>) {
        let count = u64::try_from(unsent.len()).unwrap_or(0);
        self.gate.metrics.dropped.inc_by(count);
    }
}

/// Releases the identity and refuses late replies on drop, also if the task panics.
pub(super) struct Registered {
    connection: Arc<Connection>,
    /// The identity, if the peer gave one.
    identity: Option<Bytes>,
}

impl Registered {
    /// Registers the connection under its peer's identity and closes the previous one.
    ///
    /// Only from the same address: an identity is no secret (a minion's id and process id), and
    /// libzmq's ROUTER_HANDOVER lets any peer disconnect any other with it. A minion whose address
    /// changed loses nothing: its old connection is dead and its replies go to the new one.
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
