//! Single writer of the job database, with group commit.
//!
//! A commit is in flight in the engine ([`JobLog`](saltern_store::JobLog)), and the tracker, which
//! shares the thread, goes on. Messages that arrive during it wait in the mailbox, whose bound holds
//! their senders back, and are committed together next. A lone
//! write is committed at once; after a commit of at least [`GROUP_COMMIT_SIZE`] requests the next
//! one begins no sooner than [`PACE`] after it, because each costs about the same whatever it holds
//! (PostgreSQL's `commit_delay` and `commit_siblings`). The effects of a commit (job files, events,
//! the publish, the answer) follow it in that order.
//!
//! A batch that dies with the actor was not acknowledged: its answers are dropped, which fails
//! every peer's request at once. One whose engine failed before it replied is looked up before
//! anybody is answered (`interrupted`).

mod commit_group;
mod disk;
mod follow_up;
mod in_place;
mod interrupted;
mod metrics;
mod removal;

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as Task, Poll, ready};
use std::time::Duration;

use actix::fut::wrap_future;
use actix::{
    Actor, ActorFuture, ActorFutureExt, AsyncContext, Context, Handler, Recipient,
    ResponseActFuture,
};
use saltern_base::chain;
use saltern_base::clock::Clock;
use saltern_base::fail_point::FailPoint;
use saltern_base::log_throttle::LogThrottle;
use saltern_base::planted_bug::PlantedBug;
use saltern_model::{Compat, Jid};
use saltern_store::jobs::{Batch, Committed, Engine, Retention, Written};
use saltern_store::{JobFiles as JobFileWriter, StoreError};
use saltern_supervise::{Child, Work};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::events::event_feed::EventFeed;
use crate::messages::{
    AnswerWhenGiven, Checkpoint, CheckpointDone, Fire, FireKept, FollowUp, JobBegun, Persist,
    Publish, RemoveJobFiles, RowsCommitted, Stored,
};
use crate::shared::send::{Outbox, SendsThroughOutbox};
use crate::upkeep::maintenance_tasks::{MaintenanceTasks, Running};
use commit_group::{CommitGroup, CommitOutcome};
use disk::{DiskWatch, LookAtDisk, State};
use follow_up::published;
use in_place::{Place, Restoring};
pub(crate) use metrics::{StoreHealth, StoreMetrics};

/// Seed of a store.
#[derive(Clone)]
pub(crate) struct Seed {
    /// Only this actor writes.
    pub(crate) engine: Engine,
    /// Writes the files that stock's command line wants, unless the mirror is off.
    pub(crate) job_files: Option<Arc<JobFileWriter>>,
    pub(crate) bus: Recipient<Fire>,
    /// Keeps the events of a change with the change; only with the API.
    pub(crate) durable_events: Option<DurableEvents>,
    pub(crate) publisher: Recipient<Publish>,
    /// Notified of each commit.
    pub(crate) followers: Vec<Recipient<RowsCommitted>>,
    /// Answers clients that publish a job, where their tools read it from a returner.
    pub(crate) job_cache: Option<Recipient<AnswerWhenGiven>>,
    /// The mirror.
    pub(crate) cleaner: Option<Recipient<RemoveJobFiles>>,
    pub(crate) folder: Recipient<Checkpoint>,
    /// Notified of what is stored.
    pub(crate) tracker: Recipient<Stored>,
    /// `saltern_disk_low`, in bytes.
    pub(crate) disk_low: u64,
    /// For the events about the disk.
    pub(crate) compat: Compat,
    pub(crate) clock: Clock,
    pub(crate) maintenance_tasks: Arc<MaintenanceTasks>,
    pub(crate) metrics: StoreMetrics,
    /// Commits under way: while one is stuck, the actor answers no heartbeat.
    pub(crate) commits: Arc<Work>,
}

