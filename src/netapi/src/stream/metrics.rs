//! Metrics of all streams.

use saltern_base::metrics::{
    IntCounter, IntCounterVec, IntGauge, Registry, counter, counter_vec, gauge,
};

use super::CloseReason;

/// Metrics of all streams.
#[derive(Clone)]
pub struct StreamMetrics {
    pub(super) open: IntGauge,
    pub(super) closed: IntCounterVec,
    pub(super) refused: IntCounter,
    pub(super) missed: IntCounter,
}

impl StreamMetrics {
    /// Registers them.
    pub fn new(registry: &Registry) -> Self {
        Self {
            open: gauge(
                registry,
                "saltern_api_streams",
                "Open streams of events over HTTP.",
            ),
            closed: counter_vec(
                registry,
                "saltern_api_streams_closed_total",
                "Streams of events over HTTP that ended, by reason: client, slow, session_ended, \
                 stopping or unreadable.",
                &["reason"],
            ),
            refused: counter(
                registry,
                "saltern_api_streams_refused_total",
                "Streams of events over HTTP that were not opened because too many were.",
            ),
            missed: counter(
                registry,
                "saltern_api_stream_gaps_total",
                "Announcements to streams over HTTP that events are missing.",
            ),
        }
    }
}

/// Counts a stream while it is open, and why it ended.
pub(super) struct OpenStream {
    metrics: StreamMetrics,
    reason: Option<CloseReason>,
}

impl OpenStream {
    pub(super) fn new(metrics: &StreamMetrics) -> Self {
        metrics.open.inc();
        Self {
            metrics: metrics.clone(),
            reason: None,
        }
    }

    pub(super) fn close(&mut self, reason: CloseReason) {
        self.reason = Some(reason);
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.metrics.open.dec();
        let reason = self.reason.map_or("client", CloseReason::label);
        self.metrics.closed.with_label_values(&[reason]).inc();
    }
}
