//! Feeds every job and every return to a returner (`master_job_cache`, `ext_job_cache`), after they
//! are in the job database: to one in Python, or to a SQL database (`saltern_sql`).
//!
//! The returner follows the database with a durable cursor and never delays an acknowledgement. A
//! failed row is retried, with growing pauses, until a later row succeeds: then the returner
//! works, and the fault is in the row, which is logged, counted and skipped. Python reports each
//! row as it is stored, so that one that kills it, or uses up its time, costs none of those before
//! it; such a row is skipped after a few attempts.
//!
//! Stock's command line asks the returner for a job before it waits for it, so the client that
//! published a job is answered when the returner has it, or on timeout.

mod called;
mod database;
mod pace;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use actix::{Actor, Addr, AsyncContext, Context, Handler, Message};
use bytes::Bytes;
use parking_lot::Mutex;
use saltern_base::log_throttle::LogThrottle;
use saltern_base::metrics::{
    IntCounterVec, IntGauge, IntGaugeVec, Registry, counter_vec, gauge_vec,
};
use saltern_bridge::{Bridge, BridgeError, ReturnerCall, Step, Work};
use saltern_model::{Jid, MinionId};
use saltern_sql::{Marks, SqlWriter};
use saltern_store::{Followed, JobFollower, StoreError, endtime_text};
use saltern_supervise::Child;
use saltern_wire::msgpack::{Limits, MapView, Value};
use tokio::time::Instant;

use self::called::{Called, End, Fault};
use self::pace::{Attempt, Landing, Next, Pace};
use crate::messages::{AnswerWhenGiven, RowsCommitted};
use crate::shared::answer::PendingReply;
use crate::shared::priority::give_way;

/// Longest time that a client waits for the returner to have its job. After 5 s a stock client of 3008
/// publishes once more, and the job runs twice.
const MAX_WAIT: Duration = Duration::from_secs(3);

/// Waiting clients at most; further ones are answered at once.
const MAX_WAITING: usize = 1024;

/// Persistent problems are logged at most once per `LOG_INTERVAL`.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// No client waits for long: returns are served first.
const NICENESS: i32 = 5;

/// Kind of a returner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Jobs and returns: `master_job_cache`.
    Master,
    /// Jobs alone, minions bring their returns themselves: `ext_job_cache`.
    External,
}

impl Purpose {
    /// The option that names the returner.
    pub(crate) fn option(self) -> &'static str {
        match self {
            Self::Master => "master_job_cache",
            Self::External => "ext_job_cache",
        }
    }
}

/// Seed of a job cache.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) purpose: Purpose,
    pub(crate) name: String,
    pub(crate) target: Target,
    pub(crate) follower: Arc<Mutex<JobFollower>>,
    pub(crate) stores_endtime: bool,
    pub(crate) state: Arc<Mutex<State>>,
    pub(crate) metrics: JobCacheMetrics,
}

/// The way in which the returner runs.
#[derive(Clone)]
pub(crate) enum Target {
    /// Python.
    Python(Arc<Bridge>),
    /// This process.
    Sql(Arc<Mutex<SqlWriter>>),
}

/// State that outlives the actor.
#[derive(Default)]
pub(crate) struct State {
    pace: Pace,
    /// Replies to clients that wait for the returner to have their jobs.
    waiting: HashMap<Jid, PendingReply>,
}

/// Metrics of all job caches.
#[derive(Clone)]
pub(crate) struct JobCacheMetrics {
    rows: IntCounterVec,
    changed: IntCounterVec,
    lag: IntGaugeVec,
}

impl JobCacheMetrics {
    /// Rows that the returner of an option has not been given yet.
    pub(crate) fn lag(&self, purpose: Purpose) -> IntGauge {
        self.lag.with_label_values(&[purpose.option()])
    }

    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            rows: counter_vec(
                registry,
                "saltern_job_cache_rows_total",
                "Jobs and returns for the returners of master_job_cache and ext_job_cache, by option \
                 and what became of them: given, or passed over because the returner failed of them \
                 alone.",
                &["option", "result"],
            ),
            changed: counter_vec(
                registry,
                "saltern_job_cache_changed_total",
                "Values that the SQL database of a job cache could not take as they were, by option \
                 and what was done: escaped, or cut.",
                &["option", "change"],
            ),
            lag: gauge_vec(
                registry,
                "saltern_job_cache_lag_rows",
                "Jobs and returns that are stored and not yet given to the returner.",
                &["option"],
            ),
        }
    }
}

