//! A job database is moved into a cluster, and back out of it: as rows, in one transaction. While that is
//! under way no master takes the lease, and whoever had it before writes nothing any more: the epoch of the
//! writer is raised first.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use saltern_config::ClusterConfig;
use saltern_store::Result;
use saltern_store::jobs::{
    ColumnType, DatabaseState, Moved, Table, TableRow, TableSource, TableTarget, TableValue,
    move_tables,
};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

use super::engine::{ClusterOptions, Target};
use super::error::ClusterError;
use super::layout::WRITER;
use super::membership::{cluster_state, target_of};
use super::retention::ANCHOR;
use super::runtime::RuntimeThread;
use super::session::Session;
use super::text::{original, stored};
use super::writer::DURABLE;
use super::{import, members, writer};
use crate::error::SqlError;

/// Longest time of one statement, or of the reading of a table.
const MAX_STATEMENT: Duration = Duration::from_secs(24 * 3600);
/// Time after which the server gives a silent client up. Longer than a commit of the other database takes.
const SILENCE: Duration = Duration::from_secs(60);
/// Rows of a statement.
const ROWS: usize = 1_000;
/// Bytes of a statement.
const BYTES: usize = 8 << 20;

/// Keeps each master from taking the lease until the transaction ends.
const HOLD: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ; LOCK TABLE lease IN EXCLUSIVE MODE";

/// An owner from before finds its epoch no more.
const FENCE: &str = "UPDATE writer SET epoch = epoch + 1 WHERE writer = $1";

/// Whether something was ever written, and the identity that it has.
const HAS_ROWS: &str = "SELECT last_job <> 0 OR last_return <> 0 OR last_event <> 0 OR lowest_job <> 0 \
     OR lowest_return <> 0 OR audit_head <> '' OR EXISTS (SELECT 1 FROM jobs) OR \
     EXISTS (SELECT 1 FROM returns) OR EXISTS (SELECT 1 FROM events) OR EXISTS (SELECT 1 FROM audit) OR \
     EXISTS (SELECT 1 FROM batches) OR EXISTS (SELECT 1 FROM batch_failed) OR \
     EXISTS (SELECT 1 FROM expected_part) OR EXISTS (SELECT 1 FROM sealed_file), (SELECT value FROM meta WHERE name = 'identity') \
     FROM writer WHERE writer = $1";

const FORGET_META: &str = "DELETE FROM meta WHERE name IN ($1, $2)";

const SET_META: &str = "INSERT INTO meta (name, value) VALUES ($1, $2) \
     ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value";

/// The lowest numbers are those of what was imported before.
const SET_WRITER: &str = "UPDATE writer SET last_job = $2, last_return = $3, last_event = $4, \
     lowest_job = (SELECT least(coalesce(min(id), 0), 0) FROM jobs), \
     lowest_return = (SELECT least(coalesce(min(id), 0), 0) FROM returns), audit_head = coalesce( \
     (SELECT number || ':' || encode(hash, 'hex') FROM audit ORDER BY number DESC LIMIT 1), $5) \
     WHERE writer = $1";

const STATE: &str = "SELECT (SELECT value FROM meta WHERE name = 'identity'), last_job, last_return, \
     last_event, (SELECT value FROM meta WHERE name = $2), \
     EXISTS (SELECT 1 FROM meta WHERE name = $3) FROM writer WHERE writer = $1";

