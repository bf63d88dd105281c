//! The master's `schedule`: the same jobs by our master and by stock's, with the same events. The
//! times of runs are compared under a stepped clock (`src/automation/tests/schedule_stock`).

use std::collections::BTreeMap;

use anyhow::{Context, Result, anyhow, ensure};
use rustix::process::Signal;
use saltern_tests::site::SOON;
use saltern_tests::{Config, Event, Release, Server, Site, TestResult, wait_until};
use serde_json::{Value, json};

#[test]
fn jobs_of_3006_run_as_with_stock() -> TestResult {
    compare(Release::V3006)
}

#[test]
fn jobs_of_3007_run_as_with_stock() -> TestResult {
    compare(Release::V3007)
}

#[test]
fn jobs_of_3008_run_as_with_stock() -> TestResult {
    compare(Release::V3008)
}

/// The event at the end of a run.
const TAG: &str = "__schedule_return";

/// Jobs by their names in events, and their options.
const JOBS: [(&str, &str); 8] = [
    (
        "plain",
        "{function: test.arg, seconds: 1, args: [1, two], kwargs: {x: 3}}",
    ),
    (
        "metadata",
        "{function: test.arg, seconds: 1, metadata: {who: me}}",
    ),
    (
        "uncached",
        "{function: test.arg, seconds: 1, return_job: nocache}",
    ),
    ("missing", "{function: no.such, seconds: 1}"),
    ("wrong", "{function: test.sleep, seconds: 1}"),
    (
        "other name",
        "{function: test.arg, seconds: 1, name: other name}",
    ),
    ("by cron", "{function: test.arg, cron: '* * * * * *'}"),
    (
        "kept",
        "{function: test.arg, seconds: 1, args: [kept], returner: local_cache}",
    ),
];

/// Jobs that fire no event, or that never run.
const SILENT: [(&str, &str); 3] = [
    (
        "silent",
        "{function: test.arg, seconds: 1, return_job: False}",
    ),
    (
        "disabled",
        "{function: test.arg, seconds: 1, enabled: False}",
    ),
    ("past", "{function: test.arg, once: '2020-01-01T00:00:00'}"),
];

fn configure(config: &mut Config) {
    let jobs = JOBS.iter().chain(&SILENT).enumerate();
    let jobs = jobs.map(|(number, (name, options))| match *name {
        "other name" => format!("\n  job{number}: {options}"),
        _ => format!("\n  {name}: {options}"),
    });
    config.set("schedule", jobs.collect::<String>());
}

/// The events of each job, without what cannot be equal.
type Announced = BTreeMap<&'static str, Value>;

fn compare(release: Release) -> TestResult {
    let mut announced = Vec::new();
    for server in [Server::Stock(release), Server::Saltern(release)] {
        let mut here = Announced::new();
        Site::run(server, configure, |site| {
            // A run each second meets the stop, before a runner has taken it.
            site.announce("a call of a runner function was lost");
            // Two of the jobs fail.
            site.announce("a scheduled job failed");
            site.announce("is no runner function of Salt");
            here = listen(site)?;
            Ok(())
        })?;
        announced.push(here);
    }
    let (stock, ours) = (announced.remove(0), announced.remove(0));
    for (name, announced) in &stock {
        if ours.get(name) != Some(announced) {
            let ours = ours.get(name);
            return Err(anyhow!("{name:?}\n  stock {announced}\n  ours  {ours:?}").into());
        }
    }
    Ok(())
}

