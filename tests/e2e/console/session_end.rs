//! The end of a session: by its time, and by a log-out in another window.

use anyhow::{Result, ensure};
use saltern_tests::browser::Browser;
use saltern_tests::site::SOON;
use saltern_tests::{TestResult, wait_until};

use super::{ANN, PASSWORD, log_in, with_console};

/// The log-in, which leads back to where the session has ended.
const ASKED_TO_LOG_IN: &str =
    "document.querySelector('#login') && document.querySelector('[name=next]').value";

#[test]
fn session_that_has_ended_leads_from_an_open_page_to_the_log_in_and_back() -> TestResult {
    with_console(
        |config, _| {
            // Long enough for a busy machine to show a page.
            config.set("token_expire", 60);
        },
        |site, console| {
            let browser = console.logged_in(site, ANN)?;
            browser.click("nav a[href='/console/jobs']")?;
            // Nobody touches the page: its stream says that the session has ended.
            expect_log_in(&browser, "/console/jobs")?;
            log_in(&browser, ANN)?;
            browser.wait("location.pathname === '/console/jobs'")
        },
    )
}

#[test]
fn session_that_the_next_master_does_not_know_leads_to_the_log_in() -> TestResult {
    with_console(
        |_, _| {},
        |site, console| {
            let browser = console.logged_in(site, ANN)?;
            browser.click("nav a[href='/console/events']")?;
            browser.wait("document.querySelector('#events-state[data-on]')")?;
            site.kill_master();
            std::fs::remove_dir_all(site.path("cache/saltern_console_sessions"))?;
            site.start_master()?;
            // Its stream is refused, where one that breaks is opened again.
            expect_log_in(&browser, "/console/events")
        },
    )
}

#[test]
fn log_out_ends_the_streams_of_other_windows_and_the_token() -> TestResult {
    with_console(
        |_, _| {},
        |site, console| {
            let browser = console.logged_in(site, ANN)?;
            browser.click("nav a[href='/console/events']")?;
            browser.wait("document.querySelector('#events-state[data-on]')")?;
            let log_out = "
                const body = new URLSearchParams({csrf: document.querySelector('[name=csrf]').value});
                return fetch('/console/logout', {method: 'POST', body}).then((response) => response.status)";
            let status = browser.script(log_out, &[])?;
            ensure!(status == 200, "log-out: {status}");
            expect_log_in(&browser, "/console/events")?;
            wait_until("all streams to be closed", SOON, || {
                (site.metric("saltern_http_streams", "").ok()? == 0.0).then_some(())
            })?;
            // What was typed is not kept.
            let page = browser.script("return document.documentElement.outerHTML", &[])?;
            ensure!(
                !page.to_string().contains(PASSWORD),
                "the password is in the page"
            );
            Ok(())
        },
    )
}

fn expect_log_in(browser: &Browser, next: &str) -> Result<()> {
    let asked = browser.wait_for(ASKED_TO_LOG_IN)?;
    ensure!(asked == next, "it leads back to {asked}");
    Ok(())
}
