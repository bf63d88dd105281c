//! Maintenance tasks beside stock's master: the list of keys, events of changed files, expiry,
//! rotation by age; and the reload on SIGHUP.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Event, Release, Server, Site, TestResult, logs, until_exists, wait_until};
use serde_json::Value;

#[test]
fn stock_3006_writes_the_key_cache() -> TestResult {
    the_key_cache_is_written(Server::Stock(Release::V3006))
}

#[test]
fn stock_3008_writes_the_key_cache() -> TestResult {
    the_key_cache_is_written(Server::Stock(Release::V3008))
}

#[test]
fn the_key_cache_of_3006_is_written() -> TestResult {
    the_key_cache_is_written(Server::Saltern(Release::V3006))
}

#[test]
fn the_key_cache_of_3008_is_written() -> TestResult {
    the_key_cache_is_written(Server::Saltern(Release::V3008))
}

/// A list of what lies among the accepted keys: 3006 looks whether it is a file, 3008 does not.
fn the_key_cache_is_written(server: Server) -> TestResult {
    Site::prepared(
        server,
        |config| _ = config.set("key_cache", "sched"),
        |site| {
            let accepted = site.path("pki/minions");
            fs::create_dir_all(accepted.join("directory"))?;
            // As a master leaves it.
            fs::set_permissions(site.path("pki"), fs::Permissions::from_mode(0o700))?;
            fs::write(accepted.join("m1"), "no key")?;
            site.start_master()?;
            let expected: &[&[u8]] = match site.server().release() {
                Release::V3006 => &[b"\x91\xa2m1"],
                _ => &[b"\x92\xa2m1\xa9directory", b"\x92\xa9directory\xa2m1"],
            };
            let cache = accepted.join(".key_cache");
            wait_until("the list of keys", SOON, || {
                let written = fs::read(&cache).ok()?;
                expected.contains(&written.as_slice()).then_some(())
            })?;
            Ok(())
        },
    )
}

#[test]
fn stock_3006_announces_changed_files() -> TestResult {
    changed_files_are_announced(Server::Stock(Release::V3006))
}

#[test]
fn stock_3008_announces_changed_files() -> TestResult {
    changed_files_are_announced(Server::Stock(Release::V3008))
}

#[test]
fn changed_files_are_announced_to_3006() -> TestResult {
    changed_files_are_announced(Server::Saltern(Release::V3006))
}

#[test]
fn changed_files_are_announced_to_3008() -> TestResult {
    changed_files_are_announced(Server::Saltern(Release::V3008))
}

fn changed_files_are_announced(server: Server) -> TestResult {
    Site::prepared(
        server,
        |config| {
            config
                .set("fileserver_events", "True")
                .set("roots_update_interval", 1);
        },
        |site| {
            let roots = site.path("srv");
            fs::create_dir(&roots)?;
            let option = format!("{{base: [{}]}}", roots.display());
            site.config().set("file_roots", option);
            site.write_config()?;
            fs::write(roots.join("old.sls"), "old")?;
            site.start_master()?;

            site.step("nothing changes");
            let same = update(site, 0, |data| data["changed"] == false)?;
            ensure!(same.fields() == ["_stamp", "backend", "changed", "files"]);
            ensure!(same.data["backend"] == "roots", "{same:?}");

            site.step("a file comes");
            let mark = site.events().mark();
            // In one step, so that no look sees it empty.
            fs::write(site.path("new"), "new")?;
            fs::rename(site.path("new"), roots.join("new.sls"))?;
            let new = update(site, mark, |data| data["changed"] == true)?;
            expect_files(&new, &[], &[], &["new.sls"])?;

            site.step("one changes, and one goes");
            let mark = site.events().mark();
            // In one step, so that one look sees both.
            fs::rename(roots.join("new.sls"), roots.join("old.sls"))?;
            let both = update(site, mark, |data| data["changed"] == true)?;
            expect_files(&both, &["old.sls"], &["new.sls"], &[])
        },
    )
}

