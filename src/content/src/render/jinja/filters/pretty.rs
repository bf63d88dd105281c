//! The `python` filter: `pprint.pformat`, with sorted keys and lines of eighty columns.

use minijinja::value::Value;

use super::super::fault::Outcome;
use super::super::ops;
use super::super::text::repr;
use super::super::value::{Kind, dict, list, tuple};

/// A value over as many lines as it needs.
pub(super) fn pretty(value: &Value) -> Outcome<String> {
    let mut out = String::new();
    write(&mut out, &sorted(value, 0)?, 0, 0)?;
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

fn write(out: &mut String, value: &Value, indent: usize, allowance: usize) -> Outcome<()> {
    let short = repr(value)?;
    if short.chars().count() + indent + allowance <= 80 {
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
                write(out, value, indent + 1 + key.chars().count() + 2, after)?;
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
                write(
                    out,
                    item,
                    indent + 1,
                    if last { allowance + end.len() } else { 1 },
                )?;
            }
            out.push_str(end);
        }
        _ => out.push_str(&short),
    }
    Ok(())
}

fn next_line(out: &mut String, indent: usize) {
    out.push_str(",\n");
    out.push_str(&" ".repeat(indent));
}
