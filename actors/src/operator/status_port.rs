//! HTTP status port: `/metrics`, `/healthz` and `/readyz`.
//!
//! Read only, and without log-in: on loopback by default, and elsewhere for clients that TLS with
//! certificates admits. It runs on the main thread, beside no actor, so that a busy worker does
//! not delay it; lookups have a thread of their own.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use prometheus::TextEncoder;
use saltern_base::blocking;
use saltern_base::metrics::{Histogram, Registry, SECONDS, histogram};
use saltern_config::{MasterConfig, MetricsCompat};
use saltern_http::axum::body::Body;
use saltern_http::axum::extract::State;
use saltern_http::axum::{Router, middleware, routing};
use saltern_http::{
    HeaderMap, HttpLimits, HttpMetrics, HttpServer, Method, Request, Response, StatusCode, header,
};
use saltern_wire::port::Tls;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::operator::health::{Check, Checks};
use crate::operator::metric_aliases;

/// The bound port, before it is served.
pub(crate) struct StatusPort {
    server: HttpServer,
    pages: Arc<Pages>,
}

impl StatusPort {
    /// Binds `saltern_metrics_address`, if there is one. If the default is taken, by another
    /// master perhaps, this one goes on without.
    pub(crate) fn open(
        config: &MasterConfig,
        tls: Option<Tls>,
        (registry, http): (&Registry, &HttpMetrics),
    ) -> io::Result<Option<Self>> {
        let Some(address) = config.saltern_metrics_address else {
            return Ok(None);
        };
        let pages = Arc::new(Pages {
            registry: registry.clone(),
            compat: config.metrics_compat,
            health: OnceLock::new(),
            scrapes: histogram(
                registry,
                "saltern_scrape_seconds",
                "Time to gather and encode the metrics of one scrape.",
                SECONDS,
            ),
            turn: tokio::sync::Mutex::default(),
        });
        let meters = http.of("status");
        let limits = HttpLimits::default();
        match HttpServer::bind(address, tls, limits, router(&pages), meters) {
            Ok(server) => Ok(Some(Self { server, pages })),
            Err(error) if config.is_written("saltern_metrics_address") => Err(error),
            Err(error) => {
                tracing::warn!(%address, %error, "no metrics over HTTP (saltern_metrics_address)");
                Ok(None)
            }
        }
    }

    /// The bound address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Answers until `stop`.
    pub(crate) async fn serve(self, health: Arc<dyn Checks>, stop: CancellationToken) {
        // Only the first call counts.
        let _ = self.pages.health.set(health);
        let address = self.server.address();
        tracing::info!(%address, "metrics and health are served");
        if let Err(error) = self.server.serve(stop).await {
            tracing::error!(%error, %address, "metrics and health are not served");
        }
    }
}

struct Pages {
    registry: Registry,
    /// Whether 3008's names are exposed, too.
    compat: MetricsCompat,
    health: OnceLock<Arc<dyn Checks>>,
    scrapes: Histogram,
    /// Gathering is expensive with many minions: one at a time, for all clients.
    turn: tokio::sync::Mutex<()>,
}

fn router(pages: &Arc<Pages>) -> Router {
    Router::new()
        .route("/", routing::get(index))
        .route("/metrics", routing::get(metrics))
        .route("/healthz", routing::get(healthz))
        .route("/readyz", routing::get(readyz))
        .fallback(no_page)
        .layer(middleware::from_fn(only_reads))
        .with_state(Arc::clone(pages))
}

async fn only_reads(request: Request<Body>, next: middleware::Next) -> Response<Body> {
    if [Method::GET, Method::HEAD].contains(request.method()) {
        return next.run(request).await;
    }
    let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
    let allowed = header::HeaderValue::from_static("GET, HEAD");
    response.headers_mut().insert(header::ALLOW, allowed);
    response
}

async fn index() -> Response<Body> {
    text(StatusCode::OK, "/metrics\n/healthz\n/readyz\n")
}

