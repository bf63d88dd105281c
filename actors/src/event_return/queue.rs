//! The events that wait for one returner, and when so many of them wait that they are returned
//! (`event_return_queue`, `event_return_queue_max_seconds`).
//!
//! Bounded in events and in bytes; what finds no room is counted by whoever brought it. No clock
//! and no actor in here.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

/// Events returned at once, where a site does not ask for more: a returner that takes a while for
/// each shall be done before its time is over.
const BATCH: usize = 100;

/// About how many bytes they may have together; the pipe to Python takes no more than 64 MiB.
const BATCH_BYTES: usize = 16 << 20;

/// An event: its tag and its packed data.
pub(crate) type Told = (String, Bytes);

/// Bounds of a queue, and what a site asks for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wishes {
    /// So many events wait for each other.
    pub(super) together: usize,
    /// But the first of them no longer than this.
    pub(super) patience: Option<Duration>,
    /// Most events that wait.
    pub(super) most: usize,
    /// Most bytes that they have.
    pub(super) most_bytes: usize,
}

/// See the module.
pub(super) struct Queue {
    wishes: Wishes,
    waiting: VecDeque<(Instant, Told)>,
    bytes: usize,
    /// Nothing more is awaited: what is there goes.
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
    pub(super) fn new(wishes: Wishes) -> Self {
        let most = wishes.most.max(wishes.together);
        Self {
            wishes: Wishes { most, ..wishes },
            waiting: VecDeque::new(),
            bytes: 0,
            is_last: false,
        }
    }

    /// Takes an event in; `false` when there is no room for it.
    pub(super) fn push(&mut self, event: Told, now: Instant) -> bool {
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
        // With less room than the site wants to fill, the room counts.
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

    /// The oldest events, as many as are returned at once.
    pub(super) fn take(&mut self) -> Vec<Told> {
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

    /// Puts a batch back that was not returned, in front of the others; it may be too much then,
    /// until there is room again.
    pub(super) fn put_back(&mut self, batch: Vec<Told>, now: Instant) {
        for event in batch.into_iter().rev() {
            self.bytes += size(&event);
            self.waiting.push_front((now, event));
        }
    }

    /// From now on nothing waits for company.
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

fn size((tag, data): &Told) -> usize {
    tag.len() + data.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    fn queue(together: usize, patience: Option<Duration>) -> Queue {
        Queue::new(Wishes {
            together,
            patience,
            most: 4,
            most_bytes: 100,
        })
    }

    fn told(number: usize) -> Told {
        (number.to_string(), Bytes::from_static(b"123456789"))
    }

    fn tags(batch: Vec<Told>) -> Vec<String> {
        batch.into_iter().map(|(tag, _)| tag).collect()
    }

    #[test]
    fn a_batch_is_due_when_there_are_enough_or_one_has_waited_enough() {
        let start = Instant::now();
        for (together, patience, count, expected) in [
            (0, None, 0, Due::Later),
            (0, None, 1, Due::Now),
            (3, None, 2, Due::Later),
            (3, None, 3, Due::Now),
            (3, Some(PATIENCE), 2, Due::At(start + PATIENCE)),
        ] {
            let mut queue = queue(together, patience);
            for number in 0..count {
                assert!(queue.push(told(number), start), "{number} of {together}");
            }
            assert_eq!(queue.due(start), expected, "{count} of {together}");
            if patience.is_some() {
                assert_eq!(queue.due(start + PATIENCE), Due::Now);
            }
            queue.finish();
            let at_the_end = if count > 0 { Due::Now } else { Due::Later };
            assert_eq!(queue.due(start), at_the_end, "{count} of {together}");
        }
    }

    #[test]
    fn there_is_room_for_so_many_and_for_what_a_site_wants_together() {
        let now = Instant::now();
        let mut small = queue(0, None);
        let taken: Vec<bool> = (0..6).map(|number| small.push(told(number), now)).collect();
        assert_eq!(taken, [true, true, true, true, false, false]);
        let mut large = queue(9, None);
        let taken = (0..20).filter(|number| large.push(told(*number), now));
        assert_eq!(taken.count(), 9);
        assert_eq!(large.due(now), Due::Now);
    }

    #[test]
    fn what_was_not_returned_comes_first_again() {
        let now = Instant::now();
        let mut queue = queue(0, None);
        for number in 0..3 {
            assert!(queue.push(told(number), now));
        }
        let batch = queue.take();
        assert!(queue.is_empty());
        assert!(queue.push(told(3), now));
        queue.put_back(batch, now);
        assert_eq!(queue.len(), 4);
        assert_eq!(tags(queue.take()), ["0", "1", "2", "3"]);
        // All its bytes are free again.
        assert!(queue.push(("x".to_owned(), Bytes::from(vec![0; 99])), now));
    }

    #[test]
    fn a_large_event_goes_alone_and_bytes_make_a_batch_due() {
        let now = Instant::now();
        let mut queue = queue(4, None);
        let large = ("x".to_owned(), Bytes::from(vec![0; 1000]));
        assert!(queue.push(large, now));
        assert!(!queue.push(told(1), now));
        assert_eq!(queue.due(now), Due::Now);
        assert_eq!(queue.take().len(), 1);
    }
}
