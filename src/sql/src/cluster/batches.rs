//! Reads of batches.

use saltern_model::{Jid, Packed};
use saltern_store::Result;
use saltern_store::jobs::StoredBatch;
use tokio_postgres::Row;

use super::reader::{ClusterReader, Link, jid_of, kept, minions_of};
use super::returns::head_of;
use super::text::original;
use crate::error::SqlError;

/// The columns of [`batch_of`].
const COLUMNS: &str = "b.jid, b.is_open, b.halted, b.plan, b.paused_since, \
     (SELECT j.published FROM jobs AS j WHERE j.jid = b.jid), \
     ARRAY(SELECT unnest(e.minions) FROM expected_part AS e WHERE e.jid = b.jid)";

impl ClusterReader {
    pub(super) fn batch(&self, jid: &Jid) -> Result<Option<StoredBatch>> {
        let sql = format!("SELECT {COLUMNS} FROM batches AS b WHERE b.jid = $1");
        self.read("read a batch of", |link| {
            let row = link.row(&sql, &[&jid.as_str()])?;
            let batch = row.as_ref().map(batch_of).transpose()?.flatten();
            batch.map(|batch| completed(link, batch)).transpose()
        })
    }

    pub(super) fn batch_paused_since(&self, jid: &Jid) -> Result<Option<i64>> {
        self.read("read a batch of", |link| {
            let sql = "SELECT paused_since FROM batches WHERE jid = $1 AND is_open";
            let row = link.row(sql, &[&jid.as_str()])?;
            Ok(row.map(|row| row.try_get(0)).transpose()?.flatten())
        })
    }

    pub(super) fn open_batches(&self) -> Result<Vec<StoredBatch>> {
        let sql = format!("SELECT {COLUMNS} FROM batches AS b WHERE b.is_open ORDER BY b.jid");
        self.read("read batches of", |link| {
            let batches = kept(&link.rows(&sql, &[])?, batch_of)?.into_iter();
            batches.map(|batch| completed(link, batch)).collect()
        })
    }
}

fn batch_of(row: &Row) -> std::result::Result<Option<StoredBatch>, SqlError> {
    let Some(jid) = jid_of(row, 0)? else {
        return Ok(None);
    };
    Ok(Some(StoredBatch {
        jid,
        is_open: row.try_get(1)?,
        halted: row.try_get::<_, Option<String>>(2)?.map(original),
        plan: Packed::new(row.try_get::<_, Vec<u8>>(3)?),
        paused_since: row.try_get(4)?,
        failed: Vec::new(),
        sent: minions_of(row, 6)?,
        returned: Vec::new(),
        published: row.try_get(5)?,
    }))
}

fn completed(
    link: &mut Link<'_>,
    mut batch: StoredBatch,
) -> std::result::Result<StoredBatch, SqlError> {
    let jid = batch.jid.as_str();
    let sql = "SELECT reason, minions FROM batch_failed WHERE jid = $1 ORDER BY id";
    for row in link.rows(sql, &[&jid])? {
        let reason: String = row.try_get(0)?;
        let minions = minions_of(&row, 1)?.into_iter();
        batch
            .failed
            .extend(minions.map(|minion| (minion, reason.clone())));
    }
    let sql = "SELECT minion, received, retcode FROM returns WHERE jid = $1 ORDER BY id";
    batch.returned = kept(&link.rows(sql, &[&jid])?, head_of)?;
    Ok(batch)
}
