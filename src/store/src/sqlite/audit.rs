//! The audit trail: a row for each thing that somebody had the master do, in a chain of hashes.
//!
//! How rows are chained stands in [`crate::jobs`]. Rows are removed from the old end only, and the
//! number and hash of the last one removed (the anchor) are kept, so the rest can still be checked.
//!
//! The chain shows a change of a row, a gap, and a row that was put in between. It does not protect
//! from somebody who rewrites it from some row to its end, or cuts rows off its end while the master
//! is down: that shows only beside a head that was noted elsewhere ([`JobReader::check_audit`]).

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, Transaction, named_params, params_from_iter};
use saltern_model::{AuditDoor, AuditRecord, AuditRow, AuditVerdict, Jid};

use super::JobDatabase;
use super::database::NextIds;
use super::reader::{JobReader, clamp};
use crate::error::Result;
use crate::jobs::{
    AUDIT_COLUMNS as COLUMNS, AuditCheck, AuditHead, AuditPage, AuditValue, Reason, Removed,
    Retention, Written, audit_row_of, check_audit_chain, genesis, next_audit_row,
};

/// The table.
pub(super) const LAYOUT: &str = "
CREATE TABLE audit (
    number     INTEGER PRIMARY KEY,
    at         INTEGER NOT NULL,
    door       TEXT NOT NULL,
    user       TEXT NOT NULL,
    backend    TEXT,
    proof      TEXT NOT NULL,
    origin     TEXT,
    cmd        TEXT NOT NULL,
    fun        TEXT NOT NULL,
    tgt        TEXT,
    tgt_type   TEXT,
    arguments  TEXT NOT NULL,
    verdict    TEXT NOT NULL,
    reason     TEXT,
    jid        TEXT,
    suppressed INTEGER NOT NULL,
    hash       BLOB NOT NULL
) STRICT;
";

/// The row of `meta` with the anchor, as `NUMBER:HASH`.
pub(super) const ANCHOR: &str = "audit_anchor";

/// Rows that are checked within one read transaction: a long one would keep the write-ahead log
/// from being reset.
const SLICE: usize = 2_000;

/// How long before its job a row may have been written, in microseconds.
const JOB_SLACK: i64 = 5_000_000;

/// Rows that are looked through for that of a job.
const JOB_ROWS: i64 = 2_000;

