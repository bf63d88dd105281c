//! Verdict on one highstate: from a return to what changed, would change or failed. Pure.

use saltern_wire::msgpack::Value;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Separator of the parts of a state's key.
const SEPARATOR: &str = "_|-";

/// Characters of a name that are kept.
const MAX_NAME: usize = 160;

/// Names that are kept of a list.
const MAX_NAMES: usize = 20;

/// Text of a minion that refuses a run because another one is in progress: it says nothing about its
/// states.
const CONCURRENT_RUN: &str = "is running as PID";

/// Outcome of one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StateOutcome {
    /// It was as wanted.
    InLine,
    /// It was changed.
    Changed,
    /// It would be changed by a run that is no dry one.
    WouldChange,
    /// It failed.
    Failed,
}

impl StateOutcome {
    /// The outcome of one entry of a state run.
    pub fn of(run: &Value) -> Self {
        let has_changes = run.get("changes").is_some_and(Value::is_truthy);
        match (run.get("result"), has_changes) {
            (Some(Value::Bool(true)), false) => Self::InLine,
            (Some(Value::Bool(true)), true) => Self::Changed,
            (Some(Value::Nil) | None, _) => Self::WouldChange,
            _ => Self::Failed,
        }
    }
}

/// Verdict on a minion, by its last highstate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Verdict {
    /// A state failed, or nothing could be run.
    Failed,
    /// A dry run would have changed something.
    Drifted,
    /// The run changed something.
    Corrected,
    /// Nothing had to change.
    InLine,
}

impl Verdict {
    pub(crate) const ALL: [Self; 4] = [Self::Failed, Self::Drifted, Self::Corrected, Self::InLine];

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Drifted => "drifted",
            Self::Corrected => "corrected",
            Self::InLine => "in_line",
        }
    }
}

/// Names in order, each once, and how many more there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Names {
    pub(crate) names: Vec<String>,
    pub(crate) more: usize,
}

impl Names {
    /// The first of these. Equal sets give equal lists.
    fn of(all: &[String]) -> Self {
        Self {
            names: all.iter().take(MAX_NAMES).cloned().collect(),
            more: all.len().saturating_sub(MAX_NAMES),
        }
    }
}

/// A set of names: its digest covers all of them, of which some are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NameSet {
    pub(crate) digest: String,
    pub(crate) kept: Names,
}

impl NameSet {
    fn of(mut names: Vec<String>) -> Self {
        names.sort_unstable();
        names.dedup();
        let mut digest = saltern_base::hex(&Sha256::digest(names.join("\0")));
        digest.truncate(24);
        Self {
            digest,
            kept: Names::of(&names),
        }
    }
}

/// Result of a highstate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Highstate {
    pub(crate) verdict: Verdict,
    pub(crate) is_test: bool,
    pub(crate) succeeded: usize,
    pub(crate) changed: usize,
    pub(crate) would_change: usize,
    pub(crate) failed: usize,
    /// The states that make the verdict.
    pub(crate) states: NameSet,
    /// The SLS files that its states are from.
    pub(crate) files: NameSet,
}

/// Functions whose returns may be highstates.
pub(crate) const FUNCTIONS: [&str; 2] = ["state.apply", "state.highstate"];

impl Highstate {
    /// Of the load of a return of one of [`FUNCTIONS`]; nothing when it is no whole highstate, or says
    /// nothing about the minion.
    pub(crate) fn of(function: &str, load: &Value) -> Option<Self> {
        let arguments = load.get("fun_args").and_then(Value::as_array);
        let call = Call::of(arguments.unwrap_or_default());
        if function == "state.apply" && call.is_partial {
            return None;
        }
        match load.get("return")? {
            Value::Map(runs) => Self::of_runs(runs, call.is_test),
            Value::Array(errors) => {
                let errors: Vec<&str> = errors.iter().filter_map(Value::as_str).collect();
                Self::of_errors(&errors, call.is_test)
            }
            Value::Str(error) => Self::of_errors(&[error], call.is_test),
            _ => None,
        }
    }

