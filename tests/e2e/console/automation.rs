//! Reactor, schedule and orchestrations, and rows of a job that grows: as a user sees them in a browser.

use anyhow::{Context, Result, ensure};
use saltern_tests::browser::Browser;
use saltern_tests::{Config, Release, Site, TestResult, until_exists};
use serde_json::json;

use super::{ANN, Console, three_minions, with_console};

fn write(config: &Config, name: &str, text: &str) {
    let root = config.get("root_dir").unwrap_or_default();
    let path = std::path::Path::new(root).join(name);
    let directory = path.parent().expect("it is below the root");
    std::fs::create_dir_all(directory).expect("the site has a directory");
    std::fs::write(path, text).expect("the site has a directory");
}

#[test]
fn dead_letter_is_replayed_from_its_page_once_the_file_is_right() -> TestResult {
    with_console(
        |config, _| {
            let root = config.get("root_dir").unwrap_or_default().to_owned();
            write(
                config,
                "reactor/full.sls",
                "full:\n  local.test.ping: {{ nothing.there }}\n",
            );
            config.set(
                "reactor",
                format!("[{{'disk/full': [{root}/reactor/full.sls]}}]"),
            );
        },
        |site, console| {
            site.announce("a reaction failed");
            three_minions(site)?;
            let browser = console.logged_in(site, ANN)?;
            browser.open(&console.url("/console/reactor"))?;
            browser.wait("document.querySelector('#live-state[data-on]')")?;
            console.send_event("disk/full", &json!({"disk": "/var"}))?;
            // Nobody loads the page again: events do.
            browser.wait("document.querySelector('#letters [data-letter]')")?;
            browser.wait("document.querySelector('#latest .pill.bad')")?;
            browser.click("#letters summary")?;
            let right = "full:\n  local.test.ping:\n    - tgt: '*'\n";
            std::fs::write(site.path("reactor/full.sls"), right)?;
            browser.click("#letters [data-letter] form button.primary")?;
            browser.wait("!document.querySelector('#letters')")?;
            browser.wait("document.querySelector('#latest .pill.ok')")?;
            browser.click("#latest .pill.ok ~ * a, #latest tr:has(.pill.ok) a")?;
            browser.wait("document.querySelector('#facts[data-state=complete]')")
        },
    )
}

#[test]
fn schedule_shows_the_runs_of_each_job() -> TestResult {
    with_console(
        |config, _| {
            config.set(
                "schedule",
                "{often: {function: test.arg, args: [x], seconds: 1}, \
                  never: {function: test.arg, hours: 1, enabled: False}, \
                  wrong: {function: no.such, seconds: 3600, run_on_start: True}}",
            );
        },
        |site, console| {
            site.announce("a scheduled job failed");
            site.announce("is no runner function of Salt");
            // A run each second meets the stop, before a runner has taken it.
            site.announce("a call of a runner function was lost");
            let browser = console.logged_in(site, ANN)?;
            browser.open(&console.url("/console/schedule"))?;
            let state = |job: &str, tone: &str| {
                browser.wait(&format!(
                    "document.querySelector('#schedule [data-job={job}] > summary .pill.{tone}')"
                ))
            };
            state("often", "ok")?;
            state("wrong", "bad")?;
            state("never", "mute")?;
            browser.click("#schedule [data-job=often] summary")?;
            // Runs come in while the row is open.
            browser.wait(
                "document.querySelectorAll('[data-job=often][open] .runs tbody tr').length >= 3",
            )?;
            // Runs before a restart are there after it: this one runs once at each start.
            site.stop_master()?;
            site.start_master()?;
            console.wait()?;
            browser.open(&console.url("/console/schedule"))?;
            browser
                .wait("document.querySelectorAll('[data-job=wrong] .runs tbody tr').length === 2")
        },
    )
}

