//! The relay of a member that stands by: it opens the ports of a master, and carries each connection to
//! the member port of the active one.
//!
//! It reads nothing of what it carries and decides nothing: admission, limits and deadlines of the real
//! listeners hold here for connections, those of messages at the active member. While no member is
//! active connections are closed at once; when another one becomes active, those to the former are cut.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use prometheus::Registry;
use saltern_base::blocking;
use saltern_base::log_throttle::LogThrottle;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::accept::{Acceptor, Admission, Socket, is_starved, serve};
use super::dials::Dials;
use super::framing::{Side, Transport};
use super::limits::PeerLimits;
use super::listen::{ListenError, ListenOptions, watch};
use super::metrics::{Close, Families, Metrics};
use super::network::{KnownNetworks, network, read_networks};
use super::relay_local::{LocalAdmission, LocalDoor, LocalSocket, Subscriptions};
use super::relay_target::RelayTarget;
use super::stream::Arrival;
use crate::member::{
    BeforeAnswers, CONFIRMED, Door, HalfClosing, Header, MemberTls, RelayEnd, RelayedPeer, relay,
};
use crate::net::{BoundPort, TcpStream, accept_all, accept_waiting, is_ended};

/// Time in which the active member takes the connection of a local program.
const LOCAL_HANDSHAKE: Duration = Duration::from_secs(10);

/// Interval at which the active member is asked whether it answers, for `/readyz`.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);

/// Interval at which the networks of minions are learned.
const LEARN_INTERVAL: Duration = Duration::from_secs(60);

/// Minimum time between two log lines about failures.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The bound sockets of a relay.
pub struct RelaySockets {
    /// Those of requests, with the limits of their connections.
    pub requests: (Vec<Socket>, PeerLimits),
    /// The same of publications.
    pub publish: (Vec<Socket>, PeerLimits),
    /// The same of the API.
    pub apis: (Vec<(Door, BoundPort)>, PeerLimits),
    /// Those for programs of this machine.
    pub local: Vec<LocalSocket>,
    /// Done before an answer to a request of this machine.
    pub before_answers: Option<Arc<dyn BeforeAnswers>>,
}

/// The ports and unix sockets of a member that stands by.
pub struct Relay {
    requests: Vec<Acceptor>,
    publish: Vec<Acceptor>,
    apis: Vec<(Door, Acceptor)>,
    local: Vec<(UnixListener, Arc<LocalDoor>)>,
    shared: Arc<Shared>,
}

struct Shared {
    client: Arc<ClientConfig>,
    target: RelayTarget,
    options: ListenOptions,
    dials: Dials,
    failures: LogThrottle,
    /// Networks of minions, as the active member knows them.
    known: KnownNetworks,
    before_answers: Option<Arc<dyn BeforeAnswers>>,
    subscriptions: Arc<Subscriptions>,
    /// The socket of subscribers once more, while it is served.
    subscribers: Mutex<Option<(UnixListener, Arc<LocalDoor>)>>,
    /// Cancelled when no more is relayed.
    stop: CancellationToken,
}

/// A connection on its way to the active member.
struct Passage<'a> {
    header: Header,
    /// Of the peer.
    network: IpAddr,
    /// The peer is a program of this machine, over TCP.
    is_of_this_machine: bool,
    /// The active member.
    socket: SocketAddr,
    /// Time in which it takes the connection.
    handshake: Duration,
    /// Time in which the peer takes a buffer.
    patience: Duration,
    before_answers: Option<&'a dyn BeforeAnswers>,
    metrics: &'a Metrics,
}

