//! The events that wait to be reacted to: one line for those without a limit, one for each limit.
//!
//! Bounded in events and in bytes. What finds no room, or comes too often, is counted and gone:
//! that costs the bus the same however many come.

use std::collections::VecDeque;
use std::sync::Arc;

use saltern_model::Event;
use saltern_requests::reactor::Limit;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::desk::Desk;
use super::letter::Again;

/// The most bytes of data that may wait.
const MOST_BYTES: usize = 64 << 20;

/// What an event is to the reactor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Something to react to.
    Event,
    /// An order to the reactor itself. It has no limit but room.
    Order,
    /// Something that failed, to be tried again, whatever its limit.
    Again(Again),
}

/// Who waits to hear whether what failed was begun again. Dropped, nothing was.
pub(super) type Asker = oneshot::Sender<Result<(), String>>;

/// An event that waits.
pub(super) struct Item {
    pub(super) event: Event,
    pub(super) kind: Kind,
    pub(super) asker: Option<Asker>,
}

/// Why an event leads to nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Too many wait (`reactor_worker_hwm`).
    Queue,
    /// Its limit lets no more through in a second.
    Rate,
}

/// What became of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It waits. The flag: nobody is looking, somebody must be told.
    Waits(bool),
    /// It is gone.
    Dropped(Why),
}

/// See the module.
pub(super) struct Lines {
    lines: Vec<Line>,
    most: usize,
    count: usize,
    bytes: usize,
    /// Of the next event: who came first goes first.
    number: u64,
    /// The reactor is looking, or has been told to.
    is_looking: bool,
    is_closed: bool,
}

struct Line {
    limit: Option<Limit>,
    waiting: VecDeque<(u64, Item)>,
    /// Events whose reactions have not all ended.
    under_way: usize,
    /// How many may come at once.
    allowance: f64,
    counted: Instant,
}

impl Line {
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

    /// Whether the rate lets one more through.
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

impl Lines {
    /// Lines for at most so many events.
    pub(super) fn new(limits: Vec<Limit>, most: usize) -> Self {
        let limited = limits.into_iter().map(|limit| Line::new(Some(limit)));
        Self {
            lines: std::iter::once(Line::new(None)).chain(limited).collect(),
            most,
            count: 0,
            bytes: 0,
            number: 0,
            is_looking: false,
            is_closed: false,
        }
    }

    /// Takes an event.
    pub(super) fn push(&mut self, event: &Event, kind: Kind, asker: Option<Asker>) -> Taken {
        let size = event.data.bytes().len();
        let tag = event.tag.as_str();
        let holds = |line: &Line| line.limit.as_ref().is_some_and(|limit| limit.is_for(tag));
        let at = self
            .lines
            .iter()
            .position(|line| kind == Kind::Event && holds(line));
        let fits = self.count == 0 || self.bytes.saturating_add(size) <= MOST_BYTES;
        let Some(line) = self.lines.get_mut(at.unwrap_or(0)) else {
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

    /// The first event in whose line there is a place.
    pub(super) fn pop(&mut self) -> Option<(Item, usize)> {
        let first =
            |(at, line): (usize, &Line)| line.waiting.front().map(|(number, _)| (*number, at));
        let lines = self.lines.iter().enumerate();
        let next = lines
            .filter(|(_, line)| line.is_free())
            .filter_map(first)
            .min();
        let taken = next.and_then(|(_, at)| {
            let line = self.lines.get_mut(at)?;
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

    /// The reactions of an event have ended. Whether somebody must be told that there is a place.
    pub(super) fn ended(&mut self, at: usize) -> bool {
        let Some(line) = self.lines.get_mut(at) else {
            return false;
        };
        line.under_way = line.under_way.saturating_sub(1);
        let is_awaited = !line.waiting.is_empty();
        is_awaited && !std::mem::replace(&mut self.is_looking, true)
    }

    /// How many wait.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Takes no more and forgets what waits; how many these were.
    pub(super) fn close(&mut self) -> usize {
        self.is_closed = true;
        for line in &mut self.lines {
            line.waiting.clear();
        }
        self.bytes = 0;
        std::mem::take(&mut self.count)
    }
}

/// An event is under way for as long as this lives.
pub(crate) struct Place {
    pub(super) desk: Arc<Desk>,
    pub(super) line: usize,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.desk.ended(self.line);
    }
}
