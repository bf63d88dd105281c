//! Backoff of the masters above of an outbox: one that did not take what was sent is passed over for a while, if
//! another one is connected. So a master that is full, or slow, does not hold up what a healthy one would take, with
//! `syndic_failover: ordered` either.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// How long a master is passed over: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(15);
const MAX_PAUSE: Duration = Duration::from_secs(300);

/// Masters above that did not take what was sent last.
#[derive(Default)]
pub(crate) struct MasterBackoff {
    failed: BTreeMap<String, Backoff>,
}

struct Backoff {
    until: Instant,
    pause: Duration,
}

impl MasterBackoff {
    /// This master did not take what was sent.
    pub(super) fn failed(&mut self, upper: &str, now: Instant) {
        let pause = match self.failed.get(upper) {
            // Several requests that were under way fail as one.
            Some(backoff) if now < backoff.until => return,
            Some(backoff) => (backoff.pause * 2).min(MAX_PAUSE),
            None => FIRST_PAUSE,
        };
        let until = now + pause;
        self.failed
            .insert(upper.to_owned(), Backoff { until, pause });
    }

    /// This master has stored what was sent.
    pub(super) fn stored(&mut self, upper: &str) {
        self.failed.remove(upper);
    }

    /// The first of these that is not passed over; while all are, the one whose backoff ends first.
    pub(super) fn first<'a, T>(
        &self,
        uppers: impl Iterator<Item = (&'a str, T)>,
        now: Instant,
    ) -> Option<T> {
        let until = |name: &str| {
            let backoff = self.failed.get(name);
            backoff.map_or(now, |backoff| backoff.until).max(now)
        };
        let (_, first) = uppers.min_by_key(|(name, _)| until(name))?;
        Some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ORDER: [&str; 3] = ["one", "two", "three"];

    fn first(backoff: &MasterBackoff, now: Instant) -> &'static str {
        let uppers = ORDER.iter().map(|name| (*name, *name));
        backoff.first(uppers, now).unwrap()
    }

    #[test]
    fn master_that_failed_is_passed_over_until_its_backoff_ends() {
        let (mut backoff, now) = (MasterBackoff::default(), Instant::now());
        let second = Duration::from_secs(1);
        assert_eq!(first(&backoff, now), "one");
        backoff.failed("one", now);
        assert_eq!(first(&backoff, now), "two");
        backoff.failed("two", now + second);
        assert_eq!(first(&backoff, now + second), "three");
        assert_eq!(first(&backoff, now + FIRST_PAUSE), "one");
        backoff.stored("one");
        assert_eq!(first(&backoff, now), "one");
    }

    #[test]
    fn masters_that_all_failed_are_tried_in_the_order_in_which_they_failed() {
        let (mut backoff, mut now) = (MasterBackoff::default(), Instant::now());
        let order = (0..5).map(|_| {
            let name = first(&backoff, now);
            backoff.failed(name, now);
            now += FIRST_PAUSE / 3;
            name
        });
        let order: Vec<&str> = order.collect();
        assert_eq!(order, ["one", "two", "three", "one", "two"]);
    }

    #[test]
    fn backoff_grows_to_its_bound_and_once_for_all_that_was_under_way() {
        let (mut backoff, mut now) = (MasterBackoff::default(), Instant::now());
        let pauses = (0..7).map(|_| {
            (0..4).for_each(|_| backoff.failed("one", now));
            let pause = backoff.failed["one"].pause;
            assert_eq!(first(&backoff, now), "two");
            now += pause;
            assert_eq!(first(&backoff, now), "one");
            pause.as_secs()
        });
        let pauses: Vec<u64> = pauses.collect();
        assert_eq!(pauses, [15, 30, 60, 120, 240, 300, 300]);
    }
}
