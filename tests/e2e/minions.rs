//! `saltern minions`, `saltern key` and what shells complete words with: the inventory from the running
//! master's cache and from its files, and that no job is published for it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use saltern_tests::process::{Run, run};
use saltern_tests::release::saltern_program;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::terminal::Terminal;
use saltern_tests::{Release, Server, Site, TestResult, wait_until};
use serde_json::{Value, json};

#[test]
fn inventory_of_3006_needs_no_job() -> TestResult {
    inventory(Release::V3006)
}

#[test]
fn inventory_of_3008_needs_no_job() -> TestResult {
    inventory(Release::V3008)
}

fn inventory(release: Release) -> TestResult {
    Site::run(
        Server::Saltern(release),
        |config| _ = config.set("timeout", 60),
        |site| {
            // Native minions send no grains.
            let kind = MinionKind::Stock(release);
            for (id, grains) in [
                (
                    "web2",
                    "{role: web, rev: '6.9', net: {eth0: [10.0.0.2, 10.0.0.3]}}",
                ),
                ("web10", "{role: web, rev: '6.12'}"),
                ("db1", "{role: db, rev: '6.1'}"),
            ] {
                site.prepare_minion(id, kind, |config| {
                    config.set("grains", grains);
                })?;
            }
            site.bring_up(&[("web2", kind), ("web10", kind), ("db1", kind)])?;
            site.salt(&["*", "test.ping"])?.expect_code(0)?;
            site.salt(&["db1", "cmd.run", "exit 3"])?;
            site.step("a minion is gone");
            site.kill_minion("web10");
            wait_until("the minion to be known as away", SOON, || {
                let run = site.saltern(&["minions", "-w", "not present"]).ok()?;
                run.stdout.contains("web10").then_some(())
            })?;
            let jobs = jobs(site)?;

            site.step("who is meant");
            let ids = |words: &[&str]| -> Result<Vec<String>> {
                let words = [&["minions", "--out=json", "--columns=id"], words].concat();
                let run = site.saltern(&words)?;
                let rows: Vec<Value> = serde_json::from_str(&run.stdout)?;
                ensure!(run.code == Some(i32::from(rows.is_empty())), "{run}");
                let ids = rows.iter().map(|row| row["id"].as_str().map(str::to_owned));
                ids.collect::<Option<_>>().context("ids")
            };
            for (words, expected) in [
                (&[][..], &["db1", "web10", "web2"][..]),
                (&["G@role:web and web*"], &["web10", "web2"]),
                (&["-w", "role = web and rev < 6.10"], &["web2"]),
                (&["-w", "present", "-w", "role != db"], &["web2"]),
                (&["-w", "net:eth0 = 10.0.0.3"], &["web2"]),
                (&["web*", "--sort", "rev"], &["web2", "web10"]),
                (&["--sort=-rev"], &["web10", "web2", "db1"]),
                (&["-w", "job.result = failed"], &["db1"]),
                (&["--job", "test.*", "-w", "job.result = failed"], &[]),
                (&["-w", "job.at < 1h and job.function = cmd.*"], &["db1"]),
                (&["nobody"], &[]),
            ] {
                let found = ids(words)?;
                ensure!(found == expected, "{words:?}: {found:?}");
            }
            for words in [
                &["minions", "-w", "role ="][..],
                &["minions", "-w", "last_seen > yesterday"],
            ] {
                let run = site.saltern(words)?;
                ensure!(run.code == Some(1) && run.stdout.is_empty(), "{run}");
            }

            site.step("how it is shown");
            let columns = "--columns=id,present,role,net:eth0,job.function,nothing";
            site.saltern(&["minions", "web2", columns])?.expect_stdout(
                "id    present  role  net:eth0           job.function  nothing\n\
                 web2  true     web   10.0.0.2,10.0.0.3  test.ping     -",
            )?;
            let run = site.saltern(&["minions", "web2", columns, "--out=csv"])?;
            let expected = "id,present,role,net:eth0,job.function,nothing\r\n\
                            web2,true,web,\"10.0.0.2,10.0.0.3\",test.ping,\r\n";
            ensure!(run.stdout == expected, "{run}");
            let run = site.saltern(&["minions", "web2", columns, "--out=json"])?;
            let shown: Value = serde_json::from_str(&run.stdout)?;
            let expected = json!([{
                "id": "web2", "present": true, "role": "web",
                "net:eth0": ["10.0.0.2", "10.0.0.3"], "job.function": "test.ping", "nothing": null,
            }]);
            ensure!(shown == expected, "{shown}");

            site.step("keys with their minions");
            let run = site.saltern(&["key", "list", "--details", "--state=accepted"])?;
            run.expect_code(0)?;
            let heading = "Accepted Keys:\nid     age";
            ensure!(run.stdout.starts_with(heading), "{run}");
            ensure!(run.stdout.contains("  connected  "), "{run}");
            let run = own(site, "salt-key", &["-L", "--details", "--out=json"])?;
            let keys: Value = serde_json::from_str(&run.stdout)?;
            let key = &keys["minions"]["web2"];
            ensure!(
                key["present"] == true && key["address"] == "127.0.0.1",
                "{keys}"
            );
            ensure!(
                key["written"].is_i64() && key["last_seen"].is_i64(),
                "{keys}"
            );
            ensure!(keys["minions_pre"] == json!({}), "{keys}");

            site.step("completion");
            completes(site)?;
            ensure!(jobs == self::jobs(site)?, "a job was published");

            site.step("no master runs");
            for minion in ["web2", "db1"] {
                site.kill_minion(minion);
            }
            site.stop_master()?;
            let run = site.saltern(&["minions", "-w", "role = db", "--columns=id,job.function"])?;
            run.expect_code(0)?.expect_text("no master runs here")?;
            ensure!(run.stdout.contains("db1  cmd.run"), "{run}");
            Ok(())
        },
    )
}

