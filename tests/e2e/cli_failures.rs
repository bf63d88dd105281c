//! Failures of the commands, and odd surroundings: each is a sentence with an exit code of stock's,
//! never the text of a panic; a follower that lost events shows all the same.
#![expect(
    clippy::disallowed_types,
    reason = "measures other processes, which no paused clock can reach"
)]

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use saltern_tests::config::Config;
use saltern_tests::process::{Daemon, Run, run};
use saltern_tests::release::saltern_program;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::terminal::Terminal;
use saltern_tests::{Release, Server, Site, TestResult, until_exists, wait_until};

/// Minions of the list target.
const MANY: usize = 10_000;

/// The user that nothing belongs to.
const NOBODY: &str = "65534";

fn configure(config: &mut Config) {
    // On a busy machine a minion at work takes a while to say so.
    config.set("timeout", 2).set("gather_job_timeout", 20);
}

/// Runs ours, and fails if it panicked.
fn own(site: &Site, program: &str, words: &[&str]) -> Result<Run> {
    let run = run(&mut site.own_command(program, words), SOON * 2)?;
    sane(&run)?;
    Ok(run)
}

fn sane(run: &Run) -> Result<()> {
    let text = [&*run.stdout, &*run.stderr].concat();
    for word in ["panicked", "RUST_BACKTRACE", "Traceback"] {
        ensure!(!text.contains(word), "{run}");
    }
    Ok(())
}

/// Ours beside stock's: standard output and exit code.
fn equal(site: &Site, program: &str, words: &[&str]) -> Result<()> {
    let stock = run(&mut site.stock_command(program, words), SOON * 3)?;
    let ours = own(site, program, words)?;
    let same = (&stock.stdout, stock.code) == (&ours.stdout, ours.code);
    ensure!(same, "{words:?}\n{stock}\n{ours}");
    Ok(())
}

#[test]
fn odd_returns_and_terminals_change_nothing_else() -> TestResult {
    let configure = |config: &mut Config| {
        configure(config);
        // The minion answers, however busy the machine is.
        config.set("timeout", 60);
    };
    Site::run(Server::Saltern(Release::V3008), configure, |site| {
        let modules = site.path("modules");
        fs::create_dir_all(&modules)?;
        fs::write(
            modules.join("odd.py"),
            "def raw():\n    return b'\\xff\\xfe\\x00no text'\n\ndef deep():\n    \
             return {b'\\xff': [b'\\xc3\\xa4', {'k': b'\\x80'}]}\n",
        )?;
        site.prepare_minion("m1", MinionKind::Stock(Release::V3008), |config| {
            config.set("module_dirs", format!("[{}]", modules.display()));
        })?;
        site.bring_up(&[("m1", MinionKind::Stock(Release::V3008))])?;
        site.salt(&["m1", "odd.raw"])?;

        site.step("bytes that are no text");
        for function in ["odd.raw", "odd.deep"] {
            for out in ["nested", "raw", "txt", "pprint", "yaml"] {
                equal(site, "salt", &["m1", &format!("--out={out}"), function])?;
            }
            own(site, "salt", &["m1", "--out=json", function])?.expect_code(0)?;
            for out in ["jsonl", "summary", "changes-only"] {
                own(site, "salt", &["m1", &format!("--out={out}"), function])?.expect_code(0)?;
            }
        }

        site.step("no terminal");
        let mut command = Command::new("setsid");
        command
            .args(["--wait", "bash", "-c", "exec -a salt \"$@\"", "bash"])
            .arg(saltern_program())
            .arg("-c")
            .arg(site.path("conf"))
            .args(["m1", "test.ping"])
            .stdin(Stdio::null());
        let alone = run(&mut command, SOON)?;
        alone.expect_code(0)?.expect_stdout("m1:\n    True")?;
        ensure!(alone.stderr.is_empty(), "{alone}");

        site.step("a narrow terminal");
        for columns in [1, 20] {
            let conf = site.path("conf").display().to_string();
            let words = ["cmd", "-c", &conf, "m1", "test.sleep", "2"];
            let mut narrow = Terminal::with_columns(columns, &saltern_program(), words)?;
            ensure!(narrow.end()?.code() == Some(0), "{}", narrow.screen());
            narrow.wait_for(&["m1:", "True"])?;
            for line in narrow
                .raw()
                .split("\r\x1b[K")
                .filter(|line| line.contains(" of "))
            {
                let width = line.chars().count();
                ensure!(width < usize::from(columns), "{width} columns: {line:?}");
            }
        }
        Ok(())
    })
}

