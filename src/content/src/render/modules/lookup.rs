//! Lookups of functions: paths through values (`traverse_dict_and_list` in `salt/utils/data.py`)
//! and the merging of mappings (`update` in `salt/utils/dictupdate.py`).

use std::sync::Arc;

use saltern_config::yaml;
use saltern_python::fnmatch::Glob;
use saltern_wire::msgpack::Value;

use crate::render::data::from_yaml;
use crate::render::functions::{CallArgs, CallError};

/// How deep mappings are merged.
const MAX_MERGE_DEPTH: usize = 100;

/// The result of a function.
pub(super) type Called = Result<Value, CallError>;

/// Data that the functions look up: grains, pillar, options.
#[derive(Debug, Clone)]
pub struct Facts {
    /// The grains of the minion.
    pub grains: Arc<Value>,
    /// Its pillar as far as it is known.
    pub pillar: Arc<Value>,
    /// The options of the master as functions see them: `id` is the master's own in 3008, that of
    /// the minion before.
    pub opts: Arc<Value>,
}

impl Default for Facts {
    fn default() -> Facts {
        let nothing = Arc::new(Value::Map(Vec::new()));
        Facts {
            grains: nothing.clone(),
            pillar: nothing.clone(),
            opts: nothing,
        }
    }
}

/// The value at the end of a path; lists are entered by index or through the mappings in them.
pub fn traverse<'a>(data: &'a Value, path: &str, delimiter: &str) -> Option<&'a Value> {
    let parts: Vec<&str> = if delimiter.is_empty() {
        vec![path]
    } else {
        path.split(delimiter).collect()
    };
    parts.iter().try_fold(data, |value, part| match value {
        Value::Map(entries) => of_key(entries, part),
        Value::Array(items) => of_list(items, part),
        _ => None,
    })
}

/// The value at the end of a path that a function was given: a text with delimiters, a number, or
/// the parts themselves in a list or as the keys of a mapping. No parts are the whole.
///
/// # Errors
/// If it is no path.
pub(super) fn traverse_by<'a>(
    data: &'a Value,
    path: &Value,
    delimiter: &str,
) -> Result<Option<&'a Value>, CallError> {
    let parts: Vec<&Value> = match path {
        Value::Str(text) => return Ok(traverse(data, text, delimiter)),
        Value::Bool(_) | Value::Int(_) | Value::Uint(_) => vec![path],
        Value::Array(parts) => parts.iter().collect(),
        Value::Map(entries) => entries.iter().map(|(key, _)| key).collect(),
        _ => return Err(CallError::Failed(format!("{} is no path", shown(path)))),
    };
    let found = parts
        .iter()
        .try_fold(data, |value, part| match (value, part) {
            (Value::Map(entries), Value::Str(text)) => of_key(entries, text),
            (Value::Map(entries), part) => row_of(entries, part),
            (Value::Array(items), Value::Bool(flag)) => {
                of_list(items, if *flag { "1" } else { "0" })
            }
            (Value::Array(items), part) => of_list(items, &plain_text(part)),
            _ => None,
        });
    Ok(found)
}

/// `item(*names, default, delimiter)` of grains and pillar: the values of names.
///
/// # Errors
/// If a name is no path, or cannot be a key.
pub(super) fn named_items(data: &Value, args: &CallArgs, default: &Value) -> Called {
    let delimiter = delimiter_of(args, usize::MAX);
    let mut found = Vec::new();
    for name in &args.positional {
        let value = traverse_by(data, name, &delimiter)?.unwrap_or(default);
        found.push((hashable(name)?.clone(), value.clone()));
    }
    Ok(Value::Map(found))
}

/// A value that can be a key.
///
/// # Errors
/// If it is a list or mapping.
pub(super) fn hashable(value: &Value) -> Result<&Value, CallError> {
    match value {
        Value::Array(_) => Err(CallError::Failed("unhashable type: 'list'".to_owned())),
        Value::Map(_) => Err(CallError::Failed("unhashable type: 'dict'".to_owned())),
        value => Ok(value),
    }
}

/// The entry of a mapping: by the text, else by what YAML makes of it.
fn of_key<'a>(entries: &'a [(Value, Value)], part: &str) -> Option<&'a Value> {
    let find = |wanted: &Value| {
        let found = entries.iter().find(|(key, _)| key == wanted);
        found.map(|(_, value)| value)
    };
    let by_text = entries.iter().find(|(key, _)| key.as_str() == Some(part));
    if let Some((_, value)) = by_text {
        return Some(value);
    }
    if entries.iter().all(|(key, _)| matches!(key, Value::Str(_))) {
        return None;
    }
    let loaded = yaml::parse(part, "key", &yaml::Limits::DEFAULT).ok()?;
    find(&from_yaml(loaded))
}

fn of_list<'a>(items: &'a [Value], part: &str) -> Option<&'a Value> {
    let mappings = || items.iter().filter_map(Value::as_map);
    let Ok(index) = part.trim().parse::<i64>() else {
        return mappings().find_map(|entries| {
            let found = entries.iter().find(|(key, _)| key.as_str() == Some(part));
            found.map(|(_, value)| value)
        });
    };
    let by_number = mappings().find_map(|entries| {
        let found = entries.iter().find(|(key, _)| *key == Value::Int(index));
        found.map(|(_, value)| value)
    });
    by_number.or_else(|| {
        let length = i64::try_from(items.len()).ok()?;
        let index = if index < 0 { index + length } else { index };
        items.get(usize::try_from(index).ok()?)
    })
}

