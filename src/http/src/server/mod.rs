//! Small HTTP/1.1 server for programs that monitor or call the master: metrics, health, webhooks.
//!
//! It may be opened to a network, so it is built limits first, as the two ports are: connections,
//! bytes of head and body, and time are bounded before a handler is called. **A connection carries
//! one request.** So one deadline covers everything that happens on it, and there are no idle
//! connections to keep. Each has a task of its own, until `stop`.
//!
//! Not here: what is served (a [`Handler`] decides), streaming, HTTP/2, and access control: a
//! handler that needs it checks the request's headers.
//!
//! Reading order: `limits`, this file, `exchange`, `connection_slots`, `metrics`.

mod connection_slots;
mod exchange;
mod limits;
mod metrics;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use hyper::{Request, Response};
use saltern_base::log_throttle::LogThrottle;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use saltern_wire::port::{ListenOptions, Tls, bind};

use connection_slots::ConnectionSlots;
use exchange::Exchange;
use metrics::Refusal;

pub use limits::HttpLimits;
pub use metrics::{HttpMeters, HttpMetrics};

/// Pause after a failed accept: for want of file descriptors, mostly.
const STARVED_PAUSE: Duration = Duration::from_millis(100);

/// A persistent shortage is logged at most once per `LOG_INTERVAL`.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Request handler of a server.
pub trait Handler: Send + Sync + 'static {
    /// Answers one request, whose body is complete and within the limits.
    ///
    /// The future is dropped when the connection's deadline passes. A panic is answered with
    /// status 500.
    fn answer(&self, request: Request<Bytes>, peer: SocketAddr) -> BoxFuture<'_, Response<Bytes>>;
}

/// A bound server. Nothing is accepted before it is served.
pub struct HttpServer {
    listener: std::net::TcpListener,
    address: SocketAddr,
    tls: Option<Tls>,
    limits: HttpLimits,
    handler: Arc<dyn Handler>,
    meters: HttpMeters,
}

impl HttpServer {
    /// Binds `address`; requests are answered by `handler`, within `limits` and inside TLS if
    /// configured.
    ///
    /// # Errors
    /// The kernel's error: the port is taken, or needs a privilege, or the address is not local.
    pub fn bind(
        address: SocketAddr,
        tls: Option<Tls>,
        limits: HttpLimits,
        handler: Arc<dyn Handler>,
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
            handler,
            meters,
        })
    }

    /// The bound address, with the actual port for port 0.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop`; returns when the last exchange has ended or was cut off.
    ///
    /// # Errors
    /// The runtime does not take the socket.
    pub async fn serve(self, stop: CancellationToken) -> io::Result<()> {
        let listener = TcpListener::from_std(self.listener)?;
        let connection_slots = ConnectionSlots::new(&self.limits);
        let exchange = Arc::new(Exchange {
            limits: self.limits,
            tls: self.tls,
            handler: self.handler,
            meters: self.meters.clone(),
            lingering: Semaphore::new(self.limits.connections),
        });
        let failures = LogThrottle::new(LOG_INTERVAL);
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                accepted = listener.accept() => accepted,
                Some(_) = connections.join_next() => continue,
            };
            match accepted {
                Ok((stream, peer)) => {
                    start(stream, peer, &exchange, &connection_slots, &mut connections);
                }
                Err(error) => {
                    self.meters.refused(Refusal::Accept);
                    if let Some(times) = failures.record() {
                        tracing::warn!(%error, times, "cannot accept HTTP connections");
                    }
                    tokio::time::sleep(STARVED_PAUSE).await;
                }
            }
        }
        drop(listener);
        let drained = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(self.limits.drain, drained)
            .await
            .is_err()
        {
            connections.shutdown().await;
        }
        Ok(())
    }
}

fn start(
    stream: TcpStream,
    peer: SocketAddr,
    exchange: &Arc<Exchange>,
    connection_slots: &Arc<ConnectionSlots>,
    connections: &mut JoinSet<()>,
) {
    match connection_slots.take(peer.ip()) {
        Ok(place) => {
            let exchange = Arc::clone(exchange);
            connections.spawn(async move {
                exchange.run(stream, peer, place).await;
            });
        }
        Err(refusal) => exchange.meters.refused(refusal),
    }
}
