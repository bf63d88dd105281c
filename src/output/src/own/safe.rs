//! Values without anything that a terminal obeys.

use saltern_base::is_unsafe_for_terminal;
use saltern_wire::msgpack::Value;

/// The value with its texts escaped, keys included. Ends of lines and tabs stay.
pub(super) fn safe(value: &Value) -> Value {
    match value {
        Value::Str(text) => Value::Str(safe_text(text)),
        Value::Array(items) => Value::Array(items.iter().map(safe).collect()),
        Value::Map(entries) => {
            let entries = entries.iter();
            entries
                .map(|(key, value)| (safe(key), safe(value)))
                .collect()
        }
        _ => value.clone(),
    }
}

fn safe_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.replace("\r\n", "\n").chars() {
        match is_unsafe_for_terminal(c) && !matches!(c, '\n' | '\t') {
            true => out.extend(c.escape_default()),
            false => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_escaped_at_every_depth() {
        let value = Value::map([("k\u{1b}", vec![Value::from("a\r\n\tb\u{202e}\u{9b}")])]);
        let expected = Value::map([("k\\u{1b}", vec![Value::from("a\n\tb\\u{202e}\\u{9b}")])]);
        assert_eq!(safe(&value), expected);
    }
}
