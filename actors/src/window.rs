//! How many requests a worker has in hand.
//!
//! A request keeps its place from the moment the router hands it over until its answer is sent or
//! given up, also while it waits for a commit long after the worker has turned to the next one.
//! The counts outlive the actors: they are shared, and a ticket gives its place back when dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use actix::Recipient;
use parking_lot::Mutex;

use crate::messages::PlaceFree;

/// The windows of all workers.
pub(crate) struct Windows {
    in_hand: Vec<AtomicUsize>,
    size: usize,
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
            wanted: AtomicBool::new(false),
            router: Mutex::new(None),
        })
    }

    /// Whom to tell of free places.
    pub(crate) fn set_router(&self, router: Recipient<PlaceFree>) {
        *self.router.lock() = Some(router);
    }

    /// Takes a place with the worker that has most of them free.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Ticket> {
        let load = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        let (worker, count) = self
            .in_hand
            .iter()
            .enumerate()
            .min_by_key(|(_, count)| load(count))?;
        if load(count) >= self.size {
            return None;
        }
        count.fetch_add(1, Ordering::Relaxed);
        Some(Ticket {
            windows: self.clone(),
            worker,
        })
    }

    /// The router wants to hear of the next free place.
    pub(crate) fn want(&self) {
        self.wanted.store(true, Ordering::SeqCst);
    }

    /// Requests in hand, over all workers.
    #[cfg(test)]
    pub(crate) fn in_hand(&self) -> usize {
        self.in_hand
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .sum()
    }

    fn give_back(&self, worker: usize) {
        if let Some(count) = self.in_hand.get(worker) {
            count.fetch_sub(1, Ordering::SeqCst);
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
}

impl Ticket {
    /// The worker's number.
    pub(crate) fn worker(&self) -> usize {
        self.worker
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.windows.give_back(self.worker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_shared_out_evenly_and_come_back() {
        let windows = Windows::new(2, 2);
        let tickets: Vec<Ticket> = std::iter::from_fn(|| windows.take()).collect();
        let workers: Vec<usize> = tickets.iter().map(Ticket::worker).collect();
        assert_eq!(workers, [0, 1, 0, 1]);
        assert_eq!(windows.in_hand(), 4);
        drop(tickets);
        assert_eq!(windows.in_hand(), 0);
        assert_eq!(windows.take().map(|ticket| ticket.worker()), Some(0));
    }
}
