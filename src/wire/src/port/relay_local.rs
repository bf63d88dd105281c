//! The unix sockets of a member that stands by: events and the control socket of the active one, for
//! programs of this machine.
//!
//! Who may connect is decided here, by the modes of the sockets, as on the active member.
//!
//! A program that subscribes and then causes an event gets that event. It does so by two connections, so
//! requests that come here wait for the subscriptions that came before them (`Subscriptions`).

use std::collections::BTreeSet;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::UnixStream;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tracing::debug;

use super::metrics::{Close, Families, Metrics, Refusal, State};
use crate::member::{Door, Header, RelayedPeer};

/// A bound unix socket of a master.
pub struct LocalSocket {
    /// The socket.
    pub listener: StdUnixListener,
    /// Its door at the active member.
    pub door: Door,
    /// Connections at once.
    pub connections: usize,
    /// Time in which a program takes what it is sent.
    pub patience: Duration,
}

/// A socket that is relayed, without its listener: that is closed while its connections still end.
pub(super) struct LocalDoor {
    door: Door,
    slots: Arc<Semaphore>,
    pub(super) patience: Duration,
    pub(super) metrics: Metrics,
}

/// A program's slot. Dropping it frees the slot and counts the reason.
pub(super) struct LocalAdmission {
    pub(super) door: Arc<LocalDoor>,
    pub(super) header: Header,
    /// Held by a subscriber until it is one of the active member's.
    subscription: Option<Ticket>,
    state: State,
    reason: Close,
    _slot: OwnedSemaphorePermit,
}

impl LocalDoor {
    pub(super) fn new(socket: &LocalSocket, families: &Families) -> Arc<Self> {
        Arc::new(Self {
            door: socket.door,
            slots: Arc::new(Semaphore::new(socket.connections)),
            patience: socket.patience,
            metrics: Metrics::labelled(families, socket.door.label()),
        })
    }

    /// Its label in metrics and logs.
    pub(super) fn label(&self) -> &'static str {
        self.door.label()
    }

    /// A slot for a program; one without is counted.
    pub(super) fn admit(
        self: &Arc<Self>,
        stream: &UnixStream,
        subscriptions: &Arc<Subscriptions>,
    ) -> Option<LocalAdmission> {
        let Ok(slot) = Arc::clone(&self.slots).try_acquire_owned() else {
            self.metrics.refused(Refusal::Connections).inc();
            return None;
        };
        // For the log of the active member alone.
        let uid = stream.peer_cred().map_or(u32::MAX, |peer| peer.uid());
        self.metrics.accepted.inc();
        self.metrics.connections(State::Handshake).inc();
        Some(LocalAdmission {
            door: Arc::clone(self),
            header: Header {
                door: self.door,
                peer: RelayedPeer::User(uid),
            },
            subscription: (self.door == Door::Events).then(|| subscriptions.begin()),
            state: State::Handshake,
            reason: Close::Panic,
            _slot: slot,
        })
    }
}

impl LocalAdmission {
    /// The active member serves it.
    pub(super) fn opened(&mut self) {
        self.subscription = None;
        self.door.metrics.connections(self.state).dec();
        self.state = State::Open;
        self.door.metrics.connections(self.state).inc();
    }

    /// Sets the reason why the connection ends; without it, dropping counts a panic.
    pub(super) fn ends(&mut self, reason: Close) {
        self.reason = reason;
        let door = self.header.door.label();
        debug!(door, reason = reason.label(), "closed");
    }
}

impl Drop for LocalAdmission {
    fn drop(&mut self) {
        self.door.metrics.connections(self.state).dec();
        self.door.metrics.closed(self.reason).inc();
    }
}

/// Subscriptions that the active member does not have yet.
#[derive(Default)]
pub(super) struct Subscriptions {
    state: Mutex<Begun>,
    settled: Notify,
}

#[derive(Default)]
struct Begun {
    next: u64,
    unsettled: BTreeSet<u64>,
}

/// A subscription under way; it is settled when this is dropped, one way or the other.
struct Ticket {
    of: Arc<Subscriptions>,
    number: u64,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.of.state.lock().unsettled.remove(&self.number);
        self.of.settled.notify_waiters();
    }
}

impl Subscriptions {
    fn begin(self: &Arc<Self>) -> Ticket {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        state.unsettled.insert(number);
        Ticket {
            of: Arc::clone(self),
            number,
        }
    }

    /// Waits until those that have begun by now are settled.
    pub(super) async fn settled(&self) {
        let next = self.state.lock().next;
        loop {
            let settled = self.settled.notified();
            let first = self.state.lock().unsettled.first().copied();
            if first.is_none_or(|first| first >= next) {
                return;
            }
            settled.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn request_waits_for_subscriptions_that_came_before_it() {
        let subscriptions = Arc::<Subscriptions>::default();
        assert!(subscriptions.settled().now_or_never().is_some());
        let (first, second) = (subscriptions.begin(), subscriptions.begin());
        let mut waiting = Box::pin(subscriptions.settled());
        assert!(waiting.as_mut().now_or_never().is_none());
        let later = subscriptions.begin();
        drop(second);
        assert!(waiting.as_mut().now_or_never().is_none());
        drop(first);
        assert!(waiting.now_or_never().is_some());
        drop(later);
        assert!(subscriptions.state.lock().unsettled.is_empty());
    }
}
