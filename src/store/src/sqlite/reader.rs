//! Readers of the job database.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use rusqlite::{Connection, OptionalExtension, Row};
use saltern_model::{Jid, JobRecord, MinionId, Packed, ReturnRecord};

use super::DatabaseLimits;
use super::displaced::{FileId, file_id, identified};
use super::schema::{self, wrap};
use crate::error::Result;
use crate::jobs::{IncompleteJob, JobQueries, JobState, Numbered, OpenJob, ReturnRun, StoredJob};

/// Sees the last committed state; never waits for the writer and never holds it up.
///
/// May be shared, but then its users wait for each other: give every busy user one of its own.
pub(super) struct JobReader {
    /// With the file that it has open.
    connection: Mutex<(Connection, Option<FileId>)>,
    path: PathBuf,
    limits: DatabaseLimits,
}

/// Opens a reader of a database that a [`super::JobDatabase`] has made.
pub fn open_reader(path: &Path, limits: DatabaseLimits) -> Result<Arc<dyn JobQueries>> {
    Ok(Arc::new(JobReader::open(path, limits)?))
}

/// Reads every page of a database for damage; takes as long as reading the whole file.
pub fn examine(path: &Path) -> Result<()> {
    schema::quick_check(
        &schema::open_reader(path, &DatabaseLimits::default())?,
        path,
    )
}

impl JobReader {
    pub(super) fn open(path: &Path, limits: DatabaseLimits) -> Result<Self> {
        Self::opened(path, limits, || schema::open_reader(path, &limits))
    }

    pub(super) fn opened(
        path: &Path,
        limits: DatabaseLimits,
        open: impl FnOnce() -> Result<Connection>,
    ) -> Result<Self> {
        Ok(Self {
            connection: Mutex::new(identified(path, open)?),
            path: path.to_path_buf(),
            limits,
        })
    }

    pub(super) fn another(&self) -> Result<Self> {
        Self::open(&self.path, self.limits)
    }

    pub(super) fn identity(&self) -> Result<String> {
        self.read("read", |connection| {
            connection.query_row(
                "SELECT value FROM meta WHERE name = 'identity'",
                [],
                |row| row.get(0),
            )
        })
    }

    pub(super) fn load(&self, jid: &Jid) -> Result<Option<StoredJob>> {
        self.read("read a job of", |connection| {
            let job = connection
                .prepare_cached(&select_jobs("WHERE jid = ?1"))?
                .query_row([jid.as_str()], job_of)
                .optional()?
                .flatten();
            job.map(|job| with_expected(connection, job)).transpose()
        })
    }

    pub(super) fn has(&self, jid: &Jid) -> Result<bool> {
        self.read("look for a job in", |connection| {
            connection
                .prepare_cached("SELECT EXISTS (SELECT 1 FROM jobs WHERE jid = ?1)")?
                .query_row([jid.as_str()], |row| row.get(0))
        })
    }

