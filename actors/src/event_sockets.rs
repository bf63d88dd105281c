//! The two Unix sockets of the event bus in `sock_dir`, and the two names beside them that stock's
//! clients look for.
//!
//! `master_event_pub.ipc` pushes every event to whoever connects; `master_event_pull.ipc` takes
//! events from local programs. Their modes are those of each version of stock. `publish_pull.ipc`
//! and `workers.ipc` are empty files: clients only ask whether they exist.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use actix::Addr;
use bytes::Bytes;
use futures_util::StreamExt;
use saltern_model::{Compat, Event, Packed, Tag};
use saltern_wire::ipc::{PullDecoder, split_body};
use saltern_wire::msgpack::{Limits, RawValue};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::codec::FramedRead;
use tokio_util::sync::CancellationToken;

use crate::bus::{Bus, Subscriber};
use crate::event_publisher::EventPublisher;
use crate::messages::Fire;

/// The names that clients look for (`salt/utils/event.py`, `salt/client/__init__.py`,
/// `salt/netapi/__init__.py`).
const MARKERS: [&str; 2] = ["publish_pull.ipc", "workers.ipc"];
const PUB: &str = "master_event_pub.ipc";
const PULL: &str = "master_event_pull.ipc";

/// Frames written with one system call at most.
const FRAMES_AT_ONCE: usize = 64;

/// The bound sockets, not yet served.
pub(crate) struct EventSockets {
    publish: StdUnixListener,
    pull: StdUnixListener,
    options: SocketOptions,
}

/// How the sockets behave.
#[derive(Clone, Debug)]
pub(crate) struct SocketOptions {
    pub(crate) directory: PathBuf,
    pub(crate) compat: Compat,
    /// Users other than the master's own may listen (`publisher_acl`, `external_auth`).
    pub(crate) for_other_users: bool,
    /// A subscriber that takes nothing for so long is cut off.
    pub(crate) drain_timeout: Duration,
    /// The largest event that a local program may fire, in bytes.
    pub(crate) max_event: usize,
}

/// Why a socket cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot make \"{}\"", path.display())]
pub struct SocketError {
    /// Which one.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: io::Error,
}

impl EventSockets {
    /// Binds both sockets and makes the two files. What a dead master left behind is replaced; who
    /// holds the ports is the master, so nobody alive is robbed of a socket.
    pub(crate) fn bind(options: SocketOptions) -> Result<Self, SocketError> {
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
        let publish_path = directory.join(PUB);
        let publish = bind(&publish_path, listen_mode).map_err(at(&publish_path))?;
        let pull_path = directory.join(PULL);
        let pull = bind(&pull_path, 0o600).map_err(at(&pull_path))?;
        for name in MARKERS {
            let path = directory.join(name);
            marker(&path).map_err(at(&path))?;
        }
        Ok(Self {
            publish,
            pull,
            options,
        })
    }

    /// Serves both sockets in tasks of this thread.
    pub(crate) fn serve(
        self,
        bus: &Arc<Bus>,
        publisher: &Addr<EventPublisher>,
        stop: &CancellationToken,
    ) {
        let listeners = UnixListener::from_std(self.publish)
            .and_then(|publish| Ok((publish, UnixListener::from_std(self.pull)?)));
        match listeners {
            Ok((publish, pull)) => {
                let timeout = self.options.drain_timeout;
                actix_rt::spawn(serve_publish(publish, bus.clone(), timeout, stop.clone()));
                let limit = self.options.max_event;
                actix_rt::spawn(serve_pull(pull, publisher.clone(), limit, stop.clone()));
            }
            Err(error) => tracing::error!(%error, "the event sockets cannot be served"),
        }
    }

    /// Removes what tells clients that a master is running.
    pub(crate) fn remove(directory: &Path) {
        for name in MARKERS
            .into_iter()
            .chain([PUB, PULL, crate::control::SOCKET])
        {
            let path = directory.join(name);
            if let Err(error) = std::fs::remove_file(&path)
                && error.kind() != io::ErrorKind::NotFound
            {
                tracing::warn!(path = %path.display(), %error, "cannot be removed");
            }
        }
    }
}

