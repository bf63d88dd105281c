//! The master's log: no secret at any level, one JSON object a line where configured, and levels
//! that change at run time.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use saltern_tests::process::run;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Release, Server, Site, TestResult, logs, wait_until};
use serde_json::Value;

/// Secrets of users and of the site.
const PASSWORD: &str = "correct-horse-battery";
const WRONG_PASSWORD: &str = "wrong-horse-battery";
const PILLAR: &str = "pillar-value-nobody-may-read";

#[test]
fn no_secret_is_logged_at_any_level() -> TestResult {
    Site::prepared(
        Server::Saltern(Release::V3008),
        |config| {
            let root = config.get("root_dir").unwrap_or_default().to_owned();
            config
                .set("timeout", 60)
                .set("log_level", "all")
                .set("pillar_roots", format!("{{base: [{root}/pillar]}}"))
                .set(
                    "ext_pillar",
                    format!("[{{cmd_yaml: 'echo more: {PILLAR}'}}]"),
                )
                .set(
                    "external_auth",
                    format!(
                        "{{file: {{'^filename': {root}/users, ana: ['.*', '@runner', '@wheel']}}}}"
                    ),
                )
                .set("client_acl_verify", false)
                .set("token_file", format!("{root}/token"));
        },
        |site| {
            fs::write(site.path("users"), format!("ana:{PASSWORD}\n"))?;
            fs::create_dir(site.path("pillar"))?;
            fs::write(site.path("pillar/top.sls"), "base: {'*': [one]}\n")?;
            fs::write(site.path("pillar/one.sls"), format!("one: {PILLAR}\n"))?;
            site.start_master()?;
            be_busy(site)?;
            let secrets = secrets(site)?;
            ensure!(
                secrets.len() > 10,
                "only {} secrets are known",
                secrets.len()
            );
            // Stock's command line writes into the log file too, and passwords among it.
            let log = logs::read(&site.path("log/master.out"));
            ensure!(log.contains("cmd=_pillar"), "requests are not logged");
            for (what, secret) in &secrets {
                ensure!(!log.contains(secret), "{what} is in the log: {secret}");
            }
            Ok(())
        },
    )
}

fn be_busy(site: &mut Site) -> Result<()> {
    site.announce("request refused");
    site.bring_up(&[
        ("m6", MinionKind::Stock(Release::V3006)),
        ("m8", MinionKind::Stock(Release::V3008)),
    ])?;
    let by = |password| ["-a", "file", "--username", "ana", "--password", password];
    for (program, who, what) in [
        ("salt", vec![], ["*", "pillar.items"]),
        (
            "salt",
            by(PASSWORD).to_vec(),
            ["*", "saltutil.refresh_pillar"],
        ),
        (
            "salt",
            [&["-T"][..], &by(PASSWORD)].concat(),
            ["*", "test.ping"],
        ),
        ("salt", by(WRONG_PASSWORD).to_vec(), ["*", "test.ping"]),
        (
            "salt-run",
            by(PASSWORD).to_vec(),
            ["pillar.show_pillar", "m8"],
        ),
        (
            "salt-run",
            by(PASSWORD).to_vec(),
            ["jobs.list_jobs", "--out=json"],
        ),
    ] {
        let words = [who.as_slice(), &what].concat();
        run(&mut site.stock_command(program, &words), SOON * 2)?;
    }
    site.salt_key(&["-L"])?;
    // Stock's command line hides it.
    site.saltern_cmd(&["m6", "pillar.get", "more"])?
        .expect_text(PILLAR)?;
    Ok(())
}

/// Secrets that must not be in a log, with a name for each.
fn secrets(site: &Site) -> Result<Vec<(String, String)>> {
    let mut secrets: Vec<(String, String)> = [PASSWORD, WRONG_PASSWORD, PILLAR]
        .map(|text| (text.to_owned(), text.to_owned()))
        .to_vec();
    // Keys are long words in files of their own; a session's minion may know it.
    for name in ["cache/saltern/shared_key", "pki/master.pem"] {
        take_words(&site.path(name), &mut secrets)?;
    }
    for directory in ["cache/sessions", "cache"] {
        for entry in fs::read_dir(site.path(directory))? {
            let path = entry?.path();
            let is_key = path.extension().is_none() || path.display().to_string().ends_with("_key");
            if path.is_file() && is_key {
                take_words(&path, &mut secrets)?;
            }
        }
    }
    let mut tokens = 0;
    for entry in fs::read_dir(site.path("cache/tokens"))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        secrets.push(("a token".to_owned(), name));
        tokens += 1;
    }
    ensure!(tokens > 0, "nobody got a token");
    Ok(secrets)
}

/// The long words of a file: keys, and nothing else.
fn take_words(path: &Path, secrets: &mut Vec<(String, String)>) -> Result<()> {
    const LONG: usize = 40;
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let before = secrets.len();
    for word in text.split_whitespace().filter(|word| word.len() >= LONG) {
        secrets.push((path.display().to_string(), word.to_owned()));
    }
    ensure!(secrets.len() > before, "no key in {}", path.display());
    Ok(())
}

#[test]
fn log_levels_change_at_run_time_until_reload() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |config| {
            config
                .set("timeout", 60)
                .set("log_level", "info")
                .set("saltern_log_format", "json")
                .set(
                    "log_granular_levels",
                    "{saltern_config: error, salt.loader: debug}",
                );
        },
        |site| {
            site.announce("names no place in this program");
            let configured = "console info\nfile warning\nsaltern_config error\n";
            site.saltern(&["log-level"])?.expect_stdout(configured)?;

            site.step("a lower level for one module");
            site.saltern(&["log-level", "debug", "saltern_actors.front.mworker"])?
                .expect_text("saltern_actors::front::mworker debug")?;
            site.bring_up(&[("m1", MinionKind::Stock(Release::V3008))])?;
            site.salt(&["m1", "test.ping"])?.expect_code(0)?;
            wait_until("the return to be logged", SOON, || {
                let lines = lines(&site.path("log/master.out")).ok()?;
                let is_return = |line: &&Value| {
                    (&line["cmd"], &line["minion"]) == (&"_return".into(), &"m1".into())
                };
                lines.iter().find(is_return).map(drop)
            })?;

            site.step("a level for all modules, and an unknown module");
            site.saltern(&["log-level", "error"])?
                .expect_text("console error\nfile error\n")?;
            site.saltern(&["log-level", "error", "salt.master"])?
                .expect_code(69)?
                .expect_text("names no place in this program")?;
            site.saltern(&["log-level", "loud"])?.expect_code(64)?;

            site.step("the configuration is read again");
            site.master().signal(Signal::HUP)?;
            wait_until("the levels of the configuration", SOON, || {
                let levels = site.saltern(&["log-level"]).ok()?;
                (levels.stdout == configured).then_some(())
            })?;
            lines(&site.path("log/master.out"))?;
            Ok(())
        },
    )
}

/// The lines of a log; fails if one is no object with the entries that every line has.
fn lines(log: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(log)?;
    let parsed = text.lines().map(|line| {
        let object: Value = serde_json::from_str(line).with_context(|| line.to_owned())?;
        for name in ["time", "level", "target", "message"] {
            ensure!(object[name].is_string(), "no {name}: {line}");
        }
        Ok(object)
    });
    parsed.collect()
}
