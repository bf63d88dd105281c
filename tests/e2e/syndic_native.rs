//! Trees of masters whose syndic is our master itself (`saltern_syndic: native`), below masters of
//! stock and of ours. The same scenarios with stock's `salt-syndic` are in `syndic`.
//!
//! Longer than 500 lines because it is a list: one scenario a test.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write;

use anyhow::{Result, ensure};
use rustix::process::Signal;
use saltern_tests::config::Config;
use saltern_tests::site::{Failure, MinionKind, SOON};
use saltern_tests::syndics::wait_for_syndic;
use saltern_tests::{Fleet, Release, Server, Site, TestResult, wait_until};

use crate::syndic::{
    NATIVE, STOCK, SYNDIC, SyndicKind, above, as_written, below, give_key, long_job, new_jid,
    seen_from_above, two_above,
};

/// Two leaves below a master of ours that is the syndic of the one above.
fn two_levels(
    top: Server,
    scenario: impl FnOnce(&mut Site, &mut Site) -> Result<()>,
) -> TestResult {
    two_levels_with(top, |_| {}, scenario)
}

/// The same, with more options of both masters.
fn two_levels_with(
    top: Server,
    options: impl Fn(&mut Config),
    scenario: impl FnOnce(&mut Site, &mut Site) -> Result<()>,
) -> TestResult {
    let low = Server::Saltern(top.release());
    let with = |base: fn(&mut Config)| {
        let options = &options;
        move |config: &mut Config| {
            base(config);
            options(config);
        }
    };
    Site::run(top, with(above), |top| {
        as_written(top);
        let below = Site::prepared(low, with(below), |low| {
            as_written(low);
            low.announce("the syndic is not connected");
            let files = low.path("salt").display().to_string();
            low.config()
                .set("file_roots", format!("{{base: [{files}]}}"));
            std::fs::create_dir(low.path("salt"))?;
            std::fs::write(
                low.path("salt/one.sls"),
                "here:\n  test.succeed_without_changes\n",
            )?;
            low.configure_native_syndic(SYNDIC, &[top])?;
            // An address of its own: behind a shared one it is not certain whose connection ended.
            add_to_identity(low, "source_address: 127.0.0.2")?;
            let mark = top.events().mark();
            low.start_master()?;
            low.start_minion(STOCK, MinionKind::Stock(Release::V3008))?;
            low.start_minion(NATIVE, MinionKind::Native)?;
            for leaf in [STOCK, NATIVE] {
                low.wait_started(leaf)?;
            }
            wait_for_syndic(SYNDIC, &[(top, mark)])?;
            scenario(top, low)
        });
        below.map_err(Failure::into_error)
    })
}

/// Adds an option to the file in which the syndic of this site finds who it is.
fn add_to_identity(site: &Site, option: &str) -> Result<()> {
    let mut identity = OpenOptions::new();
    let mut identity = identity.append(true).open(site.path("conf/minion"))?;
    writeln!(identity, "{option}")?;
    Ok(())
}