/// Binds under a name of its own first, so that nobody can connect before the mode is right.
pub(crate) fn bind(path: &Path, mode: u32) -> io::Result<StdUnixListener> {
    let unready = path.with_extension("ipc-new");
    remove_if_there(&unready)?;
    let listener = StdUnixListener::bind(&unready)?;
    std::fs::set_permissions(&unready, std::fs::Permissions::from_mode(mode))?;
    std::fs::rename(&unready, path)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
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

async fn serve_publish(
    listener: UnixListener,
    bus: Arc<Bus>,
    timeout: Duration,
    stop: CancellationToken,
) {
    accept_all(&listener, &stop, |stream| {
        let bus = bus.clone();
        // Subscribed before the next event can be published on this thread.
        let subscriber = bus.subscribe();
        let stop = stop.clone();
        actix_rt::spawn(async move {
            let end = tokio::select! {
                end = feed(stream, &subscriber, &bus, timeout) => end,
                () = stop.cancelled() => "the master stops",
            };
            tracing::debug!(reason = end, "an event subscriber has gone");
            bus.unsubscribe(&subscriber);
        });
    })
    .await;
}

/// Accepts until told to stop. Out of descriptors, it waits a moment instead of spinning.
pub(crate) async fn accept_all(
    listener: &UnixListener,
    stop: &CancellationToken,
    mut serve: impl FnMut(UnixStream),
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => serve(stream),
            Err(error) => {
                tracing::warn!(%error, "a connection to an event socket was not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Writes events until the subscriber goes away or stops taking them.
async fn feed(
    stream: UnixStream,
    subscriber: &Subscriber,
    bus: &Bus,
    timeout: Duration,
) -> &'static str {
    let (mut reader, mut writer) = stream.into_split();
    let mut scrap = [0_u8; 64];
    loop {
        let (mut frames, missed) = tokio::select! {
            taken = subscriber.take(FRAMES_AT_ONCE) => taken,
            read = reader.read(&mut scrap) => match read {
                Ok(0) | Err(_) => return "it closed the connection",
                Ok(_) => continue,
            },
        };
        if missed > 0 {
            frames.push(bus.gap(missed));
        }
        match tokio::time::timeout(timeout, write_all(&mut writer, &frames)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return "it closed the connection",
            Err(_) => return "it took no events for too long",
        }
    }
}

async fn write_all(
    writer: &mut tokio::net::unix::OwnedWriteHalf,
    frames: &[Bytes],
) -> io::Result<()> {
    let mut slices: Vec<io::IoSlice<'_>> = frames.iter().map(|f| io::IoSlice::new(f)).collect();
    let mut rest = slices.as_mut_slice();
    while !rest.is_empty() {
        let written = writer.write_vectored(rest).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        io::IoSlice::advance_slices(&mut rest, written);
    }
    Ok(())
}

async fn serve_pull(
    listener: UnixListener,
    publisher: Addr<EventPublisher>,
    max_event: usize,
    stop: CancellationToken,
) {
    accept_all(&listener, &stop, |stream| {
        let (publisher, stop) = (publisher.clone(), stop.clone());
        actix_rt::spawn(async move {
            tokio::select! {
                () = take_in(stream, &publisher, max_event) => {}
                () = stop.cancelled() => {}
            }
        });
    })
    .await;
}

async fn take_in(stream: UnixStream, publisher: &Addr<EventPublisher>, max_event: usize) {
    let mut frames = FramedRead::new(stream, PullDecoder::new(max_event));
    while let Some(frame) = frames.next().await {
        let event = match frame {
            Ok(body) => read_event(&body),
            Err(error) => {
                tracing::warn!(%error, "a local program fired something that is no event");
                return;
            }
        };
        match event {
            Some(event) => {
                if publisher.send(Fire(vec![event])).await.is_err() {
                    tracing::warn!("an event of a local program was lost");
                }
            }
            None => tracing::warn!("a local program fired an event without a tag or a map"),
        }
    }
}

fn read_event(body: &Bytes) -> Option<Event> {
    let (tag, data) = split_body(body).ok()?;
    let tag = Tag::parse(tag).ok()?;
    let data = RawValue::parse(body.slice_ref(data), &Limits::WIRE).ok()?;
    data.is_map().then(|| Event {
        tag,
        data: Packed::new(data.into_bytes()),
    })
}
