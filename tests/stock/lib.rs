//! Shared parts of the tests of all crates: stock Salt, where it is installed, and a script's
//! answers to questions there; no test passes over a stock that is missing. And servers with TLS, and keys.
//!
//! `tests/install-stock.sh` installs each release into an environment of its own, below
//! `~/.cache/saltern/stock` or the directory that `SALTERN_STOCK` names. `SALTERN_STOCK_PYTHON`
//! names the interpreter of another environment with the newest of them.

pub mod databases;
pub mod keys;
pub mod tls;

use std::env;
use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

/// The release that most comparisons are with.
pub const NEWEST: &str = "3008.3";

/// A program of a release.
///
/// # Panics
/// When the release is not installed.
pub fn program(release: &str, name: &str) -> PathBuf {
    installed(release, environments().join(release).join("bin").join(name))
}

/// The interpreter of the environment with a release.
///
/// # Panics
/// When the release is not installed.
pub fn python(release: &str) -> PathBuf {
    match env::var_os("SALTERN_STOCK_PYTHON").filter(|_| release == NEWEST) {
        Some(python) => installed(release, python.into()),
        None => program(release, "python"),
    }
}

/// The directory with the environments of all releases.
///
/// # Panics
/// When neither `SALTERN_STOCK` nor `HOME` is set.
pub fn environments() -> PathBuf {
    env::var_os("SALTERN_STOCK").map_or_else(
        || {
            let home = env::var_os("HOME").expect("HOME is set");
            Path::new(&home).join(".cache/saltern/stock")
        },
        PathBuf::from,
    )
}

fn installed(release: &str, program: PathBuf) -> PathBuf {
    assert!(
        program.exists(),
        "stock Salt {release} is needed, and \"{}\" is missing: run tests/install-stock.sh, or set \
         SALTERN_STOCK to the directory of its environments",
        program.display()
    );
    program
}

/// Output of a script that reads a question from its input.
///
/// # Panics
/// When the release is not installed, or the script fails; its complaints are reported.
pub fn answer(release: &str, script: impl AsRef<Path>, question: &str) -> Vec<u8> {
    answer_with(release, script, question, &[])
}

/// The same, with more variables in its environment.
///
/// # Panics
/// As [`answer`].
pub fn answer_with(
    release: &str,
    script: impl AsRef<Path>,
    question: &str,
    environment: &[(&str, &OsStr)],
) -> Vec<u8> {
    let mut child = Command::new(python(release))
        .arg(script.as_ref())
        .envs(environment.iter().copied())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("stock's Python starts");
    let mut input = child.stdin.take().expect("it is a pipe");
    let output = thread::scope(|scope| {
        // A script may end without reading all of it; then it has failed, which is reported below.
        scope.spawn(move || input.write_all(question.as_bytes()));
        child.wait_with_output().expect("stock's Python ends")
    });
    assert!(
        output.status.success(),
        "stock's side failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}
