//! The latest events of the bus, in a ring of [`MAX_EVENTS`].
//!
//! Of an event that is larger than [`MAX_DATA_BYTES`] only tag and size are kept.

use std::collections::VecDeque;

use bytes::Bytes;
use saltern_cli::terminal::{plain, plain_lines};
use saltern_client::ReceivedEvent;
use saltern_output::json;
use saltern_wire::msgpack::{Limits, decode};

/// Events that are kept.
pub(super) const MAX_EVENTS: usize = 1_000;

/// Bytes of data that are kept of an event.
pub(super) const MAX_DATA_BYTES: usize = 16 * 1024;

/// Characters of a tag that are kept.
const MAX_TAG_LENGTH: usize = 250;

/// Lines of an event's data that are shown, and characters of each.
const MAX_LINES: usize = 2_000;
const MAX_LINE_LENGTH: usize = 1_000;

/// An event as it came.
pub(super) struct Heard {
    /// Counts the events from the first on.
    pub(super) number: u64,
    /// Microseconds since 1970.
    pub(super) at: i64,
    pub(super) tag: String,
    /// Bytes.
    pub(super) size: usize,
    /// The packed data, unless it is too large.
    data: Option<Bytes>,
}

/// Why there is no text of an event's data.
const TOO_LARGE: &str = "(too large to be kept here)";
const GARBLED: &str = "(not msgpack)";

impl Heard {
    /// The data as JSON, a line each.
    pub(super) fn lines(&self) -> Vec<String> {
        plain_lines(&self.text(), MAX_LINES, MAX_LINE_LENGTH)
    }

    /// The data as JSON in one line, cut to a number of characters.
    pub(super) fn line(&self, most: usize) -> String {
        let text = self.text();
        let mut line = String::new();
        for part in text.lines() {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(part.trim_start());
            if line.len() > most.saturating_mul(4) {
                break;
            }
        }
        plain(&line, most)
    }

    fn text(&self) -> String {
        let Some(data) = &self.data else {
            return TOO_LARGE.to_owned();
        };
        match decode(data, &Limits::WIRE) {
            Ok(value) => json(&value),
            Err(_) => GARBLED.to_owned(),
        }
    }
}

/// Bounded ring of the latest events.
#[derive(Default)]
pub(super) struct Events {
    ring: VecDeque<Heard>,
    /// Events received so far, of all kinds.
    count: u64,
    /// Events that the master dropped for this listener.
    lost: u64,
    /// Nothing is added while it stands still.
    pub(super) is_paused: bool,
}

impl Events {
    pub(super) fn newest_first(&self) -> impl Iterator<Item = &Heard> {
        self.ring.iter().rev()
    }

    pub(super) fn get(&self, number: u64) -> Option<&Heard> {
        let index = self
            .ring
            .binary_search_by_key(&number, |event| event.number);
        self.ring.get(index.ok()?)
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    pub(super) fn add(&mut self, event: &ReceivedEvent, at: i64) {
        self.count += 1;
        if event.is_gap() {
            let dropped = event.value().ok();
            let dropped = dropped.and_then(|value| value.get("dropped")?.as_u64());
            self.lost = self.lost.saturating_add(dropped.unwrap_or(1));
        }
        if self.is_paused {
            return;
        }
        if self.ring.len() == MAX_EVENTS {
            self.ring.pop_front();
        }
        let size = event.data.len();
        self.ring.push_back(Heard {
            number: self.count,
            at,
            tag: plain(&event.tag, MAX_TAG_LENGTH),
            size,
            // A copy: what came is a part of a much larger buffer.
            data: (size <= MAX_DATA_BYTES).then(|| Bytes::copy_from_slice(&event.data)),
        });
    }
}

#[cfg(test)]
mod tests {
    use saltern_wire::msgpack::{Dialect, Value, encode};

    use super::*;

    fn event(tag: &str, data: &Value) -> ReceivedEvent {
        ReceivedEvent {
            tag: tag.to_owned(),
            data: encode(data, Dialect::Bin).into(),
        }
    }

    #[test]
    fn ring_drops_oldest_events_and_data_of_large_ones() {
        let mut events = Events::default();
        let small = Value::map([("id", Value::from("m\x1b1"))]);
        for _ in 0..MAX_EVENTS + 1 {
            events.add(&event("a\nb", &small), 7);
        }
        let large = Value::from("x".repeat(MAX_DATA_BYTES));
        events.add(&event("large", &large), 8);
        assert_eq!(events.newest_first().count(), MAX_EVENTS);
        assert!(events.get(2).is_none());
        let first = events.get(3).unwrap();
        assert_eq!(first.tag, "a\\nb");
        assert_eq!(first.line(100), r#"{ "id": "m\u001b1" }"#);
        assert_eq!(first.lines().len(), 3);
        let last = events.newest_first().next().unwrap();
        assert_eq!((&*last.tag, &*last.line(100)), ("large", TOO_LARGE));
        assert!(last.size > MAX_DATA_BYTES);
    }

    #[test]
    fn gaps_are_counted_while_the_list_is_held() {
        let mut events = Events {
            is_paused: true,
            ..Events::default()
        };
        let gap = Value::map([("dropped", Value::from(12))]);
        events.add(&event("saltern/bus/gap", &gap), 7);
        events.add(&event("other", &gap), 7);
        assert_eq!((events.lost(), events.newest_first().count()), (12, 0));
    }
}
