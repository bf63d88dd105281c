//! A reader of the job database that the configuration asks for, for programs beside a master.

use std::sync::Arc;

use saltern_config::MasterConfig;
use saltern_store::Result;
use saltern_store::jobs::JobQueries;

use crate::cluster::open_cluster_reader;

/// Where the jobs are that the configuration asks for, for people: the file, or the cluster.
pub fn job_database_place(config: &MasterConfig) -> String {
    match &config.saltern_cluster {
        Some(cluster) => format!("the cluster \"{}\"", cluster.name),
        None => config.saltern_job_database.display().to_string(),
    }
}

/// Opens a reader of the job database, whether a master runs or not.
///
/// # Errors
/// It cannot be opened. One in PostgreSQL is not connected to before the first read.
pub fn open_reader(config: &MasterConfig) -> Result<Arc<dyn JobQueries>> {
    match &config.saltern_cluster {
        Some(cluster) => open_cluster_reader(cluster),
        None => saltern_store::open_reader(config),
    }
}
