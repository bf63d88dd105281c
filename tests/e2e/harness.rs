//! The harness itself: what it promises to a machine on which a run of the tests is killed.

use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use saltern_tests::process::peer;
use saltern_tests::site::SOON;
use saltern_tests::{Daemon, TestResult, wait_until};

#[test]
fn reaper_ends_the_groups_that_were_not_taken_back() -> TestResult {
    Ok(reap()?)
}

fn reap() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let start = || {
        let mut command = Command::new("sleep");
        Daemon::start("sleep", command.arg("600"), &dir.path().join("out"))
    };
    let (mut left, mut ended) = (start()?, start()?);
    let mut reaper = Command::new("sh")
        .arg(peer("reaper.sh"))
        .stdin(Stdio::piped())
        .spawn()?;
    let mut lines = reaper.stdin.take().context("stdin is piped")?;
    writeln!(lines, "+{}\n+{}\n-{}", left.id(), ended.id(), ended.id())?;
    drop(lines);
    ensure!(reaper.wait()?.success());
    let status = wait_until("the group to be ended", SOON, || left.ended())?;
    ensure!(status.signal() == Some(9), "{status}");
    ensure!(ended.ended().is_none(), "it was taken back");
    Ok(())
}
