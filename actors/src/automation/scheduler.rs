//! Timer of the master's `schedule` (`requests/schedule.rs`): passes due jobs to the runners.
//!
//! It sleeps until something is due, but never long: the time of day may be set meanwhile, or the
//! schedule replaced, without a signal. A job waits for a thread behind the calls of users and
//! takes none from them; a run without room is skipped and counted, as no client waits for it.
//!
//! The schedule's state outlives the actor, so that no job starts twice because of a panic. Its history
//! is written beside it, on a thread that may block.

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler};
use jiff::Timestamp;
use parking_lot::Mutex;
use saltern_automation::schedule::{Due, History, Job, Schedule, Skip};
use saltern_base::metrics::{
    Histogram, IntCounter, IntCounterVec, IntGauge, Registry, SECONDS, counter, counter_vec, gauge,
    histogram,
};
use saltern_crypto::public_random;
use saltern_requests::Services;
use saltern_supervise::Child;

use crate::content::renderer::Look;
use crate::functions::runner::RunQueue;
use crate::shared::history_writer::HistoryWriter;

/// Longest time between two looks at the clock.
const MAX_SLEEP: Duration = Duration::from_secs(1);

/// Metrics of the scheduler.
#[derive(Clone)]
pub(crate) struct ScheduleMetrics {
    runs: IntCounter,
    skipped: IntCounterVec,
    late: Histogram,
    last_run: IntGauge,
}

impl ScheduleMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let skipped = counter_vec(
            registry,
            "saltern_schedule_skipped_total",
            "Turns of scheduled jobs that brought no run, by reason.",
            &["reason"],
        );
        for skip in Skip::ALL {
            skipped.with_label_values(&[skip.word()]);
        }
        Self {
            runs: counter(
                registry,
                "saltern_schedule_runs_total",
                "Runs of scheduled jobs that were begun.",
            ),
            skipped,
            late: histogram(
                registry,
                "saltern_schedule_late_seconds",
                "Time between the turn of a scheduled job and its run; waiting for a thread is not \
                 in it.",
                SECONDS,
            ),
            last_run: gauge(
                registry,
                "saltern_schedule_last_run_timestamp_seconds",
                "When a scheduled job was begun last, in seconds since 1970.",
            ),
        }
    }

    fn skip(&self, job: &Job, skip: Skip) {
        let reason = skip.word();
        self.skipped.with_label_values(&[reason]).inc();
        match skip {
            Skip::QueueFull | Skip::Missed => {
                tracing::warn!(job = job.name, reason, "a scheduled job is not run");
            }
            _ => tracing::debug!(job = job.name, reason, "a scheduled job is not run"),
        }
    }
}

/// Seed of the scheduler.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) services: Arc<Services>,
    pub(crate) schedule: Arc<Mutex<Schedule>>,
    pub(crate) history: Arc<History>,
    pub(crate) runs: Arc<RunQueue>,
    pub(crate) metrics: ScheduleMetrics,
}

/// Actor that starts scheduled jobs.
pub(crate) struct Scheduler {
    seed: Seed,
    history_writer: HistoryWriter,
}

impl Child for Scheduler {
    type Seed = Seed;

    const NAME: &'static str = "scheduler";
    const MAILBOX: usize = 4;

    fn build(seed: &Seed) -> Self {
        Self {
            seed: seed.clone(),
            history_writer: HistoryWriter::default(),
        }
    }
}

impl Actor for Scheduler {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.notify(Look);
    }
}

impl Handler<Look> for Scheduler {
    type Result = ();

    fn handle(&mut self, _: Look, context: &mut Self::Context) {
        self.run_what_is_due();
        let history = self.seed.history.clone();
        self.history_writer
            .look(history.has_news(), move || history.save());
        let now = self.now();
        let next = self.seed.schedule.lock().next(now);
        let wait = next.map_or(MAX_SLEEP, |next| {
            // An overdue job is due at once.
            Duration::try_from(next.duration_since(now)).unwrap_or_default()
        });
        context.notify_later(Look, wait.min(MAX_SLEEP));
    }
}

impl Scheduler {
    fn now(&self) -> Timestamp {
        let now = self.seed.services.clock.unix_micros();
        Timestamp::from_microsecond(now).unwrap_or(Timestamp::MAX)
    }

    fn run_what_is_due(&self) {
        let Seed {
            schedule,
            history,
            metrics,
            ..
        } = &self.seed;
        let (due, zone) = {
            let mut schedule = schedule.lock();
            let due = schedule.due(self.now(), &mut draw, &mut |job, skip| {
                metrics.skip(job, skip);
                history.skipped(job, skip);
            });
            (due, schedule.zone().clone())
        };
        for due in due {
            self.run(due, &zone);
        }
    }

    fn run(&self, due: Due, zone: &jiff::tz::TimeZone) {
        let Seed {
            services,
            runs,
            history,
            metrics,
            ..
        } = &self.seed;
        let (job, late) = (due.job.clone(), due.late);
        let fun = due.function.clone();
        let Some(run) = due.into_run(services, zone, history) else {
            tracing::debug!(
                job = job.name,
                "a scheduled job is skipped: its function cannot be called"
            );
            return;
        };
        if runs.push(run).is_err() {
            metrics.skip(&job, Skip::QueueFull);
            history.skipped(&job, Skip::QueueFull);
            return;
        }
        tracing::info!(job = job.name, fun, "running a scheduled job");
        metrics.runs.inc();
        metrics.late.observe(late.as_secs_f64());
        metrics.last_run.set(services.clock.unix());
    }
}

/// A random number between two bounds, both included.
fn draw(from: u64, to: u64) -> u64 {
    let number = u128::from_ne_bytes(public_random());
    let count = u128::from(to.saturating_sub(from)) + 1;
    from.saturating_add(u64::try_from(number % count).unwrap_or(0))
}

#[cfg(test)]
mod tests;
