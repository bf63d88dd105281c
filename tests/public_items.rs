//! Keeps public functions and constants of library crates to those that somebody uses: one that is
//! named nowhere outside of its crate is dead, or belongs to `pub(crate)`. Tests and examples of the
//! crate count as outside, tests beside the code do not. A type may be part of what a function gives
//! without being named, so types are not looked at.
//!
//! Textual, so a name that two items share hides both: it finds what nobody names, and nothing else.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Items without a user, with the reason why they stay.
const ALLOWED: &[(&str, &str)] = &[
    (
        "apply_arguments",
        "outputters of `salt`, which is being written",
    ),
    (
        "minion_return",
        "for commands that follow jobs, being written",
    ),
    (
        "verbose_heading",
        "outputters of `salt`, which is being written",
    ),
    ("with_theme", "outputters of `salt`, which is being written"),
];

/// Programs, and the command lines, which are a library for their tests only: nobody uses what they have.
const PROGRAMS: [&str; 4] = ["src/cli", "src/lab", "src/saltern", "tests"];

/// Whether the file is a test or an example beside the code, by its name.
fn is_test(path: &str) -> bool {
    let stem = path.trim_end_matches(".rs");
    ["tests", "testing", "simulation"]
        .iter()
        .any(|name| stem.ends_with(name) || stem.contains(&format!("/{name}/")))
}

/// The directory of the crate that a file is part of.
fn crate_of(path: &str) -> &str {
    let end = match path.strip_prefix("src/") {
        Some(rest) => rest.find('/').map(|at| at + "src/".len()),
        None => path.find('/'),
    };
    path.get(..end.unwrap_or(path.len())).unwrap_or_default()
}

/// The public functions and constants that a source defines, with their lines; those of its tests
/// aside.
fn items(source: &str) -> Vec<(usize, &str)> {
    let mut items = Vec::new();
    for (number, line) in (1..).zip(source.lines()) {
        if line == "#[cfg(test)]" {
            break;
        }
        let Some(item) = line.trim_start().strip_prefix("pub ") else {
            continue;
        };
        let mut words = item.split(|c: char| !c.is_alphanumeric() && c != '_');
        let mut kind = words.next().unwrap_or_default();
        let mut name = words.next().unwrap_or_default();
        while matches!(name, "fn" | "unsafe" | "async") {
            kind = name;
            name = words.next().unwrap_or_default();
        }
        if matches!(kind, "fn" | "const" | "static") {
            items.push((number, name));
        }
    }
    items
}

/// The words of the code, without comments and re-exports.
fn words(source: &str) -> HashSet<&str> {
    let mut is_in_export = false;
    let code = source.lines().filter(|line| {
        let line = line.trim_start();
        let is_export = is_in_export || line.starts_with("pub use ");
        is_in_export = is_export && !line.contains(';');
        !line.starts_with("//") && !is_export
    });
    code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'))
        .collect()
}

#[test]
fn every_public_item_is_used_by_somebody() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--", "*.rs"])
        .current_dir(&root)
        .output()
        .expect("git lists the files");
    let names = String::from_utf8(listed.stdout).expect("names of files are text");
    let names = names.split('\0').filter(|name| !name.is_empty());
    // A file may be deleted and not yet committed so.
    let sources: Vec<(&str, String)> = names
        .filter_map(|name| Some((name, fs::read_to_string(root.join(name)).ok()?)))
        .collect();
    assert!(
        sources.len() > 500,
        "only {} files were read",
        sources.len()
    );
    let mut users: HashMap<&str, Vec<&str>> = HashMap::new();
    let others = sources.iter();
    for (path, source) in others.filter(|(path, _)| *path != "tests/public_items.rs") {
        for word in words(source) {
            users.entry(word).or_default().push(path);
        }
    }
    let is_own_source = |user: &str, directory: &str| {
        let inside = user.strip_prefix(directory);
        inside.is_some_and(|inside| inside.starts_with("/src/") && !user.starts_with("tests/"))
    };
    let mut unused = Vec::new();
    for (path, source) in &sources {
        let directory = crate_of(path);
        let is_library = !PROGRAMS.contains(&directory) && is_own_source(path, directory);
        if !is_library || is_test(path) {
            continue;
        }
        for (line, name) in items(source) {
            let users = users.get(name).map_or(&[][..], Vec::as_slice);
            let is_used = users.iter().any(|user| !is_own_source(user, directory));
            let is_allowed = ALLOWED.iter().any(|(allowed, _)| *allowed == name);
            if !is_used && !is_allowed {
                unused.push(format!("{path}:{line}: {name}"));
            }
        }
    }
    assert!(
        unused.is_empty(),
        "nobody outside uses these; remove them, or make them pub(crate):\n{}",
        unused.join("\n")
    );
}
