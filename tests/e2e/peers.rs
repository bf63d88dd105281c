//! Peer publishing: `publish.publish`, `publish.full_data` and
//! `publish.runner` of stock minions of every release, by `salt-call` and by jobs. The same calls
//! are made against stock's own master, and what comes back is compared.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use saltern_tests::session::Session;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Config, Release, Server, Site, TestResult, wait_until};
use serde_json::{Value, json};

#[test]
fn peers_of_3006_get_what_stock_gives_them() -> TestResult {
    compare(Release::V3006)
}

#[test]
fn peers_of_3007_get_what_stock_gives_them() -> TestResult {
    compare(Release::V3007)
}

#[test]
fn peers_of_3008_get_what_stock_gives_them() -> TestResult {
    compare(Release::V3008)
}

/// The minion that may ask; its rules stand in [`configure`].
const ASKER: &str = "asker";

fn configure(config: &mut Config) {
    config
        // Of `manage.up`: every minion answers, however busy the machine is.
        .set("timeout", 60)
        .set(
            "peer",
            "{asker: ['test\\..*', grains.get, pillar.get], limited: [{'other*': [test.ping]}]}",
        )
        .set("peer_run", "{asker: ['jobs\\..*', 'no\\..*']}")
        .set("nodegroups", "{both: 'asker or other'}")
        .set("runner_returns", false);
}

/// Argument of a call that waits longer than the five seconds of stock for what a busy machine delays.
const PATIENCE: &str = "timeout=60";

/// Adds it to the arguments of a call.
fn patient(arg: &mut Value) {
    arg.as_array_mut()
        .expect("arguments are a list")
        .push(PATIENCE.into());
}

/// Calls of each minion by a job; the answers are compared as they are.
fn calls() -> Vec<(&'static str, &'static str, Value)> {
    vec![
        (ASKER, "publish.publish", json!(["*", "test.ping"])),
        (ASKER, "publish.full_data", json!(["*", "test.ping"])),
        (
            ASKER,
            "publish.publish",
            json!(["other", "test.arg", "[1, x=2, 'a b']"]),
        ),
        (
            ASKER,
            "publish.publish",
            json!(["other", "test.kwarg", "cheese=spam"]),
        ),
        (
            ASKER,
            "publish.publish",
            json!(["asker,other", "test.echo", "5", "list"]),
        ),
        (
            ASKER,
            "publish.publish",
            json!(["role:web", "grains.get", "id", "grain"]),
        ),
        (
            ASKER,
            "publish.publish",
            json!(["E@oth.*", "test.ping", "", "compound"]),
        ),
        (ASKER, "publish.publish", json!(["ghost*", "test.ping"])),
        (ASKER, "publish.publish", json!(["*", "cmd.run", "id"])),
        (
            ASKER,
            "publish.publish",
            json!(["*", "publish.publish", "* test.ping"]),
        ),
        ("other", "publish.publish", json!(["*", "test.ping"])),
        ("limited", "publish.publish", json!(["other", "test.ping"])),
        ("limited", "publish.publish", json!(["*", "test.ping"])),
        (
            "limited",
            "publish.publish",
            json!(["other", "test.echo", "x"]),
        ),
        (
            ASKER,
            "publish.runner",
            json!(["jobs.list_job", "20200101000000000000"]),
        ),
        (ASKER, "publish.runner", json!(["no.such"])),
        (ASKER, "publish.runner", json!(["manage.up"])),
        ("other", "publish.runner", json!(["jobs.list_jobs"])),
    ]
}

fn compare(release: Release) -> TestResult {
    let stock = answers(Server::Stock(release))?;
    let ours = answers(Server::Saltern(release))?;
    let mut differences = Vec::new();
    for ((call, stock), (_, ours)) in stock.iter().zip(&ours) {
        if without_jids(stock) != without_jids(ours) {
            differences.push(format!("{call}\nstock: {stock}\nours:  {ours}"));
        }
    }
    if stock.len() != ours.len() || !differences.is_empty() {
        Err(anyhow::anyhow!("{}", differences.join("\n\n")))?;
    }
    Ok(())
}

/// The answer with every jid, which no two masters share, made the same.
fn without_jids(answer: &Value) -> String {
    let text = answer.to_string();
    let numbers = text.split(|c: char| !c.is_ascii_digit());
    let jids = numbers.filter(|number| number.len() == 20);
    jids.fold(text.clone(), |text, jid| text.replace(jid, "JID"))
}

/// Every call with its answer.
fn answers(server: Server) -> Result<Vec<(String, Value)>> {
    let release = server.release();
    let mut answers = Vec::new();
    Site::run(server, configure, |site| {
        announce_refusals(site);
        let kind = MinionKind::Stock(release);
        site.bring_up(&[(ASKER, kind), ("other", kind), ("limited", kind)])?;
        let mut client = site.client()?;
        for (minion, fun, mut arg) in calls() {
            if fun != "publish.runner" {
                patient(&mut arg);
            }
            let answer = call(&mut client, minion, fun, &arg)?;
            answers.push((format!("{minion}: {fun} {arg}"), answer));
        }
        for call in [
            &["publish.publish", "other", "test.echo", "hello", PATIENCE][..],
            &["publish.full_data", "other", "test.ping", PATIENCE],
            &["publish.publish", "other", "cmd.run", "id", PATIENCE],
            &["publish.runner", "jobs.list_job", "20200101000000000000"],
        ] {
            let run = site.salt_call(ASKER, &[call, &["--out=json"]].concat())?;
            let answer = serde_json::from_str(&run.expect_code(0)?.stdout);
            answers.push((format!("salt-call {call:?}"), answer.context("no JSON")?));
        }
        ask_over_the_wire(site, &mut answers)
    })
    .map_err(saltern_tests::site::Failure::into_error)?;
    Ok(answers)
}

