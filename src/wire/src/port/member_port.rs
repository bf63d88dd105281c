//! The member port of the active member of a cluster: other members relay the connections of their peers
//! to it ([`member`](crate::member)), and each is handed to the listener of its door.
//!
//! Anybody may connect, so a connection that has not shown the key of the members and its header yet
//! counts against bounds, in all and by address, and has a deadline. After it the bounds of its door hold.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::{IntCounter, Registry};
use saltern_base::log_throttle::LogThrottle;
use saltern_base::metrics::counter_vec;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_rustls::rustls::ServerConfig;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::accept::accept_each;
use super::framing::Side;
use super::network::{KnownNetworks, network, write_networks};
use super::publish::PubListener;
use super::relayed::RelayedDoor;
use super::req::ReqListener;
use super::stream::{RelayedStream, accept};
use crate::member::{
    CONFIRMED, Door, Header, HeaderError, MemberTls, RelayedConnection, RelayedConnections,
    RelayedPeer, RelayedSender,
};
use crate::net::{BoundPort, TcpStream};

/// Connections of strangers that have not shown who they are, in all and of one network; the same of
/// members, in all and of one address.
const MAX_HANDSHAKES: usize = 512;
const MAX_HANDSHAKES_OF_ONE: usize = 128;

/// Addresses from which members came that are remembered.
const MAX_MEMBERS: usize = 64;

/// Minimum time between two log lines about refusals.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Outcome of a connection: label `outcome` of `saltern_member_port_total`.
#[derive(Clone, Copy)]
enum Outcome {
    /// Handed to the listener of its door.
    HandedOver,
    /// A member that only asked whether it is answered, or for the networks of minions.
    Probe,
    /// Not that of a member.
    Tls,
    /// Too slow.
    Timeout,
    /// A header or a door that this release or configuration does not have.
    Header,
    /// Too many at once, or a failed accept.
    Refused,
}

impl Outcome {
    const ALL: [(Self, &'static str); 6] = [
        (Self::HandedOver, "handed_over"),
        (Self::Probe, "probe"),
        (Self::Tls, "tls"),
        (Self::Timeout, "timeout"),
        (Self::Header, "header"),
        (Self::Refused, "refused"),
    ];
}

/// The member port, bound and not served yet.
pub struct MemberPort {
    listener: BoundPort,
    shared: Shared,
}

struct Shared {
    tls: Arc<ServerConfig>,
    doors: Vec<RelayedDoor>,
    /// Those of other listeners.
    others: Vec<(Door, RelayedSender)>,
    known: KnownNetworks,
    handshake: Duration,
    turn: tokio::sync::Mutex<()>,
    handshakes: Mutex<Handshakes>,
    outcomes: [IntCounter; Outcome::ALL.len()],
    failures: LogThrottle,
    refusals: LogThrottle,
}

/// Members often are in one network, which strangers may be in, too: an address that has shown the key of
/// the members counts by itself, with slots that strangers do not take.
#[derive(Default)]
struct Handshakes {
    strangers: Counts,
    members: Counts,
    known: HashSet<IpAddr>,
}

#[derive(Default)]
struct Counts {
    all: usize,
    by_source: HashMap<IpAddr, usize>,
}

impl Counts {
    /// Takes a slot for a source; `false` when there is none.
    fn take(&mut self, source: IpAddr) -> bool {
        let here = self.by_source.get(&source).copied().unwrap_or_default();
        let is_taken = self.all < MAX_HANDSHAKES && here < MAX_HANDSHAKES_OF_ONE;
        if is_taken {
            self.all += 1;
            self.by_source.insert(source, here + 1);
        }
        is_taken
    }

    fn release(&mut self, source: IpAddr) {
        self.all = self.all.saturating_sub(1);
        let here = self.by_source.get(&source).copied().unwrap_or_default();
        match here {
            0 | 1 => self.by_source.remove(&source),
            _ => self.by_source.insert(source, here - 1),
        };
    }
}

/// Which slot a connection has that has not shown who it is.
#[derive(Clone, Copy)]
enum Source {
    Stranger(IpAddr),
    Member(IpAddr),
}

impl Handshakes {
    fn take(&mut self, from: IpAddr) -> Option<Source> {
        let from = from.to_canonical();
        match self.known.contains(&from) {
            true => self.members.take(from).then_some(Source::Member(from)),
            false => {
                let network = network(from);
                let is_taken = self.strangers.take(network);
                is_taken.then_some(Source::Stranger(network))
            }
        }
    }

