//! Ctrl-C, pressed in a terminal at many moments: the command ends with the exit code of stock's, names
//! the job as soon as there is one, and says how to come back to it. The job goes on.

use std::os::unix::fs::symlink;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use saltern_tests::events::Event;
use saltern_tests::release::saltern_program;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::terminal::Terminal;
use saltern_tests::{Release, Server, Site, TestResult, first_jid, until_exists, wait_until};

use crate::durability::connections;

const CTRL_C: &str = "\x03";

/// Stands for a command that ends when the file [`GO`] of the site is there.
const HELD: &str = "HELD";
const GO: &str = "go";

/// Parts of the text of a command that leaves a job behind.
const COME_BACK: &[&str] = &[
    "This job's jid is: 2",
    "salt-run jobs.lookup_jid 2",
    "saltern follow 2",
    "saltern explain 2",
];

/// A moment at which Ctrl-C is pressed.
struct Moment {
    /// The command line.
    words: &'static [&'static str],
    /// Texts on the screen when it is pressed.
    seen: &'static [&'static str],
    /// Texts on the screen afterwards.
    said: &'static [&'static str],
    /// The exit code.
    code: i32,
    /// Whether the job, which is [`HELD`], returns afterwards.
    goes_on: bool,
}

/// `m1` is native, `m3` is accepted and was never there.
const MOMENTS: &[Moment] = &[
    // Nobody has returned.
    Moment {
        words: &["salt", "m1", "cmd.run", HELD],
        seen: &["0 of 1 returned", "waiting for m1"],
        said: COME_BACK,
        code: 1,
        goes_on: true,
    },
    // One has, one is silent.
    Moment {
        words: &["salt", "-L", "m1,m3", "test.ping"],
        seen: &["m1:", "1 of 2 returned", "waiting for m3"],
        said: COME_BACK,
        code: 1,
        goes_on: false,
    },
    // Behind the heading with the jid.
    Moment {
        words: &["salt", "-v", "m1", "cmd.run", HELD],
        seen: &["Executing job with jid 2", "0 of 1 returned"],
        said: COME_BACK,
        code: 1,
        goes_on: true,
    },
    // While all returns are collected.
    Moment {
        words: &["salt", "-s", "m1", "cmd.run", HELD],
        seen: &["0 of 1 returned"],
        said: COME_BACK,
        code: 1,
        goes_on: true,
    },
    // While the documentation is collected.
    Moment {
        words: &["salt", "m3", "-d", "test.ping"],
        seen: &["0 of 1 returned"],
        said: COME_BACK,
        code: 1,
        goes_on: false,
    },
    // While it is asked who has the function.
    Moment {
        words: &["salt", "m3", "--subset=1", "test.ping"],
        seen: &["0 of 1 returned"],
        said: COME_BACK,
        code: 1,
        goes_on: false,
    },
    // In a batch, which the master drives.
    Moment {
        words: &["salt", "m1", "-b", "1", "cmd.run", HELD],
        seen: &["Executing run on ['m1']", "0 of 1 returned"],
        said: &[
            "The master goes on with the batch 2",
            "saltern batch watch 2",
        ],
        code: 1,
        goes_on: true,
    },
    // At the prompt for a password: there is no job yet.
    Moment {
        words: &[
            "salt",
            "-a",
            "sharedsecret",
            "--username=ana",
            "m1",
            "test.ping",
        ],
        seen: &["password:"],
        said: &["Exiting gracefully on Ctrl-c"],
        code: 1,
        goes_on: false,
    },
    // At the question about a key.
    Moment {
        words: &["salt-key", "-d", "m3"],
        seen: &["m3", "[N/y]"],
        said: &["Exiting gracefully on Ctrl-c"],
        code: 1,
        goes_on: false,
    },
    // While a function of the master runs.
    Moment {
        words: &["salt-run", "test.sleep", "10"],
        seen: &[],
        said: &["Exiting gracefully on Ctrl-c"],
        code: 1,
        goes_on: false,
    },
    // While a file is copied.
    Moment {
        words: &["salt-cp", "-C", "m3", "/etc/hosts", "/tmp/none"],
        seen: &["0 of 1 minions have it"],
        said: &["Exiting gracefully on Ctrl-c"],
        code: 1,
        goes_on: false,
    },
];

