//! One tree, first with stock's `salt-syndic` and then with our own syndic, below a master of ours or of
//! stock and above stock minions of three releases: what a user at the top sees. The rows that fail with
//! stock's syndic are named, and have to fail in the same test.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use saltern_tests::config::Config;
use saltern_tests::process::{Daemon, until_exists};
use saltern_tests::site::{Failure, MinionKind, SOON};
use saltern_tests::syndics::wait_for_syndic;
use saltern_tests::{Release, Server, Site, TestResult, wait_until};

use crate::syndic::{SYNDIC, above, as_written, below, new_jid};

const LEAVES: [(&str, Release); 3] = [
    ("leaf-3006", Release::V3006),
    ("leaf-3007", Release::V3007),
    ("leaf-3008", Release::V3008),
];

/// Two masters, and what is the syndic between them.
struct Tree<'a> {
    top: &'a mut Site,
    low: &'a mut Site,
    /// Stock's syndic; absent when the master below is its own.
    stock: Option<Daemon>,
}

/// Something that a user does at the top.
struct Row {
    name: &'static str,
    run: fn(&mut Tree<'_>) -> Result<()>,
    fails_with_stock: bool,
}

const fn works(name: &'static str, run: fn(&mut Tree<'_>) -> Result<()>) -> Row {
    Row {
        name,
        run,
        fails_with_stock: false,
    }
}

const fn fails_with_stock(name: &'static str, run: fn(&mut Tree<'_>) -> Result<()>) -> Row {
    Row {
        name,
        run,
        fails_with_stock: true,
    }
}

const ROWS: [Row; 8] = [
    works("a job for everybody, and what the runners know of it", job),
    works("one minion by its name", one_by_name),
    works("a list with a minion that nobody has", missing),
    works("a state", state),
    works("a batch", batch),
    works("a job that outlives the timeout of the command line", long),
    fails_with_stock("a target with a delimiter of its own", delimiter),
    fails_with_stock("returns that come while the syndic is dead", dead),
];

fn job(tree: &mut Tree<'_>) -> Result<()> {
    let mark = tree.top.events().mark();
    let run = tree.top.salt(&["-t", "60", "*", "test.ping"])?;
    run.expect_code(0)?;
    for (leaf, _) in LEAVES {
        run.expect_text(&format!("{leaf}:\n    True"))?;
    }
    ensure!(!run.stdout.contains(SYNDIC), "{run}");
    let jid = new_jid(tree.top, mark)?;
    ensure!(returned(tree.top, &jid)? == all(), "the job cache");
    let run = tree.top.salt_run(&["jobs.list_job", &jid])?;
    for (leaf, _) in LEAVES {
        run.expect_text(leaf)?;
    }
    let run = tree.top.salt_run(&["jobs.list_jobs"])?;
    run.expect_text(&jid)?;
    Ok(())
}

fn one_by_name(tree: &mut Tree<'_>) -> Result<()> {
    for (leaf, _) in LEAVES {
        let run = tree.top.salt(&["-t", "60", leaf, "test.echo", "hello"])?;
        run.expect_code(0)?;
        run.expect_stdout(&format!("{leaf}:\n    hello"))?;
    }
    Ok(())
}

fn missing(tree: &mut Tree<'_>) -> Result<()> {
    // A leaf may be late on a busy machine.
    wait_until("the leaf beside one that is missing", SOON, || {
        let run = tree.top.salt(&["-L", "leaf-3006,nobody", "test.ping"]);
        let run = run.ok()?.stdout;
        let answers = |leaf: &str| run.contains(&format!("{leaf}:\n    True"));
        (answers("leaf-3006") && !answers("nobody")).then_some(())
    })
}

fn state(tree: &mut Tree<'_>) -> Result<()> {
    let run = tree.top.salt(&["-t", "60", "*", "state.apply", "one"])?;
    run.expect_code(0)?;
    ensure!(run.stdout.matches("Succeeded: 1").count() == 3, "{run}");
    Ok(())
}

fn batch(tree: &mut Tree<'_>) -> Result<()> {
    let run = tree
        .top
        .salt(&["-t", "60", "-b", "1", "leaf-*", "test.ping"])?;
    run.expect_code(0)?;
    for (leaf, _) in LEAVES {
        run.expect_text(&format!("{leaf}:\n    True"))?;
    }
    Ok(())
}

