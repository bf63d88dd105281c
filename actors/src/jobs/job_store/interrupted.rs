//! Commits whose engine failed before it replied: stored wholly or not at all, and nobody knows which.
//!
//! The database is asked before anybody is answered. What it has of the group decides for all of it,
//! because a group is one transaction. Only a new job, return or batch can tell: a group without any is
//! refused, and each of its senders repeats what it wrote. While the database cannot be asked either,
//! the group waits for [`PATIENCE`], and is refused after that; its jobs are looked up later, so that
//! none stays open that nobody tracks.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use actix::fut::wrap_future;
use actix::{ActorFutureExt, AsyncContext, Context};
use saltern_base::chain;
use saltern_model::{Jid, JobRecord, Packed, ReturnRecord};
use saltern_store::StoreError;
use saltern_store::jobs::{Batch, JobQueries, JobState, Write, Written};
use tokio::time::{Instant, sleep};

use super::JobStore;
use super::commit_group::{CommitGroup, CommitOutcome};
use crate::messages::{FollowUp, JobBegun, Stored};

/// Maximum wait for a database that cannot be asked.
pub(super) const PATIENCE: Duration = Duration::from_secs(2);

/// Time between two look-ups.
const INTERVAL: Duration = Duration::from_millis(50);

/// Maximum number of refused jobs that are looked up later. The state of further ones is found at
/// the next start.
const MAX_DOUBTFUL: usize = 1_000;

type Interrupted = (CommitGroup, Arc<Batch>);

impl JobStore {
    /// Finds out what became of a group, does what follows, and goes on with the groups behind it.
    pub(super) fn look_up(
        &mut self,
        (group, batch): Interrupted,
        error: StoreError,
        behind: VecDeque<CommitGroup>,
        context: &mut Context<Self>,
    ) {
        // What is stored of it was not announced, as after a restart.
        self.fired_from = None;
        let queries = self.seed.engine.queries.clone();
        let began = Instant::now();
        let commit = self.seed.commits.begin();
        let asked = wrap_future::<_, Self>(async move {
            let stored = ask(&*queries, &batch).await;
            drop(commit);
            (stored, batch)
        });
        context.wait(asked.map(move |(stored, batch), store, context| {
            match stored {
                Ok(true) => {
                    let outcome = CommitOutcome {
                        written: batch.writes.iter().map(written).collect(),
                        took: began.elapsed(),
                    };
                    tracing::warn!(
                        error = chain(&error),
                        "a commit was interrupted, and is found to be stored"
                    );
                    store.follow_up(group, outcome, context);
                }
                Ok(false) => store.give_up(group, &error),
                Err(unknown) => {
                    store.doubt(&group);
                    store.give_up(group, &unknown);
                }
            }
            store.append_each(behind, context);
        }));
    }

    /// Remembers the jobs of a group that is refused although it may be stored.
    fn doubt(&mut self, group: &CommitGroup) {
        let jobs = group
            .follow_ups
            .iter()
            .filter_map(|follow_up| match follow_up {
                FollowUp::Begin(beginning) => Some(beginning.job.clone()),
                _ => None,
            });
        let room = MAX_DOUBTFUL.saturating_sub(self.doubtful.len());
        self.doubtful.extend(jobs.take(room));
    }

    /// Looks up the refused jobs that may be stored, and notifies the tracker of those that are.
    pub(super) fn look_at_doubtful(&mut self) {
        let queries = self.seed.engine.queries.clone();
        let mut unsent = Vec::new();
        while let Some(job) = self.doubtful.pop() {
            match is_awaited(&*queries, &job) {
                Ok(true) => unsent.push(job),
                Ok(false) => {}
                Err(_) => {
                    self.doubtful.push(job);
                    break;
                }
            }
        }
        if !unsent.is_empty() {
            let jobs = unsent.len();
            tracing::warn!(jobs, "refused jobs are found to be stored: they are ended");
            self.notify_tracker(Stored {
                unsent,
                ..Stored::default()
            });
        }
    }
}

/// Asks until there is an answer, for [`PATIENCE`].
async fn ask(queries: &dyn JobQueries, batch: &Batch) -> Result<bool, StoreError> {
    let began = Instant::now();
    loop {
        match is_stored(queries, batch) {
            Err(_) if began.elapsed() < PATIENCE => sleep(INTERVAL).await,
            known => return known,
        }
    }
}

/// Whether a batch is in the database. A job or a return that is there as this batch was to write it,
/// with its time, says that it is; returns that were there before say nothing.
fn is_stored(queries: &dyn JobQueries, batch: &Batch) -> Result<bool, StoreError> {
    for write in &batch.writes {
        let is_there = match write {
            Write::Job(job) | Write::JobPart(job) => has_job(queries, job)?,
            Write::Return(returned) => has_return(queries, returned)?,
            Write::Batch { jid, plan } => has_batch(queries, jid, plan)?,
            _ => false,
        };
        if is_there {
            return Ok(true);
        }
    }
    Ok(false)
}

fn has_job(queries: &dyn JobQueries, job: &JobRecord) -> Result<bool, StoreError> {
    let stored = queries.load(&job.jid)?;
    Ok(stored.is_some_and(|stored| {
        let stored = stored.record;
        stored.created == job.created && stored.load.as_ref() == job.load.as_ref()
    }))
}

fn has_batch(queries: &dyn JobQueries, jid: &Jid, plan: &Packed) -> Result<bool, StoreError> {
    let stored = queries.batch(jid)?;
    Ok(stored.is_some_and(|stored| stored.is_open && stored.plan.as_ref() == plan.as_ref()))
}

fn has_return(queries: &dyn JobQueries, returned: &ReturnRecord) -> Result<bool, StoreError> {
    let stored = queries.return_of(&returned.jid, &returned.minion)?;
    Ok(stored.is_some_and(|stored| {
        stored.received == returned.received && stored.load.as_ref() == returned.load.as_ref()
    }))
}

/// The outcome of a stored change as far as it is known: events of returns are fired again rather
/// than not at all.
fn written(write: &Write) -> Written {
    match write {
        Write::Return(_) => Written::Duplicate,
        _ => Written::Updated,
    }
}

/// Whether a refused job is stored and open.
fn is_awaited(queries: &dyn JobQueries, job: &JobBegun) -> Result<bool, StoreError> {
    let stored = queries.load(&job.jid)?;
    Ok(stored.is_some_and(|stored| {
        stored.state == JobState::Open && stored.record.created == job.created
    }))
}
