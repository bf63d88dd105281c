//! Windows of the workers: bounds on the requests in progress at each.
//!
//! A request keeps its slot from the handover by the router until its answer is sent or dropped,
//! also while it waits for a commit long after the worker has turned to the next one. The counts
//! outlive the actors: they are shared, and a ticket frees its slot when dropped.
//!
//! Authentications are expensive and never wait for a commit, so they get few slots: many of them
//! cannot fill the workers' mailboxes in front of everything else. Likewise for requests of
//! unauthenticated peers: authenticated ones find most of the slots free of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use actix::{Message, Recipient};
use saltern_requests::Class;
use saltern_wire::port::Standing;

/// Slots of each worker for authentications.
const AUTHENTICATIONS: usize = 4;

/// Slots of each worker for requests of unknown peers: they are in the mailboxes in front of
/// everything that comes later.
const UNKNOWN: usize = 16;

/// Slots of each worker for requests of suspect peers, and for large ones of unauthenticated
/// peers: each of them may keep a worker busy for long.
const SUSPECTS: usize = 1;

/// Requests that share a bound on their slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    Authentications,
    Proved,
    Known,
    Unknown,
    Suspects,
}

impl Share {
    const COUNT: usize = 5;

    fn of(class: Class, standing: Standing) -> Self {
        match (class, standing) {
            (Class::Auth, _) => Self::Authentications,
            (_, Standing::Proved) => Self::Proved,
            (_, Standing::Known) => Self::Known,
            (_, Standing::Unknown) => Self::Unknown,
            (_, Standing::Suspect) => Self::Suspects,
        }
    }

    /// Slots of a worker with `size` of them.
    fn bound(self, size: usize) -> usize {
        match self {
            Self::Proved => size,
            Self::Known => (size / 2).max(1),
            Self::Authentications => AUTHENTICATIONS,
            Self::Unknown => UNKNOWN,
            Self::Suspects => SUSPECTS,
        }
    }
}

/// A slot in a worker's window is free, and requests are waiting. From the tickets of finished
/// requests, to ReqRouter.
#[derive(Message)]
#[rtype(result = "()")]
pub struct PlaceFree;

/// The windows of all workers.
pub(crate) struct Windows {
    in_hand: Vec<AtomicUsize>,
    size: usize,
    /// By [`Share`], over all workers.
    shares: [AtomicUsize; Share::COUNT],
    /// The router has a backlog and waits for a free slot.
    wanted: AtomicBool,
    /// Notified of free slots.
    router: Recipient<PlaceFree>,
}

impl Windows {
    /// One window of `size` places for each worker; `router` is notified of free ones.
    pub(crate) fn new(workers: usize, size: usize, router: Recipient<PlaceFree>) -> Arc<Self> {
        Arc::new(Self {
            in_hand: (0..workers).map(|_| AtomicUsize::new(0)).collect(),
            size,
            shares: Default::default(),
            wanted: AtomicBool::new(false),
            router,
        })
    }

    /// Takes a slot for a request of this class, whose peer has this standing, with the worker
    /// that has most of them free. Only the router calls this, so the slot cannot be taken in
    /// between.
    pub(crate) fn take(self: &Arc<Self>, class: Class, standing: Standing) -> Option<Ticket> {
        // In one order with `want` and `give_back`: either the router sees a slot that is freed,
        // or the thread that frees it sees that it is wanted.
        let load = |count: &AtomicUsize| count.load(Ordering::SeqCst);
        let share = Share::of(class, standing);
        let taken = self.shares.get(share as usize)?;
        if load(taken) >= share.bound(self.size) * self.in_hand.len() {
            return None;
        }
        let (worker, count) = self
            .in_hand
            .iter()
            .enumerate()
            .min_by_key(|(_, count)| load(count))?;
        if load(count) >= self.size {
            return None;
        }
        count.fetch_add(1, Ordering::SeqCst);
        taken.fetch_add(1, Ordering::SeqCst);
        Some(Ticket {
            windows: self.clone(),
            worker,
            share,
        })
    }

