//! A small minion: a real client of the protocol with a handful of functions, and the swarm made
//! of many of them. It works against the stock master and ours.
//!
//! Suggested reading order: [`config`], `keys`, `sign_in` (what is verified and why), `envelope`,
//! `channel` (requests), `minion` (its life), `functions` (what it can be asked), [`swarm`] (many
//! at once, for load). It has no states, no pillar, no modules from the master and no schedule:
//! where those are wanted, stock's minion is.

mod acknowledged;
mod backoff;
mod channel;
pub mod config;
mod envelope;
mod error;
mod events;
mod functions;
mod jobs;
mod keys;
mod matching;
mod minion;
mod publication;
mod python;
mod sign_in;
mod stats;
pub mod swarm;

pub use config::{ConfigError, Finding, LoadedMinion, MinionConfig};
pub use error::{FileError, MinionError, RequestError};
pub use functions::grains::collect as collect_grains;
pub use keys::{KeyError, MasterKeyStore, MemoryStore, MinionKeys, PkiDir};
pub use minion::Minion;
pub use sign_in::SignInError;
