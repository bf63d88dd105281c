//! Tables of sealed rows that every member follows: each row has the revision of its last change, which the one row
//! of the table's head counts.
//!
//! Whoever writes raises the head in the same statement, before all else: its lock puts all writers in order until
//! they are committed, so whoever sees a revision sees all of before.

use std::time::Duration;

use saltern_store::shared_state::{RowId, RowPage, RowPosition, SealedRow};
use tokio_postgres::Row;

use super::lease_table::micros;
use super::session::Session;
use crate::error::SqlError;

/// Such a table. Its head has its name and `_head`.
pub(super) struct Revisioned {
    pub(super) table: &'static str,
    /// Bytes of the longest row: the content of a longer one is not read, and nobody can open it.
    pub(super) max_sealed: usize,
    /// Rows that are read at a time.
    pub(super) max_rows: usize,
}

impl Revisioned {
    /// The next rows behind a position.
    pub(super) async fn changed_after(
        &self,
        session: &mut Session,
        position: &RowPosition,
    ) -> Result<RowPage, SqlError> {
        let Self {
            table, max_sealed, ..
        } = self;
        let head = format!(
            "SELECT revision, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM {table}_head"
        );
        let read = format!(
            "SELECT revision, id, version, \
             CASE WHEN length(sealed) <= {max_sealed} THEN sealed ELSE ''::bytea END FROM {table} \
             WHERE (revision, id) > ($1, $2) ORDER BY revision, id LIMIT $3"
        );
        let head = session.rows(&head, &[]).await?;
        let Some(head) = head.first() else {
            // Nothing would be written, and nobody would know.
            return Err(self.headless());
        };
        let (head, now) = (head.try_get(0)?, head.try_get(1)?);
        let limit = i64::try_from(self.max_rows).unwrap_or(i64::MAX);
        let after: &[u8] = &position.id;
        let values = [&position.revision as _, &after as _, &limit as _];
        let rows = session.rows(&read, &values).await?;
        Ok(RowPage {
            head,
            now,
            is_last: rows.len() < self.max_rows,
            rows: rows.iter().map(row_of).collect::<Result<_, _>>()?,
        })
    }

    /// Removes rows that say that something is gone, when they are older; how many.
    pub(super) async fn expire(
        &self,
        session: &mut Session,
        age: Duration,
    ) -> Result<u64, SqlError> {
        let table = self.table;
        let expire = format!(
            "DELETE FROM {table} WHERE is_tombstone \
             AND changed < clock_timestamp() - $1 * interval '1 microsecond'"
        );
        session.execute(&expire, &[&micros(age)]).await
    }

    /// The head has no row.
    pub(super) fn headless(&self) -> SqlError {
        let table = self.table;
        SqlError::Database {
            code: "02000".to_owned(),
            text: format!("the table {table}_head has no row: run \"saltern cluster init\""),
        }
    }

    /// A statement that puts the row of the head where it is missing, with the revision of the last row: a member that
    /// has seen a higher one than the head's reads the whole table, in each round for as long as it is so.
    pub(super) fn put_head(&self) -> String {
        let table = self.table;
        format!(
            "INSERT INTO {table}_head (revision) SELECT coalesce(max(revision), 0) FROM {table} \
             ON CONFLICT DO NOTHING RETURNING 1"
        )
    }
}

/// The id of a row of any table.
pub(super) fn id_of(row: &Row, at: usize) -> Result<RowId, SqlError> {
    let id: &[u8] = row.try_get(at)?;
    // One of another length is none of ours, and does not open.
    Ok(id.try_into().unwrap_or_default())
}

fn row_of(row: &Row) -> Result<(i64, SealedRow), SqlError> {
    let sealed = SealedRow {
        id: id_of(row, 1)?,
        version: row.try_get(2)?,
        sealed: row.try_get(3)?,
    };
    Ok((row.try_get(0)?, sealed))
}
