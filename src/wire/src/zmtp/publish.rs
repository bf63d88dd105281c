//! The publish listener: a PUB for SUB and XSUB peers.
//!
//! A publication is encoded once and shared by all. [`PubHandle::publish`] looks up who wants
//! it, leaves it in each subscriber's bounded queue and rings; the subscribers' own tasks write.
//! A subscriber that is full misses the message and is counted; one that takes nothing at all
//! for long is closed. So no subscriber can slow down another, or the publisher.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::future::Future;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use prometheus::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

use super::accept::{Admission, Gate, register, serve};
use super::bell::Bell;
use super::codec::{HEADER_MAX, Item, put_frame_header};
use super::command::{Command, SocketType};
use super::limits::{PubLimits, Rate, SizeLimits};
use super::link::{Bucket, Budget, Due, Fill, Link, encoded};
use super::listen::ListenError;
use super::metrics::{Close, Metrics};

/// Messages that one write takes.
const BATCH: usize = 16;

/// PONGs that wait for a subscriber to read; further PINGs go unanswered.
const CONTROLS: usize = 16;

/// A publication, encoded once. Cloning shares it.
#[derive(Clone)]
pub struct PubMessage(Arc<Encoded>);

struct Encoded {
    /// The first frame: what subscriptions are compared with.
    first: Bytes,
    /// All bytes before the payload.
    head: Bytes,
    payload: Bytes,
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
        }))
    }

    /// Bytes on the wire.
    fn size(&self) -> usize {
        self.0.head.len() + self.0.payload.len()
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
        let mut index = core.index.lock();
        index.each_match(&message.0.first, |subscriber| {
            count.matched += 1;
            if subscriber.push(message, &core.limits, &mut wake) {
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

    /// Everyone who is connected and past the handshake.
    pub fn subscribers(&self) -> Vec<SubscriberInfo> {
        let index = self.core.index.lock();
        index
            .subscribers
            .values()
            .map(|subscriber| {
                let state = subscriber.state.lock();
                SubscriberInfo {
                    address: subscriber.address,
                    connection: subscriber.number,
                    subscriptions: index
                        .topics
                        .get(&subscriber.number)
                        .map(|topics| topics.to_vec())
                        .unwrap_or_default(),
                    queued_bytes: state.bytes,
                }
            })
            .collect()
    }

    /// How many are connected and past the handshake.
    pub fn subscriber_count(&self) -> usize {
        self.core.index.lock().subscribers.len()
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
    limits: PubLimits,
}

/// Who wants what.
///
/// A message is looked up once for every *length* that any subscription has, so that a
/// publication to one minion among thousands (`zmq_filtering`: 40 hex digits each) costs a few
/// look-ups and not a comparison with each of them.
#[derive(Default)]
struct Index {
    subscribers: BTreeMap<u64, Arc<Subscriber>>,
    topics: HashMap<u64, Vec<Bytes>>,
    wanted: HashMap<Bytes, BTreeMap<u64, Arc<Subscriber>>>,
    /// How many entries of `wanted` have a key of this length.
    lengths: BTreeMap<usize, usize>,
}

impl Index {
    /// Calls `found` once for every subscriber with a subscription that `first` begins with.
    fn each_match(&mut self, first: &Bytes, mut found: impl FnMut(&Arc<Subscriber>)) {
        let mut hits = self
            .lengths
            .keys()
            .map_while(|length| first.get(..*length))
            .filter_map(|prefix| self.wanted.get(prefix));
        let Some(only) = hits.next() else { return };
        let Some(second) = hits.next() else {
            only.values().for_each(found);
            return;
        };
        // Several subscriptions of one subscriber may match: it still gets one copy.
        let mut all = only.clone();
        for more in std::iter::once(second).chain(hits) {
            all.extend(
                more.iter()
                    .map(|(number, each)| (*number, Arc::clone(each))),
            );
        }
        all.values().for_each(&mut found);
    }

    fn subscribe(
        &mut self,
        subscriber: &Arc<Subscriber>,
        topic: &[u8],
        limits: &PubLimits,
    ) -> Result<(), Close> {
        if topic.len() > limits.topic {
            return Err(Close::Topic);
        }
        let topics = self.topics.entry(subscriber.number).or_default();
        let Err(place) = topics.binary_search_by(|known| known.as_ref().cmp(topic)) else {
            return Ok(());
        };
        if topics.len() >= limits.subscriptions {
            return Err(Close::Subscriptions);
        }
        let topic = Bytes::copy_from_slice(topic);
        topics.insert(place, topic.clone());
        let length = topic.len();
        let wanting = self.wanted.entry(topic).or_default();
        if wanting.is_empty() {
            *self.lengths.entry(length).or_insert(0) += 1;
        }
        wanting.insert(subscriber.number, Arc::clone(subscriber));
        Ok(())
    }

    fn cancel(&mut self, number: u64, topic: &[u8]) {
        let Some(topics) = self.topics.get_mut(&number) else {
            return;
        };
        if let Ok(place) = topics.binary_search_by(|known| known.as_ref().cmp(topic)) {
            topics.remove(place);
            self.unwant(number, topic);
        }
    }

    fn unwant(&mut self, number: u64, topic: &[u8]) {
        let Some(wanting) = self.wanted.get_mut(topic) else {
            return;
        };
        wanting.remove(&number);
        if !wanting.is_empty() {
            return;
        }
        self.wanted.remove(topic);
        if let Some(count) = self.lengths.get_mut(&topic.len()) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&topic.len());
            }
        }
    }

    fn remove(&mut self, number: u64) {
        self.subscribers.remove(&number);
        for topic in self.topics.remove(&number).unwrap_or_default() {
            self.unwant(number, &topic);
        }
    }
}

/// The part of a connection that publishers reach.
struct Subscriber {
    number: u64,
    address: SocketAddr,
    state: Mutex<SubscriberState>,
}

#[derive(Default)]
struct SubscriberState {
    queue: VecDeque<PubMessage>,
    /// Messages and bytes not yet written, those being written included.
    messages: usize,
    bytes: usize,
    asleep: bool,
    waker: Option<Waker>,
}

impl Subscriber {
    /// Queues the message, or says that there is no room.
    fn push(
        self: &Arc<Self>,
        message: &PubMessage,
        limits: &PubLimits,
        wake: &mut Vec<Arc<Self>>,
    ) -> bool {
        let size = message.size();
        let mut state = self.state.lock();
        let full = state.messages >= limits.queue.max(1)
            || (state.messages > 0 && state.bytes + size > limits.queue_bytes);
        if full {
            return false;
        }
        state.queue.push_back(message.clone());
        state.messages += 1;
        state.bytes += size;
        if std::mem::take(&mut state.asleep) {
            wake.push(Arc::clone(self));
        }
        true
    }

    fn wake(&self) {
        if let Some(waker) = &self.state.lock().waker {
            waker.wake_by_ref();
        }
    }

    /// Whether there is something to write that is not being written yet; if not, the next
    /// publication wakes the task of `cx`.
    fn poll_work(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if !state.queue.is_empty() {
            return Poll::Ready(());
        }
        match &mut state.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            empty => *empty = Some(cx.waker().clone()),
        }
        state.asleep = true;
        Poll::Pending
    }

    /// Gives back the room of what was written, and moves on what comes next.
    fn exchange(&self, messages: usize, bytes: usize, sending: &mut VecDeque<Outgoing>) {
        let mut state = self.state.lock();
        state.asleep = false;
        state.messages = state.messages.saturating_sub(messages);
        state.bytes = state.bytes.saturating_sub(bytes);
        while sending.len() < BATCH {
            let Some(message) = state.queue.pop_front() else {
                break;
            };
            sending.push_back(Outgoing::Message(message));
        }
        if state.queue.is_empty() && state.queue.capacity() > BATCH {
            state.queue = VecDeque::new();
        }
    }
}

