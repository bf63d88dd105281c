//! How many requests a worker has in hand.
//!
//! A request keeps its place from the moment the router hands it over until its answer is sent or
//! given up, also while it waits for a commit long after the worker has turned to the next one.
//! The counts outlive the actors: they are shared, and a ticket gives its place back when dropped.
//!
//! Authentications are expensive and never wait for a commit, so few places are theirs: a storm of
//! them cannot fill the workers' mailboxes in front of everything else.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use actix::Recipient;
use parking_lot::Mutex;
use saltern_requests::Class;

use crate::messages::PlaceFree;

/// Places of each worker that authentications may take.
const AUTHENTICATIONS: usize = 4;

/// The windows of all workers.
pub(crate) struct Windows {
    in_hand: Vec<AtomicUsize>,
    size: usize,
    authentications: AtomicUsize,
    /// The router has a backlog and wants to hear of free places.
    wanted: AtomicBool,
    router: Mutex<Option<Recipient<PlaceFree>>>,
}

impl Windows {
    /// One window of `size` places for each worker.
    pub(crate) fn new(workers: usize, size: usize) -> Arc<Self> {
        Arc::new(Self {
            in_hand: (0..workers).map(|_| AtomicUsize::new(0)).collect(),
            size,
            authentications: AtomicUsize::new(0),
            wanted: AtomicBool::new(false),
            router: Mutex::new(None),
        })
    }

    /// Whom to tell of free places.
    pub(crate) fn set_router(&self, router: Recipient<PlaceFree>) {
        *self.router.lock() = Some(router);
    }

    /// Takes a place for a request of this class with the worker that has most of them free. Only
    /// the router calls this, so nobody takes the place in between.
    pub(crate) fn take(self: &Arc<Self>, class: Class) -> Option<Ticket> {
        // In one order with `want` and `give_back`: either the router sees a place that is given
        // back, or the one who gives it back sees that it is wanted.
        let load = |count: &AtomicUsize| count.load(Ordering::SeqCst);
        let is_authentication = class == Class::Auth;
        if is_authentication && load(&self.authentications) >= AUTHENTICATIONS * self.in_hand.len()
        {
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
        if is_authentication {
            self.authentications.fetch_add(1, Ordering::SeqCst);
        }
        Some(Ticket {
            windows: self.clone(),
            worker,
            is_authentication,
        })
    }

    /// Whether any worker has a place.
    pub(crate) fn has_place(&self) -> bool {
        let mut counts = self.in_hand.iter();
        counts.any(|count| count.load(Ordering::SeqCst) < self.size)
    }

    /// The router wants to hear of the next free place. It must try [`Windows::take`] once more
    /// after saying so.
    pub(crate) fn want(&self) {
        self.wanted.store(true, Ordering::SeqCst);
    }

    /// Requests in hand, over all workers.
    #[cfg(test)]
    pub(crate) fn in_hand(&self) -> usize {
        let counts = self.in_hand.iter();
        counts.map(|count| count.load(Ordering::SeqCst)).sum()
    }

    fn give_back(&self, ticket: &Ticket) {
        if let Some(count) = self.in_hand.get(ticket.worker) {
            count.fetch_sub(1, Ordering::SeqCst);
        }
        if ticket.is_authentication {
            self.authentications.fetch_sub(1, Ordering::SeqCst);
        }
        if self.wanted.load(Ordering::SeqCst)
            && self.wanted.swap(false, Ordering::SeqCst)
            && let Some(router) = &*self.router.lock()
        {
            // At most one such message is under way for each time the router asked for it.
            router.do_send(PlaceFree);
        }
    }
}

/// One place in one worker's window; dropping it gives the place back.
pub struct Ticket {
    windows: Arc<Windows>,
    worker: usize,
    is_authentication: bool,
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

    #[test]
    fn places_are_shared_out_evenly_and_come_back() {
        let windows = Windows::new(2, 2);
        let tickets: Vec<Ticket> = std::iter::from_fn(|| windows.take(Class::Minion)).collect();
        let workers: Vec<usize> = tickets.iter().map(Ticket::worker).collect();
        assert_eq!(workers, [0, 1, 0, 1]);
        assert_eq!(windows.in_hand(), 4);
        drop(tickets);
        assert_eq!(windows.in_hand(), 0);
        let next = windows.take(Class::Minion);
        assert_eq!(next.map(|ticket| ticket.worker()), Some(0));
    }

    #[test]
    fn authentications_leave_most_places_to_others() {
        let windows = Windows::new(2, 16);
        let take_all = |class| std::iter::from_fn(|| windows.take(class)).count();
        let held: Vec<Ticket> = std::iter::from_fn(|| windows.take(Class::Auth)).collect();
        assert_eq!(held.len(), 2 * AUTHENTICATIONS);
        assert_eq!(take_all(Class::Auth), 0);
        let others: Vec<Ticket> = std::iter::from_fn(|| windows.take(Class::Minion)).collect();
        assert_eq!(held.len() + others.len(), 32);
        drop(held);
        assert!(windows.take(Class::Auth).is_some());
    }
}
