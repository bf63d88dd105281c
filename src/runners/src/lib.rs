//! The runner functions of the master: one file a module, named as in Salt (`jobs` → `jobs.rs`).
//!
//! A [`Call`] (who asks, which function, with what) becomes a value or an error through
//! [`Runners`]. What the functions know of the master they get from [`Knowledge`] and from nowhere
//! else: nothing here knows actors, sockets or requests. Who may call what has been decided before.
//!
//! A new module is a file with its table of functions, and a line in `registry.rs`.
//!
//! Suggested reading order: `call`, `registry`, `jobs`, `manage`.
#![warn(clippy::indexing_slicing)]

mod batch;
mod call;
mod fleet;
mod jobs;
mod manage;
mod python;
mod registry;

pub use batch::Batches;
pub use call::{Arguments, Call, Progress, RunnerError};
pub use fleet::Fleet;
pub use registry::{Knowledge, Ran, Runners};
