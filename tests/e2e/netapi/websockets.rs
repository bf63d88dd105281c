//! Websockets of both dialects with `websocket-client`, beside stock's where stock serves them.

use anyhow::{Context, Result, ensure};
use saltern_tests::pam::PamService;
use saltern_tests::session::Session;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Release, Server, Site, TestResult, run};
use serde_json::{Value, json};

use super::clients::{api_client, ws4py};
use super::{Dialect, Interfaces, User, transcripts_of_both, transcripts_with, with_ours};

/// Message of a client that wants events.
const READY: &str = "say websocket client ready";

/// A page of this origin has nothing to do with the master.
const FOREIGN: &str = "http://elsewhere.example";

/// A websocket that a client has opened, or failed to open.
struct Socket {
    session: Session,
    state: String,
}

impl Socket {
    /// `{token}` in the path is the user's.
    fn open(site: &Site, port: u16, path: &str, options: &[&str]) -> Result<Self> {
        let url = format!("ws://127.0.0.1:{port}{path}");
        let mut arguments = vec![url.as_str()];
        arguments.extend(options);
        let python = api_client("python")?;
        let mut session = site.web_peer(&python, "websocket_client.py", &arguments)?;
        let state = session.ask("")?;
        Ok(Self { session, state })
    }

    fn ready(&mut self) -> Result<()> {
        ensure!(self.state == "open", "{}", self.state);
        self.session.ask(READY)?;
        Ok(())
    }

    /// The first message with this text in it.
    fn wait(&mut self, text: &str) -> Result<String> {
        let message = self.session.ask(&format!("wait {text}"))?;
        serde_json::from_str(&message).with_context(|| format!("{text}: {message:?}"))
    }

    /// The same, or an empty text when none comes for a while.
    fn wait_briefly(&mut self, text: &str) -> Result<String> {
        let message = self.session.ask(&format!("briefly {text}"))?;
        serde_json::from_str(&message).with_context(|| format!("{text}: {message:?}"))
    }

    fn end(&mut self) -> Result<String> {
        self.session.ask("end")
    }
}

/// Runs a job to its end; its jid.
fn ping(user: &mut User) -> Result<String> {
    let chunk = json!({"client": "local", "tgt": "m1", "fun": "test.ping", "full_return": true});
    let answer = user.low(chunk)?;
    let jid = answer["m1"]["jid"].as_str();
    Ok(jid.with_context(|| answer.to_string())?.to_owned())
}

#[test]
fn websocket_client_gets_events_of_rest_cherrypy() -> TestResult {
    with_ours(Dialect::CherryPy, |site, port| {
        site.bring_up(&[("m1", MinionKind::Native)])?;
        let mut user = User::log_in(site, port, "ann")?;
        let token = user.token.clone();
        let header = format!("X-Auth-Token: {token}");
        let cookie = format!("Cookie: session_id={token}");
        let of_path = format!("/ws/{token}");
        for (path, options) in [
            (of_path.as_str(), &[FOREIGN][..]),
            ("/ws", &[&header]),
            ("/ws", &[&cookie]),
        ] {
            let mut socket = Socket::open(site, port, path, options)?;
            socket.ready()?;
            ensure!(socket.wait("received")? == "server received message");
            let jid = ping(&mut user)?;
            let tag = format!("salt/job/{jid}/ret/m1");
            let message = socket.wait(&tag)?;
            let event = message.strip_prefix("data: ");
            let event = event.and_then(|event| event.strip_suffix("\n\n"));
            let event: Value = serde_json::from_str(event.with_context(|| message.clone())?)?;
            ensure!(event["tag"] == tag && event["data"]["return"] == true);
        }
        let mut socket = Socket::open(site, port, "/ws?format_events", &[&header])?;
        socket.ready()?;
        let jid = ping(&mut user)?;
        let jobs: Value = serde_json::from_str(&socket.wait("complete")?)?;
        ensure!(jobs["jobs"][&jid]["state"] == "complete", "{jobs}");

        let wrong = "0".repeat(token.len());
        let wrong_header = format!("X-Auth-Token: {wrong}");
        let wrong_path = format!("/ws/{wrong}");
        for (path, options, expected) in [
            (wrong_path.as_str(), &[&*header][..], "refused: 401"),
            ("/ws", &[&wrong_header], "refused: 401"),
            ("/ws", &[], "refused: 401"),
            ("/ws", &[FOREIGN, &cookie], "refused: 403"),
            ("/ws/a/b", &[&header], "refused: 404"),
        ] {
            let socket = Socket::open(site, port, path, options)?;
            ensure!(socket.state == expected, "{path}: {}", socket.state);
        }
        Ok(())
    })
}

