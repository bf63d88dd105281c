//! The request listener: a ROUTER for REQ, DEALER and ROUTER peers.
//!
//! One task a connection reads a request, hands it to the [`RequestSink`] and writes the reply
//! that comes back through the [`ReplyHandle`], from whatever thread. A reply goes to the
//! connection that asked, never to whoever has its identity now, so a late reply cannot reach a
//! stranger. A sink that is full holds up the sockets whose requests it does not take, nothing
//! else.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::{BufMut, Bytes, BytesMut};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use prometheus::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use super::accept::{Admission, Gate, register, serve};
use super::bell::Bell;
use super::codec::{HEADER_MAX, Item, put_frame_header};
use super::command::{Command, SocketType};
use super::limits::ReqLimits;
use super::link::{Budget, Due, Fill, Link, Share};
use super::listen::ListenError;
use super::metrics::{Close, Metrics};

/// Most frames, and bytes, before the empty delimiter. libzmq's own sockets put there at most an
/// identity for each hop.
const ENVELOPE_FRAMES: usize = 8;
const ENVELOPE_BYTES: usize = 1024;

/// Takes the requests of all connections.
pub trait RequestSink: Send + Sync + 'static {
    /// Takes the request, or gives it back if there is no room now.
    ///
    /// # Errors
    ///
    /// The request itself; [`Self::deliver`] is called with it next.
    fn try_deliver(&self, incoming: Incoming) -> Result<(), Incoming>;

    /// Takes the request when there is room. The connection is not read meanwhile.
    fn deliver(&self, incoming: Incoming) -> BoxFuture<'_, ()>;
}

/// A request.
pub struct Incoming {
    /// Who asks.
    pub peer: Peer,
    /// What was asked: the frame after the delimiter.
    pub payload: Bytes,
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
    /// The identity that the peer gave, or five bytes starting with 0 that stand for none.
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
    _share: Option<Share>,
}

impl ReplyHandle {
    /// Sends the reply. From any thread, without waiting; dropped silently if the connection is
    /// gone.
    pub fn send(mut self, payload: Bytes) {
        self.complete(payload);
    }

    /// The peer has proved who it is: from its next message on, this connection has the limits
    /// `after_auth`.
    pub fn authenticated(&self) {
        if let Some(connection) = &self.connection {
            connection.known.store(true, Ordering::Relaxed);
        }
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
            connection.core.gate.metrics.unanswered.inc();
            let payload = connection.core.limits.unanswered.clone();
            self.complete(payload);
        }
    }
}

/// The listener on the request port.
pub struct ReqListener {
    listener: TcpListener,
    core: Arc<Core>,
}

