//! How long an outbox waits for further returns before it sends those that are there: a return that comes after
//! a rest goes up at once, and those that follow soon after a request wait for each other
//! (`syndic_event_forward_timeout`). So a lone return is not held up, and there are no more requests a
//! second than before. The outbox for all rests as long between two looks that find nothing of its own.

use std::time::Duration;

use tokio::time::Instant;

/// Rest between two requests.
pub(super) struct Gathering {
    rest: Duration,
    /// When that was last.
    moved: Option<Instant>,
}

impl Gathering {
    pub(super) fn new(rest: Duration) -> Self {
        Self { rest, moved: None }
    }

    /// Something went up, or all that was there was of others.
    pub(super) fn moved(&mut self, now: Instant) {
        self.moved = Some(now);
    }

    /// How long returns that are there wait for others.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        self.moved.map_or(Duration::ZERO, |moved| {
            (moved + self.rest).saturating_duration_since(now)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_return_goes_up_at_once_and_next_ones_wait_for_each_other() {
        let (now, ms) = (Instant::now(), Duration::from_millis);
        let mut gathering = Gathering::new(ms(20));
        assert_eq!(gathering.wait(now), Duration::ZERO);
        gathering.moved(now);
        assert_eq!(gathering.wait(now), ms(20));
        assert_eq!(gathering.wait(now + ms(15)), ms(5));
        assert_eq!(gathering.wait(now + ms(20)), Duration::ZERO);
        assert_eq!(gathering.wait(now + ms(900)), Duration::ZERO);
    }
}