/// The calls of users above, with what they see.
fn as_on_a_flat_master(top: &mut Site, low: &mut Site) -> Result<()> {
    let tags = seen_from_above(top)?;
    for leaf in [STOCK, NATIVE] {
        let tag = format!("salt/job/JID/ret/{leaf}");
        ensure!(tags.contains(&tag), "{tag} is missing in {tags:#?}");
    }
    top.events().tag("syndic_start", SOON)?;
    if top.server().release() != Release::V3008 {
        long_job(top)?;
    }

    top.step("a glob that one minion matches, and a name that nobody has");
    let run = top.salt(&["-t", "60", "leaf-n*", "test.ping"])?;
    run.expect_code(0)?;
    run.expect_stdout(&format!("{NATIVE}:\n    True"))?;
    let run = top.salt(&["-L", &format!("{STOCK},nobody"), "test.ping"])?;
    run.expect_text(&format!("{STOCK}:\n    True"))?;

    top.step("a state");
    let run = top.salt(&["-t", "60", STOCK, "state.apply", "one"])?;
    run.expect_code(0)?;
    run.expect_text("Succeeded: 1")?;

    top.step("a batch");
    let run = top.salt(&["-b", "1", "-L", &format!("{STOCK},{NATIVE}"), "test.ping"])?;
    ensure!(!run.stdout.contains("Traceback"), "{run}");

    top.step("both directions, as the command line shows them");
    let run = low.saltern(&["syndics", "--json"])?;
    run.expect_code(0)?;
    let shown: serde_json::Value = serde_json::from_str(&run.stdout)?;
    ensure!(shown["above"][0]["is_connected"] == true, "{run}");
    ensure!(
        shown["outboxes"][1]["acknowledged"].as_u64() >= Some(8),
        "{run}"
    );
    if top.server().is_ours() {
        let run = top.saltern(&["syndics"])?;
        run.expect_text(SYNDIC)?;
        run.expect_text("connected")?;
    }
    Ok(())
}

fn with_native_syndic(top: Server) -> TestResult {
    two_levels(top, as_on_a_flat_master)
}

#[test]
fn native_syndic_below_stock_3006() -> TestResult {
    with_native_syndic(Server::Stock(Release::V3006))
}

#[test]
fn native_syndic_below_stock_3007() -> TestResult {
    with_native_syndic(Server::Stock(Release::V3007))
}

#[test]
fn native_syndic_below_stock_3008() -> TestResult {
    with_native_syndic(Server::Stock(Release::V3008))
}

#[test]
fn native_syndic_below_ours_3007() -> TestResult {
    with_native_syndic(Server::Saltern(Release::V3007))
}

/// The native syndic of a master of ours and of one of stock: each publishes, and has its returns alone.
#[test]
fn native_syndic_below_one_of_ours_and_one_of_stock_3007() -> TestResult {
    let stock = Server::Stock(Release::V3007);
    two_above(Release::V3007, stock, "sync", SyndicKind::Native)
}

/// The first of two masters above is connected and gives no answer: returns of jobs that none of them has published
/// go to the second.
#[test]
fn ordered_syndic_returns_to_the_second_master_while_the_first_is_frozen() -> TestResult {
    let ours = Server::Saltern(Release::V3007);
    Site::run(ours, above, |first| {
        as_written(first);
        let second = Site::prepared(ours, above, |second| {
            as_written(second);
            give_key(first, second)?;
            second.start_master()?;
            let configure = |config: &mut Config| {
                below(config);
                config.set("syndic_failover", "ordered");
            };
            let low = Site::prepared(ours, configure, |low| {
                as_written(low);
                low.announce("the syndic is not connected");
                let masters = [&*first, &*second];
                let marks = masters.map(|site| (site, site.events().mark()));
                low.configure_native_syndic(SYNDIC, &masters)?;
                low.start_master()?;
                low.start_minion(NATIVE, MinionKind::Native)?;
                low.wait_started(NATIVE)?;
                wait_for_syndic(SYNDIC, &marks)?;

                low.step("the first takes the returns of a job of the master below");
                let returns = |top: &Site| top.metric("saltern_returns_total", "");
                let has_more = |top: &Site, before: f64| {
                    wait_until("a return above", SOON, || {
                        (returns(top).ok()? > before).then_some(())
                    })
                };
                let before = [returns(first)?, returns(second)?];
                low.salt(&[NATIVE, "test.ping"])?.expect_code(0)?;
                has_more(first, before[0])?;

                low.step("it is frozen, and the second takes them");
                first.master().signal(Signal::STOP)?;
                let found = low
                    .salt(&[NATIVE, "test.ping"])
                    .and_then(|_| has_more(second, before[1]));
                first.master().signal(Signal::CONT)?;
                found
            });
            low.map_err(Failure::into_error)
        });
        second.map_err(Failure::into_error)
    })
}

