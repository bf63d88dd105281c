//! Grains and mines that the masters of a cluster share: the active one writes them into a table, and those that stand
//! by make their `cachedir` so. So a target by grains means the same minions after a takeover, and `mine.get` gives
//! the same.
//!
//! A row is the grains, or the mine, of one minion, sealed as other shared state is; what was removed keeps a row
//! without content for [`TOMBSTONE_AGE`]. Only what differs from the row is written, once a minute at most for each
//! minion, and the last state counts. Nothing waits for it, and nothing is queued but names: what is to be written is
//! read from the file when its turn comes.
//!
//! Pillars are not shared. A row of a third kind says that those of a minion are forgotten, so that a member which was
//! active earlier does not use those of an owner before.
//!
//! Not here: the table (beside the cluster's engine of the job database), and who may use what.
//!
//! Suggested reading order: `content`, `rounds`, `past`, `member`.

mod content;
mod member;
mod past;
mod rounds;
#[cfg(test)]
mod tests;

use std::time::Duration;

use saltern_model::MinionId;

pub use member::{DataCounters, DataFigures, DataSyncParts, MinionDataSync};

use super::{RevisionTable, SealedRow};
use crate::error::Result;
use crate::minion_data::DataKind;

/// Time for which the row of something that was removed is kept at least.
pub const TOMBSTONE_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// Longest data of a minion that is shared, packed.
const MAX_DATA_LEN: usize = 256 << 10;

/// Longest sealed row of it: with a name of 255 bytes, its writer, salt and authentication tag.
pub const MAX_SEALED_LEN: usize = MAX_DATA_LEN + 1024;

/// Number of a kind in rows, beside those of files and keys, and [`FORGOTTEN`].
const fn number_of(kind: DataKind) -> u8 {
    match kind {
        DataKind::Grains => 7,
        DataKind::Mine => 8,
    }
}

/// The number of rows that say what is forgotten of a minion beside data of a kind. They have no data.
const FORGOTTEN: u8 = 9;

/// Says whether a minion has a key, in whatever state.
pub type HasKey = Box<dyn Fn(&MinionId) -> bool + Send + Sync>;

/// Looks for keys of minions, whose data does not outlast them.
pub struct KeyLookup {
    /// Looks for one.
    pub has_key: HasKey,
    /// Says whether their directory is that of this master, and not one that is lost, or not mounted.
    pub are_here: Box<dyn Fn() -> bool + Send + Sync>,
}

/// A row to be written.
#[derive(Clone, Debug)]
pub struct DataWrite {
    /// The row, which replaces one of a lower version.
    pub row: SealedRow,
    /// It has no content, so it is removed some time later.
    pub is_tombstone: bool,
}

/// The table of grains and mines, as every member reads it and the active one writes it. Blocks.
pub trait DataTable: RevisionTable {
    /// The first version of this owner, above all of the owners before.
    ///
    /// # Errors
    /// This member is not the active one.
    fn first_version(&self) -> Result<i64>;

    /// Writes rows; their revision, or none, and nothing is changed, when this member is not the active one.
    ///
    /// # Errors
    /// Nobody knows whether they were written.
    fn write(&self, rows: &[DataWrite]) -> Result<Option<i64>>;

    /// Removes rows without content that are older; how many.
    ///
    /// # Errors
    /// Nobody knows whether they were removed.
    fn expire(&self, age: Duration) -> Result<u64>;
}
