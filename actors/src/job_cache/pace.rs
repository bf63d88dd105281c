//! When the next rows are given to a returner, and how many at once.
//!
//! No clock and no actor in here, and nothing of what the rows are.

use std::time::Duration;

use tokio::time::Instant;

/// Rows given at once. The number doubles with each attempt of which nothing came, a few times: so
/// many that fail one after the other do not hide from each other that the returner works.
const ROWS: usize = 50;
const MOST_DOUBLINGS: u32 = 4;

/// Failures in a row after which the rest of them is not tried, at first.
const PATIENCE: usize = 5;

/// How often a row may end the Python that it is given to, or take all its time, before the next
/// time is the last.
const MOST_KILLS: u32 = 3;

/// The pauses after attempts of which nothing came.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Default)]
pub(super) struct Pace {
    /// Rows are on their way.
    in_flight: bool,
    /// There may be more than those.
    is_behind: bool,
    /// Attempts in a row of which nothing came.
    failures: u32,
    /// Those of them that Python did not come back from.
    kills: u32,
    /// Nothing is tried before.
    paused_until: Option<Instant>,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing before somebody says that there is more, or what is under way lands.
    Nothing,
    /// Nothing before this time is over.
    Pause(Duration),
    /// An attempt, which is under way from now on.
    Give(Attempt),
}

/// How rows are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    /// Most rows.
    pub(super) rows: usize,
    /// After how many failures in a row the rest is left.
    pub(super) patience: usize,
    /// A row that Python does not come back from is passed over.
    pub(super) is_last_try: bool,
}

/// What came of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Landing {
    /// There was nothing to give.
    Empty,
    /// Rows were given or passed over; there may be more.
    Moved,
    /// Nothing.
    Failed,
    /// Nothing: Python did not come back from it.
    Killed,
}

impl Pace {
    /// There is something to give.
    pub(super) fn wake(&mut self) {
        self.is_behind = true;
    }

    /// Whether nothing came of the last attempt.
    pub(super) fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// What is to be done now.
    pub(super) fn next(&mut self, now: Instant) -> Next {
        if self.in_flight || !self.is_behind {
            return Next::Nothing;
        }
        if let Some(end) = self.paused_until.filter(|end| *end > now) {
            return Next::Pause(end.saturating_duration_since(now));
        }
        self.in_flight = true;
        // Whoever wakes it from now on may mean rows that this attempt does not see.
        self.is_behind = false;
        Next::Give(self.attempt())
    }

    /// The attempt that was under way has ended.
    pub(super) fn land(&mut self, landing: Landing, now: Instant) {
        self.in_flight = false;
        self.is_behind |= landing != Landing::Empty;
        if matches!(landing, Landing::Failed | Landing::Killed) {
            self.failures = self.failures.saturating_add(1);
            self.kills += u32::from(landing == Landing::Killed);
            let doubled = self.failures.saturating_sub(1).min(8);
            let pause = FIRST_PAUSE.saturating_mul(1 << doubled).min(LONGEST_PAUSE);
            self.paused_until = Some(now + pause);
        } else {
            (self.failures, self.kills, self.paused_until) = (0, 0, None);
        }
    }

    fn attempt(&self) -> Attempt {
        let rows = ROWS << self.failures.min(MOST_DOUBLINGS);
        let patience = if self.failures < MOST_DOUBLINGS {
            PATIENCE
        } else {
            rows
        };
        Attempt {
            rows,
            patience,
            is_last_try: self.kills >= MOST_KILLS,
        }
    }
}

#[cfg(test)]
mod tests;
