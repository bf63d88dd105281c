//! Tables of sealed rows that every member of a cluster follows: a reader goes on behind the last row that it
//! has seen, in the order in which rows were changed.

use super::{RowId, SealedRow};
use crate::error::Result;

/// Position of a reader behind a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowPosition {
    /// The revision of the row.
    pub revision: i64,
    /// Its id.
    pub id: RowId,
}

/// Rows in the order in which they were changed.
#[derive(Debug, Default)]
pub struct RowPage {
    /// The last revision of the table, before the rows were read.
    pub head: i64,
    /// The time of the table's clock, by which rows expire; microseconds since 1970.
    pub now: i64,
    /// The rows, each with its revision; [`MAX_ROWS`](super::MAX_ROWS) at most.
    pub rows: Vec<(i64, SealedRow)>,
    /// No row was behind these.
    pub is_last: bool,
}

impl RowPosition {
    /// The one behind all rows of a revision.
    pub(super) const fn behind(revision: i64) -> Self {
        let id = [u8::MAX; size_of::<RowId>()];
        Self { revision, id }
    }

    /// The one behind a row.
    pub(super) const fn of(revision: i64, row: &SealedRow) -> Self {
        let id = row.id;
        Self { revision, id }
    }

    /// Whether a page is of another database than the one that was read so far, or of an earlier time.
    pub(super) const fn is_ahead_of(&self, page: &RowPage) -> bool {
        page.head < self.revision
    }
}

/// A table whose rows have the revision of their last change. Blocks.
///
/// Revisions count transactions: when one is seen, so are all of before.
pub trait RevisionTable: Send + Sync {
    /// The next rows behind a position.
    ///
    /// # Errors
    /// The table cannot be read.
    fn changed_after(&self, position: &RowPosition) -> Result<RowPage>;
}
