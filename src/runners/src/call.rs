//! Call of a runner or wheel function, and the binding of its arguments to parameters.
//!
//! Functions are declared as tables ([`Function`]), so that wrong arguments are refused in one
//! place and in Python's words, with which stock answers (`SyncClientMixin.low` in
//! `salt/client/mixins.py`).

use saltern_content::files::FilesError;
use saltern_model::Jid;
use saltern_store::StoreError;
use saltern_wire::msgpack::Value;

use crate::notices::Notices;
use crate::old_jobs::OldJobsAway;
use crate::python;
use crate::registry::RunnerContext;

/// Call of a function: caller, name and arguments.
#[derive(Clone, Debug)]
pub struct Call {
    /// The id of the call, which its events carry.
    pub jid: Jid,
    /// The function, such as `jobs.list_jobs`.
    pub fun: String,
    /// Its arguments.
    pub arguments: Arguments,
    /// The user who calls.
    pub user: String,
}

/// Arguments as a client sends them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arguments {
    /// Arguments without a name.
    pub positional: Vec<Value>,
    /// Named arguments, in the order in which they came.
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
        Self::of_low(kwarg, &[])
    }

    /// Reads them out of the load of a `wheel` (`ClearFuncs.wheel` in `salt/master.py`), where the
    /// named ones stand beside the entries of the request itself.
    ///
    /// With a token or eauth, `key` and `user` are arguments; without, they are the caller's
    /// credentials.
    pub fn of_wheel(load: &Value) -> Self {
        if load.get("arg").is_some() && load.get("kwarg").is_some() {
            return Self::of_load(load);
        }
        match load.get("token").or_else(|| load.get("eauth")) {
            Some(_) => Self::of_low(load, &[]),
            None => Self::of_low(load, &["key", "user"]),
        }
    }

    fn of_low(low: &Value, credentials: &[&str]) -> Self {
        let is_argument = |name: &str| !INTERNAL.contains(&name) && !credentials.contains(&name);
        let mut named = named(low);
        named.retain(|(name, _)| is_argument(name));
        Self {
            positional: Vec::new(),
            named,
        }
    }

    /// The arguments in the form of an event's `fun_args`. Passwords are masked: anyone may read
    /// events.
    pub fn to_value(&self) -> Value {
        let mut items = self.positional.clone();
        if !self.named.is_empty() {
            let shown = |(name, value): &(String, Value)| match name.as_str() {
                "password" => (name.clone(), "**********".into()),
                _ => (name.clone(), value.clone()),
            };
            items.push(Value::map(self.named.iter().map(shown)));
        }
        Value::Array(items)
    }
}

