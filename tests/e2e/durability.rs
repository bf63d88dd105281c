//! Durability: sessions and keys survive a restart, acknowledged returns a `kill -9`, connections a
//! new AES key.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use saltern_tests::process::{peer, run};
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Release, Server, Site, TestResult, wait_until};
use serde_json::Value;

const OURS: Server = Server::Saltern(Release::V3008);

#[test]
fn a_restart_keeps_keys_and_sessions() -> TestResult {
    Site::run(
        OURS,
        |config| _ = config.set("timeout", 60),
        |site| {
            site.bring_up(&[
                ("m3006", MinionKind::Stock(Release::V3006)),
                ("m3008", MinionKind::Stock(Release::V3008)),
            ])?;
            let before = session_keys(site)?;

            site.step("stop the master in order and start it again");
            let status = site.stop_master()?;
            ensure!(status.success(), "the master ended with {status}");
            site.start_master_only()?;
            site.listen()?;
            let subscribers = || connections(site.publish_port()).len();
            wait_until("both minions to subscribe again", SOON, || {
                (subscribers() >= 2).then_some(())
            })?;
            site.wait_until_ready_again()?;
            let mark = site.events().mark();
            let run = site.salt(&["*", "test.ping"])?;
            run.expect_code(0)?
                .expect_text("m3006:\n    True")?
                .expect_text("m3008:\n    True")?;
            ensure!(
                !site
                    .events()
                    .since(mark)
                    .iter()
                    .any(|event| event.tag == "salt/auth"),
                "a minion had to authenticate again"
            );
            ensure!(session_keys(site)? == before, "a session key changed");
            Ok(())
        },
    )
}

fn session_keys(site: &Site) -> Result<Vec<String>> {
    ["m3006", "m3008"]
        .iter()
        .map(|id| {
            let path = site.path("cache/sessions").join(id);
            std::fs::read_to_string(&path).with_context(|| path.display().to_string())
        })
        .collect()
}

#[test]
fn kill_9_loses_no_acknowledged_return() -> TestResult {
    Site::run(
        OURS,
        |config| _ = config.set("timeout", 60),
        |site| {
            site.bring_up(&[("m1", MinionKind::Stock(Release::V3008))])?;
            // From here on the returner speaks in its name.
            site.kill_minion("m1");
            let mut acked = Vec::new();
            for (round, enough) in [1, 7, 23].into_iter().enumerate() {
                site.step(&format!(
                    "round {round}: kill -9 after {enough} acknowledged returns"
                ));
                acked.extend(returns_until_killed(site, enough)?);
                site.start_master_only()?;
            }
            ensure!(
                acked.len() >= 31,
                "only {} returns were acknowledged",
                acked.len()
            );

            site.step("every acknowledged return is in the database, once");
            let stored = returns_in_database(site)?;
            for jid in &acked {
                let count = stored.iter().filter(|stored| *stored == jid).count();
                ensure!(
                    count == 1,
                    "the acknowledged return of job {jid} is stored {count} times"
                );
            }
            site.step("stock salt-run reads the last one");
            let last = acked.last().context("something was acknowledged")?;
            wait_until("the job cache to catch up with the database", SOON, || {
                let run = site.salt_run(&["jobs.lookup_jid", last]).ok()?;
                run.stdout.contains("m1:").then_some(())
            })
        },
    )
}

