//! Returns in a form for pages: a state run as a report, state by state, anything else as nested text.

use saltern_output::{OutputOptions, Outputter, render};
use saltern_requests::StateOutcome;
use saltern_wire::msgpack::Value;
use serde::Serialize;

/// Separator of the parts of a state's key.
const SEPARATOR: &str = "_|-";

/// Bytes of one text on a page; the rest is cut.
const MAX_TEXT: usize = 64 << 10;

/// States of one report on a page.
const MAX_STATES: usize = 500;

/// A return.
#[derive(Debug, Serialize)]
pub(crate) struct Returned {
    /// A state run.
    pub(crate) report: Option<Report>,
    /// Anything else.
    pub(crate) text: Option<Text>,
}

/// A text, cut if it is too long for a page.
#[derive(Debug, Serialize)]
pub(crate) struct Text {
    pub(crate) text: String,
    pub(crate) is_cut: bool,
}

/// A state run.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) states: Vec<State>,
    pub(crate) succeeded: usize,
    pub(crate) changed: usize,
    pub(crate) failed: usize,
    pub(crate) would_change: usize,
    /// In milliseconds.
    pub(crate) took: String,
    /// States beyond those that a page shows.
    pub(crate) left_out: usize,
}

/// One state.
#[derive(Debug, Serialize)]
pub(crate) struct State {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) function: String,
    pub(crate) sls: String,
    /// `ok`, `changed`, `failed` or `would change`.
    pub(crate) outcome: &'static str,
    pub(crate) comment: String,
    pub(crate) took: String,
    /// The page of the job that it published, of a step of an orchestration.
    pub(crate) job: Option<String>,
    pub(crate) lines: Vec<Line>,
}

/// A line of the changes of a state.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    /// `add`, `remove`, `place` or nothing.
    pub(crate) kind: &'static str,
    pub(crate) text: String,
}

impl Returned {
    pub(crate) fn of(value: &Value) -> Self {
        match Report::of(value).or_else(|| Report::of(orchestrated(value)?)) {
            Some(report) => Self {
                report: Some(report),
                text: None,
            },
            None => Self {
                report: None,
                text: Some(Text::cut(nested(value))),
            },
        }
    }
}

/// The states in the return of an orchestration, which are those of one minion: the master.
fn orchestrated(value: &Value) -> Option<&Value> {
    let data = value.get("return")?.get("data")?.as_map()?;
    match data {
        [(_, states)] => Some(states),
        _ => None,
    }
}

impl Text {
    pub(crate) fn cut(mut text: String) -> Self {
        let is_cut = text.len() > MAX_TEXT;
        if is_cut {
            let mut end = MAX_TEXT;
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            text.truncate(end);
        }
        Self { text, is_cut }
    }
}

/// A value as `salt` prints it, without colours.
pub(crate) fn nested(value: &Value) -> String {
    match value {
        Value::Str(text) => text.clone(),
        other => render(other, Outputter::Nested, &OutputOptions::new(false)),
    }
}

impl Report {
    /// Of a map whose keys are those of states; of nothing else.
    fn of(value: &Value) -> Option<Self> {
        let entries = value.as_map().filter(|entries| !entries.is_empty())?;
        let mut states = Vec::with_capacity(entries.len());
        let mut total = 0.0;
        for (key, run) in entries {
            let key = key.as_str().filter(|key| key.contains(SEPARATOR))?;
            run.as_map()?;
            run.get("result")?;
            let took = run.get("duration").and_then(Value::as_f64);
            total += took.unwrap_or_default();
            let order = run.get("__run_num__").and_then(Value::as_i64);
            states.push((order.unwrap_or(i64::MAX), State::of(key, run, took)));
        }
        states.sort_by_key(|(order, _)| *order);
        let states: Vec<State> = states.into_iter().map(|(_, state)| state).collect();
        let count = |outcome| {
            states
                .iter()
                .filter(|state| state.outcome == outcome)
                .count()
        };
        let (changed, failed) = (count("changed"), count("failed"));
        let would_change = count("would change");
        let mut report = Self {
            succeeded: states.len() - failed - would_change,
            changed,
            failed,
            would_change,
            took: crate::moment::duration((total * 1e3) as i64),
            left_out: states.len().saturating_sub(MAX_STATES),
            states,
        };
        report.states.truncate(MAX_STATES);
        Some(report)
    }
}

