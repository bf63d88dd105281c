//! The master is killed repeatedly, at random moments and at each fail point between a write and
//! its acknowledgement, while five hundred minions return without pause and jobs are published.
//! Afterwards the store holds exactly what was acknowledged. Needs a binary built with the feature
//! `fault-injection`.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use parking_lot::Mutex;
use saltern_tests::process::run;
use saltern_tests::release::saltern_program;
use saltern_tests::site::SOON;
use saltern_tests::sizes::size;
use saltern_tests::{Fleet, Release, Server, Site, TestResult, wait_until};

const OURS: Server = Server::Saltern(Release::V3006);
const MINIONS: usize = 500;

/// Kills at random moments, unless `SALTERN_KILLS` says otherwise; fail points come on top.
const KILLS: usize = 5;

/// Each is worth many small ones to the write-ahead log.
const LARGE_RETURNS: [&str; 4] = ["--returns", "16", "--value-size", "100000"];

#[test]
fn random_kills_and_every_fail_point_lose_nothing_that_was_acknowledged() -> TestResult {
    Site::run(
        OURS,
        |config| {
            config
                .set("auto_accept", "True")
                .set("timeout", 1)
                .set("gather_job_timeout", 1)
                .set("saltern_probe_interval", 2)
                .set("saltern_job_timeout", 2);
        },
        |site| {
            let mut random = Random::new();
            site.step(&format!("SALTERN_SEED={} draws the same moments", random.0));
            site.announce("auto_accept");
            let mut fleet = site.start_fleet("kill", MINIONS, &["--returns", "64"])?;
            let jobs = Jobs::start(site);
            let kills = size("SALTERN_KILLS", KILLS)?;
            for kill in 1..=kills {
                fleet.wait_for_more(random.below(150))?;
                // Drawn and not awaited: any moment will do.
                std::thread::sleep(Duration::from_micros(random.below(20_000) as u64));
                site.step(&format!("kill -9, number {kill} of {kills}"));
                site.kill_master();
                site.start_master_only()?;
            }
            let points = site.saltern(&["debug", "points"])?;
            for point in points.expect_code(0)?.stdout.lines() {
                dies_at(site, point, 1 + random.below(3))?;
                fleet.wait_for_more(1)?;
            }
            let published = jobs.stop()?;
            every_job_is_over(site, &fleet)?;
            nothing_is_lost(site, fleet, &published)
        },
    )
}

/// Lets the master die at a fail point, at the pass of this number, and starts it again.
fn dies_at(site: &mut Site, point: &str, count: usize) -> Result<()> {
    // What does not come by itself comes once.
    let count = match point {
        "session-between" | "rotation-between" | "checkpoint-within" => 1,
        _ => count,
    };
    site.step(&format!("the master dies at {point}, pass {count}"));
    // The write-ahead log is checkpointed when it is long.
    let large = match point {
        "checkpoint-within" => Some(site.start_fleet("large", 16, &LARGE_RETURNS)?),
        _ => None,
    };
    // Returns come all the time: it may be dead before it has answered.
    let asked = site.saltern(&["debug", "die", point, "--count", &count.to_string()])?;
    match point {
        "session-between" => forget_a_session(site)?,
        "rotation-between" => drop_dropfile(site)?,
        _ => {}
    }
    let what = format!("the master to die at {point}");
    let status = wait_until(&what, SOON, || site.master().ended());
    let status = status.with_context(|| asked.to_string())?;
    let signal = status.signal();
    ensure!(
        signal == Some(9),
        "at {point} the master ended with {status}"
    );
    site.kill_master();
    site.start_master_only()?;
    let Some(large) = large else {
        return Ok(());
    };
    let ledger = large.stop()?;
    site.accounts(&ledger)?.expect_balance()?;
    Ok(())
}

/// The minion has to sign in anew, and gets another session.
fn forget_a_session(site: &Site) -> Result<()> {
    let path = site.path("cache/sessions/kill-7");
    std::fs::remove_file(&path).with_context(|| path.display().to_string())
}

/// Asks for a new shared key, as stock's `salt-key` does.
fn drop_dropfile(site: &Site) -> Result<()> {
    let path = site.path("cache/.dfn");
    std::fs::OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o400)
        .open(&path)
        .with_context(|| path.display().to_string())?;
    Ok(())
}

/// Whatever the master did not live to see of a job, its verdict comes.
fn every_job_is_over(site: &Site, fleet: &Fleet) -> Result<()> {
    site.step("every job has a verdict");
    wait_until("the last job to be over", 2 * SOON, || {
        let accounts = site.accounts(fleet.ledger()).ok()?;
        (accounts.number("open").ok()? == 0).then_some(())
    })
}

fn nothing_is_lost(site: &mut Site, fleet: Fleet, published: &BTreeSet<String>) -> Result<()> {
    site.step("every acknowledged return is in the store, once and as it was sent");
    let ledger = fleet.stop()?;
    let accounts = site.accounts(&ledger)?;
    accounts.expect_balance()?;
    site.step(&format!(
        "{} returns were acknowledged, {} are stored, {} jobs were published",
        accounts.number("acknowledged")?,
        accounts.number("stored")?,
        published.len()
    ));
    ensure!(!published.is_empty(), "no job was published");
    let stored = accounts.jobs()?;
    let lost: Vec<&String> = published
        .iter()
        .filter(|jid| !stored.contains(jid.as_str()))
        .collect();
    ensure!(lost.is_empty(), "jobs that clients hold are lost: {lost:?}");
    // An orderly stop would wait for the job files, which are written when nobody else has work.
    site.kill_master();
    Ok(())
}

/// Publishes jobs until it is stopped, each to a tenth of the fleet or so.
struct Jobs {
    stop: Arc<AtomicBool>,
    published: Arc<Mutex<BTreeSet<String>>>,
    thread: Option<JoinHandle<Result<()>>>,
}

impl Jobs {
    fn start(site: &Site) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let published = Arc::new(Mutex::new(BTreeSet::new()));
        let thread = std::thread::spawn({
            let (stop, published) = (Arc::clone(&stop), Arc::clone(&published));
            let config = site.path("conf");
            move || publish(&config, &stop, &published)
        });
        Self {
            stop,
            published,
            thread: Some(thread),
        }
    }

    /// The ids that the master gave.
    fn stop(mut self) -> Result<BTreeSet<String>> {
        self.stop.store(true, Ordering::SeqCst);
        let thread = self.thread.take().context("it is stopped once")?;
        thread.join().expect("publishing does not panic")?;
        Ok(std::mem::take(&mut self.published.lock()))
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

fn publish(config: &Path, stop: &AtomicBool, ids: &Mutex<BTreeSet<String>>) -> Result<()> {
    for number in 0.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let mut command = Command::new(saltern_program());
        command
            .args(["cmd", "--async", "-c"])
            .arg(config)
            .args([&format!("kill-{}*", number % 10), "test.echo"])
            .arg(format!("job number {number}"));
        // Without a master it fails, and nothing was acknowledged.
        let run = run(&mut command, SOON)?;
        if let Some(jid) = run
            .stdout
            .trim()
            .strip_prefix("Executed command with job ID: ")
        {
            ids.lock().insert(jid.to_owned());
        }
    }
    Ok(())
}

/// Numbers that can be had again: SplitMix64.
struct Random(u64);

impl Random {
    /// From the environment, or any.
    fn new() -> Self {
        let given = std::env::var("SALTERN_SEED").ok();
        let given = given.and_then(|seed| seed.parse().ok());
        Self(given.unwrap_or_else(|| RandomState::new().build_hasher().finish()))
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }
}
