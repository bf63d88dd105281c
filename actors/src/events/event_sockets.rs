//! The two Unix sockets of the event bus in `sock_dir`, and the two names beside them that stock's
//! clients look for.
//!
//! `master_event_pub.ipc` pushes every event to each client that connects; `master_event_pull.ipc`
//! takes events from local programs. Their modes are those of each version of stock.
//! `publish_pull.ipc` and `workers.ipc` are empty files: clients only check that they exist.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener as StdUnixListener, UnixStream as StdUnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use actix::{Addr, Recipient};
use bytes::Bytes;
use saltern_base::log_throttle::LogThrottle;
use saltern_base::metrics::{
    IntCounter, IntCounterVec, IntGauge, Registry, counter, counter_vec, gauge,
};
use saltern_model::Compat;
use saltern_wire::member::{LocalPeer, RelayedConnections};
use saltern_wire::net::{accept_all, accept_waiting};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::UnixListener;
use tokio_util::sync::CancellationToken;

use crate::events::batch_feed::BatchFeed;
use crate::events::bus::{Bus, Subscriber};
use crate::events::event_publisher::EventPublisher;
use crate::messages::Greet;

mod pull;

use pull::PullDoor;

/// The names that clients look for (`salt/utils/event.py`, `salt/client/__init__.py`,
/// `salt/netapi/__init__.py`).
const MARKERS: [&str; 2] = ["publish_pull.ipc", "workers.ipc"];
const PUB: &str = "master_event_pub.ipc";
const PULL: &str = "master_event_pull.ipc";

/// Frames written with one system call at most.
const FRAMES_AT_ONCE: usize = 64;

/// Persistent problems are logged at most once per `LOG_INTERVAL`.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Drain time of a subscriber's queue when the master stops.
const STOP_DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// The bound sockets, not yet served.
pub(crate) struct EventSockets {
    publish: StdUnixListener,
    pull: StdUnixListener,
    options: SocketOptions,
    metrics: SocketMetrics,
    /// Subscribers and senders at other members of a cluster.
    relayed: (RelayedConnections, RelayedConnections),
}

/// Metrics of the sockets.
struct SocketMetrics {
    senders: IntGauge,
    refused: IntCounterVec,
    cut_off: IntCounter,
}

impl SocketMetrics {
    fn new(registry: &Registry) -> Self {
        Self {
            senders: gauge(
                registry,
                "saltern_bus_senders",
                "Local programs that are connected to fire events.",
            ),
            refused: counter_vec(
                registry,
                "saltern_bus_connections_refused_total",
                "Connections to an event socket that were closed because there were too many.",
                &["socket"],
            ),
            cut_off: counter(
                registry,
                "saltern_bus_subscribers_cut_off_total",
                "Subscribers of the bus that took nothing for too long.",
            ),
        }
    }
}

/// How the sockets behave.
#[derive(Clone, Debug)]
pub(crate) struct SocketOptions {
    pub(crate) directory: PathBuf,
    pub(crate) compat: Compat,
    /// Users other than the master's own may subscribe (`publisher_acl`, `external_auth`).
    pub(crate) for_other_users: bool,
    /// A subscriber that takes nothing for this time is disconnected.
    pub(crate) drain_timeout: Duration,
    /// The largest event that a local program may fire, in bytes.
    pub(crate) max_event: usize,
    /// Connections to each of the two sockets.
    pub(crate) connections: usize,
}

/// Why a socket cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot make \"{}\"", path.display())]
pub struct SocketError {
    /// The path of the socket.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

impl EventSockets {
    /// Fails if a master, ours or stock's, serves `directory`: other ports do not make it another
    /// place.
    pub(crate) fn refuse_if_served(directory: &Path) -> Result<(), SocketError> {
        let path = directory.join(PUB);
        match StdUnixStream::connect(&path) {
            Ok(_) => Err(SocketError {
                path,
                source: io::Error::new(io::ErrorKind::AddrInUse, "another master listens there"),
            }),
            Err(_) => Ok(()),
        }
    }

    /// Binds both sockets and makes the two files (see [`BoundSockets`]). `relayed` are the subscribers and
    /// the senders at other members of a cluster.
    pub(crate) fn bind(
        options: SocketOptions,
        relayed: (RelayedConnections, RelayedConnections),
        registry: &Registry,
    ) -> Result<Self, SocketError> {
        let BoundSockets { publish, pull } = BoundSockets::bind(&options)?;
        Ok(Self {
            publish,
            pull,
            metrics: SocketMetrics::new(registry),
            options,
            relayed,
        })
    }

