//! A throttle for log lines about something that recurs: the first occurrence is logged, then at
//! most one line per interval, with the number of occurrences since the last line.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Throttle of one log line: at most one per interval, the others are counted.
pub struct LogThrottle {
    interval: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: Option<Instant>,
    suppressed: u64,
}

impl LogThrottle {
    /// Allows one line per `interval`.
    #[must_use]
    pub fn new(interval: Duration) -> Self {
        Self {
            interval,
            state: Mutex::default(),
        }
    }

    /// Records an occurrence. When a line is due, gives the number of occurrences since the last
    /// line, this one included.
    pub fn record(&self) -> Option<u64> {
        let mut state = self.state.lock();
        state.suppressed += 1;
        let now = Instant::now();
        let is_due = state
            .last
            .is_none_or(|last| now.duration_since(last) >= self.interval);
        is_due.then(|| {
            state.last = Some(now);
            std::mem::take(&mut state.suppressed)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn first_occurrence_is_logged_and_later_ones_are_counted() {
        let minute = Duration::from_secs(60);
        let throttle = LogThrottle::new(minute);
        assert_eq!(throttle.record(), Some(1));
        assert_eq!(throttle.record(), None);
        tokio::time::advance(minute / 2).await;
        assert_eq!(throttle.record(), None);
        tokio::time::advance(minute / 2).await;
        assert_eq!(throttle.record(), Some(3));
        assert_eq!(throttle.record(), None);
    }
}
