//! Accepts connections for both listeners, with admission control.
//!
//! Accepting never ends by an error and never spins: without file descriptors it pauses, and a
//! connection over a limit is closed at once. The transport's first bytes are sent with one system
//! call before the connection has a task.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use rustix::io::Errno;
use saltern_base::log_throttle::LogThrottle;
use saltern_base::planted_bug::PlantedBug;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::framing::{Side, Transport};
use super::limits::PeerLimits;
use super::listen::ListenError;
use super::metrics::{Close, Families, Metrics, Refusal, State};
use super::network::{KnownNetworks, NetworkWatch, network};
use super::relayed::RelayedQueue;
use super::stream::{Arrival, Stream};
use super::tls::Tls;
use crate::net::{BoundPort, ServedPort, TcpStream, send_at_once};

/// Pause after an accept that failed for want of file descriptors or memory.
const STARVED_PAUSE: Duration = Duration::from_millis(100);

/// A persistent shortage is logged at most once per `LOG_INTERVAL`.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// One connection in this many is reserved for known networks.
const RESERVED: usize = 8;

/// One known network may have this fraction of the reserve; its other connections count with those
/// of unknown networks, or one host of a minion could take the whole reserve.
const NETWORKS_IN_RESERVE: usize = 4;

/// A bound socket (see [`bind`](super::bind)) and its transport.
pub struct Socket {
    /// The socket.
    pub listener: BoundPort,
    /// Its transport.
    pub transport: Transport,
    /// TLS, if configured. Ignored for ZeroMQ, which has none.
    pub tls: Option<Tls>,
}

impl From<std::net::TcpListener> for Socket {
    /// ZeroMQ, as in stock by default.
    fn from(listener: std::net::TcpListener) -> Self {
        Self {
            listener: listener.into(),
            transport: Transport::ZeroMq,
            tls: None,
        }
    }
}

/// A socket that is ready to be served. It belongs to no runtime before that: the runtime that
/// opened it would be woken for each connection, only to wake the one that serves it.
pub(super) struct Acceptor {
    listener: BoundPort,
    pub(super) gate: Arc<Gate>,
    /// Whether the transport's first bytes are sent: a relay leaves them to the active member.
    pub(super) greets: bool,
    /// Connections that other members relay.
    pub(super) relayed: RelayedQueue,
}

impl Acceptor {
    /// Prepares the sockets of one listener; they share its limits.
    pub(super) fn open(
        sockets: Vec<Socket>,
        families: &Families,
        limits: PeerLimits,
        known: KnownNetworks,
    ) -> Result<Vec<Self>, ListenError> {
        let crowd = Arc::new(ConnectionTable {
            known: known.clone(),
            counts: Mutex::new(Counts::new(limits)),
            ..ConnectionTable::default()
        });
        let watch: Weak<dyn NetworkWatch> = Arc::<ConnectionTable>::downgrade(&crowd);
        known.watch(watch);
        let doors = sockets.into_iter().map(|socket| {
            let Socket {
                listener,
                transport,
                tls,
            } = socket;
            listener.set_nonblocking().map_err(ListenError::Socket)?;
            let gate = Arc::new(Gate {
                metrics: Metrics::new(families, transport),
                limits,
                stop: crowd.stop.clone(),
                kill: crowd.kill.clone(),
                transport,
                tls: tls.filter(|_| transport != Transport::ZeroMq),
                tls_turn: tokio::sync::Mutex::default(),
                failures: LogThrottle::new(LOG_INTERVAL),
                crowd: Arc::clone(&crowd),
            });
            Ok(Self {
                listener,
                gate,
                greets: true,
                relayed: RelayedQueue::new(),
            })
        });
        doors.collect()
    }
}

/// State shared by all connections of one listener, over all transports.
#[derive(Default)]
struct ConnectionTable {
    stop: CancellationToken,
    kill: CancellationToken,
    numbers: AtomicU64,
    counts: Mutex<Counts>,
    known: KnownNetworks,
    emptied: Notify,
}

/// State shared by all connections of one socket.
pub(super) struct Gate {
    pub(super) metrics: Metrics,
    pub(super) limits: PeerLimits,
    /// Cancelled when no new connections or requests are accepted.
    pub(super) stop: CancellationToken,
    /// Cancelled when the drain time is over.
    pub(super) kill: CancellationToken,
    pub(super) transport: Transport,
    tls: Option<Tls>,
    /// Serializes TLS handshakes.
    pub(super) tls_turn: tokio::sync::Mutex<()>,
    failures: LogThrottle,
    crowd: Arc<ConnectionTable>,
}

