//! Salt's filters that compare, look into and change mappings and lists.

use minijinja::value::Value;
use saltern_python::number::parse_int;

use super::super::args::Bound;
use super::super::fault::{Fault, Outcome};
use super::super::text::str_of;
use super::super::value::{
    Dict, Entries, Key, Kind, dict, dict_of, is_undefined, list, none, type_name,
};
use super::super::{Py, methods, ops};
use super::Row;
use super::lists::dict_from;

pub(super) const FILTERS: &[Row] = &[
    ("compare_dicts", &["old", "new"], |_, args| {
        compare_dicts(args)
    }),
    ("compare_lists", &["old", "new"], |_, args| {
        let (old, new) = (ops::items(args.need(0)?)?, ops::items(args.need(1)?)?);
        let missing = |from: &[Value], there: &Value| -> Outcome<Vec<Value>> {
            let mut out = Vec::new();
            for item in from {
                if !ops::contains(there, item)? {
                    out.push(item.clone());
                }
            }
            Ok(out)
        };
        let mut entries = Vec::new();
        for (name, items) in [
            ("new", missing(&new, args.need(0)?)?),
            ("old", missing(&old, args.need(1)?)?),
        ] {
            if !items.is_empty() {
                entries.push((name, list(items)));
            }
        }
        Ok(dict_of(entries))
    }),
    (
        "traverse",
        &["data", "key", "default", "delimiter"],
        |_, args| {
            let delimiter = args.text(3, ":")?;
            traverse(args.need(0)?, args.need(1)?, &args.or_none(2), &delimiter)
        },
    ),
    (
        "flatten",
        &["data", "levels", "preserve_nulls"],
        |py, args| {
            let levels = args
                .get(1)
                .filter(|levels| !levels.is_none())
                .map(|_| args.int(1, 0));
            let mut out = Vec::new();
            flatten(
                py,
                args.need(0)?,
                levels.transpose()?,
                args.flag(2, false)?,
                0,
                &mut out,
            )?;
            Ok(list(out))
        },
    ),
    ("to_entries", &["data"], |_, args| {
        let pairs: Vec<(Value, Value)> = match Kind::of(args.need(0)?) {
            Kind::Dict(entries) => entries.0.lock().values().cloned().collect(),
            Kind::List(items) => {
                let items = items.0.lock().clone();
                items
                    .into_iter()
                    .enumerate()
                    .map(|(at, item)| (Value::from(at), item))
                    .collect()
            }
            _ => return Err(Fault::other("Input data must be a dict or list")),
        };
        let entries = pairs
            .into_iter()
            .map(|(key, value)| dict_of([("key", key), ("value", value)]));
        Ok(list(entries.collect()))
    }),
    ("from_entries", &["entries"], |_, args| {
        let mut pairs = Vec::new();
        for entry in ops::items(args.need(0)?)? {
            let Kind::Dict(entry) = Kind::of(&entry) else {
                return Err(Fault::other("from_entries needs a list of dicts"));
            };
            let find = |wanted: &str| {
                let entry = entry.0.lock();
                let found = entry.values().find(|(key, _)| {
                    key.as_str()
                        .is_some_and(|key| key.eq_ignore_ascii_case(wanted))
                });
                found.map(|(_, value)| value.clone())
            };
            let name = find("key").filter(Value::is_true).or_else(|| find("name"));
            if let Some(name) = name.filter(Value::is_true) {
                pairs.push((name, find("value").unwrap_or_else(none)));
            }
        }
        dict_from(pairs)
    }),
    (
        "set_dict_key_value",
        &["in_dict", "keys", "value", "delimiter", "ordered_dict"],
        |_, args| {
            let (holder, last) = holder(args)?;
            store(&holder, &last, args.need(2)?.clone())?;
            Ok(args.need(0)?.clone())
        },
    ),
    (
        "update_dict_key_value",
        &["in_dict", "keys", "value", "delimiter", "ordered_dict"],
        |_, args| {
            let target = ensured(args, || dict(Entries::new()))?;
            match Kind::of(&target) {
                Kind::Dict(entries) => methods::update(entries, args.need(2)?).map_err(|_| {
                    Fault::function(format!(
                        "Cannot update <class 'dict'> with a <class '{}'>.",
                        args.get(2).map_or("NoneType", type_name)
                    ))
                })?,
                _ => {
                    return Err(Fault::function(format!(
                        "The last key contains a <class '{}'>, which cannot update.",
                        type_name(&target)
                    )));
                }
            }
            Ok(args.need(0)?.clone())
        },
    ),
    (
        "append_dict_key_value",
        &["in_dict", "keys", "value", "delimiter", "ordered_dict"],
        |_, args| grow(args, "append"),
    ),
    (
        "extend_dict_key_value",
        &["in_dict", "keys", "value", "delimiter", "ordered_dict"],
        |_, args| grow(args, "extend"),
    ),
];

