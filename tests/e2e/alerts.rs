//! The alert rules on a real master with a real Prometheus: each fires for its cause and clears
//! when that is over. What cannot be brought about here is shown with made-up series
//! (`grafana/alerts_test.yml`).

use std::net::TcpStream;

use anyhow::{Context, Result};
use saltern_tests::prometheus::{Prometheus, metrics_address};
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Config, Release, Server, Site, TestResult, wait_until};

use crate::shortage::Lack;

const OURS: Server = Server::Saltern(Release::V3008);

/// Connections that one address may have to a port: more than a handful of minions need.
const PER_ADDRESS: usize = 40;

fn configure(config: &mut Config) {
    config
        .set("saltern_metrics_address", metrics_address())
        .set("saltern_max_connections_per_address", PER_ADDRESS)
        .set("saltern_job_patience", 1)
        .set("timeout", 1)
        .set("gather_job_timeout", 1);
}

fn watch(site: &mut Site) -> Result<Prometheus> {
    let target = site.config().get("saltern_metrics_address");
    let target = target.context("a metrics address")?.to_owned();
    Prometheus::start(&site.path("prometheus"), &target)
}

#[test]
fn alerts_about_minions_and_their_jobs() -> TestResult {
    Site::run(OURS, configure, |site| {
        let prometheus = watch(site)?;
        site.step("a key waits to be accepted");
        site.start_minion("m1", MinionKind::Native)?;
        site.wait_pending("m1")?;
        prometheus.wait_firing("SalternKeysPending")?;
        site.accept("m1")?;
        prometheus.wait_quiet("SalternKeysPending")?;
        site.wait_started("m1")?;

        site.step("minions are away, and jobs miss them");
        site.kill_minion("m1");
        for _ in 0..3 {
            let silent = site.saltern_cmd(&["--timeout", "1", "m1", "test.ping"])?;
            silent.expect_text("m1")?;
        }
        prometheus.wait_firing("SalternJobsIncomplete")?;
        prometheus.wait_firing("SalternMinionsAway")?;
        site.start_prepared_minion("m1")?;
        prometheus.wait_quiet("SalternMinionsAway")?;
        prometheus.wait_quiet("SalternJobsIncomplete")?;
        Ok(())
    })
}

#[test]
fn alerts_about_the_master_itself() -> TestResult {
    Site::run(OURS, configure, |site| {
        let prometheus = watch(site)?;
        for text in [
            "injected fault",
            "restart",
            "a duty failed",
            "accepted minions",
        ] {
            site.announce(text);
        }
        site.step("an actor panics again and again");
        for times in 1..=4 {
            site.saltern(&["debug", "panic", "batches"])?
                .expect_code(0)?;
            wait_until("a restart", SOON, || {
                let restarts = site
                    .metric("saltern_actor_restarts_total", "batches")
                    .ok()?;
                (restarts >= f64::from(times)).then_some(())
            })?;
        }
        prometheus.wait_firing("SalternActorRestarts")?;
        prometheus.wait_quiet("SalternActorRestarts")?;

        site.step("one address has too many connections");
        let port = site.ret_port();
        let crowd: Vec<_> = (0..2 * PER_ADDRESS)
            .map(|_| TcpStream::connect(("127.0.0.1", port)))
            .collect();
        prometheus.wait_firing("SalternConnectionsRefused")?;
        drop(crowd);
        prometheus.wait_quiet("SalternConnectionsRefused")?;

        site.step("the keys cannot be read");
        let (keys, aside) = (site.path("pki/minions"), site.path("pki/aside"));
        std::fs::rename(&keys, &aside)?;
        prometheus.wait_firing("SalternCheckFailed")?;
        std::fs::rename(&aside, &keys)?;
        prometheus.wait_quiet("SalternCheckFailed")?;

        site.step("the master is down");
        site.stop_master()?;
        prometheus.wait_firing("SalternDown")?;
        site.start_master()?;
        prometheus.wait_quiet("SalternDown")?;
        Ok(())
    })
}

#[test]
fn an_alert_about_a_full_disk() -> TestResult {
    nothing_can_be_written(Lack::of_room)
}

#[test]
fn an_alert_about_a_file_that_cannot_grow() -> TestResult {
    nothing_can_be_written(|site| Ok(Lack::of_length(site)))
}

fn nothing_can_be_written(lack: impl FnOnce(&mut Site) -> Result<Lack>) -> TestResult {
    Site::prepared(OURS, configure, |site| {
        let lack = lack(site)?;
        site.start_master()?;
        for text in ["no space", "nothing was stored", "job database"] {
            site.announce(text);
        }
        site.bring_up(&[("m1", MinionKind::Native)])?;
        let prometheus = watch(site)?;
        // The disk shows that it is full, a file does not before somebody writes.
        let alert = match lack {
            Lack::Room(_) => "SalternStoreReadOnly",
            Lack::Length => "SalternCommitsFail",
        };
        lack.begins(site)?;
        wait_until("a job to be refused", SOON, || {
            (!takes_a_job(site).ok()?).then_some(())
        })?;
        prometheus.wait_firing(alert)?;
        prometheus.wait_firing("SalternCheckFailed")?;
        lack.ends(site)?;
        wait_until("a job to be taken", SOON, || {
            takes_a_job(site).ok()?.then_some(())
        })?;
        prometheus.wait_quiet(alert)?;
        prometheus.wait_quiet("SalternCheckFailed")?;
        // Before the disk is taken away from under the master.
        site.kill_minion("m1");
        site.stop_master()?;
        Ok(())
    })
}

fn takes_a_job(site: &Site) -> Result<bool> {
    let job = site.saltern_cmd(&["--async", "m1", "test.ping"])?;
    Ok(job.code == Some(0))
}
