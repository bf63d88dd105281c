//! Metrics of the reactor.

use saltern_base::metrics::{
    Histogram, IntCounter, IntCounterVec, IntGauge, Registry, SECONDS, counter, counter_vec, gauge,
    histogram,
};

use super::dropped::Reason;

pub(super) struct ReactorMetrics {
    pub(super) events: IntCounter,
    pub(super) waiting: IntGauge,
    dropped: IntCounterVec,
    reactions: IntCounterVec,
    pub(super) letters_gone: IntCounter,
    pub(super) rendering: Histogram,
}

impl ReactorMetrics {
    pub(super) fn new(registry: &Registry) -> Self {
        let metrics = Self {
            events: counter(
                registry,
                "saltern_reactor_events_total",
                "Events that matched a rule of the reactor.",
            ),
            waiting: gauge(
                registry,
                "saltern_reactor_waiting",
                "Events that wait for the reactor.",
            ),
            dropped: counter_vec(
                registry,
                "saltern_reactor_dropped_total",
                "Events (queue, rate, stop) and calls (calls: too many, or too many bytes) that lead to nothing, by reason.",
                &["reason"],
            ),
            reactions: counter_vec(
                registry,
                "saltern_reactor_reactions_total",
                "Reactions that have ended, by type and result; of \"file\" only failures are.",
                &["type", "result"],
            ),
            letters_gone: counter(
                registry,
                "saltern_reactor_dead_letters_dropped_total",
                "Dead letters that could not be written, or made room for newer ones.",
            ),
            rendering: histogram(
                registry,
                "saltern_reactor_rendering_seconds",
                "Time that rendering the files of one event takes; waiting is not in it.",
                SECONDS,
            ),
        };
        for reason in Reason::ALL {
            metrics.dropped(reason, 0);
        }
        metrics
    }

    pub(super) fn dropped(&self, reason: Reason, number: u64) {
        let dropped = self.dropped.with_label_values(&[reason.name()]);
        dropped.inc_by(number);
    }

    /// `kind` and `result` are from closed sets.
    pub(super) fn ended(&self, kind: &str, result: &str) {
        self.reactions.with_label_values(&[kind, result]).inc();
    }
}