/// Takes the subscriber out of the index, also if its task panics.
struct Registered {
    core: Arc<Core>,
    subscriber: Arc<Subscriber>,
}

impl Registered {
    fn new(core: Arc<Core>, subscriber: Arc<Subscriber>) -> Self {
        let entry = Arc::clone(&subscriber);
        core.index.lock().subscribers.insert(entry.number, entry);
        Self { core, subscriber }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.core.index.lock().remove(self.subscriber.number);
        let mut state = self.subscriber.state.lock();
        state.waker = None;
        state.queue = VecDeque::new();
    }
}

/// The task of a connection.
async fn converse(stream: TcpStream, mut admission: Admission, core: Arc<Core>, budget: Budget) {
    let reason = talk(stream, &mut admission, core, budget).await;
    admission.ends(reason);
}

async fn talk(
    stream: TcpStream,
    admission: &mut Admission,
    core: Arc<Core>,
    budget: Budget,
) -> Close {
    let limits = core.limits;
    // A subscription is the longest thing that a subscriber may say. A little more is let in, so
    // that a topic that is too long is called that.
    let longest = 2 * limits.topic + 64;
    let sizes = SizeLimits {
        frame: longest,
        message: longest,
        frames: 1,
        command: longest,
    };
    let mut link = Link::new(stream, Arc::clone(&core.gate), budget, sizes);
    if let Err(reason) = link.handshake(&[SocketType::Sub, SocketType::Xsub]).await {
        return reason;
    }
    admission.opened();
    let subscriber = Arc::new(Subscriber {
        number: admission.number,
        address: admission.peer,
        state: Mutex::default(),
    });
    let registered = Registered::new(core, subscriber);
    // All subscriptions at once are no flood; changing them for ever is one.
    let changes = Rate {
        burst: u32::try_from(limits.subscriptions)
            .unwrap_or(u32::MAX)
            .saturating_mul(2),
        per_second: limits.peers.commands.per_second,
    };
    let mut delivery = Delivery {
        link,
        registered,
        changes: Bucket::new(changes, Instant::now()),
        sending: VecDeque::new(),
        offset: 0,
        controls: 0,
        blocked: None,
    };
    match delivery.run().await {
        Ok(never) => match never {},
        Err(reason) => reason,
    }
}

