//! The HTTP API: the requests that clients send to stock's salt-api, and what they get from ours.
//!
//! `netapi/requests.jsonl` is the table of requests; `tests/peers/netapi_corpus.py` plays it. The
//! site is the same for both sides: one stock minion, and users of three kinds of `external_auth`.

mod corpus;

use std::process::Command;

use anyhow::{Context, Result};
use saltern_tests::pam::{PamService, python_for_pam};
use saltern_tests::port::free_port;
use saltern_tests::process::peer;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Config, Daemon, Server, Site, run, wait_until};
use serde_json::Value;

/// The password of the users of `sharedsecret`.
const SECRET: &str = "a secret of this test";

/// Whose contract an interface keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    CherryPy,
    Tornado,
    Wsgi,
}

impl Dialect {
    fn name(self) -> &'static str {
        match self {
            Dialect::CherryPy => "cherrypy",
            Dialect::Tornado => "tornado",
            Dialect::Wsgi => "wsgi",
        }
    }

    /// The master's option that turns it on.
    fn section(self) -> String {
        format!("rest_{}", self.name())
    }
}

/// A master's interfaces and their ports.
struct Interfaces(Vec<(Dialect, u16)>);

impl Interfaces {
    fn new(dialects: &[Dialect]) -> Self {
        Self(dialects.iter().map(|one| (*one, free_port())).collect())
    }

    /// Sets the options of a master that has them, its users, and what they may do.
    fn configure(&self, config: &mut Config, server: Server, service: &PamService) {
        for (dialect, port) in &self.0 {
            // Stock's own server of it answers nothing: `peers/wsgi_api.py`.
            if *dialect != Dialect::Wsgi || server.is_ours() {
                config.set(&dialect.section(), web(*port));
            }
        }
        let root = config.get("root_dir").unwrap_or_default().to_owned();
        let known = format!("{root}/users");
        std::fs::write(&known, "flo:of the file\n").expect("the site has a directory");
        let everything = "['.*', '@runner', '@wheel', '@jobs', '@events']";
        let limited = "[{m1: [test.ping]}]";
        config
            .set("auth.pam.service", &service.name)
            .set("auth.pam.python", python_for_pam(&root, server.release()))
            .set("netapi_enable_clients", CLIENTS)
            .set(
                "external_auth",
                format!(
                    "{{sharedsecret: {{ann: {everything}, bob: {limited}, \
                     lim: [{{'m*': [{{test.echo: {{args: ['^allowed$']}}}}]}}], \
                     rita: ['@runner'], wilma: ['@wheel'], nop: []}}, \
                     auto: {{ann: {everything}}}, \
                     pam: {{pia: {limited}, locked: {everything}}}, \
                     file: {{'^filename': {known}, flo: {limited}}}}}"
                ),
            )
            .set("sharedsecret", SECRET)
            .set("nodegroups", "{group1: 'L@m1'}")
            .set("timeout", 20);
    }

    /// Starts what serves them, unless it is the master itself, and waits until each answers.
    fn start(&self, site: &Site) -> Result<Vec<Daemon>> {
        let mut daemons = Vec::new();
        if !site.server().is_ours() {
            daemons.push(site.start_api()?);
            for (dialect, port) in &self.0 {
                if *dialect == Dialect::Wsgi {
                    daemons.push(start_wsgi(site, *port)?);
                }
            }
        }
        for (dialect, port) in &self.0 {
            let what = format!("{} to listen", dialect.section());
            wait_until(&what, SOON, || {
                std::net::TcpStream::connect(("127.0.0.1", *port)).ok()
            })?;
        }
        Ok(daemons)
    }

    /// The answers of each interface to the requests of the table.
    fn play(&self, site: &Site) -> Result<Vec<(Dialect, Vec<Value>)>> {
        let of_each = self.0.iter();
        of_each
            .map(|(dialect, port)| Ok((*dialect, play(site, *dialect, *port)?)))
            .collect()
    }
}

fn start_wsgi(site: &Site, port: u16) -> Result<Daemon> {
    let mut command = Command::new(site.server().release().program("python"));
    command
        .arg(peer("wsgi_api.py"))
        .arg(site.path("conf/master"))
        .arg(port.to_string());
    Daemon::start("rest_wsgi", &mut command, &site.path("log/wsgi.out"))
}

/// Every client but `ssh`, which is disabled.
const CLIENTS: &str = "[local, local_async, local_batch, local_subset, runner, runner_async, \
                       wheel, wheel_async]";

fn web(port: u16) -> String {
    format!("{{port: {port}, host: 127.0.0.1, address: 127.0.0.1, disable_ssl: true}}")
}

/// Plays the table to one interface.
fn play(site: &Site, dialect: Dialect, port: u16) -> Result<Vec<Value>> {
    let table = concat!(env!("CARGO_MANIFEST_DIR"), "/e2e/netapi/requests.jsonl");
    let mut command = Command::new(site.server().release().program("python"));
    command
        .arg(peer("netapi_corpus.py"))
        .arg(format!("http://127.0.0.1:{port}"))
        .args([dialect.name(), table])
        .arg(site.path(""));
    let played = run(&mut command, SOON * 3)?;
    played.expect_code(0)?;
    let answers = played.stdout.lines().map(serde_json::from_str);
    answers
        .collect::<Result<_, _>>()
        .with_context(|| played.to_string())
}

/// One stock minion, which is all that the requests ask for.
fn bring_up(site: &mut Site) -> Result<()> {
    site.announce("request refused");
    site.bring_up(&[("m1", MinionKind::Stock(site.server().release()))])
}
