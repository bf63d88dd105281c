//! Alerts about overload of the disk and of the workers.

use std::process::Command;

use anyhow::Result;
use saltern_tests::process::{Daemon, peer};
use saltern_tests::release::lab_program;
use saltern_tests::{Config, Release, Site, TestResult};

use super::{OURS, Watch};

/// Concurrent returns: more than one worker handles and this site's queue holds.
/// Each has an accepted key, and for each of these a storm needs three authentications more.
const MINIONS: usize = 120;
const BACKLOG: usize = 15;
const RETURNS: &[&str] = &["--returns", "400", "--rate", "200"];

/// Returns that the job cache is behind by then: more than its alert is about.
const LAG: usize = 600;

/// Seconds for which another program keeps the job database: below half of the master's patience of five, as one
/// that is late on a busy machine waits twice, and long enough for more returns to come than there is room for,
/// also where only ten come in a second.
const HELD: &str = "2";

#[test]
fn more_work_than_can_be_done() -> TestResult {
    Site::run(OURS, configure, |site| {
        for text in [
            "auto_accept",
            "job-cache files",
            "a maintenance task failed",
            // On a busy machine the holder may keep it for longer than the master's patience.
            "nothing was stored",
            "job database",
        ] {
            site.announce(text);
        }
        let mut watch = Watch::start(site, "more_work_than_can_be_done")?;
        watch.expect_quiet(&[
            "SalternCommitsSlow",
            "SalternRequestsTurnedAway",
            "SalternJobCacheLags",
            "SalternAuthenticationStorm",
            "SalternWorkersBusy",
        ])?;
        site.step("stock's job cache cannot be written while minions return");
        let (cache, aside) = (site.path("cache/jobs"), site.path("cache/aside"));
        std::fs::rename(&cache, &aside)?;
        std::fs::write(&cache, "in the way")?;
        let mut fleet = site.start_fleet("busy", MINIONS, RETURNS)?;
        fleet.wait_for_more(100)?;

        site.step("another program keeps the job database for itself");
        let holder = hold_database(site)?;
        watch.fires("SalternRequestsTurnedAway", &[("class", "minion")])?;
        watch.fires("SalternCommitsSlow", &[])?;
        drop(holder);
        let stored = fleet.acknowledged()?;
        fleet.wait_for_more(LAG.saturating_sub(stored))?;
        fleet.stop()?;

        site.step("minions authenticate again and again");
        let storm = authenticate(site)?;
        watch.fires("SalternAuthenticationStorm", &[])?;
        watch.fires("SalternWorkersBusy", &[])?;
        watch.fires("SalternJobCacheLags", &[])?;

        site.step("all of that is over");
        drop(storm);
        std::fs::remove_file(&cache)?;
        std::fs::rename(&aside, &cache)?;
        watch.has_shown_all()
    })
}

fn configure(config: &mut Config) {
    super::configure(config);
    config
        .set("auto_accept", true)
        // One can be busy without taking the whole machine.
        .set("worker_threads", 1)
        .set("saltern_request_backlog", BACKLOG);
}

fn hold_database(site: &Site) -> Result<Daemon> {
    let mut command = Command::new(Release::V3008.program("python"));
    command
        .arg(peer("hold_database.py"))
        .arg(site.job_database())
        .arg(HELD);
    Daemon::start("holder", &mut command, &site.path("log/holder.out"))
}

/// A few minions that do nothing else for as long as they live.
fn authenticate(site: &Site) -> Result<Daemon> {
    let mut command = Command::new(lab_program());
    command
        .args(["bench", "--minions", "16", "--phases", "auth"])
        .args(["--seconds", "3600"])
        .arg("-c")
        .arg(site.path("conf"));
    Daemon::start("storm", &mut command, &site.path("log/storm.out"))
}
