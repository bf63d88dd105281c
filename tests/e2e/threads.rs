//! A master for which the system starts no thread, as under `TasksMax` of systemd or the pids of a container.

use anyhow::{Result, ensure};
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::thread_limit::ThreadLimit;
use saltern_tests::{Release, Server, Site, TestResult, wait_until};

#[test]
fn master_without_threads_serves_minions_refuses_with_the_reason_and_recovers() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |config| _ = config.set("timeout", 60),
        |site| {
            site.announce("the system starts no thread");
            site.bring_up(&[("native", MinionKind::Native)])?;
            pings(site)?;
            site.saltern(&["minions"])?.expect_code(0)?;
            let Some(limit) = ThreadLimit::of(site.master().id())? else {
                return Ok(());
            };
            limit.close()?;
            wait_until("the pools to end their idle threads", SOON, || {
                let threads = limit.threads().ok()?;
                let is_pool = |name: &String| name.ends_with("-pool");
                (!threads.iter().any(is_pool)).then_some(())
            })?;

            site.step("jobs go on, and what needs a thread is refused");
            for _ in 0..3 {
                pings(site)?;
                let refused = site.saltern(&["minions"])?;
                ensure!(refused.code != Some(0), "{refused}");
                let said = format!("{}{}", refused.stdout, refused.stderr);
                ensure!(said.contains("the system starts no thread"), "{said}");
            }

            site.step("the limit is lifted");
            limit.lift()?;
            let listed = site.saltern(&["minions"])?;
            ensure!(listed.expect_code(0)?.stdout.contains("native"), "{listed}");
            pings(site)?;
            // A panic would be an error in the log that nobody announced.
            Ok(())
        },
    )
}

fn pings(site: &Site) -> Result<()> {
    let run = site.salt(&["native", "test.ping", "--static", "--out=json"])?;
    let stdout = &run.expect_code(0)?.stdout;
    let answer: serde_json::Value = serde_json::from_str(stdout)?;
    ensure!(answer == serde_json::json!({"native": true}), "{run}");
    Ok(())
}