    fn release(&mut self, source: Source) {
        match source {
            Source::Stranger(network) => self.strangers.release(network),
            Source::Member(address) => self.members.release(address),
        }
    }

    /// Remembers an address from which a member came.
    fn remember(&mut self, from: IpAddr) {
        if self.known.len() < MAX_MEMBERS {
            self.known.insert(from.to_canonical());
        }
    }
}

/// The slot of a connection that has not shown who it is.
struct Slot {
    shared: Arc<Shared>,
    source: Source,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.shared.handshakes.lock().release(self.source);
    }
}

/// Why a connection is not handed over.
enum Refused {
    Tls(std::io::Error),
    Header(HeaderError),
}

impl MemberPort {
    /// Prepares a bound port for the doors of two listeners. `handshake` is the time in which a
    /// connection has to show who it is.
    pub fn new(
        listener: BoundPort,
        tls: &MemberTls,
        (requests, publish): (&ReqListener, &PubListener),
        handshake: Duration,
        registry: &Registry,
    ) -> Self {
        let of = |acceptors, side| {
            let acceptors: &Vec<super::accept::Acceptor> = acceptors;
            let doors = acceptors.iter();
            let doors = doors.filter_map(move |acceptor| RelayedDoor::of(acceptor, side));
            doors.collect::<Vec<_>>()
        };
        let mut doors = of(&requests.doors, Side::Request);
        doors.extend(of(&publish.doors, Side::Publish));
        let outcomes = counter_vec(
            registry,
            "saltern_member_port_total",
            "Connections to the member port of a cluster, by what became of them.",
            &["outcome"],
        );
        Self {
            listener,
            shared: Shared {
                tls: tls.server(),
                doors,
                others: Vec::new(),
                known: requests.known_networks(),
                handshake,
                turn: tokio::sync::Mutex::default(),
                handshakes: Mutex::default(),
                outcomes: Outcome::ALL.map(|(_, label)| outcomes.with_label_values(&[label])),
                failures: LogThrottle::new(LOG_INTERVAL),
                refusals: LogThrottle::new(LOG_INTERVAL),
            },
        }
    }

    /// Opens a door of another listener, which gets its connections.
    pub fn open_door(&mut self, door: Door) -> RelayedConnections {
        let (sender, connections) = RelayedConnections::open();
        self.shared.others.push((door, sender));
        connections
    }

    /// Accepts until `stop`. Connections that were handed over belong to their listeners.
    pub(super) async fn serve(self, stop: &CancellationToken) {
        let Self { listener, shared } = self;
        let shared = Arc::new(shared);
        if listener.set_nonblocking().is_err() {
            warn!("the member port cannot be served");
            return;
        }
        let take = |stream, from: SocketAddr| match Shared::begin(&shared, from) {
            Some(slot) => {
                tokio::spawn(Arc::clone(&shared).take(stream, from, slot));
            }
            None => shared.count(Outcome::Refused),
        };
        let failures = (&shared.failures, |_| shared.count(Outcome::Refused));
        stop.run_until_cancelled(accept_each(&listener, take, failures))
            .await;
    }
}

impl Shared {
    fn count(&self, outcome: Outcome) {
        self.outcomes[outcome as usize].inc();
    }

    fn begin(shared: &Arc<Self>, from: SocketAddr) -> Option<Slot> {
        let source = shared.handshakes.lock().take(from.ip())?;
        Some(Slot {
            shared: Arc::clone(shared),
            source,
        })
    }

    async fn take(self: Arc<Self>, stream: TcpStream, from: SocketAddr, slot: Slot) {
        let opened = timeout(self.handshake, self.open(stream, from)).await;
        drop(slot);
        match opened {
            Err(_) => self.count(Outcome::Timeout),
            Ok(Err(Refused::Tls(error))) => {
                self.count(Outcome::Tls);
                debug!(%from, %error, "no member of this cluster");
            }
            Ok(Err(Refused::Header(HeaderError::Io(_)))) => self.count(Outcome::Probe),
            Ok(Err(Refused::Header(error))) => self.refuse(from, &error.to_string()),
            Ok(Ok((stream, header))) if header.door == Door::KnownNetworks => {
                self.count(Outcome::Probe);
                // A member that does not read it asks again.
                let _ = timeout(self.handshake, self.tell_networks(stream)).await;
            }
            Ok(Ok((stream, header))) => self.hand_over(stream, (from, header)).await,
        }
    }