/// Where the events of changes go with their positions, and how they get to the bus.
#[derive(Clone)]
pub(crate) struct DurableEvents {
    /// The streams of the API.
    pub(crate) feed: Arc<EventFeed>,
    pub(crate) bus: Recipient<FireKept>,
}

/// Changes of one commit at most: bounds the memory and the time of a transaction.
const BATCH: usize = 4096;

/// Number of requests that makes a commit a group commit.
const GROUP_COMMIT_SIZE: usize = 8;

/// Minimum time from the beginning of a group commit to that of the next. A disk that takes longer
/// for a commit sets the pace itself.
const PACE: Duration = Duration::from_millis(4);

/// Minimum time between two log lines about failing commits.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Interval of disk checks: what can be written in between is well below what is kept free.
const DISK_INTERVAL: Duration = Duration::from_secs(2);

/// Single writer of the job database: batches writes, commits them and fires their effects.
pub(crate) struct JobStore {
    seed: Seed,
    outbox: Outbox,
    /// Messages that wait for the next commit.
    group: CommitGroup,
    commit_is_due: bool,
    /// When the last commit began, if it was a group commit.
    of_many: Option<Instant>,
    is_draining: bool,
    /// A full disk fails every commit there is, and the log may lie on it too.
    failures: LogThrottle,
    disk: DiskWatch,
    restoring: Restoring,
    /// The first return whose events were fired since the actor's last restart, if any.
    fired_from: Option<i64>,
    /// Retention in progress.
    expiring: Option<Retention>,
    expiry: Option<Running>,
    /// Removed jobs whose files the mirror has still to remove.
    gone: Vec<Jid>,
    /// Refused jobs that may be stored: the database could not be asked.
    doubtful: Vec<JobBegun>,
    /// When the end of the audit trail was last logged.
    head_logged: Option<Instant>,
}

impl Child for JobStore {
    type Seed = Seed;

    const NAME: &'static str = "job_store";
    const MAILBOX: usize = 4096;

    fn build(seed: &Seed) -> Self {
        Self {
            seed: seed.clone(),
            outbox: Outbox::default(),
            group: CommitGroup::default(),
            commit_is_due: false,
            of_many: None,
            is_draining: false,
            disk: DiskWatch::new(seed.disk_low),
            restoring: Restoring::default(),
            fired_from: None,
            expiring: None,
            expiry: None,
            failures: LogThrottle::new(LOG_INTERVAL),
            gone: Vec::new(),
            doubtful: Vec::new(),
            head_logged: None,
        }
    }

    fn drain(&mut self, context: &mut Context<Self>) -> Option<ResponseActFuture<Self, ()>> {
        // The senders are gone: the mailbox holds few messages, which must not wait
        // for a commit that the end of the actor would forestall.
        self.is_draining = true;
        let restore = self.last_restore(context);
        self.commit(context);
        restore
    }
}

impl Actor for JobStore {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        self.look_at_disk(false, context);
        self.measure(context);
        context.run_interval(DISK_INTERVAL, |_, context| context.notify(LookAtDisk));
    }
}

impl SendsThroughOutbox for JobStore {
    fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }
}

/// Commits when it is time and the mailbox has been emptied into the batch: when everybody else on
/// the thread had a turn and nothing was added.
struct CommitSoon {
    pause: Option<Pin<Box<Sleep>>>,
    seen: usize,
}

impl ActorFuture<JobStore> for CommitSoon {
    type Output = ();

    fn poll(
        mut self: Pin<&mut Self>,
        store: &mut JobStore,
        context: &mut Context<JobStore>,
        task: &mut Task<'_>,
    ) -> Poll<()> {
        if let Some(pause) = &mut self.pause {
            ready!(pause.as_mut().poll(task));
            self.pause = None;
        }
        let waiting = store.group.len();
        if waiting != self.seen && waiting > 0 {
            self.seen = waiting;
            task.waker().wake_by_ref();
            return Poll::Pending;
        }
        store.commit_is_due = false;
        store.commit(context);
        Poll::Ready(())
    }
}

