//! The queries of a search over jobs ([`crate::jobs`] has the search), each through an index.

use rusqlite::{Connection, OptionalExtension, named_params};

use super::listing::functions;
use super::reader::{JobReader, clamp, jid_of};
use crate::error::Result;
use crate::jobs::{
    FoundJobs, JidRange, JobIndex, JobSearch, JobState, JobSummary, SearchQueries, search_page,
};

pub(super) const ALL: &str =
    "SELECT jid FROM jobs WHERE jid < :before AND jid > :from ORDER BY jid DESC LIMIT :limit";

pub(super) const OF_FUNCTION: &str = "SELECT jid FROM jobs
     WHERE fun = :key AND jid < :before AND jid > :from ORDER BY jid DESC LIMIT :limit";

pub(super) const OF_USER: &str = "SELECT jid FROM jobs
     WHERE user = :key AND jid < :before AND jid > :from ORDER BY jid DESC LIMIT :limit";

/// `state <> 1` names the partial index.
pub(super) const OF_STATE: &str = "SELECT jid FROM jobs
     WHERE state <> 1 AND state = :key AND jid < :before AND jid > :from
     ORDER BY jid DESC LIMIT :limit";

/// Steps from one job to the next, so that a job with ten thousand failures costs one step.
pub(super) const OF_FAILED_RETURNS: &str = "WITH RECURSIVE next (jid) AS (
         SELECT max(jid) FROM returns WHERE retcode <> 0 AND jid < :before
         UNION ALL
         SELECT (SELECT max(returns.jid) FROM returns
                  WHERE retcode <> 0 AND returns.jid < next.jid)
           FROM next WHERE next.jid > :from
     )
     SELECT jid FROM next WHERE jid > :from LIMIT :limit";

pub(super) const NEWEST_BEFORE: &str = "SELECT jid FROM jobs
     WHERE created < ?1 AND jid GLOB '[0-9]*' ORDER BY created DESC LIMIT 1";

pub(super) const OLDEST_AFTER: &str = "SELECT jid FROM jobs
     WHERE created > ?1 AND jid GLOB '[0-9]*' ORDER BY created LIMIT 1";

/// The minion's name in the list is looked for as text first: most lists do not have it.
pub(super) const INVOLVES: &str = "SELECT
     EXISTS (SELECT 1 FROM returns WHERE jid = ?1 AND minion = ?2)
     OR EXISTS (SELECT 1 FROM expected_part
                 WHERE jid = ?1 AND instr(minions, ?3) > 0
                   AND EXISTS (SELECT 1 FROM json_each(minions) WHERE value = ?2))";

pub(super) const HAS_FAILED: &str =
    "SELECT EXISTS (SELECT 1 FROM returns WHERE jid = ?1 AND retcode <> 0)";

pub(super) const COUNTS: &str = "SELECT finished,
     (SELECT coalesce(sum(json_array_length(minions)), 0)
        FROM expected_part WHERE expected_part.jid = ?1),
     (SELECT count(*) FROM returns WHERE returns.jid = ?1),
     (SELECT count(*) FROM returns WHERE returns.jid = ?1 AND retcode <> 0)
     FROM jobs WHERE jid = ?1";

impl JobReader {
    pub(super) fn search_jobs(&self, search: &JobSearch<'_>) -> Result<FoundJobs> {
        self.read("list the jobs of", |connection| {
            search_page(&mut Queries(connection), search)
        })
    }
}

struct Queries<'c>(&'c Connection);

