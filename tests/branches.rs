//! Holds the folders of `actors/src` to their order: a branch of the actors uses only branches that
//! stand above it, and exactly those that are listed here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The folders of `actors/src` with the folders that each uses, tests included. The order is that of
/// the list in `actors/src/lib.rs`.
const BRANCHES: &[(&str, &[&str])] = &[
    ("shared", &[]),
    ("messages", &["shared"]),
    ("events", &["messages", "shared"]),
    ("upkeep", &["events", "messages", "shared"]),
    ("jobs", &["events", "messages", "shared", "upkeep"]),
    ("content", &["messages", "shared", "upkeep"]),
    ("functions", &["content", "jobs", "messages", "shared"]),
    (
        "automation",
        &["content", "events", "functions", "messages", "shared"],
    ),
    ("front", &["content", "functions", "messages", "shared"]),
    ("syndic", &["events", "messages"]),
    ("api", &["events", "messages"]),
    (
        "operator",
        &[
            "automation",
            "events",
            "jobs",
            "messages",
            "syndic",
            "upkeep",
        ],
    ),
    ("tree", &[]),
];

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../actors/src")
}

fn rust_files(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).expect("a directory of the actors can be read") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
}

/// The folders that are named by `crate::` in a source, comments aside.
fn named(source: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for line in source.lines() {
        let code = line.split("//").next().unwrap_or_default();
        for rest in code.split("crate::").skip(1) {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            names.insert(rest[..end.unwrap_or(rest.len())].to_owned());
        }
    }
    names
}

/// Each folder with the other folders that it uses.
fn used() -> BTreeMap<String, BTreeSet<String>> {
    let mut used = BTreeMap::new();
    for entry in fs::read_dir(sources()).expect("the sources of the actors can be read") {
        let path = entry.expect("an entry").path();
        let name = path
            .file_stem()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        assert!(path.is_dir() || name == "lib", "{name} belongs to a branch");
        let mut files = Vec::new();
        if path.is_dir() {
            rust_files(&path, &mut files);
        }
        let mut names = BTreeSet::new();
        for file in &files {
            names.extend(named(&fs::read_to_string(file).expect("a source is text")));
        }
        names.remove(&name);
        if name != "lib" {
            used.insert(name, names);
        }
    }
    used
}

#[test]
fn a_branch_uses_only_branches_above_it() {
    let used = used();
    let listed: BTreeSet<&str> = BRANCHES.iter().map(|(name, _)| *name).collect();
    let there: BTreeSet<&str> = used.keys().map(String::as_str).collect();
    assert_eq!(there, listed, "the folders of actors/src");
    for (floor, (name, allowed)) in BRANCHES.iter().enumerate() {
        let above: Vec<&str> = BRANCHES[..floor].iter().map(|(name, _)| *name).collect();
        for one in *allowed {
            assert!(
                above.contains(one),
                "{name} may not use {one}, which stands below it"
            );
        }
        let found: Vec<&str> = used[*name].iter().map(String::as_str).collect();
        if *name != "tree" {
            assert_eq!(found, *allowed, "what {name} uses");
        }
    }
}

#[test]
fn the_list_of_the_branches_is_that_of_their_crate() {
    let head = fs::read_to_string(sources().join("lib.rs")).expect("lib.rs is text");
    let rows: Vec<&str> = head
        .lines()
        .filter_map(|line| line.strip_prefix("//! | `")?.split('`').next())
        .collect();
    let listed: Vec<&str> = BRANCHES.iter().map(|(name, _)| *name).collect();
    assert_eq!(rows, listed);
}

#[test]
fn a_path_in_a_comment_is_no_use() {
    let source = "use crate::jobs::x;\n//! [`a`](crate::tree)\nlet x = crate::events::bus::new();";
    let names: Vec<String> = named(source).into_iter().collect();
    assert_eq!(names, ["events", "jobs"]);
}