fn compare_dicts(args: &Bound) -> Outcome<Value> {
    let (old, new) = (args.or_none(0), args.or_none(1));
    let (old, new) = (&old, &new);
    // As `set(new or {}).union(old or {})`.
    let keys = |value: &Value| match ops::truth(value)? {
        true => ops::items(value),
        false => Ok(Vec::new()),
    };
    let mut entries = Entries::new();
    for key in keys(new)?.into_iter().chain(keys(old)?) {
        let hash = Key::of(&key)?;
        let (in_old, in_new) = (ops::contains(old, &key)?, ops::contains(new, &key)?);
        let before = if in_old {
            ops::item(old, &key)?
        } else {
            Value::from("")
        };
        let after = if in_new {
            ops::item(new, &key)?
        } else {
            Value::from("")
        };
        if in_old && in_new && ops::equal(&before, &after)? {
            continue;
        }
        let change = match (in_old, in_new) {
            (true, false) => [("new", after), ("old", before)],
            _ => [("old", before), ("new", after)],
        };
        entries.insert(hash, (key, dict_of(change)));
    }
    Ok(dict(entries))
}

/// `traverse_dict_and_list`.
fn traverse(data: &Value, key: &Value, default: &Value, delimiter: &str) -> Outcome<Value> {
    let keys: Vec<Value> = match Kind::of(key) {
        Kind::Str(text) if !delimiter.is_empty() => {
            text.split(delimiter).map(Value::from).collect()
        }
        Kind::Int(_) | Kind::Str(_) => vec![key.clone()],
        _ => ops::items(key)?,
    };
    let mut value = data.clone();
    for key in keys {
        let next = match Kind::of(&value) {
            Kind::Undefined(undefined) => {
                return Err(super::super::value::undefined_fault(undefined));
            }
            Kind::List(items) => {
                let items = items.0.lock().clone();
                let number = match Kind::of(&key) {
                    Kind::Str(text) => parse_int(text, 10).ok(),
                    _ => ops::as_int(&key),
                };
                let wanted = number.map_or_else(|| key.clone(), super::super::value::int);
                let hash = Key::of(&wanted)?;
                let embedded = items.iter().find_map(|item| match Kind::of(item) {
                    Kind::Dict(entries) => {
                        entries.0.lock().get(&hash).map(|(_, value)| value.clone())
                    }
                    _ => None,
                });
                embedded.or_else(|| {
                    let index = number?;
                    let length = i128::try_from(items.len()).ok()?;
                    let index = if index < 0 { index + length } else { index };
                    items.get(usize::try_from(index).ok()?).cloned()
                })
            }
            Kind::Dict(entries) => {
                let hash = Key::of(&key)?;
                let found = entries.0.lock().get(&hash).map(|(_, value)| value.clone());
                // Keys that are numbers are found by their text as well.
                found.or_else(|| {
                    let number = parse_int(key.as_str()?, 10).ok()?;
                    let entries = entries.0.lock();
                    entries
                        .get(&Key::Int(number))
                        .map(|(_, value)| value.clone())
                })
            }
            _ => None,
        };
        match next {
            Some(next) => value = next,
            None => return Ok(default.clone()),
        }
    }
    Ok(value)
}

