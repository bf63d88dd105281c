//! Pages of the handbook that say what the sources say: metrics and exit codes are made of them, and of
//! events each tag has its row. With `UPDATE=1` the pages that are made are written.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::panels::metrics;

fn text(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    fs::read_to_string(root.join(path)).unwrap_or_default()
}

/// Compares a page with what it has to be, or writes it.
fn compare(path: &str, page: &str) {
    if std::env::var_os("UPDATE").is_some() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        fs::write(root.join(path), page).expect("the page can be written");
    }
    let written = text(path);
    let mut lines = page.lines().zip(written.lines());
    let differs = lines.find(|(made, line)| made != line);
    assert_eq!(differs, None, "write {path} anew with UPDATE=1");
    assert_eq!(page.len(), written.len(), "write {path} anew with UPDATE=1");
}

fn metrics_page() -> String {
    let mut page = String::from(
        "# Metrics\n\nGenerated from the sources; `UPDATE=1 tests/run.sh -E 'test(reference_of)'` writes this page.\n\n\
         `saltern metrics` prints them, and `saltern_metrics_address` (127.0.0.1:4507) serves them at `/metrics`. \
         A label stands in braces where its list is in the source beside the name; no label is a minion, a job or a user. \
         [Dashboards and alerts](../../grafana/README.md) are made of these.\n\n\
         | metric | kind | it counts or measures |\n|---|---|---|\n",
    );
    for (name, metric) in metrics() {
        let labels = match metric.labels.is_empty() {
            true => String::new(),
            false => format!("{{{}}}", metric.labels.join(", ")),
        };
        let kind = match (metric.is_histogram, name.ends_with("_total")) {
            (true, _) => "histogram",
            (false, true) => "counter",
            (false, false) => "gauge",
        };
        let help = metric.help.replace('|', "\\|");
        let _ = writeln!(page, "| `{name}{labels}` | {kind} | {help} |");
    }
    page
}

#[test]
fn reference_of_metrics_says_what_the_sources_say() {
    compare("docs/reference/metrics.md", &metrics_page());
}

/// The exit codes with their documentation, in the order of the source.
fn exit_codes() -> Vec<(u8, String)> {
    let source = text("src/base/src/exit.rs");
    let mut doc = Vec::new();
    let mut codes = Vec::new();
    for line in source.lines().map(str::trim) {
        if let Some(sentence) = line.strip_prefix("/// ") {
            doc.push(sentence.to_owned());
        } else if let Some((_, number)) = line.split_once(" = ") {
            let number = number.trim_end_matches(',').parse();
            codes.extend(number.map(|number| (number, std::mem::take(&mut doc).join(" "))));
        } else {
            doc.clear();
        }
    }
    codes
}

#[test]
fn reference_of_exit_codes_says_what_the_source_says() {
    let codes = exit_codes();
    assert!(codes.len() > 9, "only {} codes were read", codes.len());
    let mut page = String::from(
        "# Exit codes\n\nGenerated from `src/base/src/exit.rs`; `UPDATE=1 tests/run.sh -E 'test(reference_of)'` writes this \
         page.\n\nCalled as `salt`, `salt-key`, `salt-run` or `salt-cp`, the program ends with stock's codes; \
         [differences](../../src/cli/DIFFERENCES.md) are listed. These are the codes of `saltern`:\n\n\
         | code | meaning |\n|---:|---|\n",
    );
    for (code, meaning) in codes {
        let _ = writeln!(page, "| {code} | {meaning} |");
    }
    compare("docs/reference/exit-codes.md", &page);
}

/// A tag as the page has it: what is put in stands in angle brackets.
fn shape(tag: &str) -> String {
    let mut shape = String::new();
    let mut parts = tag.split(['{', '<']);
    shape.push_str(parts.next().unwrap_or_default());
    for part in parts {
        let behind = part.split_once(['}', '>']).map_or("", |(_, behind)| behind);
        shape.push_str("<>");
        shape.push_str(behind);
    }
    shape
}

/// The shapes of a tag: with each of the ends that the documentation names for its last part, if it
/// names any.
fn ends(literal: &str, doc: &str) -> Vec<String> {
    let is_word = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase() || c == '_');
    // The first backtick of the documentation closes the tag itself.
    let words: Vec<&str> = doc.split('`').skip(2).step_by(2).filter(is_word).collect();
    let open = shape(literal);
    match open.strip_suffix("<>") {
        Some(start) if !words.is_empty() => {
            words.iter().map(|word| format!("{start}{word}")).collect()
        }
        _ => vec![open],
    }
}

/// The tags that the master's sources make: by `Tag`, and as constants beside it.
fn tags() -> BTreeSet<String> {
    let source = text("src/model/src/tag.rs");
    let made = source.split("#[cfg(test)]").next().unwrap_or_default();
    let mut tags = BTreeSet::new();
    for constructor in made.split("\n    /// `").skip(1) {
        let Some((doc, body)) = constructor.split_once("pub fn ") else {
            continue;
        };
        let call = body.split("Self::trusted(").nth(1).unwrap_or_default();
        let Some(literal) = call.split('"').nth(1).filter(|text| text.contains('/')) else {
            continue;
        };
        tags.extend(ends(literal, doc));
    }
    for (file, tag) in [
        ("actors/src/events/bus.rs", "saltern/bus/gap"),
        ("actors/src/syndic/outbox.rs", "saltern/syndic/dropped"),
        ("src/netapi/src/stream/batch.rs", "saltern/stream/closed"),
        (
            "src/requests/src/saltern_syndic_inventory.rs",
            "saltern/syndic/duplicate-minion",
        ),
        ("src/requests/src/job/refusal.rs", "salt/job/error"),
    ] {
        assert!(
            text(file).contains(&format!("\"{tag}\"")),
            "{file} has no {tag}"
        );
        tags.insert(tag.to_owned());
    }
    tags
}

#[test]
fn reference_of_events_has_a_row_for_each_tag() {
    let page = text("docs/reference/events.md");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows: Vec<String> = rows
        .filter_map(|row| row.split('`').next())
        .map(shape)
        .collect();
    let is_of = |row: &String, tag: &String| {
        // `salt/batch/<jid>/<what>` has a row for each end.
        let open = tag.strip_suffix("<>");
        let same_depth = row.matches('/').count() == tag.matches('/').count();
        row == tag || open.is_some_and(|open| same_depth && row.starts_with(open))
    };
    let tags = tags();
    assert!(tags.len() > 20, "only {} tags were found", tags.len());
    let without: Vec<_> = tags
        .iter()
        .filter(|tag| !rows.iter().any(|row| is_of(row, tag)))
        .collect();
    assert!(
        without.is_empty(),
        "docs/reference/events.md has no row for {without:?}"
    );
    let unknown: Vec<_> = rows
        .iter()
        .filter(|row| row.starts_with("saltern/") && !tags.iter().any(|tag| is_of(row, tag)))
        .collect();
    assert!(
        unknown.is_empty(),
        "docs/reference/events.md has {unknown:?}, which no source makes"
    );
}
