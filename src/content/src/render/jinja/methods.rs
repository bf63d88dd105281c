//! The methods of Python's lists, dicts, sets and bytes; those of text are in
//! `string_methods.rs`.

use std::fmt;
use std::sync::Arc;

use minijinja::value::{Enumerator, Object, ObjectRepr, Value};
use saltern_base::hex;

use super::args::Args;
use super::fault::{Fault, Outcome};
use super::release::release;
use super::salt::Method;
use super::value::{
    Dict, Entries, Key, Kind, List, Set, dict, int, list, none, set, tuple, type_name,
};
use super::{Py, globals, ops, string_methods, text};

const LIST: [&str; 11] = [
    "append", "clear", "copy", "count", "extend", "index", "insert", "pop", "remove", "reverse",
    "sort",
];
const DICT: [&str; 11] = [
    "clear",
    "copy",
    "get",
    "items",
    "keys",
    "pop",
    "popitem",
    "setdefault",
    "update",
    "values",
    "fromkeys",
];
const SET: [&str; 14] = [
    "add",
    "clear",
    "copy",
    "difference",
    "discard",
    "intersection",
    "isdisjoint",
    "issubset",
    "issuperset",
    "pop",
    "remove",
    "symmetric_difference",
    "union",
    "update",
];

/// Whether a value has a method.
pub(crate) fn has(object: &Value, name: &str) -> bool {
    match Kind::of(object) {
        Kind::Str(_) => string_methods::exists(name),
        Kind::List(_) => LIST.contains(&name),
        Kind::Dict(_) => DICT.contains(&name),
        Kind::Set(_) => SET.contains(&name),
        Kind::Tuple(_) => matches!(name, "count" | "index"),
        Kind::Bytes(_) => matches!(name, "decode" | "hex"),
        Kind::Int(_) | Kind::Bool(_) => name == "bit_length",
        Kind::Float(_) => name == "is_integer",
        Kind::Other => globals::has_method(object, name),
        Kind::None | Kind::Undefined(_) => false,
    }
}

/// A method as a value.
pub(crate) fn bound(object: &Value, name: &str) -> Option<Value> {
    has(object, name).then(|| {
        Value::from_object(Method {
            object: object.clone(),
            name: name.to_owned(),
        })
    })
}

/// Calls a method that exists.
pub(crate) fn call(
    py: &mut Py<'_, '_, '_>,
    object: &Value,
    name: &str,
    args: Args,
) -> Outcome<Value> {
    py.run.step()?;
    match Kind::of(object) {
        Kind::Str(text) => string_methods::call(text, name, args),
        Kind::List(items) => list_method(py, object, items, name, args),
        Kind::Dict(entries) => dict_method(py, entries, name, args),
        Kind::Set(members) => set_method(members, name, args),
        Kind::Tuple(_) => sequence_method(object, name, args),
        Kind::Bytes(bytes) => match name {
            "hex" => Ok(Value::from(hex(bytes))),
            _ => String::from_utf8(bytes.to_vec())
                .map(Value::from)
                .map_err(|_| Fault::other("'utf-8' codec can't decode bytes")),
        },
        Kind::Int(number) => Ok(Value::from(128 - number.unsigned_abs().leading_zeros())),
        Kind::Float(number) => Ok(Value::from(number.fract() == 0.0)),
        Kind::Other => globals::call_method(object, name),
        _ => Err(Fault::other(format!(
            "'{}' object has no attribute '{name}'",
            type_name(object)
        ))),
    }
}

fn position(items: &[Value], wanted: &Value) -> Outcome<Option<usize>> {
    for (index, item) in items.iter().enumerate() {
        if ops::equal(item, wanted)? {
            return Ok(Some(index));
        }
    }
    Ok(None)
}

/// `count` and `index`, which lists and tuples have.
fn sequence_method(object: &Value, name: &str, args: Args) -> Outcome<Value> {
    let bound = args.bind(name, &["value"])?;
    let wanted = bound.need(0)?;
    let items = ops::items(object)?;
    if name == "count" {
        let mut count = 0_i64;
        for item in &items {
            count += i64::from(ops::equal(item, wanted)?);
        }
        return Ok(Value::from(count));
    }
    match position(&items, wanted)? {
        Some(index) => Ok(Value::from(index)),
        None => Err(Fault::other(format!(
            "{} is not in {}",
            text::repr(wanted)?,
            type_name(object)
        ))),
    }
}

