//! Runs the self-check of the checker that `make chaos` trusts: a violation of each kind is planted and found.

use std::path::Path;
use std::process::Command;

#[test]
fn checker_of_chaos_finds_each_planted_violation() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut checker = Command::new("python3");
    checker.arg(tests.join("bench/chaos_history.py"));
    let ran = checker.output().expect("python3 runs");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
}
