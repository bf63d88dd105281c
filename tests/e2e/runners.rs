//! `jobs.*` of our master beside stock's on the same jobs: ours answers from its database, stock's
//! `salt-run` reads the job files that our master mirrors.

use anyhow::{Context, Result, ensure};
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Release, Server, Site, TestResult, wait_until};
use serde_json::{Value, json};

#[test]
fn jobs_of_3006_are_told_as_stock_tells_them() -> TestResult {
    compare(Release::V3006)
}

#[test]
fn jobs_of_3007_are_told_as_stock_tells_them() -> TestResult {
    compare(Release::V3007)
}

#[test]
fn jobs_of_3008_are_told_as_stock_tells_them() -> TestResult {
    compare(Release::V3008)
}

/// Questions; `{jid}` is the first job.
const QUESTIONS: &[&[&str]] = &[
    &["jobs.list_jobs"],
    &["jobs.list_jobs", "search_function=test.*,cmd.run"],
    &["jobs.list_jobs", "search_target=m*"],
    &["jobs.list_jobs", "search_target=[m1, other]"],
    &["jobs.list_jobs", "search_metadata={who: me}"],
    &["jobs.list_jobs", "start_time=2020, Mar 16 19:00"],
    &["jobs.list_jobs", "end_time=2020-03-16 19:00:00"],
    &["jobs.list_jobs_filter", "2"],
    &["jobs.list_job", "{jid}"],
    &["jobs.list_job", "20200101000000000000"],
    &["jobs.print_job", "{jid}"],
    &["jobs.lookup_jid", "{jid}"],
    &["jobs.lookup_jid", "{jid}", "missing=True"],
    &["jobs.lookup_jid", "20200101000000000000"],
    &["jobs.exit_success", "{jid}"],
    &["jobs.last_run", "function=test.echo"],
    &["jobs.last_run", "target=m1", "metadata={who: me}"],
    &["jobs.last_run", "function=no.such"],
];

fn compare(release: Release) -> TestResult {
    let configure = |config: &mut saltern_tests::Config| {
        config.set("gather_job_timeout", 2).set("timeout", 2);
        // Each question would become a job, and the next answers differ.
        config.set("runner_returns", false);
        config.set("job_cache_store_endtime", true);
    };
    Site::run(Server::Saltern(release), configure, |site| {
        site.bring_up(&[("m1", MinionKind::Stock(release))])?;
        let mark = site.events().mark();
        let first = site.salt(&["m1", "cmd.run", "echo oops; exit 3", "--show-jid"])?;
        site.salt(&["m1", "test.echo", "grüße", "--metadata={who: me}"])?;
        site.salt(&["-L", "m1,ghost", "test.ping", "--async"])?;
        site.events()
            .find_since(mark, "the last return", SOON, |event| {
                (event.tag.ends_with("/ret/m1") && event.data["fun"] == "test.ping").then_some(())
            })?;
        let jid = first
            .stdout
            .split(|c: char| !c.is_ascii_digit())
            .find(|part| part.len() == 20)
            .context("the command shows its jid")?
            .to_owned();
        files_are_there(site, &jid)?;
        let mut differences = Vec::new();
        for question in QUESTIONS {
            let words: Vec<String> = question
                .iter()
                .map(|word| word.replace("{jid}", &jid))
                .collect();
            let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
            let ours = site.saltern(&[&["run", "--out", "json"], words.as_slice()].concat())?;
            words.push("--out=json");
            let stock = site.salt_run(&words)?;
            let (ours, stock) = (parsed(&ours.stdout)?, parsed(&stock.stdout)?);
            if ours != stock {
                differences.push(format!("{words:?}\nstock: {stock}\nours:  {ours}"));
            }
        }
        ensure!(differences.is_empty(), "{}", differences.join("\n\n"));
        Ok(())
    })
}

/// Waits until the mirror has written everything: stock's answer then has the job's return.
fn files_are_there(site: &Site, jid: &str) -> Result<()> {
    wait_until("the job files", SOON, || {
        let lag = site.saltern(&["metrics"]).ok()?.stdout;
        let lag = lag
            .lines()
            .find_map(|line| line.strip_prefix("saltern_mirror_lag_rows "))?;
        (lag.trim() == "0").then_some(())
    })
    .with_context(|| format!("job {jid}"))
}

fn parsed(text: &str) -> Result<Value> {
    serde_json::from_str(text).with_context(|| format!("no JSON: {text}"))
}

#[test]
fn stocks_own_client_runs_functions_here() -> TestResult {
    let release = Release::V3008;
    Site::run(
        Server::Saltern(release),
        |_| {},
        |site| {
            site.bring_up(&[("m1", MinionKind::Stock(release))])?;
            site.salt(&["m1", "test.ping"])?;
            let mark = site.events().mark();
            let mut client = site.client()?;
            let mut run = |argument: &str| {
                let low = json!({"fun": "jobs.list_jobs", "arg": [argument]});
                client.call(&json!({ "runner": low }))
            };
            let answer = run("search_function=test.ping")?;
            let jobs = answer.as_object().context("jobs by their jids")?;
            ensure!(jobs.len() == 1, "{answer}");
            let end = site
                .events()
                .find_since(mark, "the end of the call", SOON, |event| {
                    event.tag.starts_with("salt/run/").then(|| event.clone())
                })?;
            ensure!(end.data["fun"] == "runner.jobs.list_jobs", "{}", end.data);
            // The call itself is kept as a job of the master.
            let kept = run("search_function=runner.*")?;
            ensure!(
                kept.as_object().is_some_and(|kept| !kept.is_empty()),
                "{kept}"
            );
            let unknown = site.saltern(&["run", "no.such"])?;
            ensure!(unknown.code == Some(1), "{:?}", unknown.code);
            ensure!(unknown.stdout.contains("no.such"), "{}", unknown.stdout);
            Ok(())
        },
    )
}
