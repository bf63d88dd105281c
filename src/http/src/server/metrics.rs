//! Metrics of the servers. Labels are closed sets: server, class of the answer, reason.

use std::sync::Arc;

use hyper::StatusCode;
use saltern_base::metrics::{
    IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry, counter_vec, gauge_vec,
};

/// Why a connection got no answer of a handler: label `reason` of `saltern_http_refused_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Connections in all.
    Connections,
    /// Connections of one address.
    PerAddress,
    /// Accepting failed: no file descriptors, mostly.
    Accept,
    /// No TLS where it is required.
    Tls,
    /// Something else than a request, or a broken connection.
    Broken,
    /// The deadline passed.
    Timeout,
    /// A body over the limit.
    BodySize,
}

impl Refusal {
    const ALL: [Self; 7] = [
        Self::Connections,
        Self::PerAddress,
        Self::Accept,
        Self::Tls,
        Self::Broken,
        Self::Timeout,
        Self::BodySize,
    ];

    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::PerAddress => "per_address",
            Self::Accept => "accept",
            Self::Tls => "tls",
            Self::Broken => "broken",
            Self::Timeout => "timeout",
            Self::BodySize => "body_size",
        }
    }
}

/// Classes of answers: label `code` of `saltern_http_requests_total`.
const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// The families of all servers of a master.
#[derive(Clone)]
pub struct HttpMetrics {
    requests: IntCounterVec,
    refused: IntCounterVec,
    connections: IntGaugeVec,
}

impl HttpMetrics {
    /// Registers the families.
    #[must_use]
    pub fn new(registry: &Registry) -> Self {
        Self {
            requests: counter_vec(
                registry,
                "saltern_http_requests_total",
                "HTTP requests answered by a handler, by server and class of status.",
                &["server", "code"],
            ),
            refused: counter_vec(
                registry,
                "saltern_http_refused_total",
                "HTTP connections that got no answer of a handler, by server and reason.",
                &["server", "reason"],
            ),
            connections: gauge_vec(
                registry,
                "saltern_http_connections",
                "Open HTTP connections, by server.",
                &["server"],
            ),
        }
    }

    /// The counters of one server. `server` is a fixed word such as `metrics` or `webhook`:
    /// servers with the same word are counted together.
    #[must_use]
    pub fn of(&self, server: &'static str) -> HttpMeters {
        let requests = CLASSES.map(|code| self.requests.with_label_values(&[server, code]));
        let refused =
            Refusal::ALL.map(|reason| self.refused.with_label_values(&[server, reason.label()]));
        HttpMeters(Arc::new(Meters {
            requests,
            refused,
            connections: self.connections.with_label_values(&[server]),
        }))
    }
}

/// The counters of one server, each label resolved once.
#[derive(Clone)]
pub struct HttpMeters(Arc<Meters>);

struct Meters {
    requests: [IntCounter; CLASSES.len()],
    refused: [IntCounter; Refusal::ALL.len()],
    connections: IntGauge,
}

impl HttpMeters {
    pub(super) fn answered(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100);
        // A status below 200 is no answer.
        if let Some(counter) = class.checked_sub(2).and_then(|at| self.0.requests.get(at)) {
            counter.inc();
        }
    }

    pub(super) fn refused(&self, reason: Refusal) {
        tracing::debug!(reason = reason.label(), "an HTTP connection got no answer");
        self.0.refused[reason as usize].inc();
    }

    /// Counts a connection as open for as long as it is held.
    pub(super) fn open(&self) -> Open {
        self.0.connections.inc();
        Open(self.0.connections.clone())
    }
}

/// One open connection in the gauge, until it is dropped.
pub(super) struct Open(IntGauge);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}
