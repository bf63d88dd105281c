//! Several masters as one on PostgreSQL: one is active, the others stand by.
//!
//! Both masters have the same ports, of which only the active one opens its own, as behind an address
//! that moves. No test depends on a length of time: where a lease must end by itself it is short, and the
//! roles are awaited; where it must not, it is longer than any wait.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use saltern_stock::databases::{Kind, PASSWORD, Server as Database};
use saltern_tests::port::free_port;
use saltern_tests::process::{Daemon, run};
use saltern_tests::site::{Failure, MinionKind, SOON};
use saltern_tests::{Config, Release, Server, Site, TestResult, wait_until};
use serde_json::{Value, json};

use crate::sessions::authentications;

const OURS: Server = Server::Saltern(Release::V3008);

/// Seconds of a lease that a test waits for the end of, on a machine that has much else to do.
const SHORT: u64 = 60;
/// Seconds of a lease that no wait of a test outlasts.
pub(crate) const LONG: u64 = 600;

fn configure(config: &mut Config, id: &str, database: &str, lease: u64) {
    let connection = format!("host={database} user=salt password={PASSWORD} connect_timeout=10");
    config
        .set("id", id)
        .set("auto_accept", "True")
        .set("python_bridge", false)
        .set(
            "saltern_cluster",
            format!("{{postgres: '{connection}', lease: {lease}}}"),
        );
}

/// Two masters `a` and `b` with one database and one set of keys, `a` with further options; neither has
/// been started.
pub(crate) fn pair(
    lease: u64,
    options: impl FnOnce(&mut Config),
    scenario: impl FnOnce(&mut Pair<'_>) -> Result<()>,
) -> TestResult {
    let start = |config: &mut Config| {
        let root = config.get("root_dir").unwrap_or_default().to_owned();
        options(config);
        configure(config, "a", &format!("{root}/db"), lease);
    };
    Site::prepared(OURS, start, |a| {
        let database = Database::start(Kind::Postgres, &a.path("db"));
        let place = a.path("db").display().to_string();
        let (pki, ports) = (a.path("pki"), (a.ret_port(), a.publish_port()));
        let other = |config: &mut Config| {
            configure(config, "b", &place, lease);
            config
                // Paths are below it, else.
                .set("root_dir", "/")
                .set("sqlite_queue_dir", format!("{place}-queues"))
                .set("pki_dir", pki.display())
                .set("ret_port", ports.0)
                .set("publish_port", ports.1);
        };
        let done = Site::prepared(OURS, other, |b| {
            for site in [&mut *a, &mut *b] {
                site.announce("auto_accept");
                // On a busy machine an answer may take longer than a quarter of the lease.
                site.announce("the database of the cluster does not answer");
                site.announce("shared state is not written");
                site.announce("some of the shared state");
                site.announce("keys of minions are not shared");
                site.announce("grains and mines are not shared");
            }
            for text in [
                "the publish connection broke",
                "a return was not taken",
                "the return of a job was given up",
            ] {
                a.announce(text);
            }
            let mut pair = Pair {
                a,
                b,
                other: None,
                database,
            };
            scenario(&mut pair)
        });
        done.map_err(Failure::into_error)
    })
}

pub(crate) struct Pair<'s> {
    pub(crate) a: &'s mut Site,
    pub(crate) b: &'s mut Site,
    /// The master of `b`.
    other: Option<Daemon>,
    pub(crate) database: Database,
}