#[test]
fn list_of_ten_thousand_minions_is_a_target() -> TestResult {
    Site::run(Server::Saltern(Release::V3008), configure, |site| {
        site.announce("the accepted minions need more open files");
        site.bring_up(&[("m1", MinionKind::Native)])?;
        site.accept_beforehand("n0000")?;
        let accepted = site.path("pki/minions");
        for number in 1..MANY {
            let id = format!("n{number:04}");
            fs::copy(accepted.join("n0000"), accepted.join(id))?;
        }
        let ids: Vec<String> = (0..MANY).map(|number| format!("n{number:04}")).collect();
        let target = format!("m1,{}", ids.join(","));
        let begun = Instant::now();
        let listed = own(site, "salt", &["-L", &target, "-t", "5", "test.ping"])?;
        listed.expect_code(1)?.expect_text("m1:\n    True")?;
        let silent = listed.stdout.matches("Minion did not return.").count();
        ensure!(silent == MANY, "{silent} are silent");
        ensure!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        own(
            site,
            "salt",
            &["-L", &target, "--preview-target", "--out=txt"],
        )?
        .expect_code(0)?;
        let silent = own(site, "salt", &["n0001", "-b", "1", "test.ping"])?;
        silent
            .expect_code(2)?
            .expect_text("ERROR: No return received")?;
        Ok(())
    })
}

