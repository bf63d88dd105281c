//! Values as JSON for programs: what `json.dumps` refuses has a form here, too.

use std::borrow::Cow;

use saltern_python::json::{self, Style};
use saltern_python::repr::Limits;
use saltern_python::{Object, Sequence, TextError, Visitor};
use saltern_wire::msgpack::Value;

const STYLE: Style = Style {
    ascii: false,
    sorted: false,
    indent: Some(4),
};

/// For values that were bounded when they were read.
const LIMITS: Limits = Limits {
    depth: 1_000,
    bytes: usize::MAX,
};

/// A value as JSON, with four spaces a level. Bytes become text as far as they are; keys that are no
/// text become text.
#[must_use]
pub fn json(value: &Value) -> String {
    written(value, STYLE)
}

/// A value as JSON on one line.
#[must_use]
pub fn json_line(value: &Value) -> String {
    let style = Style {
        indent: None,
        ..STYLE
    };
    written(value, style)
}

fn written(value: &Value, style: Style) -> String {
    let mut out = String::new();
    if let Err(error) = json::write(&mut out, Shown::Value(value), style, LIMITS) {
        out.push_str(&error.to_string());
    }
    out
}

/// A value of which everything has a form in JSON: `json.dumps` refuses bytes, times, and keys that
/// are containers, and a command line has to show what a minion returned all the same.
pub enum Shown<'a> {
    /// A key of a map.
    Key(&'a Value),
    /// Anything else.
    Value(&'a Value),
}

impl Object for Shown<'_> {
    type Error = TextError;

    fn accept<V: Visitor>(&self, visitor: &mut V) -> Result<(), TextError> {
        match self {
            Self::Key(Value::Bin(bytes) | Value::Ext(_, bytes))
            | Self::Value(Value::Bin(bytes) | Value::Ext(_, bytes)) => {
                visitor.text(&String::from_utf8_lossy(bytes))
            }
            Self::Key(key @ (Value::Array(_) | Value::Map(_))) => {
                visitor.text(&saltern_python::repr(key))
            }
            Self::Value(Value::Array(items)) => {
                visitor.sequence(Sequence::List, items.iter().map(Shown::Value))
            }
            Self::Value(Value::Map(entries)) => {
                let entries = entries.iter();
                visitor.dict(entries.map(|(key, value)| (Shown::Key(key), Shown::Value(value))))
            }
            Self::Key(scalar) | Self::Value(scalar) => scalar.accept(visitor),
        }
    }

    fn own_str(&self) -> Option<Cow<'_, str>> {
        let (Self::Key(value) | Self::Value(value)) = self;
        value.own_str()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_python_writes_them() {
        let value = Value::map([
            ("text", Value::from("größe \"x\"\n\u{1}")),
            (
                "list",
                Value::Array(vec![1.into(), 1e16.into(), Value::Nil]),
            ),
            ("none", Value::Map(Vec::new())),
        ]);
        let expected = "{\n    \"text\": \"größe \\\"x\\\"\\n\\u0001\",\n    \"list\": [\n        1,\n        \
                        1e+16,\n        null\n    ],\n    \"none\": {}\n}";
        assert_eq!(json(&value), expected);
        let keys = Value::map([(Value::from(1), Value::from(true))]);
        assert_eq!(json(&keys), "{\n    \"1\": true\n}");
    }
}
