//! One call of a runner function, and how its arguments find its parameters.
//!
//! Functions are declared as tables ([`Function`]), so that wrong arguments are refused in one
//! place and in Python's words: stock answers with them (`SyncClientMixin.low` in
//! `salt/client/mixins.py`).

use saltern_model::Jid;
use saltern_store::StoreError;
use saltern_wire::msgpack::Value;

use crate::python;
use crate::registry::Knowledge;

/// Who asks for what.
#[derive(Clone, Debug)]
pub struct Call {
    /// The id that the call got; its events bear it.
    pub jid: Jid,
    /// The function, such as `jobs.list_jobs`.
    pub fun: String,
    /// Its arguments.
    pub arguments: Arguments,
    /// Who asks.
    pub user: String,
}

/// Arguments as a client sends them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arguments {
    /// Those without a name.
    pub positional: Vec<Value>,
    /// Those with a name, in the order in which they came.
    pub named: Vec<(String, Value)>,
}

impl Arguments {
    /// Reads them out of the `kwarg` of a load (`ClearFuncs.runner` in `salt/master.py`): either
    /// `{"arg": […], "kwarg": {…}}`, or the named arguments themselves.
    pub fn of_load(kwarg: &Value) -> Self {
        if let (Some(arg), Some(kwarg)) = (kwarg.get("arg"), kwarg.get("kwarg")) {
            return Self {
                positional: arg.as_array().unwrap_or_default().to_vec(),
                named: named(kwarg),
            };
        }
        let mut named = named(kwarg);
        named.retain(|(name, _)| !INTERNAL.contains(&name.as_str()));
        Self {
            positional: Vec::new(),
            named,
        }
    }

    /// The arguments in the form of an event's `fun_args`.
    pub fn to_value(&self) -> Value {
        let mut items = self.positional.clone();
        if !self.named.is_empty() {
            let entries = self.named.iter();
            items.push(Value::map(
                entries.map(|(name, value)| (name.as_str(), value.clone())),
            ));
        }
        Value::Array(items)
    }
}

/// What stands among named arguments and is none (`CLIENT_INTERNAL_KEYWORDS`).
const INTERNAL: [&str; 14] = [
    "client",
    "cmd",
    "eauth",
    "fun",
    "kwarg",
    "match",
    "token",
    "__jid__",
    "__tag__",
    "__user__",
    "username",
    "password",
    "full_return",
    "print_event",
];

fn named(kwarg: &Value) -> Vec<(String, Value)> {
    let entries = kwarg.as_map().unwrap_or_default().iter();
    entries
        .filter_map(|(name, value)| Some((name.as_str()?.to_owned(), value.clone())))
        .collect()
}

/// Why a function gave no value.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// There is no such function; in stock's words.
    #[error("'{0}' is not available.")]
    NotAvailable(String),
    /// The arguments do not fit the function; in Python's words.
    #[error("{problem}")]
    Arguments {
        /// In what way.
        problem: String,
        /// What would fit.
        usage: String,
    },
    /// The function cannot do what it is asked for.
    #[error("{0}")]
    Refused(String),
    /// The job database cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A function of a module.
pub(crate) struct Function {
    /// Its name within the module.
    pub(crate) name: &'static str,
    /// Its parameters, in their order.
    pub(crate) parameters: &'static [Parameter],
    pub(crate) run: fn(&Knowledge, &Bound<'_>, &mut Progress<'_>) -> Result<Value, RunnerError>,
}

/// A parameter of a function.
pub(crate) enum Parameter {
    /// One that has to be given.
    Needed(&'static str),
    /// One that has a default.
    Optional(&'static str),
}

impl Parameter {
    fn name(&self) -> &'static str {
        match self {
            Self::Needed(name) | Self::Optional(name) => name,
        }
    }

    fn is_needed(&self) -> bool {
        matches!(self, Self::Needed(_))
    }
}

impl Function {
    /// Gives every parameter its argument.
    ///
    /// # Errors
    /// [`RunnerError::Arguments`].
    pub(crate) fn bind<'a>(&self, arguments: &'a Arguments) -> Result<Bound<'a>, RunnerError> {
        self.assign(arguments)
            .map_err(|problem| RunnerError::Arguments {
                problem: format!("{}() {problem}", self.name),
                usage: self.usage(),
            })
    }

    fn assign<'a>(&self, arguments: &'a Arguments) -> Result<Bound<'a>, String> {
        let given = arguments.positional.len();
        if given > self.parameters.len() {
            return Err(self.too_many(given));
        }
        let mut bound: Vec<(&'static str, &'a Value)> = self
            .parameters
            .iter()
            .zip(&arguments.positional)
            .map(|(parameter, value)| (parameter.name(), value))
            .collect();
        for (name, value) in &arguments.named {
            let Some(parameter) = self.parameters.iter().find(|known| known.name() == name) else {
                return Err(format!("got an unexpected keyword argument '{name}'"));
            };
            if bound.iter().any(|(taken, _)| taken == name) {
                return Err(format!("got multiple values for argument '{name}'"));
            }
            bound.push((parameter.name(), value));
        }
        let is_missing = |parameter: &&Parameter| {
            parameter.is_needed() && !bound.iter().any(|(name, _)| *name == parameter.name())
        };
        let missing: Vec<String> = self
            .parameters
            .iter()
            .filter(is_missing)
            .map(|parameter| format!("'{}'", parameter.name()))
            .collect();
        if missing.is_empty() {
            return Ok(Bound(bound));
        }
        let plural = if missing.len() == 1 { "" } else { "s" };
        Err(format!(
            "missing {} required positional argument{plural}: {}",
            missing.len(),
            missing.join(" and ")
        ))
    }

    fn too_many(&self, given: usize) -> String {
        let most = self.parameters.len();
        let least = self.parameters.iter().filter(|p| p.is_needed()).count();
        let takes = if least == most {
            format!("{most}")
        } else {
            format!("from {least} to {most}")
        };
        let plural = if most == 1 && least == most { "" } else { "s" };
        let were = if given == 1 { "was" } else { "were" };
        format!("takes {takes} positional argument{plural} but {given} {were} given")
    }

    fn usage(&self) -> String {
        let parameters: Vec<String> = self
            .parameters
            .iter()
            .map(|parameter| match parameter {
                Parameter::Needed(name) => (*name).to_owned(),
                Parameter::Optional(name) => format!("[{name}]"),
            })
            .collect();
        format!("{}({})", self.name, parameters.join(", "))
    }
}

