//! How many failures are told one by one and kept: all of an outburst, a few a second of a stream.
//! The others are counted: the next one that is told says how many they were, or, once a second,
//! an event of its own.

use parking_lot::Mutex;
use tokio::time::Instant;

/// Failures that are told at once.
const BURST: f64 = 1_000.0;

/// Failures in a second that are told when they go on.
const RATE: f64 = 20.0;

/// See the module.
pub(super) struct Failures(Mutex<State>);

struct State {
    allowance: f64,
    counted: Instant,
    untold: u64,
}

impl Failures {
    pub(super) fn new() -> Self {
        Self(Mutex::new(State {
            allowance: BURST,
            counted: Instant::now(),
            untold: 0,
        }))
    }

    /// Something failed. When it is to be told: how often that happened since the last one was,
    /// this time included.
    pub(super) fn happened(&self) -> Option<u64> {
        let mut state = self.0.lock();
        let now = Instant::now();
        let passed = now.duration_since(state.counted).as_secs_f64();
        state.counted = now;
        state.allowance = (state.allowance + passed * RATE).min(BURST);
        state.untold += 1;
        if state.allowance < 1.0 {
            return None;
        }
        state.allowance -= 1.0;
        Some(std::mem::take(&mut state.untold))
    }

    /// How many have not been told, which are told now; nothing where all have been.
    pub(super) fn rest(&self) -> Option<u64> {
        let untold = std::mem::take(&mut self.0.lock().untold);
        (untold > 0).then_some(untold)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_outburst_is_told_and_of_a_stream_a_part_with_the_number_of_the_others() {
        let failures = Failures::new();
        let told = (0..1_500).filter_map(|_| failures.happened()).count();
        assert_eq!(told, 1_000);
        tokio::time::advance(Duration::from_millis(50)).await;
        assert_eq!(failures.happened(), Some(501));
        assert_eq!(failures.happened(), None);
        assert_eq!(failures.rest(), Some(1));
        assert_eq!(failures.rest(), None);
    }
}
