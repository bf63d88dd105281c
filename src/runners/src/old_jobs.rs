//! Old jobs: those that the job database no longer has, read from the SQL database in which the site
//! keeps its jobs (`ext_job_cache`, `master_job_cache`).
//!
//! The job database is always asked first, and alone knows which minions a job expects. An old job has
//! what stock's returner finds: its load and its returns. While the SQL database is away, jobs of our own
//! are answered as ever, and it is said that older ones are not.

use std::cmp::Ordering;
use std::io;
use std::time::Duration;
use std::vec::IntoIter;

use saltern_base::chain;
use saltern_base::clock::civil;
use saltern_base::log_throttle::LogThrottle;
use saltern_base::metrics::{IntCounterVec, Registry, counter_vec};
use saltern_config::MasterConfig;
use saltern_model::{Jid, JobRecord, MinionId, ReturnRecord};
use saltern_sql::{JobRange, JobSlice, ReturnCounts, SqlError, SqlReader};
use saltern_store::StoreError;
use saltern_store::jobs::{JobQueries, JobState, ReturnsPage};

/// A database that is away is logged at most once per `LOG_INTERVAL`.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Jobs of the job database among which the oldest one of its own is looked for.
const OLDEST: usize = 64;

/// A jid and the time at which its job was stored differ by less, in microseconds, unless a user chose
/// the jid.
const CLOCK_SLACK: i64 = 60 * 60 * 1_000_000;

/// Rows of one question.
const PAGE: usize = 256;

/// Rows that one listing looks at.
const MAX_SCANNED: usize = 100_000;

/// The SQL database with the old jobs.
pub struct OldJobs {
    option: &'static str,
    name: String,
    reader: SqlReader,
    reads: IntCounterVec,
    failures: LogThrottle,
}

/// The SQL database cannot be asked for old jobs.
#[derive(Clone, Debug, thiserror::Error)]
#[error("older jobs are in the database of {option} ({name}), which cannot be read: {problem}")]
pub struct OldJobsAway {
    option: &'static str,
    name: String,
    problem: String,
}

