//! A job database is moved into a cluster, and back out of it: as rows, in one transaction. While that is
//! under way no master takes the lease.

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
use super::{import, writer};
use crate::error::SqlError;

/// Longest time of one statement, or of the reading of a table.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// Time after which the server gives a silent client up.
const SILENCE: Duration = Duration::from_secs(600);
/// Rows of a statement.
const ROWS: usize = 1_000;
/// Bytes of a statement.
const BYTES: usize = 8 << 20;

/// Keeps each master from taking the lease until the transaction ends.
const HOLD: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ; LOCK TABLE lease IN EXCLUSIVE MODE";

const HAS_ROWS: &str = "SELECT EXISTS (SELECT 1 FROM jobs) OR EXISTS (SELECT 1 FROM returns) OR \
     EXISTS (SELECT 1 FROM events) OR EXISTS (SELECT 1 FROM audit) OR EXISTS (SELECT 1 FROM batches)";

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

/// Moves a job database into a cluster that has no jobs. The rows of each table are counted.
///
/// # Errors
/// A master is active, the cluster has jobs, or one of the databases says no. The cluster has none then.
pub fn import_jobs(
    config: &ClusterConfig,
    source: &mut impl TableSource,
) -> std::result::Result<Moved, ClusterError> {
    let tables = ClusterTables::hold(config)?;
    let has_rows = tables.ask(async |session| {
        let rows = session.rows(HAS_ROWS, &[]).await?;
        Ok(rows.first().map(|row| row.try_get(0)).transpose()? == Some(true))
    });
    if has_rows.map_err(|error| tables.target.error("read", error))? {
        return Err(ClusterError::HasJobs {
            place: tables.target.place.display().to_string(),
        });
    }
    Ok(move_tables(source, tables)?)
}

/// Moves the jobs of a cluster into a new job database; the cluster keeps its own. The rows of each table
/// are counted.
///
/// # Errors
/// A master is active, or one of the databases says no.
pub fn export_jobs(
    config: &ClusterConfig,
    target: impl TableTarget,
) -> std::result::Result<Moved, ClusterError> {
    Ok(move_tables(&mut ClusterTables::hold(config)?, target)?)
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
        if let Some(active) = cluster_state(config)?.active() {
            return Err(ClusterError::IsActive {
                name: active.to_owned(),
            });
        }
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
        let held = tables.ask(async |session| session.run(HOLD).await);
        held.map_err(|error| tables.target.error("lock", error))?;
        Ok(tables)
    }

    fn ask<T>(
        &self,
        question: impl AsyncFnOnce(&mut Session) -> std::result::Result<T, SqlError>,
    ) -> std::result::Result<T, SqlError> {
        let mut session = self.session.lock();
        let answer = self.runtime.wait(LONGEST, question(&mut session));
        answer.unwrap_or(Err(SqlError::Timeout(LONGEST.as_secs())))
    }

    fn flush(&mut self) -> Result<()> {
        let Some(gathered) = self.gathered.take() else {
            return Ok(());
        };
        let sql = insert(gathered.table);
        let columns = gathered.table.columns.iter().enumerate();
        let columns: Vec<Box<dyn ToSql + Sync>> = columns
            .map(|(at, (_, kind))| values(&gathered.rows, at, *kind))
            .collect();
        let columns: Vec<&(dyn ToSql + Sync)> = columns.iter().map(|column| &**column).collect();
        let written = self.ask(async |session| session.execute(&sql, &columns).await);
        written.map_err(|error| self.target.error("write", error))?;
        Ok(())
    }
}

impl TableTarget for ClusterTables {
    fn put(&mut self, table: &'static Table, row: TableRow) -> Result<()> {
        let is_other = |gathered: &Gathered| gathered.table.name != table.name;
        if self.gathered.as_ref().is_some_and(is_other) {
            self.flush()?;
        }
        let gathered = self.gathered.get_or_insert_with(|| Gathered {
            table,
            rows: Vec::new(),
            bytes: 0,
        });
        gathered.bytes += row.iter().map(TableValue::size).sum::<usize>();
        gathered.rows.push(row);
        if gathered.rows.len() >= ROWS || gathered.bytes >= BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn finish(mut self, state: &DatabaseState) -> Result<()> {
        self.flush()?;
        let finished = self.ask(async |session| {
            let mut meta = vec![("identity", state.identity.as_str())];
            meta.extend(state.audit_anchor.as_deref().map(|value| (ANCHOR, value)));
            meta.extend(state.is_imported.then_some((import::DONE, "1")));
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
        ColumnType::Texts => format!("array_to_json({name})::text"),
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
            ColumnType::Text | ColumnType::Texts => "text",
        };
        format!("${}::{of}[]", at + 1)
    };
    let value = |(at, (_, kind)): (usize, &(&str, ColumnType))| match kind {
        ColumnType::Texts => format!("ARRAY(SELECT jsonb_array_elements_text(c{at}::jsonb))"),
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

/// The values of one column.
fn values(rows: &[TableRow], at: usize, kind: ColumnType) -> Box<dyn ToSql + Sync> {
    let cells = rows.iter().map(|row| row.get(at));
    let number = |cell: Option<&TableValue>| match cell {
        Some(TableValue::Integer(number)) => Some(*number),
        _ => None,
    };
    match kind {
        ColumnType::Integer => Box::new(cells.map(number).collect::<Vec<Option<i64>>>()),
        ColumnType::Flag => {
            let flags = cells.map(|cell| number(cell).map(|number| number != 0));
            Box::new(flags.collect::<Vec<Option<bool>>>())
        }
        ColumnType::Bytes => Box::new(
            cells
                .map(|cell| match cell {
                    Some(TableValue::Bytes(bytes)) => Some(bytes.clone()),
                    _ => None,
                })
                .collect::<Vec<Option<Vec<u8>>>>(),
        ),
        ColumnType::Text | ColumnType::Texts => Box::new(
            cells
                .map(|cell| match cell {
                    Some(TableValue::Text(text)) => Some(stored(text).into_owned()),
                    _ => None,
                })
                .collect::<Vec<Option<String>>>(),
        ),
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
            ColumnType::Text | ColumnType::Texts => {
                let text: Option<String> = row.try_get(at)?;
                text.map(|text| TableValue::Text(original(text)))
            }
        }
        .unwrap_or(TableValue::Null))
    });
    values.collect()
}
