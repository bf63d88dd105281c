//! The alert about an active master that nobody could follow.

use saltern_tests::TestResult;

use super::Watch;
use crate::cluster::{LONG, pair};

#[test]
fn a_cluster_without_a_standby() -> TestResult {
    pair(LONG, super::configure, |pair| {
        pair.start_first()?;
        let mut watch = Watch::start(pair.a, "a_cluster_without_a_standby")?;
        watch.fires("SalternClusterNoStandby", &[])?;
        pair.a.step("another master stands by");
        pair.start_second()?;
        watch.has_shown_all()?;
        // While there is a database.
        pair.stop_second()?;
        let ended = pair.a.stop_master()?;
        anyhow::ensure!(ended.success(), "{ended}");
        Ok(())
    })
}
