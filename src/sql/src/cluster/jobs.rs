//! Reads of jobs.

use bytes::Bytes;
use saltern_model::{Jid, JobRecord, MinionId, Packed};
use saltern_store::Result;
use saltern_store::jobs::{
    IncompleteJob, JobHead, JobState, JobSummary, JobsPage, OpenJob, StoredJob,
};
use tokio_postgres::Row;

use super::reader::{ClusterReader, Link, clamp, counted, jid_of, kept, minion_of, minions_of};
use super::text::{original, stored};
use crate::error::SqlError;

/// The columns of [`job_of`]; the last is the list of expected minions.
const COLUMNS: &str = "j.id, j.jid, j.created, j.username, j.fun, j.tgt, j.tgt_type, j.nocache, \
     j.state, j.load, j.notes, j.published, j.finished, j.publisher, j.reporter, \
     ARRAY(SELECT unnest(e.minions) FROM expected_part AS e WHERE e.jid = j.jid) AS minions";

/// Those that returned, and their codes in the same order.
const RETURNED: &str = "ARRAY(SELECT r.minion FROM returns AS r WHERE r.jid = j.jid ORDER BY r.minion), \
     ARRAY(SELECT r.retcode FROM returns AS r WHERE r.jid = j.jid ORDER BY r.minion)";

/// Steps from one function to the next, so its cost does not depend on how many jobs there are.
const FUNCTIONS: &str = "WITH RECURSIVE next (fun) AS (\
         SELECT min(left(fun, 200)) FROM jobs WHERE left(fun, 200) >= $1 \
         UNION ALL \
         SELECT (SELECT min(left(jobs.fun, 200)) FROM jobs WHERE left(jobs.fun, 200) > next.fun) \
           FROM next WHERE next.fun < $2) \
     SELECT fun FROM next WHERE fun >= $1 AND fun < $2 LIMIT $3";

impl ClusterReader {
    pub(super) fn load(&self, jid: &Jid) -> Result<Option<StoredJob>> {
        let sql = format!("SELECT {COLUMNS} FROM jobs AS j WHERE j.jid = $1");
        self.read("read a job of", |link| {
            let row = link.row(&sql, &[&jid.as_str()])?;
            Ok(row.as_ref().map(job_of).transpose()?.flatten())
        })
    }

    pub(super) fn has(&self, jid: &Jid) -> Result<bool> {
        self.read("look for a job in", |link| {
            let sql = "SELECT 1 FROM jobs WHERE jid = $1";
            Ok(link.row(sql, &[&jid.as_str()])?.is_some())
        })
    }

    pub(super) fn is_published_for(&self, jid: &Jid, minion: &MinionId) -> Result<bool> {
        self.read("look for a job in", |link| {
            let sql = "SELECT 1 FROM jobs AS j WHERE jid = $1 AND reporter IS NULL AND EXISTS \
                       (SELECT 1 FROM expected_part AS e WHERE e.jid = j.jid AND $2 = ANY(e.minions))";
            Ok(link.row(sql, &[&jid.as_str(), &minion.as_str()])?.is_some())
        })
    }

    pub(super) fn is_reported(&self, jid: &Jid) -> Result<bool> {
        self.read("look for a job in", |link| {
            let sql = "SELECT 1 FROM jobs WHERE jid = $1 AND reporter IS NOT NULL";
            Ok(link.row(sql, &[&jid.as_str()])?.is_some())
        })
    }

    pub(super) fn has_early_returns(&self, jid: &Jid) -> Result<bool> {
        self.read("look for returns in", |link| {
            let sql = "SELECT 1 FROM jobs AS j WHERE jid = $1 AND EXISTS \
                       (SELECT 1 FROM returns AS r WHERE r.jid = j.jid AND r.id <= j.returns_before)";
            Ok(link.row(sql, &[&jid.as_str()])?.is_some())
        })
    }

    pub(super) fn incomplete(&self, jid: &Jid, minion: &MinionId) -> Result<Option<IncompleteJob>> {
        self.read("look for a job in", |link| {
            let sql = "SELECT (SELECT coalesce(sum(cardinality(e.minions)), 0)::bigint \
                         FROM expected_part AS e WHERE e.jid = j.jid), \
                       EXISTS (SELECT 1 FROM expected_part AS e \
                               WHERE e.jid = j.jid AND $2 = ANY(e.minions)) \
                       FROM jobs AS j \
                       WHERE jid = $1 AND state NOT IN (0, 1) AND reporter IS NULL AND NOT nocache";
            let row = link.row(sql, &[&jid.as_str(), &minion.as_str()])?;
            let found = row.map(|row| {
                let minions = usize::try_from(row.try_get::<_, i64>(0)?).unwrap_or(usize::MAX);
                let expects = row.try_get(1)?;
                Ok::<_, SqlError>(IncompleteJob { minions, expects })
            });
            found.transpose()
        })
    }

