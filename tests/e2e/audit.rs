//! The audit trail under stock's clients: each request leaves exactly one row, whatever its door,
//! without a secret; a change of any row is found.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use saltern_tests::port::free_port;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Config, Release, Server, Site, TestResult, run, wait_until};
use serde_json::{Value, json};

const PASSWORD: &str = "a password of this test";
const SECRET: &str = "hunter2";

const SLS: &str = "
job:
  local.test.echo:
    - tgt: m1
    - args: {text: reacted}
call:
  runner.test.arg:
    - args: {password: hunter2}
";

fn configure(config: &mut Config, port: u16) {
    let root = config.get("root_dir").unwrap_or_default().to_owned();
    let sls = format!("{root}/react.sls");
    std::fs::write(&sls, SLS).expect("the site has a directory");
    config
        // A client that waits longer asks the minion for its job, which is a row of its own.
        .set("timeout", 60)
        .set("sharedsecret", PASSWORD)
        .set(
            "external_auth",
            "{sharedsecret: {ann: ['test.*', '@runner', '@wheel', '@jobs'], bob: [test.ping]}}",
        )
        .set("peer", "{m1: ['test\\..*']}")
        .set("peer_run", "{m1: ['test\\..*']}")
        .set("reactor", format!("[{{'audit/go': [{sls}]}}]"))
        .set(
            "schedule",
            "{once: {function: test.arg, args: [scheduled], seconds: 3600, run_on_start: True}}",
        )
        .set("netapi_enable_clients", "[local, runner, wheel]")
        .set(
            "rest_cherrypy",
            format!("{{port: {port}, host: 127.0.0.1, address: 127.0.0.1, disable_ssl: true}}"),
        );
}

/// The rows behind a number.
fn rows_after(site: &Site, number: i64) -> Result<Vec<Value>> {
    let printed = site.saltern(&["audit", "--json", "--limit", "10000"])?;
    printed.expect_code(0)?;
    for secret in [SECRET, PASSWORD] {
        ensure!(!printed.stdout.contains(secret), "a secret: {printed}");
    }
    let rows = printed.stdout.lines().map(serde_json::from_str::<Value>);
    let rows = rows.collect::<std::result::Result<Vec<_>, _>>()?;
    let is_new = |row: &Value| row["number"].as_i64() > Some(number);
    Ok(rows.into_iter().filter(is_new).collect())
}

fn last(site: &Site) -> Result<i64> {
    let rows = rows_after(site, 0)?;
    Ok(rows
        .last()
        .and_then(|row| row["number"].as_i64())
        .unwrap_or(0))
}

/// Door, user, proof, command, function, verdict.
type Essence<'a> = [&'a str; 6];

fn essence(row: &Value) -> Vec<String> {
    let text = |name: &str| row[name].as_str().unwrap_or("-").to_owned();
    ["door", "user", "proof", "cmd", "fun", "verdict"]
        .map(text)
        .to_vec()
}

