//! The alerts about a master above that cannot be reached.

use saltern_tests::site::Failure;
use saltern_tests::{Config, TestResult};

use super::{OURS, Site, Watch};
use crate::syndic::{SYNDIC, above, as_written};

const RETURNS: &[&str] = &["--returns", "20", "--rate", "100"];

#[test]
fn a_master_above_that_is_away() -> TestResult {
    Site::run(OURS, above, |top| {
        as_written(top);
        let below = Site::prepared(OURS, configure, |site| {
            for text in [
                "auto_accept",
                "the syndic is not connected",
                "returns do not go up",
            ] {
                site.announce(text);
            }
            site.configure_native_syndic(SYNDIC, &[top])?;
            top.kill_master();
            site.start_master()?;
            let mut watch = Watch::start(site, "a_master_above_that_is_away")?;
            watch.expect_quiet(&["SalternSyndicDrops"])?;
            site.step("minions return, and the master above is away");
            let mut fleet = site.start_fleet("busy", 20, RETURNS)?;
            fleet.wait_for_more(100)?;
            watch.fires("SalternSyndicCutOff", &[])?;
            watch.fires(
                "SalternSyndicDrops",
                &[("outbox", "any"), ("reason", "age")],
            )?;
            fleet.stop()?;

            site.step("the master above is back");
            top.start_master()?;
            watch.has_shown_all()
        });
        below.map_err(Failure::into_error)
    })
}

fn configure(config: &mut Config) {
    super::configure(config);
    config
        .set("auto_accept", true)
        .set("saltern_syndic_keep_seconds", 1);
}
