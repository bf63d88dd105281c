//! A cluster comes back from a dump that PostgreSQL's own program made while the master served, as
//! docs/operate/backup.md describes it.

use std::fs;

use anyhow::{Result, ensure};
use saltern_stock::databases::{Kind, PASSWORD, Server as Database};
use saltern_tests::site::MinionKind;
use saltern_tests::{Release, Server, Site, TestResult, wait_until};

use crate::cluster::wait_for_ping;

/// Seconds of a lease: a master that is started on a dump waits for the end of the one that is in it.
const LEASE: u64 = 40;

/// A job of a minion that has answered; its jid.
fn job(site: &Site) -> Result<String> {
    // It answers, however busy the machine is.
    let run = site.salt(&["-t", "60", "--show-jid", "m1", "test.ping"])?;
    run.expect_code(0)?.expect_text("True")?;
    Ok(run.jid()?.to_owned())
}

#[test]
fn cluster_is_restored_from_a_dump_of_its_running_database() -> TestResult {
    let ours = Server::Saltern(Release::V3008);
    Site::prepared(
        ours,
        |_| {},
        |site| {
            let database = Database::start(Kind::Postgres, &site.path("db"));
            let (host, secret) = (database.host(), site.path("secret"));
            let connection =
                format!("host={host} user=salt password={PASSWORD} connect_timeout=10");
            let secret_file = secret.display();
            let cluster =
                format!("{{postgres: '{connection}', lease: {LEASE}, secret_file: {secret_file}}}");
            site.config().set("id", "a").set("saltern_cluster", cluster);
            site.write_config()?;
            site.saltern(&["cluster", "init"])?.expect_code(0)?;
            site.start_master()?;
            site.bring_up(&[("m1", MinionKind::Stock(Release::V3008))])?;
            let before = job(site)?;

            site.step("a dump while it serves, and a job that is not in it");
            let dump = site.path("cluster.dump");
            database.dump("saltern", &dump);
            let after = job(site)?;

            site.step("the database is lost, and comes back with another secret");
            site.announce("the publish connection broke");
            let ended = site.stop_master()?;
            ensure!(ended.success(), "{ended}");
            database.query(&["DROP SCHEMA saltern CASCADE"]);
            database.restore(&dump);
            database.query(&[
                "DELETE FROM saltern.meta WHERE name = 'secret_check'",
                "DELETE FROM saltern.sealed_file",
                "DELETE FROM saltern.minion_key",
                "DELETE FROM saltern.minion_data",
            ]);
            fs::remove_file(&secret)?;
            site.saltern(&["cluster", "init"])?.expect_code(0)?;
            site.start_master()?;
            site.wait_until_ready_again()?;
            let known = site.salt_run(&["jobs.list_jobs"])?;
            known.expect_code(0)?.expect_text(&before)?;
            let stored = |jid: &str| {
                database.count(&format!(
                    "SELECT COUNT(*) FROM saltern.returns WHERE jid = '{jid}'"
                ))
            };
            ensure!(stored(&before) == 1 && stored(&after) == 0);

            site.step(
                "the minion gets new publications, and their returns are stored and mirrored",
            );
            wait_for_ping(site, "m1")?;
            let last = job(site)?;
            ensure!(stored(&last) == 1);
            wait_until(
                "stock's job cache to have it",
                saltern_tests::site::SOON,
                || {
                    let run = site.salt_run(&["jobs.lookup_jid", &last]).ok()?;
                    run.stdout.contains("m1").then_some(())
                },
            )?;
            site.saltern(&["audit", "verify"])?.expect_code(0)?;
            // Before its database.
            let ended = site.stop_master()?;
            ensure!(ended.success(), "{ended}");
            Ok(())
        },
    )
}
