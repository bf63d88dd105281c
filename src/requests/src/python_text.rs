//! How Python would print a value; two of stock's replies and some tags contain such text.

use saltern_wire::msgpack::Value;

/// Python's `repr`. Characters outside ASCII that Python would not print (other than control
/// characters and spaces) are printed as they are.
pub(crate) fn repr(value: &Value) -> String {
    match value {
        Value::Str(text) => quoted(text, char::is_control),
        Value::Bin(bytes) => {
            let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
            format!("b{}", quoted(&text, |c| c.is_control() || !c.is_ascii()))
        }
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(repr).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Map(entries) => {
            let entry = |(name, value): &(Value, Value)| format!("{}: {}", repr(name), repr(value));
            let entries: Vec<String> = entries.iter().map(entry).collect();
            format!("{{{}}}", entries.join(", "))
        }
        Value::Ext(..) => "...".to_owned(),
        scalar => str(scalar).unwrap_or_default(),
    }
}

/// Python's `str` for scalars; nothing for containers and bytes.
pub(crate) fn str(value: &Value) -> Option<String> {
    match value {
        Value::Nil => Some("None".to_owned()),
        Value::Bool(true) => Some("True".to_owned()),
        Value::Bool(false) => Some("False".to_owned()),
        Value::Int(number) => Some(number.to_string()),
        Value::Uint(number) => Some(number.to_string()),
        Value::Float(number) => Some(format!("{number:?}")),
        Value::Str(text) => Some(text.clone()),
        Value::Bin(_) | Value::Array(_) | Value::Map(_) | Value::Ext(..) => None,
    }
}

fn quoted(text: &str, is_escaped: fn(char) -> bool) -> String {
    use std::fmt::Write;
    let quote = match text.contains('\'') && !text.contains('"') {
        true => '"',
        false => '\'',
    };
    let mut out = String::from(quote);
    for c in text.chars() {
        let code = u32::from(c);
        let written = match c {
            '\n' => write!(out, "\\n"),
            '\r' => write!(out, "\\r"),
            '\t' => write!(out, "\\t"),
            '\\' => write!(out, "\\\\"),
            c if c == quote => write!(out, "\\{c}"),
            c if !is_escaped(c) && (c == ' ' || !c.is_whitespace()) => write!(out, "{c}"),
            _ if code <= 0xff => write!(out, "\\x{code:02x}"),
            _ => write!(out, "\\u{code:04x}"),
        };
        written.expect("invariant: a String takes every text");
    }
    out.push(quote);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn values_print_as_in_python() {
        let table = [
            (Value::Nil, "None"),
            (Value::Bool(true), "True"),
            (Value::Int(5), "5"),
            (Value::Float(1.0), "1.0"),
            (Value::Float(2.5), "2.5"),
            (Value::from("a"), "'a'"),
            (Value::from("it's"), "\"it's\""),
            (Value::from("a\"b"), "'a\"b'"),
            (Value::from("it's \"a\""), "'it\\'s \"a\"'"),
            (
                Value::from("größe\n\t\\\u{1}\u{2028}"),
                "'größe\\n\\t\\\\\\x01\\u2028'",
            ),
            (
                Value::Bin(Bytes::from_static(b"\xff'\0")),
                "b\"\\xff'\\x00\"",
            ),
            (Value::Array(vec!["x".into(), 1_i64.into()]), "['x', 1]"),
            (Value::map([("k", Value::Nil)]), "{'k': None}"),
        ];
        for (value, text) in table {
            assert_eq!(repr(&value), text);
        }
    }

    #[test]
    fn a_text_is_its_own_str_and_containers_have_none() {
        assert_eq!(str(&Value::from("a'b")).as_deref(), Some("a'b"));
        assert_eq!(str(&Value::Float(2.5)).as_deref(), Some("2.5"));
        assert_eq!(str(&Value::Array(Vec::new())), None);
    }
}
