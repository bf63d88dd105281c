//! A member that stands by relays: minions come to it, to the active one, to either by a balancer, or to
//! both, and so do commands, clients of the API and a syndic.

use std::fs;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use saltern_stock::databases::PASSWORD;
use saltern_tests::authority::Authority;
use saltern_tests::port::free_port;
use saltern_tests::process::{Daemon, Run, peer, run};
use saltern_tests::prometheus::{get, metrics_address};
use saltern_tests::site::{Failure, MinionKind, SOON};
use saltern_tests::{Config, Release, Server, Site, TestResult, wait_until};
use serde_json::{Value, json};

use crate::cluster::{LONG, Pair, pair, wait_for_ping};
use crate::cluster_haproxy::balance;
use crate::syndic;

/// Ports that both members have.
#[derive(Clone, Copy)]
struct Ports {
    member: u16,
    api: u16,
    /// Our own API and the console, with TLS.
    console: u16,
    /// Requests and publications over WebSockets.
    ws: [u16; 2],
}

/// The user of `publisher_acl`, which each machine has.
const USER: &str = "nobody";

/// Gives a member an address of its own, and has it relay; secret and certificate are the files of all.
fn relay_by(config: &mut Config, address: &str, (shared, ports): (&Path, Ports)) {
    let (secret, tls) = (shared.join("secret"), shared.join("tls"));
    let (secret, tls) = (secret.display(), tls.display());
    let gui = peer("gui");
    let gui = gui.display();
    let Ports {
        member,
        api,
        console,
        ws,
    } = ports;
    let cluster = config.get("saltern_cluster").unwrap_or_default();
    let cluster = cluster.trim_end_matches('}').to_owned();
    config
        .set("interface", address)
        .set("timeout", 60)
        .set(
            "saltern_cluster",
            format!(
                "{cluster}, secret_file: {secret}, advertise: {address}, member_port: {member}}}"
            ),
        )
        .set(
            "saltern_also_listen",
            format!(
                "[{{transport: ws, ret_port: {}, publish_port: {}}}]",
                ws[0], ws[1]
            ),
        )
        .set("sharedsecret", PASSWORD)
        .set("external_auth", "{sharedsecret: {ann: ['.*']}}")
        .set("publisher_acl", format!("{{{USER}: ['test.*']}}"))
        .set("netapi_enable_clients", "[local, runner]")
        .set(
            "rest_cherrypy",
            format!(
                "{{port: {api}, host: {address}, disable_ssl: true, app: {gui}/index.html, \
                 static: {gui}/static}}"
            ),
        )
        .set(
            "saltern_api",
            format!(
                "{{port: {console}, host: {address}, ssl_crt: {tls}/cert.pem, ssl_key: {tls}/key.pem}}"
            ),
        )
        .set(
            "saltern_metrics_address",
            metrics_address().replace("127.0.0.1", address),
        );
}

/// The sum of the series of a metric on a status port that have all these labels.
fn value(site: &mut Site, name: &str, labels: &[&str]) -> Result<f64> {
    let address = site.config().get("saltern_metrics_address");
    let page = get(address.context("it has one")?, "/metrics")?.body;
    let lines = page.lines().filter(|line| line.starts_with(name));
    let lines = lines.filter(|line| labels.iter().all(|label| line.contains(label)));
    let values = lines.filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok());
    Ok(values.sum())
}

#[test]
fn minions_of_a_member_that_stands_by_are_served_and_stay_when_it_takes_over() -> TestResult {
    let above = Server::Saltern(Release::V3008);
    Site::run(above, syndic::above, |top| {
        syndic::as_written(top);
        below(top).map_err(Failure::into_error)
    })
}

