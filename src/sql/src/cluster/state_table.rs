//! The shared state of a cluster: sealed rows, which the active master alone writes.
//!
//! Each batch is one statement, so one round trip and no open transaction that a lost machine could leave
//! behind. It holds the lease's row (`FOR SHARE`) and changes nothing unless owner and epoch are in it:
//! whoever takes the lease waits for it, and reads the table afterwards. A statement that comes late, after
//! its repetition, replaces no newer row.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use saltern_store::Result;
use saltern_store::shared_state::{MAX_ROWS, RowId, SealedRow, StateBatch, StateTable};
use tokio_postgres::Row;

use super::engine::Target;
use super::lease_table::{Fence, LeaseTable};
use super::revisioned::id_of;
use super::session::Session;
use crate::error::SqlError;

const WRITE: &str = "WITH fence AS (SELECT 1 FROM lease WHERE name = $1 AND owner = $2 AND epoch = $3 \
     FOR SHARE), \
     removed AS (DELETE FROM sealed_file USING fence WHERE id = ANY($4::bytea[])), \
     written AS (INSERT INTO sealed_file (id, version, sealed) \
     SELECT n.id, n.version, n.sealed FROM unnest($5::bytea[], $6::bigint[], $7::bytea[]) \
     AS n(id, version, sealed), fence \
     ON CONFLICT (id) DO UPDATE SET version = EXCLUDED.version, sealed = EXCLUDED.sealed \
     WHERE sealed_file.version < EXCLUDED.version) \
     SELECT count(*) FROM fence";

const READ: &str = "SELECT id, version, sealed FROM sealed_file WHERE id > $1 ORDER BY id LIMIT $2";

/// The table, over a connection of its own.
pub(super) struct SealedTable {
    table: LeaseTable,
    target: Arc<Target>,
    fence: Fence,
}

impl SealedTable {
    /// The table as the owner of a lease has it. A statement takes `limit` at most.
    pub(super) fn new(target: Arc<Target>, fence: Fence, limit: Duration) -> Result<Self> {
        let table = LeaseTable::on(target.clone(), limit)?;
        Ok(Self {
            table,
            target,
            fence,
        })
    }

    /// The place of the table, for people.
    pub(super) fn place(&self) -> &Path {
        &self.target.place
    }
}

impl StateTable for SealedTable {
    fn first_version(&self) -> i64 {
        self.fence.first_version()
    }

    fn write(&self, batch: &StateBatch) -> Result<bool> {
        let Fence {
            lease,
            member,
            epoch,
        } = &self.fence;
        let removed: Vec<&[u8]> = batch.removed.iter().map(|id| &id[..]).collect();
        let rows = || batch.written.iter();
        let ids: Vec<&[u8]> = rows().map(|row| &row.id[..]).collect();
        let versions: Vec<i64> = rows().map(|row| row.version).collect();
        let sealed: Vec<&[u8]> = rows().map(|row| row.sealed.as_slice()).collect();
        let written = self.table.ask(async |session: &mut Session| {
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 7] =
                [lease, member, epoch, &removed, &ids, &versions, &sealed];
            let rows = session.confirmed_rows(WRITE, &values).await?;
            let held: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
            Ok(held > 0)
        });
        written.map_err(|error| self.target.error("write shared state to", error))
    }

    fn read_after(&self, row: Option<&RowId>) -> Result<Vec<SealedRow>> {
        let after: &[u8] = row.map_or(&[], |id| &id[..]);
        let limit = i64::try_from(MAX_ROWS).unwrap_or(i64::MAX);
        let rows = self.table.ask(async |session: &mut Session| {
            let rows = session.rows(READ, &[&after, &limit]).await?;
            rows.iter().map(row_of).collect()
        });
        rows.map_err(|error| self.target.error("read shared state from", error))
    }
}

fn row_of(row: &Row) -> std::result::Result<SealedRow, SqlError> {
    Ok(SealedRow {
        id: id_of(row, 0)?,
        version: row.try_get(1)?,
        sealed: row.try_get(2)?,
    })
}
