//! The queries of a search over jobs ([`saltern_store::jobs`] has the search), each through an index.

use std::collections::{HashMap, HashSet};

use saltern_store::Result;
use saltern_store::jobs::{
    FoundJobs, JidRange, JobIndex, JobSearch, JobState, JobSummary, SearchQueries, search_page,
};
use tokio_postgres::types::ToSql;

use super::jobs::{SUMMARY, functions, summary_of};
use super::reader::{ClusterReader, Link, clamp, jid_of, kept};
use super::text::{original, stored};
use crate::error::SqlError;

const BOUNDS: &str = "jid < $1 AND jid > $2 ORDER BY jid DESC LIMIT $3";

/// Steps from one job to the next, so that a job with ten thousand failures costs one step.
const OF_FAILED_RETURNS: &str = "WITH RECURSIVE next (jid) AS (\
         SELECT max(jid) FROM returns WHERE retcode <> 0 AND jid < $1 \
         UNION ALL \
         SELECT (SELECT max(r.jid) FROM returns AS r WHERE r.retcode <> 0 AND r.jid < next.jid) \
           FROM next WHERE next.jid > $2) \
     SELECT jid FROM next WHERE jid > $2 LIMIT $3";

const HEADS: &str = "SELECT jid, created, username, fun, tgt, tgt_type, state FROM jobs \
     WHERE jid = ANY($1::text[]) ORDER BY jid DESC";

const FAILED: &str =
    "SELECT DISTINCT jid FROM returns WHERE jid = ANY($1::text[]) AND retcode <> 0";

const INVOLVED: &str = "SELECT jid FROM returns WHERE jid = ANY($1::text[]) AND minion = $2 \
     UNION SELECT jid FROM expected_part WHERE jid = ANY($1::text[]) AND $2 = ANY(minions)";

impl ClusterReader {
    pub(super) fn search_jobs(&self, search: &JobSearch<'_>) -> Result<FoundJobs> {
        self.read("list the jobs of", |link| {
            search_page(&mut Queries { link }, search)
        })
    }
}

struct Queries<'l, 's> {
    link: &'l mut Link<'s>,
}

impl SearchQueries for Queries<'_, '_> {
    type Error = SqlError;

    const STEP: usize = 128;

    fn functions(&mut self, limit: usize) -> std::result::Result<Vec<String>, SqlError> {
        functions(self.link, "", limit)
    }

    fn newest_before(&mut self, at: i64) -> std::result::Result<Option<String>, SqlError> {
        let sql = "SELECT jid FROM jobs WHERE created < $1 ORDER BY created DESC LIMIT 1";
        let row = self.link.row(sql, &[&at])?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    fn oldest_after(&mut self, at: i64) -> std::result::Result<Option<String>, SqlError> {
        let sql = "SELECT jid FROM jobs WHERE created > $1 ORDER BY created LIMIT 1";
        let row = self.link.row(sql, &[&at])?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    fn candidates(
        &mut self,
        index: JobIndex<'_>,
        range: &JidRange,
        limit: usize,
    ) -> std::result::Result<Vec<String>, SqlError> {
        let mut of = |condition: &str, key: Option<&(dyn ToSql + Sync)>| {
            let sql = format!("SELECT jid FROM jobs WHERE {condition} {BOUNDS}");
            let limit = clamp(limit);
            let bounds: [&(dyn ToSql + Sync); 3] = [&range.before, &range.from, &limit];
            let values: Vec<_> = bounds.into_iter().chain(key).collect();
            texts(self.link, &sql, &values)
        };
        match index {
            JobIndex::Jobs => of("", None),
            JobIndex::User(user) => of(
                "left(username, 200) = left($4, 200) AND",
                Some(&stored(user)),
            ),
            JobIndex::Function(fun) => of("left(fun, 200) = left($4, 200) AND", Some(&stored(fun))),
            // `state <> 1` names the partial index.
            JobIndex::State(state) => of("state <> 1 AND state = $4 AND", Some(&state.code())),
            JobIndex::FailedReturns => {
                let values: [&(dyn ToSql + Sync); 3] = [&range.before, &range.from, &clamp(limit)];
                texts(self.link, OF_FAILED_RETURNS, &values)
            }
        }
    }

    fn matching(
        &mut self,
        search: &JobSearch<'_>,
        jids: &[String],
    ) -> std::result::Result<Vec<JobSummary>, SqlError> {
        let rows = self.link.rows(HEADS, &[&jids])?;
        let mut jobs = kept(&rows, head_of)?;
        jobs.retain(|job| search.matches_head(job));
        let names = |jobs: &[JobSummary]| -> Vec<String> {
            jobs.iter().map(|job| job.jid.to_string()).collect()
        };
        if jobs.iter().any(|job| search.wants_failed_return(job)) {
            let failed = texts(self.link, FAILED, &[&names(&jobs)])?;
            let failed: HashSet<String> = failed.into_iter().collect();
            jobs.retain(|job| {
                !search.wants_failed_return(job) || failed.contains(job.jid.as_str())
            });
        }
        if let Some(minion) = search.minion
            && !jobs.is_empty()
        {
            let involved = texts(self.link, INVOLVED, &[&names(&jobs), &minion.as_str()])?;
            let involved: HashSet<String> = involved.into_iter().collect();
            jobs.retain(|job| involved.contains(job.jid.as_str()));
        }
        // No more of them are counted than the page has.
        jobs.truncate(search.limit);
        if jobs.is_empty() {
            return Ok(jobs);
        }
        let sql = format!("SELECT {SUMMARY} FROM jobs AS j WHERE j.jid = ANY($1::text[])");
        let rows = self.link.rows(&sql, &[&names(&jobs)])?;
        let counted = kept(&rows, summary_of)?;
        let mut counted: HashMap<_, _> = counted
            .into_iter()
            .map(|job| (job.jid.clone(), job))
            .collect();
        Ok(jobs
            .into_iter()
            .filter_map(|job| counted.remove(&job.jid))
            .collect())
    }
}

fn texts(
    link: &mut Link<'_>,
    sql: &str,
    values: &[&(dyn ToSql + Sync)],
) -> std::result::Result<Vec<String>, SqlError> {
    kept(&link.rows(sql, values)?, |row| Ok(Some(row.try_get(0)?)))
}

fn head_of(row: &tokio_postgres::Row) -> std::result::Result<Option<JobSummary>, SqlError> {
    let Some(jid) = jid_of(row, 0)? else {
        return Ok(None);
    };
    Ok(Some(JobSummary {
        jid,
        created: row.try_get(1)?,
        finished: None,
        user: original(row.try_get(2)?),
        fun: original(row.try_get(3)?),
        tgt: original(row.try_get(4)?),
        tgt_type: original(row.try_get(5)?),
        state: JobState::from_code(row.try_get(6)?),
        expected: 0,
        returned: 0,
        failed: 0,
    }))
}
