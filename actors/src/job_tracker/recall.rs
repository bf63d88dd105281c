//! What a syndic beside this master may have missed while the master was away: a stock syndic knows
//! of jobs and returns from the event bus alone (`_process_event` in `salt/minion.py`), so what was
//! fired when it was not connected never goes up.
//!
//! Where there is a syndic (`syndic_master`), whoever connects to the bus soon after a start is told
//! again, from the store, of the youngest jobs and returns: as many as may have waited for it in the
//! queue of the master before. Nothing tells a syndic from another listener, so others that come at
//! that time hear those events once more too. Told at the listener's own pace.

use std::time::Duration;

use actix::{AsyncContext, Context};
use saltern_model::{Event, Tag};
use saltern_store::StoreError;
use saltern_store::jobs::JobReader;
use tokio::time::Instant;

use super::JobTracker;
use super::outside::Outside;
use crate::bus::Newcomer;

/// How long after a start listeners are told.
const SOON: Duration = Duration::from_secs(30);

/// What is older than this at the start is not told.
const OLDEST: Duration = Duration::from_secs(600);

/// Rows that are read at once.
const PAGE: usize = 250;

/// With more frames than this in its queue a listener is left alone for a while.
const BUSY: usize = 1_000;

/// How long that is.
const PAUSE: Duration = Duration::from_millis(20);

/// A place in the numbering of jobs and returns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    jobs: i64,
    returns: i64,
}

/// What is told, and until when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recall {
    from: Place,
    /// In microseconds since 1970.
    oldest: i64,
    until: Instant,
}

impl Recall {
    /// Nothing where there is no syndic.
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
    /// Tells a newcomer, if it came soon enough.
    pub(super) fn recall(&self, newcomer: Newcomer, context: &mut Context<Self>) {
        let Some(recall) = self.recall.filter(|recall| Instant::now() < recall.until) else {
            return;
        };
        match self.seed.reader.last_ids() {
            // What comes behind these goes over the bus.
            Ok((jobs, returns)) => {
                let end = Place { jobs, returns };
                self.tell_on(newcomer, recall.from, end, context);
            }
            Err(error) => tracing::error!(%error, "a listener is not told what it missed"),
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
                    tracing::error!(%error, "a listener is not told what it missed");
                    return;
                }
            }
        }
        context.run_later(PAUSE, move |tracker, context| {
            tracker.tell_on(newcomer, next, end, context);
        });
    }

    /// The next events, jobs first; nothing when all are told.
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