/// Moves a job database into a cluster that never had jobs. The rows of each table are counted.
///
/// # Errors
/// A master lives, the cluster has jobs, or one of the databases says no: the cluster has none then. When the
/// answer to the commit was lost it may have them; the next call says so
/// ([`ClusterError::MovedBefore`]).
pub fn import_jobs(
    config: &ClusterConfig,
    source: &mut impl TableSource,
) -> std::result::Result<Moved, ClusterError> {
    let tables = ClusterTables::hold(config)?;
    let found = tables.ask(async |session| {
        let rows = session.rows(HAS_ROWS, &[&WRITER]).await?;
        let row = rows.first().ok_or_else(writer::no_row)?;
        Ok((row.try_get(0)?, row.try_get::<_, Option<String>>(1)?))
    });
    let (has_rows, identity) = found.map_err(|error| tables.target.error("read", error))?;
    if has_rows {
        let place = tables.target.place.display().to_string();
        return Err(match identity == Some(source.state()?.identity) {
            true => ClusterError::MovedBefore { place },
            false => ClusterError::HasJobs { place },
        });
    }
    Ok(move_tables(source, tables)?)
}

/// Moves the jobs of a cluster into a new job database, which is made when nobody writes to the cluster any
/// more; the cluster keeps its own. The rows of each table are counted.
///
/// # Errors
/// A master lives, or one of the databases says no.
pub fn export_jobs<T: TableTarget>(
    config: &ClusterConfig,
    make: impl FnOnce() -> Result<T>,
) -> std::result::Result<Moved, ClusterError> {
    let mut tables = ClusterTables::hold(config)?;
    Ok(move_tables(&mut tables, make()?)?)
}

/// The rows of a cluster, which no master can become active in.
struct ClusterTables {
    target: Arc<Target>,
    runtime: RuntimeThread,
    session: parking_lot::Mutex<Session>,
    /// Rows that are not written yet.
    gathered: Option<Gathered>,
}

struct Gathered {
    table: &'static Table,
    rows: Vec<TableRow>,
    bytes: usize,
}

impl ClusterTables {
    fn hold(config: &ClusterConfig) -> std::result::Result<Self, ClusterError> {
        // Whether there are tables; the rest is looked at under the lock.
        cluster_state(config)?;
        let usual = target_of(config)?;
        let options = ClusterOptions {
            idle_limit: SILENCE,
            ..usual.options.clone()
        };
        let target = Arc::new(Target::new(config.servers.clone(), options)?);
        let runtime = target.runtime()?;
        let failed = |error| target.error("open", error);
        let session = target.connect(&runtime, DURABLE).map_err(failed)?;
        let tables = Self {
            target,
            runtime,
            session: session.into(),
            gathered: None,
        };
        let held = tables.ask(async |session| {
            session.run(HOLD).await?;
            let state = members::state_of(session).await?;
            session.execute(FENCE, &[&WRITER]).await?;
            Ok(state)
        });
        let state = held.map_err(|error| tables.target.error("lock", error))?;
        let mut members = state.members.iter().filter(|member| member.is_alive);
        let living = members.next().map(|member| member.name.as_str());
        if let Some(name) = state.active().or(living) {
            let name = name.to_owned();
            return Err(ClusterError::InUse { name });
        }
        Ok(tables)
    }

    fn ask<T>(
        &self,
        question: impl AsyncFnOnce(&mut Session) -> std::result::Result<T, SqlError>,
    ) -> std::result::Result<T, SqlError> {
        let mut session = self.session.lock();
        let answer = self.runtime.wait(MAX_STATEMENT, question(&mut session));
        answer.unwrap_or(Err(SqlError::Timeout(MAX_STATEMENT.as_secs())))
    }

    fn flush(&mut self) -> Result<()> {
        let Some(Gathered {
            table, mut rows, ..
        }) = self.gathered.take()
        else {
            return Ok(());
        };
        let sql = insert(table);
        let columns = table.columns.iter().enumerate();
        let columns: Vec<Box<dyn ToSql + Sync>> = columns
            .map(|(at, (_, kind))| values(&mut rows, at, *kind))
            .collect();
        drop(rows);
        let columns: Vec<&(dyn ToSql + Sync)> = columns.iter().map(|column| &**column).collect();
        let written = self.ask(async |session| session.execute(&sql, &columns).await);
        written.map_err(|error| self.target.error("write", error))?;
        Ok(())
    }
}