/// Actor that feeds one returner.
pub(crate) struct JobCache {
    seed: Seed,
    failures: Arc<LogThrottle>,
}

impl Child for JobCache {
    type Seed = Seed;

    const NAME: &'static str = "job_cache";
    const MAILBOX: usize = 256;

    fn build(seed: &Seed) -> Self {
        Self {
            seed: seed.clone(),
            failures: Arc::new(LogThrottle::new(LOG_INTERVAL)),
        }
    }
}

impl Actor for JobCache {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        give_way(NICENESS);
        self.seed.start_python();
        let waiting: Vec<Jid> = self.seed.state.lock().waiting.keys().cloned().collect();
        for jid in waiting {
            self.limit_wait(jid, context);
        }
        context.notify(RowsCommitted);
    }
}

impl Handler<RowsCommitted> for JobCache {
    type Result = ();

    fn handle(&mut self, _: RowsCommitted, context: &mut Self::Context) {
        self.seed.state.lock().pace.wake();
        self.look(context);
    }
}

impl Handler<AnswerWhenGiven> for JobCache {
    type Result = ();

    fn handle(&mut self, message: AnswerWhenGiven, context: &mut Self::Context) {
        let AnswerWhenGiven { jid, answer } = message;
        {
            let mut state = self.seed.state.lock();
            let may_wait = match (&self.seed.target, state.pace.is_failing()) {
                (_, false) => true,
                // An attempt costs a call of Python and may kill it.
                (Target::Python(_), true) => false,
                // The client looks for its job there: if the database is back, it is to be in it.
                (Target::Sql(_), true) => state.pace.hurry(Instant::now()),
            };
            if state.waiting.len() >= MAX_WAITING || !may_wait {
                drop(state);
                return answer.done();
            }
            state.waiting.insert(jid.clone(), answer);
        }
        // The returner may have it before this message came.
        match self.seed.follower.lock().has_passed(&jid) {
            Ok(false) => {}
            Ok(true) => return self.answer(&jid),
            Err(error) => tracing::error!(%error, "the job database cannot be read"),
        }
        self.limit_wait(jid, context);
        self.look(context);
    }
}

/// A call has ended.
#[derive(Message)]
#[rtype(result = "()")]
struct Landed(Option<Result<Given, Refused>>);

/// Why nothing was stored.
struct Refused {
    problem: String,
    /// The row killed Python.
    is_kill: bool,
}

impl From<String> for Refused {
    fn from(problem: String) -> Self {
        Self {
            problem,
            is_kill: false,
        }
    }
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        error.to_string().into()
    }
}

/// Outcome of rows.
#[derive(Default)]
struct Given {
    /// Jobs that the returner has, or that were skipped.
    jobs: Vec<Jid>,
    given: u64,
    passed_over: u64,
    /// Values that a database could not take as they were.
    marks: Marks,
    /// The last failure.
    problem: Option<String>,
}

impl Handler<Landed> for JobCache {
    type Result = ();

    fn handle(&mut self, Landed(landed): Landed, context: &mut Self::Context) {
        let lost = || Err(Refused::from("the call was not made".to_owned()));
        let (given, problem, is_kill) = match landed.unwrap_or_else(lost) {
            Ok(mut given) => {
                let problem = given.problem.take();
                (given, problem, false)
            }
            Err(refused) => (Given::default(), Some(refused.problem), refused.is_kill),
        };
        self.measure(&given);
        let landing = match &problem {
            _ if given.given + given.passed_over > 0 => Landing::Moved,
            None => Landing::Empty,
            Some(_) if is_kill => Landing::Killed,
            Some(_) => Landing::Failed,
        };
        let is_failing = {
            let mut state = self.seed.state.lock();
            state.pace.land(landing, Instant::now());
            state.pace.is_failing()
        };
        if let Some(problem) = problem {
            self.complain(&problem, given.passed_over);
        }
        given.jobs.iter().for_each(|jid| self.answer(jid));
        if is_failing {
            self.answer_all();
        }
        self.look(context);
    }
}

