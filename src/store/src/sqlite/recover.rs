//! A damaged job database: set aside under a name of its own, and what can be read of it copied
//! into a new one, so that the master starts.
//!
//! Tables are read by the numbers of their rows, the newest first. Where a page cannot be read, the
//! walk goes on behind it: first in growing steps until rows can be read again, then from there
//! back towards the damage. Rows keep their numbers; the new database has an identity of its own,
//! so followers such as the mirror begin anew. When it takes too long the rest stays where it is,
//! in the file that was set aside, for SQLite's own `.recover`.
//!
//! The new one is made beside the damaged one, and takes its place only when it is whole: a process
//! that dies meanwhile begins anew at its next start.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, Row, params_from_iter};

use super::schema::{self, wrap};
use super::{DatabaseLimits, JobDatabase, audit, events};
use crate::error::{Result, StoreError};
use crate::files::{self, Create, beside};
use crate::jobs::{AUDIT_COLUMNS, Recovered};

/// Rows read, and then written, at once.
const BATCH: usize = 1_000;

/// The tables in the order of their worth, with the columns of the first layout. Later ones are
/// copied if the damaged database has them.
const TABLES: [Table; 8] = [
    Table {
        name: "jobs",
        columns: &[
            "id", "jid", "created", "user", "fun", "tgt", "tgt_type", "nocache", "state", "load",
            "notes",
        ],
        later: &[
            "published",
            "finished",
            "publisher",
            "reporter",
            "returns_before",
        ],
    },
    Table {
        name: "expected_part",
        columns: &["id", "jid", "minions"],
        later: &[],
    },
    Table {
        name: "returns",
        columns: &[
            "id", "jid", "minion", "received", "fun", "retcode", "success", "load",
        ],
        later: &[],
    },
    Table {
        name: "batches",
        columns: &["rowid", "jid", "is_open", "halted", "plan"],
        later: &["paused_since"],
    },
    Table {
        name: "batch_failed",
        columns: &["id", "jid", "reason", "minions"],
        later: &[],
    },
    Table {
        name: "audit",
        columns: &AUDIT_COLUMNS,
        later: &[],
    },
    Table {
        name: "events",
        columns: &["id", "received", "tag", "data"],
        later: &["position"],
    },
    Table {
        name: "minion_events",
        columns: &["id", "received", "tag", "data"],
        later: &["position"],
    },
];

struct Table {
    name: &'static str,
    columns: &'static [&'static str],
    later: &'static [&'static str],
}

impl JobDatabase {
    /// Opens the database as [`JobDatabase::open`] does. One that is damaged is set aside, and what
    /// can be read of it is copied into a new one, until `is_enough` says so.
    ///
    /// `stamp` makes the new name, as a rule Unix seconds.
    ///
    /// # Errors
    /// As for [`JobDatabase::open`], but for damage.
    pub fn open_or_recover(
        path: &Path,
        limits: DatabaseLimits,
        stamp: i64,
        is_enough: &dyn Fn() -> bool,
    ) -> Result<(Self, Option<Recovered>)> {
        finish(path, stamp)?;
        let damage = match Self::open(path, limits) {
            Err(StoreError::Corrupt { detail, .. }) => detail,
            other => return Ok((other?, None)),
        };
        // Whatever becomes of this attempt: a large database would not be examined again.
        schema::suspect(path);
        let building = beside(path, ".recovering");
        remove_database(&building)?;
        let database = Self::open(&building, limits)?;
        let mut recovered = Recovered {
            damage,
            set_aside: PathBuf::new(),
            jobs: 0,
            returns: 0,
            is_cut_short: false,
        };
        copy(&database, path, &mut recovered, is_enough)?;
        // Checkpoints its log and removes it: one file is one rename.
        database
            .connection
            .pragma_update(None, "journal_mode", "delete")
            .map_err(|error| wrap(&building, "recover", error))?;
        drop(database);
        rename(&building, &beside(path, BUILT))?;
        recovered.set_aside = finish(path, stamp)?.unwrap_or_default();
        // The numbering begins behind what was copied.
        Ok((Self::open(path, limits)?, Some(recovered)))
    }
}

/// Suffix of the new database between its completion and its taking the place of the damaged one.
const BUILT: &str = ".recovered";

/// Puts a recovered database that is whole in the place of the damaged one; where that is now.
fn finish(path: &Path, stamp: i64) -> Result<Option<PathBuf>> {
    let built = beside(path, BUILT);
    if !built.exists() {
        return Ok(None);
    }
    let set_aside = schema::set_aside(path, stamp)?;
    let page = beside(path, FIRST_PAGE);
    if page.exists() {
        rename(&page, &beside(&set_aside, FIRST_PAGE))?;
    }
    rename(&built, path)?;
    Ok(Some(set_aside))
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to).map_err(|error| StoreError::io("put in place", to, error))?;
    files::sync_dir(to.parent().unwrap_or(Path::new(".")))
}

