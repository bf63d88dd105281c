//! Actor that owns the listeners of the HTTP API.
//!
//! Connections live in tasks on its thread, outside its state, so that they outlive a restart. A port
//! that is taken keeps no master from starting: stock's salt-api may serve it beside this one.

use std::collections::HashMap;
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
use saltern_wire::member::{Door, RelayedConnections};
use saltern_wire::net::BoundPort;
use saltern_wire::port::{self, ListenOptions, Tls, TlsError};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long a request may take, the job that it waits for included.
const EXCHANGE_TIME: Duration = Duration::from_secs(3600);

/// Time for the body of a request, which may be long and come over a slow line.
const BODY_TIME: Duration = Duration::from_secs(60);

/// Connections to one server, in all and from one address.
pub(crate) const CONNECTIONS: usize = 4096;
pub(crate) const CONNECTIONS_PER_ADDRESS: usize = 1024;

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

/// Connections to the servers that other members of a cluster relay, by option.
pub(crate) type RelayedCalls = HashMap<&'static str, RelayedConnections>;

/// Binds the servers that can be bound; gives them with their addresses.
pub(crate) fn bind(
    pages: (&Arc<Api>, &Console),
    servers: &[ApiServer],
    (http, load_tls): (&HttpMetrics, LoadTls),
    mut relayed: RelayedCalls,
) -> (Vec<HttpServer>, Vec<SocketAddr>) {
    let mut bound = Vec::new();
    for server in servers {
        match bind_one(pages, server, (http, load_tls)) {
            Ok(listener) => {
                let address = listener.address();
                tracing::info!(%address, option = server.option, console = server.console, "the API is served");
                let relayed = relayed.remove(server.option).unwrap_or_default();
                bound.push(listener.with_relayed(relayed));
            }
            Err(error) => not_served(server, &error),
        }
    }
    let addresses = bound.iter().map(HttpServer::address).collect();
    (bound, addresses)
}

/// Binds the ports of the servers for a relay, those that can be bound.
pub(crate) fn bind_ports(servers: &[ApiServer]) -> Vec<(Door, BoundPort)> {
    let mut bound = Vec::new();
    for server in servers {
        let Some(door) = Door::of_api(server.option) else {
            continue;
        };
        let port = address_of(server)
            .and_then(|address| port::bind(address, &listening()).map_err(NotServed::Port));
        match port {
            Ok(listener) => bound.push((door, listener.into())),
            Err(error) => not_served(server, &error),
        }
    }
    bound
}

/// How the ports of the API listen, as they do on the active member of a cluster.
fn listening() -> ListenOptions {
    ListenOptions {
        backlog: u32::try_from(CONNECTIONS).unwrap_or(u32::MAX),
        ..ListenOptions::default()
    }
}

fn not_served(server: &ApiServer, error: &NotServed) {
    let (option, host, port) = (server.option, &server.host, server.port);
    let error = chain(error);
    tracing::error!(error, option, host, port, "the API is not served");
}

fn address_of(server: &ApiServer) -> Result<SocketAddr, NotServed> {
    let mut addresses = (server.host.as_str(), server.port)
        .to_socket_addrs()
        .map_err(NotServed::Host)?;
    let none = || NotServed::Host(io::Error::from(io::ErrorKind::NotFound));
    addresses.next().ok_or_else(none)
}

fn bind_one(
    (api, console): (&Arc<Api>, &Console),
    server: &ApiServer,
    (http, load_tls): (&HttpMetrics, LoadTls),
) -> Result<HttpServer, NotServed> {
    let address = address_of(server)?;
    let tls = server.tls.as_ref().map(load_tls).transpose()?;
    let limits = HttpLimits {
        connections: CONNECTIONS,
        per_address: CONNECTIONS_PER_ADDRESS,
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
