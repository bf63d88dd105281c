//! Batches: those that the master drives, over a kill and a stop, and those that each stock
//! command line drives itself.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use saltern_tests::release::saltern_program;
use saltern_tests::site::{Failure, MinionKind, SOON};
use saltern_tests::{Release, Run, Server, Site, TestResult, run, until_exists, wait_until};
use serde_json::Value;

const OURS: Server = Server::Saltern(Release::V3008);

/// Minions of every line of stock, and our own.
const FLEET: [(&str, MinionKind); 5] = [
    ("m3006", MinionKind::Stock(Release::V3006)),
    ("m3007", MinionKind::Stock(Release::V3007)),
    ("m3008", MinionKind::Stock(Release::V3008)),
    ("n1", MinionKind::Native),
    ("n2", MinionKind::Native),
];

/// Counts how often a command was run, by all minions together.
struct Counter {
    begun: PathBuf,
    ran: PathBuf,
}

impl Counter {
    fn new(site: &Site) -> Self {
        Self {
            begun: site.path("begun"),
            ran: site.path("ran"),
        }
    }

    /// A shell command that counts; all but two of its runs wait until `go` exists.
    fn command(&self, go: &Path) -> String {
        let (begun, ran, wait) = (self.begun.display(), self.ran.display(), until_exists(go));
        format!(
            "echo begun >> {begun}; mkdir {begun}-1 2>/dev/null || mkdir {begun}-2 2>/dev/null || \
             {wait}; echo ran >> {ran}"
        )
    }

    fn begun(&self) -> usize {
        lines(&self.begun)
    }

    fn count(&self) -> usize {
        lines(&self.ran)
    }
}

fn lines(path: &Path) -> usize {
    std::fs::read_to_string(path).map_or(0, |text| text.lines().count())
}

/// The jid in what stock prints of an async batch.
fn jid_of(run: &Run) -> Result<String> {
    let parse_tag = run.expect_code(0)?.stdout.as_str();
    let jid = parse_tag
        .trim()
        .rsplit("Executed batch command with job ID: ")
        .next();
    let jid = jid.filter(|jid| jid.len() == 20);
    jid.map(str::to_owned)
        .with_context(|| format!("no job id in {parse_tag:?}"))
}

fn json(run: &Run) -> Result<Value> {
    let text = &run.expect_code(0)?.stdout;
    serde_json::from_str(text).with_context(|| format!("no JSON: {text:?}"))
}

#[test]
fn an_async_batch_of_stock_goes_on_over_a_kill() -> TestResult {
    Site::run(
        OURS,
        // A stock minion of 3007 takes up to ten seconds to come back, and on a busy machine more.
        |config| {
            config
                .set("saltern_batch_resume_delay", 25)
                // One that is at work has that long to say so.
                .set("gather_job_timeout", 60);
        },
        |site| {
            site.bring_up(&FLEET)?;
            let (ran, go) = (Counter::new(site), site.path("go"));
            site.step("stock's command line hands the batch over and ends");
            let command = ran.command(&go);
            let mark = site.events().mark();
            let run = site.salt(&["-b", "2", "--async", "*", "cmd.run", &command])?;
            let jid = jid_of(&run)?;
            // Two have returned then, and two wait. Not while one returns: a stock minion whose request is
            // lost on the way asks again after a minute, and gives that return up meanwhile.
            wait_until("the next ones to run it", SOON, || {
                (ran.begun() == 4).then_some(())
            })?;
            for (id, _) in FLEET {
                site.events()
                    .find_since(mark, &format!("{id} to be pinged"), SOON, |event| {
                        let is_of = event.tag.ends_with(&format!("/ret/{id}"));
                        (is_of && event.data["fun"] == "test.ping").then_some(())
                    })?;
            }

            site.step("the master is killed in the middle, and started again");
            site.announce("the publish connection broke");
            site.kill_master();
            ensure!(ran.count() == 2, "it was killed too late");
            site.start_master()?;
            site.wait_until_ready_again()?;
            std::fs::write(&go, "").context("cannot let them go on")?;
            let complete = site
                .events()
                .tag(&format!("salt/batch/{jid}/complete"), SOON)?;
            ensure!(complete.data["completed"] == 5, "{complete:?}");
            ensure!(complete.data["failed"] == 0, "{complete:?}");
            ensure!(ran.count() == FLEET.len(), "it ran {} times", ran.count());

            site.step("stock's runners agree");
            let status = json(&site.salt_run(&["batch.status", &jid, "--out=json"])?)?;
            for (field, expected) in [
                ("total", 5),
                ("completed", 5),
                ("active", 0),
                ("pending", 0),
            ] {
                ensure!(status[field] == expected, "{field}: {status}");
            }
            let active = json(&site.salt_run(&["batch.list_active", "--out=json"])?)?;
            ensure!(active == Value::Array(Vec::new()), "{active}");
            wait_until("the job cache to catch up", SOON, || {
                let run = site.salt_run(&["jobs.lookup_jid", &jid]).ok()?;
                let has = |id: &str| run.stdout.contains(&format!("{id}:"));
                FLEET.iter().all(|(id, _)| has(id)).then_some(())
            })
        },
    )
}

