//! `make demo`: real results on screen, a master left running, and a clean end.
//!
//! How long it took is printed by the demo itself; a shared machine makes any bound here a lie.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;
use saltern_tests::process::{Run, run};
use saltern_tests::release::saltern_program;
use saltern_tests::site::SOON;
use saltern_tests::{TestResult, wait_until};

#[test]
fn the_demo_shows_results_and_leaves_a_running_master() -> TestResult {
    Ok(demo()?)
}

/// `make grafana`, without Grafana: every query of every dashboard has an answer from a real
/// Prometheus, and every metric of the master is on a panel.
#[test]
fn no_panel_is_empty_after_a_demo() -> TestResult {
    let _turn = ONE_AT_A_TIME.lock();
    let directory = tempfile::Builder::new().prefix("slt-").tempdir_in("/tmp")?;
    let demo = Demo(directory.path());
    demo.watched("run.sh", &["start"])?.expect_code(0)?;
    let checked = demo.watched("check.py", &["--live"])?;
    demo.watched("run.sh", &["stop"])?.expect_code(0)?;
    checked.expect_code(0)?.expect_text("all is well")?;
    Ok(())
}

fn demo() -> Result<()> {
    let _turn = ONE_AT_A_TIME.lock();
    let directory = tempfile::Builder::new().prefix("slt-").tempdir_in("/tmp")?;
    let demo = Demo(directory.path());
    let start = demo.script("start")?;
    start.expect_code(0)?;
    for minion in ["alfa", "bravo", "charlie"] {
        start.expect_text(&format!("{minion}:\n    True"))?;
    }
    start.expect_text("make demo-stop")?;
    expect_console(&start.stdout)?;

    let mut command = Command::new(saltern_program());
    command.args(["cmd", "-c"]).arg(demo.0.join("conf"));
    command.args(["bravo", "test.echo", "still here"]);
    run(&mut command, SOON)?
        .expect_code(0)?
        .expect_text("bravo:\n    still here")?;

    let started = demo.processes()?;
    ensure!(
        started.len() == 4,
        "a master and three minions were started, not {started:?}"
    );
    demo.script("stop")?.expect_code(0)?;
    let gone = |pid: &String| !Path::new("/proc").join(pid).exists();
    wait_until("the demo's processes to end", SOON, || {
        started.iter().all(gone).then_some(())
    })?;
    demo.script("stop")?
        .expect_code(1)?
        .expect_text("nothing is running")?;
    Ok(())
}

/// The console has the address, the user and the password that were printed.
fn expect_console(printed: &str) -> Result<()> {
    let mut lines = printed.lines();
    let line = lines.find_map(|line| line.strip_prefix("The console: "));
    let line = line.context("the demo prints no console")?;
    let (console, credentials) = line.split_once(' ').context("an address alone")?;
    let page = ureq::get(format!("{console}login")).call()?;
    ensure!(page.status() == 200, "{console}: {}", page.status());
    let password = credentials.strip_prefix("(user demo, password ");
    let password = password.and_then(|rest| rest.strip_suffix(')'));
    let password = password.context("no user and password")?;
    let log_in = console.replace("/console/", "/login");
    let form = format!("username=demo&password={password}&eauth=file");
    let answer = ureq::post(log_in)
        .header("content-type", "application/x-www-form-urlencoded")
        .header("accept", "application/json")
        .send(form)?;
    ensure!(answer.status() == 200, "log-in: {}", answer.status());
    Ok(())
}

/// The demo looks for free ports before it takes them: two at once may find the same.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

struct Demo<'a>(&'a Path);

impl Demo<'_> {
    fn script(&self, verb: &str) -> Result<Run> {
        self.run("packaging/demo.sh", &[verb])
    }

    fn watched(&self, script: &str, arguments: &[&str]) -> Result<Run> {
        self.run(&format!("grafana/{script}"), arguments)
    }

    fn run(&self, script: &str, arguments: &[&str]) -> Result<Run> {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut command = Command::new(repository.join(script));
        command
            .args(arguments)
            .env("DEMO", self.0)
            .env("SCRAPE", "1s")
            .env("SALTERN", saltern_program());
        run(&mut command, SOON * 3)
    }

    fn processes(&self) -> Result<Vec<String>> {
        std::fs::read_to_string(self.0.join("pids"))?
            .lines()
            .map(|line| {
                let pid = line
                    .split_whitespace()
                    .next()
                    .context("a line begins with a number")?;
                Ok(pid.to_owned())
            })
            .collect()
    }
}

impl Drop for Demo<'_> {
    fn drop(&mut self) {
        if self.0.join("watch-pids").exists() {
            self.watched("run.sh", &["stop"]).ok();
        }
        if self.0.join("pids").exists() {
            self.script("stop").ok();
        }
    }
}
