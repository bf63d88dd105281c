//! Checkpoints the write-ahead log of the job database on a connection beside the writer.
//!
//! SQLite's own checkpoint runs inside the commit that finds the log long: every return in that
//! commit then waits until thousands of pages are on the disk. A connection of its own does the
//! same work while commits go on. What they add meanwhile is checkpointed by the writer
//! ([`super::JobDatabase::checkpoint`]), because only a complete checkpoint resets the log.

use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use rusqlite::Connection;
use saltern_base::fail_point::FailPoint;

use super::displaced::{FileId, file_id, identified};
use super::schema::{self, wrap};
use crate::error::Result;

/// Result of one checkpoint pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CheckpointPass {
    /// Pages in the write-ahead log.
    pub log: u64,
    /// Pages of it that the main file has too.
    pub folded: u64,
}

impl CheckpointPass {
    /// Pages that are only in the log.
    pub fn left(self) -> u64 {
        self.log.saturating_sub(self.folded)
    }
}

/// Connection that checkpoints beside the writer.
pub struct Checkpointer {
    /// With the file that it has open.
    connection: Mutex<(Connection, Option<FileId>)>,
    path: PathBuf,
}

impl Checkpointer {
    pub(super) fn open(path: &Path) -> Result<Self> {
        Ok(Self {
            connection: Mutex::new(identified(path, || schema::open_checkpointer(path))?),
            path: path.to_path_buf(),
        })
    }

    /// Checkpoints what was in the log when it began, as far as readers allow it (`PASSIVE`). The
    /// writer does not wait for it; the disk is shared.
    pub fn fold(&self) -> Result<CheckpointPass> {
        let mut open = self.connection.lock();
        // The writer has put another file in its place.
        let found = file_id(&self.path)?;
        if found.is_some() && found != open.1 {
            *open = (schema::open_checkpointer(&self.path)?, found);
        }
        fold(&open.0, &self.path)
    }
}

/// One pass, by whichever connection.
pub(super) fn fold(connection: &Connection, path: &Path) -> Result<CheckpointPass> {
    let pass = || {
        connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
            // Both are -1 during a checkpoint of another connection.
            let pages = |column| row.get(column).map(|pages: i64| u64::try_from(pages).ok());
            Ok(CheckpointPass {
                log: pages(1)?.unwrap_or(0),
                folded: pages(2)?.unwrap_or(0),
            })
        })
    };
    FailPoint::CheckpointWithin
        .within(pass)
        .map_err(|error| wrap(path, "checkpoint", error))
}
