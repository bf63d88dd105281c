//! Bound on the rows of senders who prove nothing: any peer that reaches the port can cause them,
//! and each is a row that is kept for long and a commit of the database.

use parking_lot::Mutex;
use saltern_base::clock::Clock;
use saltern_base::metrics::{IntCounter, Registry, counter};

/// Rows at once, after a quiet time.
const BURST: i64 = 20;

/// Seconds after which one more row may be written.
const REFILL: i64 = 30;

/// Token bucket for refusals of unproved senders, one for the whole process. What it suppresses is
/// counted, and the next row of anybody says how much that was.
pub(crate) struct RefusalBudget {
    clock: Clock,
    state: Mutex<State>,
    suppressed: IntCounter,
}

struct State {
    tokens: i64,
    /// When it was last refilled, in seconds since 1970.
    refilled: i64,
    /// Refusals without a row since the last row.
    suppressed: u64,
}

impl RefusalBudget {
    pub(crate) fn new(clock: Clock, registry: &Registry) -> Self {
        let refilled = clock.unix();
        Self {
            clock,
            state: Mutex::new(State {
                tokens: BURST,
                refilled,
                suppressed: 0,
            }),
            suppressed: counter(
                registry,
                "saltern_audit_suppressed_total",
                "Refusals of unproved senders without a row of their own in the audit trail, \
                 because there were too many.",
            ),
        }
    }

    /// Whether one more refusal has a row; counts it if not.
    pub(crate) fn take(&self) -> bool {
        let now = self.clock.unix();
        let mut state = self.state.lock();
        // A clock that was set back starts anew.
        let passed = now.saturating_sub(state.refilled);
        if passed < 0 {
            state.refilled = now;
        } else if passed >= REFILL {
            state.tokens = state.tokens.saturating_add(passed / REFILL).min(BURST);
            state.refilled = now - passed % REFILL;
        }
        if state.tokens > 0 {
            state.tokens -= 1;
            return true;
        }
        state.suppressed = state.suppressed.saturating_add(1);
        self.suppressed.inc();
        false
    }

    /// How many had no row since the last one; they are counted from 0 again.
    pub(crate) fn suppressed(&self) -> u64 {
        std::mem::take(&mut self.state.lock().suppressed)
    }

    /// Takes back a count whose row is not written.
    pub(crate) fn put_back(&self, count: u64) {
        if count > 0 {
            let mut state = self.state.lock();
            state.suppressed = state.suppressed.saturating_add(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    #[test]
    fn flood_of_unproved_senders_is_bounded_and_counted() {
        let clock = Clock::manual(UNIX_EPOCH + Duration::from_secs(1_000));
        let budget = RefusalBudget::new(clock.clone(), &Registry::new());
        let rows = |count: u64| (0..count).filter(|_| budget.take()).count();
        assert_eq!(rows(5_000), BURST as usize);
        assert_eq!(budget.suppressed.get(), 5_000 - BURST as u64);
        assert_eq!(budget.suppressed(), 5_000 - BURST as u64);
        assert_eq!(budget.suppressed(), 0, "each is named once");
        clock.advance(Duration::from_secs(REFILL as u64 - 1));
        assert_eq!(rows(10), 0);
        clock.advance(Duration::from_secs(1));
        assert_eq!(rows(10), 1);
        clock.advance(Duration::from_secs(REFILL as u64 * 1_000));
        assert_eq!(rows(1_000), BURST as usize, "never more at once");
        budget.put_back(3);
        assert!(budget.suppressed() > 3);
    }
}
