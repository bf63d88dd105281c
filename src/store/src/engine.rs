//! The job database of a master without a cluster: SQLite. That of a cluster is opened by `saltern-sql`.

use std::sync::Arc;

use saltern_config::MasterConfig;

use crate::error::Result;
use crate::jobs::{Engine, JobQueries, Recovered};
use crate::sqlite::{self, DatabaseLimits, JobDatabase};

/// Opens a reader of the job database, whether a master runs or not.
pub fn open_reader(config: &MasterConfig) -> Result<Arc<dyn JobQueries>> {
    sqlite::open_reader(&config.saltern_job_database, DatabaseLimits::default())
}

/// Opens the job database for writing, or makes a new one. One that is damaged is set aside, and what
/// can be read of it is copied into a new one, until `is_enough` says so. `now` is in seconds since
/// 1970.
pub fn open_engine(
    config: &MasterConfig,
    now: i64,
    is_enough: &dyn Fn() -> bool,
) -> Result<(Engine, Option<Recovered>)> {
    let (path, limits) = (&config.saltern_job_database, DatabaseLimits::default());
    let (database, recovered) = JobDatabase::open_or_recover(path, limits, now, is_enough)?;
    Ok((database.into_engine()?, recovered))
}

/// Reads all of the job database for damage; takes as long as that takes.
pub fn examine(config: &MasterConfig) -> Result<()> {
    sqlite::examine(&config.saltern_job_database)
}
