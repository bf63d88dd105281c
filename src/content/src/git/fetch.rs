//! One fetch of a clone: when it is due, and the lock under which it is made.
//!
//! A fetch runs on a thread that may block, and can be cancelled from another. Until it is dropped,
//! no other thread fetches the clone; the lock excludes other processes, also those that a killed
//! master left running.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use tokio::time::Instant;

use super::clone::{Clone, create_directories, remove_stale_locks};
use super::command::{FETCH_TIME, Git, LOCAL_TIME};
use super::error::GitError;
use crate::render::process::Cancel;

/// When a clone is fetched.
pub(super) struct Schedule {
    interval: Duration,
    /// From when on the interval counts: the start of a fetch, or the end of one that failed.
    last: Option<Instant>,
    is_taken: bool,
}

impl Schedule {
    pub(super) fn new(interval: Duration) -> Self {
        Self {
            interval,
            last: None,
            is_taken: false,
        }
    }

    pub(super) fn shorten(&mut self, interval: Duration) {
        self.interval = interval.min(self.interval);
    }

    fn is_due(&self) -> bool {
        // A caller whose pause is just the interval should not come a moment too early each time.
        let tolerance = Duration::from_secs(1);
        !self.is_taken
            && self
                .last
                .is_none_or(|at| at.elapsed() + tolerance >= self.interval)
    }
}

/// Outcome of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetched {
    /// Something is different now.
    Changed,
    /// Nothing is, also when the fetch was ended before it was done.
    Same,
    /// The remote cannot be fetched.
    Failed,
}

impl Fetched {
    /// Whether anything is different now.
    pub fn is_change(self) -> bool {
        self == Self::Changed
    }
}

/// A fetch that is due. Dropped without being run it is due again.
pub struct Fetch {
    clone: Arc<Clone>,
}

impl Fetch {
    pub(super) fn if_due(clone: &Arc<Clone>) -> Option<Self> {
        let mut schedule = clone.schedule();
        let is_due = schedule.is_due();
        schedule.is_taken |= is_due;
        is_due.then(|| Self {
            clone: Arc::clone(clone),
        })
    }

    /// A fetch before its time; nothing while there is another one.
    pub(crate) fn now(clone: &Arc<Clone>) -> Option<Self> {
        let mut schedule = clone.schedule();
        let is_free = !schedule.is_taken;
        schedule.is_taken = true;
        is_free.then(|| Self {
            clone: Arc::clone(clone),
        })
    }

    /// Fetches, unless `cancel` ends that; blocks for as long as the remote takes, within bounds.
    /// A failure is logged.
    #[must_use]
    pub fn run(self, cancel: Option<&Cancel>) -> Fetched {
        self.clone.schedule().last = Some(Instant::now());
        let result = refresh(&self.clone, cancel);
        if result.is_err() {
            self.clone.schedule().last = Some(Instant::now());
        }
        match result {
            Ok(true) => Fetched::Changed,
            Ok(false) => Fetched::Same,
            Err(error) if cancel.is_some_and(Cancel::is_cancelled) => {
                tracing::debug!(%error, "a fetch was ended");
                Fetched::Same
            }
            Err(error) => {
                tracing::error!(%error, "a git remote cannot be fetched");
                Fetched::Failed
            }
        }
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        self.clone.schedule().is_taken = false;
    }
}

/// Fetches. Returns whether the refs are different now; `false` also if another process is at it.
fn refresh(clone: &Clone, cancel: Option<&Cancel>) -> Result<bool, GitError> {
    create_directories(clone.directory())
        .map_err(|error| GitError::io(clone.directory(), error))?;
    let Some(lock) = lock(clone)? else {
        tracing::warn!(
            remote = clone.origin().shown(),
            "not fetched: another process is fetching"
        );
        return Ok(false);
    };
    let repository = clone.repository();
    if !repository.join("HEAD").is_file() {
        Git::on(&repository)
            .args(["init", "--quiet", "--bare"])
            .run(None, LOCAL_TIME)
            .map_err(|problem| clone.failed("init", &problem))?;
    }
    remove_stale_locks(&repository);
    // Git holds the lock as well, as its input: if this process is killed, the lock lasts until
    // git has ended too.
    let held = lock
        .try_clone()
        .map_err(|error| GitError::io(clone.directory(), error))?;
    clone
        .origin()
        .fetch(Git::on(&repository))
        .run_fetching(held, cancel)
        .map_err(|problem| clone.failed("fetch", &problem))?;
    let changed = clone.read_refs()?;
    clone.set_fetched();
    if changed {
        clone.remove_unused();
    }
    tidy_up(clone, lock, cancel);
    Ok(changed)
}

/// Runs git's housekeeping (`gc --auto`) apart from the fetch: as part of it, the fetched objects
/// could not be used until it is done, and it prints nothing for long.
fn tidy_up(clone: &Clone, lock: File, cancel: Option<&Cancel>) {
    let tidied = Git::on(&clone.repository())
        .args(["gc", "--auto", "--quiet"])
        .run_holding(lock, FETCH_TIME, cancel);
    if let Err(problem) = tidied {
        let error = clone.failed("gc", &problem);
        if cancel.is_some_and(Cancel::is_cancelled) {
            // The next fetch that brings something tidies up.
            tracing::debug!(%error, "a clone is not tidied up");
            return;
        }
        tracing::warn!(%error, "a clone is not tidied up");
    }
}

/// The lock on the clone, which ends with the processes that hold it; `None` if another does.
pub(super) fn lock(clone: &Clone) -> Result<Option<File>, GitError> {
    let path = clone.directory().join("lock");
    let failed = |error: io::Error| GitError::io(&path, error);
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600)
        .open(&path)
        .map_err(failed)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(failed(error.into())),
    }
}
