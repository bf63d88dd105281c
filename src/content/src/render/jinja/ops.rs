//! Python's operators on the template's values: arithmetic, comparison, items, slices.
//!
//! Longer than 500 lines, because it is one function an operator.

use std::cell::Cell;
use std::cmp::Ordering;

use minijinja::value::{Value, ValueKind};

use super::fault::{Fault, Outcome};
use super::methods::View;
use super::release::Held;
use super::text::{percent, str_of};
use super::value::Key;
use super::value::{
    Kind, Namespace, int, is_silent, list, set, tuple, type_name, undefined, undefined_fault,
};

/// The longest text or list that one operator may make.
const MAX_RESULT_LENGTH: usize = 16 << 20;
/// How deep containers are compared.
const MAX_COMPARE_DEPTH: usize = 150;
/// How many values one comparison looks at: a list that holds another twice doubles it at each
/// level.
const MAX_COMPARED: usize = 1_000_000;

pub(crate) fn as_int(value: &Value) -> Option<i128> {
    match Kind::of(value) {
        Kind::Int(number) => Some(number),
        Kind::Bool(flag) => Some(i128::from(flag)),
        _ => None,
    }
}

pub(crate) fn as_float(value: &Value) -> Option<f64> {
    match Kind::of(value) {
        Kind::Float(number) => Some(number),
        Kind::Int(number) => Some(number as f64),
        Kind::Bool(flag) => Some(f64::from(u8::from(flag))),
        _ => None,
    }
}

/// Fails if the value is undefined.
pub(crate) fn defined(value: &Value) -> Outcome<()> {
    match Kind::of(value) {
        Kind::Undefined(undefined) => Err(undefined_fault(undefined)),
        _ => Ok(()),
    }
}

/// `bool(value)`; the truth of something undefined is an error.
pub(crate) fn truth(value: &Value) -> Outcome<bool> {
    if is_silent(value) {
        return Ok(false);
    }
    defined(value)?;
    Ok(value.is_true())
}

fn unsupported(operator: &str, left: &Value, right: &Value) -> Fault {
    Fault::other(format!(
        "unsupported operand type(s) for {operator}: '{}' and '{}'",
        type_name(left),
        type_name(right)
    ))
}

fn too_large() -> Fault {
    Fault::limit("the result is too large")
}

/// A binary arithmetic operator by its sign.
pub(crate) fn arithmetic(operator: &str, left: &Value, right: &Value) -> Outcome<Value> {
    defined(left)?;
    defined(right)?;
    match (operator, Kind::of(left), Kind::of(right)) {
        ("+", Kind::Str(left), Kind::Str(right)) => return joined(left, right),
        ("+", Kind::Str(_), _) => {
            return Err(Fault::other(format!(
                "can only concatenate str (not \"{}\") to str",
                type_name(right)
            )));
        }
        ("+", Kind::List(first), Kind::List(second)) => {
            let mut items = first.0.lock().clone();
            items.extend(second.0.lock().clone());
            if items.len() > MAX_RESULT_LENGTH {
                return Err(too_large());
            }
            return Ok(list(items));
        }
        ("+", Kind::List(_), _) => {
            return Err(Fault::other(format!(
                "can only concatenate list (not \"{}\") to list",
                type_name(right)
            )));
        }
        ("+", Kind::Tuple(first), Kind::Tuple(second)) => {
            return Ok(tuple(first.iter().chain(second.iter()).cloned().collect()));
        }
        ("%", Kind::Str(text), _) => return percent(text, right).map(Value::from),
        ("*", Kind::Str(_) | Kind::List(_) | Kind::Tuple(_), _) => return repeat(left, right),
        ("*", _, Kind::Str(_) | Kind::List(_) | Kind::Tuple(_)) => return repeat(right, left),
        ("-" | "|" | "&" | "^", Kind::Set(first), Kind::Set(second)) => {
            let first = first.0.lock().clone();
            let second = second.0.lock().clone();
            return set(match operator {
                "-" => Vec::from_iter(
                    first
                        .into_iter()
                        .filter(|(key, _)| !second.contains_key(key)),
                ),
                _ => Vec::from_iter(first.into_iter().chain(second)),
            }
            .into_iter()
            .map(|(_, value)| value));
        }
        _ => {}
    }
    if let (Some(first), Some(second)) = (as_int(left), as_int(right)) {
        return whole(operator, first, second);
    }
    match (as_float(left), as_float(right)) {
        (Some(first), Some(second)) => fraction(operator, first, second),
        _ => Err(unsupported(operator, left, right)),
    }
}

