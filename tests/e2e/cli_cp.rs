//! `salt-cp`, stock's beside ours, to a stock minion: standard output, exit code, and the files with
//! their modes are equal.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use saltern_tests::process::run;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Release, Server, Site, TestResult};

/// The command lines; `SRC` and `DEST` are directories of the site.
const LINES: &[&[&str]] = &[
    &["*", "SRC/text", "DEST/renamed"],
    &["*", "SRC/text", "SRC/other", "DEST"],
    &["*", "SRC/text", "DEST/none/such"],
    &["*", "SRC/tree", "DEST"],
    &["-C", "*", "SRC/tree", "SRC/text", "DEST"],
    &["-C", "m1", "SRC/large", "DEST/large"],
    &["-C", "-n", "m1", "SRC/large", "DEST/plain"],
    &["-C", "-L", "m1,ghost", "SRC/empty", "DEST/"],
    &["-C", "*", "SRC/none", "DEST"],
    &["-C", "nobody", "SRC/text", "DEST"],
    &["nobody", "SRC/text", "DEST"],
    &["-C", "--out=json", "*", "SRC/text", "DEST/json"],
    &["*"],
    &["-E", "-L", "*", "SRC/text", "DEST"],
];

#[test]
fn salt_cp_copies_what_stock_copies() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |_| {},
        |site| {
            site.bring_up(&[("m1", MinionKind::Stock(Release::V3008))])?;
            prepare(&site.path("source"))?;
            let mut differences = Vec::new();
            for line in LINES {
                let mut seen = Vec::new();
                for is_ours in [false, true] {
                    let target = site.path("target");
                    fs::create_dir_all(&target)?;
                    seen.push(copied(site, line, is_ours)?);
                    fs::remove_dir_all(&target)?;
                }
                if seen.first() != seen.last() {
                    differences.push(seen.join("\nours:\n"));
                }
            }
            ensure!(differences.is_empty(), "{}", differences.join("\n\n"));
            Ok(())
        },
    )
}

fn prepare(source: &Path) -> Result<()> {
    fs::create_dir_all(source.join("tree/sub/none"))?;
    let large: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    for (name, content, mode) in [
        ("text", &b"one\ntwo\n"[..], 0o644),
        ("other", b"three\n", 0o600),
        ("empty", b"", 0o640),
        ("tree/script", b"#!/bin/sh\n", 0o755),
        ("tree/sub/deep", b"deep\n", 0o644),
        ("large", &large, 0o640),
    ] {
        let path = source.join(name);
        fs::write(&path, content)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// What the command printed, and what is at the target then.
fn copied(site: &Site, line: &[&str], is_ours: bool) -> Result<String> {
    let (source, target) = (site.path("source"), site.path("target"));
    let text = |path: &Path| path.display().to_string();
    let words = line.iter().map(|word| word.replace("SRC", &text(&source)));
    let words: Vec<String> = words
        .map(|word| word.replace("DEST", &text(&target)))
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut command = match is_ours {
        true => site.own_command("salt-cp", &words),
        false => site.stock_command("salt-cp", &words),
    };
    let run = run(&mut command, SOON * 2)?;
    let mut left = Vec::new();
    walk(&target, &mut left)?;
    left.sort();
    // The help is worded otherwise.
    let stdout = run
        .stdout
        .lines()
        .filter(|_| !run.stdout.starts_with("Usage"));
    // What is left of a job id without its digits.
    let stdout = stdout.map(
        |line| match line.trim_start().starts_with("salt-run jobs") {
            true => line.trim_end_matches(|letter: char| letter.is_ascii_digit()),
            false => line,
        },
    );
    let stdout: Vec<&str> = stdout.collect();
    Ok(format!(
        "{line:?}\ncode {:?}\n{}\n{}",
        run.code,
        stdout.join("\n"),
        left.join("\n")
    ))
}

fn walk(path: &Path, left: &mut Vec<String>) -> Result<()> {
    for entry in fs::read_dir(path)? {
        let path = entry?.path();
        let about = fs::metadata(&path)?;
        let content = match about.is_dir() {
            true => "a directory".to_owned(),
            false => format!("{} bytes, sum {}", about.len(), sum(&fs::read(&path)?)),
        };
        let name = path
            .file_name()
            .context("an entry has a name")?
            .to_string_lossy()
            .into_owned();
        left.push(format!("{name} {:o} {content}", about.permissions().mode()));
        if about.is_dir() {
            walk(&path, left)?;
        }
    }
    Ok(())
}

fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |sum: u64, byte| {
        sum.wrapping_mul(31).wrapping_add(u64::from(*byte))
    })
}
