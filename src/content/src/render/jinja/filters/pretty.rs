//! The filters `python` and `pprint`: `pprint.pformat`, with sorted keys and lines of eighty columns.

use minijinja::value::Value;

use super::super::fault::Outcome;
use super::super::ops;
use super::super::text::repr;
use super::super::value::{Kind, dict, list, tuple};

/// A value over as many lines as it needs.
pub(super) fn pretty(value: &Value) -> Outcome<String> {
    let mut out = String::new();
    write(&mut out, &sorted(value, 0)?, ValuePosition::default())?;
    Ok(out)
}

/// The value with the keys of its dicts in order.
fn sorted(value: &Value, depth: usize) -> Outcome<Value> {
    if depth > 100 {
        return Ok(value.clone());
    }
    let all = |items: Vec<Value>| -> Outcome<Vec<Value>> {
        items.iter().map(|item| sorted(item, depth + 1)).collect()
    };
    Ok(match Kind::of(value) {
        Kind::List(_) => list(all(ops::items(value)?)?),
        Kind::Tuple(_) => tuple(all(ops::items(value)?)?),
        Kind::Dict(entries) => {
            let entries = entries.0.lock().clone();
            let pairs = entries
                .values()
                .enumerate()
                .map(|(at, (k, _))| (k.clone(), Value::from(at)));
            let order = ops::sorted(pairs.collect(), false)
                .unwrap_or_else(|_| (0..entries.len()).map(Value::from).collect());
            let mut made = super::super::value::Entries::new();
            for at in order.iter().filter_map(|at| at.as_usize()) {
                if let Some((key, (name, value))) = entries.get_index(at) {
                    made.insert(key.clone(), (name.clone(), sorted(value, depth + 1)?));
                }
            }
            dict(made)
        }
        _ => value.clone(),
    })
}

/// Columns of a line.
const WIDTH: usize = 80;

/// Where a value stands.
#[derive(Clone, Copy, Default)]
struct ValuePosition {
    /// Columns before it.
    indent: usize,
    /// Columns that what follows it on its last line needs.
    allowance: usize,
    /// Whether it stands in another value.
    is_inner: bool,
}

fn write(out: &mut String, value: &Value, place: ValuePosition) -> Outcome<()> {
    let ValuePosition {
        indent, allowance, ..
    } = place;
    let inner = |indent: usize, allowance: usize| ValuePosition {
        indent,
        allowance,
        is_inner: true,
    };
    let short = repr(value)?;
    if short.chars().count() + indent + allowance <= WIDTH {
        out.push_str(&short);
        return Ok(());
    }
    match Kind::of(value) {
        Kind::Dict(entries) => {
            let entries: Vec<(Value, Value)> = entries.0.lock().values().cloned().collect();
            out.push('{');
            for (index, (key, value)) in entries.iter().enumerate() {
                if index > 0 {
                    next_line(out, indent + 1);
                }
                let key = repr(key)?;
                out.push_str(&key);
                out.push_str(": ");
                let last = index + 1 == entries.len();
                let after = if last { allowance + 1 } else { 1 };
                write(
                    out,
                    value,
                    inner(indent + 1 + key.chars().count() + 2, after),
                )?;
            }
            out.push('}');
        }
        Kind::List(_) | Kind::Tuple(_) => {
            let items = ops::items(value)?;
            let (start, end) = match Kind::of(value) {
                Kind::List(_) => ('[', "]"),
                _ if items.len() == 1 => ('(', ",)"),
                _ => ('(', ")"),
            };
            out.push(start);
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    next_line(out, indent + 1);
                }
                let last = index + 1 == items.len();
                let after = if last { allowance + end.len() } else { 1 };
                write(out, item, inner(indent + 1, after))?;
            }
            out.push_str(end);
        }
        Kind::Str(text) => out.push_str(&parts_of(text, place)?),
        _ => out.push_str(&short),
    }
    Ok(())
}

/// A text as several literals, parted at lines and after white space; in parentheses unless it stands
/// in another value.
fn parts_of(text: &str, place: ValuePosition) -> Outcome<String> {
    let around = usize::from(!place.is_inner);
    let (indent, allowance) = (place.indent + around, place.allowance + around);
    let columns = WIDTH.saturating_sub(indent);
    let literal = |text: &str| repr(&Value::from(text));
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut chunks = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let is_last = at + 1 == lines.len();
        let whole = literal(line)?;
        if whole.chars().count() <= columns.saturating_sub(if is_last { allowance } else { 0 }) {
            chunks.push(whole);
            continue;
        }
        let parts = words_of(line);
        let mut current = String::new();
        for (number, part) in parts.iter().enumerate() {
            let after = is_last && number + 1 == parts.len();
            let room = columns.saturating_sub(if after { allowance } else { 0 });
            let longer = format!("{current}{part}");
            if literal(&longer)?.chars().count() <= room {
                current = longer;
                continue;
            }
            if !current.is_empty() {
                chunks.push(literal(&current)?);
            }
            current = (*part).to_owned();
        }
        if !current.is_empty() {
            chunks.push(literal(&current)?);
        }
    }
    let several = chunks.join(&format!("\n{}", " ".repeat(indent)));
    Ok(match place.is_inner || chunks.len() == 1 {
        true => several,
        false => format!("({several})"),
    })
}

/// Words, each with the white space behind it.
fn words_of(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut start = 0;
    let mut was_space = false;
    for (at, letter) in line.char_indices() {
        let is_space = letter.is_whitespace();
        if was_space && !is_space {
            words.extend(line.get(start..at));
            start = at;
        }
        was_space = is_space;
    }
    words.extend(line.get(start..).filter(|rest| !rest.is_empty()));
    words
}

fn next_line(out: &mut String, indent: usize) {
    out.push_str(",\n");
    out.push_str(&" ".repeat(indent));
}
