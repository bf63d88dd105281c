//! Python's containers as values of the template engine.
//!
//! The engine's own lists and mappings cannot be changed, and templates do change them
//! (`{% do list.append(x) %}`), so lists, dicts and sets are objects of our own, shared by
//! reference as in Python. Tuples are ours too, since dropping nested ones must not recurse
//! (`release.rs`). Text, numbers and `None` are the engine's values.
//!
//! No behaviour stands here: operators are in `ops.rs`, methods in `methods.rs`.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use indexmap::IndexMap;
use minijinja::value::{Enumerator, Object, ObjectRepr, Value, ValueKind};
use parking_lot::Mutex;

use super::fault::{Fault, Outcome};
use super::release::release;

/// How deep tuples may be nested that are keys.
const MAX_KEY_DEPTH: usize = 20;

/// Identity of a dict's key: `1`, `1.0` and `True` are one key.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Key {
    None,
    Int(i128),
    Float(u64),
    Text(Arc<str>),
    Bytes(Vec<u8>),
    Tuple(Vec<Key>),
}

impl Key {
    pub(crate) fn text(text: &str) -> Key {
        Key::Text(Arc::from(text))
    }

    /// The key of a value; lists, dicts and sets cannot be keys.
    pub(crate) fn of(value: &Value) -> Outcome<Key> {
        Key::at(value, 0)
    }

    fn at(value: &Value, depth: usize) -> Outcome<Key> {
        if depth > MAX_KEY_DEPTH {
            return Err(Fault::limit("a key is nested too deeply"));
        }
        Ok(match Kind::of(value) {
            Kind::None => Key::None,
            Kind::Bool(flag) => Key::Int(i128::from(flag)),
            Kind::Int(number) => Key::Int(number),
            Kind::Float(number) => {
                let whole = number as i128;
                if whole as f64 == number {
                    Key::Int(whole)
                } else {
                    Key::Float(number.to_bits())
                }
            }
            Kind::Str(text) => Key::text(text),
            Kind::Bytes(bytes) => Key::Bytes(bytes.to_vec()),
            Kind::Tuple(items) => {
                let items = items.iter().map(|item| Key::at(item, depth + 1));
                Key::Tuple(items.collect::<Outcome<Vec<_>>>()?)
            }
            Kind::Undefined(undefined) => return Err(undefined_fault(undefined)),
            Kind::List(_) | Kind::Dict(_) | Kind::Set(_) => {
                return Err(Fault::other(format!(
                    "unhashable type: '{}'",
                    type_name(value)
                )));
            }
            Kind::Other => Key::Bytes(format!("{value:?}").into_bytes()),
        })
    }
}

pub(crate) type Entries = IndexMap<Key, (Value, Value)>;

/// A `list`.
#[derive(Default)]
pub(crate) struct List(pub(crate) Mutex<Vec<Value>>);

/// A `tuple`.
pub(crate) struct Tuple(Vec<Value>);

/// A `dict`, in the order in which its keys were set.
#[derive(Default)]
pub(crate) struct Dict(pub(crate) Mutex<Entries>);

/// A `set`; in the order in which its members came, where Python has none.
#[derive(Default)]
pub(crate) struct Set(pub(crate) Mutex<IndexMap<Key, Value>>);

/// A name, item or attribute that does not exist. The operation that uses it decides whether that
/// is an error.
pub(crate) struct Undefined {
    /// The text of an error.
    pub(crate) message: String,
    /// Whether it prints as nothing, is false and empty, instead of being an error: the missing
    /// `else` of an inline `if`, and everything undefined with `allow_undefined`.
    pub(crate) silent: bool,
}

/// The object of `namespace()`, and of `joiner` and `cycler`, whose attributes can be read.
#[derive(Default)]
pub(crate) struct Namespace(pub(crate) Mutex<Entries>);

macro_rules! opaque_debug {
    ($($name:ident => $text:literal),*) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($text)
            }
        }
    )*};
}
opaque_debug!(List => "<list>", Tuple => "<tuple>", Dict => "<dict>", Set => "<set>", Undefined => "Undefined",
    Namespace => "<Namespace>");

impl Deref for Tuple {
    type Target = [Value];

    fn deref(&self) -> &[Value] {
        &self.0
    }
}

impl Drop for List {
    fn drop(&mut self) {
        release(std::mem::take(self.0.get_mut()));
    }
}

impl Drop for Tuple {
    fn drop(&mut self) {
        release(std::mem::take(&mut self.0));
    }
}

impl Drop for Dict {
    fn drop(&mut self) {
        release(in_entries(self.0.get_mut()));
    }
}

impl Drop for Set {
    fn drop(&mut self) {
        release(std::mem::take(self.0.get_mut()).into_values());
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        release(in_entries(self.0.get_mut()));
    }
}

/// Takes all values out of entries.
fn in_entries(entries: &mut Entries) -> impl Iterator<Item = Value> {
    let entries = std::mem::take(entries).into_values();
    entries.flat_map(|(key, value)| [key, value])
}

impl Object for Tuple {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.0.get(key.as_usize()?).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.0.clone())
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.0.len())
    }
}