/// Lets the returner work until it has been acknowledged `enough` returns, kills the master at that
/// moment and gives all that were acknowledged.
fn returns_until_killed(site: &mut Site, enough: usize) -> Result<Vec<String>> {
    let mut child = Command::new(Release::V3008.program("python"))
        .arg(peer("returner.py"))
        .args([
            site.path("conf/master"),
            site.minion_conf("m1").join("minion"),
        ])
        .arg((2 * enough + 5).to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
    let mut acked = Vec::new();
    // The pipe ends with the returner, which gives up by itself soon after the master is gone.
    while let Some(line) = lines.next().transpose()? {
        let line: Value = serde_json::from_str(&line)?;
        acked.push(line["acked"].as_str().context("an acked jid")?.to_owned());
        if acked.len() == enough {
            site.kill_master();
        }
    }
    let mut text = String::new();
    child
        .stderr
        .take()
        .expect("stderr is piped")
        .read_to_string(&mut text)?;
    child.wait()?;
    ensure!(
        acked.len() >= enough,
        "the returner ended after {} returns: {text}",
        acked.len()
    );
    Ok(acked)
}

/// The job ids of all returns in the job database, read by another program than ours.
fn returns_in_database(site: &Site) -> Result<Vec<String>> {
    let path = job_database(&site.path("cache"))?;
    let mut command = Command::new(Release::V3008.program("python"));
    command.arg("-c").arg(
        "import sqlite3, sys\n\
         for row in sqlite3.connect(sys.argv[1]).execute('SELECT jid FROM returns'):\n\
         \x20   print(row[0])\n",
    );
    let run = run(command.arg(path), SOON)?;
    run.expect_code(0)?;
    Ok(run.stdout.lines().map(str::to_owned).collect())
}

/// The SQLite file below a directory.
pub(crate) fn job_database(directory: &Path) -> Result<PathBuf> {
    let mut open = vec![directory.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in std::fs::read_dir(&directory)?.flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else if std::fs::read(&path).is_ok_and(|text| text.starts_with(b"SQLite format 3")) {
                return Ok(path);
            }
        }
    }
    anyhow::bail!("no SQLite database below {}", directory.display())
}

#[test]
fn a_dropfile_rotates_the_key_with_our_master() -> TestResult {
    rotation(OURS)
}

#[test]
fn a_dropfile_rotates_the_key_with_a_stock_master() -> TestResult {
    rotation(Server::Stock(Release::V3008))
}

/// Stock `salt-key -d` leaves a dropfile; the master makes a new AES key, and the minions that stay
/// learn it with the next publication.
fn rotation(server: Server) -> TestResult {
    Site::run(
        server,
        |config| _ = config.set("timeout", 60),
        |site| {
            site.bring_up(&[
                ("m3006", MinionKind::Stock(Release::V3006)),
                ("m3008", MinionKind::Stock(Release::V3008)),
            ])?;
            std::fs::write(site.path("pki/minions_pre/leaver"), "not a key\n")?;
            let mark = site.events().mark();
            site.salt_key(&["-y", "-d", "leaver"])?.expect_code(0)?;
            site.events()
                .find_since(mark, "the rotation", SOON, |event| {
                    (event.tag == "key" && event.data["rotate_aes_key"] == true).then_some(())
                })?;
            let run = site.salt(&["*", "test.ping"])?;
            run.expect_code(0)?
                .expect_text("m3006:\n    True")?
                .expect_text("m3008:\n    True")?;
            for id in ["m3006", "m3008"] {
                site.events()
                    .find_since(mark, "the new authentication", SOON, |event| {
                        (event.tag == "salt/auth" && event.data["id"] == id).then_some(())
                    })?;
            }
            Ok(())
        },
    )
}

/// The local ports of connections that clients on this machine hold to a port.
pub(crate) fn connections(port: u16) -> Vec<u16> {
    const ESTABLISHED: &str = "01";
    let hex = |address: &str| u16::from_str_radix(address.rsplit(':').next()?, 16).ok();
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    let mut ports: Vec<u16> = table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (local, remote) = (hex(fields.get(1)?)?, hex(fields.get(2)?)?);
            (remote == port && *fields.get(3)? == ESTABLISHED).then_some(local)
        })
        .collect();
    ports.sort_unstable();
    ports
}

#[test]
fn a_job_published_while_a_minion_is_away_is_reported_missing() -> TestResult {
    Site::run(
        OURS,
        |config| _ = config.set("gather_job_timeout", 1),
        |site| {
            site.bring_up(&[("m1", MinionKind::Native), ("m2", MinionKind::Native)])?;
            site.kill_minion("m2");
            wait_until("the connection of m2 to close", SOON, || {
                (connections(site.publish_port()).len() == 1).then_some(())
            })?;
            let run = site.salt(&["-t", "10", "*", "test.ping"])?;
            run.expect_code(1)?
                .expect_text("m1:\n    True")?
                .expect_text("m2:\n    Minion did not")?;
            ensure!(run.took < SOON, "it took {:?}", run.took);
            Ok(())
        },
    )
}
