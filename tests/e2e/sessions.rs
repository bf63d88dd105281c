//! Authentication: none over a restart or a crash of the master, one of each minion after a
//! rotation of the shared key, and refused for a revoked minion. Also how stock handles our answer
//! to too many log-ins at once.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use saltern_tests::process::{Daemon, run};
use saltern_tests::release::lab_program;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Config, Release, Server, Site, TestResult, wait_until};

use crate::durability::connections;

const OURS: Server = Server::Saltern(Release::V3008);

const STOCK: [(&str, Release); 3] = [
    ("m3006", Release::V3006),
    ("m3007", Release::V3007),
    ("m3008", Release::V3008),
];

const SWARM: usize = 60;

fn accept_all(config: &mut Config) {
    config.set("auto_accept", "True");
}

/// A swarm that is connected as a whole.
fn start_swarm(site: &mut Site, minions: usize, others: usize) -> Result<Daemon> {
    let mut command = Command::new(lab_program());
    let master = format!("127.0.0.1:{}", site.ret_port());
    command.args(["swarm", "--minions", &minions.to_string()]);
    command.args(["--master", &master]);
    let swarm = Daemon::start("swarm", &mut command, &site.path("log/swarm.out"))?;
    wait_connected(site, minions + others)?;
    Ok(swarm)
}

pub(crate) fn wait_connected(site: &Site, minions: usize) -> Result<()> {
    let what = format!("{minions} minions to subscribe");
    let subscribed = || connections(site.publish_port()).len();
    wait_until(&what, SOON, || (subscribed() >= minions).then_some(()))
}

/// Waits until so many have subscribed: the kernel takes connections before the master does.
fn wait_subscribed(site: &Site, minions: usize) -> Result<()> {
    let minions = u32::try_from(minions)?;
    wait_until(&format!("{minions} minions to be subscribed"), SOON, || {
        let subscribers = site.metric("saltern_subscribers", "").ok()?;
        (subscribers >= f64::from(minions)).then_some(())
    })
}

/// How many authentications this process of the master has answered, whatever it said.
pub(crate) fn authentications(site: &Site) -> Result<u64> {
    let metrics = site.saltern(&["metrics"])?;
    metrics.expect_code(0)?;
    let lines = metrics.stdout.lines();
    let of_auth = lines.filter(|line| line.starts_with("saltern_authentications_total{"));
    let counts = of_auth.map(|line| {
        let count = line
            .rsplit(' ')
            .next()
            .and_then(|count| count.parse::<u64>().ok());
        count.with_context(|| format!("no count in {line:?}"))
    });
    counts.sum()
}

/// Of each line of stock a channel with its session and a reader of publications with its shared
/// key go through this, and a swarm of whole minions. Whole minions of stock do more: 3007 and 3008
/// authenticate in every process of theirs that asks for a pillar or was scheduled.
#[test]
fn sessions_survive_a_restart_and_a_kill() -> TestResult {
    let swarm_ids: Vec<String> = (0..SWARM).map(|number| format!("swarm-{number}")).collect();
    let swarm_ids = swarm_ids.join(",");
    let all = SWARM + STOCK.len();
    Site::run(OURS, accept_all, |site| {
        site.announce("auto_accept");
        let mut peers = Vec::new();
        for (id, release) in STOCK {
            site.prepare_minion(id, MinionKind::Stock(release), |_| {})?;
            std::fs::create_dir_all(site.minion_path(id, "pki"))?;
            let mut channel = site.peer("send_event.py", id, release)?;
            channel.send("before")?;
            let mut reader = site.peer("sign_in.py", id, release)?;
            ensure!(reader.ask("sign in")? == "keys", "{id} is accepted");
            ensure!(reader.ask("subscribe")? == "ok");
            peers.push((id, channel, reader));
        }
        let _swarm = start_swarm(site, SWARM, STOCK.len())?;
        ensure!(authentications(site)? > all as u64, "all signed in once");
        for kill in [false, true] {
            site.step(if kill {
                "kill -9"
            } else {
                "an ordinary restart"
            });
            if kill {
                site.kill_master();
            } else {
                let status = site.stop_master()?;
                ensure!(status.success(), "the master ended with {status}");
            }
            site.start_master_only()?;
            wait_subscribed(site, all)?;
            site.step("a publication to all minions, a return of each");
            let ping = site.salt(&["-t", "60", "--out=txt", "-L", &swarm_ids, "test.ping"])?;
            let answers = ping.expect_code(0)?.stdout.matches(": True").count();
            ensure!(answers == SWARM, "{answers} of {SWARM} answered\n{ping}");
            for (id, channel, reader) in &mut peers {
                let read = reader.ask("read")?;
                ensure!(read == "readable test.ping", "{id}: {read:?}");
                channel
                    .send("after")
                    .with_context(|| format!("the session of {id}"))?;
            }
            let count = authentications(site)?;
            ensure!(count == 0, "{count} authentications after the restart");
        }
        Ok(())
    })
}

