//! The `salt` of templates: `salt['mod.fun'](…)` and `salt.mod.fun(…)`, and other objects whose
//! attributes are callables.

use std::fmt;
use std::sync::Arc;

use minijinja::value::{Object, ObjectRepr, Value};

use super::globals;
use super::methods::View;
use super::release::{Held, release};
use super::value::{Kind, Namespace};
use crate::render::functions::Functions;

/// `salt`: a table of functions by their full names.
pub(crate) struct Table {
    pub(crate) functions: Arc<dyn Functions>,
}

impl Table {
    pub(crate) fn has(&self, name: &str) -> bool {
        self.functions.has(name)
    }
}

/// `salt.mod`.
pub(crate) struct Module {
    functions: Arc<dyn Functions>,
    name: String,
}

/// `salt['mod.fun']`.
pub(crate) struct Function {
    pub(crate) functions: Arc<dyn Functions>,
    pub(crate) name: String,
}

/// A method of a value, taken but not called: `{% set add = list.append %}`.
pub(crate) struct Method {
    pub(crate) object: Value,
    pub(crate) name: String,
}

/// A global function of templates, such as `range`.
pub(crate) struct Builtin(pub(crate) &'static str);

/// A name bound by an import: the engine's module, and the prefix of the names in it.
pub(crate) struct Imported {
    pub(crate) module: Value,
    pub(crate) prefix: String,
}

macro_rules! plain_objects {
    ($($name:ident => $text:literal),*) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($text)
            }
        }
        impl Object for $name {
            fn repr(self: &Arc<Self>) -> ObjectRepr {
                ObjectRepr::Plain
            }
        }
    )*};
}
plain_objects!(Table => "<salt>", Module => "<module>", Function => "<function>",
    Method => "<built-in method>", Builtin => "<function>");

impl fmt::Debug for Imported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<template module>")
    }
}

impl Drop for Method {
    fn drop(&mut self) {
        release([std::mem::take(&mut self.object)]);
    }
}

impl Drop for Imported {
    fn drop(&mut self) {
        release([std::mem::take(&mut self.module)]);
    }
}

impl Object for Imported {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.module)
    }
}

/// The attribute or item of one of these objects.
pub(crate) fn attribute(value: &Value, name: &str) -> Option<Value> {
    if let Some(table) = value.downcast_object_ref::<Table>() {
        let functions = table.functions.clone();
        return if functions.has(name) {
            Some(Value::from_object(Function {
                functions,
                name: name.to_owned(),
            }))
        } else if !name.contains('.') && functions.has_module(name) {
            Some(Value::from_object(Module {
                functions,
                name: name.to_owned(),
            }))
        } else {
            None
        };
    }
    if let Some(module) = value.downcast_object_ref::<Module>() {
        let name = format!("{}.{name}", module.name);
        let functions = module.functions.clone();
        return functions
            .has(&name)
            .then(|| Value::from_object(Function { functions, name }));
    }
    if let Some(imported) = value.downcast_object_ref::<Imported>() {
        if name.starts_with('_') {
            return None;
        }
        let name = format!("{}{name}", imported.prefix);
        return imported
            .module
            .get_attr(&name)
            .ok()
            .filter(|value| !value.is_undefined())
            .map(kept);
    }
    if value.downcast_object_ref::<Method>().is_some()
        || value.downcast_object_ref::<Function>().is_some()
        || value.downcast_object_ref::<Builtin>().is_some()
    {
        return None;
    }
    // The engine's own objects: `loop`, macros.
    Held::inner(value)
        .get_attr(name)
        .ok()
        .filter(|value| !value.is_undefined())
}

/// A value that came from the engine, as templates may keep it.
pub(crate) fn kept(value: Value) -> Value {
    if is_ours(&value) {
        return value;
    }
    Held::wrapped(value)
}

/// Whether a value is plain or one of our objects, none of which recurses when it is dropped.
fn is_ours(value: &Value) -> bool {
    let Some(object) = value.as_object() else {
        return true;
    };
    !matches!(Kind::of(value), Kind::Other)
        || object.is::<View>()
        || object.is::<Namespace>()
        || object.is::<Table>()
        || object.is::<Function>()
        || object.is::<Builtin>()
        || object.is::<Held>()
        || object.is::<Imported>()
        || object.is::<Method>()
        || object.is::<Module>()
        || globals::is_ours(object)
}
