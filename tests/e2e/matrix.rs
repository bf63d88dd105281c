//! Compatibility matrix: minion, command line and event listener of every release work with our
//! master. The same steps run against stock's own master, which keeps them honest.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Release, Server, Site, TestResult, run, until_exists};
use serde_json::json;

#[test]
fn clients_3006_with_our_master() -> TestResult {
    everything(Server::Saltern(Release::V3006))
}

#[test]
fn clients_3007_with_our_master() -> TestResult {
    everything(Server::Saltern(Release::V3007))
}

#[test]
fn clients_3008_with_our_master() -> TestResult {
    everything(Server::Saltern(Release::V3008))
}

#[test]
fn clients_3006_with_their_own_master() -> TestResult {
    everything(Server::Stock(Release::V3006))
}

#[test]
fn clients_3007_with_their_own_master() -> TestResult {
    everything(Server::Stock(Release::V3007))
}

#[test]
fn clients_3008_with_their_own_master() -> TestResult {
    everything(Server::Stock(Release::V3008))
}

fn everything(server: Server) -> TestResult {
    Site::run(
        server,
        // The minion answers, however busy the machine is; the one long job has a `-t`.
        |config| _ = config.set("timeout", 60).set("gather_job_timeout", 30),
        |site| {
            a_key_is_pending_then_accepted(site)?;
            ping_prints_true(site)?;
            events_carry_stock_fields(site)?;
            a_job_longer_than_the_timeout_arrives(site)?;
            a_missing_minion_is_reported(site)?;
            no_match_is_reported(site)?;
            failures_keep_their_exit_codes(site)?;
            an_async_job_is_found_by_salt_run(site)?;
            salt_call_gets_a_jid_from_the_master(site)
        },
    )
}

fn a_key_is_pending_then_accepted(site: &mut Site) -> Result<()> {
    site.step("the key is pending, salt-key accepts it, the minion gets in by itself");
    site.start_minion("m1", MinionKind::Stock(site.server().release()))?;
    let pending = site
        .events()
        .find("a pending salt/auth event", SOON, |event| {
            (event.tag == "salt/auth" && event.data["act"] == "pend").then(|| event.clone())
        })?;
    ensure!(
        pending.data["id"] == "m1" && pending.data["result"] == json!(true),
        "{pending:?}"
    );
    ensure!(
        pending.fields() == ["_stamp", "act", "id", "pub", "result"],
        "{pending:?}"
    );
    site.wait_pending("m1")?;
    site.salt_key(&["-L"])?
        .expect_code(0)?
        .expect_stdout("Accepted Keys:\nDenied Keys:\nUnaccepted Keys:\nm1\nRejected Keys:")?;

    site.accept("m1")?;
    let accepted = site.events().tag("salt/key", SOON)?;
    // 3008's salt-key names the new state, the others the deed.
    let act = if site.server().release() == Release::V3008 {
        "accepted"
    } else {
        "accept"
    };
    ensure!(
        accepted.data["act"] == act && accepted.data["id"] == "m1",
        "{accepted:?}"
    );
    site.wait_started("m1")
}

pub(crate) fn ping_prints_true(site: &Site) -> Result<()> {
    site.step("salt '*' test.ping");
    site.salt(&["*", "test.ping"])?
        .expect_code(0)?
        .expect_stdout("m1:\n    True")?;
    Ok(())
}

fn events_carry_stock_fields(site: &Site) -> Result<()> {
    site.step("a stock listener sees job/new and job/ret with stock's fields");
    let release = site.server().release();
    let mark = site.events().mark();
    site.salt(&["m1", "test.echo", "hi"])?
        .expect_code(0)?
        .expect_stdout("m1:\n    hi")?;

    let (jid, new) = site.events().find_since(mark, "job/new", SOON, |event| {
        let jid = event.tag.strip_prefix("salt/job/")?.strip_suffix("/new")?;
        Some((jid.to_owned(), event.clone()))
    })?;
    ensure!(
        jid.len() == 20 && jid.bytes().all(|byte| byte.is_ascii_digit()),
        "jid {jid:?}"
    );
    let fields = [
        "_stamp", "arg", "fun", "jid", "minions", "missing", "tgt", "tgt_type", "user",
    ];
    ensure!(new.fields() == fields, "job/new has {:?}", new.fields());
    for (field, value) in [
        ("arg", json!(["hi"])),
        ("fun", json!("test.echo")),
        ("jid", json!(jid)),
        ("minions", json!(["m1"])),
        ("missing", json!([])),
        ("tgt", json!("m1")),
        ("tgt_type", json!("glob")),
    ] {
        ensure!(
            new.data[field] == value,
            "job/new: {field} is {}",
            new.data[field]
        );
    }
    let stamp = new.data["_stamp"].as_str().context("_stamp is a string")?;
    ensure!(
        stamp.ends_with("+00:00") == (release == Release::V3008),
        "_stamp is {stamp:?}"
    );

    let ret = site.events().tag(&format!("salt/job/{jid}/ret/m1"), SOON)?;
    let fields = [
        "_stamp", "cmd", "fun", "fun_args", "id", "jid", "retcode", "return", "success", "ts",
        "user",
    ];
    ensure!(ret.fields() == fields, "job/ret has {:?}", ret.fields());
    ensure!(
        ret.data["return"] == "hi" && ret.data["cmd"] == "_return",
        "{ret:?}"
    );
    ensure!(
        ret.data["success"] == json!(true) && ret.data["retcode"] == json!(0),
        "{ret:?}"
    );

    // 3006 and 3007 clients (the syndic above all) listen for the bare jid, 3007 and 3008 ones for
    // the publication.
    if release != Release::V3008 {
        let bare = site.events().tag(&jid, SOON)?;
        ensure!(bare.data["minions"] == json!(["m1"]), "{bare:?}");
    }
    if release != Release::V3006 {
        let publish = site
            .events()
            .tag(&format!("salt/job/{jid}/publish"), SOON)?;
        let fields = [
            "_stamp", "arg", "fun", "jid", "ret", "tgt", "tgt_type", "user",
        ];
        ensure!(
            publish.fields() == fields,
            "job/publish has {:?}",
            publish.fields()
        );
    }
    Ok(())
}

