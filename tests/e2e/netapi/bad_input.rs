//! Requests of dishonest clients (`peers/http_abuse.py`): refused with a sentence and counted, and
//! nothing else is touched.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use saltern_tests::process::peer;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Site, TestResult, run, wait_until};
use serde_json::Value;

use super::{Dialect, User, with_ours};

/// How much more memory the master may have after it than before, in bytes.
const GROWTH: u64 = 64 << 20;

#[test]
fn bad_requests_are_refused_with_a_sentence_and_counted() -> TestResult {
    with_ours(Dialect::CherryPy, |site, port| {
        // One that would run what got through.
        site.bring_up(&[("m1", MinionKind::Native)])?;
        let user = User::log_in(site, port, "ann")?;
        let mark = site.events().mark();
        let memory = site.master().memory()?;
        let counted = refused(site)?;

        let mut command = Command::new(site.server().release().program("python"));
        command
            .arg(peer("http_abuse.py"))
            .args(["127.0.0.1", &port.to_string(), &user.token]);
        let done = run(&mut command, SOON * 2)?;
        let answers = done
            .expect_code(0)?
            .stdout
            .lines()
            .map(serde_json::from_str);
        let answers: Vec<Value> = answers.collect::<Result<_, _>>()?;
        let wrong: Vec<String> = answers.iter().filter_map(wrong).collect();
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        ensure!(answers.len() > 50, "{} cases", answers.len());

        let cases = f64::from(u32::try_from(answers.len())?);
        wait_until("all refusals to be counted", SOON, || {
            (refused(site).ok()? - counted >= cases).then_some(())
        })?;
        let grown = site.master().memory()?.saturating_sub(memory);
        site.step(&format!("the master grew by {} MiB", grown >> 20));
        ensure!(grown < GROWTH, "the master grew by {grown} bytes");
        nothing_happened(site, mark, user)
    })
}

/// Requests that were answered with 4xx, and what no handler answered.
fn refused(site: &Site) -> Result<f64> {
    let answered = site.metric("saltern_http_requests_total", "code=\"4xx\"")?;
    Ok(answered + site.metric("saltern_http_refused_total", "")?)
}

/// The fault of the answer to one case.
fn wrong(answer: &Value) -> Option<String> {
    let status = answer["status"].as_u64().unwrap_or_default();
    let is_lenient = answer["lenient"] == true;
    let has_sentence = answer["body"]
        .as_str()
        .is_some_and(|body| body.chars().any(char::is_alphabetic));
    let is_refused = match status {
        // To what is no HTTP, a parser has no more to say.
        400..=499 => has_sentence || is_lenient,
        // Of no method or version that there is.
        501 | 505 => true,
        0 => is_lenient && answer["error"].is_null(),
        _ => false,
    };
    let headers = answer["headers"].as_array();
    let is_split = headers.is_some_and(|names| names.iter().any(|name| name == "x-evil"));
    (!is_refused || is_split).then(|| answer.to_string())
}

/// No job, no event of a hook, no other key; and the session still works.
fn nothing_happened(site: &Site, mark: usize, mut user: User) -> Result<()> {
    let events = site.events().since(mark);
    let caused = events.iter().find(|event| {
        let tag = &event.tag;
        tag.starts_with("salt/netapi/") || (tag.starts_with("salt/job/") && tag.ends_with("/new"))
    });
    ensure!(caused.is_none(), "{caused:?}");
    let keys = std::fs::read_dir(site.path("pki/minions"))?.count();
    ensure!(keys == 1, "{keys} accepted keys");
    let chunk = serde_json::json!({"client": "local", "tgt": "*", "fun": "test.ping"});
    let answer = user.low(chunk).context("the session that was attacked")?;
    ensure!(answer["m1"] == true, "{answer}");
    Ok(())
}
