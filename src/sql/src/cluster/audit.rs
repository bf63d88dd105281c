//! Reads of the audit trail.

use saltern_model::{AuditDoor, AuditRow, AuditVerdict, Jid};
use saltern_store::Result;
use saltern_store::jobs::{
    AUDIT_COLUMNS, AuditCheck, AuditHead, AuditPage, AuditValue, audit_row_of, check_audit_chain,
    genesis,
};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::changes::audit_columns;
use super::glob::expression_of;
use super::reader::{ClusterReader, Link, clamp, kept};
use super::retention::ANCHOR;
use super::text::{original, stored};
use crate::error::SqlError;

/// Rows of one query of a check.
const SLICE: i64 = 2_000;

/// How long before its job a row may have been written, in microseconds.
const JOB_SLACK: i64 = 5_000_000;

/// Rows that are looked through for that of a job.
const JOB_ROWS: i64 = 2_000;

impl ClusterReader {
    pub(super) fn audit(&self, page: &AuditPage<'_>) -> Result<Vec<AuditRow>> {
        let sql = format!(
            "SELECT {} FROM audit WHERE number < coalesce($1::bigint, 9223372036854775807) \
             AND number > coalesce($2::bigint, -1) AND ($3::text IS NULL OR username = $3) \
             AND ($4::text IS NULL OR door = $4) AND ($5::text IS NULL OR fun ~ $5) \
             AND ($6::text IS NULL OR verdict = $6) AND ($7::bigint IS NULL OR at >= $7) \
             AND ($8::bigint IS NULL OR at < $8) ORDER BY number DESC LIMIT $9",
            audit_columns()
        );
        let (user, fun) = (
            page.user.map(stored),
            page.fun.map(|fun| expression_of(&stored(fun))),
        );
        let door = page.door.map(AuditDoor::as_str);
        let verdict = page.verdict.map(AuditVerdict::as_str);
        self.read("read the audit trail of", |link| {
            let rows = link.rows(
                &sql,
                &[
                    &page.before,
                    &page.after,
                    &user,
                    &door,
                    &fun,
                    &verdict,
                    &page.since,
                    &page.until,
                    &clamp(page.limit),
                ],
            )?;
            kept(&rows, |row| Ok(audit_row_of(&values_of(row)?)))
        })
    }

    pub(super) fn audit_of_job(&self, jid: &Jid, at: i64) -> Result<Option<AuditRow>> {
        let sql = format!(
            "SELECT {columns} FROM (SELECT {columns} FROM audit WHERE number >= $1 \
             ORDER BY number LIMIT $2) AS a WHERE jid = $3 ORDER BY number LIMIT 1",
            columns = audit_columns()
        );
        self.read("read the audit trail of", |link| {
            let from = first_since(link, at.saturating_sub(JOB_SLACK))?;
            let row = link.row(&sql, &[&from, &JOB_ROWS, &jid.as_str()])?;
            let values = row.as_ref().map(values_of).transpose()?;
            Ok(values.and_then(|values| audit_row_of(&values)))
        })
    }

    pub(super) fn audit_ends(&self) -> Result<(AuditHead, AuditHead)> {
        let anchor = self.anchor()?;
        let last = self.read("read the audit trail of", |link| {
            let sql = "SELECT number, hash FROM audit ORDER BY number DESC LIMIT 1";
            let row = link.row(sql, &[])?;
            let head = |row: Row| -> std::result::Result<AuditHead, SqlError> {
                let hash: Vec<u8> = row.try_get(1)?;
                Ok(AuditHead {
                    number: row.try_get(0)?,
                    // A hash that is none was tampered with: the check names that row all the same.
                    hash: hash.try_into().unwrap_or_default(),
                })
            };
            row.map(head).transpose()
        })?;
        let last = last.filter(|last| last.number > anchor.number);
        Ok((anchor, last.unwrap_or(anchor)))
    }

    pub(super) fn check_audit(&self, noted: Option<AuditHead>) -> Result<AuditCheck> {
        let action = "check the audit trail of";
        let anchor = self.anchor()?;
        let lowest = self.read(action, |link| {
            let row = link.row("SELECT min(number) FROM audit", &[])?;
            Ok(row.map(|row| row.try_get(0)).transpose()?.flatten())
        })?;
        let sql = format!(
            "SELECT {} FROM audit WHERE number > $1 ORDER BY number LIMIT $2",
            audit_columns()
        );
        check_audit_chain((anchor, lowest), noted, |after| {
            self.read(action, |link| {
                let rows = link.rows(&sql, &[&after, &SLICE])?;
                kept(&rows, |row| Ok(Some(values_of(row)?)))
            })
        })
    }

    /// The last row that was removed; before that, what the chain of this database begins with.
    fn anchor(&self) -> Result<AuditHead> {
        let kept = self.meta(ANCHOR)?;
        match kept.and_then(|text| text.parse().ok()) {
            Some(anchor) => Ok(anchor),
            None => Ok(genesis(&self.meta("identity")?.unwrap_or_default())),
        }
    }
}

/// The number of about the first row of a time or later, found by halving.
fn first_since(link: &mut Link<'_>, since: i64) -> std::result::Result<i64, SqlError> {
    let ends = link.row("SELECT min(number), max(number) FROM audit", &[])?;
    let (first, last): (Option<i64>, Option<i64>) = match ends {
        Some(row) => (row.try_get(0)?, row.try_get(1)?),
        None => (None, None),
    };
    let (mut low, mut high) = (first.unwrap_or(1), last.unwrap_or(0) + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        let sql = "SELECT at FROM audit WHERE number >= $1 ORDER BY number LIMIT 1";
        let row = link.row(sql, &[&middle])?;
        let at: Option<i64> = row.map(|row| row.try_get(0)).transpose()?;
        match at.is_some_and(|at| at < since) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    Ok(low)
}

fn values_of(row: &Row) -> std::result::Result<Vec<AuditValue>, SqlError> {
    let value = |at: usize| {
        let kind = row.columns().get(at).map(|column| column.type_().clone());
        Ok(match kind {
            Some(Type::INT8) => row.try_get::<_, Option<i64>>(at)?.map(AuditValue::Integer),
            Some(Type::BYTEA) => row.try_get::<_, Option<Vec<u8>>>(at)?.map(AuditValue::Blob),
            _ => {
                let text: Option<String> = row.try_get(at)?;
                text.map(|text| AuditValue::Text(original(text)))
            }
        }
        .unwrap_or(AuditValue::Null))
    };
    (0..AUDIT_COLUMNS.len()).map(value).collect()
}