    fn of_runs(runs: &[(Value, Value)], is_test: bool) -> Option<Self> {
        let mut outcomes = Vec::with_capacity(runs.len());
        let mut files = Vec::new();
        for (key, run) in runs {
            let key = key.as_str().filter(|key| key.contains(SEPARATOR))?;
            run.as_map()?;
            outcomes.push((StateOutcome::of(run), key, run));
            files.extend(run.get("__sls__").and_then(Value::as_str).map(cut));
        }
        if outcomes.is_empty() {
            return None;
        }
        let count = |wanted| {
            let outcomes = outcomes.iter();
            outcomes.filter(|(outcome, ..)| *outcome == wanted).count()
        };
        let (failed, would_change) = (
            count(StateOutcome::Failed),
            count(StateOutcome::WouldChange),
        );
        let changed = count(StateOutcome::Changed);
        let (verdict, decisive) = match (failed, would_change, changed) {
            (1.., _, _) => (Verdict::Failed, Some(StateOutcome::Failed)),
            (_, 1.., _) => (Verdict::Drifted, Some(StateOutcome::WouldChange)),
            (_, _, 1..) if is_test => (Verdict::Drifted, Some(StateOutcome::Changed)),
            (_, _, 1..) => (Verdict::Corrected, Some(StateOutcome::Changed)),
            _ => (Verdict::InLine, None),
        };
        let states = outcomes.iter();
        let states = states.filter(|(outcome, ..)| Some(*outcome) == decisive);
        let states = states.map(|(_, key, run)| name_of(key, run)).collect();
        Some(Self {
            verdict,
            is_test,
            succeeded: outcomes.len() - failed - would_change,
            changed,
            would_change,
            failed,
            states: NameSet::of(states),
            files: NameSet::of(files),
        })
    }

    /// Of a run that did not come to its states.
    fn of_errors(errors: &[&str], is_test: bool) -> Option<Self> {
        let first = errors.first()?;
        if errors.iter().any(|error| error.contains(CONCURRENT_RUN)) {
            return None;
        }
        Some(Self {
            verdict: Verdict::Failed,
            is_test,
            succeeded: 0,
            changed: 0,
            would_change: 0,
            failed: 0,
            states: NameSet::of(vec![cut(first)]),
            files: NameSet::of(Vec::new()),
        })
    }
}

/// A state by function and id, such as `file.managed /etc/motd`.
fn name_of(key: &str, run: &Value) -> String {
    let mut parts = key.split(SEPARATOR);
    let (module, id) = (parts.next(), parts.next());
    let function = parts.last().unwrap_or_default();
    let id = run.get("__id__").and_then(Value::as_str).or(id);
    let module = module.unwrap_or_default();
    cut(&format!("{module}.{function} {}", id.unwrap_or_default()))
}

/// The beginning of the first line.
fn cut(text: &str) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty());
    line.unwrap_or_default()
        .trim()
        .chars()
        .take(MAX_NAME)
        .collect()
}

/// Arguments of a state function, as far as they matter here.
#[derive(Default)]
struct Call {
    is_test: bool,
    /// It names or leaves out states.
    is_partial: bool,
}

impl Call {
    fn of(arguments: &[Value]) -> Self {
        let mut call = Self::default();
        for argument in arguments {
            match argument {
                Value::Map(named) => {
                    for (name, value) in named {
                        call.take(name.as_str().unwrap_or_default(), value.is_truthy());
                    }
                }
                Value::Str(text) => match text.split_once('=') {
                    Some((name, value)) => {
                        call.take(name, !matches!(value, "" | "0" | "False" | "false"));
                    }
                    None => call.is_partial = true,
                },
                Value::Nil => {}
                _ => call.is_partial = true,
            }
        }
        call
    }

