//! The mutants that no test finds (`tests/mutants.list`): each is of a file that exists and has a reason, and
//! what is mutated exists.

use std::path::Path;

const LIST: &str = include_str!("mutants.list");

const SCRIPT: &str = include_str!("mutants.py");

fn exists(path: &str) -> bool {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(path)
        .exists()
}

#[test]
fn mutant_that_no_test_finds_is_of_a_file_and_has_a_reason() {
    let lines = LIST.lines().filter(|line| !line.starts_with('#'));
    let mut lines = lines.filter(|line| !line.is_empty()).peekable();
    while let Some(mutant) = lines.next() {
        let (file, change) = mutant.split_once(": ").unwrap_or((mutant, ""));
        assert!(exists(file), "{file} is no file");
        assert!(!change.is_empty(), "{mutant} names no change");
        let mut reason = 0;
        while let Some(line) = lines.next_if(|line| line.starts_with(' ')) {
            reason += line.trim().len();
        }
        assert!(reason > 0, "{mutant} has no reason");
    }
}

#[test]
fn files_that_are_mutated_exist() {
    let (_, scope) = SCRIPT.split_once("\nSCOPE = {").expect("the scope");
    let (scope, _) = scope.split_once("\n}\n").expect("its end");
    let words = scope.split('"').skip(1).step_by(2);
    let mut files = 0;
    for word in words {
        let path = match word {
            _ if word.starts_with("saltern-") || word.contains('{') => continue,
            _ if word.starts_with("src/") => word.trim_end_matches("/**").to_owned(),
            _ => format!("src/requests/src/{word}.rs"),
        };
        assert!(exists(&path), "{path} is mutated and does not exist");
        files += 1;
    }
    assert!(files > 3);
}
