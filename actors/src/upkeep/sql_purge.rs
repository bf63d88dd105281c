//! Removes old jobs from the SQL database of `master_job_cache`, as stock's returners do that purge:
//! `pgjsonb` and `mysql`, by `keep_jobs_seconds`, into archive tables with `archive_jobs`.
//!
//! On a thread and a connection of its own, in slices, so that neither the follower nor the master waits
//! for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use saltern_base::clock::Clock;
use saltern_config::{MasterConfig, SqlSchema, SqlStore};
use saltern_sql::{Cutoff, SqlCare, SqlError, purge_steps};

use crate::messages::MaintenanceTask;
use crate::upkeep::maintenance_tasks::{MaintenanceTasks, TaskError};

/// Time between two purges: some of their conditions have no index.
const INTERVAL: Duration = Duration::from_secs(3_600);

/// Longest wait after a slice. The wait is as long as the slice took, so half of the time is others'.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// The duty of one master.
pub(crate) struct SqlPurge {
    store: SqlStore,
    keep: Duration,
    archives: bool,
    clock: Clock,
    maintenance_tasks: Arc<MaintenanceTasks>,
    is_running: AtomicBool,
}

impl SqlPurge {
    /// The duty, where the options ask for it.
    pub(crate) fn new(
        config: &MasterConfig,
        clock: &Clock,
        maintenance_tasks: &Arc<MaintenanceTasks>,
    ) -> Option<Arc<Self>> {
        let options = &config.returners;
        let store = options.sql_store(options.job_cache.as_ref()?)?;
        let keep = config.keep_jobs.filter(|keep| !keep.is_zero())?;
        // Stock's other two have no purge.
        matches!(store.schema, SqlSchema::PgJsonb | SqlSchema::Mysql).then(|| {
            Arc::new(Self {
                store: store.clone(),
                keep,
                archives: config.archive_jobs,
                clock: clock.clone(),
                maintenance_tasks: maintenance_tasks.clone(),
                is_running: AtomicBool::new(false),
            })
        })
    }

    /// Time between two purges.
    pub(crate) fn interval(&self) -> Duration {
        INTERVAL.min(self.keep).max(Duration::from_secs(60))
    }

    /// Begins a purge, unless one is in progress.
    pub(crate) fn start(self: &Arc<Self>) {
        if self.is_running.swap(true, Ordering::AcqRel) {
            return;
        }
        let guard = RunningPurge(self.clone());
        let started = thread::Builder::new()
            .name("sql-purge".to_owned())
            .spawn(move || {
                let purge = &guard.0;
                let running = purge.maintenance_tasks.begin(MaintenanceTask::SqlJobs);
                running.ended(purge.run().map_err(TaskError::of));
            });
        if let Err(error) = started {
            tracing::error!(%error, "no thread for removing old jobs from a SQL database");
        }
    }

    fn run(&self) -> Result<(), SqlError> {
        let cutoff = Cutoff::before(self.clock.unix_micros(), self.keep);
        let mut care = SqlCare::connect(&self.store)?;
        for step in purge_steps(self.store.schema, cutoff, self.archives) {
            let rows = care.purge(&step, |took| {
                thread::sleep(took.min(MAX_WAIT));
                false
            })?;
            if rows > 0 {
                let table = step.table;
                tracing::info!(store = %self.store, table, rows, "old rows were removed");
            }
        }
        Ok(())
    }
}

/// Lets the next purge begin, also if the thread panics or was not made.
struct RunningPurge(Arc<SqlPurge>);

impl Drop for RunningPurge {
    fn drop(&mut self) {
        self.0.is_running.store(false, Ordering::Release);
    }
}