    pub(super) fn publisher_of(&self, jid: &Jid) -> Result<Option<MinionId>> {
        self.read("read a job of", |link| {
            let row = link.row(
                "SELECT publisher FROM jobs WHERE jid = $1",
                &[&jid.as_str()],
            )?;
            Ok(row.map(|row| minion_of(&row, 0)).transpose()?.flatten())
        })
    }

    pub(super) fn load_of(&self, jid: &Jid) -> Result<Option<Packed>> {
        self.read("read a load of", |link| {
            let row = link.row("SELECT load FROM jobs WHERE jid = $1", &[&jid.as_str()])?;
            let load = row.map(|row| row.try_get::<_, Vec<u8>>(0)).transpose()?;
            Ok(load.map(Packed::new))
        })
    }

    pub(super) fn jobs_page(&self, page: &JobsPage<'_>) -> Result<Vec<JobHead>> {
        let of_function = match page.function {
            Some(_) => "left(fun, 200) = left($4, 200) AND fun = $4 AND",
            None => "$4::text IS NULL AND",
        };
        let sql = format!(
            "SELECT jid, fun, tgt, tgt_type FROM jobs WHERE {of_function} jid < $1 AND jid >= $2 \
             ORDER BY jid DESC LIMIT $3"
        );
        let (before, from) = (page.end(), page.from.unwrap_or_default());
        let (limit, function) = (clamp(page.limit), page.function.map(stored));
        self.read("list the jobs of", |link| {
            let rows = link.rows(&sql, &[&before, &from, &limit, &function])?;
            kept(&rows, |row| {
                let Some(jid) = jid_of(row, 0)? else {
                    return Ok(None);
                };
                Ok(Some(JobHead {
                    jid,
                    fun: original(row.try_get(1)?),
                    tgt: original(row.try_get(2)?),
                    tgt_type: original(row.try_get(3)?),
                }))
            })
        })
    }

    pub(super) fn latest_jobs(&self, limit: usize) -> Result<Vec<JobSummary>> {
        let sql = format!("SELECT {SUMMARY} FROM jobs AS j ORDER BY j.jid DESC LIMIT $1");
        self.read("list the jobs of", |link| {
            let rows = link.rows(&sql, &[&clamp(limit)])?;
            kept(&rows, summary_of)
        })
    }

    pub(super) fn functions(&self, prefix: &str, limit: usize) -> Result<Vec<String>> {
        self.read("list the functions of", |link| {
            functions(link, prefix, limit)
        })
    }

    pub(super) fn open_jobs(&self) -> Result<Vec<OpenJob>> {
        let sql =
            format!("SELECT {COLUMNS}, {RETURNED} FROM jobs AS j WHERE j.state = 0 ORDER BY j.id");
        self.read("read open jobs of", |link| {
            kept(&link.rows(&sql, &[])?, open_job_of)
        })
    }

    pub(super) fn open_page(&self, before: Option<&str>, limit: usize) -> Result<Vec<OpenJob>> {
        let sql = format!(
            "SELECT {COLUMNS}, {RETURNED} FROM jobs AS j WHERE j.state = 0 AND j.id < \
             coalesce((SELECT id FROM jobs WHERE jid = $1), 9223372036854775807) \
             ORDER BY j.id DESC LIMIT $2"
        );
        self.read("read open jobs of", |link| {
            kept(&link.rows(&sql, &[&before, &clamp(limit)])?, open_job_of)
        })
    }

    pub(super) fn jobs_within(
        &self,
        cursor: i64,
        limit: usize,
        bytes: usize,
    ) -> Result<(Vec<StoredJob>, usize)> {
        let inner = format!(
            "(SELECT {COLUMNS}, octet_length(j.load) + coalesce((SELECT sum(octet_length(d.m)) \
             FROM (SELECT DISTINCT unnest(e.minions) AS m FROM expected_part AS e \
                   WHERE e.jid = j.jid) AS d), 0) AS size \
             FROM jobs AS j WHERE j.id > $1 ORDER BY j.id LIMIT $2)"
        );
        let sql = within(&inner);
        self.read("read jobs of", |link| {
            let rows = link.rows(&sql, &[&cursor, &clamp(limit), &clamp(bytes)])?;
            let left = left_of(&rows, bytes)?;
            Ok((kept(&rows, job_of)?, left))
        })
    }

    pub(super) fn counts(&self) -> Result<(u64, u64)> {
        let sql = "SELECT (SELECT count(*) FROM jobs), (SELECT count(*) FROM returns)";
        let (jobs, returns) = self.pair("count", sql)?;
        Ok((jobs.unsigned_abs(), returns.unsigned_abs()))
    }

    pub(super) fn return_span(&self) -> Result<(i64, i64)> {
        let sql = "SELECT (SELECT coalesce(min(id), 0) FROM returns), \
                   (SELECT coalesce(max(id), 0) FROM returns)";
        self.pair("read", sql)
    }

    pub(super) fn last_ids(&self) -> Result<(i64, i64)> {
        let sql = "SELECT (SELECT coalesce(max(id), 0) FROM jobs), \
                   (SELECT coalesce(max(id), 0) FROM returns)";
        self.pair("read", sql)
    }