fn joined(left: &str, right: &str) -> Outcome<Value> {
    if left.len() + right.len() > MAX_RESULT_LENGTH {
        return Err(too_large());
    }
    Ok(Value::from([left, right].concat()))
}

fn repeat(sequence: &Value, times: &Value) -> Outcome<Value> {
    let Some(times) = as_int(times) else {
        return Err(Fault::other(format!(
            "can't multiply sequence by non-int of type '{}'",
            type_name(times)
        )));
    };
    let times = usize::try_from(times.max(0)).map_err(|_| too_large())?;
    let fits = |length: usize| match length.checked_mul(times) {
        Some(length) if length <= MAX_RESULT_LENGTH => Ok(()),
        _ => Err(too_large()),
    };
    Ok(match Kind::of(sequence) {
        Kind::Str(text) => {
            fits(text.len())?;
            Value::from(text.repeat(times))
        }
        Kind::List(items) => {
            let items = items.0.lock().clone();
            fits(items.len())?;
            list(std::iter::repeat_n(items, times).flatten().collect())
        }
        Kind::Tuple(items) => {
            fits(items.len())?;
            tuple(
                std::iter::repeat_n(items.to_vec(), times)
                    .flatten()
                    .collect(),
            )
        }
        _ => return Err(Fault::other("not a sequence")),
    })
}

fn whole(operator: &str, first: i128, second: i128) -> Outcome<Value> {
    let zero = || Fault::other("division by zero");
    let result = match operator {
        "+" => first.checked_add(second),
        "-" => first.checked_sub(second),
        "*" => first.checked_mul(second),
        "/" => {
            if second == 0 {
                return Err(zero());
            }
            return Ok(Value::from(first as f64 / second as f64));
        }
        "//" | "%" => {
            if second == 0 {
                return Err(Fault::other("integer division or modulo by zero"));
            }
            let quotient = first.checked_div(second).ok_or_else(too_large)?;
            let rest = first - quotient * second;
            let apart = rest != 0 && (rest < 0) != (second < 0);
            Some(match (operator, apart) {
                ("//", true) => quotient - 1,
                ("//", false) => quotient,
                (_, true) => rest + second,
                (_, false) => rest,
            })
        }
        "**" => match u32::try_from(second) {
            Ok(power) => first.checked_pow(power),
            Err(_) if second < 0 => return fraction(operator, first as f64, second as f64),
            Err(_) => None,
        },
        "|" => Some(first | second),
        "&" => Some(first & second),
        _ => Some(first ^ second),
    };
    result.map(int).ok_or_else(too_large)
}

fn fraction(operator: &str, first: f64, second: f64) -> Outcome<Value> {
    if second == 0.0 && matches!(operator, "/" | "//" | "%") {
        return Err(Fault::other(match operator {
            "/" => "float division by zero",
            "//" => "float floor division by zero",
            _ => "float modulo",
        }));
    }
    let modulo = || {
        let rest = first % second;
        if rest != 0.0 && (rest < 0.0) != (second < 0.0) {
            rest + second
        } else {
            rest
        }
    };
    Ok(Value::from(match operator {
        "+" => first + second,
        "-" => first - second,
        "*" => first * second,
        "/" => first / second,
        "//" => ((first - modulo()) / second).round(),
        "%" => modulo(),
        "**" => first.powf(second),
        _ => {
            return Err(Fault::other(format!(
                "unsupported operand type(s) for {operator}: 'float' and 'float'"
            )));
        }
    }))
}