/// A master above whose key has changed is refused, counted and named, until somebody removes the key that was
/// trusted.
#[test]
fn master_above_with_another_key_is_refused_until_trust_is_renewed() -> TestResult {
    two_levels(Server::Saltern(Release::V3008), |top, low| {
        low.announce("the publish connection broke");
        low.announce("a publication cannot be opened, and signing in failed");
        top.announce("the token of an authentication does not decrypt");
        top.stop_master()?;
        // Of 3008 `master.pem` is a link to the key.
        for entry in std::fs::read_dir(top.path("pki"))? {
            let path = entry?.path();
            let kind = path.extension().and_then(|kind| kind.to_str());
            if matches!(kind, Some("pem" | "pub")) {
                std::fs::remove_file(&path)?;
            }
        }
        top.start_master()?;
        let failures = "saltern_syndic_connection_failures_total";
        wait_until("the refusal", SOON, || {
            // Under the new key nothing but a publication shows it: the sessions of the old one go on.
            top.salt(&["--async", NATIVE, "test.ping"]).ok()?;
            let run = low.saltern(&["syndics"]).ok()?;
            let refused = low.metric(failures, "reason=\"sign_in\"").ok()?;
            (refused > 0.0 && run.stdout.contains("key has changed")).then_some(())
        })?;
        let connected = low.metric("saltern_syndic_connected", "")?;
        ensure!(connected == 0.0, "it is connected");

        top.step("the new key is trusted");
        let mark = top.events().mark();
        std::fs::remove_file(low.path("syndic/pki/syndic_master.pub"))?;
        wait_for_syndic(SYNDIC, &[(top, mark)])?;
        let run = top.salt(&["-t", "60", NATIVE, "test.ping"])?;
        run.expect_text(&format!("{NATIVE}:\n    True"))?;
        Ok(())
    })
}

/// The master above is gone when the minions return; the one below is killed with the returns in
/// its database, before any of them could go up.
#[test]
fn killed_syndic_forwards_each_committed_return_once() -> TestResult {
    two_levels(Server::Saltern(Release::V3008), |top, low| {
        let go = top.path("go");
        let work = format!(
            "timeout 600 sh -c 'until [ -e {} ]; do sleep 0.2; done'; echo done",
            go.display()
        );
        let stored = top.metric("saltern_returns_total", "")?;
        let (mark, below_mark) = (top.events().mark(), low.events().mark());
        top.salt(&["--async", "*", "cmd.run", &work])?;
        let jid = new_jid(top, mark)?;
        low.events()
            .find_since(below_mark, "the job below", SOON, |event| {
                (event.tag == format!("salt/job/{jid}/new")).then_some(())
            })?;
        low.announce("the publish connection broke");
        top.kill_master();
        std::fs::write(&go, "")?;
        for leaf in [STOCK, NATIVE] {
            let tag = format!("salt/job/{jid}/ret/{leaf}");
            low.events().find_since(below_mark, &tag, SOON, |event| {
                (event.tag == tag).then_some(())
            })?;
        }
        low.kill_master();
        low.start_master()?;
        top.start_master()?;
        let found = wait_until("both returns above", SOON, || {
            let run = top
                .salt_run(&["--out", "json", "jobs.lookup_jid", &jid])
                .ok()?;
            let found: serde_json::Value = serde_json::from_str(&run.stdout).ok()?;
            let found: BTreeSet<String> = found.as_object()?.keys().cloned().collect();
            (found.len() == 2).then_some(found)
        })?;
        ensure!(found.contains(STOCK) && found.contains(NATIVE), "{found:?}");
        let now = top.metric("saltern_returns_total", "")?;
        ensure!(
            now == 2.0,
            "since its start it has stored {now}, before {stored}"
        );
        Ok(())
    })
}