impl Pair<'_> {
    /// Makes the tables, starts `a` as the active master and `b` behind it.
    pub(crate) fn start(&mut self) -> Result<()> {
        self.start_first()?;
        self.start_second()
    }

    /// Makes the tables and starts `a`.
    pub(crate) fn start_first(&mut self) -> Result<()> {
        wait_until("the tables of the cluster", SOON, || {
            let run = self.a.saltern(&["cluster", "init"]).ok()?;
            (run.code == Some(0)).then_some(())
        })?;
        self.a.start_master()
    }

    /// Starts `b`, which stands by then.
    pub(crate) fn start_second(&mut self) -> Result<()> {
        let mut other = start_only(self.b)?;
        let stands_by = wait_until("\"b\" to stand by", SOON * 2, || {
            if other.ended().is_some() {
                return Some(false);
            }
            self.has_role("b", "standby")
        })?;
        ensure!(stands_by, "it ended instead");
        self.other = Some(other);
        Ok(())
    }

    /// Stops `b` in order.
    pub(crate) fn stop_second(&mut self) -> Result<()> {
        let status = self.other.take().context("it runs")?.stop(SOON)?;
        ensure!(status.success(), "{status}");
        Ok(())
    }

    /// Waits until a member has a role, by the database.
    pub(crate) fn wait_for(&self, name: &str, role: &str) -> Result<()> {
        wait_until(&format!("\"{name}\" to be {role}"), SOON * 2, || {
            self.has_role(name, role).map(|_| ())
        })
    }

    /// `true` when a member has a role.
    fn has_role(&self, name: &str, role: &str) -> Option<bool> {
        let status = self.status().ok()?;
        let mut members = status["members"].as_array()?.iter();
        members
            .any(|member| member["name"] == name && member["role"] == role)
            .then_some(true)
    }

    fn status(&self) -> Result<Value> {
        let run = self.b.saltern(&["cluster", "status", "--json"])?;
        serde_json::from_str(run.stdout.trim()).with_context(|| format!("{run:?}"))
    }

    /// Waits until the master of `b` answers as the active one, and the writes are its own.
    pub(crate) fn wait_until_b_serves(&self) -> Result<()> {
        // The first owner was `a`.
        let owns = "SELECT COUNT(*) FROM saltern.writer WHERE epoch > 1";
        wait_until("\"b\" to serve", SOON * 2, || {
            let active = self.b.metric("saltern_cluster_active", "").ok()?;
            (active > 0.5 && self.database.count(owns) == 1).then_some(())
        })
    }

    /// The returns in the database: jobs and minions.
    pub(crate) fn returns(&self) -> BTreeSet<(String, String)> {
        let sql = "SELECT jid, minion FROM saltern.returns";
        let rows = self.database.query(&[sql]).into_iter();
        let pair = |row: Vec<Option<String>>| {
            let mut row = row.into_iter().flatten();
            Some((row.next()?, row.next()?))
        };
        rows.filter_map(pair).collect()
    }
}

/// Starts a master without waiting for its ports.
fn start_only(site: &Site) -> Result<Daemon> {
    Daemon::start(
        "master",
        &mut site.master_command(),
        &site.path("log/master.out"),
    )
}

/// Has a member share its state under a secret of its own file, and serve the API.
fn share_state(site: &mut Site, api: u16) -> Result<()> {
    let secret = site.path("secret").display().to_string();
    let config = site.config();
    let cluster = config.get("saltern_cluster").unwrap_or_default();
    let cluster = cluster.trim_end_matches('}').to_owned();
    config
        .set(
            "saltern_cluster",
            format!("{cluster}, secret_file: {secret}}}"),
        )
        .set("sharedsecret", PASSWORD)
        .set("external_auth", "{sharedsecret: {ann: ['.*', '@runner']}}")
        .set("netapi_enable_clients", "[local, runner]")
        .set(
            "rest_cherrypy",
            format!("{{port: {api}, host: 127.0.0.1, address: 127.0.0.1, disable_ssl: true}}"),
        );
    site.write_config()
}

/// Writes a file that its owner alone may read.
fn write_secret(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text)?;
    Ok(fs::set_permissions(
        path,
        fs::Permissions::from_mode(0o600),
    )?)
}

/// Runs a master that ends by itself; what it printed.
fn refused(site: &Site, code: i32) -> Result<String> {
    let run = run(&mut site.master_command(), SOON)?;
    run.expect_code(code)?;
    Ok(run.stderr.clone())
}

/// Announces what a master says while its database is away.
pub(crate) fn announce_outage(site: &mut Site) {
    for text in [
        "database",
        "commit",
        "PostgreSQL",
        "owner of a jid",
        "lease of the cluster",
        "a request was not handled",
    ] {
        site.announce(text);
    }
}

