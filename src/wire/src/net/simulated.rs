//! A simulated network of one thread: connections that are late, cut at any byte, half-open or refused,
//! as its [`Conditions`] say, and a master that dies on it.
//!
//! It has the mechanism alone. What happens when is up to the test, from its seed. Time is tokio's,
//! which the test pauses.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::ReadBuf;
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep};

/// Bytes that are under way in one direction of a connection, as in the buffers of a kernel.
const WINDOW: usize = 64 << 10;

/// Direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From a peer to the master.
    ToMaster,
    /// From the master to a peer.
    FromMaster,
}

/// Fate of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Fate {
    /// Time until it is made.
    pub delay: Duration,
    /// It is refused.
    pub is_refused: bool,
    /// It is reset behind this many bytes in this direction.
    pub cut: Option<(Direction, u64)>,
    /// Its end at the peer's side is not noticed at the master's: it is half-open then.
    pub ends_silently: bool,
}

/// Decides what happens on the network.
pub trait Conditions: Send {
    /// The fate of a connection of this peer to this port.
    fn connection(&mut self, peer: IpAddr, port: u16) -> Fate;

    /// How long bytes take from or to this peer; they stay in order.
    fn delay(&mut self, peer: IpAddr, direction: Direction) -> Duration;
}

/// A simulated network.
pub struct Network {
    state: Mutex<State>,
    conditions: Arc<Mutex<dyn Conditions>>,
}

#[derive(Default)]
struct State {
    listeners: HashMap<u16, Arc<Listener>>,
    connections: Vec<Weak<Connection>>,
    made: u16,
    /// Connections are not cut any more.
    spares: bool,
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Network>>> = const { RefCell::new(None) };
}

/// This thread has a simulated network; until this is dropped.
#[must_use]
pub struct Entered(PhantomData<*const ()>);

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.with_borrow_mut(Option::take);
    }
}

impl Network {
    /// A network without listeners.
    pub fn new(conditions: impl Conditions + 'static) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::default(),
            conditions: Arc::new(Mutex::new(conditions)),
        })
    }

    /// Makes it the network of this thread.
    pub fn enter(self: &Arc<Self>) -> Entered {
        CURRENT.with_borrow_mut(|current| *current = Some(self.clone()));
        Entered(PhantomData)
    }

    pub(super) fn current() -> Option<Arc<Self>> {
        CURRENT.with_borrow(Clone::clone)
    }

    pub(super) fn listen(&self, address: SocketAddr) -> Arc<Listener> {
        let listener = Arc::new(Listener {
            address,
            waiting: Mutex::default(),
            arrived: Notify::new(),
        });
        let mut state = self.state.lock();
        state.listeners.insert(address.port(), listener.clone());
        listener
    }

    pub(super) async fn connect(&self, from: IpAddr, to: SocketAddr) -> io::Result<Stream> {
        let fate = self.conditions.lock().connection(from, to.port());
        tokio::time::sleep(fate.delay).await;
        let mut state = self.state.lock();
        let cut = fate.cut.filter(|_| !state.spares);
        let listener = match state.listeners.get(&to.port()) {
            Some(listener) if !fate.is_refused => listener.clone(),
            _ => return Err(io::ErrorKind::ConnectionRefused.into()),
        };
        state.made = state.made.wrapping_add(1);
        let peer = SocketAddr::new(from, state.made);
        let connection = Arc::new(Connection {
            peer: from,
            ends_silently: fate.ends_silently,
            conditions: self.conditions.clone(),
            to_master: Mutex::new(Pipe::new(cut, Direction::ToMaster)),
            from_master: Mutex::new(Pipe::new(cut, Direction::FromMaster)),
        });
        state.connections.retain(|one| one.strong_count() > 0);
        state.connections.push(Arc::downgrade(&connection));
        let stream = |sends| Stream {
            connection: connection.clone(),
            sends,
        };
        listener
            .waiting
            .lock()
            .push_back((stream(Direction::FromMaster), peer));
        listener.arrived.notify_one();
        Ok(stream(Direction::ToMaster))
    }

    /// Connections that would be cut are not, also those that are made later.
    pub fn spare_connections(&self) {
        let mut state = self.state.lock();
        state.spares = true;
        let connections = state.connections.clone();
        drop(state);
        for connection in connections.iter().filter_map(Weak::upgrade) {
            connection.to_master.lock().left = None;
            connection.from_master.lock().left = None;
        }
    }

    /// The master dies: nothing that it sends from now on is seen by anybody, its ports refuse, and its
    /// connections are reset behind what is under way.
    pub fn kill_master(&self) {
        let mut state = self.state.lock();
        state.listeners.clear();
        for connection in state.connections.drain(..).filter_map(|one| one.upgrade()) {
            let delay = connection.delay(Direction::FromMaster);
            let mut pipe = connection.from_master.lock();
            pipe.end(Instant::now() + delay, Ending::Reset);
            pipe.swallows = true;
            drop(pipe);
            connection.to_master.lock().refuse();
        }
    }
}

