//! The job database as rows of tables, by which it moves from one engine to another.
//!
//! Each engine keeps the same columns. What their types are called differs, and where a list of minions is
//! kept: here it is JSON.

use crate::error::Result;

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// A number.
    Integer,
    /// A number that is 0 or 1.
    Flag,
    /// A text.
    Text,
    /// A jid, or the id of a minion.
    Name,
    /// Bytes.
    Bytes,
    /// Names: a JSON array as a text.
    Names,
}

/// A value of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableValue {
    /// None.
    Null,
    /// Of an integer or a flag.
    Integer(i64),
    /// Of a text, a name or names.
    Text(String),
    /// Of bytes.
    Bytes(Vec<u8>),
}

impl TableValue {
    /// About its size in memory, in bytes.
    pub fn size(&self) -> usize {
        let own = size_of::<Self>();
        match self {
            Self::Null | Self::Integer(_) => own,
            Self::Text(text) => own + text.len(),
            Self::Bytes(bytes) => own + bytes.len(),
        }
    }
}

/// A row: a value for each column of its table.
pub type TableRow = Vec<TableValue>;

/// A table.
#[derive(Debug)]
pub struct Table {
    /// Its name.
    pub name: &'static str,
    /// The columns, in the order of a row's values.
    pub columns: &'static [(&'static str, ColumnType)],
}

use ColumnType::{Bytes, Flag, Integer, Name, Names, Text};

/// Jobs.
const JOBS: Table = Table {
    name: "jobs",
    columns: &[
        ("id", Integer),
        ("jid", Name),
        ("created", Integer),
        ("user", Text),
        ("fun", Text),
        ("tgt", Text),
        ("tgt_type", Text),
        ("nocache", Flag),
        ("state", Integer),
        ("load", Bytes),
        ("notes", Bytes),
        ("published", Integer),
        ("finished", Integer),
        ("publisher", Name),
        ("reporter", Name),
        ("returns_before", Integer),
    ],
};

/// The minions that a job was published for, in parts.
const EXPECTED: Table = Table {
    name: "expected_part",
    columns: &[("jid", Name), ("minions", Names)],
};

/// Returns.
const RETURNS: Table = Table {
    name: "returns",
    columns: &[
        ("id", Integer),
        ("jid", Name),
        ("minion", Name),
        ("received", Integer),
        ("fun", Text),
        ("retcode", Integer),
        ("success", Flag),
        ("load", Bytes),
    ],
};

/// Batches.
const BATCHES: Table = Table {
    name: "batches",
    columns: &[
        ("jid", Name),
        ("is_open", Flag),
        ("halted", Text),
        ("plan", Bytes),
        ("paused_since", Integer),
    ],
};

/// Minions that failed in a batch, in parts.
const BATCH_FAILED: Table = Table {
    name: "batch_failed",
    columns: &[("jid", Name), ("reason", Text), ("minions", Names)],
};

/// Kept events of the bus.
pub const EVENTS: Table = Table {
    name: "events",
    columns: &[
        ("position", Integer),
        ("received", Integer),
        ("tag", Text),
        ("data", Bytes),
        ("of_minion", Flag),
    ],
};

/// The audit trail.
const AUDIT: Table = Table {
    name: "audit",
    columns: &[
        ("number", Integer),
        ("at", Integer),
        ("door", Text),
        ("user", Text),
        ("backend", Text),
        ("proof", Text),
        ("origin", Text),
        ("cmd", Text),
        ("fun", Text),
        ("tgt", Text),
        ("tgt_type", Text),
        ("arguments", Text),
        ("verdict", Text),
        ("reason", Text),
        ("jid", Text),
        ("suppressed", Integer),
        ("hash", Bytes),
    ],
};

/// All tables, in the order in which they are moved.
const TABLES: [&Table; 7] = [
    &JOBS,
    &EXPECTED,
    &RETURNS,
    &BATCHES,
    &BATCH_FAILED,
    &EVENTS,
    &AUDIT,
];

/// State of a job database beside its rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DatabaseState {
    /// Its identity: followers of the numbers know by it that their place still holds.
    pub identity: String,
    /// The highest number that a job ever had.
    pub last_job: i64,
    /// The highest number that a return ever had.
    pub last_return: i64,
    /// The highest position that an event ever had.
    pub last_event: i64,
    /// The number and hash of the last row that was removed from the audit trail, as `NUMBER:HASH`.
    pub audit_anchor: Option<String>,
    /// Whether stock's job cache has been read.
    pub is_imported: bool,
}

/// A job database that nobody writes to, as rows.
pub trait TableSource {
    /// Its state beside its rows.
    ///
    /// # Errors
    /// It cannot be read.
    fn state(&mut self) -> Result<DatabaseState>;

    /// Gives all rows of a table, in the order in which they were made; ends with the first error of
    /// `take`.
    ///
    /// # Errors
    /// It cannot be read, or what `take` says.
    fn rows(
        &mut self,
        table: &'static Table,
        take: &mut dyn FnMut(TableRow) -> Result<()>,
    ) -> Result<()>;

    /// Confirms, when all rows are given, that nobody has written meanwhile.
    ///
    /// # Errors
    /// Somebody may have.
    fn confirm(&mut self) -> Result<()>;
}

/// A new job database, to be filled with rows. Nothing of it counts before [`TableTarget::finish`].
pub trait TableTarget {
    /// Adds a row.
    ///
    /// # Errors
    /// It cannot be written.
    fn put(&mut self, table: &'static Table, row: TableRow) -> Result<()>;

    /// Makes it count, with what it is beside its rows.
    ///
    /// # Errors
    /// It cannot be written. Nothing counts then.
    fn finish(self, state: &DatabaseState) -> Result<()>;
}

/// Rows that were moved, by table.
pub type Moved = Vec<(&'static str, u64)>;

/// Moves a whole job database into a new one.
///
/// # Errors
/// What one of the two says; the new one does not count then.
pub fn move_tables(source: &mut impl TableSource, mut target: impl TableTarget) -> Result<Moved> {
    let state = source.state()?;
    let mut moved = Moved::new();
    for table in TABLES {
        let mut rows = 0;
        source.rows(table, &mut |row| {
            rows += 1;
            target.put(table, row)
        })?;
        moved.push((table.name, rows));
    }
    source.confirm()?;
    target.finish(&state)?;
    Ok(moved)
}