    /// Takes a slot for a request of a minion.
    #[cfg(test)]
    pub(crate) fn take_any(self: &Arc<Self>) -> Option<Ticket> {
        self.take(Class::Minion, Standing::Proved)
    }

    /// Whether any worker has a free slot.
    pub(crate) fn has_place(&self) -> bool {
        let mut counts = self.in_hand.iter();
        counts.any(|count| count.load(Ordering::SeqCst) < self.size)
    }

    /// Registers the router for the next free slot. It must try [`Windows::take`] once more
    /// afterwards.
    pub(crate) fn want(&self) {
        self.wanted.store(true, Ordering::SeqCst);
    }

    /// Requests in progress, over all workers.
    #[cfg(test)]
    pub(crate) fn in_hand(&self) -> usize {
        let counts = self.in_hand.iter();
        counts.map(|count| count.load(Ordering::SeqCst)).sum()
    }

    fn give_back(&self, ticket: &Ticket) {
        if let Some(count) = self.in_hand.get(ticket.worker) {
            count.fetch_sub(1, Ordering::SeqCst);
        }
        if let Some(taken) = self.shares.get(ticket.share as usize) {
            taken.fetch_sub(1, Ordering::SeqCst);
        }
        if self.wanted.load(Ordering::SeqCst) && self.wanted.swap(false, Ordering::SeqCst) {
            // At most one such message is on its way for each time the router asked for it.
            self.router.do_send(PlaceFree);
        }
    }
}

/// One slot in one worker's window; dropping it frees the slot.
pub struct Ticket {
    windows: Arc<Windows>,
    worker: usize,
    share: Share,
}

impl Ticket {
    /// The worker's number.
    pub(crate) fn worker(&self) -> usize {
        self.worker
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.windows.give_back(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::testing::closed;

    #[test]
    fn slots_are_spread_evenly_and_freed() {
        let windows = Windows::new(2, 2, closed());
        let take = || windows.take(Class::Minion, Standing::Proved);
        let tickets: Vec<Ticket> = std::iter::from_fn(take).collect();
        let workers: Vec<usize> = tickets.iter().map(Ticket::worker).collect();
        assert_eq!(workers, [0, 1, 0, 1]);
        assert_eq!(windows.in_hand(), 4);
        drop(tickets);
        assert_eq!(windows.in_hand(), 0);
        let next = take();
        assert_eq!(next.map(|ticket| ticket.worker()), Some(0));
    }

    #[test]
    fn authentications_leave_most_slots_to_others() {
        let windows = Windows::new(2, 16, closed());
        let take_all = |class, standing| -> Vec<Ticket> {
            std::iter::from_fn(|| windows.take(class, standing)).collect()
        };
        let held = take_all(Class::Auth, Standing::Known);
        assert_eq!(held.len(), 2 * AUTHENTICATIONS);
        assert!(take_all(Class::Auth, Standing::Proved).is_empty());
        let others = take_all(Class::Minion, Standing::Proved);
        assert_eq!(held.len() + others.len(), 32);
        drop(held);
        assert_eq!(take_all(Class::Auth, Standing::Unknown).len(), 8);
    }

    #[test]
    fn strangers_and_suspects_leave_slots_to_minions() {
        let windows = Windows::new(2, 64, closed());
        let take_all = |standing| -> Vec<Ticket> {
            std::iter::from_fn(|| windows.take(Class::Minion, standing)).collect()
        };
        let suspects = take_all(Standing::Suspect);
        assert_eq!(suspects.len(), 2 * SUSPECTS);
        let strangers = take_all(Standing::Unknown);
        assert_eq!(strangers.len(), 2 * UNKNOWN);
        let known = take_all(Standing::Known);
        assert_eq!(known.len(), 64);
        let minions = take_all(Standing::Proved);
        let all = [&suspects, &strangers, &known, &minions].map(Vec::len);
        assert_eq!(all.iter().sum::<usize>(), 128);
        drop(suspects);
        assert_eq!(take_all(Standing::Suspect).len(), 2 * SUSPECTS);
    }
}
