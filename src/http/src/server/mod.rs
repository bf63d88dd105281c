//! The HTTP server of the master: status pages, webhooks, the API.
//!
//! It accepts any peer, so it is built limits first, as the two ports are: connections,
//! bytes of head and body, requests, streams and time are bounded before a handler is called. A
//! connection carries many requests, by HTTP/1.1 or HTTP/2. Each has a task of its own, until
//! `stop`.
//!
//! A handler gets a complete body, and as extensions of the request [`Peer`], [`Stopping`],
//! [`RequestId`], and a `TraceContext` if the client sent one. A response that goes on has the
//! extension [`LongStream`]. A connection is upgraded by `hyper::upgrade`
//! ([`websocket`](crate::websocket)).
//!
//! Not here: what is served (the router decides), and access control.
//!
//! Reading order: `limits`, this file, `connection`, `activity`, `answering`, `response_body`,
//! `connection_io`, `certificates`, `connection_slots`, `metrics`.

mod activity;
mod answering;
mod certificates;
mod connection;
mod connection_io;
mod connection_slots;
mod head_watch;
mod limits;
mod metrics;
mod request_info;
mod response_body;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request};
use axum::middleware::{self, Next};
use axum::response::Response;
use hyper::http::Extensions;
use hyper::{HeaderMap, StatusCode, Version};
use saltern_base::log_throttle::LogThrottle;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{DefaultPredicate, Predicate};

use saltern_wire::member::{RelayedConnection, RelayedConnections, RelayedPeer};
use saltern_wire::port::{ListenOptions, Tls, bind};

use answering::Answering;
use certificates::Certificates;
use connection::{Connections, TrackedExecutor};
use connection_slots::ConnectionSlots;
use metrics::Refusal;
use request_info::RequestIds;

pub use limits::HttpLimits;
pub use metrics::{HttpMeters, HttpMetrics};
pub use request_info::{LongStream, Peer, RequestId, Stopping, cookie};

/// Pause after a failed accept: for want of file descriptors, mostly.
const STARVED_PAUSE: Duration = Duration::from_millis(100);

/// A persistent shortage is logged at most once per `LOG_INTERVAL`.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// A bound server. Nothing is accepted before it is served.
pub struct HttpServer {
    listener: std::net::TcpListener,
    address: SocketAddr,
    tls: Option<Tls>,
    limits: HttpLimits,
    router: Router,
    meters: HttpMeters,
    relayed: RelayedConnections,
}

impl HttpServer {
    /// Binds `address`; requests are answered by `router`, within `limits` and inside TLS if
    /// configured. Certificates are read again when their files change.
    ///
    /// A handler's future is dropped when the request's deadline passes or the client goes. A panic
    /// is answered with status 500.
    ///
    /// # Errors
    /// The kernel's error: the port is taken, or needs a privilege, or the address is not local.
    pub fn bind(
        address: SocketAddr,
        tls: Option<Tls>,
        limits: HttpLimits,
        router: Router,
        meters: HttpMeters,
    ) -> io::Result<Self> {
        let options = ListenOptions {
            backlog: u32::try_from(limits.connections).unwrap_or(u32::MAX),
            ..ListenOptions::default()
        };
        let listener = bind(address, &options)?;
        let address = listener.local_addr()?;
        Ok(Self {
            listener,
            address,
            tls,
            limits,
            router: layered(router),
            meters,
            relayed: RelayedConnections::default(),
        })
    }

    /// Takes connections that other members of a cluster relay, too.
    #[must_use]
    pub fn with_relayed(self, relayed: RelayedConnections) -> Self {
        Self { relayed, ..self }
    }

