//! Bounded queue of one returner's events, and when a batch of them is due (`event_return_queue`,
//! `event_return_queue_max_seconds`).
//!
//! Bounded in events and in bytes; the caller counts what overflows. No clock and no actor in
//! here.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

/// Events per call, where a site does not ask for more: a returner that takes a while for each
/// must finish within its timeout.
const BATCH: usize = 100;

/// Bytes per call, about; the pipe to Python takes no more than 64 MiB.
const BATCH_BYTES: usize = 16 << 20;

/// An event: its tag and its packed data.
pub(crate) type PackedEvent = (String, Bytes);

/// Bounds of a queue, and the configured batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueOptions {
    /// Events per batch.
    pub(super) together: usize,
    /// The oldest event waits no longer than this.
    pub(super) patience: Option<Duration>,
    /// Events in the queue at most.
    pub(super) most: usize,
    /// Their bytes at most.
    pub(super) most_bytes: usize,
}

/// Bounded queue of events, taken in batches.
pub(super) struct Queue {
    wishes: QueueOptions,
    waiting: VecDeque<(Instant, PackedEvent)>,
    bytes: usize,
    /// No more events will come: what is there is due.
    is_last: bool,
}

/// When the next batch is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// At once.
    Now,
    /// At this moment, if no more events come before.
    At(Instant),
    /// When more events come.
    Later,
}

impl Queue {
    pub(super) fn new(wishes: QueueOptions) -> Self {
        let most = wishes.most.max(wishes.together);
        Self {
            wishes: QueueOptions { most, ..wishes },
            waiting: VecDeque::new(),
            bytes: 0,
            is_last: false,
        }
    }

    /// Takes an event in; `false` when there is no room for it.
    pub(super) fn push(&mut self, event: PackedEvent, now: Instant) -> bool {
        let bytes = size(&event);
        let fits = self.waiting.is_empty() || self.bytes + bytes <= self.wishes.most_bytes;
        if self.waiting.len() >= self.wishes.most || !fits {
            return false;
        }
        self.bytes += bytes;
        self.waiting.push_back((now, event));
        true
    }

    /// When the next batch is due.
    pub(super) fn due(&self, now: Instant) -> Due {
        let Some((oldest, _)) = self.waiting.front() else {
            return Due::Later;
        };
        // A full queue is due, also below the configured batch.
        let is_full = self.bytes >= self.wishes.most_bytes;
        if self.is_last || is_full || self.waiting.len() >= self.wishes.together {
            return Due::Now;
        }
        match self.wishes.patience.map(|patience| *oldest + patience) {
            Some(end) if end <= now => Due::Now,
            Some(end) => Due::At(end),
            None => Due::Later,
        }
    }

    /// Takes the oldest events, one batch.
    pub(super) fn take(&mut self) -> Vec<PackedEvent> {
        let most = self.wishes.together.max(BATCH);
        let mut batch = Vec::new();
        let mut bytes = 0;
        while let Some((_, event)) = self.waiting.front()
            && batch.len() < most
            && (batch.is_empty() || bytes + size(event) <= BATCH_BYTES)
            && let Some((_, event)) = self.waiting.pop_front()
        {
            bytes += size(&event);
            batch.push(event);
        }
        self.bytes -= bytes;
        batch
    }

    /// Puts back a batch that was not run, in front of the others; the queue may exceed its bound
    /// until there is room again.
    pub(super) fn put_back(&mut self, batch: Vec<PackedEvent>, now: Instant) {
        for event in batch.into_iter().rev() {
            self.bytes += size(&event);
            self.waiting.push_front((now, event));
        }
    }

    /// From now on no batch waits for more events.
    pub(super) fn finish(&mut self) {
        self.is_last = true;
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

fn size((tag, data): &PackedEvent) -> usize {
    tag.len() + data.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST_TIMEOUT: Duration = Duration::from_secs(5);

    fn queue(together: usize, patience: Option<Duration>) -> Queue {
        Queue::new(QueueOptions {
            together,
            patience,
            most: 4,
            most_bytes: 100,
        })
    }

    fn event(number: usize) -> PackedEvent {
        (number.to_string(), Bytes::from_static(b"123456789"))
    }

    fn tags(batch: Vec<PackedEvent>) -> Vec<String> {
        batch.into_iter().map(|(tag, _)| tag).collect()
    }

    #[test]
    fn batch_is_due_when_full_or_old() {
        let start = Instant::now();
        for (together, patience, count, expected) in [
            (0, None, 0, Due::Later),
            (0, None, 1, Due::Now),
            (3, None, 2, Due::Later),
            (3, None, 3, Due::Now),
            (3, Some(TEST_TIMEOUT), 2, Due::At(start + TEST_TIMEOUT)),
        ] {
            let mut queue = queue(together, patience);
            for number in 0..count {
                assert!(queue.push(event(number), start), "{number} of {together}");
            }
            assert_eq!(queue.due(start), expected, "{count} of {together}");
            if patience.is_some() {
                assert_eq!(queue.due(start + TEST_TIMEOUT), Due::Now);
            }
            queue.finish();
            let at_the_end = if count > 0 { Due::Now } else { Due::Later };
            assert_eq!(queue.due(start), at_the_end, "{count} of {together}");
        }
    }

    #[test]
    fn queue_holds_at_least_one_configured_batch() {
        let now = Instant::now();
        let mut small = queue(0, None);
        let taken: Vec<bool> = (0..6)
            .map(|number| small.push(event(number), now))
            .collect();
        assert_eq!(taken, [true, true, true, true, false, false]);
        let mut large = queue(9, None);
        let taken = (0..20).filter(|number| large.push(event(*number), now));
        assert_eq!(taken.count(), 9);
        assert_eq!(large.due(now), Due::Now);
    }

    #[test]
    fn batch_put_back_comes_first() {
        let now = Instant::now();
        let mut queue = queue(0, None);
        for number in 0..3 {
            assert!(queue.push(event(number), now));
        }
        let batch = queue.take();
        assert!(queue.is_empty());
        assert!(queue.push(event(3), now));
        queue.put_back(batch, now);
        assert_eq!(queue.len(), 4);
        assert_eq!(tags(queue.take()), ["0", "1", "2", "3"]);
        // All its bytes are free again.
        assert!(queue.push(("x".to_owned(), Bytes::from(vec![0; 99])), now));
    }

    #[test]
    fn large_event_goes_alone_and_bytes_make_a_batch_due() {
        let now = Instant::now();
        let mut queue = queue(4, None);
        let large = ("x".to_owned(), Bytes::from(vec![0; 1000]));
        assert!(queue.push(large, now));
        assert!(!queue.push(event(1), now));
        assert_eq!(queue.due(now), Due::Now);
        assert_eq!(queue.take().len(), 1);
    }
}
