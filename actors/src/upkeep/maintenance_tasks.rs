//! Registry of the master's periodic maintenance tasks: each by name, with when it last ran, how
//! long that took and its result.
//!
//! The actor that owns the data carries a task out; it takes a [`Running`] here and ends it. One
//! that is dropped without an end, because its actor panicked or was stopped, counts as failed, so
//! no failure is silent. [`MaintenanceTasks::run`] also catches a panic, so that one task does not keep the
//! next ones of its actor from running. Nothing is scheduled here: timers belong to the actors.

use std::collections::BTreeMap;
use std::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use parking_lot::Mutex;
use saltern_base::chain;
use saltern_base::clock::Clock;
use saltern_base::metrics::{
    HistogramVec, IntCounterVec, IntGaugeVec, Registry, SECONDS, counter_vec, gauge_vec,
    histogram_vec,
};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::messages::{MaintenanceTask, RunMaintenanceTask};

/// Why a run of a task failed. It is kept, and compared with that of the run before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TaskError {
    /// An error of the work itself, as one line with its causes.
    #[error("{0}")]
    Work(String),
    /// The work panicked.
    #[error("it panicked; the log says where")]
    Panicked,
    /// The actor panicked or was stopped before the end.
    #[error("it was cut off")]
    CutOff,
    /// The dropfile asks for a new shared key, and the master has none to change to.
    #[error("a new shared key is wanted and cannot be made")]
    SharedKey,
    /// The event of the task cannot be fired.
    #[error("the event bus has no room")]
    BusFull,
    /// So many remotes failed; each is logged by itself.
    #[error("remotes that cannot be fetched: {0}; the log says why")]
    Remotes(usize),
}

impl TaskError {
    /// An error of the work, with its causes.
    pub(crate) fn of(error: impl Error) -> Self {
        Self::Work(chain(&error))
    }
}

/// Record of the runs of one task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// The interval; zero when the options do not ask for it.
    pub(crate) every: Duration,
    /// When it last began, in seconds since 1970; `None` before the first time. Computed by
    /// [`MaintenanceTasks::records`] from the monotonic clock, so that a clock that was set makes no task
    /// look late.
    pub(crate) began: Option<i64>,
    /// The same by the monotonic clock.
    began_at: Option<Instant>,
    /// How long the last run took.
    pub(crate) took: Duration,
    /// Why the last run failed; `None` if it did not.
    pub(crate) failed: Option<TaskError>,
    /// Runs that have ended, and those of them that failed.
    pub(crate) runs: u64,
    pub(crate) failures: u64,
}

/// Result label of a run that worked.
const OK: &str = "ok";
const FAILED: &str = "failed";

/// Registry of the maintenance tasks; shared by all actors that have one.
pub(crate) struct MaintenanceTasks {
    clock: Clock,
    records: Mutex<BTreeMap<MaintenanceTask, Record>>,
    /// Changes with each end of a run.
    ended: watch::Sender<u64>,
    /// Recipient of requests to run a task now.
    starter: Recipient<RunMaintenanceTask>,
    metrics: Metrics,
}

struct Metrics {
    last_run: IntGaugeVec,
    duration: HistogramVec,
    runs: IntCounterVec,
}

impl MaintenanceTasks {
    /// A registry whose tasks `starter` runs on request.
    pub(crate) fn new(
        clock: Clock,
        starter: Recipient<RunMaintenanceTask>,
        registry: &Registry,
    ) -> Arc<Self> {
        let metrics = Metrics {
            last_run: gauge_vec(
                registry,
                "saltern_maintenance_last_run_timestamp_seconds",
                "When a maintenance task last began, in seconds since 1970.",
                &["task"],
            ),
            duration: histogram_vec(
                registry,
                "saltern_maintenance_duration_seconds",
                "Time of one run of a maintenance task.",
                &["task"],
                SECONDS,
            ),
            runs: counter_vec(
                registry,
                "saltern_maintenance_runs_total",
                "Runs of maintenance tasks, by result.",
                &["task", "result"],
            ),
        };
        Arc::new(Self {
            clock,
            records: Mutex::default(),
            ended: watch::Sender::new(0),
            starter,
            metrics,
        })
    }

    /// Sets the interval of a task. A task without one does not exist in this master.
    pub(crate) fn expect(&self, task: MaintenanceTask, every: Duration) {
        self.records.lock().entry(task).or_default().every = every;
        // Counters start at 0: a first failure would not show as an increase otherwise.
        for result in [OK, FAILED] {
            let label = [task.name(), result];
            self.metrics.runs.with_label_values(&label).inc_by(0);
        }
    }

