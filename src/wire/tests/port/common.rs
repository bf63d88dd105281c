//! Helpers of the port tests: listeners on a free port, an echoing sink, raw peers that send
//! arbitrary bytes, and access to the metrics.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use prometheus::Registry;
use saltern_wire::port::{
    Incoming, KnownNetworks, ListenOptions, PubHandle, PubLimits, PubListener, ReplyHandle,
    ReqLimits, ReqListener, RequestSink, Socket, Tls, Transport, bind,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Timeout of what should happen at once.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(120);

/// The future's output, or a failure that names what was waited for.
pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(TEST_TIMEOUT, future).await {
        Ok(output) => output,
        Err(_) => panic!("waited in vain for {what}"),
    }
}

/// Echoes the payload. Special payloads: `drop` gets no answer, `trust` authenticates the peer
/// first, `refuse` is refused, `hold` keeps the reply handle, `large` gets 32 MiB.
#[derive(Default)]
pub(crate) struct Echo {
    pub(crate) held: Mutex<Vec<ReplyHandle>>,
    pub(crate) seen: Mutex<Vec<(u64, Bytes, Bytes)>>,
    pub(crate) held_one: tokio::sync::Notify,
}

impl RequestSink for Echo {
    fn try_deliver(&self, incoming: Incoming) -> Result<(), Incoming> {
        let Incoming {
            peer,
            payload,
            reply,
            ..
        } = incoming;
        self.seen
            .lock()
            .push((peer.connection, peer.identity, payload.clone()));
        match payload.as_ref() {
            b"drop" => drop(reply),
            b"hold" => {
                self.held.lock().push(reply);
                self.held_one.notify_one();
            }
            b"large" => reply.send(Bytes::from(vec![0; 32 << 20])),
            b"trust" => {
                reply.authenticated();
                reply.send(payload);
            }
            b"refuse" => {
                reply.refused();
                reply.send(payload);
            }
            _ => reply.send(payload),
        }
        Ok(())
    }

    fn deliver(&self, _incoming: Incoming) -> BoxFuture<'_, ()> {
        unreachable!("try_deliver takes everything")
    }
}

/// A running listener of either kind.
pub(crate) struct Running {
    pub(crate) addr: SocketAddr,
    pub(crate) registry: Registry,
    pub(crate) stop: CancellationToken,
    pub(crate) task: JoinHandle<()>,
}

impl Running {
    /// A counter or gauge by its name without prefix, and by the value of its own label.
    pub(crate) fn metric(&self, name: &str, label: &str) -> u64 {
        let name = format!("saltern_port_{name}");
        let families = self.registry.gather();
        let family = families
            .iter()
            .find(|family| family.name() == name)
            .expect("a known metric");
        family
            .get_metric()
            .iter()
            .filter(|metric| {
                label.is_empty() || metric.get_label().iter().any(|pair| pair.value() == label)
            })
            .map(|metric| {
                let value = metric.get_counter().get_value() + metric.get_gauge().get_value();
                value as u64
            })
            .sum()
    }

    /// Waits until a metric has reached a value: counters move a moment after the peer sees it.
    pub(crate) async fn reaches(&self, name: &str, label: &str, value: u64) {
        let mut pace = tokio::time::interval(Duration::from_millis(1));
        let reached = async {
            while self.metric(name, label) < value {
                pace.tick().await;
            }
        };
        if tokio::time::timeout(TEST_TIMEOUT, reached).await.is_err() {
            let closed: Vec<_> = saltern_wire::port::Close::ALL
                .iter()
                .map(|reason| (reason.label(), self.metric("closed_total", reason.label())))
                .filter(|(_, count)| *count > 0)
                .collect();
            panic!("\"{name}\" of \"{label}\" did not reach {value}; closed: {closed:?}");
        }
    }

    pub(crate) async fn stopped(self) {
        self.stop.cancel();
        soon("the listener to end", self.task)
            .await
            .expect("no panic");
    }
}

