//! A member that stands by relays: minions come to it, to the active one, or to either by a balancer.

use anyhow::{Context, Result, ensure};
use saltern_tests::prometheus::{get, metrics_address};
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Config, Release, Site, TestResult, wait_until};

use crate::cluster::{LONG, pair, wait_for_ping};
use crate::cluster_haproxy::balance;

/// Gives a member an address of its own, and has it relay; the secret is the one file of all.
fn relay_by(config: &mut Config, address: &str, (secret, port): (&str, u16)) {
    let cluster = config.get("saltern_cluster").unwrap_or_default();
    let cluster = cluster.trim_end_matches('}').to_owned();
    config
        .set("interface", address)
        .set(
            "saltern_cluster",
            format!(
                "{cluster}, secret_file: {secret}, advertise: {address}, member_port: {port}}}"
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
    pair(
        LONG,
        |_| {},
        |pair| {
            let secret = pair.a.path("secret").display().to_string();
            let port = saltern_tests::port::free_port();
            relay_by(pair.a.config(), "127.0.0.2", (&secret, port));
            relay_by(pair.b.config(), "127.0.0.3", (&secret, port));
            pair.a.write_config()?;
            pair.b.write_config()?;
            // Until it is seen that the active one is gone.
            pair.b.announce("connections cannot be relayed");
            pair.b.announce("does not answer");
            pair.a.announce("not signed in yet");
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

            pair.a.step("two come to the standby, two to the balancer");
            let stock = MinionKind::Stock(Release::V3008);
            let minions = [
                ("m1", MinionKind::Native, Some("127.0.0.3")),
                ("stock", stock, Some("127.0.0.3")),
                ("m2", MinionKind::Native, None),
                ("mixed", stock, None),
            ];
            for (id, kind, master) in minions {
                pair.a.prepare_minion(id, kind, |config| {
                    if let Some(master) = master {
                        config.set("master", master);
                    }
                })?;
                pair.a.accept_beforehand(id)?;
                pair.a.start_prepared_minion(id)?;
            }
            for (id, _, _) in minions {
                pair.a.wait_started(id)?;
                wait_for_ping(pair.a, id)?;
            }
            wait_until("the standby to relay two subscribers", SOON, || {
                let labels = ["listener=\"publish\"", "state=\"open\""];
                let relayed = value(pair.b, "saltern_port_connections", &labels).ok()?;
                (relayed > 1.5).then_some(())
            })?;
            let labels = ["outcome=\"handed_over\""];
            let taken = value(pair.a, "saltern_member_port_total", &labels)?;
            ensure!(
                taken > 3.5,
                "the active one took {taken} relayed connections"
            );
            wait_until("all to be the active one's own subscribers", SOON, || {
                let subscribers = value(pair.a, "saltern_subscribers", &[]).ok()?;
                (subscribers > 3.5).then_some(())
            })?;

            pair.a.step("the one that relays takes over");
            let ended = pair.a.stop_master()?;
            ensure!(ended.success(), "{ended}");
            pair.wait_for("b", "active")?;
            pair.wait_until_b_serves()?;
            for (id, _, _) in minions {
                wait_for_ping(pair.b, id)?;
            }
            for id in ["stock", "mixed", "m1", "m2"] {
                pair.a.kill_minion(id);
            }
            pair.stop_second()
        },
    )
}