/// The ids of all jobs.
fn jobs(site: &Site) -> Result<String> {
    Ok(site.saltern(&["complete", "jobs"])?.stdout)
}

fn own(site: &Site, program: &str, words: &[&str]) -> Result<Run> {
    run(&mut site.own_command(program, words), SOON)
}

/// A line that is typed, and what it is completed with.
const COMPLETED: &[(&[&str], &str)] = &[
    (&["cmd", "-c", "CONF", "we"], "web10 web2"),
    (&["cmd", "-c", "CONF", "web2", "cmd."], "cmd.run"),
    (&["cmd", "-c", "CONF", "-t", "3", "d"], "db1"),
    (&["minions", "-c", "CONF", "d"], "db1"),
    (&["key", "accept", "-c", "CONF", "web1"], "web10"),
    (&["run", "-c", "CONF", "jobs.lo"], "jobs.lookup_jid"),
    (&["cmd", "-c", "CONF", "--batch-w"], "--batch-wait"),
    (&["expl"], "explain"),
];

/// Has each shell complete these lines, by what the package installs for it.
fn completes(site: &Site) -> Result<()> {
    let directory = site.path("documents");
    std::fs::create_dir_all(&directory)?;
    let mut documents = Command::new(saltern_program());
    run(documents.arg("documents").arg(&directory), SOON)?.expect_code(0)?;
    let completions = directory.join("completions");
    let conf = site.path("conf").display().to_string();
    for (words, expected) in COMPLETED {
        let words: Vec<&str> = words
            .iter()
            .map(|word| if *word == "CONF" { &*conf } else { word })
            .collect();
        let of_bash = by_bash(&completions.join("saltern.bash"), &words)?;
        ensure!(of_bash == *expected, "bash, {words:?}: {of_bash:?}");
        let of_fish = by_fish(&completions.join("saltern.fish"), &words)?;
        let expected_words: BTreeSet<&str> = expected.split(' ').collect();
        ensure!(
            of_fish.split(' ').collect::<BTreeSet<_>>() == expected_words,
            "fish, {words:?}: {of_fish:?}"
        );
        by_zsh(&completions, &words, expected)?;
    }
    Ok(())
}

/// Drives the completion of bash as bash does when a key is pressed.
fn by_bash(script: &Path, words: &[&str]) -> Result<String> {
    let program = saltern_program().display().to_string();
    let bash = "source \"$1\"; COMP_WORDS=(\"${@:2}\"); COMP_CWORD=$(($# - 2)); COMP_LINE=\"${*:2}\"; \
                COMP_POINT=${#COMP_LINE}; _saltern_known \"$2\" \"${COMP_WORDS[COMP_CWORD]}\" \
                \"${COMP_WORDS[COMP_CWORD - 1]}\"; echo \"${COMPREPLY[*]}\"";
    let mut command = Command::new("bash");
    command
        .args(["-c", bash, "bash"])
        .arg(script)
        .arg(program)
        .args(words);
    let run = run(&mut command, SOON)?;
    ensure!(run.code == Some(0), "{run}");
    Ok(run.stdout.trim().to_owned())
}

/// The search path with our program first.
fn search_path() -> Result<String> {
    let program = saltern_program();
    let directory = program.parent().context("the program is in a directory")?;
    Ok(format!(
        "{}:{}",
        directory.display(),
        std::env::var("PATH")?
    ))
}

/// Has fish complete a line; without what it says of each word.
fn by_fish(script: &Path, words: &[&str]) -> Result<String> {
    let mut command = Command::new("fish");
    let line = format!("saltern {}", words.join(" "));
    command
        .args(["--no-config", "-c", "source $argv[1]; complete -C $argv[2]"])
        .arg(script)
        .arg(line)
        .env("PATH", search_path()?);
    let run = run(&mut command, SOON)?;
    ensure!(run.code == Some(0), "{run}");
    let found = run.stdout.lines().map(|line| line.split('\t').next());
    Ok(found.flatten().collect::<Vec<_>>().join(" "))
}

/// Types a line into zsh in a terminal and presses the key.
fn by_zsh(directory: &Path, words: &[&str], expected: &str) -> Result<()> {
    let path = format!("PATH={}", search_path()?);
    let mut zsh = Terminal::start(Path::new("env"), [&*path, "zsh", "-f", "-i"])?;
    zsh.press(&format!(
        "fpath=({} $fpath); autoload -U compinit; compinit -D -u; setopt no_list_ambiguous; PS1='ready''> '; PS2='more''> '\r",
        directory.display()
    ))?;
    zsh.wait_for(&["ready>"])?;
    // A script that cannot be read is an error on the screen. The last word alone on its line: then what
    // is inserted stands behind it.
    let (last, before) = words.split_last().context("a word")?;
    zsh.press(&format!("saltern {} \\\r", before.join(" ")))?;
    zsh.wait_for(&["more>"])?;
    zsh.press(&format!("{last}\t"))?;
    let expected: Vec<&str> = expected.split(' ').collect();
    zsh.wait_for(&expected)
}
