//! Every page with no minion, with three, and with thousands. `make console-shots` has its pictures
//! from here.

use anyhow::{Context, Result};
use saltern_tests::browser::{Browser, key};
use saltern_tests::site::MinionKind;
use saltern_tests::sizes::size;
use saltern_tests::{Config, Release, Site, TestResult};

use super::look::Inspector;
use super::{ANN, Console, jid, log_in, with_console};

/// Minions of the large fleet, unless `SALTERN_CONSOLE_FLEET` says otherwise.
const MANY: usize = 5_000;

#[test]
fn every_page_is_sound_without_a_minion() -> TestResult {
    with_console(
        |_, _| {},
        |site, console| {
            let browser = console.browser(site)?;
            let mut inspector = Inspector::new(&browser, console, "none")?;
            log_in_and_look(&browser, &mut inspector)?;
            look_at_all_pages(&mut inspector)?;
            inspector.open("run-preview", "/console/run?tgt=*&fun=test.ping")?;
            inspector.finish()
        },
    )
}

#[test]
fn every_page_is_sound_with_three_minions() -> TestResult {
    with_console(write_states, |site, console| {
        fill(site)?;
        let browser = console.browser(site)?;
        let mut inspector = Inspector::new(&browser, console, "three")?.thorough();
        log_in_and_look(&browser, &mut inspector)?;
        start_batch(&browser, console)?;
        look_at_all_pages(&mut inspector)?;
        look_at_parts(&browser, &mut inspector)?;
        inspector.finish()
    })
}

#[test]
fn every_page_is_sound_with_thousands_of_minions() -> TestResult {
    with_console(
        |config, _| {
            config.set("auto_accept", "True");
        },
        |site, console| {
            site.announce("every new minion is accepted");
            let _fleet = site.start_fleet("node", size("SALTERN_CONSOLE_FLEET", MANY)?, &[])?;
            let browser = console.browser(site)?;
            let mut inspector = Inspector::new(&browser, console, "many")?.without_axe();
            log_in_and_look(&browser, &mut inspector)?;
            // A job of all of them, with the tick that so many need.
            browser.open(&console.url("/console/run?tgt=*&fun=test.ping"))?;
            browser.click("#preview")?;
            browser.click("#confirm")?;
            inspector.look("run-confirm")?;
            browser.click("#send")?;
            jid(&browser)?;
            browser.wait("document.querySelector('#facts:not([data-state=running])')")?;
            inspector.look("job")?;
            for (name, path) in FLEET_PAGES {
                inspector.open(name, path)?;
            }
            inspector.open("run-preview", "/console/run?tgt=*&fun=test.ping")?;
            inspector.open("minion", "/console/minions/node-711")?;
            inspector.open("minions-target", "/console/minions?target=node-1*")?;
            inspector.finish()
        },
    )
}

/// Pages that need nothing but their address, and whose content grows with the number of minions.
const FLEET_PAGES: [(&str, &str); 8] = [
    ("now", "/console/"),
    ("jobs", "/console/jobs"),
    ("minions", "/console/minions"),
    ("keys", "/console/keys"),
    ("events", "/console/events"),
    (
        "minions-columns",
        "/console/minions?grains=os,version,address,last_job,highstate",
    ),
    ("drift", "/console/drift"),
    ("drift-unknown", "/console/drift?verdict=unknown"),
];

/// All others of them.
const OTHER_PAGES: [(&str, &str); 8] = [
    ("jobs-failed", "/console/jobs?state=failed"),
    ("run", "/console/run"),
    ("batches", "/console/batches"),
    ("audit", "/console/audit"),
    ("orchestrations", "/console/orchestrations"),
    ("reactor", "/console/reactor"),
    ("schedule", "/console/schedule"),
    ("missing", "/console/nothing-here"),
];

fn look_at_all_pages(inspector: &mut Inspector<'_>) -> Result<()> {
    for (name, path) in FLEET_PAGES.into_iter().chain(OTHER_PAGES) {
        inspector.open(name, path)?;
    }
    Ok(())
}

fn log_in_and_look(browser: &Browser, inspector: &mut Inspector<'_>) -> Result<()> {
    inspector.look("login")?;
    log_in(browser, ANN)
}

