//! Where a job stands, for whoever shows it beside the returns.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::options::SaltOptions;

/// Where a job stands.
#[expect(
    dead_code,
    reason = "read by the progress line, which is no part of this yet"
)]
pub(crate) struct JobNews<'a> {
    /// The job.
    pub(crate) jid: &'a str,
    /// Minions that are to answer, as far as known by now.
    pub(crate) expected: usize,
    /// Minions that returned.
    pub(crate) returned: usize,
    /// Of these, with a return code other than 0.
    pub(crate) failed: usize,
    /// Given up: no return is waited for.
    pub(crate) silent: usize,
    /// The minions that are still waited for.
    pub(crate) awaited: &'a BTreeSet<String>,
    /// Since the job was published.
    pub(crate) elapsed: Duration,
}

/// Shows where a job stands, beside what is printed on standard output.
pub(crate) trait JobWatcher {
    /// The job was published, a minion answered, or a second has passed.
    fn news(&mut self, news: &JobNews<'_>);
    /// Takes what is drawn off the terminal: something is about to be printed, or the job is over.
    fn clear(&mut self);
}

/// The watcher of a command.
pub(crate) fn watcher(_options: &SaltOptions) -> Box<dyn JobWatcher> {
    Box::new(Unwatched)
}

/// Shows nothing.
struct Unwatched;

impl JobWatcher for Unwatched {
    fn news(&mut self, _news: &JobNews<'_>) {}

    fn clear(&mut self) {}
}
