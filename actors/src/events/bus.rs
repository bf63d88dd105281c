//! The event bus itself: its subscribers and their queues.
//!
//! Shared between the EventPublisher, which puts events in, and the tasks of the subscribers,
//! which take them out; it outlives the actor. Each subscriber has a queue of its own, bounded in
//! frames and in bytes. When it is full, events are dropped for this subscriber alone, counted,
//! and announced to it by a `saltern/bus/gap` event as soon as there is room.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use saltern_base::clock::Clock;
use saltern_base::metrics::{IntCounter, IntGauge, Registry, counter, gauge, gauge_on_scrape};
use saltern_model::{Compat, Event, stamp};
use saltern_wire::ipc::{EventFrame, Framing};
use saltern_wire::msgpack::{Dialect, Value, encode};
use tokio::sync::Notify;

use crate::messages::NewSubscriber;

/// Bounds of one subscriber's queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueLimits {
    pub(crate) frames: usize,
    pub(crate) bytes: usize,
}

/// Observer in this process that sees each event on the bus's own thread; must be quick and must
/// not block.
pub(crate) trait Tap: Send + Sync {
    /// Called with each event.
    fn hear(&self, event: &Event);
}

/// The bus.
pub(crate) struct Bus {
    taps: RwLock<Vec<Arc<dyn Tap>>>,
    subscribers: RwLock<Vec<Arc<Subscriber>>>,
    limits: QueueLimits,
    framing: Framing,
    compat: Compat,
    clock: Clock,
    metrics: BusMetrics,
    /// Notified when the last subscriber has gone.
    emptied: Notify,
}

struct BusMetrics {
    events: IntCounter,
    dropped: IntCounter,
    gaps: IntCounter,
    subscribers: IntGauge,
}

/// One subscriber of the bus.
pub(crate) struct Subscriber {
    queue: Mutex<Queue>,
    ready: Notify,
    /// Gets no events that the job database has already.
    skips_kept: bool,
}

/// A subscriber's handle on the bus.
pub(crate) struct Subscription {
    bus: Arc<Bus>,
    subscriber: Arc<Subscriber>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.bus.unsubscribe(&self.subscriber);
    }
}

impl Subscription {
    /// Handle for sending to this subscriber alone.
    pub(crate) fn newcomer(&self) -> Box<dyn NewSubscriber> {
        Box::new(Newcomer {
            bus: Arc::downgrade(&self.bus),
            subscriber: Arc::downgrade(&self.subscriber),
        })
    }
}

impl std::ops::Deref for Subscription {
    type Target = Subscriber;

    fn deref(&self) -> &Subscriber {
        &self.subscriber
    }
}

/// A new subscriber, to which events can be sent alone.
struct Newcomer {
    bus: Weak<Bus>,
    subscriber: Weak<Subscriber>,
}

impl NewSubscriber for Newcomer {
    fn waiting(&self) -> Option<usize> {
        let subscriber = self.subscriber.upgrade()?;
        let waiting = subscriber.queue.lock().frames.len();
        Some(waiting)
    }

    fn send(&self, events: Vec<Event>) {
        let (Some(bus), Some(subscriber)) = (self.bus.upgrade(), self.subscriber.upgrade()) else {
            return;
        };
        for event in events {
            let frame = EventFrame::new(event.tag.as_str(), event.data.as_ref());
            if !subscriber.offer(frame.bytes(bus.framing), bus.limits) {
                bus.metrics.dropped.inc();
            }
        }
    }
}

#[derive(Default)]
struct Queue {
    frames: VecDeque<Bytes>,
    bytes: usize,
    /// Dropped since the last gap was announced.
    missed: u64,
}

impl Bus {
    pub(crate) fn new(
        compat: Compat,
        limits: QueueLimits,
        clock: Clock,
        registry: &Registry,
    ) -> Arc<Self> {
        let metrics = BusMetrics {
            events: counter(
                registry,
                "saltern_bus_events_total",
                "Events put on the bus.",
            ),
            dropped: counter(
                registry,
                "saltern_bus_events_dropped_total",
                "Events not queued for a subscriber whose queue was full.",
            ),
            gaps: counter(
                registry,
                "saltern_bus_gaps_total",
                "Announcements to subscribers that they have missed events.",
            ),
            subscribers: gauge(
                registry,
                "saltern_bus_subscribers",
                "Subscribers of the bus.",
            ),
        };
        let framing = match compat {
            Compat::V3006 => Framing::Prefixed,
            Compat::V3007 | Compat::V3008 => Framing::Bare,
        };
        let bus = Arc::new(Self {
            taps: RwLock::default(),
            subscribers: RwLock::new(Vec::new()),
            limits,
            framing,
            compat,
            clock,
            metrics,
            emptied: Notify::new(),
        });
        let seen = Arc::downgrade(&bus);
        gauge_on_scrape(
            registry,
            "saltern_bus_longest_queue",
            "Events that wait for the subscriber for whom most do.",
            &[],
            move |gauges| {
                let longest = seen.upgrade().map_or(0, |bus| bus.longest_queue());
                let longest = i64::try_from(longest).unwrap_or(i64::MAX);
                gauges.with_label_values::<&str>(&[]).set(longest);
            },
        );
        bus
    }

