//! Binds the arguments of a load to the parameters of a function, as Python and stock's
//! `load_args_and_kwargs` do together.

use saltern_wire::msgpack::Value;

use crate::python;

/// A parameter of a function.
pub(crate) enum Parameter {
    /// It must be given.
    Required(&'static str),
    /// It may be left out.
    Optional(&'static str),
}

impl Parameter {
    const fn name(&self) -> &'static str {
        match self {
            Self::Required(name) | Self::Optional(name) => name,
        }
    }
}

/// Signature of a function.
pub(crate) struct Signature {
    /// The name in Python's messages.
    pub(crate) function: &'static str,
    pub(crate) parameters: &'static [Parameter],
    /// `*args`: any number of further positional arguments.
    pub(crate) more: bool,
    /// `**kwargs`: any further keyword, and the publication's fields as `__pub_…`.
    pub(crate) keywords: bool,
}

/// Arguments by parameter.
#[derive(Debug, Default)]
pub(crate) struct Arguments {
    named: Vec<(String, Value)>,
    /// Arguments of `*args`.
    pub(crate) rest: Vec<Value>,
    /// Arguments of `**kwargs`.
    pub(crate) keywords: Vec<(String, Value)>,
}

impl Arguments {
    /// A named argument; `None` when it was left out or is Python's None.
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        let found = self.named.iter().find(|(known, _)| known == name);
        found
            .map(|(_, value)| value)
            .filter(|value| !value.is_nil())
    }

    /// Whether a flag is set.
    pub(crate) fn flag(&self, name: &str, default: bool) -> bool {
        self.get(name).map_or(default, Value::is_truthy)
    }
}

/// Why arguments do not fit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum BindError {
    /// Keywords that the function does not have, as `a=1, b=2`.
    Keywords(String),
    /// Python's `TypeError`.
    Type(String),
}

/// Binds `given`, which holds keywords in maps with `__kwarg__`, and in texts like `name=value`.
pub(crate) fn bind(
    signature: &Signature,
    given: &[Value],
    load: &Value,
) -> Result<Arguments, BindError> {
    let mut positional = Vec::new();
    let mut keywords: Vec<(String, Value)> = Vec::new();
    for item in given {
        if item.get("__kwarg__").and_then(Value::as_bool) == Some(true) {
            for (key, value) in item.as_map().into_iter().flatten() {
                let key = python::text(key);
                if key != "__kwarg__" {
                    keywords.push((key, value.clone()));
                }
            }
        } else if let Some((key, value)) = item.as_str().and_then(python::keyword) {
            keywords.push((key.to_owned(), Value::from(value)));
        } else {
            positional.push(item.clone());
        }
    }
    let is_parameter = |key: &str| signature.parameters.iter().any(|known| known.name() == key);
    let strangers: Vec<String> = keywords
        .iter()
        .filter(|(key, _)| !signature.keywords && !is_parameter(key))
        .map(|(key, value)| format!("{key}={}", python::text(value)))
        .collect();
    if !strangers.is_empty() {
        return Err(BindError::Keywords(strangers.join(", ")));
    }
    place(signature, positional, keywords, load)
}

fn place(
    signature: &Signature,
    positional: Vec<Value>,
    keywords: Vec<(String, Value)>,
    load: &Value,
) -> Result<Arguments, BindError> {
    let function = signature.function;
    let count = positional.len();
    let mut arguments = Arguments::default();
    let mut positional = positional.into_iter();
    for (parameter, value) in signature.parameters.iter().zip(positional.by_ref()) {
        arguments.named.push((parameter.name().to_owned(), value));
    }
    arguments.rest = positional.collect();
    if !arguments.rest.is_empty() && !signature.more {
        return Err(BindError::Type(too_many(signature, count)));
    }
    for (key, value) in keywords {
        if !signature.parameters.iter().any(|known| known.name() == key) {
            arguments.keywords.push((key, value));
        } else if arguments.named.iter().any(|(known, _)| *known == key) {
            return Err(BindError::Type(format!(
                "{function}() got multiple values for argument '{key}'"
            )));
        } else {
            arguments.named.push((key, value));
        }
    }
    if signature.keywords {
        for (key, value) in load.as_map().into_iter().flatten() {
            let key = format!("__pub_{}", python::text(key));
            arguments.keywords.push((key, value.clone()));
        }
    }
    let missing: Vec<String> = signature
        .parameters
        .iter()
        .filter(|parameter| matches!(parameter, Parameter::Required(_)))
        .filter(|parameter| {
            !arguments
                .named
                .iter()
                .any(|(known, _)| known == parameter.name())
        })
        .map(|parameter| format!("'{}'", parameter.name()))
        .collect();
    if missing.is_empty() {
        return Ok(arguments);
    }
    let plural = if missing.len() == 1 { "" } else { "s" };
    let names = missing.join(" and ");
    let count = missing.len();
    Err(BindError::Type(format!(
        "{function}() missing {count} required positional argument{plural}: {names}"
    )))
}

fn too_many(signature: &Signature, given: usize) -> String {
    let most = signature.parameters.len();
    let optional = signature
        .parameters
        .iter()
        .filter(|known| matches!(known, Parameter::Optional(_)))
        .count();
    let range = if optional == 0 {
        most.to_string()
    } else {
        format!("from {} to {most}", most - optional)
    };
    let plural = if optional == 0 && most == 1 { "" } else { "s" };
    let verb = if given == 1 { "was" } else { "were" };
    format!(
        "{}() takes {range} positional argument{plural} but {given} {verb} given",
        signature.function
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Signature = Signature {
        function: "f",
        parameters: &[Parameter::Required("a"), Parameter::Optional("b")],
        more: false,
        keywords: false,
    };

    #[test]
    fn arguments_are_bound_or_refused_as_python_does() {
        let number = |number: i64| Value::from(number);
        let keywords =
            |key: &str| Value::map([("__kwarg__", Value::from(true)), (key, Value::from(7_i64))]);
        let load = Value::Map(Vec::new());
        let bound = bind(&PLAIN, &[number(1), keywords("b")], &load).expect("they fit");
        assert_eq!(
            (bound.get("a"), bound.get("b")),
            (Some(&number(1)), Some(&number(7)))
        );
        let refused = [
            (vec![], "f() missing 1 required positional argument: 'a'"),
            (
                vec![number(1), number(2), number(3)],
                "f() takes from 1 to 2 positional arguments but 3 were given",
            ),
            (
                vec![number(1), keywords("a")],
                "f() got multiple values for argument 'a'",
            ),
        ];
        for (given, message) in refused {
            assert_eq!(
                bind(&PLAIN, &given, &load).expect_err(message),
                BindError::Type(message.to_owned())
            );
        }
        assert_eq!(
            bind(&PLAIN, &[Value::from("x=1"), keywords("y")], &load).expect_err("strangers"),
            BindError::Keywords("x=1, y=7".to_owned())
        );
    }
}
