//! Monotonic time and timers of the machine.
//!
//! A moment is counted from the tracker's own start with a monotonic clock; the time of day does
//! not affect any decision about a job.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use saltern_model::{Jid, MinionId};

/// Microseconds since the tracker started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Moment(u64);

impl Moment {
    /// The moment this long after the tracker's start.
    pub(super) fn at(since_start: Duration) -> Self {
        Self(micros(since_start))
    }

    pub(super) fn after(self, time: Duration) -> Self {
        Self(self.0.saturating_add(micros(time)))
    }

    /// The time since `earlier`; zero when that is later.
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

/// Work that is due when a timer fires.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// Whether a job needs anything.
    Look(Jid),
    /// Send the load of a job again, unless that has become needless.
    Again(Jid),
    /// Write the states of jobs.
    Keep,
    /// Announce the progress of a job.
    Progress(Jid),
    /// Send the pending probes.
    Flush,
    /// Minions that have not answered this probe are given up.
    ProbeOver(Jid),
    /// Answers to this probe prove no more which jobs a minion does not run.
    ProbeForgotten(Jid),
    /// A client's timeout is near; its question, then the job.
    AskLate(Jid, Jid),
    /// A client's timeout has passed; its question, then the job.
    AskOver(Jid, Jid),
    /// Announce what a syndic has said of a job since the last such event.
    Below(Jid, MinionId),
}

/// All timers, the next one first. None is ever removed: a stale one is ignored when it fires.
#[derive(Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Moment, Timer)>>,
}

impl Timers {
    pub(super) fn set(&mut self, at: Moment, timer: Timer) {
        self.heap.push(Reverse((at, timer)));
    }

    /// When the next timer fires.
    pub(super) fn next(&self) -> Option<Moment> {
        self.heap.peek().map(|Reverse((at, _))| *at)
    }

    /// The next timer that is due, with its time.
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
