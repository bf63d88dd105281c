//! Feed of all events for the streams of the API: kept ones from the job database, then live ones.
//!
//! A stream is a cursor. Live events come from one ring that all streams share, bounded in events
//! and bytes: a batch enters it after its commit. A stream behind the ring reads the job database
//! in bounded pages, one page at a time for all streams, on a thread that may block. It joins the
//! ring where its last page ends: positions are dense, so neither a hole nor a duplicate can hide.
//! Events that are no longer kept are announced as a gap with their exact number. A page that shows
//! the latest events reads them backwards instead, without a stream.
//!
//! The ring is the queue of every stream that has joined it: one that falls behind its oldest event
//! is cut off, and may come back with its last position.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::RwLock;
use saltern_base::log_throttle::LogThrottle;
use saltern_base::metrics::{IntCounter, IntGauge, Registry, counter, gauge};
use saltern_base::{blocking, chain};
use saltern_netapi::stream::{
    BusEvent, CloseReason, EarlierEvents, EventBatch, EventSource, EventStream, Position,
    StreamItem,
};
use saltern_store::{EventRange, EventSlice, JobQueries, KeptEvent, Result, StoreError};
use tokio::sync::{Mutex, watch};

use crate::events::bus::QueueLimits;

/// Events of one page of the job database.
const PAGE_EVENTS: usize = 256;

/// Bytes after which a page ends.
const PAGE_BYTES: usize = 1 << 20;

/// Pages that are kept for other streams: after a restart all streams read the same ones.
const CACHED_PAGES: usize = 8;

/// Failing reads are logged at most once per `LOG_INTERVAL`.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The feed; shared by the event table, which puts events in, and all streams.
pub(crate) struct EventFeed {
    /// Identity of the job database, for positions.
    history: u32,
    limits: QueueLimits,
    page_events: usize,
    ring: RwLock<Ring>,
    /// Position of the last committed event.
    head: watch::Sender<i64>,
    reader: Arc<dyn JobQueries>,
    /// Its lock bounds the reads: one at a time.
    pages: Mutex<Vec<CachedPage>>,
    failures: LogThrottle,
    metrics: FeedMetrics,
}

/// The newest committed batches, without a hole between two of them.
#[derive(Default)]
struct Ring {
    batches: std::collections::VecDeque<Arc<EventBatch>>,
    events: usize,
    bytes: usize,
}

#[derive(Clone)]
struct FeedMetrics {
    pages: IntCounter,
    ring: IntGauge,
}

/// Events behind a position, and how far they were looked for.
#[derive(Clone)]
struct Page {
    batch: Arc<EventBatch>,
    through: i64,
}

struct CachedPage {
    after: i64,
    /// The newest position when it was read.
    head: i64,
    page: Page,
}

impl EventFeed {
    /// The feed behind the events that are kept. `next` is the position of the next event.
    ///
    /// # Errors
    /// When the database cannot be read.
    pub(crate) fn new(
        reader: Arc<dyn JobQueries>,
        next: i64,
        limits: QueueLimits,
        registry: &Registry,
    ) -> Result<Arc<Self>> {
        let identity = reader.identity()?;
        let start = identity.get(..8).unwrap_or_default();
        let metrics = FeedMetrics {
            pages: counter(
                registry,
                "saltern_event_feed_pages_total",
                "Pages of kept events that were read for streams of the API.",
            ),
            ring: gauge(
                registry,
                "saltern_event_feed_ring_events",
                "Live events in memory for streams of the API.",
            ),
        };
        Ok(Arc::new(Self {
            history: u32::from_str_radix(start, 16).unwrap_or_default(),
            limits,
            page_events: PAGE_EVENTS,
            ring: RwLock::default(),
            head: watch::Sender::new(next - 1),
            reader,
            pages: Mutex::default(),
            failures: LogThrottle::new(LOG_INTERVAL),
            metrics,
        }))
    }

    /// Hands over events that are on the disk, in the order of their positions.
    pub(crate) fn committed(&self, events: Vec<KeptEvent>) {
        let ends = events.first().zip(events.last());
        let Some((first, last)) = ends.map(|(first, last)| (first.position, last.position)) else {
            return;
        };
        let events = events.into_iter().map(bus_event).collect();
        {
            let mut ring = self.ring.write();
            if *self.head.borrow() != first - 1 {
                // Their writer died between a commit and this: the database has those between.
                *ring = Ring::default();
            }
            ring.push(Arc::new(EventBatch::new(self.history, events)), self.limits);
            let events = i64::try_from(ring.events).unwrap_or(i64::MAX);
            self.metrics.ring.set(events);
        }
        self.head.send_replace(last);
    }

