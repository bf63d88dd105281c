//! Time as the machine knows it, and what wakes it.
//!
//! A moment is counted from the tracker's own start with a clock that is never set back; the time
//! of day does not come into any decision about a job.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use saltern_model::Jid;

/// Microseconds since the tracker started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(u64);

impl Moment {
    /// So long after the tracker's start.
    pub(super) fn at(since_start: Duration) -> Self {
        Self(micros(since_start))
    }

    pub(super) fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(micros(time)))
    }

    /// The time from `earlier` to here, nothing when that is later.
    pub(super) fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// The time from the tracker's start.
    #[cfg(test)]
    pub(super) fn since_start(self) -> Duration {
        Duration::from_micros(self.0)
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// What is to be looked at when its time has come.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// Whether a job needs anything.
    Look(Jid),
    /// Send the load of a job once more, unless that has become needless.
    Again(Jid),
    /// Write down what became of jobs.
    Keep,
    /// Say how far a job is.
    Progress(Jid),
    /// Send the probes that are wanted.
    Flush,
    /// Who has not answered this probe will not.
    ProbeOver(Jid),
    /// Answers to this probe tell no more who does not run what.
    ProbeForgotten(Jid),
    /// A client that asked will soon cease to wait; its question, then the job.
    AskLate(Jid, Jid),
    /// A client that asked has ceased to wait; its question, then the job.
    AskOver(Jid, Jid),
}

/// All timers, the next one first. Nothing is ever taken out: what is no longer meant is passed
/// over when its time comes.
#[derive(Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Moment, Timer)>>,
}

impl Timers {
    pub(super) fn set(&mut self, at: Moment, timer: Timer) {
        self.heap.push(Reverse((at, timer)));
    }

    /// When to wake next.
    pub(super) fn next(&self) -> Option<Moment> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// One whose time has come, with the time for which it was set.
    pub(super) fn due(&mut self, now: Moment) -> Option<(Moment, Timer)> {
        if self.next()? > now {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| entry)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }
}