/// Stock's master gives a minion up after `timeout` and `gather_job_timeout`, whatever it does, and
/// sends the next one its part beside it; ours knows that it runs the job.
#[test]
fn long_running_minion_keeps_its_batch_slot() -> TestResult {
    Site::run(
        OURS,
        // A minion that a busy machine keeps from its answer for some seconds does not lose its slot.
        |config| _ = config.set("timeout", 1).set("gather_job_timeout", 5),
        |site| {
            site.bring_up(&[("n1", MinionKind::Native), ("n2", MinionKind::Native)])?;
            let run = saltern_cmd(site, &["-b", "1", "--async", "*", "cmd.run", "sleep 14"])?;
            let jid = jid_of(&run)?;
            let complete = site
                .events()
                .tag(&format!("salt/batch/{jid}/complete"), SOON)?;
            ensure!(complete.data["completed"] == 2, "{complete:?}");
            ensure!(complete.data["failed"] == 0, "{complete:?}");
            let of_job = format!("salt/job/{jid}/");
            let steps: Vec<String> = site
                .events()
                .since(0)
                .iter()
                .filter_map(|event| event.tag.strip_prefix(&of_job).map(str::to_owned))
                .filter(|step| step == "new" || step.starts_with("ret/"))
                .collect();
            ensure!(steps == ["new", "ret/n1", "new", "ret/n2"], "{steps:?}");
            Ok(())
        },
    )
}

#[test]
fn stocks_runner_stops_a_batch_with_our_master() -> TestResult {
    a_batch_is_stopped(OURS)
}

#[test]
fn stocks_runner_stops_a_batch_with_a_stock_master() -> TestResult {
    a_batch_is_stopped(Server::Stock(Release::V3008))
}

