//! Keeps public functions and constants of library crates to those that somebody uses: one that is
//! named nowhere outside of its crate is dead, or belongs to `pub(crate)`. Tests and examples of the
//! crate count as outside, tests beside the code do not. A type may be part of what a function gives
//! without being named, so types are not looked at.
//!
//! Textual, so a name that two items share hides both: it finds what nobody names, and nothing else.

use std::collections::{BTreeSet, HashMap, HashSet};

/// Items that only tests name, each with what a test cannot see otherwise. Every other one has a use in
/// the product.
const FOR_TESTS: &[(&str, &str)] = &[
    ("api_addresses", "ports that the system chose"),
    (
        "clean_old",
        "all parts of a removal that the product does one by one",
    ),
    (
        "clear_commands",
        "the commands that a table of tests must name",
    ),
    (
        "is_translated",
        "whether an expression is read as CPython reads it",
    ),
    ("kill_master", "the simulated network of a test"),
    (
        "memories_with",
        "what is kept of each minion, as lists of tests name it",
    ),
    ("memory_names", "the same"),
    (
        "minion_commands",
        "the commands that a table of tests must name",
    ),
    (
        "open_cluster",
        "the engine of a cluster without the lease that a master has to have",
    ),
    (
        "messages_of",
        "a stream that tests cut in pieces, read by the framing of a transport",
    ),
    ("refresh_remotes", "a fetch that is over when it returns"),
    ("spare_connections", "the simulated network of a test"),
    ("status_address", "a port that the system chose"),
    ("with_room", "a disk of a size that a test chooses"),
];

/// Programs, and the command lines, which are a library for their tests only: nobody uses what they have.
const PROGRAMS: [&str; 4] = ["src/cli", "src/lab", "src/saltern", "tests"];

/// Whether the file is a test or an example beside the code, by its name.
fn is_test(path: &str) -> bool {
    let stem = path.trim_end_matches(".rs");
    path.starts_with("tests/")
        || ["tests", "testing", "simulation", "examples"]
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

/// The sources that git knows, by path.
fn sources() -> Vec<(String, String)> {
    let sources = super::words::sources(&["rs"]);
    assert!(
        sources.len() > 500,
        "only {} files were read",
        sources.len()
    );
    sources
}

/// The sources that name each word.
fn users(sources: &[(String, String)]) -> HashMap<&str, Vec<&str>> {
    let mut users: HashMap<&str, Vec<&str>> = HashMap::new();
    let others = sources.iter();
    for (path, source) in others.filter(|(path, _)| path != "tests/public_items.rs") {
        for word in words(source) {
            users.entry(word).or_default().push(path);
        }
    }
    users
}

/// Whether a source is one of the product's, of this crate.
fn is_own_source(user: &str, directory: &str) -> bool {
    let inside = user.strip_prefix(directory);
    inside.is_some_and(|inside| inside.starts_with("/src/") && !user.starts_with("tests/"))
}

/// The public items of libraries: their sources, lines and names.
fn library_items(sources: &[(String, String)]) -> impl Iterator<Item = (&str, &str, usize, &str)> {
    let is_library = |path: &str| {
        let directory = crate_of(path);
        !PROGRAMS.contains(&directory) && is_own_source(path, directory) && !is_test(path)
    };
    let libraries = sources.iter().filter(move |(path, _)| is_library(path));
    libraries.flat_map(|(path, source)| {
        let items = items(source).into_iter();
        items.map(move |(line, name)| (path.as_str(), source.as_str(), line, name))
    })
}

#[test]
fn every_public_item_is_used_by_somebody() {
    let sources = sources();
    let users = users(&sources);
    let unused = library_items(&sources).filter(|(path, _, _, name)| {
        let users = users.get(name).map_or(&[][..], Vec::as_slice);
        let is_outside = |user: &&str| !is_own_source(user, crate_of(path));
        !users.iter().any(is_outside)
    });
    let unused: Vec<String> = unused
        .map(|(path, _, line, name)| format!("{path}:{line}: {name}"))
        .collect();
    assert!(
        unused.is_empty(),
        "nobody outside uses these; remove them, or make them pub(crate):\n{}",
        unused.join("\n")
    );
}

/// One that tests alone use is dead in the product, unless it is there for them.
#[test]
fn public_items_for_tests_are_listed() {
    let sources = sources();
    let users = users(&sources);
    let of_tests = library_items(&sources).filter(|(path, source, _, name)| {
        let users = users.get(name).map_or(&[][..], Vec::as_slice);
        let others = users.iter().filter(|user| *user != path);
        let is_used = others.into_iter().any(|user| !is_test(user));
        !is_used && source_names(source, name) == 1
    });
    let found: BTreeSet<&str> = of_tests.map(|(_, _, _, name)| name).collect();
    let listed = FOR_TESTS.iter().map(|(name, _)| *name).collect();
    assert_eq!(found, listed, "items that only tests use, and their list");
}

/// How often the code of a source names an item, before its tests.
fn source_names(source: &str, name: &str) -> usize {
    let code = source.lines().take_while(|line| *line != "#[cfg(test)]");
    let code = code.filter(|line| !line.trim_start().starts_with("//"));
    let words = code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'));
    words.filter(|word| *word == name).count()
}
