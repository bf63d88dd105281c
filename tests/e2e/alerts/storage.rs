//! Alerts about what the job database needs: room on its disk, and files that can grow.

use std::time::Duration;

use anyhow::Result;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::small_disk::SmallDisk;
use saltern_tests::{Site, TestResult, wait_until};

use super::{OURS, Watch, configure};
use crate::shortage::{Lack, SMALL};

/// A disk that is full after this time is so within a day, as days are here. The alert waits for a
/// fourteenth of it, and anew where a busy machine keeps Prometheus from its scrapes.
const FILLED: Duration = Duration::from_secs(420);

#[test]
fn a_disk_that_fills_up() -> TestResult {
    Site::prepared(OURS, configure, |site| {
        let disk = SmallDisk::mount_unless_excused(&site.path("cache"), SMALL)?;
        let Some(disk) = disk else {
            return Ok(());
        };
        bring_up(site)?;
        let mut watch = Watch::start(site, "a_disk_that_fills_up")?;
        watch.expect_quiet(&["SalternDiskFillsUp"])?;
        site.step("the disk is going to be full");
        let filling = disk.begin_to_fill(FILLED);
        watch.fires_while("SalternDiskFillsUp", &[], || filling.go_on())?;
        let lack = Lack::Room(disk);
        watch.expect_quiet(&["SalternStoreReadOnly", "SalternCheckFailed"])?;
        site.step("it is full");
        lack.begins(site)?;
        watch.fires("SalternStoreReadOnly", &[])?;
        watch.clears("SalternDiskFillsUp")?;
        nothing_is_stored_until_it_ends(site, watch, "SalternStoreReadOnly", &lack)
    })
}

#[test]
fn a_file_that_cannot_grow() -> TestResult {
    Site::prepared(OURS, configure, |site| {
        let lack = Lack::of_length(site);
        bring_up(site)?;
        let watch = Watch::start(site, "a_file_that_cannot_grow")?;
        watch.expect_quiet(&["SalternCommitsFail", "SalternCheckFailed"])?;
        lack.begins(site)?;
        nothing_is_stored_until_it_ends(site, watch, "SalternCommitsFail", &lack)
    })
}

fn bring_up(site: &mut Site) -> Result<()> {
    site.start_master()?;
    // The last job that is taken may be one whose return is not.
    let not_taken = "a return was not taken";
    for text in ["no space", "nothing was stored", "job database", not_taken] {
        site.announce(text);
    }
    site.bring_up(&[("m1", MinionKind::Native)])
}

fn nothing_is_stored_until_it_ends(
    site: &mut Site,
    mut watch: Watch,
    alert: &str,
    lack: &Lack,
) -> Result<()> {
    wait_until("a job to be refused", SOON, || {
        (!takes_a_job(site).ok()?).then_some(())
    })?;
    watch.fires(alert, &[])?;
    watch.fires("SalternCheckFailed", &[("check", "database")])?;
    lack.ends(site)?;
    wait_until("a job to be taken", SOON, || {
        takes_a_job(site).ok()?.then_some(())
    })?;
    watch.has_shown_all()?;
    // Before the disk is taken away from under the master.
    site.kill_minion("m1");
    site.stop_master()?;
    Ok(())
}

fn takes_a_job(site: &Site) -> Result<bool> {
    let job = site.saltern_cmd(&["--async", "m1", "test.ping"])?;
    Ok(job.code == Some(0))
}