    /// The bound address, with the actual port for port 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop`; returns when the last exchange has ended or was cut off. Long streams
    /// and upgraded connections end at once.
    ///
    /// # Errors
    /// The runtime does not take the socket.
    pub async fn serve(self, stop: CancellationToken) -> io::Result<()> {
        let listener = TcpListener::from_std(self.listener)?;
        let (limits, meters) = (self.limits, self.meters);
        let connection_slots = ConnectionSlots::new(&limits);
        let (tasks, cut) = (TaskTracker::new(), CancellationToken::new());
        let executor = TrackedExecutor {
            tasks: tasks.clone(),
            cut: cut.clone(),
        };
        let connections = Arc::new(Connections {
            answering: Arc::new(Answering {
                limits,
                router: self.router,
                meters: meters.clone(),
                ids: RequestIds::new(),
                requests: Arc::new(Semaphore::new(limits.requests)),
                stop: stop.clone(),
            }),
            certificates: self.tls.map(|tls| Certificates::new(&tls, meters.clone())),
            builder: connection::builder(&limits, executor),
            lingering: Arc::new(Semaphore::new(limits.connections)),
            handshake: tokio::sync::Mutex::default(),
            stop: stop.clone(),
            cut: cut.clone(),
            tasks: tasks.clone(),
        });
        let relayed = self.relayed;
        let relayed = relayed.each(|one| start_relayed(one, &connections, &connection_slots));
        let taking = async {
            tokio::select! {
                () = accept(&listener, &connections, &connection_slots) => {}
                () = relayed => {}
            }
        };
        let _: Option<()> = stop.run_until_cancelled(taking).await;
        drop(listener);
        tasks.close();
        if tokio::time::timeout(limits.drain, tasks.wait())
            .await
            .is_err()
        {
            cut.cancel();
            // A handler may keep an upgraded connection that is closed.
            let _ = tokio::time::timeout(connection::CLOSE_TIME, tasks.wait()).await;
        }
        Ok(())
    }
}

/// Accepts connections for ever.
async fn accept(
    listener: &TcpListener,
    connections: &Arc<Connections>,
    connection_slots: &Arc<ConnectionSlots>,
) {
    let failures = LogThrottle::new(LOG_INTERVAL);
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => start(stream, peer, connections, connection_slots),
            Err(error) => {
                connections.answering.meters.refused(Refusal::Accept);
                if let Some(times) = failures.record() {
                    tracing::warn!(%error, times, "cannot accept HTTP connections");
                }
                tokio::time::sleep(STARVED_PAUSE).await;
            }
        }
    }
}

fn start_relayed(
    relayed: RelayedConnection,
    connections: &Arc<Connections>,
    connection_slots: &Arc<ConnectionSlots>,
) {
    // The member port hands over no others.
    if let RelayedPeer::Address(peer) = relayed.peer() {
        start(relayed, peer, connections, connection_slots);
    }
}

fn start(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: SocketAddr,
    connections: &Arc<Connections>,
    connection_slots: &Arc<ConnectionSlots>,
) {
    match connection_slots.take(peer.ip()) {
        Ok(slot) => {
            let running = Arc::clone(connections).run(stream, peer, slot);
            let running = connections.cut.clone().run_until_cancelled_owned(running);
            connections.tasks.spawn(running);
        }
        Err(refusal) => connections.answering.meters.refused(refusal),
    }
}

/// The router with what each server has: packed responses, and the route for the access log.
fn layered(router: Router) -> Router {
    let is_short = |_: StatusCode, _: Version, _: &HeaderMap, extensions: &Extensions| {
        extensions.get::<LongStream>().is_none()
    };
    let packing = CompressionLayer::new().compress_when(DefaultPredicate::new().and(is_short));
    router
        .layer(middleware::from_fn(note_route))
        // The server's own limit holds, and the body is complete.
        .layer(DefaultBodyLimit::disable())
        .layer(packing)
}

/// Hands the matched route on with the response.
async fn note_route(request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>().cloned();
    let mut response = next.run(request).await;
    if let Some(route) = route {
        response.extensions_mut().insert(route);
    }
    response
}