/// The number of about the first row of a time or later, found by halving.
fn first_since(connection: &Connection, since: i64) -> rusqlite::Result<i64> {
    let bound = |sql: &str| -> rusqlite::Result<Option<i64>> {
        connection
            .prepare_cached(sql)?
            .query_row([], |row| row.get(0))
    };
    let first = bound("SELECT min(number) FROM audit")?.unwrap_or(1);
    let last = bound("SELECT max(number) FROM audit")?.unwrap_or(0);
    let (mut low, mut high) = (first, last + 1);
    let mut statement = connection
        .prepare_cached("SELECT at FROM audit WHERE number >= ?1 ORDER BY number LIMIT 1")?;
    while low < high {
        let middle = low + (high - low) / 2;
        let at: Option<i64> = statement.query_row([middle], |row| row.get(0)).optional()?;
        match at.is_some_and(|at| at < since) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    Ok(low)
}

impl JobReader {
    pub(super) fn audit_of_job(&self, jid: &Jid, at: i64) -> Result<Option<AuditRow>> {
        self.read("read the audit trail of", |connection| {
            let from = first_since(connection, at.saturating_sub(JOB_SLACK))?;
            let mut statement = connection.prepare_cached(&format!(
                "SELECT {} FROM (SELECT * FROM audit WHERE number >= ?1 ORDER BY number LIMIT ?2)
                 WHERE jid = ?3 ORDER BY number LIMIT 1",
                COLUMNS.join(", ")
            ))?;
            let parameters = rusqlite::params![from, JOB_ROWS, jid.as_str()];
            let row = statement.query_row(parameters, row_of).optional()?;
            Ok(row.flatten())
        })
    }

    pub(super) fn audit(&self, page: &AuditPage<'_>) -> Result<Vec<AuditRow>> {
        self.read("read the audit trail of", |connection| {
            let mut statement = connection.prepare_cached(&format!(
                "SELECT {} FROM audit
                 WHERE number < coalesce(:before, 9223372036854775807)
                   AND number > coalesce(:after, -1)
                   AND (:user IS NULL OR user = :user)
                   AND (:door IS NULL OR door = :door)
                   AND (:fun IS NULL OR fun GLOB :fun)
                   AND (:verdict IS NULL OR verdict = :verdict)
                   AND (:since IS NULL OR at >= :since)
                   AND (:until IS NULL OR at < :until)
                 ORDER BY number DESC LIMIT :limit",
                COLUMNS.join(", ")
            ))?;
            let rows = statement.query_map(
                named_params! {
                    ":before": page.before,
                    ":after": page.after,
                    ":user": page.user,
                    ":door": page.door.map(AuditDoor::as_str),
                    ":fun": page.fun,
                    ":verdict": page.verdict.map(AuditVerdict::as_str),
                    ":since": page.since,
                    ":until": page.until,
                    ":limit": clamp(page.limit),
                },
                row_of,
            )?;
            rows.filter_map(rusqlite::Result::transpose).collect()
        })
    }

    pub(super) fn audit_ends(&self) -> Result<(AuditHead, AuditHead)> {
        self.read("read the audit trail of", |connection| {
            Ok((anchor(connection)?, head(connection)?))
        })
    }

    pub(super) fn check_audit(&self, noted: Option<AuditHead>) -> Result<AuditCheck> {
        let action = "check the audit trail of";
        let anchor = self.read(action, anchor)?;
        let lowest = self.read(action, |connection| {
            let mut statement = connection.prepare_cached("SELECT min(number) FROM audit")?;
            statement.query_row([], |row| row.get::<_, Option<i64>>(0))
        })?;
        check_audit_chain((anchor, lowest), noted, |after| {
            self.read(action, |connection| {
                let mut statement = connection.prepare_cached(&format!(
                    "SELECT {} FROM audit WHERE number > ?1 ORDER BY number LIMIT {SLICE}",
                    COLUMNS.join(", ")
                ))?;
                let rows = statement.query_map([after], values_of)?;
                rows.collect::<rusqlite::Result<Vec<_>>>()
            })
        })
    }
}

/// A row; `None` when it is not one that this release writes.
fn row_of(row: &Row<'_>) -> rusqlite::Result<Option<AuditRow>> {
    Ok(audit_row_of(&values_of(row)?))
}

fn values_of(row: &Row<'_>) -> rusqlite::Result<Vec<AuditValue>> {
    let value = |column| {
        Ok(match row.get(column)? {
            Value::Null => AuditValue::Null,
            Value::Integer(number) => AuditValue::Integer(number),
            Value::Real(number) => AuditValue::Real(number),
            Value::Text(text) => AuditValue::Text(text),
            Value::Blob(bytes) => AuditValue::Blob(bytes),
        })
    };
    (0..COLUMNS.len()).map(value).collect()
}

fn stored(value: AuditValue) -> Value {
    match value {
        AuditValue::Null => Value::Null,
        AuditValue::Integer(number) => Value::Integer(number),
        AuditValue::Real(number) => Value::Real(number),
        AuditValue::Text(text) => Value::Text(text),
        AuditValue::Blob(bytes) => Value::Blob(bytes),
    }
}

/// Writes a row behind the last one.
pub(super) fn insert(
    transaction: &Transaction<'_>,
    next: &mut NextIds,
    record: &AuditRecord,
) -> rusqlite::Result<Written> {
    let (row, head) = next_audit_row(next.audit, record);
    let places = vec!["?"; COLUMNS.len()].join(", ");
    transaction
        .prepare_cached(&format!(
            "INSERT INTO audit ({}) VALUES ({places})",
            COLUMNS.join(", ")
        ))?
        .execute(params_from_iter(row.into_iter().map(stored)))?;
    next.audit = head;
    Ok(Written::New { id: head.number })
}

/// The last row, or the anchor where there is none.
pub(super) fn head(connection: &Connection) -> rusqlite::Result<AuditHead> {
    let last = connection
        .query_row(
            "SELECT number, hash FROM audit ORDER BY number DESC LIMIT 1",
            [],
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?)),
        )
        .optional()?;
    let anchor = anchor(connection)?;
    Ok(match last {
        Some((number, hash)) if number > anchor.number => AuditHead {
            number,
            // A hash that is none was tampered with: the check names that row all the same.
            hash: hash.try_into().unwrap_or_default(),
        },
        _ => anchor,
    })
}

