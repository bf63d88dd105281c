//! The metrics that every supervised actor gets without doing anything.
//!
//! The only label is [`Child::NAME`](crate::Child::NAME): the members of a pool are summed, so
//! that the number of series does not follow the configuration.

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry,
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
    pub(crate) fn new(registry: &Registry) -> Result<Self, prometheus::Error> {
        let label = &["actor"];
        let metrics = Self {
            restarts: IntCounterVec::new(
                Opts::new(
                    "saltern_actor_restarts_total",
                    "Times the actor was built again.",
                ),
                label,
            )?,
            depth: IntGaugeVec::new(
                Opts::new(
                    "saltern_actor_mailbox_depth",
                    "Messages taken from the channel and not yet handled, counted when the actor \
                     was last polled.",
                ),
                label,
            )?,
            handling: HistogramVec::new(
                HistogramOpts::new(
                    "saltern_actor_handling_seconds",
                    "Time the actor held its thread, one observation for each time it was polled.",
                )
                .buckets(BUCKETS.to_vec()),
                label,
            )?,
            messages: IntCounterVec::new(
                Opts::new(
                    "saltern_actor_messages_total",
                    "Messages given to a handler.",
                ),
                label,
            )?,
            up: IntGaugeVec::new(
                Opts::new(
                    "saltern_actor_up",
                    "Actors of this name that are running now.",
                ),
                label,
            )?,
        };
        registry.register(Box::new(metrics.restarts.clone()))?;
        registry.register(Box::new(metrics.depth.clone()))?;
        registry.register(Box::new(metrics.handling.clone()))?;
        registry.register(Box::new(metrics.messages.clone()))?;
        registry.register(Box::new(metrics.up.clone()))?;
        Ok(metrics)
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