impl TableTarget for ClusterTables {
    fn put(&mut self, table: &'static Table, row: TableRow) -> Result<()> {
        let size = row.iter().map(TableValue::size).sum::<usize>();
        let is_full = |gathered: &Gathered| {
            gathered.table.name != table.name
                || gathered.rows.len() >= ROWS
                || gathered.bytes.saturating_add(size) > BYTES
        };
        if self.gathered.as_ref().is_some_and(is_full) {
            self.flush()?;
        }
        let gathered = self.gathered.get_or_insert_with(|| Gathered {
            table,
            rows: Vec::new(),
            bytes: 0,
        });
        gathered.bytes = gathered.bytes.saturating_add(size);
        gathered.rows.push(row);
        Ok(())
    }

    fn finish(mut self, state: &DatabaseState) -> Result<()> {
        self.flush()?;
        let finished = self.ask(async |session| {
            let mut meta = vec![("identity", state.identity.as_str())];
            meta.extend(state.audit_anchor.as_deref().map(|value| (ANCHOR, value)));
            meta.extend(state.is_imported.then_some((import::DONE, "1")));
            session
                .execute(FORGET_META, &[&ANCHOR, &import::DONE])
                .await?;
            for (name, value) in meta {
                session.execute(SET_META, &[&name, &value]).await?;
            }
            let anchor = state.audit_anchor.as_deref().unwrap_or_default();
            let numbers = [&state.last_job, &state.last_return, &state.last_event];
            let [job, returned, event] = numbers;
            session
                .execute(SET_WRITER, &[&WRITER, job, returned, event, &anchor])
                .await?;
            session.commit().await
        });
        finished.map_err(|error| self.target.error("write", error))
    }
}

impl TableSource for ClusterTables {
    fn state(&mut self) -> Result<DatabaseState> {
        let read = self.ask(async |session| {
            let values = [&WRITER as _, &ANCHOR as _, &import::DONE as _];
            let rows = session.rows(STATE, &values).await?;
            let row = rows.first().ok_or_else(writer::no_row)?;
            Ok(DatabaseState {
                identity: row.try_get::<_, Option<String>>(0)?.unwrap_or_default(),
                last_job: row.try_get(1)?,
                last_return: row.try_get(2)?,
                last_event: row.try_get(3)?,
                audit_anchor: row.try_get(4)?,
                is_imported: row.try_get(5)?,
            })
        });
        read.map_err(|error| self.target.error("read", error))
    }

    fn rows(
        &mut self,
        table: &'static Table,
        take: &mut dyn FnMut(TableRow) -> Result<()>,
    ) -> Result<()> {
        let mut taken = Ok(());
        let read = self.ask(async |session| {
            let mut rows = session.stream(&select(table)).await?;
            while let Some(row) = rows.next().await {
                taken = take(row_of(table, &row?)?);
                if taken.is_err() {
                    break;
                }
            }
            Ok(())
        });
        taken?;
        read.map_err(|error| self.target.error("read", error))
    }

    /// With the commit an owner from before is shut out.
    fn confirm(&mut self) -> Result<()> {
        let committed = self.ask(async |session| session.commit().await);
        committed.map_err(|error| self.target.error("read", error))
    }
}

