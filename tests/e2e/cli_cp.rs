//! `salt-cp`, stock's beside ours, to stock minions: standard output, exit code, and the files with
//! their modes are equal. `saltern cp`, which copies both ways, with its bar on a terminal.
//!
//! Both minions write on this machine, so what goes to both is a file as small as one part: two minions
//! that make the same directory at the same moment get an error of the system.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use saltern_tests::config::Config;
use saltern_tests::process::run;
use saltern_tests::release::saltern_program;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::terminal::Terminal;
use saltern_tests::{Release, Server, Site, TestResult};

/// The command lines; `SRC` and `DEST` are directories of the site.
const LINES: &[&[&str]] = &[
    &["*", "SRC/text", "DEST/renamed"],
    &["*", "SRC/text", "SRC/other", "DEST"],
    &["*", "SRC/text", "DEST/none/such"],
    &["m2", "SRC/tree", "DEST"],
    &["-C", "m1", "SRC/tree", "SRC/text", "DEST"],
    &["-C", "m1", "SRC/large", "DEST/large"],
    &["-C", "-n", "m1", "SRC/large", "DEST/plain"],
    &["-C", "-L", "m1,ghost", "SRC/empty", "DEST/"],
    &["-C", "*", "SRC/none", "DEST"],
    &["-C", "nobody", "SRC/text", "DEST"],
    &["nobody", "SRC/text", "DEST"],
    &["-C", "--out=json", "m1", "SRC/text", "DEST/json"],
    &["-C", "m2", "SRC/tree", "DEST/none/such/"],
    &["-C", "-L", "m1,m2", "SRC/text", "SRC/text", "DEST"],
    &["-C", "*", "SRC/text", "/sys/none"],
    &["*", "SRC/text", "/sys/none"],
    &["-C", "m1", "SRC/tree/sub/none", "SRC/text/none"],
    &["m2", "SRC/bytes", "DEST/bytes"],
    &["-C", "m2", "SRC/bytes", "DEST/bytes"],
    &["-C", "-n", "m2", "SRC/empty", "DEST/empty"],
    &["-G", "role:none", "SRC/text", "DEST"],
    &["-N", "pair", "-C", "SRC/text", "DEST"],
    &["--out=yaml", "m1", "SRC/text", "DEST"],
    &["*"],
    &["-E", "-L", "*", "SRC/text", "DEST"],
];

/// With a minion that is accepted and was never there.
const SILENT_LINES: &[&[&str]] = &[
    &["-t", "20", "-E", "m[13]", "SRC/text", "DEST/silent"],
    &["-t", "20", "-C", "-L", "m2,m3", "SRC/text", "DEST/silent"],
];

#[test]
fn salt_cp_copies_what_stock_copies() -> TestResult {
    Site::run(Server::Saltern(Release::V3008), configure, |site| {
        bring_up(site, SEVERAL_PARTS)?;
        let mut pairs = Vec::new();
        for line in LINES {
            let target = site.path("target");
            pairs.push([
                copied(site, line, false, &target)?,
                copied(site, line, true, &target)?,
            ]);
        }
        site.accept_beforehand("m3")?;
        pairs.extend(copied_at_once(site, SILENT_LINES)?);
        let differing = pairs.iter().filter(|[stock, ours]| stock != ours);
        let differences: Vec<String> = differing.map(|pair| pair.join("\nours:\n")).collect();
        ensure!(differences.is_empty(), "{}", differences.join("\n\n"));
        Ok(())
    })
}

/// Outcomes of each line with stock's command and with ours, all of them at once, each with a target of
/// its own: they do little but wait.
fn copied_at_once(site: &Site, lines: &[&[&str]]) -> Result<Vec<[String; 2]>> {
    let with = |number: usize, is_ours: bool| {
        let target = site.path(format!("target-{number}-{is_ours}"));
        copied(site, lines[number], is_ours, &target)
    };
    std::thread::scope(|scope| {
        let with = &with;
        let runs: Vec<_> = (0..lines.len())
            .map(|number| [false, true].map(|is_ours| scope.spawn(move || with(number, is_ours))))
            .collect();
        let mut pairs = Vec::new();
        for pair in runs {
            let [stock, ours] = pair.map(|run| run.join().expect("a comparison does not panic"));
            pairs.push([stock?, ours?]);
        }
        Ok(pairs)
    })
}

fn configure(config: &mut Config) {
    config
        .set("timeout", 30)
        .set("gather_job_timeout", 10)
        .set("nodegroups", "{pair: 'm1,m2'}");
}

/// Numbers of four bytes in the large file: enough for several parts, compressed or not.
const SEVERAL_PARTS: u32 = 120_000;

/// As many as show a bar for a while.
const MANY_PARTS: u32 = 300_000;

/// Two stock minions, and what is copied, with so many numbers in the large file.
fn bring_up(site: &mut Site, numbers: u32) -> Result<()> {
    let stock = MinionKind::Stock(Release::V3008);
    site.bring_up(&[("m1", stock), ("m2", stock)])?;
    prepare(&site.path("source"), numbers)
}

