//! Metrics of the servers. Labels are closed sets: server, class of the method, class of the
//! status, reason.

use std::sync::Arc;
use std::time::Duration;

use hyper::{Method, StatusCode};
use saltern_base::metrics::{
    Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry, SECONDS,
    counter_vec, gauge_vec, histogram_vec,
};

/// Why a connection was closed, or a request got no response of a handler: label `reason` of
/// `saltern_http_refused_total`.
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
    /// Requests in all.
    Requests,
}

impl Refusal {
    const ALL: [Self; 8] = [
        Self::Connections,
        Self::PerAddress,
        Self::Accept,
        Self::Tls,
        Self::Broken,
        Self::Timeout,
        Self::BodySize,
        Self::Requests,
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
            Self::Requests => "requests",
        }
    }
}

/// Classes of methods: label `method` of `saltern_http_requests_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MethodClass {
    /// Safe methods (RFC 9110, 9.2.1): they change nothing.
    Read,
    /// Methods that may change something.
    Write,
    /// Any other word.
    Other,
}

impl MethodClass {
    const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Other];

    pub(super) fn of(method: &Method) -> Self {
        match *method {
            Method::GET | Method::HEAD | Method::OPTIONS => Self::Read,
            Method::POST | Method::PUT | Method::PATCH | Method::DELETE => Self::Write,
            _ => Self::Other,
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Other => "other",
        }
    }
}

/// Outcome of reading a changed certificate: label `outcome` of
/// `saltern_http_certificate_reloads_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reload {
    /// It is in use.
    Loaded,
    /// It cannot be used; the former one is.
    Failed,
}

impl Reload {
    const ALL: [Self; 2] = [Self::Loaded, Self::Failed];

    const fn label(self) -> &'static str {
        match self {
            Self::Loaded => "loaded",
            Self::Failed => "failed",
        }
    }
}

/// Classes of statuses: label `code` of `saltern_http_requests_total`. An upgrade is a `1xx`.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// The families of all servers of a master.
#[derive(Clone)]
pub struct HttpMetrics {
    requests: IntCounterVec,
    refused: IntCounterVec,
    connections: IntGaugeVec,
    streams: IntGaugeVec,
    seconds: HistogramVec,
    reloads: IntCounterVec,
}

impl HttpMetrics {
    /// Registers the families.
    #[must_use]
    pub fn new(registry: &Registry) -> Self {
        Self {
            requests: counter_vec(
                registry,
                "saltern_http_requests_total",
                "HTTP requests answered by a handler, by server, class of method and class of \
                 status.",
                &["server", "method", "code"],
            ),
            refused: counter_vec(
                registry,
                "saltern_http_refused_total",
                "HTTP connections and requests that got no answer of a handler, by server and \
                 reason.",
                &["server", "reason"],
            ),
            connections: gauge_vec(
                registry,
                "saltern_http_connections",
                "Open HTTP connections, by server.",
                &["server"],
            ),
            streams: gauge_vec(
                registry,
                "saltern_http_streams",
                "Open long streams and upgraded connections over HTTP, by server.",
                &["server"],
            ),
            seconds: histogram_vec(
                registry,
                "saltern_http_request_seconds",
                "Time from the head of an HTTP request to the end of its response, without long \
                 streams.",
                &["server"],
                SECONDS,
            ),
            reloads: counter_vec(
                registry,
                "saltern_http_certificate_reloads_total",
                "Changed certificates of HTTP servers that were read without a restart, by \
                 outcome.",
                &["server", "outcome"],
            ),
        }
    }

    /// The counters of one server. `server` is a fixed word such as `metrics` or `webhook`:
    /// servers with the same word are counted together.
    #[must_use]
    pub fn of(&self, server: &'static str) -> HttpMeters {
        let requests = MethodClass::ALL.map(|method| {
            CLASSES.map(|code| {
                let labels = [server, method.label(), code];
                self.requests.with_label_values(&labels)
            })
        });
        let refused =
            Refusal::ALL.map(|reason| self.refused.with_label_values(&[server, reason.label()]));
        let reloads =
            Reload::ALL.map(|outcome| self.reloads.with_label_values(&[server, outcome.label()]));
        HttpMeters(Arc::new(Meters {
            server,
            requests,
            refused,
            connections: self.connections.with_label_values(&[server]),
            streams: self.streams.with_label_values(&[server]),
            seconds: self.seconds.with_label_values(&[server]),
            reloads,
        }))
    }
}

/// The counters of one server, each label resolved once.
#[derive(Clone)]
pub struct HttpMeters(Arc<Meters>);

struct Meters {
    server: &'static str,
    requests: [[IntCounter; CLASSES.len()]; MethodClass::ALL.len()],
    refused: [IntCounter; Refusal::ALL.len()],
    connections: IntGauge,
    streams: IntGauge,
    seconds: Histogram,
    reloads: [IntCounter; Reload::ALL.len()],
}

impl HttpMeters {
    /// The word for the server.
    pub(super) fn server(&self) -> &'static str {
        self.0.server
    }

    pub(super) fn answered(&self, method: MethodClass, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100);
        let counters = &self.0.requests[method as usize];
        if let Some(counter) = class.checked_sub(1).and_then(|at| counters.get(at)) {
            counter.inc();
        }
    }

    pub(super) fn took(&self, time: Duration) {
        self.0.seconds.observe(time.as_secs_f64());
    }

    pub(super) fn refused(&self, reason: Refusal) {
        tracing::debug!(reason = reason.label(), "an HTTP connection got no answer");
        self.0.refused[reason as usize].inc();
    }

    pub(super) fn reloaded(&self, outcome: Reload) {
        self.0.reloads[outcome as usize].inc();
    }

    /// Counts a connection as open for as long as it is held.
    pub(super) fn open(&self) -> Open {
        Open::new(&self.0.connections)
    }

    /// Counts a long stream as open for as long as it is held.
    pub(super) fn open_stream(&self) -> Open {
        Open::new(&self.0.streams)
    }
}

/// One open connection or stream in its gauge, until it is dropped.
pub(super) struct Open(IntGauge);

impl Open {
    fn new(gauge: &IntGauge) -> Self {
        gauge.inc();
        Self(gauge.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.dec();
    }
}