#[test]
fn master_that_cannot_be_reached_is_a_sentence() -> TestResult {
    Site::run(Server::Saltern(Release::V3008), configure, |site| {
        site.announce("the publish connection broke");
        site.bring_up(&[("m1", MinionKind::Native)])?;
        site.step("who may not: a configuration, a key, sockets that cannot be read");
        fs::set_permissions(site.path(""), fs::Permissions::from_mode(0o755))?;
        let as_nobody = |program: &str, words: &[&str]| {
            let mut command = Command::new("setpriv");
            command
                .args(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups"])
                .args(["bash", "-c", "exec -a \"$@\"", "bash", program])
                .arg(saltern_program())
                .arg("-c")
                .arg(site.path("conf"))
                .args(words);
            let refused = run(&mut command, SOON)?;
            sane(&refused)?;
            Ok::<_, anyhow::Error>(refused)
        };
        for (program, words) in [
            ("salt", &["m1", "test.ping"][..]),
            ("salt-run", &["jobs.list_jobs"]),
            ("salt-key", &["-L"]),
            ("salt-cp", &["m1", "/etc/hosts", "/tmp/none"]),
        ] {
            let refused = as_nobody(program, words)?;
            let text = [&*refused.stdout, &*refused.stderr].concat();
            ensure!(!text.trim().is_empty(), "{refused}");
            let mode = fs::metadata(site.path("conf"))?.permissions();
            fs::set_permissions(site.path("conf"), fs::Permissions::from_mode(0o700))?;
            let refused = as_nobody(program, words)?;
            fs::set_permissions(site.path("conf"), mode)?;
            refused.expect_code(64)?;
            ensure!(
                refused.stderr.to_lowercase().contains("permission denied"),
                "{refused}"
            );
        }
        as_nobody("salt", &["m1", "test.ping"])?.expect_text("run as the master's user or root")?;

        site.step("something that is no master");
        let silent = TcpListener::bind("127.0.0.1:0")?;
        let elsewhere = site.path("elsewhere");
        fs::create_dir_all(&elsewhere)?;
        let config = fs::read_to_string(site.path("conf/master"))?;
        let wrong = format!("ret_port: {}", silent.local_addr()?.port());
        let lines = config
            .lines()
            .map(|line| match line.starts_with("ret_port:") {
                true => wrong.as_str(),
                false => line,
            });
        fs::write(
            elsewhere.join("master"),
            lines.collect::<Vec<_>>().join("\n"),
        )?;
        let conf = elsewhere.display().to_string();
        for (program, words) in [
            ("salt", &["-t", "1", "m1", "test.ping"][..]),
            ("salt-run", &["manage.up"]),
            ("salt-cp", &["-t", "1", "m1", "/etc/hosts", "/tmp/none"]),
        ] {
            let words = [&["-c", &conf], words].concat();
            let begun = Instant::now();
            let lost = own(site, program, &words)?;
            ensure!(!lost.stderr.trim().is_empty(), "{lost}");
            ensure!(begun.elapsed() < SOON, "{program}: {:?}", begun.elapsed());
        }

        site.step("a master that is stopped in the middle");
        // The batch goes on when its master is back: each job has an argument of its own. None returns before the
        // minion is ended, or it might find no master.
        for (name, program, words, argument) in [
            ("run", "salt-run", &["test.sleep", "300"][..], ""),
            (
                "batch",
                "salt",
                &["-b", "1", "m1", "test.sleep", "601"],
                "601",
            ),
            ("static", "salt", &["-s", "m1", "test.sleep", "602"], "602"),
            (
                "cp",
                "salt-cp",
                &["-t", "60", "m1", "/etc/hosts", "/sys/none"],
                "/sys/none",
            ),
        ] {
            if name == "cp" {
                site.kill_minion("m1");
            }
            let log = site.path(format!("log/{name}.out"));
            let mark = site.events().mark();
            let mut command = site.own_command(program, words);
            command.stdin(Stdio::null());
            let mut daemon = Daemon::start(name, &mut command, &log)?;
            site.events().find_since(mark, "its begin", SOON, |event| {
                let is_new = event.tag.ends_with("/new");
                let is_its = match name {
                    "run" => event.tag.starts_with("salt/run/"),
                    _ => event.data["arg"].to_string().contains(argument),
                };
                (is_new && is_its).then_some(())
            })?;
            site.kill_master();
            let ended = wait_until("the command to end", SOON, || daemon.ended())?;
            let text = fs::read_to_string(&log)?;
            ensure!(
                matches!(ended.code(), Some(1 | 2)),
                "{name}: {ended}\n{text}"
            );
            ensure!(text.contains("stopped or killed"), "{name}: {text}");
            ensure!(!text.contains("panicked"), "{name}: {text}");
            site.start_master()?;
            if name != "cp" {
                wait_until("the minion to be back", SOON, || {
                    let run = own(site, "salt", &["m1", "test.ping"]).ok()?;
                    run.stdout.contains("True").then_some(())
                })?;
            }
        }
        Ok(())
    })
}

/// Events are lost while the follower does not read: what they said is read from the database.
#[test]
fn follower_that_lost_events_shows_all_returns() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |config| {
            configure(config);
            config
                .set("saltern_event_queue_length", 4)
                // However long the follower is stopped, it is not cut off.
                .set("publish_drain_timeout", SOON.as_secs() * 4);
        },
        |site| {
            site.bring_up(&[("m1", MinionKind::Native)])?;
            // It runs until all that is to be lost was sent.
            let go = site.path("go");
            let command = format!("{}; echo True", until_exists(&go));
            let published = site.salt(&["m1", "cmd.run", &command, "--async"])?;
            let jid = published
                .stdout
                .trim()
                .rsplit(' ')
                .next()
                .unwrap_or_default();
            let conf = site.path("conf").display().to_string();
            let mut follower = Terminal::start(&saltern_program(), ["follow", "-c", &conf, jid])?;
            follower.wait_for(&["0 of 1 returned"])?;
            follower.signal(Signal::STOP)?;
            // More than its queue and its socket hold.
            let mut noise = site.stock_peer("flood_events.py", &["100", "60000"]);
            run(&mut noise, SOON)?.expect_code(0)?;
            // The listener may lose some of them, too: it has read what it got before the return comes.
            site.events().mark();
            fs::write(&go, "")?;
            site.events().tag(&format!("salt/job/{jid}/ret/m1"), SOON)?;
            follower.signal(Signal::CONT)?;
            follower.wait_for(&["m1:", "True"])?;
            let ended = follower.end()?;
            ensure!(ended.code() == Some(0), "{ended}:\n{}", follower.screen());
            let lost = site.metric("saltern_bus_events_dropped_total", "")?;
            ensure!(lost > 0.0, "no event was lost");
            Ok(())
        },
    )
}

