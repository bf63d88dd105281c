//! `/v1` over HTTP: jobs that are published and looked at, and batches that are paused and stopped.

use anyhow::{Context, Result, ensure};
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Site, TestResult, wait_until};
use serde_json::{Value, json};

use super::{Dialect, User, with_ours};

/// Asks as the user who is logged in.
fn ask(user: &mut User, method: &str, path: &str, body: Option<Value>) -> Result<(u64, Value)> {
    let call = json!({"method": method, "path": path, "auth": true, "json": body});
    let mut answer = user.session.call(&call)?;
    let status = answer["status"].as_u64().context("a status")?;
    Ok((status, answer["body"].take()))
}

/// The problem of a request that is refused with this status.
fn refused(user: &mut User, path: &str, body: Option<Value>, expected: u64) -> Result<String> {
    let (status, problem) = ask(user, "POST", path, body)?;
    ensure!(status == expected, "{path}: {status} {problem}");
    let detail = problem["detail"].as_str();
    Ok(detail.with_context(|| problem.to_string())?.to_owned())
}

#[test]
fn job_is_published_looked_at_and_refused_over_v1() -> TestResult {
    with_ours(Dialect::CherryPy, |site, port| {
        site.bring_up(&[("m1", MinionKind::Native), ("m2", MinionKind::Native)])?;
        let mut ann = User::log_in(site, port, "ann")?;
        let job = json!({"target": "m*", "function": "test.arg", "arguments": ["a", 1],
            "keyword_arguments": {"k": "v"}});
        let (status, published) = ask(&mut ann, "POST", "/v1/jobs", Some(job))?;
        ensure!(status == 201, "{status} {published}");
        ensure!(
            published["minions"] == json!(["m1", "m2"]) && published["missing"] == json!([]),
            "{published}"
        );
        let jid = published["jid"].as_str().context("a jid")?.to_owned();
        let of_job = format!("/v1/jobs/{jid}");
        let whole = wait_until("the job to be complete", SOON, || {
            let (_, job) = ask(&mut ann, "GET", &of_job, None).ok()?;
            (job["state"] == "complete").then_some(job)
        })?;
        ensure!(whole["user"] == "ann", "{whole}");
        let (_, returns) = ask(&mut ann, "GET", &format!("{of_job}/returns"), None)?;
        let mut of_m2 = returns["returns"].as_array().context("returns")?.iter();
        let of_m2 = of_m2.find(|one| one["minion"] == "m2");
        let returned = &of_m2.with_context(|| returns.to_string())?["value"];
        ensure!(returned["args"] == json!(["a", 1]), "{returns}");
        ensure!(returned["kwargs"]["k"] == "v", "{returns}");

        let listed = json!({"target": ["m1", "ghost"], "target_type": "list",
            "function": "test.ping"});
        let (_, published) = ask(&mut ann, "POST", "/v1/jobs", Some(listed))?;
        ensure!(published["missing"] == json!(["ghost"]), "{published}");

        let job =
            |target: &str, function: &str| Some(json!({"target": target, "function": function}));
        let nobody = refused(&mut ann, "/v1/jobs", job("nobody*", "test.ping"), 409)?;
        ensure!(
            nobody.contains("resolve minions for target nobody*"),
            "{nobody}"
        );
        let wrong = Some(json!({"tgt": "*", "function": "test.ping"}));
        let wrong = refused(&mut ann, "/v1/jobs", wrong, 400)?;
        ensure!(wrong.contains("tgt"), "{wrong}");
        let mut bob = User::log_in(site, port, "bob")?;
        refused(&mut bob, "/v1/jobs", job("m1", "test.arg"), 403)?;
        refused(&mut bob, "/v1/jobs", job("m2", "test.ping"), 403)?;
        let (status, published) = ask(&mut bob, "POST", "/v1/jobs", job("m1", "test.ping"))?;
        ensure!(status == 201, "{published}");
        Ok(())
    })
}

#[test]
fn batch_is_paused_resumed_and_stopped_over_v1_by_who_may() -> TestResult {
    with_ours(Dialect::CherryPy, |site, port| {
        site.bring_up(&[("m1", MinionKind::Native), ("m2", MinionKind::Native)])?;
        let mut ann = User::log_in(site, port, "ann")?;
        let mut bob = User::log_in(site, port, "bob")?;
        let jid = batch(site)?;
        let of_batch = format!("/v1/batches/{jid}");
        for action in ["pause", "resume", "stop"] {
            refused(&mut bob, &format!("{of_batch}/{action}"), None, 403)?;
        }
        for (action, is_paused) in [("pause", true), ("pause", true), ("resume", false)] {
            let (status, done) = ask(&mut ann, "POST", &format!("{of_batch}/{action}"), None)?;
            ensure!(
                status == 200 && done["jid"] == jid,
                "{action}: {status} {done}"
            );
            let (_, batch) = ask(&mut ann, "GET", &of_batch, None)?;
            ensure!(
                batch["paused_since"].is_string() == is_paused,
                "{action}: {batch}"
            );
        }
        let (status, _) = ask(
            &mut ann,
            "POST",
            &format!("{of_batch}/stop?kill=true"),
            None,
        )?;
        ensure!(status == 200, "{status}");
        let over = refused(&mut ann, &format!("{of_batch}/pause"), None, 409)?;
        ensure!(over.contains("it is over"), "{over}");
        Ok(())
    })
}

/// Begins a batch that does not end by itself; its jid.
fn batch(site: &Site) -> Result<String> {
    let words = ["-b", "1", "--async", "m*", "cmd.run", "sleep 600"];
    let begun = site.saltern_cmd(&words)?;
    let printed = &begun.expect_code(0)?.stdout;
    let jid = printed.trim().rsplit(' ').next().unwrap_or_default();
    ensure!(jid.len() == 20, "{printed}");
    Ok(jid.to_owned())
}
