//! Knows, for each open job, who was expected and who has returned; closes jobs.
//!
//! Everything that it accepts goes to the store before anybody is answered; what it knows, it
//! knows because the store said so: a commit that fails leaves nothing behind here. A restart
//! takes the open jobs up again from the store.
//!
//! What it holds is bounded. When more is waited for than that, the oldest jobs are no longer;
//! their returns are stored as ever.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use actix::{Actor, Context, Handler, Recipient};
use saltern_base::clock::Clock;
use saltern_base::metrics::{
    IntCounter, IntCounterVec, IntGauge, Registry, counter, counter_vec, gauge,
};
use saltern_model::{Jid, MinionId};
use saltern_requests::{StartJob, StoreReturn};
use saltern_store::jobs::{JobReader, JobState, Write};
use saltern_supervise::Child;

use crate::answer::Answer;
use crate::batches::BatchFeed;
use crate::messages::{
    AfterCommit, BatchReturn, BeginJob, Beginning, BegunJob, CloseOlderThan, Fire, Persist, Stored,
    StoredReturn, TakeReturn,
};
use crate::send::{Outbox, Sends};

/// What a tracker is built from.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) store: Recipient<Persist>,
    pub(crate) bus: Recipient<Fire>,
    pub(crate) reader: Arc<JobReader>,
    pub(crate) batches: Arc<BatchFeed>,
    pub(crate) clock: Clock,
    pub(crate) metrics: TrackerMetrics,
}

/// What the tracker counts.
#[derive(Clone)]
pub(crate) struct TrackerMetrics {
    open: IntGauge,
    finished: IntCounterVec,
    returns: IntCounter,
    duplicates: IntCounter,
}

impl TrackerMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            open: gauge(registry, "saltern_jobs_open", "Jobs that are waited for."),
            finished: counter_vec(
                registry,
                "saltern_jobs_finished_total",
                "Jobs that are no longer waited for, by verdict.",
                &["verdict"],
            ),
            returns: counter(registry, "saltern_returns_total", "Returns stored."),
            duplicates: counter(
                registry,
                "saltern_returns_duplicate_total",
                "Returns that were stored already.",
            ),
        }
    }
}

/// Jobs of which the tracker remembers that they are in the store.
const REMEMBERED_JOBS: usize = 10_000;

/// Minions, over all open jobs, that are waited for at most; a job counts as one more.
const MOST_OUTSTANDING: usize = 2_000_000;

/// Jobs closed in one transaction.
const CLOSED_AT_ONCE: usize = 1_000;

/// See the module.
pub(crate) struct JobTracker {
    seed: Seed,
    outbox: Outbox,
    open: OpenJobs,
    known: KnownJobs,
}

/// The jobs that are waited for.
struct OpenJobs {
    jobs: HashMap<Jid, OpenJob>,
    /// In the order in which they were opened; some of them are not open any more.
    order: VecDeque<Jid>,
    /// One for each job and for each minion that it waits for.
    weight: usize,
    most: usize,
}

struct OpenJob {
    created: i64,
    outstanding: HashSet<MinionId>,
}

impl OpenJobs {
    fn new(most: usize) -> Self {
        Self {
            jobs: HashMap::new(),
            order: VecDeque::new(),
            weight: 0,
            most,
        }
    }

    /// Opens a job, or adds minions to it.
    fn open(&mut self, jid: Jid, created: i64, minions: impl IntoIterator<Item = MinionId>) {
        let (job, before) = match self.jobs.entry(jid) {
            Entry::Occupied(entry) => {
                let job = entry.into_mut();
                let before = job.outstanding.len() + 1;
                (job, before)
            }
            Entry::Vacant(entry) => {
                self.order.push_back(entry.key().clone());
                let outstanding = HashSet::new();
                let job = entry.insert(OpenJob {
                    created,
                    outstanding,
                });
                (job, 0)
            }
        };
        job.outstanding.extend(minions);
        self.weight += job.outstanding.len() + 1 - before;
        if self.order.len() > 2 * self.jobs.len() + 1_000 {
            self.order.retain(|jid| self.jobs.contains_key(jid));
        }
    }

    /// Whether the job is complete by this minion's return.
    fn returned(&mut self, jid: &Jid, minion: &MinionId) -> bool {
        let Some(job) = self.jobs.get_mut(jid) else {
            return false;
        };
        if job.outstanding.remove(minion) {
            self.weight -= 1;
        }
        job.outstanding.is_empty()
    }

