//! The tests that `make test` leaves to `make test-all` (`tests/tiers.list`): each named test
//! exists, and its promise is guarded by tests that `make test` runs.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const LIST: &str = include_str!("tiers.list");

/// The lines of the list: a test that is left out, and its guards.
fn lines() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    let lines = LIST.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        Some((words.next()?, words.collect()))
    })
}

/// Whether the end-to-end test binary has a test of this name.
fn exists(test: &str) -> bool {
    let Some((module, function)) = test.rsplit_once("::") else {
        return false;
    };
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("e2e")
        .join(format!("{}.rs", module.replace("::", "/")));
    let text = fs::read_to_string(file).unwrap_or_default();
    text.contains(&format!("#[test]\nfn {function}()"))
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