    /// Records of the tasks that this master has, in the order of [`MaintenanceTask::ALL`].
    pub(crate) fn records(&self) -> Vec<(MaintenanceTask, Record)> {
        let now = self.clock.unix();
        let records = self.records.lock();
        let known = records.iter().filter(|(_, record)| !record.every.is_zero());
        known
            .map(|(task, record)| (*task, record.as_of(now)))
            .collect()
    }

    /// Begins a run, which the caller ends.
    pub(crate) fn begin(self: &Arc<Self>, task: MaintenanceTask) -> Running {
        let now = self.clock.unix();
        {
            let mut records = self.records.lock();
            let record = records.entry(task).or_default();
            (record.began, record.began_at) = (Some(now), Some(Instant::now()));
        }
        let label = [task.name()];
        self.metrics.last_run.with_label_values(&label).set(now);
        Running {
            maintenance_tasks: self.clone(),
            task,
            began: Instant::now(),
            has_ended: false,
        }
    }

    /// A whole run. A panic in `work` is a failure; the panic hook logs it.
    pub(crate) fn run(
        self: &Arc<Self>,
        task: MaintenanceTask,
        work: impl FnOnce() -> Result<(), TaskError>,
    ) {
        let running = self.begin(task);
        // The state that `work` changes is rebuilt or checked anew by its next run.
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(result) => running.ended(result),
            Err(_) => running.ended(Err(TaskError::Panicked)),
        }
    }

    /// Runs a task now and waits for its end; gives its record. `None` when it was not begun: the
    /// master has no such task, does not run yet, or has no room for it at the moment.
    pub(crate) async fn do_now(&self, task: MaintenanceTask) -> Option<Record> {
        let before = {
            let records = self.records.lock();
            records
                .get(&task)
                .filter(|known| !known.every.is_zero())?
                .runs
        };
        let mut ended = self.ended.subscribe();
        self.starter.try_send(RunMaintenanceTask(task)).ok()?;
        loop {
            let record = self.records.lock().get(&task).cloned().unwrap_or_default();
            if record.runs > before {
                return Some(record);
            }
            ended.changed().await.ok()?;
        }
    }

    fn end(&self, task: MaintenanceTask, took: Duration, result: Result<(), TaskError>) {
        let label = if result.is_ok() { OK } else { FAILED };
        let runs = &self.metrics.runs;
        runs.with_label_values(&[task.name(), label]).inc();
        let duration = &self.metrics.duration;
        let duration = duration.with_label_values(&[task.name()]);
        duration.observe(took.as_secs_f64());
        {
            let mut records = self.records.lock();
            let record = records.entry(task).or_default();
            record.record(task, &result);
            record.took = took;
            record.runs += 1;
            record.failures += u64::from(result.is_err());
            record.failed = result.err();
        }
        self.ended.send_modify(|runs| *runs += 1);
    }
}

impl Record {
    /// The record with its beginning computed back from `now`, in seconds since 1970.
    fn as_of(&self, now: i64) -> Self {
        let ago = self.began_at.map(|at| at.elapsed().as_secs());
        let ago = ago.map(|ago| i64::try_from(ago).unwrap_or(i64::MAX));
        Self {
            began: ago.map(|ago| now.saturating_sub(ago)).or(self.began),
            ..self.clone()
        }
    }

    /// Logs each change of the result once, however often a task fails.
    fn record(&self, task: MaintenanceTask, result: &Result<(), TaskError>) {
        let task = task.name();
        match (&self.failed, result) {
            (Some(before), Err(error)) if before == error => {
                let reason = error.to_string();
                tracing::debug!(task, reason, "a maintenance task still fails");
            }
            // A panic is in the log, and a stop needs no line.
            (_, Err(TaskError::CutOff)) => {
                tracing::debug!(task, "a maintenance task was cut off");
            }
            (_, Err(error)) => {
                let reason = error.to_string();
                tracing::error!(task, reason, "a maintenance task failed");
            }
            (Some(_), Ok(())) => tracing::info!(task, "a maintenance task works again"),
            (None, Ok(())) => {}
        }
    }
}

