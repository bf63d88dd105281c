//! One state: what it counts for, whether it is shown, and in which form.

use saltern_python::text::digit_value;
use saltern_wire::msgpack::Value;

use super::changes::{self, Changes};
use super::form::Form;
use super::host::Report;
use crate::{Color, StateMode, dict};

/// States of orchestrations whose changes are state runs of their own.
const RUNS: [&str; 3] = ["state.orch", "state.orchestrate", "state.sls"];

/// Mark in the names of merged states.
const COMPRESSED: &str = "_|-state_compressed_";

/// How much of a state is shown.
enum Extent {
    Nothing,
    Line,
    Full,
}

impl Report<'_> {
    /// Counts and shows a state. Nothing where stock raises an exception.
    pub(super) fn state(&mut self, name: &Value, state: &mut Value) -> Option<()> {
        let options = self.options;
        let result = state.get("result")?.clone();
        let count = match options.state.compress_ids {
            true => merged(name.as_str()?)?,
            false => 1,
        };
        self.tally.count(&result, count)?;
        self.tally.add_duration(state)?;
        let (is_changed, changes) = self.changes(state, count)?;
        let is_quiet = options.state.diff || !options.state.verbose;
        if is_quiet && result.is_truthy() && !is_changed {
            return Some(());
        }
        let mut color = match is_changed {
            true => Color::Cyan,
            false => Color::Green,
        };
        let of_host = match result {
            Value::Bool(false) => Some(Color::Red),
            Value::Nil => Some(Color::LightYellow),
            _ => None,
        };
        if let Some(of_host) = of_host {
            (color, self.color) = (of_host, of_host);
        }
        let mut parts: Vec<&str> = name.as_str()?.split("_|-").collect();
        if options.state.output.by_id {
            let id = *parts.get(1)?;
            *parts.get_mut(2)? = id;
        }
        let form = Form {
            options,
            color,
            parts: &parts,
        };
        match self.extent(&result, is_changed)? {
            Extent::Nothing => {}
            Extent::Line => self.lines.push(form.line(state)?),
            Extent::Full => {
                self.lines.extend(form.full(state, &changes)?);
                if let Some(warnings) = state.get("warnings") {
                    self.tally.count_warning();
                    self.lines.push(form.warnings(warnings)?);
                }
            }
        }
        Some(())
    }

    fn changes(&mut self, state: &mut Value, count: usize) -> Option<Changes> {
        let name = state.get("name").and_then(Value::as_str);
        let is_run = name.is_some_and(|name| RUNS.contains(&name));
        let changes = dict::get_mut(state, "changes")?;
        if is_run {
            let text = super::shown(changes, self.options, self.level + 1)?;
            let indent = " ".repeat(changes::INDENT * self.level);
            self.tally.changed += 1;
            let text = format!("\n{text}").replace('\n', &format!("\n{indent}"));
            return Some((true, format!("{indent}{text}")));
        }
        let (is_changed, text) = changes::shown(changes, self.options)?;
        self.tally.changed += match is_changed {
            true if count > 1 => names_changed(changes)?,
            true => 1,
            false => 0,
        };
        Some((is_changed, text))
    }

    fn extent(&self, result: &Value, is_changed: bool) -> Option<Extent> {
        let state = &self.options.state;
        let is_line = match state.output.mode {
            StateMode::Full => false,
            StateMode::Terse => true,
            StateMode::Mixed => *result != Value::Bool(false),
            StateMode::Changes => result.is_truthy() && !is_changed,
            StateMode::Filter => {
                let result = saltern_python::str(result);
                let is_line = lists(&state.terse, &result)?;
                if !is_line && lists(&state.exclude, &result)? {
                    return Some(Extent::Nothing);
                }
                is_line
            }
        };
        Some(match is_line {
            true => Extent::Line,
            false => Extent::Full,
        })
    }
}

/// Whether an option of the filter lists a result: a list, or a text parted by commas.
fn lists(option: &Value, result: &str) -> Option<bool> {
    match option {
        Value::Str(text) => Some(text.split(',').any(|listed| listed == result)),
        Value::Array(items) => Some(items.iter().any(|listed| listed.as_str() == Some(result))),
        Value::Map(entries) => {
            let mut keys = entries.iter().map(|(key, _)| key.as_str());
            Some(keys.any(|listed| listed == Some(result)))
        }
        _ => None,
    }
}

/// How many states stand behind a name.
fn merged(name: &str) -> Option<usize> {
    if !name.contains(COMPRESSED) {
        return Some(1);
    }
    let parts: Vec<&str> = name.split("_|-").collect();
    let [_, id, _, _] = parts.as_slice() else {
        return None;
    };
    let count = id.strip_suffix('\n').unwrap_or(id).strip_suffix(')');
    let count = count.and_then(|id| id.rsplit_once('('));
    let count = count.map_or("", |(_, count)| count);
    let is_number = !count.is_empty() && count.chars().all(|letter| digit_value(letter).is_some());
    let count = saltern_python::number::parse_int(count, 10);
    Some(match count {
        Ok(count) if is_number => usize::try_from(count).unwrap_or(usize::MAX / 2),
        _ => 1,
    })
}

/// How many of the names behind a merged state changed something.
fn names_changed(changes: &Value) -> Option<usize> {
    changes.as_map()?;
    let count = match changes.get("compressed changes") {
        None => 0,
        Some(Value::Map(entries)) => entries.len(),
        Some(Value::Array(items)) => items.len(),
        Some(Value::Str(text)) => text.chars().count(),
        Some(Value::Bin(bytes)) => bytes.len(),
        Some(_) => return None,
    };
    Some(count.max(1))
}
