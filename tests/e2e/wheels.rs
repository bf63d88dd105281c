//! Wheel functions over the wire: stock's own client asks stock's master and ours the same about
//! the same keys and files. What cannot be equal is masked: job ids, times, keys.

use std::os::unix::fs::{PermissionsExt, symlink};

use anyhow::{Context, Result, ensure};
use saltern_tests::site::{Failure, MinionKind, SOON};
use saltern_tests::{Event, Release, Server, Site, TestResult};
use serde_json::{Value, json};

#[test]
fn wheels_of_3006_answer_as_stock_does() -> TestResult {
    Ok(compare(Release::V3006)?)
}

#[test]
fn wheels_of_3007_answer_as_stock_does() -> TestResult {
    Ok(compare(Release::V3007)?)
}

#[test]
fn wheels_of_3008_answer_as_stock_does() -> TestResult {
    Ok(compare(Release::V3008)?)
}

/// Its session ends with its key, whatever else the minion kept.
#[test]
fn a_minion_whose_key_a_wheel_deletes_is_refused_with_its_next_message() -> TestResult {
    Site::run(
        Server::Saltern(Release::V3008),
        |_| {},
        |site| {
            site.bring_up(&[("kept", MinionKind::Native), ("gone", MinionKind::Native)])?;
            // The minion itself would only ask again and again.
            site.kill_minion("gone");
            site.announce("gone");
            let mut session = site.session_of("gone")?;
            session.send("before")?;
            let low = json!({"fun": "key.delete", "arg": ["gone"], "kwarg": {}});
            let answer = site.client()?.call(&json!({ "wheel": low }))?;
            ensure!(answer["data"]["success"] == true, "{answer}");
            ensure!(session.is_refused("after")?, "an event got through");
            site.salt(&["-t", "60", "*", "test.ping"])?
                .expect_code(0)?
                .expect_stdout("kept:\n    True")?;
            Ok(())
        },
    )
}

/// Keys before the first question, as `state/id`.
const KEYS: &[&str] = &[
    "minions/accepted",
    "minions/Other",
    "minions_pre/pending",
    "minions_pre/second",
    "minions_rejected/rejected",
    "minions_denied/denied",
    "minions_denied/accepted",
];

/// The questions, in their order: function, arguments without a name, arguments with one.
fn questions() -> Vec<(&'static str, Value, Value)> {
    let none = || json!([]);
    let no_named = || json!({});
    vec![
        ("key.list_all", none(), no_named()),
        ("key.list", json!(["acc"]), no_named()),
        ("key.list", json!(["un"]), no_named()),
        ("key.list", none(), json!({"match": "all"})),
        ("key.list", json!(["nonsense"]), no_named()),
        ("key.name_match", json!(["*e*"]), no_named()),
        ("key.name_match", json!(["pending,acc*"]), no_named()),
        ("key.name_match", json!([["pending", "Other"]]), no_named()),
        ("key.name_match", none(), no_named()),
        ("key.print", json!(["pending"]), no_named()),
        ("key.print", json!(["denied"]), no_named()),
        ("key.finger", json!(["*"]), no_named()),
        (
            "key.finger",
            json!(["pending"]),
            json!({"hash_type": "md5"}),
        ),
        ("key.finger_master", none(), no_named()),
        ("key.master_key_str", none(), no_named()),
        ("key.reject", json!(["second"]), no_named()),
        ("key.accept", json!(["second"]), no_named()),
        (
            "key.accept",
            json!(["second"]),
            json!({"include_rejected": true}),
        ),
        (
            "key.accept_dict",
            json!([{"minions_pre": ["pending"]}]),
            no_named(),
        ),
        (
            "key.reject_dict",
            json!([{"minions": ["pending"]}]),
            json!({"include_accepted": true}),
        ),
        (
            "key.accept",
            json!(["denied"]),
            json!({"include_denied": true}),
        ),
        ("key.delete", json!(["second,Other"]), no_named()),
        (
            "key.delete_dict",
            json!([{"minions_rejected": ["rejected"]}]),
            no_named(),
        ),
        ("key.list_all", none(), no_named()),
        ("minions.connected", none(), no_named()),
        ("file_roots.find", json!(["top.sls"]), no_named()),
        (
            "file_roots.find",
            json!(["bytes"]),
            json!({"saltenv": "base"}),
        ),
        ("file_roots.find", json!(["../secret"]), no_named()),
        ("file_roots.read", json!(["sub/deep.sls"]), no_named()),
        ("file_roots.list_env", none(), no_named()),
        ("file_roots.list_roots", none(), no_named()),
        (
            "file_roots.write",
            json!(["new\n", "new/file.sls"]),
            no_named(),
        ),
        (
            "file_roots.write",
            json!(["new\n", "../secret"]),
            no_named(),
        ),
        (
            "file_roots.write",
            json!(["new\n", "x"]),
            json!({"index": 7}),
        ),
        ("file_roots.read", json!(["new/file.sls"]), no_named()),
        ("pillar_roots.read", json!(["top.sls"]), no_named()),
        ("pillar_roots.list_env", json!(["none"]), no_named()),
        ("pillar_roots.write", json!(["x", "../secret"]), no_named()),
        ("error.error", none(), no_named()),
    ]
}

/// Answers and events of a master.
struct Transcript {
    answers: Vec<String>,
    events: Vec<String>,
}

