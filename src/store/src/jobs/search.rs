//! Search over jobs, whatever engine keeps them: which index its candidates come from, which filters
//! they have to pass, and when a page ends.
//!
//! Candidates come newest first out of one index, the narrowest that a filter has; the other filters
//! are applied to them one by one. A page ends after a bounded number of candidates, found or not,
//! and names the job to go on behind. So a filter that matches one job in a million costs more pages,
//! never a long query.

use saltern_python::expression::Pattern;

use super::{FoundJobs, JobSearch, JobState, JobSummary, StateFilter};

/// Candidates that one page looks at.
const MAX_CANDIDATES: usize = 20_000;

/// Candidates of one query.
const CHUNK: usize = 512;

/// Functions that one pattern may stand for, each with a range of the index; beyond that every job
/// is looked at.
const MAX_FUNCTIONS: usize = 64;

/// Functions that are compared with the pattern.
const MAX_KNOWN_FUNCTIONS: usize = 4_096;

/// A jid that a client has made follows its clock and its time zone, so the order of jids and that of
/// `created` differ; in microseconds.
const TIME_ZONE_SLACK: i64 = 26 * 3_600 * 1_000_000;

/// Behind every jid, and behind every suffix of one.
pub(crate) const LAST_JID: &str = "~";

/// An index that candidates come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobIndex<'a> {
    /// All jobs.
    Jobs,
    /// The jobs of a function.
    Function(&'a str),
    /// The jobs of a user.
    User(&'a str),
    /// The jobs in a state other than complete.
    State(JobState),
    /// Jobs one of whose returns has a code other than 0.
    FailedReturns,
}

/// The bounds of the jids that a search reads, neither of them included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JidRange {
    /// The lower one; empty for none.
    pub from: String,
    /// The upper one.
    pub before: String,
}

/// Queries of an engine that a search consists of.
pub trait SearchQueries {
    /// Why a query fails.
    type Error;

    /// How many candidates are compared with the filters at once.
    const STEP: usize;

    /// The functions of all jobs, at most so many.
    fn functions(&mut self, limit: usize) -> Result<Vec<String>, Self::Error>;

    /// The jid of the newest job that was made before a time.
    fn newest_before(&mut self, at: i64) -> Result<Option<String>, Self::Error>;

    /// The jid of the oldest job that was made after a time.
    fn oldest_after(&mut self, at: i64) -> Result<Option<String>, Self::Error>;

    /// The highest jids of an index within a range, highest first, each once.
    fn candidates(
        &mut self,
        index: JobIndex<'_>,
        range: &JidRange,
        limit: usize,
    ) -> Result<Vec<String>, Self::Error>;

    /// The summaries of those of some jobs that match ([`JobSearch::matches_head`], then the filters
    /// that look at returns and expected minions).
    fn matching(
        &mut self,
        search: &JobSearch<'_>,
        jids: &[String],
    ) -> Result<Vec<JobSummary>, Self::Error>;
}

/// A page of the jobs that match.
pub fn search_page<Q: SearchQueries>(
    queries: &mut Q,
    search: &JobSearch<'_>,
) -> Result<FoundJobs, Q::Error> {
    let functions = match search.function {
        Some(pattern) if !search.has_narrower_index() => meant_functions(queries, pattern)?,
        _ => None,
    };
    let indexes = search.indexes(functions.as_deref());
    let mut range = range_of(queries, search)?;
    let mut found = FoundJobs::default();
    let mut looked_at = 0;
    while found.jobs.len() < search.limit {
        let candidates = merged(queries, &indexes, &range)?;
        let Some(last) = candidates.last().cloned() else {
            found.next = None;
            break;
        };
        for step in candidates.chunks(Q::STEP.max(1)) {
            looked_at += step.len();
            found.next = step.last().cloned();
            let left = search.limit - found.jobs.len();
            let mut jobs = queries.matching(search, step)?;
            if jobs.len() > left {
                jobs.truncate(left);
                found.next = jobs.last().map(|job| job.jid.to_string());
            }
            found.jobs.append(&mut jobs);
            if found.jobs.len() == search.limit {
                break;
            }
        }
        if candidates.len() < CHUNK && found.next.as_ref() == Some(&last) {
            found.next = None;
            break;
        }
        if looked_at >= MAX_CANDIDATES {
            break;
        }
        range.before = last;
    }
    Ok(found)
}

