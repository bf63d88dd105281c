//! Python's conventions that show in the arguments and answers of runners.

use saltern_wire::msgpack::Value;

/// A text, or a whole number as text.
pub(crate) fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::Str(text) => Some(text.clone()),
        Value::Int(number) => Some(number.to_string()),
        Value::Uint(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Texts of a list, or of a text with commas (`split_input` in `salt/utils/args.py`).
pub(crate) fn split_input(value: &Value) -> Vec<String> {
    match value {
        Value::Array(items) => items.iter().filter_map(scalar).collect(),
        other => scalar(other)
            .unwrap_or_default()
            .split(',')
            .map(|part| part.trim().to_owned())
            .collect(),
    }
}

/// Whether states went well (`check_result` in `salt/utils/state.py`, without the requisites that
/// only a running state knows).
pub(crate) fn check_result(running: &Value) -> bool {
    states_are_well(running, false, MAX_NESTED)
}

/// Deeper than any state tree nests.
const MAX_NESTED: usize = 32;

fn states_are_well(running: &Value, is_inner: bool, depth: usize) -> bool {
    let Some(states) = running.as_map().filter(|states| !states.is_empty()) else {
        return false;
    };
    states.iter().all(|(id, state)| {
        let is_extension = id.as_str() == Some("__extend__");
        let has_form = match state {
            Value::Map(_) => !is_extension,
            Value::Array(_) => is_extension,
            _ => false,
        };
        if !is_inner && !has_form {
            return false;
        }
        match state.get("result") {
            Some(result) => result.as_bool() != Some(false),
            None if state.as_map().is_some() && depth > 0 => {
                states_are_well(state, true, depth - 1)
            }
            None => true,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_split_as_stock_splits_them() {
        let list = Value::Array(vec!["a*".into(), 5.into()]);
        assert_eq!(split_input(&list), ["a*", "5"]);
        assert_eq!(split_input(&"a*, b".into()), ["a*", "b"]);
    }

    #[test]
    fn one_failed_state_is_a_failure() {
        let state = |result: Value| Value::map([("result", result)]);
        let minion = |result: Value| Value::map([("m1", Value::map([("id_|-x", state(result))]))]);
        assert!(check_result(&minion(true.into())));
        assert!(check_result(&minion(Value::Nil)));
        assert!(!check_result(&minion(false.into())));
        assert!(!check_result(&Value::map([("m1", "no map")])));
        assert!(!check_result(&Value::Map(Vec::new())));
    }
}
