//! `webhook`: fires what is posted to it (`salt/engines/webhook.py`).
//!
//! Without authentication, as in stock: any client that reaches the port fires events below
//! `salt/engines/hook/`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use saltern_automation::engines::hook_event;
use saltern_config::WebhookEngine;
use saltern_http::{Handler, HttpLimits, HttpServer, Method, Request, Response, StatusCode};
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
        head_bytes: HEAD,
        headers: 100,
        body_bytes: seed.services.config.max_event_size,
        drain: Duration::from_secs(2).min(seed.services.config.saltern_stop_timeout / 2),
        ..HttpLimits::default()
    };
    let door = WebhookHandler {
        engine: seed.engine.name.clone(),
        services: seed.services.clone(),
        bus: seed.bus.clone(),
        metrics: seed.metrics.clone(),
    };
    let meters = seed.http.clone();
    let server = HttpServer::bind(address, tls.transpose()?, limits, Arc::new(door), meters);
    let server = server.map_err(failed)?;
    server.serve(seed.stop.clone()).await.map_err(failed)
}

/// The address to bind: an IPv6 socket takes IPv4 too.
async fn address_of(hook: &WebhookEngine) -> std::io::Result<SocketAddr> {
    let Some(address) = &hook.address else {
        return Ok(SocketAddr::from(([0_u16; 8], hook.port)));
    };
    let mut found = tokio::net::lookup_host((address.as_str(), hook.port)).await?;
    found
        .next()
        .ok_or_else(|| std::io::ErrorKind::NotFound.into())
}

/// HTTP handler of the webhook.
struct WebhookHandler {
    engine: String,
    services: Arc<Services>,
    bus: Recipient<Fire>,
    metrics: EngineMetrics,
}

impl Handler for WebhookHandler {
    fn answer(&self, request: Request<Bytes>, _: SocketAddr) -> BoxFuture<'_, Response<Bytes>> {
        let status = match self.event(&request) {
            Ok(event) => {
                let fired = self.bus.send(Fire(vec![event]));
                return Box::pin(async move {
                    if fired.await.is_err() {
                        return bare(StatusCode::SERVICE_UNAVAILABLE);
                    }
                    count(&self.metrics.events, &self.engine);
                    bare(StatusCode::OK)
                });
            }
            Err(status) => status,
        };
        Box::pin(std::future::ready(bare(status)))
    }
}

impl WebhookHandler {
    fn event(&self, request: &Request<Bytes>) -> Result<Event, StatusCode> {
        if request.method() != Method::POST {
            return Err(StatusCode::METHOD_NOT_ALLOWED);
        }
        let headers = request.headers().iter();
        let headers = headers.map(|(name, value)| (name.as_str(), value.as_bytes()));
        let path = request.uri().path();
        hook_event(&self.services, path, headers, request.body())
            .map_err(|_| StatusCode::BAD_REQUEST)
    }
}

fn bare(status: StatusCode) -> Response<Bytes> {
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = status;
    response
}
