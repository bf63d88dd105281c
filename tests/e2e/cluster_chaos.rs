//! The short form of `make chaos`: members and PostgreSQL fail under load, and what clients and minions saw is
//! compared with what is stored in the end (`tests/bench/chaos_history.py`). It judges no times.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use saltern_tests::process::Daemon;
use saltern_tests::release::saltern_program;
use saltern_tests::site::SOON;
use saltern_tests::wait_until;

/// Longest time of the run, which waits for each step by itself.
const LIMIT: Duration = Duration::from_secs(18 * 60);

#[test]
fn history_is_sound_after_a_kill_a_freeze_a_cut_and_a_failover() -> Result<()> {
    let place = tempfile::tempdir()?;
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new("python3");
    command
        .arg(tests.join("bench/chaos.py"))
        .args(["--kills=1", "--freezes=1", "--cuts=1", "--failovers=1"])
        // The active member is hit; few and light peers, because other tests run beside it.
        .args(["--standbys=0", "--stock=0", "--minions=30", "--rate=20"])
        .args(["--pause=2", "--lenient"])
        .env("SALTERN", saltern_program());
    let output = place.path().join("output");
    let mut run = Daemon::start("chaos", &mut command, &output)?;
    let ended = wait_until("the run to end", LIMIT, || run.ended());
    let said = std::fs::read_to_string(&output)?;
    match ended {
        Ok(status) => ensure!(status.success(), "{status}: {said}"),
        Err(error) => {
            // It ends what it has started.
            run.stop(SOON)?;
            return Err(error.context(said));
        }
    }
    ensure!(said.contains("anomalies: 0"), "{said}");
    Ok(())
}
