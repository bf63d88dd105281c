//! Stock's outputters that print values as they are: `json`, `yaml`, `raw`, `txt`, `pprint` and
//! `newline_values_only`. Nothing is what they print where stock refuses a value or an option; it falls
//! back to nested then.

use saltern_python::json::{self, Style};
use saltern_python::repr::Limits;
use saltern_python::text::splitlines;
use saltern_python::{Node, pprint, yaml};
use saltern_wire::msgpack::Value;

use crate::Indent;

/// For values that were bounded when they were read.
const LIMITS: Limits = Limits {
    depth: 1_000,
    bytes: usize::MAX,
};

/// `json`: values that JSON has no form for are shown by their `repr`; a key that it has none for makes
/// the whole document empty.
pub(crate) fn stock_json(value: &Value, indent: &Indent) -> String {
    let style = Style {
        ascii: false,
        sorted: *indent == Indent::Pretty,
        indent: match indent {
            Indent::Unset | Indent::Pretty => Some(4),
            Indent::Spaces(count) => usize::try_from(*count).ok(),
            Indent::Null | Indent::Text(_) => None,
        },
    };
    let mut out = String::new();
    let written = Node::read(value)
        .and_then(|node| json::write(&mut out, &serializable(node), style, LIMITS));
    match written {
        Ok(()) => out,
        Err(_) => "{}".to_owned(),
    }
}

fn serializable(node: Node) -> Node {
    match node {
        Node::Bytes(_) | Node::Other { .. } => Node::Text(node.repr()),
        Node::Sequence(kind, items) => {
            Node::Sequence(kind, items.into_iter().map(serializable).collect())
        }
        Node::Dict(entries) => {
            let entries = entries.into_iter();
            Node::Dict(
                entries
                    .map(|(key, value)| (key, serializable(value)))
                    .collect(),
            )
        }
        _ => node,
    }
}

/// `yaml`.
pub(crate) fn stock_yaml(value: &Value, indent: &Indent) -> Option<String> {
    let style = match indent {
        Indent::Unset => yaml::Style {
            flow: false,
            indent: None,
        },
        Indent::Spaces(count) if *count >= 0 => yaml::Style {
            flow: false,
            indent: Some(i32::try_from(*count).unwrap_or(i32::MAX)),
        },
        Indent::Spaces(_) => yaml::Style {
            flow: true,
            indent: Some(0),
        },
        _ => return None,
    };
    yaml::safe_dump(&Node::read(value).ok()?, style).ok()
}

/// `pprint`.
pub(crate) fn stock_pprint(value: &Value, indent: &Indent) -> Option<String> {
    let indent = match indent {
        Indent::Unset => 1,
        Indent::Spaces(count) => usize::try_from(*count).unwrap_or(1),
        _ => return None,
    };
    Some(pprint::pformat(&Node::read(value).ok()?, indent))
}

/// `txt`: each line of each value behind its id.
pub(crate) fn txt(value: &Value) -> Option<String> {
    let mut out = String::new();
    match value {
        Value::Map(entries) => {
            for (key, value) in entries {
                let key = saltern_python::str(key);
                match value {
                    Value::Str(text) => {
                        for line in splitlines(text) {
                            out.push_str(&format!("{key}: {line}\n"));
                        }
                    }
                    _ => out.push_str(&format!("{key}: {}\n", saltern_python::str(value))),
                }
            }
        }
        Value::Str(text) => out.push_str(text),
        _ => out = pprint::pformat(&Node::read(value).ok()?, 1),
    }
    Some(out)
}

/// `newline_values_only`: the values without their ids, lists an item a line.
pub(crate) fn newline_values_only(value: &Value) -> Option<String> {
    let mut lines = Vec::new();
    for (_, value) in value.as_map()? {
        match value {
            Value::Array(items) => lines.extend(items.iter().map(saltern_python::str)),
            _ => lines.push(saltern_python::str(value)),
        }
    }
    Some(lines.join("\n"))
}