/// The cluster, below a master of ours.
fn below(top: &mut Site) -> TestResult {
    pair(
        LONG,
        |_| {},
        |pair| {
            let shared = pair.a.path("shared");
            fs::create_dir_all(shared.join("tls"))?;
            Authority::make(&shared.join("tls"))?;
            let ports = Ports {
                member: free_port(),
                api: free_port(),
                console: free_port(),
                ws: [free_port(), free_port()],
            };
            relay_by(pair.a.config(), "127.0.0.2", (&shared, ports));
            relay_by(pair.b.config(), "127.0.0.3", (&shared, ports));
            pair.a.write_config()?;
            pair.b.write_config()?;
            // Until it is seen that the active one is gone.
            pair.b.announce("connections cannot be relayed");
            pair.b.announce("does not answer");
            pair.a.announce("not signed in yet");
            pair.a.announce("request refused");
            pair.start()?;
            let status = pair.b.config().get("saltern_metrics_address");
            let status = status.context("it has one")?.to_owned();
            wait_until("the member that stands by to be of use", SOON, || {
                (get(&status, "/readyz").ok()?.status == 200).then_some(())
            })?;
            let balancer = balance(pair, None)?;
            wait_until("the balancer to use both", SOON, || {
                let is_up = |server| {
                    let status = balancer.value("masters-request", server, "status").ok()?;
                    status.starts_with("UP").then_some(())
                };
                is_up("master-a").and_then(|()| is_up("master-b"))
            })?;

            pair.a
                .step("to the standby, to both members, to one of both, and to the balancer");
            let stock = MinionKind::Stock;
            let both = "[127.0.0.2, 127.0.0.3]";
            let minions = [
                ("m1", MinionKind::Native, Some("127.0.0.3")),
                ("failover", stock(Release::V3008), Some(both)),
                ("hot", stock(Release::V3006), Some(both)),
                ("ws3007", stock(Release::V3007), Some("127.0.0.3")),
                ("m2", MinionKind::Native, None),
                ("mixed", stock(Release::V3008), None),
            ];
            for (id, kind, master) in minions {
                pair.a.prepare_minion(id, kind, |config| {
                    if let Some(master) = master {
                        config.set("master", master);
                    }
                    if id == "ws3007" {
                        config
                            .set("transport", "ws")
                            .set("master_port", ports.ws[0])
                            .set("publish_port", ports.ws[1]);
                    }
                    if id == "failover" {
                        config
                            .set("master_type", "failover")
                            .set("random_master", "True")
                            .set("master_alive_interval", 5)
                            .set("master_tries", -1)
                            .set("retry_dns", 0);
                    }
                })?;
                pair.a.accept_beforehand(id)?;
                pair.a.start_prepared_minion(id)?;
            }
            for (id, _, _) in minions {
                pair.a.wait_started(id)?;
                wait_for_ping(pair.a, id)?;
            }
            wait_until("the standby to relay three subscribers", SOON, || {
                let labels = ["listener=\"publish\"", "state=\"open\""];
                let relayed = value(pair.b, "saltern_port_connections", &labels).ok()?;
                (relayed > 2.5).then_some(())
            })?;
            let labels = ["outcome=\"handed_over\""];
            let taken = value(pair.a, "saltern_member_port_total", &labels)?;
            ensure!(
                taken > 2.5,
                "the active one took {taken} relayed connections"
            );
            wait_until("all to be the active one's own subscribers", SOON, || {
                let subscribers = value(pair.a, "saltern_subscribers", &[]).ok()?;
                // Its hot one is two.
                (subscribers > 6.5).then_some(())
            })?;
            job_runs_once_on_a_minion_of_both_members(pair)?;
            commands_are_those_of_the_active_one(pair)?;
            api_is_that_of_the_active_one(pair, ports.api)?;
            console_is_that_of_the_active_one(&shared.join("tls"), ports.console)?;
            user_of_publisher_acl_is_the_same(pair)?;
            let syndic = stock_syndic_of_the_standby_serves_a_master_above(pair, top)?;
            drop(syndic);
            let ping = ["*", "test.ping", "--out=json", "--static"];
            let of_active = answer(&pair.a.salt(&ping)?)?;
            // Files that are later than the wait for them are those of no job, to stock.
            wait_until("stock's command to find its job", SOON, || {
                let of_standby = answer(&pair.b.salt(&ping).ok()?).ok()?;
                (of_standby == of_active).then_some(())
            })?;
            deleted_key_asks_the_active_one_for_a_new_shared_key(pair)?;

            pair.a.step("the one that relays takes over");
            // Over WebSockets no stock minion comes back to a master that was lost (`transports`).
            pair.a.kill_minion("ws3007");
            let ended = pair.a.stop_master()?;
            ensure!(ended.success(), "{ended}");
            pair.wait_for("b", "active")?;
            pair.wait_until_b_serves()?;
            let stayed = minions.iter().filter(|(id, _, _)| *id != "ws3007");
            wait_until("all to be its own subscribers", SOON, || {
                (value(pair.b, "saltern_subscribers", &[]).ok()? > 4.5).then_some(())
            })?;
            pair.a.wait_until_ready()?;
            for (id, _, _) in stayed.clone() {
                wait_for_ping(pair.b, id)?;
            }
            for (id, _, _) in stayed {
                pair.a.kill_minion(id);
            }
            pair.stop_second()
        },
    )
}

