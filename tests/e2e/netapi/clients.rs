//! Real clients of the HTTP API, unmodified: `pepper` and `curl -N`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use saltern_tests::process::peer;
use saltern_tests::site::{MinionKind, SOON};
use saltern_tests::{Site, TestResult, run, wait_until};
use serde_json::{Value, json};

use super::{Dialect, SECRET, User, transcripts_of_both, with_ours};

/// What a websocket of stock's `rest_cherrypy` needs, and Salt does not bring.
pub(super) fn ws4py() -> Result<PathBuf> {
    let home = std::env::var_os("HOME").context("HOME")?;
    let packages = PathBuf::from(home).join(".cache/saltern/tools/ws4py-0.6.0");
    ensure!(
        packages.exists(),
        "{} is missing: tests/install-stock.sh --api-clients",
        packages.display()
    );
    Ok(packages)
}

/// A program that `tests/install-stock.sh --api-clients` installed.
pub(super) fn api_client(name: &str) -> Result<PathBuf> {
    let home = std::env::var_os("HOME").context("HOME")?;
    let directory = PathBuf::from(home).join(".cache/saltern/tools/api-clients/bin");
    let program = directory.join(name);
    ensure!(
        program.exists(),
        "{} is missing: tests/install-stock.sh --api-clients",
        program.display()
    );
    Ok(program)
}

#[test]
fn pepper_gets_from_ours_what_it_gets_from_stock() -> TestResult {
    let [stock, ours] = transcripts_of_both(Dialect::CherryPy, pepper)?;
    let pairs = stock
        .iter()
        .zip(&ours)
        .filter(|(stock, ours)| stock != ours);
    let different: Vec<String> = pairs
        .map(|(stock, ours)| format!("stock: {stock}\nours:  {ours}"))
        .collect();
    ensure_equal(stock.len(), ours.len(), &different)?;
    // So that two refusals of everything are not taken for agreement.
    let served = ours
        .iter()
        .filter(|line| line.contains("\"m1\": {") || line.contains("\"m1\": true"));
    Ok(ensure_at_least(served.count(), 4, &ours)?)
}

fn ensure_equal(stock: usize, ours: usize, different: &[String]) -> Result<()> {
    ensure!(
        stock == ours && different.is_empty(),
        "{stock} calls of stock, {ours} of ours:\n{}",
        different.join("\n\n")
    );
    Ok(())
}

fn ensure_at_least(count: usize, least: usize, lines: &[String]) -> Result<()> {
    ensure!(count >= least, "{count} were served:\n{}", lines.join("\n"));
    Ok(())
}

/// Arguments of pepper's command, after those of its user.
const PEPPER: &[&[&str]] = &[
    &["*", "test.ping"],
    &["m1", "test.arg", "one", "2"],
    &["-L", "m1,nobody", "test.ping"],
    &["-G", "role:web", "test.ping"],
    &["-C", "G@role:web and m*", "test.ping"],
    &["nobody", "test.ping"],
    &["--client=runner", "test.arg", "a=1"],
    &["--client=wheel", "minions.connected"],
    &["--client=local_async", "nobody", "test.ping"],
];

/// Output of pepper's command and of its library.
fn pepper(site: &Site, port: u16) -> Result<Vec<String>> {
    let url = format!("http://127.0.0.1:{port}");
    let mut lines = Vec::new();
    for password in [SECRET, "guess"] {
        for arguments in PEPPER {
            let mut command = Command::new(api_client("pepper")?);
            let user = ["-u", &url, "-a", "sharedsecret", "--username", "ann"];
            command
                .env("HOME", site.path(""))
                .args(user)
                .args(["--password", password])
                .args(*arguments);
            let done = run(&mut command, SOON)?;
            let (out, errors) = (masked(&done.stdout), masked(&done.stderr));
            lines.push(format!("{arguments:?}: {:?}\n{out}\n{errors}", done.code));
            if password == "guess" {
                break;
            }
        }
    }
    let mut library = Command::new(api_client("python")?);
    library.arg(peer("pepper_library.py")).arg(url);
    let done = run(&mut library, SOON)?;
    let shown = done.expect_code(0)?.stdout.lines().map(masked);
    lines.extend(shown);
    Ok(lines)
}

/// Without jids (words of 20 digits) and the lines of time stamps.
fn masked(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.contains("\"_stamp\""));
    let text = lines.collect::<Vec<_>>().join("\n");
    let words = text.split_inclusive(|c: char| !c.is_ascii_digit());
    words
        .map(|word| {
            let digits = word.trim_end_matches(|c: char| !c.is_ascii_digit());
            match digits.len() {
                20 => word.replace(digits, "JID"),
                _ => word.to_owned(),
            }
        })
        .collect()
}

#[test]
fn curl_without_buffer_prints_events_as_they_happen() -> TestResult {
    with_ours(Dialect::CherryPy, |site, port| {
        site.bring_up(&[("m1", MinionKind::Native)])?;
        let mut user = User::log_in(site, port, "ann")?;
        let output = site.path("log/curl.out");
        let mut command = Command::new("curl");
        command
            .args(["-N", "-s", "-S", "-H"])
            .arg(format!("X-Auth-Token: {}", user.token))
            .arg(format!("http://127.0.0.1:{port}/events"));
        let _curl = saltern_tests::Daemon::start("curl", &mut command, &output)?;
        let printed = || std::fs::read_to_string(&output).unwrap_or_default();
        wait_until("curl to be connected", SOON, || {
            printed().starts_with("retry: 400\n").then_some(())
        })?;
        let chunk =
            json!({"client": "local", "tgt": "m1", "fun": "test.ping", "full_return": true});
        let answer = user.low(chunk)?;
        let jid = answer["m1"]["jid"].as_str().context("a jid")?.to_owned();
        let tag = format!("salt/job/{jid}/ret/m1");
        let block = wait_until("the return in curl's output", SOON, || {
            let text = printed();
            let mut blocks = text.split("\n\n").map(str::to_owned);
            // A block that something follows is complete.
            blocks
                .find(|block| block.contains(&format!("tag: {tag}\n")) && block.contains("data: "))
        })?;
        let data = block.lines().find_map(|line| line.strip_prefix("data: "));
        let event: Value = serde_json::from_str(data.context("a line of data")?)?;
        ensure!(
            event["tag"] == tag && event["data"]["return"] == true,
            "{block}"
        );
        Ok(())
    })
}