pub(crate) fn negated(value: &Value) -> Outcome<Value> {
    defined(value)?;
    if let Some(number) = as_int(value) {
        return number.checked_neg().map(int).ok_or_else(too_large);
    }
    as_float(value)
        .map(|number| Value::from(-number))
        .ok_or_else(|| {
            Fault::other(format!(
                "bad operand type for unary -: '{}'",
                type_name(value)
            ))
        })
}

/// `a ~ b ~ …`.
pub(crate) fn concatenated(values: &[Value]) -> Outcome<Value> {
    let mut out = String::new();
    for value in values {
        out.push_str(&str_of(value)?);
        if out.len() > MAX_RESULT_LENGTH {
            return Err(too_large());
        }
    }
    Ok(Value::from(out))
}

/// `left == right`; comparing something undefined is an error.
pub(crate) fn equal(left: &Value, right: &Value) -> Outcome<bool> {
    equal_at(left, right, 0, &Cell::new(MAX_COMPARED))
}

fn equal_at(left: &Value, right: &Value, depth: usize, steps: &Cell<usize>) -> Outcome<bool> {
    if depth > MAX_COMPARE_DEPTH {
        return Err(Fault::limit(
            "maximum recursion depth exceeded in comparison",
        ));
    }
    match steps.get().checked_sub(1) {
        Some(left) => steps.set(left),
        None => return Err(Fault::limit("a comparison takes too many steps")),
    }
    defined(left)?;
    defined(right)?;
    let all = |first: &[Value], second: &[Value]| -> Outcome<bool> {
        if first.len() != second.len() {
            return Ok(false);
        }
        for (one, other) in first.iter().zip(second) {
            if !equal_at(one, other, depth + 1, steps)? {
                return Ok(false);
            }
        }
        Ok(true)
    };
    Ok(match (Kind::of(left), Kind::of(right)) {
        (Kind::None, Kind::None) => true,
        (Kind::Str(first), Kind::Str(second)) => first == second,
        (Kind::Bytes(first), Kind::Bytes(second)) => first == second,
        (Kind::List(first), Kind::List(second)) => {
            let first = first.0.lock().clone();
            let second = second.0.lock().clone();
            return all(&first, &second);
        }
        (Kind::Tuple(first), Kind::Tuple(second)) => return all(first, second),
        (Kind::Dict(first), Kind::Dict(second)) => {
            let first = first.0.lock().clone();
            let second = second.0.lock().clone();
            if first.len() != second.len() {
                return Ok(false);
            }
            for (key, (_, value)) in &first {
                let Some((_, other)) = second.get(key) else {
                    return Ok(false);
                };
                if !equal_at(value, other, depth + 1, steps)? {
                    return Ok(false);
                }
            }
            true
        }
        (Kind::Set(first), Kind::Set(second)) => {
            let first = first.0.lock().clone();
            let second = second.0.lock().clone();
            first.len() == second.len() && first.keys().all(|key| second.contains_key(key))
        }
        (Kind::Other, Kind::Other) => {
            let views = (
                left.downcast_object_ref::<View>(),
                right.downcast_object_ref::<View>(),
            );
            match views {
                (Some(first), Some(second)) => return all(&first.items, &second.items),
                _ => Held::inner(left) == Held::inner(right),
            }
        }
        (Kind::Int(_) | Kind::Bool(_), Kind::Int(_) | Kind::Bool(_)) => {
            as_int(left) == as_int(right)
        }
        (
            Kind::Int(_) | Kind::Bool(_) | Kind::Float(_),
            Kind::Int(_) | Kind::Bool(_) | Kind::Float(_),
        ) => as_float(left) == as_float(right),
        _ => false,
    })
}

