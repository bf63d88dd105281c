//! Reads the master's event socket, `master_event_pub.ipc`.
//!
//! The framing differs between versions; the first byte shows which one it is, so that this reader
//! needs no setting. It never writes: a subscriber gets every
//! event and picks its own.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use saltern_wire::ipc::{FrameError, PullDecoder, split_body};
use saltern_wire::msgpack::{self, Dialect, Limits, Value, pack};
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout_at};
use tokio_util::codec::FramedRead;

use crate::ClientError;

/// The name of the event socket in `sock_dir`.
const EVENT_SOCKET: &str = "master_event_pub.ipc";

/// Tag of the event by which a slow subscriber is notified that it lost events.
const GAP: &str = "saltern/bus/gap";

/// A client that gets no event for this long asks the master: a stock master does not report lost
/// events.
pub(crate) const SILENCE: Duration = Duration::from_secs(60);

/// One event as it came from the bus.
#[derive(Debug, Clone)]
pub struct ReceivedEvent {
    /// The tag, as `salt/job/…/ret/…`.
    pub tag: String,
    /// The packed data, a map.
    pub data: Bytes,
}

impl ReceivedEvent {
    /// Whether it stands for events that were lost.
    pub fn is_gap(&self) -> bool {
        self.tag == GAP
    }

    /// The event that stands for lost ones, in the master's own process.
    #[must_use]
    pub fn gap(missed: u64) -> Self {
        Self {
            tag: GAP.to_owned(),
            data: pack(
                &[("dropped", missed)]
                    .into_iter()
                    .collect::<BTreeMap<_, _>>(),
                Dialect::Bin,
            )
            .into(),
        }
    }

    /// The data as a value.
    pub fn value(&self) -> Result<Value, ClientError> {
        msgpack::decode_exact(&self.data, &Limits::WIRE)
            .map_err(|error| ClientError::BadEvent(error.to_string()))
    }
}

/// A subscription in the master's own process.
pub trait EventSource: Send {
    /// The next event; `None` once the master has closed the subscription. Nothing is lost when the
    /// future is dropped before it is ready.
    fn next(&mut self) -> BoxFuture<'_, Option<ReceivedEvent>>;

    /// Leaves out events of other jobs and calls; those of this jid since the subscription are kept.
    fn only(&mut self, jid: &str);
}

/// A subscription to the master's events.
pub struct EventListener(Source);

enum Source {
    Socket(Box<FramedRead<UnixStream, PullDecoder>>),
    Inside(Box<dyn EventSource>),
}

impl EventListener {
    /// Subscribes to every event. From its return on, events are kept for [`EventListener::next`].
    pub async fn connect(sock_dir: &Path) -> Result<Self, ClientError> {
        let path = sock_dir.join(EVENT_SOCKET);
        let stream = match UnixStream::connect(&path).await {
            Ok(stream) => stream,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(ClientError::NotRunning(path));
            }
            Err(source) => return Err(ClientError::EventSocket { path, source }),
        };
        Ok(Self::of(stream))
    }

    pub(crate) fn of(stream: UnixStream) -> Self {
        let frames = FramedRead::new(stream, PullDecoder::default());
        Self(Source::Socket(Box::new(frames)))
    }

    /// A subscription in the master's own process.
    #[must_use]
    pub fn inside(source: Box<dyn EventSource>) -> Self {
        Self(Source::Inside(source))
    }

    /// Says that only events of this job or call matter: where the source can, it leaves out all
    /// others.
    pub fn only(&mut self, jid: &str) {
        if let Source::Inside(source) = &mut self.0 {
            source.only(jid);
        }
    }

    /// The next event; `None` once the master has closed the socket, or is gone. Nothing is lost when the
    /// future is dropped before it is ready.
    pub async fn next(&mut self) -> Result<Option<ReceivedEvent>, ClientError> {
        let frames = match &mut self.0 {
            Source::Socket(frames) => frames,
            Source::Inside(source) => return Ok(source.next().await),
        };
        let body: Bytes = match frames.next().await {
            None => return Ok(None),
            Some(Ok(body)) => body,
            Some(Err(error)) if is_the_end(&error) => return Ok(None),
            Some(Err(error)) => return Err(ClientError::BadEvent(error.to_string())),
        };
        let (tag, data) =
            split_body(&body).map_err(|error| ClientError::BadEvent(error.to_string()))?;
        Ok(Some(ReceivedEvent {
            tag: tag.to_owned(),
            data: body.slice_ref(data),
        }))
    }
}

/// A subscription by which a job or a batch is followed.
pub(crate) struct FollowedEvents {
    events: EventListener,
    /// When the last of its events came.
    heard: Instant,
}

impl FollowedEvents {
    pub(crate) fn new(events: EventListener) -> Self {
        let heard = Instant::now();
        Self { events, heard }
    }

    /// The first value that `read` makes of an event; `None` where events were lost, or it made none for
    /// [`SILENCE`]. A dropped future loses nothing.
    ///
    /// # Errors
    /// When the master closes the event socket, or sends a malformed event.
    pub(crate) async fn next<T>(
        &mut self,
        read: impl Fn(&ReceivedEvent) -> Result<Option<T>, ClientError>,
    ) -> Result<Option<T>, ClientError> {
        let silent = self.heard + SILENCE;
        let news = loop {
            let Ok(event) = timeout_at(silent, self.events.next()).await else {
                break None;
            };
            let event = event?.ok_or(ClientError::EventsEnded)?;
            if event.is_gap() {
                break None;
            }
            if let Some(news) = read(&event)? {
                break Some(news);
            }
        };
        self.heard = Instant::now();
        Ok(news)
    }
}

/// A master that is killed ends its connections in the middle of things.
fn is_the_end(error: &FrameError) -> bool {
    matches!(error, FrameError::CutOff | FrameError::Io(_))
}

/// A master's end of the event socket.
#[cfg(test)]
pub(crate) mod testing {
    use saltern_wire::ipc::{EventFrame, Framing};
    use saltern_wire::msgpack::encode;
    use tokio::io::AsyncWriteExt;

    use super::*;

    pub(crate) struct Bus(UnixStream);

    impl Bus {
        /// The socket with a subscriber.
        pub(crate) fn with_listener() -> (Self, EventListener) {
            let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
            (Self(ours), EventListener::of(theirs))
        }

        /// Dies in the middle of an event.
        pub(crate) async fn die(mut self) {
            let frame = EventFrame::new("half", b"\x80");
            let bytes = frame.bytes(Framing::Prefixed);
            let half = bytes.get(..bytes.len() / 2).expect("half of it");
            self.0.write_all(half).await.expect("written");
        }

        pub(crate) async fn fire(&mut self, tag: &str, data: &Value) {
            let frame = EventFrame::new(tag, &encode(data, Dialect::Bin));
            let bytes = frame.bytes(Framing::Prefixed);
            self.0.write_all(&bytes).await.expect("fired");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::Bus;
    use super::*;

    #[tokio::test]
    async fn killed_master_ends_the_event_stream() {
        let (mut bus, mut events) = Bus::with_listener();
        bus.fire("whole", &Value::Map(Vec::new())).await;
        bus.die().await;
        assert_eq!(events.next().await.unwrap().unwrap().tag, "whole");
        assert!(events.next().await.unwrap().is_none());
    }
}
