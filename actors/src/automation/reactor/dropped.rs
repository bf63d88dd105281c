//! Exact counts of dropped events and calls, reported at most once a second.

use std::sync::atomic::{AtomicU64, Ordering};

use saltern_wire::msgpack::as_map;
use serde::Serialize;

/// Counts of one reason.
#[derive(Default)]
struct Count {
    total: AtomicU64,
    reported: AtomicU64,
}

/// Counts of drops by reason.
#[derive(Default)]
pub(super) struct Dropped {
    queue: Count,
    rate: Count,
    calls: Count,
    stop: Count,
}

/// The counts that have changed, by reason.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct DroppedNews(
    #[serde(serialize_with = "as_map::serialize")] Vec<(&'static str, Counts)>,
);

/// The drops since the last report, and all.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Counts {
    dropped: u64,
    total: u64,
}

/// Why something was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// Events: too many wait.
    Queue,
    /// Events: their limit lets no more through.
    Rate,
    /// Calls of functions: too many wait, or they hold too many bytes.
    Calls,
    /// Events: the master stops.
    Stop,
}

impl Reason {
    pub(super) const ALL: [Self; 4] = [Self::Queue, Self::Rate, Self::Calls, Self::Stop];

    /// Its name in metrics and events.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Queue => "queue",
            Self::Rate => "rate",
            Self::Calls => "calls",
            Self::Stop => "stop",
        }
    }
}

impl Dropped {
    fn of(&self, reason: Reason) -> &Count {
        match reason {
            Reason::Queue => &self.queue,
            Reason::Rate => &self.rate,
            Reason::Calls => &self.calls,
            Reason::Stop => &self.stop,
        }
    }

    pub(super) fn count(&self, reason: Reason, number: u64) {
        let count = self.of(reason);
        count.total.fetch_add(number, Ordering::Relaxed);
    }

    /// All of them.
    pub(super) fn total(&self) -> u64 {
        let totals = Reason::ALL.into_iter();
        totals
            .map(|reason| self.of(reason).total.load(Ordering::Relaxed))
            .sum()
    }

    /// Changes since the last call; `None` without any.
    pub(super) fn news(&self) -> Option<DroppedNews> {
        let news = Reason::ALL.into_iter().filter_map(|reason| {
            let count = self.of(reason);
            let total = count.total.load(Ordering::Relaxed);
            let reported = count.reported.swap(total, Ordering::Relaxed);
            let dropped = total.saturating_sub(reported);
            (dropped > 0).then_some((reason.name(), Counts { dropped, total }))
        });
        let news: Vec<_> = news.collect();
        (!news.is_empty()).then_some(DroppedNews(news))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changes_are_reported_and_totals_are_exact() {
        let dropped = Dropped::default();
        assert!(dropped.news().is_none());
        dropped.count(Reason::Queue, 3);
        dropped.count(Reason::Rate, 1);
        dropped.count(Reason::Queue, 2);
        let news = dropped.news().unwrap();
        let counts = |dropped, total| Counts { dropped, total };
        let all = vec![("queue", counts(5, 5)), ("rate", counts(1, 1))];
        assert_eq!(news, DroppedNews(all));
        assert!(dropped.news().is_none());
        dropped.count(Reason::Queue, 1);
        let news = dropped.news().unwrap();
        assert_eq!(news, DroppedNews(vec![("queue", counts(1, 6))]));
    }
}
