//! Events for the callers of the API: each gets those of its own jid and no others.
//!
//! A subscriber of the bus gets every event. With a thousand calls under way, each event would be
//! queued a thousand times, so events are dispatched by jid before they are queued. A caller learns
//! its jid from the gate's answer, when the first events have gone by: the latest ones are kept, and
//! handed to it from the moment on at which it began to listen.
//!
//! A queue is bounded in events and bytes. When it is full, nothing more goes in, events are dropped
//! for this caller alone and counted, and the caller gets a gap with their number when it has taken
//! what was there. The same where the latest events do not reach back to when it began to listen.
//! After a gap it asks the job database, so no return is lost to it.
//!
//! A jid that the caller chooses would need no such store, but a chosen jid costs a look into the job
//! database, and the gate chooses those of runner functions itself.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Weak};

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use saltern_base::metrics::{IntCounter, Registry, counter, gauge_on_scrape};
use saltern_client::{EventSource, ReceivedEvent};
use saltern_model::Event;
use tokio::sync::Notify;

use crate::events::bus::Tap;

/// Latest events that are kept, and their bytes.
const MAX_RECENT: usize = 16_384;
const MAX_RECENT_BYTES: usize = 32 << 20;

/// Events that may wait for one caller, and their bytes.
const MAX_WAITING: usize = 20_000;
const MAX_WAITING_BYTES: usize = 64 << 20;

/// Digits of a jid.
const JID_DIGITS: usize = 20;

/// Components of a tag among which its jid is looked for.
const COMPONENTS: usize = 4;

/// Dispatcher of events by jid.
pub(crate) struct JobEvents {
    state: Mutex<State>,
    /// Events that found no room in a caller's queue.
    dropped: IntCounter,
}

#[derive(Default)]
struct State {
    /// Number of the next event.
    next: u64,
    /// Number of the oldest event that is kept.
    oldest: u64,
    recent: VecDeque<Recent>,
    bytes: usize,
    listeners: HashMap<String, Vec<Weak<Listener>>>,
}

struct Recent {
    number: u64,
    event: ReceivedEvent,
}

/// The queue of one caller.
#[derive(Default)]
struct Listener {
    queue: Mutex<Queue>,
    ready: Notify,
}

#[derive(Default)]
struct Queue {
    events: VecDeque<ReceivedEvent>,
    bytes: usize,
    /// Dropped since the last gap was announced.
    missed: u64,
}

impl Listener {
    /// Queues an event; `false` when there is no room.
    fn offer(&self, event: ReceivedEvent) -> bool {
        let mut queue = self.queue.lock();
        let is_full = queue.events.len() >= MAX_WAITING
            || (queue.bytes > 0 && queue.bytes + event.data.len() > MAX_WAITING_BYTES);
        if is_full || queue.missed > 0 {
            // Nothing more goes in before the gap is announced.
            queue.missed += 1;
            return false;
        }
        queue.bytes += event.data.len();
        queue.events.push_back(event);
        drop(queue);
        self.ready.notify_one();
        true
    }

    fn miss(&self) {
        self.queue.lock().missed += 1;
        self.ready.notify_one();
    }

    fn take(&self) -> Option<ReceivedEvent> {
        let mut queue = self.queue.lock();
        match queue.events.pop_front() {
            Some(event) => {
                queue.bytes -= event.data.len();
                Some(event)
            }
            None if queue.missed > 0 => {
                let missed = std::mem::take(&mut queue.missed);
                Some(ReceivedEvent::gap(missed))
            }
            None => None,
        }
    }
}

impl Tap for JobEvents {
    fn hear(&self, event: &Event) {
        let Some(jid) = jid_of(event.tag.as_str()) else {
            return;
        };
        let heard = ReceivedEvent {
            tag: event.tag.as_str().to_owned(),
            data: event.data.bytes().clone(),
        };
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        state.bytes += heard.data.len();
        let listeners = state.listeners.get(jid).into_iter().flatten();
        for listener in listeners.filter_map(Weak::upgrade) {
            if !listener.offer(heard.clone()) {
                self.dropped.inc();
            }
        }
        state.recent.push_back(Recent {
            number,
            event: heard,
        });
        while state.recent.len() > MAX_RECENT || state.bytes > MAX_RECENT_BYTES {
            let Some(oldest) = state.recent.pop_front() else {
                break;
            };
            state.bytes -= oldest.event.data.len();
            state.oldest = oldest.number + 1;
        }
    }
}

/// The jid in a tag, if it has one.
fn jid_of(tag: &str) -> Option<&str> {
    tag.split('/').take(COMPONENTS).find(|part| {
        let digits = part.as_bytes().get(..JID_DIGITS);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_digit))
    })
}

impl JobEvents {
    /// A dispatcher without callers.
    pub(crate) fn new(registry: &Registry) -> Arc<Self> {
        let events = Arc::new(Self {
            state: Mutex::default(),
            dropped: counter(
                registry,
                "saltern_api_call_events_dropped_total",
                "Events of jobs that found no room in the queue of a call of the API.",
            ),
        });
        let seen = Arc::downgrade(&events);
        gauge_on_scrape(
            registry,
            "saltern_api_call_events_longest_queue",
            "Events that wait for the call of the API for which most do.",
            &[],
            move |gauges| {
                let longest = seen.upgrade().map_or(0, |events| events.longest_queue());
                let longest = i64::try_from(longest).unwrap_or(i64::MAX);
                gauges.with_label_values::<&str>(&[]).set(longest);
            },
        );
        events
    }

