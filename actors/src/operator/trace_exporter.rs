//! Exporter of ended spans to a collector: OTLP over HTTP, in JSON.
//!
//! On a thread of its own, because it blocks on the collector. No other actor waits for it: spans
//! wait in the tracer, which is bounded and counts what overflows. A batch that the collector
//! could not take is retried; one that it refuses is dropped and counted.
//!
//! The writer is our own and small: what OpenTelemetry's crates bring (a second HTTP client, protobuf,
//! a pipeline of their own) is more than the rest of this program needs together.

mod destination;
mod otlp;

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, ResponseActFuture};
use saltern_base::chain;
use saltern_base::log_throttle::LogThrottle;
use saltern_base::metrics::{IntCounter, Registry, counter};
use saltern_base::trace::{FinishedSpan, Tracer};
use saltern_http::client::{self, ClientError, PostBody, Request};
use saltern_supervise::Child;
use tokio::time::Instant;

pub(crate) use self::destination::Destination;

/// Seed of an exporter.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) tracer: Arc<Tracer>,
    pub(crate) destination: Arc<Destination>,
    pub(crate) metrics: ExporterMetrics,
}

/// Metrics of the exporter.
#[derive(Clone)]
pub(crate) struct ExporterMetrics(IntCounter);

impl ExporterMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        Self(counter(
            registry,
            "saltern_trace_exports_failed_total",
            "Batches of spans that the collector did not take.",
        ))
    }
}

/// Poll interval for spans; without delay after a full batch.
const EXPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Spans in one request; as many as OpenTelemetry's own exporters send.
const BATCH: usize = 512;
/// Total time for the remaining spans at the end of the master. A request in progress is waited
/// for as well, by the timeout of the destination.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes read of an answer, whose content is not needed.
const MAX_RESPONSE_BYTES: u64 = 64 << 10;
/// An unreachable collector is logged at most once per `LOG_INTERVAL`.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Actor that exports spans.
pub(crate) struct TraceExporter {
    seed: Seed,
    /// A batch to retry.
    waiting: Vec<FinishedSpan>,
    failures: LogThrottle,
}

impl Child for TraceExporter {
    type Seed = Seed;

    const NAME: &'static str = "trace_exporter";
    const MAILBOX: usize = 1;

    fn build(seed: &Seed) -> Self {
        Self {
            seed: seed.clone(),
            waiting: Vec::new(),
            failures: LogThrottle::new(LOG_INTERVAL),
        }
    }

    fn drain(&mut self, _: &mut Context<Self>) -> Option<ResponseActFuture<Self, ()>> {
        let end = Instant::now() + DRAIN_TIMEOUT;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || !self.send_some(left) {
                return None;
            }
        }
    }
}

impl Actor for TraceExporter {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.run_later(EXPORT_INTERVAL, Self::go_on);
    }
}

impl TraceExporter {
    /// Sends a batch and schedules the next: so a stop is seen between two of them.
    fn go_on(&mut self, context: &mut Context<Self>) {
        let pause = match self.send_some(self.seed.destination.timeout) {
            true => Duration::ZERO,
            false => EXPORT_INTERVAL,
        };
        context.run_later(pause, Self::go_on);
    }

    /// Sends the next batch; whether there may be more that the collector would take.
    fn send_some(&mut self, time: Duration) -> bool {
        let room = BATCH.saturating_sub(self.waiting.len());
        self.waiting.extend(self.seed.tracer.take(room));
        if self.waiting.is_empty() {
            return false;
        }
        match self.send(time) {
            Ok(()) => {
                let is_whole = self.waiting.len() >= BATCH;
                self.waiting.clear();
                is_whole
            }
            Err(error) => {
                self.failed(&error);
                false
            }
        }
    }

    fn send(&self, time: Duration) -> Result<(), ClientError> {
        let destination = &self.seed.destination;
        let text = otlp::request(&destination.resource, &self.waiting);
        let request = Request {
            url: &destination.url,
            headers: &destination.headers,
            credentials: None,
            tls: &destination.tls,
            body: Some(PostBody {
                kind: "application/json",
                bytes: text.as_bytes(),
            }),
            time,
            connect_time: time,
            max_response_bytes: MAX_RESPONSE_BYTES,
        };
        client::fetch(&request).map(drop)
    }

    fn failed(&mut self, error: &ClientError) {
        self.seed.metrics.0.inc();
        let is_refused =
            matches!(error, ClientError::Status { status, .. } if !is_for_now(*status));
        if is_refused {
            self.seed.tracer.refused(self.waiting.len());
            self.waiting.clear();
        }
        if let Some(times) = self.failures.record() {
            let error = chain(error);
            tracing::warn!(
                error,
                times,
                is_refused,
                "spans of traces were not exported"
            );
        }
    }
}

/// Whether the same request may be taken later: the retryable statuses of OTLP, and those of
/// proxies in front of a collector.
fn is_for_now(status: u16) -> bool {
    matches!(status, 408 | 429 | 500 | 502 | 503 | 504)
}

#[cfg(test)]
mod tests;