fn flatten(
    py: &mut Py<'_, '_, '_>,
    data: &Value,
    levels: Option<i64>,
    keep_nulls: bool,
    depth: usize,
    out: &mut Vec<Value>,
) -> Outcome<()> {
    if depth > 100 {
        return Err(Fault::other("Reference cycle detected. Check input list."));
    }
    let items = ops::items(data)?;
    py.run.round(items.len())?;
    for item in items {
        let null = item.is_none() || matches!(item.as_str(), Some("None" | "null"));
        if null && !keep_nulls {
            continue;
        }
        let nested = item.as_str().is_none() && ops::items(&item).is_ok();
        match levels {
            None if nested => flatten(py, &item, None, keep_nulls, depth + 1, out)?,
            Some(left) if nested && left >= 1 => {
                flatten(py, &item, Some(left - 1), keep_nulls, depth + 1, out)?;
            }
            _ => out.push(item),
        }
    }
    Ok(())
}

/// The dict that holds the last of the keys, which is made if it is not there, and that key.
fn holder(args: &Bound) -> Outcome<(Value, Value)> {
    let keys = str_of(args.need(1)?)?;
    let delimiter = args.text(3, ":")?;
    let mut value = args.need(0)?.clone();
    let (path, last) = match keys.rsplit_once(delimiter.as_str()) {
        Some((path, last)) if !delimiter.is_empty() => (Some(path), last),
        _ => (None, keys.as_str()),
    };
    for key in path.iter().flat_map(|path| path.split(delimiter.as_str())) {
        let Kind::Dict(entries) = Kind::of(&value) else {
            break;
        };
        let mut entries = entries.0.lock();
        let entry = entries
            .entry(Key::text(key))
            .or_insert_with(|| (Value::from(key), dict(Entries::new())));
        if entry.1.downcast_object_ref::<Dict>().is_none() {
            entry.1 = dict(Entries::new());
        }
        let next = entry.1.clone();
        drop(entries);
        value = next;
    }
    Ok((value, Value::from(last)))
}

fn store(holder: &Value, key: &Value, value: Value) -> Outcome<()> {
    let Kind::Dict(entries) = Kind::of(holder) else {
        return Err(Fault::other(format!(
            "'{}' object does not support item assignment",
            type_name(holder)
        )));
    };
    entries.0.lock().insert(Key::of(key)?, (key.clone(), value));
    Ok(())
}

/// The value at the end of the keys; one that is missing or `None` is made.
fn ensured(args: &Bound, make: impl Fn() -> Value) -> Outcome<Value> {
    let (holder, last) = holder(args)?;
    let found = ops::item(&holder, &last)?;
    if !is_undefined(&found) && !found.is_none() {
        return Ok(found);
    }
    let made = make();
    store(&holder, &last, made.clone())?;
    Ok(made)
}

fn grow(args: &Bound, how: &str) -> Outcome<Value> {
    let target = ensured(args, || list(Vec::new()))?;
    let Kind::List(items) = Kind::of(&target) else {
        return Err(Fault::function(format!(
            "The last key contains a <class '{}'>, which cannot {how}.",
            type_name(&target)
        )));
    };
    if how == "append" {
        items.0.lock().push(args.need(2)?.clone());
    } else {
        let more = ops::items(args.need(2)?).map_err(|_| {
            Fault::function(format!(
                "Cannot extend <class 'list'> with a <class '{}'>.",
                args.get(2).map_or("NoneType", type_name)
            ))
        })?;
        items.0.lock().extend(more);
    }
    Ok(args.need(0)?.clone())
}