enum Never {}

enum Outgoing {
    Message(PubMessage),
    Control(Bytes),
}

impl Outgoing {
    fn parts(&self) -> [&[u8]; 2] {
        match self {
            Self::Message(message) => [&message.0.head, &message.0.payload],
            Self::Control(bytes) => [bytes, &[]],
        }
    }

    fn size(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }
}

enum Event {
    Work,
    Writable,
    Filled(Result<Fill, Close>),
    Due(Due),
    Stop,
}

struct Delivery {
    link: Link,
    registered: Registered,
    changes: Bucket,
    /// What is being written, the first `offset` bytes of its front already.
    sending: VecDeque<Outgoing>,
    offset: usize,
    /// How many of `sending` are controls.
    controls: usize,
    /// Since when the subscriber takes nothing.
    blocked: Option<Instant>,
}

impl Delivery {
    async fn run(&mut self) -> Result<Never, Close> {
        let gate = Arc::clone(&self.registered.core.gate);
        let mut stopped = pin!(gate.stop.cancelled());
        let mut killed = pin!(gate.kill.cancelled());
        let mut stopping = false;
        loop {
            self.write_queued()?;
            if stopping {
                if self.sending.is_empty() {
                    return Err(Close::Shutdown);
                }
            } else if self.read_buffered()? {
                continue;
            }
            let ending = if stopping {
                killed.as_mut()
            } else {
                stopped.as_mut()
            };
            match self.wait(ending, stopping).await {
                Event::Work | Event::Writable | Event::Filled(Ok(Fill::Some)) => {}
                Event::Filled(Ok(Fill::End)) => {
                    let whole = !self.link.in_the_middle();
                    return Err(if whole {
                        Close::PeerClosed
                    } else {
                        Close::Truncated
                    });
                }
                // With these limits nothing outgrows one read.
                Event::Filled(Ok(Fill::Starved(_))) => return Err(Close::Memory),
                Event::Filled(Err(reason)) | Event::Due(Due::Close(reason)) => return Err(reason),
                Event::Due(Due::Ping) => {
                    let ping = self.link.ping();
                    self.control(ping);
                }
                Event::Stop if stopping => return Err(Close::Shutdown),
                Event::Stop => stopping = true,
            }
        }
    }

    /// Queues a command, between messages and before those not begun.
    fn control(&mut self, bytes: Bytes) {
        let place = usize::from(self.offset > 0).min(self.sending.len());
        self.sending.insert(place, Outgoing::Control(bytes));
        self.controls += 1;
    }

