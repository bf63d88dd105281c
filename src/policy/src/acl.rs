//! The rules of `publisher_acl`, `external_auth`, tokens and syndics: which functions a user may
//! call, on which minions, with which arguments (`auth_check`, `spec_check` and their kin in
//! `salt/utils/minions.py`).
//!
//! A rule is a regular expression over function names, or a map of one entry: a compound target
//! with rules for its minions (jobs), or `@runner`, `@wheel`, `@<module>` with rules for functions
//! of the master. A rule for a function may in turn be a map of one entry that says what its
//! arguments must look like. Authentication is not done here.
//!
//! # Where this differs from stock, and why
//! - Of several functions in one job every one must be allowed. Stock lets all of them through when
//!   one is (`test.ping,cmd.run`).
//! - A rule for minions is resolved without greed: a minion about which nothing is known is in no
//!   subnet.
//! - Arguments are sorted by name and place as the minion sorts them before they are looked at:
//!   texts such as `name=value` are named ones, and so is every map with `__kwarg__`. Stock looks
//!   at the last argument only, so a name in the middle walks around a rule.

use saltern_model::MinionId;
use saltern_python::expression::AnyOf;
use saltern_wire::msgpack::Value;

use crate::expression::{PatternCache, PlainWildcard};

/// The function that every authenticated user may call (`ClearFuncs.publish` in `salt/master.py`):
/// clients ask with it whether their job still runs.
const ALWAYS: &str = "saltutil.find_job";

/// The rules of one user: stock's `auth_list`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules(Vec<Value>);

impl Rules {
    /// The rules of a list; of anything else, none.
    pub fn of(list: &Value) -> Self {
        Self(list.as_array().unwrap_or_default().to_vec())
    }

    /// Adds the rules of one entry of the configuration: a list, or a single rule.
    pub fn add(&mut self, entry: &Value) {
        match entry {
            Value::Array(rules) => self.0.extend_from_slice(rules),
            Value::Nil => {}
            rule => self.0.push(rule.clone()),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The rules as a token keeps them.
    pub fn to_value(&self) -> Value {
        Value::Array(self.0.clone())
    }
}

/// A requested job, with its target resolved.
pub struct AskedJob<'a> {
    /// The functions.
    pub functions: &'a [String],
    /// Whether the load names them in a list, be it of one: minions then take the arguments of each
    /// from a list of lists.
    pub in_list: bool,
    /// The arguments of the load (`arg`).
    pub arguments: &'a Value,
    /// The minions that the target means.
    pub minions: Whom<'a>,
}

/// The minions of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom<'a> {
    /// These minions and no others.
    These(&'a [MinionId]),
    /// Every minion that this pattern matches, now or later: a rule must be one for all of them,
    /// as a look at both patterns shows.
    Matching(&'a PlainWildcard),
    /// It is not certain whom the target means: a rule must be one for all minions.
    Anybody,
}

/// Kind of functions of the master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Runner functions.
    Runner,
    /// Wheel functions.
    Wheel,
}

impl Form {
    /// Its name, as in `@runner`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Runner => "runner",
            Self::Wheel => "wheel",
        }
    }
}

/// Verdict of the rules on a call of a function of the master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may be made.
    Allowed,
    /// It may not.
    Refused,
    /// The text is not the name of a function; stock answers with a syntax error.
    NoFunction,
}

/// The arguments of one function, sorted.
#[derive(Debug, Default, PartialEq)]
pub struct CallArguments {
    /// Arguments without a name.
    pub positional: Vec<Value>,
    /// Arguments with a name; of two with the same name the last counts.
    pub named: Vec<(String, Value)>,
}

impl CallArguments {
    /// Sorts the arguments of a job as the minion does (`load_args_and_kwargs` in
    /// `salt/minion.py`); `None` when it is not certain how it would.
    pub fn of_job(arguments: &[Value]) -> Option<Self> {
        let mut sorted = Self::default();
        for argument in arguments {
            match argument {
                Value::Map(entries) if is_marked(argument) => {
                    let entries = entries.iter().filter_map(|(name, value)| {
                        let name = name.as_str().filter(|name| *name != KWARG_MARK)?;
                        Some((name.to_owned(), value.clone()))
                    });
                    sorted.named.extend(entries);
                }
                Value::Str(text) => match text_argument(text) {
                    TextArgument::Named(name, value) => {
                        sorted.named.push((name.to_owned(), value.into()));
                    }
                    TextArgument::Positional => sorted.positional.push(argument.clone()),
                    TextArgument::Uncertain => return None,
                },
                other => sorted.positional.push(other.clone()),
            }
        }
        Some(sorted)
    }

    fn get(&self, name: &str) -> Option<&Value> {
        let found = self.named.iter().rev().find(|(known, _)| known == name);
        found.map(|(_, value)| value)
    }
}

