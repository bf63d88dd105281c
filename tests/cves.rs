//! The table of published faults (`docs/cve.md`) against the tests, both ways: each test that bears the
//! number of a CVE has its row, and each row names tests that are there, or says why it has none.

use std::collections::{BTreeMap, BTreeSet};

use crate::words::sources;

const PAGE: &str = "docs/cve.md";

/// Words with which a row without a test may begin to say how we stand.
const NOT_OURS: [&str; 5] = ["minion", "salt-ssh", "salt-cloud", "package", "–"];

/// The rows: the number, how we stand, and the tests.
fn rows() -> Vec<(String, String, Vec<String>)> {
    let pages = sources(&["md"]);
    let page = pages.iter().find(|(name, _)| name == PAGE);
    let (_, page) = page.expect("git knows the page");
    let rows = page.lines().filter(|line| line.starts_with("| CVE-"));
    rows.map(|row| {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, number, _, standing, tests, _] = cells.as_slice() else {
            panic!("a row of four cells: {row}");
        };
        let tests = tests.split('`').skip(1).step_by(2);
        let tests = tests.map(str::to_owned).collect();
        ((*number).to_owned(), (*standing).to_owned(), tests)
    })
    .collect()
}

/// The names of all tests, with how often each is there.
fn tests() -> BTreeMap<String, usize> {
    let mut tests = BTreeMap::new();
    for (_, source) in sources(&["rs"]) {
        for parts in source.split("test]\n").skip(1) {
            let line = parts.lines().find(|line| line.contains("fn "));
            let name = line.and_then(|line| line.split("fn ").nth(1));
            if let Some((name, _)) = name.and_then(|name| name.split_once('(')) {
                *tests.entry(name.to_owned()).or_default() += 1;
            }
        }
    }
    tests
}

/// `CVE-2020-11651` of `cve_2020_11651_methods_are_no_commands`.
fn number_of(test: &str) -> Option<String> {
    let mut parts = test.strip_prefix("cve_")?.split('_');
    Some(format!("CVE-{}-{}", parts.next()?, parts.next()?))
}

#[test]
fn table_of_published_faults_names_each_test() {
    let (rows, tests) = (rows(), tests());
    let numbers: BTreeSet<&str> = rows.iter().map(|(number, ..)| number.as_str()).collect();
    assert_eq!(numbers.len(), rows.len(), "a number has two rows");
    assert!(rows.len() > 60, "only {} rows", rows.len());
    let mut wrong = Vec::new();
    for (number, standing, named) in &rows {
        let is_ours = !NOT_OURS.iter().any(|word| standing.starts_with(word));
        if named.is_empty() && is_ours {
            wrong.push(format!("{number} has no test"));
        }
        for test in named {
            if tests.get(test) != Some(&1) {
                wrong.push(format!("{number}: \"{test}\" is not one test"));
            }
            if number_of(test).is_some_and(|of| of != *number) {
                wrong.push(format!("{number}: \"{test}\" is of another one"));
            }
        }
    }
    let named: BTreeSet<&String> = rows.iter().flat_map(|(.., named)| named).collect();
    for test in tests.keys().filter(|test| number_of(test).is_some()) {
        if !named.contains(test) {
            wrong.push(format!("\"{test}\" is not in the table"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
