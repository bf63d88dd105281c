//! Drops nested containers without recursion.
//!
//! A template can nest values as deep as it has steps (`{% set ns.x = [ns.x] %}` in a loop), from
//! the inside and, since containers are shared, from the outside too, so no count at the time of
//! building is the depth. A walk over a value counts levels; a drop cannot. So the
//! containers of `value.rs` hand what they held to the outermost drop on the thread, which drops
//! one after the other. What the engine makes itself (macros and `loop`) reaches templates only
//! inside a [`Held`], so that chains of those end here too.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use minijinja::value::{Object, ObjectRepr, Value};

thread_local! {
    /// Values that wait to be dropped while another one is.
    static WAITING: RefCell<Option<Vec<Value>>> = const { RefCell::new(None) };
}

/// Drops values, those in them after them.
pub(crate) fn release(values: impl IntoIterator<Item = Value>) {
    let is_object = |value: &Value| value.as_object().is_some();
    let objects: Vec<Value> = values.into_iter().filter(is_object).collect();
    if objects.is_empty() {
        return;
    }
    let is_outermost = WAITING.try_with(|waiting| match &mut *waiting.borrow_mut() {
        Some(waiting) => {
            waiting.extend(objects);
            false
        }
        none => {
            *none = Some(objects);
            true
        }
    });
    if is_outermost != Ok(true) {
        return;
    }
    let next = || WAITING.with(|waiting| waiting.borrow_mut().as_mut().and_then(Vec::pop));
    while let Some(value) = next() {
        drop(value);
    }
    WAITING.with(|waiting| *waiting.borrow_mut() = None);
}

/// A macro or a `loop` of the engine, as templates hold it.
pub(crate) struct Held(Value);

impl Held {
    /// The value as templates may keep it.
    pub(crate) fn wrapped(value: Value) -> Value {
        Value::from_object(Held(value))
    }

    /// The engine's own value in this one, or this one.
    pub(crate) fn inner(value: &Value) -> &Value {
        value
            .downcast_object_ref::<Held>()
            .map_or(value, |held| &held.0)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        release([std::mem::take(&mut self.0)]);
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl Object for Held {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}