/// Waits until the master above has the inventory of both leaves, with their grains.
fn wait_for_inventory(top: &mut Site) -> Result<()> {
    let both = format!("up:\n    - {NATIVE}\n    - {STOCK}");
    wait_until("both leaves in the inventory above", SOON, || {
        let run = top.saltern(&["run", "manage.status"]).ok()?;
        run.stdout.contains(&both).then_some(())
    })?;
    wait_until("their grains in the inventory above", SOON, || {
        let lacking = "saltern_syndic_inventory_minions_without_grains";
        (top.metric(lacking, "").ok()? == 0.0).then_some(())
    })
}

/// With inventories the master above targets the minions below as exactly as its own, over its
/// restart too, and says which syndic is cut off.
#[test]
fn inventory_makes_targets_above_exact() -> TestResult {
    let options = |config: &mut Config| {
        config
            // Stock asks nobody below a syndic whether a job still runs.
            .set("timeout", 30)
            .set("gather_job_timeout", 30);
    };
    two_levels_with(Server::Saltern(Release::V3008), options, |top, low| {
        top.step("kinds of targets");
        wait_for_inventory(top)?;
        for leaf in [STOCK, NATIVE] {
            let run = top.salt(&["-G", &format!("id:{leaf}"), "test.ping"])?;
            run.expect_code(0)?;
            run.expect_stdout(&format!("{leaf}:\n    True"))?;
        }
        // The native minion reads no compound targets.
        let run = top.salt(&["-C", &format!("E@leaf-.* and not {NATIVE}"), "test.ping"])?;
        run.expect_stdout(&format!("{STOCK}:\n    True"))?;
        let run = top.salt(&["-E", "leaf-n.*", "test.ping"])?;
        run.expect_stdout(&format!("{NATIVE}:\n    True"))?;
        let run = top.saltern(&["cmd", "-L", &format!("{STOCK},{NATIVE}"), "test.ping"])?;
        run.expect_code(0)?;
        for leaf in [STOCK, NATIVE] {
            run.expect_text(leaf)?;
        }

        top.step("a batch of the command line, and one of the master");
        let run = top.salt(&["-b", "1", "leaf-*", "test.ping"])?;
        run.expect_code(0)?;
        for leaf in [STOCK, NATIVE] {
            run.expect_text(&format!("{leaf}:\n    True"))?;
        }
        let run = top.saltern(&["cmd", "-b", "1", "leaf-*", "test.ping"])?;
        run.expect_code(0)?;
        for leaf in [STOCK, NATIVE] {
            run.expect_text(leaf)?;
        }

        top.step("the master above starts anew");
        low.announce("the publish connection broke");
        top.stop_master()?;
        top.start_master()?;
        wait_for_inventory(top)?;

        top.step("the syndic is cut off");
        // Without any subscriber a job would be one that was not sent.
        top.start_minion("own", MinionKind::Native)?;
        top.wait_started("own")?;
        low.stop_master()?;
        wait_until("the master above to see it go", SOON, || {
            let run = top.saltern(&["run", "manage.up"]).ok()?;
            (run.code == Some(0) && !run.stdout.contains(NATIVE)).then_some(())
        })?;
        let mark = top.events().mark();
        top.saltern(&["cmd", NATIVE, "test.ping"])?;
        let jid = new_jid(top, mark)?;
        let run = top.saltern(&["explain", &jid])?;
        run.expect_text(&format!("below the syndic \"{SYNDIC}\", which is away"))?;
        run.expect_text(" since 20")?;

        top.step("with whole inventories nobody waits for syndics: else this would take an hour");
        top.announce("the publish connection broke");
        top.stop_master()?;
        top.config().set("syndic_wait", 3600);
        top.write_config()?;
        low.start_master()?;
        low.wait_until_ready_again()?;
        top.start_master()?;
        wait_until("all minions in the inventory above", SOON, || {
            let run = top.saltern(&["run", "manage.up"]).ok()?;
            let is_up = |id: &str| run.stdout.contains(id);
            [NATIVE, STOCK, "own"]
                .iter()
                .all(|id| is_up(id))
                .then_some(())
        })?;
        for site in [&*low, &*top] {
            wait_until("two subscribers of each", SOON, || {
                (site.metric("saltern_subscribers", "").ok()? > 1.5).then_some(())
            })?;
        }
        let mark = top.events().mark();
        let run = top.saltern(&["cmd", "*", "test.ping"])?;
        run.expect_code(0)?;
        for id in [NATIVE, STOCK, "own"] {
            run.expect_text(id)?;
        }
        let jid = new_jid(top, mark)?;
        let tag = format!("saltern/job/{jid}/finished");
        top.events()
            .find_since(mark, &tag, SOON, |event| (event.tag == tag).then_some(()))?;

        top.step("nor for grains, when those of all minions are known");
        wait_for_inventory(top)?;
        let run = top.saltern(&["cmd", "-G", &format!("id:{STOCK}"), "test.ping"])?;
        run.expect_code(0)?;
        run.expect_text(STOCK)?;

        top.step("the machine of the syndic has a minion of the same id and key, which the master above has, too");
        let (keys, copied) = (low.path("syndic/pki"), top.minion_path(SYNDIC, "pki"));
        std::fs::create_dir_all(&copied)?;
        for name in ["minion.pem", "minion.pub"] {
            std::fs::copy(keys.join(name), copied.join(name))?;
        }
        top.start_minion(SYNDIC, MinionKind::Native)?;
        top.wait_started(SYNDIC)?;
        for _ in 0..2 {
            let run = top.saltern(&["cmd", "*", "test.ping"])?;
            run.expect_code(0)?;
            for id in [NATIVE, STOCK, "own", SYNDIC] {
                run.expect_text(id)?;
            }
        }
        ensure!(top.path("cache/syndics").join(SYNDIC).exists());
        Ok(())
    })
}

