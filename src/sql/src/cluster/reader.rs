//! Readers: each has a connection of its own, opened when it is needed, that changes nothing.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use saltern_model::{Jid, MinionId};
use saltern_store::Result;
use tokio_postgres::Row;

use super::engine::Target;
use super::runtime::RuntimeThread;
use super::session::{Session, Values};
use crate::error::SqlError;

/// Longest time of a statement; the server ends it a little earlier by itself.
const STATEMENT: Duration = Duration::from_secs(25);

const SETTINGS: &str = "SET default_transaction_read_only = on; SET statement_timeout = '20s'";

/// Sees the last committed state.
pub(super) struct ClusterReader {
    target: Arc<Target>,
    runtime: Arc<RuntimeThread>,
    session: Mutex<Option<Session>>,
}

/// A connection whose user waits.
pub(super) struct Link<'s> {
    session: &'s mut Session,
    runtime: &'s RuntimeThread,
}

impl Link<'_> {
    /// The rows of a statement.
    pub(super) fn rows(
        &mut self,
        sql: &str,
        values: Values<'_>,
    ) -> std::result::Result<Vec<Row>, SqlError> {
        let rows = self.runtime.wait(STATEMENT, self.session.rows(sql, values));
        rows.unwrap_or(Err(SqlError::Timeout(STATEMENT.as_secs())))
    }

    /// The first row of a statement.
    pub(super) fn row(
        &mut self,
        sql: &str,
        values: Values<'_>,
    ) -> std::result::Result<Option<Row>, SqlError> {
        Ok(self.rows(sql, values)?.into_iter().next())
    }
}

impl ClusterReader {
    pub(super) fn new(target: Arc<Target>, runtime: Arc<RuntimeThread>) -> Self {
        Self {
            target,
            runtime,
            session: Mutex::new(None),
        }
    }

    pub(super) fn another(&self) -> Self {
        Self::new(self.target.clone(), self.runtime.clone())
    }

    /// Reads, and once more when the connection turns out to be lost: the server may have been restarted
    /// since the last read.
    pub(super) fn read<T>(
        &self,
        action: &'static str,
        mut body: impl FnMut(&mut Link<'_>) -> std::result::Result<T, SqlError>,
    ) -> Result<T> {
        let mut session = self.session.lock();
        let was_open = session.is_some();
        let mut read = self.try_read(&mut session, &mut body);
        if was_open && session.is_none() {
            read = self.try_read(&mut session, &mut body);
        }
        read.map_err(|error| self.target.error(action, error))
    }

    fn try_read<T>(
        &self,
        open: &mut Option<Session>,
        body: &mut impl FnMut(&mut Link<'_>) -> std::result::Result<T, SqlError>,
    ) -> std::result::Result<T, SqlError> {
        let runtime = &*self.runtime;
        let session = match open {
            Some(session) => session,
            None => open.insert(self.target.connect(runtime, SETTINGS)?),
        };
        let read = body(&mut Link { session, runtime });
        if read.as_ref().is_err_and(|error| !error.keeps_connection()) {
            *open = None;
        }
        read
    }
}

/// A jid that is one; else the row is passed over.
pub(super) fn jid_of(row: &Row, at: usize) -> std::result::Result<Option<Jid>, SqlError> {
    Ok(parsed(Jid::parse(row.try_get(at)?)))
}

/// A minion that is one; else the row is passed over.
pub(super) fn minion_of(row: &Row, at: usize) -> std::result::Result<Option<MinionId>, SqlError> {
    let name: Option<&str> = row.try_get(at)?;
    Ok(name.and_then(|name| parsed(MinionId::parse(name))))
}

/// A list of minions, sorted, each once.
pub(super) fn minions_of(row: &Row, at: usize) -> std::result::Result<Vec<MinionId>, SqlError> {
    let names: Vec<&str> = row.try_get(at)?;
    let minions = names.into_iter();
    let mut minions: Vec<MinionId> = minions
        .filter_map(|name| parsed(MinionId::parse(name)))
        .collect();
    minions.sort_unstable();
    minions.dedup();
    Ok(minions)
}

pub(super) fn parsed<T, E: std::fmt::Display>(result: std::result::Result<T, E>) -> Option<T> {
    result
        .inspect_err(|error| tracing::warn!(%error, "a row of the job database is passed over"))
        .ok()
}

pub(super) fn clamp(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

pub(super) fn counted(count: i64) -> usize {
    usize::try_from(count).unwrap_or_default()
}

/// The values of rows that are some.
pub(super) fn kept<T>(
    rows: &[Row],
    value: impl Fn(&Row) -> std::result::Result<Option<T>, SqlError>,
) -> std::result::Result<Vec<T>, SqlError> {
    let rows = rows.iter().map(value);
    rows.filter_map(std::result::Result::transpose).collect()
}