async fn no_page() -> Response<Body> {
    text(StatusCode::NOT_FOUND, "no such page\n")
}

async fn metrics(State(pages): State<Arc<Pages>>) -> Response<Body> {
    pages.metrics().await
}

async fn healthz(State(pages): State<Arc<Pages>>, headers: HeaderMap) -> Response<Body> {
    pages.checks(&headers, |health| health.alive())
}

async fn readyz(State(pages): State<Arc<Pages>>, headers: HeaderMap) -> Response<Body> {
    pages.checks(&headers, |health| health.ready())
}

impl Pages {
    async fn metrics(&self) -> Response<Body> {
        let _turn = self.turn.lock().await;
        let (registry, scrapes) = (self.registry.clone(), self.scrapes.clone());
        let compat = self.compat;
        let written = blocking::run(move || {
            let _timer = scrapes.start_timer();
            let mut families = registry.gather();
            if compat.opentelemetry {
                metric_aliases::add_opentelemetry(&mut families);
            }
            if compat.salt_exporter {
                metric_aliases::add_salt_exporter(&mut families);
            }
            TextEncoder::new().encode_to_string(&families)
        });
        match written.await {
            Ok(Ok(metrics)) => page(StatusCode::OK, prometheus::TEXT_FORMAT, metrics),
            failed => {
                tracing::error!(?failed, "the metrics cannot be encoded");
                text(StatusCode::INTERNAL_SERVER_ERROR, "see the master's log\n")
            }
        }
    }

    fn checks(&self, headers: &HeaderMap, look: fn(&dyn Checks) -> Vec<Check>) -> Response<Body> {
        // The port is served only after it is set.
        let checks = self
            .health
            .get()
            .map(|health| look(&**health))
            .unwrap_or_default();
        let passed = checks.iter().all(|check| check.passed);
        let status = match passed {
            true => StatusCode::OK,
            false => StatusCode::SERVICE_UNAVAILABLE,
        };
        let accept = headers.get(header::ACCEPT);
        let accept = accept.and_then(|accept| accept.to_str().ok());
        if accept.is_some_and(|accept| accept.contains("application/json")) {
            page(status, "application/json", as_json(passed, &checks))
        } else {
            text(status, &as_text(&checks))
        }
    }
}

fn as_text(checks: &[Check]) -> String {
    let word = |check: &Check| if check.passed { "ok" } else { "FAILED" };
    let line = |check: &Check| format!("{} {}: {}\n", word(check), check.name, check.reason);
    checks.iter().map(line).collect()
}

fn as_json(passed: bool, checks: &[Check]) -> String {
    let report = HealthReport { ok: passed, checks };
    serde_json::to_string(&report).expect("invariant: texts and flags are JSON")
}

#[derive(Serialize)]
struct HealthReport<'a> {
    ok: bool,
    checks: &'a [Check],
}

fn text(status: StatusCode, text: &str) -> Response<Body> {
    page(status, "text/plain; charset=utf-8", text.to_owned())
}

fn page(status: StatusCode, form: &'static str, body: String) -> Response<Body> {
    let mut answer = Response::new(Body::from(body));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    let mut set = |name, value| headers.insert(name, header::HeaderValue::from_static(value));
    set(header::CONTENT_TYPE, form);
    set(header::CACHE_CONTROL, "no-store");
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_shown_with_their_reasons() {
        let check = |name, passed, reason: &str| Check {
            name,
            passed,
            reason: reason.to_owned(),
        };
        let checks = [
            check("actors", true, "9 actors answer"),
            check("database", false, "the disk is \"full\""),
        ];
        assert_eq!(
            as_text(&checks),
            "ok actors: 9 actors answer\nFAILED database: the disk is \"full\"\n"
        );
        let answer: serde_json::Value =
            serde_json::from_str(&as_json(false, &checks)).expect("JSON");
        assert_eq!(answer["ok"], false);
        assert_eq!(answer["checks"][1]["check"], "database");
        assert_eq!(answer["checks"][1]["reason"], "the disk is \"full\"");
    }
}