impl Relay {
    /// Prepares bound sockets. The TLS of their peers is not ended here, whatever the sockets say.
    ///
    /// # Errors
    /// A socket cannot be used, or the registry has listeners already.
    pub fn new(
        sockets: RelaySockets,
        (tls, target): (&MemberTls, RelayTarget),
        options: ListenOptions,
        registry: &Registry,
    ) -> Result<Self, ListenError> {
        let families = |listener| Families::new(registry, listener);
        let known = KnownNetworks::default();
        let open = |sockets, families: &Families, limits| {
            let mut acceptors = Acceptor::open(sockets, families, limits, known.clone())?;
            for acceptor in &mut acceptors {
                acceptor.greets = false;
            }
            Ok::<_, ListenError>(acceptors)
        };
        let (requests, publish) = (sockets.requests, sockets.publish);
        let requests = open(requests.0, &families("request")?, requests.1)?;
        let publish = open(publish.0, &families("publish")?, publish.1)?;
        let of_apis = families("api")?;
        let mut apis = Vec::new();
        for (door, listener) in sockets.apis.0 {
            let socket = Socket {
                listener,
                transport: Transport::Tcp,
                tls: None,
            };
            let acceptors = open(vec![socket], &of_apis, sockets.apis.1)?;
            apis.extend(acceptors.into_iter().map(|acceptor| (door, acceptor)));
        }
        let of_local = families("local")?;
        let mut subscribers = None;
        let mut local = Vec::new();
        for socket in sockets.local {
            let door = LocalDoor::new(&socket, &of_local);
            if socket.door == Door::Events {
                let again = socket.listener.try_clone().map_err(ListenError::Socket)?;
                subscribers = Some((again, Arc::clone(&door)));
            }
            local.push((socket.listener, door));
        }
        Ok(Self {
            requests,
            publish,
            apis,
            local,
            shared: Arc::new(Shared {
                client: tls.client(),
                target,
                options,
                dials: Dials::new(),
                failures: LogThrottle::new(LOG_INTERVAL),
                known,
                before_answers: sockets.before_answers,
                subscriptions: Arc::default(),
                subscribers: Mutex::new(subscribers),
                stop: CancellationToken::new(),
            }),
        })
    }

    /// A way to ask something of the active member while it is relayed to.
    pub fn asker(&self) -> RelayAsker {
        RelayAsker(Arc::clone(&self.shared))
    }

    /// Relays while a task runs; the ports are closed and all connections cut when its outcome is
    /// given.
    pub async fn serve_while<T>(self, task: impl Future<Output = T>) -> T {
        let stop = self.shared.stop.clone();
        let task = async {
            let outcome = task.await;
            stop.cancel();
            outcome
        };
        tokio::join!(self.serve(), task).1
    }

    async fn serve(self) {
        let shared = &self.shared;
        let stop = &shared.stop;
        let of_requests = start(shared, |transport| Door::new(Side::Request, transport));
        let requests = serve(self.requests, Side::Request, stop, of_requests);
        let of_publish = start(shared, |transport| Door::new(Side::Publish, transport));
        let publish = serve(self.publish, Side::Publish, stop, of_publish);
        let apis = self.apis.into_iter().map(|(door, acceptor)| {
            let of_api = start(shared, move |_| door);
            serve(vec![acceptor], Side::Request, stop, of_api)
        });
        let local = self.local.into_iter();
        let local = local.map(|(listener, door)| shared.serve_local(listener, door));
        let probing = stop.run_until_cancelled(shared.probe());
        tokio::join!(requests, publish, join_all(apis), join_all(local), probing);
        // A master that opens its own takes one that is still open for another's.
        *shared.subscribers.lock() = None;
    }
}

/// Asks something of the active member for this member itself.
pub struct RelayAsker(Arc<Shared>);

impl RelayAsker {
    /// Has the active member make a new shared key; it has taken the request when this returns.
    ///
    /// # Errors
    /// It is not reached, or cannot do it.
    pub async fn request_rotation(&self) -> io::Result<()> {
        let Some((socket, _)) = self.0.target.socket() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let mut active = self.0.ask(Door::KeyRotation, socket).await?;
        active.shutdown().await
    }
}

/// Starts the task of each connection of a port.
fn start(shared: &Arc<Shared>, door: impl Fn(Transport) -> Door) -> impl Fn(Arrival, Admission) {
    let shared = Arc::clone(shared);
    move |arrival, admission| {
        let door = door(admission.gate.transport);
        tokio::spawn(Arc::clone(&shared).carry(arrival, admission, door));
    }
}

