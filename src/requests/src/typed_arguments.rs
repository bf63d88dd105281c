//! Parses arguments as people type them: each text read as YAML, `name=value` as a named argument
//! (`parse_input`, `yamlify_arg` and `condition_input` in `salt/utils/args.py`).
//!
//! Publishers for another party parse them so: the command line for its user, the master for a
//! minion.

use saltern_config::yaml::{Key, Limits, Node, NodeValue, parse as parse_yaml};
use saltern_model::Jid;
use saltern_wire::msgpack::Value;

/// Marks the map of named arguments.
const NAMED: &str = "__kwarg__";

/// Positional arguments, and behind them the named ones as a map with `__kwarg__: true`. Arguments
/// that are no text stay as they are. `verbatim` are the names whose values are not read as YAML
/// (`no_parse`).
pub fn typed_arguments(typed: impl IntoIterator<Item = Value>, verbatim: &[&str]) -> Vec<Value> {
    let mut positional = Vec::new();
    let mut named: Vec<(Value, Value)> = Vec::new();
    for argument in typed {
        match argument {
            Value::Str(text) => match split(&text) {
                Some((name, value)) if verbatim.contains(&name) => {
                    put(&mut named, name.into(), value.into());
                }
                Some((name, value)) => put(&mut named, name.into(), typed_argument(value)),
                None => positional.push(typed_argument(&text)),
            },
            Value::Map(entries) => {
                let (marks, rest): (Vec<_>, Vec<_>) = entries
                    .into_iter()
                    .partition(|(name, _)| name.as_str() == Some(NAMED));
                if marks.iter().any(|(_, mark)| mark.as_bool() == Some(true)) {
                    rest.into_iter()
                        .for_each(|(name, value)| put(&mut named, name, value));
                } else {
                    positional.push(Value::Map(rest));
                }
            }
            other => positional.push(other),
        }
    }
    for argument in &mut positional {
        if let Value::Int(_) | Value::Uint(_) = argument {
            keep_jid(argument);
        }
    }
    if !named.is_empty() {
        named.insert(0, (NAMED.into(), true.into()));
        positional.push(Value::Map(named));
    }
    positional
}

fn put(named: &mut Vec<(Value, Value)>, name: Value, value: Value) {
    match named.iter_mut().find(|(known, _)| *known == name) {
        Some((_, old)) => *old = value,
        None => named.push((name, value)),
    }
}

/// Numbers with the twenty digits of a jid become texts: jids are texts.
fn keep_jid(argument: &mut Value) {
    let digits = match argument {
        Value::Int(number) => number.to_string(),
        Value::Uint(number) => number.to_string(),
        _ => return,
    };
    if digits.len() == 20 && Jid::parse(&digits).is_ok() {
        *argument = Value::Str(digits);
    }
}

/// `name=value`, unless the value begins with a second `=` or has more than one line.
fn split(text: &str) -> Option<(&str, &str)> {
    let (name, value) = text.split_once('=')?;
    let value = value.strip_suffix('\n').unwrap_or(value);
    let mut chars = name.chars();
    let is_name = chars.next().is_some_and(|c| c.is_alphabetic() || c == '_')
        && chars.all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'));
    (is_name && !value.starts_with('=') && !value.contains('\n')).then_some((name, value))
}

/// Parses one text as stock's `yamlify_arg` does; a YAML comment, date or error stays the text that
/// was typed.
#[must_use]
pub fn typed_argument(text: &str) -> Value {
    let as_typed = || Value::from(text);
    let trimmed = text.trim();
    let is_number_with_gaps =
        text.contains('_') && trimmed.chars().all(|c| c.is_ascii_digit() || c == '_');
    if matches!(trimmed, "" | "---" | "...")
        || is_number_with_gaps
        || text.contains(['\t', '\r', '\n'])
    {
        return as_typed();
    }
    if text == "None" {
        return Value::Nil;
    }
    let Ok(node) = parse_yaml(text, "argument", &Limits::DEFAULT) else {
        return as_typed();
    };
    match &node.value {
        // Behind a `#` is a comment: a text that would lose it stays whole.
        NodeValue::Null | NodeValue::Str(_) if text.contains('#') => as_typed(),
        NodeValue::Null if text == "!" => as_typed(),
        NodeValue::Str(empty) if empty.is_empty() && matches!(text, "|" | "!") => as_typed(),
        NodeValue::Timestamp(_) | NodeValue::BigInt(_) | NodeValue::Binary(_) => as_typed(),
        NodeValue::Seq(_) if !text.starts_with('[') => as_typed(),
        NodeValue::Map(_) if !text.starts_with('{') => as_typed(),
        _ => yaml_value(&node),
    }
}

