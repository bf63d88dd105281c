//! Jobs: the store, which commits; the tracker and the batches, which decide; and the followers of
//! the store's rows, the mirror and the job caches.

pub(crate) mod batches;
pub(crate) mod job_cache;
pub(crate) mod job_checkpointer;
pub(crate) mod job_completions;
pub(crate) mod job_import;
pub(crate) mod job_mirror;
pub(crate) mod job_store;
pub(crate) mod job_tracker;