/// Waits until the syndic is connected, by another connection than the one of this moment; the moment.
fn wait_for_connection(low: &mut Site, before: Option<i64>) -> Result<i64> {
    wait_until("the syndic to be connected", SOON, || {
        let run = low.saltern(&["syndics", "--json"]).ok()?;
        let shown: serde_json::Value = serde_json::from_str(&run.stdout).ok()?;
        let upper = &shown["above"][0];
        let since = upper["since"]
            .as_i64()
            .filter(|since| Some(*since) != before);
        since.filter(|_| upper["is_connected"] == true)
    })
}

/// Waits until the master above has the returns of both leaves.
fn wait_for_both(top: &mut Site, jid: &str) -> Result<()> {
    wait_until("both returns above", SOON, || {
        let run = top.salt_run(&["--out", "json", "jobs.lookup_jid", jid]);
        let found: serde_json::Value = serde_json::from_str(&run.ok()?.stdout).ok()?;
        let found: BTreeSet<&str> = found.as_object()?.keys().map(String::as_str).collect();
        (found == BTreeSet::from([NATIVE, STOCK])).then_some(())
    })
}

/// Returns that go up in frames: a master that is killed in the middle of them, above or below, loses and
/// doubles none.
#[test]
fn killed_masters_lose_and_double_no_return_of_a_frame() -> TestResult {
    const JOBS: usize = 6;
    let options = |config: &mut Config| {
        config.set("saltern_syndic_frames", "True");
    };
    two_levels_with(Server::Saltern(Release::V3008), options, |top, low| {
        let go = top.path("go");
        let work = format!(
            "timeout 900 sh -c 'until [ -e {} ]; do sleep 0.2; done'; echo done",
            go.display()
        );
        let mut jids = Vec::new();
        for _ in 0..JOBS {
            let (mark, below) = (top.events().mark(), low.events().mark());
            top.salt(&["--async", "*", "cmd.run", &work])?;
            let jid = new_jid(top, mark)?;
            low.events()
                .find_since(below, "the job below", SOON, |event| {
                    (event.tag == format!("salt/job/{jid}/new")).then_some(())
                })?;
            jids.push(jid);
        }

        top.step("returns wait while the master above is away, and the one below is killed");
        low.announce("the publish connection broke");
        let mark = low.events().mark();
        top.kill_master();
        std::fs::write(&go, "")?;
        for (jid, leaf) in jids.iter().flat_map(|jid| [(jid, STOCK), (jid, NATIVE)]) {
            let tag = format!("salt/job/{jid}/ret/{leaf}");
            low.events()
                .find_since(mark, &tag, SOON, |event| (event.tag == tag).then_some(()))?;
        }
        low.kill_master();
        low.start_master()?;
        low.wait_until_ready_again()?;
        top.start_master()?;

        top.step("both are killed once more, while frames may be under way");
        wait_until("a frame to be stored above", SOON, || {
            let frames = low.metric("saltern_syndic_frames_total", "result=\"stored\"");
            frames.ok().filter(|frames| *frames > 0.0)
        })?;
        low.kill_master();
        top.kill_master();
        top.start_master()?;
        low.start_master()?;
        low.wait_until_ready_again()?;
        for jid in &jids {
            wait_for_both(top, jid)?;
        }
        let now = top.metric("saltern_returns_total", "")?;
        ensure!(
            now <= 2.0 * JOBS as f64,
            "since its start it has stored {now}"
        );

        top.step("the master above alone is killed and knows its syndics no more, and this one keeps its sign-in");
        let before = wait_for_connection(low, None)?;
        top.kill_master();
        let known = top.path("cache/syndics").join(SYNDIC);
        std::fs::remove_file(&known)?;
        top.start_master()?;
        wait_for_connection(low, Some(before))?;
        ensure!(known.exists(), "it sent its start event");
        // A kill may have left it deaf, which is stock's fault.
        low.restart_stock_minion(STOCK)?;
        let mark = top.events().mark();
        top.salt(&["--async", "*", "test.ping"])?;
        let jid = new_jid(top, mark)?;
        wait_for_both(top, &jid)
    })
}