impl ReqListener {
    /// Prepares a bound socket (see [`bind`](super::bind)); within a tokio runtime.
    ///
    /// # Errors
    ///
    /// The socket cannot be registered, or the registry has a request listener already.
    pub fn new(
        listener: std::net::TcpListener,
        limits: ReqLimits,
        registry: &Registry,
    ) -> Result<Self, ListenError> {
        let gate = Arc::new(Gate::new(Metrics::new(registry, "request")?, limits.peers));
        let core = Core {
            gate,
            budget: Budget::new(limits.in_flight),
            bell: Bell::new(),
            identities: Mutex::new(HashMap::new()),
            limits,
        };
        Ok(Self {
            listener: register(listener)?,
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
        let serving = serve(self.listener, &core.gate, SocketType::Router, &stop, start);
        tokio::select! {
            () = serving => {}
            () = core.bell.answer(Connection::wake) => {}
        }
    }
}

/// What the connections share.
struct Core {
    gate: Arc<Gate>,
    budget: Budget,
    bell: Bell<Connection>,
    identities: Mutex<HashMap<Bytes, Arc<Connection>>>,
    limits: ReqLimits,
}

/// The part of a connection that others reach.
struct Connection {
    core: Arc<Core>,
    number: u64,
    address: SocketAddr,
    /// Whether the peer has proved who it is.
    known: AtomicBool,
    state: Mutex<ConnectionState>,
}

#[derive(Default)]
struct ConnectionState {
    replies: VecDeque<Reply>,
    /// The task sleeps and has to be woken for new work.
    asleep: bool,
    /// Another connection has the identity now.
    replaced: bool,
    closed: bool,
    waker: Option<Waker>,
}

struct Reply {
    envelope: Vec<Bytes>,
    payload: Bytes,
}

impl Connection {
    fn reply(self: Arc<Self>, reply: Reply) {
        {
            let mut state = self.state.lock();
            if state.closed {
                drop(state);
                self.core.gate.metrics.dropped.inc();
                return;
            }
            state.replies.push_back(reply);
            if !std::mem::take(&mut state.asleep) {
                return;
            }
        }
        let core = Arc::clone(&self.core);
        core.bell.ring(self);
    }

    fn replace(self: Arc<Self>) {
        {
            let mut state = self.state.lock();
            state.replaced = true;
            if !std::mem::take(&mut state.asleep) {
                return;
            }
        }
        let core = Arc::clone(&self.core);
        core.bell.ring(self);
    }

    fn wake(&self) {
        if let Some(waker) = &self.state.lock().waker {
            waker.wake_by_ref();
        }
    }

    /// Whether there is work; if not, the next work wakes the task of `cx`.
    fn poll_work(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if state.replaced || !state.replies.is_empty() {
            return Poll::Ready(());
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            empty => *empty = Some(cx.waker().clone()),
        }
        state.asleep = true;
        Poll::Pending
    }

    fn next_reply(&self) -> Result<Option<Reply>, Close> {
        let mut state = self.state.lock();
        // The task runs: it looks here again before it sleeps, so nobody need wake it.
        state.asleep = false;
        if state.replaced {
            Err(Close::Handover)
        } else {
            Ok(state.replies.pop_front())
        }
    }

    fn close(&self) {
        let unsent = {
            let mut state = self.state.lock();
            state.closed = true;
            state.waker = None;
            std::mem::take(&mut state.replies)
        };
        self.core
            .gate
            .metrics
            .dropped
            .inc_by(u64::try_from(unsent.len()).unwrap_or(0));
    }
}

/// Gives the identity back and refuses late replies, also if the task panics.
struct Registered {
    connection: Arc<Connection>,
    /// The identity, if the peer gave one.
    identity: Option<Bytes>,
}

impl Registered {
    /// Enters the connection under the identity of its peer and closes the one that had it.
    ///
    /// Only from the same address: an identity is no secret (a minion's id and process id), and
    /// libzmq's ROUTER_HANDOVER lets anybody cut anybody off with it. A minion whose address
    /// changed loses nothing, for its old connection is dead and its replies go to the new one.
    fn new(connection: Arc<Connection>, identity: &Bytes) -> Self {
        if identity.is_empty() {
            return Self {
                connection,
                identity: None,
            };
        }
        let mut identities = connection.core.identities.lock();
        let elsewhere = identities
            .get(identity)
            .is_some_and(|other| other.address.ip() != connection.address.ip());
        let earlier = if elsewhere {
            None
        } else {
            identities.insert(identity.clone(), Arc::clone(&connection))
        };
        drop(identities);
        if let Some(earlier) = earlier {
            earlier.replace();
        }
        Self {
            connection,
            identity: (!elsewhere).then(|| identity.clone()),
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(identity) = &self.identity {
            let mut identities = self.connection.core.identities.lock();
            if identities
                .get(identity)
                .is_some_and(|current| current.number == self.connection.number)
            {
                identities.remove(identity);
            }
        }
        self.connection.close();
    }
}

/// The task of a connection.
async fn converse(
    stream: TcpStream,
    mut admission: Admission,
    core: Arc<Core>,
    sink: Arc<dyn RequestSink>,
) {
    let gate = Arc::clone(&core.gate);
    let link = Link::new(stream, gate, core.budget.clone(), core.limits.before_auth);
    let reason = talk(link, &mut admission, core, sink).await;
    admission.ends(reason);
}

async fn talk(
    mut link: Link,
    admission: &mut Admission,
    core: Arc<Core>,
    sink: Arc<dyn RequestSink>,
) -> Close {
    const PEERS: [SocketType; 3] = [SocketType::Req, SocketType::Dealer, SocketType::Router];
    let ready = match link.handshake(&PEERS).await {
        Ok(ready) => ready,
        Err(reason) => return reason,
    };
    admission.opened();
    let connection = Arc::new(Connection {
        number: admission.number,
        address: admission.peer,
        known: AtomicBool::new(false),
        state: Mutex::default(),
        core,
    });
    // Copied: the bytes that came share a whole read buffer.
    let identity = Bytes::copy_from_slice(&ready.identity);
    let registered = Registered::new(Arc::clone(&connection), &identity);
    let identity = if identity.is_empty() {
        unnamed(admission.number)
    } else {
        identity
    };
    let window = match ready.socket_type {
        Some(SocketType::Req) => 1,
        _ => connection.core.limits.window.max(1),
    };
    let mut conversation = Conversation {
        link,
        peer: Peer {
            address: admission.peer,
            connection: admission.number,
            identity,
        },
        connection,
        sink,
        message: Partial::default(),
        unanswered: 0,
        window,
        known: false,
    };
    let reason = match conversation.run().await {
        Ok(never) => match never {},
        Err(reason) => reason,
    };
    drop(registered);
    reason
}

/// Stands for a peer without identity, in the form of libzmq's ROUTER: a zero and a number.
fn unnamed(number: u64) -> Bytes {
    let [.., a, b, c, d] = number.to_be_bytes();
    Bytes::copy_from_slice(&[0, a, b, c, d])
}

enum Never {}

/// A message while its frames come in.
#[derive(Default)]
struct Partial {
    /// Frames up to the delimiter, which is not among them.
    envelope: Vec<Bytes>,
    delimited: bool,
    payload: Option<Bytes>,
}

impl Partial {
    fn add(&mut self, frame: Bytes) -> Result<(), Close> {
        if self.delimited {
            // Stock uses the frame after the delimiter and ignores what follows.
            self.payload.get_or_insert(frame);
        } else if frame.is_empty() {
            self.delimited = true;
        } else {
            let held: usize = self.envelope.iter().map(Bytes::len).sum();
            if self.envelope.len() >= ENVELOPE_FRAMES || held + frame.len() > ENVELOPE_BYTES {
                return Err(Close::Envelope);
            }
            self.envelope.push(frame);
        }
        Ok(())
    }
}

struct Conversation {
    link: Link,
    peer: Peer,
    connection: Arc<Connection>,
    sink: Arc<dyn RequestSink>,
    message: Partial,
    /// Requests delivered and not replied to.
    unanswered: usize,
    window: usize,
    /// Whether the link has the limits of a known peer.
    known: bool,
}

enum Event {
    Work,
    Filled(Result<Fill, Close>),
    Due(Due),
    Stop,
}

impl Conversation {
    async fn run(&mut self) -> Result<Never, Close> {
        let gate = Arc::clone(&self.connection.core.gate);
        let mut stopped = pin!(gate.stop.cancelled());
        let mut killed = pin!(gate.kill.cancelled());
        let mut stopping = false;
        loop {
            while let Some(reply) = self.connection.next_reply()? {
                self.unanswered = self.unanswered.saturating_sub(1);
                self.write_reply(&reply).await?;
            }
            if stopping {
                if self.unanswered == 0 {
                    return Err(Close::Shutdown);
                }
            } else if self.read_buffered().await? {
                // Something was delivered, and may be answered already.
                continue;
            }
            let ending = if stopping {
                killed.as_mut()
            } else {
                stopped.as_mut()
            };
            match self.wait(ending, stopping).await {
                Event::Work | Event::Filled(Ok(Fill::Some)) => {}
                Event::Filled(Ok(Fill::End)) => {
                    let whole = !self.link.in_the_middle();
                    return Err(if whole {
                        Close::PeerClosed
                    } else {
                        Close::Truncated
                    });
                }
                Event::Filled(Ok(Fill::Starved(units))) => self.link.await_budget(units).await?,
                Event::Filled(Err(reason)) | Event::Due(Due::Close(reason)) => return Err(reason),
                Event::Due(Due::Ping) => {
                    let ping = self.link.ping();
                    self.link.write(&ping, &[]).await?;
                }
                Event::Stop if stopping => return Err(Close::Shutdown),
                Event::Stop => stopping = true,
            }
        }
    }

    /// Handles what is buffered; `true` if a request was among it. Stops in front of a message
    /// when the window is full.
    async fn read_buffered(&mut self) -> Result<bool, Close> {
        let mut delivered = false;
        loop {
            if self.unanswered >= self.window && self.link.at_message() {
                return Ok(delivered);
            }
            if !self.known && self.connection.known.load(Ordering::Relaxed) {
                self.known = true;
                self.link.set_limits(self.connection.core.limits.after_auth);
            }
            let Some(item) = self.link.next()? else {
                return Ok(delivered);
            };
            match item {
                Item::Frame { more, payload } => {
                    self.message.add(payload)?;
                    if !more {
                        self.deliver().await?;
                        delivered = true;
                    }
                }
                Item::Command(command) => self.obey(command).await?,
                // The codec gives one greeting, and the handshake took it.
                Item::Greeting(_) => return Err(Close::Handshake),
            }
        }
    }

    async fn obey(&mut self, command: Command) -> Result<(), Close> {
        match command {
            Command::Ping { context, .. } => {
                self.link.spend()?;
                self.link.send_command(&Command::Pong(context)).await
            }
            Command::Error(_) => Err(Close::PeerError),
            Command::Ready(_) => Err(Close::Handshake),
            Command::Pong(_)
            | Command::Subscribe(_)
            | Command::Cancel(_)
            | Command::Unknown { .. } => self.link.spend(),
        }
    }

    async fn deliver(&mut self) -> Result<(), Close> {
        let Partial {
            envelope, payload, ..
        } = std::mem::take(&mut self.message);
        let payload = payload.ok_or(Close::Envelope)?;
        self.connection.core.gate.metrics.messages_in.inc();
        self.unanswered += 1;
        let share = self.link.take_share();
        let extras = (!envelope.is_empty() || share.is_some()).then(|| {
            Box::new(Extras {
                envelope,
                _share: share,
            })
        });
        let reply = ReplyHandle {
            connection: Some(Arc::clone(&self.connection)),
            extras,
        };
        let incoming = Incoming {
            peer: self.peer.clone(),
            payload,
            reply,
        };
        if let Err(incoming) = self.sink.try_deliver(incoming) {
            let sink = Arc::clone(&self.sink);
            sink.deliver(incoming).await;
        }
        Ok(())
    }

    async fn write_reply(&mut self, reply: &Reply) -> Result<(), Close> {
        let Reply { envelope, payload } = reply;
        self.connection.core.gate.metrics.messages_out.inc();
        if envelope.is_empty() {
            let mut head = [0; 2 + HEADER_MAX];
            let size = head.len();
            let mut rest = head.as_mut_slice();
            put_frame_header(0, true, &mut rest);
            put_frame_header(payload.len(), false, &mut rest);
            let length = size - rest.remaining_mut();
            return self.link.write(&head[..length], payload).await;
        }
        let held: usize = envelope.iter().map(|frame| HEADER_MAX + frame.len()).sum();
        let mut head = BytesMut::with_capacity(held + 2 * HEADER_MAX);
        for frame in envelope {
            put_frame_header(frame.len(), true, &mut head);
            head.put_slice(frame);
        }
        put_frame_header(0, true, &mut head);
        put_frame_header(payload.len(), false, &mut head);
        self.link.write(&head, payload).await
    }

    /// Sleeps until something is to be done.
    async fn wait(
        &mut self,
        mut ending: Pin<&mut WaitForCancellationFuture<'_>>,
        stopping: bool,
    ) -> Event {
        let full = self.unanswered >= self.window;
        let paused = stopping || (full && self.link.at_message());
        self.link.settle(paused);
        let (deadline, due) = self.link.deadline(self.unanswered == 0, paused);
        std::future::poll_fn(|cx| {
            if self.connection.poll_work(cx).is_ready() {
                return Poll::Ready(Event::Work);
            }
            // Read even with a full window: a PING wants its PONG, and a peer that leaves is
            // noticed.
            if !paused && let Poll::Ready(fill) = self.link.poll_fill(cx) {
                return Poll::Ready(Event::Filled(fill));
            }
            if ending.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Event::Stop);
            }
            self.link.poll_alarm(cx, deadline).map(|()| Event::Due(due))
        })
        .await
    }
}