impl JobCache {
    /// Starts the next call, or sets the timer for it.
    fn look(&mut self, context: &mut Context<Self>) {
        let next = self.seed.state.lock().pace.next(Instant::now());
        let attempt = match next {
            Next::Nothing => return,
            Next::Pause(time) => {
                context.run_later(time, |cache, context| cache.look(context));
                return;
            }
            Next::Give(attempt) => attempt,
        };
        let flight = Flight {
            address: context.address(),
            landed: None,
        };
        let seed = self.seed.clone();
        let started = thread::Builder::new()
            .name("job-cache".to_owned())
            .spawn(move || {
                let mut flight = flight;
                flight.landed = Some(seed.give(attempt));
            });
        if let Err(error) = started {
            tracing::error!(%error, "no thread for giving jobs to a returner");
        }
    }

    fn limit_wait(&self, jid: Jid, context: &mut Context<Self>) {
        context.run_later(MAX_WAIT, move |cache, _| cache.answer(&jid));
    }

    /// Answers the client that published a job, if it still waits.
    fn answer(&self, jid: &Jid) {
        let answer = self.seed.state.lock().waiting.remove(jid);
        if let Some(answer) = answer {
            answer.done();
        }
    }

    /// Answers all of them.
    fn answer_all(&self) {
        let waiting = std::mem::take(&mut self.seed.state.lock().waiting);
        waiting.into_values().for_each(PendingReply::done);
    }

    fn complain(&self, problem: &str, passed_over: u64) {
        if let Some(times) = self.failures.record() {
            let (option, returner) = (self.seed.purpose.option(), self.seed.name.as_str());
            tracing::error!(
                option,
                returner,
                problem,
                passed_over,
                times,
                "the returner does not take jobs"
            );
        }
    }

    fn measure(&self, given: &Given) {
        let (metrics, option) = (&self.seed.metrics, self.seed.purpose.option());
        for (result, rows) in [("given", given.given), ("passed_over", given.passed_over)] {
            metrics
                .rows
                .with_label_values(&[option, result])
                .inc_by(rows);
        }
        let Marks { escaped, cut } = given.marks;
        for (change, values) in [("escaped", escaped), ("cut", cut)] {
            let counter = metrics.changed.with_label_values(&[option, change]);
            counter.inc_by(values);
        }
        if let Ok(lag) = self.seed.follower.lock().lag() {
            let gauge = metrics.lag.with_label_values(&[option]);
            gauge.set(i64::try_from(lag).unwrap_or(i64::MAX));
        }
    }
}

impl Seed {
    /// Why the returner cannot be called, if that is known without a call of Python.
    pub(crate) fn refusal(&self) -> Option<BridgeError> {
        match &self.target {
            Target::Python(bridge) => bridge.refusal(&self.work(&[], 1)),
            Target::Sql(_) => None,
        }
    }

    /// Has Python load the returner before the first job comes, whose client waits three seconds at
    /// most. Without the thread, or Python, the first job shows what is wrong.
    fn start_python(&self) {
        let Target::Python(bridge) = &self.target else {
            return;
        };
        let (seed, bridge) = (self.clone(), Arc::clone(bridge));
        let thread = thread::Builder::new().name("job-cache".to_owned());
        let started = thread.spawn(move || bridge.call(&seed.work(&[], 1), Duration::MAX).err());
        if let Err(error) = started {
            tracing::debug!(%error, "no thread for starting Python");
        }
    }