/// A failure in the middle is a sentence with an exit code, never a panic.
#[test]
fn salt_that_fails_says_what_to_do() -> TestResult {
    Site::run(Server::Saltern(Release::V3008), configure, |site| {
        site.bring_up(&[("m1", MinionKind::Native), ("m2", MinionKind::Native)])?;
        // A reader that goes away.
        let line = format!(
            "exec -a salt {} -c {} '*' cmd.run 'seq 100000' | head -n 1",
            saltern_program().display(),
            site.path("conf").display()
        );
        let mut shell = Command::new("bash");
        let piped = run(shell.args(["-o", "pipefail", "-c", &line]), SOON)?;
        piped.expect_code(141)?;
        ensure!(piped.stderr.is_empty(), "{piped}");
        // A key that the master did not give out.
        let keys: Vec<_> = fs::read_dir(site.path("cache"))?
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.to_string_lossy().ends_with("_key"))
            .collect();
        let key = keys.first().context("the master wrote a key")?;
        let right = fs::read(key)?;
        let foreign = site.path("foreign");
        fs::create_dir_all(foreign.join("cache"))?;
        let mut config = fs::read_to_string(site.path("conf/master"))?;
        let cachedir = format!("cachedir: {}", foreign.join("cache").display());
        config = config
            .lines()
            .map(|line| match line.starts_with("cachedir:") {
                true => cachedir.clone() + "\n",
                false => format!("{line}\n"),
            })
            .collect();
        fs::write(foreign.join("master"), config)?;
        let as_other = || {
            let mut command = Command::new(saltern_program());
            command.arg0("salt").arg("-c").arg(&foreign);
            run(command.args(["m1", "test.ping"]), SOON)
        };
        as_other()?.expect_text("no key of this user can be read")?;
        let name = key.file_name().context("a name")?;
        fs::write(foreign.join("cache").join(name), vec![b'x'; right.len()])?;
        site.announce("the key does not fit");
        site.announce("the publish connection broke");
        as_other()?.expect_text("Authentication error occurred.")?;
        // A master that is killed in the middle, and one that does not run.
        let log = site.path("log/salt.out");
        let mut command = site.own_command("salt", &["m1", "--show-jid", "test.sleep", "600"]);
        command.stdin(Stdio::null());
        let mut salt = Daemon::start("salt", &mut command, &log)?;
        wait_until("the jid", SOON, || {
            let text = fs::read_to_string(&log).ok()?;
            text.contains("jid: ").then_some(())
        })?;
        site.kill_master();
        let ended = wait_until("the command to end", SOON, || salt.ended())?;
        ensure!(ended.code() == Some(1), "{ended}");
        let text = fs::read_to_string(&log)?;
        ensure!(text.contains("it was stopped or killed"), "{text}");
        let (stock, ours) = (
            site.salt(&["m1", "test.ping"])?,
            own(site, "salt", &["m1", "test.ping"])?,
        );
        ensure!(
            (&stock.stdout, stock.code) == (&ours.stdout, ours.code),
            "{stock}\n{ours}"
        );
        Ok(())
    })
}