fn compare(release: Release) -> Result<()> {
    let mut transcripts = Vec::new();
    for server in [Server::Stock(release), Server::Saltern(release)] {
        let configure = |config: &mut saltern_tests::Config| {
            config.set("id", "host_master");
        };
        Site::prepared(server, configure, |site| {
            prepare(site)?;
            site.start_master()?;
            transcripts.push(transcript(site)?);
            Ok(())
        })
        .map_err(Failure::into_error)?;
    }
    let [stock, mut ours] = <[Transcript; 2]>::try_from(transcripts)
        .map_err(|_| anyhow::anyhow!("two transcripts were made"))?;
    let mut differences = Vec::new();
    for (stock, ours) in stock.answers.iter().zip(&ours.answers) {
        if stock != ours {
            differences.push(format!("stock: {stock}\nours:  {ours}"));
        }
    }
    // Of one call, stock's events come in no certain order.
    for event in stock.events {
        match ours.events.iter().position(|other| *other == event) {
            Some(found) => _ = ours.events.swap_remove(found),
            None => differences.push(format!("only stock's event: {event}")),
        }
    }
    differences.extend(ours.events.iter().map(|it| format!("only our event: {it}")));
    ensure!(differences.is_empty(), "{}", differences.join("\n\n"));
    Ok(())
}

/// Keys of minions, the master's own, and files below both roots: the same for every master.
fn prepare(site: &mut Site) -> Result<()> {
    let root = site.path("").display().to_string();
    let root = root.trim_end_matches('/');
    site.config()
        .set("file_roots", format!("{{base: [{root}/salt]}}"))
        .set("pillar_roots", format!("{{base: [{root}/pillar]}}"));
    site.write_config()?;
    let write = |name: &str, content: &[u8]| -> Result<()> {
        let path = site.path(name);
        std::fs::create_dir_all(path.parent().context("a file in a directory")?)?;
        std::fs::write(&path, content)?;
        let mode = if name.ends_with(".pem") { 0o400 } else { 0o600 };
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode))?;
        Ok(())
    };
    for key in KEYS {
        write(
            &format!("pki/{key}"),
            vector("minion", "public")?.trim().as_bytes(),
        )?;
    }
    let is_new = site.server().release() == Release::V3008;
    let stem = if is_new { "host" } else { "master" };
    write(
        &format!("pki/{stem}.pem"),
        vector("master", "pkcs1")?.as_bytes(),
    )?;
    let public = format!("{}\n", vector("master", "public")?.trim());
    write(&format!("pki/{stem}.pub"), public.as_bytes())?;
    std::fs::set_permissions(site.path("pki"), PermissionsExt::from_mode(0o700))?;
    if is_new {
        for suffix in ["pem", "pub"] {
            let target = site.path(format!("pki/host.{suffix}"));
            symlink(target, site.path(format!("pki/master.{suffix}")))?;
        }
    }
    for name in ["salt", "pillar"] {
        write(
            &format!("{name}/top.sls"),
            "base: {'*': [größe]}\n".as_bytes(),
        )?;
        write(&format!("{name}/sub/deep.sls"), b"deep\n")?;
        write(&format!("{name}/bytes"), b"a\0b")?;
    }
    write("secret", b"secret\n")
}

/// A part of a key pair that all masters use.
fn vector(name: &str, part: &str) -> Result<String> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/vectors/crypto.json");
    let vectors: Value = serde_json::from_str(&std::fs::read_to_string(path)?)?;
    let text = vectors["keys"][name][part].as_str();
    Ok(text.context("a vector of this name")?.to_owned())
}

fn transcript(site: &mut Site) -> Result<Transcript> {
    let mark = site.events().mark();
    let mut client = site.client()?;
    let root = site.path("").display().to_string();
    let root = root.trim_end_matches('/').to_owned();
    let mut answers = Vec::new();
    let mut last = String::new();
    for (fun, arg, kwarg) in questions() {
        let call = json!({"wheel": {"fun": fun, "arg": arg, "kwarg": kwarg}});
        let answer = client.call(&call)?;
        let tag = answer["tag"]
            .as_str()
            .with_context(|| format!("{call}: {answer}"))?;
        last = format!("{tag}/ret");
        answers.push(format!("{call}: {}", masked(&answer, &root)));
    }
    site.events()
        .find_since(mark, "the last call", SOON, |event| {
            (event.tag == last).then_some(())
        })?;
    let is_ours = |event: &Event| {
        let mut tags = ["salt/wheel/", "salt/key"].into_iter();
        tags.any(|tag| event.tag.starts_with(tag))
    };
    let events = site.events().since(mark);
    let events = events.iter().filter(|event| is_ours(event));
    let shown = events.map(|event| masked(&json!([event.tag, event.data]), &root));
    Ok(Transcript {
        answers,
        events: shown.collect(),
    })
}

/// The value without what differs from run to run.
fn masked(value: &Value, root: &str) -> String {
    let mut value = value.clone();
    mask(&mut value);
    let text = value.to_string().replace(root, "ROOT");
    let mut parts = Vec::new();
    for part in text.split_inclusive(|c: char| !c.is_ascii_digit()) {
        let digits = part.trim_end_matches(|c: char| !c.is_ascii_digit());
        parts.push(match digits.len() {
            20 => part.replace(digits, "JID"),
            _ => part.to_owned(),
        });
    }
    parts.concat()
}

/// Times, and everything in stock's texts about wrong arguments but the error itself.
fn mask(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                match name.as_str() {
                    "_stamp" => *field = "TIME".into(),
                    _ => mask(field),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(mask),
        Value::String(text) => {
            if let Some(end) = text.find("\n\nUsage:") {
                text.truncate(end);
            }
        }
        _ => {}
    }
}
