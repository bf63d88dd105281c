//! Exhausted resources: disk space, file descriptors, peers that do not read. Whatever is short,
//! everything acknowledged is in the store, other requests are served meanwhile, and the master
//! recovers by itself when the shortage is over.
#![expect(
    clippy::disallowed_types,
    reason = "measures other processes, which no paused clock can reach"
)]

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use saltern_tests::process::run;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::sizes::size;
use saltern_tests::small_disk::{self, SmallDisk};
use saltern_tests::{Config, Release, Server, Site, TestResult, frozen, logs, wait_until};

const OURS: Server = Server::Saltern(Release::V3008);

/// How a master is kept from writing more.
pub(crate) enum Lack {
    /// Its cache directory is a small file system.
    Room(SmallDisk),
    /// Its files may grow no longer.
    Length,
}

/// Room for what the master keeps free and for some seconds of returns.
pub(crate) const SMALL: u64 = 512 << 20;

impl Lack {
    /// A small disk, or, where that may not be mounted, a limit on the length of files.
    pub(crate) fn of_room(site: &mut Site) -> Result<Self> {
        match SmallDisk::mount(&site.path("cache"), SMALL) {
            Ok(disk) => Ok(Self::Room(disk)),
            Err(error) => {
                site.step(&format!("no small disk can be mounted here: {error:#}"));
                Ok(Self::of_length(site))
            }
        }
    }

    pub(crate) fn of_length(site: &mut Site) -> Self {
        site.start_master_by(&small_disk::SURVIVES_SHORT_FILES);
        Self::Length
    }

    pub(crate) fn begins(&self, site: &mut Site) -> Result<()> {
        match self {
            Self::Room(disk) => disk.fill(),
            Self::Length => {
                let log = site.job_database().with_extension("sqlite-wal");
                let longest = std::fs::metadata(log)?.len();
                small_disk::limit_files(site.master().id(), Some(longest))
            }
        }
    }

    pub(crate) fn ends(&self, site: &mut Site) -> Result<()> {
        match self {
            Self::Room(disk) => disk.make_room(),
            Self::Length => small_disk::limit_files(site.master().id(), None),
        }
    }
}

#[test]
fn full_disk_loses_nothing_acknowledged() -> TestResult {
    nothing_can_be_written(Lack::of_room)
}

#[test]
fn file_size_limit_loses_nothing_acknowledged() -> TestResult {
    nothing_can_be_written(|site| Ok(Lack::of_length(site)))
}

fn nothing_can_be_written(lack: impl FnOnce(&mut Site) -> Result<Lack>) -> TestResult {
    Site::prepared(OURS, accept_everybody, |site| {
        let lack = lack(site)?;
        site.start_master()?;
        // What is refused, and why, is logged as an error for the operator.
        for text in [
            "auto_accept",
            "no space",
            "nothing was stored",
            "job database",
        ] {
            site.announce(text);
        }
        site.start_minion("other", MinionKind::Native)?;
        site.wait_started("other")?;
        site.kill_minion("other");
        let mut other = site.session_of("other")?;
        let mut fleet = site.start_fleet("full", 50, &["--returns", "16"])?;
        fleet.wait_for_more(100)?;

        site.step("nothing can be written any more");
        let began = Instant::now();
        lack.begins(site)?;
        wait_until("a job to be refused", SOON, || {
            (!publishes(site).ok()?).then_some(())
        })?;
        site.step("requests that write nothing are served");
        other.send("without/room")?;
        site.events().tag("without/room", SOON)?;

        let lines = logs::read(&site.path("log/master.out")).lines().count();
        let minutes = usize::try_from(began.elapsed().as_secs() / 60)?;
        let most = MAX_LINES * (1 + minutes);
        ensure!(lines < most, "the log has {lines} lines about it");

        site.step("there is room again");
        lack.ends(site)?;
        wait_until("a job to be taken", SOON, || {
            publishes(site).ok()?.then_some(())
        })?;
        fleet.wait_for_more(100)?;
        let ledger = fleet.stop()?;
        site.accounts(&ledger)?.expect_balance()?;
        site.stop_master()?;
        Ok(())
    })
}