    fn longest_queue(&self) -> usize {
        let subscribers = self.subscribers.read();
        let waiting = subscribers
            .iter()
            .map(|subscriber| subscriber.queue.lock().frames.len());
        waiting.max().unwrap_or(0)
    }

    /// Queues an event for every subscriber. Never waits.
    pub(crate) fn publish(&self, event: &Event) {
        self.publish_to(event, |_| true);
    }

    /// The same with an event that the job database has already.
    pub(crate) fn publish_kept(&self, event: &Event) {
        self.publish_to(event, |subscriber| !subscriber.skips_kept);
    }

    fn publish_to(&self, event: &Event, is_for: impl Fn(&Subscriber) -> bool) {
        self.metrics.events.inc();
        for tap in self.taps.read().iter() {
            tap.hear(event);
        }
        let subscribers = self.subscribers.read();
        if subscribers.is_empty() {
            return;
        }
        let frame = EventFrame::new(event.tag.as_str(), event.data.as_ref()).bytes(self.framing);
        for subscriber in subscribers.iter().filter(|subscriber| is_for(subscriber)) {
            if !subscriber.offer(frame.clone(), self.limits) {
                self.metrics.dropped.inc();
            }
        }
    }

    /// Adds an observer of every event.
    pub(crate) fn tap(&self, tap: Arc<dyn Tap>) {
        self.taps.write().push(tap);
    }

    /// Adds a subscriber; it gets what is published from now on, until it is dropped.
    pub(crate) fn subscribe(self: &Arc<Self>) -> Subscription {
        self.subscribe_with(false)
    }

    /// The same without the events that the job database has already.
    pub(crate) fn subscribe_to_unkept(self: &Arc<Self>) -> Subscription {
        self.subscribe_with(true)
    }

    fn subscribe_with(self: &Arc<Self>, skips_kept: bool) -> Subscription {
        let subscriber = Arc::new(Subscriber {
            queue: Mutex::new(Queue::default()),
            ready: Notify::new(),
            skips_kept,
        });
        self.subscribers.write().push(subscriber.clone());
        self.metrics.subscribers.inc();
        Subscription {
            bus: self.clone(),
            subscriber,
        }
    }

    /// Number of subscribers.
    pub(crate) fn subscriber_count(&self) -> usize {
        self.subscribers.read().len()
    }

    /// Resolves when there is no subscriber.
    pub(crate) async fn emptied(&self) {
        loop {
            let emptied = self.emptied.notified();
            if self.subscriber_count() == 0 {
                return;
            }
            emptied.await;
        }
    }

    fn unsubscribe(&self, gone: &Arc<Subscriber>) {
        let mut subscribers = self.subscribers.write();
        subscribers.retain(|subscriber| !Arc::ptr_eq(subscriber, gone));
        self.metrics.subscribers.dec();
        if subscribers.is_empty() {
            self.emptied.notify_waiters();
        }
    }

    /// The event that announces to a subscriber how many it missed; counted in `gaps`.
    pub(crate) fn gap(&self, missed: u64) -> Bytes {
        self.metrics.gaps.inc();
        let data = Value::map([
            (
                "dropped",
                Value::from(i64::try_from(missed).unwrap_or(i64::MAX)),
            ),
            (
                "_stamp",
                stamp(self.compat, self.clock.unix_micros()).as_str().into(),
            ),
        ]);
        EventFrame::new("saltern/bus/gap", &encode(&data, Dialect::Bin)).bytes(self.framing)
    }
}

impl Subscriber {
    fn offer(&self, frame: Bytes, limits: QueueLimits) -> bool {
        let mut queue = self.queue.lock();
        let fits = queue.frames.is_empty() || queue.bytes + frame.len() <= limits.bytes;
        if queue.missed > 0 || queue.frames.len() >= limits.frames || !fits {
            // Once something was missed, nothing more goes in before the gap is announced.
            queue.missed += 1;
            return false;
        }
        queue.bytes += frame.len();
        queue.frames.push_back(frame);
        let was_empty = queue.frames.len() == 1;
        drop(queue);
        if was_empty {
            self.ready.notify_one();
        }
        true
    }

    /// Up to `most` frames, waiting for the first one; and how many were missed after them.
    pub(crate) async fn take(&self, most: usize) -> (Vec<Bytes>, u64) {
        loop {
            if let Some(taken) = self.take_now(most) {
                return taken;
            }
            self.ready.notified().await;
        }
    }

