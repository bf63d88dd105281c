//! Returner for the master's own job database (`event_return: saltern`, and the API's history).
//!
//! With the API on, events that a change of the job database causes are committed with that change
//! and do not come here.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use actix::Recipient;
use saltern_base::clock::Clock;
use saltern_requests::is_paced_by_master;
use saltern_store::NewEvent;
use saltern_store::jobs::Write;

use super::queue::PackedEvent;
use super::{End, Sink};
use crate::messages::{FollowUp, Persist};
use crate::shared::answer::PendingReply;

/// Why a batch is not stored.
#[derive(Debug, thiserror::Error)]
enum NotStored {
    /// The thread cannot wait for the answer.
    #[error(transparent)]
    Runtime(#[from] io::Error),
    /// The store refused the batch, or has ended.
    #[error("the job database does not take them")]
    Refused,
}

/// The job database as a returner. What cannot be stored now is retried: a full disk does not stay
/// so.
pub(crate) struct EventTable {
    store: Recipient<Persist>,
    clock: Clock,
    /// The number of the next event. It moves on when a batch is committed: a batch whose outcome
    /// is unknown is stored once more under the same numbers, and the database knows them.
    next: AtomicU64,
}

impl EventTable {
    pub(crate) fn new(store: Recipient<Persist>, clock: Clock) -> Self {
        Self {
            store,
            clock,
            next: AtomicU64::new(1),
        }
    }

    fn store(&self, first: u64, events: Vec<NewEvent>) -> Result<(), NotStored> {
        let (answer, stored) = PendingReply::inside();
        // Bounded: there is one batch at a time.
        self.store.do_send(Persist {
            writes: vec![(Write::Events { first, events }, FollowUp::Nothing)],
            answer: Some(answer),
        });
        let waiting = tokio::runtime::Builder::new_current_thread().build()?;
        match waiting.block_on(stored) {
            true => Ok(()),
            false => Err(NotStored::Refused),
        }
    }
}

impl Sink for EventTable {
    fn give(&self, batch: Vec<PackedEvent>) -> End {
        if batch.is_empty() {
            return End::Returned;
        }
        // There is one batch at a time.
        let first = self.next.load(Ordering::Relaxed);
        let received = self.clock.unix_micros();
        let events = batch.iter().map(|(tag, data)| NewEvent {
            received,
            tag: tag.clone(),
            data: data.clone(),
            of_minion: !is_paced_by_master(tag),
        });
        if let Err(error) = self.store(first, events.collect()) {
            return End::NotTried(error.to_string(), batch);
        }
        let next = first.saturating_add(batch.len() as u64);
        self.next.store(next, Ordering::Relaxed);
        End::Returned
    }
}
