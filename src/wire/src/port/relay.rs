//! The relay of a member that stands by: it opens the ports of a master, and carries each connection to
//! the member port of the active one.
//!
//! It reads nothing of what it carries and decides nothing: admission, limits and deadlines of the real
//! listeners hold here for connections, those of messages at the active member. While no member is
//! active connections are closed at once; when another one becomes active, those to the former are cut.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::Registry;
use saltern_base::log_throttle::LogThrottle;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::lookup_host;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
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
use crate::member::{Door, HalfClosing, Header, MemberTls, RelayEnd, RelayedPeer, relay};
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
    /// `host:port`, and the epoch under which it is active. Without a port nothing is relayed to it.
    active: Option<(String, i64)>,
    /// Where it was reached last; at once where the host is no name.
    socket: Option<SocketAddr>,
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
            let address = active.as_ref().map(|(address, _)| address.as_str());
            if let Some(address) = address.filter(|address| !has_port(address)) {
                warn!(
                    "the active member \"{address}\" has no member_port: nothing is relayed to it"
                );
            }
            *target = Target {
                socket: address.and_then(|address| address.parse().ok()),
                active,
                ..Target::default()
            };
        }
    }

    /// Whether the active member has answered on its member port lately.
    pub fn is_reached(&self) -> bool {
        self.0.lock().is_reached
    }

    fn address(&self) -> Option<String> {
        let target = self.0.lock();
        let (address, _) = target.active.as_ref()?;
        has_port(address).then(|| address.clone())
    }

    /// Where the active member was reached last, and the end of connections to it.
    fn socket(&self) -> Option<(SocketAddr, CancellationToken)> {
        let target = self.0.lock();
        Some((target.socket?, target.cut.clone()))
    }

    /// Records where an address answered, if it is still the one; whether it answers is news then.
    fn record(&self, address: &str, reached: Option<SocketAddr>) -> bool {
        let mut target = self.0.lock();
        if (target.active.as_ref()).is_none_or(|(current, _)| current != address) {
            return false;
        }
        let is_new = target.is_reached != reached.is_some();
        target.is_reached = reached.is_some();
        target.socket = reached.or(target.socket);
        is_new
    }
}

/// Whether an address of a member ends with a port, as those have that others relay to.
fn has_port(address: &str) -> bool {
    let Some((host, port)) = address.rsplit_once(':') else {
        return false;
    };
    let is_host = !host.is_empty() && (host.starts_with('[') || !host.contains(':'));
    is_host && port.parse::<u16>().is_ok()
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
        let reason = match (arrival, self.target.socket()) {
            (Arrival::Direct(peer), Some((socket, cut))) => {
                let stop = admission.gate.stop.clone();
                tokio::select! {
                    biased;
                    () = stop.cancelled() => Close::Shutdown,
                    () = cut.cancelled() => Close::NoActive,
                    reason = self.relay(peer, &mut admission, (socket, side)) => reason,
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
        (socket, side): (SocketAddr, Side),
    ) -> Close {
        let gate = Arc::clone(&admission.gate);
        let header = Header {
            door: Door::new(side, gate.transport),
            peer: RelayedPeer::Address(admission.peer),
        };
        let dialing = async {
            // Never closed.
            let turn = self.dials.acquire().await;
            let mut active = self.dial(socket).await?;
            drop(turn);
            active.write_all(&header.encode()).await?;
            active.flush().await?;
            Ok::<_, io::Error>(active)
        };
        let active = match timeout(gate.limits.handshake, Box::pin(dialing)).await {
            Ok(Ok(active)) => active,
            Ok(Err(error)) => return self.failed(socket, &error),
            Err(late) => return self.failed(socket, &late.into()),
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

    async fn dial(&self, socket: SocketAddr) -> io::Result<HalfClosing> {
        let stream = tokio::net::TcpStream::connect(socket).await?;
        watch(&stream, &self.options)?;
        // Members are known by their key; the name is sent to nobody.
        let name = ServerName::IpAddress(Ipv4Addr::LOCALHOST.into());
        let connector = TlsConnector::from(Arc::clone(&self.client));
        HalfClosing::new(connector.connect(name, stream).await?)
    }

    fn failed(&self, socket: SocketAddr, error: &io::Error) -> Close {
        if let Some(times) = self.failures.record() {
            warn!(%error, times, "connections cannot be relayed to \"{socket}\"");
        }
        Close::ActiveAway
    }

    /// Asks the active member again and again whether it answers, for ever. Alone here a name is looked
    /// up, so that at most a few look-ups wait for a server of names that is gone.
    async fn probe(&self) {
        loop {
            if let Some(address) = self.target.address() {
                let reached = timeout(PROBE_INTERVAL * 5, self.reach(&address)).await;
                let reached = reached.ok().and_then(io::Result::ok);
                if self.target.record(&address, reached) {
                    match reached {
                        Some(_) => info!("connections are relayed to \"{address}\""),
                        None => warn!("the active member at \"{address}\" does not answer"),
                    }
                }
            }
            sleep(PROBE_INTERVAL).await;
        }
    }

    /// Makes a connection for nobody and ends it, without a turn of those for peers; where it was made.
    async fn reach(&self, address: &str) -> io::Result<SocketAddr> {
        let mut failure = io::ErrorKind::NotFound.into();
        for socket in lookup_host(address).await? {
            match self.dial(socket).await {
                Ok(mut active) => {
                    active.shutdown().await?;
                    // Its end, which it closes first; it has nothing to say.
                    let _ = active.read(&mut [0]).await;
                    return Ok(socket);
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_with_a_port_are_relayed_to() {
        for (address, is_one) in [
            ("192.0.2.1:4508", true),
            ("[2001:db8::1]:4508", true),
            ("master.example:4508", true),
            ("192.0.2.1", false),
            ("2001:db8::1", false),
            ("master.example", false),
            (":4508", false),
            ("master.example:x", false),
        ] {
            assert_eq!(has_port(address), is_one, "{address}");
        }
    }

    #[test]
    fn address_of_the_last_answer_is_kept_until_another_member_is_active() {
        let target = RelayTarget::default();
        let socket = "192.0.2.1:4508".parse().expect("an address");
        target.set(Some(("master.example:4508".to_owned(), 1)));
        assert!(target.socket().is_none());
        assert!(target.record("master.example:4508", Some(socket)));
        assert!(target.record("master.example:4508", None));
        assert!(!target.is_reached());
        assert_eq!(target.socket().expect("kept").0, socket);
        target.set(Some(("other.example:4508".to_owned(), 2)));
        assert!(!target.record("master.example:4508", Some(socket)));
        assert!(target.socket().is_none());
    }
}
