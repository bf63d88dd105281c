//! Takes connections for both listeners and counts them in and out.
//!
//! Accepting never ends by an error and never spins: without file descriptors it pauses, and a
//! connection over a limit is closed at once. The greeting and READY leave in one system call
//! before the connection has a task.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use rustix::net::SendFlags;
use saltern_base::seldom::Seldom;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use super::codec::put_command;
use super::command::{Command, Ready, SocketType};
use super::greeting::Greeting;
use super::limits::PeerLimits;
use super::listen::ListenError;
use super::metrics::{Close, Metrics, Refusal, State};

/// Pause after an accept that failed for want of file descriptors or memory.
const STARVED_PAUSE: Duration = Duration::from_millis(100);

/// A shortage that goes on has a line in the log so often.
const COMPLAINT: Duration = Duration::from_secs(60);

/// What all connections of one listener share.
pub(super) struct Gate {
    pub(super) metrics: Metrics,
    pub(super) limits: PeerLimits,
    /// Cancelled when nothing new is to be taken.
    pub(super) stop: CancellationToken,
    /// Cancelled when the time to drain is over.
    pub(super) kill: CancellationToken,
    failures: Seldom,
    numbers: AtomicU64,
    counts: Mutex<Counts>,
    emptied: Notify,
}

#[derive(Default)]
struct Counts {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// One connection's place. Dropping it gives the place back and counts the reason.
pub(super) struct Admission {
    pub(super) gate: Arc<Gate>,
    pub(super) peer: SocketAddr,
    /// Number of the connection, never used again.
    pub(super) number: u64,
    state: State,
    reason: Close,
}

impl Gate {
    pub(super) fn new(metrics: Metrics, limits: PeerLimits) -> Self {
        Self {
            metrics,
            limits,
            stop: CancellationToken::new(),
            kill: CancellationToken::new(),
            failures: Seldom::every(COMPLAINT),
            numbers: AtomicU64::new(1),
            counts: Mutex::new(Counts::default()),
            emptied: Notify::new(),
        }
    }

    fn admit(self: &Arc<Self>, peer: SocketAddr) -> Result<Admission, Refusal> {
        let address = peer.ip().to_canonical();
        {
            let mut counts = self.counts.lock();
            if counts.all >= self.limits.connections {
                return Err(Refusal::Connections);
            }
            let here = counts.by_address.entry(address).or_insert(0);
            if *here >= self.limits.per_address {
                return Err(Refusal::PerAddress);
            }
            *here += 1;
            counts.all += 1;
        }
        self.metrics.accepted.inc();
        self.metrics.connections(State::Handshake).inc();
        Ok(Admission {
            gate: Arc::clone(self),
            peer,
            number: self.numbers.fetch_add(1, Ordering::Relaxed),
            state: State::Handshake,
            reason: Close::Panic,
        })
    }

    /// Ends every connection: first gently, after the time to drain for good.
    async fn finish(&self) {
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
        if tokio::time::timeout(self.limits.drain, &mut emptied)
            .await
            .is_err()
        {
            self.kill.cancel();
            // All but those whose request a full sink has not taken yet.
            let _ = tokio::time::timeout(self.limits.drain, emptied).await;
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

    /// Says why the connection ends; without it, dropping counts a panic.
    pub(super) fn ends(&mut self, reason: Close) {
        self.reason = reason;
        debug!(peer = %self.peer, connection = self.number, reason = reason.label(), "closed");
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.gate.metrics.connections(self.state).dec();
        self.gate.metrics.closed(self.reason).inc();
        let address = self.peer.ip().to_canonical();
        let mut counts = self.gate.counts.lock();
        counts.all -= 1;
        if let Some(here) = counts.by_address.get_mut(&address) {
            *here -= 1;
            if *here == 0 {
                counts.by_address.remove(&address);
            }
        }
        if counts.all == 0 {
            self.gate.emptied.notify_waiters();
        }
    }
}

/// Hands the socket to the runtime.
pub(super) fn register(listener: std::net::TcpListener) -> Result<TcpListener, ListenError> {
    listener
        .set_nonblocking(true)
        .map_err(ListenError::Socket)?;
    TcpListener::from_std(listener).map_err(ListenError::Socket)
}

/// Greeting and READY as one piece: a peer with the NULL mechanism reads them as they come.
fn hello(socket_type: SocketType) -> Bytes {
    let mut hello = BytesMut::with_capacity(128);
    Greeting::V31.encode(&mut hello);
    let ready = Ready {
        socket_type: Some(socket_type),
        identity: Bytes::new(),
    };
    put_command(&Command::Ready(ready), &mut hello);
    hello.freeze()
}

/// Accepts until `stop`, then ends the connections; returns when all are gone.
pub(super) async fn serve(
    listener: TcpListener,
    gate: &Arc<Gate>,
    socket_type: SocketType,
    stop: &CancellationToken,
    start: impl Fn(TcpStream, Admission),
) {
    let hello = hello(socket_type);
    // Whoever drops this future ends the connections too: nobody would answer the bell.
    let _ended = (
        gate.stop.clone().drop_guard(),
        gate.kill.clone().drop_guard(),
    );
    let accepting = async {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => {
                    if let Some(admission) = take(&stream, peer, gate, &hello) {
                        start(stream, admission);
                    }
                }
                Err(error) => accept_failed(gate, &error).await,
            }
        }
    };
    stop.run_until_cancelled(accepting).await;
    drop(listener);
    gate.finish().await;
}

fn take(stream: &TcpStream, peer: SocketAddr, gate: &Arc<Gate>, hello: &[u8]) -> Option<Admission> {
    let mut admission = match gate.admit(peer) {
        Ok(admission) => admission,
        Err(refusal) => {
            gate.metrics.refused(refusal).inc();
            debug!(%peer, reason = refusal.label(), "refused");
            return None;
        }
    };
    // Straight to the kernel: tokio would first wait for its poll to report the new socket.
    match rustix::net::send(stream, hello, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
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

async fn accept_failed(gate: &Gate, error: &std::io::Error) {
    use rustix::io::Errno;
    let starved = [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM];
    match Errno::from_io_error(error) {
        Some(errno) if starved.contains(&errno) => {
            gate.metrics.refused(Refusal::Descriptors).inc();
            if let Some(times) = gate.failures.happened() {
                warn!(%error, times, "cannot accept connections; those who are connected are served");
            }
            tokio::time::sleep(STARVED_PAUSE).await;
        }
        // The peer was gone before we came; Linux also reports its network errors here.
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
            gate.metrics.refused(Refusal::Accept).inc();
            tokio::task::yield_now().await;
        }
        _ => {
            gate.metrics.refused(Refusal::Accept).inc();
            if let Some(times) = gate.failures.happened() {
                warn!(%error, times, "cannot accept a connection");
            }
            tokio::time::sleep(STARVED_PAUSE).await;
        }
    }
}
