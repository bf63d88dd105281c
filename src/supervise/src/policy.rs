//! Restart policies: which children are restarted, how often, how soon, and on which thread.
//!
//! Everything here is plain data and arithmetic over instants that are passed in, so that the
//! rules are tested without actors. What happens to the siblings is decided in `tree.rs`.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::Work;

/// Restart type of a child, as in Erlang/OTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// Always: it must never end by itself, so `ctx.stop()` counts as a failure too.
    Permanent,
    /// After a panic; after `ctx.stop()` it has ended, and its address closes.
    Transient,
}

/// Restart intensity: restarts tolerated in a sliding window before the supervisor escalates.
///
/// Choose `max_restarts` by the burst that must be survived and `window` by the sustained rate
/// that is tolerable. Budgets of nested supervisors multiply, so keep the upper ones small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Restarts allowed within the window. 0 escalates at the first failure.
    pub max_restarts: u32,
    /// Length of the sliding window; also the quiet time after which back-off starts over.
    pub window: Duration,
}

impl Budget {
    /// `max_restarts` within `window`.
    #[must_use]
    pub const fn new(max_restarts: u32, window: Duration) -> Self {
        Self {
            max_restarts,
            window,
        }
    }
}

/// The thread an actor lives on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placement {
    /// The arbiter that called `start_child`.
    Here,
    /// The thread of this name, made by the tree when the first child asks for it and shared by
    /// all that name it. Linux shows the first 15 bytes.
    Thread(String),
}

impl Placement {
    /// A thread of the tree with this name.
    pub fn thread(name: impl Into<String>) -> Self {
        Self::Thread(name.into())
    }
}

/// The specification of one child: restart type, budget, shutdown and thread.
#[derive(Clone, Debug)]
pub struct ChildSpec {
    /// Its restart type.
    pub restart: Restart,
    /// Its own restart budget; used up means the supervisor itself has failed.
    pub budget: Budget,
    /// How long it may drain when the tree stops. Zero: it is stopped without being asked.
    pub shutdown: Duration,
    /// Its thread.
    pub arbiter: Placement,
    /// Whether its thread may be in synchronous work for however long that takes, so that its
    /// silence is no fault.
    pub may_block: bool,
    /// Its work on other threads, without which it would answer heartbeats while that is stuck.
    pub work: Option<Arc<Work>>,
}

impl ChildSpec {
    /// Permanent, ten restarts a minute, five seconds to drain, on the caller's arbiter.
    #[must_use]
    pub const fn permanent() -> Self {
        Self {
            restart: Restart::Permanent,
            budget: Budget::new(10, Duration::from_secs(60)),
            shutdown: Duration::from_secs(5),
            arbiter: Placement::Here,
            may_block: false,
            work: None,
        }
    }

    /// The same, with another restart policy.
    #[must_use]
    pub fn with_restart(mut self, restart: Restart) -> Self {
        self.restart = restart;
        self
    }

    /// The same, with another budget.
    #[must_use]
    pub fn with_budget(mut self, budget: Budget) -> Self {
        self.budget = budget;
        self
    }

    /// The same, with another time to drain.
    #[must_use]
    pub fn with_shutdown(mut self, shutdown: Duration) -> Self {
        self.shutdown = shutdown;
        self
    }

    /// The same, on another thread.
    #[must_use]
    pub fn on(mut self, arbiter: Placement) -> Self {
        self.arbiter = arbiter;
        self
    }

    /// The same, but [`Tree::heartbeat`](crate::Tree::heartbeat) does not wait for it: it reads
    /// disks, runs programs or renders on its thread, which nobody else may share.
    #[must_use]
    pub fn may_block(mut self) -> Self {
        self.may_block = true;
        self
    }

    /// The same, but without heartbeats while this work is stuck.
    #[must_use]
    pub fn with_work(mut self, work: Arc<Work>) -> Self {
        self.work = Some(work);
        self
    }
}

/// The delay before the second restart in a row; it doubles from there.
const FIRST_DELAY: Duration = Duration::from_millis(100);
/// The longest delay.
const MAX_DELAY: Duration = Duration::from_secs(5);

/// Budget used by one child or supervisor, and its back-off.
///
/// Also for what an actor runs itself and starts again by the same rules, such as a process.
#[derive(Debug)]
pub struct Record {
    budget: Budget,
    longest_delay: Duration,
    /// Restarts still inside the window; never more than `max_restarts` of them.
    recent: VecDeque<Instant>,
    /// Failures since the last quiet window.
    streak: u32,
    last: Option<Instant>,
}

impl Record {
    /// A full budget.
    #[must_use]
    pub fn new(budget: Budget) -> Self {
        Self {
            budget,
            longest_delay: MAX_DELAY,
            recent: VecDeque::new(),
            streak: 0,
            last: None,
        }
    }

    /// The same, whose delays grow up to this one.
    #[must_use]
    pub fn with_longest_delay(mut self, longest: Duration) -> Self {
        self.longest_delay = longest;
        self
    }

    /// Counts a restart. `false`: the budget does not allow it.
    pub fn charge(&mut self, now: Instant) -> bool {
        while let Some(oldest) = self.recent.front() {
            if now.saturating_duration_since(*oldest) < self.budget.window {
                break;
            }
            self.recent.pop_front();
        }
        if self.recent.len() >= self.budget.max_restarts as usize {
            return false;
        }
        self.recent.push_back(now);
        true
    }

    /// The time to wait before this restart: 0, then 100 ms x 2^n up to the longest delay.
    pub fn back_off(&mut self, now: Instant) -> Duration {
        let quiet = self
            .last
            .is_none_or(|last| now.saturating_duration_since(last) >= self.budget.window);
        self.streak = if quiet {
            0
        } else {
            self.streak.saturating_add(1)
        };
        self.last = Some(now);
        match self.streak {
            0 => Duration::ZERO,
            // The cap keeps the shift in range; a longest delay beyond it would be hours.
            failures => (FIRST_DELAY * (1 << (failures - 1).min(16))).min(self.longest_delay),
        }
    }

    /// Resets the used budget (the level above has restarted everything), not the back-off.
    pub(crate) fn clear(&mut self) {
        self.recent.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn back_off_doubles_from_nothing_to_five_seconds() {
        let mut record = Record::new(Budget::new(100, MINUTE));
        let now = Instant::now();
        let delays: Vec<u128> = (0..9)
            .map(|second| record.back_off(now + SECOND * second).as_millis())
            .collect();
        assert_eq!(delays, [0, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
    }

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_quiet_window_resets_the_back_off() {
        let mut record = Record::new(Budget::new(100, MINUTE));
        let now = Instant::now();
        record.back_off(now);
        assert_eq!(record.back_off(now + SECOND).as_millis(), 100);
        assert_eq!(
            record
                .back_off(now + SECOND + MINUTE - SECOND / 2)
                .as_millis(),
            200
        );
        assert_eq!(record.back_off(now + MINUTE * 3).as_millis(), 0);
    }

    #[test]
    fn the_budget_slides() {
        let mut record = Record::new(Budget::new(2, MINUTE));
        let now = Instant::now();
        assert!(record.charge(now));
        assert!(record.charge(now + SECOND * 30));
        assert!(!record.charge(now + SECOND * 59));
        assert!(record.charge(now + SECOND * 60));
        assert!(!record.charge(now + SECOND * 61));
    }

    #[test]
    fn no_budget_allows_nothing() {
        assert!(!Record::new(Budget::new(0, MINUTE)).charge(Instant::now()));
    }
}