/// The answer of a command that prints JSON.
fn answer(run: &Run) -> Result<Value> {
    let text = &run.expect_code(0)?.stdout;
    serde_json::from_str(text.trim()).with_context(|| format!("{run}"))
}

/// A minion that is subscribed to both members gets each publication twice.
fn job_runs_once_on_a_minion_of_both_members(pair: &Pair<'_>) -> Result<()> {
    pair.b.step("a job of a minion that is subscribed to both");
    let run = pair.b.salt(&["hot", "test.echo", "once", "--out=json"])?;
    ensure!(answer(&run)? == json!({"hot": "once"}), "{run}");
    // The second copy has come when the answer to a later job is there.
    wait_for_ping(pair.a, "hot")?;
    let log = fs::read_to_string(pair.a.minion_path("hot", "log"))?;
    let started = |jid: &str| log.matches(&format!("Starting a new job {jid}")).count();
    let jids = log.lines().filter_map(|line| {
        let (_, jid) = line.split_once("Executing command test.echo with jid ")?;
        jid.split_whitespace().next()
    });
    let jids: Vec<&str> = jids.collect();
    ensure!(!jids.is_empty(), "it has logged the job:\n{log}");
    ensure!(jids.iter().all(|jid| started(jid) == 1), "{jids:?}:\n{log}");
    Ok(())
}

/// Stock's commands and ours, run where the standby is, and where the active one is.
fn commands_are_those_of_the_active_one(pair: &Pair<'_>) -> Result<()> {
    let (active, standby): (&Site, &Site) = (pair.a, pair.b);
    standby.step("commands of the standby are those of the active one");
    let ping = ["*", "test.ping", "--out=json", "--static"];
    let minions = answer(&active.salt(&ping)?)?;
    ensure!(
        minions.as_object().is_some_and(|all| all.len() == 6),
        "{minions}"
    );
    let ours = run(&mut standby.own_command("salt", &ping), SOON)?;
    ensure!(answer(&ours)? == minions, "ours: {ours}");
    // Its job files may come later than the member waits for them.
    wait_until("stock's command to know all six", SOON, || {
        let up = answer(&standby.salt_run(&["manage.up", "--out=json"]).ok()?).ok()?;
        up.as_array()
            .is_some_and(|all| all.len() == 6)
            .then_some(())
    })?;
    let keys = ["-L", "--out=json"];
    ensure!(answer(&standby.salt_key(&keys)?)? == answer(&active.salt_key(&keys)?)?);

    // Stock's, which does not wait for the job.
    let published = standby.salt(&["m1", "test.ping", "--async"])?;
    let jid = published.stdout.trim().rsplit(' ').next();
    let jid = jid.context("the command shows its jid")?;
    let followed = standby.saltern(&["follow", jid])?;
    followed.expect_code(0)?.expect_text("m1:\n    True")?;
    for site in [standby, active] {
        site.saltern(&["explain", jid])?
            .expect_code(0)?
            .expect_text("m1")?;
    }
    let seen = standby.metric("saltern_cluster_active", "")?;
    ensure!(seen > 0.5, "the control socket is that of the active one");
    Ok(())
}

