//! Batches: the plan of each, which minions were given up, and whether it is over.
//!
//! The rest of a batch's state is in the rows of its job: a minion that the job
//! expects was sent its part, and a minion with a return is done. So a part and the record that it
//! was sent are one row in one transaction, and the two can never disagree. What a plan says is
//! opaque here.

use rusqlite::{Connection, OptionalExtension, Transaction, params};
use saltern_model::{Jid, MinionId, Packed};

use super::reader::{JobReader, jid_of, kept, minions_of};
use super::summary::return_heads;
use crate::error::Result;
use crate::jobs::{StoredBatch, Written};

/// The tables, as a step of the layout.
pub(super) const LAYOUT: &str = "
CREATE TABLE batches (
    jid     TEXT PRIMARY KEY,
    is_open INTEGER NOT NULL,
    halted  TEXT,
    plan    BLOB NOT NULL
) STRICT;
CREATE INDEX batches_open ON batches (jid) WHERE is_open = 1;

CREATE TABLE batch_failed (
    id      INTEGER PRIMARY KEY,
    jid     TEXT NOT NULL,
    reason  TEXT NOT NULL,
    minions TEXT NOT NULL
) STRICT;
CREATE INDEX batch_failed_jid ON batch_failed (jid);
";

/// Since when a batch pauses, as a step of the layout.
pub(super) const PAUSES: &str = "ALTER TABLE batches ADD COLUMN paused_since INTEGER;";

impl JobReader {
    pub(super) fn batch(&self, jid: &Jid) -> Result<Option<StoredBatch>> {
        self.read("read a batch of", |connection| {
            let row = connection
                .prepare_cached(
                    "SELECT jid, is_open, halted, plan, paused_since FROM batches WHERE jid = ?1",
                )?
                .query_row([jid.as_str()], batch_of)
                .optional()?
                .flatten();
            row.map(|batch| completed(connection, batch)).transpose()
        })
    }

    pub(super) fn batch_paused_since(&self, jid: &Jid) -> Result<Option<i64>> {
        self.read("read a batch of", |connection| {
            let found = connection
                .prepare_cached("SELECT paused_since FROM batches WHERE jid = ?1 AND is_open = 1")?
                .query_row([jid.as_str()], |row| row.get(0))
                .optional()?;
            Ok(found.flatten())
        })
    }

    pub(super) fn open_batches(&self) -> Result<Vec<StoredBatch>> {
        self.read("read batches of", |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT jid, is_open, halted, plan, paused_since FROM batches WHERE is_open = 1
                 ORDER BY jid",
            )?;
            kept(statement.query_map([], batch_of)?)?
                .into_iter()
                .map(|batch| completed(connection, batch))
                .collect()
        })
    }
}

fn batch_of(row: &rusqlite::Row<'_>) -> rusqlite::Result<Option<StoredBatch>> {
    let Some(jid) = jid_of(row.get_ref(0)?) else {
        return Ok(None);
    };
    Ok(Some(StoredBatch {
        jid,
        is_open: row.get(1)?,
        halted: row.get(2)?,
        plan: Packed::new(row.get::<_, Vec<u8>>(3)?),
        paused_since: row.get(4)?,
        failed: Vec::new(),
        sent: Vec::new(),
        returned: Vec::new(),
        published: None,
    }))
}

fn completed(connection: &Connection, mut batch: StoredBatch) -> rusqlite::Result<StoredBatch> {
    let jid = batch.jid.as_str();
    batch.published = connection
        .prepare_cached("SELECT published FROM jobs WHERE jid = ?1")?
        .query_row([jid], |row| row.get(0))
        .optional()?
        .flatten();
    let mut statement = connection
        .prepare_cached("SELECT minions FROM expected_part WHERE jid = ?1 ORDER BY id")?;
    let mut rows = statement.query([jid])?;
    while let Some(row) = rows.next()? {
        batch.sent.extend(minions_of(row.get_ref(0)?)?);
    }
    batch.sent.sort_unstable();
    batch.sent.dedup();
    let mut statement = connection
        .prepare_cached("SELECT reason, minions FROM batch_failed WHERE jid = ?1 ORDER BY id")?;
    let mut rows = statement.query([jid])?;
    while let Some(row) = rows.next()? {
        let reason: String = row.get(0)?;
        let minions = minions_of(row.get_ref(1)?)?;
        let failed = minions.into_iter().map(|minion| (minion, reason.clone()));
        batch.failed.extend(failed);
    }
    batch.returned = return_heads(connection, &batch.jid)?;
    Ok(batch)
}

/// A new batch, open; the plan of one that is there already stays.
pub(super) fn insert(
    transaction: &Transaction<'_>,
    jid: &Jid,
    plan: &Packed,
) -> rusqlite::Result<Written> {
    let inserted = transaction
        .prepare_cached(
            "INSERT INTO batches (jid, is_open, plan) VALUES (?1, 1, ?2)
             ON CONFLICT (jid) DO NOTHING",
        )?
        .execute(params![jid.as_str(), plan.as_ref()])?;
    Ok(match inserted {
        0 => Written::Duplicate,
        _ => Written::Updated,
    })
}

/// Minions of a batch are given up.
pub(super) fn give_up(
    transaction: &Transaction<'_>,
    jid: &Jid,
    minions: &[MinionId],
    reason: &str,
) -> rusqlite::Result<Written> {
    let list = super::database::list_of(minions)?;
    transaction
        .prepare_cached("INSERT INTO batch_failed (jid, reason, minions) VALUES (?1, ?2, ?3)")?
        .execute(params![jid.as_str(), reason, list])?;
    Ok(Written::Updated)
}

/// An open batch pauses, or goes on.
pub(super) fn pause(
    transaction: &Transaction<'_>,
    jid: &Jid,
    since: Option<i64>,
) -> rusqlite::Result<Written> {
    let changed = transaction
        .prepare_cached("UPDATE batches SET paused_since = ?2 WHERE jid = ?1 AND is_open = 1")?
        .execute(params![jid.as_str(), since])?;
    Ok(match changed {
        0 => Written::NoSuchJob,
        _ => Written::Updated,
    })
}

/// A batch is over.
pub(super) fn end(
    transaction: &Transaction<'_>,
    jid: &Jid,
    halted: Option<&str>,
) -> rusqlite::Result<Written> {
    let changed = transaction
        .prepare_cached("UPDATE batches SET is_open = 0, halted = ?2 WHERE jid = ?1")?
        .execute(params![jid.as_str(), halted])?;
    Ok(match changed {
        0 => Written::NoSuchJob,
        _ => Written::Updated,
    })
}

/// Removes the batch rows of a job; returns how many.
pub(super) fn remove(transaction: &Transaction<'_>, jid: &str) -> rusqlite::Result<usize> {
    let failed = transaction
        .prepare_cached("DELETE FROM batch_failed WHERE jid = ?1")?
        .execute([jid])?;
    let batches = transaction
        .prepare_cached("DELETE FROM batches WHERE jid = ?1")?
        .execute([jid])?;
    Ok(failed + batches)
}
