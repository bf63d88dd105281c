//! A failed reaction as a dead letter: what happened, and what is needed to try it again.

use saltern_model::{Event, Packed, Tag};
use saltern_wire::msgpack::Value;

use super::watch::Subject;

/// What of an event is to be done again: its file, or all its files; its reaction, or all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Again {
    pub(super) sls: Option<String>,
    pub(super) id: Option<String>,
}

/// The letter about a failure at a time, in microseconds since 1970.
pub(super) fn letter(what: &str, subject: &Subject, reason: &str, time: i64) -> Value {
    let mut fields = subject.fields();
    fields.push(("what", what.into()));
    fields.push(("reason", reason.into()));
    fields.push(("time", time.into()));
    let data = subject.event.data.bytes();
    fields.push(("data", Value::Bin(data.clone())));
    Value::map(fields)
}

/// What a letter asks to be done again; nothing for one that cannot be read.
pub(super) fn read(letter: &Value) -> Option<(Event, Again)> {
    let text = |name| letter.get(name).and_then(Value::as_str);
    let owned = |name| text(name).map(str::to_owned);
    let data = match letter.get("data")? {
        Value::Bin(data) => data.clone(),
        // Bytes that are text are read as one.
        Value::Str(data) => data.clone().into_bytes().into(),
        _ => return None,
    };
    let event = Event {
        tag: Tag::parse(text("tag")?).ok()?,
        data: Packed::new(data),
    };
    let again = Again {
        sls: owned("sls"),
        id: owned("id"),
    };
    Some((event, again))
}
