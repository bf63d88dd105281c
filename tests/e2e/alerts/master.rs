//! Alerts about the master itself: its actors, its port, its keys and maintenance tasks, its engines, and
//! that it is there at all.
#![expect(
    clippy::disallowed_types,
    reason = "paces what happens to another process, which no paused clock can reach"
)]

use std::fs::Permissions;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use anyhow::Result;
use saltern_tests::site::SOON;
use saltern_tests::{Config, Site, TestResult, wait_until};

use super::{OURS, Watch};

/// Connections that one address may have to a port: more than this site needs.
const PER_ADDRESS: usize = 40;

/// Panics in a row that the alert is about. On a busy machine they may come too slowly, so there are as many again
/// after a pause: longer than the window of the master's supervisor, so that its back-off starts over.
const PANICS: u32 = 4;
const PAUSE: Duration = Duration::from_secs(65);

/// The command of the engine, which is not there at first.
const ENGINE: &str = "engine.sh";

#[test]
fn the_master_itself() -> TestResult {
    Site::run(OURS, configure, |site| {
        let mut watch = Watch::start(site, "the_master_itself")?;
        for text in [
            "injected fault",
            "restart",
            "a maintenance task failed",
            "accepted minions",
            "an engine is given up",
        ] {
            site.announce(text);
        }
        site.step("an engine without its command, and an actor that panics again and again");
        watch.expect_quiet(&["SalternActorRestarts"])?;
        let (mut panics, mut round) = (0, None::<Instant>);
        watch.fires_while("SalternActorRestarts", &[("actor", "batches")], || {
            if round.is_none_or(|begun| begun.elapsed() > PAUSE) {
                for _ in 0..PANICS {
                    panics += 1;
                    panic_for_the(panics, site)?;
                }
                round = Some(Instant::now());
            }
            Ok(())
        })?;
        watch.fires("SalternEngineGivenUp", &[("engine", "late")])?;

        site.step("one address has too many connections");
        watch.expect_quiet(&["SalternConnectionsRefused"])?;
        let port = site.ret_port();
        let crowd: Vec<_> = (0..2 * PER_ADDRESS)
            .map(|_| TcpStream::connect(("127.0.0.1", port)))
            .collect();
        watch.fires_while(
            "SalternConnectionsRefused",
            &[("listener", "request"), ("reason", "per_address")],
            || {
                // One more, which is refused too.
                TcpStream::connect(("127.0.0.1", port)).ok();
                Ok(())
            },
        )?;
        drop(crowd);

        site.step("the keys cannot be read, and so a maintenance task fails");
        watch.expect_quiet(&["SalternCheckFailed", "SalternMaintenanceFails"])?;
        let (keys, aside) = (site.path("pki/minions"), site.path("pki/aside"));
        std::fs::rename(&keys, &aside)?;
        watch.fires("SalternCheckFailed", &[("check", "keys")])?;
        watch.fires("SalternMaintenanceFails", &[("task", "subscribers")])?;
        std::fs::rename(&aside, &keys)?;
        watch.clears("SalternCheckFailed")?;
        watch.clears("SalternMaintenanceFails")?;
        watch.clears("SalternConnectionsRefused")?;
        watch.clears("SalternActorRestarts")?;

        site.step("the master is down; the engine's command is put right");
        watch.expect_quiet(&["SalternDown"])?;
        site.stop_master()?;
        watch.fires("SalternDown", &[("job", "saltern")])?;
        let engine = site.path(ENGINE);
        std::fs::write(&engine, "#!/bin/sh\nexec sleep 600\n")?;
        std::fs::set_permissions(&engine, Permissions::from_mode(0o755))?;
        site.start_master()?;
        watch.clears("SalternDown")?;
        watch.clears("SalternEngineGivenUp")?;
        watch.has_shown_all()
    })
}

fn configure(config: &mut Config) {
    super::configure(config);
    let root = config.get("root_dir").unwrap_or_default().to_owned();
    let engine = format!("[{{late: {{engine_module: script, cmd: {root}/{ENGINE}}}}}]");
    config
        .set("saltern_max_connections_per_address", PER_ADDRESS)
        .set("saltern_engine_restarts", 0)
        .set("engines", engine);
}

fn panic_for_the(times: u32, site: &Site) -> Result<()> {
    site.saltern(&["debug", "panic", "batches"])?
        .expect_code(0)?;
    wait_until("a restart", SOON, || {
        let restarts = site
            .metric("saltern_actor_restarts_total", "batches")
            .ok()?;
        (restarts >= f64::from(times)).then_some(())
    })
}