/// Nothing is sent during a pause, whatever happens to the master; nobody is forgotten after it.
#[test]
fn paused_batch_stays_paused_over_a_kill_and_goes_on_when_resumed() -> TestResult {
    let fleet = [("n1", MinionKind::Native), ("n2", MinionKind::Native)];
    Site::run(
        OURS,
        |config| _ = config.set("saltern_batch_resume_delay", 0),
        |site| {
            site.bring_up(&fleet)?;
            let (ran, go) = (Counter::new(site), site.path("go"));
            let command = format!(
                "echo begun >> {}; {}; echo ran >> {}",
                ran.begun.display(),
                until_exists(&go),
                ran.ran.display()
            );
            let run = saltern_cmd(site, &["-b", "1", "--async", "*", "cmd.run", &command])?;
            let jid = jid_of(&run)?;
            wait_until("the first one to run it", SOON, || {
                (ran.begun() == 1).then_some(())
            })?;
            let tag = |what: &str| format!("salt/batch/{jid}/{what}");

            site.step("it pauses, and the first one returns");
            site.saltern(&["batch", "pause", &jid])?
                .expect_code(0)?
                .expect_text("pauses")?;
            let paused = site.events().tag(&tag("paused"), SOON)?;
            ensure!(paused.data["pending"] == 1, "{paused:?}");
            std::fs::write(&go, "").context("cannot let it go on")?;
            site.events().find("the first return", SOON, |event| {
                let is_it = event.tag.starts_with(&format!("salt/job/{jid}/ret/"));
                is_it.then_some(())
            })?;

            site.step("the master is killed and started again");
            site.announce("the publish connection broke");
            site.kill_master();
            site.start_master()?;
            wait_until("the minions to be back", SOON, || {
                let run = site.salt(&["*", "test.ping"]).ok()?;
                (run.stdout.matches("True").count() == 2).then_some(())
            })?;
            // Stock's runner reads the state file, in which a pause has no place.
            let status = saltern(site, "run", &["batch.status", &jid, "--out=json"])?;
            let status = json(&status)?;
            ensure!(status["pending"] == 1 && status["active"] == 0, "{status}");
            ensure!(status["paused_since"].is_f64(), "{status}");
            ensure!(ran.count() == 1, "it ran {} times", ran.count());
            site.saltern(&["explain", &jid])?
                .expect_code(0)?
                .expect_text("its batch pauses since")?;

            site.step("it goes on");
            site.saltern(&["batch", "resume", &jid])?.expect_code(0)?;
            let complete = site.events().tag(&tag("complete"), SOON)?;
            ensure!(complete.data["completed"] == 2, "{complete:?}");
            ensure!(ran.count() == 2, "it ran {} times", ran.count());
            let over = site.saltern(&["batch", "pause", &jid])?;
            over.expect_code(1)?.expect_text("or it is over")?;

            site.step("one is stopped while it pauses");
            std::fs::remove_file(&go).context("cannot keep them")?;
            let run = saltern_cmd(site, &["-b", "1", "--async", "*", "cmd.run", &command])?;
            let jid = jid_of(&run)?;
            for action in [&["pause"][..], &["stop", "--kill"]] {
                let words = [&["batch"], action, &[&jid]].concat();
                site.saltern(&words)?.expect_code(0)?;
            }
            let halted = site
                .events()
                .tag(&format!("salt/batch/{jid}/halted"), SOON)?;
            ensure!(halted.data["reason"] == "stop", "{halted:?}");
            Ok(())
        },
    )
}

fn a_batch_is_stopped(server: Server) -> TestResult {
    let fleet = [("n1", MinionKind::Native), ("n2", MinionKind::Native)];
    Site::run(
        server,
        |_| {},
        |site| {
            site.bring_up(&fleet)?;
            // However long this takes, the minion is not given up, nor done.
            let long = [
                "-t",
                "3600",
                "-b",
                "1",
                "--async",
                "*",
                "cmd.run",
                "sleep 600",
            ];
            let run = site.salt(&long)?;
            let jid = jid_of(&run)?;
            // Stock's master begins it when it reads the event of the command, which has ended.
            let active = wait_until("the batch to be listed", SOON, || {
                let run = site.salt_run(&["batch.list_active", "--out=json"]).ok()?;
                let active = json(&run).ok()?;
                (active[0]["jid"] == jid.as_str()).then_some(active)
            })?;
            let published = format!("salt/job/{jid}/new");
            site.events().tag(&published, SOON)?;
            ensure!(active[0]["batch_size"] == 1, "{active}");
            let stop = ["batch.stop", &jid, "kill=True", "--out=json"];
            let stopped = json(&site.salt_run(&stop)?)?;
            ensure!(stopped == true, "{stopped}");
            let halted = site
                .events()
                .tag(&format!("salt/batch/{jid}/halted"), SOON)?;
            ensure!(halted.data["reason"] == "stop", "{halted:?}");
            let fields = [
                "_stamp",
                "abandoned_active",
                "abandoned_pending",
                "completed",
                "duration",
                "failed",
                "fun",
                "jid",
                "reason",
                "tgt",
                "tgt_type",
                "user",
            ];
            ensure!(halted.fields() == fields, "{halted:?}");
            let pending = halted.data["abandoned_pending"].as_array();
            ensure!(pending.is_some_and(|ids| ids.len() == 1), "{halted:?}");
            wait_until("the list to be empty", SOON, || {
                let run = site.salt_run(&["batch.list_active", "--out=json"]).ok()?;
                (json(&run).ok()? == Value::Array(Vec::new())).then_some(())
            })?;
            let status = json(&site.salt_run(&["batch.status", &jid, "--out=json"])?)?;
            ensure!(status["halted"] == true, "{status}");
            ensure!(status["halted_reason"] == "stop", "{status}");
            let again = json(&site.salt_run(&["batch.stop", &jid, "--out=json"])?)?;
            ensure!(again == false, "{again}");
            Ok(())
        },
    )
}