/// Says of a map among the arguments that it holds named ones.
const KWARG_MARK: &str = "__kwarg__";

fn is_marked(argument: &Value) -> bool {
    argument.get(KWARG_MARK) == Some(&Value::Bool(true))
}

/// How a minion takes a text among the arguments.
#[derive(Debug, PartialEq)]
enum TextArgument<'a> {
    Named(&'a str, &'a str),
    Positional,
    /// Its name has letters of which Python and this program may think differently.
    Uncertain,
}

/// `name=value` is a named argument, unless the value begins with another `=` or has a line break
/// in it (`KWARG_REGEX` in `salt/utils/args.py`).
fn text_argument(text: &str) -> TextArgument<'_> {
    let Some((name, value)) = text.split_once('=') else {
        return TextArgument::Positional;
    };
    let line = value.strip_suffix('\n').unwrap_or(value);
    if value.starts_with('=') || line.contains('\n') {
        return TextArgument::Positional;
    }
    if !name.is_ascii() {
        return TextArgument::Uncertain;
    }
    let mut letters = name.bytes();
    let is_name = letters
        .next()
        .is_some_and(|c| c == b'_' || c.is_ascii_alphabetic())
        && letters.all(|c| matches!(c, b'_' | b'.' | b'-') || c.is_ascii_alphanumeric());
    match is_name {
        true => TextArgument::Named(name, value),
        false => TextArgument::Positional,
    }
}

/// Applies rules; keeps the compiled expressions.
#[derive(Default)]
pub struct Acl {
    patterns: PatternCache,
}

impl Acl {
    /// Whether the rules allow a job; `minions_of` resolves a compound target among the accepted
    /// minions.
    pub fn allows_job(
        &self,
        rules: &Rules,
        job: &AskedJob<'_>,
        minions_of: impl FnMut(&str) -> Vec<MinionId>,
    ) -> bool {
        self.allows(rules, job, Some(ALWAYS), minions_of)
    }

    /// Whether the rules of a minion (`peer`) allow a job: only they do.
    pub fn allows_peer(
        &self,
        rules: &Rules,
        job: &AskedJob<'_>,
        minions_of: impl FnMut(&str) -> Vec<MinionId>,
    ) -> bool {
        self.allows(rules, job, None, minions_of)
    }

    fn allows(
        &self,
        rules: &Rules,
        job: &AskedJob<'_>,
        always: Option<&str>,
        mut minions_of: impl FnMut(&str) -> Vec<MinionId>,
    ) -> bool {
        let functions = job.functions.iter().enumerate();
        let mut allowed = functions.map(|(place, function)| {
            let arguments = match (job.arguments, job.in_list) {
                (Value::Array(lists), true) => lists.get(place).and_then(Value::as_array),
                (_, true) => None,
                (arguments, false) => arguments.as_array(),
            };
            always == Some(function)
                || rules.0.iter().any(|rule| match rule {
                    Value::Str(expression) => self.matches(expression, function),
                    Value::Map(entries) => {
                        let [(Value::Str(target), conditions)] = entries.as_slice() else {
                            return false;
                        };
                        let arguments = || arguments.and_then(CallArguments::of_job);
                        covers(target, job, &mut minions_of)
                            && self.allows_function(conditions, function, arguments)
                    }
                    _ => false,
                })
        });
        !job.functions.is_empty() && allowed.all(|is_allowed| is_allowed)
    }

    /// Whether the rules allow a call of a function of the master.
    pub fn allows_call(
        &self,
        rules: &Rules,
        form: Form,
        function: &str,
        arguments: &CallArguments,
    ) -> Verdict {
        if rules.is_empty() {
            return Verdict::Refused;
        }
        let mut parts = function.split('.');
        let (Some(module), Some(name), None) = (parts.next(), parts.next(), parts.next()) else {
            return Verdict::NoFunction;
        };
        let is_form =
            |word: &str| word == form.name() || word.strip_suffix('s') == Some(form.name());
        let is_allowed = rules.0.iter().any(|rule| match rule {
            Value::Str(word) => word
                .strip_prefix('@')
                .is_some_and(|word| word == module || is_form(word)),
            Value::Map(entries) => {
                let [(Value::Str(word), conditions)] = entries.as_slice() else {
                    return false;
                };
                let Some(word) = word.strip_prefix('@') else {
                    return false;
                };
                let allows = |function| self.allows_sorted(conditions, function, arguments);
                (word == module && allows(name)) || (is_form(word) && allows(function))
            }
            _ => false,
        });
        match is_allowed {
            true => Verdict::Allowed,
            false => Verdict::Refused,
        }
    }