/// A lasting shortage is logged, but not with every request: the log may be on the same disk. Lines of a minute.
const MAX_LINES: usize = 40;

fn accept_everybody(config: &mut Config) {
    config.set("auto_accept", "True");
}

/// Whether the master takes a job.
fn publishes(site: &Site) -> Result<bool> {
    let run = site.saltern_cmd(&["--async", "full-1", "test.echo", "x"])?;
    Ok(run.code == Some(0))
}

/// Descriptors that the master may open: twice what it needs for itself, its threads above all.
const DESCRIPTORS: usize = 400;

#[test]
fn exhausted_descriptors_leave_connected_peers_served() -> TestResult {
    Site::prepared(
        OURS,
        |config| {
            accept_everybody(config);
            config
                .set("max_open_files", DESCRIPTORS)
                .set("saltern_handshake_timeout", 600);
        },
        |site| {
            let limit = format!("ulimit -Sn {DESCRIPTORS}; exec \"$0\" \"$@\"");
            site.start_master_by(&["sh", "-c", &limit]);
            site.start_master_only()?;
            // Duties that must open files fail, say so, and are done later.
            for text in [
                "auto_accept",
                "max_open_files",
                LOG_INTERVAL,
                "cannot be",
                "a maintenance task failed",
            ] {
                site.announce(text);
            }
            let mut fleet = site.start_fleet("few", 20, &["--returns", "10"])?;
            fleet.wait_for_more(100)?;

            site.step("every descriptor is taken");
            let idle = frozen::subscribers(site.publish_port(), DESCRIPTORS)?;
            let complaints = |site: &Site| {
                let log = logs::read(&site.path("log/master.out"));
                log.lines()
                    .filter(|line| line.contains(LOG_INTERVAL))
                    .count()
            };
            wait_until("the master to log an error", SOON, || {
                (complaints(site) > 0).then_some(())
            })?;
            fleet.wait_for_more(1000)?;
            // The log file has the time of each line, and so its minute.
            let log = logs::read(&site.path("log/master"));
            let mut minutes = BTreeMap::new();
            for line in log.lines().filter(|line| line.contains(LOG_INTERVAL)) {
                *minutes.entry(line.get(..MINUTE)).or_insert(0) += 1;
            }
            ensure!(!minutes.is_empty(), "the log file has no such line");
            ensure!(
                minutes.values().all(|times| *times <= 2),
                "a lasting shortage was logged more than twice a minute: {minutes:?}"
            );

            site.step("there are descriptors again");
            drop(idle);
            let newcomers = site.start_fleet("new", 5, &[])?;
            // Signed in is not subscribed: what was published before that has passed them by.
            wait_until("the newcomers to answer", SOON, || {
                let asked = site.saltern_cmd(&["new-*", "test.echo", "x"]).ok()?;
                (asked.code == Some(0)).then_some(())
            })?;
            newcomers.stop()?;
            let ledger = fleet.stop()?;
            site.accounts(&ledger)?.expect_balance()?;
            Ok(())
        },
    )
}

/// Text of the log when no connection can be accepted, once a listener and a minute.
const LOG_INTERVAL: &str = "cannot accept connections";

/// Characters of a time in the log file up to its minute.
const MINUTE: usize = "2026-01-02 03:04".len();

/// Subscribers of the publish port that never read, unless `SALTERN_FROZEN` says otherwise.
const FROZEN: usize = 10_000;

/// One in so many has a listener of the event socket that never reads, either.
const SUBSCRIBERS_A_LISTENER: usize = 10;

