//! Every outputter against stock's own of three releases: equal bytes, or a row in `DIFFERENCES.md`.
//!
//! `corpus.py` generates the returns and prints them inside stock's environment. A row that no longer
//! differs fails, too.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use saltern_output::{Indent, Justify, OutputOptions, Outputter, StateOutput, Tabular, render};
use saltern_python::fnmatch::Glob;
use saltern_wire::msgpack::{self, Limits, Value};
use serde_json::Value as Json;

/// The returns that the corpus must have at least, with and without colour.
const MIN_CASES: usize = 2 * 400;

/// In place of a case: stock ends with an exception there.
const TRACEBACK: &str = "traceback";

#[test]
fn returns_of_3006_print_as_stock_prints_them() {
    compare("3006.28");
}

#[test]
fn returns_of_3007_print_as_stock_prints_them() {
    compare("3007.15");
}

#[test]
fn returns_of_3008_print_as_stock_prints_them() {
    compare("3008.3");
}

fn compare(release: &str) {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/corpus/corpus.py");
    let answer = saltern_stock::answer(release, script, "");
    let cases: Vec<Json> = serde_json::from_slice(&answer).expect("stock's side answers in JSON");
    assert!(cases.len() > MIN_CASES, "only {} cases", cases.len());
    let known = differences(release);
    let mut met = BTreeSet::new();
    let mut unknown = Vec::new();
    for case in &cases {
        let name = case["name"].as_str().expect("a name");
        let (kind, theirs) = match case["error"].is_string() {
            true => (TRACEBACK, printed(case, "left", Outputter::Nested)),
            false => (name, case["text"].as_str().unwrap_or_default().to_owned()),
        };
        let outputter = case["out"].as_str().expect("an outputter").parse();
        let ours = printed(case, "value", outputter.expect("it is known"));
        if kind != TRACEBACK && ours == theirs {
            continue;
        }
        let row = known.iter().find(|known| Glob::new(known).matches(kind));
        match row.filter(|_| kind != TRACEBACK || first_line(&ours) == first_line(&theirs)) {
            Some(row) => {
                met.insert(row.clone());
            }
            None => unknown.push(format!(
                "{name} {}\nours {ours:?}\nthey {theirs:?}",
                case["options"]
            )),
        }
    }
    let first = &unknown[..unknown.len().min(8)];
    assert!(
        unknown.is_empty(),
        "{} of {} differ:\n{}",
        unknown.len(),
        cases.len(),
        first.join("\n")
    );
    let equal: Vec<&String> = known.difference(&met).collect();
    assert!(
        equal.is_empty(),
        "listed, and no longer different: {equal:?}"
    );
}

/// All that is compared where stock ends with a traceback: there is no output of its own, and how far the
/// outputter had changed the value by then differs from release to release.
fn first_line(text: &str) -> Option<&str> {
    text.lines().next()
}

/// The cases of `DIFFERENCES.md` for a release.
fn differences(release: &str) -> BTreeSet<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("DIFFERENCES.md");
    let text = fs::read_to_string(path).expect("the table of differences is there");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows = rows.filter_map(|row| {
        let (case, rest) = row
            .split_once("` |")
            .expect("a case stands in the first column");
        let releases = rest
            .split('|')
            .next()
            .expect("releases in the second")
            .trim();
        let is_meant = releases == "all" || releases.split(", ").any(|of| release.starts_with(of));
        is_meant.then(|| case.to_owned())
    });
    rows.collect()
}

/// `field` is the value, or what stock had made of it when it gave up.
fn printed(case: &Json, field: &str, outputter: Outputter) -> String {
    let packed = unhex(case[field].as_str().expect("a value"));
    let value = msgpack::decode(&packed, &Limits::WIRE).expect("a packed value");
    render(&value, outputter, &options(case))
}

fn options(case: &Json) -> OutputOptions {
    let given = &case["options"];
    let flag = |name: &str, default: bool| given[name].as_bool().unwrap_or(default);
    let list = |name: &str| match &given[name] {
        Json::Null if given.get(name).is_none() => Value::Array(Vec::new()),
        found => value(found),
    };
    let text = |name: &str| given[name].as_str().map(str::to_owned);
    let mut options = OutputOptions::new(flag("color", false));
    options.colors = options.colors.with_theme(&value(&case["theme"]));
    options.retcode = case["retcode"].as_i64().expect("a return code");
    options.strip_colors = flag("strip_colors", true);
    options.nested_indent = given["nested_indent"].as_u64().unwrap_or(0) as usize;
    if let Some(indent) = given.get("output_indent") {
        options.indent = Indent::from_value(&value(indent));
    }
    let state = &mut options.state;
    state.output = StateOutput::parse(given["state_output"].as_str().unwrap_or("full"));
    state.verbose = flag("state_verbose", true);
    state.diff = flag("state_output_diff", false);
    state.profile = flag("state_output_profile", true);
    state.percent = flag("state_output_pct", false);
    state.compress_ids = flag("state_compress_ids", false);
    state.tabular = match &given["state_tabular"] {
        Json::Bool(true) => Tabular::Aligned,
        Json::String(format) => Tabular::Format(format.clone()),
        _ => Tabular::Off,
    };
    state.exclude = list("state_output_exclude");
    state.terse = list("state_output_terse");
    if let Some(arguments) = given["arg"].as_array() {
        let arguments: Vec<Value> = arguments.iter().map(value).collect();
        state.apply_arguments(&arguments);
    }
    let table = &mut options.table;
    table.has_header = flag("out.table.has_header", true);
    table.separate_rows = flag("out.table.separate_rows", true);
    table.justify = match given["out.table.justify"].as_str() {
        Some("left") => Justify::Left,
        Some("right") => Justify::Right,
        _ => Justify::Center,
    };
    let or = |name: &str, default: &mut String| {
        if let Some(text) = text(name) {
            *default = text;
        }
    };
    or("out.table.delim", &mut table.delim);
    or("out.table.prefix", &mut table.prefix);
    or("out.table.suffix", &mut table.suffix);
    or("out.table.row_delimiter", &mut table.row_delimiter);
    let number = |name: &str| given[name].as_u64().map(|number| number as usize);
    table.width = number("out.table.width").unwrap_or(table.width);
    table.nested_indent = number("out.table.nested_indent").unwrap_or(0);
    table.rows_key = text("out.table.rows_key");
    table.labels_key = text("out.table.labels_key");
    table.title = text("out.table.title");
    options
}

fn value(json: &Json) -> Value {
    match json {
        Json::Null => Value::Nil,
        Json::Bool(flag) => Value::from(*flag),
        Json::Number(number) => Value::from(number.as_i64().expect("a small number")),
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => Value::Array(items.iter().map(value).collect()),
        Json::Object(entries) => Value::map(
            entries
                .iter()
                .map(|(key, item)| (key.as_str(), value(item))),
        ),
    }
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex"))
        .collect()
}
