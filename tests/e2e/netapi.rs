//! The HTTP API: the requests that clients send to stock's salt-api, and what they get from ours.
//!
//! `netapi/requests.jsonl` is the table of requests; `tests/peers/netapi_corpus.py` plays it. The
//! site is the same for both sides: one stock minion, and users of three kinds of `external_auth`.

mod access;
mod bad_input;
mod clients;
mod corpus;
mod gui;
mod request;
mod ssh;
mod streams;
mod v1;
mod variants;
mod websockets;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use saltern_tests::pam::{PamService, python_for_pam};
use saltern_tests::port::free_port;
use saltern_tests::process::peer;
use saltern_tests::session::Session;
use saltern_tests::site::{Failure, MinionKind, SOON};
use saltern_tests::{Config, Daemon, Release, Server, Site, run, wait_until};
use serde_json::{Value, json};

use corpus::Extent;

/// The password of the users of `sharedsecret`.
const SECRET: &str = "a secret of this test";

/// Contract of an interface.
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
        if !server.is_ours() {
            // Each round of stock's maintenance removes tokens that are being written at that moment
            // (`list_tokens` of its tokens/localfs.py sees them half written): a login is then refused.
            config.set("loop_interval", 3600);
        }
        let is_tornado = self.0.iter().any(|(one, _)| *one == Dialect::Tornado);
        // All that stock's rest_tornado waits for a minion, which may be slow on a busy machine, and
        // what it waits for one that is away.
        let gather = if is_tornado { 30 } else { 5 };
        config.set("gather_job_timeout", gather);
    }

    /// Starts what serves them, unless it is the master itself, and waits until each answers.
    fn start(&self, site: &Site) -> Result<Vec<Daemon>> {
        self.start_with(site, &[])
    }

    /// The same, with more Python packages for stock's salt-api.
    fn start_with(&self, site: &Site, packages: &[PathBuf]) -> Result<Vec<Daemon>> {
        let mut daemons = Vec::new();
        if !site.server().is_ours() {
            daemons.push(site.start_api_with(packages)?);
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
    fn play(&self, site: &Site, extent: Extent) -> Result<Vec<Value>> {
        let mut answers = Vec::new();
        for (dialect, port) in &self.0 {
            answers.extend(play(site, (*dialect, *port), extent)?);
        }
        Ok(answers)
    }

    /// The port of the first.
    fn port(&self) -> u16 {
        self.0.first().map_or(0, |(_, port)| *port)
    }
}

/// Transcripts of a client that uses the interface of stock 3008, and then ours.
fn transcripts_of_both(
    dialect: Dialect,
    transcript: fn(&Site, u16) -> Result<Vec<String>>,
) -> Result<[Vec<String>; 2]> {
    transcripts_with(&[], dialect, transcript)
}

/// The same, with more Python packages for stock's salt-api.
fn transcripts_with(
    packages: &[PathBuf],
    dialect: Dialect,
    transcript: fn(&Site, u16) -> Result<Vec<String>>,
) -> Result<[Vec<String>; 2]> {
    let service = PamService::install()?;
    let transcript_of = |server: Server| {
        let interfaces = Interfaces::new(&[dialect]);
        let mut lines = Vec::new();
        Site::run(
            server,
            |config| interfaces.configure(config, server, &service),
            |site| {
                bring_up(site)?;
                let _api = interfaces.start_with(site, packages)?;
                lines = transcript(site, interfaces.port())?;
                Ok(())
            },
        )
        .map_err(Failure::into_error)?;
        Ok::<_, anyhow::Error>(lines)
    };
    let stock = transcript_of(Server::Stock(Release::V3008))?;
    let ours = transcript_of(Server::Saltern(Release::V3008))?;
    service.remove()?;
    Ok([stock, ours])
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
    format!(
        "{{port: {port}, host: 127.0.0.1, address: 127.0.0.1, disable_ssl: true, websockets: true}}"
    )
}

/// Plays the table to one interface.
fn play(site: &Site, (dialect, port): (Dialect, u16), extent: Extent) -> Result<Vec<Value>> {
    let table = concat!(env!("CARGO_MANIFEST_DIR"), "/e2e/netapi/requests.jsonl");
    let mut command = Command::new(site.server().release().program("python"));
    command
        .arg(peer("netapi_corpus.py"))
        .arg(format!("http://127.0.0.1:{port}"))
        .args([dialect.name(), table])
        .arg(site.path(""))
        .args(extent.argument());
    let played = run(&mut command, SOON * 10)?;
    played.expect_code(0)?;
    let answers = played.stdout.lines().map(serde_json::from_str);
    answers
        .collect::<Result<_, _>>()
        .with_context(|| played.to_string())
}

/// Log lines about refused requests: the table has many.
const REFUSALS: [&str; 4] = [
    "request refused",
    "a call of the API failed",
    "a target matches nobody",
    "a wheel function was not run",
];

/// One stock minion, which is all that the requests ask for.
fn bring_up(site: &mut Site) -> Result<()> {
    for refusal in REFUSALS {
        site.announce(refusal);
    }
    site.bring_up(&[("m1", MinionKind::Stock(site.server().release()))])
}

/// A session with one interface of our master, and a user who is logged in.
struct User {
    session: Session,
    /// The token of the session.
    token: String,
}

impl User {
    /// Logs in as a user of `sharedsecret`.
    fn log_in(site: &Site, port: u16, name: &str) -> Result<Self> {
        let mut session = site.api_client(port)?;
        let form = json!({"username": name, "password": SECRET, "eauth": "sharedsecret"});
        let answer = session.call(&json!({"method": "POST", "path": "/login", "json": form}))?;
        let token = answer["body"]["return"][0]["token"].as_str();
        let token = token.with_context(|| answer.to_string())?.to_owned();
        Ok(Self { session, token })
    }

    /// Sends one command and returns what it came to.
    fn low(&mut self, chunk: Value) -> Result<Value> {
        let call = json!({"method": "POST", "path": "/", "auth": true, "json": [chunk]});
        let mut answer = self.session.call(&call)?;
        ensure!(answer["status"] == 200, "{call}: {answer}");
        Ok(answer["body"]["return"][0].take())
    }
}

/// Runs a scenario with one interface of our master, set up for 3008.
fn with_ours(
    dialect: Dialect,
    scenario: impl FnOnce(&mut Site, u16) -> Result<()>,
) -> saltern_tests::TestResult {
    let server = Server::Saltern(saltern_tests::Release::V3008);
    let service = PamService::install()?;
    let interfaces = Interfaces::new(&[dialect]);
    Site::run(
        server,
        |config| {
            interfaces.configure(config, server, &service);
            // What holds up the stop of a master is to be seen.
            config.set("saltern_stop_timeout", 600);
        },
        |site| {
            site.announce("request refused");
            interfaces.start(site)?;
            scenario(site, interfaces.port())
        },
    )?;
    Ok(service.remove()?)
}