/// Three levels of ours with minions below the two lower ones. All three masters are killed while returns are on their
/// way up; what the minions were acknowledged is in the end at the top, once, and the job is complete. The one in
/// the middle is connected to the top by TCP. The long form, with four syndics and kills at random, is
/// `make tree-chaos`.
#[test]
fn killed_masters_of_three_levels_lose_and_double_no_return() -> TestResult {
    let ours = Server::Saltern(Release::V3008);
    let level = |level: &mut Site| {
        as_written(level);
        level.announce("the syndic is not connected");
        level.announce("the publish connection broke");
    };
    let by_tcp = |config: &mut Config| {
        above(config);
        config.set("transport", "tcp");
    };
    Site::run(ours, by_tcp, |top| {
        as_written(top);
        let middle = Site::prepared(ours, above, |middle| {
            level(middle);
            middle.configure_native_syndic("relay-middle", &[top])?;
            add_to_identity(middle, "transport: tcp")?;
            let mark = top.events().mark();
            middle.start_master()?;
            wait_for_syndic("relay-middle", &[(top, mark)])?;
            let low = Site::prepared(ours, below, |low| {
                level(low);
                low.configure_native_syndic("relay-low", &[middle])?;
                let mark = middle.events().mark();
                low.start_master()?;
                wait_for_syndic("relay-low", &[(middle, mark)])?;
                let fleets = [
                    middle.start_fleet("middle", MINIONS, &["--grains"])?,
                    low.start_fleet("low", MINIONS, &["--grains"])?,
                ];
                kill_all_three([top, middle, low], fleets)
            });
            low.map_err(Failure::into_error)
        });
        middle.map_err(Failure::into_error)
    })
}

/// Minions below each of the two lower masters of three levels.
const MINIONS: usize = 15;

