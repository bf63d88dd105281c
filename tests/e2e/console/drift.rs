//! Drift and the audit trail in a browser: a dry run finds what a run then corrects, and both stand in
//! the trail, which is verified and exported.

use anyhow::{Context, Result, ensure};
use saltern_tests::browser::Browser;
use saltern_tests::site::{MinionKind, Site};
use saltern_tests::{Config, Release, TestResult};
use serde_json::{Value, json};

use super::{ANN, Console, expect_no_complaint, jid, with_users};

#[test]
fn drift_is_found_by_a_dry_run_and_corrected_by_a_run() -> TestResult {
    with_users(&[], write_state, |site, console| {
        site.bring_up(&[
            ("alfa", MinionKind::Stock(Release::V3008)),
            ("bravo", MinionKind::Native),
        ])?;
        let browser = console.logged_in(site, ANN)?;
        browser.open(&console.url("/console/drift?verdict=unknown"))?;
        browser.wait("document.querySelectorAll('#minions [data-row]').length === 2")?;

        dry_run(&browser, "#minions [data-minion=alfa]")?;
        expect_verdict(&browser, console, "drifted")?;
        let text = browser.text("#groups")?;
        ensure!(text.contains("file.managed motd"), "{text}");

        site.saltern_cmd(&["-t", "60", "alfa", "state.apply"])?
            .expect_code(0)?;
        expect_verdict(&browser, console, "corrected")?;
        // All minions with this result: it is one.
        dry_run(&browser, "#groups [data-group^=corrected]")?;
        browser.open(&console.url("/console/drift?verdict=in_line"))?;
        browser.wait("document.querySelector('#minions [data-minion=alfa]')")?;
        browser.open(&console.url("/console/minions/alfa"))?;
        let files = browser.text("#files")?;
        ensure!(files.contains("motd"), "{files}");
        expect_no_complaint(&browser, "drift")?;
        audit(&browser, site, console)
    })
}

/// Opens the form of a row and sends it; waits until the job is over.
fn dry_run(browser: &Browser, row: &str) -> Result<()> {
    browser.click(&format!("{row} .test summary"))?;
    browser.click(&format!("{row} .test button.primary"))?;
    jid(browser)?;
    browser.wait("document.querySelector('#facts:not([data-state=running])')")
}

/// There is one group, with this verdict.
fn expect_verdict(browser: &Browser, console: Console, verdict: &str) -> Result<()> {
    browser.open(&console.url("/console/drift"))?;
    let group = format!("document.querySelector('#groups [data-group^={verdict}]')");
    browser.wait(&group)?;
    let groups = browser.count("#groups [data-group]")?;
    ensure!(groups == 1, "{groups} groups");
    Ok(())
}

/// The runs stand in the trail; its chain is verified by a click, which is noted for all.
fn audit(browser: &Browser, site: &Site, console: Console) -> Result<()> {
    browser.open(&console.url("/console/audit?user=ann&door=console&function=state.apply"))?;
    let rows = browser.count("#audit [data-row]")?;
    ensure!(rows == 2, "{rows} rows of dry runs");
    browser.open(&console.url("/console/audit"))?;
    browser.click("#verify")?;
    browser.wait("document.querySelector('#verified')")?;
    let verified = browser.text("#verified")?;
    ensure!(verified.contains("by ann"), "{verified}");
    let export = "return fetch(document.querySelector('#export').getAttribute('href'))
        .then((response) => response.text())";
    let export = browser.script(export, &[])?;
    let exported = export.as_str().context("no text")?;
    let lines: Vec<Value> = exported
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    let of_run = |line: &&Value| line["fun"] == json!("state.apply");
    let count = lines.iter().filter(of_run).count();
    ensure!(count == 3, "{count} rows of runs in {exported}");
    // The command line prints the same lines, from the first one on.
    let printed = site.saltern(&["audit", "--json", "--limit", "1000"])?;
    let mut printed: Vec<Value> = printed
        .stdout
        .lines()
        .map(serde_json::from_str)
        .collect::<Result<_, _>>()?;
    printed.reverse();
    let same = printed.ends_with(&lines);
    ensure!(same, "{printed:?} is not {lines:?}");
    Ok(())
}

/// A highstate of one file.
fn write_state(config: &mut Config, _: Console) {
    let root = config.get("root_dir").unwrap_or_default().to_owned();
    let states = format!("{root}/srv");
    std::fs::create_dir_all(&states).expect("the site has a directory");
    let write = |name: &str, text: &str| {
        std::fs::write(format!("{states}/{name}"), text).expect("the site has a directory");
    };
    write("top.sls", "base:\n  '*':\n    - motd\n");
    let state = format!("motd:\n  file.managed:\n    - name: {root}/motd\n    - contents: hello\n");
    write("motd.sls", &state);
    config.set("file_roots", format!("{{base: [{states}]}}"));
}
