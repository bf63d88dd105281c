//! How one mapping of a stack is merged over another: as the key `__` in it says.
//!
//! `merge-last` (the default), `merge-first`, `remove` and `overwrite`, for mappings and, by a
//! first item `__: …`, for lists.

use std::mem::{discriminant, replace};

use saltern_wire::msgpack::Value;

/// How deep mappings are merged; documents are not deeper.
const MAX_MERGE_DEPTH: usize = 200;

const MARK: &str = "__";

/// Why a mapping cannot be merged.
#[derive(Debug, thiserror::Error)]
pub(in crate::ext_pillar) enum MergeError {
    /// A strategy that there is not, in stock's words.
    #[error(
        "Unknown strategy \"{0}\", should be one of overwrite, merge-first, merge-last, remove"
    )]
    Strategy(String),
    /// The stack has too many levels.
    #[error("the stack is nested too deep")]
    Depth,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Strategy {
    Overwrite,
    MergeFirst,
    MergeLast,
    Remove,
}

impl Strategy {
    fn of(value: Option<&Value>) -> Result<Self, MergeError> {
        match value.map(Value::as_str) {
            None | Some(Some("merge-last")) => Ok(Self::MergeLast),
            Some(Some("merge-first")) => Ok(Self::MergeFirst),
            Some(Some("overwrite")) => Ok(Self::Overwrite),
            Some(Some("remove")) => Ok(Self::Remove),
            Some(other) => Err(MergeError::Strategy(other.unwrap_or_default().to_owned())),
        }
    }
}

/// Merges a mapping over the stack.
///
/// # Errors
/// [`MergeError`]
pub(super) fn mapping(stack: Value, entries: Vec<(Value, Value)>) -> Result<Value, MergeError> {
    merged(stack, entries, 0)
}

fn merged(
    stack: Value,
    mut entries: Vec<(Value, Value)>,
    depth: usize,
) -> Result<Value, MergeError> {
    if depth > MAX_MERGE_DEPTH {
        return Err(MergeError::Depth);
    }
    let strategy = Strategy::of(take_mark(&mut entries).as_ref())?;
    let Value::Map(mut stack) = stack else {
        return Ok(cleaned(Value::Map(entries)));
    };
    match strategy {
        Strategy::Overwrite => return Ok(cleaned(Value::Map(entries))),
        Strategy::Remove => {
            stack.retain(|(key, _)| !entries.iter().any(|(removed, _)| removed == key));
            return Ok(Value::Map(stack));
        }
        Strategy::MergeFirst | Strategy::MergeLast => {}
    }
    for (key, value) in entries {
        let Some((_, there)) = stack.iter_mut().find(|(found, _)| *found == key) else {
            stack.push((key, cleaned(value)));
            continue;
        };
        let mut old = replace(there, Value::Nil);
        let mut new = value;
        if strategy == Strategy::MergeFirst {
            // What was there is merged over what comes.
            (old, new) = (cleaned(new), old);
        }
        *there = match (old, new) {
            (old @ Value::Map(_), Value::Map(new)) => merged(old, new, depth + 1)?,
            (Value::Array(old), Value::Array(new)) => list(old, new)?,
            (old, new) if discriminant(&old) == discriminant(&new) => new,
            (_, new) => cleaned(new),
        };
    }
    Ok(Value::Map(stack))
}

fn list(mut stack: Vec<Value>, mut items: Vec<Value>) -> Result<Value, MergeError> {
    let mark = items.first().and_then(|first| first.get(MARK)).cloned();
    if mark.is_some() {
        items.remove(0);
    }
    Ok(Value::Array(match Strategy::of(mark.as_ref())? {
        Strategy::Overwrite => items,
        Strategy::Remove => {
            stack.retain(|item| !items.contains(item));
            stack
        }
        Strategy::MergeFirst => {
            items.extend(stack);
            items
        }
        Strategy::MergeLast => {
            stack.extend(items);
            stack
        }
    }))
}

/// Takes the marks out of what is not merged.
fn cleaned(value: Value) -> Value {
    match value {
        Value::Map(mut entries) => {
            take_mark(&mut entries);
            let entries = entries
                .into_iter()
                .map(|(key, value)| (key, cleaned(value)));
            Value::Map(entries.collect())
        }
        Value::Array(mut items) => {
            if items.first().is_some_and(|first| first.get(MARK).is_some()) {
                items.remove(0);
            }
            Value::Array(items)
        }
        other => other,
    }
}

fn take_mark(entries: &mut Vec<(Value, Value)>) -> Option<Value> {
    let at = entries
        .iter()
        .position(|(key, _)| key.as_str() == Some(MARK))?;
    Some(entries.remove(at).1)
}
