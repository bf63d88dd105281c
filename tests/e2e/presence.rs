//! Presence of minions: stock's events, and the reasons of changes in the metrics. Every minion
//! here has one address, as all of a site behind one router have.

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Event, Release, Run, Server, Site, TestResult, wait_until};
use serde_json::{Value, json};

#[test]
fn stock_3008_announces_presence() -> TestResult {
    presence_is_announced(Server::Stock(Release::V3008))
}

#[test]
fn presence_is_announced_to_3006() -> TestResult {
    presence_is_announced(Server::Saltern(Release::V3006))
}

#[test]
fn presence_is_announced_to_3007() -> TestResult {
    presence_is_announced(Server::Saltern(Release::V3007))
}

#[test]
fn presence_is_announced_to_3008() -> TestResult {
    presence_is_announced(Server::Saltern(Release::V3008))
}

/// The events of stock's master, field by field.
fn presence_is_announced(server: Server) -> TestResult {
    Site::run(
        server,
        |config| _ = config.set("presence_events", "True"),
        |site| {
            let release = site.server().release();
            site.bring_up(&[("m1", MinionKind::Stock(release))])?;
            let come = change(site, 0, "m1 to come", &["m1"], &[])?;
            ensure!(come.fields() == ["_stamp", "lost", "new"], "{come:?}");
            let mark = site.events().mark();
            let announced = present(site, mark, &["m1"])?;
            ensure!(announced.fields() == ["_stamp", "present"], "{announced:?}");
            // Only changes are announced as a change.
            present(site, site.events().mark(), &["m1"])?;
            let again = site.events().since(mark);
            let again = again.iter().find(|it| it.tag == "salt/presence/change");
            ensure!(again.is_none(), "{again:?}");

            site.step("the minion is killed");
            site.kill_minion("m1");
            change(site, mark, "m1 to go", &[], &["m1"])?;
            present(site, site.events().mark(), &[])?;
            Ok(())
        },
    )
}

/// It subscribes to the hash of its id, so nothing has to be concluded.
#[test]
fn filtering_minion_is_identified_by_its_subscription() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |config| _ = config.set("zmq_filtering", "True"),
        |site| {
            for release in Release::ALL {
                let id = release.minion_id();
                site.prepare_minion(&id, MinionKind::Stock(release), |config| {
                    config.set("zmq_filtering", "True");
                })?;
                site.start_prepared_minion(&id)?;
            }
            for release in Release::ALL {
                site.wait_pending(&release.minion_id())?;
                site.accept(&release.minion_id())?;
            }
            for release in Release::ALL {
                site.wait_started(&release.minion_id())?;
            }
            wait_until("each connection to be tied", SOON, || {
                let tied = metric(site, "saltern_subscribers{tie=\"tied\"} ").ok()?;
                (tied == 3).then_some(())
            })
        },
    )
}

/// Text that stock's `salt` prints too.
const NOT_CONNECTED: &str = "Minion did not return. [Not connected]";

/// Stock's own runner asks the minions; ours does not need to.
#[test]
fn manage_runner_agrees_with_stock() -> TestResult {
    let server = Server::Saltern(Release::V3008);
    Site::run(
        server,
        |_| {},
        |site| {
            let [here, gone] = ["m1", "m2"];
            let kind = MinionKind::Stock(Release::V3008);
            site.bring_up(&[(here, kind), (gone, MinionKind::Stock(Release::V3006))])?;
            for fun in ["manage.present", "manage.versions"] {
                same_answer(site, fun)?;
            }
            site.kill_minion(gone);
            wait_until("the master to miss it", SOON, || {
                let down = answer(&site.saltern(&ours("manage.down")).ok()?).ok()?;
                (down == json!([gone])).then_some(())
            })?;
            for fun in ["manage.up", "manage.down", "manage.status"] {
                same_answer(site, fun)?;
            }
            let standing = answer(&site.saltern(&ours("manage.standing"))?)?;
            let here = standing[here].clone();
            ensure!(here["standing"] == "connected", "{standing}");
            ensure!(here["address"] == "127.0.0.1", "{standing}");
            ensure!(here["last_heard"].is_string(), "{standing}");
            ensure!(standing[gone]["since"].is_string(), "{standing}");
            let silent = site.saltern(&["cmd", "--timeout", "1", gone, "test.ping"])?;
            silent.expect_stdout(&format!("{gone}:\n    {NOT_CONNECTED}"))?;
            Ok(())
        },
    )
}

fn same_answer(site: &Site, fun: &str) -> Result<()> {
    let stock = answer(&site.salt_run(&["--out", "json", fun])?)?;
    let here = answer(&site.saltern(&ours(fun))?)?;
    ensure!(here == stock, "{fun}: ours {here}, stock {stock}");
    Ok(())
}

fn ours(fun: &str) -> [&str; 4] {
    ["run", "--out", "json", fun]
}

fn answer(run: &Run) -> Result<Value> {
    run.expect_code(0)?;
    Ok(serde_json::from_str(&run.stdout)?)
}

