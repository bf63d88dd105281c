//! Jobs that another master left behind in the job cache, and a job database that goes away.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Result, ensure};
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Release, Server, Site, TestResult, wait_until};
use serde_json::Value;

#[test]
fn jobs_of_3006_are_known_after_the_switch() -> TestResult {
    known_after_the_switch(Release::V3006)
}

#[test]
fn jobs_of_3007_are_known_after_the_switch() -> TestResult {
    known_after_the_switch(Release::V3007)
}

#[test]
fn jobs_of_3008_are_known_after_the_switch() -> TestResult {
    known_after_the_switch(Release::V3008)
}

/// Queries to the old master's tools and to the new master; `{jid}` is the job.
const QUESTIONS: &[&[&str]] = &[
    &["jobs.lookup_jid", "{jid}"],
    &["jobs.lookup_jid", "{jid}", "missing=True"],
    &["jobs.list_job", "{jid}"],
    &["jobs.print_job", "{jid}"],
    &["jobs.exit_success", "{jid}"],
    &["jobs.list_jobs", "search_function=test.echo"],
];

fn known_after_the_switch(release: Release) -> TestResult {
    let configure = |config: &mut saltern_tests::Config| {
        config.set("gather_job_timeout", 2).set("timeout", 20);
        config.set("runner_returns", false);
    };
    Site::run(Server::Stock(release), configure, |site| {
        site.bring_up(&[("m1", MinionKind::Native)])?;
        let first = site.salt(&["m1", "test.echo", "grüße", "--show-jid"])?;
        site.salt(&["-L", "m1,ghost", "test.ping", "--async"])?;
        let jid = first.jid()?.to_owned();
        let before = QUESTIONS
            .iter()
            .map(|question| {
                let words = asked(question, &jid);
                let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
                words.push("--out=json");
                Ok(serde_json::from_str(&site.salt_run(&words)?.stdout)?)
            })
            .collect::<Result<Vec<Value>>>()?;
        ensure!(
            before[0]["m1"] == "grüße",
            "stock knows its job: {before:?}"
        );
        site.kill_master();

        site.step("our master takes its place");
        site.announce("the publish connection broke");
        site.switch_to(Server::Saltern(release))?;
        site.saltern(&["check-config"])?
            .expect_text("are read into the job database by the first start")?;
        site.start_master()?;
        wait_until("the jobs to be read", SOON, || {
            let run = site.saltern(&["explain", &jid]).ok()?;
            (run.code == Some(0)).then_some(())
        })?;
        site.saltern(&["explain", &jid])?
            .expect_text("complete")?
            .expect_text("1 of 1 minions have returned")?;
        for (question, before) in QUESTIONS.iter().zip(&before) {
            let words = asked(question, &jid);
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let now = site.saltern(&[&["run", "--out", "json"], words.as_slice()].concat())?;
            let now: Value = serde_json::from_str(&now.stdout)?;
            ensure!(now == *before, "{question:?}: {now} and before {before}");
        }
        Ok(())
    })
}

fn asked(question: &[&str], jid: &str) -> Vec<String> {
    let words = question.iter();
    words.map(|word| word.replace("{jid}", jid)).collect()
}

#[test]
fn removed_job_database_is_noticed_and_loses_nothing() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |config| _ = config.set("timeout", 60),
        |site| {
            site.bring_up(&[("m1", MinionKind::Native)])?;
            let first = site
                .salt(&["m1", "test.ping", "--show-jid"])?
                .jid()?
                .to_owned();
            let database = site.path("cache/saltern/jobs.sqlite");

            site.step("it is removed while the master runs");
            site.announce("was removed or replaced while the master ran");
            // A maintenance task may be the first that meets what is gone.
            site.announce("a maintenance task failed");
            remove(&database)?;
            let second = site
                .salt(&["m1", "test.ping", "--show-jid"])?
                .jid()?
                .to_owned();
            ensure!(database.exists(), "a commit puts it back");
            site.saltern(&["doctor"])?
                .expect_code(1)?
                .expect_text("was removed or replaced while the master ran")?;
            site.kill_master();
            site.announce("the publish connection broke");
            site.announce("read");
            for jid in [&first, &second] {
                site.saltern(&["explain", jid])?
                    .expect_text("1 of 1 minions have returned")?;
            }
            site.start_master()?;
            // Until the minion is back, the job is for nobody.
            wait_until("a job after the restart", SOON, || {
                let run = site
                    .salt(&["m1", "test.ping", "-t", "2", "--out=json"])
                    .ok()?;
                run.stdout.contains("true").then_some(())
            })?;
            wait_until("the mirror", SOON, || {
                let run = site
                    .salt_run(&["jobs.lookup_jid", &second, "--out=json"])
                    .ok()?;
                run.stdout.contains("true").then_some(())
            })?;

            site.step("it is removed while no master runs");
            site.stop_master()?;
            remove(&database)?;
            site.saltern(&["doctor"])?
                .expect_code(1)?
                .expect_text("though this master had one")?;
            site.announce("there was no job database");
            site.start_master()?;
            wait_until("the jobs to be read back", SOON, || {
                let run = site.saltern(&["explain", &second]).ok()?;
                let text = "1 of 1 minions have returned";
                run.stdout.contains(text).then_some(())
            })?;
            site.saltern(&["doctor"])?
                .expect_text("there was no job database")?;
            Ok(())
        },
    )
}

fn remove(database: &Path) -> Result<()> {
    for suffix in ["", "-wal", "-shm"] {
        let mut name = database.as_os_str().to_owned();
        name.push(suffix);
        match fs::remove_file(name) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

#[test]
fn file_modes_exclude_others_unless_users_are_admitted() -> TestResult {
    for (acl, file, directory) in [("{}", 0o640, 0o750), ("{nobody: ['test.*']}", 0o644, 0o755)] {
        Site::prepared(
            Server::Saltern(Release::V3008),
            |config| {
                config.set("publisher_acl", acl).set("timeout", 60);
            },
            |site| {
                // As some starters of daemons leave it; directories as earlier releases made them.
                site.start_master_by(&["sh", "-c", "umask 0; exec \"$@\"", "sh"]);
                for name in ["cache", "run"] {
                    fs::set_permissions(site.path(name), fs::Permissions::from_mode(0o777))?;
                }
                site.announce("everybody could write in this directory");
                site.start_master()?;
                site.bring_up(&[("m1", MinionKind::Native)])?;
                site.salt(&["m1", "test.ping"])?.expect_code(0)?;
                let cache = site.path("cache/jobs");
                wait_until("the return's file", SOON, || {
                    let files = modes(&cache).ok()?;
                    let is_there = files.iter().any(|(path, _)| path.ends_with("m1/return.p"));
                    is_there.then_some(())
                })?;
                for (path, mode) in modes(&cache)? {
                    let expected = if path.is_dir() { directory } else { file };
                    ensure!(mode == expected, "{} has mode {mode:o}", path.display());
                }
                for name in ["cache", "run"] {
                    let mode = fs::metadata(site.path(name))?.permissions().mode();
                    ensure!(mode & 0o002 == 0, "{name} has mode {mode:o}");
                }
                Ok(())
            },
        )?;
    }
    Ok(())
}

/// All entries below a directory with their permissions.
fn modes(directory: &Path) -> Result<Vec<(std::path::PathBuf, u32)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let meta = fs::symlink_metadata(&path)?;
        found.push((path.clone(), meta.permissions().mode() & 0o777));
        if meta.is_dir() {
            found.extend(modes(&path)?);
        }
    }
    Ok(found)
}
