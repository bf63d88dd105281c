//! The global functions of templates: Jinja2's `range`, `dict`, `namespace`, … and Salt's `raise`.

use std::fmt;
use std::sync::Arc;

use minijinja::value::{DynObject, Object, ObjectRepr, Value};
use parking_lot::Mutex;
use saltern_wire::msgpack::Value as Data;

use super::args::Args;
use super::fault::{Fault, Outcome};
use super::release::release;
use super::salt::Builtin;
use super::value::{Dict, Entries, Key, Namespace, dict, int, none};
use super::{Py, methods, ops, text};
use crate::render::data::{from_template, to_template};
use crate::render::modules;

const GLOBALS: [&str; 10] = [
    "range",
    "dict",
    "odict",
    "namespace",
    "joiner",
    "cycler",
    "raise",
    "ifelse",
    "lipsum",
    "show_full_context",
];

/// The function in `__stack__`.
const TRAVERSE: &str = "traverse";

/// The longest `range`; stock's sandbox has the same bound.
const MAX_RANGE_LENGTH: i128 = 100_000;

/// A global function by its name.
pub(crate) fn find(name: &str) -> Option<Value> {
    let name = GLOBALS.iter().find(|found| **found == name)?;
    Some(Value::from_object(Builtin(name)))
}

/// `__stack__` of the external pillar `stack`: what the caller gives, and a function.
pub(crate) fn stack(data: &Data) -> Value {
    let mut entries = Entries::new();
    for (name, value) in data.as_map().unwrap_or_default() {
        if let Some(name) = name.as_str() {
            entries.insert(Key::text(name), (Value::from(name), to_template(value)));
        }
    }
    let traverse = Value::from_object(Builtin(TRAVERSE));
    entries.insert(Key::text(TRAVERSE), (Value::from(TRAVERSE), traverse));
    dict(entries)
}

/// `__stack__.traverse(data, key, default=None, delimiter=":")`.
fn traverse(args: Args) -> Outcome<Value> {
    let bound = args.bind(TRAVERSE, &["data", "key", "default", "delimiter"])?;
    let data = from_template(bound.need(0)?)?;
    let key = text::str_of(bound.need(1)?)?;
    let delimiter = bound.get(3).and_then(Value::as_str).unwrap_or(":");
    Ok(match modules::traverse(&data, &key, delimiter) {
        Some(value) => to_template(value),
        None => bound.get(2).cloned().unwrap_or_else(none),
    })
}

/// Object of `joiner(sep)`: called first it is empty, then the separator.
struct Joiner {
    separator: Value,
    used: Mutex<bool>,
}

/// Object of `cycler(a, b, …)`.
struct Cycler {
    items: Vec<Value>,
    at: Mutex<usize>,
}

impl Drop for Joiner {
    fn drop(&mut self) {
        release([std::mem::take(&mut self.separator)]);
    }
}

impl Drop for Cycler {
    fn drop(&mut self) {
        release(std::mem::take(&mut self.items));
    }
}

impl fmt::Debug for Joiner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<joiner>")
    }
}

impl fmt::Debug for Cycler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<cycler>")
    }
}

impl Object for Joiner {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
}

impl Object for Cycler {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        (key.as_str() == Some("current"))
            .then(|| self.items.get(*self.at.lock()).cloned())
            .flatten()
    }
}

/// Whether an object is one of these.
pub(crate) fn is_ours(object: &DynObject) -> bool {
    object.is::<Cycler>() || object.is::<Joiner>()
}

/// Whether one of these objects has a method.
pub(crate) fn has_method(object: &Value, name: &str) -> bool {
    object.downcast_object_ref::<Cycler>().is_some() && matches!(name, "next" | "reset")
}

pub(crate) fn call_method(object: &Value, name: &str) -> Outcome<Value> {
    let Some(cycler) = object.downcast_object_ref::<Cycler>() else {
        return Err(Fault::other(format!("object has no attribute '{name}'")));
    };
    let mut at = cycler.at.lock();
    if name == "reset" {
        *at = 0;
        return Ok(none());
    }
    let item = cycler.items.get(*at).cloned().unwrap_or_else(none);
    *at = (*at + 1) % cycler.items.len().max(1);
    Ok(item)
}

