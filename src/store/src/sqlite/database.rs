//! Writer of the job database.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use saltern_base::fail_point::FailPoint;
use saltern_base::log_throttle::LogThrottle;
use saltern_model::{Jid, JobRecord, MinionId, ReturnRecord};

use super::checkpoint::{self, CheckpointPass, Checkpointer};
use super::displaced::OpenFiles;
use super::schema::{self, wrap};
use super::{DatabaseLimits, Scrubber, audit, batches, events, open_reader};
use crate::error::{Result, StoreError};
use crate::jobs::{
    AuditHead, Committed, JobQueries, JobState, KeptEvent, NewEvent, Write, Written, says_the_same,
};

/// The only writer of the job database.
pub struct JobDatabase {
    pub(super) connection: Connection,
    pub(super) path: PathBuf,
    pub(super) limits: DatabaseLimits,
    /// Identity of the file that `connection` has open.
    pub(super) files: OpenFiles,
    pub(super) next: NextIds,
    /// Jobs above the bound that is kept, as counted last, without those removed since.
    pub(super) excess: u64,
    /// Changes since the last complete checkpoint; a large one counts as its pages.
    pub(super) unfolded: u64,
    failures: LogThrottle,
}

/// Statements that the writer keeps prepared.
pub(super) const PREPARED: usize = 32;

/// Minimum time between two log lines about failing writes.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Numbers are given here and not by SQLite, which would give the numbers of deleted last rows
/// again; the mirror's place in the numbering would then skip new rows.
#[derive(Clone, Copy)]
pub(super) struct NextIds {
    pub(super) job: i64,
    pub(super) returned: i64,
    /// Of events: their position.
    pub(super) event: i64,
    /// Of events of [`Write::Events`]: the number that their sender gives, in this process.
    pub(super) sent_event: u64,
    /// The last row of the audit trail.
    pub(super) audit: AuditHead,
}

impl JobDatabase {
    /// Opens the database, or makes a new one in a directory that exists.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] when the file is damaged (see [`super::set_aside`]),
    /// [`StoreError::Schema`] when a newer release wrote it, [`StoreError::Full`] without space.
    pub fn open(path: &Path, limits: DatabaseLimits) -> Result<Self> {
        let (connection, files) = OpenFiles::opened(path, || schema::open_writer(path, &limits))?;
        connection.set_prepared_statement_cache_capacity(PREPARED);
        let next = NextIds {
            job: next_id(&connection, "jobs").map_err(|error| wrap(path, "open", error))?,
            returned: next_id(&connection, "returns").map_err(|error| wrap(path, "open", error))?,
            event: events::next_position(&connection).map_err(|error| wrap(path, "open", error))?,
            sent_event: 1,
            audit: audit::head(&connection).map_err(|error| wrap(path, "open", error))?,
        };
        Ok(Self {
            files,
            connection,
            path: path.to_path_buf(),
            limits,
            next,
            excess: 0,
            // The write-ahead log of an earlier process is checkpointed before long.
            unfolded: limits.checkpoint_changes / 2,
            failures: LogThrottle::new(LOG_INTERVAL),
        })
    }

    /// A reader of the same database.
    pub fn reader(&self) -> Result<Arc<dyn JobQueries>> {
        open_reader(&self.path, self.limits)
    }

    /// A scrubber on a connection of its own.
    pub fn scrubber(&self) -> Result<Scrubber> {
        Scrubber::open(&self.path, self.limits)
    }

    /// The path of the database.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes all changes or none; returns when they are on the disk.
    ///
    /// The answers stand in the order of the writes. A write sees the ones before it in the same
    /// batch.
    ///
    /// # Errors
    /// [`StoreError::Full`] when there is no space: nothing of the batch is kept, reads go on, and
    /// a later commit works as soon as there is space again.
    pub fn commit(&mut self, writes: &[Write]) -> Result<Vec<Written>> {
        let committed = self.commit_with_events(writes, &[])?;
        Ok(committed.written)
    }

