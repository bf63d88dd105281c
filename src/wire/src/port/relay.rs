//! The relay of a member that stands by: it opens the ports of a master, and carries each connection to
//! the member port of the active one.
//!
//! It reads nothing of what it carries and decides nothing: admission, limits and deadlines of the real
//! listeners hold here for connections, those of messages at the active member. While no member is
//! active connections are closed at once; when another one becomes active, those to the former are cut.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::Registry;
use saltern_base::log_throttle::LogThrottle;
use tokio::io::AsyncWriteExt;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::accept::{Acceptor, Admission, Socket, serve};
use super::framing::Side;
use super::limits::PeerLimits;
use super::listen::{ListenError, ListenOptions, watch};
use super::metrics::{Close, Families};
use super::network::KnownNetworks;
use super::stream::Arrival;
use crate::member::{Door, Header, MemberTls, RelayEnd, RelayedPeer, relay};
use crate::net::TcpStream;

/// Handshakes with the active member at once: fewer than it grants one address.
const MAX_DIALS: usize = 64;

/// Interval at which the active member is asked whether it answers, for `/readyz`.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);

/// Minimum time between two log lines about failures.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Address of the active member's port. Clones share it.
#[derive(Clone, Default)]
pub struct RelayTarget(Arc<Mutex<Target>>);

#[derive(Default)]
struct Target {
    /// `host:port`, and the epoch under which it is active.
    active: Option<(String, i64)>,
    is_reached: bool,
    /// Ends the connections to it.
    cut: CancellationToken,
}

impl RelayTarget {
    /// Sets the address and the epoch of the active member, and cuts connections to another one.
    pub fn set(&self, active: Option<(String, i64)>) {
        let mut target = self.0.lock();
        if target.active != active {
            target.cut.cancel();
            *target = Target {
                active,
                ..Target::default()
            };
        }
    }

    /// Whether the active member has answered on its member port lately.
    pub fn is_reached(&self) -> bool {
        self.0.lock().is_reached
    }

    fn current(&self) -> Option<(String, CancellationToken)> {
        let target = self.0.lock();
        let (address, _) = target.active.as_ref()?;
        Some((address.clone(), target.cut.clone()))
    }

    /// Records whether an address answered, if it is still the one; whether that is new.
    fn record(&self, address: &str, is_reached: bool) -> bool {
        let mut target = self.0.lock();
        let is_current = (target.active.as_ref()).is_some_and(|(current, _)| current == address);
        let is_new = is_current && target.is_reached != is_reached;
        if is_new {
            target.is_reached = is_reached;
        }
        is_new
    }
}

/// The ports of a member that stands by.
pub struct Relay {
    requests: Vec<Acceptor>,
    publish: Vec<Acceptor>,
    shared: Arc<Shared>,
}

struct Shared {
    client: Arc<ClientConfig>,
    target: RelayTarget,
    options: ListenOptions,
    dials: Semaphore,
    failures: LogThrottle,
}

impl Relay {
    /// Prepares bound sockets, those of requests and those of publications, with the limits of each.
    /// Their peers' TLS is not ended here, whatever the sockets say.
    ///
    /// # Errors
    /// A socket cannot be used, or the registry has listeners already.
    pub fn new(
        (requests, publish): ((Vec<Socket>, PeerLimits), (Vec<Socket>, PeerLimits)),
        (tls, target): (&MemberTls, RelayTarget),
        options: ListenOptions,
        registry: &Registry,
    ) -> Result<Self, ListenError> {
        let open = |(sockets, limits): (Vec<Socket>, PeerLimits), listener| {
            let families = Families::new(registry, listener)?;
            let known = KnownNetworks::default();
            let mut acceptors = Acceptor::open(sockets, &families, limits, known)?;
            for acceptor in &mut acceptors {
                acceptor.greets = false;
            }
            Ok::<_, ListenError>(acceptors)
        };
        Ok(Self {
            requests: open(requests, "request")?,
            publish: open(publish, "publish")?,
            shared: Arc::new(Shared {
                client: tls.client(),
                target,
                options,
                dials: Semaphore::new(MAX_DIALS),
                failures: LogThrottle::new(LOG_INTERVAL),
            }),
        })
    }

