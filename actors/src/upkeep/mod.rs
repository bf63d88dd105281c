//! Periodic maintenance: its timer, the registry of its tasks, and the checks of what is on disk.
//!
//! A task of which another actor owns the data is carried out there: expiry of jobs by the job
//! store, fetches by the remotes.

pub(crate) mod disk_checks;
pub(crate) mod maintenance;
pub(crate) mod maintenance_tasks;
pub(crate) mod sql_purge;