    /// The same without waiting; `None` when there is nothing.
    pub(crate) fn take_now(&self, most: usize) -> Option<(Vec<Bytes>, u64)> {
        let mut queue = self.queue.lock();
        if queue.frames.is_empty() && queue.missed == 0 {
            return None;
        }
        let count = queue.frames.len().min(most);
        let frames: Vec<Bytes> = queue.frames.drain(..count).collect();
        queue.bytes -= frames.iter().map(Bytes::len).sum::<usize>();
        let missed = if queue.frames.is_empty() {
            std::mem::take(&mut queue.missed)
        } else {
            0
        };
        Some((frames, missed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use saltern_model::{Packed, Tag};

    fn bus(frames: usize) -> Arc<Bus> {
        let limits = QueueLimits {
            frames,
            bytes: 1 << 20,
        };
        Bus::new(Compat::V3008, limits, Clock::system(), &Registry::new())
    }

    fn event(number: u8) -> Event {
        let data = encode(&Value::map([("n", i64::from(number))]), Dialect::Bin);
        Event {
            tag: Tag::parse("t").unwrap(),
            data: Packed::new(data),
        }
    }

    #[tokio::test]
    async fn slow_subscriber_gets_a_gap_with_the_number_missed() {
        let bus = bus(2);
        let (slow, quick) = (bus.subscribe(), bus.subscribe());
        for number in 0..5 {
            bus.publish(&event(number));
            assert_eq!(quick.take(10).await.0.len(), 1);
        }
        let (frames, missed) = slow.take(10).await;
        assert_eq!((frames.len(), missed), (2, 3));
        bus.publish(&event(9));
        assert_eq!(slow.take(10).await.1, 0);
        assert_eq!(bus.metrics.dropped.get(), 3);
    }

    #[tokio::test]
    async fn events_for_a_newcomer_reach_no_other_subscriber() {
        let bus = bus(4);
        let (old, new) = (bus.subscribe(), bus.subscribe());
        let newcomer = new.newcomer();
        bus.publish(&event(1));
        newcomer.send(vec![event(2), event(3)]);
        bus.publish(&event(4));
        assert_eq!(old.take(10).await.0.len(), 2);
        let expected = [1, 2, 3, 4].map(|number| {
            let event = event(number);
            EventFrame::new(event.tag.as_str(), event.data.as_ref()).bytes(bus.framing)
        });
        assert_eq!(new.take(10).await.0, expected);
        // A subscriber that has gone gets nothing, and what finds no room is counted.
        newcomer.send((0..5).map(event).collect());
        assert_eq!(bus.metrics.dropped.get(), 1);
        drop(new);
        newcomer.send(vec![event(5)]);
    }

    #[tokio::test]
    async fn frame_larger_than_the_queue_is_queued_alone() {
        let limits = QueueLimits {
            frames: 10,
            bytes: 8,
        };
        let bus = Bus::new(Compat::V3007, limits, Clock::system(), &Registry::new());
        let subscriber = bus.subscribe();
        bus.publish(&event(1));
        bus.publish(&event(2));
        assert_eq!(
            subscriber.take_now(10).map(|t| (t.0.len(), t.1)),
            Some((1, 1))
        );
        bus.publish(&event(3));
        assert_eq!(
            subscriber.take_now(10).map(|t| (t.0.len(), t.1)),
            Some((1, 0))
        );
        assert!(subscriber.take_now(10).is_none());
    }

    #[tokio::test]
    async fn gap_is_announced_in_order() {
        let bus = bus(3);
        let subscriber = bus.subscribe();
        for number in 0..5 {
            bus.publish(&event(number));
        }
        // Taken in parts: the gap comes with the last part only.
        assert_eq!(
            subscriber.take_now(2).map(|t| (t.0.len(), t.1)),
            Some((2, 0))
        );
        bus.publish(&event(5));
        assert_eq!(
            subscriber.take_now(2).map(|t| (t.0.len(), t.1)),
            Some((1, 3))
        );
        bus.publish(&event(6));
        assert_eq!(
            subscriber.take_now(2).map(|t| (t.0.len(), t.1)),
            Some((1, 0))
        );
    }

    #[tokio::test]
    async fn kept_event_reaches_all_but_those_who_have_it() {
        let bus = bus(4);
        let (all, unkept) = (bus.subscribe(), bus.subscribe_to_unkept());
        bus.publish_kept(&event(1));
        bus.publish(&event(2));
        assert_eq!(all.take(10).await.0.len(), 2);
        let expected = EventFrame::new("t", event(2).data.as_ref()).bytes(bus.framing);
        assert_eq!(unkept.take(10).await.0, [expected]);
    }

    #[tokio::test]
    async fn dropped_subscriber_is_removed() {
        let bus = bus(2);
        let subscription = bus.subscribe();
        assert_eq!(bus.metrics.subscribers.get(), 1);
        let emptied = {
            let bus = bus.clone();
            tokio::spawn(async move { bus.emptied().await })
        };
        drop(subscription);
        emptied.await.unwrap();
        assert_eq!(bus.metrics.subscribers.get(), 0);
        assert_eq!(bus.subscriber_count(), 0);
    }
}
