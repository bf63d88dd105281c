//! `saltern follow` and the progress line: a job that ends while it is followed, with a minion that is
//! gone; what was there already; Ctrl-C, and back.

use anyhow::{Context, Result, ensure};
use saltern_tests::process::{Run, run};
use saltern_tests::release::saltern_program;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::terminal::Terminal;
use saltern_tests::{Release, Server, Site, TestResult, until_exists};
use serde_json::json;

const CTRL_C: &str = "\x03";

fn in_terminal(site: &Site, words: &[&str]) -> Result<Terminal> {
    let conf = site.path("conf").display().to_string();
    let (command, rest) = words.split_first().context("a command")?;
    let words = [&[*command, "-c", &conf], rest].concat();
    Terminal::start(&saltern_program(), words)
}

/// A call that lasts until the file `go` of the site is there.
fn held(site: &Site) -> [String; 2] {
    let command = format!("{}; echo True", until_exists(&site.path("go")));
    ["cmd.run".to_owned(), command]
}

/// Publishes a job for all minions; gives its id.
fn publish(site: &Site, function: &[&str]) -> Result<String> {
    let words = [&["*"], function, &["--async"]].concat();
    let published = site.salt(&words)?;
    let jid = published.stdout.trim().rsplit(' ').next();
    Ok(jid.unwrap_or_default().to_owned())
}

#[test]
fn job_is_followed_to_its_end_with_the_reason_for_silence() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |_| {},
        |site| {
            site.bring_up(&[("m1", MinionKind::Native), ("m2", MinionKind::Native)])?;
            site.step("all return");
            let jid = publish(site, &["test.ping"])?;
            let run = site.saltern(&["follow", &jid])?;
            run.expect_code(0)?;
            for minion in ["m1:\n    True", "m2:\n    True"] {
                run.expect_text(minion)?;
            }
            ensure!(run.stderr.is_empty(), "{run}");

            site.step("a minion is gone, the job ends while it is followed");
            site.kill_minion("m2");
            site.wait_until_away("m2")?;
            let jid = publish(site, &held(site).each_ref().map(String::as_str))?;
            let mut follower = in_terminal(site, &["follow", &jid])?;
            follower.wait_for(&["0 of 2 returned, ", "waiting for m1 and 1 more"])?;
            std::fs::write(site.path("go"), "")?;
            follower.wait_for(&["m1:", "True", "not returned (1):", "m2  unreachable: "])?;
            ensure!(follower.end()?.code() == Some(1), "{}", follower.screen());
            ensure!(
                !follower.screen().contains("of 2 returned"),
                "{}",
                follower.screen()
            );

            site.step("what was there already, in a pipe");
            let run = site.saltern(&["follow", &jid, "--out=json"])?;
            run.expect_code(1)?;
            let shown: serde_json::Value = serde_json::from_str(&run.stdout)?;
            ensure!(shown["m1"] == "True", "{run}");
            ensure!(run.stderr.contains("m2  unreachable: "), "{run}");
            ensure!(!run.stderr.contains('\x1b'), "{run}");
            site.saltern(&["follow", "20010101000000000000"])?
                .expect_code(1)?
                .expect_text("there is no job 20010101000000000000")?;
            Ok(())
        },
    )
}

#[test]
fn interrupted_command_says_how_to_come_back_and_the_job_goes_on() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |_| {},
        |site| {
            site.bring_up(&[("m1", MinionKind::Native)])?;
            let [function, argument] = held(site);
            let mut command = in_terminal(site, &["cmd", "m1", &function, &argument])?;
            command.wait_for(&["0 of 1 returned, ", "waiting for m1"])?;
            command.press(CTRL_C)?;
            command.wait_for(&["The job goes on.", "saltern follow 2"])?;
            ensure!(command.end()?.code() == Some(1), "{}", command.screen());
            let screen = command.screen();
            let jid = screen.split("saltern follow ").nth(1).unwrap_or_default();
            let jid = jid.split(';').next().unwrap_or_default();

            let mut follower = in_terminal(site, &["follow", jid])?;
            follower.wait_for(&["0 of 1 returned, "])?;
            follower.press(CTRL_C)?;
            follower.wait_for(&["goes on without this command"])?;
            ensure!(follower.end()?.code() == Some(1), "{}", follower.screen());
            std::fs::write(site.path("go"), "")?;
            site.saltern(&["follow", jid])?
                .expect_code(0)?
                .expect_text("m1:\n    True")?;
            Ok(())
        },
    )
}

#[test]
fn one_document_holds_the_returns_and_nothing_else() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        // Those who are there answer, and one is waited for in vain.
        |config| _ = config.set("timeout", 5).set("gather_job_timeout", 1),
        |site| {
            site.bring_up(&[("m1", MinionKind::Native), ("m2", MinionKind::Native)])?;
            site.accept_beforehand("m3")?;
            let own = |words: &[&str]| -> Result<_> {
                let asked = [words, &["--one-document"]].concat();
                let salt = run(&mut site.own_command("salt", &asked), SOON)?;
                Ok([salt, site.saltern_cmd(&asked)?])
            };
            let document = |run: &Run| -> Result<serde_json::Value> {
                serde_json::from_str(&run.stdout).with_context(|| format!("no document: {run}"))
            };
            for words in [
                &["m*", "test.echo", "a"][..],
                &["m*", "test.echo", "a", "-b", "1"],
            ] {
                for run in own(words)? {
                    ensure!(document(&run)? == json!({"m1": "a", "m2": "a"}), "{run}");
                }
            }
            site.step("a silent minion is no entry");
            let [salt, cmd] = own(&["-L", "m1,m3", "test.ping"])?;
            for run in [&salt, &cmd] {
                run.expect_code(1)?;
                ensure!(document(run)? == json!({"m1": true}), "{run}");
            }
            let sentence = "1 minions did not return; which, and why: saltern explain ";
            ensure!(salt.stderr.contains(sentence), "{salt}");
            ensure!(cmd.stderr.contains("not returned (1):\n  m3  "), "{cmd}");

            site.step("nobody");
            for run in own(&["nobody", "test.ping"])? {
                run.expect_code(2)?.expect_stdout("{}")?;
                ensure!(run.stderr.contains("No minions matched"), "{run}");
            }
            site.step("no abbreviation, which could be one of stock's");
            let refused = &mut site.own_command("salt", &["--one-doc", "m1", "test.ping"]);
            run(refused, SOON)?.expect_code(64)?;
            Ok(())
        },
    )
}
