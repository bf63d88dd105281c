//! SQLite as the engine of the job database: one file, or several while it is open.
//!
//! One writer ([`JobDatabase`]) commits batches; any number of readers look at the last committed
//! state and never wait for it.

mod audit;
mod batches;
mod checkpoint;
mod database;
mod displaced;
mod engine;
mod events;
mod import;
mod listing;
mod presence_events;
mod queries;
mod reader;
mod recover;
mod retention;
mod returns_of;
mod room;
mod schema;
mod scrub;
mod search;
mod summary;
mod tables;

pub use checkpoint::{CheckpointPass, Checkpointer};
pub use database::JobDatabase;
pub use displaced::{incidents, is_lost, note_incident};
pub use engine::SqliteEngine;
pub use reader::{examine, open_reader};
pub use schema::set_aside;
pub use scrub::Scrubber;
pub use tables::{NewSqliteTables, SqliteTables};

/// Bounds of the database.
#[derive(Clone, Copy, Debug)]
pub struct DatabaseLimits {
    /// The largest the main file may grow, in bytes; `None` for as large as the disk.
    pub max_bytes: Option<u64>,
    /// Page cache of the writer, in bytes; a reader takes an eighth of it.
    pub cache_bytes: u32,
    /// Files up to this size are examined as a whole when they are opened, in bytes; larger ones
    /// would delay the start, and are when damage was met while they were in use.
    pub check_bytes: u64,
    /// The log counts as long ([`JobDatabase::checkpoint_is_due`]) after so many changes; a large one
    /// counts as its pages of 4 KiB.
    pub checkpoint_changes: u64,
    /// With so many pages of 4 KiB the log is checkpointed within a commit, because no
    /// [`Checkpointer`] did it: bounds what it takes on the disk.
    pub checkpoint_pages: u32,
}

impl Default for DatabaseLimits {
    fn default() -> Self {
        Self {
            max_bytes: None,
            cache_bytes: 2 << 20,
            check_bytes: 64 << 20,
            checkpoint_changes: 4_000,
            checkpoint_pages: 100_000,
        }
    }
}