impl SearchQueries for Queries<'_> {
    type Error = rusqlite::Error;

    const STEP: usize = 1;

    fn functions(&mut self, limit: usize) -> rusqlite::Result<Vec<String>> {
        functions(self.0, "", limit)
    }

    fn newest_before(&mut self, at: i64) -> rusqlite::Result<Option<String>> {
        self.bound(NEWEST_BEFORE, at)
    }

    fn oldest_after(&mut self, at: i64) -> rusqlite::Result<Option<String>> {
        self.bound(OLDEST_AFTER, at)
    }

    fn candidates(
        &mut self,
        index: JobIndex<'_>,
        range: &JidRange,
        limit: usize,
    ) -> rusqlite::Result<Vec<String>> {
        let of =
            |sql: &str, key: Option<&dyn rusqlite::ToSql>| jids(self.0, sql, key, range, limit);
        match index {
            JobIndex::Jobs => of(ALL, None),
            JobIndex::User(user) => of(OF_USER, Some(&user)),
            JobIndex::Function(fun) => of(OF_FUNCTION, Some(&fun)),
            JobIndex::State(state) => of(OF_STATE, Some(&state.code())),
            JobIndex::FailedReturns => of(OF_FAILED_RETURNS, None),
        }
    }

    fn matching(
        &mut self,
        search: &JobSearch<'_>,
        jids: &[String],
    ) -> rusqlite::Result<Vec<JobSummary>> {
        let jobs = jids.iter();
        let jobs = jobs.map(|jid| matching(self.0, search, jid));
        jobs.filter_map(rusqlite::Result::transpose).collect()
    }
}

impl Queries<'_> {
    fn bound(&self, sql: &str, at: i64) -> rusqlite::Result<Option<String>> {
        let mut statement = self.0.prepare_cached(sql)?;
        statement.query_row([at], |row| row.get(0)).optional()
    }
}

fn jids(
    connection: &Connection,
    sql: &str,
    key: Option<&dyn rusqlite::ToSql>,
    range: &JidRange,
    limit: usize,
) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare_cached(sql)?;
    let limit = clamp(limit);
    let bounds = named_params! {":before": range.before, ":from": range.from, ":limit": limit};
    let key = key.map(|key| (":key", key));
    let parameters: Vec<(&str, &dyn rusqlite::ToSql)> = bounds.iter().copied().chain(key).collect();
    let rows = statement.query_map(parameters.as_slice(), |row| row.get(0))?;
    rows.collect()
}

/// The summary of a job, if it matches.
fn matching(
    connection: &Connection,
    search: &JobSearch<'_>,
    jid: &str,
) -> rusqlite::Result<Option<JobSummary>> {
    let head = connection
        .prepare_cached(
            "SELECT jid, created, user, fun, tgt, tgt_type, state FROM jobs WHERE jid = ?1",
        )?
        .query_row([jid], |row| {
            let Some(jid) = jid_of(row.get_ref(0)?) else {
                return Ok(None);
            };
            Ok(Some(JobSummary {
                jid,
                created: row.get(1)?,
                finished: None,
                user: row.get(2)?,
                fun: row.get(3)?,
                tgt: row.get(4)?,
                tgt_type: row.get(5)?,
                state: JobState::from_code(row.get(6)?),
                expected: 0,
                returned: 0,
                failed: 0,
            }))
        })
        .optional()?
        .flatten();
    match head {
        Some(job) if search.matches_head(&job) && is_meant(connection, search, &job)? => {
            with_counts(connection, job).map(Some)
        }
        _ => Ok(None),
    }
}

/// The filters that look at other tables.
fn is_meant(
    connection: &Connection,
    search: &JobSearch<'_>,
    job: &JobSummary,
) -> rusqlite::Result<bool> {
    let jid = job.jid.as_str();
    if search.wants_failed_return(job) {
        let mut statement = connection.prepare_cached(HAS_FAILED)?;
        if !statement.query_row([jid], |row| row.get::<_, bool>(0))? {
            return Ok(false);
        }
    }
    let Some(minion) = search.minion else {
        return Ok(true);
    };
    let in_list = serde_json::Value::from(minion.as_str()).to_string();
    connection
        .prepare_cached(INVOLVES)?
        .query_row([jid, minion.as_str(), &in_list], |row| row.get(0))
}

fn with_counts(connection: &Connection, job: JobSummary) -> rusqlite::Result<JobSummary> {
    let count = |count: i64| usize::try_from(count).unwrap_or_default();
    let mut statement = connection.prepare_cached(COUNTS)?;
    let mut rows = statement.query([job.jid.as_str()])?;
    let Some(row) = rows.next()? else {
        return Ok(job);
    };
    Ok(JobSummary {
        finished: row.get(0)?,
        expected: count(row.get(1)?),
        returned: count(row.get(2)?),
        failed: count(row.get(3)?),
        ..job
    })
}