fn api_is_that_of_the_active_one(pair: &Pair<'_>, port: u16) -> Result<()> {
    let mut session = pair.b.api_client_at(&format!("http://127.0.0.3:{port}"))?;
    let page = session.call(&json!({"method": "GET", "path": "/app"}))?;
    ensure!(
        page["status"] == 200 && page["body"].to_string().contains("html"),
        "the pages of a site: {page}"
    );
    let form = json!({"username": "ann", "password": PASSWORD, "eauth": "sharedsecret"});
    let answer = session.call(&json!({"method": "POST", "path": "/login", "json": form}))?;
    ensure!(answer["status"] == 200, "{answer}");
    let chunk = json!({"client": "local", "fun": "test.ping", "tgt": "m1"});
    let call = json!({"method": "POST", "path": "/", "auth": true, "json": [chunk]});
    let answer = session.call(&call)?;
    ensure!(
        answer["body"]["return"][0]["m1"] == true,
        "the job ran: {answer}"
    );
    Ok(())
}

/// With the one certificate of all, which is that of a balancer.
fn console_is_that_of_the_active_one(tls: &Path, port: u16) -> Result<()> {
    let call = |arguments: &[&str], path: &str| -> Result<Run> {
        let mut command = Command::new("curl");
        command.args(["-sS", "--cacert"]).arg(tls.join("ca.pem"));
        command.args([
            "--connect-to",
            &format!("127.0.0.1:{port}:127.0.0.3:{port}"),
        ]);
        command.args(arguments);
        command.arg(format!("https://127.0.0.1:{port}{path}"));
        run(&mut command, SOON)
    };
    call(&["-L"], "/console")?
        .expect_code(0)?
        .expect_text("login")?;
    let login = json!({"client": "local", "fun": "test.ping", "tgt": "m1", "username": "ann",
                       "password": PASSWORD, "eauth": "sharedsecret"});
    let data = login.to_string();
    let json = ["-H", "content-type: application/json", "-d", &data];
    let ran = call(&json, "/run")?;
    ensure!(answer(&ran)?["return"][0]["m1"] == true, "{ran}");
    Ok(())
}

fn user_of_publisher_acl_is_the_same(pair: &Pair<'_>) -> Result<()> {
    pair.b.step("a user of publisher_acl");
    let mut client = pair.b.client()?;
    let allowed = json!({"user": USER, "tgt": "m1", "fun": "test.ping"});
    let answered = client.call(&allowed)?;
    ensure!(answered == json!({"m1": true}), "{answered}");
    let refused = json!({"user": USER, "tgt": "m1", "fun": "grains.items"});
    let answered = client.call(&refused)?;
    ensure!(answered.get("m1").is_none(), "{answered}");
    Ok(())
}

/// Stock's syndic beside the standby, which has commands of a master above run on minions of the cluster.
fn stock_syndic_of_the_standby_serves_a_master_above(
    pair: &mut Pair<'_>,
    top: &Site,
) -> Result<Daemon> {
    top.step("a job from above");
    let syndic = pair.b.start_syndic("relay", Release::V3007, &[top])?;
    wait_until("minions of the cluster to answer", SOON * 2, || {
        let run = top.salt(&["-L", "m1,m2", "test.echo", "from above"]).ok()?;
        let answered = |id: &str| run.stdout.contains(&format!("{id}:\n    from above"));
        (answered("m1") && answered("m2")).then_some(())
    })?;
    Ok(syndic)
}

fn deleted_key_asks_the_active_one_for_a_new_shared_key(pair: &Pair<'_>) -> Result<()> {
    pair.b.step("a key is deleted where the standby is");
    let keys = pair.a.path("pki/minions");
    fs::copy(keys.join("m1"), keys.join("ghost"))?;
    let shared = pair.a.path("cache/saltern/shared_key");
    let before = fs::read(&shared)?;
    pair.b.salt_key(&["-y", "-d", "ghost"])?.expect_code(0)?;
    ensure!(!keys.join("ghost").exists(), "it is deleted for all");
    wait_until("a new shared key", SOON, || {
        let now = fs::read(&shared).ok()?;
        (now != before).then_some(())
    })?;
    wait_until("the dropfile to be gone", SOON, || {
        (!pair.b.path("cache/.dfn").exists()).then_some(())
    })
}
