//! Arguments of filters, tests, functions and methods, bound to names as Python binds them.

use minijinja::value::Value;

use super::fault::{Fault, Outcome};
use super::ops;
use super::text::str_of;
use super::value::{Kind, none};

/// Arguments as they were written.
#[derive(Default, Clone)]
pub(crate) struct Args {
    pub(crate) positional: Vec<Value>,
    pub(crate) named: Vec<(String, Value)>,
    /// The body of a `call` block.
    pub(crate) caller: Option<Value>,
}

impl Args {
    /// Takes the arguments of an engine call apart; keywords carry the mark `k_` there.
    pub(crate) fn from_engine(values: &[Value]) -> Args {
        let mut args = Args::default();
        let mut positional = values;
        if let Some((last, before)) = values.split_last()
            && last.is_kwargs()
        {
            positional = before;
            for key in last.try_iter().into_iter().flatten() {
                let Some(name) = key.as_str() else { continue };
                let value = last.get_attr(name).unwrap_or_default();
                match name.strip_prefix("k_") {
                    Some(name) => args.named.push((name.to_owned(), value)),
                    None => args.caller = Some(value),
                }
            }
        }
        args.positional = positional.to_vec();
        args
    }

    /// Binds to parameter names. A last name `*` takes any further arguments.
    pub(crate) fn bind(self, callee: &str, parameters: &[&'static str]) -> Outcome<Bound> {
        let (parameters, open) = match parameters.split_last() {
            Some((&"*", before)) => (before, true),
            _ => (parameters, false),
        };
        let mut slots: Vec<Option<Value>> = vec![None; parameters.len()];
        let mut rest = Vec::new();
        let count = self.positional.len();
        for (index, value) in self.positional.into_iter().enumerate() {
            match slots.get_mut(index) {
                Some(slot) => *slot = Some(value),
                None if open => rest.push(value),
                None => {
                    return Err(Fault::other(format!(
                        "{callee}() takes at most {} arguments but {count} were given",
                        parameters.len()
                    )));
                }
            }
        }
        let mut named = Vec::new();
        for (name, value) in self.named {
            let found = parameters.iter().position(|parameter| *parameter == name);
            match found.and_then(|index| slots.get_mut(index)) {
                Some(Some(_)) => {
                    return Err(Fault::other(format!(
                        "{callee}() got multiple values for argument '{name}'"
                    )));
                }
                Some(slot) => *slot = Some(value),
                None if open => named.push((name, value)),
                None => {
                    return Err(Fault::other(format!(
                        "{callee}() got an unexpected keyword argument '{name}'"
                    )));
                }
            }
        }
        Ok(Bound {
            callee: callee.to_owned(),
            parameters: parameters.to_vec(),
            slots,
            rest,
            named,
        })
    }
}

/// Arguments in the order of the parameters.
pub(crate) struct Bound {
    callee: String,
    parameters: Vec<&'static str>,
    slots: Vec<Option<Value>>,
    pub(crate) rest: Vec<Value>,
    pub(crate) named: Vec<(String, Value)>,
}

impl Bound {
    pub(crate) fn get(&self, index: usize) -> Option<&Value> {
        self.slots.get(index).and_then(Option::as_ref)
    }

    pub(crate) fn or_none(&self, index: usize) -> Value {
        self.get(index).cloned().unwrap_or_else(none)
    }

    pub(crate) fn need(&self, index: usize) -> Outcome<&Value> {
        self.get(index).ok_or_else(|| {
            Fault::other(format!(
                "{}() missing 1 required positional argument: '{}'",
                self.callee,
                self.parameters.get(index).unwrap_or(&"value")
            ))
        })
    }

    /// A text; `None` and what is missing are the default.
    pub(crate) fn text(&self, index: usize, default: &str) -> Outcome<String> {
        match self.get(index) {
            Some(value) if !value.is_none() => str_of(value),
            _ => Ok(default.to_owned()),
        }
    }

    /// An integer; `None` and what is missing are the default.
    pub(crate) fn int(&self, index: usize, default: i64) -> Outcome<i64> {
        match self.get(index) {
            Some(value) if !value.is_none() => ops::as_int(value)
                .or_else(|| match Kind::of(value) {
                    Kind::Float(number) => Some(number as i128),
                    _ => None,
                })
                .and_then(|number| i64::try_from(number).ok())
                .ok_or_else(|| {
                    Fault::other(format!(
                        "'{}' object cannot be interpreted as an integer",
                        super::value::type_name(value)
                    ))
                }),
            _ => Ok(default),
        }
    }

    pub(crate) fn flag(&self, index: usize, default: bool) -> Outcome<bool> {
        match self.get(index) {
            Some(value) => ops::truth(value),
            None => Ok(default),
        }
    }
}
