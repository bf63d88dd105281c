//! Streams of events: over a crash of the master, and at its end.

#![allow(
    clippy::disallowed_types,
    reason = "measures real processes in real time"
)]

use anyhow::{Context, Result, ensure};
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Site, TestResult, until_exists, wait_until};
use serde_json::{Value, json};

use super::{Dialect, User, with_ours};

/// Where the master dies: before the commit of a return, between that and its event on the bus, and
/// before the minion has its answer.
const POINTS: [&str; 4] = [
    "commit-before",
    "commit-within",
    "commit-after",
    "answer-before",
];

#[test]
fn stream_resumed_after_kill_has_each_job_event_once() -> TestResult {
    with_ours(Dialect::CherryPy, |site, port| {
        site.bring_up(&[("m1", MinionKind::Native)])?;
        site.announce("the publish connection broke");
        site.announce("a return was not taken");
        let mut user = User::log_in(site, port, "ann")?;
        let url = format!("http://127.0.0.1:{port}/events");
        let python = site.server().release().program("python");
        let mut stream = site.web_peer(&python, "sse_client.py", &[&url, &user.token])?;
        stream.ask("open 1 -")?;
        let mut jids = vec![ping(&mut user)?];
        for (round, point) in (2..).zip(POINTS) {
            // The stream is resumed behind whatever it had.
            jids.push(ping(&mut user)?);
            jids.extend(dies_at(site, &mut user, point)?);
            site.kill_master();
            site.start_master()?;
            // A session is kept, and so is the minion's.
            jids.push(ping(&mut user)?);
            stream.ask(&format!("open {round} -"))?;
        }
        let count = jids.len();
        let events = stream.ask(&format!("wait {count} /ret/m1"))?;
        let events: Vec<(Option<String>, Option<String>)> = serde_json::from_str(&events)?;
        for jid in &jids {
            for tag in [
                format!("salt/job/{jid}/new"),
                format!("salt/job/{jid}/ret/m1"),
            ] {
                let seen = events.iter().filter(|(_, of)| of.as_deref() == Some(&tag));
                ensure!(seen.count() == 1, "{tag} is not there once: {events:?}");
            }
        }
        let mut ids: Vec<_> = events.iter().filter_map(|(id, _)| id.as_ref()).collect();
        ids.sort();
        let all = ids.len();
        ids.dedup();
        ensure!(all == ids.len() && all == events.len(), "ids: {events:?}");
        Ok(())
    })
}

/// Has the master die while the return of a job is stored; the job's jid. The minion sends it again.
fn dies_at(site: &mut Site, user: &mut User, point: &str) -> Result<Option<String>> {
    // The job runs until the master is to die with its return.
    let go = site.path(format!("go-{point}"));
    let command = until_exists(&go);
    let chunk = json!({"client": "local_async", "tgt": "m1", "fun": "cmd.run", "arg": [command]});
    let answer = user.low(chunk)?;
    let jid = answer["jid"].as_str().map(str::to_owned);
    site.saltern(&["debug", "die", point, "--count", "1"])?
        .expect_code(0)?;
    std::fs::write(&go, "")?;
    let what = format!("the master to die at {point}");
    wait_until(&what, SOON, || site.master().ended())?;
    Ok(jid)
}

/// Runs a job to its end; its jid. A master that was just started may not have its minion yet.
fn ping(user: &mut User) -> Result<String> {
    wait_until("the minion to answer", SOON, || {
        let chunk =
            json!({"client": "local", "tgt": "m1", "fun": "test.ping", "full_return": true});
        let answer = user.low(chunk).ok()?;
        answer["m1"]["jid"].as_str().map(str::to_owned)
    })
}

/// How many streams are open when the master is asked to stop.
const STREAMS: usize = 500;

/// A stop that waited for streams would use up its time, and the site does not wait as long. That it
/// takes less than a second shows `http::streams`, on a clock that is stepped.
#[test]
fn master_with_500_streams_is_not_held_up_by_them() -> TestResult {
    with_ours(Dialect::CherryPy, |site, port| {
        let user = User::log_in(site, port, "ann")?;
        let url = format!("http://127.0.0.1:{port}/events");
        let python = site.server().release().program("python");
        let count = STREAMS.to_string();
        let mut streams =
            site.web_peer(&python, "many_streams.py", &[&url, &user.token, &count])?;
        let open: usize = streams.ask("begin")?.parse()?;
        ensure!(open == STREAMS, "{open} of {STREAMS} streams were opened");
        let gauge = site.metric("saltern_http_streams", "")?;
        ensure!(gauge >= 500.0, "the metric says {gauge} streams");
        let status = site.stop_master()?;
        ensure!(status.success(), "{status}");
        let end: Value = serde_json::from_str(&streams.ask("end")?)?;
        site.step(&end.to_string());
        ensure!(end["ended"] == json!(STREAMS), "cut, not ended: {end}");
        start_again(site)
    })
}

/// A site checks the exit of a master that runs.
fn start_again(site: &mut Site) -> Result<()> {
    site.start_master().context("the next start")
}
