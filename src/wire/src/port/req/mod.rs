//! The request listener.
//!
//! One task a connection reads a request, hands it to the [`RequestSink`] and writes the reply
//! that comes back through the [`ReplyHandle`], from whatever thread. A reply goes to the
//! connection that asked, never to whoever has its identity now, so a late reply cannot reach a
//! stranger. A sink that is full holds up the sockets whose requests it does not take, nothing
//! else.

mod connection;
mod conversation;

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use prometheus::Registry;
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::accept::{Admission, Door, Socket, serve};
use super::bell::Bell;
use super::framing::{Side, Transport};
use super::limits::ReqLimits;
use super::listen::ListenError;
use super::metrics::{Close, Families};
use super::quota::{Budget, Share};

use self::connection::{Connection, Reply};
use self::conversation::converse;

/// Most addresses that are remembered as known. A site with more loses nothing but the head
/// start of a new connection.
const KNOWN_ADDRESSES: usize = 1 << 16;

/// What a message holds beyond its payload: its headers and envelope.
const MARGIN: usize = 16 << 10;

/// Takes the requests of all connections.
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
    /// Who asks.
    pub peer: Peer,
    /// What was asked: one packed value.
    pub payload: Bytes,
    /// When it had come in.
    pub received: Instant,
    /// The way back.
    pub reply: ReplyHandle,
}

/// Who sent a request.
#[derive(Clone, Debug)]
pub struct Peer {
    /// The other end of the connection.
    pub address: SocketAddr,
    /// Number of the connection, never used twice by a listener.
    pub connection: u64,
    /// The identity that the peer gave (ZeroMQ), or five bytes starting with 0 that stand for
    /// none.
    pub identity: Bytes,
}

/// The one reply to a request.
///
/// Dropped without a reply, it sends the listener's `unanswered` reply, so that no client waits
/// for a request that was lost.
pub struct ReplyHandle {
    connection: Option<Arc<Connection>>,
    /// Boxed, because most requests have neither.
    extras: Option<Box<Extras>>,
}

/// What only some requests have.
struct Extras {
    envelope: Vec<Bytes>,
    /// What the request holds of the budget; given back with the reply.
    _share: Share,
}

impl ReplyHandle {
    /// Sends the reply. From any thread, without waiting; dropped silently if the connection is
    /// gone.
    pub fn send(mut self, payload: Bytes) {
        self.complete(payload);
    }

    /// Closes the connection instead of replying. A stock client takes that for silence: it asks
    /// again when its own time is up, and until then costs neither side anything.
    pub fn hang_up(mut self) {
        self.extras = None;
        if let Some(connection) = self.connection.take() {
            connection.gate.metrics.unanswered.inc();
            connection.end(Close::Overload);
        }
    }

    /// The peer has proved who it is: from its next message on, this connection has the limits
    /// `after_auth`, and so have new connections from the same address. Stock minions connect
    /// anew for every request, so without the latter they could never send a large return.
    pub fn authenticated(&self) {
        if let Some(connection) = &self.connection {
            connection.authenticated();
        }
    }

    /// What the peer speaks.
    pub fn transport(&self) -> Transport {
        let connection = self.connection.as_ref();
        connection.map_or(Transport::ZeroMq, |connection| connection.gate.transport)
    }

    /// Whether nobody waits for the reply any more: the connection is closed.
    pub fn is_gone(&self) -> bool {
        let connection = self.connection.as_ref();
        connection.is_none_or(|connection| connection.is_closed())
    }

    fn complete(&mut self, payload: Bytes) {
        if let Some(connection) = self.connection.take() {
            let envelope = self
                .extras
                .take()
                .map(|extras| extras.envelope)
                .unwrap_or_default();
            connection.reply(Reply { envelope, payload });
        }
    }
}

impl Drop for ReplyHandle {
    fn drop(&mut self) {
        if let Some(connection) = &self.connection {
            connection.gate.metrics.unanswered.inc();
            let payload = connection.core.limits.unanswered.clone();
            self.complete(payload);
        }
    }
}

/// The listener on the request port.
pub struct ReqListener {
    doors: Vec<Door>,
    core: Arc<Core>,
}

impl ReqListener {
    /// Prepares bound sockets, one a transport.
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
        let doors = Door::open(sockets, &families, limits.peers)?;
        // A quarter for strangers, so that they cannot keep out those we know. Either part has
        // room for one message of the largest size.
        let strangers = (limits.in_flight / 4).max(limits.before_auth.message + MARGIN);
        let known =
            (limits.in_flight - limits.in_flight / 4).max(limits.after_auth.message + MARGIN);
        let core = Core {
            strangers: Budget::new(strangers),
            known: Budget::new(known),
            bell: Bell::new(),
            identities: Mutex::default(),
            addresses: Mutex::default(),
            limits,
        };
        Ok(Self {
            doors,
            core: Arc::new(core),
        })
    }

    /// Serves until `stop`: then accepts and reads no more, lets outstanding replies out for a
    /// short time, closes every connection and returns.
    pub async fn serve(self, sink: Arc<dyn RequestSink>, stop: CancellationToken) {
        let core = &self.core;
        let start = |stream: TcpStream, admission: Admission| {
            let (core, sink) = (Arc::clone(core), Arc::clone(&sink));
            tokio::spawn(converse(stream, admission, core, sink));
        };
        let serving = serve(self.doors, Side::Request, &stop, start);
        tokio::select! {
            () = serving => {}
            () = core.bell.answer(Connection::wake) => {}
        }
    }
}

/// What the connections share.
struct Core {
    strangers: Budget,
    known: Budget,
    bell: Bell<Connection>,
    identities: Mutex<HashMap<Bytes, Arc<Connection>>>,
    /// Where somebody proved who they are since we started.
    addresses: Mutex<HashSet<IpAddr>>,
    limits: ReqLimits,
}

impl Core {
    fn remember(&self, address: IpAddr) {
        let mut addresses = self.addresses.lock();
        if addresses.len() >= KNOWN_ADDRESSES {
            addresses.clear();
        }
        addresses.insert(address);
    }

    fn remembers(&self, address: IpAddr) -> bool {
        self.addresses.lock().contains(&address)
    }
}