/// Waits until a minion answers; the first times it may not be back yet.
pub(crate) fn wait_for_ping(site: &Site, id: &str) -> Result<()> {
    wait_until(&format!("{id} to answer"), SOON * 2, || {
        let run = site.saltern_cmd(&[id, "test.ping"]).ok()?;
        (run.stdout.contains("True")).then_some(())
    })
}

#[test]
fn standby_takes_over_every_acknowledged_return_of_a_killed_master() -> TestResult {
    pair(
        SHORT,
        |_| {},
        |pair| {
            pair.a.step("without its tables there is no cluster");
            let said = refused(pair.a, 64)?;
            ensure!(said.contains("saltern cluster init"), "{said}");

            pair.start()?;
            pair.a.bring_up(&[("m1", MinionKind::Native)])?;
            let mut fleet = pair.a.start_fleet("to", 20, &["--returns", "4"])?;
            fleet.wait_for_more(40)?;
            pair.a.step("a job that is open while its master is killed");
            pair.a.minion("m1")?.signal(Signal::STOP)?;
            let published = pair.a.salt(&["m1", "test.ping", "--async"])?;
            let jid = published.jid()?.to_owned();
            pair.a.kill_master();
            pair.wait_for("b", "active")?;
            pair.wait_until_b_serves()?;
            pair.a.minion("m1")?.signal(Signal::CONT)?;
            fleet.wait_for_more(40)?;

            pair.b
                .step("nothing is lost, and the job ends at the other master");
            let state =
                format!("SELECT COUNT(*) FROM saltern.jobs WHERE jid = '{jid}' AND state <> 0");
            wait_until("the verdict", SOON * 2, || {
                (pair.database.count(&state) == 1).then_some(())
            })?;
            let ledger = fs::read_to_string(fleet.stop()?)?;
            let stored = pair.returns();
            let acknowledged = ledger.lines().filter_map(|line| {
                let mut words = line.split(' ');
                Some((words.next()?.to_owned(), words.next()?.to_owned()))
            });
            let lost: Vec<_> = acknowledged.filter(|one| !stored.contains(one)).collect();
            ensure!(
                lost.is_empty(),
                "{} are lost, such as {:?}",
                lost.len(),
                lost.first()
            );
            let takeovers = pair.b.metric("saltern_cluster_takeovers_total", "")?;
            ensure!(takeovers > 0.5, "{takeovers}");
            pair.stop_second()
        },
    )
}

/// Each member writes in turn what it has.
fn members_are_compared(pair: &mut Pair<'_>) -> Result<()> {
    pair.a.step("members are compared");
    let verify = ["cluster", "verify"];
    let run = pair.a.saltern(&verify)?;
    run.expect_code(1)?.expect_text("\"b\" has no summary")?;
    let run = pair.b.saltern(&verify)?;
    run.expect_code(0)?.expect_text("2 members agree")?;
    pair.b.config().set("gather_job_timeout", 77);
    pair.b.write_config()?;
    let run = pair.b.saltern(&verify)?;
    run.expect_code(1)?
        .expect_text("\"a\" differs: option gather_job_timeout")?;
    let option = pair.b.config().get("saltern_cluster").map(str::to_owned);
    let option = option.context("the option is set")?;
    let secret = pair.b.path("other-secret");
    fs::write(&secret, [7; 64])?;
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600))?;
    let other = option.replacen('}', &format!(", secret_file: {}}}", secret.display()), 1);
    pair.b.config().set("saltern_cluster", other);
    pair.b.write_config()?;
    let run = pair.b.saltern(&verify)?;
    run.expect_code(1)?.expect_text("nothing was compared")?;
    ensure!(!run.stdout.contains("differs"), "{run:?}");
    pair.b.config().set("saltern_cluster", option);
    pair.b.write_config()?;
    pair.b
        .saltern(&["cluster", "contract"])?
        .expect_code(0)?
        .expect_text("those of this release")?;
    Ok(())
}