    /// Serves both sockets in tasks of this thread: events are accepted until `stop_taking`, and
    /// sent until `stop`. `None`, after a log entry, when the system refuses.
    pub(crate) fn serve(
        self,
        bus: &Arc<Bus>,
        publisher: &Addr<EventPublisher>,
        (batches, greeter): (&Arc<BatchFeed>, &Recipient<Greet>),
        stop_taking: &CancellationToken,
        stop: &CancellationToken,
    ) -> Option<Arc<EventSocketHandle>> {
        let listeners = self.publish.try_clone().and_then(|waiting| {
            let publish = UnixListener::from_std(self.publish)?;
            Ok((waiting, publish, UnixListener::from_std(self.pull)?))
        });
        let (waiting, publish, pull) = match listeners {
            Ok(listeners) => listeners,
            Err(error) => {
                tracing::error!(%error, "the event sockets cannot be served");
                return None;
            }
        };
        let refused = |socket| self.metrics.refused.with_label_values(&[socket]);
        let door = Arc::new(EventSocketHandle {
            waiting,
            bus: bus.clone(),
            greeter: greeter.clone(),
            timeout: self.options.drain_timeout,
            stop: stop.clone(),
            most: self.options.connections,
            refused: refused("pub"),
            cut_off: self.metrics.cut_off,
            too_many: LogThrottle::new(LOG_INTERVAL),
            too_slow: LogThrottle::new(LOG_INTERVAL),
        });
        let pull_door = PullDoor {
            publisher: publisher.clone(),
            batches: batches.clone(),
            max_event: self.options.max_event,
            stop: stop_taking.clone(),
            most: self.options.connections,
            senders: self.metrics.senders.clone(),
            refused: refused("pull"),
            too_many: LogThrottle::new(LOG_INTERVAL),
        };
        let serving = door.clone();
        let (subscribers, senders) = self.relayed;
        actix_rt::spawn(async move {
            tokio::select! {
                () = accept_all(&publish, &serving.stop, |stream| serving.let_in(stream)) => {}
                () = subscribers.each(|stream| serving.let_in(stream)) => {}
            }
        });
        actix_rt::spawn(async move {
            tokio::select! {
                () = accept_all(&pull, &pull_door.stop, |stream| pull_door.let_in(stream)) => {}
                () = senders.each(|stream| pull_door.let_in(stream)) => {}
            }
        });
        Some(door)
    }

    /// Removes the files by which clients see that a master is running.
    pub(crate) fn remove(directory: &Path) {
        for name in MARKERS.into_iter().chain([PUB, PULL]) {
            remove_socket(&directory.join(name));
        }
    }
}

/// Both sockets, bound.
pub(crate) struct BoundSockets {
    pub(crate) publish: StdUnixListener,
    pub(crate) pull: StdUnixListener,
}

impl BoundSockets {
    /// Binds both sockets and makes the two files. Replaces what a dead master left behind;
    /// [`EventSockets::refuse_if_served`] has made sure that no running master loses a socket.
    pub(crate) fn bind(options: &SocketOptions) -> Result<Self, SocketError> {
        let directory = options.directory.as_path();
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| SocketError { path, source }
        };
        std::fs::create_dir_all(directory).map_err(at(directory))?;
        let listen_mode = match options.compat {
            Compat::V3006 if !options.for_other_users => 0o600,
            _ => 0o660,
        };
        if options.compat == Compat::V3006 && options.for_other_users {
            let_others_through(directory);
        }
        let publish_path = directory.join(PUB);
        let publish = bind(&publish_path, listen_mode).map_err(at(&publish_path))?;
        let pull_path = directory.join(PULL);
        let pull = bind(&pull_path, 0o600).map_err(at(&pull_path))?;
        for name in MARKERS {
            let path = directory.join(name);
            marker(&path).map_err(at(&path))?;
        }
        Ok(Self { publish, pull })
    }
}