/// A job of a whole swarm, with the master killed in the middle of it: nothing is lost, nobody is
/// asked to authenticate, and jobs that begin while everybody comes back end as they should.
#[test]
fn a_job_goes_on_while_a_killed_master_comes_back() -> TestResult {
    const MINIONS: usize = 200;
    Site::run(OURS, accept_all, |site| {
        site.announce("auto_accept");
        let _swarm = start_swarm(site, MINIONS, 0)?;
        let run = site.salt(&["--async", "*", "test.sleep", "3"])?;
        run.expect_code(0)?;
        let jid = run.jid()?.to_owned();
        let returned = format!("salt/job/{jid}/ret/");
        site.events().find("the first return", SOON, |event| {
            event.tag.starts_with(&returned).then_some(())
        })?;
        site.step("kill -9 in the middle of the returns");
        site.kill_master();
        site.start_master()?;
        wait_subscribed(site, MINIONS)?;
        let ping = site.salt(&["-t", "60", "--out=txt", "*", "test.ping"])?;
        let answers = ping.expect_code(0)?.stdout.matches(": True").count();
        ensure!(
            answers == MINIONS,
            "{answers} of {MINIONS} answered\n{ping}"
        );
        site.step("every return of the first job is there");
        wait_until("the job to be complete", SOON * 2, || {
            let run = site
                .salt_run(&["--out=json", "jobs.lookup_jid", &jid])
                .ok()?;
            let found: serde_json::Value = serde_json::from_str(&run.stdout).ok()?;
            (found.as_object()?.len() == MINIONS).then_some(())
        })?;
        let count = authentications(site)?;
        ensure!(count == 0, "{count} authentications after the kill");
        Ok(())
    })
}

/// Stock's `salt-key -d` asks for a new shared key; the minion that was deleted has the old one and
/// listens on. The very next publication is nothing to it, and the others read it all the same.
#[test]
fn a_deleted_minion_cannot_read_the_next_publication() -> TestResult {
    Site::run(
        OURS,
        // A client that waits longer asks for the job, which is a publication, too.
        |config| _ = config.set("timeout", 60),
        |site| {
            site.bring_up(&[
                ("kept", MinionKind::Stock(Release::V3008)),
                ("deleted", MinionKind::Stock(Release::V3007)),
            ])?;
            site.kill_minion("deleted");
            site.announce("deleted");
            let mut peer = site.peer("sign_in.py", "deleted", Release::V3007)?;
            ensure!(peer.ask("sign in")? == "keys", "it is still accepted");
            ensure!(peer.ask("subscribe")? == "ok");
            site.salt(&["kept", "test.ping"])?.expect_code(0)?;
            let read = peer.ask("read")?;
            ensure!(
                read == "readable test.ping",
                "with the shared key: {read:?}"
            );
            site.salt_key(&["-y", "-d", "deleted"])?.expect_code(0)?;
            site.salt(&["kept", "test.echo", "after"])?.expect_code(0)?;
            let read = peer.ask("read")?;
            ensure!(read == "unreadable", "it read on: {read:?}");
            ensure!(peer.ask("sign in")? == "retry", "it got the new key");
            Ok(())
        },
    )
}

/// With one slot for authentications and a storm of them, stock's code of each line must take our
/// answer for "retry later", never for a refusal, and log in in the end.
#[test]
fn stock_minion_in_a_login_storm_retries_later() -> TestResult {
    Site::run(
        OURS,
        |config| {
            accept_all(config);
            config.set("timeout", 60).set("saltern_auth_backlog", 1);
        },
        |site| {
            site.announce("auto_accept");
            let mut storm = Command::new(lab_program());
            storm.args(["bench", "--minions", "100", "--phases", "auth"]);
            // Longer than anybody waits below: it is ended then.
            storm
                .args(["--seconds", "3600", "-c"])
                .arg(site.path("conf"));
            let storm = Daemon::start("storm", &mut storm, &site.path("log/storm.out"))?;
            for (id, release) in STOCK {
                site.step(&format!("{release:?} in the storm"));
                site.prepare_minion(id, MinionKind::Stock(release), |_| {})?;
                std::fs::create_dir_all(site.minion_path(id, "pki"))?;
                let mut peer = site.peer("sign_in.py", id, release)?;
                let mut answers = BTreeSet::new();
                wait_until("it to retry later and log in", SOON, || {
                    let answer = peer
                        .ask("sign in")
                        .unwrap_or_else(|error| error.to_string());
                    answers.insert(answer);
                    (answers.len() > 1).then_some(())
                })?;
                let expected = ["keys", "retry"].map(str::to_owned);
                ensure!(
                    answers == BTreeSet::from(expected),
                    "stock understood {answers:?}"
                );
            }
            drop(storm);
            site.step("the minions themselves log in");
            for (id, _) in STOCK {
                site.start_prepared_minion(id)?;
            }
            for (id, _) in STOCK {
                site.wait_started(id)?;
            }
            run(
                &mut site.stock_command("salt", &["*300*", "test.ping"]),
                SOON,
            )?
            .expect_code(0)?;
            Ok(())
        },
    )
}
