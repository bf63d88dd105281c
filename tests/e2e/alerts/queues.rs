//! Alerts about full queues: of slow subscribers and listeners, of the reactor, of pillars; and
//! about file descriptors, of which every connection takes one.

use std::process::Command;

use anyhow::Result;
use saltern_tests::process::{Daemon, run};
use saltern_tests::release::lab_program;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Config, Site, TestResult, frozen};

use super::{OURS, Watch};

/// Files that the master may open: about twice what it needs for itself.
const FILES: usize = 400;

/// Of these, subscribers take so many that more than four fifths are open, and not all.
const FROZEN_SHARE: f64 = 0.9;

/// Events that may wait for a listener. Of the flood, some 20 fill a socket: on a busy machine, too, the
/// queue is full before the listener is cut off, because it takes nothing.
const EVENTS: usize = 20;
const FLOOD: &[&str] = &["1000", "10000"];

#[test]
fn queues_that_are_full() -> TestResult {
    Site::prepared(OURS, configure, |site| {
        std::fs::write(
            site.path("react.sls"),
            "call:\n  runner.test.arg:\n    - args: {a: 1}\n",
        )?;
        let limit = format!("ulimit -Sn {FILES}; exec \"$0\" \"$@\"");
        site.start_master_by(&["sh", "-c", &limit]);
        site.start_master()?;
        for text in [
            "auto_accept",
            "max_open_files",
            "the reactor dropped events",
            "took no events for too long",
        ] {
            site.announce(text);
        }
        site.start_minion("m1", MinionKind::Native)?;
        site.wait_started("m1")?;
        let mut watch = Watch::start(site, "queues_that_are_full")?;

        site.step("many minions ask for a pillar that takes long");
        watch.expect_quiet(&["SalternWorkRefused"])?;
        let pillars = ask_for_pillars(site)?;
        watch.fires("SalternWorkRefused", &[])?;

        site.step("a listener and many subscribers do not read");
        watch.expect_quiet(&[
            "SalternDeliveriesDropped",
            "SalternEventsDropped",
            "SalternReactorDrops",
            "SalternFilesRunOut",
        ])?;
        let open = site.metric("process_open_fds", "")?;
        let count = (FILES as f64 * FROZEN_SHARE - open) as usize;
        let subscribers = frozen::subscribers(site.publish_port(), count)?;
        let listeners = frozen::listeners(&site.path("run/master_event_pub.ipc"), 1)?;
        // Before any of them is cut off, because it does not read.
        watch.fires("SalternFilesRunOut", &[])?;
        let flood = || -> Result<()> {
            run(&mut site.stock_peer("flood_events.py", FLOOD), SOON)?.expect_code(0)?;
            Ok(())
        };
        flood()?;
        watch.fires("SalternEventsDropped", &[])?;
        watch.fires_while("SalternReactorDrops", &[("reason", "rate")], flood)?;
        let long = "x".repeat(20_000);
        watch.fires_while("SalternDeliveriesDropped", &[], || {
            site.saltern_cmd(&["--async", "m1", "test.echo", &long])?
                .expect_code(0)?;
            Ok(())
        })?;

        site.step("they are gone");
        drop((subscribers, listeners, pillars));
        watch.has_shown_all()
    })
}

fn configure(config: &mut Config) {
    super::configure(config);
    let root = config.get("root_dir").unwrap_or_default().to_owned();
    config
        .set("auto_accept", true)
        .set("max_open_files", FILES)
        .set("saltern_render_threads", 1)
        .set("saltern_render_backlog", 1)
        .set("ext_pillar", "[{cmd_yaml: \"sleep 1; echo '{}'\"}]")
        .set("pub_hwm", 10)
        .set("saltern_event_queue_length", EVENTS)
        .set("reactor", format!("[{{'flood/*': {root}/react.sls}}]"))
        .set("saltern_reactor_limits", "{'flood/*': {rate: 1/m}}");
}

/// All at once, over and over; what they are answered does not matter here.
fn ask_for_pillars(site: &Site) -> Result<Daemon> {
    let mut command = Command::new(lab_program());
    command
        .args(["bench", "--minions", "16", "--phases", "pillar"])
        .args(["--seconds", "1"])
        .arg("-c")
        .arg(site.path("conf"));
    Daemon::start("pillars", &mut command, &site.path("log/pillars.out"))
}