/// Pages of one job, minion, return and event, and those behind a form.
fn look_at_parts(browser: &Browser, inspector: &mut Inspector<'_>) -> Result<()> {
    let path_of = |list: &str, css: &str| -> Result<String> {
        let script = format!("document.querySelector({css:?}).getAttribute('href')");
        let path = browser.wait_for(&script);
        Ok(path
            .context(list.to_owned())?
            .as_str()
            .unwrap_or_default()
            .to_owned())
    };
    inspector.open("jobs-state", "/console/jobs?function=state.apply")?;
    let job = path_of("a job", "#jobs [data-jid] a")?;
    inspector.open("job-state", &job)?;
    inspector.open("return", &format!("{job}/minions/alfa"))?;
    inspector.open(
        "run-again",
        &job.replace("/console/jobs/", "/console/run?again="),
    )?;
    inspector.open("jobs-running", "/console/jobs?state=open")?;
    let job = path_of("a running job", "#jobs [data-jid] a")?;
    inspector.open("job-running", &job)?;
    browser.click("#kill summary")?;
    inspector.look("job-kill")?;
    inspector.open("jobs-mixed", "/console/jobs?function=cmd.run")?;
    let job = path_of("a job that failed", "#jobs [data-jid] a")?;
    inspector.open("job-failed", &job)?;
    inspector.open("minion", "/console/minions/alfa")?;
    browser.click("#show-pillar")?;
    browser.wait("document.body.innerText.includes('s3cret')")?;
    inspector.look("minion-pillar")?;
    inspector.open(
        "minions-wrong",
        "/console/minions?target=G@role:web%20and%20(",
    )?;
    inspector.open("events-tag", "/console/events?tag=ret")?;
    let event = path_of("an event", "#event-rows a")?;
    inspector.open("event", &event)?;
    look_at_automation(browser, inspector, &path_of)?;
    inspector.open("run-preview", "/console/run?tgt=*&fun=state.apply&args=web")?;
    browser.click("#batch-options summary")?;
    inspector.look("run-batch")?;
    browser.click("#preview")?;
    browser.wait("document.querySelector('#confirm-form')")?;
    inspector.look("run-confirm")?;
    inspector.open("keys", "/console/keys")?;
    browser.click("#pending tbody input")?;
    browser.click("#delete")?;
    browser.wait("document.querySelector('#confirm')")?;
    inspector.look("keys-delete")?;
    inspector.open("now", "/console/")?;
    browser.press("?")?;
    browser.wait("document.querySelector('#shortcuts[open]')")?;
    inspector.look("shortcuts")?;
    browser.press(key::ESCAPE)?;
    look_at_drift(browser, inspector)
}

/// Groups, their minions, a form for a dry run; the trail with a row that is open.
fn look_at_drift(browser: &Browser, inspector: &mut Inspector<'_>) -> Result<()> {
    inspector.open("drift-failed", "/console/drift?verdict=failed")?;
    browser.wait("document.querySelector('#minions [data-minion=alfa]')")?;
    inspector.open("drift", "/console/drift")?;
    browser.click("#groups .test summary")?;
    inspector.look("drift-test")?;
    browser.click("#groups td a")?;
    browser.wait("document.querySelector('#group')")?;
    inspector.look("drift-group")?;
    inspector.open("audit", "/console/audit?function=state.*")?;
    browser.click("#audit summary")?;
    browser.click("#verify")?;
    browser.wait("document.querySelector('#verified')")?;
    browser.click("#audit summary")?;
    inspector.look("audit-verified")
}

/// Pages of what the master does by itself, with what is folded in them open.
fn look_at_automation(
    browser: &Browser,
    inspector: &mut Inspector<'_>,
    path_of: &impl Fn(&str, &str) -> Result<String>,
) -> Result<()> {
    inspector.open("reactor", "/console/reactor")?;
    browser.click("#letters summary")?;
    inspector.look("reactor-letter")?;
    inspector.open("schedule", "/console/schedule")?;
    browser.click("#schedule [data-job='clean up'] summary")?;
    inspector.look("schedule-job")?;
    inspector.open("orchestrations", "/console/orchestrations")?;
    let running = path_of("an orchestration that runs", "#running [data-jid] a")?;
    let ended = path_of("an orchestration that ended", "#ended [data-jid] a")?;
    browser.click("#start summary")?;
    inspector.look("orchestration-start")?;
    inspector.open("orchestration-running", &running)?;
    inspector.open("orchestration", &ended)
}

/// A batch with minions to come, which stays so.
fn start_batch(browser: &Browser, console: Console) -> Result<()> {
    browser.open(&console.url("/console/run?tgt=*&fun=test.sleep&args=3000&batch=1"))?;
    browser.click("#preview")?;
    browser.click("#send")?;
    browser.wait("location.pathname == '/console/batches'")
}