/// The order of two values; types without a common order are an error.
fn order(sign: &str, left: &Value, right: &Value) -> Outcome<Option<Ordering>> {
    defined(left)?;
    defined(right)?;
    let apart = || {
        Fault::other(format!(
            "'{sign}' not supported between instances of '{}' and '{}'",
            type_name(left),
            type_name(right)
        ))
    };
    let sequences = |first: &[Value], second: &[Value]| {
        for (one, other) in first.iter().zip(second) {
            if !equal(one, other)? {
                return order(sign, one, other);
            }
        }
        Ok(Some(first.len().cmp(&second.len())))
    };
    match (Kind::of(left), Kind::of(right)) {
        (Kind::Str(first), Kind::Str(second)) => Ok(Some(first.cmp(second))),
        (Kind::Bytes(first), Kind::Bytes(second)) => Ok(Some(first.cmp(second))),
        (Kind::List(first), Kind::List(second)) => {
            let first = first.0.lock().clone();
            let second = second.0.lock().clone();
            sequences(&first, &second)
        }
        (Kind::Tuple(first), Kind::Tuple(second)) => sequences(first, second),
        _ => match (as_int(left), as_int(right)) {
            (Some(first), Some(second)) => Ok(Some(first.cmp(&second))),
            _ => match (as_float(left), as_float(right)) {
                (Some(first), Some(second)) => Ok(first.partial_cmp(&second)),
                _ => Err(apart()),
            },
        },
    }
}

/// One comparison by its sign.
pub(crate) fn compare(sign: &str, left: &Value, right: &Value) -> Outcome<bool> {
    Ok(match sign {
        "==" => equal(left, right)?,
        "!=" => !equal(left, right)?,
        "in" => contains(right, left)?,
        "not in" => !contains(right, left)?,
        "<" => order(sign, left, right)?.is_some_and(Ordering::is_lt),
        "<=" => order(sign, left, right)?.is_some_and(Ordering::is_le),
        ">" => order(sign, left, right)?.is_some_and(Ordering::is_gt),
        _ => order(sign, left, right)?.is_some_and(Ordering::is_ge),
    })
}