/// The commands themselves, with loads that no function of stock's minion sends.
fn ask_over_the_wire(site: &Site, answers: &mut Vec<(String, Value)>) -> Result<()> {
    let release = site.server().release();
    let mut asker = site.peer("ask_master.py", ASKER, release)?;
    let mut other = site.peer("ask_master.py", "other", release)?;
    let mut soon = job("minion_publish", "test.ping", "*", "clean");
    soon["timeout"] = "soon".into();
    for load in [
        job("minion_publish", "cmd.run", "*", "clean"),
        job("minion_pub", "test.ping", "ghost", "clean"),
        soon,
        json!({"cmd": "minion_pub", "fun": "test.ping"}),
        json!({"cmd": "minion_runner", "fun": "jobs.list_jobs"}),
        json!({"cmd": "pub_ret"}),
        json!({"cmd": "pub_ret", "jid": "20200101000000000000"}),
    ] {
        let answer = asker.call(&load)?;
        answers.push((format!("over the wire: {load}"), answer));
    }
    let begun = asker.call(&job("minion_pub", "test.ping", "other", "clean"))?;
    let pub_ret = json!({"cmd": "pub_ret", "jid": begun["jid"]});
    let returned = wait_until("the return of the job", SOON, || {
        let answer = asker.call(&pub_ret).ok()?;
        (answer != json!({})).then_some(answer)
    })?;
    answers.push(("the publisher's own job".to_owned(), returned));
    let returned = other.call(&pub_ret)?;
    answers.push(("another minion's job".to_owned(), returned));
    Ok(())
}

fn job(cmd: &str, fun: &str, tgt: &str, form: &str) -> Value {
    json!({"cmd": cmd, "fun": fun, "arg": [], "tgt": tgt, "tgt_type": "glob", "ret": "",
           "tmo": 60, "form": form})
}

/// Lines of our log about what is refused here on purpose.
fn announce_refusals(site: &mut Site) {
    site.announce("request refused");
}

fn call(client: &mut Session, minion: &str, fun: &str, arg: &Value) -> Result<Value> {
    client.call(&json!({"tgt": minion, "fun": fun, "arg": arg}))
}

/// Beyond stock's master: `full_data` and `runner` of all releases at one master, several
/// functions, nodegroups; and the files of such jobs.
#[test]
fn minions_of_every_release_publish_to_each_other() -> TestResult {
    let release = Release::V3008;
    Site::run(
        Server::Saltern(release),
        |config| {
            config
                .set("peer", "{'.*': ['test\\..*']}")
                .set("peer_run", "{'.*': [jobs.list_jobs]}")
                .set("nodegroups", "{old: 'm3006 or m3007'}");
        },
        |site| {
            let ids = Release::ALL.map(Release::minion_id);
            let minions: Vec<(&str, MinionKind)> = ids
                .iter()
                .zip(Release::ALL)
                .map(|(id, release)| (id.as_str(), MinionKind::Stock(release)))
                .collect();
            site.bring_up(&minions)?;
            let mut client = site.client()?;
            let all = json!({"m3006": true, "m3007": true, "m3008": true});
            let expected = json!({"m3006": all, "m3007": all, "m3008": all});
            let got = call(
                &mut client,
                "*",
                "publish.publish",
                &json!(["*", "test.ping", PATIENCE]),
            )?;
            ensure!(got == expected, "{got}");
            site.step("the publisher of each job is kept where stock keeps it");
            publishers_are_kept(&site.path("cache/publish_auth"), &ids)?;
            let old = json!({"m3006": true, "m3007": true});
            let got = call(
                &mut client,
                "m3008",
                "publish.publish",
                &json!(["old", "test.ping", null, "nodegroup", PATIENCE]),
            )?;
            ensure!(got == json!({"m3008": old}), "{got}");
            let got = call(
                &mut client,
                "m3006",
                "publish.publish",
                &json!(["m3008", "test.ping,test.echo", ["", "hello"], PATIENCE]),
            )?;
            let both = json!({"test.ping": true, "test.echo": "hello"});
            ensure!(got == json!({"m3006": {"m3008": both}}), "{got}");
            site.step("a minion waits for the returns themselves");
            let mut asker = site.peer("ask_master.py", "m3007", Release::V3007)?;
            let got = asker.call(&job("minion_publish", "test.ping", "*", "clean"))?;
            ensure!(got == all, "{got}");
            let got = asker.call(&job("minion_publish", "test.ping", "m3006", "full"))?;
            let whole = &got["m3006"];
            ensure!(whole["ret"] == true && whole["fun"] == "test.ping", "{got}");
            ensure!(got["__jid__"] == whole["jid"], "{got}");
            site.step("the jobs of minions are known to functions of the master");
            let argument = json!(["jobs.list_jobs", ["search_function=test.ping"]]);
            let got = call(&mut client, "m3007", "publish.runner", &argument)?;
            let jobs = got["m3007"].as_object().context("jobs by their jids")?;
            ensure!(jobs.len() == 6, "{got}");
            Ok(())
        },
    )
}

fn publishers_are_kept(dir: &Path, ids: &[String]) -> Result<()> {
    wait_until("a file for each publisher", SOON, || {
        let entries = std::fs::read_dir(dir).ok()?;
        let names = entries.map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok());
        let mut names: Vec<String> = names.collect::<Option<_>>()?;
        names.sort_unstable();
        (names == ids).then_some(())
    })
}
