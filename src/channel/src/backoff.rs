//! Back-off between retries, with jitter so that many minions do not return in one wave.

use std::time::Duration;

use saltern_base::simulation;

/// A random duration from `low` to `high`.
pub fn between(low: Duration, high: Duration) -> Duration {
    let width = high.saturating_sub(low);
    let width = u64::try_from(width.as_nanos()).unwrap_or(u64::MAX);
    let mut random = [0; 8];
    if !simulation::fill(&mut random) {
        getrandom::fill(&mut random).expect("invariant: the system has random bytes");
    }
    // The modulo prefers low values by an amount nobody can see.
    low + Duration::from_nanos(u64::from_ne_bytes(random) % width.max(1))
}

/// The pauses of one reconnection: the first up to twice `first`, then growing up to `most`.
pub struct Backoff {
    first: Duration,
    most: Duration,
    next: Duration,
    random: bool,
}

impl Backoff {
    /// Pauses from `first` up to about `first + most`; random around each when asked for.
    pub const fn new(first: Duration, most: Duration, random: bool) -> Self {
        Self {
            first,
            most,
            next: first,
            random,
        }
    }

    /// The next pause.
    pub fn pause(&mut self) -> Duration {
        let limit = self.next;
        let most = self.first + self.most;
        self.next = (self.next * 2).min(most);
        if self.random {
            between(limit / 2, limit + limit / 2)
        } else {
            limit
        }
    }

    /// Starts over after a success.
    pub const fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_to_its_bound_and_resets() {
        let second = Duration::from_secs(1);
        let mut pauses = Backoff::new(second, 3 * second, false);
        let seen: Vec<u64> = (0..5).map(|_| pauses.pause().as_secs()).collect();
        assert_eq!(seen, [1, 2, 4, 4, 4]);
        pauses.reset();
        assert_eq!(pauses.pause(), second);
        let mut random = Backoff::new(second, 3 * second, true);
        for _ in 0..100 {
            assert!(random.pause() <= 6 * second);
        }
    }
}