impl State {
    fn of(key: &str, run: &Value, took: Option<f64>) -> Self {
        let mut parts = key.split(SEPARATOR);
        let (module, id) = (parts.next(), parts.next());
        let (name, function) = (parts.next(), parts.last());
        let text = |field: &str| run.get(field).map(nested);
        let changes = run.get("changes").filter(|changes| changes.is_truthy());
        let outcome = match StateOutcome::of(run) {
            StateOutcome::InLine => "ok",
            StateOutcome::Changed => "changed",
            StateOutcome::WouldChange => "would change",
            StateOutcome::Failed => "failed",
        };
        let function = [module, function].map(Option::unwrap_or_default).join(".");
        Self {
            id: text("__id__").unwrap_or_else(|| id.unwrap_or_default().to_owned()),
            name: text("name").unwrap_or_else(|| name.unwrap_or_default().to_owned()),
            function,
            sls: text("__sls__").unwrap_or_default(),
            outcome,
            comment: text("comment")
                .map(|text| Text::cut(text).text)
                .unwrap_or_default(),
            took: took
                .map(|took| crate::moment::duration((took * 1e3) as i64))
                .unwrap_or_default(),
            job: run
                .get("__jid__")
                .and_then(Value::as_str)
                .and_then(|jid| saltern_model::Jid::parse(jid).ok())
                .map(|jid| crate::pages::job_path(jid.as_str())),
            lines: changes.map(lines).unwrap_or_default(),
        }
    }
}

/// The changes of a state, a diff as one.
fn lines(changes: &Value) -> Vec<Line> {
    let diff = changes.get("diff").and_then(Value::as_str);
    let text = match diff {
        Some(diff) => Text::cut(diff.to_owned()).text,
        None => Text::cut(nested(changes)).text,
    };
    let kind = |line: &str| match line.as_bytes().first() {
        _ if diff.is_none() => "",
        Some(b'+') => "add",
        Some(b'-') => "remove",
        Some(b'@') => "place",
        _ => "",
    };
    let lines = text.lines();
    lines
        .map(|line| Line {
            kind: kind(line),
            text: line.to_owned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(result: Value, changes: Value, order: i64) -> Value {
        Value::map([
            ("result", result),
            ("changes", changes),
            ("comment", "done".into()),
            ("duration", Value::from(12.5)),
            ("__run_num__", order.into()),
            ("__sls__", "web".into()),
        ])
    }

    #[test]
    fn state_run_is_a_report_in_its_order() {
        let diff = Value::map([("diff", Value::from("--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n z"))]);
        let none = || Value::Map(Vec::new());
        let value = Value::map([
            ("file_|-b_|-/b_|-managed", state(true.into(), diff, 1)),
            (
                "pkg_|-a_|-nginx_|-installed",
                state(false.into(), none(), 0),
            ),
            ("cmd_|-c_|-c_|-run", state(Value::Nil, none(), 2)),
        ]);
        let report = Returned::of(&value).report.unwrap();
        let rows: Vec<_> = report
            .states
            .iter()
            .map(|state| (state.function.as_str(), state.outcome))
            .collect();
        assert_eq!(
            rows,
            [
                ("pkg.installed", "failed"),
                ("file.managed", "changed"),
                ("cmd.run", "would change")
            ]
        );
        let kinds: Vec<_> = report.states[1]
            .lines
            .iter()
            .map(|line| line.kind)
            .collect();
        assert_eq!(kinds, ["remove", "add", "place", "remove", "add", ""]);
        assert_eq!(
            (report.succeeded, report.failed, report.would_change),
            (1, 1, 1)
        );
    }

    #[test]
    fn orchestration_is_a_report_that_links_to_its_jobs() {
        let step = Value::map([
            ("result", Value::from(true)),
            ("changes", Value::Map(Vec::new())),
            ("comment", "".into()),
            ("__jid__", "20260102030405060708".into()),
        ]);
        let states = Value::map([("salt_|-a_|-a_|-function", step)]);
        let data = Value::map([("master_master", states)]);
        let value = Value::map([("return", Value::map([("data", data)]))]);
        let report = Returned::of(&value).report.unwrap();
        let job = report.states[0].job.as_deref();
        assert_eq!(job, Some("/console/jobs/20260102030405060708"));
    }

    #[test]
    fn other_return_is_text() {
        let value = Value::map([("a_|-b", Value::from(1_i64))]);
        let returned = Returned::of(&value);
        assert!(returned.report.is_none());
        assert!(returned.text.unwrap().text.contains("a_|-b"));
        let long = Returned::of(&"ü".repeat(MAX_TEXT).into()).text.unwrap();
        assert!(long.is_cut && long.text.len() <= MAX_TEXT);
    }
}