/// A run that has begun. Dropped without an end it has failed.
pub(crate) struct Running {
    maintenance_tasks: Arc<MaintenanceTasks>,
    task: MaintenanceTask,
    began: Instant,
    has_ended: bool,
}

impl Running {
    /// Ends the run with its result.
    pub(crate) fn ended(mut self, result: Result<(), TaskError>) {
        self.record(result);
    }

    fn record(&mut self, result: Result<(), TaskError>) {
        self.has_ended = true;
        self.maintenance_tasks
            .end(self.task, self.began.elapsed(), result);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.has_ended {
            self.record(Err(TaskError::CutOff));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::shared::testing::closed;

    fn maintenance_tasks() -> (Arc<MaintenanceTasks>, Clock) {
        let clock = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_000_000));
        let maintenance_tasks = MaintenanceTasks::new(clock.clone(), closed(), &Registry::new());
        maintenance_tasks.expect(MaintenanceTask::Tokens, Duration::from_secs(60));
        maintenance_tasks.expect(MaintenanceTask::KeyCache, Duration::ZERO);
        (maintenance_tasks, clock)
    }

    fn only(maintenance_tasks: &MaintenanceTasks) -> Record {
        let records = maintenance_tasks.records();
        let [(MaintenanceTask::Tokens, record)] = records.as_slice() else {
            panic!("{records:?}");
        };
        record.clone()
    }

    #[tokio::test(start_paused = true)]
    async fn clock_step_makes_no_task_late_or_early() {
        let (maintenance_tasks, clock) = maintenance_tasks();
        maintenance_tasks
            .begin(MaintenanceTask::Tokens)
            .ended(Ok(()));
        tokio::time::advance(Duration::from_secs(30)).await;
        let now = clock.unix();
        for step in [3 * 86_400, -3_600] {
            let to = u64::try_from(now + step).expect("after 1970");
            clock.set(SystemTime::UNIX_EPOCH + Duration::from_secs(to));
            assert_eq!(only(&maintenance_tasks).began, Some(clock.unix() - 30));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn run_records_its_start_duration_and_result() {
        let (maintenance_tasks, clock) = maintenance_tasks();
        assert_eq!(only(&maintenance_tasks).began, None);
        let running = maintenance_tasks.begin(MaintenanceTask::Tokens);
        tokio::time::advance(Duration::from_secs(3)).await;
        clock.advance(Duration::from_secs(3));
        running.ended(Ok(()));
        let record = only(&maintenance_tasks);
        assert_eq!(record.began, Some(1_795_000_000));
        assert_eq!(record.took, Duration::from_secs(3));
        assert_eq!((record.runs, record.failures, record.failed), (1, 0, None));

        clock.advance(Duration::from_secs(60));
        let no_disk = TaskError::Work("no disk".to_owned());
        let failed = no_disk.clone();
        maintenance_tasks.run(MaintenanceTask::Tokens, || Err(failed));
        let record = only(&maintenance_tasks);
        assert_eq!(record.began, Some(1_795_000_063));
        assert_eq!((record.runs, record.failures), (2, 1));
        assert_eq!(record.failed, Some(no_disk));

        maintenance_tasks.run(MaintenanceTask::Tokens, || Ok(()));
        assert_eq!(only(&maintenance_tasks).failed, None);
    }

    #[tokio::test(start_paused = true)]
    async fn panicking_or_dropped_run_has_failed() {
        let (maintenance_tasks, _) = maintenance_tasks();
        maintenance_tasks.run(MaintenanceTask::Tokens, || panic!("boom"));
        assert_eq!(only(&maintenance_tasks).failed, Some(TaskError::Panicked));
        drop(maintenance_tasks.begin(MaintenanceTask::Tokens));
        assert_eq!(only(&maintenance_tasks).failed, Some(TaskError::CutOff));
        assert_eq!(only(&maintenance_tasks).failures, 2);
    }

    #[tokio::test(start_paused = true)]
    async fn unknown_task_is_not_begun() {
        let (maintenance_tasks, _) = maintenance_tasks();
        assert_eq!(
            maintenance_tasks.do_now(MaintenanceTask::KeyCache).await,
            None
        );
        assert_eq!(
            maintenance_tasks.do_now(MaintenanceTask::Tokens).await,
            None,
            "nobody listens yet"
        );
    }

    #[test]
    fn task_names_are_unique() {
        for task in MaintenanceTask::ALL {
            assert_eq!(MaintenanceTask::from_name(task.name()), Some(task));
        }
    }
}
