//! The changes of a state: a tree, or the runs of the minions that an orchestration led.

use saltern_python::text;
use saltern_wire::msgpack::Value;

use super::host;
use crate::{OutputOptions, Outputter, render};

/// Columns before what stands below a state.
pub(super) const INDENT: usize = 14;

/// Whether anything changed, and the text of it.
pub(super) type Changes = (bool, String);

/// Nothing where stock raises an exception.
pub(super) fn shown(changes: &mut Value, options: &OutputOptions) -> Option<Changes> {
    if !changes.is_truthy() {
        return Some((false, String::new()));
    }
    if changes.as_map().is_none() {
        let text = format!("Invalid Changes data: {}", saltern_python::str(changes));
        return Some((true, text));
    }
    let is_run = changes.get("out").and_then(Value::as_str) == Some("highstate")
        && changes.get("ret").is_some_and(|ret| !ret.is_nil());
    match is_run {
        true => hosts(changes, options),
        false => Some((true, tree(changes, options))),
    }
}

fn tree(changes: &Value, options: &OutputOptions) -> String {
    let options = OutputOptions {
        nested_indent: INDENT,
        retcode: 0,
        ..options.clone()
    };
    format!("\n{}", render(changes, Outputter::Nested, &options))
}

fn hosts(changes: &mut Value, options: &OutputOptions) -> Option<Changes> {
    let Value::Map(hosts) = crate::dict::get_mut(changes, "ret")? else {
        return None;
    };
    let (mut has_changes, mut text) = (false, String::new());
    for (host, data) in hosts {
        let shown = host::shown(host, data, None, options, 1)?;
        has_changes |= shown.has_changes;
        let lines = text::splitlines(&shown.text).into_iter();
        let lines: Vec<String> = lines.map(|line| format!("{:INDENT$}{line}", "")).collect();
        text.push('\n');
        text.push_str(&lines.join("\n"));
    }
    Some((has_changes, text))
}