fn list_method(
    py: &mut Py<'_, '_, '_>,
    object: &Value,
    items: &List,
    name: &str,
    args: Args,
) -> Outcome<Value> {
    let at = |index: i64, length: usize| -> Option<usize> {
        let index = if index < 0 {
            index + i64::try_from(length).ok()?
        } else {
            index
        };
        usize::try_from(index).ok()
    };
    match name {
        "append" => {
            let bound = args.bind(name, &["object"])?;
            let value = bound.need(0)?.clone();
            py.run.round(1)?;
            items.0.lock().push(value);
        }
        "extend" => {
            let bound = args.bind(name, &["iterable"])?;
            let more = ops::items(bound.need(0)?)?;
            py.run.round(more.len())?;
            items.0.lock().extend(more);
        }
        "insert" => {
            let bound = args.bind(name, &["index", "object"])?;
            let (index, value) = (bound.int(0, 0)?, bound.need(1)?.clone());
            py.run.round(1)?;
            let mut items = items.0.lock();
            let length = items.len();
            items.insert(at(index, length).unwrap_or(0).min(length), value);
        }
        "pop" => {
            let index = args.bind(name, &["index"])?.int(0, -1)?;
            let mut items = items.0.lock();
            let length = items.len();
            return match at(index, length).filter(|index| *index < length) {
                Some(index) => Ok(items.remove(index)),
                None if length == 0 => Err(Fault::other("pop from empty list")),
                None => Err(Fault::other("pop index out of range")),
            };
        }
        "remove" => {
            let bound = args.bind(name, &["value"])?;
            let wanted = bound.need(0)?;
            let copy = items.0.lock().clone();
            match position(&copy, wanted)? {
                Some(index) => drop(items.0.lock().remove(index)),
                None => return Err(Fault::other("list.remove(x): x not in list")),
            }
        }
        "reverse" => items.0.lock().reverse(),
        "clear" => items.0.lock().clear(),
        "copy" => return Ok(list(items.0.lock().clone())),
        "sort" => {
            let bound = args.bind(name, &["key", "reverse"])?;
            let copy = items.0.lock().clone();
            let pairs = copy.into_iter().map(|item| (item.clone(), item)).collect();
            let sorted = ops::sorted(pairs, bound.flag(1, false)?)?;
            *items.0.lock() = sorted;
        }
        _ => return sequence_method(object, name, args),
    }
    Ok(none())
}

/// View of a dict (`keys()`, `values()`, `items()`): it can be iterated, but not indexed.
pub(crate) struct View {
    pub(crate) name: String,
    pub(crate) items: Vec<Value>,
    /// A `range` has an index.
    pub(crate) indexed: bool,
}

impl Drop for View {
    fn drop(&mut self) {
        release(std::mem::take(&mut self.items));
    }
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Object for View {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let index = key.as_usize().filter(|_| self.indexed)?;
        self.items.get(index).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.items.clone())
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.items.len())
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.indexed {
            return f.write_str(&self.name);
        }
        let items = text::repr(&list(self.items.clone())).unwrap_or_default();
        write!(f, "{}({items})", self.name)
    }
}

fn view(name: &'static str, items: Vec<Value>) -> Value {
    Value::from_object(View {
        name: name.to_owned(),
        items,
        indexed: false,
    })
}

/// A `range`: its items, and how it is written.
pub(crate) fn range_view(start: i128, stop: i128, step: i128, items: Vec<Value>) -> Value {
    let name = match step {
        1 => format!("range({start}, {stop})"),
        _ => format!("range({start}, {stop}, {step})"),
    };
    Value::from_object(View {
        name,
        items,
        indexed: true,
    })
}

/// Adds the entries of a dict or of pairs.
pub(crate) fn update(entries: &Dict, from: &Value) -> Outcome<()> {
    if let Kind::Dict(other) = Kind::of(from) {
        let other = other.0.lock().clone();
        let mut entries = entries.0.lock();
        for (key, (name, value)) in other {
            match entries.get_mut(&key) {
                Some(entry) => entry.1 = value,
                None => {
                    entries.insert(key, (name, value));
                }
            }
        }
        return Ok(());
    }
    for pair in ops::items(from)? {
        let pair = ops::items(&pair)?;
        let [key, value] = pair.as_slice() else {
            return Err(Fault::other(format!(
                "dictionary update sequence element #0 has length {}; 2 is required",
                pair.len()
            )));
        };
        let hash = Key::of(key)?;
        entries.0.lock().insert(hash, (key.clone(), value.clone()));
    }
    Ok(())
}

