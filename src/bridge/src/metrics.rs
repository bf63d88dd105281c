//! Metrics of the bridge.

use std::time::Duration;

use saltern_base::metrics::{HistogramVec, IntCounterVec, IntGaugeVec, Registry, SECONDS};
use saltern_base::metrics::{counter_vec, gauge_vec, histogram_vec};

use crate::lane::Lane;

/// Labels are the lane's name and closed sets.
pub(crate) struct BridgeMetrics {
    calls: IntCounterVec,
    seconds: HistogramVec,
    waiting: IntGaugeVec,
    helpers: IntGaugeVec,
    starts: IntCounterVec,
    lines: IntCounterVec,
}

impl BridgeMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let metrics = Self {
            calls: counter_vec(
                registry,
                "saltern_bridge_calls_total",
                "Calls of Python helpers, by kind of helper and result.",
                &["lane", "result"],
            ),
            seconds: histogram_vec(
                registry,
                "saltern_bridge_seconds",
                "Time that a call of a Python helper takes, waiting included.",
                &["lane"],
                SECONDS,
            ),
            waiting: gauge_vec(
                registry,
                "saltern_bridge_waiting",
                "Calls that wait for a Python helper.",
                &["lane"],
            ),
            helpers: gauge_vec(
                registry,
                "saltern_bridge_helpers",
                "Python helpers that run.",
                &["lane"],
            ),
            starts: counter_vec(
                registry,
                "saltern_bridge_starts_total",
                "Python helpers that were started.",
                &["lane"],
            ),
            lines: counter_vec(
                registry,
                "saltern_bridge_lines_dropped_total",
                "Lines of Python helpers that were too many for the log.",
                &["lane"],
            ),
        };
        // Series start at 0: a rate would miss the first increase of an absent one.
        for lane in Lane::ALL {
            metrics.waiting(lane, 0);
            metrics.dropped(lane, 0);
            metrics.starts.with_label_values(&[lane.name()]);
            metrics.helpers.with_label_values(&[lane.name()]);
        }
        metrics
    }

    pub(crate) fn called(&self, lane: Lane, result: &str, took: Duration) {
        self.calls.with_label_values(&[lane.name(), result]).inc();
        let seconds = self.seconds.with_label_values(&[lane.name()]);
        seconds.observe(took.as_secs_f64());
    }

    pub(crate) fn waiting(&self, lane: Lane, change: i64) {
        self.waiting.with_label_values(&[lane.name()]).add(change);
    }

    pub(crate) fn started(&self, lane: Lane) {
        self.starts.with_label_values(&[lane.name()]).inc();
        self.helpers.with_label_values(&[lane.name()]).inc();
    }

    pub(crate) fn ended(&self, lane: Lane) {
        self.helpers.with_label_values(&[lane.name()]).dec();
    }

    pub(crate) fn dropped(&self, lane: Lane, lines: u64) {
        self.lines.with_label_values(&[lane.name()]).inc_by(lines);
    }
}
