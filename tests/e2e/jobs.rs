//! Long jobs: which minions run them, which are lost and why, the output of stock's command line,
//! and a restart of the master meanwhile.

use std::fs;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use saltern_tests::events::Event;
use saltern_tests::process::{Run, run};
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Release, Server, Site, TestResult, until_exists, wait_until};
use serde_json::json;

const M3006: &str = "m3006";
const M3007: &str = "m3007";
const M3008: &str = "m3008";

fn three() -> [(&'static str, MinionKind); 3] {
    [
        (M3006, MinionKind::Stock(Release::V3006)),
        (M3007, MinionKind::Stock(Release::V3007)),
        (M3008, MinionKind::Stock(Release::V3008)),
    ]
}

/// The job whose announcement names this function.
fn jid_of(site: &Site, mark: usize, fun: &str) -> Result<String> {
    site.events()
        .find_since(mark, &format!("the job {fun}"), SOON, |event| {
            let is_new = event.tag.starts_with("salt/job/") && event.tag.ends_with("/new");
            (is_new && event.data["fun"] == fun)
                .then(|| event.data["jid"].as_str().map(str::to_owned))
                .flatten()
        })
}

/// Waits for a verdict on a minion of a job, from this mark on.
fn verdict(site: &Site, mark: usize, jid: &str, minion: &str, words: &[&str]) -> Result<()> {
    let tag = format!("saltern/job/{jid}/verdict");
    site.events()
        .find_since(mark, &format!("{minion} to be {words:?}"), SOON, |event| {
            let said = event.data["minions"][minion]["verdict"].as_str();
            (event.tag == tag && said.is_some_and(|said| words.contains(&said))).then_some(())
        })
}

fn finished(site: &Site, mark: usize, jid: &str) -> Result<Event> {
    let tag = format!("saltern/job/{jid}/finished");
    site.events()
        .find_since(mark, "the end of the job", SOON, |event| {
            (event.tag == tag).then(|| event.clone())
        })
}

/// Stock's `salt`, which may take its time.
fn salt(site: &Site, arguments: &[&str]) -> Result<Run> {
    run(&mut site.stock_command("salt", arguments), SOON * 2)
}

/// A number that the master counts.
fn metric(site: &Site, name: &str) -> Result<u64> {
    let run = site.saltern(&["metrics"])?;
    let line = run.stdout.lines().find(|line| {
        line.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with(' '))
    });
    let number = line.and_then(|line| line.rsplit(' ').next());
    let number = number.with_context(|| format!("no {name} in {}", run.stdout))?;
    number.parse().context("a whole number")
}

/// The functions of all jobs in the database, read by another program than ours.
fn stored_functions(site: &Site) -> Result<Vec<String>> {
    let script = "import sqlite3, sys, json\n\
                  rows = sqlite3.connect(sys.argv[1]).execute('SELECT fun FROM jobs')\n\
                  print(json.dumps([row[0] for row in rows]))";
    let mut python = std::process::Command::new(Release::V3008.program("python"));
    python.args(["-c", script]);
    python.arg(site.path("cache/saltern/jobs.sqlite"));
    let run = run(&mut python, SOON)?;
    run.expect_code(0)?;
    Ok(serde_json::from_str(&run.stdout)?)
}

fn no_question_is_stored(site: &Site) -> Result<()> {
    let functions = stored_functions(site)?;
    let questions = ["saltutil.find_job", "saltutil.running"];
    let is_question = |fun: &String| questions.contains(&fun.as_str());
    ensure!(!functions.iter().any(is_question), "stored: {functions:?}");
    Ok(())
}

/// Each command line with the bus and the events of its own version.
fn long_jobs_as_seen_by(release: Release) -> TestResult {
    Site::run(
        Server::Saltern(release),
        |config| {
            config.set("timeout", 3);
        },
        |site| {
            site.bring_up(&three())?;
            site.step("a job that outlives its timeout, seen by its command line");
            let mark = site.events().mark();
            let go = site.path("go");
            let held = format!("{}; echo done", until_exists(&go));
            let mut command = site.stock_command("salt", &["-t", "3", "*", "cmd.run", &held]);
            let job = std::thread::spawn(move || run(&mut command, SOON * 2));
            let mut counts = (0, 0);
            let polled = wait_until("the command to poll all three", SOON, || {
                let polls = metric(site, "saltern_polls_answered_total").ok()?;
                counts = (polls, metric(site, "saltern_poll_answers_total").ok()?);
                (counts.0 > 0 && counts.1 >= 3).then_some(())
            });
            polled.with_context(|| format!("polls and answers: {counts:?}"))?;
            fs::write(&go, "")?;
            let run = job.join().expect("running a command does not panic")?;
            run.expect_code(0)?;
            for minion in [M3006, M3007, M3008] {
                run.expect_text(&format!("{minion}:\n    done"))?;
            }
            let jid = jid_of(site, mark, "cmd.run")?;
            let end = finished(site, mark, &jid)?;
            ensure!(end.data["state"] == "complete", "{end:?}");
            for list in ["failed", "unreachable", "unknown", "awaited"] {
                let names = &end.data[list];
                let is_empty = *names == json!([]) || *names == json!({});
                ensure!(is_empty, "{list}: {names}");
            }

            site.step("one of them is frozen, and another one dead");
            // Not the one of 3007: that line loses returns of its own when it has to connect anew.
            let frozen = Frozen::new(site.minion(M3006)?.id())?;
            site.kill_minion(M3008);
            let mark = site.events().mark();
            let run = salt(site, &["-t", "3", "*", "test.ping"])?;
            run.expect_code(1)?;
            run.expect_text(&format!("{M3007}:\n    True"))?;
            for minion in [M3006, M3008] {
                run.expect_text(&format!("{minion}:\n    Minion did not return."))?;
            }
            let jid = jid_of(site, mark, "test.ping")?;
            verdict(site, mark, &jid, M3006, &["unknown"])?;
            // They share an address: while the frozen one does not say which connection is its own,
            // the master may not know which of the two is gone.
            verdict(site, mark, &jid, M3008, &["unreachable", "unknown"])?;
            drop(frozen);
            site.step(
                "the frozen one comes back: its return is late, or it is seen at work before",
            );
            verdict(site, mark, &jid, M3006, &["late", "back"])?;
            site.events()
                .tag(&format!("salt/job/{jid}/ret/{M3006}"), SOON)?;
            no_question_is_stored(site)
        },
    )
}