/// Waits for the first bytes of a peer, so that one which says nothing costs no handshake.
async fn first_bytes(peer: &TcpStream, limit: Duration) -> Result<(), Close> {
    match timeout(limit, peer.readable()).await {
        Err(_) => Err(Close::HandshakeTimeout),
        Ok(Err(_)) => Err(Close::Io),
        Ok(Ok(())) if is_ended(peer) => Err(Close::PeerClosed),
        Ok(Ok(())) => Ok(()),
    }
}

/// Carries a connection until it ends, or no more is relayed, or another member is active.
async fn until_cut(
    relaying: impl Future<Output = Close>,
    (stop, cut): (&CancellationToken, &CancellationToken),
) -> Close {
    tokio::select! {
        biased;
        () = stop.cancelled() => Close::Shutdown,
        () = cut.cancelled() => Close::NoActive,
        reason = relaying => reason,
    }
}

/// The active member has closed a connection that it has not confirmed.
#[derive(Debug, thiserror::Error)]
#[error("the active member does not serve it")]
struct NotServed;

/// Waits until the active member has confirmed that it serves a connection.
async fn confirmed(active: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    match active.read_u8().await {
        Ok(CONFIRMED) => Ok(()),
        Ok(_) => Err(io::ErrorKind::InvalidData.into()),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Err(io::Error::other(NotServed))
        }
        Err(error) => Err(error),
    }
}

/// Whether a failure is the answer of a healthy active member.
fn is_refusal(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|error| error.is::<NotServed>())
}

/// Whether a peer is a program of this machine: a connection to an address of a machine that is made on it comes
/// from that address, whatever the listener is bound to.
fn is_of_this_machine(from: IpAddr, to: Option<IpAddr>) -> bool {
    let from = from.to_canonical();
    from.is_loopback() || to.is_some_and(|to| to.to_canonical() == from)
}

/// Whether a connection of ours failed because this machine has no room for another one.
fn is_exhausted(error: &io::Error) -> bool {
    // No local port is left for this destination.
    is_starved(error) || error.kind() == io::ErrorKind::AddrNotAvailable
}

impl Shared {
    async fn carry(self: Arc<Self>, arrival: Arrival, mut admission: Admission, door: Door) {
        let reason = match (arrival, self.target.socket()) {
            (Arrival::Direct(peer), Some((socket, cut))) => {
                let (gate, address) = (Arc::clone(&admission.gate), admission.peer);
                let own = peer.local_addr().ok().map(|own| own.ip());
                let is_own = is_of_this_machine(address.ip(), own);
                let passage = Passage {
                    header: Header {
                        door,
                        peer: RelayedPeer::Address(address),
                    },
                    network: network(address.ip()),
                    is_of_this_machine: is_own,
                    socket,
                    handshake: gate.limits.handshake,
                    patience: gate.limits.progress.grace,
                    before_answers: self.before_answers_to(is_own, door),
                    metrics: &gate.metrics,
                };
                let relaying = async {
                    if door.has_eager_peers() {
                        first_bytes(&peer, passage.handshake).await?;
                    }
                    let opened = || admission.opened();
                    Ok(self.relay(peer, &passage, opened).await)
                };
                let relaying = async { relaying.await.unwrap_or_else(|reason: Close| reason) };
                until_cut(relaying, (&gate.stop, &cut)).await
            }
            _ => Close::NoActive,
        };
        admission.ends(reason);
    }

    /// Preparation of the answers to a program of this machine.
    fn before_answers_to(
        &self,
        is_of_this_machine: bool,
        door: Door,
    ) -> Option<&dyn BeforeAnswers> {
        let before = self.before_answers.as_deref();
        before.filter(|_| door.is_of_requests() && is_of_this_machine)
    }

    /// Serves a unix socket until the end.
    async fn serve_local(self: &Arc<Self>, listener: UnixListener, door: Arc<LocalDoor>) {
        let served = match tokio::net::UnixListener::from_std(listener) {
            Ok(served) => served,
            Err(error) => {
                let door = door.label();
                return warn!(%error, door, "a local socket cannot be served");
            }
        };
        accept_all(&served, &self.stop, |stream| self.take_local(stream, &door)).await;
    }