/// The `salt` of 3008 asks only minions whose keys its own master has whether they still run a job
/// (`salt/client/__init__.py`, `get_cli_event_returns`): it gives up on those below any syndic.
fn long(tree: &mut Tree<'_>) -> Result<()> {
    let arguments = ["-t", "3", "*", "cmd.run", "sleep 14; echo done"];
    let server = tree.top.server();
    if server.release() == Release::V3008 {
        let mark = tree.top.events().mark();
        tree.top
            .salt(&arguments)?
            .expect_text("Minion did not return")?;
        let jid = new_jid(tree.top, mark)?;
        wait_until("all returns above", SOON, || {
            (returned(tree.top, &jid).ok()? == all()).then_some(())
        })?;
        if !server.is_ours() {
            return Ok(());
        }
    }
    let run = match server {
        Server::Saltern(Release::V3008) => tree.top.saltern_cmd(&arguments)?,
        _ => tree.top.salt(&arguments)?,
    };
    run.expect_code(0)?;
    for (leaf, _) in LEAVES {
        run.expect_text(&format!("{leaf}:\n    done"))?;
    }
    Ok(())
}

/// Stock's syndic passes a target on, and not its delimiter.
fn delimiter(tree: &mut Tree<'_>) -> Result<()> {
    // With stock's, nothing comes however long it is waited for.
    let timeout = if tree.stock.is_some() { "3" } else { "60" };
    let target = ["--delimiter", "|", "-G", "id|leaf-3007"];
    let run = tree
        .top
        .salt(&[&["-t", timeout], &target[..], &["test.ping"]].concat())?;
    run.expect_text("leaf-3007:\n    True")?;
    Ok(())
}

/// Stock's syndic sends up what passes its master while it lives, and nothing else.
fn dead(tree: &mut Tree<'_>) -> Result<()> {
    let go = tree.top.path(match tree.stock {
        Some(_) => "go-stock",
        None => "go-native",
    });
    let (mark, below) = (tree.top.events().mark(), tree.low.events().mark());
    let work = format!("{}; echo done", until_exists(&go));
    tree.top.salt(&["--async", "*", "cmd.run", &work])?;
    let jid = new_jid(tree.top, mark)?;
    let new = format!("salt/job/{jid}/new");
    tree.low
        .events()
        .find_since(below, &new, SOON, |event| (event.tag == new).then_some(()))?;
    if let Some(syndic) = &mut tree.stock {
        syndic.kill();
    }
    std::fs::write(&go, "")?;
    for (leaf, _) in LEAVES {
        let tag = format!("salt/job/{jid}/ret/{leaf}");
        tree.low
            .events()
            .find_since(below, &tag, SOON, |event| (event.tag == tag).then_some(()))?;
    }
    match tree.stock {
        Some(_) => {
            let release = tree.low.server().release();
            tree.stock = Some(tree.low.start_syndic(SYNDIC, release, &[tree.top])?);
            // What comes later goes up: nothing is on its way any more.
            wait_for_all(tree.top)?;
            ensure!(returned(tree.top, &jid)? == all(), "returns are lost");
        }
        None => {
            tree.low.announce("the publish connection broke");
            tree.low.kill_master();
            tree.low.start_master()?;
            wait_until("all returns above", SOON, || {
                (returned(tree.top, &jid).ok()? == all()).then_some(())
            })?;
        }
    }
    Ok(())
}

fn all() -> BTreeSet<String> {
    LEAVES.map(|(leaf, _)| leaf.to_owned()).into()
}

/// The minions whose returns the master has.
fn returned(site: &Site, jid: &str) -> Result<BTreeSet<String>> {
    let run = site.salt_run(&["--out", "json", "jobs.lookup_jid", jid])?;
    let found: serde_json::Value = serde_json::from_str(&run.stdout)?;
    let found = found.as_object().context("a map of returns")?;
    Ok(found.keys().cloned().collect())
}

/// Waits until all leaves answer to this master.
fn wait_for_all(site: &Site) -> Result<()> {
    wait_until("all leaves to answer", SOON, || {
        let run = site.salt(&["*", "test.ping"]).ok()?;
        let answers = |leaf: &str| run.stdout.contains(&format!("{leaf}:\n    True"));
        LEAVES.iter().all(|(leaf, _)| answers(leaf)).then_some(())
    })
}

fn configure(config: &mut Config) {
    below(config);
    config.set("timeout", 3).set("gather_job_timeout", 20);
}

