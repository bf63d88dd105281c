//! A job that is followed while the master is killed and comes back.

use anyhow::Result;
use saltern_tests::TestResult;
use saltern_tests::site::Site;

use super::{ANN, Console, jid, three_minions, with_console};

#[test]
fn followed_job_is_shown_to_its_end_over_a_killed_master() -> TestResult {
    with_console(
        |_, _| {},
        |site, console| {
            three_minions(site)?;
            for lost in ["the publish connection broke", "return", "not connected"] {
                site.announce(lost);
            }
            follow(site, console)
        },
    )
}

fn follow(site: &mut Site, console: Console) -> Result<()> {
    let gate = site.path("gate");
    let command = format!(
        "until test -e {}; do sleep 0.1; done; echo through",
        gate.display()
    );
    let browser = console.logged_in(site, ANN)?;
    browser.open(&console.url("/console/run?tgt=*&fun=cmd.run"))?;
    browser.fill("#args", &command)?;
    browser.click("#preview")?;
    browser.wait("document.querySelector('#send')")?;
    browser.click("#confirm")?;
    browser.click("#send")?;
    jid(&browser)?;
    browser.wait("document.querySelector('#live-state[data-on]')")?;
    // Gone if the page is loaded again.
    browser.script("window.isTheSame = true", &[])?;
    site.kill_master();
    browser.wait("document.querySelector('#live-state[data-off]')")?;
    std::fs::write(&gate, "")?;
    site.start_master()?;
    console.wait()?;
    browser.wait("document.querySelectorAll('#minions [data-row] .pill.ok').length === 3")?;
    browser.wait("document.querySelector('#facts:not([data-state=running])')")?;
    browser.wait("[...document.querySelectorAll('#minions pre.value')].filter((value) => value.textContent.trim() === 'through').length === 3")?;
    browser.wait("window.isTheSame && document.querySelector('#live-state[data-on]')")
}
