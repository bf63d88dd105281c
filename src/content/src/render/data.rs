//! Conversions between the value types of the wire, of documents, of templates and of rendered
//! data.

use std::cell::Cell;

use bytes::Bytes;
use minijinja::value::Value as Template;
use saltern_config::yaml::{Key as YamlKey, Node, NodeValue};
use saltern_wire::msgpack::Value;

use super::jinja::fault::{Fault, Outcome};
use super::jinja::value::{Entries, Key, Kind, dict, int, list, none};
use super::jinja::yaml_text;

/// How deep values are converted.
const MAX_DEPTH: usize = 200;
/// About how many bytes of memory a value of a template may take as plain data.
const MAX_MEMORY_BYTES: usize = 256 << 20;

/// Writes a value as YAML, as PyYAML with Salt's dumper does; `None` for one that is nested too
/// deeply.
pub fn to_yaml_text(value: &Value) -> Option<String> {
    let text = yaml_text::dump(&to_template(value), false).ok()?;
    Some(text + "\n")
}

/// A YAML document as plain data. An integer beyond 64 bits becomes text, since the wire has none.
pub fn from_yaml(node: Node) -> Value {
    match node.value {
        NodeValue::Null => Value::Nil,
        NodeValue::Bool(flag) => Value::Bool(flag),
        NodeValue::Int(number) => Value::Int(number),
        NodeValue::BigInt(digits) => match digits.parse::<u64>() {
            Ok(number) => Value::Uint(number),
            Err(_) => Value::Str(digits),
        },
        NodeValue::Float(number) => Value::Float(number),
        NodeValue::Str(text) | NodeValue::Timestamp(text) => Value::Str(text),
        NodeValue::Binary(bytes) => Value::Bin(Bytes::from(bytes)),
        NodeValue::Seq(items) => Value::Array(items.into_iter().map(from_yaml).collect()),
        NodeValue::Map(mapping) => Value::Map(
            mapping
                .into_iter()
                .map(|(key, entry)| (from_yaml_key(key), from_yaml(entry.value)))
                .collect(),
        ),
    }
}

fn from_yaml_key(key: YamlKey) -> Value {
    match key {
        YamlKey::Null => Value::Nil,
        YamlKey::Bool(flag) => Value::Bool(flag),
        YamlKey::Int(number) => Value::Int(number),
        YamlKey::BigInt(text) | YamlKey::Str(text) => Value::Str(text),
        YamlKey::Float(number) => Value::Float(number),
        YamlKey::Binary(bytes) => Value::Bin(Bytes::from(bytes)),
    }
}

/// Plain data as a value of a template.
pub(crate) fn to_template(value: &Value) -> Template {
    match value {
        Value::Nil => none(),
        Value::Bool(flag) => Template::from(*flag),
        Value::Int(number) => Template::from(*number),
        Value::Uint(number) => int(i128::from(*number)),
        Value::Float(number) => Template::from(*number),
        Value::Str(text) => Template::from(text.as_str()),
        Value::Bin(bytes) | Value::Ext(_, bytes) => Template::from_bytes(bytes.to_vec()),
        Value::Array(items) => list(items.iter().map(to_template).collect()),
        Value::Map(entries) => {
            let mut map = Entries::with_capacity(entries.len());
            for (key, value) in entries {
                let key = to_template(key);
                // Keys from the wire are scalars; a list as a key can be sent but not used.
                if let Ok(hash) = Key::of(&key) {
                    map.insert(hash, (key, to_template(value)));
                }
            }
            dict(map)
        }
    }
}

/// A value of a template as plain data, for a function.
pub(crate) fn from_template(value: &Template) -> Outcome<Value> {
    from_template_at(value, 0, &Cell::new(MAX_MEMORY_BYTES))
}

/// `left` bytes of memory may be used: a list that holds another twice doubles it at each level.
fn from_template_at(value: &Template, depth: usize, left: &Cell<usize>) -> Outcome<Value> {
    if depth > MAX_DEPTH {
        return Err(Fault::limit("maximum recursion depth exceeded"));
    }
    let bytes = size_of::<Value>() + value.as_bytes().map_or(0, <[u8]>::len);
    match left.get().checked_sub(bytes) {
        Some(rest) => left.set(rest),
        None => return Err(Fault::limit("a value takes too much memory")),
    }
    let all = |items: &[Template]| {
        let items = items
            .iter()
            .map(|item| from_template_at(item, depth + 1, left));
        items.collect::<Outcome<Vec<_>>>().map(Value::Array)
    };
    Ok(match Kind::of(value) {
        Kind::None => Value::Nil,
        Kind::Bool(flag) => Value::Bool(flag),
        Kind::Int(number) => match (i64::try_from(number), u64::try_from(number)) {
            (Ok(number), _) => Value::Int(number),
            (_, Ok(number)) => Value::Uint(number),
            _ => return Err(Fault::other("Integer value out of range")),
        },
        Kind::Float(number) => Value::Float(number),
        Kind::Str(text) => Value::Str(text.to_owned()),
        Kind::Bytes(bytes) => Value::Bin(Bytes::copy_from_slice(bytes)),
        Kind::List(items) => {
            let items = items.0.lock().clone();
            return all(&items);
        }
        Kind::Tuple(items) => return all(items),
        Kind::Set(_) | Kind::Other if value.try_iter().is_ok() => {
            return all(&super::jinja::ops::items(value)?);
        }
        Kind::Set(_) | Kind::Other => Value::Str(value.to_string()),
        Kind::Dict(entries) => {
            let entries: Vec<_> = entries.0.lock().values().cloned().collect();
            let mut map = Vec::with_capacity(entries.len());
            for (key, value) in entries {
                map.push((
                    from_template_at(&key, depth + 1, left)?,
                    from_template_at(&value, depth + 1, left)?,
                ));
            }
            Value::Map(map)
        }
        Kind::Undefined(undefined) => {
            return Err(super::jinja::value::undefined_fault(undefined));
        }
    })
}