/// A listening socket on a free port.
pub(crate) fn socket() -> TcpListener {
    bind(([127, 0, 0, 1], 0).into(), &ListenOptions::default()).expect("bind")
}

pub(crate) fn request_listener(limits: ReqLimits, sink: Arc<dyn RequestSink>) -> Running {
    request_listener_on(socket(), limits, sink)
}

pub(crate) fn request_listener_on(
    socket: TcpListener,
    limits: ReqLimits,
    sink: Arc<dyn RequestSink>,
) -> Running {
    request_listener_after(socket, limits, sink, &[]).0
}

/// A request listener after a restart, with the addresses that were known before it, and its known
/// networks.
pub(crate) fn request_listener_after(
    socket: TcpListener,
    limits: ReqLimits,
    sink: Arc<dyn RequestSink>,
    before: &[IpAddr],
) -> (Running, KnownNetworks) {
    let registry = Registry::new();
    let addr = socket.local_addr().expect("address");
    let listener = ReqListener::new(vec![socket.into()], limits, &registry).expect("listener");
    let known = listener.known_networks();
    known.restore(before.iter().copied());
    let stop = CancellationToken::new();
    let task = tokio::spawn(listener.serve(sink, stop.clone()));
    let running = Running {
        addr,
        registry,
        stop,
        task,
    };
    (running, known)
}

/// A request listener that speaks this transport, plain or inside TLS.
pub(crate) fn request_listener_of(
    transport: Transport,
    tls: Option<Tls>,
    limits: ReqLimits,
    sink: Arc<dyn RequestSink>,
) -> Running {
    let registry = Registry::new();
    let listener = socket();
    let addr = listener.local_addr().expect("address");
    let socket = Socket {
        listener: listener.into(),
        transport,
        tls,
    };
    let listener = ReqListener::new(vec![socket], limits, &registry).expect("listener");
    let stop = CancellationToken::new();
    let task = tokio::spawn(listener.serve(sink, stop.clone()));
    Running {
        addr,
        registry,
        stop,
        task,
    }
}

/// A publish listener on each transport, and their addresses.
pub(crate) fn publish_listener_of_all(
    limits: PubLimits,
    tls: Option<&Tls>,
) -> (Running, Vec<SocketAddr>, PubHandle) {
    let registry = Registry::new();
    let sockets = Transport::ALL.map(|transport| Socket {
        listener: socket().into(),
        transport,
        tls: tls.cloned(),
    });
    let addresses = sockets.iter().map(|socket| socket.listener.local_addr());
    let addresses: Vec<SocketAddr> = addresses.map(|addr| addr.expect("address")).collect();
    let listener = PubListener::new(sockets.into(), limits, KnownNetworks::default(), &registry)
        .expect("listener");
    let handle = listener.handle();
    let stop = CancellationToken::new();
    let task = tokio::spawn(listener.serve(stop.clone()));
    let running = Running {
        addr: addresses[0],
        registry,
        stop,
        task,
    };
    (running, addresses, handle)
}

pub(crate) fn publish_listener(limits: PubLimits) -> (Running, PubHandle) {
    publish_listener_on(socket(), limits)
}

pub(crate) fn publish_listener_on(socket: TcpListener, limits: PubLimits) -> (Running, PubHandle) {
    publish_listener_with(socket, limits, KnownNetworks::default())
}

/// A publish listener with these known networks.
pub(crate) fn publish_listener_with(
    socket: TcpListener,
    limits: PubLimits,
    known: KnownNetworks,
) -> (Running, PubHandle) {
    let registry = Registry::new();
    let addr = socket.local_addr().expect("address");
    let listener =
        PubListener::new(vec![socket.into()], limits, known, &registry).expect("listener");
    let handle = listener.handle();
    let stop = CancellationToken::new();
    let task = tokio::spawn(listener.serve(stop.clone()));
    let running = Running {
        addr,
        registry,
        stop,
        task,
    };
    (running, handle)
}