#[test]
fn orderly_stop_hands_over_before_the_lease_ends_and_an_outage_passes() -> TestResult {
    pair(
        LONG,
        |_| {},
        |pair| {
            pair.start()?;
            let stock = MinionKind::Stock(Release::V3008);
            pair.a
                .bring_up(&[("m1", MinionKind::Native), ("stock", stock)])?;
            wait_for_ping(pair.a, "m1")?;
            members_are_compared(pair)?;
            // As "cluster init" of the next release does, before it replaces a member.
            let newer = "UPDATE saltern.meta SET value = '99' WHERE name = 'layout' RETURNING 1";
            pair.database.query(&[newer]);
            let ended = pair.a.stop_master()?;
            ensure!(ended.success(), "{ended}");
            // The lease would have lasted for longer than this waits.
            pair.wait_for("b", "active")?;
            pair.wait_until_b_serves()?;
            wait_for_ping(pair.b, "m1")?;
            pair.a.wait_until_ready_again()?;
            wait_for_ping(pair.b, "stock")?;
            pair.a.kill_minion("stock");

            pair.a.step("a second master of the name");
            pair.a.config().set("id", "b");
            pair.a.write_config()?;
            let said = refused(pair.a, 69)?;
            ensure!(said.contains("give each an id of its own"), "{said}");

            pair.a.step("a master with other keys");
            let own = pair.a.path("own-pki");
            pair.a.config().set("id", "c").set("pki_dir", own.display());
            pair.a.write_config()?;
            let said = refused(pair.a, 64)?;
            ensure!(said.contains("has another key"), "{said}");

            pair.b.step("the database is away");
            announce_outage(pair.b);
            pair.database.kill();
            let run = pair.b.saltern_cmd(&["m1", "test.ping"])?;
            let said = format!("{}{}", run.stdout, run.stderr);
            let is_clear = ["could not store the job", "job database"];
            ensure!(is_clear.iter().any(|part| said.contains(part)), "{run:?}");
            let doctor = pair.b.saltern(&["doctor"])?;
            doctor.expect_text("error: cluster:")?;
            pair.database.resume();
            wait_for_ping(pair.b, "m1")?;
            pair.stop_second()
        },
    )
}

#[test]
fn frozen_master_that_goes_on_ends_and_changes_nothing() -> TestResult {
    pair(
        SHORT,
        |_| {},
        |pair| {
            // The frozen one keeps its ports on this machine.
            let (ret_port, publish_port) = (free_port(), free_port());
            let config = pair.b.config();
            config
                .set("ret_port", ret_port)
                .set("publish_port", publish_port);
            pair.b.write_config()?;
            pair.start()?;
            // What it was about to do when it goes on, it cannot.
            for text in [
                "the lease of the cluster",
                "took over the lease",
                "another process owns the jobs",
                "a maintenance task failed",
                "database",
            ] {
                pair.a.announce(text);
            }
            pair.a.master().signal(Signal::STOP)?;
            pair.wait_for("b", "active")?;
            pair.wait_until_b_serves()?;
            let writer = "SELECT epoch FROM saltern.writer";
            let epoch = pair.database.query(&[writer]);
            pair.a.master().signal(Signal::CONT)?;
            let ended = wait_until("the frozen master to end", SOON, || pair.a.master().ended())?;
            ensure!(ended.code() == Some(70), "{ended}");
            let said = fs::read_to_string(pair.a.path("log/master.out"))?;
            ensure!(said.contains("the master gives up"), "{said}");
            pair.a.kill_master();
            ensure!(
                pair.database.query(&[writer]) == epoch,
                "it became the owner again"
            );

            pair.a.step("it comes back, and stands by");
            let mut back = start_only(pair.a)?;
            pair.wait_for("a", "standby")?;
            ensure!(back.ended().is_none(), "it ended");
            let status = back.stop(SOON)?;
            ensure!(status.success(), "{status}");
            pair.stop_second()
        },
    )
}