    /// The same with the events that each change causes, if any; they are kept in the same
    /// transaction, unless the change is [`Written::Repeated`]: then they were kept with the first.
    ///
    /// # Errors
    /// As for [`JobDatabase::commit`].
    pub fn commit_with_events(
        &mut self,
        writes: &[Write],
        caused: &[Vec<NewEvent>],
    ) -> Result<Committed> {
        let mut next = self.next;
        let mut committed = Committed::default();
        committed.written.reserve(writes.len());
        let committed = self.transact("commit", |transaction| {
            for (index, write) in writes.iter().enumerate() {
                let written = apply(transaction, &mut next, write, &mut committed.events)?;
                committed.written.push(written);
                let caused = caused.get(index).map(Vec::as_slice).unwrap_or_default();
                if !matches!(written, Written::Repeated { .. }) {
                    events::insert(transaction, &mut next, caused, &mut committed.events)?;
                }
            }
            Ok(committed)
        })?;
        self.next = next;
        let caused = caused.iter().flatten().map(pages_of_event).sum::<u64>();
        self.unfolded += writes.iter().map(pages_of).sum::<u64>() + caused;
        Ok(committed)
    }

    /// Whether a [`Checkpointer`] should checkpoint the write-ahead log.
    pub fn checkpoint_is_due(&self) -> bool {
        self.unfolded >= self.limits.checkpoint_changes
    }

    /// A checkpointer on a connection beside the writer.
    pub fn checkpointer(&self) -> Result<Checkpointer> {
        Checkpointer::open(&self.path)
    }

    /// Checkpoints the rest of the write-ahead log into the main file, as far as readers allow it;
    /// after a complete checkpoint the next commit resets the log.
    pub fn checkpoint(&mut self) -> Result<CheckpointPass> {
        let pass = checkpoint::fold(&self.connection, &self.path);
        // A checkpoint that a reader or an error blocks is not tried again with every commit.
        let left = pass.as_ref().map_or(u64::MAX, |pass| pass.left());
        self.unfolded = left.min(self.limits.checkpoint_changes / 2);
        pass
    }

    pub(super) fn transact<T>(
        &mut self,
        action: &'static str,
        body: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let attempt = (|| {
            let transaction = self
                .connection
                .transaction_with_behavior(TransactionBehavior::Immediate)?;
            let value = body(&transaction)?;
            FailPoint::CommitWithin.pass();
            transaction.commit()?;
            Ok(value)
        })();
        attempt.map_err(|error| {
            let error = wrap(&self.path, action, error);
            if error.is_corrupt() {
                schema::suspect(&self.path);
            }
            if let StoreError::Database { source, .. } = &error
                && let Some(times) = self.failures.record()
            {
                tracing::error!(%source, times, path = %self.path.display(), "job database");
            }
            error
        })
    }
}

