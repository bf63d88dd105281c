//! A throttle for log lines about something that recurs: the first occurrence is logged, then at
//! most one line per interval, with the number of occurrences since the last line.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Throttle of one log line: at most one per interval, the others are counted.
pub struct Seldom {
    pause: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    last: Option<Instant>,
    untold: u64,
}

impl Seldom {
    /// Allows one line per `pause`.
    #[must_use]
    pub fn every(pause: Duration) -> Self {
        Self {
            pause,
            state: Mutex::default(),
        }
    }

    /// Records an occurrence. When a line is due, gives the number of occurrences since the last
    /// line, this one included.
    pub fn happened(&self) -> Option<u64> {
        let mut state = self.state.lock();
        state.untold += 1;
        let now = Instant::now();
        let is_due = state
            .last
            .is_none_or(|last| now.duration_since(last) >= self.pause);
        is_due.then(|| {
            state.last = Some(now);
            std::mem::take(&mut state.untold)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn first_occurrence_is_logged_and_later_ones_are_counted() {
        let minute = Duration::from_secs(60);
        let seldom = Seldom::every(minute);
        assert_eq!(seldom.happened(), Some(1));
        assert_eq!(seldom.happened(), None);
        tokio::time::advance(minute / 2).await;
        assert_eq!(seldom.happened(), None);
        tokio::time::advance(minute / 2).await;
        assert_eq!(seldom.happened(), Some(3));
        assert_eq!(seldom.happened(), None);
    }
}
