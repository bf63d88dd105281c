//! A master that ran alone moves its jobs into a cluster, and out of it again.

use anyhow::{Result, ensure};
use saltern_stock::databases::{Kind, PASSWORD, Server as Database};
use saltern_tests::site::MinionKind;
use saltern_tests::{Release, Server, Site, TestResult};

use crate::cluster::wait_for_ping;

/// A job of a minion that has answered, and that stock's job cache has; its jid.
fn job(site: &Site) -> Result<String> {
    wait_for_ping(site, "m1")?;
    let run = site.saltern_cmd(&["--async", "m1", "test.ping"])?;
    let jid = run.expect_code(0)?.jid()?;
    site.wait_until_mirrored(jid, "m1")?;
    Ok(jid.to_owned())
}

fn check_job(site: &Site, jid: &str) -> Result<()> {
    let run = site.salt_run(&["jobs.lookup_jid", jid])?;
    run.expect_code(0)?.expect_text("m1")?;
    Ok(())
}

#[test]
fn jobs_move_into_a_cluster_and_back_with_their_master() -> TestResult {
    let ours = Server::Saltern(Release::V3008);
    Site::prepared(
        ours,
        |_| {},
        |site| {
            site.announce("the publish connection broke");
            let database = Database::start(Kind::Postgres, &site.path("db"));
            site.start_master()?;
            site.bring_up(&[("m1", MinionKind::Native)])?;
            let first = job(site)?;
            let ended = site.stop_master()?;
            ensure!(ended.success(), "{ended}");

            site.step("into the cluster");
            let connection = format!(
                "host={} user=salt password={PASSWORD} connect_timeout=10",
                database.host()
            );
            site.config().set("id", "a").set(
                "saltern_cluster",
                format!("{{postgres: '{connection}', lease: 600}}"),
            );
            site.write_config()?;
            site.saltern(&["cluster", "init"])?.expect_code(0)?;
            let moved = site.saltern(&["cluster", "import"])?;
            moved.expect_code(0)?.expect_text(" jobs\n")?;
            site.start_master()?;
            check_job(site, &first)?;
            let second = job(site)?;
            let refused = site.saltern(&["cluster", "export"])?;
            refused
                .expect_code(69)?
                .expect_text("another master is using")?;
            let ended = site.stop_master()?;
            ensure!(ended.success(), "{ended}");
            let again = site.saltern(&["cluster", "import"])?;
            again.expect_code(0)?.expect_text("before")?;

            site.step("out of it");
            let out = site.path("moved.sqlite");
            let place = out.display().to_string();
            let moved = site.saltern(&["cluster", "export", "--to", &place])?;
            moved.expect_code(0)?;
            site.config()
                .set("saltern_cluster", "null")
                .set("saltern_job_database", &place);
            site.write_config()?;
            site.start_master()?;
            for jid in [&first, &second] {
                check_job(site, jid)?;
            }
            wait_for_ping(site, "m1")?;
            let audit = site.saltern(&["audit", "verify"])?;
            audit.expect_code(0)?;
            Ok(())
        },
    )
}
