//! The keys of minions of a cluster: sealed rows, which every member reads and writes.
//!
//! A write is one statement, so one round trip and no open transaction that a lost machine could leave behind. A row is
//! written only in place of the version that its writer has seen.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use saltern_store::Result;
use saltern_store::shared_state::minion_keys::{KeyTable, KeyWrite};
use saltern_store::shared_state::{MAX_ROWS, RevisionTable, RowId, RowPage, RowPosition};

use super::engine::Target;
use super::lease_table::LeaseTable;
use super::revisioned::{Revisioned, id_of};
use super::session::Session;

pub(super) const KEYS: Revisioned = Revisioned {
    table: "minion_key",
    // Longer than any of ours (four keys of 16 KiB).
    max_sealed: 131_072,
    max_rows: MAX_ROWS,
};

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

impl RevisionTable for SealedKeys {
    fn changed_after(&self, position: &RowPosition) -> Result<RowPage> {
        let page = self
            .table
            .ask(async |session: &mut Session| KEYS.changed_after(session, position).await);
        page.map_err(|error| self.target.error("read keys of minions from", error))
    }
}

impl KeyTable for SealedKeys {
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
        let expired = self
            .table
            .ask(async |session: &mut Session| KEYS.expire(session, age).await);
        expired.map_err(|error| self.target.error("remove keys of minions from", error))
    }
}