    /// Writes until everything is out or the subscriber takes no more.
    fn write_queued(&mut self) -> Result<(), Close> {
        let (mut messages, mut bytes) = (0, 0);
        loop {
            self.registered
                .subscriber
                .exchange(messages, bytes, &mut self.sending);
            (messages, bytes) = (0, 0);
            if self.sending.is_empty() {
                self.blocked = None;
                self.sending = VecDeque::new();
                return Ok(());
            }
            let mut parts = [IoSlice::new(&[]); 2 * BATCH];
            let mut skip = self.offset;
            let mut count = 0;
            let pieces = self.sending.iter().flat_map(Outgoing::parts);
            for (slot, piece) in parts.iter_mut().zip(pieces) {
                let rest = piece.get(skip..).unwrap_or_default();
                skip = skip.saturating_sub(piece.len());
                *slot = IoSlice::new(rest);
                count += 1;
            }
            let written = self.link.try_write_parts(&parts[..count])?;
            if written == 0 {
                self.blocked.get_or_insert_with(Instant::now);
                return Ok(());
            }
            self.blocked = None;
            self.offset += written;
            while let Some(front) = self.sending.front() {
                let size = front.size();
                if self.offset < size {
                    break;
                }
                self.offset -= size;
                match self.sending.pop_front() {
                    Some(Outgoing::Message(_)) => {
                        messages += 1;
                        bytes += size;
                    }
                    _ => self.controls -= 1,
                }
            }
            let sent = u64::try_from(messages).unwrap_or(0);
            self.registered.core.gate.metrics.messages_out.inc_by(sent);
        }
    }

    /// Handles what is buffered; `true` if that left something to write.
    fn read_buffered(&mut self) -> Result<bool, Close> {
        let mut answered = false;
        while let Some(item) = self.link.next()? {
            match item {
                Item::Frame {
                    more: false,
                    payload,
                } => match payload.split_first() {
                    Some((1, topic)) => self.subscribe(topic)?,
                    Some((0, topic)) => self.cancel(topic)?,
                    // PUB ignores what else its peers say, as libzmq does; but not for ever.
                    _ => self.link.spend()?,
                },
                Item::Command(Command::Subscribe(topic)) => self.subscribe(&topic)?,
                Item::Command(Command::Cancel(topic)) => self.cancel(&topic)?,
                Item::Command(Command::Ping { context, .. }) => {
                    self.link.spend()?;
                    if self.controls < CONTROLS {
                        self.control(encoded(&Command::Pong(context)));
                        answered = true;
                    }
                }
                Item::Command(Command::Error(_)) => return Err(Close::PeerError),
                Item::Command(Command::Pong(_) | Command::Unknown { .. }) => self.link.spend()?,
                Item::Command(Command::Ready(_)) | Item::Greeting(_) => {
                    return Err(Close::Handshake);
                }
                Item::Frame { more: true, .. } => return Err(Close::Frames),
            }
        }
        Ok(answered)
    }

    fn subscribe(&mut self, topic: &[u8]) -> Result<(), Close> {
        let Registered { core, subscriber } = &self.registered;
        core.index
            .lock()
            .subscribe(subscriber, topic, &core.limits)?;
        self.change()
    }

    fn cancel(&mut self, topic: &[u8]) -> Result<(), Close> {
        let Registered { core, subscriber } = &self.registered;
        core.index.lock().cancel(subscriber.number, topic);
        self.change()
    }

    fn change(&mut self) -> Result<(), Close> {
        self.registered.core.gate.metrics.messages_in.inc();
        if self.changes.take(Instant::now()) {
            Ok(())
        } else {
            Err(Close::Flood)
        }
    }

    /// Sleeps until something is to be done.
    async fn wait(
        &mut self,
        mut ending: Pin<&mut WaitForCancellationFuture<'_>>,
        stopping: bool,
    ) -> Event {
        self.link.settle(stopping);
        let (mut deadline, mut due) = self.link.deadline(true, stopping);
        if let Some(since) = self.blocked {
            // A PING would wait behind what the subscriber does not read, so only this counts.
            (deadline, due) = (
                since + self.registered.core.limits.drain_timeout,
                Due::Close(Close::SlowSubscriber),
            );
        }
        std::future::poll_fn(|cx| {
            if self.blocked.is_some() {
                // Readiness errors show in the next write.
                if self.link.stream.poll_write_ready(cx).is_ready() {
                    return Poll::Ready(Event::Writable);
                }
            } else if self.registered.subscriber.poll_work(cx).is_ready() {
                return Poll::Ready(Event::Work);
            }
            if !stopping && let Poll::Ready(fill) = self.link.poll_fill(cx) {
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