impl Handler<Persist> for JobStore {
    type Result = ();

    fn handle(&mut self, mut message: Persist, context: &mut Self::Context) {
        self.misbehave(&mut message, context);
        self.group.add(message);
        if self.is_draining || self.group.writes().len() >= BATCH {
            self.commit(context);
        } else if !self.commit_is_due {
            self.commit_is_due = true;
            let pause = self.pause().map(|until| Box::pin(sleep_until(until)));
            context.spawn(CommitSoon { pause, seen: 0 });
        }
    }
}

impl Handler<CheckpointDone> for JobStore {
    type Result = ();

    fn handle(&mut self, _: CheckpointDone, context: &mut Self::Context) {
        let ended = self.seed.engine.housekeeping.finish_checkpoint();
        let ended = wrap_future::<_, Self>(ended).map(|ended, _, _| match ended {
            // The next batch asks for it again.
            Ok(()) | Err(StoreError::Displaced { .. }) => {}
            Err(error) => tracing::error!(
                error = chain(&error),
                "the job database cannot be checkpointed"
            ),
        });
        context.wait(ended);
    }
}

impl JobStore {
    /// Earliest time of the next commit, after a group commit.
    fn pause(&self) -> Option<Instant> {
        let until = self.of_many? + PACE;
        (until > Instant::now()).then_some(until)
    }

    fn commit(&mut self, context: &mut Context<Self>) {
        if self.group.len() == 0 {
            self.of_many = None;
            return;
        }
        let place = self.keep_in_place(context);
        if matches!(place, Ok(Place::Awaited)) && self.group.writes().len() < BATCH {
            // They are committed at its end, or refused when it takes too long.
            return;
        }
        let group = std::mem::take(&mut self.group);
        self.of_many = (group.len() >= GROUP_COMMIT_SIZE).then(Instant::now);
        if let Err(error) = place.and_then(|place| match place {
            Place::Right => Ok(()),
            Place::Awaited => Err(self.displaced()),
        }) {
            self.seed.metrics.failing.set(1);
            self.give_up(group, &error);
            return;
        }
        if self.disk.state() == State::Full {
            // Logged once, when the disk became full.
            self.refuse(group);
            return;
        }
        self.append(group, context);
    }

    /// Commits a group; nothing else is handled until its outcome is known.
    fn append(&self, mut group: CommitGroup, context: &mut Context<Self>) {
        let batch = self.batch(&mut group);
        let began = Instant::now();
        let appended = self.appending(&batch);
        context.wait(appended.map(move |outcome, store, context| {
            let outcome = store.outcome(&batch, outcome, began.elapsed());
            store.appended((group, batch), outcome, context);
        }));
    }

    /// The changes of a group, with the events that they cause where these are kept with them.
    fn batch(&self, group: &mut CommitGroup) -> Arc<Batch> {
        FailPoint::CommitBefore.pass();
        let durable = self.seed.durable_events.as_ref();
        let caused = durable.map(|_| group.events(self.seed.clock.unix_micros()));
        Arc::new(Batch {
            writes: group.take_writes(),
            caused: caused.unwrap_or_default(),
        })
    }

    fn appended(
        &mut self,
        (group, batch): (CommitGroup, Arc<Batch>),
        outcome: Result<CommitOutcome, StoreError>,
        context: &mut Context<Self>,
    ) {
        match outcome {
            Ok(outcome) => self.follow_up(group, outcome, context),
            Err(_) if PlantedBug::FailedCommitBelieved.is_planted() => {
                let written = batch.writes.iter().map(|_| Written::Updated).collect();
                let took = Duration::ZERO;
                self.follow_up(group, CommitOutcome { written, took }, context);
            }
            // Of a database that another program holds, each would wait as long again.
            Err(error @ StoreError::Database { .. }) if group.len() > 1 && !error.is_busy() => {
                // One of the changes may be at fault: the others are committed one by one.
                let (error, requests) = (chain(&error), group.len());
                tracing::debug!(error, requests, "group commit failed; trying each request");
                let writes = Arc::unwrap_or_clone(batch).writes;
                self.append_each(group.split(writes).collect(), context);
            }
            Err(error @ StoreError::Interrupted { .. }) => {
                self.look_up((group, batch), error, VecDeque::new(), context);
            }
            Err(error) => {
                self.give_up(group, &error);
                if error.is_full() {
                    self.look_at_disk(true, context);
                }
            }
        }
    }

