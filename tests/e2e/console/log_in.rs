//! From the log-in to the result of a job: with the mouse, and without one.

use anyhow::{Result, ensure};
use saltern_tests::TestResult;
use saltern_tests::browser::{Browser, key};

use super::{ANN, PASSWORD, expect_no_complaint, jid, three_minions, with_console};

/// The script of the page has run.
const LOADED: &str = "document.readyState === 'complete'";

/// Every minion's row says that it succeeded.
const ALL_RETURNED: &str = "document.querySelectorAll('#minions [data-row] .pill.ok').length === 3";

#[test]
fn mouse_leads_from_log_in_to_the_result_of_a_job() -> TestResult {
    with_console(
        |_, _| {},
        |site, console| {
            three_minions(site)?;
            let browser = console.logged_in(site, ANN)?;
            browser.click("nav a[href='/console/run']")?;
            browser.fill("#tgt", "*")?;
            browser.fill("#fun", "test.ping")?;
            browser.click("#preview")?;
            browser.wait("document.querySelector('#send')")?;
            ensure!(browser.text("#matched")? == "3", "not three minions match");
            browser.click("#send")?;
            expect_result(&browser)?;
            // Its page is linked from where jobs are listed.
            let jid = jid(&browser)?;
            browser.click("nav a[href='/console/jobs']")?;
            browser.click(&format!("#jobs [data-jid='{jid}'] a"))?;
            expect_result(&browser)?;
            browser.click("#logout")?;
            browser.wait("document.querySelector('#login')")?;
            expect_no_complaint(&browser, "log-in to result")
        },
    )
}

#[test]
fn keyboard_alone_leads_from_log_in_to_the_result_of_a_job() -> TestResult {
    with_console(
        |_, _| {},
        |site, console| {
            three_minions(site)?;
            let browser = console.browser(site)?;
            // The first field has the focus.
            browser.wait("document.activeElement.id === 'username'")?;
            browser.press(&format!("{ANN}{}{PASSWORD}{}", key::TAB, key::ENTER))?;
            browser.wait("document.querySelector('#logout')")?;
            // The keys are those of the script.
            browser.wait(LOADED)?;
            browser.press("gr")?;
            browser.wait(
                "location.pathname === '/console/run' && document.readyState === 'complete'",
            )?;
            browser.press("/*")?;
            browser.tab_to("#fun")?;
            browser.press(&format!("test.ping{}", key::ENTER))?;
            browser
                .wait("document.querySelector('#send') && document.readyState === 'complete'")?;
            browser.tab_to("#send")?;
            browser.press(key::ENTER)?;
            expect_result(&browser)?;
            browser.wait(LOADED)?;
            browser.wait("document.querySelector('#facts[data-state=complete]')")?;
            // Rows are gone through, open and close.
            for row in 0..2 {
                browser.press("j")?;
                browser.wait(&format!(
                    "document.activeElement === document.querySelectorAll('#minions summary')[{row}]"
                ))?;
            }
            let is_open = "return document.activeElement.parentElement.open";
            let was_open = browser.script(is_open, &[])?;
            browser.press(key::ENTER)?;
            browser.wait(&format!(
                "document.activeElement.parentElement.open !== {was_open}"
            ))?;
            browser.tab_to("#again")?;
            expect_no_complaint(&browser, "log-in to result")
        },
    )
}

/// The page of the job shows what every minion returned, without being loaded again.
fn expect_result(browser: &Browser) -> Result<()> {
    jid(browser)?;
    browser.wait(ALL_RETURNED)?;
    browser.wait("[...document.querySelectorAll('#minions pre.value')].filter((value) => value.textContent.trim() === 'True').length === 3")
}