impl Object for List {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.0.lock().get(key.as_usize()?).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.0.lock().clone())
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.0.lock().len())
    }
}

impl Object for Dict {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let key = Key::of(key).ok()?;
        self.0.lock().get(&key).map(|(_, value)| value.clone())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.0.lock().values().map(|(key, _)| key.clone()).collect())
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.0.lock().len())
    }
}

impl Object for Set {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.0.lock().values().cloned().collect())
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.0.lock().len())
    }
}

impl Object for Undefined {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn is_true(self: &Arc<Self>) -> bool {
        false
    }
}

impl Object for Namespace {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
}

/// A value by its Python type.
pub(crate) enum Kind<'a> {
    Undefined(Option<&'a Undefined>),
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(&'a str),
    Bytes(&'a [u8]),
    List(&'a List),
    Tuple(&'a Tuple),
    Dict(&'a Dict),
    Set(&'a Set),
    Other,
}

impl<'a> Kind<'a> {
    pub(crate) fn of(value: &'a Value) -> Kind<'a> {
        match value.kind() {
            ValueKind::Undefined => Kind::Undefined(None),
            ValueKind::None => Kind::None,
            ValueKind::Bool => Kind::Bool(value.is_true()),
            ValueKind::Number if value.is_integer() => {
                i128::try_from(value.clone()).map_or(Kind::Other, Kind::Int)
            }
            ValueKind::Number => f64::try_from(value.clone()).map_or(Kind::Other, Kind::Float),
            ValueKind::String => value.as_str().map_or(Kind::Other, Kind::Str),
            ValueKind::Bytes => value.as_bytes().map_or(Kind::Other, Kind::Bytes),
            _ => Kind::of_object(value),
        }
    }

    fn of_object(value: &'a Value) -> Kind<'a> {
        if let Some(list) = value.downcast_object_ref::<List>() {
            Kind::List(list)
        } else if let Some(dict) = value.downcast_object_ref::<Dict>() {
            Kind::Dict(dict)
        } else if let Some(tuple) = value.downcast_object_ref::<Tuple>() {
            Kind::Tuple(tuple)
        } else if let Some(set) = value.downcast_object_ref::<Set>() {
            Kind::Set(set)
        } else if let Some(undefined) = value.downcast_object_ref::<Undefined>() {
            Kind::Undefined(Some(undefined))
        } else {
            Kind::Other
        }
    }
}

pub(crate) fn none() -> Value {
    Value::from(())
}

pub(crate) fn list(items: Vec<Value>) -> Value {
    Value::from_object(List(Mutex::new(items)))
}

pub(crate) fn tuple(items: Vec<Value>) -> Value {
    Value::from_object(Tuple(items))
}

pub(crate) fn dict(entries: Entries) -> Value {
    Value::from_object(Dict(Mutex::new(entries)))
}

/// A dict with text keys.
pub(crate) fn dict_of<'a>(entries: impl IntoIterator<Item = (&'a str, Value)>) -> Value {
    dict(
        entries
            .into_iter()
            .map(|(key, value)| (Key::text(key), (Value::from(key), value)))
            .collect(),
    )
}

pub(crate) fn set(items: impl IntoIterator<Item = Value>) -> Outcome<Value> {
    let mut members = IndexMap::new();
    for item in items {
        members.entry(Key::of(&item)?).or_insert(item);
    }
    Ok(Value::from_object(Set(Mutex::new(members))))
}

pub(crate) fn undefined(message: impl Into<String>) -> Value {
    Value::from_object(Undefined {
        message: message.into(),
        silent: false,
    })
}

/// Something undefined that is no error when it is printed.
pub(crate) fn silent(message: impl Into<String>) -> Value {
    Value::from_object(Undefined {
        message: message.into(),
        silent: true,
    })
}

/// Whether a value is undefined and may be used as if it were empty.
pub(crate) fn is_silent(value: &Value) -> bool {
    matches!(
        Kind::of(value),
        Kind::Undefined(Some(Undefined { silent: true, .. }))
    )
}

pub(crate) fn is_undefined(value: &Value) -> bool {
    matches!(Kind::of(value), Kind::Undefined(_))
}

/// The error for using what is not there.
pub(crate) fn undefined_fault(undefined: Option<&Undefined>) -> Fault {
    Fault::undefined(undefined.map_or("value is undefined", |undefined| undefined.message.as_str()))
}

/// An integer; every number a template can make fits `i128`.
pub(crate) fn int(number: i128) -> Value {
    i64::try_from(number).map_or_else(|_| Value::from(number), Value::from)
}

/// The name that Python gives the type.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match Kind::of(value) {
        Kind::Undefined(_) => "Undefined",
        Kind::None => "NoneType",
        Kind::Bool(_) => "bool",
        Kind::Int(_) => "int",
        Kind::Float(_) => "float",
        Kind::Str(_) => "str",
        Kind::Bytes(_) => "bytes",
        Kind::List(_) => "list",
        Kind::Tuple(_) => "tuple",
        Kind::Dict(_) => "dict",
        Kind::Set(_) => "set",
        Kind::Other => "object",
    }
}