/// Both ways, with exit codes that say whether all was copied.
#[test]
fn saltern_cp_copies_both_ways() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |config| {
            configure(config);
            config.set("file_recv", true);
        },
        |site| {
            bring_up(site, MANY_PARTS)?;
            site.accept_beforehand("m3")?;
            let source = |name: &str| site.path("source").join(name).display().to_string();
            let target = site.path("target");
            fs::create_dir_all(&target)?;
            let to = |name: &str| target.join(name).display().to_string();

            site.step("to minions: a directory, with its modes");
            let run = site.saltern(&["cp", "m2", &source("tree"), &to("")])?;
            run.expect_code(0)?.expect_text("m2:")?;
            ensure!(run.stderr.is_empty(), "{run}");
            ensure!(
                seen(&target)? == seen_below(&site.path("source"), "tree")?,
                "{run}"
            );

            site.step("to minions: one does not answer, one cannot write");
            let run = site.saltern(&[
                "cp",
                "-t",
                "20",
                "-L",
                "m1,m3",
                &source("text"),
                &to("silent"),
            ])?;
            run.expect_code(1)?.expect_text("Minion did not return")?;
            ensure!(Path::new(&to("silent")).is_file(), "{run}");
            let run = site.saltern(&["cp", "m1", &source("text"), "/sys/none"])?;
            run.expect_code(1)?.expect_text("ermission denied")?;
            let run = site.saltern(&["cp", "nobody", &source("text"), "/tmp/none"])?;
            run.expect_code(1)?
                .expect_text("No minions matched the target")?;
            let run = site.saltern(&["cp", "m1", &source("none"), "/tmp/none"])?;
            run.expect_code(42)?.expect_text("none does not exist")?;

            site.step("from minions: a file, a link to it, a directory, to a place of each minion");
            std::os::unix::fs::symlink(source("text"), source("link"))?;
            let here = site.path("fetched").display().to_string();
            let sources = [
                source("text"),
                source("link"),
                source("tree"),
                source("large"),
            ];
            let mut words = vec!["cp", "--fetch", "m[12]"];
            words.extend(sources.iter().map(String::as_str));
            words.push(&here);
            site.saltern(&words)?.expect_code(0)?;
            for minion in ["m1", "m2"] {
                let below = site.path("fetched").join(minion);
                for name in ["text", "link", "tree/script", "tree/sub/deep", "large"] {
                    let fetched = fs::read(below.join(source(name).trim_start_matches('/')));
                    let fetched = fetched.with_context(|| format!("{name} of {minion}"))?;
                    ensure!(fetched == fs::read(source(name))?, "{name} of {minion}");
                }
                let pushed = site.path("cache/minions").join(minion).join("files");
                ensure!(
                    fs::read_dir(pushed)?.next().is_none(),
                    "something stays of {minion}"
                );
            }

            site.step("from minions: into the cache; what is not there; who does not answer");
            site.saltern(&["cp", "--fetch", "m1", &source("other")])?
                .expect_code(0)?;
            let cached = site.path("cache/minions/m1/files");
            ensure!(
                cached
                    .join(source("other").trim_start_matches('/'))
                    .is_file()
            );
            let run = site.saltern(&["cp", "--fetch", "m1", "/no/such", &here])?;
            run.expect_code(1)?.expect_text("there is no such file")?;
            let run = site.saltern(&[
                "cp",
                "--fetch",
                "-t",
                "20",
                "-L",
                "m2,m3",
                &source("text"),
                &here,
            ])?;
            run.expect_code(1)?.expect_text("Minion did not return")?;
            let run = site.saltern(&["cp", "--fetch", "m1", "relative", &here])?;
            run.expect_code(1)?.expect_text("no absolute path")?;

            site.step("on a terminal: a bar, which is gone at the end");
            let conf = site.path("conf").display().to_string();
            let words = ["cp", "-c", &conf, "m1", &source("large"), &to("large")];
            let mut bar = Terminal::start(&saltern_program(), words)?;
            ensure!(bar.end()?.code() == Some(0), "{}", bar.screen());
            bar.wait_for(&["m1:", "True"])?;
            let (raw, screen) = (bar.raw(), bar.screen());
            ensure!(
                raw.contains("large [") && raw.contains("of 1.14 MiB"),
                "{raw}"
            );
            ensure!(!screen.contains("MiB"), "{screen}");
            Ok(())
        },
    )
}

/// Entries below a directory, with modes, sorted.
fn seen(directory: &Path) -> Result<Vec<String>> {
    let mut seen = Vec::new();
    walk(directory, &mut seen)?;
    seen.sort();
    Ok(seen)
}

/// The same for one entry of it alone.
fn seen_below(directory: &Path, name: &str) -> Result<Vec<String>> {
    let mut seen = Vec::new();
    let path = directory.join(name);
    seen.push(format!(
        "{name} {:o} a directory",
        fs::metadata(&path)?.permissions().mode()
    ));
    walk(&path, &mut seen)?;
    seen.sort();
    Ok(seen)
}

fn prepare(source: &Path, numbers: u32) -> Result<()> {
    fs::create_dir_all(source.join("tree/sub/none"))?;
    let large: Vec<u8> = (0..numbers).flat_map(u32::to_le_bytes).collect();
    for (name, content, mode) in [
        ("text", &b"one\ntwo\n"[..], 0o644),
        ("other", b"three\n", 0o600),
        ("empty", b"", 0o640),
        ("bytes", b"\xff\xfe no text\n", 0o644),
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

/// Output of the command, and the entries at the target afterwards, which is removed.
fn copied(site: &Site, line: &[&str], is_ours: bool, target: &Path) -> Result<String> {
    fs::create_dir_all(target)?;
    let source = site.path("source");
    let text = |path: &Path| path.display().to_string();
    let words = line.iter().map(|word| word.replace("SRC", &text(&source)));
    let words: Vec<String> = words
        .map(|word| word.replace("DEST", &text(target)))
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut command = match is_ours {
        true => site.own_command("salt-cp", &words),
        false => site.stock_command("salt-cp", &words),
    };
    let run = run(&mut command, SOON * 2)?;
    let left = seen(target)?;
    fs::remove_dir_all(target)?;
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
        stdout.join("\n").replace(&text(target), "DEST"),
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
