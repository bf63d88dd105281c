//! Sends ended spans to a collector: OTLP over HTTP, in JSON.
//!
//! On a thread of its own, because it waits for the collector. Nobody waits for it: spans wait in
//! the tracer, which has a bound and counts what has no room. A batch that the collector could not
//! take is sent again, one that it refuses is dropped and counted.
//!
//! The writer is our own and small: what OpenTelemetry's crates bring (a second HTTP client and TLS
//! library, protobuf, a pipeline of their own) is more than the rest of this program needs together.

mod destination;
mod otlp;

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, ResponseActFuture};
use saltern_base::chain;
use saltern_base::metrics::{IntCounter, Registry, counter};
use saltern_base::seldom::Seldom;
use saltern_base::trace::{FinishedSpan, Tracer};
use saltern_content::web::{self, Body, Request, WebError};
use saltern_supervise::Child;

pub(crate) use self::destination::Destination;

/// What an exporter is built from.
#[derive(Clone)]
pub(crate) struct Seed {
    pub(crate) tracer: Arc<Tracer>,
    pub(crate) destination: Arc<Destination>,
    pub(crate) metrics: ExporterMetrics,
}

/// What is counted.
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

/// How often spans are sent.
const PAUSE: Duration = Duration::from_secs(1);
/// Spans in one request; as many as OpenTelemetry's own exporters send.
const BATCH: usize = 512;
/// The most requests in a row, so that a stop is heard.
const MOST_REQUESTS: usize = 8;
/// The end of the master waits so long for a collector.
const LAST_TIME: Duration = Duration::from_secs(2);
/// Bytes of an answer: it says nothing that is needed.
const ANSWER: u64 = 64 << 10;
/// A collector that is away is complained of so often.
const COMPLAINT: Duration = Duration::from_secs(60);

/// See the module.
pub(crate) struct TraceExporter {
    seed: Seed,
    /// A batch that was not taken yet.
    waiting: Vec<FinishedSpan>,
    failures: Seldom,
}

impl Child for TraceExporter {
    type Seed = Seed;

    const NAME: &'static str = "trace_exporter";
    const MAILBOX: usize = 1;

    fn build(seed: &Seed) -> Self {
        Self {
            seed: seed.clone(),
            waiting: Vec::new(),
            failures: Seldom::every(COMPLAINT),
        }
    }

    fn drain(&mut self, _: &mut Context<Self>) -> Option<ResponseActFuture<Self, ()>> {
        self.send_some(LAST_TIME);
        None
    }
}

impl Actor for TraceExporter {
    type Context = Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.run_interval(PAUSE, |exporter, _| {
            exporter.send_some(exporter.seed.destination.timeout);
        });
    }
}

impl TraceExporter {
    /// Sends what there is, until the collector does not take it.
    fn send_some(&mut self, time: Duration) {
        for _ in 0..MOST_REQUESTS {
            if self.waiting.is_empty() {
                self.waiting = self.seed.tracer.take(BATCH);
            }
            if self.waiting.is_empty() {
                return;
            }
            match self.send(time) {
                Ok(()) => self.waiting.clear(),
                Err(error) => return self.failed(&error),
            }
        }
    }

    fn send(&self, time: Duration) -> Result<(), WebError> {
        let destination = &self.seed.destination;
        let text = otlp::request(&destination.resource, &self.waiting);
        let request = Request {
            url: &destination.url,
            headers: &destination.headers,
            credentials: None,
            tls: &destination.tls,
            body: Some(Body {
                kind: "application/json",
                bytes: text.as_bytes(),
            }),
            time,
            connect_time: time,
            largest: ANSWER,
        };
        web::ask(&request).map(drop)
    }

    fn failed(&mut self, error: &WebError) {
        self.seed.metrics.0.inc();
        let is_refused = matches!(error, WebError::Status { status, .. } if !is_for_now(*status));
        if is_refused {
            self.seed.tracer.refused(self.waiting.len());
            self.waiting.clear();
        }
        if let Some(times) = self.failures.happened() {
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

/// Whether the same request may be taken later: the statuses that OTLP says so of, and those of
/// servers in front of a collector.
fn is_for_now(status: u16) -> bool {
    matches!(status, 408 | 429 | 500 | 502 | 503 | 504)
}

#[cfg(test)]
mod tests;
