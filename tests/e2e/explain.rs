//! `saltern explain`: what is said of a job while it runs, of its returns, and without a master.

use anyhow::Result;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Release, Server, Site, TestResult, wait_until};

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
            wait_until("the minion to be known as away", SOON, || {
                let run = site.saltern(&["run", "manage.down", "--out=json"]).ok()?;
                run.stdout.contains("m2").then_some(())
            })?;
            let published = site.salt(&["*", "test.sleep", "15", "--async"])?;
            let jid = published
                .stdout
                .trim()
                .rsplit(' ')
                .next()
                .unwrap_or("")
                .to_owned();

            site.step("it is open");
            wait_until("the minion to be told of", SOON, || {
                let run = site.saltern(&["explain", &jid]).ok()?;
                let open = run.stdout.contains("open; 0 of 2 minions have returned");
                let words = [
                    "not returned (2):",
                    "m1  delivered: the job was sent",
                    "m2  unreachable",
                ];
                (open && words.iter().all(|word| run.stdout.contains(word))).then_some(())
            })?;

            site.step("one has returned");
            wait_until("the return to be told", SOON, || {
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
