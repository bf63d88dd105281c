//! Helpers for the tests of this crate.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Makes a shell script a program at `path`, by a process of its own: a program that was open for writing here could
/// not be started ("text file busy") while a child that another test began meanwhile still has it.
pub(crate) fn install(path: &Path, script: &str) {
    let draft = path.with_extension("draft");
    fs::write(&draft, format!("#!/bin/sh\n{script}\n")).expect("it can be written");
    let installed = Command::new("install")
        .args(["-m", "755"])
        .args([draft.as_path(), path])
        .status();
    assert!(installed.expect("it can be run").success());
}