    fn take(&mut self, name: &str, is_on: bool) {
        self.is_test |= name == "test" && is_on;
        self.is_partial |= matches!(name, "mods" | "exclude") && is_on;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(result: Value, has_changes: bool) -> Value {
        let changes = match has_changes {
            true => Value::map([("diff", "new")]),
            false => Value::Map(Vec::new()),
        };
        Value::map([
            ("result", result),
            ("changes", changes),
            ("__sls__", "web".into()),
        ])
    }

    fn load(arguments: Vec<Value>, returned: Value) -> Value {
        Value::map([("fun_args", Value::Array(arguments)), ("return", returned)])
    }

    fn states(list: &[(&str, Value)]) -> Value {
        Value::map(list.iter().map(|(key, run)| (*key, run.clone())))
    }

    fn test_is_on() -> Vec<Value> {
        vec![Value::map([("__kwarg__", true), ("test", true)])]
    }

    #[test]
    fn verdict_is_that_of_the_worst_state() {
        let fine = ("pkg_|-a_|-a_|-installed", run(true.into(), false));
        let changed = ("file_|-b_|-/b_|-managed", run(true.into(), true));
        let would = ("file_|-c_|-/c_|-managed", run(Value::Nil, true));
        let failed = ("cmd_|-d_|-d_|-run", run(false.into(), false));
        let of = |arguments, list: &[_]| {
            Highstate::of("state.apply", &load(arguments, states(list))).unwrap()
        };
        let in_line = of(Vec::new(), std::slice::from_ref(&fine));
        assert_eq!(in_line.verdict, Verdict::InLine);
        assert!(in_line.states.kept.names.is_empty());
        assert_eq!(in_line.files.kept.names, ["web"]);
        let corrected = of(Vec::new(), &[fine.clone(), changed.clone()]);
        assert_eq!(corrected.verdict, Verdict::Corrected);
        assert_eq!(corrected.states.kept.names, ["file.managed b"]);
        let drifted = of(test_is_on(), &[fine.clone(), would.clone()]);
        assert!(drifted.is_test);
        assert_eq!(drifted.verdict, Verdict::Drifted);
        assert_eq!(drifted.states.kept.names, ["file.managed c"]);
        assert_eq!(
            of(test_is_on(), std::slice::from_ref(&changed)).verdict,
            Verdict::Drifted
        );
        let worst = of(Vec::new(), &[failed, would, changed, fine]);
        assert_eq!(worst.verdict, Verdict::Failed);
        assert_eq!(worst.states.kept.names, ["cmd.run d"]);
        let counts = (
            worst.succeeded,
            worst.changed,
            worst.would_change,
            worst.failed,
        );
        assert_eq!(counts, (2, 1, 1, 1));
    }

    #[test]
    fn equal_changes_have_one_digest_whatever_their_order() {
        let one = ("file_|-b_|-/b_|-managed", run(true.into(), true));
        let two = ("file_|-a_|-/a_|-managed", run(true.into(), true));
        let of = |list: &[_]| Highstate::of("state.highstate", &load(Vec::new(), states(list)));
        let (first, second) = (of(&[one.clone(), two.clone()]), of(&[two, one.clone()]));
        assert_eq!(first, second);
        assert_ne!(
            of(&[one]).unwrap().states.digest,
            first.unwrap().states.digest
        );
    }

    #[test]
    fn many_states_are_counted_and_few_are_kept() {
        let keys: Vec<String> = (0..50)
            .map(|at| format!("file_|-{at}_|-x_|-managed"))
            .collect();
        let list: Vec<_> = keys
            .iter()
            .map(|key| (key.as_str(), run(true.into(), true)))
            .collect();
        let highstate = Highstate::of("state.apply", &load(Vec::new(), states(&list))).unwrap();
        let kept = highstate.states.kept;
        assert_eq!((kept.names.len(), kept.more), (MAX_NAMES, 50 - MAX_NAMES));
    }

    #[test]
    fn run_of_some_states_is_no_highstate() {
        let whole = states(&[("a_|-a_|-a_|-a", run(true.into(), false))]);
        let of = |arguments| Highstate::of("state.apply", &load(arguments, whole.clone()));
        assert!(of(vec!["web".into()]).is_none());
        assert!(of(vec![Value::map([("mods", "web")])]).is_none());
        assert!(of(vec!["mods=web".into()]).is_none());
        assert!(of(vec!["test=True".into()]).unwrap().is_test);
        assert!(!of(vec!["test=False".into()]).unwrap().is_test);
        assert!(of(Vec::new()).is_some());
    }

    #[test]
    fn error_fails_and_a_concurrent_run_says_nothing() {
        let of = |texts: &[&str]| {
            let texts = texts.iter().map(|text| Value::from(*text)).collect();
            Highstate::of("state.highstate", &load(Vec::new(), Value::Array(texts)))
        };
        let failed = of(&["Rendering SLS 'base:web' failed\n  more"]).unwrap();
        assert_eq!(failed.verdict, Verdict::Failed);
        assert_eq!(
            failed.states.kept.names,
            ["Rendering SLS 'base:web' failed"]
        );
        let running = "The function \"state.apply\" is running as PID 12 and was started at …";
        assert!(of(&[running]).is_none());
        let other = load(Vec::new(), Value::map([("a", 1_i64)]));
        assert!(Highstate::of("state.apply", &other).is_none());
    }
}