#[derive(Default)]
struct Counts {
    limits: PeerLimits,
    all: usize,
    /// Connections without a claim to the reserve.
    unreserved: usize,
    by_network: HashMap<IpAddr, NetworkCount>,
}

#[derive(Clone, Copy, Default)]
struct NetworkCount {
    connections: usize,
    /// Whether the network is known, or became known while it had connections.
    is_known: bool,
}

impl NetworkCount {
    /// Its connections without a claim to the reserve, of which one network may have `share`.
    fn unreserved(self, share: usize) -> usize {
        match self.is_known {
            true => self.connections.saturating_sub(share),
            false => self.connections,
        }
    }
}

impl Counts {
    fn new(limits: PeerLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    fn reserve(&self) -> usize {
        self.limits.connections / RESERVED
    }

    /// Admits a connection, if there is a slot for it.
    fn admit(&mut self, network: IpAddr, is_known: bool) -> Result<(), Refusal> {
        if is_known {
            self.becomes_known(network);
        }
        if self.all >= self.limits.connections {
            return Err(Refusal::Connections);
        }
        let before = self.by_network.get(&network).copied().unwrap_or_default();
        let here = NetworkCount {
            connections: before.connections + 1,
            is_known: before.is_known || is_known,
        };
        let share = self.share();
        let takes = here.unreserved(share) > before.unreserved(share);
        if takes && self.unreserved >= self.limits.connections - self.reserve() {
            return Err(Refusal::Reserved);
        }
        if here.connections > self.limits.per_address {
            return Err(Refusal::PerAddress);
        }
        self.set(network, here);
        Ok(())
    }

    /// The connections of this network have a claim to the reserve from now on.
    fn becomes_known(&mut self, network: IpAddr) {
        if let Some(here) = self.by_network.get(&network).copied() {
            let is_known = true;
            self.set(network, NetworkCount { is_known, ..here });
        }
    }

    /// Releases a connection's slot.
    fn release(&mut self, network: IpAddr) {
        if let Some(here) = self.by_network.get(&network).copied() {
            let connections = here.connections.saturating_sub(1);
            self.set(
                network,
                NetworkCount {
                    connections,
                    ..here
                },
            );
        }
    }

    /// Connections of one known network with a claim to the reserve.
    fn share(&self) -> usize {
        (self.reserve() / NETWORKS_IN_RESERVE).max(1)
    }

    fn set(&mut self, network: IpAddr, after: NetworkCount) {
        let share = self.share();
        let before = match after.connections {
            0 => self.by_network.remove(&network),
            _ => self.by_network.insert(network, after),
        };
        let before = before.unwrap_or_default();
        self.all = self.all - before.connections + after.connections;
        self.unreserved = self.unreserved - before.unreserved(share) + after.unreserved(share);
    }
}

/// One connection's slot. Dropping it frees the slot and counts the reason.
pub(super) struct Admission {
    pub(super) gate: Arc<Gate>,
    pub(super) peer: SocketAddr,
    /// Number of the connection, never reused by this listener.
    pub(super) number: u64,
    /// Whether its network was known at its start.
    pub(super) is_known: bool,
    state: State,
    reason: Close,
}

impl Gate {
    /// A slot for a connection; one without is counted.
    pub(super) fn admit(self: &Arc<Self>, peer: SocketAddr) -> Option<Admission> {
        match self.try_admit(peer) {
            Ok(admission) => Some(admission),
            Err(refusal) => {
                self.metrics.refused(refusal).inc();
                debug!(%peer, reason = refusal.label(), "refused");
                None
            }
        }
    }

    fn try_admit(self: &Arc<Self>, peer: SocketAddr) -> Result<Admission, Refusal> {
        let network = network(peer.ip());
        let is_known = {
            let mut counts = self.crowd.counts.lock();
            // Looked up with the lock held: a network that becomes known from now on is counted.
            let is_known = self.crowd.known.contains(network);
            counts.admit(network, is_known)?;
            is_known
        };
        self.metrics.accepted.inc();
        self.metrics.connections(State::Handshake).inc();
        Ok(Admission {
            gate: Arc::clone(self),
            peer,
            number: self.crowd.numbers.fetch_add(1, Ordering::Relaxed) + 1,
            is_known,
            state: State::Handshake,
            reason: Close::Panic,
        })
    }

