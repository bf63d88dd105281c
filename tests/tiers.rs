//! The tests that `make test` leaves to `make test-all` (`tests/tiers.list`): each named test
//! exists, and its promise is guarded by tests that `make test` runs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const LIST: &str = include_str!("tiers.list");

/// The lines of the list: a test that is left out, and its guards.
fn lines() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    let lines = LIST.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?, words.collect()))
    })
}

/// Whether there is a test of this name: an end-to-end one, or `binary/test` of a crate.
fn exists(test: &str) -> bool {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (directory, test) = match test.split_once('/') {
        // A file of its own, or one of several.
        Some((binary, test)) if !test.contains("::") => {
            let directory = directory_of(&format!("{binary}.rs"));
            (directory, format!("{binary}::{test}"))
        }
        Some((binary, test)) => {
            let directory = directory_of(&format!("{binary}/main.rs"));
            (directory.map(|tests| tests.join(binary)), test.to_owned())
        }
        None => (Some(root.join("e2e")), test.to_owned()),
    };
    let Some((directory, (module, function))) = directory.zip(test.rsplit_once("::")) else {
        return false;
    };
    let file = directory.join(format!("{}.rs", module.replace("::", "/")));
    let text = fs::read_to_string(file).unwrap_or_default();
    text.contains(&format!("#[test]\nfn {function}()"))
}

/// The tests of the crate that has a test binary with this file.
fn directory_of(file: &str) -> Option<PathBuf> {
    let crates = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../src")).ok()?;
    let mut tests = crates.filter_map(|entry| Some(entry.ok()?.path().join("tests")));
    tests.find(|tests| tests.join(file).is_file())
}

#[test]
fn tests_left_to_test_all_exist_and_are_guarded() {
    let left_out: BTreeSet<_> = lines().map(|(test, _)| test).collect();
    assert!(!left_out.is_empty());
    assert_eq!(left_out.len(), lines().count(), "a test is listed twice");
    for (test, guards) in lines() {
        assert!(exists(test), "{test} is no test");
        assert!(!guards.is_empty(), "nothing guards the promise of {test}");
        for guard in guards {
            assert!(exists(guard), "{guard}, which guards {test}, is no test");
            assert!(
                !left_out.contains(guard),
                "{guard}, which guards {test}, is left out too"
            );
        }
    }
}
