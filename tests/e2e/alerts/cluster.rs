//! The alerts about an active master that nobody could follow, and about one whose keys or grains are not those of its
//! cluster.

use std::fs;

use saltern_tests::TestResult;

use super::Watch;
use crate::cluster::{LONG, pair};
use crate::cluster_keys::{copy_secret, share_keys};

#[test]
fn a_cluster_without_a_standby() -> TestResult {
    pair(LONG, super::configure, |pair| {
        for site in [&mut *pair.a, &mut *pair.b] {
            share_keys(site)?;
        }
        pair.start_first()?;
        copy_secret(pair)?;
        let mut watch = Watch::start(pair.a, "a_cluster_without_a_standby")?;
        watch.fires("SalternClusterNoStandby", &[])?;
        pair.a
            .step("the directory of keys is not the one that it was, and a table is gone");
        let rename = |from: &str, to: &str| {
            let sql = format!("ALTER TABLE saltern.{from} RENAME TO {to}");
            pair.database.query(&[&sql]);
        };
        rename("minion_data", "aside");
        let key = pair.a.path("pki/a.pub");
        let aside = pair.a.path("a.pub");
        fs::rename(&key, &aside)?;
        watch.fires("SalternClusterKeysStale", &[])?;
        watch.fires("SalternClusterDataStale", &[])?;
        rename("aside", "minion_data");
        let run = pair.a.saltern(&["cluster", "status"])?;
        run.expect_text("keys of this member are not shared")?;
        fs::rename(aside, key)?;
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
