//! The page of events: paused, it counts what comes; going on, it has lost nothing.

use anyhow::{Result, ensure};
use saltern_tests::TestResult;
use saltern_tests::browser::Browser;
use serde_json::json;

use super::{ANN, Console, expect_no_complaint, with_console};

/// Events of one stretch.
const COUNT: usize = 25;

#[test]
fn paused_events_are_counted_and_all_shown_afterwards() -> TestResult {
    with_console(
        |_, _| {},
        |site, console| {
            let browser = console.logged_in(site, ANN)?;
            browser.open(&console.url("/console/events?tag=build/*"))?;
            browser.wait("document.querySelector('#events-state[data-on]')")?;
            send(console, 0)?;
            expect_rows(&browser, COUNT)?;
            browser.click("#pause")?;
            send(console, COUNT)?;
            let counted = format!("{COUNT} events since the pause");
            browser.wait(&format!(
                "document.querySelector('#events-state').textContent === '{counted}'"
            ))?;
            expect_rows(&browser, COUNT)?;
            browser.click("#pause")?;
            expect_rows(&browser, 2 * COUNT)?;
            send(console, 2 * COUNT)?;
            expect_rows(&browser, 3 * COUNT)?;
            // One in full, as its data was sent.
            browser.click("#event-rows tr:first-child a")?;
            browser.wait("location.pathname.startsWith('/console/events/')")?;
            let data = browser.text("pre.value")?;
            let last = 3 * COUNT - 1;
            ensure!(data.contains(&format!("\"number\": {last}")), "{data}");
            expect_no_complaint(&browser, "events")
        },
    )
}

fn send(console: Console, from: usize) -> Result<()> {
    (from..from + COUNT).try_for_each(|number| {
        console.send_event(&format!("build/{number}"), &json!({"number": number}))
    })
}

/// Exactly the first events are shown, each once, the newest first.
fn expect_rows(browser: &Browser, count: usize) -> Result<()> {
    browser.wait(&format!(
        "document.querySelectorAll('#event-rows tr').length >= {count}"
    ))?;
    let tags = "return [...document.querySelectorAll('#event-rows tr a:first-child')].map((link) => link.title)";
    let tags = browser.script(tags, &[])?;
    let wanted: Vec<String> = (0..count)
        .rev()
        .map(|number| format!("build/{number}"))
        .collect();
    ensure!(tags == json!(wanted), "the rows are {tags}");
    Ok(())
}
