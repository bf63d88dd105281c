//! `sys.*`: lists the functions.

use futures_util::FutureExt;
use saltern_python::fnmatch::Glob;
use saltern_wire::msgpack::Value;

use super::arguments::Signature;
use super::{FUNCTIONS, Function, FunctionResult};
use crate::python;

pub(crate) const DOC: Function = Function {
    name: "sys.doc",
    doc: "The documentation of the named functions or modules, of all when none is named.",
    signature: Signature {
        function: "doc",
        parameters: &[],
        more: true,
        keywords: true,
    },
    body: |call| {
        let docs = chosen(&call.arguments.rest);
        let docs = docs.map(|function| (Value::from(function.name), Value::from(function.doc)));
        std::future::ready(Ok(FunctionResult::ok(Value::Map(docs.collect())))).boxed()
    },
    quick: true,
    out: None,
};

pub(crate) const LIST_FUNCTIONS: Function = Function {
    name: "sys.list_functions",
    doc: "The names of all functions, or of those of the named modules and patterns.",
    signature: Signature {
        function: "list_functions",
        parameters: &[],
        more: true,
        keywords: true,
    },
    body: |call| {
        let names = chosen(&call.arguments.rest).map(|function| Value::from(function.name));
        std::future::ready(Ok(FunctionResult::ok(names.collect::<Vec<Value>>()))).boxed()
    },
    quick: true,
    out: None,
};

/// The functions that `names` choose: a module's name, a function's name, or a pattern.
fn chosen(names: &[Value]) -> impl Iterator<Item = &'static Function> {
    let names: Vec<String> = names.iter().map(python::text).collect();
    FUNCTIONS.iter().filter(move |function| {
        names.is_empty()
            || names.iter().any(|name| {
                if name.contains('*') || name.contains('.') {
                    Glob::new(name).matches(function.name)
                } else {
                    function.name.split('.').next() == Some(name)
                }
            })
    })
}

/// Name and documentation of every function whose name begins so.
pub(crate) fn docs_beginning_with(name: &str) -> Vec<(Value, Value)> {
    let found = FUNCTIONS
        .iter()
        .filter(|function| function.name.starts_with(name));
    found
        .map(|function| (Value::from(function.name), Value::from(function.doc)))
        .collect()
}