/// A port on a simulated network.
pub struct Listener {
    address: SocketAddr,
    waiting: Mutex<VecDeque<(Stream, SocketAddr)>>,
    arrived: Notify,
}

impl Listener {
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) async fn accept(&self) -> (Stream, SocketAddr) {
        loop {
            if let Some(connection) = self.waiting.lock().pop_front() {
                return connection;
            }
            self.arrived.notified().await;
        }
    }
}

struct Connection {
    peer: IpAddr,
    ends_silently: bool,
    conditions: Arc<Mutex<dyn Conditions>>,
    to_master: Mutex<Pipe>,
    from_master: Mutex<Pipe>,
}

impl Connection {
    fn delay(&self, direction: Direction) -> Duration {
        self.conditions.lock().delay(self.peer, direction)
    }

    fn pipe(&self, direction: Direction) -> &Mutex<Pipe> {
        match direction {
            Direction::ToMaster => &self.to_master,
            Direction::FromMaster => &self.from_master,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ending {
    Closed,
    Reset,
}

/// One direction of a connection.
#[derive(Default)]
struct Pipe {
    /// Bytes under way, with the times at which they arrive, in order.
    under_way: VecDeque<(Instant, Bytes)>,
    held: usize,
    /// How it ends behind them.
    ending: Option<(Instant, Ending)>,
    /// Its writer fails: nobody reads any more.
    is_refused: bool,
    /// Writes go nowhere.
    swallows: bool,
    latest: Option<Instant>,
    /// Bytes until it is cut.
    left: Option<u64>,
    reader: Option<Waker>,
    writer: Option<Waker>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Pipe {
    fn new(cut: Option<(Direction, u64)>, direction: Direction) -> Self {
        Self {
            left: cut.and_then(|(of, bytes)| (of == direction).then_some(bytes)),
            ..Self::default()
        }
    }

    /// When something sent now arrives: not before what was sent before it.
    fn arrival(&mut self, delay: Duration) -> Instant {
        let at = Instant::now() + delay;
        let at = self.latest.map_or(at, |latest| latest.max(at));
        self.latest = Some(at);
        at
    }

    fn end(&mut self, at: Instant, ending: Ending) {
        if self.ending.is_none() {
            let at = self.latest.map_or(at, |latest| latest.max(at));
            self.ending = Some((at, ending));
            self.wake_both();
        }
    }

    fn refuse(&mut self) {
        self.is_refused = true;
        self.wake_both();
    }

    fn wake_both(&mut self) {
        let wakers = [self.reader.take(), self.writer.take()];
        wakers.into_iter().flatten().for_each(Waker::wake);
    }

    fn poll_writable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.swallows || self.is_refused || self.ending.is_some() || self.held < WINDOW {
            return Poll::Ready(());
        }
        self.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    /// The time at which the next thing can be read.
    fn next_at(&self) -> Option<Instant> {
        let bytes = self.under_way.front().map(|(at, _)| *at);
        bytes.or(self.ending.map(|(at, _)| at))
    }

    fn is_readable(&self) -> bool {
        self.next_at().is_some_and(|at| at <= Instant::now())
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_readable() {
            return Poll::Ready(());
        }
        self.reader = Some(cx.waker().clone());
        if let Some(at) = self.next_at() {
            let timer = self
                .timer
                .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
            if timer.deadline() != at {
                timer.as_mut().reset(at);
            }
            return timer.as_mut().poll(cx);
        }
        self.timer = None;
        Poll::Pending
    }

    /// Up to this many bytes that have arrived; none at the end.
    fn take(&mut self, most: usize) -> io::Result<Option<Bytes>> {
        let now = Instant::now();
        if let Some((at, bytes)) = self.under_way.front_mut() {
            if *at > now {
                return Ok(None);
            }
            let taken = bytes.copy_to_bytes(most.min(bytes.len()));
            if bytes.is_empty() {
                self.under_way.pop_front();
            }
            self.held -= taken.len();
            if let Some(writer) = self.writer.take() {
                writer.wake();
            }
            return Ok(Some(taken));
        }
        match self.ending {
            Some((at, Ending::Closed)) if at <= now => Ok(Some(Bytes::new())),
            Some((at, Ending::Reset)) if at <= now => Err(io::ErrorKind::ConnectionReset.into()),
            _ => Ok(None),
        }
    }
}

/// One end of a connection.
pub struct Stream {
    connection: Arc<Connection>,
    /// The direction of what it sends.
    sends: Direction,
}

impl Stream {
    fn outgoing(&self) -> &Mutex<Pipe> {
        self.connection.pipe(self.sends)
    }

    fn incoming(&self) -> &Mutex<Pipe> {
        self.connection.pipe(match self.sends {
            Direction::ToMaster => Direction::FromMaster,
            Direction::FromMaster => Direction::ToMaster,
        })
    }

    pub(super) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.incoming().lock().poll_readable(cx)
    }

    pub(super) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.outgoing().lock().poll_writable(cx)
    }

    pub(super) fn try_read(&self, buffer: &mut BytesMut) -> io::Result<usize> {
        match self.incoming().lock().take(WINDOW)? {
            Some(bytes) => {
                buffer.extend_from_slice(&bytes);
                Ok(bytes.len())
            }
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    pub(super) fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut pipe = self.incoming().lock();
        std::task::ready!(pipe.poll_readable(cx));
        match pipe.take(buffer.remaining()) {
            Ok(Some(bytes)) => {
                buffer.put_slice(&bytes);
                Poll::Ready(Ok(()))
            }
            // Its timer fired a little early.
            Ok(None) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    pub(super) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self.poll_write(&mut Context::from_waker(Waker::noop()), bytes) {
            Poll::Ready(written) => written,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    pub(super) fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let delay = self.connection.delay(self.sends);
        let mut pipe = self.outgoing().lock();
        if pipe.swallows {
            return Poll::Ready(Ok(bytes.len()));
        }
        if pipe.is_refused || pipe.ending.is_some() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        std::task::ready!(pipe.poll_writable(cx));
        let count = bytes.len().min(WINDOW - pipe.held);
        let at = pipe.arrival(delay);
        let passing = match &mut pipe.left {
            Some(left) => {
                let passing = usize::try_from(*left).unwrap_or(usize::MAX).min(count);
                *left -= u64::try_from(passing).unwrap_or(u64::MAX);
                passing
            }
            None => count,
        };
        if passing > 0 {
            let bytes = Bytes::copy_from_slice(&bytes[..passing]);
            pipe.under_way.push_back((at, bytes));
            pipe.held += passing;
        }
        if let Some(reader) = pipe.reader.take() {
            reader.wake();
        }
        if passing < count {
            pipe.end(at, Ending::Reset);
            drop(pipe);
            let mut back = self.incoming().lock();
            back.end(at, Ending::Reset);
        }
        Poll::Ready(Ok(count))
    }

    pub(super) fn shutdown(&self) {
        let delay = self.connection.delay(self.sends);
        let mut pipe = self.outgoing().lock();
        let at = pipe.arrival(delay);
        pipe.end(at, Ending::Closed);
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.sends == Direction::ToMaster && self.connection.ends_silently {
            self.incoming().lock().swallows = true;
            return;
        }
        self.shutdown();
        let mut incoming = self.incoming().lock();
        incoming.under_way.clear();
        incoming.refuse();
    }
}
