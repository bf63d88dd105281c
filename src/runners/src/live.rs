//! Interface to what only a running master knows; the implementation lives above this crate.

use saltern_model::Jid;
use saltern_model::control::Account;
use saltern_model::query::{Health, ScheduleReport};

/// The part of the master that tracks jobs does not answer.
#[derive(Debug, thiserror::Error)]
#[error("the master is too busy to say how the minions of the job stand; ask again")]
pub struct NoAnswer;

/// A running master.
pub trait LiveMaster: Send + Sync {
    /// Account of an open job; `None` when it is not open. Blocks for seconds at most.
    ///
    /// # Errors
    /// The master is too busy.
    fn account(&self, jid: &Jid) -> Result<Option<Account>, NoAnswer>;

    /// The schedule with what became of it.
    fn schedule(&self) -> ScheduleReport;

    /// Whether it serves, and why not.
    fn health(&self) -> Health;
}