    fn close(&mut self, jid: &Jid) {
        if let Some(job) = self.jobs.remove(jid) {
            self.weight -= job.outstanding.len() + 1;
        }
    }

    /// The oldest jobs, as many as must be closed to keep within the bound.
    fn too_many(&mut self) -> Vec<Jid> {
        let mut excess = self.weight.saturating_sub(self.most);
        let mut oldest = Vec::new();
        while excess > 0 {
            let Some(jid) = self.order.pop_front() else {
                break;
            };
            if let Some(job) = self.jobs.get(&jid) {
                excess = excess.saturating_sub(job.outstanding.len() + 1);
                oldest.push(jid);
            }
        }
        oldest
    }

    fn jids_where(&self, is_meant: impl Fn(&OpenJob) -> bool) -> Vec<Jid> {
        let meant = self.jobs.iter().filter(|(_, job)| is_meant(job));
        meant.map(|(jid, _)| jid.clone()).collect()
    }
}

/// The last few jobs that are certainly in the store, so that a return of one of them need not
/// bring its job along.
#[derive(Default)]
struct KnownJobs {
    set: HashSet<Jid>,
    order: VecDeque<Jid>,
}

impl KnownJobs {
    fn learn(&mut self, jid: &Jid) {
        if self.set.contains(jid) {
            return;
        }
        self.set.insert(jid.clone());
        self.order.push_back(jid.clone());
        if self.order.len() > REMEMBERED_JOBS
            && let Some(oldest) = self.order.pop_front()
        {
            self.set.remove(&oldest);
        }
    }
}

impl Child for JobTracker {
    type Seed = Seed;

    const NAME: &'static str = "job_tracker";
    const MAILBOX: usize = 4096;

    fn build(seed: &Seed) -> Self {
        let mut tracker = Self {
            seed: seed.clone(),
            outbox: Outbox::default(),
            open: OpenJobs::new(MOST_OUTSTANDING),
            known: KnownJobs::default(),
        };
        tracker.take_up();
        tracker
    }
}

impl Actor for JobTracker {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        // The last return may have been stored without the job being closed after it.
        let complete = self.open.jids_where(|job| job.outstanding.is_empty());
        self.close(&complete, JobState::Complete, context);
        self.keep_within_bound(context);
    }
}

impl Sends for JobTracker {
    fn outbox(&mut self) -> &mut Outbox {
        &mut self.outbox
    }
}

impl JobTracker {
    fn take_up(&mut self) {
        let jobs = match self.seed.reader.open_jobs() {
            Ok(jobs) => jobs,
            Err(error) => {
                tracing::error!(%error, "open jobs cannot be taken up");
                return;
            }
        };
        for open in jobs {
            let record = open.job.record;
            let returned: HashSet<MinionId> = open.returned.into_iter().collect();
            let outstanding = record
                .minions
                .into_iter()
                .filter(|id| !returned.contains(id));
            self.known.learn(&record.jid);
            self.open.open(record.jid, record.created, outstanding);
        }
        self.count_open();
    }

    fn count_open(&self) {
        self.seed.metrics.open.set(self.open.jobs.len() as i64);
    }

    fn close(&mut self, jobs: &[Jid], verdict: JobState, context: &mut Context<Self>) {
        if jobs.is_empty() {
            return;
        }
        let now = self.seed.clock.unix_micros();
        for jid in jobs {
            self.open.close(jid);
        }
        self.count_open();
        let finished = &self.seed.metrics.finished;
        finished
            .with_label_values(&[name(verdict)])
            .inc_by(jobs.len() as u64);
        for part in jobs.chunks(CLOSED_AT_ONCE) {
            let persist = Persist {
                brought: None,
                writes: part.iter().map(|jid| ending(jid, verdict, now)).collect(),
                then: AfterCommit::default(),
            };
            self.outbox.push(context, &self.seed.store, persist);
        }
    }

    fn keep_within_bound(&mut self, context: &mut Context<Self>) {
        let oldest = self.open.too_many();
        if !oldest.is_empty() {
            tracing::warn!(
                jobs = oldest.len(),
                "too many jobs are open; the oldest are closed"
            );
            self.close(&oldest, JobState::Expired, context);
        }
    }

