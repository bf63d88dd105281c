//! Metrics of the syndic, labelled by the masters above as the configuration names them.

use saltern_base::metrics::{IntCounterVec, IntGaugeVec, Registry, counter_vec, gauge_vec};

/// Metrics of all uplinks and outboxes.
#[derive(Clone)]
pub(crate) struct SyndicMetrics {
    pub(crate) connected: IntGaugeVec,
    pub(crate) failures: IntCounterVec,
    pub(crate) publications: IntCounterVec,
    pub(crate) returns: IntCounterVec,
    pub(crate) frames: IntCounterVec,
    pub(crate) dropped: IntCounterVec,
    pub(crate) early_jobs_dropped: IntCounterVec,
    pub(crate) lag: IntGaugeVec,
    pub(crate) lag_seconds: IntGaugeVec,
    pub(crate) events: IntCounterVec,
    pub(crate) verdicts: IntCounterVec,
}

impl SyndicMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self {
            connected: gauge_vec(
                registry,
                "saltern_syndic_connected",
                "Whether this master is connected to a master above it (1) or not (0).",
                &["master"],
            ),
            failures: counter_vec(
                registry,
                "saltern_syndic_connection_failures_total",
                "Connections to a master above that ended or could not be made, by the reason: address, \
                 keys, tls, sign_in (no answer, or no trust), subscription, start_event, or stock_syndic.",
                &["master", "reason"],
            ),
            publications: counter_vec(
                registry,
                "saltern_syndic_publications_total",
                "Publications from a master above, by what became of them: published here, no \
                 minion of the target, loop, too deep, malformed, or refused.",
                &["master", "result"],
            ),
            returns: counter_vec(
                registry,
                "saltern_syndic_returns_total",
                "Returns that a master above acknowledged, by the outbox: that of the master that \
                 published the job, or \"any\".",
                &["outbox"],
            ),
            frames: counter_vec(
                registry,
                "saltern_syndic_frames_total",
                "Frames of returns for a master above, by its answer: stored, not stored, begin anew, \
                 refused, or lost.",
                &["outbox", "result"],
            ),
            dropped: counter_vec(
                registry,
                "saltern_syndic_returns_dropped_total",
                "Returns that did not go up, by the reason: age, count, size, refused, or retention (removed from the \
                 job database before).",
                &["outbox", "reason"],
            ),
            early_jobs_dropped: counter_vec(
                registry,
                "saltern_syndic_early_jobs_dropped_total",
                "Jobs of a master above whose returns from before their publication may not go up, because too many \
                 such jobs waited for the outbox, or they are too far back.",
                &["master"],
            ),
            lag: gauge_vec(
                registry,
                "saltern_syndic_lag_rows",
                "Rows of the job database that an outbox has not passed.",
                &["outbox"],
            ),
            lag_seconds: gauge_vec(
                registry,
                "saltern_syndic_lag_seconds",
                "Age of the oldest return that waits for a master above.",
                &["outbox"],
            ),
            events: counter_vec(
                registry,
                "saltern_syndic_events_total",
                "Events for a master above, by what became of them: forwarded, dropped because \
                 too many waited, or refused.",
                &["master", "result"],
            ),
            verdicts: counter_vec(
                registry,
                "saltern_syndic_verdicts_total",
                "Verdicts on silent minions for a master above of ours, by what became of them: sent, refused, \
                 or dropped because too many waited.",
                &["master", "result"],
            ),
        }
    }
}
