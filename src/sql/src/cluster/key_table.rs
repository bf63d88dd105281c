//! The keys of minions of a cluster: sealed rows, which every member reads and writes.
//!
//! A write is one statement, so one round trip and no open transaction that a lost machine could leave behind. It
//! raises the one row of the head first: its lock puts all writers in order until they are committed, so whoever
//! sees a revision sees all of before. A row is written only in place of the version that its writer has seen.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use saltern_store::Result;
use saltern_store::shared_state::minion_keys::{KeyPage, KeyPosition, KeyTable, KeyWrite};
use saltern_store::shared_state::{MAX_ROWS, RowId, SealedRow};
use tokio_postgres::Row;

use super::engine::Target;
use super::lease_table::{LeaseTable, micros};
use super::session::Session;
use crate::error::SqlError;

const HEAD: &str = "SELECT revision, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint FROM minion_key_head";

/// Without the content of a row that is longer than any of ours (four keys of 16 KiB): nobody can open it.
const READ: &str = "SELECT revision, id, version, \
     CASE WHEN length(sealed) <= 131072 THEN sealed ELSE ''::bytea END FROM minion_key \
     WHERE (revision, id) > ($1, $2) ORDER BY revision, id LIMIT $3";

const WRITE: &str = "WITH head AS (UPDATE minion_key_head SET revision = revision + 1 RETURNING revision) \
     INSERT INTO minion_key AS k (id, version, replaced, revision, is_tombstone, changed, sealed) \
     SELECT n.id, n.version, n.replaced, head.revision, n.is_tombstone, clock_timestamp(), n.sealed \
     FROM head, unnest($1::bytea[], $2::bigint[], $3::bigint[], $4::bool[], $5::bytea[]) \
     AS n(id, version, replaced, is_tombstone, sealed) \
     ON CONFLICT (id) DO UPDATE SET version = EXCLUDED.version, replaced = EXCLUDED.replaced, \
     revision = EXCLUDED.revision, is_tombstone = EXCLUDED.is_tombstone, changed = EXCLUDED.changed, \
     sealed = EXCLUDED.sealed WHERE k.version = EXCLUDED.replaced RETURNING id";

const CLEAR: &str =
    "DELETE FROM minion_key WHERE NOT EXISTS (SELECT 1 FROM minion_key WHERE id = $1)";

const EXPIRE: &str = "DELETE FROM minion_key WHERE is_tombstone \
     AND changed < clock_timestamp() - $1 * interval '1 microsecond'";

/// The table, over a connection of its own.
pub(super) struct SealedKeys {
    table: LeaseTable,
    target: Arc<Target>,
}

impl SealedKeys {
    /// The table of a cluster. A statement takes `limit` at most.
    pub(super) fn new(target: Arc<Target>, limit: Duration) -> Result<Self> {
        let table = LeaseTable::on(target.clone(), limit)?;
        Ok(Self { table, target })
    }
}

impl KeyTable for SealedKeys {
    fn changed_after(&self, position: &KeyPosition) -> Result<KeyPage> {
        let limit = i64::try_from(MAX_ROWS).unwrap_or(i64::MAX);
        let after: &[u8] = &position.id;
        let page = self.table.ask(async |session: &mut Session| {
            let head = session.rows(HEAD, &[]).await?;
            let Some(head) = head.first() else {
                // Nothing would be written, and nobody would know.
                return Err(SqlError::Database {
                    code: "02000".to_owned(),
                    text: "the table minion_key_head has no row: run \"saltern cluster init\""
                        .to_owned(),
                });
            };
            let (head, now) = (head.try_get(0)?, head.try_get(1)?);
            let values = [&position.revision as _, &after as _, &limit as _];
            let rows = session.rows(READ, &values).await?;
            let rows = rows.iter().map(row_of);
            Ok(KeyPage {
                head,
                now,
                rows: rows.collect::<std::result::Result<_, SqlError>>()?,
            })
        });
        page.map_err(|error| self.target.error("read keys of minions from", error))
    }

    fn write(&self, rows: &[KeyWrite]) -> Result<HashSet<RowId>> {
        let ids: Vec<&[u8]> = rows.iter().map(|one| &one.row.id[..]).collect();
        let versions: Vec<i64> = rows.iter().map(|one| one.row.version).collect();
        let replaced: Vec<i64> = rows.iter().map(|one| one.replaces).collect();
        let tombstones: Vec<bool> = rows.iter().map(|one| one.is_tombstone).collect();
        let sealed: Vec<&[u8]> = rows.iter().map(|one| one.row.sealed.as_slice()).collect();
        let written = self.table.ask(async |session: &mut Session| {
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
                [&ids, &versions, &replaced, &tombstones, &sealed];
            let rows = session.confirmed_rows(WRITE, &values).await?;
            rows.iter().map(|row| id_of(row, 0)).collect()
        });
        written.map_err(|error| self.target.error("write keys of minions to", error))
    }

    fn clear_unless(&self, marker: &RowId) -> Result<()> {
        let marker: &[u8] = marker;
        let cleared = self.table.ask(async |session: &mut Session| {
            session.confirmed_rows(CLEAR, &[&marker]).await?;
            Ok(())
        });
        cleared.map_err(|error| self.target.error("remove keys of minions from", error))
    }

    fn expire(&self, age: Duration) -> Result<u64> {
        let age = micros(age);
        let expired = self
            .table
            .ask(async |session: &mut Session| session.execute(EXPIRE, &[&age]).await);
        expired.map_err(|error| self.target.error("remove keys of minions from", error))
    }
}

fn id_of(row: &Row, at: usize) -> std::result::Result<RowId, SqlError> {
    let id: &[u8] = row.try_get(at)?;
    // One of another length is none of ours, and does not open.
    Ok(id.try_into().unwrap_or_default())
}

fn row_of(row: &Row) -> std::result::Result<(i64, SealedRow), SqlError> {
    let sealed = SealedRow {
        id: id_of(row, 1)?,
        version: row.try_get(2)?,
        sealed: row.try_get(3)?,
    };
    Ok((row.try_get(0)?, sealed))
}
