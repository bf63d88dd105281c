//! The member port of the active member of a cluster: other members relay the connections of their peers
//! to it ([`member`](crate::member)), and each is handed to the listener of its door.
//!
//! Anybody may connect, so a connection that has not shown the key of the members and its header yet
//! counts against bounds, in all and by address, and has a deadline. After it the bounds of its door hold.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::{IntCounter, Registry};
use saltern_base::log_throttle::LogThrottle;
use saltern_base::metrics::counter_vec;
use tokio::time::timeout;
use tokio_rustls::rustls::ServerConfig;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::accept::accept_each;
use super::framing::Side;
use super::network::network;
use super::publish::PubListener;
use super::relayed::RelayedDoor;
use super::req::ReqListener;
use super::stream::{RelayedStream, accept};
use crate::member::{Header, HeaderError, MemberTls, RelayedPeer};
use crate::net::{BoundPort, TcpStream};

/// Connections that have not shown who they are, in all and of one address.
const MAX_HANDSHAKES: usize = 512;
const MAX_HANDSHAKES_PER_ADDRESS: usize = 128;

/// Minimum time between two log lines about refusals.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Outcome of a connection: label `outcome` of `saltern_member_port_total`.
#[derive(Clone, Copy)]
enum Outcome {
    /// Handed to the listener of its door.
    HandedOver,
    /// A member that only asked whether it is answered.
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
    shared: Arc<Shared>,
}

struct Shared {
    tls: Arc<ServerConfig>,
    doors: Vec<RelayedDoor>,
    handshake: Duration,
    turn: tokio::sync::Mutex<()>,
    handshakes: Mutex<Handshakes>,
    outcomes: [IntCounter; Outcome::ALL.len()],
    failures: LogThrottle,
    refusals: LogThrottle,
}

#[derive(Default)]
struct Handshakes {
    all: usize,
    by_network: HashMap<IpAddr, usize>,
}

/// The slot of a connection that has not shown who it is.
struct Slot {
    shared: Arc<Shared>,
    network: IpAddr,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut handshakes = self.shared.handshakes.lock();
        handshakes.all = handshakes.all.saturating_sub(1);
        let here = handshakes.by_network.get_mut(&self.network);
        let rest = here.map_or(0, |here| {
            *here = here.saturating_sub(1);
            *here
        });
        if rest == 0 {
            handshakes.by_network.remove(&self.network);
        }
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
            shared: Arc::new(Shared {
                tls: tls.server(),
                doors,
                handshake,
                turn: tokio::sync::Mutex::default(),
                handshakes: Mutex::default(),
                outcomes: Outcome::ALL.map(|(_, label)| outcomes.with_label_values(&[label])),
                failures: LogThrottle::new(LOG_INTERVAL),
                refusals: LogThrottle::new(LOG_INTERVAL),
            }),
        }
    }

    /// Accepts until `stop`. Connections that were handed over belong to their listeners.
    pub(super) async fn serve(self, stop: &CancellationToken) {
        let Self { listener, shared } = self;
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
        let network = network(from.ip());
        let mut handshakes = shared.handshakes.lock();
        let here = handshakes
            .by_network
            .get(&network)
            .copied()
            .unwrap_or_default();
        if handshakes.all >= MAX_HANDSHAKES || here >= MAX_HANDSHAKES_PER_ADDRESS {
            return None;
        }
        handshakes.all += 1;
        handshakes.by_network.insert(network, here + 1);
        Some(Slot {
            shared: Arc::clone(shared),
            network,
        })
    }

    async fn take(self: Arc<Self>, stream: TcpStream, from: SocketAddr, slot: Slot) {
        let opened = timeout(self.handshake, self.open(stream)).await;
        drop(slot);
        match opened {
            Err(_) => self.count(Outcome::Timeout),
            Ok(Err(Refused::Tls(error))) => {
                self.count(Outcome::Tls);
                debug!(%from, %error, "no member of this cluster");
            }
            Ok(Err(Refused::Header(HeaderError::Io(_)))) => self.count(Outcome::Probe),
            Ok(Err(Refused::Header(error))) => self.refuse(from, &error.to_string()),
            Ok(Ok((stream, header))) => self.hand_over(stream, (from, header)).await,
        }
    }

    async fn open(&self, stream: TcpStream) -> Result<(RelayedStream, Header), Refused> {
        let stream = accept(stream, Arc::clone(&self.tls), &self.turn).await;
        let mut stream = Box::new(stream.map_err(Refused::Tls)?);
        let header = Header::read(&mut stream).await.map_err(Refused::Header)?;
        Ok((stream, header))
    }

    async fn hand_over(&self, stream: RelayedStream, (from, header): (SocketAddr, Header)) {
        let mut doors = self.doors.iter();
        match (doors.find(|it| it.door == header.door), header.peer) {
            (Some(door), RelayedPeer::Address(peer)) => {
                self.count(Outcome::HandedOver);
                door.take(stream, peer).await;
            }
            _ => {
                let door = header.door.label();
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
