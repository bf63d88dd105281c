//! The native syndic by TCP and websockets, below masters of ours and of stock. In TLS both ends show their
//! certificates, and verify that of the other.
//!
//! Stock's own master does not start with TLS in 3007.15 (`ssl_context` sets a property that Python has
//! made read-only). In 3008.3 its router asks for TLS of its own workers, which speak none, so they are
//! without pools here.

use std::fs::OpenOptions;
use std::io::Write;

use anyhow::Result;
use saltern_tests::authority::Authority;
use saltern_tests::site::{Failure, MinionKind, SOON};
use saltern_tests::syndics::wait_for_syndic;
use saltern_tests::{Release, Server, Site, TestResult, wait_until};

use crate::syndic::{NATIVE, SYNDIC, above, as_written, below};

#[derive(Clone, Copy, PartialEq)]
enum Tls {
    On,
    Off,
}

/// A leaf below a master of ours, whose syndic goes up by `transport`.
fn up_by(top: Server, transport: &'static str, tls: Tls) -> TestResult {
    Site::prepared(top, above, |top| {
        as_written(top);
        top.config().set("transport", transport);
        let ssl = match tls {
            Tls::On => Authority::make(&top.path("conf"))?.ssl(),
            Tls::Off => "false".to_owned(),
        };
        if tls == Tls::On {
            top.config().set("ssl", &ssl);
        }
        if top.server() == Server::Stock(Release::V3008) {
            top.config().set("worker_pools_enabled", "False");
        }
        top.write_config()?;
        top.start_master()?;
        let low = Server::Saltern(top.server().release());
        let below = Site::prepared(low, below, |low| {
            as_written(low);
            low.announce("the syndic is not connected");
            low.configure_native_syndic(SYNDIC, &[top])?;
            let mut identity = OpenOptions::new();
            let mut identity = identity.append(true).open(low.path("conf/minion"))?;
            writeln!(identity, "transport: {transport}\nssl: {ssl}")?;
            let mark = top.events().mark();
            low.start_master()?;
            low.start_minion(NATIVE, MinionKind::Native)?;
            low.wait_started(NATIVE)?;
            wait_for_syndic(SYNDIC, &[(top, mark)])?;
            is_above(top, transport)
        });
        below.map_err(Failure::into_error)
    })
}

/// Sends a job down, and waits for its return.
fn is_above(top: &mut Site, transport: &str) -> Result<()> {
    top.step("a job goes down, and its return comes up");
    let hello = format!("{NATIVE}:\n    hello\n");
    wait_until("the answer of the minion alone", SOON, || {
        let run = top.salt(&["*", "test.echo", "hello"]).ok()?;
        (run.code == Some(0) && run.stdout == hello).then_some(())
    })?;
    if !top.server().is_ours() {
        return Ok(());
    }
    let open = format!("listener=\"publish\",state=\"open\",transport=\"{transport}\"");
    wait_until("the connection of the syndic", SOON, || {
        let connected = top.metric("saltern_port_connections", &open).ok()?;
        (connected == 1.0).then_some(())
    })
}

#[test]
fn native_syndic_by_websockets_in_tls_below_ours_3008() -> TestResult {
    up_by(Server::Saltern(Release::V3008), "ws", Tls::On)
}

#[test]
fn native_syndic_by_websockets_in_tls_below_stock_3008() -> TestResult {
    up_by(Server::Stock(Release::V3008), "ws", Tls::On)
}

#[test]
fn native_syndic_by_websockets_below_stock_3007() -> TestResult {
    up_by(Server::Stock(Release::V3007), "ws", Tls::Off)
}

#[test]
fn native_syndic_by_tcp_in_tls_below_stock_3006() -> TestResult {
    up_by(Server::Stock(Release::V3006), "tcp", Tls::On)
}