fn apply(
    transaction: &Transaction<'_>,
    next: &mut NextIds,
    write: &Write,
    kept: &mut Vec<KeptEvent>,
) -> rusqlite::Result<Written> {
    match write {
        Write::Return(record) => match insert_return(transaction, next, record)? {
            Written::Duplicate => once_more(transaction, record),
            new => Ok(new),
        },
        Write::Job(record) => insert_job(transaction, next, record, JobState::Open),
        Write::ClosedJob { job, reporter } => insert_closed(transaction, next, job, reporter),
        Write::JobPart(record) => match insert_job(transaction, next, record, JobState::Open)? {
            Written::Duplicate => {
                // Returns that are there already are not answers to this publication.
                replace_job(transaction, record, Some(next.returned - 1))
            }
            new => {
                leave_orphans_behind(transaction, record)?;
                Ok(new)
            }
        },
        Write::Expected { jid, minions } => {
            if !job_exists(transaction, jid)? {
                return Ok(Written::NoSuchJob);
            }
            insert_expected(transaction, jid, minions)?;
            Ok(Written::Updated)
        }
        Write::JobState {
            jid,
            state,
            at,
            notes,
        } => {
            let finished = (*state != JobState::Open).then_some(*at);
            let changed = transaction
                .prepare_cached(
                    "UPDATE jobs SET state = ?2, finished = ?3, notes = coalesce(?4, notes)
                     WHERE jid = ?1",
                )?
                .execute(params![
                    jid.as_str(),
                    state.code(),
                    finished,
                    notes.as_deref()
                ])?;
            Ok(updated(changed))
        }
        Write::Published { jid, at } => {
            let changed = transaction
                .prepare_cached(
                    "UPDATE jobs SET published = coalesce(published, ?2) WHERE jid = ?1",
                )?
                .execute(params![jid.as_str(), at])?;
            Ok(updated(changed))
        }
        Write::PublishedFor { jid, minion } => {
            let changed = transaction
                .prepare_cached("UPDATE jobs SET publisher = ?2 WHERE jid = ?1")?
                .execute(params![jid.as_str(), minion.as_str()])?;
            Ok(updated(changed))
        }
        Write::Batch { jid, plan } => batches::insert(transaction, jid, plan),
        Write::BatchFailed {
            jid,
            minions,
            reason,
        } => batches::give_up(transaction, jid, minions, reason),
        Write::BatchPaused { jid, since } => batches::pause(transaction, jid, *since),
        Write::BatchOver { jid, halted } => batches::end(transaction, jid, halted.as_deref()),
        Write::Events { first, events } => {
            events::insert_of_sender(transaction, next, (*first, events), kept)?;
            Ok(Written::Updated)
        }
        Write::Audit(record) => audit::insert(transaction, next, record),
        Write::DeleteJob { jid } => {
            let rows = delete_job(transaction, jid.as_str(), i64::MAX)?.rows;
            remember_next_ids(transaction, *next)?;
            Ok(Written::Deleted { rows })
        }
    }
}

/// About how many pages a change adds to the log.
fn pages_of(write: &Write) -> u64 {
    let bytes = match write {
        Write::Return(record) => record.load.as_ref().len(),
        Write::Job(record) | Write::JobPart(record) => record.load.as_ref().len(),
        Write::ClosedJob { job, .. } => job.load.as_ref().len(),
        Write::Audit(record) => record.arguments.len(),
        Write::Events { events, .. } => events.iter().map(|event| event.data.len()).sum(),
        _ => 0,
    };
    1 + pages_in(bytes)
}

fn pages_of_event(event: &NewEvent) -> u64 {
    1 + pages_in(event.data.len())
}

fn pages_in(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(0) / schema::PAGE_BYTES
}

fn updated(rows: usize) -> Written {
    if rows == 0 {
        Written::NoSuchJob
    } else {
        Written::Updated
    }
}

pub(super) fn insert_return(
    transaction: &Transaction<'_>,
    next: &mut NextIds,
    record: &ReturnRecord,
) -> rusqlite::Result<Written> {
    let inserted = transaction
        .prepare_cached(
            "INSERT INTO returns (id, jid, minion, received, fun, retcode, success, load)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (jid, minion) DO NOTHING",
        )?
        .execute(params![
            next.returned,
            record.jid.as_str(),
            record.minion.as_str(),
            record.received,
            record.fun,
            record.retcode,
            record.success,
            record.load.as_ref(),
        ])?;
    if inserted == 0 {
        return Ok(Written::Duplicate);
    }
    let id = next.returned;
    next.returned += 1;
    Ok(Written::New { id })
}

/// Whether a return that is there already is the same one, and has not been asked for anew since.
fn once_more(transaction: &Transaction<'_>, record: &ReturnRecord) -> rusqlite::Result<Written> {
    let mut statement = transaction.prepare_cached(
        "SELECT id, fun, load FROM returns WHERE jid = ?1 AND minion = ?2 AND id >
             coalesce((SELECT returns_before FROM jobs WHERE jobs.jid = returns.jid), id - 1)",
    )?;
    let keys = [record.jid.as_str(), record.minion.as_str()];
    let found = statement
        .query_row(keys, |row| {
            let load: Vec<u8> = row.get(2)?;
            Ok((row.get(0)?, row.get::<_, String>(1)?, Bytes::from(load)))
        })
        .optional()?;
    Ok(match found {
        Some((id, fun, load)) if fun == record.fun && says_the_same(&load, record.load.bytes()) => {
            Written::Repeated { id }
        }
        _ => Written::Duplicate,
    })
}

