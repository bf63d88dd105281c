//! Rate limit on reports of failures (a token bucket): each of a burst is reported and kept, then
//! a few a second. The others are counted: the next report says how many they were, or, once a
//! second, an event of its own.

use parking_lot::Mutex;
use tokio::time::Instant;

/// Failures that are reported at once: the size of the bucket.
const BURST: f64 = 1_000.0;

/// Failures a second that are reported in the long run.
const RATE: f64 = 20.0;

/// Token bucket of failure reports.
pub(super) struct Failures(Mutex<State>);

struct State {
    allowance: f64,
    counted: Instant,
    suppressed: u64,
}

impl Failures {
    pub(super) fn new() -> Self {
        Self(Mutex::new(State {
            allowance: BURST,
            counted: Instant::now(),
            suppressed: 0,
        }))
    }

    /// Records a failure. When it is to be reported: the number of failures since the last report,
    /// this one included.
    pub(super) fn record(&self) -> Option<u64> {
        let mut state = self.0.lock();
        let now = Instant::now();
        let passed = now.duration_since(state.counted).as_secs_f64();
        state.counted = now;
        state.allowance = (state.allowance + passed * RATE).min(BURST);
        state.suppressed += 1;
        if state.allowance < 1.0 {
            return None;
        }
        state.allowance -= 1.0;
        Some(std::mem::take(&mut state.suppressed))
    }

    /// Takes the number of failures that were not reported; `None` without any.
    pub(super) fn rest(&self) -> Option<u64> {
        let suppressed = std::mem::take(&mut self.0.lock().suppressed);
        (suppressed > 0).then_some(suppressed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn burst_is_reported_and_a_stream_is_rate_limited_with_counts() {
        let failures = Failures::new();
        let reported = (0..1_500).filter_map(|_| failures.record()).count();
        assert_eq!(reported, 1_000);
        tokio::time::advance(Duration::from_millis(50)).await;
        assert_eq!(failures.record(), Some(501));
        assert_eq!(failures.record(), None);
        assert_eq!(failures.rest(), Some(1));
        assert_eq!(failures.rest(), None);
    }
}