/// A peer that writes raw bytes.
pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
}

/// A greeting of ZMTP 3 with this minor version.
pub(crate) fn greeting(minor: u8) -> Vec<u8> {
    let mut bytes = vec![0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, minor];
    bytes.extend_from_slice(b"NULL");
    bytes.resize(64, 0);
    bytes
}

/// A command frame.
pub(crate) fn command(name: &str, body: &[u8]) -> Vec<u8> {
    let length = 1 + name.len() + body.len();
    let mut bytes = Vec::new();
    if let Ok(short) = u8::try_from(length) {
        bytes.extend_from_slice(&[4, short]);
    } else {
        bytes.push(6);
        bytes.extend_from_slice(&(length as u64).to_be_bytes());
    }
    bytes.push(name.len() as u8);
    bytes.extend_from_slice(name.as_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// READY with a socket type and an identity.
pub(crate) fn ready(socket_type: &str, identity: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, value) in [
        ("Socket-Type", socket_type.as_bytes()),
        ("Identity", identity),
    ] {
        body.push(name.len() as u8);
        body.extend_from_slice(name.as_bytes());
        body.extend_from_slice(&(value.len() as u32).to_be_bytes());
        body.extend_from_slice(value);
    }
    command("READY", &body)
}

/// A message of these frames.
pub(crate) fn message(frames: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, frame) in frames.iter().enumerate() {
        let more = u8::from(index + 1 < frames.len());
        if let Ok(short) = u8::try_from(frame.len()) {
            bytes.extend_from_slice(&[more, short]);
        } else {
            bytes.push(more | 2);
            bytes.extend_from_slice(&(frame.len() as u64).to_be_bytes());
        }
        bytes.extend_from_slice(frame);
    }
    bytes
}

impl Raw {
    pub(crate) async fn connect(addr: SocketAddr) -> Self {
        Self {
            stream: TcpStream::connect(addr).await.expect("connect"),
        }
    }

    /// Connects from another loopback address and completes the handshake.
    pub(crate) async fn open_from(
        from: [u8; 4],
        addr: SocketAddr,
        minor: u8,
        socket_type: &str,
        identity: &[u8],
    ) -> Self {
        let socket = TcpSocket::new_v4().expect("socket");
        socket.bind((from, 0).into()).expect("bind");
        let stream = socket.connect(addr).await.expect("connect");
        Self { stream }.shaken(minor, socket_type, identity).await
    }

    /// Connects and completes the handshake.
    pub(crate) async fn open(
        addr: SocketAddr,
        minor: u8,
        socket_type: &str,
        identity: &[u8],
    ) -> Self {
        Self::connect(addr)
            .await
            .shaken(minor, socket_type, identity)
            .await
    }

    async fn shaken(mut self, minor: u8, socket_type: &str, identity: &[u8]) -> Self {
        self.send(&[greeting(minor), ready(socket_type, identity)].concat())
            .await;
        let mut head = [0; 66];
        soon("the greeting", self.stream.read_exact(&mut head))
            .await
            .expect("greeting");
        let mut body = vec![0; usize::from(head[65])];
        soon("READY", self.stream.read_exact(&mut body))
            .await
            .expect("READY");
        assert!(body.starts_with(b"\x05READY"));
        self
    }

    /// Writes; the listener may have closed already, which is not an error here.
    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    pub(crate) async fn read(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        soon("bytes", self.stream.read_exact(&mut bytes))
            .await
            .expect("bytes");
        bytes
    }

    /// Reads until the listener closes.
    pub(crate) async fn closed(&mut self) -> BytesMut {
        let mut bytes = BytesMut::new();
        soon("the listener to close", async {
            loop {
                match self.stream.read_buf(&mut bytes).await {
                    Ok(0) | Err(_) => break,
                    Ok(_) => {}
                }
            }
        })
        .await;
        bytes
    }
}