    fn pair(&self, action: &'static str, sql: &str) -> Result<(i64, i64)> {
        self.read(action, |link| match link.row(sql, &[])? {
            Some(row) => Ok((row.try_get(0)?, row.try_get(1)?)),
            None => Ok((0, 0)),
        })
    }

    pub(super) fn meta(&self, name: &str) -> Result<Option<String>> {
        self.read("read", |link| {
            let row = link.row("SELECT value FROM meta WHERE name = $1", &[&name])?;
            Ok(row.map(|row| row.try_get(0)).transpose()?)
        })
    }
}

pub(super) fn functions(
    link: &mut Link<'_>,
    prefix: &str,
    limit: usize,
) -> std::result::Result<Vec<String>, SqlError> {
    let (from, end) = (
        stored(prefix),
        stored(&format!("{prefix}\u{10ffff}")).into_owned(),
    );
    let rows = link.rows(FUNCTIONS, &[&from, &end, &clamp(limit)])?;
    kept(&rows, |row| Ok(Some(original(row.try_get(0)?))))
}

/// The statement that gives the first rows of an inner query, which has columns `id` and `size`: at
/// least one, and otherwise no more than have `$3` bytes together. The last column but one is their
/// bytes so far, the last how many rows the inner query has.
pub(super) fn within(inner: &str) -> String {
    format!(
        "SELECT * FROM (SELECT i.*, (sum(size) OVER (ORDER BY id))::bigint AS total, \
         count(*) OVER () AS rows FROM {inner} AS i) AS t \
         WHERE total <= $3 OR total = size ORDER BY id"
    )
}

/// How many of the bytes are left; none when rows were left out.
pub(super) fn left_of(rows: &[Row], bytes: usize) -> std::result::Result<usize, SqlError> {
    let Some(last) = rows.last() else {
        return Ok(bytes);
    };
    let columns = last.len();
    let (total, all): (i64, i64) = (last.try_get(columns - 2)?, last.try_get(columns - 1)?);
    Ok(match rows.len() < counted(all) {
        true => 0,
        false => bytes.saturating_sub(counted(total)),
    })
}

fn job_of(row: &Row) -> std::result::Result<Option<StoredJob>, SqlError> {
    let Some(jid) = jid_of(row, 1)? else {
        return Ok(None);
    };
    Ok(Some(StoredJob {
        id: row.try_get(0)?,
        record: JobRecord {
            jid,
            created: row.try_get(2)?,
            user: original(row.try_get(3)?),
            fun: original(row.try_get(4)?),
            tgt: original(row.try_get(5)?),
            tgt_type: original(row.try_get(6)?),
            nocache: row.try_get(7)?,
            load: Packed::new(row.try_get::<_, Vec<u8>>(9)?),
            minions: minions_of(row, 15)?,
        },
        state: JobState::from_code(row.try_get(8)?),
        published: row.try_get(11)?,
        finished: row.try_get(12)?,
        notes: row.try_get::<_, Option<Vec<u8>>>(10)?.map(Bytes::from),
        publisher: minion_of(row, 13)?,
        reporter: minion_of(row, 14)?,
    }))
}

fn open_job_of(row: &Row) -> std::result::Result<Option<OpenJob>, SqlError> {
    let Some(job) = job_of(row)? else {
        return Ok(None);
    };
    let (names, codes): (Vec<&str>, Vec<i64>) = (row.try_get(16)?, row.try_get(17)?);
    let returned = names.into_iter().zip(codes);
    let returned = returned.filter_map(|(name, code)| Some((MinionId::parse(name).ok()?, code)));
    let returned = returned.collect();
    Ok(Some(OpenJob { job, returned }))
}

/// The columns of [`summary_of`].
pub(super) const SUMMARY: &str = "j.jid, j.created, j.finished, j.username, j.fun, j.tgt, j.tgt_type, \
     j.state, (SELECT coalesce(sum(cardinality(e.minions)), 0) FROM expected_part AS e \
     WHERE e.jid = j.jid)::bigint, (SELECT count(*) FROM returns AS r WHERE r.jid = j.jid), \
     (SELECT count(*) FROM returns AS r WHERE r.jid = j.jid AND r.retcode <> 0)";

pub(super) fn summary_of(row: &Row) -> std::result::Result<Option<JobSummary>, SqlError> {
    let Some(jid) = jid_of(row, 0)? else {
        return Ok(None);
    };
    Ok(Some(JobSummary {
        jid,
        created: row.try_get(1)?,
        finished: row.try_get(2)?,
        user: original(row.try_get(3)?),
        fun: original(row.try_get(4)?),
        tgt: original(row.try_get(5)?),
        tgt_type: original(row.try_get(6)?),
        state: JobState::from_code(row.try_get(7)?),
        expected: counted(row.try_get(8)?),
        returned: counted(row.try_get(9)?),
        failed: counted(row.try_get(10)?),
    }))
}
