//! All kinds of hostile peers at once beside honest minions: memory keeps to its stated bound (the
//! table "Admission and memory" in ARCHITECTURE.md), and honest minions are served.
//!
//! `SALTERN_HOSTILE_SECONDS` says how long; `make hostile` is the long form.
#![expect(
    clippy::disallowed_types,
    reason = "measures other processes, which no paused clock can reach"
)]

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use saltern_tests::hostile::Attacks;
use saltern_tests::site::SOON;
use saltern_tests::sizes::size;
use saltern_tests::{Release, Server, Site, TestResult};

const OURS: Server = Server::Saltern(Release::V3008);

/// Hostile peers, and honest minions beside them.
const HOSTILE: usize = 64;
const MINIONS: usize = 20;

/// The short form.
const SECONDS: usize = 20;

/// Memory that unauthenticated peers may take: large requests (a quarter of
/// `ReqLimits::in_flight`), replies that wait for their readers (a quarter of
/// `ReqLimits::answers`), and, for what is not counted byte by byte, connections, queues and the
/// allocator's slack.
const MEMORY: u64 = (128 + 64 + 96) << 20;

/// An honest job may take so many times what it takes when nobody attacks, and this in any case,
/// one of two and 99 of 100: the attackers share the machine with the master, and both with
/// whatever else runs there.
const FACTOR: u32 = 10;
const MEDIAN_FLOOR: Duration = Duration::from_secs(10);
const P99_FLOOR: Duration = Duration::from_secs(60);

fn duration() -> Result<Duration> {
    let seconds = size("SALTERN_HOSTILE_SECONDS", SECONDS)?;
    Ok(Duration::from_secs(seconds as u64))
}

/// One `test.ping` to all of so many minions `live-N`, none of which may be missing; how long it took.
pub(crate) fn ping(site: &Site, minions: usize) -> Result<Duration> {
    let began = Instant::now();
    let run = site.saltern_cmd(&["-t", "60", "live-*", "test.ping"])?;
    let took = began.elapsed();
    run.expect_code(0)?;
    let answered = run.stdout.matches("True").count();
    ensure!(
        answered == minions,
        "{answered} of {minions} minions answered:\n{}",
        run.stdout
    );
    Ok(took)
}

/// The median, and the value that 99 of 100 stay below.
fn median_and_p99(times: &mut [Duration]) -> (Duration, Duration) {
    times.sort_unstable();
    let p99 = (times.len() * 99).div_ceil(100).saturating_sub(1);
    let at = |index: usize| times.get(index).copied().unwrap_or_default();
    (at(times.len() / 2), at(p99))
}

/// The same of some jobs while nobody attacks.
fn idle(site: &Site) -> Result<(Duration, Duration)> {
    let times: Result<Vec<Duration>> = (0..10).map(|_| ping(site, MINIONS)).collect();
    Ok(median_and_p99(&mut times?))
}

#[test]
fn hostile_peers_exceed_no_memory_bound_and_delay_no_ping() -> TestResult {
    Site::run(
        OURS,
        |config| {
            config.set("auto_accept", "True");
        },
        |site| {
            site.announce("auto_accept");
            site.announce("hostile-");
            let fleet = site.start_fleet("live", MINIONS, &[])?;
            let idle_before = idle(site)?;
            let before = site.master().memory()?;

            let duration = duration()?;
            site.step(&format!(
                "{HOSTILE} hostile peers for {} s; idle: {idle_before:?}, {} MiB",
                duration.as_secs(),
                before >> 20
            ));
            let attacks = Attacks::start(HOSTILE, site.ret_port(), site.publish_port())?;
            let began = Instant::now();
            let (mut times, mut most) = (Vec::new(), before);
            while began.elapsed() < duration || times.len() < 5 {
                times.push(ping(site, MINIONS)?);
                most = most.max(site.master().memory()?);
                let next = began + Duration::from_secs(1) * u32::try_from(times.len())?;
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
            let rounds = attacks.rounds();
            drop(attacks);
            let (median, p99) = median_and_p99(&mut times);
            site.step(&format!(
                "{} pings, median {median:?}, p99 {p99:?}, at most {} MiB; rounds: {rounds:?}",
                times.len(),
                most >> 20
            ));
            for (kind, count) in rounds {
                ensure!(count > 0, "no peer tried \"{kind}\"");
            }
            let needed = most.saturating_sub(before);
            ensure!(
                needed < MEMORY,
                "the master needed {} MiB more, of {} MiB",
                needed >> 20,
                MEMORY >> 20
            );
            // Before and after: the machine may have become busier meanwhile.
            let idle_after = idle(site)?;
            for (what, attacked, before, after, floor) in [
                ("median", median, idle_before.0, idle_after.0, MEDIAN_FLOOR),
                ("p99", p99, idle_before.1, idle_after.1, P99_FLOOR),
            ] {
                let bound = floor.max(before.max(after) * FACTOR);
                ensure!(
                    attacked < bound,
                    "{what} is {attacked:?}, idle {before:?} before and {after:?} after"
                );
            }

            let ledger = fleet.stop()?;
            site.accounts(&ledger)?.expect_balance()?;
            Ok(())
        },
    )
}

/// A stop that waits for hostile peers would use up this time, and the site does not wait as long.
const STOP_TIMEOUT: u64 = 600;

#[test]
fn stop_under_attack_is_not_delayed() -> TestResult {
    Site::run(
        OURS,
        |config| {
            config.set("saltern_stop_timeout", STOP_TIMEOUT);
        },
        |site| {
            site.announce("hostile-");
            let attacks = Attacks::start(HOSTILE, site.ret_port(), site.publish_port())?;
            let began = Instant::now();
            let is_idle = |attacks: &Attacks| attacks.rounds().iter().any(|(_, it)| *it < 2);
            while is_idle(&attacks) {
                ensure!(began.elapsed() < SOON, "{:?}", attacks.rounds());
                std::thread::sleep(Duration::from_millis(100));
            }
            let status = site.stop_master()?;
            drop(attacks);
            ensure!(status.success(), "{status}");
            Ok(())
        },
    )
}