    pub(super) fn is_published_for(&self, jid: &Jid, minion: &MinionId) -> Result<bool> {
        self.read("look for a job in", |connection| {
            connection
                .prepare_cached(
                    "SELECT EXISTS (SELECT 1 FROM expected_part, json_each(minions)
                                    WHERE jid = ?1 AND value = ?2)
                        AND EXISTS (SELECT 1 FROM jobs WHERE jid = ?1 AND reporter IS NULL)",
                )?
                .query_row([jid.as_str(), minion.as_str()], |row| row.get(0))
        })
    }

    pub(super) fn is_reported(&self, jid: &Jid) -> Result<bool> {
        self.read("look for a job in", |connection| {
            connection
                .prepare_cached(
                    "SELECT EXISTS (SELECT 1 FROM jobs WHERE jid = ?1 AND reporter IS NOT NULL)",
                )?
                .query_row([jid.as_str()], |row| row.get(0))
        })
    }

    pub(super) fn has_early_returns(&self, jid: &Jid) -> Result<bool> {
        self.read("look for returns in", |connection| {
            connection
                .prepare_cached(
                    "SELECT EXISTS (SELECT 1 FROM jobs JOIN returns ON returns.jid = jobs.jid
                                     WHERE jobs.jid = ?1 AND returns.id <= jobs.returns_before)",
                )?
                .query_row([jid.as_str()], |row| row.get(0))
        })
    }

    pub(super) fn incomplete(&self, jid: &Jid, minion: &MinionId) -> Result<Option<IncompleteJob>> {
        self.read("look for a job in", |connection| {
            connection
                .prepare_cached(
                    "SELECT (SELECT coalesce(sum(json_array_length(minions)), 0)
                               FROM expected_part WHERE expected_part.jid = jobs.jid),
                            EXISTS (SELECT 1 FROM expected_part, json_each(minions)
                                     WHERE expected_part.jid = jobs.jid AND value = ?2)
                       FROM jobs
                      WHERE jid = ?1 AND state NOT IN (0, 1) AND reporter IS NULL AND nocache = 0",
                )?
                .query_row([jid.as_str(), minion.as_str()], |row| {
                    Ok(IncompleteJob {
                        minions: usize::try_from(row.get::<_, i64>(0)?).unwrap_or(usize::MAX),
                        expects: row.get(1)?,
                    })
                })
                .optional()
        })
    }

    pub(super) fn publisher_of(&self, jid: &Jid) -> Result<Option<MinionId>> {
        self.read("read a job of", |connection| {
            let publisher = connection
                .prepare_cached("SELECT publisher FROM jobs WHERE jid = ?1")?
                .query_row([jid.as_str()], |row| Ok(minion_of(row.get_ref(0)?)))
                .optional()?;
            Ok(publisher.flatten())
        })
    }

    pub(super) fn returns(&self, jid: &Jid) -> Result<Vec<ReturnRecord>> {
        self.read("read returns of", |connection| {
            let mut statement =
                connection.prepare_cached(&select_returns("WHERE jid = ?1 ORDER BY id"))?;
            let rows = statement.query_map([jid.as_str()], record_of)?;
            kept(rows)
        })
    }

    pub(super) fn return_of(&self, jid: &Jid, minion: &MinionId) -> Result<Option<ReturnRecord>> {
        self.read("read a return of", |connection| {
            connection
                .prepare_cached(&select_returns("WHERE jid = ?1 AND minion = ?2"))?
                .query_row([jid.as_str(), minion.as_str()], record_of)
                .optional()
                .map(Option::flatten)
        })
    }

    pub(super) fn open_jobs(&self) -> Result<Vec<OpenJob>> {
        self.read("read open jobs of", |connection| {
            let mut statement =
                connection.prepare_cached(&select_jobs("WHERE state = 0 ORDER BY id"))?;
            let jobs = kept(statement.query_map([], job_of)?)?;
            jobs.into_iter()
                .map(|job| with_returned(connection, job))
                .collect()
        })
    }

    pub(super) fn jobs_within(
        &self,
        cursor: i64,
        limit: usize,
        bytes: usize,
    ) -> Result<(Vec<StoredJob>, usize)> {
        self.read("read jobs of", |connection| {
            let mut statement =
                connection.prepare_cached(&select_jobs("WHERE id > ?1 ORDER BY id LIMIT ?2"))?;
            let rows = statement.query_map((cursor, clamp(limit)), job_of)?;
            let rows = rows.filter_map(rusqlite::Result::transpose);
            let jobs = rows.map(|job| with_expected(connection, job?));
            within(jobs, bytes, |job| {
                let minions = job.record.minions.iter();
                let minions: usize = minions.map(|minion| minion.as_str().len()).sum();
                job.record.load.bytes().len() + minions
            })
        })
    }

    pub(super) fn returns_within(
        &self,
        cursor: i64,
        limit: usize,
        bytes: usize,
    ) -> Result<Vec<Numbered<ReturnRecord>>> {
        self.read("read returns of", |connection| {
            let mut statement =
                connection.prepare_cached(&select_returns("WHERE id > ?1 ORDER BY id LIMIT ?2"))?;
            let rows = statement.query_map((cursor, clamp(limit)), numbered_return_of)?;
            let rows = rows.filter_map(rusqlite::Result::transpose);
            Ok(within(rows, bytes, |row| row.record.load.bytes().len())?.0)
        })
    }

    pub(super) fn return_runs(&self, cursor: i64, limit: usize) -> Result<Vec<ReturnRun>> {
        self.read("read returns of", |connection| {
            let mut statement = connection
                .prepare_cached("SELECT id, jid FROM returns WHERE id > ?1 ORDER BY id LIMIT ?2")?;
            let mut rows = statement.query((cursor, clamp(limit)))?;
            let mut runs = Vec::new();
            while let Some(row) = rows.next()? {
                let jid = row.get_ref(1)?.as_str().unwrap_or_default();
                parsed(ReturnRun::add(&mut runs, row.get(0)?, jid));
            }
            Ok(runs)
        })
    }

    pub(super) fn first_return(&self, jid: &Jid, cursor: i64) -> Result<Option<i64>> {
        self.read("look for returns in", |connection| {
            // By the index of jids: in the order of numbers all returns behind the cursor might be read.
            connection
                .prepare_cached("SELECT min(+id) FROM returns WHERE jid = ?1 AND +id > ?2")?
                .query_row((jid.as_str(), cursor), |row| row.get(0))
        })
    }

    pub(super) fn return_span(&self) -> Result<(i64, i64)> {
        let sql = "SELECT (SELECT coalesce(min(id), 0) FROM returns),
                          (SELECT coalesce(max(id), 0) FROM returns)";
        self.pair("read", sql)
    }

    pub(super) fn last_ids(&self) -> Result<(i64, i64)> {
        let sql = "SELECT (SELECT coalesce(max(id), 0) FROM jobs),
                          (SELECT coalesce(max(id), 0) FROM returns)";
        self.pair("read", sql)
    }

    pub(super) fn counts(&self) -> Result<(u64, u64)> {
        let sql = "SELECT (SELECT count(*) FROM jobs), (SELECT count(*) FROM returns)";
        let (jobs, returns) = self.pair("count", sql)?;
        Ok((jobs.unsigned_abs(), returns.unsigned_abs()))
    }

    /// The two numbers of a statement's only row.
    fn pair(&self, action: &'static str, sql: &str) -> Result<(i64, i64)> {
        self.read(action, |connection| {
            let mut statement = connection.prepare_cached(sql)?;
            statement.query_row([], |row| Ok((row.get(0)?, row.get(1)?)))
        })
    }

    /// The path of the database.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn read<T>(
        &self,
        action: &'static str,
        body: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T> {
        let mut open = self.connection.lock();
        self.follow(&mut open);
        body(&open.0).map_err(|error| wrap(&self.path, action, error))
    }

    /// Goes over to the file that has the place of the one that is open; one that cannot be read
    /// is left alone, for the writer may be about to replace it.
    fn follow(&self, open: &mut (Connection, Option<FileId>)) {
        let Ok(found @ Some(_)) = file_id(&self.path) else {
            return;
        };
        if found == open.1 {
            return;
        }
        match schema::open_reader(&self.path, &self.limits) {
            Ok(connection) => *open = (connection, found),
            Err(error) => {
                tracing::debug!(%error, "the job database was replaced by what cannot be read");
            }
        }
    }
}

