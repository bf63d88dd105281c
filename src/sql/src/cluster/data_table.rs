//! Grains and mines of a cluster: sealed rows, which the active member writes and every one follows.
//!
//! A write is one statement, as in [`state_table`](super::state_table): it holds the lease's row and changes nothing
//! unless owner and epoch are in it. What was removed keeps a row, so that those who follow see it.

use std::sync::Arc;
use std::time::Duration;

use saltern_store::shared_state::minion_data::{DataTable, DataWrite, MAX_SEALED_LEN};
use saltern_store::shared_state::{RevisionTable, RowPage, RowPosition};
use saltern_store::{Result, StoreError};

use super::engine::Target;
use super::lease_table::{Fence, LeaseTable};
use super::membership::Membership;
use super::revisioned::Revisioned;
use super::session::Session;

pub(super) const DATA: Revisioned = Revisioned {
    table: "minion_data",
    max_sealed: MAX_SEALED_LEN,
    // Of the longest some 16 MiB.
    max_rows: 64,
};

const WRITE: &str = "WITH fence AS (SELECT 1 FROM lease WHERE name = $1 AND owner = $2 AND epoch = $3 \
     FOR SHARE), \
     head AS (UPDATE minion_data_head SET revision = revision + 1 FROM fence RETURNING revision), \
     written AS (INSERT INTO minion_data AS d (id, version, revision, is_tombstone, changed, sealed) \
     SELECT n.id, n.version, head.revision, n.is_tombstone, clock_timestamp(), n.sealed \
     FROM head, unnest($4::bytea[], $5::bigint[], $6::bool[], $7::bytea[]) \
     AS n(id, version, is_tombstone, sealed) \
     ON CONFLICT (id) DO UPDATE SET version = EXCLUDED.version, revision = EXCLUDED.revision, \
     is_tombstone = EXCLUDED.is_tombstone, changed = EXCLUDED.changed, sealed = EXCLUDED.sealed \
     WHERE d.version < EXCLUDED.version) \
     SELECT (SELECT count(*) FROM fence), (SELECT revision FROM head)";

/// The table, over a connection of its own.
pub(super) struct SealedData {
    table: LeaseTable,
    target: Arc<Target>,
    member: Arc<Membership>,
}

impl SealedData {
    /// The table of a member's cluster. A statement takes `limit` at most.
    pub(super) fn new(
        target: Arc<Target>,
        member: Arc<Membership>,
        limit: Duration,
    ) -> Result<Self> {
        let table = LeaseTable::on(target.clone(), limit)?;
        Ok(Self {
            table,
            target,
            member,
        })
    }
}

impl RevisionTable for SealedData {
    fn changed_after(&self, position: &RowPosition) -> Result<RowPage> {
        let page = self
            .table
            .ask(async |session: &mut Session| DATA.changed_after(session, position).await);
        page.map_err(|error| self.target.error("read grains and mines from", error))
    }
}

impl DataTable for SealedData {
    fn first_version(&self) -> Result<i64> {
        Ok(self.member.fence()?.first_version())
    }

    fn write(&self, rows: &[DataWrite]) -> Result<Option<i64>> {
        let fence = match self.member.fence() {
            Ok(fence) => fence,
            Err(StoreError::NotOwner { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Fence {
            lease,
            member,
            epoch,
        } = &fence;
        let ids: Vec<&[u8]> = rows.iter().map(|one| &one.row.id[..]).collect();
        let versions: Vec<i64> = rows.iter().map(|one| one.row.version).collect();
        let tombstones: Vec<bool> = rows.iter().map(|one| one.is_tombstone).collect();
        let sealed: Vec<&[u8]> = rows.iter().map(|one| one.row.sealed.as_slice()).collect();
        let written = self.table.ask(async |session: &mut Session| {
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 7] =
                [lease, member, epoch, &ids, &versions, &tombstones, &sealed];
            let rows = session.confirmed_rows(WRITE, &values).await?;
            let held: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
            if held == 0 {
                return Ok(None);
            }
            let revision: Option<i64> = rows
                .first()
                .map(|row| row.try_get(1))
                .transpose()?
                .flatten();
            revision.map(Some).ok_or_else(|| DATA.headless())
        });
        written.map_err(|error| self.target.error("write grains and mines to", error))
    }

    fn expire(&self, age: Duration) -> Result<u64> {
        let expired = self
            .table
            .ask(async |session: &mut Session| DATA.expire(session, age).await);
        expired.map_err(|error| self.target.error("remove grains and mines from", error))
    }
}