fn insert_job(
    transaction: &Transaction<'_>,
    next: &mut NextIds,
    record: &JobRecord,
    state: JobState,
) -> rusqlite::Result<Written> {
    if !insert_job_as(transaction, next.job, record, state)? {
        return Ok(Written::Duplicate);
    }
    let id = next.job;
    next.job += 1;
    Ok(Written::New { id })
}

/// Inserts a job under this number; `false`, and nothing changes, when its jid is taken.
pub(super) fn insert_job_as(
    transaction: &Transaction<'_>,
    id: i64,
    record: &JobRecord,
    state: JobState,
) -> rusqlite::Result<bool> {
    let finished = (state != JobState::Open).then_some(record.created);
    let inserted = transaction
        .prepare_cached(
            "INSERT INTO jobs
                 (id, jid, created, user, fun, tgt, tgt_type, nocache, state, load, finished)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT (jid) DO NOTHING",
        )?
        .execute(params![
            id,
            record.jid.as_str(),
            record.created,
            record.user,
            record.fun,
            record.tgt,
            record.tgt_type,
            record.nocache,
            state.code(),
            record.load.as_ref(),
            finished,
        ])?;
    if inserted == 0 {
        return Ok(false);
    }
    insert_expected(transaction, &record.jid, &record.minions)?;
    Ok(true)
}

fn insert_closed(
    transaction: &Transaction<'_>,
    next: &mut NextIds,
    record: &JobRecord,
    reporter: &Option<MinionId>,
) -> rusqlite::Result<Written> {
    let written = insert_job(transaction, next, record, JobState::Complete)?;
    if let Some(reporter) = reporter.as_ref().filter(|_| written.is_new()) {
        set_reporter(transaction, &record.jid, reporter)?;
    }
    Ok(written)
}

/// Marks a job as known by the report of this peer only.
pub(super) fn set_reporter(
    transaction: &Transaction<'_>,
    jid: &Jid,
    reporter: &MinionId,
) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("UPDATE jobs SET reporter = ?2 WHERE jid = ?1")?
        .execute([jid.as_str(), reporter.as_str()])?;
    Ok(())
}

/// Of a job that was removed, returns may be left: they are no answers to a new one of its jid.
fn leave_orphans_behind(transaction: &Transaction<'_>, record: &JobRecord) -> rusqlite::Result<()> {
    let mut statement = transaction.prepare_cached(
        "UPDATE jobs SET returns_before = orphans.last
           FROM (SELECT max(id) AS last FROM returns WHERE jid = ?1) AS orphans
          WHERE jid = ?1 AND orphans.last IS NOT NULL",
    )?;
    statement.execute([record.jid.as_str()])?;
    Ok(())
}

/// Puts a publication in the place of the job of its jid. `returns_before` is the number of the last
/// return there is.
fn replace_job(
    transaction: &Transaction<'_>,
    record: &JobRecord,
    returns_before: Option<i64>,
) -> rusqlite::Result<Written> {
    // A report and the published job may expect different minions.
    transaction
        .prepare_cached(
            "DELETE FROM expected_part WHERE jid IN
                 (SELECT jid FROM jobs WHERE jid = ?1 AND reporter IS NOT NULL)",
        )?
        .execute([record.jid.as_str()])?;
    transaction
        .prepare_cached(
            "UPDATE jobs SET created = ?2, user = ?3, fun = ?4, tgt = ?5, tgt_type = ?6,
                 nocache = ?7, state = ?8, load = ?9, published = NULL, finished = NULL,
                 publisher = NULL, reporter = NULL,
                 returns_before = coalesce(?10, returns_before)
             WHERE jid = ?1",
        )?
        .execute(params![
            record.jid.as_str(),
            record.created,
            record.user,
            record.fun,
            record.tgt,
            record.tgt_type,
            record.nocache,
            JobState::Open.code(),
            record.load.as_ref(),
            returns_before,
        ])?;
    insert_expected(transaction, &record.jid, &record.minions)?;
    Ok(Written::Updated)
}