/// The arguments of a call by the names of their parameters.
pub(crate) struct Bound<'a>(Vec<(&'static str, &'a Value)>);

impl<'a> Bound<'a> {
    /// The argument, unless it was left out or is nothing.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        let found = self.0.iter().find(|(known, _)| *known == name)?;
        Some(found.1).filter(|value| !value.is_nil())
    }

    /// The argument, unless Python would call it false.
    pub(crate) fn truthy(&self, name: &str) -> Option<&'a Value> {
        self.get(name).filter(|value| value.is_truthy())
    }

    /// A flag, or its default when it was left out.
    pub(crate) fn flag(&self, name: &str, default: bool) -> bool {
        self.get(name).map_or(default, Value::is_truthy)
    }

    /// The argument as a text, numbers as they are written.
    ///
    /// # Errors
    /// [`RunnerError::Refused`] when it is neither.
    pub(crate) fn text(&self, name: &str) -> Result<Option<String>, RunnerError> {
        let refused = || RunnerError::Refused(format!("\"{name}\" has to be a text"));
        self.get(name)
            .map(|value| python::scalar(value).ok_or_else(refused))
            .transpose()
    }

    /// The argument as a number that is not negative.
    ///
    /// # Errors
    /// [`RunnerError::Refused`] when it is none.
    pub(crate) fn count(&self, name: &str) -> Result<Option<usize>, RunnerError> {
        let refused = || RunnerError::Refused(format!("\"{name}\" has to be a number"));
        let number = |value: &Value| match value {
            Value::Str(text) => text.trim().parse().ok(),
            other => other.as_u64(),
        };
        self.get(name)
            .map(|value| {
                let number: u64 = number(value).ok_or_else(refused)?;
                Ok(usize::try_from(number).unwrap_or(usize::MAX))
            })
            .transpose()
    }
}

/// Messages that a function has for who watches it, if `display_progress` is on: events
/// `…/progress`, as many as are worth reading.
pub struct Progress<'a> {
    tell: &'a mut dyn FnMut(Value),
    left: usize,
}

impl<'a> Progress<'a> {
    /// Messages of one call; the rest is left out.
    const MOST: usize = 1_000;

    /// Gives each message, as the data of an event, to `tell`.
    pub fn new(tell: &'a mut dyn FnMut(Value)) -> Self {
        Self {
            tell,
            left: Self::MOST,
        }
    }

    pub(crate) fn say(&mut self, message: &str) {
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            (self.tell)(Value::map([("message", message)]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOKUP: Function = Function {
        name: "lookup",
        parameters: &[
            Parameter::Needed("jid"),
            Parameter::Optional("source"),
            Parameter::Optional("flag"),
        ],
        run: |_, _, _| Ok(Value::Nil),
    };

    fn arguments(positional: &[&str], named: &[(&str, &str)]) -> Arguments {
        Arguments {
            positional: positional.iter().map(|text| Value::from(*text)).collect(),
            named: named
                .iter()
                .map(|(name, text)| ((*name).to_owned(), Value::from(*text)))
                .collect(),
        }
    }

    #[test]
    fn wrong_arguments_are_refused_in_the_words_of_python() {
        let table = [
            (
                arguments(&[], &[]),
                "lookup() missing 1 required positional argument: 'jid'",
            ),
            (
                arguments(&["1", "2", "3", "4"], &[]),
                "lookup() takes from 1 to 3 positional arguments but 4 were given",
            ),
            (
                arguments(&["1"], &[("jid", "2")]),
                "lookup() got multiple values for argument 'jid'",
            ),
            (
                arguments(&["1"], &[("other", "2")]),
                "lookup() got an unexpected keyword argument 'other'",
            ),
        ];
        for (arguments, expected) in table {
            match LOOKUP.bind(&arguments) {
                Err(RunnerError::Arguments { problem, usage }) => {
                    assert_eq!(problem, expected);
                    assert_eq!(usage, "lookup(jid, [source], [flag])");
                }
                _ => panic!("{arguments:?} were taken"),
            }
        }
    }

    #[test]
    fn arguments_find_their_parameters() {
        let given = arguments(&["1"], &[("flag", "x")]);
        let bound = LOOKUP.bind(&given).unwrap();
        assert_eq!(bound.text("jid").unwrap().as_deref(), Some("1"));
        assert!(bound.flag("flag", false));
        assert!(bound.flag("source", true));
        assert!(bound.count("flag").is_err());
        assert_eq!(bound.count("jid").unwrap(), Some(1));
    }

    #[test]
    fn both_forms_of_a_load_are_read() {
        let split = Value::map([
            ("arg", Value::Array(vec!["1".into()])),
            ("kwarg", Value::map([("flag", "x")])),
        ]);
        assert_eq!(
            Arguments::of_load(&split),
            arguments(&["1"], &[("flag", "x")])
        );
        let plain = Value::map([("jid", "1"), ("client", "runner")]);
        assert_eq!(Arguments::of_load(&plain), arguments(&[], &[("jid", "1")]));
    }
}
