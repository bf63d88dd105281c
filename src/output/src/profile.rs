//! Stock's outputter `profile` (`salt/output/profile.py`): the durations of states as a table. Not in
//! 3008.

use saltern_python::node::Node;
use saltern_python::number::parse_float;
use saltern_python::{Sequence, format};
use saltern_wire::msgpack::Value;

use crate::decode::decoded;
use crate::{OutputOptions, TableOptions, table};

/// Letters of a name that are shown.
const MAX_NAME_LETTERS: usize = 60;

/// Nothing is what it prints where stock raises an exception.
pub(crate) fn profile(value: &Value, options: &OutputOptions) -> Option<String> {
    let mut states = Vec::new();
    match value {
        Value::Map(hosts) => {
            for (_, host) in hosts {
                collect(host, &mut states)?;
            }
        }
        Value::Array(items) if items.is_empty() => {}
        Value::Str(text) if text.is_empty() => {}
        _ => return None,
    }
    let labels = ["name", "mod.fun", "duration (ms)"];
    let shown = Node::Dict(vec![
        (text("labels"), list(labels.map(text).into())),
        (text("rows"), list(rows(states)?)),
    ]);
    let options = OutputOptions {
        table: TableOptions {
            rows_key: Some("rows".to_owned()),
            labels_key: Some("labels".to_owned()),
            ..options.table.clone()
        },
        ..options.clone()
    };
    table::shown(&shown, &options)
}

struct State {
    duration: f64,
    name: String,
    function: String,
}

/// The states of a host. What holds no states has a row as well, without name and duration.
fn collect(host: &Value, states: &mut Vec<State>) -> Option<()> {
    match host {
        Value::Map(entries) => {
            for (key, state) in entries {
                states.push(state_of(&saltern_python::str(key), Some(state))?);
            }
        }
        Value::Array(items) => {
            for item in items {
                // Stock looks such an item up in the list.
                if item.as_i64().is_some() || item.as_bool().is_some() {
                    return None;
                }
                states.push(state_of(&saltern_python::str(item), None)?);
            }
        }
        Value::Str(letters) => {
            for letter in letters.chars() {
                states.push(state_of(&letter.to_string(), None)?);
            }
        }
        _ => return None,
    }
    Some(())
}

fn state_of(key: &str, state: Option<&Value>) -> Option<State> {
    let mut parts = key.split("_|-");
    let module = parts.next()?;
    let function = format!("{module}.{}", parts.last().unwrap_or(module));
    let (name, duration) = match state {
        Some(Value::Map(_)) => (
            name_of(state?)?,
            state.and_then(|state| state.get("duration")),
        ),
        Some(_) => (Some(key.to_owned()), None),
        None => (None, None),
    };
    let duration = match duration {
        None => -1.0,
        Some(Value::Str(text)) => parse_float(text)?,
        Some(Value::Bool(flag)) => f64::from(u8::from(*flag)),
        Some(number) => number.as_f64()?,
    };
    let name = name.unwrap_or_else(|| "<>".to_owned());
    let name = match name.chars().count() > MAX_NAME_LETTERS {
        true => name.chars().take(MAX_NAME_LETTERS - 3).collect::<String>() + "...",
        false => name,
    };
    Some(State {
        duration,
        name,
        function,
    })
}

fn name_of(state: &Value) -> Option<Option<String>> {
    let name = state.get("name").or_else(|| state.get("__id__"));
    match decoded(Node::read(name.unwrap_or(&Value::Nil)).ok()?)? {
        Node::None => Some(None),
        Node::Text(name) => Some(Some(name)),
        _ => None,
    }
}

/// The rows by the text of their durations.
fn rows(states: Vec<State>) -> Option<Vec<Node>> {
    let shown = |duration: f64, spec: &str| format::format_value(&Node::Float(duration), spec).ok();
    let mut width = "duration (ms)".len();
    for state in &states {
        width = width.max(shown(state.duration, ".4f")?.len());
    }
    let spec = format!("{width}.4f");
    let mut rows = Vec::with_capacity(states.len());
    for state in states {
        let duration = Node::Text(shown(state.duration, &spec)?);
        rows.push(list(vec![
            duration,
            Node::Text(state.name),
            Node::Text(state.function),
        ]));
    }
    let rows = table::sorted_rows(rows)?.into_iter();
    let rows = rows.map(|row| match row {
        Node::Sequence(kind, mut cells) => {
            cells.rotate_left(1);
            Node::Sequence(kind, cells)
        }
        other => other,
    });
    Some(rows.collect())
}

fn text(text: &str) -> Node {
    Node::Text(text.to_owned())
}

fn list(items: Vec<Node>) -> Node {
    Node::Sequence(Sequence::List, items)
}