    fn take_local(self: &Arc<Self>, stream: UnixStream, door: &Arc<LocalDoor>) {
        if let Some(admission) = door.admit(&stream, &self.subscriptions) {
            tokio::spawn(Arc::clone(self).carry_local(stream, admission));
        }
    }

    async fn carry_local(self: Arc<Self>, peer: UnixStream, mut admission: LocalAdmission) {
        let reason = match self.target.socket() {
            Some((socket, cut)) => {
                let door = Arc::clone(&admission.door);
                let passage = Passage {
                    header: admission.header,
                    network: Ipv4Addr::LOCALHOST.into(),
                    is_of_this_machine: false,
                    socket,
                    handshake: LOCAL_HANDSHAKE,
                    patience: door.patience,
                    before_answers: None,
                    metrics: &door.metrics,
                };
                let relaying = self.relay(peer, &passage, || admission.opened());
                until_cut(relaying, (&self.stop, &cut)).await
            }
            None => Close::NoActive,
        };
        admission.ends(reason);
    }

    /// Carries a connection to its end; `opened` is called when the active member has it.
    async fn relay(
        self: &Arc<Self>,
        peer: impl AsyncRead + AsyncWrite,
        passage: &Passage<'_>,
        opened: impl FnOnce(),
    ) -> Close {
        let way = (passage.network, passage.socket);
        let dialing = async {
            if passage.is_of_this_machine {
                self.settle_subscriptions().await;
            }
            self.reach_door(&passage.header, way).await
        };
        let dialing = timeout(passage.handshake, Box::pin(dialing));
        let active = match dialing.await {
            Ok(Ok(active)) => active,
            Ok(Err(error)) => return self.failed(passage.socket, &error),
            Err(late) => return self.failed(passage.socket, &late.into()),
        };
        opened();
        let counts = (&passage.metrics.bytes_in, &passage.metrics.bytes_out);
        let how = (passage.patience, passage.before_answers);
        match relay(peer, active, how, counts).await {
            RelayEnd::Closed => Close::PeerClosed,
            RelayEnd::Slow => Close::SlowReader,
            RelayEnd::Failed(error) => {
                debug!(peer = ?passage.header.peer, %error, "a relayed connection broke");
                Close::Io
            }
        }
    }

    /// Makes the connection to the active member, up to the header, and to its confirmation for a program
    /// of this machine.
    async fn reach_door(
        self: &Arc<Self>,
        header: &Header,
        (network, socket): (IpAddr, SocketAddr),
    ) -> io::Result<HalfClosing> {
        let turn = self.dials.turn(network).await;
        let turn = turn.map_err(io::Error::other)?;
        let mut active = self.dial(socket).await?;
        drop(turn);
        active.write_all(&header.encode()).await?;
        active.flush().await?;
        if header.door.is_local() {
            confirmed(&mut active).await?;
        }
        Ok(active)
    }

    /// Reaches a door for this member itself.
    async fn ask(self: &Arc<Self>, door: Door, socket: SocketAddr) -> io::Result<HalfClosing> {
        let header = Header {
            door,
            peer: RelayedPeer::User(rustix::process::geteuid().as_raw()),
        };
        let way = (Ipv4Addr::LOCALHOST.into(), socket);
        timeout(LOCAL_HANDSHAKE, Box::pin(self.reach_door(&header, way))).await?
    }

    /// Learns the networks of minions from the active member.
    async fn learn_networks(self: &Arc<Self>, socket: SocketAddr) -> io::Result<()> {
        let learning = async {
            let mut active = self.ask(Door::KnownNetworks, socket).await?;
            self.known.restore(read_networks(&mut active).await?);
            active.shutdown().await
        };
        timeout(LOCAL_HANDSHAKE * 2, learning).await?
    }

    /// Waits until all that subscribed before now are subscribers of the active member, also those whose
    /// connections have not been accepted yet.
    async fn settle_subscriptions(self: &Arc<Self>) {
        if let Some((listener, door)) = &*self.subscribers.lock() {
            accept_waiting(listener, |stream| self.take_local(stream, door));
        }
        self.subscriptions.settled().await;
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
        if is_refusal(error) {
            debug!(%error, "a connection is not relayed to \"{socket}\"");
            return Close::ActiveRefused;
        }
        let is_exhausted = is_exhausted(error);
        if let Some(times) = self.failures.record() {
            let why = match is_exhausted {
                true => ": this machine has no room for them",
                false => "",
            };
            warn!(%error, times, "connections cannot be relayed to \"{socket}\"{why}");
        }
        match is_exhausted {
            true => Close::Exhausted,
            false => Close::ActiveAway,
        }
    }

