//! The database as rows of tables, to be moved to or from another engine.
//!
//! Events lie in two tables here, which share their positions.

use std::path::{Path, PathBuf};

use rusqlite::types::{ToSql, ToSqlOutput, Type, ValueRef};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _, Row, params_from_iter};

use super::database::next_id;
use super::schema::{self, wrap};
use super::{DatabaseLimits, JobDatabase, audit, events, import};
use crate::error::{Result, StoreError};
use crate::jobs::{DatabaseState, EVENTS, Table, TableRow, TableSource, TableTarget, TableValue};

/// Rows of a transaction.
const ROWS: usize = 1_000;
/// Bytes of a transaction.
const BYTES: usize = 16 << 20;

/// The rows of a database that no master has open.
pub struct SqliteTables {
    connection: Connection,
    path: PathBuf,
}

impl SqliteTables {
    /// Opens a database, brings it to today's layout, and keeps all others from writing to it.
    ///
    /// # Errors
    /// It is not there, is damaged, or somebody writes to it.
    pub fn open(path: &Path) -> Result<Self> {
        let connection = schema::open_writer(path, &DatabaseLimits::default())?;
        let locked = connection.execute_batch("BEGIN IMMEDIATE");
        locked.map_err(|error| wrap(path, "lock", error))?;
        Ok(Self {
            connection,
            path: path.to_owned(),
        })
    }

    fn read<T>(&self, read: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        read(&self.connection).map_err(|error| wrap(&self.path, "read", error))
    }
}

impl TableSource for SqliteTables {
    fn state(&mut self) -> Result<DatabaseState> {
        self.read(|connection| {
            let text = |name: &str| {
                let sql = "SELECT CAST(value AS TEXT) FROM meta WHERE name = ?1";
                let found = connection.query_row(sql, [name], |row| row.get::<_, String>(0));
                found.optional()
            };
            let last = |table| -> rusqlite::Result<i64> { Ok(next_id(connection, table)? - 1) };
            Ok(DatabaseState {
                identity: text("identity")?.unwrap_or_default(),
                last_job: last("jobs")?,
                last_return: last("returns")?,
                last_event: events::next_position(connection)? - 1,
                audit_anchor: text(audit::ANCHOR)?,
                is_imported: text(import::DONE)?.is_some(),
            })
        })
    }

    fn rows(
        &mut self,
        table: &'static Table,
        take: &mut dyn FnMut(TableRow) -> Result<()>,
    ) -> Result<()> {
        let mut given = Ok(());
        self.read(|connection| {
            let mut statement = connection.prepare(&select(table))?;
            let mut rows = statement.query([])?;
            while let Some(row) = rows.next()? {
                given = take(row_of(table, row)?);
                if given.is_err() {
                    break;
                }
            }
            Ok(())
        })?;
        given
    }

