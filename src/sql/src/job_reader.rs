//! A reader of the job database that the configuration asks for, for programs beside a master.

use std::sync::Arc;

use saltern_config::MasterConfig;
use saltern_store::Result;
use saltern_store::jobs::JobQueries;

use crate::cluster::open_cluster_reader;

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
