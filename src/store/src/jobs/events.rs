//! Events of the bus that are kept, and queries for them.

use bytes::Bytes;

/// An event that is to be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEvent {
    /// The time, in microseconds since 1970.
    pub received: i64,
    /// Its tag.
    pub tag: String,
    /// Its data as they stand on the bus, packed.
    pub data: Bytes,
    /// Whether minions or unauthenticated peers decide how many such events there are.
    pub of_minion: bool,
}

/// An event that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptEvent {
    /// Its place in the order of all kept events, from 1; no number is used twice.
    pub position: i64,
    /// When it was kept, in microseconds since 1970.
    pub received: i64,
    /// Its tag.
    pub tag: String,
    /// Its data as they stood on the bus, packed.
    pub data: Bytes,
    /// Whether minions or unauthenticated peers decide how many such events there are.
    pub of_minion: bool,
}

/// Range of events by their positions.
#[derive(Clone, Copy, Debug)]
pub struct EventRange {
    /// Only events behind this position.
    pub after: i64,
    /// Only events up to this position.
    pub through: i64,
    /// How many at most.
    pub max_events: usize,
    /// Bytes of tags and data after which no further event is read.
    pub max_bytes: usize,
}

/// Events of a range that are still kept, in the order in which they were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSlice {
    /// The events.
    pub events: Vec<KeptEvent>,
    /// The position up to which the range was read: its end, or that of the last event when there
    /// may be more behind it. Read backwards, the position up to which there may be more: the range's
    /// `after` when there are none.
    pub through: i64,
}

/// Query for a page of events.
#[derive(Clone, Debug, Default)]
pub struct EventsPage<'a> {
    /// Only events with a tag like this; `*`, `?` and `[…]` as in SQLite's `GLOB`.
    pub tag: Option<&'a str>,
    /// Only events that were kept at this time or later, in microseconds since 1970.
    pub since: Option<i64>,
    /// How many at most, the newest of all.
    pub limit: usize,
}