pub(super) fn select_jobs(rest: &str) -> String {
    format!(
        "SELECT id, jid, created, user, fun, tgt, tgt_type, nocache, state, load, notes,
             published, finished, publisher, reporter
         FROM jobs {rest}"
    )
}

pub(super) fn select_returns(rest: &str) -> String {
    format!("SELECT id, jid, minion, received, fun, retcode, success, load FROM returns {rest}")
}

/// A row whose jid is none (somebody edited the database) is passed over and reported.
pub(super) fn job_of(row: &Row<'_>) -> rusqlite::Result<Option<StoredJob>> {
    let Some(jid) = jid_of(row.get_ref(1)?) else {
        return Ok(None);
    };
    Ok(Some(StoredJob {
        id: row.get(0)?,
        record: JobRecord {
            jid,
            created: row.get(2)?,
            user: row.get(3)?,
            fun: row.get(4)?,
            tgt: row.get(5)?,
            tgt_type: row.get(6)?,
            nocache: row.get(7)?,
            load: Packed::new(row.get::<_, Vec<u8>>(9)?),
            minions: Vec::new(),
        },
        state: JobState::from_code(row.get(8)?),
        published: row.get(11)?,
        finished: row.get(12)?,
        notes: row.get::<_, Option<Vec<u8>>>(10)?.map(Bytes::from),
        publisher: minion_of(row.get_ref(13)?),
        reporter: minion_of(row.get_ref(14)?),
    }))
}

pub(super) fn numbered_return_of(
    row: &Row<'_>,
) -> rusqlite::Result<Option<Numbered<ReturnRecord>>> {
    let id = row.get(0)?;
    Ok(record_of(row)?.map(|record| Numbered { id, record }))
}

