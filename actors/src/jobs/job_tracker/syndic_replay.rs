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
use saltern_store::jobs::JobQueries;
use tokio::time::Instant;

use super::JobTracker;
use super::deps::TrackerDeps;
use crate::messages::NewSubscriber;

/// How long after a start subscribers get a replay.
const REPLAY_WINDOW: Duration = Duration::from_secs(30);

/// Maximum age of what is replayed, at the start.
const OLDEST: Duration = Duration::from_secs(600);

/// Rows per read.
const PAGE: usize = 250;

/// Queue length of a subscriber above which the replay pauses.
const BUSY: usize = 1_000;

/// Length of that pause, and of the one between two reads.
const SLICE_INTERVAL: Duration = Duration::from_millis(20);

/// A cursor in the numbering of jobs and returns.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplayCursor {
    jobs: i64,
    returns: i64,
}

/// The range of the replay, and its end.
#[derive(Clone, Copy, Debug)]
pub(super) struct SyndicReplay {
    from: ReplayCursor,
    /// In microseconds since 1970.
    oldest: i64,
    until: Instant,
}

impl SyndicReplay {
    /// `None` where there is no syndic.
    pub(super) fn at_start(reader: &dyn JobQueries, deps: &dyn TrackerDeps) -> Option<Self> {
        let most = i64::try_from(deps.replayed())
            .ok()
            .filter(|most| *most > 0)?;
        let (jobs, returns) = reader
            .last_ids()
            .inspect_err(|error| tracing::error!(%error, "a syndic may miss returns"))
            .ok()?;
        let age = i64::try_from(OLDEST.as_micros()).unwrap_or(0);
        Some(Self {
            from: ReplayCursor {
                jobs: jobs - most,
                returns: returns - most,
            },
            oldest: deps.micros() - age,
            until: Instant::now() + REPLAY_WINDOW,
        })
    }
}

impl JobTracker {
    /// Replays to a new subscriber, if it came soon enough.
    pub(super) fn syndic_replay(
        &self,
        newcomer: Box<dyn NewSubscriber>,
        context: &mut Context<Self>,
    ) {
        let Some(syndic_replay) = self
            .syndic_replay
            .filter(|syndic_replay| Instant::now() < syndic_replay.until)
        else {
            return;
        };
        match self.seed.reader.last_ids() {
            // Later events come over the bus.
            Ok((jobs, returns)) => {
                let end = ReplayCursor { jobs, returns };
                self.send_next(newcomer, syndic_replay.from, end, context);
            }
            Err(error) => tracing::error!(%error, "missed events cannot be replayed to a listener"),
        }
    }

    fn send_next(
        &self,
        newcomer: Box<dyn NewSubscriber>,
        from: ReplayCursor,
        end: ReplayCursor,
        context: &mut Context<Self>,
    ) {
        let Some(waiting) = newcomer.waiting() else {
            return;
        };
        let mut next = from;
        if waiting <= BUSY {
            match self.page(from, end) {
                Ok(Some((events, place))) => {
                    newcomer.send(events);
                    next = place;
                }
                Ok(None) => return,
                Err(error) => {
                    tracing::error!(%error, "missed events cannot be replayed to a listener");
                    return;
                }
            }
        }
        context.run_later(SLICE_INTERVAL, move |tracker, context| {
            tracker.send_next(newcomer, next, end, context);
        });
    }

    /// The next events, jobs first; `None` at the end.
    fn page(
        &self,
        from: ReplayCursor,
        end: ReplayCursor,
    ) -> Result<Option<(Vec<Event>, ReplayCursor)>, StoreError> {
        let (reader, deps) = (&self.seed.reader, &self.seed.deps);
        let oldest = self
            .syndic_replay
            .map_or(i64::MAX, |syndic_replay| syndic_replay.oldest);
        let is_of_minions = |fun: &str| !fun.starts_with("runner.") && !fun.starts_with("wheel.");
        let mut events = Vec::new();
        let mut place = from;
        for job in reader.jobs_after(from.jobs, PAGE)? {
            place.jobs = job.id;
            let record = job.record;
            if job.id <= end.jobs && record.created >= oldest && is_of_minions(&record.fun) {
                events.extend(deps.announced(&record));
            }
        }
        if place.jobs > from.jobs {
            return Ok(Some((events, place)));
        }
        for returned in reader.returns_after(from.returns, PAGE)? {
            place.returns = returned.id;
            let record = returned.record;
            let is_sent = returned.id <= end.returns && record.received >= oldest;
            if is_sent && is_of_minions(&record.fun) {
                events.push(Event {
                    tag: Tag::job_return(&record.jid, &record.minion),
                    data: record.load,
                });
            }
        }
        Ok((place.returns > from.returns).then_some((events, place)))
    }
}
