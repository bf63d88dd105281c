//! Rotation of the master's own key under a thousand minions that are never idle: native ones, a stock one of
//! each release, and some that are away while the key is handed over. Jobs for all of them and returns
//! go on from before the first step until after the last one. None is lost or doubled, and each list names exactly
//! those who are left.

#![allow(
    clippy::disallowed_types,
    clippy::print_stderr,
    reason = "it says how long real processes take"
)]

use std::collections::{BTreeSet, HashSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use parking_lot::{FairMutex, FairMutexGuard};
use saltern_tests::release::saltern_program;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::sizes::size;
use saltern_tests::{Release, Server, Site, TestResult, run, wait_until};
use serde_json::Value;

const FLEET: usize = 1_000;

const STOCK: [(&str, Release); 3] = [
    ("m3006", Release::V3006),
    ("m3007", Release::V3007),
    ("m3008", Release::V3008),
];

/// Minions that are ended before the key is handed over, and started again before the end.
const AWAY: [(&str, MinionKind); 3] = [
    ("away-3006", MinionKind::Stock(Release::V3006)),
    ("away-3008", MinionKind::Stock(Release::V3008)),
    ("away-native", MinionKind::Native),
];

#[test]
fn master_key_is_rotated_under_1000_busy_minions_without_a_lost_job() -> TestResult {
    let minions = size("SALTERN_ROTATION_MINIONS", FLEET)?;
    Site::run(
        Server::Saltern(Release::V3008),
        |config| {
            // Long enough for a thousand minions on a busy machine; the lists wait so long for those that are away.
            config.set("timeout", 30).set("auto_accept", "True");
        },
        |site| {
            // The task that compares the key in use with the one on the disk, before the restart.
            site.announce("master_key");
            site.announce("auto_accept");
            // Our minions say that the master, or a request to it, went away.
            site.announce("WARN saltern_minion::");
            start_stock_minions(site)?;
            // Returns of jobs that nobody published go on all the time, also while the master restarts.
            let steady = ["--returns", "16", "--rate", "100"];
            let fleet = site.start_fleet("fleet", minions, &steady)?;
            let present: BTreeSet<String> = (0..minions)
                .map(|number| format!("fleet-{number}"))
                .chain(STOCK.map(|(id, _)| id.to_owned()))
                .collect();
            wait_subscribed(site, present.len() + AWAY.len())?;
            let jobs = Jobs::new(site, present);
            std::thread::scope(|scope| {
                let running = scope.spawn(|| jobs.run());
                let rotated = {
                    // Also after a panic, or the scope would wait for ever.
                    let _over = SetOnDrop(&jobs.is_over);
                    rotate_under_load(site, &jobs)
                };
                let ended = running.join().expect("the jobs do not panic");
                // The first that failed stopped the other one.
                ended.and(rotated)
            })?;
            eprintln!("{} jobs", jobs.done.load(Ordering::SeqCst));
            let ledger = fleet.stop()?;
            let said = fs::read_to_string(site.path("log/fleet.out"))?;
            let error = said.lines().find(|line| line.contains(" ERROR "));
            ensure!(error.is_none(), "a minion of the fleet: {error:?}");
            expect_no_line_twice(&fs::read_to_string(&ledger)?)?;
            let accounts = site.accounts(&ledger)?;
            accounts.expect_balance()?;
            eprintln!("{} returns", accounts.number("acknowledged")?);
            Ok(())
        },
    )
}

/// Sets a flag when it is dropped.
struct SetOnDrop<'f>(&'f AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn rotate_under_load(site: &mut Site, jobs: &Jobs) -> Result<()> {
    let all = jobs.present.len();
    jobs.wait_for_more(2)?;
    for (id, kind) in AWAY {
        match kind {
            MinionKind::Stock(_) => site.end_stock_minion(id)?,
            MinionKind::Native => site.kill_minion(id),
        }
        site.wait_until_away(id)?;
    }
    let old = fs::read_to_string(site.path("pki/master.pub"))?;

    site.step("a new key");
    rotate(site, &["begin"], 0)?;
    jobs.wait_for_more(1)?;
    {
        // A stock minion loses returns when its master goes away, whichever master that is.
        let _none = jobs.pause();
        site.stop_master()?;
        site.start_master()?;
        site.wait_until_ready_again()?;
        wait_subscribed(site, all)?;
    }
    jobs.wait_for_more(2)?;
    let listed = rotate(site, &["status"], 1)?;
    let left = left(&listed);
    // A native minion that had to log in anew has the new key already.
    let has_new = all + AWAY.len() - left.len();
    let sum = format!("{has_new} with the present key, {} left", left.len());
    ensure!(listed.contains(&sum), "{sum} was expected: {listed}");
    let named = |wanted: &str| left.iter().any(|(id, _)| id == wanted);
    ensure!(STOCK.iter().all(|(id, _)| named(id)), "{listed}");
    ensure!(AWAY.iter().all(|(id, _)| named(id)), "{listed}");
    for (id, reason) in &left {
        let is_away = id.starts_with("away-");
        let expected = match is_away {
            true => "did not return key.finger_master",
            false => "has the previous key",
        };
        ensure!(reason == expected, "{id}: {reason}");
    }

    site.step("the new key is handed over");
    let began = Instant::now();
    let mut times = 0;
    // Minions that run a job are passed over. A stock one of a busy machine may always run one: after the first
    // time, only the fleet has jobs.
    wait_until("all that are present to have the new key", SOON * 2, || {
        times += 1;
        let began = Instant::now();
        let listed = rotate(site, &["hand-over"], 1).ok()?;
        let left = self::left(&listed);
        jobs.is_for_fleet.store(true, Ordering::SeqCst);
        eprintln!("hand-over {times}: {:.1?}, left {left:?}", began.elapsed());
        let is_away = |(id, _): &(String, String)| id.starts_with("away-");
        // Neither does an error name anybody.
        (left.len() == AWAY.len() && left.iter().all(is_away)).then_some(())
    })?;
    jobs.is_for_fleet.store(false, Ordering::SeqCst);
    eprintln!("handed over in {:.1?}", began.elapsed());
    let new = fs::read_to_string(site.path("pki/master.pub"))?;
    ensure!(old != new);
    expect_key(site, STOCK.map(|(id, _)| id), &new)?;
    expect_key(site, AWAY.map(|(id, _)| id), &old)?;
    jobs.wait_for_more(2)?;
    rotate(site, &["finish"], 1)?;

    site.step("those that were away come back");
    for (id, _) in AWAY {
        site.start_prepared_minion(id)?;
    }
    wait_subscribed(site, all + AWAY.len())?;
    wait_until("all minions to have the new key", SOON * 2, || {
        rotate(site, &["hand-over"], 0).ok()
    })?;
    expect_key(site, AWAY.map(|(id, _)| id), &new)?;
    jobs.includes_away.store(true, Ordering::SeqCst);
    jobs.wait_for_more(2)?;

    site.step("the old key ends");
    let (began, before) = (Instant::now(), authentications(site)?);
    rotate(site, &["finish"], 0)?;
    jobs.wait_for_more(3)?;
    let count = authentications(site)? - before;
    let took = began.elapsed();
    eprintln!("{count} authentications and three jobs in {took:.1?}");
    // One each, at least, and no storm: more for those whose first was lost to a busy master, on a slow machine most of
    // them, but not again and again.
    let minions = (all + AWAY.len()) as f64;
    let most = minions * (2.0 + took.as_secs_f64() / 10.0);
    ensure!(
        (minions..=most).contains(&count),
        "{count} authentications in {took:?}"
    );
    Ok(())
}

/// Stock minions verify the signatures of publications, too, which is no default.
fn start_stock_minions(site: &mut Site) -> Result<()> {
    let stock = STOCK.map(|(id, release)| (id, MinionKind::Stock(release)));
    let minions: Vec<_> = stock.into_iter().chain(AWAY).collect();
    for (id, kind) in &minions {
        site.prepare_minion(id, *kind, |config| {
            if let MinionKind::Stock(_) = kind {
                config.set("sign_pub_messages", "True");
            }
        })?;
        site.accept_beforehand(id)?;
        site.start_prepared_minion(id)?;
    }
    minions.iter().try_for_each(|(id, _)| site.wait_started(id))
}

fn wait_subscribed(site: &Site, minions: usize) -> Result<()> {
    wait_until("all minions to have subscribed", SOON, || {
        let subscribers = site.metric("saltern_subscribers", "").ok()?;
        (subscribers >= minions as f64).then_some(())
    })
}

fn authentications(site: &Site) -> Result<f64> {
    site.metric("saltern_authentications_total", "\"accept\"")
}

fn expect_key<const N: usize>(site: &Site, ids: [&str; N], key: &str) -> Result<()> {
    for id in ids {
        let held = fs::read_to_string(site.minion_path(id, "pki/minion_master.pub"))?;
        ensure!(held.trim() == key.trim(), "{id} has another key");
    }
    Ok(())
}

/// A step with its exit code; gives all that it printed.
fn rotate(site: &Site, step: &[&str], code: i32) -> Result<String> {
    let run = site.saltern(&[&["key", "rotate-master"], step].concat())?;
    run.expect_code(code)?;
    Ok(format!("{}{}", run.stdout, run.stderr))
}

/// The minions that a list names, with the reasons.
fn left(listed: &str) -> Vec<(String, String)> {
    let minions = listed.lines().filter_map(|line| {
        let (id, reason) = line.strip_prefix("  ")?.split_once(": ")?;
        Some((id.to_owned(), reason.to_owned()))
    });
    minions.collect()
}

/// A return that was acknowledged twice was made twice.
fn expect_no_line_twice(ledger: &str) -> Result<()> {
    let mut seen = HashSet::new();
    for line in ledger.lines() {
        let mut words = line.split(' ');
        let (jid, minion) = (words.next(), words.next());
        ensure!(seen.insert((jid, minion)), "twice: {line}");
    }
    Ok(())
}

/// Jobs for all minions, one after the other.
struct Jobs {
    conf: PathBuf,
    present: BTreeSet<String>,
    includes_away: AtomicBool,
    is_for_fleet: AtomicBool,
    is_over: AtomicBool,
    done: AtomicUsize,
    has_failed: AtomicBool,
    /// Held while a job is under way.
    turn: FairMutex<()>,
}

impl Jobs {
    fn new(site: &Site, present: BTreeSet<String>) -> Self {
        Self {
            conf: site.path("conf"),
            present,
            includes_away: AtomicBool::new(false),
            is_for_fleet: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            done: AtomicUsize::new(0),
            has_failed: AtomicBool::new(false),
            turn: FairMutex::new(()),
        }
    }

    fn run(&self) -> Result<()> {
        while !self.is_over.load(Ordering::SeqCst) {
            let _turn = self.turn.lock();
            let job = self.one(self.done.load(Ordering::SeqCst));
            self.has_failed.store(job.is_err(), Ordering::SeqCst);
            job?;
            self.done.fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }

    /// A job to which each minion that it is for returns what it was given.
    fn one(&self, number: usize) -> Result<()> {
        let mut expected = self.present.clone();
        let target = if self.is_for_fleet.load(Ordering::SeqCst) {
            expected.retain(|id| id.starts_with("fleet-"));
            "fleet-*"
        } else if self.includes_away.load(Ordering::SeqCst) {
            expected.extend(AWAY.map(|(id, _)| id.to_owned()));
            "*"
        } else {
            "not away-*"
        };
        let text = format!("job {number}");
        let mut command = Command::new(saltern_program());
        command.args(["cmd", "-c"]).arg(&self.conf);
        command.args(["--one-document", "-C", target, "test.echo", &text]);
        let run = run(&mut command, SOON * 2)?;
        let returned: Value = serde_json::from_str(&run.stdout).context(run.to_string())?;
        let returned = returned.as_object().context("no map of minions")?;
        let right: BTreeSet<String> = returned
            .iter()
            .filter(|(_, value)| value.as_str() == Some(&text))
            .map(|(id, _)| id.clone())
            .collect();
        let lost: Vec<_> = expected.difference(&right).take(5).collect();
        ensure!(lost.is_empty(), "{text} is lost by {lost:?} and maybe more");
        ensure!(
            returned.len() == expected.len(),
            "{text}: {}",
            returned.len()
        );
        run.expect_code(0)?;
        Ok(())
    }

    /// No job is under way, and none begins, until what is given is dropped.
    fn pause(&self) -> FairMutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// Waits until so many jobs have ended that began from now on.
    fn wait_for_more(&self, count: usize) -> Result<()> {
        // The one that is under way began before.
        let wanted = self.done.load(Ordering::SeqCst) + count + 1;
        let has_ended = wait_until("jobs to end", SOON * 2, || {
            if self.has_failed.load(Ordering::SeqCst) {
                return Some(false);
            }
            (self.done.load(Ordering::SeqCst) >= wanted).then_some(true)
        })?;
        if !has_ended {
            bail!("a job failed");
        }
        Ok(())
    }
}