/// `needle in haystack`.
pub(crate) fn contains(haystack: &Value, needle: &Value) -> Outcome<bool> {
    defined(haystack)?;
    match Kind::of(haystack) {
        Kind::Str(text) => match Kind::of(needle) {
            Kind::Str(part) => Ok(text.contains(part)),
            Kind::Undefined(undefined) => Err(undefined_fault(undefined)),
            _ => Err(Fault::other(format!(
                "'in <string>' requires string as left operand, not {}",
                type_name(needle)
            ))),
        },
        Kind::Dict(dict) => {
            let key = Key::of(needle)?;
            Ok(dict.0.lock().contains_key(&key))
        }
        Kind::Set(members) => {
            let key = Key::of(needle)?;
            Ok(members.0.lock().contains_key(&key))
        }
        Kind::List(_) | Kind::Tuple(_) | Kind::Bytes(_) => {
            for item in items(haystack)? {
                if equal(&item, needle)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Kind::Other if let Some(table) = haystack.downcast_object_ref::<super::salt::Table>() => {
            Ok(needle.as_str().is_some_and(|name| table.has(name)))
        }
        Kind::Other if haystack.kind() != ValueKind::Plain => {
            for item in items(haystack)? {
                if equal(&item, needle)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        _ => Err(Fault::other(format!(
            "argument of type '{}' is not iterable",
            type_name(haystack)
        ))),
    }
}

/// The items of an iteration: keys of a dict, letters of a text.
pub(crate) fn items(value: &Value) -> Outcome<Vec<Value>> {
    match Kind::of(value) {
        Kind::List(list) => Ok(list.0.lock().clone()),
        Kind::Tuple(items) => Ok(items.to_vec()),
        Kind::Dict(dict) => Ok(dict.0.lock().values().map(|(key, _)| key.clone()).collect()),
        Kind::Set(set) => Ok(set.0.lock().values().cloned().collect()),
        Kind::Str(text) => Ok(text
            .chars()
            .map(|letter| Value::from(String::from(letter)))
            .collect()),
        Kind::Bytes(bytes) => Ok(bytes.iter().map(|byte| Value::from(*byte)).collect()),
        Kind::Undefined(_) if is_silent(value) => Ok(Vec::new()),
        Kind::Undefined(undefined) => Err(undefined_fault(undefined)),
        Kind::Other if value.kind() != ValueKind::Plain => {
            value.try_iter().map(Iterator::collect).map_err(Fault::from)
        }
        _ => Err(Fault::other(format!(
            "'{}' object is not iterable",
            type_name(value)
        ))),
    }
}

/// The length of what has one.
pub(crate) fn length(value: &Value) -> Outcome<usize> {
    match Kind::of(value) {
        Kind::Str(text) => Ok(text.chars().count()),
        Kind::Undefined(_) if is_silent(value) => Ok(0),
        Kind::Undefined(undefined) => Err(undefined_fault(undefined)),
        Kind::None | Kind::Bool(_) | Kind::Int(_) | Kind::Float(_) => Err(Fault::other(format!(
            "object of type '{}' has no len()",
            type_name(value)
        ))),
        _ => value
            .len()
            .ok_or_else(|| Fault::other("object has no len()")),
    }
}

fn no_attribute(value: &Value, name: &str) -> Value {
    undefined(match Kind::of(value) {
        Kind::None => format!("'None' has no attribute '{name}'"),
        _ => {
            let table = value.downcast_object_ref::<super::salt::Table>();
            let why = table.and_then(|table| table.functions.absence(name));
            let why = why.map_or_else(String::new, |why| format!(" ({why})"));
            let kind = python_type(value);
            format!("'{kind} object' has no attribute '{name}'{why}")
        }
    })
}

/// The type as Jinja2 names it in messages.
fn python_type(value: &Value) -> &'static str {
    if value.downcast_object_ref::<super::salt::Table>().is_some() {
        return "salt.utils.templates.AliasedLoader";
    }
    if value.downcast_object_ref::<super::salt::Module>().is_some() {
        return "salt.loader.lazy.LoadedMod";
    }
    if value.downcast_object_ref::<Namespace>().is_some() {
        return "jinja2.utils.Namespace";
    }
    type_name(value)
}

/// `value[key]`, or something undefined if it is not there.
pub(crate) fn item(value: &Value, key: &Value) -> Outcome<Value> {
    if let Kind::Undefined(undefined) = Kind::of(key) {
        return Err(undefined_fault(undefined));
    }
    if let Some(found) = subscript(value, key)? {
        return Ok(found);
    }
    if let Some(name) = key.as_str() {
        if let Some(found) = super::methods::bound(value, name) {
            return Ok(found);
        }
        return Ok(no_attribute(value, name));
    }
    let shown = super::text::repr(key)?;
    Ok(undefined(match Kind::of(value) {
        Kind::None => "'None' has no attribute ".to_owned() + &shown,
        _ => format!("{} object has no element {shown}", python_type(value)),
    }))
}

/// `value[key]` without methods; `None` if there is none.
fn subscript(value: &Value, key: &Value) -> Outcome<Option<Value>> {
    let at = |length: usize| {
        let index = as_int(key)?;
        let index = if index < 0 {
            index.checked_add(i128::try_from(length).ok()?)?
        } else {
            index
        };
        usize::try_from(index).ok().filter(|index| *index < length)
    };
    Ok(match Kind::of(value) {
        Kind::Undefined(undefined) => return Err(undefined_fault(undefined)),
        Kind::Dict(dict) => match Key::of(key) {
            Ok(key) => dict.0.lock().get(&key).map(|(_, value)| value.clone()),
            Err(_) => None,
        },
        Kind::List(list) => {
            let items = list.0.lock();
            at(items.len()).and_then(|index| items.get(index).cloned())
        }
        Kind::Tuple(items) => at(items.len()).and_then(|index| items.get(index).cloned()),
        Kind::Str(text) => at(text.chars().count())
            .and_then(|index| text.chars().nth(index))
            .map(|letter| Value::from(String::from(letter))),
        Kind::Other => match (key.as_str(), value.downcast_object_ref::<Namespace>()) {
            (Some(name), Some(namespace)) => {
                let entries = namespace.0.lock();
                entries
                    .get(&Key::text(name))
                    .map(|(_, value)| value.clone())
            }
            (Some(name), None) => super::salt::attribute(value, name),
            (None, _) => None,
        },
        _ => None,
    })
}

/// The `attr` filter: a method or attribute, never an item.
pub(crate) fn attribute_only(value: &Value, name: &str) -> Outcome<Value> {
    if matches!(Kind::of(value), Kind::Dict(_)) && !super::methods::has(value, name) {
        return Ok(undefined(format!(
            "'dict object' has no attribute '{name}'"
        )));
    }
    attribute(value, name)
}

/// `value.name`: a method or attribute, else the item of that name.
pub(crate) fn attribute(value: &Value, name: &str) -> Outcome<Value> {
    if let Kind::Undefined(undefined) = Kind::of(value) {
        return Err(undefined_fault(undefined));
    }
    // The sandbox hides what begins with two underscores.
    if name.starts_with("__") {
        return Err(Fault::runtime(format!(
            "access to attribute '{name}' of '{}' object is unsafe.",
            type_name(value)
        )));
    }
    if let Some(found) = super::methods::bound(value, name) {
        return Ok(found);
    }
    match subscript(value, &Value::from(name))? {
        Some(found) => Ok(found),
        None => Ok(no_attribute(value, name)),
    }
}

/// `value[start:stop:step]`.
pub(crate) fn slice(value: &Value, start: &Value, stop: &Value, step: &Value) -> Outcome<Value> {
    defined(value)?;
    let bound = |value: &Value| match Kind::of(value) {
        Kind::None => Ok(None),
        _ => as_int(value).map(Some).ok_or_else(|| {
            Fault::other("slice indices must be integers or None or have an __index__ method")
        }),
    };
    let items: Vec<Value> = match Kind::of(value) {
        Kind::Str(_) | Kind::List(_) | Kind::Tuple(_) => items(value)?,
        _ => {
            return Ok(undefined(format!(
                "'{} object' has no attribute 'slice'",
                type_name(value)
            )));
        }
    };
    let step = bound(step)?.unwrap_or(1);
    if step == 0 {
        return Err(Fault::other("slice step cannot be zero"));
    }
    let length = i128::try_from(items.len()).unwrap_or(i128::MAX);
    let (lowest, highest) = if step > 0 {
        (0, length)
    } else {
        (-1, length - 1)
    };
    let clamp = |index: i128| {
        let index = if index < 0 {
            index.saturating_add(length)
        } else {
            index
        };
        index.clamp(lowest, highest)
    };
    let first = bound(start)?.map_or(if step > 0 { lowest } else { highest }, clamp);
    let last = bound(stop)?.map_or(if step > 0 { highest } else { lowest }, clamp);
    let mut chosen = Vec::new();
    let mut at = first;
    while (step > 0 && at < last) || (step < 0 && at > last) {
        if let Some(item) = usize::try_from(at).ok().and_then(|at| items.get(at)) {
            chosen.push(item.clone());
        }
        at = at.saturating_add(step);
    }
    Ok(match Kind::of(value) {
        Kind::Str(_) => Value::from(
            chosen
                .iter()
                .filter_map(|letter| letter.as_str())
                .collect::<String>(),
        ),
        Kind::Tuple(_) => tuple(chosen),
        _ => list(chosen),
    })
}

/// Sorts as Python does: stable, and an error for what has no order.
pub(crate) fn sorted(mut pairs: Vec<(Value, Value)>, reverse: bool) -> Outcome<Vec<Value>> {
    // A merge sort of our own: the comparison can fail, and it need not be a total order.
    if reverse {
        pairs.reverse();
    }
    let mut width = 1;
    while width < pairs.len() {
        let mut merged = Vec::with_capacity(pairs.len());
        for chunk in pairs.chunks(width * 2) {
            let (mut left, mut right) = chunk.split_at(width.min(chunk.len()));
            while let (Some(first), Some(second)) = (left.first(), right.first()) {
                if compare("<", &second.0, &first.0)? {
                    merged.push(second.clone());
                    right = right.get(1..).unwrap_or_default();
                } else {
                    merged.push(first.clone());
                    left = left.get(1..).unwrap_or_default();
                }
            }
            merged.extend_from_slice(left);
            merged.extend_from_slice(right);
        }
        pairs = merged;
        width *= 2;
    }
    let mut sorted: Vec<Value> = pairs.into_iter().map(|(_, value)| value).collect();
    if reverse {
        sorted.reverse();
    }
    Ok(sorted)
}
