//! Git repositories as sources of files and pillars, by the system's `git`.
//!
//! Each remote has one bare clone below `cachedir`, which a [`Fetch`] updates: on a maintenance
//! thread, never in a request. A request sees the refs of the last fetch (`Refs`), the tree of a
//! commit as a list in memory (`Tree`), and single files or whole checkouts that are written below
//! `cachedir` when they are first wanted. Those are named by the object that they hold, so they
//! never change and need no lock.
//!
//! `git` is run as a bounded subprocess. Only the transports file, git, http, https and ssh are
//! possible; nothing asks for a password on a terminal; credentials and URLs travel in the
//! environment of the subprocess, not in its arguments or in the clone's configuration.
//!
//! This module knows neither environments of Salt nor minions.

mod blobs;
mod clone;
mod clones;
mod command;
mod error;
mod fetch;
mod kept;
mod options;
mod origin;
mod refs;
mod tree;

pub use crate::render::process::Cancel;
pub(crate) use clone::{Checkout, Clone};
pub(crate) use clones::Clones;
pub use error::GitError;
pub use fetch::{Fetch, Fetched};
pub(crate) use kept::Kept;
pub(crate) use options::{AUTH_PARAMETERS, Parameters, pairs, text_of};
pub(crate) use origin::Origin;
pub(crate) use origin::shown;
pub(crate) use refs::{Oid, Refs};
pub(crate) use tree::{Entry, Tree};
