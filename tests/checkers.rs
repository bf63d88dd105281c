//! Runs the self-checks of checkers in Python that others trust: of the checker and of the reader of stock's logs of `make chaos`, and of the advisories of
//! `make vet`. A violation of each kind is planted and found.

use std::path::Path;
use std::process::Command;

fn assert_passes(checker: &str, arguments: &[&str]) {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new("python3");
    command.arg(tests.join(checker)).args(arguments);
    let ran = command.output().expect("python3 runs");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{checker}: {said}");
}

#[test]
fn checker_of_chaos_finds_each_planted_violation() {
    for checker in ["bench/chaos_history.py", "bench/chaos_stock.py"] {
        assert_passes(checker, &[]);
    }
}

#[test]
fn checker_of_advisories_finds_each_planted_violation() {
    assert_passes("advisories.py", &["--self-check"]);
}
