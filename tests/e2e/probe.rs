//! Crafted requests to stock's master and to ours: the same bytes must come back.
//!
//! The requests are in `tests/vectors/probe.py`: every row of the decision table, malformed and
//! hostile ones among them. Where we answer otherwise on purpose, [`DIFFERENCES`] says why; an
//! entry that no longer differs fails the test as well.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use saltern_tests::site::{Failure, SOON};
use saltern_tests::{Release, Server, Site, TestResult, run};
use serde_json::Value;

const RELEASE: Release = Release::V3008;

/// Stock's answer to a request that it did not handle to its end.
const NO_ANSWER: &str = "'Some exception handling minion payload'";

/// The rows whose answers differ, and why ours is what it is.
const DIFFERENCES: &[(&str, &str)] = &[
    (
        "malformed: id is a list",
        "stock lets lists pass where it refuses all else that is no text",
    ),
    (
        "malformed: enc nil",
        "an unknown enc is refused before anything looks at its load",
    ),
    ("malformed: enc 'foo'", "as above"),
    ("malformed: enc 'pub'", "as above"),
    ("malformed: enc 'CLEAR'", "as above"),
    ("malformed: enc 'aes '", "as above"),
    (
        "malformed: bin dialect",
        "ping echoes the bytes that came; stock packs them anew",
    ),
    (
        "auth: auth, id 'a\\nb'",
        "an id with a line break could forge lines of the log",
    ),
    ("auth: auth, id 'a\\nb', version 1", "as above"),
    (
        "auth: auth, new, no key in pub",
        "a text that is no public key is refused, and makes no file",
    ),
    (
        "auth: auth, short nonce",
        "only what minions send is signed: 32 hexadecimal digits",
    ),
    (
        "auth: auth, grains are no map",
        "they accept nobody; stock fails without an answer",
    ),
    (
        "returns: events, no list",
        "nothing is fired and the minion is answered so; stock's handler fails",
    ),
    (
        "returns: events, no tag",
        "a malformed event does not keep back the others of its list",
    ),
    (
        "publish: publish, no tgt_type",
        "glob is its default; stock forgets that after storing",
    ),
    (
        "publish: publish, list twice",
        "a minion that is named twice is expected to return once",
    ),
    (
        "publish: publish, jid a number",
        "both refuse; ours says why, where stock names a returner that is there",
    ),
    (
        "publish: publish, jid a word",
        "a jid becomes a tag and a path; ours has twenty digits",
    ),
];

/// Nearly every request deserves a warning.
const ANNOUNCED: &[&str] = &[
    "refused",
    "dropped",
    "the token of an authentication does not decrypt",
    "target matches nobody",
    "minimum_auth_version: minions with protocols that allow replay are served",
    "publisher_acl_blacklist: not honoured yet",
    "the clock of a minion is wrong",
];

#[test]
fn crafted_requests_are_answered_as_stock_answers_them() -> TestResult {
    let stock = answers(Server::Stock(RELEASE))?;
    let ours = answers(Server::Saltern(RELEASE))?;
    let mut wrong = Vec::new();
    for (name, answer) in &stock {
        let same = ours.get(name) == Some(answer);
        let reason = DIFFERENCES.iter().find(|(row, _)| row == name);
        match (same, reason) {
            (true, None) | (false, Some(_)) => {}
            (true, Some(_)) => wrong.push(format!("{name}: is listed, but no longer differs")),
            (false, None) => wrong.push(format!(
                "{name}\n  stock: {answer}\n  ours:  {}",
                ours.get(name).unwrap_or(&Value::Null)
            )),
        }
    }
    for (row, _) in DIFFERENCES {
        if !stock.contains_key(*row) {
            wrong.push(format!("{row}: is listed, but there is no such request"));
        }
    }
    ensured(wrong.is_empty(), &wrong.join("\n"))?;
    ensured(stock.len() > 200, "the probe sent hardly anything")?;
    // What ends a worker of stock's is answered here, and the next request is served.
    for name in ["version nil", "version a list"] {
        let answer = &ours[&format!("fatal: {name}")];
        ensured(answer["value"] == NO_ANSWER, name)?;
    }
    for name in [
        "no ts",
        "ts a text",
        "no id in the load",
        "load without its prefix",
    ] {
        let answer = &ours[&format!("fatal: {name}")];
        ensured(answer["value"] == "'bad load'", name)?;
    }
    ensured(
        ours["fatal: a ping at the end"] == ours["clear_commands: ping"],
        "the last ping",
    )
}

fn ensured(holds: bool, what: &str) -> TestResult {
    let check = || -> Result<()> {
        ensure!(holds, "{what}");
        Ok(())
    };
    Ok(check()?)
}

/// The answers of one master by the names of the requests.
fn answers(server: Server) -> Result<BTreeMap<String, Value>> {
    let mut answers = BTreeMap::new();
    Site::prepared(
        server,
        |config| {
            config
                .set("minimum_auth_version", 0)
                .set("request_server_ttl", 600)
                .set(
                    "publisher_acl_blacklist",
                    "{users: [barred], modules: ['barred.*']}",
                );
        },
        |site| {
            lay_out(site)?;
            for text in ANNOUNCED {
                site.announce(text);
            }
            site.start_master_only()?;
            answers = probe(site)?;
            Ok(())
        },
    )
    .map_err(Failure::into_error)?;
    Ok(answers)
}

/// Keys in every state and the rule files, before the master starts.
fn lay_out(site: &mut Site) -> Result<()> {
    let vectors: Value = serde_json::from_str(&std::fs::read_to_string(vectors("crypto.json"))?)?;
    let key = vectors["keys"]["minion"]["public"].as_str();
    let key = key.context("the vectors have a minion's key")?.trim();
    let files = [
        ("pki/minions/m1", key),
        ("pki/minions_pre/pending1", key),
        ("pki/minions_rejected/rejected1", key),
        ("pki/minions_denied/denied1", key),
        ("rules/sign", "auto-*\n"),
        ("rules/reject", "evil-.*\n"),
        ("rules/grains/uuid", "8d0d7a\n"),
    ];
    for (name, text) in files {
        let path = site.path(name);
        std::fs::create_dir_all(path.parent().context("it is in a directory")?)?;
        std::fs::write(&path, text)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    }
    std::fs::set_permissions(site.path("pki"), std::fs::Permissions::from_mode(0o700))?;
    let rules = ["sign", "reject", "grains"].map(|name| site.path("rules").join(name));
    let [sign, reject, grains] = rules.map(|path| path.display().to_string());
    let config = site.config();
    config
        .set("autosign_file", sign)
        .set("autoreject_file", reject);
    config.set("autosign_grains_dir", grains);
    site.write_config()
}

fn probe(site: &Site) -> Result<BTreeMap<String, Value>> {
    let mut command = Command::new(RELEASE.program("python"));
    command
        .arg(vectors("probe.py"))
        .arg(site.ret_port().to_string())
        .arg(site.path(""))
        .arg(vectors("crypto.json"));
    if site.server().is_ours() {
        command.arg("--fatal");
    }
    let done = run(&mut command, SOON * 2)?;
    done.expect_code(0)?;
    let answer = |line: &str| -> Result<(String, Value)> {
        let mut row: Value = serde_json::from_str(line)?;
        let name = row["name"].as_str().context("a row has a name")?.to_owned();
        Ok((name, row["answer"].take()))
    };
    done.stdout.lines().map(answer).collect()
}

fn vectors(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("vectors")
        .join(name)
}
