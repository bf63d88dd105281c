//! Traces: one from stock's command line over the master to stock's minion and back, as a collector
//! puts it together; and nothing of it where the option is off.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use saltern_tests::process::{Daemon, peer};
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Release, Server, Site, TestResult, wait_until};
use serde_json::Value;

const SERVER: Server = Server::Saltern(Release::V3008);
const STOCK: MinionKind = MinionKind::Stock(Release::V3008);

/// Starts a collector; gives it, and what the option says to send spans there.
fn start_collector(site: &Site) -> Result<(Daemon, String)> {
    let (spans, port) = (site.path("spans"), site.path("port"));
    let mut command = Command::new(Release::V3008.program("python"));
    command.arg(peer("collector.py")).args([&spans, &port]);
    let daemon = Daemon::start("collector", &mut command, &site.path("log/collector"))?;
    let port = wait_until("the collector", SOON, || {
        let text = fs::read_to_string(&port).ok()?;
        text.ends_with('\n').then(|| text.trim().to_owned())
    })?;
    let endpoint = format!("http://127.0.0.1:{port}/v1/traces");
    let option = format!("{{enabled: true, endpoint: '{endpoint}', sampler: always_on}}");
    Ok((daemon, option))
}

/// The spans of the trace that has one of this name: each by its path of names from the root. What
/// stock makes but never sends is a `?`: the root is one, because its command line ends before.
fn tree(site: &Site, name: &str) -> Option<BTreeMap<String, Value>> {
    let text = fs::read_to_string(site.path("spans")).ok()?;
    let lines = text.lines();
    let spans: Vec<Value> = lines
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    let trace = &spans.iter().find(|span| span["name"] == name)?["trace"];
    let spans = spans.iter().filter(|span| span["trace"] == *trace);
    let spans: BTreeMap<&str, &Value> = spans
        .filter_map(|span| Some((span["span"].as_str()?, span)))
        .collect();
    let path = |span: &Value| {
        let mut names = vec![span["name"].as_str().unwrap_or_default()];
        let mut parent = span["parent"].as_str().unwrap_or_default();
        while !parent.is_empty() {
            let above = spans.get(parent);
            names.push(above.map_or("?", |above| above["name"].as_str().unwrap_or_default()));
            parent = above.map_or("", |above| above["parent"].as_str().unwrap_or_default());
        }
        names.reverse();
        names.join(" > ")
    };
    let tree = spans.values().map(|span| (path(span), (*span).clone()));
    Some(tree.collect())
}

const PUBLISH: &str = "? > salt.req.send.publish > salt.req.recv.publish";
const RETURN: &str = "salt.req.send._return > salt.req.recv._return";

/// The spans of a job below that of its request.
const OF_JOB: [&str; 4] = [
    "salt.store.commit",
    "salt.pub.send",
    "salt.minion.recv.test.ping",
    "salt.job.return",
];

#[test]
fn one_trace_leads_from_the_command_line_to_the_minion_and_to_its_return() -> TestResult {
    Site::prepared(
        SERVER,
        |config| _ = config.set("timeout", 60),
        |site| {
            let (_collector, option) = start_collector(site)?;
            site.config().set("tracing", &option);
            site.write_config()?;
            site.start_master()?;
            site.prepare_minion("m1", STOCK, |config| _ = config.set("tracing", &option))?;
            site.bring_up(&[("m1", STOCK)])?;
            site.salt(&["m1", "test.ping"])?.expect_code(0)?;

            site.step("the trace of the job");
            let mut last = Vec::new();
            let whole = |tree: &BTreeMap<String, Value>| {
                let mut below = OF_JOB.iter().map(|name| format!("{PUBLISH} > {name}"));
                below.all(|path| tree.contains_key(&path))
            };
            let job = wait_until("all spans of the job", SOON, || {
                let tree = tree(site, "salt.req.recv.publish")?;
                last = tree.keys().cloned().collect();
                whole(&tree).then_some(tree)
            })
            .with_context(|| format!("there are only {last:#?}"))?;
            for (path, span) in &job {
                let is_stock = path.contains("salt.minion") || path.ends_with(".send.publish");
                let scope = if is_stock { "salt" } else { "saltern" };
                ensure!(span["scope"] == scope, "{path}: {span}");
                ensure!(span["began"].as_u64() <= span["ended"].as_u64(), "{span}");
            }
            let request = &job[PUBLISH]["attributes"];
            let jid = request["salt.jid"].as_str().unwrap_or_default().to_owned();
            let of_return = &job[&format!("{PUBLISH} > salt.job.return")]["attributes"];
            ensure!(of_return["salt.jid"] == jid.as_str(), "{of_return}");
            ensure!(of_return["salt.req.minion_id"] == "m1", "{of_return}");

            site.step("the trace of the minion's request, a new one in stock's minion");
            let returned = wait_until("the spans of the return", SOON, || {
                let tree = tree(site, "salt.req.recv._return")?;
                tree.contains_key(&format!("{RETURN} > salt.store.commit"))
                    .then_some(tree)
            })?;
            let request = &returned[RETURN]["attributes"];
            ensure!(request["salt.jid"] == jid.as_str(), "{request}");

            site.step("events carry it");
            for (tag, tree) in [("new", &job), ("ret/m1", &returned)] {
                let event = site.events().tag(&format!("salt/job/{jid}/{tag}"), SOON)?;
                let trace = tree.values().next().and_then(|span| span["trace"].as_str());
                let trace_entries = event.data["traceparent"].as_str().unwrap_or_default();
                ensure!(
                    trace_entries.contains(trace.unwrap_or("?")),
                    "{tag}: {}",
                    event.data
                );
            }
            Ok(())
        },
    )
}
