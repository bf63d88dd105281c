//! `changes-only`: of state runs the states that changed something, would change something or failed,
//! in the form of `highstate`. A minion without any is not shown. Other returns are shown as nested.

use saltern_wire::msgpack::Value;

use super::run::{State, states};
use super::safe::safe;
use crate::highstate::highstate;
use crate::{OutputOptions, nested};

/// The text, which may be empty.
pub(crate) fn changes_only(value: &Value, options: &OutputOptions) -> String {
    let value = safe(value);
    let mut options = options.clone();
    options.state.verbose = false;
    let Some(entries) = value.as_map() else {
        return nested(&value, &options);
    };
    let shown = entries.iter().filter_map(|(id, run)| {
        let is_state_run = match states(run) {
            Some(states) => states.iter().any(is_shown).then_some(true)?,
            None => false,
        };
        let mut headed = Value::Map(vec![(id.clone(), run.clone())]);
        let text = is_state_run.then(|| highstate(&mut headed, &options));
        Some(text.flatten().unwrap_or_else(|| nested(&headed, &options)))
    });
    shown.collect::<Vec<_>>().join("\n")
}

fn is_shown(state: &State<'_>) -> bool {
    state.has_changes() || state.has_failed() || state.is_undecided()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(result: impl Into<Value>, changes: Value) -> Value {
        let state = Value::map([
            ("result", result.into()),
            ("changes", changes),
            ("comment", Value::from("said \u{1b}[2J")),
            ("__run_num__", Value::from(0)),
        ]);
        Value::map([("file_|-a_|-a_|-managed", state)])
    }

    #[test]
    fn only_minions_with_changes_or_failures_are_shown() {
        let none = || Value::Map(Vec::new());
        let value = Value::map([
            ("quiet", run(true, none())),
            ("changed", run(true, Value::map([("new", 1)]))),
            ("failed", run(false, none())),
            ("undecided", run(Value::Nil, none())),
            ("function", Value::from("text\u{7}")),
        ]);
        let text = changes_only(&value, &OutputOptions::new(false));
        assert!(!text.contains("quiet"), "{text}");
        for id in ["changed", "failed", "undecided", "function"] {
            assert!(text.contains(&format!("{id}:\n")), "{id} in {text}");
        }
        assert!(text.contains("said \\u{1b}[2J"), "{text}");
        assert!(text.contains("text\\u{7}"), "{text}");
        let quiet = Value::map([("quiet", run(true, none()))]);
        assert_eq!(changes_only(&quiet, &OutputOptions::new(false)), "");
    }
}