/// Calls a joiner; `None` if the value is none.
pub(crate) fn call_object(callee: &Value) -> Outcome<Option<Value>> {
    let Some(joiner) = callee.downcast_object_ref::<Joiner>() else {
        return Ok(None);
    };
    let used = std::mem::replace(&mut *joiner.used.lock(), true);
    Ok(Some(if used {
        joiner.separator.clone()
    } else {
        Value::from("")
    }))
}

fn entries_of(args: Args) -> Outcome<Entries> {
    let made = Dict::default();
    for other in &args.positional {
        methods::update(&made, other)?;
    }
    let mut entries = std::mem::take(&mut *made.0.lock());
    for (name, value) in args.named {
        entries.insert(Key::text(&name), (Value::from(name), value));
    }
    Ok(entries)
}

/// Calls a global function.
pub(crate) fn call(py: &mut Py<'_, '_, '_>, name: &str, args: Args) -> Outcome<Value> {
    match name {
        "range" => range(py, args),
        "dict" | "odict" => entries_of(args).map(dict),
        "namespace" => {
            let entries = entries_of(args)?;
            Ok(Value::from_object(Namespace(Mutex::new(entries))))
        }
        "joiner" => {
            let bound = args.bind(name, &["sep"])?;
            let separator = bound.get(0).cloned().unwrap_or_else(|| Value::from(", "));
            let used = Mutex::new(false);
            Ok(Value::from_object(Joiner { separator, used }))
        }
        "cycler" => {
            if args.positional.is_empty() {
                return Err(Fault::other("at least one item has to be provided"));
            }
            let at = Mutex::new(0);
            let items = args.positional;
            Ok(Value::from_object(Cycler { items, at }))
        }
        "raise" => {
            let bound = args.bind(name, &["msg"])?;
            Err(Fault::other(text::str_of(bound.need(0)?)?))
        }
        "ifelse" => if_else(args),
        "show_full_context" => {
            let entries = py.run.names().into_iter().filter_map(|name| {
                let value = py.run.global(&name, true)?;
                Some((Key::text(&name), (Value::from(name), value)))
            });
            Ok(dict(entries.collect()))
        }
        TRAVERSE => traverse(args),
        _ => Err(Fault::other(format!("'{name}' is not available here"))),
    }
}

fn range(py: &mut Py<'_, '_, '_>, args: Args) -> Outcome<Value> {
    let mut numbers = Vec::new();
    for value in &args.positional {
        numbers.push(ops::as_int(value).ok_or_else(|| {
            Fault::other(format!(
                "'{}' object cannot be interpreted as an integer",
                super::value::type_name(value)
            ))
        })?);
    }
    let (start, stop, step) = match numbers.as_slice() {
        [stop] => (0, *stop, 1),
        [start, stop] => (*start, *stop, 1),
        [start, stop, step] => (*start, *stop, *step),
        _ => return Err(Fault::other("range expected 1 to 3 arguments")),
    };
    if step == 0 {
        return Err(Fault::other("range() arg 3 must not be zero"));
    }
    let distance = if step > 0 { stop - start } else { start - stop };
    let count = (distance.max(0) + step.abs() - 1) / step.abs();
    if count > MAX_RANGE_LENGTH {
        return Err(Fault::other(format!(
            "Range too big. The sandbox blocks ranges larger than MAX_RANGE ({MAX_RANGE_LENGTH})."
        )));
    }
    py.run.round(usize::try_from(count).unwrap_or(0))?;
    let items = (0..count).map(|index| int(start + index * step)).collect();
    Ok(methods::range_view(start, stop, step, items))
}

/// `ifelse(condition, value, …, default)`; conditions that are targets need a matcher, which a
/// template alone does not have, so only booleans and `*` are decided here.
fn if_else(args: Args) -> Outcome<Value> {
    let values = args.positional;
    if values.len().is_multiple_of(2) {
        return Err(Fault::other(
            "The ifelse function must have an odd number of arguments!",
        ));
    }
    for pair in values.chunks(2) {
        match pair {
            [condition, value] => {
                let matched = match condition.as_str() {
                    Some("*") => true,
                    Some(target) => {
                        return Err(Fault::function(format!(
                            "ifelse cannot match the target '{target}' here"
                        )));
                    }
                    None => condition.is_true(),
                };
                if matched {
                    return Ok(value.clone());
                }
            }
            [default] => return Ok(default.clone()),
            _ => {}
        }
    }
    Ok(none())
}
