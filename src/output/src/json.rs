//! Stock's outputter `json`: four spaces, keys in their order, text as it is
//! (`salt/output/json_out.py`).

use std::fmt::Write as _;

use saltern_wire::msgpack::Value;

use crate::python::float_repr;

/// A value as JSON. Bytes become text as far as they are; keys that are no text become text.
#[must_use]
pub fn json(value: &Value) -> String {
    let mut out = String::new();
    write(&mut out, value, 0);
    out
}

fn write(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Nil => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Int(number) => out.push_str(&number.to_string()),
        Value::Uint(number) => out.push_str(&number.to_string()),
        Value::Float(number) if number.is_nan() => out.push_str("NaN"),
        Value::Float(number) if number.is_infinite() => {
            out.push_str(if *number > 0.0 {
                "Infinity"
            } else {
                "-Infinity"
            });
        }
        Value::Float(number) => out.push_str(&float_repr(*number)),
        Value::Str(text) => quote(out, text),
        Value::Bin(bytes) | Value::Ext(_, bytes) => quote(out, &String::from_utf8_lossy(bytes)),
        Value::Array(items) => {
            let items = items.iter().map(|item| (None, item));
            block(out, ['[', ']'], items, depth);
        }
        Value::Map(entries) => {
            let entries = entries.iter().map(|(key, value)| (Some(key), value));
            block(out, ['{', '}'], entries, depth);
        }
    }
}

fn block<'v>(
    out: &mut String,
    [open, close]: [char; 2],
    items: impl ExactSizeIterator<Item = (Option<&'v Value>, &'v Value)>,
    depth: usize,
) {
    out.push(open);
    let is_empty = items.len() == 0;
    for (index, (key, value)) in items.enumerate() {
        if index > 0 {
            out.push(',');
        }
        new_line(out, depth + 1);
        if let Some(key) = key {
            write_key(out, key);
            out.push_str(": ");
        }
        write(out, value, depth + 1);
    }
    if !is_empty {
        new_line(out, depth);
    }
    out.push(close);
}

fn new_line(out: &mut String, depth: usize) {
    out.push('\n');
    out.extend(std::iter::repeat_n("    ", depth));
}

fn write_key(out: &mut String, key: &Value) {
    match key {
        Value::Str(text) => quote(out, text),
        other => {
            let mut text = String::new();
            write(&mut text, other, 0);
            match other {
                Value::Bin(_) | Value::Ext(..) => out.push_str(&text),
                _ => quote(out, &text),
            }
        }
    }
}

fn quote(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' => {
                write!(out, "\\u{:04x}", u32::from(c)).expect("invariant: a String takes all");
            }
            c => out.push(c),
        }
    }
    out.push('"');
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
