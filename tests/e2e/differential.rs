//! The same commands to stock's master and to ours: same output, same exit codes, same events.
//!
//! Chance is masked: job ids become `JID1`, `JID2`, … in the order in which they appear, times and
//! process ids become a shape. Everything else is compared to the letter.

use std::collections::HashSet;
use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};
use saltern_tests::site::{Failure, MinionKind, SOON};
use saltern_tests::{Event, Release, Server, Site, TestResult, first_jid};
use serde_json::Value;

#[test]
fn commands_3006_see_no_difference() -> TestResult {
    Ok(compare(Release::V3006)?)
}

#[test]
fn commands_3007_see_no_difference() -> TestResult {
    Ok(compare(Release::V3007)?)
}

#[test]
fn commands_3008_see_no_difference() -> TestResult {
    Ok(compare(Release::V3008)?)
}

/// The commands; `{jid}` stands for the job id in the last output that had one.
const COMMANDS: &[(&str, &[&str])] = &[
    ("salt-key", &["-L"]),
    ("salt", &["m1", "test.ping"]),
    ("salt", &["m1", "test.ping", "-v"]),
    ("salt", &["m1", "test.echo", "grüße", "--out=json"]),
    (
        "salt",
        &[
            "m1",
            "test.arg",
            "one",
            "2",
            "key=value",
            "list=[1, {a: b}]",
            "--out=yaml",
        ],
    ),
    ("salt", &["-E", "m[12]", "test.ping", "--show-jid"]),
    ("salt", &["-L", "m1,ghost", "test.ping"]),
    ("salt", &["-t", "1", "-L", "ghost", "test.ping"]),
    ("salt", &["nobody", "test.ping"]),
    ("salt", &["-R", "m[1-2]", "test.ping"]),
    ("salt", &["m1", "cmd.run", "echo oops; exit 3"]),
    ("salt", &["m1", "cmd.retcode", "exit 3", "--out=json"]),
    ("salt", &["m1", "no.such_function"]),
    ("salt", &["m1", "test.ping", "surplus"]),
    ("salt", &["m1", "test.ping,test.echo", ",hi"]),
    ("salt", &["m1", "test.ping", "--static", "--out=json"]),
    ("salt", &["m1", "test.ping", "--summary"]),
    (
        "salt",
        &[
            "m1",
            "test.echo",
            "noted",
            "--metadata={who: me}",
            "--async",
        ],
    ),
    ("salt-run", &["jobs.lookup_jid", "{jid}"]),
    ("salt-run", &["jobs.list_job", "{jid}", "--out=json"]),
    ("salt-run", &["jobs.lookup_jid", "20200101000000000000"]),
    ("salt", &["-t", "1", "m1", "cmd.run", "sleep 3; echo slept"]),
    ("salt-run", &["jobs.active"]),
    ("salt-run", &["manage.up"]),
    ("salt", &["-b", "1", "m1", "test.ping"]),
    ("salt-key", &["-y", "-d", "leaver"]),
    ("salt-key", &["-L", "--out=json"]),
];

fn compare(release: Release) -> Result<()> {
    let mut transcripts = Vec::new();
    for server in [Server::Stock(release), Server::Saltern(release)] {
        Site::run(
            server,
            // The minion answers, however busy the machine is; whoever does not, has a `-t` on its line.
            // One that runs a job says so in the time that is left for it.
            |config| _ = config.set("timeout", 60).set("gather_job_timeout", 30),
            |site| {
                transcripts.push(transcript(site)?);
                Ok(())
            },
        )
        .map_err(Failure::into_error)?;
    }
    let [stock, mut ours] = <[Transcript; 2]>::try_from(transcripts)
        .map_err(|_| anyhow::anyhow!("two transcripts were made"))?;
    let mut differences = String::new();
    for (stock, ours) in stock.commands.iter().zip(&ours.commands) {
        if stock != ours {
            writeln!(differences, "\n===== stock\n{stock}\n===== ours\n{ours}")?;
        }
    }
    // Jobs of one command may overlap in any order: the events are compared as a collection.
    let mut common = HashSet::new();
    for event in stock.events {
        match ours.events.iter().position(|other| *other == event) {
            Some(found) => {
                ours.events.swap_remove(found);
                common.insert(event);
            }
            // A minion that a busy machine keeps from its answer returns once more, and stock's master
            // announces each.
            None if event.contains("/ret/") && common.contains(&event) => {}
            None => writeln!(differences, "\n===== only stock's event\n{event}")?,
        }
    }
    for event in ours.events {
        writeln!(differences, "\n===== only our event\n{event}")?;
    }
    ensure!(
        differences.is_empty(),
        "the transcripts differ:{differences}"
    );
    Ok(())
}

/// Output and events of the bus, masked.
struct Transcript {
    commands: Vec<String>,
    events: Vec<String>,
}

