//! A syndic that lies to the master above: what it brings about is bounded and counted, and honest minions do not notice.

use std::process::Command;

use anyhow::ensure;
use saltern_tests::logs;
use saltern_tests::release::lab_program;
use saltern_tests::{Daemon, Release, Server, Site, TestResult};

use crate::hostile::ping;

const OURS: Server = Server::Saltern(Release::V3008);

/// Minions that the syndic announces, in its inventory and in events.
const ANNOUNCED: usize = 1_000_000;

/// Most of them that are kept (docs/syndic.md).
const MAX_KEPT: f64 = 100_000.0;

/// Honest minions.
const MINIONS: usize = 10;

/// Memory that one syndic may take: an inventory (docs/syndic.md), the claims to its minions and their names in jobs,
/// requests under way, and the allocator's slack.
const MEMORY: u64 = (128 + 64 + 96) << 20;

/// A job that nobody has published.
const JID: &str = "20260102030405060708";

#[test]
fn syndic_that_announces_a_million_minions_is_bounded_and_disturbs_nobody() -> TestResult {
    Site::run(
        OURS,
        |config| {
            config
                .set("auto_accept", "True")
                .set("order_masters", "True")
                // An inventory that never ends is not whole: each job would wait.
                .set("syndic_wait", 0);
        },
        |site| {
            site.announce("auto_accept");
            site.announce("order_masters");
            site.announce("return of a syndic dropped");
            let fleet = site.start_fleet("live", MINIONS, &[])?;
            ping(site, MINIONS)?;
            let before = site.master().memory()?;

            site.step("a syndic announces minions that there are not, and forges returns");
            let output = site.path("log/hostile.out");
            let mut command = Command::new(lab_program());
            command
                .arg("hostile-syndic")
                .args(["--master", &format!("127.0.0.1:{}", site.ret_port())])
                .args(["--announce", &ANNOUNCED.to_string()])
                .args(["--jid", JID, "--victims", "live-0,live-1"])
                .arg("--pki-dir")
                .arg(site.path("hostile"));
            let mut hostile = Daemon::start("hostile", &mut command, &output)?;
            let (mut most, mut pings) = (before, 0);
            let status = loop {
                ping(site, MINIONS)?;
                pings += 1;
                most = most.max(site.master().memory()?);
                if let Some(status) = hostile.ended() {
                    break status;
                }
            };
            let said = logs::read(&output);
            ensure!(status.success(), "{status}: {said}");
            let needed = most.saturating_sub(before) >> 20;
            site.step(&format!("{pings} pings, {needed} MiB more: {said}"));
            ensure!(needed < MEMORY >> 20, "the master needed {needed} MiB more");

            site.step("what was kept, and what was refused");
            let kept = site.metric("saltern_syndic_inventory_minions", "")?;
            ensure!(kept <= MAX_KEPT, "{kept} minions are kept");
            let refused = site.metric("saltern_requests_refused_total", "syndic_leaf")?;
            // Twice: in the inventory and in events.
            let expected = 2.0 * (ANNOUNCED as f64 - MAX_KEPT);
            ensure!(refused >= expected, "{refused} of {expected} are counted");
            let run = site.salt_run(&["jobs.lookup_jid", JID])?;
            ensure!(!run.stdout.contains("forged"), "{run}");
            ping(site, MINIONS)?;

            let ledger = fleet.stop()?;
            site.accounts(&ledger)?.expect_balance()?;
            Ok(())
        },
    )
}