impl JobReader {
    /// The plans of a search's queries, for the test that none reads a whole table.
    #[cfg(test)]
    fn plan_of(&self, sql: &str) -> Vec<String> {
        self.read("explain", |connection| {
            let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}"))?;
            // Unbound parameters are null.
            let mut rows = statement.raw_query();
            let mut steps = Vec::new();
            while let Some(row) = rows.next()? {
                steps.push(row.get(3)?);
            }
            Ok(steps)
        })
        .unwrap()
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::StatementStatus;
    use saltern_model::{Jid, JobRecord, MinionId, Packed, ReturnRecord};
    use saltern_python::expression::Pattern;

    use super::super::{DatabaseLimits, JobDatabase};
    use super::*;
    use crate::jobs::{StateFilter, Write};

    fn jid(number: u32) -> Jid {
        Jid::parse(&format!("20261121070622{number:06}")).unwrap()
    }

    fn id(name: &str) -> MinionId {
        MinionId::parse(name).unwrap()
    }

    fn job(number: u32, fun: &str, user: &str, minions: &[&str]) -> JobRecord {
        JobRecord {
            jid: jid(number),
            created: 1_795_244_782_000_000 + i64::from(number),
            user: user.to_owned(),
            fun: fun.to_owned(),
            tgt: "web*".to_owned(),
            tgt_type: "glob".to_owned(),
            load: Packed::new(&b"\x80"[..]),
            minions: minions.iter().copied().map(id).collect(),
            nocache: false,
        }
    }

    fn returned(number: u32, minion: &str, retcode: i64) -> Write {
        Write::Return(ReturnRecord {
            jid: jid(number),
            minion: id(minion),
            received: 0,
            fun: "test.ping".to_owned(),
            retcode,
            success: retcode == 0,
            load: Packed::new(&b"\x80"[..]),
        })
    }

    fn ended(number: u32, state: JobState) -> Write {
        let jid = jid(number);
        let notes = None;
        Write::JobState {
            jid,
            state,
            at: 9,
            notes,
        }
    }