#[test]
fn takeover_under_a_shared_secret_lets_nobody_authenticate_anew() -> TestResult {
    pair(
        // Held through the bring-up of five peers.
        SHORT * 2,
        |_| {},
        |pair| {
            let api = free_port();
            for site in [&mut *pair.a, &mut *pair.b] {
                share_state(site, api)?;
            }
            pair.start_first()?;

            pair.b
                .step("a member needs the secret of the others, for itself alone");
            let (ours, copy) = (pair.a.path("secret"), pair.b.path("secret"));
            let said = refused(pair.b, 66)?;
            ensure!(said.contains("copied to the other members"), "{said}");
            write_secret(&copy, &"another one ".repeat(4))?;
            let said = refused(pair.b, 64)?;
            ensure!(said.contains("have another secret"), "{said}");
            write_secret(&copy, &fs::read_to_string(ours)?)?;
            fs::set_permissions(&copy, fs::Permissions::from_mode(0o644))?;
            let said = refused(pair.b, 64)?;
            ensure!(said.contains("chmod 0400"), "{said}");
            fs::set_permissions(&copy, fs::Permissions::from_mode(0o400))?;
            pair.start_second()?;

            pair.a
                .bring_up(&[("m1", MinionKind::Native), ("m2", MinionKind::Native)])?;
            // Whole minions of stock authenticate by themselves, too: see `sessions`.
            let stock = MinionKind::Stock(Release::V3008);
            pair.a.prepare_minion("stock", stock, |_| {})?;
            fs::create_dir_all(pair.a.minion_path("stock", "pki"))?;
            let mut channel = pair.a.peer("send_event.py", "stock", Release::V3008)?;
            channel.send("before")?;
            let mut reader = pair.a.peer("sign_in.py", "stock", Release::V3008)?;
            ensure!(reader.ask("sign in")? == "keys", "it is accepted");
            ensure!(reader.ask("subscribe")? == "ok");
            let mut session = pair.a.api_client(api)?;
            let form = json!({"username": "ann", "password": PASSWORD, "eauth": "sharedsecret"});
            let login = json!({"method": "POST", "path": "/login", "json": form});
            let answer = session.call(&login)?;
            ensure!(answer["status"] == 200, "{answer}");
            channel.send(r#"{"cmd": "_mine", "data": {"function": "kept"}}"#)?;
            let data = "SELECT COUNT(*) FROM saltern.minion_data";
            wait_until("all of it to be in the database", SOON, || {
                let pending = pair.a.metric("saltern_cluster_state_pending", "").ok()?;
                (pending < 0.5 && pair.database.count(data) >= 3).then_some(())
            })?;
            ensure!(authentications(pair.a)? >= 3, "all signed in");

            pair.a.kill_master();
            pair.wait_for("b", "active")?;
            pair.wait_until_b_serves()?;
            pair.b.step(
                "a job by grains, which they have sent to the other master, reaches them all",
            );
            let mine = fs::read(pair.b.path("cache/mine/stock.p"))?;
            ensure!(mine.ends_with(b"kept"), "{mine:?}");
            // Who they are shows with what they send.
            wait_until("all of them to be back", SOON * 2, || {
                let subscribers = pair.b.metric("saltern_subscribers", "").ok()?;
                (subscribers > 2.5).then_some(())
            })?;
            let run = pair.b.saltern_cmd(&["-G", "id:m*", "test.echo", "after"])?;
            let answers = run.expect_code(0)?.stdout.matches("after").count();
            ensure!(answers >= 2, "{run:?}");
            let read = reader.ask("read")?;
            ensure!(read == "readable test.echo", "{read}");
            channel.send("after")?;
            let count = authentications(pair.b)?;
            ensure!(count == 0, "{count} authentications after the takeover");
            pair.b.step("a user goes on with the session of before");
            let chunk = json!({"client": "local", "fun": "test.ping", "tgt": "m1"});
            let call = json!({"method": "POST", "path": "/", "auth": true, "json": [chunk]});
            let answer = session.call(&call)?;
            ensure!(answer["status"] == 200, "{answer}");
            ensure!(answer.to_string().contains("m1"), "{answer}");
            let memory = pair.b.path("cache/saltern/cluster_keys");
            ensure!(!memory.exists(), "keys are shared by share_keys only");
            pair.stop_second()
        },
    )
}
