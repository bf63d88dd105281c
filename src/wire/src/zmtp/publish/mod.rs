//! The publish listener: a PUB for SUB and XSUB peers.
//!
//! A publication is encoded once and shared by all. [`PubHandle::publish`] looks up who wants
//! it, leaves it in each subscriber's bounded queue and rings; the subscribers' own tasks write.
//! A subscriber that is full misses the message and is counted; one that takes nothing at all
//! for long is closed. So no subscriber can slow down another, or the publisher.

mod delivery;
mod index;
mod subscriber;
mod watch;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use prometheus::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::accept::{Admission, Gate, register, serve};
use super::bell::Bell;
use super::codec::{HEADER_MAX, put_frame_header};
use super::command::SocketType;
use super::limits::PubLimits;
use super::listen::ListenError;
use super::metrics::Metrics;
use super::quota::Budget;

use self::delivery::converse;
use self::index::Index;
use self::subscriber::Subscriber;

pub use self::watch::SubscriberWatch;

/// A publication, encoded once. Cloning shares it.
#[derive(Clone)]
pub struct PubMessage(Arc<Encoded>);

struct Encoded {
    /// The first frame: what subscriptions are compared with.
    first: Bytes,
    /// All bytes before the payload.
    head: Bytes,
    payload: Bytes,
    /// Set with the first publication.
    pinned: OnceLock<Pinned>,
}

/// Counts a published message for as long as anybody holds it.
struct Pinned {
    total: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl PubMessage {
    /// A message of one frame.
    pub fn new(payload: Bytes) -> Self {
        let mut head = BytesMut::with_capacity(HEADER_MAX);
        put_frame_header(payload.len(), false, &mut head);
        Self(Arc::new(Encoded {
            first: payload.clone(),
            head: head.freeze(),
            payload,
            pinned: OnceLock::new(),
        }))
    }

    /// A message of two frames: what to filter by, and the payload (`zmq_filtering`).
    pub fn with_topic(topic: &[u8], payload: Bytes) -> Self {
        let mut head = BytesMut::with_capacity(2 * HEADER_MAX + topic.len());
        put_frame_header(topic.len(), true, &mut head);
        let start = head.len();
        head.extend_from_slice(topic);
        let end = head.len();
        put_frame_header(payload.len(), false, &mut head);
        let head = head.freeze();
        Self(Arc::new(Encoded {
            first: head.slice(start..end),
            head,
            payload,
            pinned: OnceLock::new(),
        }))
    }

    /// Bytes on the wire.
    fn size(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }

    fn parts(&self) -> [&[u8]; 2] {
        [&self.0.head, &self.0.payload]
    }

    fn pin(&self, total: &Arc<AtomicUsize>) {
        self.0.pinned.get_or_init(|| {
            let bytes = self.size();
            total.fetch_add(bytes, Ordering::Relaxed);
            Pinned {
                total: Arc::clone(total),
                bytes,
            }
        });
    }
}

/// What became of a publication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublishCount {
    /// Subscribers that want it.
    pub matched: usize,
    /// Of those, the ones that have it in their queue now.
    pub queued: usize,
    /// Of those, the ones that miss it because their queue is full.
    pub dropped: usize,
}

/// A subscriber as [`PubHandle::subscribers`] shows it.
#[derive(Clone, Debug)]
pub struct SubscriberInfo {
    /// The other end of the connection.
    pub address: SocketAddr,
    /// Number of the connection, never used twice by a listener.
    pub connection: u64,
    /// The prefixes it asked for, in order.
    pub subscriptions: Vec<Bytes>,
    /// Bytes not yet written to it.
    pub queued_bytes: usize,
}

/// The way to publish, for any thread. It and its subscribers outlive whoever holds it.
#[derive(Clone)]
pub struct PubHandle {
    core: Arc<Core>,
}

impl PubHandle {
    /// Queues `message` for everyone who wants it. Never waits.
    ///
    /// All subscribers get the messages in the order of these calls.
    pub fn publish(&self, message: &PubMessage) -> PublishCount {
        let mut count = PublishCount::default();
        let mut wake = Vec::new();
        let core = &self.core;
        message.pin(&core.pinned);
        let crowded = core.pinned.load(Ordering::Relaxed) > core.limits.pinned;
        let index = core.index.lock();
        index.each_match(&message.0.first, |subscriber| {
            count.matched += 1;
            if subscriber.push(message, &core.limits, crowded, &mut wake) {
                count.queued += 1;
            } else {
                count.dropped += 1;
            }
        });
        // While the index is locked, so that two publications ring in their order.
        core.bell.ring_all(&mut wake);
        drop(index);
        core.gate
            .metrics
            .dropped
            .inc_by(u64::try_from(count.dropped).unwrap_or(0));
        count
    }