/// Binds under a temporary name first, so that no client connects before the mode is right.
pub(crate) fn bind(path: &Path, mode: u32) -> io::Result<StdUnixListener> {
    let unready = path.with_extension("ipc-new");
    remove_if_there(&unready)?;
    let listener = StdUnixListener::bind(&unready)?;
    std::fs::set_permissions(&unready, std::fs::Permissions::from_mode(mode))?;
    std::fs::rename(&unready, path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Makes the sockets reachable for users whom `publisher_acl` or `external_auth` admits, as 3006's
/// event publisher does (`salt/utils/event.py`).
fn let_others_through(directory: &Path) {
    const OTHERS_PASS: u32 = 0o001;
    let changed = std::fs::metadata(directory).and_then(|metadata| {
        let mode = metadata.permissions().mode();
        if mode & OTHERS_PASS != 0 {
            return Ok(());
        }
        std::fs::set_permissions(
            directory,
            std::fs::Permissions::from_mode(mode | OTHERS_PASS),
        )
    });
    if let Err(error) = changed {
        tracing::warn!(
            path = %directory.display(), %error,
            "other users cannot reach the event socket"
        );
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes a file by which clients see that a master is running.
pub(crate) fn remove_socket(path: &Path) {
    if let Err(error) = remove_if_there(path) {
        tracing::warn!(path = %path.display(), %error, "cannot be removed");
    }
}

fn marker(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    remove_if_there(path)?;
    std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map(drop)
}

/// Acceptor of subscribers.
pub(crate) struct EventSocketHandle {
    /// A clone of the listening socket, for [`EventSocketHandle::let_in_waiting`].
    waiting: StdUnixListener,
    bus: Arc<Bus>,
    /// Greets new subscribers with the state of open jobs.
    greeter: Recipient<Greet>,
    timeout: Duration,
    stop: CancellationToken,
    most: usize,
    refused: IntCounter,
    cut_off: IntCounter,
    too_many: LogThrottle,
    too_slow: LogThrottle,
}

impl EventSocketHandle {
    /// Accepts all pending connections. Called before an event is published: a client that
    /// connects, and then causes an event, receives that event.
    pub(crate) fn let_in_waiting(self: &Arc<Self>) {
        if !self.stop.is_cancelled() {
            accept_waiting(&self.waiting, |stream| self.let_in(stream));
        }
    }

    fn let_in(self: &Arc<Self>, stream: impl LocalPeer) {
        if self.bus.subscriber_count() >= self.most {
            self.refused.inc();
            if let Some(times) = self.too_many.record() {
                tracing::warn!(
                    most = self.most,
                    times,
                    "there are too many event subscribers; further ones are turned away"
                );
            }
            return;
        }
        // Subscribed before the next event can be published on this thread.
        let subscription = self.bus.subscribe();
        let greeted = self.greeter.try_send(Greet(subscription.newcomer()));
        if greeted.is_err() {
            tracing::debug!("an event subscriber gets no state of open jobs: the mailbox is full");
        }
        let door = self.clone();
        actix_rt::spawn(async move {
            let end = tokio::select! {
                end = feed(stream, &subscription, &door.bus, door.timeout, &door.stop) => end,
                () = stop_drain_timeout(&door.stop) => End::TooSlow,
            };
            if end == End::TooSlow {
                door.cuts_off();
            }
        });
    }

    fn cuts_off(&self) {
        self.cut_off.inc();
        if let Some(times) = self.too_slow.record() {
            tracing::warn!(
                times,
                "an event subscriber took no events for too long; it was cut off"
            );
        }
    }
}

async fn stop_drain_timeout(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(STOP_DRAIN_TIMEOUT).await;
}

/// Why a subscriber is disconnected.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Closed,
    TooSlow,
    Stopped,
}

/// Writes events until the subscriber disconnects or stops taking them; when the master stops,
/// until the queue is empty.
async fn feed(
    mut stream: impl LocalPeer,
    subscriber: &Subscriber,
    bus: &Bus,
    timeout: Duration,
    stop: &CancellationToken,
) -> End {
    match tokio::time::timeout(timeout, stream.confirm()).await {
        Ok(Ok(())) => {}
        Ok(Err(_)) => return End::Closed,
        Err(_) => return End::TooSlow,
    }
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut scrap = [0_u8; 64];
    loop {
        let (mut frames, missed) = match subscriber.take_now(FRAMES_AT_ONCE) {
            Some(taken) => taken,
            None if stop.is_cancelled() => return End::Stopped,
            None => tokio::select! {
                taken = subscriber.take(FRAMES_AT_ONCE) => taken,
                () = stop.cancelled() => continue,
                read = reader.read(&mut scrap) => match read {
                    Ok(0) | Err(_) => return End::Closed,
                    Ok(_) => continue,
                },
            },
        };
        if missed > 0 {
            frames.push(bus.gap(missed));
        }
        match tokio::time::timeout(timeout, write_all(&mut writer, &frames)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return End::Closed,
            Err(_) => return End::TooSlow,
        }
    }
}

async fn write_all(writer: &mut (impl AsyncWrite + Unpin), frames: &[Bytes]) -> io::Result<()> {
    let mut slices: Vec<io::IoSlice<'_>> = frames.iter().map(|f| io::IoSlice::new(f)).collect();
    let mut rest = slices.as_mut_slice();
    while !rest.is_empty() {
        let written = writer.write_vectored(rest).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        io::IoSlice::advance_slices(&mut rest, written);
    }
    writer.flush().await
}
