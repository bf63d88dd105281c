//! Request listener.
//!
//! One task for each connection reads a request, passes it to the [`RequestSink`] and writes the
//! reply that comes back through the [`ReplyHandle`], from whatever thread. A reply goes to the
//! requesting connection, never to the current holder of its identity, so a late reply cannot
//! reach a stranger. A full sink blocks only the sockets whose requests it does not take.

mod answers;
mod connection;
mod conversation;
mod inside;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use prometheus::Registry;
use saltern_base::metrics::gauge_on_scrape;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::accept::{Acceptor, Admission, Socket, serve};
use super::framing::{Side, Transport};
use super::limits::ReqLimits;
use super::listen::ListenError;
use super::member_port::MemberPort;
use super::metrics::{Close, Families};
use super::network::KnownNetworks;
use super::quota::{Budget, Share};
use super::stream::Arrival;
use super::wake_list::WakeList;

use self::answers::AnswerBudget;
use self::connection::{Connection, Reply};
use self::conversation::converse;
pub use self::inside::InsideListener;
use self::inside::InsideReply;

/// Memory of a message beyond its payload: its headers and envelope.
const MARGIN: usize = 16 << 10;

/// Receiver of the requests of all connections.
pub trait RequestSink: Send + Sync + 'static {
    /// Takes the request, or gives it back if there is no room now.
    ///
    /// # Errors
    ///
    /// The request itself; [`Self::deliver`] is called with it next.
    #[expect(
        clippy::result_large_err,
        reason = "it is the request that goes back, and a box for each would cost more"
    )]
    fn try_deliver(&self, incoming: Incoming) -> Result<(), Incoming>;

    /// Takes the request when there is room. The connection is not read meanwhile.
    fn deliver(&self, incoming: Incoming) -> BoxFuture<'_, ()>;
}

/// A request.
pub struct Incoming {
    /// Its sender.
    pub peer: Peer,
    /// The request: one packed value.
    pub payload: Bytes,
    /// When it was complete.
    pub received: Instant,
    /// The handle for its reply.
    pub reply: ReplyHandle,
}

/// Standing of a peer, known before its request is read, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// It has authenticated on this connection.
    Proved,
    /// A minion has lately authenticated in its network.
    Known,
    /// Nothing.
    Unknown,
    /// Requests were refused, and none was authenticated since.
    Suspect,
}

impl Standing {
    /// Every standing, the best first.
    pub const ALL: [Self; 4] = [Self::Proved, Self::Known, Self::Unknown, Self::Suspect];
}

/// Sender of a request.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The other end of the connection.
    pub address: SocketAddr,
    /// Number of the connection, never reused by a listener.
    pub connection: u64,
    /// The identity that the peer gave (ZeroMQ), or five bytes starting with 0 as a substitute.
    pub identity: Bytes,
}

/// Handle for the one reply to a request.
///
/// Dropped without a reply, it sends the listener's `unanswered` reply, so that no client waits
/// for a lost request.
pub struct ReplyHandle {
    /// `None` once the reply is sent.
    receiver: Option<Receiver>,
    /// Boxed, because most requests have neither.
    extras: Option<Box<Extras>>,
}

/// Receiver of a reply.
enum Receiver {
    /// A connection of the listener.
    Connection(Arc<Connection>),
    /// A task of this process.
    Inside(InsideReply),
}

/// Optional parts of a request.
struct Extras {
    envelope: Vec<Bytes>,
    /// The request's share of the budget; freed with the reply.
    _share: Share,
}

impl ReplyHandle {
    /// Sends the reply. From any thread, without waiting; dropped silently if the connection is
    /// closed.
    pub fn send(mut self, payload: Bytes) {
        self.complete(payload);
    }

    /// Closes the connection instead of replying. A stock client takes that for silence: it
    /// retries after its own timeout, and until then costs neither side anything.
    pub fn hang_up(mut self) {
        self.extras = None;
        if let Some(Receiver::Connection(connection)) = self.receiver.take() {
            connection.gate.metrics.unanswered.inc();
            connection.end(Close::Overload);
        }
    }

    /// The listener for whose client a task of this process asks; `None` for a connection.
    pub fn inside(&self) -> Option<InsideListener> {
        match &self.receiver {
            Some(Receiver::Inside(inside)) => Some(inside.listener()),
            _ => None,
        }
    }

    /// Marks the peer as authenticated: from its next message on, this connection has the limits
    /// `after_auth`, and so have new connections from the same address. Stock minions reconnect
    /// for every request, so without the latter they could never send a large return.
    pub fn authenticated(&self) {
        if let Some(connection) = self.connection() {
            connection.authenticated();
        }
    }

    /// Records that the request was refused: it authenticates nothing. After several of them in a
    /// row the connection is closed behind its reply ([`ReqLimits::refusals`]).
    pub fn refused(&self) {
        if let Some(connection) = self.connection() {
            connection.refused();
        }
    }

    /// The peer's standing.
    pub fn standing(&self) -> Standing {
        match &self.receiver {
            Some(Receiver::Connection(connection)) => connection.standing(),
            Some(Receiver::Inside(inside)) => inside.standing(),
            None => Standing::Unknown,
        }
    }

    /// The peer's transport; of a task of this process, which has none, ZeroMQ.
    pub fn transport(&self) -> Transport {
        let connection = self.connection();
        connection.map_or(Transport::ZeroMq, |connection| connection.gate.transport)
    }

