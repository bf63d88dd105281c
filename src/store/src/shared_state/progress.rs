//! Rounds of a member as metrics ask for them.

use std::time::Duration;

use saltern_base::clock::Clock;
use saltern_base::metrics::IntCounter;

/// Numbers of all rounds, and when one was completed.
pub(super) struct Progress<const N: usize> {
    clock: Clock,
    /// In microseconds since 1970; that of the start before there was one.
    completed: i64,
    counted: [u64; N],
    counters: Option<[IntCounter; N]>,
}

impl<const N: usize> Progress<N> {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            completed: clock.unix_micros(),
            clock,
            counted: [0; N],
            counters: None,
        }
    }

    /// Counts in these from here on, and what was before.
    pub(super) fn count_in(&mut self, counters: [IntCounter; N]) {
        add(&counters, self.counted, [0; N]);
        self.counters = Some(counters);
    }

    /// Notes the numbers after a round, and whether it was completed.
    pub(super) fn note(&mut self, counts: [u64; N], is_complete: bool) {
        if let Some(counters) = &self.counters {
            add(counters, counts, self.counted);
        }
        self.counted = counts;
        if is_complete {
            self.completed = self.clock.unix_micros();
        }
    }

    /// Seconds since a round was completed.
    pub(super) fn age(&self) -> u64 {
        since(&self.clock, self.completed).as_secs()
    }
}

/// Time since a moment in microseconds since 1970; none after the clock was set back.
pub(super) fn since(clock: &Clock, moment: i64) -> Duration {
    let micros = clock.unix_micros().saturating_sub(moment);
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

fn add<const N: usize>(counters: &[IntCounter; N], now: [u64; N], before: [u64; N]) {
    for ((counter, now), before) in counters.iter().zip(now).zip(before) {
        counter.inc_by(now - before);
    }
}