/// Puts a job in the place of the report of one; `false`, and nothing changes, when there is none.
pub(super) fn replace_reported(
    transaction: &Transaction<'_>,
    record: &JobRecord,
) -> rusqlite::Result<bool> {
    let is_reported = transaction
        .prepare_cached("SELECT 1 FROM jobs WHERE jid = ?1 AND reporter IS NOT NULL")?
        .exists([record.jid.as_str()])?;
    if !is_reported {
        return Ok(false);
    }
    replace_job(transaction, record, None)?;
    transaction
        .prepare_cached("UPDATE jobs SET state = ?2, finished = created WHERE jid = ?1")?
        .execute(params![record.jid.as_str(), JobState::Expired.code()])?;
    Ok(true)
}

fn insert_expected(
    transaction: &Transaction<'_>,
    jid: &Jid,
    minions: &[MinionId],
) -> rusqlite::Result<()> {
    if minions.is_empty() {
        return Ok(());
    }
    transaction
        .prepare_cached("INSERT INTO expected_part (jid, minions) VALUES (?1, ?2)")?
        .execute(params![jid.as_str(), list_of(minions)?])?;
    Ok(())
}

/// A list of minions as the database keeps it.
pub(super) fn list_of(minions: &[MinionId]) -> rusqlite::Result<String> {
    let names: Vec<&str> = minions.iter().map(MinionId::as_str).collect();
    serde_json::to_string(&names)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(Box::new(error)))
}

fn job_exists(transaction: &Transaction<'_>, jid: &Jid) -> rusqlite::Result<bool> {
    transaction
        .prepare_cached("SELECT 1 FROM jobs WHERE jid = ?1")?
        .exists([jid.as_str()])
}

/// Progress of removing a job.
pub(super) struct DeletedRows {
    pub(super) rows: usize,
    /// Nothing of the job is left.
    pub(super) is_gone: bool,
}

/// Removes up to `slice` returns of a job, and the job itself once none are left.
pub(super) fn delete_job(
    transaction: &Transaction<'_>,
    jid: &str,
    slice: i64,
) -> rusqlite::Result<DeletedRows> {
    let mut rows = transaction
        .prepare_cached(
            "DELETE FROM returns
             WHERE id IN (SELECT id FROM returns WHERE jid = ?1 LIMIT ?2)",
        )?
        .execute(params![jid, slice])?;
    let is_gone = i64::try_from(rows).unwrap_or(i64::MAX) < slice;
    if is_gone {
        rows += transaction
            .prepare_cached("DELETE FROM expected_part WHERE jid = ?1")?
            .execute([jid])?;
        rows += batches::remove(transaction, jid)?;
        rows += transaction
            .prepare_cached("DELETE FROM jobs WHERE jid = ?1")?
            .execute([jid])?;
    }
    Ok(DeletedRows { rows, is_gone })
}

/// One more than every number that was ever given in `table`.
pub(super) fn next_id(connection: &Connection, table: &'static str) -> rusqlite::Result<i64> {
    let highest: Option<i64> =
        connection.query_row(&format!("SELECT max(id) FROM {table}"), [], |row| {
            row.get(0)
        })?;
    let remembered: Option<i64> = connection
        .query_row("SELECT value FROM meta WHERE name = ?1", [table], |row| {
            row.get(0)
        })
        .optional()?;
    Ok(highest.map_or(1, |id| id + 1).max(remembered.unwrap_or(1)))
}

/// Saves the highest numbers before rows are removed, in case they are among them.
pub(super) fn remember_next_ids(
    transaction: &Transaction<'_>,
    next: NextIds,
) -> rusqlite::Result<()> {
    let mut statement =
        transaction.prepare_cached("INSERT OR REPLACE INTO meta (name, value) VALUES (?1, ?2)")?;
    statement.execute(params!["jobs", next.job])?;
    statement.execute(params!["returns", next.returned])?;
    statement.execute(params!["events", next.event])?;
    Ok(())
}