/// Does something, and compares the rows that it leaves, in any order.
fn leaves(
    site: &mut Site,
    what: &str,
    expected: &[Essence<'_>],
    act: impl FnOnce(&mut Site) -> Result<()>,
) -> Result<Vec<Value>> {
    site.step(what);
    let before = last(site)?;
    act(site)?;
    let mut expected: Vec<Vec<String>> = expected
        .iter()
        .map(|row| row.map(str::to_owned).to_vec())
        .collect();
    expected.sort();
    let rows = wait_until(what, SOON, || {
        rows_after(site, before)
            .ok()
            .filter(|rows| rows.len() >= expected.len())
    })?;
    let mut found: Vec<Vec<String>> = rows.iter().map(essence).collect();
    found.sort();
    ensure!(found == expected, "{what}: {rows:?}");
    Ok(rows)
}

#[test]
fn each_request_leaves_one_row_and_a_changed_row_is_found() -> TestResult {
    let port = free_port();
    Site::run(
        Server::Saltern(Release::V3008),
        |config| configure(config, port),
        |site| {
            for refusal in ["request refused", "a call of the API failed"] {
                site.announce(refusal);
            }
            site.bring_up(&[("m1", MinionKind::Stock(Release::V3008))])?;
            site.listen()?;
            let scheduled = wait_until("the scheduled run", SOON, || {
                let rows = rows_after(site, 0).ok()?;
                rows.into_iter().find(|row| row["door"] == "schedule")
            })?;
            ensure!(scheduled["arguments"].to_string().contains("scheduled"));
            command_lines(site)?;
            logged_in_users(site)?;
            api(site, port)?;
            reactor(site)?;
            minion(site)?;
            changed_row_is_found(site)
        },
    )
}

fn command_lines(site: &mut Site) -> Result<()> {
    let user = site.config().get("user").unwrap_or_default().to_owned();
    let user = user.as_str();
    let rows = leaves(
        site,
        "salt",
        &[["port", user, "key", "publish", "test.arg", "allowed"]],
        |site| {
            let words = ["m1", "test.arg", "shown", "db_password=hunter2"];
            site.salt(&words)?.expect_code(0)?;
            Ok(())
        },
    )?;
    let row = rows.first().context("a row")?;
    ensure!(row["origin"] == "127.0.0.1" && row["tgt"] == "m1", "{row}");
    ensure!(
        row["jid"].as_str().is_some_and(|jid| jid.len() == 20),
        "{row}"
    );
    let shown = row["arguments"].to_string();
    ensure!(shown.contains("shown") && shown.contains("hidden"), "{row}");
    leaves(
        site,
        "saltern run",
        &[["port", user, "key", "runner", "test.arg", "allowed"]],
        |site| {
            site.saltern(&["run", "test.arg", "x"])?.expect_code(0)?;
            Ok(())
        },
    )?;
    Ok(())
}

fn logged_in_users(site: &mut Site) -> Result<()> {
    // Without a log-in, stock's salt-run runs the function itself, beside the master.
    leaves(
        site,
        "salt-run -a",
        &[["port", "ann", "eauth", "runner", "test.arg", "allowed"]],
        |site| {
            let login = [
                "-a",
                "sharedsecret",
                "--username",
                "ann",
                "--password",
                PASSWORD,
            ];
            site.salt_run(&[&login[..], &["test.arg", "x"]].concat())?
                .expect_code(0)?;
            Ok(())
        },
    )?;
    for (name, fun, verdict) in [
        ("ann", "test.ping", "allowed"),
        ("bob", "test.ping", "allowed"),
        ("bob", "test.version", "refused"),
    ] {
        leaves(
            site,
            "salt -a",
            &[["port", name, "eauth", "publish", fun, verdict]],
            |site| {
                let login = [
                    "-a",
                    "sharedsecret",
                    "--username",
                    name,
                    "--password",
                    PASSWORD,
                ];
                let words = [&login[..], &["m1", fun]].concat();
                run(&mut site.stock_command("salt", &words), SOON * 2)?;
                Ok(())
            },
        )?;
    }
    Ok(())
}

fn api(site: &mut Site, port: u16) -> Result<()> {
    let mut session = site.api_client(port)?;
    let rows = leaves(
        site,
        "log-in by HTTP",
        &[["api", "ann", "eauth", "mk_token", "", "allowed"]],
        |_| {
            let form = json!({"username": "ann", "password": PASSWORD, "eauth": "sharedsecret"});
            let login = json!({"method": "POST", "path": "/login", "json": form});
            let answer = session.call(&login)?;
            ensure!(answer["status"] == 200, "{answer}");
            Ok(())
        },
    )?;
    ensure!(
        rows.iter().all(|row| row["origin"] == "127.0.0.1"),
        "{rows:?}"
    );
    for (client, fun, cmd, verdict) in [
        ("local", "test.ping", "publish", "allowed"),
        ("local", "cmd.run", "publish", "refused"),
        ("runner", "test.arg", "runner", "allowed"),
        ("wheel", "key.list_all", "wheel", "allowed"),
    ] {
        leaves(
            site,
            client,
            &[["api", "ann", "token", cmd, fun, verdict]],
            |_| {
                let mut chunk = json!({"client": client, "fun": fun});
                if client == "local" {
                    chunk["tgt"] = json!("m1");
                }
                let call = json!({"method": "POST", "path": "/", "auth": true, "json": [chunk]});
                session.call(&call)?;
                Ok(())
            },
        )?;
    }
    Ok(())
}

fn reactor(site: &mut Site) -> Result<()> {
    let user = site.config().get("user").unwrap_or_default().to_owned();
    let user = user.as_str();
    leaves(
        site,
        "a reaction",
        &[
            ["reactor", user, "own", "publish", "test.echo", "allowed"],
            ["reactor", "Reactor", "own", "runner", "test.arg", "allowed"],
        ],
        |site| {
            let fired = site.salt_call("m1", &["event.send", "audit/go"])?;
            fired.expect_code(0)?;
            Ok(())
        },
    )?;
    Ok(())
}

fn minion(site: &mut Site) -> Result<()> {
    for (call, fun, cmd, verdict) in [
        ("publish.publish", "test.ping", "minion_pub", "allowed"),
        ("publish.publish", "cmd.run", "minion_pub", "refused"),
        ("publish.runner", "test.arg", "minion_runner", "allowed"),
    ] {
        leaves(
            site,
            call,
            &[["minion", "m1", "session", cmd, fun, verdict]],
            |site| {
                let words = match call {
                    "publish.runner" => vec![call, fun],
                    _ => vec![call, "m1", fun, "x"],
                };
                site.salt_call("m1", &words)?;
                Ok(())
            },
        )?;
    }
    Ok(())
}

fn changed_row_is_found(site: &Site) -> Result<()> {
    let verified = site.saltern(&["audit", "verify"])?;
    verified.expect_code(0)?;
    let head = verified
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix("head "));
    let head = head.context("a head")?.to_owned();
    site.saltern(&["audit", "verify", "--head", &head])?
        .expect_code(0)?;
    let other = head.replace(|digit: char| digit.is_ascii_lowercase(), "0");
    site.saltern(&["audit", "verify", "--head", &other])?
        .expect_code(1)?;
    let database = site.path("cache/saltern/jobs.sqlite");
    let program = "import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as db:
    db.execute(\"UPDATE audit SET user = 'mallory' WHERE number = 3\")";
    let mut python = Command::new(Release::V3008.program("python"));
    let changed = run(python.args(["-c", program]).arg(database), SOON)?;
    changed.expect_code(0)?;
    let found = site.saltern(&["audit", "verify"])?;
    found
        .expect_code(1)?
        .expect_text("row 3 of the audit trail")?;
    Ok(())
}