fn kill_all_three([top, middle, low]: [&mut Site; 3], fleets: [Fleet; 2]) -> Result<()> {
    top.step("all minions are known above, by TCP");
    let open = "listener=\"publish\",state=\"open\",transport=\"tcp\"";
    wait_until("the connection of the syndic", SOON, || {
        let connected = top.metric("saltern_port_connections", open).ok()?;
        (connected == 1.0).then_some(())
    })?;
    wait_until("all minions in the inventory above", SOON, || {
        let run = top.saltern(&["run", "manage.up"]).ok()?;
        let of = |name: &str| run.stdout.matches(&format!("- {name}-")).count();
        (of("middle") == MINIONS && of("low") == MINIONS).then_some(())
    })?;

    top.step("a target by grains means minions of both levels");
    wait_until("their grains in the inventory above", SOON, || {
        let lacking = "saltern_syndic_inventory_minions_without_grains";
        (top.metric(lacking, "").ok()? == 0.0).then_some(())
    })?;
    let run = top.saltern(&["cmd", "-G", "id:*-7", "test.ping"])?;
    run.expect_code(0)?;
    for name in ["middle-7", "low-7"] {
        run.expect_text(name)?;
    }
    ensure!(!run.stdout.contains("low-6"), "{run}");

    top.step(
        "the master above is killed when the minions have a job, the others when these returned",
    );
    let marks = [&*top, &*middle, &*low].map(|site| site.events().mark());
    top.salt(&["--async", "*", "test.echo", "kept"])?;
    let jid = new_jid(top, marks[0])?;
    let new = format!("salt/job/{jid}/new");
    low.events().find_since(marks[2], &new, SOON, |event| {
        (event.tag == new).then_some(())
    })?;
    top.kill_master();
    for (site, mark, name) in [(&*middle, marks[1], "middle"), (&*low, marks[2], "low")] {
        let returned = format!("salt/job/{jid}/ret/{name}-");
        wait_until("the returns of its minions", SOON, || {
            let events = site.events().since(mark);
            let tags = events.iter().map(|it| it.tag.as_str());
            let tags: BTreeSet<&str> = tags.filter(|tag| tag.starts_with(&returned)).collect();
            (tags.len() == MINIONS).then_some(())
        })?;
    }
    middle.kill_master();
    low.kill_master();
    low.start_master()?;
    middle.start_master()?;
    top.start_master()?;

    top.step("each return is above, once, and the job is complete: it would expire much later");
    wait_until("all returns above", SOON, || {
        let accounts = top.accounts(fleets[0].ledger()).ok()?;
        let count = |what: &str| accounts.number(what).ok();
        (count("stored")? == 2 * MINIONS as u64 && count("open")? == 0).then_some(())
    })?;
    wait_until("a ping of all by the whole tree", SOON, || {
        let run = top.saltern(&["cmd", "*", "test.ping"]).ok()?;
        (run.code == Some(0)).then_some(())
    })?;
    for fleet in fleets {
        let ledger = fleet.stop()?;
        top.accounts(&ledger)?.expect_balance()?;
    }
    explained_from_below(top, low)
}

/// Of a minion that is connected and silent, two levels below, the master above knows what the nearest master
/// says.
fn explained_from_below(top: &mut Site, low: &mut Site) -> Result<()> {
    top.step("a silent minion is explained by the master that it is below");
    low.bring_up(&[("quiet", MinionKind::Native)])?;
    wait_until("it in the inventory above", SOON, || {
        let run = top.saltern(&["run", "manage.up"]).ok()?;
        run.stdout.contains("- quiet").then_some(())
    })?;
    low.minion("quiet")?.signal(Signal::STOP)?;
    let mark = top.events().mark();
    top.salt(&["--async", "quiet", "test.ping"])?;
    let jid = new_jid(top, mark)?;
    let words = "syndic \"relay-low\" says: ";
    let said = wait_until("the verdict from below", SOON, || {
        let run = top.saltern(&["explain", &jid]).ok()?;
        run.stdout.contains(words).then_some(())
    });
    low.minion("quiet")?.signal(Signal::CONT)?;
    said.map_err(|error| match top.saltern(&["explain", &jid]) {
        Ok(run) => error.context(run.stdout),
        Err(_) => error,
    })
}
