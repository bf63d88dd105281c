//! `saltern explain`: what is said of a job while it runs, of its returns, and without a master.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use saltern_tests::release::saltern_program;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::small_disk::SmallDisk;
use saltern_tests::terminal::Terminal;
use saltern_tests::{Release, Server, Site, TestResult, until_exists, wait_until};

const NATIVE: MinionKind = MinionKind::Native;

#[test]
fn a_job_is_explained_while_it_runs_with_its_returns_and_without_a_master() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |_| {},
        |site| {
            site.bring_up(&[("m1", NATIVE), ("m2", NATIVE)])?;
            site.step("a minion is away when a job is published");
            site.kill_minion("m2");
            site.wait_until_away("m2")?;
            let go = site.path("go");
            let held = until_exists(&go);
            let published = site.salt(&["*", "cmd.run", &held, "--async"])?;
            let jid = published
                .stdout
                .trim()
                .rsplit(' ')
                .next()
                .unwrap_or("")
                .to_owned();

            site.step("it is open");
            wait_until("the minion to be listed", SOON, || {
                let run = site.saltern(&["explain", &jid]).ok()?;
                let open = run.stdout.contains("open; 0 of 2 minions have returned");
                let words = ["not returned (2):", "m2  unreachable: away: "];
                // It is asked in the moment in which the other is found to be unreachable.
                let states = ["m1  delivered: the job was sent", "m1  running: it said "];
                let is_listed = words.iter().all(|word| run.stdout.contains(word))
                    && states.iter().any(|state| run.stdout.contains(state));
                (open && is_listed).then_some(())
            })?;

            site.step("one has returned");
            std::fs::write(&go, "")?;
            wait_until("the return to be shown", SOON, || {
                let run = site.saltern(&["explain", &jid]).ok()?;
                let words = ["1 of 2", "m2  un", "m1  after", "retcode 0"];
                words
                    .iter()
                    .all(|word| run.stdout.contains(word))
                    .then_some(())
            })?;

            site.step("no master runs");
            site.announce("the publish connection broke");
            site.stop_master()?;
            explained(site, &jid, &["1 of 2 minions have returned", "m2  un"])?;
            site.saltern(&["explain", "20010101000000000000"])?
                .expect_code(1)?
                .expect_text("there is no job 20010101000000000000")?;
            Ok(())
        },
    )
}

fn explained(site: &Site, jid: &str, words: &[&str]) -> Result<()> {
    let run = site.saltern(&["explain", jid])?;
    run.expect_code(0)?;
    for word in words {
        run.expect_text(word)?;
    }
    Ok(())
}

#[test]
fn read_only_disk_allows_read_only_commands() -> TestResult {
    Site::prepared(
        Server::Saltern(Release::V3008),
        |_| {},
        |site| {
            let disk = SmallDisk::mount_unless_excused(&site.path("cache"), 32 << 20)?;
            let Some(disk) = disk else {
                return Ok(());
            };
            site.start_master()?;
            site.bring_up(&[("m1", NATIVE)])?;
            let published = site.salt(&["m1", "test.ping", "--async"])?;
            let jid = published
                .stdout
                .trim()
                .rsplit(' ')
                .next()
                .unwrap_or("")
                .to_owned();
            site.events().tag(&format!("salt/job/{jid}/ret/m1"), SOON)?;
            site.announce("the publish connection broke");
            site.stop_master()?;
            disk.make_read_only()?;
            let run = site.saltern(&["explain", "--json", &jid])?;
            run.expect_code(0)?;
            let account: serde_json::Value = serde_json::from_str(&run.stdout)?;
            ensure!(account["state"] == "complete", "{account}");
            ensure!(account["returned"][0]["minion"] == "m1", "{account}");
            let run = site.saltern(&["doctor", "--json"])?;
            run.expect_code(1)?;
            let report: serde_json::Value = serde_json::from_str(&run.stdout)?;
            let findings = report["findings"].as_array().context("findings")?;
            let is_reason = |finding: &&serde_json::Value| {
                let what = finding["finding"].as_str().unwrap_or_default();
                finding["severity"] == "error" && what.contains("cachedir")
            };
            ensure!(findings.iter().any(|one| is_reason(&one)), "{report}");
            let of_database = findings.iter().find(|one| one["subject"] == "database");
            ensure!(of_database.is_none(), "{report}");
            site.kill_minion("m1");
            Ok(())
        },
    )
}

/// An event of the bus is printed though the master keeps none; a command that waits says how to
/// come back to its job when the master is killed.
#[test]
fn events_are_followed_and_interrupted_command_names_its_job() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |_| {},
        |site| {
            site.bring_up(&[("m1", NATIVE)])?;
            site.saltern(&["events"])?
                .expect_code(1)?
                .expect_text("saltern events --follow")?;
            let conf = site.path("conf").display().to_string();
            let start = |arguments: &[&str]| -> Result<std::process::Child> {
                let mut command = std::process::Command::new(saltern_program());
                command.arg(arguments.first().context("a command")?);
                command
                    .args(["-c", &conf])
                    .args(arguments.get(1..).unwrap_or_default());
                command.stdout(Stdio::piped()).stderr(Stdio::piped());
                Ok(command.spawn()?)
            };
            let follower = start(&["events", "--follow", "--tag", "site/[ab]*", "--limit", "1"])?;
            let mut follower = Some(follower);
            wait_until("an event to be followed", SOON, || {
                let mut session = site.session_of("m1").ok()?;
                session.send("site/c").ok()?;
                session.send("site/b/1").ok()?;
                let is_over = follower.as_mut()?.try_wait().ok()?.is_some();
                is_over.then_some(())
            })?;
            let output = follower
                .take()
                .context("it was started")?
                .wait_with_output()?;
            let line = String::from_utf8(output.stdout)?;
            let event: serde_json::Value = serde_json::from_str(&line)?;
            ensure!(
                output.status.success() && event["tag"] == "site/b/1",
                "{line}"
            );

            let go = site.path("go");
            let held = until_exists(&go);
            let mark = site.events().mark();
            let words = ["cmd", "-c", &conf, "m1", "cmd.run", &held];
            let mut waiting = Terminal::start(&saltern_program(), words)?;
            // The master has answered it, so it has its jid.
            waiting.wait_for(&["0 of 1 returned, "])?;
            let jid = site.events().find_since(mark, "the job", SOON, |event| {
                let is_new = event.tag.ends_with("/new");
                is_new.then(|| event.data["jid"].as_str().map(str::to_owned))
            })?;
            let jid = jid.context("a jid")?;
            site.announce("the publish connection broke");
            site.kill_master();
            waiting.wait_for(&[&format!("saltern explain {jid}")])?;
            ensure!(waiting.end()?.code() == Some(1), "{}", waiting.screen());
            std::fs::write(&go, "")?;
            Ok(())
        },
    )
}