    /// Planted bugs: what must follow the commit comes before it.
    fn misbehave(&mut self, message: &mut Persist, context: &mut Context<Self>) {
        if PlantedBug::AcknowledgedBeforeCommit.is_planted()
            && let Some(answer) = message.answer.take()
        {
            answer.done();
        }
        if PlantedBug::PublishedBeforeCommit.is_planted() {
            for (_, follow_up) in &message.writes {
                if let FollowUp::Begin(beginning) = follow_up {
                    let publish = published(&beginning.job, beginning.publication.clone());
                    self.outbox.push(context, &self.seed.publisher, publish);
                }
            }
        }
    }

    /// A commit under way.
    fn appending(
        &self,
        batch: &Arc<Batch>,
    ) -> impl ActorFuture<Self, Output = Result<Committed, StoreError>> + use<> {
        let commit = self.seed.commits.begin();
        let appended = self.seed.engine.log.append(batch.clone());
        wrap_future(async move {
            let outcome = appended.await;
            drop(commit);
            outcome
        })
    }

    /// Commits each message by itself, one after the other.
    fn append_each(&self, mut alone: VecDeque<CommitGroup>, context: &mut Context<Self>) {
        let Some(mut group) = alone.pop_front() else {
            return;
        };
        let batch = self.batch(&mut group);
        let began = Instant::now();
        let appended = self.appending(&batch);
        context.wait(appended.map(move |outcome, store, context| {
            match store.outcome(&batch, outcome, began.elapsed()) {
                Ok(outcome) => store.follow_up(group, outcome, context),
                Err(error @ StoreError::Interrupted { .. }) => {
                    return store.look_up((group, batch), error, alone, context);
                }
                Err(error) => store.give_up(group, &error),
            }
            store.append_each(alone, context);
        }));
    }

    /// Counts a commit, and has the log checkpointed where that is due.
    fn outcome(
        &self,
        batch: &Batch,
        outcome: Result<Committed, StoreError>,
        took: Duration,
    ) -> Result<CommitOutcome, StoreError> {
        if self.seed.engine.housekeeping.checkpoint_is_due() {
            // One waiting message is enough.
            let _ = self.seed.folder.try_send(Checkpoint);
        }
        let metrics = &self.seed.metrics;
        metrics.commits.observe(took.as_secs_f64());
        metrics.failing.set(i64::from(outcome.is_err()));
        let committed = outcome.inspect_err(|_| metrics.failed.inc())?;
        metrics.writes.inc_by(committed.written.len() as u64);
        metrics.count_audit(&batch.writes);
        if let Some(durable) = &self.seed.durable_events {
            durable.feed.committed(committed.events);
        }
        Ok(CommitOutcome {
            written: committed.written,
            took,
        })
    }

    fn give_up(&self, group: CommitGroup, error: &StoreError) {
        if let Some(times) = self.failures.record() {
            let (error, requests) = (chain(error), group.len());
            tracing::error!(
                error,
                requests,
                times,
                "a commit failed: nothing was stored"
            );
        }
        self.refuse(group);
    }

    fn refuse(&self, group: CommitGroup) {
        self.seed.metrics.disk.refused.inc_by(group.len() as u64);
        self.notify_tracker(group.refuse());
    }
}

#[cfg(test)]
mod tests;