impl OldJobs {
    /// The database of the first of stock's options that names one of ours; `None` where none does.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn open(config: &MasterConfig, registry: &Registry) -> io::Result<Option<Self>> {
        let options = &config.returners;
        let named = [
            ("ext_job_cache", &options.ext_job_cache),
            ("master_job_cache", &options.job_cache),
        ];
        let found = named.into_iter().find_map(|(option, name)| {
            let name = name.as_ref()?;
            Some((option, name, options.sql_store(name)?))
        });
        let Some((option, name, store)) = found else {
            return Ok(None);
        };
        Ok(Some(Self {
            option,
            name: name.clone(),
            reader: SqlReader::new(store.clone())?,
            reads: counter_vec(
                registry,
                "saltern_old_job_reads_total",
                "Questions for jobs that the job database no longer has, to the SQL database of a job \
                 cache, by option and result: done, or failed.",
                &["option", "result"],
            ),
            failures: LogThrottle::new(LOG_INTERVAL),
        }))
    }

    /// The name of the returner whose tables these are.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Counts a question, and names the database in its error.
    fn counted<T>(&self, asked: Result<T, SqlError>) -> Result<T, OldJobsAway> {
        let result = if asked.is_ok() { "done" } else { "failed" };
        self.reads.with_label_values(&[self.option, result]).inc();
        asked.map_err(|error| {
            let problem = chain(&error);
            if let Some(times) = self.failures.record() {
                let option = self.option;
                tracing::warn!(option, problem, times, "old jobs cannot be read");
            }
            OldJobsAway {
                option: self.option,
                name: self.name.clone(),
                problem,
            }
        })
    }

    /// A job.
    ///
    /// # Errors
    /// [`OldJobsAway`], as of all questions.
    pub fn job(&self, jid: &Jid) -> Result<Option<JobRecord>, OldJobsAway> {
        self.counted(self.reader.job(jid))
    }

    /// Some returns of a job, as [`JobQueries::returns_page`] gives them.
    ///
    /// # Errors
    /// [`OldJobsAway`]
    pub fn returns(
        &self,
        jid: &Jid,
        after: Option<&str>,
        limit: usize,
        most_bytes: usize,
    ) -> Result<ReturnsPage, OldJobsAway> {
        self.counted(self.reader.returns(jid, after, limit, most_bytes))
    }

    /// The return of one minion.
    ///
    /// # Errors
    /// [`OldJobsAway`]
    pub fn return_of(
        &self,
        jid: &Jid,
        minion: &MinionId,
    ) -> Result<Option<ReturnRecord>, OldJobsAway> {
        self.counted(self.reader.return_of(jid, minion))
    }

    /// How many returns jobs have, in their order.
    ///
    /// # Errors
    /// [`OldJobsAway`]
    pub fn counts(&self, jids: &[Jid]) -> Result<Vec<ReturnCounts>, OldJobsAway> {
        match jids.is_empty() {
            true => Ok(Vec::new()),
            false => self.counted(self.reader.counts(jids)),
        }
    }

    /// A page of jobs.
    ///
    /// # Errors
    /// [`OldJobsAway`]
    pub fn jobs(&self, range: &JobRange) -> Result<JobSlice, OldJobsAway> {
        self.counted(self.reader.jobs(range))
    }

    /// The jobs of a listing that are older than those of the job database, below `before`, from `from`
    /// on, highest jid first.
    ///
    /// # Errors
    /// The job database cannot be read.
    pub(crate) fn pages(
        &self,
        own: &dyn JobQueries,
        before: Option<&str>,
        from: Option<&str>,
    ) -> Result<OldPages<'_>, StoreError> {
        Ok(OldPages::new(self, self.range(own, before)?.before, from))
    }

    /// The range of jobs below `before` that may be missing from the job database.
    ///
    /// # Errors
    /// The job database cannot be read.
    pub fn range(
        &self,
        own: &dyn JobQueries,
        before: Option<&str>,
    ) -> Result<JobRange, StoreError> {
        let bounds = [boundary(own)?, before.map(str::to_owned)];
        Ok(JobRange {
            before: bounds.into_iter().flatten().min(),
            ..JobRange::default()
        })
    }

    /// All jobs of the database, the same way.
    pub(crate) fn all_pages(&self, before: Option<&str>, from: Option<&str>) -> OldPages<'_> {
        OldPages::new(self, before.map(str::to_owned), from)
    }
}

/// The jid below which jobs may be missing from the job database: that of the oldest job in it which this
/// master published itself and which has ended. `None` where there is no such job.
///
/// A job that is still open outlives others, a minion may report a job of last year, and a user may choose
/// a jid: none of these says anything about the jobs around it.
fn boundary(own: &dyn JobQueries) -> Result<Option<String>, StoreError> {
    let oldest = own.jobs_after(0, OLDEST)?;
    let says = oldest.into_iter().find(|job| {
        let distance = job.record.jid.unix_micros() - job.record.created;
        let is_own_time = distance.abs() < CLOCK_SLACK;
        job.state != JobState::Open && job.reporter.is_none() && is_own_time
    });
    Ok(says.map(|job| job.record.jid.to_string()))
}

/// The twenty digits of a moment in microseconds since 1970, as those of a jid.
pub fn digits(unix_micros: i64) -> String {
    civil(unix_micros).strftime("%Y%m%d%H%M%S%6f").to_string()
}

/// Old jobs, highest jid first, read page by page. Ends at the first failure.
pub(crate) struct OldPages<'a> {
    old: &'a OldJobs,
    range: JobRange,
    page: IntoIter<JobRecord>,
    next: Option<JobRecord>,
    has_more: bool,
    left: usize,
    problem: Option<String>,
}

impl<'a> OldPages<'a> {
    fn new(old: &'a OldJobs, before: Option<String>, from: Option<&str>) -> Self {
        let from = from.filter(|from| !from.is_empty()).map(str::to_owned);
        let is_empty = before
            .as_ref()
            .zip(from.as_ref())
            .is_some_and(|(b, f)| b <= f);
        Self {
            old,
            range: JobRange {
                before,
                from,
                limit: PAGE,
            },
            page: Vec::new().into_iter(),
            next: None,
            has_more: !is_empty,
            left: MAX_SCANNED,
            problem: None,
        }
    }