fn update(site: &Site, mark: usize, is_meant: impl Fn(&Value) -> bool) -> Result<Event> {
    site.events()
        .find_since(mark, "an update of the files", SOON, |event| {
            let is_update = event.tag == "salt/fileserver/roots/update";
            (is_update && is_meant(&event.data)).then(|| event.clone())
        })
}

fn expect_files(event: &Event, changed: &[&str], removed: &[&str], added: &[&str]) -> Result<()> {
    for (field, expected) in [("changed", changed), ("removed", removed), ("added", added)] {
        let listed = event.data["files"][field].as_array();
        let listed = listed.with_context(|| format!("no list {field}: {event:?}"))?;
        let names: Vec<&str> = listed
            .iter()
            .filter_map(Value::as_str)
            .filter_map(|path| Path::new(path).file_name()?.to_str())
            .collect();
        ensure!(names == expected, "{field}: {event:?}");
    }
    Ok(())
}

#[test]
fn stock_3006_removes_expired_data() -> TestResult {
    expired_data_is_removed(Server::Stock(Release::V3006))
}

#[test]
fn stock_3008_removes_expired_data() -> TestResult {
    expired_data_is_removed(Server::Stock(Release::V3008))
}

#[test]
fn expired_data_is_removed_with_3006() -> TestResult {
    expired_data_is_removed(Server::Saltern(Release::V3006))
}

#[test]
fn expired_data_is_removed_with_3008() -> TestResult {
    expired_data_is_removed(Server::Saltern(Release::V3008))
}

/// Tokens by their own end, files of `publish_auth` by `keep_jobs_seconds`.
fn expired_data_is_removed(server: Server) -> TestResult {
    Site::prepared(
        server,
        |_| {},
        |site| {
            let suffix = match site.server().release() {
                Release::V3008 => ".p",
                _ => "",
            };
            let tokens = site.path("cache/tokens");
            let publishers = site.path("cache/publish_auth");
            fs::create_dir_all(&tokens)?;
            fs::create_dir_all(&publishers)?;
            let of = |letter: char| letter.to_string().repeat(64);
            let write = |letter, expire: i32| {
                let token = of(letter);
                fs::write(
                    tokens.join(format!("{token}{suffix}")),
                    packed(&token, expire, suffix),
                )
            };
            write('a', 1)?;
            write('b', i32::MAX)?;
            let old = fs::File::create(publishers.join("20200101000000000000"))?;
            old.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_577_836_800))?;
            fs::write(publishers.join("20260101000000000000"), "m1")?;
            site.start_master()?;
            wait_until("what is old to go", SOON, || {
                let is_gone = !tokens.join(format!("{}{suffix}", of('a'))).exists()
                    && !publishers.join("20200101000000000000").exists();
                is_gone.then_some(())
            })?;
            ensure!(tokens.join(format!("{}{suffix}", of('b'))).exists());
            ensure!(publishers.join("20260101000000000000").exists());
            Ok(())
        },
    )
}

/// A token as stock keeps it, in msgpack: 3008 has it in an envelope with its end.
fn packed(token: &str, expire: i32, suffix: &str) -> Vec<u8> {
    let text = |out: &mut Vec<u8>, text: &str| {
        out.extend([0xd9, u8::try_from(text.len()).unwrap_or(u8::MAX)]);
        out.extend(text.as_bytes());
    };
    let number = |out: &mut Vec<u8>, number: i32| {
        out.push(0xd2);
        out.extend(number.to_be_bytes());
    };
    let mut out = Vec::new();
    if !suffix.is_empty() {
        out.push(0x82);
        text(&mut out, "_expires");
        number(&mut out, expire);
        text(&mut out, "data");
    }
    out.push(0x85);
    for (name, value) in [("name", "operator"), ("eauth", "pam"), ("token", token)] {
        text(&mut out, name);
        text(&mut out, value);
    }
    for (name, value) in [("start", 0), ("expire", expire)] {
        text(&mut out, name);
        number(&mut out, value);
    }
    out
}

