//! Publish listener: bounded fan-out to subscribers.
//!
//! ZeroMQ's subscribers request topics. Those of the other transports send nothing, or a
//! registration, and receive what concerns them.
//!
//! A publication is encoded once for each transport and shared by all. [`PubHandle::publish`]
//! looks up its subscribers, queues it in each one's bounded queue and notifies; the subscribers'
//! own tasks write. A subscriber with a full queue misses the message and is counted; one that
//! takes nothing for long is closed. So no subscriber can slow down another, or the publisher.

mod delivery;
mod index;
mod subscriber;
mod watch;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use bytes::Bytes;
use parking_lot::Mutex;
use prometheus::Registry;
use saltern_base::metrics::gauge_on_scrape;
use tokio_util::sync::CancellationToken;

use super::accept::{Acceptor, Admission, Socket, serve};
use super::framing::{Side, Transport};
use super::limits::PubLimits;
use super::listen::ListenError;
use super::metrics::Families;
use super::network::KnownNetworks;
use super::quota::Budget;
use super::stream::Arrival;
use super::wake_list::WakeList;

use self::delivery::converse;
use self::index::Index;
use self::subscriber::Subscriber;

pub use self::watch::SubscriberWatch;

/// A publication, encoded once. Cloning shares it.
#[derive(Clone)]
pub struct PubMessage(Arc<Encoded>);

struct Encoded {
    /// Topic before the payload, if there is any: ZeroMQ's subscriptions are compared with it.
    topic: Option<Bytes>,
    /// All bytes before the payload, by transport; made when the first subscriber needs them.
    heads: [OnceLock<Bytes>; Transport::ALL.len()],
    payload: Bytes,
    /// Set with the first publication.
    pinned: OnceLock<Pinned>,
}

/// Counts a published message for as long as it is queued anywhere.
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
    /// A message of one part.
    pub fn new(payload: Bytes) -> Self {
        Self::encoded(None, payload)
    }

    /// A message of two frames, for ZeroMQ: topic (`zmq_filtering`) and payload. Other transports
    /// have no topics, and send the payload alone.
    pub fn with_topic(topic: &[u8], payload: Bytes) -> Self {
        Self::encoded(Some(Bytes::copy_from_slice(topic)), payload)
    }

    fn encoded(topic: Option<Bytes>, payload: Bytes) -> Self {
        Self(Arc::new(Encoded {
            topic,
            heads: Default::default(),
            payload,
            pinned: OnceLock::new(),
        }))
    }

    /// The bytes that subscriptions are matched against.
    fn first(&self) -> &Bytes {
        self.0.topic.as_ref().unwrap_or(&self.0.payload)
    }

    /// Bytes on the wire.
    fn size(&self, transport: Transport) -> usize {
        self.parts(transport).iter().map(|part| part.len()).sum()
    }

    fn parts(&self, transport: Transport) -> [&[u8]; 2] {
        let Encoded { topic, payload, .. } = &*self.0;
        let head = self.0.heads[transport as usize]
            .get_or_init(|| transport.publication_head(topic.as_deref(), payload.len()));
        [head, payload]
    }

    fn pin(&self, total: &Arc<AtomicUsize>) {
        self.0.pinned.get_or_init(|| {
            let bytes = self.0.payload.len();
            total.fetch_add(bytes, Ordering::Relaxed);
            Pinned {
                total: Arc::clone(total),
                bytes,
            }
        });
    }
}

/// Result of a publication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PublishCount {
    /// Subscribers that match.
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
    /// Number of the connection, never reused by a listener.
    pub connection: u64,
    /// The prefixes it asked for, in order.
    pub subscriptions: Vec<Bytes>,
    /// Bytes not yet written to it.
    pub queued_bytes: usize,
}

/// Handle for publishing from any thread. It and its subscribers outlive its owner.
#[derive(Clone)]
pub struct PubHandle {
    core: Arc<Core>,
}

impl PubHandle {
    /// Queues `message` for every subscriber with a matching topic. Never waits.
    ///
    /// All subscribers get the messages in the order of these calls.
    pub fn publish(&self, message: &PubMessage) -> PublishCount {
        self.queue(message, |index, found| {
            index.each_match(message.first(), found);
        })
    }

    /// Queues `message` for subscribers without topics: all, or with `names` those that were
    /// registered under one of them, and those that were not registered. Never waits.
    pub fn publish_to_hearers(&self, message: &PubMessage, names: Option<&[&str]>) -> PublishCount {
        self.queue(message, |index, found| index.each_hearer(names, found))
    }