fn both_kinds(top: Server) -> TestResult {
    // Stock's syndic of 3008.3 sends no start, also between two masters of stock 3008 (seen 2026-11-30): that of 3007
    // is below a top of 3008.
    let low = Server::Saltern(match top.release() {
        Release::V3008 => Release::V3007,
        release => release,
    });
    Site::run(top, above, |top| {
        as_written(top);
        let below = Site::prepared(low, configure, |low| {
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
            low.write_config()?;
            low.start_master()?;
            let leaves = LEAVES.map(|(leaf, release)| (leaf, MinionKind::Stock(release)));
            low.bring_up(&leaves)?;
            let release = low.server().release();
            let stock = Some(low.start_syndic(SYNDIC, release, &[top])?);
            let mut tree = Tree { top, low, stock };
            for row in &ROWS {
                tree.top.step(&format!("with stock's syndic: {}", row.name));
                let outcome = (row.run)(&mut tree);
                ensure!(
                    outcome.is_err() || !row.fails_with_stock,
                    "it works with stock's syndic: {}",
                    row.name
                );
                if let (Err(error), false) = (outcome, row.fails_with_stock) {
                    // Of a busy machine: what stock's syndic does is not ours to hold to a time.
                    tree.top
                        .step(&format!("stock's syndic was too late: {error:#}"));
                }
            }
            take_over(&mut tree)?;
            for row in &ROWS {
                tree.top.step(&format!("with our syndic: {}", row.name));
                (row.run)(&mut tree).with_context(|| row.name)?;
            }
            match tree.top.server().is_ours() {
                true => go_back(&mut tree),
                false => Ok(()),
            }
        });
        below.map_err(Failure::into_error)
    })
}

/// The master below becomes its own syndic, with the same id and key.
fn take_over(tree: &mut Tree<'_>) -> Result<()> {
    tree.top
        .step("our syndic stands by while stock's runs, and takes over when it has stopped");
    let mark = tree.top.events().mark();
    tree.low.stop_master()?;
    tree.low.config().set("saltern_syndic", "native");
    tree.low.write_config()?;
    tree.low.start_master()?;
    // Stock's may end with the master that it was beside; then ours goes up at once.
    wait_until("our syndic to stand by or to go up", SOON, || {
        let text = tree.low.saltern(&["syndics"]).ok()?.stdout;
        let json = tree.low.saltern(&["syndics", "--json"]).ok()?.stdout;
        let shown: serde_json::Value = serde_json::from_str(&json).ok()?;
        let is_connected = shown["above"][0]["is_connected"] == true;
        (is_connected || text.contains("stands by")).then_some(())
    })?;
    if let Some(stock) = tree.stock.take() {
        stock.stop(SOON)?;
    }
    wait_for_syndic(SYNDIC, &[(tree.top, mark)])?;
    // A return on its way, as to a question of stock's `salt`, may have left one deaf.
    for leaf in ["leaf-3007", "leaf-3008"] {
        tree.low.restart_stock_minion(leaf)?;
    }
    wait_for_all(tree.low)
}

/// The way back to stock's syndic: the master above forgets what ours has announced.
fn go_back(tree: &mut Tree<'_>) -> Result<()> {
    tree.top.step("stock's syndic again, under the same id");
    let announced = "saltern_syndic_inventory_minions";
    wait_until("all to be announced", SOON, || {
        (tree.top.metric(announced, "").ok()? == 3.0).then_some(())
    })?;
    tree.low.announce("the publish connection broke");
    tree.low.stop_master()?;
    tree.low.config().set("saltern_syndic", "stock");
    tree.low.write_config()?;
    tree.low.start_master()?;
    let release = tree.low.server().release();
    tree.stock = Some(tree.low.start_syndic(SYNDIC, release, &[tree.top])?);
    // Its returns show that it announces nothing, once it had time to.
    wait_until("the inventory to be forgotten", SOON, || {
        tree.top.saltern_cmd(&["*", "test.ping"]).ok()?;
        let forgotten = "saltern_syndic_inventories_forgotten_total";
        let forgotten = tree.top.metric(forgotten, "").ok()?;
        let kept = tree.top.metric(announced, "").ok()?;
        ((forgotten, kept) == (1.0, 0.0)).then_some(())
    })
}

#[test]
fn syndics_of_both_kinds_below_ours_3006() -> TestResult {
    both_kinds(Server::Saltern(Release::V3006))
}

#[test]
fn syndics_of_both_kinds_below_ours_3007() -> TestResult {
    both_kinds(Server::Saltern(Release::V3007))
}

#[test]
fn syndics_of_both_kinds_below_ours_3008() -> TestResult {
    both_kinds(Server::Saltern(Release::V3008))
}

#[test]
fn syndics_of_both_kinds_below_stock_3006() -> TestResult {
    both_kinds(Server::Stock(Release::V3006))
}

#[test]
fn syndics_of_both_kinds_below_stock_3007() -> TestResult {
    both_kinds(Server::Stock(Release::V3007))
}

#[test]
fn syndics_of_both_kinds_below_stock_3008() -> TestResult {
    both_kinds(Server::Stock(Release::V3008))
}
