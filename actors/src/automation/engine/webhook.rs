//! `webhook`: fires what is posted to it (`salt/engines/webhook.py`).
//!
//! Without authentication, as in stock: any client that reaches the port fires events below
//! `salt/engines/hook/`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use bytes::Bytes;
use saltern_automation::engines::hook_event;
use saltern_base::blocking;
use saltern_config::WebhookEngine;
use saltern_http::axum::Router;
use saltern_http::axum::extract::State;
use saltern_http::{HeaderMap, HttpLimits, HttpServer, Method, StatusCode, Uri};
use saltern_model::Event;
use saltern_requests::Services;
use saltern_wire::port::{PeerCertificate, Tls, TlsOptions};

use super::{Ended, EngineMetrics, Seed, count};
use crate::messages::Fire;

/// Connections in all; each holds up to an event in memory.
const CONNECTIONS: usize = 128;
/// Connections of one address, which may be a proxy before many.
const PER_ADDRESS: usize = 64;
/// Bytes of a request line with its headers.
const HEAD: usize = 64 << 10;

/// Runs until the master stops.
pub(super) async fn run(seed: &Seed, hook: &WebhookEngine) -> Result<(), Ended> {
    let named = match &hook.address {
        Some(address) => format!("{address}:{}", hook.port),
        None => format!("*:{}", hook.port),
    };
    let failed = |source| Ended::Listen {
        address: named.clone(),
        source,
    };
    let address = address_of(hook).await.map_err(failed)?;
    let tls = hook.tls.as_ref().map(|(certificate, key)| {
        Tls::new(&TlsOptions {
            certificate: certificate.into(),
            key: key.into(),
            authorities: Vec::new(),
            peers: PeerCertificate::NotAsked,
            only_tls12: false,
            ciphers: None,
        })
    });
    let limits = HttpLimits {
        connections: CONNECTIONS,
        per_address: PER_ADDRESS,
        requests: CONNECTIONS,
        head_bytes: HEAD,
        headers: 100,
        body_bytes: seed.services.config.max_event_size,
        drain: Duration::from_secs(2).min(seed.services.config.saltern_stop_timeout / 2),
        ..HttpLimits::default()
    };
    let handler = WebhookHandler {
        engine: seed.engine.name.clone(),
        services: seed.services.clone(),
        bus: seed.bus.clone(),
        metrics: seed.metrics.clone(),
    };
    let meters = seed.http.clone();
    let router = Router::new().fallback(answer);
    let router = router.with_state(Arc::new(handler));
    let server = HttpServer::bind(address, tls.transpose()?, limits, router, meters);
    let server = server.map_err(failed)?;
    server.serve(seed.stop.clone()).await.map_err(failed)
}

/// The address to bind: an IPv6 socket takes IPv4 too.
async fn address_of(hook: &WebhookEngine) -> std::io::Result<SocketAddr> {
    let Some(address) = &hook.address else {
        return Ok(SocketAddr::from(([0_u16; 8], hook.port)));
    };
    let found = blocking::lookup_host(address, hook.port).await?;
    let first = found.first().copied();
    first.ok_or_else(|| std::io::ErrorKind::NotFound.into())
}

/// HTTP handler of the webhook.
struct WebhookHandler {
    engine: String,
    services: Arc<Services>,
    bus: Recipient<Fire>,
    metrics: EngineMetrics,
}

/// Answers a request to any path.
async fn answer(
    State(handler): State<Arc<WebhookHandler>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    if method != Method::POST {
        return StatusCode::METHOD_NOT_ALLOWED;
    }
    match handler.event(&uri, &headers, &body) {
        Ok(event) => handler.fire(event).await,
        Err(status) => status,
    }
}

impl WebhookHandler {
    fn event(&self, uri: &Uri, headers: &HeaderMap, body: &Bytes) -> Result<Event, StatusCode> {
        let headers = headers.iter();
        let headers = headers.map(|(name, value)| (name.as_str(), value.as_bytes()));
        hook_event(&self.services, uri.path(), headers, body).map_err(|_| StatusCode::BAD_REQUEST)
    }

    async fn fire(&self, event: Event) -> StatusCode {
        if self.bus.send(Fire(vec![event])).await.is_err() {
            return StatusCode::SERVICE_UNAVAILABLE;
        }
        count(&self.metrics.events, &self.engine);
        StatusCode::OK
    }
}
