//! Returner for the master's own job database (`event_return: saltern`, and the API's history).
//!
//! Gives each event the next position. The streams of the API get a batch after its commit, so a
//! position that a client knows is on the disk.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use actix::Recipient;
use saltern_base::clock::Clock;
use saltern_netapi::stream::BusEvent;
use saltern_requests::is_paced_by_master;
use saltern_store::KeptEvent;
use saltern_store::jobs::Write;

use super::queue::PackedEvent;
use super::{End, Sink};
use crate::events::event_feed::EventFeed;
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
    /// The position of the next event. It moves on when a batch is committed: a batch whose outcome
    /// is unknown is stored once more at the same positions, which changes nothing.
    next: AtomicI64,
    /// The streams of the API, if it is on.
    feed: Option<Arc<EventFeed>>,
}

impl EventTable {
    pub(crate) fn new(
        store: Recipient<Persist>,
        clock: Clock,
        next: i64,
        feed: Option<Arc<EventFeed>>,
    ) -> Self {
        Self {
            store,
            clock,
            next: AtomicI64::new(next),
            feed,
        }
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
        // There is one batch at a time.
        let first = self.next.load(Ordering::Relaxed);
        let received = self.clock.unix_micros();
        let events = batch
            .iter()
            .zip(first..)
            .map(|((tag, data), position)| KeptEvent {
                position,
                received,
                tag: tag.clone(),
                data: data.clone(),
                of_minion: !is_paced_by_master(tag),
            });
        if let Err(error) = self.store(events.collect()) {
            return End::NotTried(error.to_string(), batch);
        }
        let events = i64::try_from(batch.len()).unwrap_or(i64::MAX);
        self.next
            .store(first.saturating_add(events), Ordering::Relaxed);
        if let Some(feed) = &self.feed {
            let events = batch.into_iter().zip(first..);
            let events = events.map(|((tag, data), number)| BusEvent { number, tag, data });
            feed.committed(events.collect());
        }
        End::Returned
    }
}
