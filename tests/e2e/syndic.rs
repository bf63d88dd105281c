//! Trees of masters with stock's `salt-syndic` between them; the upper and the lower master may be
//! ours or stock's. 3006 and 3007 only: the syndic of 3008.3 stalls even between masters of its
//! own.

use std::collections::BTreeSet;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;

use anyhow::{Result, ensure};
use saltern_tests::site::{Failure, MinionKind, SOON};
use saltern_tests::syndics::wait_for_syndic;
use saltern_tests::{Config, Event, Release, Server, Site, TestResult, wait_until};

pub(crate) const SYNDIC: &str = "relay";
pub(crate) const STOCK: &str = "leaf-stock";
pub(crate) const NATIVE: &str = "leaf-native";

pub(crate) fn above(config: &mut Config) {
    config
        .set("order_masters", "True")
        .set("auto_accept", "True")
        .set("syndic_wait", 3)
        .set("timeout", 3)
        // A busy machine takes its time for an answer over two levels.
        .set("gather_job_timeout", 20);
}

pub(crate) fn below(config: &mut Config) {
    config.set("auto_accept", "True");
}

/// Our masters' findings on the options of this file, and what they log where a leaf is new.
pub(crate) fn as_written(site: &mut Site) {
    site.announce("auto_accept: every new minion is accepted");
    site.announce("order_masters: every minion may return");
    // A job may be faster than the part of the inventory that names a leaf which was accepted a moment ago.
    site.announce("a syndic returns for a minion that its inventory does not have");
}

/// Two leaves below a master, a syndic beside that, and a master above.
fn two_levels(
    top: Server,
    low: Server,
    scenario: impl FnOnce(&mut Site, &mut Site) -> Result<()>,
) -> TestResult {
    Site::run(top, above, |top| {
        as_written(top);
        let below = Site::run(low, below, |low| {
            as_written(low);
            low.start_minion(STOCK, MinionKind::Stock(Release::V3008))?;
            low.start_minion(NATIVE, MinionKind::Native)?;
            for leaf in [STOCK, NATIVE] {
                low.wait_started(leaf)?;
            }
            let _syndic = low.start_syndic(SYNDIC, low.server().release(), &[top])?;
            scenario(top, low)
        });
        below.map_err(Failure::into_error)
    })
}

/// The output of `salt` above, and the events there: tags with the jid left out.
pub(crate) fn seen_from_above(top: &mut Site) -> Result<BTreeSet<String>> {
    top.step("everybody");
    let mark = top.events().mark();
    let run = top.salt(&["*", "test.ping"])?;
    run.expect_code(0)?;
    for leaf in [STOCK, NATIVE] {
        run.expect_text(&format!("{leaf}:\n    True"))?;
    }
    ensure!(!run.stdout.contains("did not return"), "{run}");
    ensure!(!run.stdout.contains(SYNDIC), "{run}");
    let jid = new_jid(top, mark)?;
    let events = top.events().since(mark);
    let of_job = events.iter().filter(|event| event.tag.contains(&jid));
    let tags = of_job.map(|event| event.tag.replace(&jid, "JID")).collect();

    // A command for minions that return ends with their returns, whatever its timeout is.
    top.step("one by name");
    let run = top.salt(&["-t", "60", STOCK, "test.echo", "hello"])?;
    run.expect_code(0)?;
    run.expect_stdout(&format!("{STOCK}:\n    hello"))?;

    top.step("one that fails");
    let both = format!("{STOCK},{NATIVE}");
    let run = top.salt(&["-t", "60", "-L", &both, "cmd.run", "exit 3"])?;
    run.expect_code(1)?;

    top.step("the job cache above");
    wait_until("both returns in the job cache", SOON, || {
        let found = top.salt_run(&["jobs.lookup_jid", &jid]).ok()?.stdout;
        let has = |leaf: &&str| found.contains(&format!("{leaf}:"));
        [STOCK, NATIVE].iter().all(has).then_some(())
    })?;
    Ok(tags)
}