/// The last row that was removed; before that, what the chain of this database begins with.
fn anchor(connection: &Connection) -> rusqlite::Result<AuditHead> {
    let kept: Option<String> = meta(connection, ANCHOR)?;
    match kept.and_then(|text| text.parse().ok()) {
        Some(anchor) => Ok(anchor),
        None => {
            let identity: Option<String> = meta(connection, "identity")?;
            Ok(genesis(&identity.unwrap_or_default()))
        }
    }
}

fn meta(connection: &Connection, name: &str) -> rusqlite::Result<Option<String>> {
    connection
        .query_row("SELECT value FROM meta WHERE name = ?1", [name], |row| {
            row.get(0)
        })
        .optional()
}

fn set_anchor(connection: &Connection, anchor: AuditHead) -> rusqlite::Result<()> {
    connection
        .prepare_cached("INSERT OR REPLACE INTO meta (name, value) VALUES (?1, ?2)")?
        .execute([ANCHOR, &anchor.to_string()])?;
    Ok(())
}

/// Takes over where the chain of a damaged database begins, if that can be read: the new database
/// has another identity.
pub(super) fn copy_anchor(damaged: &Connection, fresh: &Connection) -> rusqlite::Result<()> {
    match anchor(damaged) {
        Ok(anchor) => set_anchor(fresh, anchor),
        Err(error) => {
            tracing::warn!(%error, "the beginning of the audit trail cannot be read");
            Ok(())
        }
    }
}

impl JobDatabase {
    /// The last row of the audit trail.
    pub fn audit_head(&self) -> AuditHead {
        self.next.audit
    }

    /// Removes the oldest rows that are too old or too many, `slice` at most, and keeps the last of
    /// them as anchor.
    pub(super) fn remove_audit(
        &mut self,
        retention: &Retention,
        slice: i64,
    ) -> Result<Option<Removed>> {
        let last = self.next.audit.number;
        let mut reason = Reason::Age;
        let rows = self.remove(|transaction| {
            let first: Option<i64> = transaction
                .prepare_cached("SELECT min(number) FROM audit")?
                .query_row([], |row| row.get(0))?;
            let Some(first) = first else { return Ok(0) };
            let most = retention
                .most_audit
                .map_or(i64::MAX, |most| i64::try_from(most).unwrap_or(i64::MAX));
            let excess = (last - first + 1).saturating_sub(most);
            let end = if excess > 0 {
                reason = Reason::Count;
                first.saturating_add(excess.min(slice))
            } else {
                old_end(transaction, (first, slice), retention.audit_before)?
            };
            remove_below(transaction, end)
        })?;
        let jobs = Vec::new();
        Ok((rows > 0).then_some(Removed { reason, rows, jobs }))
    }
}

/// The lowest number among the first `slice` rows that is not too old, or the one behind them: a
/// clock that was set back must not leave a gap.
fn old_end(
    transaction: &Transaction<'_>,
    (first, slice): (i64, i64),
    before: Option<i64>,
) -> rusqlite::Result<i64> {
    let Some(before) = before else {
        return Ok(first);
    };
    let end = first.saturating_add(slice);
    let young: Option<i64> = transaction
        .prepare_cached("SELECT min(number) FROM audit WHERE number < ?1 AND at >= ?2")?
        .query_row([end, before], |row| row.get(0))?;
    Ok(young.unwrap_or(end))
}

fn remove_below(transaction: &Transaction<'_>, end: i64) -> rusqlite::Result<usize> {
    let last: Option<(i64, Vec<u8>)> = transaction
        .prepare_cached(
            "SELECT number, hash FROM audit WHERE number < ?1 ORDER BY number DESC LIMIT 1",
        )?
        .query_row([end], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((number, hash)) = last else {
        return Ok(0);
    };
    let hash = hash.try_into().unwrap_or_default();
    set_anchor(transaction, AuditHead { number, hash })?;
    transaction
        .prepare_cached("DELETE FROM audit WHERE number <= ?1")?
        .execute([number])
}
