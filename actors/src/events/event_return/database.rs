//! Returner for the master's own job database (`event_return: saltern`).

use std::io;

use actix::Recipient;
use parking_lot::Mutex;
use saltern_base::clock::Clock;
use saltern_requests::is_paced_by_master;
use saltern_store::KeptEvent;
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
    /// The time of the last stored event: the next one is later, whatever the clock says.
    last: Mutex<i64>,
}

impl EventTable {
    pub(crate) fn new(store: Recipient<Persist>, clock: Clock) -> Self {
        Self {
            store,
            clock,
            last: Mutex::new(0),
        }
    }

    /// The first of `events` consecutive microseconds that no event has yet.
    fn times_for(&self, events: usize) -> i64 {
        let mut last = self.last.lock();
        let first = self.clock.unix_micros().max(last.saturating_add(1));
        *last = first.saturating_add(i64::try_from(events).unwrap_or(i64::MAX));
        first
    }

    fn store(&self, events: Vec<KeptEvent>) -> Result<(), NotStored> {
        let (answer, stored) = PendingReply::inside();
        // Bounded: there is one batch at a time.
        self.store.do_send(Persist {
            writes: vec![(Write::Events(events), FollowUp::Nothing)],
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
        let first = self.times_for(batch.len());
        let events = batch
            .iter()
            .zip(first..)
            .map(|((tag, data), received)| KeptEvent {
                received,
                tag: tag.clone(),
                data: data.clone(),
                of_minion: !is_paced_by_master(tag),
            });
        match self.store(events.collect()) {
            Ok(()) => End::Returned,
            Err(error) => End::NotTried(error.to_string(), batch),
        }
    }
}
