//! Builds events: the data map with its `_stamp`, never larger than `max_event_size`.

use bytes::Bytes;
use saltern_model::{Event, Packed, Tag, stamp};
use saltern_wire::msgpack::{Dialect, Encoder, MapView, RawValue, Value, as_map, encode, pack};
use serde::Serialize;

use crate::{Context, traces};

/// Placeholder of a value that made its event too large (`salt/utils/dicttrim.py`).
const TRIMMED: &str = "VALUE_TRIMMED";

/// The entries of an event's data.
pub type Fields = Vec<(Value, Value)>;

/// An event of which the data are a struct, see [`crate::events`].
pub fn master_event<T: Serialize>(context: &Context, tag: Tag, data: &T) -> Event {
    let packed = pack(
        &Traced {
            stamped: Stamped {
                data,
                stamp: Some(now(context)),
            },
            trace: traces::entries(),
        },
        Dialect::Bin,
    );
    Event {
        tag,
        data: fit(context, packed.into()),
    }
}

/// Data of an event with what every event has.
#[derive(Serialize)]
struct Traced<T> {
    #[serde(flatten)]
    stamped: Stamped<T>,
    #[serde(flatten, serialize_with = "as_map::serialize")]
    trace: Vec<(&'static str, String)>,
}

/// Data with the time at which they were made, if that belongs to them.
#[derive(Serialize)]
pub(crate) struct Stamped<T> {
    #[serde(flatten)]
    pub(crate) data: T,
    #[serde(rename = "_stamp", skip_serializing_if = "Option::is_none")]
    pub(crate) stamp: Option<String>,
}

/// Names and values as the data of an event.
pub fn fields<const N: usize>(entries: [(&str, Value); N]) -> Fields {
    entries.map(|(name, value)| (name.into(), value)).into()
}

/// An event whose data is built here.
pub fn event(context: &Context, tag: Tag, data: Fields) -> Event {
    let mut entries = data;
    entries.push(("_stamp".into(), now(context).into()));
    for (name, value) in traces::entries() {
        // A load may have them already.
        entries.retain(|(known, _)| known.as_str() != Some(name));
        entries.push((name.into(), value.into()));
    }
    let packed = encode(&Value::Map(entries), Dialect::Bin);
    Event {
        tag,
        data: fit(context, packed.into()),
    }
}

/// An event whose data is a load from the wire, every value in the bytes that came.
pub(crate) fn event_of_load(context: &Context, tag: Tag, load: &mut MapView) -> Event {
    event_and_load(context, tag, load).0
}

/// The event, and the whole data: stored data is not trimmed. Unless the event had to be, they are
/// the same bytes.
pub(crate) fn event_and_load(context: &Context, tag: Tag, load: &mut MapView) -> (Event, Packed) {
    let stamp = RawValue::pack(&now(context), Dialect::Bin);
    load.insert("_stamp", stamp);
    for (name, value) in traces::entries() {
        load.insert(name, RawValue::pack(&value, Dialect::Bin));
    }
    let whole = load.pack_bin_dialect();
    let event = Event {
        tag,
        data: fit(context, whole.clone()),
    };
    (event, Packed::new(whole))
}

/// The time for a `_stamp`.
pub(crate) fn now(context: &Context) -> String {
    stamp(context.config.salt_compat, context.clock.unix_micros())
}

/// Replaces the largest values by a marker until the event is small enough, like stock's
/// `trim_dict`: in passes, each with a smaller bound for the values that stay.
fn fit(context: &Context, packed: Bytes) -> Packed {
    let limit = context.config.max_event_size;
    if packed.len() <= limit {
        return Packed::new(packed);
    }
    Packed::new(trim(&packed, limit))
}

fn trim(packed: &Bytes, limit: usize) -> Bytes {
    let Ok(mut value) = saltern_wire::msgpack::decode_exact(packed, &crate::envelope::LOAD_LIMITS)
    else {
        return packed.clone();
    };
    let mut percent = 50;
    loop {
        trim_values(&mut value, limit * percent / 100);
        let smaller = encode(&value, Dialect::Bin);
        if smaller.len() <= limit || percent == 0 {
            return smaller.into();
        }
        percent = percent.saturating_sub(10);
    }
}

fn trim_values(value: &mut Value, largest: usize) {
    let Value::Map(entries) = value else { return };
    for (_, inner) in entries {
        if matches!(inner, Value::Map(_)) {
            trim_values(inner, largest);
        } else if packed_size(inner) > largest.max(TRIMMED.len() + 1) {
            *inner = TRIMMED.into();
        }
    }
}

fn packed_size(value: &Value) -> usize {
    let mut out = Vec::new();
    Encoder::new(&mut out, Dialect::Bin).value(value);
    out.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_values_are_trimmed_first() {
        let big = "x".repeat(600);
        let value = Value::map([
            ("id", Value::from("m1")),
            ("return", Value::map([("a", big.as_str()), ("b", "small")])),
            ("out", Value::from("y".repeat(300).as_str())),
        ]);
        let packed: Bytes = encode(&value, Dialect::Bin).into();
        let trimmed = trim(&packed, 1000);
        assert!(trimmed.len() <= 1000);
        let read =
            saltern_wire::msgpack::decode_exact(&trimmed, &crate::envelope::LOAD_LIMITS).unwrap();
        assert_eq!(read.get("id").and_then(Value::as_str), Some("m1"));
        let inner = read.get("return").unwrap();
        assert_eq!(inner.get("a").and_then(Value::as_str), Some(TRIMMED));
        assert_eq!(inner.get("b").and_then(Value::as_str), Some("small"));
        assert!(
            read.get("out")
                .and_then(Value::as_str)
                .is_some_and(|text| text.len() == 300)
        );
    }
}