/// The functions that a pattern means; `None` when there are too many.
fn meant_functions<Q: SearchQueries>(
    queries: &mut Q,
    pattern: &Pattern,
) -> Result<Option<Vec<String>>, Q::Error> {
    let known = queries.functions(MAX_KNOWN_FUNCTIONS)?;
    if known.len() == MAX_KNOWN_FUNCTIONS {
        return Ok(None);
    }
    let meant = known.into_iter().filter(|fun| means(pattern, fun));
    let meant: Vec<String> = meant.take(MAX_FUNCTIONS + 1).collect();
    Ok((meant.len() <= MAX_FUNCTIONS).then_some(meant))
}

fn range_of<Q: SearchQueries>(
    queries: &mut Q,
    search: &JobSearch<'_>,
) -> Result<JidRange, Q::Error> {
    let since = search.since.map(|at| at.saturating_sub(TIME_ZONE_SLACK));
    let until = search.until.map(|at| at.saturating_add(TIME_ZONE_SLACK));
    let from = since.map(|at| queries.newest_before(at)).transpose()?;
    let until = until.map(|at| queries.oldest_after(at)).transpose()?;
    let ends = [search.before.map(str::to_owned), until.flatten()];
    let before = ends.into_iter().flatten().min();
    Ok(JidRange {
        from: from.flatten().unwrap_or_default(),
        before: before.unwrap_or_else(|| LAST_JID.to_owned()),
    })
}

/// The next candidates of all indexes, highest first. Fewer than [`CHUNK`] when there are no more.
fn merged<Q: SearchQueries>(
    queries: &mut Q,
    indexes: &[JobIndex<'_>],
    range: &JidRange,
) -> Result<Vec<String>, Q::Error> {
    let lists = indexes.iter();
    let lists = lists.map(|index| queries.candidates(*index, range, CHUNK));
    let mut jids = lists.collect::<Result<Vec<_>, _>>()?.concat();
    jids.sort_unstable_by(|one, other| other.cmp(one));
    jids.dedup();
    jids.truncate(CHUNK);
    Ok(jids)
}

impl JobSearch<'_> {
    /// Whether the index of a filter is narrower than that of functions.
    fn has_narrower_index(&self) -> bool {
        let is_of_state = matches!(self.state, Some(StateFilter::Open | StateFilter::Failed));
        is_of_state || self.user.is_some()
    }

    /// The narrowest index, or the indexes whose jobs together are those of the narrowest filter.
    fn indexes<'s>(&'s self, functions: Option<&'s [String]>) -> Vec<JobIndex<'s>> {
        match (self.state, self.user, functions) {
            (Some(StateFilter::Open), ..) => vec![JobIndex::State(JobState::Open)],
            (Some(StateFilter::Failed), ..) => vec![
                JobIndex::State(JobState::Expired),
                JobIndex::State(JobState::Killed),
                JobIndex::FailedReturns,
            ],
            (_, Some(user), _) => vec![JobIndex::User(user)],
            (_, _, Some(functions)) => functions
                .iter()
                .map(|fun| JobIndex::Function(fun))
                .collect(),
            _ => vec![JobIndex::Jobs],
        }
    }

    /// Whether a job passes the filters that look at the job alone.
    pub fn matches_head(&self, job: &JobSummary) -> bool {
        self.since.is_none_or(|since| job.created >= since)
            && self.until.is_none_or(|until| job.created <= until)
            && self.user.is_none_or(|user| job.user == user)
            && self.function.is_none_or(|pattern| means(pattern, &job.fun))
            && self.target.is_none_or(|pattern| pattern.matches(&job.tgt))
            && match self.state {
                Some(StateFilter::Open) => job.state == JobState::Open,
                Some(StateFilter::Ended) => job.state != JobState::Open,
                Some(StateFilter::Failed) | None => true,
            }
    }

    /// Whether a job matches only if one of its returns has a code other than 0.
    pub fn wants_failed_return(&self, job: &JobSummary) -> bool {
        let is_given_up = job.state.is_incomplete_end();
        self.state == Some(StateFilter::Failed) && !is_given_up
    }
}

/// Whether a pattern means a function, or one of those of a compound command.
fn means(pattern: &Pattern, fun: &str) -> bool {
    pattern.matches(fun) || fun.split(',').any(|one| pattern.matches(one))
}