/// Between two events the master is killed and started again: a client that gives its last position
/// gets each event of the jobs behind it once.
#[test]
fn websocket_resumes_behind_its_position_over_a_kill() -> TestResult {
    with_ours(Dialect::CherryPy, |site, port| {
        site.bring_up(&[("m1", MinionKind::Native)])?;
        let mut user = User::log_in(site, port, "ann")?;
        let header = format!("X-Auth-Token: {}", user.token);
        let mut socket = Socket::open(site, port, "/ws?last_event_id", &[&header])?;
        socket.ready()?;
        let tag_of = |jid: &str| format!("salt/job/{jid}/ret/m1");
        let first = tag_of(&ping(&mut user)?);
        let message = socket.wait(&first)?;
        let (_, id) = message.split_once("\nid: ").context(message.clone())?;
        let id = id.trim_end().to_owned();
        let second = tag_of(&ping(&mut user)?);
        site.announce("the publish connection broke");
        site.kill_master();
        socket.end()?;
        site.start_master()?;

        let path = format!("/ws?last_event_id={id}&tag=salt/job/*/ret/m1");
        let mut socket = Socket::open(site, port, &path, &[&header])?;
        socket.ready()?;
        let message = socket.wait("salt/job/")?;
        ensure!(message.contains(&second), "{first}: {message}");
        let _ = saltern_tests::wait_until("the minion to be back", SOON, || ping(&mut user).ok())?;
        let message = socket.wait("salt/job/")?;
        ensure!(!message.contains(&second), "it came twice: {message}");
        Ok(())
    })
}

#[test]
fn websockets_of_rest_tornado_are_those_of_stock() -> TestResult {
    let [stock, ours] = transcripts_of_both(Dialect::Tornado, tornado)?;
    ensure_same(&stock, &ours)?;
    Ok(())
}

#[test]
fn websockets_of_rest_cherrypy_are_those_of_stock_with_ws4py() -> TestResult {
    let [stock, ours] = transcripts_with(&[ws4py()?], Dialect::CherryPy, cherrypy)?;
    ensure_same(&stock, &ours)?;
    Ok(())
}

/// Refusals, and the messages of a client that says something before and after it is ready.
fn cherrypy(site: &Site, port: u16) -> Result<Vec<String>> {
    let mut user = User::log_in(site, port, "ann")?;
    let token = user.token.clone();
    let wrong = "0".repeat(token.len());
    let header = format!("X-Auth-Token: {token}");
    let mut seen = Vec::new();
    for (path, options) in [
        (format!("/ws/{token}"), &[][..]),
        (format!("/ws/{token}"), &[FOREIGN]),
        ("/ws".to_owned(), &[header.as_str()]),
        (format!("/ws/{wrong}"), &[]),
        ("/ws".to_owned(), &[]),
    ] {
        let mut socket = Socket::open(site, port, &path, options)?;
        let path = path.replace(&token, "TOKEN").replace(&wrong, "WRONG");
        let with = options.iter().map(|option| option.replace(&token, "TOKEN"));
        let with: Vec<String> = with.collect();
        seen.push(format!("{path} {with:?}: {}", socket.state));
        if socket.state != "open" {
            continue;
        }
        socket.session.ask("say hello")?;
        seen.push(socket.wait("received")?);
        socket.ready()?;
        seen.push(socket.wait("received")?);
        // Stock subscribes in a process that it starts then: events before that do not come.
        let mut message = String::new();
        while message.is_empty() {
            // Of this job: a busy stock asks the minion for its jobs meanwhile.
            let jid = ping(&mut user)?;
            message = socket.wait_briefly(&format!("{jid}/ret/m1"))?;
        }
        let event = message.strip_prefix("data: ");
        let event = event.and_then(|event| event.strip_suffix("\n\n"));
        let event: Value = serde_json::from_str(event.with_context(|| message.clone())?)?;
        seen.push(form_of(&event).to_string());
    }
    Ok(seen)
}

fn ensure_same(stock: &[String], ours: &[String]) -> Result<()> {
    ensure!(stock == ours, "stock: {stock:#?}\nours: {ours:#?}");
    ensure!(ours.iter().any(|line| line.contains("refused: 401")));
    Ok(())
}

/// Frames of each websocket, as a client sees them.
fn tornado(site: &Site, port: u16) -> Result<Vec<String>> {
    let mut user = User::log_in(site, port, "ann")?;
    let token = user.token.clone();
    let wrong = "0".repeat(token.len());
    let mut seen = Vec::new();
    for (path, options) in [
        (format!("/all_events/{token}"), &[][..]),
        (format!("/all_events/{token}"), &[FOREIGN]),
        (format!("/all_events/{wrong}"), &[]),
        ("/all_events/nothing-hexadecimal".to_owned(), &[]),
        (format!("/formatted_events/{wrong}"), &[]),
    ] {
        let mut socket = Socket::open(site, port, &path, options)?;
        seen.push(format!(
            "{} {options:?}: {}",
            path.replace(&token, "TOKEN").replace(&wrong, "WRONG"),
            socket.state
        ));
        if socket.state != "open" {
            continue;
        }
        // Tornado answers nothing, and a second time is none.
        socket.session.ask("say hello")?;
        socket.ready()?;
        socket.ready()?;
        user.low(json!({"client": "local", "tgt": "m1", "fun": "test.ping"}))?;
        let jid = loop {
            // A busy stock asks the minion for its jobs meanwhile.
            let event: Value = serde_json::from_str(&socket.wait("/new")?)?;
            if event["data"]["fun"] == "test.ping" {
                seen.push(form_of(&event).to_string());
                let jid = event["data"]["jid"].as_str();
                break jid.with_context(|| event.to_string())?.to_owned();
            }
        };
        let message = socket.wait(&format!("{jid}/ret/m1"))?;
        let event: Value = serde_json::from_str(&message)?;
        seen.push(form_of(&event).to_string());
    }
    Ok(seen)
}