    /// A stream of the events behind a position, or of those to come.
    pub(crate) fn follow(self: &Arc<Self>, after: Option<Position>) -> FeedStream {
        let head = self.head.subscribe();
        let newest = *head.borrow();
        let of_here = after
            .filter(|after| after.history == self.history && (0..=newest).contains(&after.number));
        let cursor = of_here.map_or(newest, |after| after.number);
        FeedStream {
            feed: self.clone(),
            head,
            cursor,
            scanned: cursor,
            page: None,
            is_lost: after.is_some() && of_here.is_none(),
            has_joined: false,
        }
    }

    /// The live batch with the event behind a position; `None` when the ring begins later.
    fn live(&self, after: i64) -> Option<Page> {
        let ring = self.ring.read();
        let first = ring.batches.front()?.events().first()?.number;
        if first > after + 1 {
            return None;
        }
        let index = ring.batches.partition_point(|batch| last(batch) <= after);
        let batch = ring.batches.get(index)?.clone();
        let through = last(&batch);
        Some(Page { batch, through })
    }

    /// Kept events behind a position.
    async fn page(&self, after: i64, head: i64) -> Result<Page> {
        let mut pages = self.pages.lock().await;
        // Streams that stand near each other read the same page.
        let size = i64::try_from(self.page_events).unwrap_or(i64::MAX);
        let start = after - after % size;
        let is_it = |cached: &&CachedPage| {
            let is_whole = cached.page.through < cached.head;
            cached.after == start && (is_whole || cached.head == head)
        };
        let page = match pages.iter().find(is_it) {
            Some(cached) => cached.page.clone(),
            None => {
                let page = self.read(start, head).await?;
                pages.retain(|cached| cached.after != start);
                if pages.len() >= CACHED_PAGES {
                    pages.remove(0);
                }
                pages.push(CachedPage {
                    after: start,
                    head,
                    page: page.clone(),
                });
                page
            }
        };
        match page.through > after {
            true => Ok(page),
            // Its bytes were spent before.
            false => self.read(after, head).await,
        }
    }

    async fn read(&self, after: i64, head: i64) -> Result<Page> {
        self.metrics.pages.inc();
        let range = EventRange {
            after,
            through: head,
            max_events: self.page_events,
            max_bytes: PAGE_BYTES,
        };
        let slice = self
            .blocking(move |reader| reader.events_between(&range))
            .await?;
        let events = slice.events.into_iter().map(bus_event);
        Ok(Page {
            batch: Arc::new(EventBatch::new(self.history, events.collect())),
            through: slice.through,
        })
    }

    async fn read_backwards(&self, through: i64, count: usize) -> Result<EarlierEvents> {
        // One read at a time, as for the streams.
        let _turn = self.pages.lock().await;
        self.metrics.pages.inc();
        let range = EventRange {
            after: 0,
            through,
            max_events: count.min(self.page_events),
            max_bytes: PAGE_BYTES,
        };
        let slice = self
            .blocking(move |reader| reader.events_backwards(&range))
            .await?;
        Ok(EarlierEvents {
            events: slice.events.into_iter().map(bus_event).collect(),
            rest: slice.through,
        })
    }

    /// Reads the database on a thread that may block.
    async fn blocking(
        &self,
        read: impl FnOnce(&dyn JobQueries) -> Result<EventSlice> + Send + 'static,
    ) -> Result<EventSlice> {
        let reader = self.reader.clone();
        let read = blocking::run(move || read(reader.as_ref())).await;
        read.map_err(|error| StoreError::io("read", "the job database", io::Error::from(error)))?
    }

    fn unreadable(&self, error: &StoreError) -> CloseReason {
        if let Some(times) = self.failures.record() {
            let error = chain(error);
            tracing::error!(error, times, "kept events cannot be read");
        }
        CloseReason::Unreadable
    }
}

impl EventSource for EventFeed {
    fn subscribe(self: Arc<Self>, after: Option<Position>) -> Box<dyn EventStream> {
        Box::new(self.follow(after))
    }