    fn queue(
        &self,
        message: &PubMessage,
        each: impl FnOnce(&Index, &mut dyn FnMut(&Arc<Subscriber>)),
    ) -> PublishCount {
        let mut count = PublishCount::default();
        let mut wake = Vec::new();
        let core = &self.core;
        message.pin(&core.pinned);
        let crowded = core.pinned.load(Ordering::Relaxed) > core.limits.pinned;
        let index = core.index.lock();
        each(&index, &mut |subscriber| {
            count.matched += 1;
            if subscriber.push(message, &core.limits, crowded, &mut wake) {
                count.queued += 1;
            } else {
                count.dropped += 1;
                subscriber.gate.metrics.dropped.inc();
            }
        });
        // While the index is locked, so that two publications notify in order.
        core.wake_list.notify_all(&mut wake);
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
        core.wake_list.notify_all(&mut wake);
        is_queued
    }

    /// Closes a connection; its queue is dropped. `false` if there is no such connection.
    pub fn dismiss(&self, connection: u64) -> bool {
        let index = self.core.index.lock();
        let Some(subscriber) = index.subscriber(connection) else {
            return false;
        };
        if subscriber.dismiss() {
            self.core.wake_list.notify(Arc::clone(subscriber));
        }
        true
    }

    /// Notifies `watch` of the subscribers from now on. Only the first call counts; nothing keeps
    /// the watch alive.
    pub fn set_watch(&self, watch: Weak<dyn SubscriberWatch>) {
        let _ = self.core.watch.set(watch);
    }

    /// Every subscriber past the handshake.
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

    /// Number of subscribers past the handshake.
    pub fn subscriber_count(&self) -> usize {
        self.core.index.lock().subscriber_count()
    }
}

/// The listener on the publish port.
pub struct PubListener {
    pub(super) doors: Vec<Acceptor>,
    core: Arc<Core>,
}

impl PubListener {
    /// Prepares bound sockets, one for each transport. Peers of the `known` networks have reserved
    /// slots.
    ///
    /// # Errors
    ///
    /// A socket cannot be registered, or the registry has a publish listener already.
    pub fn new(
        sockets: Vec<Socket>,
        limits: PubLimits,
        known: KnownNetworks,
        registry: &Registry,
    ) -> Result<Self, ListenError> {
        let families = Families::new(registry, "publish")?;
        let doors = Acceptor::open(sockets, &families, limits.peers, known)?;
        let pinned = Arc::<AtomicUsize>::default();
        let held = Arc::clone(&pinned);
        gauge_on_scrape(
            registry,
            "saltern_port_queued_bytes",
            "Bytes of publications that wait for a subscriber, or are being written to one.",
            &[],
            move |gauges| {
                let held = i64::try_from(held.load(Ordering::Relaxed)).unwrap_or(i64::MAX);
                gauges.with_label_values::<&str>(&[]).set(held);
            },
        );
        let core = Core {
            wake_list: WakeList::new(),
            index: Mutex::default(),
            pinned,
            watch: OnceLock::new(),
            limits,
        };
        Ok(Self {
            doors,
            core: Arc::new(core),
        })
    }

    /// The handle for publishing through this listener.
    pub fn handle(&self) -> PubHandle {
        PubHandle {
            core: Arc::clone(&self.core),
        }
    }

    /// Serves until `stop`: then accepts and reads no more, sends queued messages within the drain
    /// time, closes every connection and returns.
    pub async fn serve(self, stop: CancellationToken) {
        let core = &self.core;
        // One read holds all that a subscriber may send.
        let budget = Budget::new(0);
        let start = |arrival: Arrival, admission: Admission| {
            tokio::spawn(converse(
                arrival,
                admission,
                Arc::clone(core),
                budget.clone(),
            ));
        };
        let serving = serve(self.doors, Side::Publish, &stop, start);
        tokio::select! {
            () = serving => {}
            () = core.wake_list.answer(Subscriber::wake) => {}
        }
    }
}

/// State shared by the connections and the handles.
struct Core {
    wake_list: WakeList<Subscriber>,
    index: Mutex<Index>,
    /// Bytes of publications held by any queue.
    pinned: Arc<AtomicUsize>,
    watch: OnceLock<Weak<dyn SubscriberWatch>>,
    limits: PubLimits,
}

impl Core {
    fn watch(&self) -> Option<Arc<dyn SubscriberWatch>> {
        self.watch.get().and_then(Weak::upgrade)
    }
}
