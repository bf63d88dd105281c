//! Knows, for each open job, who was expected and who has returned; closes jobs.
//!
//! Everything that it accepts goes to the store before anybody is answered; what it counts, it
//! counts when the store says so. A restart takes the open jobs up again from the store.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use actix::{Actor, Addr, Context, Handler};
use saltern_base::metrics::{
    IntCounter, IntCounterVec, IntGauge, Registry, counter, counter_vec, gauge,
};
use saltern_model::{Jid, MinionId};
use saltern_requests::{StartJob, StoreReturn};
use saltern_store::jobs::{JobReader, JobState, Write};
use saltern_supervise::Child;

use crate::answer::Answer;
use crate::event_publisher::EventPublisher;
use crate::job_store::JobStore;
use crate::messages::{
    AfterCommit, BeginJob, CloseOlderThan, Fire, JobFiles, Persist, ReturnsStored, TakeReturn,
};
use crate::send::push;

/// What a tracker is built from.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) store: Addr<JobStore>,
    pub(crate) bus: Addr<EventPublisher>,
    pub(crate) reader: Arc<JobReader>,
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

/// See the module.
pub(crate) struct JobTracker {
    seed: Seed,
    open: HashMap<Jid, OpenJob>,
    known: KnownJobs,
}

struct OpenJob {
    created: i64,
    outstanding: HashSet<MinionId>,
}

/// The last few jobs that are certainly in the store, so that a return of one of them need not
/// bring its job along.
#[derive(Default)]
struct KnownJobs {
    set: HashSet<Jid>,
    order: VecDeque<Jid>,
}

impl KnownJobs {
    /// Whether it was known before.
    fn learn(&mut self, jid: &Jid) -> bool {
        if !self.set.insert(jid.clone()) {
            return true;
        }
        self.order.push_back(jid.clone());
        if self.order.len() > REMEMBERED_JOBS
            && let Some(oldest) = self.order.pop_front()
        {
            self.set.remove(&oldest);
        }
        false
    }
}

impl Child for JobTracker {
    type Seed = Seed;

    const NAME: &'static str = "job_tracker";
    const MAILBOX: usize = 4096;

    fn build(seed: &Seed) -> Self {
        let mut tracker = Self {
            seed: seed.clone(),
            open: HashMap::new(),
            known: KnownJobs::default(),
        };
        tracker.take_up();
        tracker
    }
}

impl Actor for JobTracker {
    type Context = Context<Self>;
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
            let mut outstanding: HashSet<MinionId> = record.minions.into_iter().collect();
            for minion in &open.returned {
                outstanding.remove(minion);
            }
            self.known.learn(&record.jid);
            self.open.insert(
                record.jid,
                OpenJob {
                    created: record.created,
                    outstanding,
                },
            );
        }
        self.seed.metrics.open.set(self.open.len() as i64);
    }

    fn close(&mut self, jid: &Jid, verdict: &str, context: &mut Context<Self>) {
        self.open.remove(jid);
        self.seed.metrics.open.set(self.open.len() as i64);
        self.seed
            .metrics
            .finished
            .with_label_values(&[verdict])
            .inc();
        let state = Write::JobState {
            jid: jid.clone(),
            state: JobState::Closed,
            notes: None,
        };
        let persist = Persist {
            writes: vec![state],
            then: AfterCommit::default(),
        };
        push(context, &self.seed.store, persist);
    }

    fn begin(&mut self, start: StartJob, answer: Answer, context: &mut Context<Self>) {
        let StartJob {
            job,
            announce,
            publication,
        } = start;
        let open = self.open.entry(job.jid.clone()).or_insert_with(|| OpenJob {
            created: job.created,
            outstanding: HashSet::new(),
        });
        open.outstanding.extend(job.minions.iter().cloned());
        self.seed.metrics.open.set(self.open.len() as i64);
        let is_part = self.known.learn(&job.jid);
        let then = AfterCommit {
            job_files: Some(JobFiles {
                jid: job.jid.clone(),
                load: job.load.clone(),
                minions: job.minions.clone(),
                nocache: job.nocache,
            }),
            events: announce,
            publication: Some((job.jid.clone(), publication)),
            answer: Some(answer),
            report: None,
        };
        let write = if is_part {
            Write::JobPart(job)
        } else {
            Write::Job(job)
        };
        push(
            context,
            &self.seed.store,
            Persist {
                writes: vec![write],
                then,
            },
        );
    }

    fn keep(&mut self, returned: StoreReturn, answer: Answer, context: &mut Context<Self>) {
        let StoreReturn {
            record,
            job,
            standalone,
            events,
            ..
        } = returned;
        let report = Some((record.jid.clone(), record.minion.clone()));
        let unknown = !self.known.learn(&record.jid);
        let mut writes = Vec::with_capacity(2);
        if standalone || unknown {
            writes.push(Write::Job(job));
        }
        writes.push(Write::Return(record));
        let then = AfterCommit {
            events,
            answer: Some(answer),
            report,
            ..AfterCommit::default()
        };
        push(context, &self.seed.store, Persist { writes, then });
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
        } else {
            push(context, &self.seed.bus, Fire(returned.events));
            answer.done();
        }
    }
}

impl Handler<ReturnsStored> for JobTracker {
    type Result = ();

    fn handle(&mut self, ReturnsStored(returns): ReturnsStored, context: &mut Self::Context) {
        for stored in returns {
            if stored.is_new {
                self.seed.metrics.returns.inc();
            } else {
                self.seed.metrics.duplicates.inc();
            }
            let Some(job) = self.open.get_mut(&stored.jid) else {
                continue;
            };
            job.outstanding.remove(&stored.minion);
            if job.outstanding.is_empty() {
                self.close(&stored.jid, "complete", context);
            }
        }
    }
}

impl Handler<CloseOlderThan> for JobTracker {
    type Result = ();

    fn handle(&mut self, CloseOlderThan(moment): CloseOlderThan, context: &mut Self::Context) {
        let is_old = |(_, job): &(&Jid, &OpenJob)| job.created < moment;
        let old: Vec<Jid> = self
            .open
            .iter()
            .filter(is_old)
            .map(|(jid, _)| jid.clone())
            .collect();
        for jid in old {
            self.close(&jid, "expired", context);
        }
    }
}