#[test]
fn batches_of_3006_are_as_with_their_own_master() -> TestResult {
    Ok(compare(Release::V3006)?)
}

#[test]
fn batches_of_3007_are_as_with_their_own_master() -> TestResult {
    Ok(compare(Release::V3007)?)
}

#[test]
fn batches_of_3008_are_as_with_their_own_master() -> TestResult {
    Ok(compare(Release::V3008)?)
}

/// Batches that the command line drives itself.
const COMMANDS: &[&[&str]] = &[
    &["-b", "1", "*", "test.arg", "one", "key=value"],
    &["-b", "50%", "*", "test.ping", "--out=json"],
    &["-b", "1", "--failhard", "*", "cmd.run", "exit 3"],
    &["-b", "1", "--batch-wait", "1", "*", "test.ping"],
    &["-b", "1", "-t", "20", "-L", "m1,ghost", "test.ping"],
    &["-b", "1", "nobody", "test.ping"],
    &[
        "--batch-safe-limit",
        "2",
        "--batch-safe-size",
        "1",
        "*",
        "test.ping",
    ],
];

fn compare(release: Release) -> Result<()> {
    let fleet = [
        ("m1", MinionKind::Stock(release)),
        ("m2", MinionKind::Stock(release)),
    ];
    let mut transcripts = Vec::new();
    for server in [Server::Stock(release), Server::Saltern(release)] {
        Site::run(
            server,
            // Both minions answer, however busy the machine is; the line with another has a `-t`.
            |config| _ = config.set("timeout", 60).set("gather_job_timeout", 2),
            |site| {
                // A return that is sent again, because a busy master was late, is printed twice by stock.
                for (id, kind) in fleet {
                    site.prepare_minion(id, kind, |config| {
                        config
                            .set("return_retry_timer", 60)
                            .set("return_retry_timer_max", 61)
                            .set("return_retry_tries", 1);
                    })?;
                }
                site.bring_up(&fleet)?;
                let parse_tag = COMMANDS
                    .iter()
                    .map(|command| parse_tag(&site.salt(command)?));
                transcripts.push(parse_tag.collect::<Result<Vec<_>>>()?);
                Ok(())
            },
        )
        .map_err(Failure::into_error)?;
    }
    for (number, command) in COMMANDS.iter().enumerate() {
        let [stock, ours] = [&transcripts[0][number], &transcripts[1][number]];
        ensure!(stock == ours, "{command:?}\nstock: {stock}\nours: {ours}");
    }
    Ok(())
}

/// Output of a command without job ids and without the order of turns, which is chance in stock.
fn parse_tag(run: &Run) -> Result<String> {
    let mut lines: Vec<String> = run
        .stdout
        .lines()
        .chain(run.stderr.lines())
        .map(|line| without_jid(&line.replace("m2", "m1")))
        .collect();
    lines.sort_unstable();
    Ok(format!("{:?}\n{}", run.code, lines.join("\n")))
}

fn without_jid(line: &str) -> String {
    let digits =
        |text: &str| text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let start = line.char_indices().map(|(start, _)| start);
    match start
        .into_iter()
        .find(|start| digits(&line[*start..]) == 20)
    {
        Some(start) => format!("{}JID{}", &line[..start], &line[start + 20..]),
        None => line.to_owned(),
    }
}

/// `saltern cmd` and the like for this site.
fn saltern(site: &Site, name: &str, arguments: &[&str]) -> Result<Run> {
    let mut command = Command::new(saltern_program());
    command.arg(name).arg("-c").arg(site.path("conf"));
    run(command.args(arguments), SOON)
}

fn saltern_cmd(site: &Site, arguments: &[&str]) -> Result<Run> {
    saltern(site, "cmd", arguments)
}

/// Waits until the first minions of a batch are sent their part.
fn wait_until_sent(site: &Site, jid: &str) -> Result<()> {
    site.events().tag(&format!("salt/job/{jid}/new"), SOON)?;
    Ok(())
}

