//! Several masters behind HAProxy, with the configuration that the handbook gives.
//!
//! The masters listen on loopback addresses of their own; the balancer has the one that minions know.

use std::io::Read as _;
use std::net::{TcpListener, TcpStream};

use anyhow::{Context, Result, ensure};
use saltern_tests::haproxy::Haproxy;
use saltern_tests::prometheus::metrics_address;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Release, TestResult, wait_until};

use crate::cluster::{LONG, Pair, pair, wait_for_ping};

/// Seconds after which the balancer cuts a connection without traffic, and after which a master probes
/// one: longer than on the handbook's page, because a busy machine may be late.
const TIMEOUT: u64 = 120;
const HEARTBEAT: u64 = 30;

/// A connection through the balancer that nobody sends anything on is cut, so more than a timeout has
/// passed.
fn wait_for_a_cut(port: u16) -> Result<()> {
    let mut idle = TcpStream::connect(("127.0.0.1", port))?;
    idle.set_read_timeout(Some(SOON * 2))?;
    let length = idle.read(&mut [0; 1]).context("it is not cut")?;
    ensure!(length == 0, "somebody sends something");
    Ok(())
}

/// A balancer in front of both masters, which are at 127.0.0.2 and 127.0.0.3, with one more frontend at a
/// port in front of a listener that is silent.
pub(crate) fn balance(pair: &mut Pair<'_>, silent: Option<(&TcpListener, u16)>) -> Result<Haproxy> {
    let (publish, request) = (pair.a.publish_port(), pair.a.ret_port());
    let address = |site: &mut saltern_tests::Site| {
        let address = site.config().get("saltern_metrics_address");
        let port = address.and_then(|it| it.rsplit_once(':')?.1.parse::<u16>().ok());
        port.context("it has a port")
    };
    let (of_a, of_b) = (address(pair.a)?, address(pair.b)?);
    let places = [
        ("192.0.2.10:4505", format!("127.0.0.1:{publish}")),
        ("192.0.2.10:4506", format!("127.0.0.1:{request}")),
        (
            "192.0.2.11:4505",
            format!("127.0.0.2:{publish} check port {of_a}"),
        ),
        (
            "192.0.2.11:4506",
            format!("127.0.0.2:{request} check port {of_a}"),
        ),
        (
            "192.0.2.12:4505",
            format!("127.0.0.3:{publish} check port {of_b}"),
        ),
        (
            "192.0.2.12:4506",
            format!("127.0.0.3:{request} check port {of_b}"),
        ),
        ("maxconn 100000", "maxconn 1000".to_owned()),
        // A master of a busy machine may answer late; one that is stopped refuses at once.
        ("fall 2", "fall 20".to_owned()),
        ("client 1m", format!("client {TIMEOUT}s")),
        ("server 1m", format!("server {TIMEOUT}s")),
    ];
    let more = match silent {
        Some((silent, idle)) => {
            let silent = silent.local_addr()?;
            format!("listen idle\n    bind 127.0.0.1:{idle}\n    server silent {silent} no-check\n")
        }
        None => String::new(),
    };
    Haproxy::start(&pair.a.path("haproxy"), &places, &more)
}

fn subscriptions(balancer: &Haproxy) -> Result<u64> {
    let total = balancer.value("salt-publish", "FRONTEND", "stot")?;
    total.parse().with_context(|| total)
}

#[test]
fn minions_behind_haproxy_stay_connected_and_follow_the_active_master() -> TestResult {
    let options = |config: &mut saltern_tests::Config| {
        config
            .set("interface", "127.0.0.2")
            .set("saltern_heartbeat_interval", HEARTBEAT)
            .set(
                "saltern_metrics_address",
                metrics_address().replace("127.0.0.1", "127.0.0.2"),
            );
    };
    pair(LONG, options, |pair| {
        let address = metrics_address().replace("127.0.0.1", "127.0.0.3");
        pair.b
            .config()
            .set("interface", "127.0.0.3")
            .set("saltern_heartbeat_interval", HEARTBEAT)
            .set("saltern_metrics_address", address);
        pair.b.write_config()?;
        pair.start()?;
        let silent = TcpListener::bind(("127.0.0.1", 0))?;
        let idle = saltern_tests::port::free_port();
        let balancer = balance(pair, Some((&silent, idle)))?;
        wait_until("the balancer to know the roles", SOON, || {
            let status = |server| balancer.value("masters-request", server, "status").ok();
            let is_up = status("master-a")?.starts_with("UP");
            (is_up && status("master-b")?.starts_with("DOWN")).then_some(())
        })?;

        let stock = MinionKind::Stock(Release::V3008);
        pair.a
            .bring_up(&[("m1", MinionKind::Native), ("stock", stock)])?;
        wait_for_ping(pair.a, "m1")?;
        wait_for_ping(pair.a, "stock")?;

        pair.a.step("idle for longer than the balancer allows");
        let before = subscriptions(&balancer)?;
        wait_for_a_cut(idle)?;
        let after = subscriptions(&balancer)?;
        ensure!(after == before, "{} connected anew", after - before);

        pair.a.step("the active master hands over");
        let ended = pair.a.stop_master()?;
        ensure!(ended.success(), "{ended}");
        pair.wait_until_b_serves()?;
        wait_for_ping(pair.b, "m1")?;
        pair.a.wait_until_ready_again()?;
        wait_for_ping(pair.b, "stock")?;
        wait_until("the balancer to know the new one", SOON, || {
            let status = balancer
                .value("masters-publish", "master-b", "status")
                .ok()?;
            status.starts_with("UP").then_some(())
        })?;
        pair.a.kill_minion("stock");
        pair.a.kill_minion("m1");
        pair.stop_second()
    })
}