    /// Queues `message` for one connection, whatever it subscribed to. `false` if there is no such
    /// connection, or no room in its queue.
    pub fn publish_to(&self, connection: u64, message: &PubMessage) -> bool {
        let core = &self.core;
        let mut wake = Vec::new();
        message.pin(&core.pinned);
        let crowded = core.pinned.load(Ordering::Relaxed) > core.limits.pinned;
        let index = core.index.lock();
        let subscriber = index.subscriber(connection);
        let is_queued =
            subscriber.is_some_and(|it| it.push(message, &core.limits, crowded, &mut wake));
        core.bell.ring_all(&mut wake);
        is_queued
    }

    /// Ends a connection; what waits for it is dropped. `false` if there is no such connection.
    pub fn dismiss(&self, connection: u64) -> bool {
        let index = self.core.index.lock();
        let Some(subscriber) = index.subscriber(connection) else {
            return false;
        };
        if subscriber.dismiss() {
            self.core.bell.ring(Arc::clone(subscriber));
        }
        true
    }

    /// Tells `watch` of the subscribers from now on. Only the first one that is named here is
    /// told; nothing keeps it alive.
    pub fn set_watch(&self, watch: Weak<dyn SubscriberWatch>) {
        let _ = self.core.watch.set(watch);
    }

    /// Everyone who is connected and past the handshake.
    pub fn subscribers(&self) -> Vec<SubscriberInfo> {
        let index = self.core.index.lock();
        index
            .subscribers()
            .map(|(subscriber, topics)| SubscriberInfo {
                address: subscriber.address,
                connection: subscriber.number,
                subscriptions: topics.to_vec(),
                queued_bytes: subscriber.queued_bytes(),
            })
            .collect()
    }

    /// How many are connected and past the handshake.
    pub fn subscriber_count(&self) -> usize {
        self.core.index.lock().subscriber_count()
    }
}

/// The listener on the publish port.
pub struct PubListener {
    listener: TcpListener,
    core: Arc<Core>,
}

impl PubListener {
    /// Prepares a bound socket (see [`bind`](super::bind)); within a tokio runtime.
    ///
    /// # Errors
    ///
    /// The socket cannot be registered, or the registry has a publish listener already.
    pub fn new(
        listener: std::net::TcpListener,
        limits: PubLimits,
        registry: &Registry,
    ) -> Result<Self, ListenError> {
        let gate = Arc::new(Gate::new(Metrics::new(registry, "publish")?, limits.peers));
        let core = Core {
            gate,
            bell: Bell::new(),
            index: Mutex::default(),
            pinned: Arc::default(),
            watch: OnceLock::new(),
            limits,
        };
        Ok(Self {
            listener: register(listener)?,
            core: Arc::new(core),
        })
    }

    /// The way to publish through this listener.
    pub fn handle(&self) -> PubHandle {
        PubHandle {
            core: Arc::clone(&self.core),
        }
    }

    /// Serves until `stop`: then accepts and reads no more, lets queued messages out for a short
    /// time, closes every connection and returns.
    pub async fn serve(self, stop: CancellationToken) {
        let core = &self.core;
        // A subscriber sends nothing that one read does not take.
        let budget = Budget::new(0);
        let start = |stream: TcpStream, admission: Admission| {
            tokio::spawn(converse(
                stream,
                admission,
                Arc::clone(core),
                budget.clone(),
            ));
        };
        let serving = serve(self.listener, &core.gate, SocketType::Pub, &stop, start);
        tokio::select! {
            () = serving => {}
            () = core.bell.answer(Subscriber::wake) => {}
        }
    }
}

/// What the connections and the handles share.
struct Core {
    gate: Arc<Gate>,
    bell: Bell<Subscriber>,
    index: Mutex<Index>,
    /// Bytes of publications that some queue still holds.
    pinned: Arc<AtomicUsize>,
    watch: OnceLock<Weak<dyn SubscriberWatch>>,
    limits: PubLimits,
}

impl Core {
    fn watch(&self) -> Option<Arc<dyn SubscriberWatch>> {
        self.watch.get().and_then(Weak::upgrade)
    }
}