/// A value of a configuration file as it goes over the wire.
#[must_use]
pub fn yaml_value(node: &Node) -> Value {
    match &node.value {
        NodeValue::Null => Value::Nil,
        NodeValue::Bool(flag) => Value::Bool(*flag),
        NodeValue::Int(number) => Value::Int(*number),
        NodeValue::Float(number) => Value::Float(*number),
        NodeValue::BigInt(text) | NodeValue::Str(text) | NodeValue::Timestamp(text) => {
            Value::from(text.as_str())
        }
        NodeValue::Binary(bytes) => Value::Bin(bytes.clone().into()),
        NodeValue::Seq(items) => Value::Array(items.iter().map(yaml_value).collect()),
        NodeValue::Map(map) => {
            let entries = map.iter();
            Value::Map(
                entries
                    .map(|(name, entry)| (key(name), yaml_value(&entry.value)))
                    .collect(),
            )
        }
    }
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

    fn typed(arguments: &[&str]) -> Vec<Value> {
        typed_arguments(arguments.iter().map(|text| Value::from(*text)), &[])
    }

    #[test]
    fn positional_arguments_are_yaml() {
        let one_a = Value::Array(vec![Value::Int(1), Value::from("a")]);
        let table = [
            ("5", Value::Int(5)),
            ("2.5", Value::Float(2.5)),
            ("true", Value::Bool(true)),
            ("'5'", Value::from("5")),
            ("hello world", Value::from("hello world")),
            ("sleep 8; echo hello", Value::from("sleep 8; echo hello")),
            ("2026-11-21", Value::from("2026-11-21")),
            ("1_000", Value::from("1_000")),
            ("# no comment", Value::from("# no comment")),
            ("echo a # b", Value::from("echo a # b")),
            ("5 # five", Value::Int(5)),
            ("", Value::from("")),
            ("---", Value::from("---")),
            ("!", Value::from("!")),
            ("a\tb", Value::from("a\tb")),
            ("None", Value::Nil),
            ("null", Value::Nil),
            ("[1, a]", one_a),
            ("- 1", Value::from("- 1")),
            ("a: b", Value::from("a: b")),
            ("{a: 1}", Value::map([("a", 1)])),
            ("{", Value::from("{")),
            ("a==b", Value::from("a==b")),
            ("20261121210000123456", Value::from("20261121210000123456")),
        ];
        for (text, expected) in table {
            assert_eq!(typed(&[text]), [expected], "{text:?}");
        }
    }

    #[test]
    fn named_arguments_come_last_in_one_map() {
        let expected = Value::map([
            ("__kwarg__", Value::Bool(true)),
            ("cwd", Value::from("/tmp")),
            ("timeout", Value::Int(3)),
        ]);
        let values = typed(&["cwd=/", "ls", "timeout=3", "cwd=/tmp"]);
        assert_eq!(values, [Value::from("ls"), expected]);
        assert_eq!(typed(&["a=b\nc"]), [Value::from("a=b\nc")]);
    }

    #[test]
    fn non_text_arguments_stay_and_marked_map_is_named() {
        let marked = Value::map([("__kwarg__", Value::Bool(true)), ("a", Value::from("5"))]);
        let given = [Value::Int(7), marked.clone(), Value::map([("b", 1)])];
        let expected = [Value::Int(7), Value::map([("b", 1)]), marked];
        assert_eq!(typed_arguments(given, &[]), expected);
        let verbatim = typed_arguments([Value::from("a=5")], &["a"]);
        let expected = Value::map([("__kwarg__", Value::Bool(true)), ("a", Value::from("5"))]);
        assert_eq!(verbatim, [expected]);
    }
}
