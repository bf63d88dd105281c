//! Job caches in SQL databases: what the master acknowledged is in stock's tables, whatever the database
//! does meanwhile.

use std::fs;

use anyhow::{Context, Result, ensure};
use saltern_stock::databases::{Kind, PASSWORD, Server as Database, home};
use saltern_tests::process::run;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::small_disk::SmallDisk;
use saltern_tests::{Config, Release, Server, Site, TestResult, wait_until};
use serde_json::{Value, json};

const RELEASE: Release = Release::V3008;

/// The job cache and events in PostgreSQL.
fn configure(config: &mut Config) {
    job_cache(config);
    config
        .set("event_return", "pgjsonb")
        .set("event_return_whitelist", "['salt/job/*']");
}

/// The job cache with its options, and without a Python that could run it.
pub(crate) fn job_cache(config: &mut Config) {
    let root = config.get("root_dir").unwrap_or_default().to_owned();
    config
        .set("timeout", 60)
        .set("python_bridge", false)
        .set("master_job_cache", "pgjsonb")
        .set("returner.pgjsonb.host", format!("{root}/db"))
        .set("returner.pgjsonb.user", "salt")
        .set("returner.pgjsonb.pass", PASSWORD)
        .set("returner.pgjsonb.db", "salt");
}

/// The value that one of stock's functions returns for a job in the tables.
fn stock_reads(site: &Site, function: &str, jid: &str) -> Result<Value> {
    let question = json!({
        "name": "pgjsonb",
        "opts": {
            "returner.pgjsonb.host": site.path("db"),
            "returner.pgjsonb.user": "salt",
            "returner.pgjsonb.pass": PASSWORD,
            "returner.pgjsonb.db": "salt",
        },
        "calls": [[function, jid]],
    });
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../src/sql/tests/returner.py");
    let clients = home().join("clients");
    let environment = [("PYTHONPATH", clients.as_os_str())];
    let question = question.to_string();
    let answer = saltern_stock::answer_with(saltern_stock::NEWEST, script, &question, &environment);
    let answers: Vec<Value> = serde_json::from_slice(&answer)?;
    answers.into_iter().next().context("an answer")
}

fn returns(database: &Database) -> Vec<String> {
    let sql = "SELECT return #>> '{}' FROM salt_returns WHERE fun = 'test.echo' ORDER BY jid";
    let rows = database.query(&[sql]).into_iter();
    rows.filter_map(|row| row.into_iter().next()?).collect()
}

/// Has the master connect to the database: waits until a job is there. A client waits for its own one no longer than
/// `MAX_WAIT` of `actors/src/jobs/job_cache.rs`, which a busy machine may need for the connection alone.
fn connect(site: &Site, database: &Database) -> Result<()> {
    let jobs = "SELECT COUNT(*) FROM salt_returns WHERE fun = 'test.ping'";
    let before = database.count(jobs);
    site.saltern_cmd(&["m1", "test.ping"])?.expect_code(0)?;
    wait_until("a job in the table", SOON, || {
        (database.count(jobs) > before).then_some(())
    })
}

/// Runs stock's command line, which asks its own returner for the job first.
fn echo(site: &Site, text: &str) -> Result<String> {
    let mut command = site.stock_command("salt", &["m1", "test.echo", text, "--show-jid"]);
    let run = run(command.env("PYTHONPATH", home().join("clients")), SOON)?;
    run.expect_code(0)?.expect_text(text)?;
    Ok(run.jid()?.to_owned())
}

