//! Keys of minions that the masters of a cluster share: `pki_dir` of each member is a mirror of one table, in
//! both directions.
//!
//! A row is a minion with all its keys (`record`), sealed as other shared state is; a deleted minion keeps a
//! row without keys for [`TOMBSTONE_AGE`]. Every member writes, the active one and those that stand by: stock's
//! `salt-key` works on files of its own machine. A write names the version that it replaces, so of two members
//! that change a minion at once the second one finds the row of the first, and merges.
//!
//! What a member has seen of each row is kept in a file (`memory`): a change of its own is what differs from
//! it, and a row that is older than it was put back by somebody, and is replaced. So whoever can write to the
//! database can neither make a key nor bring one back, but for members that have seen nothing yet.
//!
//! Not here: the table (beside the cluster's engine of the job database), and who the minions are.
//!
//! Suggested reading order: `record`, `memory`, `scan`, `round`, `member`.

mod member;
mod memory;
mod record;
mod refusal;
mod round;
mod scan;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::time::Duration;

pub use member::{KeyCounters, KeyFigures, KeySyncParts, MinionKeySync};
pub use memory::keys_no_longer_accepted;
pub use refusal::keys_not_shared;

use super::{RevisionTable, RowId, SealedRow};
use crate::error::Result;

/// The kind of rows, beside those of files.
const KIND: u8 = 6;

/// Name of the row that says that the table has the keys of a cluster; no minion has it.
const MARKER: &str = "";

/// Time for which the row of a deleted minion is kept at least.
pub const TOMBSTONE_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// A row to be written.
#[derive(Clone, Debug)]
pub struct KeyWrite {
    /// The row.
    pub row: SealedRow,
    /// The version that it replaces; 0 when there is no row.
    pub replaces: i64,
    /// It has no keys, so it is removed some time later.
    pub is_tombstone: bool,
}

/// The table of keys, as every member has it. Blocks.
pub trait KeyTable: RevisionTable {
    /// Writes rows that replace the version that is there; those that were written. A row that is not there
    /// is replaced by any.
    ///
    /// # Errors
    /// Nobody knows what was committed.
    fn write(&self, rows: &[KeyWrite]) -> Result<HashSet<RowId>>;

    /// Removes all rows, unless the one of this id is there.
    ///
    /// # Errors
    /// Nobody knows whether they were removed.
    fn clear_unless(&self, marker: &RowId) -> Result<()>;

    /// Removes rows of deleted minions that are older; how many.
    ///
    /// # Errors
    /// Nobody knows whether they were removed.
    fn expire(&self, age: Duration) -> Result<u64>;
}