    fn work<'a>(&'a self, steps: &'a [Step<'a>], patience: usize) -> Work<'a> {
        Work::Returner {
            name: &self.name,
            needs: "save_load",
            steps,
            patience,
        }
    }

    /// Gives the returner the next rows; blocks.
    fn give(&self, attempt: Attempt) -> Result<Given, Refused> {
        match &self.target {
            Target::Python(bridge) => self.give_python(bridge, attempt),
            Target::Sql(writer) => self.give_database(writer),
        }
    }

    fn give_python(&self, bridge: &Bridge, attempt: Attempt) -> Result<Given, Refused> {
        let rows = self.follower.lock().next(attempt.rows)?;
        let loads: Vec<Load<'_>> = rows.iter().map(Load::of).collect();
        let mut steps: Vec<Step<'_>> = loads.iter().map(|load| self.step(load)).collect();
        let mut called = self.call(bridge, &steps, attempt.patience);
        while called.is_too_large() && steps.len() > 1 {
            steps.truncate(steps.len() / 2);
            called = self.call(bridge, &steps, attempt.patience);
        }
        let done = called.done(attempt.is_last_try);
        if let (0, Some(End { problem, fault })) = (done, &called.end) {
            return Err(Refused {
                problem: problem.clone(),
                is_kill: *fault == Fault::Row,
            });
        }
        let mut given = Given {
            problem: called.problem().map(str::to_owned),
            ..Given::default()
        };
        for (number, row) in rows.iter().take(done).enumerate() {
            match called.results.get(number) {
                Some(None) => given.given += 1,
                Some(Some(_)) | None => given.passed_over += 1,
            }
            if let Followed::Job(job) = row {
                given.jobs.push(job.record.jid.clone());
            }
        }
        self.pass(rows.iter().take(done))?;
        Ok(given)
    }

    fn pass<'a>(&self, rows: impl Iterator<Item = &'a Followed>) -> Result<(), StoreError> {
        let mut rows = rows.peekable();
        if rows.peek().is_none() {
            return Ok(());
        }
        let mut follower = self.follower.lock();
        rows.for_each(|row| follower.pass(row));
        follower.save()
    }

    fn call(&self, bridge: &Bridge, steps: &[Step<'_>], patience: usize) -> Called {
        if steps.iter().all(Vec::is_empty) {
            let results = vec![None; steps.len()];
            return Called { results, end: None };
        }
        let mut results = Vec::new();
        let mut take = |_: &str, said: Value| {
            if results.len() < steps.len() {
                results.push(said.as_str().map(str::to_owned));
            }
        };
        let work = self.work(steps, patience);
        let called = bridge.call_with_progress(&work, Duration::MAX, &mut take);
        let end = called
            .err()
            .map(|error| End::of(&error, results.is_empty()));
        Called { results, end }
    }

    /// The returner's call for a row, as stock makes it (`_send_pub` and its kin in
    /// `salt/master.py`, `_store_job` in `salt/utils/job.py`).
    fn step<'a>(&self, load: &'a Load<'_>) -> Step<'a> {
        let is_master = self.purpose == Purpose::Master;
        let jid = load.jid.as_str();
        let packed = load.packed.as_ref();
        match &load.minions {
            // Of a job that comes with its return, stock knows only the return.
            Some(_) if load.has_return => Vec::new(),
            Some(minions) => {
                let mut step = Vec::new();
                if is_master {
                    let nocache = load.nocache;
                    step.push(ReturnerCall::PrepJid { jid, nocache });
                }
                step.push(ReturnerCall::SaveLoad {
                    jid,
                    load: packed,
                    minions: Some(minions.iter().map(MinionId::as_str).collect()),
                });
                step
            }
            None if is_master => {
                let nocache = false;
                let mut step = vec![
                    ReturnerCall::PrepJid { jid, nocache },
                    ReturnerCall::SaveLoad {
                        jid,
                        load: packed,
                        minions: None,
                    },
                    ReturnerCall::Returner(packed),
                ];
                if self.stores_endtime {
                    let endtime = endtime_text(load.received);
                    step.push(ReturnerCall::UpdateEndtime { jid, endtime });
                }
                step
            }
            None => Vec::new(),
        }
    }
}

/// A row as it is sent.
struct Load<'a> {
    jid: &'a Jid,
    /// With the types that Python reads.
    packed: Bytes,
    /// Of a job.
    minions: Option<&'a [MinionId]>,
    nocache: bool,
    has_return: bool,
    received: i64,
}

impl<'a> Load<'a> {
    fn of(row: &'a Followed) -> Self {
        let (record_jid, packed) = match row {
            Followed::Job(job) => (&job.record.jid, &job.record.load),
            Followed::Return(row) => (&row.record.jid, &row.record.load),
        };
        let load = MapView::parse(packed.bytes().clone(), &Limits::WIRE).ok();
        let load = Self {
            jid: record_jid,
            has_return: load.as_ref().is_some_and(|load| load.contains("return")),
            packed: load.map_or_else(|| packed.bytes().clone(), |load| load.pack_bin_dialect()),
            minions: None,
            nocache: false,
            received: 0,
        };
        match row {
            Followed::Job(job) => Self {
                minions: Some(&job.record.minions),
                nocache: job.record.nocache,
                ..load
            },
            Followed::Return(row) => Self {
                received: row.record.received,
                ..load
            },
        }
    }
}

/// Notifies the actor of the end of a call, also if the thread panics.
struct Flight {
    address: Addr<JobCache>,
    landed: Option<Result<Given, Refused>>,
}

impl Drop for Flight {
    fn drop(&mut self) {
        // Bounded: one call at a time.
        self.address.do_send(Landed(self.landed.take()));
    }
}
