//! Compares lists that the compiler cannot: the table of the actors, the transports, and the functions of
//! the master that a test calls.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::words::sources;

/// Functions that no test calls by name, and why none has to.
const UNCALLED: &[(&str, &str)] = &[
    ("key.glob_match", "calls key.name_match, in 3008 alone"),
    (
        "pillar_roots.list_roots",
        "calls what file_roots.list_roots calls",
    ),
    (
        "saltutil.sync_wrapper",
        "calls what saltutil.sync_modules calls",
    ),
    ("test.stdout_print", "a constant"),
    ("test.stream", "reports progress, and returns true"),
];

/// Modules whose functions stand in a file of another name.
const FILES: &[(&str, &str)] = &[
    ("error", "wheel/error.rs"),
    ("file_roots", "wheel/roots.rs"),
    ("key", "wheel/key.rs"),
    ("minions", "wheel/minions.rs"),
    ("pillar_roots", "wheel/roots.rs"),
];

fn text(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    fs::read_to_string(root.join(path)).expect("a source is text")
}

fn sources_below(directory: &str) -> Vec<String> {
    let files = sources(&["rs"]).into_iter();
    let below = files.filter(|(name, _)| name.starts_with(directory));
    below.map(|(_, text)| text).collect()
}

/// The words right behind each of these texts.
fn words_behind<'t>(text: &'t str, before: &'t str) -> impl Iterator<Item = &'t str> {
    let places = text.split(before).skip(1);
    places.filter_map(|rest| {
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
        rest.get(..end.unwrap_or(rest.len()))
    })
}

#[test]
fn table_of_actors_names_each_actor() {
    let tree = text("actors/src/tree/mod.rs");
    let rows = tree.lines().filter_map(|line| line.strip_prefix("//! | "));
    let rows = rows.filter_map(|row| row.split(' ').next());
    let table: BTreeSet<&str> = rows.filter(|name| *name != "child").collect();
    let sources = sources_below("actors/src");
    let actors: BTreeSet<&str> = sources
        .iter()
        .flat_map(|source| words_behind(source, "\nimpl Child for "))
        .collect();
    assert!(actors.len() > 20, "only {} actors were found", actors.len());
    let missing: Vec<_> = actors.symmetric_difference(&table).collect();
    assert!(
        missing.is_empty(),
        "in one of `impl Child for …` and the table of actors/src/tree/mod.rs, not in both: {missing:?}"
    );
}

#[test]
fn list_of_transports_has_every_variant() {
    let framing = text("src/wire/src/port/framing.rs");
    let (_, body) = framing
        .split_once("pub enum Transport {")
        .expect("the enum");
    let (body, _) = body.split_once("\n}").expect("its end");
    let variants: BTreeSet<&str> = body
        .lines()
        .filter_map(|line| line.trim().strip_suffix(','))
        .collect();
    let (_, all) = framing
        .split_once("pub const ALL: [Self; ")
        .expect("the list");
    let (all, _) = all.split_once("];").expect("its end");
    let listed: BTreeSet<&str> = words_behind(all, "Self::").collect();
    assert!(variants.len() >= 3);
    let tests = sources_below("src/wire/tests/port").join("\n");
    for variant in &variants {
        // ZeroMQ is what a listener of the tests speaks unless it is asked for another.
        let is_attacked = *variant == "ZeroMq" || tests.contains(&format!("Transport::{variant},"));
        assert!(
            is_attacked,
            "no hostile peer of src/wire/tests/port speaks {variant}"
        );
    }
    assert_eq!(
        listed, variants,
        "`Transport::ALL` of src/wire/src/port/framing.rs"
    );
}

#[test]
fn each_function_of_the_master_is_called_by_a_test() {
    let registry = text("src/runners/src/registry.rs");
    let modules: BTreeSet<&str> = registry
        .lines()
        .filter(|line| line.contains("FUNCTIONS),"))
        .filter_map(|line| line.split('"').nth(1))
        .collect();
    assert!(
        modules.len() > 15,
        "only {} modules were found",
        modules.len()
    );
    let mut tests = sources_below("tests/e2e").join("\n");
    tests += &sources_below("src/requests/tests").join("\n");
    let of_runners = sources_below("src/runners/src");
    // A module's own tests name a function alone.
    let own = of_runners.iter().map(|source| {
        let is_file_of_tests = source.contains("#[test]") && !source.contains("#[cfg(test)]");
        let tests = source.split_once("#[cfg(test)]").map(|(_, tests)| tests);
        tests
            .or(is_file_of_tests.then_some(source))
            .unwrap_or_default()
    });
    let own = own.collect::<Vec<_>>().join("\n");
    let mut uncalled = BTreeSet::new();
    for module in modules {
        let file = FILES.iter().find(|(name, _)| *name == module);
        let file = file.map_or_else(|| format!("{module}.rs"), |(_, file)| (*file).to_owned());
        let source = text(&format!("src/runners/src/{file}"));
        let table = source.split("#[cfg(test)]").next().unwrap_or_default();
        // Rows may be broken behind the bracket.
        let table = table.split_whitespace().collect::<String>();
        for function in words_behind(&table, "function(\"") {
            let name = format!("{module}.{function}");
            let is_named = tests.contains(&name) || own.contains(&format!("\"{function}\""));
            if !is_named && !own.contains(&name) {
                uncalled.insert(name);
            }
        }
    }
    let excepted: BTreeSet<String> = UNCALLED
        .iter()
        .map(|(name, _)| (*name).to_owned())
        .collect();
    assert_eq!(
        uncalled, excepted,
        "functions without a test, and those that `UNCALLED` excepts"
    );
}