fn dict_method(py: &mut Py<'_, '_, '_>, entries: &Dict, name: &str, args: Args) -> Outcome<Value> {
    match name {
        "get" => {
            let bound = args.bind(name, &["key", "default"])?;
            let key = Key::of(bound.need(0)?)?;
            let found = entries.0.lock().get(&key).map(|(_, value)| value.clone());
            Ok(found.unwrap_or_else(|| bound.or_none(1)))
        }
        "items" => Ok(view(
            "dict_items",
            entries
                .0
                .lock()
                .values()
                .map(|(key, value)| tuple(vec![key.clone(), value.clone()]))
                .collect(),
        )),
        "keys" => {
            let keys = entries
                .0
                .lock()
                .values()
                .map(|(key, _)| key.clone())
                .collect();
            Ok(view("dict_keys", keys))
        }
        "values" => {
            let values = entries
                .0
                .lock()
                .values()
                .map(|(_, value)| value.clone())
                .collect();
            Ok(view("dict_values", values))
        }
        "update" => {
            let bound = args.bind(name, &["other", "*"])?;
            if let Some(other) = bound.get(0) {
                py.run.round(other.len().unwrap_or(0))?;
                update(entries, other)?;
            }
            let mut entries = entries.0.lock();
            for (name, value) in bound.named {
                entries.insert(Key::text(&name), (Value::from(name), value));
            }
            Ok(none())
        }
        "setdefault" => {
            let bound = args.bind(name, &["key", "default"])?;
            let key = bound.need(0)?.clone();
            let hash = Key::of(&key)?;
            py.run.round(1)?;
            let mut entries = entries.0.lock();
            let entry = entries
                .entry(hash)
                .or_insert_with(|| (key, bound.or_none(1)));
            Ok(entry.1.clone())
        }
        "pop" => {
            let bound = args.bind(name, &["key", "default"])?;
            let key = bound.need(0)?;
            let hash = Key::of(key)?;
            let removed = entries.0.lock().shift_remove(&hash);
            match (removed, bound.get(1)) {
                (Some((_, value)), _) => Ok(value),
                (None, Some(default)) => Ok(default.clone()),
                (None, None) => Err(Fault::other(text::repr(key)?)),
            }
        }
        "popitem" => match entries.0.lock().pop() {
            Some((_, (key, value))) => Ok(tuple(vec![key, value])),
            None => Err(Fault::other("'popitem(): dictionary is empty'")),
        },
        "clear" => {
            entries.0.lock().clear();
            Ok(none())
        }
        "fromkeys" => {
            let bound = args.bind(name, &["iterable", "value"])?;
            let mut made = Entries::new();
            for key in ops::items(bound.need(0)?)? {
                made.insert(Key::of(&key)?, (key, bound.or_none(1)));
            }
            Ok(dict(made))
        }
        _ => Ok(dict(entries.0.lock().clone())),
    }
}

fn set_method(members: &Set, name: &str, args: Args) -> Outcome<Value> {
    let mine = members.0.lock().clone();
    let bound = args.bind(name, &["value"])?;
    let other = |bound: &super::args::Bound| -> Outcome<Vec<(Key, Value)>> {
        let items = ops::items(bound.need(0)?)?;
        items
            .into_iter()
            .map(|item| Ok((Key::of(&item)?, item)))
            .collect()
    };
    match name {
        "add" => {
            let value = bound.need(0)?.clone();
            members.0.lock().insert(Key::of(&value)?, value);
            Ok(none())
        }
        "update" => {
            members.0.lock().extend(other(&bound)?);
            Ok(none())
        }
        "discard" | "remove" => {
            let value = bound.need(0)?;
            let found = members.0.lock().shift_remove(&Key::of(value)?);
            match found {
                None if name == "remove" => Err(Fault::other(text::repr(value)?)),
                _ => Ok(none()),
            }
        }
        "clear" => {
            members.0.lock().clear();
            Ok(none())
        }
        "pop" => members
            .0
            .lock()
            .pop()
            .map(|(_, value)| value)
            .ok_or_else(|| Fault::other("'pop from an empty set'")),
        "copy" => set(mine.into_values()),
        "union" => set(mine
            .into_values()
            .chain(other(&bound)?.into_iter().map(|(_, v)| v))),
        "intersection"
        | "difference"
        | "isdisjoint"
        | "issubset"
        | "issuperset"
        | "symmetric_difference" => {
            let other: indexmap::IndexMap<Key, Value> = other(&bound)?.into_iter().collect();
            let inside = |key: &Key| other.contains_key(key);
            Ok(match name {
                "intersection" => set(mine.into_iter().filter(|(k, _)| inside(k)).map(|e| e.1))?,
                "difference" => set(mine.into_iter().filter(|(k, _)| !inside(k)).map(|e| e.1))?,
                "isdisjoint" => Value::from(!mine.keys().any(inside)),
                "issubset" => Value::from(mine.keys().all(inside)),
                "issuperset" => Value::from(other.keys().all(|key| mine.contains_key(key))),
                _ => {
                    let first: Vec<Value> = mine
                        .iter()
                        .filter(|(key, _)| !inside(key))
                        .map(|(_, value)| value.clone())
                        .collect();
                    let second = other.iter().filter(|(key, _)| !mine.contains_key(*key));
                    set(first
                        .into_iter()
                        .chain(second.map(|(_, value)| value.clone())))?
                }
            })
        }
        _ => Ok(int(0)),
    }
}