/// Files that an interrupted attempt has left.
fn remove_database(path: &Path) -> Result<()> {
    for suffix in ["", "-wal", "-shm"] {
        files::remove(&beside(path, suffix))?;
    }
    Ok(())
}

/// # Errors
/// Only those of the new database.
fn copy(
    database: &JobDatabase,
    damaged: &Path,
    recovered: &mut Recovered,
    is_enough: &dyn Fn() -> bool,
) -> Result<()> {
    let damaged = match open_damaged(damaged, database.path()) {
        Ok(damaged) => damaged,
        Err(error) => {
            tracing::warn!(%error, "the damaged job database cannot be read at all");
            return Ok(());
        }
    };
    for table in &TABLES {
        let mut walk = Walk::new(&damaged, table, is_enough);
        let mut rows = 0;
        while let Some(batch) = walk.next_batch() {
            rows += database.insert_rows(table.name, &walk.columns, &batch)?;
        }
        recovered.is_cut_short |= walk.is_cut_short;
        match table.name {
            "jobs" => recovered.jobs = rows,
            "returns" => recovered.returns = rows,
            _ => {}
        }
    }
    audit::copy_anchor(&damaged, &database.connection)
        .map_err(|error| wrap(database.path(), "recover", error))?;
    events::number_copied(&database.connection)
        .map_err(|error| wrap(database.path(), "recover", error))
}

impl JobDatabase {
    /// Rows that do not fit the layout are passed over.
    fn insert_rows(&self, table: &str, columns: &[&str], rows: &[Vec<Value>]) -> Result<u64> {
        let insert = || -> rusqlite::Result<u64> {
            let transaction = self.connection.unchecked_transaction()?;
            let places = vec!["?"; columns.len()].join(", ");
            let mut statement = transaction.prepare_cached(&format!(
                "INSERT OR IGNORE INTO {table} ({}) VALUES ({places})",
                columns.join(", ")
            ))?;
            let mut inserted = 0;
            for row in rows {
                match statement.execute(params_from_iter(row)) {
                    Ok(rows) => inserted += rows as u64,
                    Err(error) if is_of_the_row(&error) => {}
                    Err(error) => return Err(error),
                }
            }
            drop(statement);
            transaction.commit()?;
            Ok(inserted)
        };
        insert().map_err(|error| wrap(self.path(), "recover", error))
    }
}

/// A value of the wrong type, which damage has made.
fn is_of_the_row(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(rusqlite::ErrorCode::ConstraintViolation)
}

/// Suffix of the file that keeps the first page of the damaged file if it had to be replaced.
const FIRST_PAGE: &str = ".first-page";

/// Opens the damaged file. If its first page is not that of a database, it gets the first page of
/// the new one, which was laid out by the same steps; the old page is kept beside it.
fn open_damaged(path: &Path, fresh: &Path) -> Result<Connection> {
    let open = || -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(path, flags)?;
        // Whatever the file says of itself, nothing in it is run.
        connection.pragma_update(None, "trusted_schema", false)?;
        connection.pragma_update(None, "cell_size_check", true)?;
        // Its log stays as it is, too.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| {
            row.get::<_, i64>(0)
        })?;
        Ok(connection)
    };
    let failed = |error| wrap(path, "recover", error);
    match open() {
        Ok(connection) => Ok(connection),
        Err(error) => {
            if !failed(error).is_corrupt() {
                return open().map_err(failed);
            }
            replace_first_page(path, fresh)?;
            open().map_err(failed)
        }
    }
}

fn replace_first_page(path: &Path, fresh: &Path) -> Result<()> {
    let failed = |source| StoreError::io("recover", path, source);
    let mut page = vec![0; schema::PAGE_BYTES as usize];
    let damaged = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .map_err(failed)?;
    damaged.read_exact_at(&mut page, 0).map_err(failed)?;
    let kept = beside(path, FIRST_PAGE);
    // A second attempt finds the replacement.
    files::create_new(&kept, &page, Create::PRIVATE)?;
    // The new database may have its first page in its log only.
    let source = Connection::open(fresh).map_err(|error| wrap(fresh, "recover", error))?;
    source
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .map_err(|error| wrap(fresh, "recover", error))?;
    let fresh = fs::File::open(fresh).map_err(failed)?;
    fresh.read_exact_at(&mut page, 0).map_err(failed)?;
    // The number of pages, big-endian at 28, is that of this file.
    let pages = damaged.metadata().map_err(failed)?.len() / schema::PAGE_BYTES;
    let pages = u32::try_from(pages).unwrap_or(u32::MAX);
    if let Some(place) = page.get_mut(28..32) {
        place.copy_from_slice(&pages.to_be_bytes());
    }
    damaged.write_all_at(&page, 0).map_err(failed)
}

