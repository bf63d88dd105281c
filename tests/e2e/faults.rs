//! A panic in each actor, one after another, while jobs run through: every job completes, and no
//! minion loses its connection. Needs a binary built with the feature `fault-injection`.

use anyhow::{Result, ensure};
use saltern_tests::process::run;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Release, Server, Site, TestResult, logs};

use crate::durability::connections;

/// The actors of the tree, as `saltern debug panic` names them.
const ACTORS: [&str; 8] = [
    "req-router",
    "mworker",
    "event-publisher",
    "publisher",
    "job-tracker",
    "job-store",
    "reactor",
    "maintenance",
];

#[test]
fn every_job_completes_while_actors_panic() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |_| {},
        |site| {
            site.bring_up(&[
                ("m3006", MinionKind::Stock(Release::V3006)),
                ("m3008", MinionKind::Stock(Release::V3008)),
                ("native", MinionKind::Native),
            ])?;
            for text in ["panicked", "restart", "fault injection", "no answer"] {
                site.announce(text);
            }
            let before = connections(site.publish_port());
            ensure!(
                before.len() >= 3,
                "three minions hold {} connections",
                before.len()
            );
            for actor in ACTORS {
                a_job_survives(site, actor)?;
            }
            let after = connections(site.publish_port());
            ensure!(
                before == after,
                "connections changed: {before:?} became {after:?}"
            );
            let log =
                logs::read(&site.path("log/master")) + &logs::read(&site.path("log/master.out"));
            for actor in ACTORS {
                ensure!(
                    log.contains(actor),
                    "the log does not mention that {actor} was restarted"
                );
            }
            Ok(())
        },
    )
}

/// The panic comes while the job runs on the minions: after its publication, before its returns.
fn a_job_survives(site: &Site, actor: &str) -> Result<()> {
    site.step(&format!("{actor} panics while a job runs"));
    let mark = site.events().mark();
    let function = format!("sleep 1; echo survived {actor}");
    let mut command = site.stock_command("salt", &["*", "cmd.run", &function]);
    let job = std::thread::spawn(move || run(&mut command, SOON * 2));
    site.events()
        .find_since(mark, "the job to be published", SOON, |event| {
            (event.tag.ends_with("/new") && event.data["arg"][0] == function.as_str()).then_some(())
        })?;
    site.saltern(&["debug", "panic", actor])?.expect_code(0)?;
    let job = job.join().expect("running a command does not panic")?;
    job.expect_code(0)?;
    for id in ["m3006", "m3008", "native"] {
        job.expect_text(&format!("{id}:\n    survived {actor}"))?;
    }
    Ok(())
}