    /// Whether one of the conditions holds of the function; `arguments` are sorted when they are
    /// needed, and `None` where they have no form that a minion takes.
    fn allows_function(
        &self,
        conditions: &Value,
        function: &str,
        arguments: impl Fn() -> Option<CallArguments>,
    ) -> bool {
        one_or_several(conditions).iter().any(|condition| {
            self.names(condition, function) == Some(true)
                || arguments()
                    .is_some_and(|sorted| self.allows_sorted(condition, function, &sorted))
        })
    }

    fn allows_sorted(&self, conditions: &Value, function: &str, arguments: &CallArguments) -> bool {
        one_or_several(conditions).iter().any(|condition| {
            if let Some(names) = self.names(condition, function) {
                return names;
            }
            let Value::Map(entries) = condition else {
                return false;
            };
            let [(Value::Str(expression), wanted)] = entries.as_slice() else {
                return false;
            };
            self.matches(expression, function)
                && one_or_several(wanted)
                    .iter()
                    .any(|wanted| self.fit(wanted, arguments))
        })
    }

    /// For a condition that is only an expression: whether it matches.
    fn names(&self, condition: &Value, function: &str) -> Option<bool> {
        let expression = condition.as_str()?;
        Some(self.matches(expression, function))
    }

    /// Whether the arguments are as `{"args": […], "kwargs": {…}}` wants them. What it does not
    /// name may be anything.
    fn fit(&self, wanted: &Value, arguments: &CallArguments) -> bool {
        if wanted.as_map().is_none() {
            return false;
        }
        let positional = wanted.get("args").map(one_or_several).unwrap_or_default();
        let named = wanted.get("kwargs").and_then(Value::as_map);
        let mut places = positional.iter().enumerate();
        places.all(|(place, wanted)| self.fits(wanted, arguments.positional.get(place)))
            && named.unwrap_or_default().iter().all(|(name, wanted)| {
                let given = name.as_str().and_then(|name| arguments.get(name));
                self.fits(wanted, given)
            })
    }

    /// Whether an argument is there and matches; a nil condition lets every value through.
    fn fits(&self, wanted: &Value, given: Option<&Value>) -> bool {
        given.is_some_and(|given| match wanted {
            Value::Nil => true,
            Value::Str(expression) => self.matches(expression, &saltern_python::str(given)),
            _ => false,
        })
    }

    /// A regular expression from the beginning of a text, as Python's `re.match`; one that does not
    /// parse matches nothing.
    fn matches(&self, expression: &str, text: &str) -> bool {
        match self.patterns.regex_at_start(expression) {
            Ok(pattern) => pattern.matches(text),
            Err(error) => {
                tracing::error!(%error, "a rule matches nothing");
                false
            }
        }
    }
}

fn one_or_several(value: &Value) -> &[Value] {
    match value {
        Value::Array(several) => several,
        one => std::slice::from_ref(one),
    }
}

/// Whether a rule's target takes in all minions of a job.
fn covers(
    target: &str,
    job: &AskedJob<'_>,
    minions_of: &mut impl FnMut(&str) -> Vec<MinionId>,
) -> bool {
    if target == "*" {
        return true;
    }
    if target.starts_with('@') {
        return false;
    }
    let minions = match job.minions {
        Whom::These(minions) => minions,
        Whom::Matching(pattern) => {
            return PlainWildcard::parse(target).is_some_and(|rule| rule.contains(pattern));
        }
        Whom::Anybody => return false,
    };
    // Nobody is covered by everything, as in stock. What goes to syndics all the same, under
    // `order_masters`, carries the rules along, and each master below asks them of its own minions
    // (CVE-2022-22941).
    if minions.is_empty() {
        return true;
    }
    let mut covered = minions_of(target);
    covered.sort_unstable();
    let is_covered = |id: &MinionId| covered.binary_search(id).is_ok();
    minions.iter().all(is_covered)
}

/// `publisher_acl`: rules by the names of local users.
#[derive(Default)]
pub struct PublisherAcl {
    entries: Vec<(AnyOf, Value)>,
}

impl PublisherAcl {
    /// From the option's entries.
    pub fn new<'a>(entries: impl IntoIterator<Item = (&'a str, Value)>) -> Self {
        let entries = entries.into_iter();
        let entries = entries.map(|(name, rules)| (AnyOf::new([name]), rules));
        Self {
            entries: entries.collect(),
        }
    }

    /// Whether the option is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The rules of all entries whose name is, as a wildcard or an expression, that of the user
    /// (`get_values_of_matching_keys` in `salt/utils/master.py`).
    pub fn rules_of(&self, user: &str) -> Rules {
        let mut rules = Rules::default();
        for (names, entry) in &self.entries {
            if names.matches(user) {
                rules.add(entry);
            }
        }
        rules
    }
}

#[cfg(test)]
mod stock_tests;
#[cfg(test)]
mod tests;