    /// Relays while a task runs; the ports are closed and all connections cut when its outcome is
    /// given.
    pub async fn serve_while<T>(self, task: impl Future<Output = T>) -> T {
        let stop = CancellationToken::new();
        let task = async {
            let outcome = task.await;
            stop.cancel();
            outcome
        };
        tokio::join!(self.serve(&stop), task).1
    }

    async fn serve(self, stop: &CancellationToken) {
        let shared = &self.shared;
        let start = |side| {
            move |arrival: Arrival, admission: Admission| {
                tokio::spawn(Arc::clone(shared).carry(arrival, admission, side));
            }
        };
        let requests = serve(self.requests, Side::Request, stop, start(Side::Request));
        let publish = serve(self.publish, Side::Publish, stop, start(Side::Publish));
        let probing = stop.run_until_cancelled(shared.probe());
        tokio::join!(requests, publish, probing);
    }
}

impl Shared {
    async fn carry(self: Arc<Self>, arrival: Arrival, mut admission: Admission, side: Side) {
        let reason = match (arrival, self.target.current()) {
            (Arrival::Direct(peer), Some((address, cut))) => {
                let stop = admission.gate.stop.clone();
                tokio::select! {
                    biased;
                    () = stop.cancelled() => Close::Shutdown,
                    () = cut.cancelled() => Close::NoActive,
                    reason = self.relay(peer, &mut admission, (&address, side)) => reason,
                }
            }
            _ => Close::NoActive,
        };
        admission.ends(reason);
    }

    async fn relay(
        &self,
        peer: TcpStream,
        admission: &mut Admission,
        (address, side): (&str, Side),
    ) -> Close {
        let gate = Arc::clone(&admission.gate);
        let header = Header {
            door: Door::new(side, gate.transport),
            peer: RelayedPeer::Address(admission.peer),
        };
        let dialing = async {
            let mut active = self.dial(address).await?;
            active.write_all(&header.encode()).await?;
            active.flush().await?;
            Ok::<_, io::Error>(active)
        };
        let active = match timeout(gate.limits.handshake, Box::pin(dialing)).await {
            Ok(Ok(active)) => active,
            Ok(Err(error)) => return self.failed(address, &error),
            Err(late) => return self.failed(address, &late.into()),
        };
        admission.opened();
        let counts = (&gate.metrics.bytes_in, &gate.metrics.bytes_out);
        match relay(peer, active, gate.limits.progress.grace, counts).await {
            RelayEnd::Closed => Close::PeerClosed,
            RelayEnd::Slow => Close::SlowReader,
            RelayEnd::Failed(error) => {
                debug!(peer = %admission.peer, %error, "a relayed connection broke");
                Close::Io
            }
        }
    }

    async fn dial(&self, address: &str) -> io::Result<TlsStream<tokio::net::TcpStream>> {
        // Never closed.
        let _turn = self.dials.acquire().await;
        let stream = tokio::net::TcpStream::connect(address).await?;
        watch(&stream, &self.options)?;
        // Members are known by their key; the name is sent to nobody.
        let name = ServerName::IpAddress(Ipv4Addr::LOCALHOST.into());
        TlsConnector::from(Arc::clone(&self.client))
            .connect(name, stream)
            .await
    }

    fn failed(&self, address: &str, error: &io::Error) -> Close {
        if let Some(times) = self.failures.record() {
            warn!(%error, times, "connections cannot be relayed to \"{address}\"");
        }
        Close::ActiveAway
    }

    /// Asks the active member again and again whether it answers, for ever.
    async fn probe(&self) {
        loop {
            if let Some((address, _)) = self.target.current() {
                let dialed = timeout(PROBE_INTERVAL * 5, self.dial(&address)).await;
                let is_reached = match dialed {
                    Ok(Ok(mut stream)) => stream.shutdown().await.is_ok(),
                    _ => false,
                };
                if self.target.record(&address, is_reached) {
                    match is_reached {
                        true => info!("connections are relayed to \"{address}\""),
                        false => warn!("the active member at \"{address}\" does not answer"),
                    }
                }
            }
            sleep(PROBE_INTERVAL).await;
        }
    }
}