    /// Why there may be jobs that were not read.
    pub(crate) fn problem(self) -> Option<String> {
        self.problem
    }

    /// The jid of the next job, if it comes before one of the job database (`None`: that has no more).
    /// A database that is away is not asked before its jobs are due.
    pub(crate) fn take_above(&mut self, own: Option<&Jid>) -> Option<JobRecord> {
        let may_be_due = match (own, self.range.before.as_deref()) {
            (Some(own), Some(before)) if self.next.is_none() && self.page.len() == 0 => {
                own.as_str() < before
            }
            _ => true,
        };
        if !may_be_due {
            return None;
        }
        loop {
            let next = match self.next.take() {
                Some(next) => next,
                None => self.read_next()?,
            };
            match own.map_or(Ordering::Greater, |own| next.jid.cmp(own)) {
                Ordering::Greater => return Some(next),
                // The job database has it.
                Ordering::Equal => {}
                Ordering::Less => {
                    self.next = Some(next);
                    return None;
                }
            }
        }
    }

    fn read_next(&mut self) -> Option<JobRecord> {
        loop {
            if let Some(job) = self.page.next() {
                return Some(job);
            }
            if !self.has_more {
                return None;
            }
            if self.left == 0 {
                self.has_more = false;
                let last = self.range.before.as_deref().unwrap_or_default();
                self.problem = Some(format!(
                    "older jobs than {last} were not looked at: ask for them with before={last}"
                ));
                return None;
            }
            match self.old.jobs(&self.range) {
                Ok(slice) => {
                    self.left = self.left.saturating_sub(PAGE);
                    self.has_more = slice.next.is_some();
                    self.range.before = slice.next.or(self.range.before.take());
                    self.page = slice.jobs.into_iter();
                }
                Err(error) => {
                    self.has_more = false;
                    self.problem = Some(error.to_string());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use saltern_model::Packed;
    use saltern_store::jobs::Write;
    use saltern_store::sqlite::{DatabaseLimits, JobDatabase};

    use super::*;

    fn job(text: &str, created: &str, reporter: Option<&str>) -> Write {
        let jid = Jid::parse(text).unwrap();
        let record = JobRecord {
            created: Jid::parse(created).unwrap().unix_micros(),
            user: "me".to_owned(),
            fun: "test.ping".to_owned(),
            tgt: "*".to_owned(),
            tgt_type: "glob".to_owned(),
            load: Packed::new(&b"\x80"[..]),
            minions: Vec::new(),
            nocache: false,
            jid,
        };
        match reporter {
            None => Write::Job(record),
            Some(minion) => Write::ClosedJob {
                job: record,
                reporter: Some(MinionId::parse(minion).unwrap()),
            },
        }
    }

    fn ended(text: &str) -> Write {
        Write::JobState {
            jid: Jid::parse(text).unwrap(),
            state: JobState::Complete,
            at: 0,
            notes: None,
        }
    }

    #[test]
    fn boundary_is_the_oldest_job_that_says_where_others_are() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs.sqlite");
        let mut database = JobDatabase::open(&path, DatabaseLimits::default()).unwrap();
        let boundary_after = |database: &mut JobDatabase, writes: &[Write]| {
            database.commit(writes).unwrap();
            boundary(&*database.reader().unwrap()).unwrap()
        };
        let [first, second] = ["20261121070622000001", "20261121080000000000"];
        // A report of last year, a jid that a user chose, and a job that is open since long ago.
        let others = [
            job("20251121070622000001", first, Some("m1")),
            job("20990101000000000000", first, None),
            ended("20990101000000000000"),
            job("20260101000000000000", "20260101000000000000", None),
        ];
        assert_eq!(boundary_after(&mut database, &others), None);
        let own = [job(first, first, None), ended(first)];
        assert_eq!(boundary_after(&mut database, &own).as_deref(), Some(first));
        let later = [job(second, second, None), ended(second)];
        assert_eq!(
            boundary_after(&mut database, &later).as_deref(),
            Some(first)
        );
    }

    #[test]
    fn digits_of_a_moment_are_those_of_its_jid() {
        let jid = Jid::parse("20261121070622637714").unwrap();
        assert_eq!(digits(jid.unix_micros()), jid.as_str());
    }
}