/// The name of a column here; `user` is a word of SQL.
fn name_of(column: &'static str) -> &'static str {
    match column {
        "user" => "username",
        name => name,
    }
}

fn names(table: &'static Table) -> String {
    let names = table.columns.iter().map(|(name, _)| name_of(name));
    names.collect::<Vec<_>>().join(", ")
}

fn select(table: &'static Table) -> String {
    let columns = table.columns.iter().map(|(name, kind)| match kind {
        ColumnType::Names => format!("array_to_json({name})::text"),
        _ => name_of(name).to_owned(),
    });
    let columns = columns.collect::<Vec<_>>().join(", ");
    let order = match table.name {
        "batches" => "jid",
        "events" => "position",
        "audit" => "number",
        _ => "id",
    };
    format!("SELECT {columns} FROM {} ORDER BY {order}", table.name)
}

fn insert(table: &'static Table) -> String {
    let array = |(at, (_, kind)): (usize, &(&str, ColumnType))| {
        let of = match kind {
            ColumnType::Integer => "bigint",
            ColumnType::Flag => "bool",
            ColumnType::Bytes => "bytea",
            ColumnType::Text | ColumnType::Name | ColumnType::Names => "text",
        };
        format!("${}::{of}[]", at + 1)
    };
    let value = |(at, (_, kind)): (usize, &(&str, ColumnType))| match kind {
        ColumnType::Names => format!("ARRAY(SELECT jsonb_array_elements_text(c{at}::jsonb))"),
        _ => format!("c{at}"),
    };
    let each = || table.columns.iter().enumerate();
    let arrays = each().map(array).collect::<Vec<_>>().join(", ");
    let values = each().map(value).collect::<Vec<_>>().join(", ");
    let given = each().map(|(at, _)| format!("c{at}"));
    let given = given.collect::<Vec<_>>().join(", ");
    format!(
        "INSERT INTO {} ({}) SELECT {values} FROM unnest({arrays}) AS given ({given})",
        table.name,
        names(table)
    )
}

/// Takes the values of one column out of the rows.
fn values(rows: &mut [TableRow], at: usize, kind: ColumnType) -> Box<dyn ToSql + Sync> {
    let cells = rows.iter_mut().map(|row| {
        let cell = row.get_mut(at);
        cell.map_or(TableValue::Null, |cell| {
            std::mem::replace(cell, TableValue::Null)
        })
    });
    let number = |cell| match cell {
        TableValue::Integer(number) => Some(number),
        _ => None,
    };
    let text = |cell| match cell {
        TableValue::Text(text) => Some(text),
        _ => None,
    };
    match kind {
        ColumnType::Integer => Box::new(cells.map(number).collect::<Vec<Option<i64>>>()),
        ColumnType::Flag => {
            let flags = cells.map(|cell| number(cell).map(|number| number != 0));
            Box::new(flags.collect::<Vec<Option<bool>>>())
        }
        ColumnType::Bytes => {
            let bytes = cells.map(|cell| match cell {
                TableValue::Bytes(bytes) => Some(bytes),
                _ => None,
            });
            Box::new(bytes.collect::<Vec<Option<Vec<u8>>>>())
        }
        ColumnType::Name | ColumnType::Names => {
            Box::new(cells.map(text).collect::<Vec<Option<String>>>())
        }
        ColumnType::Text => {
            let texts = cells.map(|cell| text(cell).map(|text| stored(&text).into_owned()));
            Box::new(texts.collect::<Vec<Option<String>>>())
        }
    }
}

fn row_of(table: &'static Table, row: &Row) -> std::result::Result<TableRow, SqlError> {
    let values = table.columns.iter().enumerate().map(|(at, (_, kind))| {
        Ok(match kind {
            ColumnType::Integer => row.try_get::<_, Option<i64>>(at)?.map(TableValue::Integer),
            ColumnType::Flag => {
                let flag: Option<bool> = row.try_get(at)?;
                flag.map(|flag| TableValue::Integer(flag.into()))
            }
            ColumnType::Bytes => row
                .try_get::<_, Option<Vec<u8>>>(at)?
                .map(TableValue::Bytes),
            ColumnType::Name | ColumnType::Names => {
                row.try_get::<_, Option<String>>(at)?.map(TableValue::Text)
            }
            ColumnType::Text => {
                let text: Option<String> = row.try_get(at)?;
                text.map(|text| TableValue::Text(original(text)))
            }
        }
        .unwrap_or(TableValue::Null))
    });
    values.collect()
}
