//! Arguments of a function as they are typed: each read as YAML, `name=value` as an argument with
//! a name (`parse_input` and `yamlify_arg` in `salt/utils/args.py`).

use saltern_config::yaml::{Key, Limits, Node, NodeValue, parse as parse_yaml};
use saltern_wire::msgpack::Value;

/// The positional arguments, and behind them the named ones as a map with `__kwarg__: true`.
pub(crate) fn parse(arguments: &[String]) -> Vec<Value> {
    let mut positional = Vec::new();
    let mut named: Vec<(Value, Value)> = Vec::new();
    for argument in arguments {
        match argument.split_once('=') {
            Some((name, value)) if is_name(name) && !value.starts_with('=') => {
                named.push((name.into(), read(value)));
            }
            _ => positional.push(read(argument)),
        }
    }
    if !named.is_empty() {
        named.push(("__kwarg__".into(), true.into()));
        positional.push(Value::Map(named));
    }
    positional
}

fn is_name(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_alphabetic() || c == '_')
        && chars.all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))
}

/// What YAML would make a comment, a date or a failure of stays the text that was typed.
fn read(text: &str) -> Value {
    let as_typed = || Value::from(text);
    if text.trim().is_empty() || text.starts_with('#') || text.contains(" #") {
        return as_typed();
    }
    if text == "None" {
        return Value::Nil;
    }
    match parse_yaml(text, "argument", &Limits::DEFAULT) {
        Ok(node) => value(&node, text).unwrap_or_else(as_typed),
        Err(_) => as_typed(),
    }
}

fn value(node: &Node, text: &str) -> Option<Value> {
    Some(match &node.value {
        NodeValue::Null if text.contains("null") || text == "~" => Value::Nil,
        NodeValue::Null | NodeValue::Timestamp(_) | NodeValue::BigInt(_) => return None,
        NodeValue::Bool(flag) => Value::Bool(*flag),
        // Stock keeps a number with underscores as text.
        NodeValue::Int(_) | NodeValue::Float(_) if text.contains('_') => return None,
        NodeValue::Int(number) => Value::Int(*number),
        NodeValue::Float(number) => Value::Float(*number),
        NodeValue::Str(text) => Value::from(text.as_str()),
        NodeValue::Binary(bytes) => Value::Bin(bytes.clone().into()),
        NodeValue::Seq(items) => Value::Array(
            items
                .iter()
                .map(|item| value(item, text))
                .collect::<Option<_>>()?,
        ),
        NodeValue::Map(map) => Value::Map(
            map.iter()
                .map(|(name, entry)| Some((key(name), value(&entry.value, text)?)))
                .collect::<Option<_>>()?,
        ),
    })
}

fn key(key: &Key) -> Value {
    match key {
        Key::Int(number) => Value::Int(*number),
        Key::Bool(flag) => Value::Bool(*flag),
        Key::Float(number) => Value::Float(*number),
        other => Value::from(other.to_string().as_str()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Vec<Value> {
        let owned: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
        parse(&owned)
    }

    #[test]
    fn positional_arguments_are_yaml() {
        let table = [
            ("5", Value::Int(5)),
            ("2.5", Value::Float(2.5)),
            ("true", Value::Bool(true)),
            ("hello world", Value::from("hello world")),
            ("sleep 8; echo hello", Value::from("sleep 8; echo hello")),
            ("2026-11-21", Value::from("2026-11-21")),
            ("1_000", Value::from("1_000")),
            ("# no comment", Value::from("# no comment")),
            ("", Value::from("")),
            ("None", Value::Nil),
            (
                "[1, a]",
                Value::Array(vec![Value::Int(1), Value::from("a")]),
            ),
            ("{", Value::from("{")),
            ("a==b", Value::from("a==b")),
        ];
        for (text, expected) in table {
            assert_eq!(parsed(&[text]), [expected], "{text:?}");
        }
    }

    #[test]
    fn named_arguments_come_last_in_one_map() {
        let expected = Value::map([
            ("cwd", Value::from("/tmp")),
            ("timeout", Value::Int(3)),
            ("__kwarg__", Value::Bool(true)),
        ]);
        let values = parsed(&["cwd=/tmp", "ls", "timeout=3"]);
        assert_eq!(values, [Value::from("ls"), expected]);
    }
}
