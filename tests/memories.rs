//! Lists every map by minion, and every set of minions, that the sources have outside of
//! `requests::Minions`, each with the reason why it may stand there. What is known of a minion must not become known of the next owner of its name:
//! memory belongs into `Minions`, which clears it with the key.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// How a source writes such a map or set, of whichever kind.
const MEMORIES: [&str; 4] = [
    "Map<MinionId,",
    "Set<MinionId>",
    "Map<DataName,",
    "Set<DataName>",
];

/// The files that have one, by the end of their path.
const REASONS: &[(&str, &str)] = &[
    // Stores of other crates that are fields of `Minions`.
    ("content/src/pillar/cache.rs", "a field of `Minions`"),
    ("store/src/minion_data/forgotten.rs", "a field of `Minions`"),
    ("store/src/minion_data/known.rs", "a field of `Minions`"),
    (
        "store/src/minion_data/mine_edits.rs",
        "a field of `Minions`",
    ),
    ("store/src/minion_data/removals.rs", "a field of `Minions`"),
    ("store/src/minion_data/shared.rs", "a field of `Minions`"),
    ("store/src/minion_data/unremoved.rs", "a field of `Minions`"),
    ("store/src/resources.rs", "a field of `Minions`"),
    ("store/src/sessions.rs", "a field of `Minions`"),
    ("store/src/syndics.rs", "a field of `Minions`"),
    ("requests/src/syndic_frames.rs", "a field of `Minions`"),
    ("requests/src/syndic_inventories.rs", "a field of `Minions`"),
    ("requests/src/job/below.rs", "as long as one request"),
    // What follows the keys or the data themselves.
    (
        "matching/index.rs",
        "made of the minion data, follows its changes",
    ),
    (
        "requests/src/key_admission.rs",
        "about keys that are not accepted",
    ),
    (
        "requests/src/highstates.rs",
        "keeps only the accepted ones whenever it is saved",
    ),
    ("store/src/pki.rs", "the keys, as they are on disk"),
    ("pki/accepted.rs", "the keys, as they are on disk"),
    (
        "minion_keys/memory.rs",
        "rows of keys of a cluster, also of deleted ones",
    ),
    ("minion_keys/scan.rs", "the keys, as they are on disk"),
    ("minion_keys/round.rs", "changes of keys that are under way"),
    (
        "shared_state/minion_data/rounds.rs",
        "rows of a cluster, which follow the data",
    ),
    (
        "minion_data/rounds/forgotten.rs",
        "names that are forgotten, of the last hour",
    ),
    ("disk_checks/orphaned_data.rs", "the keys of the last look"),
    (
        "store/src/jobs/last_returns.rs",
        "rows of the job database, forgotten with them; only accepted minions are asked for",
    ),
    // What follows connections and clocks.
    ("events/presence.rs", "follows connections"),
    ("events/presence/table.rs", "follows connections"),
    (
        "store/src/minion_clocks.rs",
        "of the last request, for `saltern doctor`",
    ),
    (
        "store/src/sha1_minions.rs",
        "goes with the session of a minion",
    ),
    // Parts of what is under way.
    ("batches/machine.rs", "of one batch"),
    ("functions/peer_calls.rs", "calls that are under way"),
    ("requests/src/explain.rs", "of one answer"),
    ("requests/src/syndics.rs", "of one request"),
    ("syndic_inventories/second_ways.rs", "syndics of one look"),
    ("syndic/upward.rs", "of one request"),
    (
        "syndic/inventory.rs",
        "as announced above, compared with the keys once a second",
    ),
    ("job_tracker/job.rs", "of one job"),
    ("job_tracker/machine.rs", "probes to come"),
    (
        "job_tracker/syndic_verdicts.rs",
        "of verdicts of the last second, and texts that minions of jobs have",
    ),
    ("job_tracker/rounds.rs", "probes under way"),
    ("job_tracker/simulation.rs", "of a simulated master"),
    (
        "job_tracker/quota.rs",
        "counts of a day, which a new key must not begin anew",
    ),
];

/// The fields of `Minions` that `Minions::memories` passes over.
const NO_MEMORY: &[&str] = &["presence"];

fn minions() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/requests/src/minions.rs");
    fs::read_to_string(path).expect("a source is text")
}

#[test]
fn minions_passes_over_no_memory() {
    let source = minions();
    let lines = source.lines().map(str::trim);
    let ignored: Vec<_> = lines.filter_map(|line| line.strip_suffix(": _,")).collect();
    assert_eq!(ignored, NO_MEMORY, "cleared with no key");
}

#[test]
fn bound_of_each_memory_stands_in_the_table_of_budgets() {
    const NAME: &str = "fn name(&self) -> &'static str {";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ARCHITECTURE.md");
    let page = fs::read_to_string(path).expect("a page is text");
    let (_, budgets) = page
        .split_once("## Admission and memory")
        .expect("the section");
    let rows: Vec<_> = budgets
        .lines()
        .filter(|line| line.contains("one of each minion"))
        .collect();
    let source = minions();
    let names = source.split(NAME).skip(1);
    let names: Vec<_> = names.filter_map(|rest| rest.split('"').nth(1)).collect();
    assert!(names.len() >= 5, "{names:?}");
    for name in names {
        let is_listed = rows.iter().any(|row| row.contains(name));
        assert!(
            is_listed,
            "ARCHITECTURE.md, \"Admission and memory\": no bound of \"{name}\""
        );
    }
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory of the tree") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && !path.ends_with("tests") {
            sources(&path, found);
            continue;
        }
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.ends_with(".rs") && !name.ends_with("tests.rs")) {
            found.push(path);
        }
    }
}

/// Crates of the master; the others are command lines, the native minion and tests.
const CRATES: [&str; 9] = [
    "actors/src",
    "src/automation/src",
    "src/bridge/src",
    "src/content/src",
    "src/policy/src",
    "src/requests/src",
    "src/runners/src",
    "src/store/src",
    "src/wire/src",
];

#[test]
fn every_map_by_minion_says_why_it_is_not_cleared_with_the_key() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut paths = Vec::new();
    for directory in CRATES {
        sources(&root.join(directory), &mut paths);
    }
    let has_map = |path: &&PathBuf| {
        let text = fs::read_to_string(path).expect("a source is text");
        // A field: a local map ends with its function, and a signature keeps nothing.
        let mut fields = text.lines().filter(|line| {
            let line = line.trim();
            line.ends_with(',') && line.contains(": ") && !line.contains("fn ")
        });
        fields.any(|line| MEMORIES.iter().any(|memory| line.contains(memory)))
    };
    let minions = minions();
    // A file of `requests` whose memory `Minions` takes needs no row.
    let is_taken = |path: &Path| {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let is_beside = path.ends_with(format!("requests/src/{stem}.rs"));
        is_beside && minions.contains(&format!("use crate::{stem}::"))
    };
    let mut unknown = Vec::new();
    let mut known = BTreeSet::new();
    for path in paths.iter().filter(has_map) {
        let reason = REASONS.iter().find(|(end, _)| path.ends_with(end));
        match reason {
            Some((end, _)) => _ = known.insert(*end),
            None if is_taken(path) => {}
            None => unknown.push(path.strip_prefix(&root).unwrap_or(path)),
        }
    }
    assert!(
        unknown.is_empty(),
        "these keep something for each minion: make it a field of `requests::Minions`, or say in \
         REASONS why it may outlast the key: {unknown:?}"
    );
    for (end, _) in REASONS {
        assert!(
            known.contains(end),
            "{end} has no memory by minion any more"
        );
    }
}