#[test]
fn jobs_reach_postgresql_without_python_over_outages_and_stock_reads_them() -> TestResult {
    Site::prepared(Server::Saltern(RELEASE), configure, |site| {
        let mut database = Database::start(Kind::Postgres, &site.path("db"));
        let missing = site.saltern(&["sql", "check"])?;
        missing
            .expect_code(1)?
            .expect_text("salt_returns.full_ret")?;
        let sql = site.saltern(&["sql", "create", "--dry-run"])?;
        sql.expect_code(0)?
            .expect_text("CREATE TABLE IF NOT EXISTS jids")?;
        site.saltern(&["sql", "create"])?.expect_code(0)?;
        site.saltern(&["sql", "check"])?.expect_code(0)?;
        site.start_master()?;
        site.bring_up(&[("m1", MinionKind::Stock(RELEASE))])?;
        connect(site, &database)?;
        let jid = echo(site, "grüße")?;
        wait_until("the first return in the table", SOON, || {
            (returns(&database) == ["grüße"]).then_some(())
        })?;
        let found = stock_reads(site, "get_jid", &jid)?;
        ensure!(found["m1"]["return"] == "grüße", "{found}");
        // What was published, though the minion has returned.
        let load = stock_reads(site, "get_load", &jid)?;
        ensure!(
            load["tgt"] == "m1" && load["arg"] == json!(["grüße"]),
            "{load}"
        );

        site.step("the database is away, then the master too");
        site.announce("the returner does not take jobs");
        site.announce("events cannot be returned");
        database.kill();
        echo(site, "two")?;
        site.kill_master();
        site.start_master()?;
        site.wait_until_ready_again()?;
        echo(site, "three")?;
        database.resume();
        // Until then the job is not where stock's command looks for it.
        wait_until("the rows of the outage in the table", SOON, || {
            (returns(&database) == ["grüße", "two", "three"]).then_some(())
        })?;
        echo(site, "four")?;
        wait_until("all returns in the table", SOON, || {
            (returns(&database) == ["grüße", "two", "three", "four"]).then_some(())
        })?;
        let events = "SELECT COUNT(*) FROM salt_events WHERE tag LIKE 'salt/job/%/ret/m1'";
        wait_until("events in the table", SOON, || {
            (database.count(events) > 0).then_some(())
        })?;

        site.step("old jobs go, with their returns");
        let kept = site.saltern(&["sql", "purge", "--older-than", "3600"])?;
        kept.expect_code(0)?;
        ensure!(returns(&database).len() == 4, "nothing was that old");
        let old = ["jids", "salt_returns"].map(|table| {
            format!("UPDATE {table} SET jid = '2020' || substr(jid, 5) WHERE jid = '{jid}'")
        });
        database.query(&old.each_ref().map(String::as_str));
        site.saltern(&["sql", "purge", "--older-than", "3600"])?
            .expect_code(0)?;
        ensure!(returns(&database) == ["two", "three", "four"]);
        let jids = "SELECT COUNT(*) FROM jids WHERE jid LIKE '2020%'";
        ensure!(database.count(jids) == 0, "a job is left");
        for log in ["log/master", "log/master.out"] {
            let text = fs::read_to_string(site.path(log)).unwrap_or_default();
            ensure!(!text.contains(PASSWORD), "the password is in {log}");
        }
        Ok(())
    })
}

/// The answer of a runner function of the master; stock's `salt-run` would ask the returner by itself.
fn ask(site: &Site, arguments: &[&str]) -> Result<Value> {
    let arguments = [&["run"], arguments, &["--out=json", "--no-color"]].concat();
    let run = site.saltern(&arguments)?;
    serde_json::from_str(run.stdout.trim()).with_context(|| format!("{run:?}"))
}