pub(crate) fn a_job_longer_than_the_timeout_arrives(site: &Site) -> Result<()> {
    site.step("a job that outlives the timeout of 5 s");
    let mark = site.events().mark();
    let go = site.path("go");
    let held = format!("{}; echo hello", until_exists(&go));
    let mut command = site.stock_command("salt", &["-t", "5", "*", "cmd.run", &held]);
    let job = std::thread::spawn(move || run(&mut command, SOON * 2));
    site.events()
        .find_since(mark, "a find_job round", SOON, |event| {
            (event.tag.ends_with("/new") && event.data["fun"] == "saltutil.find_job").then_some(())
        })?;
    fs::write(&go, "")?;
    let job = job.join().expect("running a command does not panic")?;
    job.expect_code(0)?.expect_stdout("m1:\n    hello")?;
    ensure!(
        job.took >= Duration::from_secs(5),
        "it took only {:?}",
        job.took
    );
    Ok(())
}

fn a_missing_minion_is_reported(site: &Site) -> Result<()> {
    site.step("-L m1,ghost reports the ghost");
    let run = site.salt(&["-L", "m1,ghost", "test.ping"])?;
    run.expect_code(1)?
        .expect_text("m1:\n    True")?
        .expect_text("ghost:\n    Minion did not return. [No response]")?;
    Ok(())
}

fn no_match_is_reported(site: &Site) -> Result<()> {
    site.step("a target that matches nothing");
    site.salt(&["nobody", "test.ping"])?
        .expect_code(2)?
        .expect_text("No minions matched the target. No command was sent, no jid was assigned.")?;
    Ok(())
}

fn failures_keep_their_exit_codes(site: &Site) -> Result<()> {
    site.step("a function that fails and one that does not exist");
    site.salt(&["m1", "cmd.run", "echo oops; exit 3"])?
        .expect_code(1)?
        .expect_text("oops")?;
    site.salt(&["m1", "no.such_function"])?
        .expect_code(1)?
        .expect_text("'no.such_function' is not available.")?;
    Ok(())
}

fn an_async_job_is_found_by_salt_run(site: &Site) -> Result<()> {
    site.step("--async, then salt-run jobs.lookup_jid");
    let run = site.salt(&["*", "test.echo", "later", "--async"])?;
    run.expect_code(0)?;
    let jid = run
        .stdout
        .trim()
        .strip_prefix("Executed command with job ID: ")
        .with_context(|| format!("no jid in\n{run}"))?;
    site.events().tag(&format!("salt/job/{jid}/ret/m1"), SOON)?;
    site.wait_until_mirrored(jid, "m1")?;
    site.salt_run(&["jobs.lookup_jid", jid])?
        .expect_code(0)?
        .expect_stdout("m1:\n    later")?;
    let job = site.salt_run(&["jobs.list_job", jid, "--out=json"])?;
    let job: serde_json::Value = serde_json::from_str(&job.expect_code(0)?.stdout)?;
    ensure!(
        job["Function"] == "test.echo" && job["Target"] == "*",
        "{job}"
    );
    ensure!(job["Minions"] == json!(["m1"]), "{job}");
    ensure!(job["Result"]["m1"]["return"] == "later", "{job}");
    Ok(())
}

fn salt_call_gets_a_jid_from_the_master(site: &Site) -> Result<()> {
    site.step("salt-call test.ping");
    let mark = site.events().mark();
    site.salt_call("m1", &["test.ping"])?
        .expect_code(0)?
        .expect_stdout("local:\n    True")?;
    let ret = site
        .events()
        .find_since(mark, "the return of salt-call", SOON, |event| {
            (event.tag.starts_with("salt/job/") && event.tag.ends_with("/ret/m1"))
                .then(|| event.clone())
        })?;
    ensure!(ret.tag.len() == "salt/job//ret/m1".len() + 20, "{ret:?}");
    ensure!(
        ret.data["tgt"] == "m1" && ret.data["tgt_type"] == "glob",
        "{ret:?}"
    );
    Ok(())
}
