//! Compares the metrics that the sources register with the panels of the dashboards, both ways.
//!
//! `grafana/check.py --live` asks a running master, which is slow and sees no metric of a part that the
//! demo does not start. Here a metric is a literal name that is followed by its help.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// Sources that put names together, with the beginning of the names there.
const PREFIXES: &[(&str, &str)] = &[("wire/src/port/metrics.rs", "saltern_port_")];

/// Prefixes of the metrics that dashboards have to show; others have the names of other programs.
const OURS: [&str; 2] = ["saltern_", "process_"];

/// Suffixes that Prometheus adds to the name of a histogram.
const PARTS_OF_HISTOGRAMS: [&str; 3] = ["_bucket", "_sum", "_count"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn files(directory: &Path, end: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory of the tree") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("tests") {
            files(&path, end, found);
        } else if path.extension().is_some_and(|extension| extension == end) {
            found.push(path);
        }
    }
}

/// Names that a text may hold.
fn is_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    !text.is_empty() && text.chars().all(is_plain)
}

/// A metric as its source registers it.
pub(crate) struct Metric {
    pub(crate) help: String,
    pub(crate) is_histogram: bool,
    /// Its labels, where they stand behind the help.
    pub(crate) labels: Vec<String>,
}

/// Bytes in front of a name in which the function that registers it is looked for.
const CALL: usize = 60;

/// The text up to the end of a literal, and what is behind that.
fn literal(text: &str) -> Option<(&str, &str)> {
    let mut is_escaped = false;
    let end = text.char_indices().find(|(_, c)| {
        let is_end = *c == '"' && !is_escaped;
        is_escaped = *c == '\\' && !is_escaped;
        is_end
    });
    let (end, _) = end?;
    Some((&text[..end], &text[end + 1..]))
}

/// The words in the list of literals with which a text begins, behind a comma.
fn labels(text: &str) -> Vec<String> {
    let list = text.trim_start().strip_prefix(',').map(str::trim_start);
    let list = list.and_then(|text| text.strip_prefix("&[")?.split(']').next());
    let words = list.unwrap_or_default().split('"').skip(1).step_by(2);
    words.map(str::to_owned).collect()
}

/// The metrics that a source registers: each literal name with a help, which is a sentence.
fn registered(source: &str, prefix: &str) -> BTreeMap<String, Metric> {
    let mut metrics = BTreeMap::new();
    let mut rest = source;
    while let Some((_, after)) = rest.split_once('"') {
        rest = after;
        let Some((name, behind)) = after.split_once('"') else {
            break;
        };
        if !is_name(name) {
            continue;
        }
        let help = behind.strip_prefix(',').map(str::trim_start);
        let help = help.and_then(|text| literal(text.strip_prefix('"')?));
        let Some((help, behind)) = help.filter(|(text, _)| text.contains(' ')) else {
            continue;
        };
        let before = &source.as_bytes()[..source.len() - after.len()];
        let call = &before[before.len().saturating_sub(CALL)..];
        let words = help.split_whitespace().filter(|word| *word != "\\");
        let metric = Metric {
            help: words.collect::<Vec<_>>().join(" ").replace("\\\"", "\""),
            is_histogram: String::from_utf8_lossy(call).contains("histogram"),
            labels: labels(behind),
        };
        metrics.insert(format!("{prefix}{name}"), metric);
    }
    metrics.retain(|name, _| OURS.iter().any(|start| name.starts_with(start)));
    metrics
}

pub(crate) fn metrics() -> BTreeMap<String, Metric> {
    let mut sources = Vec::new();
    for directory in ["src", "actors"] {
        files(&root().join(directory), "rs", &mut sources);
    }
    let mut metrics = BTreeMap::new();
    for path in sources.iter().filter(|path| !path.ends_with("tests.rs")) {
        let source = fs::read_to_string(path).expect("a source is text");
        let place = PREFIXES.iter().find(|(end, _)| path.ends_with(end));
        let prefix = place.map_or("", |(_, prefix)| prefix);
        metrics.extend(registered(&source, prefix));
    }
    metrics
}

/// The names in the queries of all panels.
fn shown() -> BTreeSet<String> {
    let mut boards = Vec::new();
    files(&root().join("grafana/dashboards"), "json", &mut boards);
    let mut names = BTreeSet::new();
    for path in boards {
        let text = fs::read_to_string(path).expect("a dashboard is text");
        let board: Value = serde_json::from_str(&text).expect("a dashboard is JSON");
        let panels = board["panels"].as_array().expect("it has panels");
        let queries = panels
            .iter()
            .filter_map(|panel| panel["targets"].as_array());
        for query in queries.flatten() {
            let query = query["expr"].as_str().expect("a query is text");
            let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let is_ours = |word: &&str| OURS.iter().any(|start| word.starts_with(start));
            names.extend(words.filter(is_ours).map(str::to_owned));
        }
    }
    names
}

#[test]
fn every_metric_is_on_a_panel_and_every_panel_has_its_metric() {
    let metrics: BTreeSet<String> = metrics().into_keys().collect();
    let shown = shown();
    assert!(metrics.len() > 130, "only {} metrics", metrics.len());
    let of_histogram = |name: &str| {
        let mut parts = PARTS_OF_HISTOGRAMS.iter();
        parts.find_map(|part| name.strip_suffix(part).map(str::to_owned))
    };
    let named: BTreeSet<String> = shown
        .iter()
        .map(|name| match of_histogram(name) {
            Some(histogram) if metrics.contains(&histogram) => histogram,
            _ => name.clone(),
        })
        .collect();
    let unseen: Vec<_> = metrics.difference(&named).collect();
    assert!(
        unseen.is_empty(),
        "on no panel: {unseen:?}; put them into grafana/dashboards.py, and run it"
    );
    let unknown: Vec<_> = named.difference(&metrics).collect();
    assert!(
        unknown.is_empty(),
        "on a panel, and no source registers it: {unknown:?}"
    );
}
