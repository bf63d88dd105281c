//! Actor that owns the listeners of the HTTP API.
//!
//! Connections live in tasks on its thread, outside its state, so that they outlive a restart. A port
//! that is taken keeps no master from starting: stock's salt-api may serve it beside this one.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Context, ResponseActFuture};
use parking_lot::Mutex;
use saltern_base::chain;
use saltern_config::{ApiServer, TlsConfig};
use saltern_console::Console;
use saltern_http::{HttpLimits, HttpMetrics, HttpServer};
use saltern_netapi::Api;
use saltern_supervise::Child;
use saltern_wire::port::{Tls, TlsError};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long a request may take, the job that it waits for included.
const EXCHANGE_TIME: Duration = Duration::from_secs(3600);

/// Time for the body of a request, which may be long and come over a slow line.
const BODY_TIME: Duration = Duration::from_secs(60);

/// Why a server is not there.
#[derive(Debug, thiserror::Error)]
enum NotServed {
    /// Its host has no address.
    #[error("the host has no address")]
    Host(#[source] io::Error),
    /// Its port cannot be bound.
    #[error(
        "its port cannot be bound; if stock's salt-api serves it, say so with \"saltern_api: stock\""
    )]
    Port(#[source] io::Error),
    /// Its certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Seed of the actor.
#[derive(Clone)]
pub(crate) struct Seed {
    /// The listeners, until the first value has taken them.
    pub(crate) servers: Arc<Mutex<Vec<HttpServer>>>,
    pub(crate) stop: CancellationToken,
    /// The servers that still have connections.
    pub(crate) serving: TaskTracker,
}

/// Loader of certificates.
pub(crate) type LoadTls = fn(&TlsConfig) -> Result<Tls, TlsError>;

/// Binds the servers that can be bound; gives them with their addresses.
pub(crate) fn bind(
    pages: (&Arc<Api>, &Console),
    servers: &[ApiServer],
    (http, load_tls): (&HttpMetrics, LoadTls),
) -> (Vec<HttpServer>, Vec<SocketAddr>) {
    let mut bound = Vec::new();
    for server in servers {
        match bind_one(pages, server, (http, load_tls)) {
            Ok(listener) => {
                let address = listener.address();
                tracing::info!(%address, option = server.option, console = server.console, "the API is served");
                bound.push(listener);
            }
            Err(error) => {
                let (host, port) = (&server.host, server.port);
                let error = chain(&error);
                tracing::error!(
                    error,
                    option = server.option,
                    host,
                    port,
                    "the API is not served"
                );
            }
        }
    }
    let addresses = bound.iter().map(HttpServer::address).collect();
    (bound, addresses)
}

fn bind_one(
    (api, console): (&Arc<Api>, &Console),
    server: &ApiServer,
    (http, load_tls): (&HttpMetrics, LoadTls),
) -> Result<HttpServer, NotServed> {
    let mut addresses = (server.host.as_str(), server.port)
        .to_socket_addrs()
        .map_err(NotServed::Host)?;
    let none = || NotServed::Host(io::Error::from(io::ErrorKind::NotFound));
    let address = addresses.next().ok_or_else(none)?;
    let tls = server.tls.as_ref().map(load_tls).transpose()?;
    let limits = HttpLimits {
        connections: 4096,
        per_address: 1024,
        requests: 4096,
        head_bytes: 64 << 10,
        body_bytes: server.max_body,
        body_time: BODY_TIME,
        exchange_time: EXCHANGE_TIME,
        ..HttpLimits::default()
    };
    let meters = http.of("api");
    HttpServer::bind(address, tls, limits, console.beside(api, server), meters)
        .map_err(NotServed::Port)
}

/// Actor that owns the listeners of the API.
pub(crate) struct NetApi {
    seed: Seed,
}

impl Child for NetApi {
    type Seed = Seed;

    const NAME: &'static str = "net_api";
    const MAILBOX: usize = 1;

    fn build(seed: &Seed) -> Self {
        Self { seed: seed.clone() }
    }

    /// The connections run on this actor's thread: streams get their proper end, and requests at
    /// hand their answer, before it is gone.
    fn drain(&mut self, _: &mut Context<Self>) -> Option<ResponseActFuture<Self, ()>> {
        self.seed.serving.close();
        let serving = self.seed.serving.clone();
        let ended = async move { serving.wait().await };
        Some(Box::pin(actix::fut::wrap_future(ended)))
    }
}

impl Actor for NetApi {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Self::Context) {
        // The address outlives this value, so they are served once.
        for server in std::mem::take(&mut *self.seed.servers.lock()) {
            let stop = self.seed.stop.clone();
            self.seed.serving.spawn_local(async move {
                let address = server.address();
                if let Err(error) = server.serve(stop).await {
                    tracing::error!(%error, %address, "the API is not served");
                }
            });
        }
    }
}