/// A stopped process (`SIGSTOP`), continued when this is dropped.
struct Frozen(Pid);

impl Frozen {
    fn new(id: u32) -> Result<Self> {
        let group = i32::try_from(id).ok().and_then(Pid::from_raw);
        let group = group.context("a process id")?;
        kill_process_group(group, Signal::STOP)?;
        Ok(Self(group))
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // Its test still holds the program, so the number is still its own.
        kill_process_group(self.0, Signal::CONT).ok();
    }
}

#[test]
fn long_jobs_as_seen_by_3006() -> TestResult {
    long_jobs_as_seen_by(Release::V3006)
}

#[test]
fn long_jobs_as_seen_by_3007() -> TestResult {
    long_jobs_as_seen_by(Release::V3007)
}

#[test]
fn long_jobs_as_seen_by_3008() -> TestResult {
    long_jobs_as_seen_by(Release::V3008)
}

#[test]
fn a_job_in_the_middle_of_which_the_master_is_killed_goes_on() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |_| {},
        |site| {
            site.bring_up(&three())?;
            let mark = site.events().mark();
            // However long the restart takes, the job is open then.
            let (begun, go) = (site.path("begun"), site.path("go"));
            let held = until_exists(&go);
            let command = format!("echo 1 >>{}; {held}; echo done", begun.display());
            salt(site, &["--async", "*", "cmd.run", &command])?.expect_code(0)?;
            let jid = jid_of(site, mark, "cmd.run")?;
            wait_until("all minions to run the job", SOON, || {
                let lines = fs::read_to_string(&begun).ok()?.lines().count();
                (lines == 3).then_some(())
            })?;
            site.step("kill -9 while all minions run the job");
            site.kill_master();
            site.start_master_only()?;
            site.listen()?;
            site.step("a new listener receives the open job at once, and its end later");
            let state = site
                .events()
                .tag(&format!("saltern/job/{jid}/state"), SOON)?;
            ensure!(state.data["counts"]["expected"] == 3, "{state:?}");
            site.wait_until_ready_again()?;
            fs::write(&go, "").context("cannot let them go on")?;
            let end = finished(site, 0, &jid)?;
            ensure!(end.data["state"] == "complete", "{end:?}");
            let returned = end.data["returned"].as_array().context("a list")?;
            ensure!(returned.len() == 3, "{end:?}");
            ensure!(end.data["retcodes"]["0"] == 3, "{end:?}");
            no_question_is_stored(site)
        },
    )
}

#[test]
fn a_job_whose_processes_are_killed_is_killed() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |_| {},
        |site| {
            site.bring_up(&three())?;
            let mark = site.events().mark();
            salt(site, &["--async", "*", "cmd.run", "sleep 600"])?.expect_code(0)?;
            let jid = jid_of(site, mark, "cmd.run")?;
            site.step("once all of them say that they run it, it is killed");
            let tag = format!("saltern/job/{jid}/progress");
            site.events()
                .find_since(mark, "three running", SOON, |event| {
                    let running = &event.data["counts"]["running"];
                    (event.tag == tag && *running == 3).then_some(())
                })?;
            let run = salt(site, &["-t", "60", "*", "saltutil.kill_job", &jid])?;
            run.expect_code(0)?;
            run.expect_text(&format!("Signal 9 sent to job {jid}"))?;
            let end = finished(site, mark, &jid)?;
            ensure!(end.data["state"] == "killed", "{end:?}");
            let unknown = end.data["unknown"].as_object().context("a map")?;
            ensure!(unknown.len() == 3, "{end:?}");
            no_question_is_stored(site)
        },
    )
}