    fn begin(&mut self, start: StartJob, answer: Answer, context: &mut Context<Self>) {
        let StartJob {
            job,
            announce,
            publication,
        } = start;
        let begun = Beginning {
            job: BegunJob {
                jid: job.jid.clone(),
                created: job.created,
                minions: job.minions.clone(),
                nocache: job.nocache,
            },
            load: job.load.clone(),
            publication,
        };
        let jid = job.jid.clone();
        let (is_waited_for, created) = (!job.nocache, job.created);
        // Always as a part: 3008 publishes every part of a batch under one jid, and the earlier
        // ones may have been before a restart.
        let mut writes = vec![Write::JobPart(job)];
        if !is_waited_for {
            writes.push(ending(&jid, JobState::Complete, created));
        }
        let then = AfterCommit {
            begun: Some(begun),
            events: announce,
            answer: Some(answer),
            report: None,
        };
        let persist = Persist {
            brought: None,
            writes,
            then,
        };
        self.outbox.push(context, &self.seed.store, persist);
    }

    fn keep(&mut self, returned: StoreReturn, answer: Answer, context: &mut Context<Self>) {
        let StoreReturn {
            record,
            job,
            standalone,
            events,
            ..
        } = returned;
        let jid = &record.jid;
        // Nobody waits for a job that comes with its return; if somebody does, it is open.
        let is_there = self.known.set.contains(jid) || self.open.jobs.contains_key(jid);
        let brought = (standalone || !is_there).then_some(job);
        let then = AfterCommit {
            events,
            answer: Some(answer),
            report: Some((jid.clone(), record.minion.clone(), record.retcode)),
            ..AfterCommit::default()
        };
        let persist = Persist {
            brought,
            writes: vec![Write::Return(record)],
            then,
        };
        self.outbox.push(context, &self.seed.store, persist);
    }

    fn returned(&mut self, jid: &Jid, minion: &MinionId, context: &mut Context<Self>) {
        if self.open.returned(jid, minion) {
            self.close(std::slice::from_ref(jid), JobState::Complete, context);
        }
    }
}

fn ending(jid: &Jid, state: JobState, at: i64) -> Write {
    Write::JobState {
        jid: jid.clone(),
        state,
        at,
        notes: None,
    }
}

fn name(state: JobState) -> &'static str {
    match state {
        JobState::Open => "open",
        JobState::Complete => "complete",
        JobState::Expired => "expired",
        JobState::Killed => "killed",
    }
}

impl Handler<BeginJob> for JobTracker {
    type Result = ();

    fn handle(&mut self, message: BeginJob, context: &mut Self::Context) {
        self.begin(*message.start, message.answer, context);
    }
}

impl Handler<TakeReturn> for JobTracker {
    type Result = ();

    fn handle(&mut self, message: TakeReturn, context: &mut Self::Context) {
        let TakeReturn { returned, answer } = message;
        if returned.keep {
            self.keep(*returned, answer, context);
            return;
        }
        let StoreReturn { record, events, .. } = *returned;
        self.outbox.push(context, &self.seed.bus, Fire(events));
        self.outbox.then(context, move || answer.done());
        self.returned(&record.jid, &record.minion, context);
        if self.seed.batches.follows(&record.jid) {
            let returned = BatchReturn::new(&record.jid, &record.minion, record.retcode);
            self.seed.batches.tell(vec![returned]);
        }
    }
}

impl Handler<Stored> for JobTracker {
    type Result = ();

    fn handle(&mut self, Stored { jobs, returns }: Stored, context: &mut Self::Context) {
        for job in jobs {
            self.known.learn(&job.jid);
            if !job.nocache {
                self.open.open(job.jid, job.created, job.minions);
                self.count_open();
            }
        }
        self.keep_within_bound(context);
        let mut of_batches = Vec::new();
        for stored in returns {
            if stored.is_new {
                self.seed.metrics.returns.inc();
            } else {
                self.seed.metrics.duplicates.inc();
            }
            self.known.learn(&stored.jid);
            self.returned(&stored.jid, &stored.minion, context);
            if self.seed.batches.follows(&stored.jid) {
                let StoredReturn { jid, minion, .. } = &stored;
                of_batches.push(BatchReturn::new(jid, minion, stored.retcode));
            }
        }
        self.seed.batches.tell(of_batches);
    }
}

impl Handler<CloseOlderThan> for JobTracker {
    type Result = ();

    fn handle(&mut self, CloseOlderThan(moment): CloseOlderThan, context: &mut Self::Context) {
        let old = self.open.jids_where(|job| job.created < moment);
        self.close(&old, JobState::Expired, context);
    }
}

#[cfg(test)]
mod tests;
