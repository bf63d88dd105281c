//! A panic in each actor, one after another, while jobs run through: every job completes, and no
//! minion loses its connection. Needs a binary built with the feature `fault-injection`.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, ensure};
use saltern_tests::process::run;
use saltern_tests::release::saltern_program;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Release, Server, Site, TestResult, until_exists, wait_until};

use crate::durability::connections;

/// The actors that must be in the tree; `saltern debug actors` may list more.
const ACTORS: [&str; 8] = [
    "req_router",
    "mworker",
    "renderer",
    "event_publisher",
    "publisher",
    "job_tracker",
    "job_store",
    "maintenance",
];

#[test]
fn every_job_completes_while_actors_panic() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |config| _ = config.set("timeout", 60),
        |site| {
            site.bring_up(&[
                ("m3006", MinionKind::Stock(Release::V3006)),
                ("m3008", MinionKind::Stock(Release::V3008)),
                ("native", MinionKind::Native),
            ])?;
            let actors = actors(site)?;
            for name in ACTORS {
                ensure!(
                    actors.keys().any(|actor| actor.name == name),
                    "no actor \"{name}\""
                );
                site.announce(name);
            }
            for text in ["injected fault", "restart", "job_mirror"] {
                site.announce(text);
            }
            let before = connections(site.publish_port());
            ensure!(
                before.len() >= 3,
                "three minions hold {} connections",
                before.len()
            );
            for actor in actors.keys() {
                a_job_survives(site, actor)?;
            }
            let after = connections(site.publish_port());
            ensure!(
                before == after,
                "connections changed: {before:?} became {after:?}"
            );
            Ok(())
        },
    )
}

/// The names of a panic's frames would be read from the whole debug information of the program,
/// which stays in memory.
#[test]
fn panic_leaves_memory_as_it_was() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |_| {},
        |site| {
            site.announce("injected fault");
            site.announce("restart");
            let resident = || -> Result<f64> {
                let metrics = site.saltern(&["metrics"])?;
                let mut lines = metrics.expect_code(0)?.stdout.lines();
                let value =
                    lines.find_map(|line| line.strip_prefix("process_resident_memory_bytes "));
                Ok(value.context("no such metric")?.parse::<f64>()? / f64::from(1 << 20))
            };
            let before = resident()?;
            site.saltern(&["debug", "panic", "maintenance"])?
                .expect_code(0)?;
            wait_until("maintenance to be restarted", SOON, || {
                let actors = actors(site).ok()?;
                let mut found = actors
                    .iter()
                    .filter(|(actor, _)| actor.name == "maintenance");
                (*found.next()?.1 == 1).then_some(())
            })?;
            let after = resident()?;
            site.step(&format!("{before:.1} MiB, then {after:.1} MiB"));
            ensure!(
                after < before + 10.0,
                "{before:.1} MiB before the panic became {after:.1} MiB"
            );
            let log = fs::read_to_string(site.path("log/master.out"))?;
            let frames = log.lines().find_map(|line| line.split_once("frames="));
            let (_, frames) = frames.context("the log has no frames")?;
            let addresses = frames
                .split_whitespace()
                .take_while(|word| word.contains("0x"));
            let mut command = std::process::Command::new(saltern_program());
            command.args(["debug", "frames"]).args(addresses);
            run(&mut command, SOON)?
                .expect_code(0)?
                .expect_text("Frames::of_this_thread")?
                .expect_text("saltern_supervise::")?;
            Ok(())
        },
    )
}

/// The panic comes while the job runs on the minions: after its publication, before its returns.
fn a_job_survives(site: &Site, actor: &Actor) -> Result<()> {
    let Actor { name, instance } = actor;
    site.step(&format!("{name} {instance} panics while a job runs"));
    let mark = site.events().mark();
    let go = site.path(format!("go-{name}-{}", instance.replace('/', "-")));
    let function = format!("{}; echo survived {name} {instance}", until_exists(&go));
    let mut command = site.stock_command("salt", &["*", "cmd.run", &function]);
    let job = std::thread::spawn(move || run(&mut command, SOON * 2));
    site.events()
        .find_since(mark, "the job to be published", SOON, |event| {
            (event.tag.ends_with("/new") && event.data["arg"][0] == function.as_str()).then_some(())
        })?;
    let restarts = actors(site)?[actor];
    site.saltern(&["debug", "panic", name, "--instance", instance])?
        .expect_code(0)?;
    wait_until(&format!("{name} {instance} to be restarted"), SOON, || {
        (*actors(site).ok()?.get(actor)? == restarts + 1).then_some(())
    })?;
    fs::write(&go, "")?;
    let job = job.join().expect("running a command does not panic")?;
    job.expect_code(0)?;
    for id in ["m3006", "m3008", "native"] {
        job.expect_text(&format!("{id}:\n    survived {name} {instance}"))?;
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Actor {
    name: String,
    instance: String,
}

/// All actors with how often each was restarted.
fn actors(site: &Site) -> Result<BTreeMap<Actor, u32>> {
    let list = site.saltern(&["debug", "actors"])?;
    let lines = list.expect_code(0)?.stdout.lines();
    lines
        .map(|line| {
            let mut words = line.split_whitespace().map(str::to_owned);
            let mut word = || {
                words
                    .next()
                    .with_context(|| format!("too few words in {line:?}"))
            };
            let actor = Actor {
                name: word()?,
                instance: word()?,
            };
            Ok((actor, word()?.parse()?))
        })
        .collect()
}