#[test]
fn stock_3006_rotates_an_old_key_and_pings() -> TestResult {
    an_old_key_is_rotated(Server::Stock(Release::V3006))
}

#[test]
fn with_3006_an_old_key_is_rotated_and_the_minions_pinged() -> TestResult {
    an_old_key_is_rotated(Server::Saltern(Release::V3006))
}

/// Only 3006 does it by age; the ping is a job like any other.
fn an_old_key_is_rotated(server: Server) -> TestResult {
    Site::prepared(
        server,
        |config| {
            config
                .set("timeout", 60)
                .set("publish_session", 20)
                .set("ping_on_rotate", "True");
        },
        |site| {
            // Stock pings with the configuration that is in its default place, or named here.
            let config = format!("SALT_MASTER_CONFIG={}", site.path("conf/master").display());
            site.start_master_by(&["env", &config]);
            site.start_master()?;
            site.bring_up(&[("m1", MinionKind::Stock(Release::V3006))])?;
            let mark = site.events().mark();
            let rotated = |event: &Event| {
                (event.tag == "key" && event.data["rotate_aes_key"] == true).then_some(())
            };
            let events = site.events();
            events.find_since(mark, "the rotation", SOON, rotated)?;
            let ping = events.find_since(mark, "the ping", SOON, |event| {
                let is_new = event.tag.starts_with("salt/job/") && event.tag.ends_with("/new");
                (is_new && event.data["fun"] == "test.ping").then(|| event.clone())
            })?;
            ensure!(ping.data["tgt_type"] == "list", "{ping:?}");
            ensure!(
                ping.data["minions"] == serde_json::json!(["m1"]),
                "{ping:?}"
            );
            events.find_since(mark, "m1 to sign in again", SOON, |event| {
                (event.tag == "salt/auth" && event.data["id"] == "m1").then_some(())
            })?;
            site.salt(&["m1", "test.ping"])?
                .expect_text("m1:\n    True")?;
            Ok(())
        },
    )
}

#[test]
fn reload_is_applied_or_refused_as_a_whole() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |config| _ = config.set("log_level", "info"),
        |site| {
            site.bring_up(&[("m1", MinionKind::Native)])?;
            let echo = ["m1", "test.echo", "said"];
            site.salt(&echo)?.expect_text("said")?;

            site.step("a rule comes, and something that needs a restart");
            site.announce("needs a restart");
            site.announce("request refused");
            site.config()
                .set("publisher_acl_blacklist", "{modules: [test.echo]}")
                .set("timeout", 7);
            reread(site, "publisher_acl_blacklist: now in effect")?;
            log_line(site, "timeout: needs a restart")?;
            ensure!(!is_said(site, &echo)?, "it is still allowed");
            site.salt(&["m1", "test.ping"])?.expect_code(0)?;

            site.step("a configuration that is wrong");
            site.announce("was not taken over");
            site.config()
                .set("publisher_acl_blacklist", "{}")
                .set("ret_port", "none");
            reread(site, "was not taken over")?;
            ensure!(!is_said(site, &echo)?, "the old rules do not hold");

            site.step("and put right");
            let port = site.ret_port();
            site.config()
                .set("ret_port", port)
                .set("log_level", "error");
            site.write_config()?;
            site.master().signal(Signal::HUP)?;
            wait_until("the rule to go", SOON, || {
                is_said(site, &echo).ok()?.then_some(())
            })?;
            Ok(())
        },
    )
}

/// Whether a minion says what it is to say.
fn is_said(site: &Site, arguments: &[&str]) -> Result<bool> {
    let run = site.salt(arguments)?;
    Ok(run.stdout.contains("said"))
}

/// Writes the configuration, has it read and waits for a line about it.
fn reread(site: &mut Site, line: &str) -> Result<()> {
    site.write_config()?;
    site.master().signal(Signal::HUP)?;
    log_line(site, line)
}