/// A state that changes files, and one that fails; a pillar with a secret.
fn write_states(config: &mut Config, _: Console) {
    let root = config.get("root_dir").unwrap_or_default().to_owned();
    let write = |name: &str, text: &str| {
        let path = std::path::Path::new(&root).join(name);
        let directory = path.parent().expect("it is below the root");
        std::fs::create_dir_all(directory).expect("the site has a directory");
        std::fs::write(path, text).expect("the site has a directory");
    };
    write(
        "srv/web.sls",
        &format!(
            "front page:\n  file.managed:\n    - name: {root}/www/index.html\n    - contents: |\n        <h1>It works</h1>\n        \
             Served by {{{{ grains.id }}}}.\n    - makedirs: True\n\
             site is up:\n  test.succeed_without_changes\n\
             version is recorded:\n  test.succeed_with_changes\n\
             certificate is valid:\n  test.fail_without_changes:\n    - comment: it ended three days ago\n"
        ),
    );
    write("srv/top.sls", "base:\n  alfa:\n    - web\n");
    write("pillar/top.sls", "base:\n  '*':\n    - web\n");
    write(
        "pillar/web.sls",
        "db:\n  user: web\n  password: s3cret\nworkers: 8\n",
    );
    write_automation(config, &write);
    config
        .set("file_roots", format!("{{base: [{root}/srv]}}"))
        .set("pillar_roots", format!("{{base: [{root}/pillar]}}"));
}

/// Rules of the reactor, one of which fails; a schedule; and an orchestration.
fn write_automation(config: &mut Config, write: &impl Fn(&str, &str)) {
    write(
        "reactor/deploy.sls",
        "roll out:\n  local.test.ping:\n    - tgt: alfa\n",
    );
    write(
        "reactor/clean.sls",
        "clean up:\n  local.test.ping:\n    - tgt: {{ data['nothing']['there'] }}\n",
    );
    write(
        "srv/orch/deploy.sls",
        "drain the balancer:\n  salt.function:\n    - name: test.ping\n    - tgt: bravo\n\
         web servers:\n  salt.state:\n    - tgt: alfa\n    - sls: web\n\
         announce it:\n  salt.runner:\n    - name: test.arg\n",
    );
    write(
        "srv/orch/slow.sls",
        "drain the balancer:\n  salt.function:\n    - name: test.ping\n    - tgt: bravo\n\
         migrate the database:\n  salt.function:\n    - name: test.sleep\n    - tgt: charlie\n    - arg: [3000]\n    - timeout: 3000\n",
    );
    let root = config.get("root_dir").unwrap_or_default().to_owned();
    let python = Release::V3008.program("python");
    config
        .set(
            "reactor",
            format!(
                "[{{'deploy/*': [{root}/reactor/deploy.sls]}}, \
                 {{'disk/full': [{root}/reactor/clean.sls]}}]"
            ),
        )
        .set(
            "schedule",
            "{clean up: {function: test.arg, args: [cache], hours: 6, run_on_start: True}, \
              check mirrors: {function: no.such_function, hours: 1, run_on_start: True}, \
              report: {function: jobs.list_jobs, minutes: 30, enabled: False}}",
        )
        .set("python_bridge", python.display());
}

/// Events for the reactor, and orchestrations that ended and that run.
fn fill_automation(site: &mut Site) -> Result<()> {
    site.announce("a reaction failed");
    site.announce("a scheduled job failed");
    site.announce("is no runner function of Salt");
    // Python's log has the state that fails.
    site.announce("text=salt.state");
    for tag in ["deploy/web", "deploy/db", "disk/full"] {
        site.saltern(&["run", "event.send", tag])?.expect_code(0)?;
    }
    // Its exit code is that of the state that fails.
    site.saltern(&["run", "state.orchestrate", "orch.deploy"])?;
    site.saltern(&["run", "--async", "state.orchestrate", "orch.slow"])?
        .expect_code(0)?;
    Ok(())
}

/// Three minions and a key that waits; jobs that succeeded, that failed and that run.
fn fill(site: &mut Site) -> Result<()> {
    let release = Release::V3008;
    site.bring_up(&[
        ("alfa", MinionKind::Stock(release)),
        ("bravo", MinionKind::Native),
        ("charlie", MinionKind::Native),
    ])?;
    site.start_minion("delta", MinionKind::Native)?;
    site.wait_pending("delta")?;
    // It would ask every second, and fill the page of events.
    site.kill_minion("delta");
    site.saltern_cmd(&["-t", "60", "*", "test.ping"])?
        .expect_code(0)?;
    // Its exit code is that of the state that fails.
    for words in [
        &["alfa", "state.apply", "web"][..],
        &["alfa", "state.apply"],
        &["alfa", "mine.send", "test.ping"],
        &["*", "cmd.run", "echo no route to host; exit 3"],
    ] {
        site.saltern_cmd(&[&["-t", "60"], words].concat())?;
    }
    site.saltern_cmd(&["--async", "bravo", "test.sleep", "3000"])?
        .expect_code(0)?;
    fill_automation(site)
}
