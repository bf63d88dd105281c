//! Retry policy of a job cache: when the next rows are sent, and how many.
//!
//! No clock and no actor in here, and nothing of the rows themselves.

use std::time::Duration;

use tokio::time::Instant;

/// Rows per call. The number doubles with each failed attempt, a few times: so a run of bad rows
/// does not hide that the returner works.
const ROWS: usize = 50;
const MAX_DOUBLINGS: u32 = 4;

/// Failures in a row after which the rest of a call is not tried, at first.
const FAILURES_BEFORE_BACKOFF: usize = 5;

/// How often a row may kill Python, or use up its time, before the next try is the last.
const MAX_KILLS: u32 = 3;

/// First and longest back-off.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// Time between a failure and the next attempt, also while somebody waits.
pub(super) const MIN_PAUSE: Duration = Duration::from_millis(500);

/// Retry state of one job cache.
#[derive(Default)]
pub(super) struct Pace {
    /// A call is in progress.
    in_flight: bool,
    /// There may be rows that the call does not include.
    is_behind: bool,
    /// Failed attempts in a row.
    failures: u32,
    /// Failed attempts in a row that killed Python.
    kills: u32,
    /// Back-off: no attempt before.
    paused_until: Option<Instant>,
    /// When the last attempt failed.
    last_failure: Option<Instant>,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing before [`Pace::wake`], or the end of the current call.
    Nothing,
    /// Nothing before the back-off is over.
    Pause(Duration),
    /// An attempt, which is in progress from now on.
    Give(Attempt),
}

/// Parameters of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    /// Most rows.
    pub(super) rows: usize,
    /// Failures in a row after which the rest is not tried.
    pub(super) patience: usize,
    /// Skip a row that kills Python.
    pub(super) is_last_try: bool,
}

/// Result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Landing {
    /// There was nothing to give.
    Empty,
    /// Rows were stored or skipped; there may be more.
    Moved,
    /// Nothing.
    Failed,
    /// Nothing: a row killed Python.
    Killed,
}

impl Pace {
    /// There are new rows.
    pub(super) fn wake(&mut self) {
        self.is_behind = true;
    }

    /// Whether the last attempt failed.
    pub(super) fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// Ends the back-off, because somebody waits, unless the last attempt has only just failed. Whether
    /// an attempt is due or in progress.
    pub(super) fn hurry(&mut self, now: Instant) -> bool {
        self.is_behind = true;
        if self.in_flight {
            return true;
        }
        let may_try = (self.last_failure).is_none_or(|at| now >= at + MIN_PAUSE);
        if may_try {
            self.paused_until = None;
        }
        may_try
    }

    /// The step that is due.
    pub(super) fn next(&mut self, now: Instant) -> Next {
        if self.in_flight || !self.is_behind {
            return Next::Nothing;
        }
        if let Some(end) = self.paused_until.filter(|end| *end > now) {
            return Next::Pause(end.saturating_duration_since(now));
        }
        self.in_flight = true;
        // A wake-up from now on may mean rows that this attempt does not see.
        self.is_behind = false;
        Next::Give(self.attempt())
    }

    /// The current attempt has ended.
    pub(super) fn land(&mut self, landing: Landing, now: Instant) {
        self.in_flight = false;
        self.is_behind |= landing != Landing::Empty;
        if matches!(landing, Landing::Failed | Landing::Killed) {
            self.failures = self.failures.saturating_add(1);
            self.kills += u32::from(landing == Landing::Killed);
            let doubled = self.failures.saturating_sub(1).min(8);
            let pause = FIRST_PAUSE.saturating_mul(1 << doubled).min(MAX_PAUSE);
            self.paused_until = Some(now + pause);
            self.last_failure = Some(now);
        } else {
            (self.failures, self.kills, self.paused_until) = (0, 0, None);
        }
    }

    fn attempt(&self) -> Attempt {
        let rows = ROWS << self.failures.min(MAX_DOUBLINGS);
        let patience = if self.failures < MAX_DOUBLINGS {
            FAILURES_BEFORE_BACKOFF
        } else {
            rows
        };
        Attempt {
            rows,
            patience,
            is_last_try: self.kills >= MAX_KILLS,
        }
    }
}

#[cfg(test)]
mod tests;