fn log_line(site: &Site, line: &str) -> Result<()> {
    wait_until(line, SOON, || {
        let log = logs::read(&site.path("log/master.out"));
        log.contains(line).then_some(())
    })
}

#[test]
fn reload_replaces_the_reactor_rules() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |config| {
            config
                .set("log_level", "info")
                .set("reactor", "[{before/*: [/nowhere/before.sls]}]");
        },
        |site| {
            site.saltern(&["run", "reactor.list"])?
                .expect_text("before/*")?;
            site.config()
                .set("reactor", "[{after/*: [/nowhere/after.sls]}]");
            reread(site, "reactor: now in effect")?;
            let rules = site.saltern(&["run", "reactor.list"])?;
            rules.expect_text("after/*")?;
            ensure!(!rules.stdout.contains("before/*"), "{rules}");
            Ok(())
        },
    )
}

#[test]
fn a_job_that_is_under_way_outlives_an_orderly_stop() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |_| {},
        |site| {
            site.bring_up(&[("m1", MinionKind::Stock(Release::V3008))])?;
            let (begun, go) = (site.path("begun"), site.path("go"));
            let held = until_exists(&go);
            let work = format!("touch {}; {held}; echo True", begun.display());
            let started = site.salt(&["--async", "m1", "cmd.run", &work])?;
            let jid = started.stdout.trim().rsplit(' ').next().unwrap_or_default();
            let jid = jid.to_owned();
            wait_until("the job to be under way", SOON, || {
                begun.exists().then_some(())
            })?;
            let status = site.stop_master()?;
            ensure!(status.success(), "the exit after SIGTERM was {status}");
            ensure!(
                !site.path("run/master.pid").exists(),
                "the pid file is left"
            );
            site.start_master()?;
            site.wait_until_ready_again()?;
            fs::write(&go, "")?;
            wait_until("the return to be stored", SOON, || {
                let found = site.salt_run(&["jobs.lookup_jid", &jid]).ok()?;
                found.stdout.contains("True").then_some(())
            })?;
            Ok(())
        },
    )
}

#[test]
fn maintenance_tasks_are_listed_and_run_on_request() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |config| _ = config.set("loop_interval", 600),
        |site| {
            let listed = site.saltern(&["maintenance", "list"])?;
            listed.expect_code(0)?.expect_text("shared_key")?;
            ensure!(!listed.stdout.contains("key_cache"), "{}", listed.stdout);
            let runs = "saltern_maintenance_runs_total{result=\"ok\",task=\"tokens\"}";
            // The round at the start runs it, too, and nobody waits for that.
            let before = wait_until("the first round", SOON, || {
                number(site, runs).ok().filter(|runs| *runs >= 1.0)
            })?;
            site.saltern(&["maintenance", "run", "tokens"])?
                .expect_code(0)?
                .expect_text("ok")?;
            let after = number(site, runs)?;
            ensure!(after == before + 1.0, "{before} runs, then {after}");
            let refused = site.saltern(&["maintenance", "run", "key_cache"])?;
            refused.expect_code(1)?;
            site.saltern(&["maintenance", "run", "laundry"])?
                .expect_code(1)?;

            site.step("one fails");
            site.announce("a maintenance task failed");
            let tokens = site.path("cache/tokens");
            fs::remove_dir_all(&tokens)?;
            fs::write(&tokens, "no directory")?;
            site.saltern(&["maintenance", "run", "tokens"])?
                .expect_code(1)?;
            site.saltern(&["maintenance", "run", "file_lists"])?
                .expect_code(0)?;
            Ok(())
        },
    )
}

fn number(site: &Site, metric: &str) -> Result<f64> {
    let metrics = site.saltern(&["metrics"])?;
    let line = metrics.stdout.lines().find_map(|line| {
        let value = line.strip_prefix(metric)?;
        value.trim().parse().ok()
    });
    Ok(line.unwrap_or(0.0))
}