    /// Whether the connection is closed, so that the reply reaches no peer.
    pub fn is_gone(&self) -> bool {
        match &self.receiver {
            Some(Receiver::Connection(connection)) => connection.is_closed(),
            Some(Receiver::Inside(inside)) => inside.is_gone(),
            None => true,
        }
    }

    fn connection(&self) -> Option<&Arc<Connection>> {
        match &self.receiver {
            Some(Receiver::Connection(connection)) => Some(connection),
            Some(Receiver::Inside(_)) | None => None,
        }
    }

    fn complete(&mut self, payload: Bytes) {
        match self.receiver.take() {
            Some(Receiver::Connection(connection)) => {
                let envelope = self
                    .extras
                    .take()
                    .map(|extras| extras.envelope)
                    .unwrap_or_default();
                connection.reply(Reply::new(envelope, payload));
            }
            Some(Receiver::Inside(inside)) => inside.send(payload),
            None => {}
        }
    }
}

impl Drop for ReplyHandle {
    fn drop(&mut self) {
        // A task of this process sees its own end of the channel closed.
        if let Some(Receiver::Connection(connection)) = &self.receiver {
            connection.gate.metrics.unanswered.inc();
            let payload = connection.core.limits.unanswered.clone();
            self.complete(payload);
        }
    }
}

/// The listener on the request port.
pub struct ReqListener {
    pub(super) doors: Vec<Acceptor>,
    core: Arc<Core>,
    /// Served with it, on the same thread.
    member_port: Option<MemberPort>,
}

impl ReqListener {
    /// Prepares bound sockets, one for each transport.
    ///
    /// # Errors
    ///
    /// A socket cannot be registered, or the registry has a request listener already.
    pub fn new(
        sockets: Vec<Socket>,
        limits: ReqLimits,
        registry: &Registry,
    ) -> Result<Self, ListenError> {
        let families = Families::new(registry, "request")?;
        let networks = KnownNetworks::default();
        let doors = Acceptor::open(sockets, &families, limits.peers, networks.clone())?;
        // A quarter for strangers, so that they cannot keep out known peers. Either part has room
        // for one message of the largest size.
        let strangers = (limits.in_flight / 4).max(limits.before_auth.message + MARGIN);
        let known =
            (limits.in_flight - limits.in_flight / 4).max(limits.after_auth.message + MARGIN);
        let core = Core {
            strangers: Budget::new(strangers),
            known: Budget::new(known),
            answers_to_strangers: AnswerBudget::new(limits.answers / 4),
            answers_to_known: AnswerBudget::new(limits.answers - limits.answers / 4),
            wake_list: WakeList::new(),
            identities: Mutex::default(),
            networks,
            limits,
        };
        core.measure(registry);
        Ok(Self {
            doors,
            core: Arc::new(core),
            member_port: None,
        })
    }

    /// The known networks, which this listener extends.
    pub fn known_networks(&self) -> KnownNetworks {
        self.core.networks.clone()
    }

    /// Serves the member port, too.
    pub fn serve_members(&mut self, port: MemberPort) {
        self.member_port = Some(port);
    }

    /// Serves until `stop`: then accepts and reads no more, sends outstanding replies within the
    /// drain time, closes every connection and returns.
    pub async fn serve(self, sink: Arc<dyn RequestSink>, stop: CancellationToken) {
        let core = &self.core;
        let start = |arrival: Arrival, admission: Admission| {
            let (core, sink) = (Arc::clone(core), Arc::clone(&sink));
            tokio::spawn(converse(arrival, admission, core, sink));
        };
        let serving = serve(self.doors, Side::Request, &stop, start);
        let of_members = async {
            if let Some(port) = self.member_port {
                port.serve(&stop).await;
            }
        };
        let serving = async { tokio::join!(serving, of_members) };
        tokio::select! {
            ((), ()) = serving => {}
            () = core.wake_list.answer(Connection::wake) => {}
        }
    }
}

/// State shared by the connections.
struct Core {
    strangers: Budget,
    known: Budget,
    answers_to_strangers: Arc<AnswerBudget>,
    answers_to_known: Arc<AnswerBudget>,
    wake_list: WakeList<Connection>,
    identities: Mutex<HashMap<Bytes, Arc<Connection>>>,
    networks: KnownNetworks,
    limits: ReqLimits,
}

impl Core {
    /// Exposes the use of the budgets.
    fn measure(&self, registry: &Registry) {
        let (strangers, known) = (self.strangers.clone(), self.known.clone());
        let answers = [&self.answers_to_strangers, &self.answers_to_known].map(Arc::clone);
        gauge_on_scrape(
            registry,
            "saltern_port_held_bytes",
            "Bytes of large requests, and of replies that wait for their readers, that count \
             against a budget, by whose they are.",
            &["kind", "peers"],
            move |gauges| {
                let [to_strangers, to_known] = &answers;
                for (kind, peers, held) in [
                    ("requests", "strangers", strangers.held()),
                    ("requests", "known", known.held()),
                    ("replies", "strangers", to_strangers.held()),
                    ("replies", "known", to_known.held()),
                ] {
                    let held = i64::try_from(held).unwrap_or(i64::MAX);
                    gauges.with_label_values(&[kind, peers]).set(held);
                }
            },
        );
    }
}