/// A job that outlives the timeout of the command line. That of 3008 asks only accepted minions
/// whether they run it, and so none below a syndic.
pub(crate) fn long_job(top: &mut Site) -> Result<()> {
    top.step("a job that outlives the timeout of the command line");
    let run = top.salt(&["-t", "3", "*", "cmd.run", "sleep 14; echo done"])?;
    run.expect_code(0)?;
    for leaf in [STOCK, NATIVE] {
        run.expect_text(&format!("{leaf}:\n    done"))?;
    }
    Ok(())
}

/// The same above a master of stock's or of ours; the events of a job are those of stock.
fn as_stock(release: Release, top_is_ours: bool, low_is_ours: bool) -> TestResult {
    let server = |is_ours| match is_ours {
        true => Server::Saltern(release),
        false => Server::Stock(release),
    };
    two_levels(server(top_is_ours), server(low_is_ours), |top, _| {
        let tags = seen_from_above(top)?;
        long_job(top)?;
        let expected = ["JID", "salt/job/JID/new", "syndic/relay/JID"]
            .into_iter()
            .map(str::to_owned)
            .chain([STOCK, NATIVE].map(|leaf| format!("salt/job/JID/ret/{leaf}")));
        for tag in expected {
            ensure!(tags.contains(&tag), "{tag} is missing in {tags:#?}");
        }
        let of_stock = |tag: &String| !tag.contains("saltern/");
        let known = [
            "JID",
            "salt/job/JID/new",
            "salt/job/JID/publish",
            "syndic/relay/JID",
        ];
        let is_known = |tag: &&String| {
            known.contains(&tag.as_str()) || tag.starts_with("salt/job/JID/ret/leaf-")
        };
        let others: Vec<&String> = tags
            .iter()
            .filter(|tag| of_stock(tag))
            .filter(|tag| !is_known(tag))
            .collect();
        ensure!(others.is_empty(), "{others:?}");
        top.events().tag("salt/syndic/relay/start", SOON)?;
        Ok(())
    })
}

#[test]
fn stock_above_stock_3006() -> TestResult {
    as_stock(Release::V3006, false, false)
}

#[test]
fn ours_above_stock_3006() -> TestResult {
    as_stock(Release::V3006, true, false)
}

#[test]
fn stock_above_ours_3006() -> TestResult {
    as_stock(Release::V3006, false, true)
}

#[test]
fn ours_above_ours_3007() -> TestResult {
    as_stock(Release::V3007, true, true)
}

/// Three masters above each other, ours, with leaves of stock below the lowest and a fleet below
/// the one in the middle.
fn three_levels(
    release: Release,
    scenario: impl FnOnce(&mut Site, &mut Site, &mut Site) -> Result<()>,
) -> TestResult {
    let server = Server::Saltern(release);
    Site::run(server, above, |top| {
        as_written(top);
        let middle = Site::run(server, above, |middle| {
            as_written(middle);
            let lowest = Site::run(server, below, |low| {
                as_written(low);
                for (leaf, release) in [(LEAF_A, Release::V3006), (LEAF_B, Release::V3007)] {
                    low.start_minion(leaf, MinionKind::Stock(release))?;
                }
                for leaf in [LEAF_A, LEAF_B] {
                    low.wait_started(leaf)?;
                }
                let _upper = middle.start_syndic("relay-middle", release, &[top])?;
                let _lower = low.start_syndic("relay-low", release, &[middle])?;
                scenario(top, middle, low)
            });
            lowest.map_err(Failure::into_error)
        });
        middle.map_err(Failure::into_error)
    })
}

const LEAF_A: &str = "leaf-a";
const LEAF_B: &str = "leaf-b";
const FLEET: usize = 40;

