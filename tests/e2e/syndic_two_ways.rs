//! A stock minion that is connected to the masters of two of our syndics, below one master of ours: it stands in
//! one inventory, the other way is announced, and each job runs once, by whichever way there is.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use saltern_tests::site::{Failure, MinionKind, SOON};
use saltern_tests::syndics::wait_for_syndic;
use saltern_tests::{Release, Server, Site, TestResult, wait_until};

use crate::syndic::{above, as_written, below, give_key, new_jid};

const OURS: Server = Server::Saltern(Release::V3008);
const LEAF: &str = "leaf";
const SYNDICS: [&str; 2] = ["relay-one", "relay-two"];

/// Starts a master below as the syndic of this name, with an address of its own.
fn start_below(low: &mut Site, name: &str, address: &str, top: &Site) -> Result<()> {
    as_written(low);
    low.announce("the syndic is not connected");
    low.configure_native_syndic(name, &[top])?;
    let identity = low.path("conf/minion");
    let written = std::fs::read_to_string(&identity)?;
    std::fs::write(&identity, format!("{written}source_address: {address}\n"))?;
    let mark = top.events().mark();
    low.start_master()?;
    wait_for_syndic(name, &[(top, mark)])
}

/// A job at the top, whose runs a file counts.
struct CountedJob<'a> {
    file: &'a Path,
    jobs: Vec<String>,
}

impl CountedJob<'_> {
    fn runs(&self) -> usize {
        let text = std::fs::read_to_string(self.file).unwrap_or_default();
        text.lines().count()
    }

    /// Runs it with this target: the minion returns it, and has run it once.
    fn run(&mut self, top: &Site, target: &[&str]) -> Result<()> {
        let work = format!("echo run >> {}; echo done", self.file.display());
        let mark = top.events().mark();
        let run = top.salt(&[&["-t", "60"], target, &["cmd.run", &work]].concat())?;
        let jid = new_jid(top, mark)?;
        run.expect_stdout(&format!("{LEAF}:\n    done"))
            .map_err(|error| match top.saltern(&["explain", &jid]) {
                Ok(run) => error.context(run.stdout),
                Err(_) => error,
            })?;
        run.expect_code(0)?;
        self.jobs.push(jid);
        self.expect_one_run_each()
    }

    fn expect_one_run_each(&self) -> Result<()> {
        let (runs, jobs) = (self.runs(), self.jobs.len());
        ensure!(runs == jobs, "{runs} runs of {jobs} jobs");
        Ok(())
    }
}

#[test]
fn minion_below_two_syndics_runs_each_job_once_by_the_route_that_there_is() -> TestResult {
    Site::run(OURS, above, |top| {
        as_written(top);
        top.announce("minions are below two syndics");
        let first = Site::prepared(OURS, below, |first| {
            start_below(first, "relay-one", "127.0.0.2", top)?;
            let second = Site::prepared(OURS, below, |second| {
                give_key(first, second)?;
                start_below(second, "relay-two", "127.0.0.3", top)?;
                let masters = [&*first, &*second].map(Site::ret_port);
                let masters = masters.map(|port| format!("\"127.0.0.1:{port}\""));
                first.prepare_minion(LEAF, MinionKind::Stock(Release::V3008), |config| {
                    // The value that means: the port that each master names.
                    config.set("publish_port", 4506);
                    config.set("master", format!("[{}]", masters.join(", ")));
                })?;
                first.start_prepared_minion(LEAF)?;
                for low in [&*first, &*second] {
                    low.wait_started(LEAF)?;
                }
                below_two_syndics(top, [first, second])
            });
            second.map_err(Failure::into_error)
        });
        first.map_err(Failure::into_error)
    })
}

fn below_two_syndics(top: &mut Site, lows: [&mut Site; 2]) -> Result<()> {
    top.step("one route is chosen, and the other one announced");
    let tag = "saltern/syndic/duplicate-minion";
    let data = top.events().find_since(0, tag, SOON, |event| {
        (event.tag == tag).then(|| event.data.clone())
    })?;
    let chosen = SYNDICS.iter().position(|name| data["route"] == *name);
    let chosen = chosen.context("the route is one of both")?;
    ensure!(data["other"] == SYNDICS[1 - chosen], "{data}");
    ensure!(data["minions"] == serde_json::json!([LEAF]), "{data}");
    wait_until("its grains in the inventory above", SOON, || {
        let of = |name: &str| top.metric(&format!("saltern_syndic_inventory_minions{name}"), "");
        (of("").ok()? == 1.0 && of("_without_grains").ok()? == 0.0).then_some(())
    })?;

    top.step("each job runs once, though both masters publish it");
    let file = top.path("runs");
    let mut job = CountedJob {
        file: &file,
        jobs: Vec::new(),
    };
    let marks = [&*lows[0], &*lows[1]].map(|low| low.events().mark());
    let targets: [&[&str]; 4] = [&[LEAF], &["-L", LEAF], &["-G", "id:leaf"], &["*"]];
    for target in targets {
        job.run(top, target)?;
    }
    for (low, mark) in lows.iter().zip(marks) {
        for jid in &job.jobs {
            let new = format!("salt/job/{jid}/new");
            low.events()
                .find_since(mark, &new, SOON, |event| (event.tag == new).then_some(()))?;
        }
    }

    top.step("the master of the chosen syndic is killed, and jobs go by the other one");
    lows[chosen].kill_master();
    wait_until("the master above to see it go", SOON, || {
        (top.metric("saltern_subscribers", "").ok()? < 1.5).then_some(())
    })?;
    // The kill may have left it deaf, which is stock's fault: it starts anew, with one of its masters gone.
    let started = format!("salt/minion/{LEAF}/start");
    let mark = lows[1 - chosen].events().mark();
    lows[0].end_stock_minion(LEAF)?;
    lows[0].start_prepared_minion(LEAF)?;
    lows[1 - chosen]
        .events()
        .find_since(mark, &started, SOON, |event| {
            (event.tag == started).then_some(())
        })?;
    wait_until("it to be up by the other one", SOON, || {
        let run = top.saltern(&["run", "manage.up"]).ok()?;
        run.stdout.contains(LEAF).then_some(())
    })?;
    for target in targets {
        job.run(top, target)?;
    }

    top.step("none ran a second time, and each return is above once");
    job.expect_one_run_each()?;
    let refused = top.metric("saltern_requests_refused_total", "reason=\"return\"")?;
    ensure!(refused == 0.0, "{refused} returns were refused");
    let events = top.events().since(0);
    for jid in &job.jobs {
        let tag = format!("salt/job/{jid}/ret/{LEAF}");
        let returns = events.iter().filter(|event| event.tag == tag).count();
        ensure!(returns == 1, "{returns} times {tag}");
    }
    Ok(())
}