    fn database() -> (tempfile::TempDir, JobDatabase) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs.sqlite");
        let mut database = JobDatabase::open(&path, DatabaseLimits::default()).unwrap();
        let writes = [
            Write::Job(job(1, "test.ping", "root", &["a", "b"])),
            returned(1, "a", 0),
            returned(1, "b", 0),
            ended(1, JobState::Complete),
            Write::Job(job(2, "state.apply", "alice", &["a"])),
            returned(2, "a", 2),
            ended(2, JobState::Complete),
            Write::Job(job(3, "test.version,state.highstate", "root", &["b"])),
            ended(3, JobState::Expired),
            Write::Job(job(4, "cmd.run", "alice", &["a\"b", "c"])),
        ];
        database.commit(&writes).unwrap();
        (dir, database)
    }

    fn found(reader: &JobReader, search: &JobSearch<'_>) -> Vec<u32> {
        let limit = if search.limit == 0 { 10 } else { search.limit };
        let search = JobSearch {
            limit,
            ..search.clone()
        };
        let page = reader.search_jobs(&search).unwrap();
        let number = |job: &JobSummary| job.jid.as_str()[14..].parse().unwrap();
        page.jobs.iter().map(number).collect()
    }

    #[test]
    fn search_applies_each_filter() {
        let (_dir, database) = database();
        let reader = JobReader::open(database.path(), DatabaseLimits::default()).unwrap();
        let glob = |text: &str| Pattern::glob(text).unwrap();
        let (state, test, quoted) = (glob("state.*"), glob("test.ping"), id("a\"b"));
        let (a, b) = (id("a"), id("b"));
        let all = JobSearch::default();
        let of_state = |state| JobSearch {
            state: Some(state),
            ..all.clone()
        };
        let of_minion = |minion| JobSearch {
            minion: Some(minion),
            ..all.clone()
        };
        let made = 1_795_244_782_000_000;
        let third = jid(3);
        let table = [
            (all.clone(), &[4, 3, 2, 1][..]),
            (
                JobSearch {
                    function: Some(&state),
                    ..all.clone()
                },
                &[3, 2],
            ),
            (
                JobSearch {
                    function: Some(&test),
                    ..all.clone()
                },
                &[1],
            ),
            (
                JobSearch {
                    user: Some("alice"),
                    ..all.clone()
                },
                &[4, 2],
            ),
            (
                JobSearch {
                    user: Some("alice"),
                    function: Some(&state),
                    ..all.clone()
                },
                &[2],
            ),
            (
                JobSearch {
                    target: Some(&state),
                    ..all.clone()
                },
                &[],
            ),
            (of_state(StateFilter::Open), &[4]),
            (of_state(StateFilter::Ended), &[3, 2, 1]),
            (of_state(StateFilter::Failed), &[3, 2]),
            (of_minion(&a), &[2, 1]),
            (of_minion(&b), &[3, 1]),
            (of_minion(&quoted), &[4]),
            (
                JobSearch {
                    since: Some(made + 3),
                    ..all.clone()
                },
                &[4, 3],
            ),
            (
                JobSearch {
                    until: Some(made + 2),
                    ..all.clone()
                },
                &[2, 1],
            ),
            (
                JobSearch {
                    before: Some(third.as_str()),
                    ..all.clone()
                },
                &[2, 1],
            ),
        ];
        for (row, (search, expected)) in table.iter().enumerate() {
            assert_eq!(found(&reader, search), *expected, "row {row}");
        }
    }

    #[test]
    fn search_pages_end_at_the_last_job_and_count_returns() {
        let (_dir, database) = database();
        let reader = JobReader::open(database.path(), DatabaseLimits::default()).unwrap();
        let mut before: Option<String> = None;
        let mut pages = Vec::new();
        loop {
            let search = JobSearch {
                limit: 3,
                before: before.as_deref(),
                ..JobSearch::default()
            };
            let page = reader.search_jobs(&search).unwrap();
            pages.extend(page.jobs);
            match page.next {
                Some(next) => before = Some(next),
                None => break,
            }
        }
        let counts = |job: &JobSummary| (job.expected, job.returned, job.failed);
        let counts: Vec<_> = pages.iter().map(counts).collect();
        assert_eq!(counts, [(2, 0, 0), (1, 0, 0), (1, 1, 1), (2, 2, 0)]);
        assert_eq!(pages.last().and_then(|job| job.finished), Some(9));
    }

    #[test]
    fn query_of_a_search_reads_no_whole_table() {
        let (_dir, database) = database();
        let reader = JobReader::open(database.path(), DatabaseLimits::default()).unwrap();
        for (sql, index) in [
            (ALL, "sqlite_autoindex_jobs_1"),
            (OF_FUNCTION, "jobs_function"),
            (OF_USER, "jobs_user"),
            (OF_STATE, "jobs_incomplete"),
            (OF_FAILED_RETURNS, "returns_failed"),
            (NEWEST_BEFORE, "jobs_created"),
            (OLDEST_AFTER, "jobs_created"),
            (INVOLVES, "expected_part_jid"),
            (HAS_FAILED, "returns_failed"),
            (COUNTS, "returns_failed"),
        ] {
            let plan = reader.plan_of(sql);
            let reads_all = |step: &&String| {
                step.starts_with("SCAN")
                    && !step.contains("next")
                    && !step.contains("json_each")
                    && *step != "SCAN CONSTANT ROW"
            };
            let sorts = |step: &&String| step.contains("TEMP B-TREE");
            assert_eq!(plan.iter().find(reads_all), None, "{sql}: {plan:#?}");
            assert_eq!(plan.iter().find(sorts), None, "{sql}: {plan:#?}");
            let has_index = plan.iter().any(|step| step.contains(index));
            assert!(has_index, "{sql}: {plan:#?}");
        }
    }

    #[test]
    fn values_of_parameters_compile_no_statement_anew() {
        let (_dir, database) = database();
        let reader = JobReader::open(database.path(), DatabaseLimits::default()).unwrap();
        for sql in [OF_STATE, HAS_FAILED, COUNTS] {
            let compiled = reader.read("explain", |connection| {
                let mut statement = connection.prepare(sql)?;
                for value in 0..5 {
                    for number in 1..=statement.parameter_count() {
                        statement.raw_bind_parameter(number, value)?;
                    }
                    let mut rows = statement.raw_query();
                    while rows.next()?.is_some() {}
                }
                Ok(statement.get_status(StatementStatus::RePrepare))
            });
            assert_eq!(compiled.unwrap(), 0, "{sql}");
        }
    }
}