fn killed_in_the_middle(release: Release) -> TestResult {
    three_levels(release, |top, middle, _low| {
        let fleet = middle.start_fleet("fleet", FLEET, &[])?;
        let mut leaves: BTreeSet<String> = (0..FLEET).map(|n| format!("fleet-{n}")).collect();
        leaves.extend([LEAF_A, LEAF_B].map(str::to_owned));

        top.step("everybody, over both levels");
        let run = top.salt(&["-t", "60", "--out", "json", "--static", "*", "test.ping"])?;
        run.expect_code(0)?;
        let answers: serde_json::Value = serde_json::from_str(&run.stdout)?;
        let answered = answers.as_object().into_iter().flatten();
        let answered: BTreeSet<String> = answered.map(|(id, _)| id.clone()).collect();
        ensure!(answered == leaves, "{run}");

        top.step("the master in the middle is killed while the leaves are at work");
        let done = top.path("done");
        std::fs::create_dir(&done)?;
        let go = top.path("go");
        let work = format!(
            "timeout 600 sh -c 'until [ -e {} ]; do sleep 0.5; done'; mktemp -p {} > /dev/null; \
             echo done",
            go.display(),
            done.display()
        );
        let stored = top.metric("saltern_returns_total", "")?;
        let mark = top.events().mark();
        top.salt(&["--async", "*", "cmd.run", &work])?;
        let jid = new_jid(top, mark)?;
        for name in ["relay-middle", "relay-middle/syndic/relay-low"] {
            let tag = format!("syndic/{name}/{jid}");
            top.events()
                .find_since(mark, &tag, SOON, |event| (event.tag == tag).then_some(()))?;
        }
        middle.kill_master();
        let returned = format!("salt/job/{jid}/ret/");
        let events = top.events().since(mark);
        let early = events.iter().find(|event| event.tag.starts_with(&returned));
        ensure!(early.is_none(), "before the master was killed: {early:?}");
        std::fs::write(&go, "")?;

        top.step("it restarts when all of them are done and have no master to return to");
        wait_until("all leaves to be done", SOON, || {
            let count = std::fs::read_dir(&done).map_or(0, Iterator::count);
            (count == leaves.len()).then_some(())
        })?;
        middle.start_master()?;

        top.step("every return arrives, each once, and the job is complete");
        let tag = format!("saltern/job/{jid}/finished");
        let end = top.events().find_since(mark, &tag, SOON * 2, |event| {
            (event.tag == tag).then(|| event.data.clone())
        })?;
        ensure!(end["state"] == "complete", "{end}");
        let returned = end["returned"].as_array().into_iter().flatten();
        let mut returned: Vec<&str> = returned.filter_map(serde_json::Value::as_str).collect();
        returned.sort_unstable();
        ensure!(returned.iter().eq(&leaves), "{returned:?}");
        let new = top.metric("saltern_returns_total", "")? - stored;
        ensure!(new == leaves.len() as f64, "{new} returns were new");
        // The files that stock reads come later.
        let found = wait_until("all of them in the job cache", SOON, || {
            let arguments = ["--out", "json", "jobs.lookup_jid", &jid, "missing=True"];
            let run = top.salt_run(&arguments).ok()?;
            let found: serde_json::Value = serde_json::from_str(&run.stdout).ok()?;
            let found = found.as_object()?.clone();
            let is_done = |said: &serde_json::Value| said == "done";
            (found.len() == leaves.len() && found.values().all(is_done)).then_some(found)
        })?;
        for leaf in found.keys() {
            ensure!(leaves.remove(leaf), "{leaf}");
        }
        ensure!(leaves.is_empty(), "{leaves:?}");
        fleet.stop()?;
        Ok(())
    })
}

/// The jid of the job that was announced after the mark.
pub(crate) fn new_jid(site: &Site, mark: usize) -> Result<String> {
    site.events().find_since(mark, "a new job", SOON, |event| {
        let is_new = event.tag.starts_with("salt/job/") && event.tag.ends_with("/new");
        let jid = event.data["jid"].as_str().filter(|_| is_new);
        jid.map(str::to_owned)
    })
}

#[test]
fn the_master_in_the_middle_of_three_is_killed_3006() -> TestResult {
    killed_in_the_middle(Release::V3006)
}

