//! The Python bridge: runs modules that only Python can run, in the site's own Salt installation.
//!
//! A [`Bridge`] is a pool of helper processes for each `Lane`: what pillars wait for (renderers,
//! external pillars, functions, tops), functions of the master that users run, which may take hours,
//! returners, and log-ins. None holds up the others. A piece of [`Work`] goes to a helper over a
//! pipe and comes back as a value or a [`BridgeError`] that names the module; it never gets
//! further than one process, and is never tried twice. Calls block their thread.
//!
//! Engines of the site run for as long as the master: each has a helper of its own, in no pool
//! ([`Bridge::run_engine`]).
//!
//! Nothing here knows what a pillar or a runner is, nor decides who may ask for what: native code
//! comes first and calls here for the names that it does not have.
//!
//! Suggested reading order: `work`, `bridge.py`, `helper`, `lane`, `pool`.
#![warn(clippy::indexing_slicing)]

mod engine;
mod error;
mod exchange;
mod helper;
mod installation;
mod lane;
mod metrics;
mod pillar_files;
mod pool;
mod relay;
mod returner;
mod search;
#[cfg(test)]
mod testing;
mod work;

pub use engine::{EngineCall, EngineHandle};
pub use error::{BridgeError, FrameTooLong, NoPython};
pub use pillar_files::python_pillar_files;
pub use pool::Bridge;
pub use returner::{ReturnerCall, Step};
pub use work::{Call, Subject, Work};
