//! Functions that run on the master: one file a runner module, named as in Salt (`jobs` →
//! `jobs.rs`), and one a wheel module below `wheel`.
//!
//! A [`Call`] (user, function, arguments) becomes a value or an error through [`Runners`] or
//! [`Wheels`]. The functions know the master only through [`RunnerContext`], and report only
//! through [`Notices`]: nothing here knows actors, sockets or requests. Permission to call has been
//! checked before.
//!
//! A new module is a file with its table of functions, and a line in `registry.rs`.
//!
//! Suggested reading order: `call`, `registry`, `jobs`, `manage`, `wheel`.
#![warn(clippy::indexing_slicing)]

mod auth;
mod batch;
mod bridged;
mod cache;
mod call;
mod config;
mod event;
mod fileserver;
mod fleet;
mod git_pillar;
mod jobs;
mod key_lists;
mod live;
mod manage;
mod master;
mod mine;
mod notices;
mod old_jobs;
mod pillar;
mod python;
mod reactor;
mod registry;
mod running_calls;
mod saltutil;
mod stock_names;
mod target;
mod test;
#[cfg(test)]
mod testing;
mod wheel;
mod withheld;

pub use batch::{BatchCommand, Batches};
pub use call::{Arguments, Call, RunnerError};
pub use fleet::Fleet;
pub use jobs::MAX_LISTED_JOBS;
pub use key_lists::{KeyLists, LOCAL};
pub use live::{LiveMaster, NoAnswer};
pub use master::Master;
pub use notices::{Notice, Notices};
pub use old_jobs::{OldJobs, OldJobsAway, digits};
pub use reactor::{NotReplayed, Reactor};
pub use registry::{Ran, RunnerContext, RunnerOf, Runners, Wheels, runner_names, runner_of};
pub use running_calls::RunningCalls;
