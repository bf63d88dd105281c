//! Users with different rules: what one may not do is not offered, and refused when it is tried.

use anyhow::{Context, Result, ensure};
use saltern_tests::TestResult;
use saltern_tests::browser::Browser;
use saltern_tests::site::{MinionKind, SOON, Site};
use serde_json::{Value, json};

use super::{ANN, Console, with_rules};

/// May run one function on one minion.
const BOB: (&str, &str) = ("bob", "[{bravo: [test.ping]}]");

/// May change keys, and nothing else.
const KIM: (&str, &str) = ("kim", "['@wheel']");

#[test]
fn users_are_offered_what_their_rules_allow_and_refused_the_rest() -> TestResult {
    with_rules(&[BOB, KIM], |site, console| {
        site.announce("request refused");
        let kind = MinionKind::Native;
        site.bring_up(&[("alfa", kind), ("bravo", kind)])?;
        site.start_minion("delta", kind)?;
        site.wait_pending("delta")?;
        let all = [
            "Now",
            "Jobs",
            "Minions",
            "Drift",
            "Keys",
            "Run",
            "Events",
            "Batches",
            "Orchestrations",
            "Reactor",
            "Schedule",
            "Audit",
        ];
        // One browser after the other: each is four processes.
        expect_offered(&console.logged_in(site, ANN)?, &all)?;
        bob(site, console)?;
        kim(site, console)
    })
}

/// Runs his function on his minion; keys, jobs and other functions are not for him.
fn bob(site: &Site, console: Console) -> Result<()> {
    let browser = console.logged_in(site, BOB.0)?;
    expect_offered(&browser, &["Now", "Run", "Events"])?;
    let pages = [
        "jobs",
        "minions",
        "minions/bravo",
        "keys",
        "batches",
        "drift",
        "audit",
        "audit/export",
        "orchestrations",
        "reactor",
        "schedule",
    ];
    for path in pages {
        let status = get(&browser, &format!("/console/{path}"))?;
        ensure!(status == 403, "{path} has status {status}");
    }
    let key = "pending delta";
    let form = json!({"action": "accept", "key": key, "next": "/console/"});
    let status = post(&browser, "/console/keys", form)?;
    ensure!(status == 403, "keys: {status}");
    let status = post(&browser, "/console/audit/verify", json!({}))?;
    ensure!(status == 403, "audit: {status}");
    let status = post(&browser, "/console/drift/test", json!({"minion": "bravo"}))?;
    ensure!(status == 403, "dry run: {status}");
    ensure!(
        site.path("pki/minions_pre/delta").exists(),
        "accepted by bob"
    );
    let form = json!({"letter": "00000000000000000001"});
    let status = post(&browser, "/console/reactor/replay", form)?;
    ensure!(status == 403, "replay: {status}");
    let form = json!({"mods": "orch", "mode": "test"});
    let status = post(&browser, "/console/orchestrations", form)?;
    ensure!(status == 403, "orchestration: {status}");
    for (target, function) in [
        ("bravo", "cmd.run"),
        ("alfa", "test.ping"),
        ("*", "test.ping"),
    ] {
        let form = json!({"step": "send", "tgt": target, "tgt_type": "glob", "fun": function,
            "batch": "", "args": "id", "mode": "apply", "confirm": "on"});
        let status = post(&browser, "/console/run", form)?;
        ensure!(status == 403, "{function} on {target}: {status}");
    }
    browser.open(&console.url("/console/run?tgt=bravo&fun=test.ping"))?;
    browser.click("#preview")?;
    browser.wait("document.querySelector('#send')")?;
    if browser.count("#confirm")? > 0 {
        browser.click("#confirm")?;
    }
    browser.click("#send")?;
    // He may not look at jobs; the page names the jid.
    let jid = browser.wait_for("new URLSearchParams(location.search).get('sent')")?;
    let jid = jid.as_str().context("no jid")?;
    let text = browser.text("#main")?;
    ensure!(text.contains(jid), "{text}");
    site.events()
        .tag(&format!("salt/job/{jid}/ret/bravo"), SOON)?;
    Ok(())
}

/// Sees keys alone, and accepts one with the mouse.
fn kim(site: &mut Site, console: Console) -> Result<()> {
    let browser = console.logged_in(site, KIM.0)?;
    expect_offered(&browser, &["Now", "Keys", "Run", "Events"])?;
    let status = get(&browser, "/console/jobs")?;
    ensure!(status == 403, "jobs: {status}");
    browser.click("nav a[href='/console/keys']")?;
    browser.click("#pending [data-minion=delta] input")?;
    browser.click("#accept")?;
    browser.wait("document.querySelector('#keys [data-minion=delta]')")?;
    site.wait_started("delta")
}

/// The navigation has these pages and no others.
fn expect_offered(browser: &Browser, pages: &[&str]) -> Result<()> {
    let offered = "return [...document.querySelectorAll('nav[aria-label=Pages] a')].map((link) => link.textContent)";
    let offered = browser.script(offered, &[])?;
    ensure!(offered == json!(pages), "offered are {offered}");
    Ok(())
}

fn get(browser: &Browser, path: &str) -> Result<u64> {
    let status = "return fetch(arguments[0]).then((response) => response.status)";
    status_of(&browser.script(status, &[json!(path)])?)
}

/// Posts a form as if the page had it, with the token of the session.
fn post(browser: &Browser, path: &str, form: Value) -> Result<u64> {
    let post = "
        const body = new URLSearchParams(arguments[1]);
        body.set('csrf', document.querySelector('[name=csrf]').value);
        return fetch(arguments[0], {method: 'POST', body}).then((response) => response.status)";
    status_of(&browser.script(post, &[json!(path), form])?)
}

fn status_of(status: &Value) -> Result<u64> {
    status.as_u64().context("no status")
}
