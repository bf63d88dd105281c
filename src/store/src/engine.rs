//! The engine of the job database that the configuration asks for. Today it is SQLite.

use std::sync::Arc;

use saltern_config::MasterConfig;

use crate::error::Result;
use crate::jobs::JobQueries;
use crate::sqlite::{self, DatabaseLimits};

/// Opens a reader of the job database, whether a master runs or not.
pub fn open_reader(config: &MasterConfig) -> Result<Arc<dyn JobQueries>> {
    sqlite::open_reader(&config.saltern_job_database, DatabaseLimits::default())
}

/// Reads all of the job database for damage; takes as long as that takes.
pub fn examine(config: &MasterConfig) -> Result<()> {
    sqlite::examine(&config.saltern_job_database)
}
