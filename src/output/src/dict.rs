//! Dicts of Python that an outputter changes while it prints: stock's `highstate` does, and shows what
//! it has changed where it gives up and prints the value as nested.

use saltern_wire::msgpack::Value;

/// The value of this key, to be changed.
pub(crate) fn get_mut<'a>(dict: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    let Value::Map(entries) = dict else {
        return None;
    };
    let mut entries = entries.iter_mut().rev();
    entries
        .find(|(key, _)| key.as_str() == Some(name))
        .map(|(_, value)| value)
}

/// `dict[name] = value`.
pub(crate) fn set(dict: &mut Value, name: &str, value: Value) {
    if let Some(slot) = get_mut(dict, name) {
        *slot = value;
    } else if let Value::Map(entries) = dict {
        entries.push((name.into(), value));
    }
}

/// `dict.setdefault(name, "")`.
pub(crate) fn set_default(dict: &mut Value, name: &str) {
    if get_mut(dict, name).is_none() {
        set(dict, name, Value::from(""));
    }
}

/// `"\n".join(value)`; nothing where Python raises an exception.
pub(crate) fn joined_lines(value: &Value) -> Option<String> {
    let lines: Option<Vec<&str>> = match value {
        Value::Array(items) => items.iter().map(Value::as_str).collect(),
        Value::Map(entries) => entries.iter().map(|(key, _)| key.as_str()).collect(),
        Value::Str(text) => {
            let letters: Vec<String> = text.chars().map(String::from).collect();
            return Some(letters.join("\n"));
        }
        _ => None,
    };
    lines.map(|lines| lines.join("\n"))
}
