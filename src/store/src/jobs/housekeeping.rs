//! Work that the job database needs from time to time, as far as its engine does.

use std::future::ready;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{JobLog, JobQueries, Pending, Removed, Retention, Size};
use crate::error::Result;

/// An open job database, whatever its engine.
#[derive(Clone)]
pub struct Engine {
    /// The writer.
    pub log: Arc<dyn JobLog>,
    /// A reader; its busy users take one of their own ([`JobQueries::another`]).
    pub queries: Arc<dyn JobQueries>,
    /// Its housekeeping.
    pub housekeeping: Arc<dyn Housekeeping>,
}

/// Housekeeping of an engine. What an engine has no need of does nothing.
///
/// Of the asynchronous ones holds what [`JobLog`] says. None waits for a database that is being
/// recovered: it fails with [`StoreError::Displaced`](crate::StoreError::Displaced).
pub trait Housekeeping: Send + Sync {
    /// The place of the database, for people.
    fn place(&self) -> &Path;

    /// Removes about `slice` rows at most that need not be kept, in one short transaction; `None`
    /// says that everything else is to be kept.
    fn remove_slice(&self, retention: Retention, slice: usize) -> Pending<Option<Removed>>;

    /// Whether batches can be appended. `now` is in seconds since 1970. Cheap enough for every batch.
    fn condition(&self, now: i64) -> Result<Condition> {
        let _ = now;
        Ok(Condition::Ready)
    }

    /// Puts a database to rights that is not ready; whether it is ready now. `now` is in seconds since
    /// 1970. Takes as long as the disk takes for all of it. The engine logs what it does.
    fn recover(&self, now: i64) -> Pending<bool> {
        let _ = now;
        Box::pin(ready(Ok(true)))
    }

    /// Bytes on the disk; `None` of an engine that keeps none here.
    fn size(&self) -> Pending<Option<Size>> {
        Box::pin(ready(Ok(None)))
    }

    /// The free space; `None` of an engine that has no disk here.
    fn room(&self) -> Pending<Option<FreeSpace>> {
        Box::pin(ready(Ok(None)))
    }

    /// Keeps space back for when the disk is full, unless it is kept already. `total` is
    /// [`FreeSpace::total`].
    fn hold_reserve(&self, total: u64) -> Pending<()> {
        let _ = total;
        Box::pin(ready(Ok(())))
    }

    /// Gives the reserve up; how many bytes it had.
    fn release_reserve(&self) -> Pending<u64> {
        Box::pin(ready(Ok(0)))
    }

    /// Whether a checkpoint is due since the last batch.
    fn checkpoint_is_due(&self) -> bool {
        false
    }

    /// One pass of a checkpoint beside the writer, which goes on meanwhile; blocks. Whether so little
    /// is left that [`Self::finish_checkpoint`] is a matter of milliseconds.
    fn checkpoint(&self) -> Result<bool> {
        Ok(true)
    }

    /// Ends a checkpoint between two batches.
    fn finish_checkpoint(&self) -> Pending<()> {
        Box::pin(ready(Ok(())))
    }

    /// Reads the next slice for damage, and blocks meanwhile; `true` when that was the last one, and
    /// the next begins anew.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`](crate::StoreError::Corrupt) for damage, which is then passed over by
    /// the next slice as far as it is known where it ends.
    fn scrub(&self, scrub: &mut Scrub, slice: ScrubSlice) -> Result<bool> {
        *scrub = Scrub::default();
        let _ = slice;
        Ok(true)
    }
}

/// Whether a database takes batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It takes them.
    Ready,
    /// It is not where it should be: what it took now would be lost.
    Displaced {
        /// It may be recovered now; after failures that is so at growing intervals.
        is_due: bool,
    },
    /// It is being recovered.
    Recovering,
}

/// Space that can still be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreeSpace {
    /// Bytes free on the file system, and those in the database that are used before it grows.
    pub free: u64,
    /// Bytes of the whole file system.
    pub total: u64,
}

/// Counts of one slice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Jobs.
    pub jobs: u64,
    /// Returns.
    pub returns: u64,
}

/// Result of recovering a damaged database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The damage.
    pub damage: String,
    /// Its present path.
    pub set_aside: PathBuf,
    /// Jobs that were copied.
    pub jobs: u64,
    /// Returns that were copied.
    pub returns: u64,
    /// It took too long: not everything has been tried.
    pub is_cut_short: bool,
}

/// Recovery of a displaced database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// Another file had its place, and is here now.
    pub set_aside: Option<PathBuf>,
}

/// Cursor of a scrub. A new one begins at the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scrub {
    pub(crate) table: usize,
    /// The number of the last row that was read.
    pub(crate) after: i64,
}

/// How much is read at once.
#[derive(Clone, Copy, Debug)]
pub struct ScrubSlice {
    /// Rows.
    pub rows: usize,
    /// Bytes of their texts and blobs; the row that exceeds it is the last one.
    pub bytes: usize,
}
