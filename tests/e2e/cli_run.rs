//! `salt-run`, stock's beside ours: the same command lines under the same running master of ours.
//! Standard output and exit code are equal.

use anyhow::{Result, ensure};
use saltern_tests::process::{Run, run};
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Release, Server, Site, TestResult};

#[test]
fn salt_run_of_3006_prints_what_stock_does() -> TestResult {
    compare(Release::V3006)
}

#[test]
fn salt_run_of_3008_prints_what_stock_does() -> TestResult {
    compare(Release::V3008)
}

/// The command lines; `JID` is a job of both minions.
const LINES: &[&[&str]] = &[
    &[
        "test.arg",
        "one",
        "2",
        "three=[3, null]",
        "--no-parse=four",
        "four=4",
    ],
    &["test.arg", "one", "--out=json"],
    &[
        "test.arg",
        "one",
        "k=[1, two, null]",
        "--out=json",
        "--out-indent=0",
    ],
    &["test.arg", "one", "k={a: 1.5, b: true}", "--out=yaml"],
    &["manage.status", "--out=raw"],
    &["manage.status", "--out=txt"],
    &["manage.status", "--out=pprint"],
    &["jobs.print_job", "JID", "--out=pprint"],
    &["jobs.list_job", "JID", "--out=pprint"],
    &["test.arg", "one", "--out=quiet"],
    &["manage.status", "--out=yaml"],
    &["test.arg", "--out=nested", "x", "--quiet"],
    &["manage.up"],
    &["manage.down"],
    &["manage.status"],
    &["manage.status", "--out", "json"],
    &["manage.up", "--force-color"],
    &["jobs.lookup_jid", "JID"],
    &["jobs.print_job", "JID"],
    &["jobs.list_job", "JID"],
    &["jobs.exit_success", "JID"],
    &["jobs.active"],
    &["cache.mine", "*"],
    &["fileserver.envs"],
    &["fileserver.file_list"],
    &["nobody.knows"],
    &["nobody"],
    &["-d", "one", "two"],
    &["--jid=1", "test.arg"],
    &["--no-such-option"],
];

fn compare(release: Release) -> TestResult {
    Site::run(
        Server::Saltern(release),
        |_| {},
        |site| {
            site.bring_up(&[("m1", MinionKind::Native), ("m2", MinionKind::Native)])?;
            let published = site.salt(&["*", "test.ping", "--async"])?;
            let jid = published
                .stdout
                .split_whitespace()
                .last()
                .unwrap_or_default()
                .to_owned();
            site.salt(&["-t", "60", "*", "test.ping"])?.expect_code(0)?;
            // What stock's reads comes later than what ours does.
            for id in ["m1", "m2"] {
                site.wait_until_mirrored(&jid, id)?;
            }
            let mut differences = Vec::new();
            for line in LINES {
                let words: Vec<&str> = line
                    .iter()
                    .map(|word| match *word {
                        "JID" => jid.as_str(),
                        word => word,
                    })
                    .collect();
                let stock = site.salt_run(&words)?;
                let ours = own(site, &words)?;
                if (&stock.stdout, stock.code) != (&ours.stdout, ours.code) {
                    differences.push(format!("{stock}\n{ours}"));
                }
            }
            ensure!(differences.is_empty(), "{}", differences.join("\n\n"));
            Ok(())
        },
    )
}

fn own(site: &Site, words: &[&str]) -> Result<Run> {
    run(&mut site.own_command("salt-run", words), SOON)
}

/// A user who logs in runs what the rules of that user permit.
#[test]
fn salt_run_with_eauth_is_what_the_user_may() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |config| {
            let rights = "{sharedsecret: {ana: ['@runner'], eve: ['test.ping']}}";
            config
                .set("external_auth", rights)
                .set("sharedsecret", "'open sesame'");
        },
        |site| {
            let as_user = |site: &Site, user: &str| {
                let login = [
                    "-a",
                    "sharedsecret",
                    "--username",
                    user,
                    "--password=open sesame",
                ];
                own(site, &[&login[..], &["test.arg", "one"]].concat())
            };
            as_user(site, "ana")?.expect_code(0)?.expect_text("- one")?;
            site.announce("eve");
            let eve = as_user(site, "eve")?;
            eve.expect_code(1)?;
            ensure!(!eve.stdout.contains("- one"), "{eve}");
            Ok(())
        },
    )
}

/// Functions of the job database need no master; others say what they need.
#[test]
fn salt_run_works_without_a_running_master() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |_| {},
        |site| {
            site.bring_up(&[("m1", MinionKind::Native)])?;
            let published = site.salt(&["m1", "test.ping", "--async"])?;
            let jid = published
                .stdout
                .split_whitespace()
                .last()
                .unwrap_or_default()
                .to_owned();
            site.events().tag(&format!("salt/job/{jid}/ret/m1"), SOON)?;
            let before = own(site, &["jobs.lookup_jid", &jid])?;
            before.expect_stdout("m1:\n    True")?;
            site.kill_minion("m1");
            site.stop_master()?;
            let after = own(site, &["jobs.lookup_jid", &jid])?;
            after.expect_code(0)?.expect_stdout("m1:\n    True")?;
            own(site, &["manage.up"])?.expect_text("ask the master")?;
            Ok(())
        },
    )
}

/// Stock's process prints a list of any length: its value takes no way over the event bus.
#[test]
fn list_of_jobs_beyond_an_event_is_whole() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |config| _ = config.set("max_event_size", 2000),
        |site| {
            site.bring_up(&[("m1", MinionKind::Native)])?;
            for _ in 0..12 {
                site.saltern_cmd(&["m1", "test.ping"])?.expect_code(0)?;
            }
            let run = own(site, &["jobs.list_jobs"])?;
            run.expect_code(0)?;
            ensure!(!run.stderr.contains("VALUE_TRIMMED"), "{run}");
            ensure!(run.stdout.matches("StartTime:").count() >= 12, "{run}");
            Ok(())
        },
    )
}
