//! Replay for syndics beside this master after a restart. A stock syndic learns of jobs and
//! returns from the event bus alone (`_process_event` in `salt/minion.py`), so events that were
//! fired while it was disconnected never go up.
//!
//! Where there is a syndic (`syndic_master`), each subscriber that connects soon after a start
//! gets the youngest jobs and returns again, from the store: as many as its queue at the master
//! before may have held. A syndic looks like any other subscriber, so others that connect at that
//! time get those events once more too. Sent at the subscriber's own pace.

use std::time::Duration;

use actix::{AsyncContext, Context};
use saltern_model::{Event, Tag};
use saltern_store::StoreError;
use saltern_store::jobs::JobReader;
use tokio::time::Instant;

use super::JobTracker;
use super::outside::Outside;
use crate::bus::Newcomer;

/// How long after a start subscribers get a replay.
const SOON: Duration = Duration::from_secs(30);

/// Maximum age of what is replayed, at the start.
const OLDEST: Duration = Duration::from_secs(600);

/// Rows per read.
const PAGE: usize = 250;

/// Queue length of a subscriber above which the replay pauses.
const BUSY: usize = 1_000;

/// Length of that pause, and of the one between two reads.
const PAUSE: Duration = Duration::from_millis(20);

/// A cursor in the numbering of jobs and returns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    jobs: i64,
    returns: i64,
}

/// The range of the replay, and its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recall {
    from: Place,
    /// In microseconds since 1970.
    oldest: i64,
    until: Instant,
}

impl Recall {
    /// `None` where there is no syndic.
    pub(super) fn at_start(reader: &JobReader, outside: &dyn Outside) -> Option<Self> {
        let most = i64::try_from(outside.recalled())
            .ok()
            .filter(|most| *most > 0)?;
        let (jobs, returns) = reader
            .last_ids()
            .inspect_err(|error| tracing::error!(%error, "a syndic may miss returns"))
            .ok()?;
        let age = i64::try_from(OLDEST.as_micros()).unwrap_or(0);
        Some(Self {
            from: Place {
                jobs: jobs - most,
                returns: returns - most,
            },
            oldest: outside.micros() - age,
            until: Instant::now() + SOON,
        })
    }
}

impl JobTracker {
    /// Replays to a new subscriber, if it came soon enough.
    pub(super) fn recall(&self, newcomer: Newcomer, context: &mut Context<Self>) {
        let Some(recall) = self.recall.filter(|recall| Instant::now() < recall.until) else {
            return;
        };
        match self.seed.reader.last_ids() {
            // Later events come over the bus.
            Ok((jobs, returns)) => {
                let end = Place { jobs, returns };
                self.tell_on(newcomer, recall.from, end, context);
            }
            Err(error) => tracing::error!(%error, "missed events cannot be replayed to a listener"),
        }
    }

    fn tell_on(&self, newcomer: Newcomer, from: Place, end: Place, context: &mut Context<Self>) {
        let Some(waiting) = newcomer.waiting() else {
            return;
        };
        let mut next = from;
        if waiting <= BUSY {
            match self.page(from, end) {
                Ok(Some((events, place))) => {
                    newcomer.tell(events);
                    next = place;
                }
                Ok(None) => return,
                Err(error) => {
                    tracing::error!(%error, "missed events cannot be replayed to a listener");
                    return;
                }
            }
        }
        context.run_later(PAUSE, move |tracker, context| {
            tracker.tell_on(newcomer, next, end, context);
        });
    }

    /// The next events, jobs first; `None` at the end.
    fn page(&self, from: Place, end: Place) -> Result<Option<(Vec<Event>, Place)>, StoreError> {
        let (reader, outside) = (&self.seed.reader, &self.seed.outside);
        let oldest = self.recall.map_or(i64::MAX, |recall| recall.oldest);
        let is_of_minions = |fun: &str| !fun.starts_with("runner.") && !fun.starts_with("wheel.");
        let mut events = Vec::new();
        let mut place = from;
        for job in reader.jobs_after(from.jobs, PAGE)? {
            place.jobs = job.id;
            let record = job.record;
            if job.id <= end.jobs && record.created >= oldest && is_of_minions(&record.fun) {
                events.extend(outside.announced(&record));
            }
        }
        if place.jobs > from.jobs {
            return Ok(Some((events, place)));
        }
        for returned in reader.returns_after(from.returns, PAGE)? {
            place.returns = returned.id;
            let record = returned.record;
            let is_told = returned.id <= end.returns && record.received >= oldest;
            if is_told && is_of_minions(&record.fun) {
                events.push(Event {
                    tag: Tag::job_return(&record.jid, &record.minion),
                    data: record.load,
                });
            }
        }
        Ok((place.returns > from.returns).then_some((events, place)))
    }
}
