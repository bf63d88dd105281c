//! State that the masters of a cluster share: small files of the active master, each also a sealed row of
//! a table, from which the master that takes over makes its own.
//!
//! The owner writes a file as a master without a cluster does, and gives its content to
//! [`SharedState`], which holds it in a bounded queue until the table has it. Whoever must not go on
//! before that waits. A row says nothing to those who read the table: its id is an HMAC of the name, its
//! content is sealed ([`StateCipher`](saltern_crypto::StateCipher)).
//!
//! Not here: where the table is, and that only the owner writes it ([`StateTable`] is implemented beside
//! the cluster's engine of the job database).
//!
//! The keys of minions are shared by [`minion_keys`], in rows of the same form that every member writes; grains and
//! mines by [`minion_data`], in rows that those which stand by follow.
//!
//! Suggested reading order: `kind`, `row`, `pending`, `log`, `restore`, then `revisions`, [`minion_keys`] and
//! [`minion_data`].

mod digest;
mod kind;
mod log;
mod mass_loss;
pub mod minion_data;
pub mod minion_keys;
mod pending;
mod progress;
mod restore;
mod revisions;
mod round_thread;
mod row;
mod secret;
#[cfg(test)]
mod tests;

pub(crate) use kind::SHARED_KEY;
pub use kind::{API_SESSIONS, CONSOLE_SESSIONS, StateKind, StatePlaces};
pub use log::{SharedState, StateFigures};
pub use restore::{Restored, restore};
pub use revisions::{RevisionTable, RowPage, RowPosition};
pub use row::{RowId, SealedRow};
#[cfg(test)]
use secret::read_secret;
pub use secret::{create_secret, read_cipher};

use crate::error::Result;

/// Hears why a member does not share something as it should; `None` when it does.
pub type Report = Box<dyn Fn(Option<String>) + Send + Sync>;

/// Rows that are read or written at a time.
pub const MAX_ROWS: usize = 256;

/// Changes of a table, in one transaction. No row is in it twice.
#[derive(Debug, Default)]
pub struct StateBatch {
    /// Rows to be written, whatever they held.
    pub written: Vec<SealedRow>,
    /// Rows to be removed.
    pub removed: Vec<RowId>,
}

/// The table of a cluster, as its owner has it. Blocks.
pub trait StateTable: Send + Sync {
    /// The first version of this owner, above all of the owners before.
    fn first_version(&self) -> i64;

    /// Commits a batch; `false`, and nothing is changed, when another process owns the table.
    ///
    /// # Errors
    /// Nobody knows whether it was committed.
    fn write(&self, batch: &StateBatch) -> Result<bool>;

    /// The next rows behind one, by id, [`MAX_ROWS`] at most; none at the end.
    ///
    /// # Errors
    /// The table cannot be read.
    fn read_after(&self, row: Option<&RowId>) -> Result<Vec<SealedRow>>;
}
