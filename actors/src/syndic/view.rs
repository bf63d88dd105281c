//! Standing of the masters above and of the outboxes, for the control socket.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use saltern_model::control;

use super::outbox::OutboxCounts;
use super::upper::Upper;

/// Connections and outboxes that the control socket shows; filled when the syndic starts.
#[derive(Default)]
pub(crate) struct SyndicView {
    uppers: Mutex<Vec<Arc<Upper>>>,
    outboxes: Mutex<Vec<(String, Arc<Mutex<OutboxCounts>>)>>,
}

impl SyndicView {
    /// Shows a master above.
    pub(crate) fn add_upper(&self, upper: Arc<Upper>) {
        self.uppers.lock().push(upper);
    }

    /// Shows an outbox.
    pub(crate) fn add_outbox(&self, name: &str, counts: Arc<Mutex<OutboxCounts>>) {
        self.outboxes.lock().push((name.to_owned(), counts));
    }

    /// From when on jobs are kept for the outboxes, where jobs are kept for `keep`; see [`held_from`]. All of them until
    /// each outbox had its first look. `None` without outboxes.
    pub(crate) fn held_from(&self, keep: Duration, oldest: Option<i64>) -> Option<i64> {
        let outboxes = self.outboxes.lock();
        let since = |(_, counts): &(String, Arc<Mutex<OutboxCounts>>)| {
            let since = counts.lock().waits_since;
            since.unwrap_or(i64::MIN)
        };
        let waits_since = outboxes.iter().map(since).min();
        waits_since.map(|since| held_from(keep, since, oldest))
    }

    /// The masters above.
    pub(crate) fn above(&self) -> Vec<control::UpperStatus> {
        let uppers = self.uppers.lock();
        let status = |upper: &Arc<Upper>| {
            let standing = upper.standing();
            control::UpperStatus {
                master: upper.name().to_owned(),
                is_connected: standing.is_connected,
                since: standing.since,
                problem: standing.problem,
            }
        };
        uppers.iter().map(status).collect()
    }

    /// The outboxes.
    pub(crate) fn outboxes(&self) -> Vec<control::OutboxStatus> {
        let outboxes = self.outboxes.lock();
        let status = |(name, counts): &(String, Arc<Mutex<OutboxCounts>>)| {
            let counts = counts.lock().clone();
            control::OutboxStatus {
                outbox: name.clone(),
                acknowledged: counts.acknowledged,
                dropped: counts.dropped,
                lag_rows: counts.lag_rows,
                lag_seconds: counts.lag_seconds,
            }
        };
        outboxes.iter().map(status).collect()
    }
}

/// From when on jobs are kept because returns that were received since `waits_since` have not gone up; none that was
/// received before `oldest` goes up any more. What was in the database when the oldest of them came stays there: their
/// jobs are no older than `keep` at that time, or they had been removed already.
pub(crate) fn held_from(keep: Duration, waits_since: i64, oldest: Option<i64>) -> i64 {
    let keep = i64::try_from(keep.as_micros()).unwrap_or(i64::MAX);
    let waits_since = oldest.map_or(waits_since, |oldest| waits_since.max(oldest));
    waits_since.saturating_sub(keep)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_held_from_the_age_they_may_have_at_the_oldest_return_that_waits() {
        let (view, keep) = (SyndicView::default(), Duration::from_micros(10));
        assert_eq!(view.held_from(keep, Some(100)), None);
        let outboxes = ["any", "one"].map(|name| {
            let counts = Arc::<Mutex<OutboxCounts>>::default();
            view.add_outbox(name, counts.clone());
            counts
        });
        outboxes[0].lock().waits_since = Some(500);
        assert_eq!(view.held_from(keep, Some(100)), Some(90), "no look yet");
        assert_eq!(view.held_from(keep, None), Some(i64::MIN));
        outboxes[1].lock().waits_since = Some(300);
        assert_eq!(view.held_from(keep, Some(100)), Some(290));
        assert_eq!(view.held_from(keep, Some(400)), Some(390), "it is given up");
    }
}