#[test]
fn orchestration_shows_its_steps_and_then_its_report() -> TestResult {
    with_console(
        |config, _| {
            let root = config.get("root_dir").unwrap_or_default().to_owned();
            write(
                config,
                "srv/deploy.sls",
                &format!(
                    "drain:\n  salt.function:\n    - name: test.ping\n    - tgt: alfa\n\
                     wait:\n  salt.function:\n    - name: cmd.run\n    - tgt: bravo\n    - arg:\n      - 'until [ -e {root}/go ]; do sleep 0.1; done'\n"
                ),
            );
            config
                .set("file_roots", format!("{{base: [{root}/srv]}}"))
                .set("python_bridge", Release::V3008.program("python").display());
        },
        |site, console| {
            three_minions(site)?;
            let browser = console.logged_in(site, ANN)?;
            browser.open(&console.url("/console/orchestrations"))?;
            browser.wait("document.querySelector('#live-state[data-on]')")?;
            browser.click("#start summary")?;
            browser.fill("#mods", "deploy")?;
            browser.click("#confirm")?;
            browser.click("#start-now")?;
            let row = "document.querySelector('#running [data-jid] a')";
            let path = browser.wait_for(&format!("{row}?.getAttribute('href')"))?;
            let path = path.as_str().context("no path")?.to_owned();
            browser.click("#running [data-jid] a")?;
            let step = |name: &str, tone: &str| {
                format!(
                    "document.querySelector(\"#steps tr:has(.pill.{tone})[data-step='{name}']\")"
                )
            };
            // The result of the first step, while the second one runs.
            browser.wait(&step("cmd.run", "run"))?;
            browser.wait(&step("drain", "ok"))?;
            ensure!(browser.count("#report")? == 0, "{path}");
            std::fs::write(site.path("go"), "")?;
            browser.wait("document.querySelectorAll('#report .state').length === 2")?;
            browser.wait("document.querySelector('#facts[data-state=succeeded]')")?;
            // Each step links to its job.
            ensure!(
                browser.count("#report .links a[href^='/console/jobs/']")? == 2,
                "{path}"
            );
            command_line_names_the_page(site, console)
        },
    )
}

/// Our own command lines print the address of the page, stock's do not.
fn command_line_names_the_page(site: &Site, console: Console) -> Result<()> {
    let run = site.saltern(&["run", "state.orchestrate", "deploy"])?;
    let page = console.url("/console/orchestrations/");
    ensure!(
        run.stderr.contains(&page) && !run.stdout.contains(&page),
        "{run}"
    );
    let page = console.url("/console/jobs/");
    let sent = site.saltern_cmd(&["*", "test.ping"])?;
    ensure!(
        sent.stderr.contains(&page) && !sent.stdout.contains(&page),
        "{sent}"
    );
    let sent = site.saltern_cmd(&["--async", "*", "test.ping"])?;
    ensure!(sent.stderr.contains(&page), "{sent}");
    let jid = sent
        .stderr
        .trim()
        .rsplit('/')
        .next()
        .context("no jid")?
        .to_owned();
    for command in ["follow", "explain"] {
        let said = site.saltern(&[command, &jid])?;
        ensure!(said.stderr.contains(&format!("{page}{jid}")), "{said}");
    }
    let stock = site.salt(&["*", "test.ping"])?;
    ensure!(
        !stock.stderr.contains(&page) && !stock.stdout.contains(&page),
        "{stock}"
    );
    Ok(())
}

/// A row that was opened stays open with what it shows, while returns of others come in.
#[test]
fn rows_of_a_job_stay_open_while_returns_come_in() -> TestResult {
    with_console(
        |config, _| {
            config.set("auto_accept", "True");
        },
        |site, console| {
            site.announce("every new minion is accepted");
            let _fleet = site.start_fleet("node", 30, &[])?;
            let (lock, go) = (site.path("lock"), site.path("go"));
            // The first one waits, the others return at once.
            let wait = format!(
                "mkdir {} 2>/dev/null || exit 0; {}",
                lock.display(),
                until_exists(&go)
            );
            let browser = console.logged_in(site, ANN)?;
            let sent = site.saltern_cmd(&["--async", "*", "cmd.run", &wait])?;
            let jid = sent.stdout.trim().rsplit(' ').next().context("no jid")?;
            browser.open(&console.url(&format!("/console/jobs/{jid}")))?;
            browser.wait("document.querySelectorAll('[data-minion][data-load]').length === 29")?;
            browser
                .wait("document.querySelectorAll('[data-minion]:has(.pill.run)').length === 1")?;
            let of = |css: &str| -> Result<String> {
                let id = browser.script(
                    "return document.querySelector(arguments[0]).dataset.minion",
                    &[json!(css)],
                )?;
                Ok(id.as_str().context("no minion")?.to_owned())
            };
            let slow = of("[data-minion]:has(.pill.run)")?;
            let quick = of("[data-minion][data-load]")?;
            browser.click(&format!("[data-minion={quick}] summary"))?;
            let loaded = |id: &str| {
                format!("document.querySelector('[data-minion={id}][open] .body .return')")
            };
            browser.wait(&loaded(&quick))?;
            browser.click(&format!("[data-minion={slow}] summary"))?;
            move_away(&browser)?;
            std::fs::write(&go, "")?;
            browser.wait("document.querySelector('#facts[data-state=complete]')")?;
            // What was loaded is still there, and the one that was open meanwhile shows its return.
            browser.wait(&loaded(&quick))?;
            browser.wait(&loaded(&slow))
        },
    )
}

/// Rows under the pointer, or with the focus, do not move.
fn move_away(browser: &Browser) -> Result<()> {
    browser.script("document.activeElement.blur()", &[])?;
    browser.script("document.querySelector('#main').scrollIntoView()", &[])?;
    browser.click("h1")
}
