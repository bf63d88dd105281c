//! A line in the log about something that goes on: written when it begins and then at most once in
//! a while, with how often it happened in between.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Says when it is time for a line.
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
    /// At most one line in `pause`.
    #[must_use]
    pub fn every(pause: Duration) -> Self {
        Self {
            pause,
            state: Mutex::default(),
        }
    }

    /// It happened again. When a line is due: how often it happened since the last one, this time
    /// included.
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
    async fn the_first_time_is_told_and_the_others_are_counted() {
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
