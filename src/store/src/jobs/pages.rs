//! Queries for pages of jobs and returns, and for searches (keyset pagination).
//!
//! Jobs are ordered by jid, which is the time of the job, newest first; returns by minion. The
//! cursor of the next page is the last row of the one before.

use saltern_model::{MinionId, ReturnRecord};
use saltern_python::expression::Pattern;

use super::search::LAST_JID;
use super::{JobSummary, KeptEvent, Numbered};

/// Query for a page of jobs.
#[derive(Clone, Debug, Default)]
pub struct JobsPage<'a> {
    /// Only jobs whose jid is below this one.
    pub before: Option<&'a str>,
    /// Only jobs of this time or later, as the first digits of a jid.
    pub from: Option<&'a str>,
    /// Only jobs of this time or earlier, as the twenty digits of a jid.
    pub until: Option<&'a str>,
    /// Only jobs of exactly this function.
    pub function: Option<&'a str>,
    /// How many jobs at most.
    pub limit: usize,
}

impl JobsPage<'_> {
    /// The jid below which the jobs of the page are.
    pub fn end(&self) -> String {
        let until = self.until.map(|until| format!("{until}{LAST_JID}"));
        let ends = [self.before.map(str::to_owned), until];
        let end = ends.into_iter().flatten().min();
        end.unwrap_or_else(|| LAST_JID.to_owned())
    }
}

/// Some returns of a job.
#[derive(Clone, Debug)]
pub struct ReturnsPage {
    /// The returns, by minion.
    pub returns: Vec<ReturnRecord>,
    /// There are more, which were left out because of their size.
    pub is_cut: bool,
}

/// Filters of a search; those that are left out match every job.
#[derive(Clone, Default)]
pub struct JobSearch<'a> {
    /// Only jobs whose jid is below this one.
    pub before: Option<&'a str>,
    /// Only jobs made at this time or later, in microseconds since 1970.
    pub since: Option<i64>,
    /// Only jobs made at this time or earlier, likewise. Jobs whose jid is no time are left out.
    pub until: Option<i64>,
    /// Only jobs one of whose functions this matches.
    pub function: Option<&'a Pattern>,
    /// Only jobs of this user.
    pub user: Option<&'a str>,
    /// Only jobs whose target, as text, this matches.
    pub target: Option<&'a Pattern>,
    /// Only jobs that this minion was expected to run, or returned.
    pub minion: Option<&'a MinionId>,
    /// Only jobs in this state.
    pub state: Option<StateFilter>,
    /// How many jobs at most.
    pub limit: usize,
}

/// States that a search distinguishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateFilter {
    /// Returns are awaited.
    Open,
    /// No returns are awaited any more.
    Ended,
    /// A minion returned a code other than 0, or the job ended before all minions had returned.
    Failed,
}

/// A page of a search.
#[derive(Clone, Debug, Default)]
pub struct FoundJobs {
    /// The jobs, highest jid first. May be fewer than asked for although more follow.
    pub jobs: Vec<JobSummary>,
    /// The jid to go on below ([`JobSearch::before`]); none at the end.
    pub next: Option<String>,
}

/// Some returns of wanted functions.
#[derive(Clone, Debug)]
pub struct ReturnsOf {
    /// The returns, lowest number first.
    pub returns: Vec<Numbered<ReturnRecord>>,
    /// Cursor of the next read: no return up to here was left out.
    pub through: i64,
    /// The highest number of a return.
    pub last: i64,
}

/// Some events about one minion, or about several.
#[derive(Clone, Debug)]
pub struct PresenceEvents {
    /// The events, newest first. Those about several minions may not name this one.
    pub events: Vec<KeptEvent>,
    /// For the next read; none when nothing older is kept.
    pub before: Option<i64>,
    /// When the oldest event was kept that this read looked at.
    pub since: Option<i64>,
}
