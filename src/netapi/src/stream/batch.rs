//! Events that were committed together, and their encoded forms, which all streams share.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::OnceLock;

use bytes::Bytes;
use saltern_http::websocket::Utf8Bytes;
use saltern_output::json_line;
use saltern_wire::msgpack::{Limits, Value, decode};

use super::{CloseReason, Dialect, Position};

/// Tag of the event that announces a gap; the bus uses it, too.
pub(super) const GAP: &str = "saltern/bus/gap";

/// Tag of the last event of a stream that the master ends.
const CLOSED: &str = "saltern/stream/closed";

/// An event with its position in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusEvent {
    /// Its number.
    pub number: i64,
    /// Its tag.
    pub tag: String,
    /// Its data, packed.
    pub data: Bytes,
}

impl BusEvent {
    /// Its data; nothing where they cannot be read.
    pub(super) fn data(&self) -> Value {
        decode(&self.data, &Limits::WIRE).unwrap_or(Value::Nil)
    }
}

/// Events in the order of their positions. Each form is made by the first stream that needs it.
#[derive(Debug)]
pub struct EventBatch {
    history: u32,
    events: Vec<BusEvent>,
    sse: OnceLock<Encoded>,
    data_messages: OnceLock<Vec<Utf8Bytes>>,
    json_messages: OnceLock<Vec<Utf8Bytes>>,
}

/// All events of a batch in one form, one behind the other.
#[derive(Debug)]
pub(super) struct Encoded {
    bytes: Bytes,
    /// Where each event ends.
    ends: Vec<usize>,
}

impl Encoded {
    /// Consecutive events, without a copy.
    pub(super) fn slice(&self, range: Range<usize>) -> Bytes {
        let end_of = |index: usize| match index.checked_sub(1) {
            Some(before) => self.ends.get(before).copied().unwrap_or(self.bytes.len()),
            None => 0,
        };
        let (start, end) = (end_of(range.start), end_of(range.end));
        self.bytes.slice(start..end.max(start))
    }
}

impl EventBatch {
    /// Events of one history, in the order of their numbers.
    pub fn new(history: u32, events: Vec<BusEvent>) -> Self {
        Self {
            history,
            events,
            sse: OnceLock::new(),
            data_messages: OnceLock::new(),
            json_messages: OnceLock::new(),
        }
    }

    /// The position of one of its events.
    pub fn position_of(&self, event: &BusEvent) -> Position {
        Position {
            history: self.history,
            number: event.number,
        }
    }

    /// The events.
    pub fn events(&self) -> &[BusEvent] {
        &self.events
    }

    /// As messages of websockets.
    pub(super) fn messages(&self, dialect: Dialect) -> &[Utf8Bytes] {
        let made = match dialect {
            Dialect::Cherrypy => &self.data_messages,
            Dialect::Tornado => &self.json_messages,
        };
        made.get_or_init(|| {
            let events = self.events.iter();
            events
                .map(|event| message(&event.tag, event.data(), dialect))
                .collect()
        })
    }

    /// As blocks of server-sent events.
    pub(super) fn sse(&self) -> &Encoded {
        self.sse.get_or_init(|| {
            let (mut text, mut ends) = (String::new(), Vec::with_capacity(self.events.len()));
            for event in &self.events {
                let data = event.data();
                let position = Position {
                    history: self.history,
                    number: event.number,
                };
                push_block(&mut text, &event.tag, data, Some(position));
                ends.push(text.len());
            }
            Encoded {
                bytes: text.into(),
                ends,
            }
        })
    }
}

/// An event as a message of a websocket.
pub(super) fn message(tag: &str, data: Value, dialect: Dialect) -> Utf8Bytes {
    let event = Value::map([("data", data), ("tag", tag.into())]);
    let json = json_line(&event);
    match dialect {
        Dialect::Cherrypy => format!("data: {json}\n\n").into(),
        Dialect::Tornado => json.into(),
    }
}

/// A message with its position: a line behind the data, or an entry `id`.
pub(super) fn with_position(text: &str, position: Position, dialect: Dialect) -> Utf8Bytes {
    match dialect {
        Dialect::Cherrypy => format!("{}\nid: {position}\n\n", text.trim_end_matches('\n')),
        Dialect::Tornado => {
            let open = text.strip_suffix('}').unwrap_or(text);
            format!("{open}, \"id\": \"{position}\"}}")
        }
    }
    .into()
}

/// The data of an event that announces a gap.
pub(super) fn gap_data(missed: Option<u64>) -> Value {
    let missed = missed.map_or(Value::Nil, |missed| {
        i64::try_from(missed).unwrap_or(i64::MAX).into()
    });
    Value::map([("dropped", missed)])
}

/// Appends an event as stock's servers print it, and its id behind that: scripts look for the tag
/// in the first line. In a tag a carriage return would begin a new field.
fn push_block(text: &mut String, tag: &str, data: Value, id: Option<Position>) {
    let line = tag.replace(['\r', '\n'], " ");
    let event = Value::map([("data", data), ("tag", tag.into())]);
    let json = json_line(&event);
    // Writing to a text does not fail.
    let _ = writeln!(text, "tag: {line}\ndata: {json}");
    if let Some(id) = id {
        let _ = writeln!(text, "id: {id}");
    }
    text.push('\n');
}

/// The block that announces a gap. A client that resumes there does not get it again.
pub(super) fn gap_block(missed: Option<u64>, at: Position) -> Bytes {
    let mut text = String::new();
    push_block(&mut text, GAP, gap_data(missed), Some(at));
    text.into()
}

/// The last block of a stream that the master ends.
pub(super) fn closed_block(reason: CloseReason) -> Bytes {
    let mut text = String::new();
    let data = Value::map([("reason", reason.label())]);
    push_block(&mut text, CLOSED, data, None);
    text.into()
}
