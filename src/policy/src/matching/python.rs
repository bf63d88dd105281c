//! Values as stock's matchers see them: as text, as keys of a dictionary, as indices of a list.
//!
//! Stock compares the text that Python prints for a value, so `True`, `1.0` and even
//! `['a', 'b']` can be matched, and it reads a part of a path as YAML when nothing has that name.

use std::borrow::Cow;

use saltern_config::yaml::{self, NodeValue};
use saltern_python::number::{IntError, parse_int};
use saltern_wire::msgpack::Value;

/// Python's `str(value).lower()`.
pub(super) fn lower(value: &Value) -> Cow<'_, str> {
    let text = match value {
        Value::Str(text) => Cow::Borrowed(text.as_str()),
        Value::Bool(true) => Cow::Borrowed("true"),
        Value::Bool(false) => Cow::Borrowed("false"),
        Value::Nil => Cow::Borrowed("none"),
        other => saltern_python::str(other),
    };
    let is_lower = |byte: u8| byte.is_ascii() && !byte.is_ascii_uppercase();
    match text.bytes().all(is_lower) {
        true => text,
        false => Cow::Owned(text.to_lowercase()),
    }
}

/// Value of a part of a path after `yamlify_arg` (`salt/utils/args.py`), when it is not its own
/// text and can be a key.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Loaded {
    Nil,
    /// A whole number, or a boolean, which is the same key in Python.
    Int(i64),
    Float(f64),
    Str(String),
}

impl Loaded {
    /// Reads `text` as stock does for a name that a dictionary does not have.
    pub(super) fn read(text: &str) -> Option<Self> {
        let trimmed = text.trim();
        let is_number_with_gaps =
            text.contains('_') && trimmed.bytes().all(|b| b.is_ascii_digit() || b == b'_');
        if matches!(trimmed, "" | "---" | "...")
            || is_number_with_gaps
            || text.contains(['\t', '\r', '\n'])
        {
            return None;
        }
        if text == "None" {
            return Some(Self::Nil);
        }
        const LIMITS: yaml::Limits = yaml::Limits {
            depth: 8,
            nodes: 64,
            bytes: 4096,
        };
        let node = yaml::parse(text, "a part of a target", &LIMITS).ok()?;
        let loaded = match node.value {
            NodeValue::Null => Self::Nil,
            NodeValue::Bool(flag) => Self::Int(i64::from(flag)),
            NodeValue::Int(number) => Self::Int(number),
            // `1.0` and `True` are one key too.
            NodeValue::Float(number) if number as i64 as f64 == number => Self::Int(number as i64),
            NodeValue::Float(number) => Self::Float(number),
            NodeValue::Str(loaded) => Self::Str(loaded),
            // A date stays text; lists and mappings cannot be keys.
            _ => return None,
        };
        let is_refused = match &loaded {
            Self::Nil => text.contains('#'),
            Self::Str(loaded) => {
                loaded == text
                    || text.contains('#')
                    || (loaded.is_empty() && matches!(text, "|" | "!"))
            }
            Self::Int(_) | Self::Float(_) => false,
        };
        (!is_refused).then_some(loaded)
    }

    /// Whether a dictionary finds `key` under this one.
    pub(super) fn is_key(&self, key: &Value) -> bool {
        match self {
            Self::Nil => key.is_nil(),
            Self::Int(number) => key_is_int(key, *number),
            Self::Float(number) => matches!(key, Value::Float(other) if other == number),
            Self::Str(text) => matches!(key, Value::Str(other) if other == text),
        }
    }
}

/// Whether a key of a dictionary equals a whole number: `1`, `1.0` and `True` are one key.
pub(super) fn key_is_int(key: &Value, number: i64) -> bool {
    match key {
        Value::Int(other) => *other == number,
        Value::Bool(flag) => i64::from(*flag) == number,
        Value::Float(other) => *other == number as f64,
        _ => false,
    }
}

/// List index that Python's `int(text)` reads from a part of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Index {
    At(i64),
    /// A number that no list is long enough for.
    Beyond,
}

impl Index {
    /// Nothing when the text is no whole number.
    pub(super) fn read(text: &str) -> Option<Self> {
        match parse_int(text, 10) {
            Ok(number) => Some(i64::try_from(number).map_or(Self::Beyond, Self::At)),
            Err(IntError::TooLarge) => Some(Self::Beyond),
            Err(IntError::Invalid) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_print_as_in_python() {
        let table = [
            (Value::from("Größe"), "größe"),
            (Value::from(true), "true"),
            (Value::Nil, "none"),
            (Value::Float(1.0), "1.0"),
            (Value::Float(1e16), "1e+16"),
            (Value::Float(1.5e-7), "1.5e-07"),
            (Value::Float(0.0001), "0.0001"),
            (Value::Float(123_456_789.25), "123456789.25"),
            (
                Value::from(vec![Value::from("A"), 1_i64.into()]),
                "['a', 1]",
            ),
            (Value::map([("K", Value::Nil)]), "{'k': none}"),
        ];
        for (value, text) in table {
            assert_eq!(lower(&value), text);
        }
    }

    #[test]
    fn parts_of_paths_are_read_as_yaml_when_they_must() {
        let table = [
            ("1", Some(Loaded::Int(1))),
            ("010", Some(Loaded::Int(10))),
            ("yes", Some(Loaded::Int(1))),
            ("1.5", Some(Loaded::Float(1.5))),
            ("1.0", Some(Loaded::Int(1))),
            ("~", Some(Loaded::Nil)),
            ("None", Some(Loaded::Nil)),
            ("'a'", Some(Loaded::Str("a".to_owned()))),
            ("a", None),
            ("1_0", None),
            ("", None),
            ("# x", None),
            ("[a]", None),
            ("a: b", None),
            ("2020-01-01", None),
            ("1\t", None),
            ("_a", None),
            ("'_'", Some(Loaded::Str("_".to_owned()))),
            ("...", None),
            ("1_", None),
            ("!", None),
            ("~ # x", None),
            ("'a' # x", None),
            ("|", None),
            ("''", Some(Loaded::Str(String::new()))),
        ];
        for (text, loaded) in table {
            assert_eq!(Loaded::read(text), loaded, "{text}");
        }
    }

    #[test]
    fn equal_numbers_and_booleans_are_one_key() {
        let keys = [
            Value::Int(1),
            Value::from(true),
            Value::Float(1.0),
            Value::Int(0),
            Value::from(false),
            Value::Float(0.5),
            Value::from("1"),
            Value::Nil,
        ];
        for (loaded, found) in [
            (Loaded::Int(1), [0, 1, 2].as_slice()),
            (Loaded::Int(0), &[3, 4]),
            (Loaded::Float(0.5), &[5]),
            (Loaded::Str("1".to_owned()), &[6]),
            (Loaded::Nil, &[7]),
        ] {
            let is_found = |at: &usize| loaded.is_key(&keys[*at]);
            let places: Vec<usize> = (0..keys.len()).filter(is_found).collect();
            assert_eq!(places, found, "{loaded:?}");
        }
    }

    #[test]
    fn indices_are_read_as_python_reads_them() {
        let table = [
            ("0", Some(Index::At(0))),
            ("-1", Some(Index::At(-1))),
            (" 7 ", Some(Index::At(7))),
            ("1_0", Some(Index::At(10))),
            ("99999999999999999999", Some(Index::Beyond)),
            ("1__0", None),
            ("", None),
            ("1.0", None),
        ];
        for (text, index) in table {
            assert_eq!(Index::read(text), index, "{text}");
        }
    }
}
