//! Queues of events to react to: one for those without a limit, one for each limit.
//!
//! Bounded in events and in bytes. An event that overflows the queue or exceeds its rate is counted
//! and dropped: that costs the bus the same however many come.
//!
//! Not a `FairQueue`: no queue waits for a turn. Reactions begin in the order in which their events
//! arrived, as far as their limits let them.

use std::collections::VecDeque;
use std::sync::Arc;

use saltern_automation::reactor::Limit;
use saltern_model::Event;
use tokio::time::Instant;

use super::dead_letter::{ReplayError, ReplaySelection};
use super::reaction_queue::ReactionQueue;

/// Bytes of waiting data at most.
const MAX_BYTES: usize = 64 << 20;

/// Kind of a queued event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Something to react to.
    Event,
    /// An order to the reactor itself. Limited by room only.
    Order,
    /// A replay of a failure, whatever its limit.
    ReplaySelection(ReplaySelection),
}

/// Takes whether a replay was begun. Dropped, it was not.
pub(super) type Asker = Box<dyn FnOnce(Result<(), ReplayError>) + Send>;

/// A queued event.
pub(super) struct Item {
    pub(super) event: Event,
    pub(super) kind: Kind,
    pub(super) asker: Option<Asker>,
}

/// Why an event is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// The queue is full (`reactor_worker_hwm`).
    Queue,
    /// Its limit admits no more in this second.
    Rate,
}

/// Result of a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is queued. The flag: the reactor is idle and must be notified.
    Waits(bool),
    /// It is dropped.
    Dropped(Why),
}

/// Bounded queues of events, with rate and concurrency limits.
pub(super) struct EventQueues {
    event_queues: Vec<EventQueue>,
    most: usize,
    count: usize,
    bytes: usize,
    /// The number of the next event: queues are merged in order of arrival.
    number: u64,
    /// The reactor is active, or has been notified.
    is_looking: bool,
    is_closed: bool,
}

struct EventQueue {
    limit: Option<Limit>,
    waiting: VecDeque<(u64, Item)>,
    /// Events with reactions in progress.
    under_way: usize,
    /// Tokens of the rate limit.
    allowance: f64,
    counted: Instant,
}

impl EventQueue {
    fn new(limit: Option<Limit>) -> Self {
        let rate = limit.as_ref().and_then(|limit| limit.rate);
        Self {
            limit,
            waiting: VecDeque::new(),
            under_way: 0,
            allowance: rate.unwrap_or(1.0).max(1.0),
            counted: Instant::now(),
        }
    }

    /// Whether the rate admits one more.
    fn lets_through(&mut self) -> bool {
        let Some(rate) = self.limit.as_ref().and_then(|limit| limit.rate) else {
            return true;
        };
        let now = Instant::now();
        let passed = now.duration_since(self.counted).as_secs_f64();
        self.counted = now;
        self.allowance = (self.allowance + passed * rate).min(rate.max(1.0));
        if self.allowance < 1.0 {
            return false;
        }
        self.allowance -= 1.0;
        true
    }

    fn is_free(&self) -> bool {
        let most = self.limit.as_ref().and_then(|limit| limit.concurrency);
        most.is_none_or(|most| self.under_way < most)
    }
}

impl EventQueues {
    /// Queues for at most `most` events.
    pub(super) fn new(limits: Vec<Limit>, most: usize) -> Self {
        let limited = limits.into_iter().map(|limit| EventQueue::new(Some(limit)));
        Self {
            event_queues: std::iter::once(EventQueue::new(None))
                .chain(limited)
                .collect(),
            most,
            count: 0,
            bytes: 0,
            number: 0,
            is_looking: false,
            is_closed: false,
        }
    }

    /// Queues an event.
    pub(super) fn push(&mut self, event: &Event, kind: Kind, asker: Option<Asker>) -> Taken {
        let size = event.data.bytes().len();
        let tag = event.tag.as_str();
        let holds = |line: &EventQueue| line.limit.as_ref().is_some_and(|limit| limit.is_for(tag));
        let at = self
            .event_queues
            .iter()
            .position(|line| kind == Kind::Event && holds(line));
        let fits = self.count == 0 || self.bytes.saturating_add(size) <= MAX_BYTES;
        let Some(line) = self.event_queues.get_mut(at.unwrap_or(0)) else {
            return Taken::Dropped(Why::Queue);
        };
        if !line.lets_through() {
            return Taken::Dropped(Why::Rate);
        }
        if self.is_closed || self.count >= self.most || !fits {
            return Taken::Dropped(Why::Queue);
        }
        let event = event.clone();
        let item = Item { event, kind, asker };
        line.waiting.push_back((self.number, item));
        self.number += 1;
        self.count += 1;
        self.bytes += size;
        Taken::Waits(!std::mem::replace(&mut self.is_looking, true))
    }

    /// The first event whose queue has a free slot.
    pub(super) fn pop(&mut self) -> Option<(Item, usize)> {
        let first = |(at, line): (usize, &EventQueue)| {
            line.waiting.front().map(|(number, _)| (*number, at))
        };
        let event_queues = self.event_queues.iter().enumerate();
        let next = event_queues
            .filter(|(_, line)| line.is_free())
            .filter_map(first)
            .min();
        let taken = next.and_then(|(_, at)| {
            let line = self.event_queues.get_mut(at)?;
            let (_, item) = line.waiting.pop_front()?;
            line.under_way += 1;
            Some((item, at))
        });
        self.is_looking = taken.is_some();
        if let Some((item, _)) = &taken {
            self.count -= 1;
            self.bytes -= item.event.data.bytes().len();
        }
        taken
    }

    /// The reactions of an event have ended; whether the reactor must be notified of a free slot.
    pub(super) fn ended(&mut self, at: usize) -> bool {
        let Some(line) = self.event_queues.get_mut(at) else {
            return false;
        };
        line.under_way = line.under_way.saturating_sub(1);
        let is_awaited = !line.waiting.is_empty();
        is_awaited && !std::mem::replace(&mut self.is_looking, true)
    }

    /// Number of queued events.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Closes the queues and drops their events; gives their number.
    pub(super) fn close(&mut self) -> usize {
        self.is_closed = true;
        for line in &mut self.event_queues {
            line.waiting.clear();
        }
        self.bytes = 0;
        std::mem::take(&mut self.count)
    }
}

/// Keeps an event in progress for as long as it lives.
pub(crate) struct InFlightEvent {
    pub(super) queue: Arc<ReactionQueue>,
    pub(super) line: usize,
}

impl Drop for InFlightEvent {
    fn drop(&mut self) {
        self.queue.ended(self.line);
    }
}
