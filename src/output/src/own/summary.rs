//! `summary`: a line of text for each minion: how many states succeeded, changed something and failed,
//! the time they took, and the first failure.

use saltern_base::escaped_for_terminal;
use saltern_wire::msgpack::Value;

use super::run::{State, states};
use crate::highstate::milliseconds;
use crate::{Color, OutputOptions};

/// Letters of a failure that are shown.
const MAX_FAILURE_LETTERS: usize = 160;

/// A line for each entry of a map; what is no map has one line, without id.
pub(crate) fn summary(value: &Value, options: &OutputOptions) -> String {
    let Some(entries) = value.as_map() else {
        return Line::of(value, options).facts.join(", ");
    };
    let lines = entries.iter().map(|(id, value)| {
        let line = Line::of(value, options);
        let id = saltern_python::str(id);
        let id = options.colors.paint(line.color, &escaped_for_terminal(&id));
        format!("{id}: {}", line.facts.join(", "))
    });
    lines.collect::<Vec<_>>().join("\n")
}

struct Line {
    color: Color,
    facts: Vec<String>,
}

impl Line {
    fn of(value: &Value, options: &OutputOptions) -> Self {
        match states(value) {
            Some(states) => Self::of_run(&states),
            None => Self::of_function(value, options),
        }
    }

    fn of_run(states: &[State<'_>]) -> Self {
        let count = |is: fn(&State<'_>) -> bool| states.iter().filter(|state| is(state)).count();
        let failed = count(|state| state.has_failed());
        let undecided = count(|state| state.is_undecided());
        let changed = count(|state| state.has_changes());
        let color = match (failed, undecided, changed) {
            (1.., ..) => Color::Red,
            (0, 1.., _) => Color::LightYellow,
            (0, 0, 1..) => Color::Cyan,
            (0, 0, 0) => Color::Green,
        };
        let mut facts = vec![format!("{} ok", states.len() - failed - undecided)];
        if undecided > 0 {
            facts.push(format!("{undecided} would change"));
        }
        facts.push(format!("{changed} changed"));
        facts.push(format!("{failed} failed"));
        let times = states.iter().filter_map(|state| state.info.get("duration"));
        let time: f64 = times.filter_map(|time| milliseconds(time).flatten()).sum();
        facts.push(format!("{:.2} s", time / 1000.0));
        let first = states.iter().find(|state| state.has_failed());
        facts.extend(first.map(|state| first_failure(&described(state))));
        Self { color, facts }
    }

    fn of_function(value: &Value, options: &OutputOptions) -> Self {
        let has_failed = options.retcode != 0;
        let (color, word) = match has_failed {
            true => (Color::Red, "failed"),
            false => (Color::Green, "ok"),
        };
        let mut facts = vec![word.to_owned()];
        if let Some(elapsed) = options.elapsed {
            facts.push(format!("{:.2} s", elapsed.as_secs_f64()));
        }
        if has_failed {
            let shown = match value {
                Value::Array(items) => items.first().unwrap_or(value),
                _ => value,
            };
            facts.push(first_failure(&saltern_python::str(shown)));
        }
        Self { color, facts }
    }
}

fn described(state: &State<'_>) -> String {
    let mut parts = state.name.split("_|-");
    let (module, id) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    let function = parts.last().unwrap_or_default();
    let comment = state.info.get("comment").map(saltern_python::str);
    let comment = comment.unwrap_or_default();
    format!("{id} ({module}.{function}): {}", first_line(&comment))
}

fn first_line(text: &str) -> &str {
    let mut lines = text.lines().map(str::trim);
    lines.find(|line| !line.is_empty()).unwrap_or_default()
}

fn first_failure(text: &str) -> String {
    let line = first_line(text);
    let mut shown: String = line.chars().take(MAX_FAILURE_LETTERS).collect();
    if shown.len() < line.len() {
        shown.push('…');
    }
    format!("first failure: {}", escaped_for_terminal(&shown))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn state(number: i64, result: Value, changes: Value, comment: &str) -> Value {
        Value::map([
            ("__run_num__", Value::from(number)),
            ("result", result),
            ("changes", changes),
            ("comment", Value::from(comment)),
            ("duration", Value::from(500.0)),
        ])
    }

    #[test]
    fn a_run_is_counted_and_its_first_failure_named() {
        let changes = Value::map([("new", 1)]);
        let none = Value::Map(Vec::new());
        let run = Value::map([
            (
                "pkg_|-web_|-nginx_|-installed",
                state(
                    2,
                    false.into(),
                    none.clone(),
                    "\n no such\u{1b} package\nmore",
                ),
            ),
            (
                "file_|-a_|-a_|-managed",
                state(0, true.into(), changes, "written"),
            ),
            (
                "file_|-b_|-b_|-managed",
                state(1, true.into(), none.clone(), "as it is"),
            ),
            (
                "service_|-c_|-c_|-running",
                state(3, false.into(), none, "later"),
            ),
        ]);
        let text = summary(&Value::map([("web1", run)]), &OutputOptions::new(false));
        assert_eq!(
            text,
            "web1: 2 ok, 1 changed, 2 failed, 2.00 s, first failure: web (pkg.installed): no such\\u{1b} \
             package"
        );
    }

    #[test]
    fn a_function_has_succeeded_or_failed() {
        let mut options = OutputOptions::new(false);
        options.elapsed = Some(Duration::from_millis(310));
        let value = Value::map([("web\u{202e}1", true)]);
        assert_eq!(summary(&value, &options), "web\\u{202e}1: ok, 0.31 s");
        let options = options.with_retcode(1);
        let value = Value::map([("web1", vec![Value::from("Rendering failed\n  line")])]);
        assert_eq!(
            summary(&value, &options),
            "web1: failed, 0.31 s, first failure: Rendering failed"
        );
    }
}