#[test]
fn interrupted_command_names_its_job_at_every_moment() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |config| {
            config
                // No moment passes by itself.
                .set("timeout", 120)
                .set("external_auth", "{sharedsecret: {ana: ['.*']}}")
                .set("sharedsecret", "'open sesame'");
        },
        |site| {
            // While the master is frozen.
            site.announce("a return was not taken");
            site.bring_up(&[("m1", MinionKind::Native)])?;
            site.accept_beforehand("m3")?;
            for moment in MOMENTS {
                site.step(&format!("{:?}", moment.words));
                let mark = site.events().mark();
                let mut command = start(site, moment.words)?;
                if moment.seen.is_empty() {
                    // Nothing is shown: the master says when the function runs.
                    let begins = |event: &Event| {
                        let is_new =
                            event.tag.starts_with("salt/run/") && event.tag.ends_with("/new");
                        is_new.then_some(())
                    };
                    site.events().find_since(mark, "the call", SOON, begins)?;
                }
                command.wait_for(moment.seen)?;
                command.press(CTRL_C)?;
                command.wait_for(moment.said)?;
                expect_end(&mut command, moment.code)?;
                if moment.goes_on {
                    let jid = jid_on(&command)?;
                    std::fs::write(site.path(GO), "")?;
                    site.events().tag(&format!("salt/job/{jid}/ret/m1"), SOON)?;
                    std::fs::remove_file(site.path(GO))?;
                }
                if moment.seen.is_empty() {
                    // A stop of the master before its end would lose the call.
                    let ends = |event: &Event| {
                        let is_end =
                            event.tag.starts_with("salt/run/") && event.tag.ends_with("/ret");
                        is_end.then_some(())
                    };
                    site.events().find_since(mark, "its end", SOON, ends)?;
                }
            }
            before_the_answer(site)
        },
    )
}

/// Pressed before the master has answered: what is said when it does, and the exit code then.
const BEFORE_THE_ANSWER: &[(&[&str], &str, i32)] = &[
    (&["salt", "m1", "test.ping"], "This job's jid is: 2", 1),
    (
        &["salt", "m1", "-b", "1", "test.ping"],
        "saltern batch watch 2",
        1,
    ),
    (&["salt", "m1", "--async", "test.ping"], "with job ID: 2", 0),
];

/// The master is frozen: the first Ctrl-C waits for the jid, the second one ends at once.
fn before_the_answer(site: &mut Site) -> Result<()> {
    for (words, said, code) in BEFORE_THE_ANSWER {
        for is_answered in [true, false] {
            site.step(&format!("{words:?}, before the answer"));
            site.master().signal(Signal::STOP)?;
            let before = connections(site.ret_port());
            let mut command = start(site, words)?;
            // Pressed before that, it would end a command that has not begun.
            wait_until("the command to be connected", SOON, || {
                let now = connections(site.ret_port());
                now.iter().any(|one| !before.contains(one)).then_some(())
            })?;
            command.press(CTRL_C)?;
            command.wait_for(&["is awaited;", "Ctrl-C again ends at once"])?;
            if is_answered {
                site.master().signal(Signal::CONT)?;
                command.wait_for(&[said])?;
                expect_end(&mut command, *code)?;
            } else {
                command.press(CTRL_C)?;
                expect_end(&mut command, 1)?;
                site.master().signal(Signal::CONT)?;
            }
        }
    }
    Ok(())
}

/// Starts a command under its name in a terminal.
fn start(site: &Site, words: &[&str]) -> Result<Terminal> {
    let (name, rest) = words.split_first().context("a command")?;
    let program = site.path(name);
    if !program.exists() {
        symlink(saltern_program(), &program)?;
    }
    let conf = site.path("conf").display().to_string();
    let held = until_exists(&site.path(GO));
    let rest = rest.iter().map(|word| match *word {
        HELD => held.as_str(),
        word => word,
    });
    let words: Vec<&str> = ["-c", &conf].into_iter().chain(rest).collect();
    Terminal::start(&program, words)
}

fn expect_end(command: &mut Terminal, code: i32) -> Result<()> {
    let ended = command.end()?;
    let screen = command.screen();
    ensure!(ended.code() == Some(code), "{ended}:\n{screen}");
    ensure!(!screen.contains("panicked"), "{screen}");
    ensure!(
        !screen.contains(" returned, "),
        "the progress line stays:\n{screen}"
    );
    Ok(())
}

/// The first job id on the screen.
fn jid_on(command: &Terminal) -> Result<String> {
    let screen = command.screen();
    let jid = first_jid(&screen).with_context(|| format!("no jid on:\n{screen}"))?;
    Ok(jid.to_owned())
}