    /// Asks the active member again and again whether it answers, for ever. Alone here a name is looked
    /// up, so that at most a few look-ups wait for a server of names that is gone.
    async fn probe(self: &Arc<Self>) {
        let mut learned = None;
        loop {
            if let Some(address) = self.target.address() {
                let reached = timeout(PROBE_INTERVAL * 5, self.reach(&address)).await;
                let reached = reached.unwrap_or_else(|late| Err(late.into()));
                if self.target.record(&address, reached.as_ref().ok().copied()) {
                    match reached {
                        Ok(_) => info!("connections are relayed to \"{address}\""),
                        Err(error) if is_exhausted(&error) => {
                            warn!(%error, "this machine has no room for connections to \"{address}\"");
                        }
                        Err(error) => {
                            warn!(%error, "the active member at \"{address}\" does not answer");
                        }
                    }
                }
            }
            if let Some((socket, _)) = self.target.socket()
                && learned.is_none_or(|(from, at): (SocketAddr, Instant)| {
                    from != socket || at.elapsed() >= LEARN_INTERVAL
                })
            {
                let asked = self.learn_networks(socket).await;
                if let Err(error) = &asked {
                    debug!(%error, "the networks of minions are not known here");
                }
                // One of an earlier release does not know the question, and is not asked at each probe.
                if asked.is_ok() || asked.is_err_and(|error| is_refusal(&error)) {
                    learned = Some((socket, Instant::now()));
                }
            }
            sleep(PROBE_INTERVAL).await;
        }
    }

    /// Makes a connection for nobody and ends it, without a turn of those for peers; where it was made.
    async fn reach(&self, address: &str) -> io::Result<SocketAddr> {
        let mut failure = io::ErrorKind::NotFound.into();
        for socket in blocking::lookup_address(address).await? {
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
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn programs_of_this_machine_are_known_by_their_address() {
        let address = |text: &str| text.parse().expect("an address");
        for (from, to, is_own) in [
            ("127.0.0.1", "192.0.2.1", true),
            ("127.8.0.1", "192.0.2.1", true),
            ("::1", "::1", true),
            ("::ffff:127.0.0.1", "::", true),
            ("192.0.2.1", "192.0.2.1", true),
            ("::ffff:192.0.2.1", "192.0.2.1", true),
            ("2001:db8::1", "2001:db8::1", true),
            ("192.0.2.2", "192.0.2.1", false),
            ("2001:db8::2", "2001:db8::1", false),
        ] {
            let to = Some(address(to));
            assert_eq!(is_of_this_machine(address(from), to), is_own, "{from}");
        }
        assert!(!is_of_this_machine(address("192.0.2.1"), None));
    }

    #[tokio::test]
    async fn end_before_the_confirmation_is_a_refusal() {
        let refused = async |bytes: &[u8]| match confirmed(&mut &bytes[..]).await {
            Ok(()) => None,
            Err(error) => Some(is_refusal(&error)),
        };
        assert_eq!(refused(&[CONFIRMED, 7]).await, None);
        assert_eq!(refused(&[]).await, Some(true));
        assert_eq!(refused(&[CONFIRMED + 1]).await, Some(false));
        assert!(!is_refusal(&Errno::CONNREFUSED.into()));
    }

    #[test]
    fn want_of_room_here_is_no_absence_of_the_active_member() {
        for (errno, is_ours) in [
            (Errno::MFILE, true),
            (Errno::NFILE, true),
            (Errno::NOBUFS, true),
            (Errno::ADDRNOTAVAIL, true),
            (Errno::CONNREFUSED, false),
            (Errno::TIMEDOUT, false),
        ] {
            assert_eq!(is_exhausted(&errno.into()), is_ours, "{errno}");
        }
    }
}
