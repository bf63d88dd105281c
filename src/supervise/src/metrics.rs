//! The metrics that every supervised actor has by default.
//!
//! The only label is [`Child::NAME`](crate::Child::NAME): the members of a pool are summed, so
//! that the number of series does not follow the configuration.

use saltern_base::metrics::{
    Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry,
    counter_vec, gauge_vec, histogram_vec,
};

/// From a cheap message to a handler that blocks its thread, in seconds.
const BUCKETS: [f64; 7] = [0.000_01, 0.000_1, 0.001, 0.01, 0.1, 1.0, 10.0];

pub(crate) struct Metrics {
    restarts: IntCounterVec,
    depth: IntGaugeVec,
    handling: HistogramVec,
    messages: IntCounterVec,
    up: IntGaugeVec,
}

/// The series of one actor, looked up once when it starts.
pub(crate) struct Meters {
    pub(crate) restarts: IntCounter,
    pub(crate) depth: IntGauge,
    pub(crate) handling: Histogram,
    pub(crate) messages: IntCounter,
    pub(crate) up: IntGauge,
}

impl Metrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let label = &["actor"];
        Self {
            restarts: counter_vec(
                registry,
                "saltern_actor_restarts_total",
                "Times the actor was built again.",
                label,
            ),
            depth: gauge_vec(
                registry,
                "saltern_actor_mailbox_depth",
                "Messages that waited when the actor was last polled.",
                label,
            ),
            handling: histogram_vec(
                registry,
                "saltern_actor_handling_seconds",
                "Time the actor held its thread, one observation for each time it was polled.",
                label,
                &BUCKETS,
            ),
            messages: counter_vec(
                registry,
                "saltern_actor_messages_total",
                "Messages given to a handler.",
                label,
            ),
            up: gauge_vec(
                registry,
                "saltern_actor_up",
                "Actors of this name that are running now.",
                label,
            ),
        }
    }

    pub(crate) fn of(&self, actor: &str) -> Meters {
        let label = &[actor];
        Meters {
            restarts: self.restarts.with_label_values(label),
            depth: self.depth.with_label_values(label),
            handling: self.handling.with_label_values(label),
            messages: self.messages.with_label_values(label),
            up: self.up.with_label_values(label),
        }
    }
}