    fn longest_queue(&self) -> usize {
        let state = self.state.lock();
        let listeners = state.listeners.values().flatten();
        let listeners = listeners.filter_map(Weak::upgrade);
        let waiting = listeners.map(|listener| listener.queue.lock().events.len());
        waiting.max().unwrap_or(0)
    }

    /// Begins to listen; to which jid is said later.
    pub(crate) fn listen(self: &Arc<Self>) -> Box<dyn EventSource> {
        let since = self.state.lock().next;
        Box::new(Source {
            events: Arc::clone(self),
            since,
            followed: None,
            listener: Arc::default(),
        })
    }

    fn follow(&self, jid: &str, since: u64, listener: &Arc<Listener>) {
        let mut state = self.state.lock();
        if state.oldest > since {
            listener.miss();
        } else {
            let recent = state.recent.iter().rev();
            let recent = recent.take_while(|recent| recent.number >= since);
            let own = recent.filter(|recent| jid_of(&recent.event.tag) == Some(jid));
            let own: Vec<ReceivedEvent> = own.map(|recent| recent.event.clone()).collect();
            for event in own.into_iter().rev() {
                if !listener.offer(event) {
                    self.dropped.inc();
                }
            }
        }
        let listeners = state.listeners.entry(jid.to_owned()).or_default();
        listeners.push(Arc::downgrade(listener));
    }

    fn leave(&self, jid: &str, gone: &Arc<Listener>) {
        let mut state = self.state.lock();
        if let Some(listeners) = state.listeners.get_mut(jid) {
            listeners.retain(|listener| !std::ptr::eq(listener.as_ptr(), Arc::as_ptr(gone)));
            if listeners.is_empty() {
                state.listeners.remove(jid);
            }
        }
    }
}

/// The events of one caller.
struct Source {
    events: Arc<JobEvents>,
    since: u64,
    followed: Option<String>,
    listener: Arc<Listener>,
}

impl EventSource for Source {
    fn next(&mut self) -> BoxFuture<'_, Option<ReceivedEvent>> {
        Box::pin(async {
            loop {
                if let Some(event) = self.listener.take() {
                    return Some(event);
                }
                self.listener.ready.notified().await;
            }
        })
    }

    fn only(&mut self, jid: &str) {
        if self.followed.is_none() {
            self.events.follow(jid, self.since, &self.listener);
            self.followed = Some(jid.to_owned());
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if let Some(jid) = &self.followed {
            self.events.leave(jid, &self.listener);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use saltern_model::{Packed, Tag};

    use super::*;

    const JID: &str = "20260102030405060708";

    fn fire(events: &JobEvents, tag: &str, data: Vec<u8>) {
        events.hear(&Event {
            tag: Tag::parse(tag).unwrap(),
            data: Packed::new(data),
        });
    }

    fn heard(source: &mut dyn EventSource) -> Vec<String> {
        std::iter::from_fn(|| source.next().now_or_never().flatten())
            .map(|event| event.tag)
            .collect()
    }

    #[test]
    fn caller_gets_the_events_of_its_jid_since_it_listened() {
        let events = JobEvents::new(&Registry::new());
        let tag = |what: &str| format!("salt/job/{JID}/{what}");
        fire(&events, &tag("before"), vec![0x80]);
        let mut source = events.listen();
        for tag in [
            &*tag("new"),
            "salt/job/20260102030405060709/new",
            "salt/auth",
            JID,
        ] {
            fire(&events, tag, vec![0x80]);
        }
        source.only(JID);
        fire(&events, &format!("saltern/job/{JID}/finished"), vec![0x80]);
        fire(&events, &format!("syndic/s1/{JID}/x"), vec![0x80]);
        let expected = [
            tag("new"),
            JID.to_owned(),
            format!("saltern/job/{JID}/finished"),
            format!("syndic/s1/{JID}/x"),
        ];
        assert_eq!(heard(&mut *source), expected);
        drop(source);
        assert!(events.state.lock().listeners.is_empty());
    }

    #[test]
    fn caller_gets_a_gap_for_events_that_are_gone_and_they_are_counted() {
        let registry = Registry::new();
        let events = JobEvents::new(&registry);
        let tag = format!("salt/job/{JID}/ret/m");
        let mut late = events.listen();
        for _ in 0..=MAX_RECENT {
            fire(&events, &tag, vec![0x80]);
        }
        late.only(JID);
        assert_eq!(heard(&mut *late), ["saltern/bus/gap"]);
        drop(late);
        let mut slow = events.listen();
        slow.only(JID);
        for _ in 0..MAX_WAITING + 5 {
            fire(&events, &tag, vec![0x80]);
        }
        assert_eq!(events.longest_queue(), MAX_WAITING);
        assert_eq!(events.dropped.get(), 5);
        let heard = heard(&mut *slow);
        assert_eq!(heard.len(), MAX_WAITING + 1);
        assert_eq!(heard.last().map(String::as_str), Some("saltern/bus/gap"));
        assert!(events.state.lock().recent.len() <= MAX_RECENT);
    }
}
