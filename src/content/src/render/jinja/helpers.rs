//! The operations that translated templates call: each does what Python and Jinja2 do.
//!
//! A little over 500 lines, because the table of operations is one list.

use std::fmt;
use std::sync::Arc;

use minijinja::value::{Kwargs, Object, ObjectRepr, Value};
use minijinja::{Environment, Error, State};

use super::args::Args;
use super::fault::{Fault, Outcome};
use super::release::Held;
use super::salt::{Builtin, Function, Imported, Method, kept};
use super::value::{
    Entries, Key, Kind, Namespace, dict, is_silent, is_undefined, list, none, silent, tuple,
    type_name, undefined, undefined_fault,
};
use super::{MAIN, Py, Run, compare, filters, globals, is_tests, methods, ops, parts_of, text};
use crate::render::data::{from_template, to_template};
use crate::render::functions::{CallArgs, CallError, InPlace};

type Operation = fn(&mut Py<'_, '_, '_>, &[Value]) -> Outcome<Value>;

const OPERATIONS: [(&str, Operation); 31] = [
    ("__name", name),
    ("__true", truth),
    ("__math", math),
    ("__compare", comparison),
    ("__join", |py, args| {
        py.run.step()?;
        let values: Vec<Value> = args.iter().map(|value| lenient(py.run, value)).collect();
        ops::concatenated(&values)
    }),
    ("__negative", |_, args| ops::negated(arg(args, 0))),
    ("__positive", |_, args| {
        ops::arithmetic("+", &Value::from(0), arg(args, 0))
    }),
    ("__float", |_, args| {
        Ok(Value::from(
            arg(args, 0)
                .as_str()
                .and_then(|t| t.parse::<f64>().ok())
                .unwrap_or(0.0),
        ))
    }),
    ("__list", |py, args| {
        py.run.round(args.len())?;
        Ok(list(args.to_vec()))
    }),
    ("__tuple", |_, args| Ok(tuple(args.to_vec()))),
    ("__dict", make_dict),
    ("__extend", |_, args| {
        let mut all = Vec::new();
        for part in args {
            all.extend(ops::items(part)?);
        }
        Ok(list(all))
    }),
    ("__merge", |_, args| {
        let mut all = Entries::new();
        for part in args {
            if let Kind::Dict(part) = Kind::of(part) {
                all.extend(part.0.lock().clone());
            }
        }
        Ok(dict(all))
    }),
    ("__item", |py, args| {
        py.run.step()?;
        ops::item(arg(args, 0), arg(args, 1))
    }),
    ("__attribute", |py, args| {
        py.run.step()?;
        ops::attribute(arg(args, 0), arg(args, 1).as_str().unwrap_or_default())
    }),
    ("__slice", |_, args| {
        ops::slice(arg(args, 0), arg(args, 1), arg(args, 2), arg(args, 3))
    }),
    ("__call", |py, args| {
        let (callee, rest) = args
            .split_first()
            .ok_or_else(|| Fault::other("no callee"))?;
        call(py, callee, Args::from_engine(rest))
    }),
    ("__method", method),
    ("__filter", |py, args| {
        py.run.step()?;
        let (name, rest) = args
            .split_first()
            .ok_or_else(|| Fault::other("no filter"))?;
        filters::apply(
            py,
            name.as_str().unwrap_or_default(),
            Args::from_engine(rest),
        )
    }),
    ("__test", |py, args| {
        let (name, rest) = args.split_first().ok_or_else(|| Fault::other("no test"))?;
        let passed = is_tests::apply(
            py,
            name.as_str().unwrap_or_default(),
            Args::from_engine(rest),
        )?;
        Ok(Value::from(passed))
    }),
    ("__iter", |py, args| {
        let value = arg(args, 0);
        if is_undefined(value) && !py.run.strict() {
            return Ok(tuple(Vec::new()));
        }
        let items = ops::items(value)?;
        py.run.round(items.len())?;
        Ok(Value::from(items))
    }),
    ("__unpack", |_, args| {
        let items = ops::items(arg(args, 0))?;
        let wanted = arg(args, 1).as_usize().unwrap_or(0);
        match items.len() {
            count if count == wanted => Ok(tuple(items)),
            count if count > wanted => Err(Fault::other(format!(
                "too many values to unpack (expected {wanted})"
            ))),
            count => Err(Fault::other(format!(
                "not enough values to unpack (expected {wanted}, got {count})"
            ))),
        }
    }),
    ("__named", |_, args| {
        let mut named = Entries::new();
        let value = arg(args, 0);
        for key in ops::items(value)? {
            let name = format!("k_{}", text::str_of(&key)?);
            named.insert(
                Key::text(&name),
                (Value::from(name), ops::item(value, &key)?),
            );
        }
        Ok(dict(named))
    }),
    ("__do", |_, _| Ok(none())),
    ("__missing", |_, args| {
        Ok(Value::from(arg(args, 0).is_undefined()))
    }),
    ("__tick", |py, args| {
        py.run.step()?;
        py.run.print(arg(args, 0).as_usize().unwrap_or(0))?;
        Ok(none())
    }),
    ("__assign", |_, args| {
        let Some(namespace) = arg(args, 0).downcast_object_ref::<Namespace>() else {
            return Err(Fault::runtime(
                "cannot assign attribute on non-namespace object",
            ));
        };
        let name = arg(args, 1).clone();
        let key = Key::of(&name)?;
        namespace.0.lock().insert(key, (name, arg(args, 2).clone()));
        Ok(none())
    }),
    ("__no_else", |_, args| {
        Ok(silent(format!(
            "the inline if-expression on line {} evaluated to false and no else section was \
             defined.",
            arg(args, 0)
        )))
    }),
    ("__template", template),
    ("__module", |_, args| {
        Ok(Value::from_object(Imported {
            module: arg(args, 0).clone(),
            prefix: prefix_of(arg(args, 1)),
        }))
    }),
    ("__export", |_, args| {
        let name = arg(args, 2).as_str().unwrap_or_default();
        let mangled = format!("{}{name}", prefix_of(arg(args, 1)));
        match arg(args, 0).get_attr(&mangled) {
            Ok(value) if !value.is_undefined() => Ok(kept(value)),
            _ => Ok(undefined(format!(
                "the template {} does not export the requested name '{name}'",
                text::repr(arg(args, 3))?
            ))),
        }
    }),
];

/// One operation as a function of the engine.
struct Helper {
    name: &'static str,
    operation: Operation,
    run: Arc<Run>,
}

impl fmt::Debug for Helper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Object for Helper {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn call(self: &Arc<Self>, state: &mut State<'_, '_>, args: &[Value]) -> Result<Value, Error> {
        let mut py = Py {
            run: &self.run,
            state,
        };
        (self.operation)(&mut py, args).map_err(Fault::into_engine)
    }
}

pub(crate) fn install(engine: &mut Environment<'_>, run: &Arc<Run>) {
    for (name, operation) in OPERATIONS {
        let run = run.clone();
        engine.add_global(
            name,
            Value::from_object(Helper {
                name,
                operation,
                run,
            }),
        );
    }
}

/// Takes the operations away again, and with them what they hold of a rendering.
pub(crate) fn remove(engine: &mut Environment<'_>) {
    for (name, _) in OPERATIONS {
        engine.remove_global(name);
    }
}

/// The output of `{{ value }}`, within the limits of the run.
pub(crate) fn print(run: &Run, value: &Value) -> Outcome<String> {
    let text = if is_undefined(value) && !run.strict() {
        String::new()
    } else {
        text::printed(value)?
    };
    run.print(text.len())?;
    Ok(text)
}

fn arg(args: &[Value], index: usize) -> &Value {
    static MISSING: Value = Value::UNDEFINED;
    args.get(index).unwrap_or(&MISSING)
}

/// With `allow_undefined`, what is undefined is an empty text where a text is wanted.
fn lenient(run: &Run, value: &Value) -> Value {
    if !run.strict() && is_undefined(value) {
        return Value::from("");
    }
    value.clone()
}

fn name(py: &mut Py<'_, '_, '_>, args: &[Value]) -> Outcome<Value> {
    py.run.step()?;
    let value = arg(args, 0);
    if !value.is_undefined() {
        return Ok(kept(value.clone()));
    }
    let name = arg(args, 1).as_str().unwrap_or_default();
    let main = parts_of(py.state.name()).is_some_and(|(_, prefix)| prefix == MAIN);
    Ok(match py.run.global(name, main) {
        Some(value) => value,
        None => undefined(format!("'{name}' is undefined")),
    })
}

fn truth(py: &mut Py<'_, '_, '_>, args: &[Value]) -> Outcome<Value> {
    py.run.step()?;
    let value = arg(args, 0);
    if py.run.strict() && !is_silent(value) {
        ops::defined(value)?;
    }
    Ok(value.clone())
}

fn math(py: &mut Py<'_, '_, '_>, args: &[Value]) -> Outcome<Value> {
    py.run.step()?;
    let mut result = arg(args, 0).clone();
    for pair in args.get(1..).unwrap_or_default().chunks(2) {
        let sign = arg(pair, 0).as_str().unwrap_or_default();
        result = ops::arithmetic(sign, &result, arg(pair, 1))?;
    }
    Ok(result)
}

fn comparison(py: &mut Py<'_, '_, '_>, args: &[Value]) -> Outcome<Value> {
    py.run.step()?;
    let mut left = arg(args, 0).clone();
    for pair in args.get(1..).unwrap_or_default().chunks(2) {
        let sign = arg(pair, 0).as_str().unwrap_or_default();
        let right = arg(pair, 1);
        if !compare::with_undefined(py.run, sign, &left, right)? {
            return Ok(Value::from(false));
        }
        left = right.clone();
    }
    Ok(Value::from(true))
}

fn make_dict(py: &mut Py<'_, '_, '_>, args: &[Value]) -> Outcome<Value> {
    py.run.round(args.len() / 2)?;
    let mut entries = Entries::with_capacity(args.len() / 2);
    for pair in args.chunks(2) {
        let key = arg(pair, 0);
        let value = arg(pair, 1).clone();
        let hash = Key::of(key)?;
        match entries.get_mut(&hash) {
            Some(entry) => entry.1 = value,
            None => {
                entries.insert(hash, (key.clone(), value));
            }
        }
    }
    Ok(dict(entries))
}

fn prefix_of(name: &Value) -> String {
    let parts = parts_of(name.as_str().unwrap_or_default());
    parts.map_or("", |(_, prefix)| prefix).to_owned()
}

fn template(py: &mut Py<'_, '_, '_>, args: &[Value]) -> Outcome<Value> {
    let prefix = arg(args, 1).as_str().map(str::to_owned);
    let names = match Kind::of(arg(args, 0)) {
        Kind::Str(name) => vec![name.to_owned()],
        Kind::Undefined(undefined) => return Err(undefined_fault(undefined)),
        _ => ops::items(arg(args, 0))?
            .iter()
            .map(text::str_of)
            .collect::<Outcome<Vec<_>>>()?,
    };
    for name in &names {
        if let Some(found) = py.run.template(name, prefix.as_deref())? {
            return Ok(Value::from(found));
        }
    }
    // A name that the engine cannot find: it decides whether that is an error.
    Ok(Value::from(names.join(", ")))
}

fn method(py: &mut Py<'_, '_, '_>, args: &[Value]) -> Outcome<Value> {
    py.run.step()?;
    let object = arg(args, 0);
    let name = arg(args, 1).as_str().unwrap_or_default();
    let rest = args.get(2..).unwrap_or_default();
    if let Kind::Undefined(undefined) = Kind::of(object) {
        return Err(undefined_fault(undefined));
    }
    if methods::has(object, name) {
        return methods::call(py, object, name, Args::from_engine(rest));
    }
    if matches!(name, "cycle" | "changed") && is_loop(object) {
        let value = Held::inner(object).call_method(py.state, name, rest)?;
        return Ok(kept(value));
    }
    let callee = ops::attribute(object, name)?;
    call(py, &callee, Args::from_engine(rest))
}

fn is_loop(object: &Value) -> bool {
    matches!(Kind::of(object), Kind::Other)
        && Held::inner(object)
            .get_attr("revindex0")
            .is_ok_and(|value| !value.is_undefined())
}

/// Calls whatever can be called.
pub(crate) fn call(py: &mut Py<'_, '_, '_>, callee: &Value, args: Args) -> Outcome<Value> {
    py.run.step()?;
    if let Kind::Undefined(undefined) = Kind::of(callee) {
        return Err(undefined_fault(undefined));
    }
    if let Some(function) = callee.downcast_object_ref::<Function>() {
        // A function may take its time, so the clock is looked at each time.
        py.run.in_time()?;
        return call_function(function, args);
    }
    if let Some(builtin) = callee.downcast_object_ref::<Builtin>() {
        return globals::call(py, builtin.0, args);
    }
    if let Some(method) = callee.downcast_object_ref::<Method>() {
        return methods::call(py, &method.object, &method.name, args);
    }
    if let Some(result) = globals::call_object(callee)? {
        return Ok(result);
    }
    let callee = Held::inner(callee);
    if let Some(parameters) = macro_parameters(callee) {
        return call_macro(py, callee, &parameters, args);
    }
    Err(Fault::other(format!(
        "'{}' object is not callable",
        type_name(callee)
    )))
}

fn call_function(function: &Function, args: Args) -> Outcome<Value> {
    let mut call = CallArgs::default();
    for value in &args.positional {
        call.positional.push(from_template(value)?);
    }
    for (name, value) in &args.named {
        call.named.push((name.clone(), from_template(value)?));
    }
    match function.functions.call(&function.name, call) {
        Ok(value) => Ok(updated(function, &args, to_template(&value))),
        Err(CallError::Refused(text)) => Err(Fault::function(text)),
        Err(CallError::Failed(text)) => Err(Fault::other(text)),
    }
}

/// The result of a function; for one that changes its first argument, that mapping with the result
/// in it.
fn updated(function: &Function, args: &Args, result: Value) -> Value {
    let Some(InPlace { parameter, flag }) = function.functions.updates(&function.name) else {
        return result;
    };
    let argument = |index: usize, wanted: &str| {
        let by_name = args.named.iter().find(|(name, _)| name == wanted);
        let by_place = args.positional.get(index);
        by_place.or_else(|| by_name.map(|(_, value)| value))
    };
    let in_place = flag.and_then(|index| argument(index, "in_place"));
    if in_place.is_some_and(|flag| !ops::truth(flag).unwrap_or(true)) {
        return result;
    }
    let Some(target) = argument(0, parameter) else {
        return result;
    };
    match (Kind::of(target), Kind::of(&result)) {
        (Kind::Dict(target_entries), Kind::Dict(entries)) => {
            let entries = entries.0.lock().clone();
            *target_entries.0.lock() = entries;
            target.clone()
        }
        _ => result,
    }
}

/// The parameters of a macro; `None` if the value is none.
fn macro_parameters(value: &Value) -> Option<Vec<String>> {
    if !matches!(Kind::of(value), Kind::Other) {
        return None;
    }
    let flag = value.get_attr("caller").ok()?;
    if flag.is_undefined() {
        return None;
    }
    let names = value.get_attr("arguments").ok()?;
    Some(
        names
            .try_iter()
            .ok()?
            .filter_map(|name| name.as_str().map(str::to_owned))
            .collect(),
    )
}

/// Calls a macro. Its parameters carry the prefix of its template, and `varargs` and `kwargs` are
/// parameters too if it uses them.
fn call_macro(
    py: &mut Py<'_, '_, '_>,
    callee: &Value,
    parameters: &[String],
    args: Args,
) -> Outcome<Value> {
    let shown = callee.get_attr("name").ok();
    let shown = shown
        .as_ref()
        .and_then(|name| name.as_str())
        .unwrap_or("caller");
    let takes = |name: &str| parameters.iter().any(|parameter| parameter == name);
    let plain: Vec<&String> = parameters
        .iter()
        .filter(|name| !matches!(name.as_str(), "__va" | "__kw"))
        .collect();
    let prefix_length = shown.find('_').map_or(0, |at| at + 1);
    let bare = |name: &str| {
        name.find('_').map_or(name.to_owned(), |at| {
            name.get(at + 1..).unwrap_or_default().to_owned()
        })
    };
    let shown = shown.get(prefix_length..).unwrap_or_default();
    let mut values: Vec<Value> = vec![Value::UNDEFINED; plain.len()];
    let mut rest = Vec::new();
    for (index, value) in args.positional.into_iter().enumerate() {
        match values.get_mut(index) {
            Some(slot) => *slot = value,
            None => rest.push(value),
        }
    }
    let mut named = Entries::new();
    for (name, value) in args.named {
        let at = plain.iter().position(|parameter| bare(parameter) == name);
        match at.and_then(|at| values.get_mut(at)) {
            Some(slot) if slot.is_undefined() => *slot = value,
            Some(_) => {
                return Err(Fault::other(format!(
                    "macro '{shown}' got multiple values for argument '{name}'"
                )));
            }
            None => {
                named.insert(Key::text(&name), (Value::from(name), value));
            }
        }
    }
    if !rest.is_empty() && !takes("__va") {
        return Err(Fault::other(format!(
            "macro '{shown}' takes not more than {} argument(s)",
            plain.len()
        )));
    }
    if let Some((name, _)) = named.values().next()
        && !takes("__kw")
    {
        return Err(Fault::other(format!(
            "macro '{shown}' takes no keyword argument {}",
            text::repr(name)?
        )));
    }
    if takes("__va") {
        values.push(tuple(rest));
    }
    if takes("__kw") {
        values.push(dict(named));
    }
    if let Some(caller) = args.caller {
        values.push(Value::from(Kwargs::from_iter([("caller", caller)])));
    }
    Ok(callee.call(py.state, &values)?)
}