    fn newest(&self) -> Option<Position> {
        Some(Position {
            history: self.history,
            number: *self.head.borrow(),
        })
    }

    fn backwards(
        &self,
        through: i64,
        count: usize,
    ) -> BoxFuture<'_, Result<EarlierEvents, CloseReason>> {
        Box::pin(async move {
            let read = self.read_backwards(through, count).await;
            read.map_err(|error| self.unreadable(&error))
        })
    }
}

impl Ring {
    fn push(&mut self, batch: Arc<EventBatch>, limits: QueueLimits) {
        self.events += batch.events().len();
        self.bytes += size(&batch);
        self.batches.push_back(batch);
        while self.batches.len() > 1
            && (self.events > limits.frames || self.bytes > limits.bytes)
            && let Some(oldest) = self.batches.pop_front()
        {
            self.events -= oldest.events().len();
            self.bytes -= size(&oldest);
        }
    }
}

fn bus_event(event: KeptEvent) -> BusEvent {
    BusEvent {
        number: event.position,
        tag: event.tag,
        data: event.data,
    }
}

fn size(batch: &EventBatch) -> usize {
    let events = batch.events().iter();
    events.map(|event| event.tag.len() + event.data.len()).sum()
}

fn last(batch: &EventBatch) -> i64 {
    batch.events().last().map_or(0, |event| event.number)
}

/// One stream.
pub(crate) struct FeedStream {
    feed: Arc<EventFeed>,
    head: watch::Receiver<i64>,
    /// Position of the last event that was given, or announced as missing.
    cursor: i64,
    /// Position up to which events were looked for.
    scanned: i64,
    /// Events that are being given.
    page: Option<Page>,
    /// The subscriber's position is none of this history.
    is_lost: bool,
    /// It gives live events.
    has_joined: bool,
}

impl FeedStream {
    async fn advance(&mut self) -> StreamItem {
        if std::mem::take(&mut self.is_lost) {
            let at = self.at_cursor();
            return StreamItem::Gap { missed: None, at };
        }
        loop {
            if let Some(item) = self.take_from_page() {
                return item;
            }
            let head = *self.head.borrow_and_update();
            if self.scanned >= head {
                if self.cursor < self.scanned {
                    return self.gap(self.scanned);
                }
                if self.head.changed().await.is_err() {
                    return StreamItem::Closed(CloseReason::Stopping);
                }
                continue;
            }
            match self.feed.live(self.scanned) {
                Some(page) => {
                    self.has_joined = true;
                    self.page = Some(page);
                }
                None if self.has_joined => return StreamItem::Closed(CloseReason::Slow),
                None => match self.feed.page(self.scanned, head).await {
                    Ok(page) => self.page = Some(page),
                    Err(error) => return StreamItem::Closed(self.feed.unreadable(&error)),
                },
            }
        }
    }

    /// The next events of the page, or the gap before them.
    fn take_from_page(&mut self) -> Option<StreamItem> {
        let page = self.page.as_ref()?;
        let events = page.batch.events();
        let first = events.partition_point(|event| event.number <= self.cursor);
        let rest = events.get(first..).unwrap_or_default();
        let Some(next) = rest.first() else {
            self.scanned = page.through.max(self.cursor);
            self.page = None;
            return None;
        };
        if next.number > self.cursor + 1 {
            let before = next.number - 1;
            return Some(self.gap(before));
        }
        let run = rest.iter().zip(next.number..);
        let run = run.take_while(|(event, number)| event.number == *number);
        let range = first..first + run.count();
        self.cursor = events
            .get(range.end - 1)
            .map_or(self.cursor, |event| event.number);
        let batch = page.batch.clone();
        Some(StreamItem::Events { batch, range })
    }

    fn gap(&mut self, to: i64) -> StreamItem {
        let missed = Some((to - self.cursor).unsigned_abs());
        self.cursor = to;
        let at = self.at_cursor();
        StreamItem::Gap { missed, at }
    }

    fn at_cursor(&self) -> Position {
        Position {
            history: self.feed.history,
            number: self.cursor,
        }
    }
}

impl EventStream for FeedStream {
    fn next(&mut self) -> BoxFuture<'_, StreamItem> {
        Box::pin(self.advance())
    }
}

#[cfg(test)]
mod tests;
