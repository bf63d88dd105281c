//! Jinja's tests, `value is name` (production code).

use minijinja::value::{Value, ValueKind};

use super::args::{Args, Bound};
use super::fault::{Fault, Outcome};
use super::text::str_of;
use super::value::{Kind, is_undefined};
use super::{Py, filters, ops};

type Test = fn(&Value, &Bound) -> Outcome<bool>;

const TESTS: [(&str, &[&str], Test); 41] = [
    ("boolean", &["value"], |value, _| {
        Ok(matches!(Kind::of(value), Kind::Bool(_)))
    }),
    ("callable", &["value"], |value, _| {
        // What is undefined can be called, to say that it is undefined.
        let is_callable =
            matches!(Kind::of(value), Kind::Other) && value.kind() == ValueKind::Plain;
        Ok(is_callable || is_undefined(value))
    }),
    ("defined", &["value"], |value, _| Ok(!is_undefined(value))),
    ("divisibleby", &["value", "num"], |value, args| {
        let rest = ops::arithmetic("%", value, args.need(1)?)?;
        ops::equal(&rest, &Value::from(0))
    }),
    ("eq", &["value", "other"], |value, args| {
        ops::equal(value, args.need(1)?)
    }),
    ("equalto", &["value", "other"], |value, args| {
        ops::equal(value, args.need(1)?)
    }),
    ("==", &["value", "other"], |value, args| {
        ops::equal(value, args.need(1)?)
    }),
    ("ne", &["value", "other"], |value, args| {
        Ok(!ops::equal(value, args.need(1)?)?)
    }),
    ("!=", &["value", "other"], |value, args| {
        Ok(!ops::equal(value, args.need(1)?)?)
    }),
    ("escaped", &["value"], |_, _| Ok(false)),
    ("even", &["value"], |value, _| parity(value, 0)),
    ("odd", &["value"], |value, _| parity(value, 1)),
    ("false", &["value"], |value, _| {
        Ok(matches!(Kind::of(value), Kind::Bool(false)))
    }),
    ("true", &["value"], |value, _| {
        Ok(matches!(Kind::of(value), Kind::Bool(true)))
    }),
    ("filter", &["value"], |value, _| {
        Ok(filters::exists(value.as_str().unwrap_or_default()))
    }),
    ("test", &["value"], |value, _| {
        Ok(exists(value.as_str().unwrap_or_default()))
    }),
    ("float", &["value"], |value, _| {
        Ok(matches!(Kind::of(value), Kind::Float(_)))
    }),
    ("ge", &["value", "other"], |value, args| {
        ordered(">=", value, args)
    }),
    (">=", &["value", "other"], |value, args| {
        ordered(">=", value, args)
    }),
    ("gt", &["value", "other"], |value, args| {
        ordered(">", value, args)
    }),
    ("greaterthan", &["value", "other"], |value, args| {
        ordered(">", value, args)
    }),
    (">", &["value", "other"], |value, args| {
        ordered(">", value, args)
    }),
    ("le", &["value", "other"], |value, args| {
        ordered("<=", value, args)
    }),
    ("<=", &["value", "other"], |value, args| {
        ordered("<=", value, args)
    }),
    ("lt", &["value", "other"], |value, args| {
        ordered("<", value, args)
    }),
    ("lessthan", &["value", "other"], |value, args| {
        ordered("<", value, args)
    }),
    ("<", &["value", "other"], |value, args| {
        ordered("<", value, args)
    }),
    ("in", &["value", "seq"], |value, args| {
        ops::contains(args.need(1)?, value)
    }),
    ("integer", &["value"], |value, _| {
        Ok(matches!(Kind::of(value), Kind::Int(_)))
    }),
    ("iterable", &["value"], |value, _| {
        ops::defined(value)?;
        Ok(ops::items(value).is_ok())
    }),
    ("list", &["value"], |value, _| {
        Ok(matches!(Kind::of(value), Kind::List(_)))
    }),
    ("lower", &["value"], |value, _| {
        let text = str_of(value)?;
        Ok(text == text.to_lowercase() && text != text.to_uppercase())
    }),
    ("upper", &["value"], |value, _| {
        let text = str_of(value)?;
        Ok(text == text.to_uppercase() && text != text.to_lowercase())
    }),
    ("mapping", &["value"], |value, _| {
        Ok(matches!(Kind::of(value), Kind::Dict(_)))
    }),
    (
        "match",
        &["txt", "rgx", "ignorecase", "multiline"],
        |value, args| {
            let pattern = super::filters::pattern(args, 1, 2, 3)?;
            let text = str_of(value)?;
            let found = pattern
                .captures(&text, 0)
                .map_err(|error| Fault::other(error.to_string()))?;
            let found = found.and_then(|found| found.get(0));
            Ok(found.is_some_and(|found| found.start() == 0))
        },
    ),
    ("none", &["value"], |value, _| Ok(value.is_none())),
    ("number", &["value"], |value, _| {
        Ok(ops::as_float(value).is_some())
    }),
    ("sameas", &["value", "other"], |value, args| {
        let other = args.need(1)?;
        Ok(match (value.as_object(), other.as_object()) {
            (Some(_), Some(_)) => same_object(value, other),
            (None, None) => value.kind() == other.kind() && ops::equal(value, other)?,
            _ => false,
        })
    }),
    ("sequence", &["value"], |value, _| {
        Ok(matches!(
            Kind::of(value),
            Kind::Str(_) | Kind::List(_) | Kind::Tuple(_) | Kind::Dict(_) | Kind::Bytes(_)
        ))
    }),
    ("string", &["value"], |value, _| {
        Ok(matches!(Kind::of(value), Kind::Str(_)))
    }),
    ("undefined", &["value"], |value, _| Ok(is_undefined(value))),
];

/// Whether there is a test of that name.
pub(crate) fn exists(name: &str) -> bool {
    TESTS.iter().any(|(found, ..)| *found == name)
}

/// Applies a test; the value is the first argument.
pub(crate) fn apply(_py: &mut Py<'_, '_, '_>, name: &str, args: Args) -> Outcome<bool> {
    let Some((_, parameters, test)) = TESTS.iter().find(|(found, ..)| *found == name) else {
        return Err(Fault::runtime(format!("No test named '{name}'.")));
    };
    let bound = args.bind(name, parameters)?;
    let value = bound.need(0)?.clone();
    test(&value, &bound)
}

/// Whether two values are one object.
fn same_object(first: &Value, second: &Value) -> bool {
    match (Kind::of(first), Kind::of(second)) {
        (Kind::List(first), Kind::List(second)) => std::ptr::eq(first, second),
        (Kind::Dict(first), Kind::Dict(second)) => std::ptr::eq(first, second),
        (Kind::Set(first), Kind::Set(second)) => std::ptr::eq(first, second),
        _ => false,
    }
}

fn parity(value: &Value, wanted: i64) -> Outcome<bool> {
    let rest = ops::arithmetic("%", value, &Value::from(2))?;
    ops::equal(&rest, &Value::from(wanted))
}

fn ordered(sign: &str, value: &Value, args: &Bound) -> Outcome<bool> {
    ops::compare(sign, value, args.need(1)?)
}
