//! Runs the self-checks of the checker and of the reader of stock's logs that `make chaos` trusts: a violation of each kind is planted and found.

use std::path::Path;
use std::process::Command;

#[test]
fn checker_of_chaos_finds_each_planted_violation() {
    for checker in ["chaos_history.py", "chaos_stock.py"] {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut command = Command::new("python3");
        command.arg(tests.join("bench").join(checker));
        let ran = command.output().expect("python3 runs");
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{checker}: {said}");
    }
}