/// Merges a mapping into another, recursively; lists are joined if `lists`.
pub(crate) fn merge(into: Value, from: &Value, lists: bool) -> Value {
    merge_at(into, from, lists, 0)
}

fn merge_at(into: Value, from: &Value, lists: bool, depth: usize) -> Value {
    if depth > MAX_MERGE_DEPTH {
        return into;
    }
    match (into, from) {
        (Value::Map(mut entries), Value::Map(more)) => {
            for (key, value) in more {
                match entries.iter_mut().find(|(found, _)| found == key) {
                    Some((_, old)) => {
                        let before = std::mem::replace(old, Value::Nil);
                        *old = merge_at(before, value, lists, depth + 1);
                    }
                    None => entries.push((key.clone(), value.clone())),
                }
            }
            Value::Map(entries)
        }
        (Value::Array(items), Value::Array(more)) if lists => Value::Array(joined(items, more)),
        (_, from) => from.clone(),
    }
}

/// A list and those items of another that it has not.
pub(super) fn joined(mut items: Vec<Value>, more: &[Value]) -> Vec<Value> {
    let new: Vec<Value> = more
        .iter()
        .filter(|item| !items.contains(item))
        .cloned()
        .collect();
    items.extend(new);
    items
}

/// The merging that needs two mappings.
///
/// # Errors
/// If one of them is none.
pub(super) fn update(into: &Value, from: &Value, lists: bool) -> Called {
    match (into, from) {
        (Value::Map(_), Value::Map(_)) => Ok(merge(into.clone(), from, lists)),
        _ => Err(CallError::Failed(
            "Cannot update using non-dict types in dictupdate.update()".to_owned(),
        )),
    }
}

/// The `default` of a call.
pub(super) fn default_of(args: &CallArgs, index: usize, missing: Value) -> Value {
    args.get(index, "default").cloned().unwrap_or(missing)
}

/// The `delimiter` of a call.
pub(super) fn delimiter_of(args: &CallArgs, index: usize) -> String {
    args.text(index, "delimiter")
        .unwrap_or_else(|| ":".to_owned())
}

/// `grains.filter_by` and `pillar.filter_by`: the row of a table that a grain or pillar chooses.
pub(super) fn filter_by(data: &Value, args: &CallArgs, lookup: &str) -> Called {
    let failed = |text: &str| CallError::Failed(text.to_owned());
    let table = args.need(0, "lookup_dict")?;
    let Value::Map(rows) = table else {
        return Err(failed("lookup_dict must be a dictionary"));
    };
    let wanted: Vec<&Value> = match traverse(data, lookup, ":") {
        Some(Value::Array(items)) => items.iter().collect(),
        Some(value) => vec![value],
        None => Vec::new(),
    };
    let chosen = wanted.iter().find_map(|value| {
        let text = shown(value);
        let is_meant = |key: &Value| Glob::new(&shown(key)).matches(&text);
        let (_, row) = rows.iter().find(|(key, _)| is_meant(key))?;
        Some(row).filter(|row| !row.is_nil())
    });
    let default = default_of(args, 3, Value::from("default"));
    let mut result = chosen.or_else(|| row_of(rows, &default)).cloned();
    result = result.filter(|row| !row.is_nil());
    if let Some(base) = args.truthy(4, "base").and_then(|base| row_of(rows, base)) {
        result = Some(match (result, base) {
            (None, base) => base.clone(),
            (Some(found @ Value::Map(_)), Value::Map(_)) => merge(base.clone(), &found, false),
            (Some(_), Value::Map(_)) => {
                return Err(failed(
                    "filter_by default and look-up values must both be dictionaries.",
                ));
            }
            (Some(found), _) => found,
        });
    }
    match args.truthy(2, "merge") {
        None => {}
        Some(more @ Value::Map(_)) => {
            result = Some(match result {
                Some(found) => update(&found, more, false)?,
                None => more.clone(),
            });
        }
        Some(_) => return Err(failed("filter_by merge argument must be a dictionary.")),
    }
    Ok(result.unwrap_or(Value::Nil))
}

/// The entry of a mapping with a key.
pub(super) fn row_of<'a>(rows: &'a [(Value, Value)], key: &Value) -> Option<&'a Value> {
    let found = rows.iter().find(|(found, _)| found == key);
    found.map(|(_, row)| row)
}

/// A value as `str()` writes it.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) | Value::Map(_) => saltern_python::str(value).into_owned(),
        scalar => plain_text(scalar),
    }
}

/// A scalar as `str()` writes it; nothing for what is none.
pub(super) fn plain_text(value: &Value) -> String {
    match value {
        Value::Bin(_) | Value::Array(_) | Value::Map(_) | Value::Ext(..) => String::new(),
        scalar => saltern_python::str(scalar).into_owned(),
    }
}