#[test]
fn old_jobs_are_read_from_postgresql_and_our_own_are_answered_without_it() -> TestResult {
    Site::prepared(Server::Saltern(RELEASE), job_cache, |site| {
        let mut database = Database::start(Kind::Postgres, &site.path("db"));
        site.saltern(&["sql", "create"])?.expect_code(0)?;
        site.start_master()?;
        site.bring_up(&[("m1", MinionKind::Stock(RELEASE))])?;
        connect(site, &database)?;
        let old = echo(site, "old")?;
        wait_until("the return in the table", SOON, || {
            (returns(&database) == ["old"]).then_some(())
        })?;

        site.step("the job database and the job-cache files are new ones");
        site.announce("there was no job database");
        site.kill_master();
        for end in ["", "-wal", "-shm"] {
            let _ = fs::remove_file(site.path(format!("cache/saltern/jobs.sqlite{end}")));
        }
        // From these, the jobs would be read back.
        fs::remove_dir_all(site.path("cache/jobs"))?;
        site.start_master()?;
        site.wait_until_ready_again()?;
        connect(site, &database)?;
        let new = echo(site, "new")?;
        let found = ask(site, &["jobs.lookup_jid", &old])?;
        ensure!(found == json!({"m1": "old"}), "{found}");
        let job = ask(site, &["jobs.list_job", &old])?;
        ensure!(
            job["Function"] == "test.echo"
                && job["Arguments"] == json!(["old"])
                && job["Target"] == "m1"
                && job["Result"]["m1"]["return"] == "old",
            "{job}"
        );
        let printed = ask(site, &["jobs.print_job", &old])?;
        ensure!(
            printed[&old]["Result"]["m1"]["return"] == "old",
            "{printed}"
        );
        let success = ask(site, &["jobs.exit_success", &old])?;
        ensure!(success == json!({"m1": true}), "{success}");
        let listed = ask(site, &["jobs.list_jobs", "search_function=test.echo"])?;
        let jids: Vec<&String> = listed.as_object().context("a map")?.keys().collect();
        ensure!(jids == [&old, &new] || jids == [&new, &old], "{listed}");
        let alone = ask(
            site,
            &["jobs.list_jobs", "ext_source=pgjsonb", "limit=1000"],
        )?;
        ensure!(alone.get(&old).is_some(), "{alone}");
        let unknown = ask(site, &["jobs.lookup_jid", "20200101000000000000"])?;
        ensure!(unknown == json!({}), "{unknown}");

        site.step("the database is away");
        site.announce("the returner does not take jobs");
        site.announce("old jobs cannot be read");
        database.kill();
        let own = ask(site, &["jobs.lookup_jid", &new])?;
        ensure!(own == json!({"m1": "new"}), "{own}");
        let listed = ask(site, &["jobs.list_jobs", "search_function=test.echo"])?;
        ensure!(
            listed.get(&new).is_some() && listed.get(&old).is_none(),
            "{listed}"
        );
        let refused = ask(site, &["jobs.lookup_jid", &old])?;
        let text = refused.to_string();
        ensure!(
            text.contains("older jobs are in the database of master_job_cache (pgjsonb)"),
            "{text}"
        );
        ensure!(!text.contains(PASSWORD), "{text}");

        site.step("it is back, and commands find their jobs in it");
        database.resume();
        connect(site, &database)?;
        let last = echo(site, "last")?;
        let found = stock_reads(site, "get_load", &last)?;
        ensure!(found["arg"] == json!(["last"]), "{found}");
        wait_until("old jobs are read again", SOON, || {
            let found = ask(site, &["jobs.lookup_jid", &old]).ok()?;
            (found == json!({"m1": "old"})).then_some(())
        })?;
        Ok(())
    })
}

/// Room for a server with empty databases, and a little more.
const SMALL: u64 = 160 << 20;

/// A text that no database compresses.
fn large_text() -> String {
    let mut state = 1_u64;
    let letters = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005);
        state = state.wrapping_add(1_442_695_040_888_963_407);
        char::from(b'a' + u8::try_from((state >> 33) % 26).unwrap_or_default())
    });
    letters.take(100_000).collect()
}

#[test]
fn full_disk_of_postgresql_delays_rows_only() -> TestResult {
    Site::prepared(Server::Saltern(RELEASE), job_cache, |site| {
        fs::create_dir_all(site.path("db"))?;
        let Some(disk) = SmallDisk::mount_unless_excused(&site.path("db"), SMALL)? else {
            return Ok(());
        };
        let database = Database::start(Kind::Postgres, &site.path("db"));
        site.saltern(&["sql", "create"])?.expect_code(0)?;
        site.start_master()?;
        site.bring_up(&[("m1", MinionKind::Native)])?;
        let echo = |site: &Site, text: &str| -> Result<()> {
            site.saltern_cmd(&["m1", "test.echo", text])?
                .expect_code(0)?;
            Ok(())
        };
        echo(site, "one")?;
        wait_until("the first return in the table", SOON, || {
            (returns(&database) == ["one"]).then_some(())
        })?;

        site.step("its disk is full: jobs go on");
        site.announce("the returner does not take jobs");
        disk.fill()?;
        let large = large_text();
        for text in [&large, "three"] {
            echo(site, text)?;
        }
        wait_until("rows that wait", SOON, || {
            let lag = site.metric("saltern_job_cache_lag_rows", "").ok()?;
            (lag >= 2.0).then_some(())
        })?;
        ensure!(returns(&database) == ["one"], "there was room");

        site.step("there is room again");
        disk.make_room()?;
        wait_until("all returns in the table", SOON, || {
            (returns(&database) == ["one", &large, "three"]).then_some(())
        })?;
        Ok(())
    })
}