/// One entry for each command, then one for each event.
fn transcript(site: &mut Site) -> Result<Transcript> {
    let release = site.server().release();
    site.bring_up_by_salt_key(&[("m1", MinionKind::Stock(release))])?;
    std::fs::write(site.path("pki/minions_pre/leaver"), "not a key\n")?;

    // Of the range.
    site.announce("a target matches nobody");
    let mark = site.events().mark();
    let mut mask = Mask::default();
    let mut commands = Vec::new();
    let mut jid = String::new();
    for (program, arguments) in COMMANDS {
        let arguments: Vec<String> = arguments
            .iter()
            .map(|argument| argument.replace("{jid}", &jid))
            .collect();
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        site.step(&format!("{program} {}", arguments.join(" ")));
        let run = match *program {
            "salt" => site.salt(&arguments)?,
            "salt-key" => site.salt_key(&arguments)?,
            _ => site.salt_run(&arguments)?,
        };
        if let Some(found) = first_jid(&run.stdout) {
            jid = found.to_owned();
        }
        if arguments.contains(&"--async") {
            site.events().tag(&format!("salt/job/{jid}/ret/m1"), SOON)?;
        }
        site.step(&format!("took {:.1?}", run.took));
        let mut entry = format!("$ {program} {}\n", mask.jids(&arguments.join(" ")));
        writeln!(entry, "exit code {:?}", run.code)?;
        write!(entry, "{}", mask.output(&run.stdout))?;
        writeln!(entry, "--- stderr\n{}", mask.output(&run.stderr))?;
        commands.push(entry);
    }
    let last = site
        .events()
        .find_since(mark, "the last event", SOON, |event| {
            (event.tag == "salt/key" && event.data["act"].as_str()?.starts_with("delete"))
                .then(|| event.clone())
        });
    last.context("the deletion of the key closes the transcript")?;

    let events = site.events().since(mark);
    // 3006 and 3007 announce a job under its bare jid, so only its jid identifies one of
    // `find_job`, which a client starts when a slow machine lets it wait.
    let probes: Vec<String> = events
        .iter()
        .filter(|event| event.data["fun"] == "saltutil.find_job")
        .filter_map(|event| event.data["jid"].as_str().map(str::to_owned))
        .collect();
    let events = events
        .iter()
        .filter(|event| !probes.contains(&event.tag))
        .filter_map(|event| mask.event(event))
        .collect();
    Ok(Transcript { commands, events })
}

/// Replaces what differs from run to run.
#[derive(Default)]
struct Mask {
    jids: Vec<String>,
}

impl Mask {
    fn jids(&mut self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(jid) = first_jid(rest) {
            let start = jid.as_ptr() as usize - rest.as_ptr() as usize;
            let number = self
                .jids
                .iter()
                .position(|known| known == jid)
                .unwrap_or_else(|| {
                    self.jids.push(jid.to_owned());
                    self.jids.len() - 1
                });
            write!(out, "{}JID{number}", &rest[..start]).expect("a string takes everything");
            rest = &rest[start + jid.len()..];
        }
        out + rest
    }

    /// Output of a command, without the times of day in it and without Python's remarks about
    /// objects that were not closed, which come by chance.
    fn output(&mut self, text: &str) -> String {
        let mut out = String::new();
        for line in self
            .jids(text)
            .lines()
            .filter(|line| !line.contains("call ``destroy()``"))
        {
            let mut words: Vec<&str> = line.split(' ').collect();
            for at in 0..words.len() {
                if is_time(words[at]) {
                    words[at] = "TIME";
                    // The day in front of it, "2026, Nov 22", may have passed between two runs.
                    if at > 2 && words[at - 3].ends_with(',') {
                        words[at - 3..at].fill("DATE");
                    }
                }
            }
            out.push_str(&words.join(" "));
            out.push('\n');
        }
        out
    }

    /// None for events that come by the clock, not by a command, and for those that are ours alone;
    /// their job ids stay unnumbered.
    fn event(&mut self, event: &Event) -> Option<String> {
        let by_the_clock = [
            "salt/auth",
            "minion/refresh/",
            "resource/refresh/",
            "key",
            "saltern/",
        ];
        if by_the_clock.iter().any(|tag| event.tag.starts_with(tag))
            || event.data["fun"] == "saltutil.find_job"
        {
            return None;
        }
        let mut data = event.data.clone();
        mask_times(&mut data);
        Some(self.jids(&format!("{} {data}", event.tag)))
    }
}

/// Whether a word is a time of day with microseconds, with or without punctuation around it.
fn is_time(word: &str) -> bool {
    let word = word.trim_matches(|c: char| !c.is_ascii_digit());
    word.len() == "00:00:00.000000".len() && word.split([':', '.']).count() == 4
}

/// Gives every time and process id its shape, so that a change of form still shows.
fn mask_times(value: &mut Value) {
    const TIMES: [&str; 7] = [
        "_stamp",
        "ts",
        "pid",
        "pub",
        "StartTime",
        "created",
        "last_progress",
    ];
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                if TIMES.contains(&name.as_str()) {
                    *field = Value::String(shape(field));
                } else {
                    mask_times(field);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask_times),
        // The batch state notes for each minion when it was started.
        Value::Number(number) if number.is_f64() => *value = Value::String("float".to_owned()),
        _ => {}
    }
}

/// The form of a value: every row of digits becomes one 0.
fn shape(value: &Value) -> String {
    let mut text: Vec<char> = value
        .to_string()
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect();
    text.dedup_by(|a, b| *a == '0' && *b == '0');
    text.into_iter().collect()
}
