//! `saltern top` in a terminal: a job appears, is ended by a key; it waits for a master that is
//! down, and restores the terminal however it ends.

use anyhow::{Result, ensure};
use rustix::process::Signal;
use saltern_tests::release::saltern_program;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::terminal::Terminal;
use saltern_tests::{Release, Server, Site, TestResult, wait_until};

const ENTER: &str = "\r";
const ESCAPE: &str = "\x1b";
const CTRL_L: &str = "\x0c";

fn top(site: &Site) -> Result<Terminal> {
    let conf = site.path("conf");
    let arguments = ["top".as_ref(), "-c".as_ref(), conf.as_os_str()];
    Terminal::start(&saltern_program(), arguments)
}

#[test]
fn a_job_is_seen_followed_and_ended_by_a_key() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |_| {},
        |site| {
            site.bring_up(&[
                ("m1", MinionKind::Native),
                ("m2", MinionKind::Stock(Release::V3008)),
            ])?;
            let mut top = top(site)?;
            top.wait_for(&["for Salt 3008", "minions 2 connected", "STATE"])?;

            site.step("a job appears, and its panel is opened");
            let published = site.salt(&["*", "test.sleep", "600", "--async"])?;
            let jid = published.stdout.trim().rsplit(' ').next();
            let jid = jid.unwrap_or_default().to_owned();
            top.wait_for(&[&jid, "test.sleep", "0/2"])?;
            top.press("/test.sleep")?;
            top.wait_for(&["filter: test.sleep_"])?;
            top.press(ENTER)?;
            top.press(ENTER)?;
            top.wait_for(&["0 of 2 minions have returned", "not returned (2):"])?;

            site.step("the minions run it, and it is ended");
            for minion in ["m1", "m2"] {
                wait_until("a minion to run the job", SOON, || {
                    let run = site.salt(&[minion, "saltutil.running"]).ok()?;
                    run.stdout.contains(&jid).then_some(())
                })?;
            }
            top.press("k")?;
            top.wait_for(&["on 2 minions that have not returned", "saltutil.term_job"])?;
            top.press("t")?;
            top.wait_for(&["was sent to 2 minions as job"])?;
            for minion in ["m1", "m2"] {
                wait_until("the job to be ended", SOON, || {
                    let run = site.salt(&[minion, "saltutil.running"]).ok()?;
                    (!run.stdout.contains(&jid)).then_some(())
                })?;
            }
            top.press(ESCAPE)?;
            top.wait_for(&["filter: test.sleep", "q quit"])?;

            site.step("the other views");
            top.press(ESCAPE)?;
            // Keys that come together with an escape would be one key.
            top.wait_for(&["saltutil.running"])?;
            top.press(CTRL_L)?;
            top.press("2")?;
            top.wait_for(&["MINION", "m1", "127.0.0.1", "connected"])?;
            top.press("3")?;
            top.wait_for(&["job_tracker", "mworker", "_return"])?;
            top.press("4")?;
            top.wait_for(&["requests: minion"])?;
            top.press("5")?;
            top.wait_for(&["saltutil.term_job"])?;

            site.step("it quits");
            top.press("q")?;
            ensure!(top.end()?.success(), "q is no failure");
            top.expect_restored()
        },
    )
}

#[test]
fn top_waits_for_a_master_and_restores_the_terminal() -> TestResult {
    Site::prepared(
        Server::Saltern(Release::V3008),
        |_| {},
        |site| {
            let mut top = top(site)?;
            top.wait_for(&["no master answers; waiting for one"])?;
            site.start_master_only()?;
            top.wait_for(&["for Salt 3008, up", "jobs 0 open"])?;
            site.kill_master();
            top.wait_for(&["no master answers; waiting for one"])?;
            site.start_master_only()?;
            top.wait_for(&["for Salt 3008, up"])?;

            site.step("it redraws the screen");
            top.press(CTRL_L)?;
            top.press("?")?;
            top.wait_for(&["draw the screen anew"])?;

            site.step("it is asked to end");
            for signal in [Signal::TERM, Signal::QUIT, Signal::INT] {
                top.signal(signal)?;
                ensure!(top.end()?.success(), "{signal:?} is no failure");
                top.expect_restored()?;
                top = self::top(site)?;
                top.wait_for(&["for Salt 3008, up"])?;
            }

            site.step("its terminal is closed");
            top.close();
            ensure!(top.end()?.success(), "a closed terminal is no failure");
            Ok(())
        },
    )
}
