//! Standing of the masters above and of the outboxes, for the control socket.

use std::sync::Arc;

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