#[test]
fn lost_minion_is_identified_among_many_on_one_address() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |config| {
            config
                .set("presence_events", "True")
                // A busy machine may keep a minion from its answer for seconds.
                .set("saltern_heartbeat_interval", 8);
        },
        |site| {
            let mut minions: Vec<(String, MinionKind)> = Release::ALL
                .map(|release| (release.minion_id(), MinionKind::Stock(release)))
                .into();
            minions.push(("native".to_owned(), MinionKind::Native));
            let named: Vec<(&str, MinionKind)> = minions
                .iter()
                .map(|(id, kind)| (id.as_str(), *kind))
                .collect();
            site.bring_up(&named)?;
            let ids: Vec<&str> = named.iter().map(|(id, _)| *id).collect();
            present(site, 0, &ids)?;

            for id in &ids {
                killed_and_back(site, id, &ids)?;
            }
            for id in &ids {
                frozen_and_back(site, id, &ids)?;
            }
            let left = ["m3006", "m3008", "native"];
            a_deleted_minion_is_out_at_once(site, "m3007", &left)?;
            a_restart_of_the_master_is_no_change(site, &left)
        },
    )
}

fn killed_and_back(site: &mut Site, id: &str, ids: &[&str]) -> Result<()> {
    site.step(&format!("{id} is killed"));
    let mark = site.events().mark();
    site.end_stock_minion(id)?;
    change(site, mark, "it to be missed, and nobody else", &[], &[id])?;
    let mark = site.events().mark();
    site.start_prepared_minion(id)?;
    change(site, mark, "it to come back", &[id], &[])?;
    present(site, mark, ids)?;
    Ok(())
}

/// A stopped process keeps its connection: only the missing heartbeat shows it.
fn frozen_and_back(site: &mut Site, id: &str, ids: &[&str]) -> Result<()> {
    site.step(&format!("{id} is frozen"));
    site.announce("the publish connection broke");
    let before = closed(site, "heartbeat")?;
    site.expect_loss_of(id);
    let mark = site.events().mark();
    site.minion(id)?.signal_all(Signal::STOP)?;
    change(site, mark, "its silence to be noticed", &[], &[id])?;
    ensure!(
        closed(site, "heartbeat")? > before,
        "no heartbeat was missed"
    );
    let mark = site.events().mark();
    site.minion(id)?.signal_all(Signal::CONT)?;
    change(site, mark, "it to come back by itself", &[id], &[])?;
    // Stock then makes a second connection in place of the one that came back, which may be another change.
    site.wait_until_ready_again()?;
    present(site, site.events().mark(), ids)?;
    Ok(())
}

fn a_deleted_minion_is_out_at_once(site: &mut Site, id: &str, left: &[&str]) -> Result<()> {
    site.step(&format!("the key of {id} is deleted"));
    site.announce(id);
    let mark = site.events().mark();
    let run = site.salt_key(&["-y", "-d", id])?;
    run.expect_code(0)?;
    change(site, mark, "it to be out", &[], &[id])?;
    // It is out before its connection has ended.
    wait_until("its connection to be ended", SOON, || {
        (closed(site, "dismissed").ok()? == 1).then_some(())
    })?;
    present(site, mark, left)?;
    Ok(())
}

/// Minions keep their sessions and send nothing: they are identified by their address.
fn a_restart_of_the_master_is_no_change(site: &mut Site, ids: &[&str]) -> Result<()> {
    site.step("the master is restarted");
    // What our own minion says of it.
    site.announce("the publish connection broke");
    site.stop_master()?;
    site.start_master()?;
    present(site, 0, ids)?;
    let changes = site.events().since(0);
    let change = changes.iter().find(|it| it.tag == "salt/presence/change");
    ensure!(change.is_none(), "{change:?}");
    Ok(())
}

/// Waits for exactly this change.
fn change(site: &Site, mark: usize, what: &str, new: &[&str], lost: &[&str]) -> Result<Event> {
    let listed = |value: &Value| -> Option<Vec<String>> {
        let ids = value.as_array()?.iter().filter_map(Value::as_str);
        Some(ids.map(str::to_owned).collect())
    };
    let event = site.events().find_since(mark, what, SOON, |event| {
        let is_change = event.tag == "salt/presence/change";
        is_change.then(|| event.clone())
    })?;
    let announced = (listed(&event.data["new"]), listed(&event.data["lost"]));
    let expected = (owned(new), owned(lost));
    ensure!(
        announced == (Some(expected.0), Some(expected.1)),
        "waited for {what}; announced was {:?}",
        event.data
    );
    Ok(event)
}

fn owned(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

/// Waits until exactly these are announced as present.
fn present(site: &Site, mark: usize, ids: &[&str]) -> Result<Event> {
    let what = format!("{ids:?} to be present");
    site.events().find_since(mark, &what, SOON, |event| {
        if event.tag != "salt/presence/present" {
            return None;
        }
        let mut announced = event.data["present"].as_array()?.clone();
        announced.sort_by_key(|id| id.as_str().map(str::to_owned));
        (json!(announced) == json!(ids)).then(|| event.clone())
    })
}

/// How many subscribers were closed for this reason.
fn closed(site: &Site, reason: &str) -> Result<u64> {
    let labels = format!(
        "saltern_port_closed_total{{listener=\"publish\",reason=\"{reason}\",\
         transport=\"zeromq\"}} "
    );
    metric(site, &labels)
}

/// The value of the metric with this name and these labels.
fn metric(site: &Site, labels: &str) -> Result<u64> {
    let metrics = site.saltern(&["metrics"])?;
    metrics.expect_code(0)?;
    let line = metrics
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix(labels));
    let count = line.with_context(|| format!("there is no metric {labels:?}"))?;
    Ok(count.parse()?)
}
