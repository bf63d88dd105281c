//! Housekeeping of an engine.

use std::path::PathBuf;

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