    /// The stream of a fresh connection, inside TLS where configured.
    pub(super) async fn stream(self: &Arc<Self>, arrival: Arrival) -> Result<Stream, Close> {
        Stream::open(
            arrival,
            self.tls.as_ref().map(|tls| Arc::clone(&tls.config)),
            self,
        )
        .await
    }
}

impl NetworkWatch for ConnectionTable {
    fn became_known(&self, network: IpAddr) {
        self.counts.lock().becomes_known(network);
    }
}

impl ConnectionTable {
    /// Ends every connection: first gracefully, after the drain time by force.
    async fn finish(&self, drain: Duration) {
        self.stop.cancel();
        let emptied = async {
            loop {
                let notified = self.emptied.notified();
                if self.counts.lock().all == 0 {
                    return;
                }
                notified.await;
            }
        };
        let mut emptied = pin!(emptied);
        if tokio::time::timeout(drain, &mut emptied).await.is_err() {
            self.kill.cancel();
            // All but those whose request a full sink has not taken yet.
            let _ = tokio::time::timeout(drain, emptied).await;
        }
    }
}

impl Admission {
    /// The handshake is complete.
    pub(super) fn opened(&mut self) {
        self.gate.metrics.connections(self.state).dec();
        self.state = State::Open;
        self.gate.metrics.connections(self.state).inc();
    }

    /// Sets the reason why the connection ends; without it, dropping counts a panic.
    pub(super) fn ends(&mut self, reason: Close) {
        self.reason = reason;
        debug!(peer = %self.peer, connection = self.number, reason = reason.label(), "closed");
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.gate.metrics.connections(self.state).dec();
        self.gate.metrics.closed(self.reason).inc();
        let mut counts = self.gate.crowd.counts.lock();
        if PlantedBug::SlotsNotReleased.is_planted() {
            return;
        }
        counts.release(network(self.peer.ip()));
        if counts.all == 0 {
            self.gate.crowd.emptied.notify_waiters();
        }
    }
}

/// Accepts on the runtime that polls this until `stop`, then ends the connections; returns when
/// all are gone.
pub(super) async fn serve(
    doors: Vec<Acceptor>,
    side: Side,
    stop: &CancellationToken,
    start: impl Fn(Arrival, Admission),
) {
    let Some(first) = doors.first() else {
        return stop.cancelled().await;
    };
    let (crowd, drain) = (Arc::clone(&first.gate.crowd), first.gate.limits.drain);
    // Dropping this future ends the connections too: nothing would wake them any more.
    let _ended = (
        crowd.stop.clone().drop_guard(),
        crowd.kill.clone().drop_guard(),
    );
    let accepting = doors.into_iter().map(|door| accept(door, side, &start));
    stop.run_until_cancelled(futures_util::future::join_all(accepting))
        .await;
    crowd.finish(drain).await;
}

/// Accepts connections of one socket, and takes those that members relay to it, for ever.
async fn accept(door: Acceptor, side: Side, start: &impl Fn(Arrival, Admission)) {
    let Acceptor {
        listener,
        gate,
        greets,
        mut relayed,
    } = door;
    // Only ZeroMQ sends first, and never inside TLS.
    let hello = match greets {
        true => gate.transport.hello(side),
        false => Bytes::new(),
    };
    let own = accept_each(
        &listener,
        |stream, peer| {
            if let Some(admission) = take(&stream, peer, &gate, &hello) {
                start(Arrival::Direct(stream), admission);
            }
        },
        (&gate.failures, |refusal| {
            gate.metrics.refused(refusal).inc()
        }),
    );
    let of_members = async {
        loop {
            let (stream, admission) = relayed.next().await;
            start(Arrival::Relayed(stream), admission);
        }
    };
    tokio::select! {
        () = own => {}
        () = of_members => {}
    }
}

/// Accepts connections of one socket, for ever; each failure is counted, and logged now and then.
pub(super) async fn accept_each(
    port: &BoundPort,
    mut take: impl FnMut(TcpStream, SocketAddr),
    (failures, count): (&LogThrottle, impl Fn(Refusal)),
) {
    let listener = registered(port, (failures, &count)).await;
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => take(stream, peer),
            Err(error) => accept_failed(&error, (failures, &count)).await,
        }
    }
}

/// Registers a socket with the runtime; without room there, as soon as there is some.
async fn registered(
    port: &BoundPort,
    (failures, count): (&LogThrottle, &impl Fn(Refusal)),
) -> ServedPort {
    loop {
        match port.register() {
            Ok(taken) => return taken,
            Err(error) => accept_failed(&error, (failures, count)).await,
        }
    }
}

