//! Alerts about minions: pending keys, disconnected minions, and jobs that miss them.

use saltern_tests::site::MinionKind;
use saltern_tests::{Config, Site, TestResult};

use super::{OURS, Watch};

#[test]
fn minions_and_their_jobs() -> TestResult {
    Site::run(OURS, configure, |site| {
        let mut watch = Watch::start(site, "minions_and_their_jobs")?;
        site.step("a key waits to be accepted");
        watch.expect_quiet(&["SalternKeysPending"])?;
        site.start_minion("m1", MinionKind::Native)?;
        site.wait_pending("m1")?;
        watch.fires("SalternKeysPending", &[("state", "pending")])?;
        site.accept("m1")?;
        watch.clears("SalternKeysPending")?;
        site.wait_started("m1")?;

        site.step("minions are away, and jobs miss them");
        watch.expect_quiet(&["SalternMinionsAway", "SalternJobsIncomplete"])?;
        site.kill_minion("m1");
        watch.fires_while("SalternJobsIncomplete", &[], || {
            let silent = site.saltern_cmd(&["--timeout", "1", "m1", "test.ping"])?;
            silent.expect_text("m1")?;
            Ok(())
        })?;
        watch.fires("SalternMinionsAway", &[])?;
        site.start_prepared_minion("m1")?;
        watch.clears("SalternMinionsAway")?;
        watch.clears("SalternJobsIncomplete")?;
        watch.has_shown_all()
    })
}

fn configure(config: &mut Config) {
    super::configure(config);
    config
        .set("saltern_job_timeout", 1)
        .set("timeout", 1)
        .set("gather_job_timeout", 1);
}
