//! Recognises state runs, and reads the results of their states.

use saltern_wire::msgpack::Value;

/// A state of a run.
pub(super) struct State<'a> {
    pub(super) name: &'a str,
    pub(super) info: &'a Value,
}

impl State<'_> {
    pub(super) fn has_failed(&self) -> bool {
        self.info.get("result") == Some(&Value::Bool(false))
    }

    /// Whether the state ran in test mode and would have done something.
    pub(super) fn is_undecided(&self) -> bool {
        self.info.get("result").is_some_and(Value::is_nil)
    }

    pub(super) fn has_changes(&self) -> bool {
        self.info.get("changes").is_some_and(Value::is_truthy)
    }

    fn number(&self) -> i64 {
        let number = self.info.get("__run_num__").and_then(Value::as_i64);
        number.unwrap_or(i64::MAX)
    }
}

/// The states of a run in the order in which they ran; nothing if this is no state run.
pub(super) fn states(value: &Value) -> Option<Vec<State<'_>>> {
    let entries = value.as_map().filter(|entries| !entries.is_empty())?;
    let states = entries.iter().map(|(name, info)| {
        let name = name.as_str().filter(|name| name.contains("_|-"))?;
        info.get("result")?;
        Some(State { name, info })
    });
    let mut states: Vec<State<'_>> = states.collect::<Option<_>>()?;
    states.sort_by_key(State::number);
    Some(states)
}
