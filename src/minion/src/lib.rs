//! A small minion: a real client of the protocol with a handful of functions, and the swarm made
//! of many of them. It works against the stock master and ours.
//!
//! How it authenticates and what it verifies stands in `saltern-channel`. Suggested reading order:
//! `minion` (its life), `functions` (what it can be asked), [`swarm`] (many at once, for load). It
//! has no states, no use for its pillar, no modules from the master and no schedule:
//! where those are wanted, stock's minion is.

mod acknowledged;
mod compound;
mod error;
mod events;
mod functions;
mod history;
mod jobs;
mod matching;
mod minion;
mod pillar;
mod private_reply;
mod publication;
mod python;
mod stats;
pub mod swarm;

pub use error::MinionError;
pub use functions::grains::collect as collect_grains;
pub use minion::Minion;
