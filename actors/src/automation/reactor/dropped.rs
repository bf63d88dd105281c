//! Exact counts of dropped events and calls, reported at most once a second.

use std::sync::atomic::{AtomicU64, Ordering};

use saltern_wire::msgpack::Value;

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

    /// Changes since the last call: `{reason: {dropped, total}}`; `None` without any.
    pub(super) fn news(&self) -> Option<Value> {
        let news = Reason::ALL.into_iter().filter_map(|reason| {
            let count = self.of(reason);
            let total = count.total.load(Ordering::Relaxed);
            let reported = count.reported.swap(total, Ordering::Relaxed);
            let new = total.saturating_sub(reported);
            let number = |number: u64| Value::from(i64::try_from(number).unwrap_or(i64::MAX));
            let counts = Value::map([("dropped", number(new)), ("total", number(total))]);
            (new > 0).then(|| (Value::from(reason.name()), counts))
        });
        let news: Vec<_> = news.collect();
        (!news.is_empty()).then_some(Value::Map(news))
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
        let queue = Value::map([("dropped", 5), ("total", 5)]);
        assert_eq!(news.get("queue"), Some(&queue));
        assert!(dropped.news().is_none());
        dropped.count(Reason::Queue, 1);
        let news = dropped.news().unwrap();
        let queue = Value::map([("dropped", 1), ("total", 6)]);
        assert_eq!(news, Value::map([("queue", queue)]));
    }
}