/// A row whose jid or minion is none is passed over and reported.
pub(super) fn record_of(row: &Row<'_>) -> rusqlite::Result<Option<ReturnRecord>> {
    let (Some(jid), Some(minion)) = (jid_of(row.get_ref(1)?), minion_of(row.get_ref(2)?)) else {
        return Ok(None);
    };
    Ok(Some(ReturnRecord {
        jid,
        minion,
        received: row.get(3)?,
        fun: row.get(4)?,
        retcode: row.get(5)?,
        success: row.get(6)?,
        load: Packed::new(row.get::<_, Vec<u8>>(7)?),
    }))
}

fn with_expected(connection: &Connection, mut job: StoredJob) -> rusqlite::Result<StoredJob> {
    let mut statement = connection
        .prepare_cached("SELECT minions FROM expected_part WHERE jid = ?1 ORDER BY id")?;
    let mut rows = statement.query([job.record.jid.as_str()])?;
    while let Some(row) = rows.next()? {
        job.record.minions.extend(minions_of(row.get_ref(0)?)?);
    }
    job.record.minions.sort_unstable();
    job.record.minions.dedup();
    Ok(job)
}

pub(super) fn with_returned(connection: &Connection, job: StoredJob) -> rusqlite::Result<OpenJob> {
    let job = with_expected(connection, job)?;
    let mut statement = connection
        .prepare_cached("SELECT minion, retcode FROM returns WHERE jid = ?1 ORDER BY minion")?;
    let rows = statement.query_map([job.record.jid.as_str()], |row| {
        let retcode: i64 = row.get(1)?;
        Ok(minion_of(row.get_ref(0)?).map(|minion| (minion, retcode)))
    })?;
    let returned = kept(rows)?;
    Ok(OpenJob { job, returned })
}

pub(super) fn returned_minions(
    connection: &Connection,
    jid: &Jid,
) -> rusqlite::Result<Vec<MinionId>> {
    let mut statement =
        connection.prepare_cached("SELECT minion FROM returns WHERE jid = ?1 ORDER BY minion")?;
    let rows = statement.query_map([jid.as_str()], |row| Ok(minion_of(row.get_ref(0)?)))?;
    kept(rows)
}

/// Parses a stored list of minions; invalid ids are skipped.
pub(super) fn minions_of(list: rusqlite::types::ValueRef<'_>) -> rusqlite::Result<Vec<MinionId>> {
    let names: Vec<std::borrow::Cow<'_, str>> =
        serde_json::from_str(list.as_str()?).map_err(|error| {
            rusqlite::Error::FromSqlConversionFailure(
                0,
                rusqlite::types::Type::Text,
                Box::new(error),
            )
        })?;
    let minions = names
        .iter()
        .filter_map(|name| parsed(MinionId::parse(name)));
    Ok(minions.collect())
}

pub(super) fn kept<T>(
    rows: impl Iterator<Item = rusqlite::Result<Option<T>>>,
) -> rusqlite::Result<Vec<T>> {
    rows.filter_map(rusqlite::Result::transpose).collect()
}

/// The first rows, at least one and otherwise no more than have so many bytes together; with how
/// many bytes are left, none if others were left out. No more rows are read.
pub(super) fn within<T>(
    rows: impl Iterator<Item = rusqlite::Result<T>>,
    bytes: usize,
    size: impl Fn(&T) -> usize,
) -> rusqlite::Result<(Vec<T>, usize)> {
    let (mut taken, mut left) = (Vec::new(), bytes);
    for row in rows {
        let row = row?;
        let size = size(&row);
        if size > left && !taken.is_empty() {
            return Ok((taken, 0));
        }
        left = left.saturating_sub(size);
        taken.push(row);
    }
    Ok((taken, left))
}

pub(super) fn jid_of(value: rusqlite::types::ValueRef<'_>) -> Option<Jid> {
    value
        .as_str()
        .ok()
        .and_then(|text| parsed(Jid::parse(text)))
}

pub(super) fn minion_of(value: rusqlite::types::ValueRef<'_>) -> Option<MinionId> {
    value
        .as_str()
        .ok()
        .and_then(|text| parsed(MinionId::parse(text)))
}

fn parsed<T, E: std::fmt::Display>(result: std::result::Result<T, E>) -> Option<T> {
    result
        .inspect_err(|error| tracing::warn!(%error, "a row of the job database is passed over"))
        .ok()
}

pub(super) fn clamp(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