    async fn open(
        &self,
        stream: TcpStream,
        from: SocketAddr,
    ) -> Result<(RelayedStream, Header), Refused> {
        let stream = accept(stream, Arc::clone(&self.tls), &self.turn).await;
        let mut stream = Box::new(stream.map_err(Refused::Tls)?);
        self.handshakes.lock().remember(from.ip());
        let header = Header::read(&mut stream).await.map_err(Refused::Header)?;
        Ok((stream, header))
    }

    async fn tell_networks(&self, mut stream: RelayedStream) -> std::io::Result<()> {
        stream.write_all(&[CONFIRMED]).await?;
        write_networks(&mut stream, &self.known).await?;
        // Closed by the other side, whose port would be kept for a minute, else.
        let _ = stream.read(&mut [0]).await;
        stream.shutdown().await
    }

    async fn hand_over(&self, stream: RelayedStream, (from, header): (SocketAddr, Header)) {
        let Header { door, peer } = header;
        let own = self.doors.iter().find(|it| it.door == door);
        let other = self.others.iter().find(|(it, _)| *it == door);
        match (own, other, peer) {
            (Some(door), _, RelayedPeer::Address(peer)) => {
                self.count(Outcome::HandedOver);
                door.take(stream, peer).await;
            }
            (None, Some((_, listener)), peer) if door.takes(peer) => {
                let is_taken = listener.send(RelayedConnection::new(stream, peer));
                self.count(match is_taken {
                    true => Outcome::HandedOver,
                    false => Outcome::Refused,
                });
            }
            _ => {
                let door = door.label();
                self.refuse(
                    from,
                    &format!("a member relays to \"{door}\", which this master does not serve"),
                );
            }
        }
    }

    fn refuse(&self, from: SocketAddr, reason: &str) {
        self.count(Outcome::Header);
        if let Some(times) = self.refusals.record() {
            warn!(%from, times, "a relayed connection is refused: {reason}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// Connections from an address that get a slot.
    fn flood(handshakes: &mut Handshakes, from: IpAddr) -> Vec<Source> {
        std::iter::from_fn(|| handshakes.take(from)).collect()
    }

    #[test]
    fn strangers_of_a_members_network_take_none_of_its_slots() {
        let mut handshakes = Handshakes::default();
        let (one, other) = (address("2001:db8::1"), address("2001:db8::2"));
        handshakes.remember(one);
        handshakes.remember(other);
        let strangers = flood(&mut handshakes, address("2001:db8::bad"));
        assert_eq!(strangers.len(), MAX_HANDSHAKES_OF_ONE);
        assert!(handshakes.take(address("2001:db8::3")).is_none());
        let members = flood(&mut handshakes, one);
        assert_eq!(members.len(), MAX_HANDSHAKES_OF_ONE);
        let others = flood(&mut handshakes, other);
        assert_eq!(others.len(), MAX_HANDSHAKES_OF_ONE);
        for source in strangers.into_iter().chain(members).chain(others) {
            handshakes.release(source);
        }
        assert!(handshakes.strangers.by_source.is_empty());
        assert!(handshakes.members.by_source.is_empty());
        assert_eq!((handshakes.strangers.all, handshakes.members.all), (0, 0));
    }

    #[test]
    fn handshakes_and_known_members_are_bounded() {
        let mut handshakes = Handshakes::default();
        let mut taken = 0;
        for network in 0..8_u32 {
            taken += flood(&mut handshakes, IpAddr::V4(network.into())).len();
        }
        assert_eq!(taken, MAX_HANDSHAKES);
        for member in 0..2 * u32::try_from(MAX_MEMBERS).expect("small") {
            handshakes.remember(IpAddr::V4(member.into()));
        }
        assert_eq!(handshakes.known.len(), MAX_MEMBERS);
    }
}