#[test]
fn the_master_in_the_middle_of_three_is_killed_3007() -> TestResult {
    killed_in_the_middle(Release::V3007)
}

/// Syndic of a master of ours.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum SyndicKind {
    /// Stock's program beside it.
    Stock,
    /// The master itself.
    Native,
}

/// Gives a master that is not started yet the key of another: a minion, or a syndic, that knows several masters knows
/// one key (`syndic_master.pub`).
pub(crate) fn give_key(of: &Site, to: &Site) -> Result<()> {
    DirBuilder::new().mode(0o700).create(to.path("pki"))?;
    for name in ["pki/master.pem", "pki/master.pub"] {
        std::fs::copy(of.path(name), to.path(name))?;
    }
    Ok(())
}

/// One master below two, whose syndic forwards returns to both (`sync`), or only to the one that
/// published the job (`cluster`).
pub(crate) fn two_above(
    release: Release,
    others: Server,
    mode: &'static str,
    syndic: SyndicKind,
) -> TestResult {
    let named = |config: &mut Config| {
        above(config);
        // The name under which the syndic knows it, so that it returns to who has asked.
        let port = config.get("ret_port").unwrap_or_default();
        let name = format!("\"127.0.0.1:{port}\"");
        config.set("master_id", name);
    };
    Site::run(Server::Saltern(release), named, |first| {
        as_written(first);
        let second = Site::prepared(others, named, |second| {
            as_written(second);
            give_key(first, second)?;
            second.start_master()?;
            let configure = |config: &mut Config| {
                below(config);
                config.set("syndic_mode", mode);
            };
            let low = Site::prepared(Server::Saltern(release), configure, |low| {
                as_written(low);
                let masters = [&*first, &*second];
                let marks = masters.map(|site| (site, site.events().mark()));
                if syndic == SyndicKind::Native {
                    low.announce("the syndic is not connected");
                    low.configure_native_syndic(SYNDIC, &masters)?;
                }
                low.start_master()?;
                low.start_minion(STOCK, MinionKind::Stock(release))?;
                low.start_minion(NATIVE, MinionKind::Native)?;
                for leaf in [STOCK, NATIVE] {
                    low.wait_started(leaf)?;
                }
                let _stock = match syndic {
                    SyndicKind::Stock => Some(low.start_syndic(SYNDIC, release, &masters)?),
                    SyndicKind::Native => {
                        wait_for_syndic(SYNDIC, &marks)?;
                        None
                    }
                };
                for (asking, other) in [(&*first, &*second), (&*second, &*first)] {
                    asks_alone(asking, other)?;
                }
                Ok(())
            });
            low.map_err(Failure::into_error)
        });
        second.map_err(Failure::into_error)
    })
}

fn asks_alone(asking: &Site, other: &Site) -> Result<()> {
    asking.step("one of the two publishes, and the returns reach it");
    let (mark, other_mark) = (asking.events().mark(), other.events().mark());
    let run = asking.salt(&["*", "test.ping"])?;
    run.expect_code(0)?;
    for leaf in [STOCK, NATIVE] {
        run.expect_text(&format!("{leaf}:\n    True"))?;
    }
    let jid = new_jid(asking, mark)?;
    let returned = format!("salt/job/{jid}/ret/");
    let to_other = other.events().since(other_mark);
    let is_its = |event: &Event| event.tag.starts_with(&returned);
    ensure!(!to_other.iter().any(is_its), "{to_other:?}");
    Ok(())
}

#[test]
fn two_masters_of_ours_above_3006() -> TestResult {
    let ours = Server::Saltern(Release::V3006);
    two_above(Release::V3006, ours, "sync", SyndicKind::Stock)
}

#[test]
fn one_of_ours_and_one_of_stock_above_3007() -> TestResult {
    let stock = Server::Stock(Release::V3007);
    two_above(Release::V3007, stock, "cluster", SyndicKind::Stock)
}
