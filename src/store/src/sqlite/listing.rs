//! Paged queries over jobs and returns (keyset pagination).
//!
//! Every page is one short query through an index, so neither memory nor the time for which a
//! reader is held depends on how much is stored. Jobs are ordered by jid, which is the time of the
//! job, newest first; returns by minion. The cursor of the next page is the last row of the one
//! before. Loads are opaque here.

use rusqlite::{Connection, OptionalExtension, named_params};
use saltern_model::{Jid, MinionId, Packed};

use super::reader::{
    JobReader, clamp, jid_of, job_of, kept, record_of, returned_minions, select_jobs,
    select_returns, with_returned,
};
use crate::error::Result;
use crate::jobs::{JobHead, JobsPage, OpenJob, ReturnsPage};

impl JobReader {
    pub(super) fn jobs_page(&self, page: &JobsPage<'_>) -> Result<Vec<JobHead>> {
        let before = page.end();
        let of_function = match page.function {
            Some(_) => "fun = :fun AND",
            None => ":fun IS NULL AND",
        };
        self.read("list the jobs of", |connection| {
            let mut statement = connection.prepare_cached(&format!(
                "SELECT jid, fun, tgt, tgt_type FROM jobs
                 WHERE {of_function} jid < :before AND jid >= :from
                 ORDER BY jid DESC LIMIT :limit"
            ))?;
            let parameters = named_params! {
                ":fun": page.function,
                ":before": before,
                ":from": page.from.unwrap_or_default(),
                ":limit": clamp(page.limit),
            };
            let rows = statement.query_map(parameters, |row| {
                let Some(jid) = jid_of(row.get_ref(0)?) else {
                    return Ok(None);
                };
                Ok(Some(JobHead {
                    jid,
                    fun: row.get(1)?,
                    tgt: row.get(2)?,
                    tgt_type: row.get(3)?,
                }))
            })?;
            kept(rows)
        })
    }

    pub(super) fn functions(&self, prefix: &str, limit: usize) -> Result<Vec<String>> {
        self.read("list the functions of", |connection| {
            functions(connection, prefix, limit)
        })
    }

    pub(super) fn load_of(&self, jid: &Jid) -> Result<Option<Packed>> {
        self.read("read a load of", |connection| {
            connection
                .prepare_cached("SELECT load FROM jobs WHERE jid = ?1")?
                .query_row([jid.as_str()], |row| row.get::<_, Vec<u8>>(0))
                .optional()
                .map(|load| load.map(Packed::new))
        })
    }

    pub(super) fn returns_page(
        &self,
        jid: &Jid,
        after: Option<&str>,
        limit: usize,
        most_bytes: usize,
    ) -> Result<ReturnsPage> {
        self.read("read returns of", |connection| {
            let mut statement = connection.prepare_cached(&select_returns(
                "WHERE jid = ?1 AND minion > ?2 ORDER BY minion LIMIT ?3",
            ))?;
            let parameters = (jid.as_str(), after.unwrap_or_default(), clamp(limit));
            let mut page = ReturnsPage {
                returns: Vec::new(),
                is_cut: false,
            };
            let mut bytes = 0;
            for row in statement.query_map(parameters, record_of)? {
                let Some(record) = row? else { continue };
                bytes += record.load.as_ref().len();
                if bytes > most_bytes && !page.returns.is_empty() {
                    page.is_cut = true;
                    break;
                }
                page.returns.push(record);
            }
            Ok(page)
        })
    }

    pub(super) fn returned_minions(&self, jid: &Jid) -> Result<Vec<MinionId>> {
        self.read("read returns of", |connection| {
            returned_minions(connection, jid)
        })
    }

    pub(super) fn last_return_at(&self, jid: &Jid) -> Result<Option<i64>> {
        self.read("read returns of", |connection| {
            connection
                .prepare_cached("SELECT max(received) FROM returns WHERE jid = ?1")?
                .query_row([jid.as_str()], |row| row.get(0))
        })
    }

    pub(super) fn open_page(&self, before: Option<&str>, limit: usize) -> Result<Vec<OpenJob>> {
        self.read("read open jobs of", |connection| {
            let mut statement = connection.prepare_cached(&select_jobs(
                "WHERE state = 0
                     AND id < coalesce((SELECT id FROM jobs WHERE jid = ?1), 9223372036854775807)
                 ORDER BY id DESC LIMIT ?2",
            ))?;
            let jobs = kept(statement.query_map((before, clamp(limit)), job_of)?)?;
            jobs.into_iter()
                .map(|job| with_returned(connection, job))
                .collect()
        })
    }
}

pub(super) fn functions(
    connection: &Connection,
    prefix: &str,
    limit: usize,
) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare_cached(
        "WITH RECURSIVE next (fun) AS (
             SELECT min(fun) FROM jobs WHERE fun >= :from
             UNION ALL
             SELECT (SELECT min(fun) FROM jobs WHERE jobs.fun > next.fun)
               FROM next WHERE next.fun < :end
         )
         SELECT fun FROM next WHERE fun >= :from AND fun < :end LIMIT :limit",
    )?;
    let end = format!("{prefix}\u{10ffff}");
    let parameters = named_params! {
        ":from": prefix,
        ":end": end,
        ":limit": clamp(limit),
    };
    let rows = statement.query_map(parameters, |row| row.get(0))?;
    rows.collect()
}
