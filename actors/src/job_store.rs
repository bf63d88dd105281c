//! The only writer of the job database.
//!
//! Messages that arrive while a commit is under way wait in the mailbox and make the next one
//! together (group commit): the store is never idle and never waits for company. What follows a
//! commit (job files, events, the publish, the answer) follows it in that order.

use std::sync::Arc;

use actix::{Actor, ActorFutureExt, Addr, AsyncContext, Context, Handler, WrapFuture};
use parking_lot::Mutex;
use saltern_base::metrics::{Histogram, IntCounter, Registry, SECONDS, counter, histogram};
use saltern_store::jobs::{JobDatabase, Write, Written};
use saltern_store::{JobFiles as JobFileWriter, StoreError};
use saltern_supervise::Child;
use tokio::time::Instant;

use crate::event_publisher::EventPublisher;
use crate::job_mirror::JobMirror;
use crate::job_tracker::JobTracker;
use crate::messages::{
    AfterCommit, ExpireJobs, Fire, FollowUp, Persist, Publish, ReturnsStored, StoredReturn,
};
use crate::publisher::Publisher;
use crate::send::push;

/// What a store is built from.
#[derive(Clone)]
pub(crate) struct Seed {
    /// The one connection that writes; only this actor locks it.
    pub(crate) database: Arc<Mutex<JobDatabase>>,
    /// Writes the files that stock's command line wants, unless the mirror is off.
    pub(crate) job_files: Option<Arc<JobFileWriter>>,
    pub(crate) bus: Addr<EventPublisher>,
    pub(crate) publisher: Addr<Publisher>,
    pub(crate) mirror: Option<Addr<JobMirror>>,
    /// The tracker is built after the store, and is asked only at run time.
    pub(crate) tracker: Arc<Mutex<Option<Addr<JobTracker>>>>,
    pub(crate) metrics: StoreMetrics,
}

/// What the store measures.
#[derive(Clone)]
pub(crate) struct StoreMetrics {
    commits: Histogram,
    writes: IntCounter,
    failed: IntCounter,
}

impl StoreMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            commits: histogram(
                registry,
                "saltern_store_commit_seconds",
                "Time of one commit of the job database.",
                SECONDS,
            ),
            writes: counter(
                registry,
                "saltern_store_writes_total",
                "Changes committed to the job database.",
            ),
            failed: counter(
                registry,
                "saltern_store_commits_failed_total",
                "Commits of the job database that failed.",
            ),
        }
    }
}

/// Changes of one commit at most: bounds the memory and the time of a transaction.
const BATCH: usize = 4096;

/// Rows deleted in one transaction when old jobs expire.
const EXPIRY_SLICE: usize = 2_000;

/// See the module.
pub(crate) struct JobStore {
    seed: Seed,
    writes: Vec<Write>,
    /// What follows, with the number of writes that belong to it.
    follow: Vec<(usize, AfterCommit)>,
    commit_is_due: bool,
}

impl Child for JobStore {
    type Seed = Seed;

    const NAME: &'static str = "job_store";
    const MAILBOX: usize = 4096;

    fn build(seed: &Seed) -> Self {
        Self {
            seed: seed.clone(),
            writes: Vec::new(),
            follow: Vec::new(),
            commit_is_due: false,
        }
    }
}

impl Actor for JobStore {
    type Context = Context<Self>;
}

impl Handler<Persist> for JobStore {
    type Result = ();

    fn handle(&mut self, message: Persist, context: &mut Self::Context) {
        self.follow.push((message.writes.len(), message.then));
        self.writes.extend(message.writes);
        if self.writes.len() >= BATCH {
            self.commit(context);
        } else if !self.commit_is_due {
            self.commit_is_due = true;
            // Runs once the mailbox has been emptied into the batch.
            let later = tokio::task::yield_now().into_actor(self);
            context.spawn(later.map(|(), store: &mut Self, context| store.commit(context)));
        }
    }
}

impl Handler<ExpireJobs> for JobStore {
    type Result = ();

    fn handle(&mut self, message: ExpireJobs, context: &mut Self::Context) {
        let removed = self
            .seed
            .database
            .lock()
            .expire_before(message.0, EXPIRY_SLICE);
        match removed {
            Ok(0) => {}
            Ok(rows) => {
                tracing::debug!(rows, "old jobs removed");
                // The rest afterwards, so that returns are not held up.
                context.notify(message);
            }
            Err(error) => tracing::error!(%error, "old jobs cannot be removed"),
        }
    }
}

impl JobStore {
    fn commit(&mut self, context: &mut Context<Self>) {
        self.commit_is_due = false;
        let writes = std::mem::take(&mut self.writes);
        let follow = std::mem::take(&mut self.follow);
        if writes.is_empty() {
            return;
        }
        let began = Instant::now();
        let written = self.seed.database.lock().commit(&writes);
        self.seed
            .metrics
            .commits
            .observe(began.elapsed().as_secs_f64());
        match written {
            Ok(written) => {
                self.seed.metrics.writes.inc_by(written.len() as u64);
                self.follow_up(follow, &written, context);
            }
            Err(error) => self.give_up(follow, &error),
        }
    }

    fn give_up(&self, follow: Vec<(usize, AfterCommit)>, error: &StoreError) {
        self.seed.metrics.failed.inc();
        tracing::error!(%error, requests = follow.len(), "nothing was stored");
        for (_, then) in follow {
            if let Some(answer) = then.answer {
                answer.failed();
            }
        }
    }

    fn follow_up(
        &self,
        follow: Vec<(usize, AfterCommit)>,
        written: &[Written],
        context: &mut Context<Self>,
    ) {
        let mut stored = Vec::new();
        let mut events = Vec::new();
        let mut answers = Vec::with_capacity(follow.len());
        let mut end = 0;
        for (count, then) in follow {
            end += count;
            if let Some((jid, minion)) = then.report {
                let last = end.checked_sub(1).and_then(|last| written.get(last));
                let is_new = last.is_some_and(|written| written.is_new());
                stored.push(StoredReturn {
                    jid,
                    minion,
                    is_new,
                });
            }
            if let Some(files) = &then.job_files {
                self.write_job_files(files);
            }
            events.extend(then.events);
            if let Some((jid, publication)) = then.publication {
                // The job is announced before it is published.
                push(context, &self.seed.bus, Fire(std::mem::take(&mut events)));
                push(context, &self.seed.publisher, Publish { jid, publication });
            }
            answers.extend(then.answer);
        }
        if !events.is_empty() {
            push(context, &self.seed.bus, Fire(events));
        }
        for answer in answers {
            answer.done();
        }
        self.tell_tracker(stored, context);
        if let Some(mirror) = &self.seed.mirror {
            // One waiting message is enough, so a full mailbox is no loss.
            let _ = mirror.try_send(FollowUp);
        }
    }

    fn write_job_files(&self, job: &crate::messages::JobFiles) {
        let Some(writer) = &self.seed.job_files else {
            return;
        };
        let written = writer.write_load(&job.jid, &job.load, Some(&job.minions), job.nocache);
        if let Err(error) = written {
            tracing::error!(jid = %job.jid, %error, "stock's tools will not find this job");
        }
    }

    fn tell_tracker(&self, stored: Vec<StoredReturn>, context: &mut Context<Self>) {
        if stored.is_empty() {
            return;
        }
        let tracker = self.seed.tracker.lock().clone();
        if let Some(tracker) = tracker {
            push(context, &tracker, ReturnsStored(stored));
        }
    }
}
