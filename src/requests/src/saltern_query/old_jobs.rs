//! Old jobs in the answers about jobs: those that only the site's SQL database still has.
//!
//! Such a job is over, and nothing is known of the minions that it expected.

use saltern_model::query::JobRow;
use saltern_model::{Jid, JobRecord};
use saltern_runners::{OldJobs, OldJobsAway, digits};
use saltern_sql::{JobRange, ReturnCounts};
use saltern_store::StoreError;
use saltern_store::jobs::{JobQueries, JobSearch, JobState, ReturnHead, StateFilter, StoredJob};

use crate::explain::state_word;

/// Rows of the database that one page looks at.
const MAX_SCANNED: usize = 4_096;

/// Rows of one question.
const CHUNK: usize = 256;

/// The most packed bytes of returns that are held at once while their heads are read.
const MAX_BYTES: usize = 4 << 20;

/// Returns of one job whose heads are read.
const MAX_HEADS: usize = 100_000;

/// Old jobs of a page.
#[derive(Default)]
pub(super) struct OldRows {
    /// Those that match.
    pub(super) jobs: Vec<JobRow>,
    /// The jid below which none was looked at, although there may be some above the end of the page.
    pub(super) end: Option<String>,
    /// Why the database was not asked to the end.
    pub(super) problem: Option<String>,
}

/// The old jobs that belong between the ends of a page of the job database: below `search.before`, and
/// above `next`, where that page goes on.
///
/// # Errors
/// The job database cannot be read.
pub(super) fn between(
    old: &OldJobs,
    own: &dyn JobQueries,
    search: &JobSearch<'_>,
    next: Option<&str>,
) -> Result<OldRows, StoreError> {
    let mut found = OldRows::default();
    if search.state == Some(StateFilter::Open) {
        return Ok(found);
    }
    let mut range = old.range(own, search.before)?;
    let until = search.until.map(|until| digits(until.saturating_add(1)));
    range.before = [range.before, until].into_iter().flatten().min();
    let since = search.since.map(digits);
    range.from = [next.map(str::to_owned), since].into_iter().flatten().max();
    range.limit = CHUNK;
    let is_empty = |range: &JobRange| {
        let ends = range.before.as_ref().zip(range.from.as_ref());
        ends.is_some_and(|(before, from)| before <= from)
    };
    let mut scanned = 0;
    while !is_empty(&range) {
        match chunk(old, own, search, &range, &mut found.jobs) {
            Ok(Some(end)) => range.before = Some(end),
            Ok(None) => return Ok(found),
            Err(Failed::Store(error)) => return Err(error),
            Err(Failed::Away(problem)) => {
                found.problem = Some(problem.to_string());
                return Ok(found);
            }
        }
        scanned += CHUNK;
        if found.jobs.len() >= search.limit || scanned >= MAX_SCANNED {
            found.end = range.before;
            return Ok(found);
        }
    }
    Ok(found)
}

/// Why a chunk was not read.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Away(#[from] OldJobsAway),
}

/// Adds the matching jobs of a range; where to go on.
fn chunk(
    old: &OldJobs,
    own: &dyn JobQueries,
    search: &JobSearch<'_>,
    range: &JobRange,
    jobs: &mut Vec<JobRow>,
) -> Result<Option<String>, Failed> {
    let slice = old.jobs(range)?;
    let mut matching = Vec::new();
    for job in slice.jobs {
        if matches(search, &job) && !own.has(&job.jid)? {
            matching.push(job);
        }
    }
    let jids: Vec<Jid> = matching.iter().map(|job| job.jid.clone()).collect();
    let counts = old.counts(&jids)?;
    for (job, counts) in matching.into_iter().zip(counts) {
        if search.state == Some(StateFilter::Failed) && counts.failed == 0 {
            continue;
        }
        if let Some(minion) = search.minion
            && old.return_of(&job.jid, minion)?.is_none()
        {
            continue;
        }
        jobs.push(row(job, counts));
    }
    Ok(slice.next)
}

/// The filters that a job's own record decides.
fn matches(search: &JobSearch<'_>, job: &JobRecord) -> bool {
    search.since.is_none_or(|since| job.created >= since)
        && search.until.is_none_or(|until| job.created <= until)
        && search.user.is_none_or(|user| job.user == user)
        && (search.function).is_none_or(|pattern| {
            pattern.matches(&job.fun) || job.fun.split(',').any(|one| pattern.matches(one))
        })
        && search
            .target
            .is_none_or(|pattern| pattern.matches(&job.tgt))
}

fn row(job: JobRecord, counts: ReturnCounts) -> JobRow {
    JobRow {
        jid: job.jid,
        created: job.created,
        finished: counts.last,
        user: job.user,
        function: job.fun,
        target: job.tgt,
        target_type: job.tgt_type,
        state: state_word(JobState::Complete).to_owned(),
        expected: counts.returned,
        returned: counts.returned,
        failed: counts.failed,
    }
}

/// An old job with the heads of its returns; `None` where the database does not have it either.
///
/// # Errors
/// The database is away.
pub(super) fn whole(
    old: &OldJobs,
    jid: &Jid,
) -> Result<Option<(StoredJob, Vec<ReturnHead>)>, OldJobsAway> {
    let Some(record) = old.job(jid)? else {
        return Ok(None);
    };
    let mut heads: Vec<ReturnHead> = Vec::new();
    loop {
        let after = heads.last().map(|head| head.minion.to_string());
        let page = old.returns(jid, after.as_deref(), CHUNK, MAX_BYTES)?;
        let is_last = !page.is_cut && page.returns.len() < CHUNK;
        heads.extend(page.returns.into_iter().map(|one| ReturnHead {
            minion: one.minion,
            received: one.received,
            retcode: one.retcode,
        }));
        if is_last || heads.len() >= MAX_HEADS {
            break;
        }
    }
    let job = StoredJob {
        id: 0,
        state: JobState::Complete,
        published: None,
        finished: heads.iter().map(|head| head.received).max(),
        notes: None,
        publisher: None,
        reporter: None,
        record,
    };
    Ok(Some((job, heads)))
}