/// Bytes that the master may need for so many: 8 KiB a connection, and something for what their
/// queues keep together. The events of this test alone come to more.
fn memory_for(subscribers: usize) -> u64 {
    (subscribers as u64) * (8 << 10) + (64 << 20)
}

/// Values of a metric, by its labels.
fn counts(site: &Site, metric: &str) -> String {
    let metrics = site.saltern(&["metrics"]).map(|run| run.stdout);
    let metrics = metrics.unwrap_or_default();
    let lines = metrics.lines().filter(|line| line.starts_with(metric));
    let counted = lines.filter(|line| !line.ends_with(" 0"));
    counted.collect::<Vec<_>>().join("\n")
}

#[test]
fn thousands_of_frozen_subscribers_delay_no_other() -> TestResult {
    let wanted = size("SALTERN_FROZEN", FROZEN)?;
    let idle = wanted / SUBSCRIBERS_A_LISTENER;
    Site::run(
        OURS,
        |config| {
            accept_everybody(config);
            config
                .set("max_open_files", 2 * FROZEN)
                .set("saltern_max_connections_per_address", 0)
                .set("saltern_event_queue_length", 1000)
                .set("saltern_subscriber_queue_size", 1 << 20)
                .set("publish_drain_timeout", 10);
        },
        |site| {
            for text in [
                "auto_accept",
                "max_open_files",
                "took no events for too long",
            ] {
                site.announce(text);
            }
            let mut fleet = site.start_fleet("live", 50, &["--returns", "8"])?;
            let possible = usize::try_from(frozen::may_open(15_000)?)?;
            let count = wanted.min(possible.saturating_sub(idle + 500));
            site.step(&format!("{count} subscribers and {idle} listeners freeze"));
            let before = site.master().memory()?;
            let frozen = frozen::subscribers(site.publish_port(), count)?;
            // A subscriber that connects after the publishes has nothing queued, and is never slow.
            let open = "listener=\"publish\",state=\"open\"";
            wait_until("all of them to be subscribers", 3 * SOON, || {
                let connected = site.metric("saltern_port_connections", open).ok()?;
                (connected >= count as f64).then_some(())
            })?;
            let socket = site.path("run/master_event_pub.ipc");
            let listeners = frozen::listeners(&socket, idle)?;
            fleet.wait_for_more(100)?;

            site.step("jobs and events go on, far more than can be kept for the frozen");
            let mut flood = site.stock_peer("flood_events.py", &["3000", "100000"]);
            let flood = std::thread::spawn(move || run(&mut flood, 2 * SOON));
            let long = "x".repeat(20_000);
            let mut most = site.master().memory()?;
            for _ in 0..20 {
                site.saltern_cmd(&["--async", "live-*", "test.echo", &long])?
                    .expect_code(0)?;
                most = most.max(site.master().memory()?);
            }
            fleet.wait_for_more(1000)?;
            flood
                .join()
                .expect("running it does not panic")?
                .expect_code(0)?;
            most = most.max(site.master().memory()?);
            let needed = most.saturating_sub(before);
            site.step(&format!("the master needed {} MiB more", needed >> 20));
            let may = memory_for(wanted);
            ensure!(needed < may, "that is more than {} MiB", may >> 20);

            site.step("peers that do not read are disconnected, and the others are served");
            for (metric, label, count) in [
                ("saltern_port_closed_total", "slow_subscriber", count),
                ("saltern_bus_subscribers_cut_off_total", "", idle),
            ] {
                wait_until(&format!("{metric} to reach {count}"), SOON, || {
                    (site.metric(metric, label).ok()? >= count as f64).then_some(())
                })
                .with_context(|| counts(site, metric))?;
            }
            site.saltern_cmd(&["-t", "60", "live-*", "test.echo", "x"])?
                .expect_code(0)?;
            drop((frozen, listeners));
            let ledger = fleet.stop()?;
            site.accounts(&ledger)?.expect_balance()?;
            Ok(())
        },
    )
}