fn take(stream: &TcpStream, peer: SocketAddr, gate: &Arc<Gate>, hello: &[u8]) -> Option<Admission> {
    let mut admission = gate.admit(peer)?;
    if hello.is_empty() {
        return Some(admission);
    }
    match send_at_once(stream, hello) {
        Ok(sent) if sent == hello.len() => {
            gate.metrics
                .bytes_out
                .inc_by(u64::try_from(sent).unwrap_or(0));
            Some(admission)
        }
        // A fresh socket that cannot take 100 bytes is broken already.
        _ => {
            admission.ends(Close::Io);
            None
        }
    }
}

/// Whether this process or machine has no descriptors or memory left.
pub(super) fn is_starved(error: &std::io::Error) -> bool {
    let starved = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    Errno::from_io_error(error).is_some_and(|errno| starved.contains(&errno))
}

async fn accept_failed(
    error: &std::io::Error,
    (failures, count): (&LogThrottle, &impl Fn(Refusal)),
) {
    match Errno::from_io_error(error) {
        _ if is_starved(error) => {
            count(Refusal::Descriptors);
            if let Some(times) = failures.record() {
                warn!(%error, times, "cannot accept connections; those who are connected are served");
            }
            tokio::time::sleep(STARVED_PAUSE).await;
        }
        // The peer was gone before the accept; Linux also reports its network errors here.
        Some(
            Errno::CONNABORTED
            | Errno::INTR
            | Errno::PROTO
            | Errno::NETDOWN
            | Errno::NETUNREACH
            | Errno::HOSTUNREACH
            | Errno::HOSTDOWN
            | Errno::NONET
            | Errno::OPNOTSUPP
            | Errno::PERM,
        ) => {
            count(Refusal::Accept);
            tokio::task::yield_now().await;
        }
        _ => {
            count(Refusal::Accept);
            if let Some(times) = failures.record() {
                warn!(%error, times, "cannot accept a connection");
            }
            tokio::time::sleep(STARVED_PAUSE).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts() -> Counts {
        Counts::new(PeerLimits {
            connections: 64,
            per_address: 64,
            ..PeerLimits::default()
        })
    }

    fn network(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    /// Connections that are admitted, until one is refused.
    fn fill(counts: &mut Counts, last: u8, is_known: bool) -> (usize, Refusal) {
        let mut admitted = 0;
        loop {
            match counts.admit(network(last), is_known) {
                Ok(()) => admitted += 1,
                Err(refusal) => return (admitted, refusal),
            }
        }
    }

    #[test]
    fn known_network_has_no_more_than_its_share_of_reserve() {
        let mut counts = counts();
        assert_eq!(fill(&mut counts, 1, false), (56, Refusal::Reserved));
        assert_eq!(fill(&mut counts, 2, true), (2, Refusal::Reserved));
        assert_eq!(fill(&mut counts, 3, true), (2, Refusal::Reserved));
        // A place of strangers is one for a known network, too, whichever comes first.
        counts.release(network(1));
        assert_eq!(fill(&mut counts, 2, true), (1, Refusal::Reserved));
        assert_eq!(fill(&mut counts, 1, false), (0, Refusal::Reserved));
        for last in 4..6 {
            assert_eq!(fill(&mut counts, last, true).0, 2);
        }
        assert_eq!(fill(&mut counts, 6, true), (0, Refusal::Connections));
    }

    /// Also when it came before the strangers.
    #[test]
    fn known_network_that_came_first_leaves_the_reserve_to_others() {
        let mut counts = counts();
        for _ in 0..30 {
            counts.admit(network(2), true).expect("there is room");
        }
        assert_eq!(fill(&mut counts, 1, false), (28, Refusal::Reserved));
        assert_eq!(fill(&mut counts, 3, true), (2, Refusal::Reserved));
    }

    #[test]
    fn counts_return_to_zero() {
        let mut counts = counts();
        for _ in 0..10 {
            counts.admit(network(1), false).expect("there is room");
        }
        assert_eq!((counts.all, counts.unreserved), (10, 10));
        counts.becomes_known(network(1));
        counts.becomes_known(network(2));
        assert_eq!((counts.all, counts.unreserved), (10, 8));
        for _ in 0..10 {
            counts.release(network(1));
        }
        assert_eq!((counts.all, counts.unreserved), (0, 0));
        assert!(counts.by_network.is_empty());
    }
}