/// A file that root may read is unreadable for the master of another user.
#[test]
fn doctor_as_root_checks_as_the_masters_user() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |_| {},
        |site| {
            let is_root = rustix::process::geteuid().is_root();
            ensure!(is_root, "this needs root, as the tests of small disks do");
            site.stop_master()?;
            for above in site.path("pki").ancestors().skip(1) {
                if above.starts_with(std::env::temp_dir()) && above != std::env::temp_dir() {
                    fs::set_permissions(above, fs::Permissions::from_mode(0o755))?;
                }
            }
            site.saltern(&["doctor"])?
                .expect_text("nothing was found")?;
            fs::create_dir_all(site.path("conf/master.d"))?;
            fs::write(site.path("conf/master.d/user.conf"), "user: nobody\n")?;
            site.saltern(&["doctor"])?
                .expect_code(1)?
                .expect_text("cannot be used by \"nobody\"")?;
            Ok(())
        },
    )
}

#[test]
fn doctor_diagnoses_a_running_and_a_stopped_master() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |_| {},
        |site| {
            let healthy = site.saltern(&["doctor"])?;
            healthy
                .expect_text("The master is running.\nNothing is wrong.\n")?
                .expect_code(0)?;

            site.step("a maintenance task fails");
            site.announce("a maintenance task failed");
            let tokens = site.path("cache/tokens");
            fs::remove_dir_all(&tokens)?;
            fs::write(&tokens, "no directory")?;
            site.saltern(&["maintenance", "run", "tokens"])?
                .expect_code(1)?;
            let ill = site.saltern(&["doctor", "--json"])?;
            ill.expect_code(1)?;
            let report: Value = serde_json::from_str(&ill.stdout)?;
            ensure!(report["running"] == true, "{report}");
            ensure!(
                report["findings"][0]["subject"] == "maintenance",
                "{report}"
            );
            fs::remove_file(&tokens)?;

            site.step("the master is stopped, and its keys lie open");
            site.stop_master()?;
            fs::set_permissions(site.path("pki"), fs::Permissions::from_mode(0o755))?;
            let stopped = site.saltern(&["doctor"])?;
            stopped
                .expect_code(1)?
                .expect_text("No master is running for this configuration.\nwarning: keys: ")?
                .expect_text("note: start: nothing was found")?;
            fs::set_permissions(site.path("pki"), fs::Permissions::from_mode(0o700))?;

            site.step("its key is damaged, and somebody has made a mistake in the configuration");
            let key = fs::canonicalize(site.path("pki/master.pem"))?;
            let kept = fs::read(&key)?;
            fs::set_permissions(&key, fs::Permissions::from_mode(0o600))?;
            fs::write(&key, "-----BEGIN RSA PRIVATE KEY-----\nno key")?;
            let file = site.path("conf/master.d/mistake.conf");
            fs::create_dir_all(site.path("conf/master.d"))?;
            fs::write(&file, "timeout: [1\n")?;
            let stopped = site.saltern(&["doctor", "--json"])?;
            stopped.expect_code(1)?;
            let report: Value = serde_json::from_str(&stopped.stdout)?;
            ensure!(report["errors"] == 2, "{report}");
            let findings = report["findings"].as_array().into_iter().flatten();
            let findings: Vec<String> = findings.map(Value::to_string).collect();
            for named in ["mistake.conf:", ".pem"] {
                ensure!(findings.iter().any(|one| one.contains(named)), "{report}");
            }

            site.step("the mistake is made while the master runs");
            fs::write(&key, kept)?;
            fs::remove_file(&file)?;
            site.start_master_only()?;
            fs::write(&file, "timeout: [1\n")?;
            for command in [
                &["run", "test.arg", "one"][..],
                &["maintenance", "list"],
                &["metrics"],
            ] {
                site.saltern(command)?
                    .expect_code(0)?
                    .expect_text("the configuration has an error")?;
            }
            fs::remove_file(&file)?;
            Ok(())
        },
    )
}