#[test]
fn our_own_command_line_follows_a_batch_to_its_end() -> TestResult {
    Site::run(
        OURS,
        // Every minion answers, however busy the machine is.
        |config| _ = config.set("timeout", 60),
        |site| {
            site.bring_up(&[
                ("n1", MinionKind::Native),
                ("n2", MinionKind::Native),
                ("m3006", MinionKind::Stock(Release::V3006)),
            ])?;
            saltern_cmd(site, &["-b", "34%", "*", "test.ping"])?
                .expect_code(0)?
                .expect_stdout(
                    "Executing run on ['m3006']\n\nm3006:\n    True\n\n\
                     Executing run on ['n1']\n\nn1:\n    True\n\n\
                     Executing run on ['n2']\n\nn2:\n    True",
                )?;
            saltern_cmd(site, &["-b", "1", "--failhard", "n*", "cmd.run", "exit 3"])?
                .expect_code(1)?
                .expect_text("failhard")?
                .expect_text("1 minions had no turn")?;
            let run = saltern_cmd(site, &["-b", "2", "--async", "*", "test.ping"])?;
            let jid = jid_of(&run)?;
            let complete = site
                .events()
                .tag(&format!("salt/batch/{jid}/complete"), SOON)?;
            ensure!(complete.data["completed"] == 3, "{complete:?}");
            site.saltern(&["batch", "watch", &jid])?
                .expect_code(0)?
                .expect_text("3 of 3 minions have returned")?;
            // They wait until the state of the batch is printed.
            let go = site.path("go");
            let command = until_exists(&go);
            let run = saltern_cmd(site, &["-b", "1", "--async", "n*", "cmd.run", &command])?;
            let (jid, events) = (jid_of(&run)?, site.events());
            wait_until_sent(site, &jid)?;
            let mark = events.mark();
            let watched = std::thread::scope(|scope| {
                let asked = scope.spawn(|| {
                    let asked = events.find_since(mark, "the status", SOON, |event| {
                        let is_end = event.tag.ends_with("/ret");
                        (is_end && event.data["fun"] == "runner.batch.status").then_some(())
                    });
                    // In any case, or they would wait for ever.
                    std::fs::write(&go, "").context("cannot let them go on")?;
                    asked
                });
                let watched = site.saltern(&["batch", "watch", &jid]);
                asked.join().expect("it does not panic")?;
                watched
            });
            watched?
                .expect_code(0)?
                .expect_text("0 of 2 minions have returned, 1 run")?
                .expect_text("Executing run on ['n2']")?;
            let run = saltern_cmd(site, &["-b", "1", "--async", "n*", "cmd.run", "sleep 600"])?;
            let jid = jid_of(&run)?;
            wait_until_sent(site, &jid)?;
            saltern(site, "run", &["batch.stop", &jid, "kill=True"])?
                .expect_code(0)?
                .expect_text("True")?;
            site.events()
                .tag(&format!("salt/batch/{jid}/halted"), SOON)?;
            site.events().find("the order to kill", SOON, |event| {
                let order = &event.data;
                let is_it = order["fun"] == "saltutil.kill_job"
                    && order["arg"][0] == jid.as_str()
                    && order["minions"][0] == "n1";
                is_it.then_some(())
            })?;
            site.saltern(&["batch", "watch", &jid])?
                .expect_code(1)?
                .expect_text("the batch was stopped (stop); 1 minions had no turn")?;
            saltern_cmd(site, &["--subset", "1", "n*", "test.ping"])?
                .expect_code(0)?
                .expect_text(":\n    True")?;
            saltern_cmd(site, &["*", "test.ping", "-b", "1"])?
                .expect_code(0)?
                .expect_text("Executing run on ['n2']")?;
            saltern_cmd(site, &["*", "test.ping", "--no-such-option"])?
                .expect_code(64)?
                .expect_text("unexpected argument '--no-such-option'")?;
            saltern_cmd(site, &["*", "test.arg", "--", "--no-such-option"])?
                .expect_code(0)?
                .expect_text("- --no-such-option")?;
            let sent = site
                .events()
                .find("the job with that argument", SOON, |event| {
                    let is_it =
                        event.tag.ends_with("/new") && event.data["arg"][0] == "--no-such-option";
                    is_it.then(|| event.data["fun"].clone())
                })?;
            ensure!(sent == "test.arg", "{sent} was sent");
            saltern_cmd(site, &["-b", "two", "*", "test.ping"])?
                .expect_code(64)?
                .expect_text("is not a batch size")?;
            Ok(())
        },
    )
}