    /// The lock lasts until this is dropped.
    fn confirm(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Files that belong to a database. A new one must not find the log of an old one.
const PARTS: [&str; 4] = ["", "-wal", "-shm", "-journal"];

/// A new database beside the place where it is to be. It is there once it is finished; else nothing is
/// left of it.
pub struct NewSqliteTables {
    /// Until it is finished.
    connection: Option<Connection>,
    path: PathBuf,
    unfinished: PathBuf,
    /// Rows and bytes of the open transaction.
    open: (usize, usize),
}

impl NewSqliteTables {
    /// Makes one. Not to be called while another process makes one at the same place.
    ///
    /// # Errors
    /// There is a database at the place already, or the log of one; or it cannot be made.
    pub fn create(path: &Path) -> Result<Self> {
        let relative = |error| StoreError::io("find", path, error);
        let path = std::path::absolute(path).map_err(relative)?;
        refuse_others(&path)?;
        let unfinished = crate::files::beside(&path, ".unfinished");
        remove_parts(&unfinished)?;
        let mut tables = Self {
            connection: None,
            path,
            unfinished,
            open: (0, 0),
        };
        drop(JobDatabase::open(
            &tables.unfinished,
            DatabaseLimits::default(),
        )?);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let opened = Connection::open_with_flags(&tables.unfinished, flags);
        let begun = opened.and_then(|connection| {
            connection.execute_batch("BEGIN")?;
            Ok(connection)
        });
        let connection = begun.map_err(|error| wrap(&tables.unfinished, "make", error))?;
        tables.connection = Some(connection);
        Ok(tables)
    }

    fn write(&self, write: impl FnOnce(&Connection) -> rusqlite::Result<()>) -> Result<()> {
        let Some(connection) = &self.connection else {
            return Ok(());
        };
        write(connection).map_err(|error| wrap(&self.unfinished, "write", error))
    }
}

impl TableTarget for NewSqliteTables {
    fn put(&mut self, table: &'static Table, row: TableRow) -> Result<()> {
        let size: usize = row.iter().map(TableValue::size).sum();
        self.write(|connection| {
            let sql = insert(table, &row);
            let values = row.iter().take(table_columns(table));
            let mut statement = connection.prepare_cached(&sql)?;
            statement.execute(params_from_iter(values.map(Stored)))?;
            Ok(())
        })?;
        self.open = (self.open.0 + 1, self.open.1 + size);
        if self.open.0 >= ROWS || self.open.1 >= BYTES {
            self.open = (0, 0);
            self.write(|connection| connection.execute_batch("COMMIT; BEGIN"))?;
        }
        Ok(())
    }

    fn finish(mut self, state: &DatabaseState) -> Result<()> {
        self.write(|connection| {
            let set = |name: &str, value: &dyn ToSql| {
                let sql = "INSERT OR REPLACE INTO meta (name, value) VALUES (?1, ?2)";
                connection.execute(sql, [&name as &dyn ToSql, value])
            };
            set("identity", &state.identity)?;
            set("jobs", &(state.last_job + 1))?;
            set("returns", &(state.last_return + 1))?;
            set("events", &(state.last_event + 1))?;
            if let Some(anchor) = &state.audit_anchor {
                set(audit::ANCHOR, anchor)?;
            }
            if state.is_imported {
                set(import::DONE, &1)?;
            }
            connection.execute_batch("COMMIT; PRAGMA wal_checkpoint(TRUNCATE)")
        })?;
        // The last connection removes the log.
        if let Some(connection) = self.connection.take() {
            let closed = connection.close();
            closed.map_err(|(_, error)| wrap(&self.unfinished, "close", error))?;
        }
        refuse_others(&self.path)?;
        // Unlike a renaming, a link replaces nothing that came meanwhile.
        let linked = std::fs::hard_link(&self.unfinished, &self.path);
        linked.map_err(|error| StoreError::io("create", &self.path, error))?;
        crate::files::remove(&self.unfinished)?;
        crate::files::sync_dir(self.path.parent().unwrap_or(Path::new("/")))
    }
}

impl Drop for NewSqliteTables {
    fn drop(&mut self) {
        drop(self.connection.take());
        // Nothing is there once it is finished.
        let _ = remove_parts(&self.unfinished);
    }
}

fn remove_parts(path: &Path) -> Result<()> {
    for part in PARTS {
        crate::files::remove(&crate::files::beside(path, part))?;
    }
    Ok(())
}

/// Refuses a place where a database is, or was.
fn refuse_others(path: &Path) -> Result<()> {
    for part in PARTS {
        let path = crate::files::beside(path, part);
        if path.exists() {
            let error = std::io::Error::from(std::io::ErrorKind::AlreadyExists);
            return Err(StoreError::io("make a job database at", &path, error));
        }
    }
    Ok(())
}

/// Columns that a row has here: which of its tables an event is in, its name says.
fn table_columns(table: &'static Table) -> usize {
    match table.name == EVENTS.name {
        true => table.columns.len() - 1,
        false => table.columns.len(),
    }
}

fn names(table: &'static Table) -> String {
    let columns = table.columns.iter().take(table_columns(table));
    columns
        .map(|(name, _)| *name)
        .collect::<Vec<_>>()
        .join(", ")
}

fn select(table: &'static Table) -> String {
    let names = names(table);
    match table.name == EVENTS.name {
        true => format!(
            "SELECT {names}, 0 FROM events UNION ALL SELECT {names}, 1 FROM minion_events ORDER BY 1"
        ),
        false => format!("SELECT {names} FROM {} ORDER BY rowid", table.name),
    }
}

fn insert(table: &'static Table, row: &TableRow) -> String {
    let is_of_minion = table.name == EVENTS.name && row.last() == Some(&TableValue::Integer(1));
    let name = match is_of_minion {
        true => "minion_events",
        false => table.name,
    };
    let places = vec!["?"; table_columns(table)].join(", ");
    format!("INSERT INTO {name} ({}) VALUES ({places})", names(table))
}

fn row_of(table: &'static Table, row: &Row<'_>) -> rusqlite::Result<TableRow> {
    let values = (0..table.columns.len()).map(|at| {
        Ok(match row.get_ref(at)? {
            ValueRef::Null => TableValue::Null,
            ValueRef::Integer(number) => TableValue::Integer(number),
            // No column has one.
            ValueRef::Real(_) => {
                let name = row.as_ref().column_name(at)?.to_owned();
                return Err(rusqlite::Error::InvalidColumnType(at, name, Type::Real));
            }
            ValueRef::Text(_) => TableValue::Text(row.get(at)?),
            ValueRef::Blob(bytes) => TableValue::Bytes(bytes.to_vec()),
        })
    });
    values.collect()
}

/// A value as it is stored.
struct Stored<'a>(&'a TableValue);

impl ToSql for Stored<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self.0 {
            TableValue::Null => ValueRef::Null,
            TableValue::Integer(number) => ValueRef::Integer(*number),
            TableValue::Text(text) => ValueRef::Text(text.as_bytes()),
            TableValue::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}