fn listen(site: &Site) -> Result<Announced> {
    let mut announced = Announced::new();
    let mut kept = Value::Null;
    for (name, _) in JOBS {
        // Stock's cleaning may take away what a run of its own is about to keep, which then fails.
        let fails = ["missing", "wrong"].contains(&name);
        let pick = |event: &Event| {
            let is_meant = event.tag == TAG
                && event.data["schedule"] == name
                && (fails || event.data["success"] == true);
            is_meant.then(|| event.data.clone())
        };
        let what = format!("a run of {name:?}");
        site.events().find(&what, SOON, pick)?;
        // It goes on.
        let mark = site.events().mark();
        let data = site.events().find_since(mark, &what, SOON, pick)?;
        if name == "kept" {
            kept = data.clone();
        }
        announced.insert(name, normal(data)?);
    }
    for event in site.events().since(0) {
        let name = event.data["schedule"].as_str().unwrap_or_default();
        let is_silent = SILENT.iter().any(|(silent, _)| *silent == name);
        ensure!(!is_silent, "{name:?} is announced: {event:?}");
        ensure!(!event.tag.starts_with("salt/run/"), "{event:?}");
    }
    // Stock's own cleaning takes away what it keeps: there is no job to it.
    if matches!(site.server(), Server::Saltern(_)) {
        is_kept(site, &kept)?;
    }
    Ok(announced)
}

/// The job cache has a run as its event announced it.
fn is_kept(site: &Site, data: &Value) -> Result<()> {
    let jid = data["jid"].as_str().context("the jid is text")?;
    let id = data["id"].as_str().context("the id is text")?;
    let mut last = Value::Null;
    let kept = wait_until("the run to be kept", SOON, || {
        let run = site.saltern(&["run", "--out", "json", "jobs.list_job", jid]);
        last = serde_json::from_str(&run.ok()?.stdout).ok()?;
        (last["Result"][id]["return"] == data["return"]).then_some(())
    });
    kept.with_context(|| format!("{last} is kept of {data}"))
}

/// The data of an event, without what differs from run to run.
fn normal(mut data: Value) -> Result<Value> {
    let fields = data.as_object_mut().context("the data are a mapping")?;
    ensure!(
        fields
            .remove("_stamp")
            .is_some_and(|stamp| stamp.is_string())
    );
    ensure!(fields.remove("pid").is_some_and(|pid| pid.is_u64()));
    if fields["jid"].as_str().is_some_and(|jid| jid.len() == 20) {
        fields.insert("jid".to_owned(), json!("a jid"));
    }
    if let Some(metadata) = fields.get_mut("metadata") {
        for time in ["_TS", "_TT"] {
            let text = metadata[time].as_str().context("a time is text")?;
            let words: Vec<usize> = text.split_whitespace().map(str::len).collect();
            metadata[time] = json!(words);
        }
    }
    Ok(data)
}

#[test]
fn sighup_replaces_the_jobs_and_starts_none_anew() -> TestResult {
    let set = |config: &mut Config, job: &str| {
        let kept = "kept: {function: test.arg, hours: 1}";
        let job = format!("{job}: {{function: test.arg, seconds: 1}}");
        config.set("schedule", format!("\n  {kept}\n  {job}"));
    };
    let configure = |config: &mut Config| set(config, "old");
    Site::run(Server::Saltern(Release::V3008), configure, |site| {
        let run_of = |site: &Site, mark: usize, name: &str| {
            let what = format!("a run of {name}");
            site.events().find_since(mark, &what, SOON, |event| {
                (event.data["schedule"] == name).then_some(())
            })
        };
        run_of(site, 0, "old")?;
        set(site.config(), "new");
        site.write_config()?;
        site.master().signal(Signal::HUP)?;
        run_of(site, 0, "new")?;
        let mark = site.events().mark();
        run_of(site, mark, "new")?;
        let others = site.events().since(mark);
        let is_new = |event: &Event| event.tag != TAG || event.data["schedule"] == "new";
        ensure!(others.iter().all(is_new), "{others:?}");
        ensure!(site.metric("saltern_schedule_last_run_timestamp_seconds", "")? > 0.0);
        let run = site.saltern(&["schedule"])?;
        run.expect_code(0)?.expect_text("every 3600 s")?;
        Ok(())
    })
}