/// Names among the named arguments that are no arguments (`CLIENT_INTERNAL_KEYWORDS`). `match` is
/// one where a function has such a parameter, and is dropped elsewhere.
const INTERNAL: [&str; 13] = [
    "client",
    "cmd",
    "eauth",
    "fun",
    "kwarg",
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

/// Error of a function call.
#[derive(Debug, thiserror::Error)]
pub enum RunnerError {
    /// There is no such function; in stock's words.
    #[error("'{0}' is not available.")]
    NotAvailable(String),
    /// Stock has it, this master does not.
    #[error("'{fun}' is not available on this master: {reason}")]
    Withheld {
        /// The function.
        fun: String,
        /// The reason.
        reason: &'static str,
    },
    /// The arguments do not fit the function; in Python's words.
    #[error("{problem}")]
    Arguments {
        /// In what way.
        problem: String,
        /// The function's signature.
        usage: String,
    },
    /// The function refuses the request.
    #[error("{0}")]
    Refused(String),
    /// Stored data cannot be read or written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Old jobs cannot be read.
    #[error(transparent)]
    OldJobs(#[from] OldJobsAway),
    /// The file server failed.
    #[error(transparent)]
    Files(#[from] FilesError),
}

/// Result of a function.
pub(crate) type CallResult = Result<Value, RunnerError>;

/// Implementation of a function.
pub(crate) type Work = fn(&RunnerContext, &Bound<'_>, &mut Notices<'_>) -> CallResult;

/// Function of a module.
pub(crate) struct Function {
    /// Its name within the module.
    pub(crate) name: &'static str,
    /// Its parameters, in their order.
    pub(crate) parameters: &'static [Parameter],
    pub(crate) run: Work,
}

/// Declares one row of a table of functions.
pub(crate) const fn function(
    name: &'static str,
    parameters: &'static [Parameter],
    run: Work,
) -> Function {
    Function {
        name,
        parameters,
        run,
    }
}

/// Parameter of a function.
pub(crate) enum Parameter {
    /// A required parameter.
    Needed(&'static str),
    /// A parameter with a default.
    Optional(&'static str),
    /// Python's `*args`: the remaining arguments without a name.
    Rest,
    /// Python's `**kwargs`: named arguments that no parameter takes.
    Keywords,
}

impl Parameter {
    /// The name; `*args` and `**kwargs` have none that could be given.
    fn name(&self) -> Option<&'static str> {
        match self {
            Self::Needed(name) | Self::Optional(name) => Some(name),
            Self::Rest | Self::Keywords => None,
        }
    }

    fn is_needed(&self) -> bool {
        matches!(self, Self::Needed(_))
    }
}

/// Python's sentence about arguments that do not fit, without the function's name in front: the
/// caller gets it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct BindProblem(String);

impl Function {
    /// Binds the arguments to the parameters.
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

    fn assign<'a>(&self, arguments: &'a Arguments) -> Result<Bound<'a>, BindProblem> {
        let names = self.names();
        let given = arguments.positional.len();
        let rest = arguments.positional.get(names.len()..).unwrap_or_default();
        if !rest.is_empty() && !self.takes(|parameter| matches!(parameter, Parameter::Rest)) {
            return Err(self.too_many(given));
        }
        let mut bound = Bound {
            named: names.iter().copied().zip(&arguments.positional).collect(),
            rest,
            keywords: Vec::new(),
        };
        let takes_any = self.takes(|parameter| matches!(parameter, Parameter::Keywords));
        for (name, value) in &arguments.named {
            let Some(known) = names.iter().find(|known| *known == name) else {
                if takes_any {
                    bound.keywords.push((name, value));
                } else if name != "match" {
                    let problem = format!("got an unexpected keyword argument '{name}'");
                    return Err(BindProblem(problem));
                }
                continue;
            };
            if bound.named.iter().any(|(taken, _)| taken == known) {
                let problem = format!("got multiple values for argument '{name}'");
                return Err(BindProblem(problem));
            }
            bound.named.push((known, value));
        }
        match self.missing(&bound) {
            None => Ok(bound),
            Some(problem) => Err(problem),
        }
    }

    /// The parameters that have names, and whether they have to be given.
    pub(crate) fn named_parameters(&self) -> Vec<(&'static str, bool)> {
        let parameters = self.parameters.iter();
        parameters
            .filter_map(|one| Some((one.name()?, one.is_needed())))
            .collect()
    }

    fn names(&self) -> Vec<&'static str> {
        let parameters = self.parameters.iter();
        parameters.filter_map(Parameter::name).collect()
    }

    fn takes(&self, is_meant: impl Fn(&Parameter) -> bool) -> bool {
        self.parameters.iter().any(is_meant)
    }

    /// Names the required parameters that were not given.
    fn missing(&self, bound: &Bound<'_>) -> Option<BindProblem> {
        let needed = self.parameters.iter().filter(|one| one.is_needed());
        let missing: Vec<String> = needed
            .filter_map(Parameter::name)
            .filter(|name| !bound.named.iter().any(|(given, _)| given == name))
            .map(|name| format!("'{name}'"))
            .collect();
        if missing.is_empty() {
            return None;
        }
        let plural = if missing.len() == 1 { "" } else { "s" };
        Some(BindProblem(format!(
            "missing {} required positional argument{plural}: {}",
            missing.len(),
            missing.join(" and ")
        )))
    }

    fn too_many(&self, given: usize) -> BindProblem {
        let most = self.names().len();
        let least = self.parameters.iter().filter(|p| p.is_needed()).count();
        let takes = if least == most {
            format!("{most}")
        } else {
            format!("from {least} to {most}")
        };
        let plural = if most == 1 && least == most { "" } else { "s" };
        let were = if given == 1 { "was" } else { "were" };
        BindProblem(format!(
            "takes {takes} positional argument{plural} but {given} {were} given"
        ))
    }

    fn usage(&self) -> String {
        let parameters: Vec<String> = self
            .parameters
            .iter()
            .map(|parameter| match parameter {
                Parameter::Needed(name) => (*name).to_owned(),
                Parameter::Optional(name) => format!("[{name}]"),
                Parameter::Rest => "*args".to_owned(),
                Parameter::Keywords => "**kwargs".to_owned(),
            })
            .collect();
        format!("{}({})", self.name, parameters.join(", "))
    }
}

/// The arguments of a call by the names of their parameters.
pub(crate) struct Bound<'a> {
    named: Vec<(&'static str, &'a Value)>,
    rest: &'a [Value],
    keywords: Vec<(&'a str, &'a Value)>,
}

impl<'a> Bound<'a> {
    /// The argument, unless it was left out or is nothing.
    pub(crate) fn get(&self, name: &str) -> Option<&'a Value> {
        let found = self.named.iter().find(|(known, _)| *known == name)?;
        Some(found.1).filter(|value| !value.is_nil())
    }

    /// Arguments without a name that no parameter took.
    pub(crate) fn rest(&self) -> &'a [Value] {
        self.rest
    }

    /// Named arguments that no parameter took, in the order in which they came.
    pub(crate) fn keywords(&self) -> &[(&'a str, &'a Value)] {
        &self.keywords
    }

    /// The keywords without those that clients add (`clean_kwargs` in `salt/utils/args.py`).
    pub(crate) fn own_keywords(&self) -> impl Iterator<Item = (&'a str, &'a Value)> {
        let keywords = self.keywords.iter().copied();
        keywords.filter(|(name, _)| !name.starts_with("__"))
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

#[cfg(test)]
mod tests;