/// Reads the rows of one table, damage or not.
struct Walk<'a> {
    damaged: &'a Connection,
    table: &'static str,
    columns: Vec<&'static str>,
    is_enough: &'a dyn Fn() -> bool,
    is_cut_short: bool,
    /// Rows below this number have not been tried.
    below: i64,
    /// Behind damage that was jumped over: rows above this number, and below the one given, are
    /// tried before the walk goes on.
    gap: Option<(i64, i64)>,
}

impl<'a> Walk<'a> {
    fn new(damaged: &'a Connection, table: &Table, is_enough: &'a dyn Fn() -> bool) -> Self {
        let has = |column: &&&str| {
            let sql = format!("SELECT {column} FROM {} LIMIT 0", table.name);
            damaged.prepare(&sql).is_ok()
        };
        let later = table.later.iter().filter(has);
        Self {
            damaged,
            table: table.name,
            columns: table.columns.iter().chain(later).copied().collect(),
            is_enough,
            is_cut_short: false,
            below: i64::MAX,
            gap: None,
        }
    }

    /// The next rows; nothing when there are no more that can be read.
    fn next_batch(&mut self) -> Option<Vec<Vec<Value>>> {
        loop {
            if (self.is_enough)() {
                self.is_cut_short = true;
                return None;
            }
            if let Some((above, below)) = self.gap.take() {
                let (rows, is_damaged) =
                    self.read("rowid > ?1 AND rowid < ?2", "ASC", (above, below));
                // Up to the damage that was jumped over, and no further.
                if let Some(last) = rows.last().and_then(|row| number(row))
                    && !is_damaged
                {
                    self.gap = Some((last, below));
                }
                if !rows.is_empty() {
                    return Some(rows);
                }
                continue;
            }
            let (rows, is_damaged) =
                self.read("rowid < ?1 AND rowid > ?2", "DESC", (self.below, i64::MIN));
            if let Some(last) = rows.last().and_then(|row| number(row)) {
                self.below = last;
            }
            if is_damaged && !self.jump() {
                self.below = i64::MIN;
            }
            if !rows.is_empty() {
                return Some(rows);
            }
            if !is_damaged || self.below == i64::MIN {
                return None;
            }
        }
    }

    /// Goes on below the damage, in growing steps; `false` when nothing below can be read.
    fn jump(&mut self) -> bool {
        let mut step: i64 = 1;
        // From the top of the table, whose highest number is unknown, the numbers fall quickly.
        let mut below = self.below;
        loop {
            if (self.is_enough)() {
                self.is_cut_short = true;
                return false;
            }
            below = match below {
                i64::MAX => 1 << 40,
                other => other.saturating_sub(step),
            };
            step = step.saturating_mul(2);
            if below <= 0 {
                return false;
            }
            let sql = format!(
                "SELECT rowid FROM {} WHERE rowid < ?1 ORDER BY rowid DESC LIMIT 1",
                self.table
            );
            let found = self
                .damaged
                .query_row(&sql, [below], |row| row.get::<_, i64>(0));
            if let Ok(found) = found {
                self.gap = Some((found, self.below));
                self.below = found.saturating_add(1);
                return true;
            }
        }
    }

    /// Some rows, and whether they end because one could not be read.
    fn read(&self, range: &str, order: &str, bounds: (i64, i64)) -> (Vec<Vec<Value>>, bool) {
        let sql = format!(
            "SELECT {} FROM {} WHERE {range} ORDER BY rowid {order} LIMIT {BATCH}",
            self.columns.join(", "),
            self.table
        );
        let mut rows = Vec::new();
        let Ok(mut statement) = self.damaged.prepare(&sql) else {
            return (rows, true);
        };
        let columns = self.columns.len();
        let Ok(found) = statement.query_map(bounds, |row| values(row, columns)) else {
            return (rows, true);
        };
        for row in found {
            match row {
                Ok(row) => rows.push(row),
                Err(_) => return (rows, true),
            }
        }
        (rows, false)
    }
}

fn values(row: &Row<'_>, columns: usize) -> rusqlite::Result<Vec<Value>> {
    (0..columns).map(|column| row.get(column)).collect()
}

fn number(row: &[Value]) -> Option<i64> {
    match row.first() {
        Some(Value::Integer(id)) => Some(*id),
        _ => None,
    }
}
