//! Deduplication of map keys, as in a Python dictionary.
//!
//! Of equal keys the last value counts, in the position of the first. Equality is Python's too:
//! `1`, `1.0` and `True` are one key. Not here: turning bytes into text, which the decoder has
//! done before.

use std::collections::HashMap;

use super::value::Value;

/// Entries up to which a linear scan is cheaper than hashing.
const LINEAR_SCAN_ENTRIES: usize = 8;

/// Leaves one entry for each key. Takes time and memory in proportion to the entries.
pub(super) fn unique(mut entries: Vec<(Value, Value)>) -> Vec<(Value, Value)> {
    let repeated = if entries.len() <= LINEAR_SCAN_ENTRIES {
        repeated_among_few(&entries)
    } else {
        repeated_among_many(&entries)
    };
    if repeated.is_empty() {
        return entries;
    }
    for (again, first) in &repeated {
        let (before, rest) = entries.split_at_mut(*again);
        if let (Some((_, old)), Some((_, new))) = (before.get_mut(*first), rest.first_mut()) {
            std::mem::swap(old, new);
        }
    }
    let mut at = 0;
    let mut gone = repeated.iter().map(|(again, _)| *again).peekable();
    entries.retain(|_| {
        let is_gone = gone.next_if_eq(&at).is_some();
        at += 1;
        !is_gone
    });
    entries
}

/// Positions of repeated keys, in order, each with the first position of its key.
fn repeated_among_few(entries: &[(Value, Value)]) -> Vec<(usize, usize)> {
    let mut repeated = Vec::new();
    for (again, (key, _)) in entries.iter().enumerate().skip(1) {
        let key = Key::of(key);
        let mut before = entries.iter().take(again);
        if let Some(first) = before.position(|(other, _)| key.is_some() && Key::of(other) == key) {
            repeated.push((again, first));
        }
    }
    repeated
}

fn repeated_among_many(entries: &[(Value, Value)]) -> Vec<(usize, usize)> {
    let mut repeated = Vec::new();
    let mut known = HashMap::with_capacity(entries.len());
    for (at, (key, _)) in entries.iter().enumerate() {
        let Some(key) = Key::of(key) else { continue };
        let first = *known.entry(key).or_insert(at);
        if first != at {
            repeated.push((at, first));
        }
    }
    repeated
}

/// Equality class of a key.
#[derive(PartialEq, Eq, Hash)]
enum Key<'a> {
    Nil,
    /// Booleans, integers, and floats without a fraction.
    Number(i128),
    /// The bits of a float that is no integer of 64 bits.
    Float(u64),
    Text(&'a str),
    Bytes(&'a [u8]),
    Ext(i8, &'a [u8]),
}

impl<'a> Key<'a> {
    /// `None` for a value that equals no key: NaN, and types that no decoded map has as a key.
    fn of(key: &'a Value) -> Option<Self> {
        Some(match key {
            Value::Nil => Self::Nil,
            Value::Bool(flag) => Self::Number((*flag).into()),
            Value::Int(number) => Self::Number((*number).into()),
            Value::Uint(number) => Self::Number((*number).into()),
            Value::Float(number) if number.is_nan() => return None,
            Value::Float(number) => {
                let whole = *number as i128;
                let is_whole = whole as f64 == *number && whole.unsigned_abs() < 1 << 65;
                match is_whole {
                    true => Self::Number(whole),
                    false => Self::Float(number.to_bits()),
                }
            }
            Value::Str(text) => Self::Text(text),
            Value::Bin(bytes) => Self::Bytes(bytes),
            Value::Ext(code, payload) => Self::Ext(*code, payload),
            Value::Array(_) | Value::Map(_) => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(key: impl Into<Value>, value: i64) -> (Value, Value) {
        (key.into(), value.into())
    }

    /// The same entries, enough of them to be hashed.
    fn among_many(entries: &[(Value, Value)]) -> Vec<(Value, Value)> {
        let others =
            (0..=LINEAR_SCAN_ENTRIES as i64).map(|number| one(format!("other {number}"), number));
        entries.iter().cloned().chain(others).collect()
    }

    #[test]
    fn last_of_equal_keys_counts_in_the_first_position() {
        let given = [
            one("a", 1),
            one("b", 2),
            one("a", 3),
            one("c", 4),
            one("a", 5),
        ];
        let kept = [one("a", 5), one("b", 2), one("c", 4)];
        assert_eq!(unique(given.to_vec()), kept);
        assert_eq!(unique(among_many(&given)), among_many(&kept));
    }

    #[test]
    fn keys_are_equal_as_in_python() {
        for (first, second, equal) in [
            (Value::Int(1), Value::Bool(true), true),
            (Value::Int(1), Value::Float(1.0), true),
            (Value::Float(0.0), Value::Float(-0.0), true),
            (
                Value::Uint(1 << 63),
                Value::Float((1_u64 << 63) as f64),
                true,
            ),
            (Value::Float(1e300), Value::Float(1e300), true),
            (Value::Nil, Value::Nil, true),
            (Value::Ext(1, "x".into()), Value::Ext(1, "x".into()), true),
            (Value::Float(f64::NAN), Value::Float(f64::NAN), false),
            (Value::Float(1.5), Value::Int(1), false),
            (Value::Int(1), Value::from("1"), false),
            (Value::from("x"), Value::from(&b"x"[..]), false),
            (Value::Ext(1, "x".into()), Value::Ext(2, "x".into()), false),
        ] {
            let given = [one(first, 1), one(second, 2)];
            let expected = if equal { 1 } else { 2 };
            assert_eq!(unique(given.to_vec()).len(), expected, "{given:?}");
            let many = among_many(&given);
            let less = given.len() - expected;
            assert_eq!(unique(many.clone()).len(), many.len() - less, "{given:?}");
        }
    }
}