/// A value with its texts and numbers left out, keys sorted.
fn form_of(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields
                .iter()
                .map(|(name, value)| (name.clone(), form_of(value)));
            Value::Object(fields.collect())
        }
        Value::Array(values) => Value::Array(values.iter().map(form_of).collect()),
        Value::String(text) if text.parse::<u128>().is_ok() => "digits".into(),
        Value::String(_) => "text".into(),
        Value::Number(_) => "number".into(),
        other => other.clone(),
    }
}

#[test]
fn formatted_events_of_rest_tornado_begin_with_the_grains_of_all_minions() -> TestResult {
    with_ours(Dialect::Tornado, |site, port| {
        site.bring_up(&[("m1", MinionKind::Native)])?;
        let user = User::log_in(site, port, "ann")?;
        let path = format!("/formatted_events/{}", user.token);
        let mut socket = Socket::open(site, port, &path, &[])?;
        socket.ready()?;
        let message = socket.wait("\"grains\"")?;
        ensure!(message.ends_with("\n\n"), "{message}");
        let minions: Value = serde_json::from_str(&message)?;
        ensure!(minions["minions"]["m1"]["id"] == "m1", "{minions}");
        Ok(())
    })
}

#[test]
fn logout_and_stop_end_websockets_and_say_why() -> TestResult {
    with_ours(Dialect::CherryPy, |site, port| {
        let mut user = User::log_in(site, port, "ann")?;
        let path = format!("/ws/{}", user.token);
        let mut socket = Socket::open(site, port, &path, &[])?;
        socket.ready()?;
        user.session
            .call(&json!({"method": "POST", "path": "/logout", "auth": true}))?;
        let end = socket.end()?;
        ensure!(end == "1008 session_ended", "{end}");
        let socket = Socket::open(site, port, &path, &[])?;
        ensure!(socket.state == "refused: 401", "{}", socket.state);

        let user = User::log_in(site, port, "ann")?;
        let path = format!("/ws/{}", user.token);
        let mut socket = Socket::open(site, port, &path, &[])?;
        socket.ready()?;
        let status = site.stop_master()?;
        ensure!(status.success(), "{status}");
        let end = socket.end()?;
        ensure!(end == "1001 stopping", "{end}");
        site.start_master()
    })
}

/// Long enough to log in and to open a websocket.
const TOKEN_SECONDS: u32 = 60;

#[test]
fn token_that_expires_ends_its_websocket() -> TestResult {
    let server = Server::Saltern(Release::V3008);
    let service = PamService::install()?;
    let interfaces = Interfaces::new(&[Dialect::CherryPy]);
    Site::run(
        server,
        |config| {
            interfaces.configure(config, server, &service);
            config.set("token_expire", TOKEN_SECONDS);
        },
        |site| {
            interfaces.start(site)?;
            let user = User::log_in(site, interfaces.port(), "ann")?;
            let path = format!("/ws/{}", user.token);
            let mut socket = Socket::open(site, interfaces.port(), &path, &[])?;
            socket.ready()?;
            let end = socket.end()?;
            ensure!(end == "1008 session_ended", "{end}");
            Ok(())
        },
    )?;
    Ok(service.remove()?)
}

/// More than the buffers of two sockets and the events that are kept in memory for streams; small
/// enough events that whoever reads has seconds before one of them is gone from there.
const FLOOD: [&str; 2] = ["15000", "3000"];

#[test]
fn websocket_that_is_not_read_is_cut_off_and_no_other() -> TestResult {
    with_ours(Dialect::CherryPy, |site, port| {
        let user = User::log_in(site, port, "ann")?;
        let path = format!("/ws/{}?tag=flood/", user.token);
        let (mut slow, mut other) = (
            Socket::open(site, port, &format!("{path}*"), &[])?,
            Socket::open(site, port, &format!("{path}14999"), &[])?,
        );
        slow.ready()?;
        other.ready()?;
        let mut flood = site.stock_peer("flood_events.py", &FLOOD);
        let flood = std::thread::spawn(move || run(&mut flood, SOON * 2));
        other.wait("flood/14999\"")?;
        flood
            .join()
            .map_err(|_| anyhow::anyhow!("the flood panicked"))??
            .expect_code(0)?;
        // The close frame finds no room where nothing was read for longer than one message may take.
        let end = slow.end()?;
        ensure!(["1013 slow", "cut"].contains(&end.as_str()), "{end}");
        let metric = site.metric("saltern_api_streams_closed_total", "reason=\"slow\"")?;
        ensure!(metric == 1.0, "the metric says {metric}");
        Ok(())
    })
}
