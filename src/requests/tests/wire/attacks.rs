//! Attacks on every command, as a table: each is refused, counted, logged in one line, and writes
//! nothing but what the row allows.
//!
//! Three kinds of attackers. A stranger reaches the port and has no key; a thief has a secret of a
//! minion, such as its session key without its private key; an evil minion is accepted and sends
//! what no stock minion would. Paths of the file server have a table of their own, with links and
//! races, in `saltern-content`; forged tags of events one in `events`; permission to publish one in
//! `publish`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use saltern_wire::msgpack::Value;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::wire::client::{Load, Minion, clear, commands};
use crate::wire::site::Site;

/// Counts the lines that are logged, down to a level. The log's format guarantees that no value of
/// an attacker splits a line in two.
struct Lines(Arc<AtomicUsize>, Level);

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.1 && metadata.target().starts_with("saltern")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// Attack: its name, its payload, and the directory in which it may write.
type Attack = (String, Bytes, Option<&'static str>);

/// Attack that may not write.
fn attack(what: impl Into<String>, payload: impl Into<Bytes>) -> Attack {
    (what.into(), payload.into(), None)
}

fn all_fail(site: &Site, attacks: Vec<Attack>) {
    let mut failures = Vec::new();
    for (what, payload, may_write) in attacks {
        // The log is limited per second; each attack has a second of its own.
        site.clock.advance(Duration::from_secs(1));
        let before = outside(site, may_write);
        let refused = site.refused();
        let count = Arc::new(AtomicUsize::new(0));
        let lines = Lines(Arc::clone(&count), Level::DEBUG);
        let outcome = tracing::subscriber::with_default(lines, || site.ask(payload));
        let mut expect = |holds: bool, failure: &str| {
            if !holds {
                failures.push(format!("{what}: {failure}"));
            }
        };
        expect(outcome.effects.is_empty(), "it has effects");
        expect(outside(site, may_write) == before, "it left a trace");
        let counted = site.refused() - refused;
        expect(counted == 1, &format!("it is counted {counted} times"));
        let lines = count.load(Ordering::Relaxed);
        expect(lines == 1, &format!("it is {lines} lines in the log"));
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

fn outside(site: &Site, allowed: Option<&str>) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = site.files();
    if let Some(allowed) = allowed {
        let allowed = site.path(allowed);
        files.retain(|path, _| !path.starts_with(&allowed));
    }
    files
}

/// Names that are no minion id, or look like a valid one.
pub(crate) fn hostile_ids() -> Vec<Value> {
    let long = "x".repeat(256);
    let texts = [
        "",
        ".",
        "..",
        "../m1",
        "../../etc/passwd",
        "/etc/passwd",
        "m1/../m2",
        "m1/files",
        "m1\\..",
        "m1\0",
        "\0",
        "m1\n",
        "m1\r\n[CRITICAL] forged",
        long.as_str(),
    ];
    texts.iter().map(|text| Value::from(*text)).collect()
}

/// Ids that look like "m1" to people, and one that is not UTF-8: an overlong slash.
fn look_alikes() -> [Value; 5] {
    [
        "\u{217f}1".into(),
        "m\u{200b}1".into(),
        "\u{202e}1m".into(),
        "M1".into(),
        Value::Bin(Bytes::from_static(b"m1\xc0\xaf..")),
    ]
}

#[test]
fn attacks_without_key_are_refused() {
    let site = Site::new("");
    let key = Minion::new("m1", "minion");
    let auth = |id: Value| clear(key.auth().set("id", id), 3);
    let mut attacks = Vec::new();
    for id in hostile_ids() {
        attacks.push(attack(format!("_auth as {id:?}"), auth(id)));
    }
    let large = "x".repeat(1 << 20);
    attacks.extend([
        attack(
            "_auth with a huge key",
            clear(key.auth().set("pub", large.as_str()), 3),
        ),
        attack("_auth, id is a list", auth(Value::Array(Vec::new()))),
        attack("nothing", Bytes::new()),
        attack("no msgpack", Bytes::from_static(b"GET / HTTP/1.1\r\n\r\n")),
        attack("a text", Bytes::from_static(b"\xa3abc")),
        attack(
            "a map of 4 billion entries",
            Bytes::from_static(b"\xdf\xff\xff\xff\xff"),
        ),
        attack(
            "a text of 4 GB",
            Bytes::from_static(b"\x81\xdb\xff\xff\xff\xffx"),
        ),
        attack(
            "an array in an array in …",
            Bytes::from(vec![0x91; 1 << 20]),
        ),
        attack("an envelope that is cut off", auth("m1".into()).slice(..40)),
        attack(
            "an unknown kind of envelope",
            Load::new()
                .set("enc", "pub")
                .set("load", Load::new())
                .packed(),
        ),
    ]);
    all_fail(&site, attacks);
}

#[test]
fn attacks_with_stolen_secrets_are_refused() {
    let site = Site::new("");
    let m1 = Minion::signed_in(&site, "m1");
    let m2 = Minion::signed_in(&site, "m2");
    let stranger = Minion::new("m1", "large");
    let mut attacks = Vec::new();
    for cmd in commands() {
        let load = || m1.load(cmd);
        let seal = |load: Load| m1.sealed(load, 3);
        let mut row =
            |what: &str, payload: Bytes| attacks.push(attack(format!("{cmd}: {what}"), payload));
        row("another minion in the load", seal(load().set("id", "m2")));
        row(
            "another minion on the envelope",
            m1.envelope(load(), 3).set("id", "m2").packed(),
        );
        row(
            "no id on the envelope",
            m1.envelope(load(), 3).without("id").packed(),
        );
        row("no id in the load", seal(load().without("id")));
        row("no token", seal(load().without("tok")));
        row(
            "the token of another key",
            seal(load().set("tok", stranger.token())),
        );
        row(
            "a token of zeroes",
            seal(load().set("tok", Value::Bin(Bytes::from(vec![0; 256])))),
        );
        row(
            "a token that is a list",
            seal(load().set("tok", Value::Array(Vec::new()))),
        );
        row(
            "a nonce that is too short",
            seal(load().set("nonce", "short")),
        );
        row(
            "a nonce that is a map",
            seal(load().set("nonce", Load::new())),
        );
        row("the oldest protocol", m1.sealed(load(), 0));
        row(
            "a protocol of no number",
            m1.envelope(load(), 3).set("version", Load::new()).packed(),
        );
        row("sealed with the shared key", {
            let shared = saltern_crypto::Crypticle::new(m1.shared.as_ref().unwrap());
            let packed =
                saltern_wire::msgpack::encode(&load().value(), saltern_wire::msgpack::Dialect::Raw);
            m1.envelope(load(), 3)
                .set("load", Value::Bin(shared.dumps(&packed, None).into()))
                .packed()
        });
        row("a ciphertext with one bit changed", {
            let mut payload = seal(load()).to_vec();
            let at = payload.windows(4).position(|part| part == b"load").unwrap() + 200;
            payload[at] ^= 1;
            payload.into()
        });
        for id in hostile_ids() {
            row(
                &format!("{id:?} in the load"),
                seal(load().set("id", id.clone())),
            );
            row(
                &format!("{id:?} on the envelope"),
                m1.envelope(load(), 3).set("id", id).packed(),
            );
        }
        for id in look_alikes() {
            row(
                &format!("{id:?} in the load"),
                seal(load().set("id", id.clone())),
            );
            row(
                &format!("{id:?} on the envelope"),
                m1.envelope(load(), 3).set("id", id).packed(),
            );
        }
    }
    // The answer to one minion is useless to another.
    let answer = site.ask(m1.sealed(m1.load("_file_envs"), 3)).reply;
    let replayed = crate::wire::site::decode(&answer);
    assert!(m2.crypticle(3).loads(replayed.as_bytes().unwrap()).is_err());
    all_fail(&site, attacks);
}

/// Commands without a row among the attacks by an accepted minion, each with the reason.
const NOT_ATTACKED: [(&str, &str); 11] = [
    ("_dir_list", "a table of its own in `saltern-content`"),
    ("_file_envs", "reads nothing of its load"),
    ("_file_list", "a table of its own in `saltern-content`"),
    (
        "_file_list_emptydirs",
        "a table of its own in `saltern-content`",
    ),
    ("_master_opts", "reads nothing of its load but a flag"),
    (
        "_master_tops",
        "its load is data for the site's own program",
    ),
    ("_mine_delete", "reaches the sender's own mine only"),
    ("_mine_flush", "reaches the sender's own mine only"),
    ("_symlink_list", "a table of its own in `saltern-content`"),
    ("revoke_auth", "a test of its own, for its effect is wanted"),
    ("verify_minion", "reads nothing of its load"),
];

/// Compares in both directions: a new command needs a row, or a reason for none.
fn assert_every_command_is_attacked(attacked: BTreeSet<String>) {
    let excepted = NOT_ATTACKED.map(|(command, _)| command.to_owned());
    let mut listed: Vec<String> = attacked.into_iter().chain(excepted).collect();
    listed.sort_unstable();
    let mut served: Vec<&str> = commands();
    served.sort_unstable();
    assert_eq!(listed, served);
}

#[test]
fn attacks_by_accepted_minion_are_refused() {
    let site = Site::new("file_recv: True\n");
    site.write("secret", "the master's own");
    let m1 = Minion::signed_in(&site, "m1");
    site.accept("m2", "large");
    let list = |texts: &[&str]| Value::Array(texts.iter().map(|text| Value::from(*text)).collect());
    let mut attacks = Vec::new();
    let mut commands_attacked = BTreeSet::new();
    let mut row = |what: &str, load: Load| {
        let value = load.clone().value();
        let command = value.get("cmd").and_then(Value::as_str).unwrap().to_owned();
        commands_attacked.insert(command);
        attacks.push(attack(what, m1.sealed(load, 3)));
    };

    for path in [
        &["..", "m2", "files", "x"][..],
        &["a", "../../../x"],
        &["/etc/passwd"],
        &["a\0b"],
        &[".."],
    ] {
        let load = m1
            .load("_file_recv")
            .set("path", list(path))
            .set("loc", 0_i64);
        row(
            &format!("_file_recv to {path:?}"),
            load.set("data", "evil").set("size", 4_i64),
        );
    }
    for cmd in [
        "_serve_file",
        "_file_hash",
        "_file_hash_and_stat",
        "_file_find",
    ] {
        for path in ["../secret", "/etc/passwd", "a/../../secret", "a\0b"] {
            let load = m1
                .load(cmd)
                .set("path", path)
                .set("saltenv", "base")
                .set("loc", 0_i64);
            row(&format!("{cmd} of {path:?}"), load);
        }
    }
    for jid in [
        "../../x",
        "/etc/passwd",
        "20260102030405060708/..",
        "a\0b",
        "",
        "20260102030405060708\n",
    ] {
        let load = m1
            .load("_return")
            .set("jid", jid)
            .set("return", true)
            .set("fun", "test.ping");
        row(&format!("_return for {jid:?}"), load);
    }
    for resource in ["m2", "switch-of-another", "../x", "m2/x", "a\0b", ""] {
        let load = m1
            .load("_return")
            .set("jid", "20260102030405060708")
            .set("return", true);
        row(
            &format!("_return as {resource:?}"),
            load.set("fun", "x").set("resource_id", resource),
        );
    }
    for tag in [
        "",
        "salt/job/1/ret/m2\n\n{}",
        "salt/auth",
        "salt/minion/m2/start",
        "syndic/m2/x",
        "syndic/m1/20260102030405060708",
        "salt/batch/20260102030405060708/stop",
        "salt/reactors/manage/add",
        "my/salt/reactors/manage/add",
        "salt/event/exit",
        "my/salt/job/20260102030405060708/ret/m2",
    ] {
        let load = m1
            .load("_minion_event")
            .set("tag", tag)
            .set("data", Load::new());
        row(&format!("_minion_event {tag:?}"), load);
    }
    for environment in ["../../x", "a/../b", "a\0b", "..", "a\\b"] {
        let load = m1.load("_pillar").set("grains", Load::new());
        row(
            &format!("_pillar of {environment:?}"),
            load.set("pillarenv", environment),
        );
    }
    let long = "x".repeat(5_000);
    row(
        "_minion_event with a long tag",
        m1.load("_minion_event")
            .set("tag", long.as_str())
            .set("data", "x"),
    );
    for data in [Value::Nil, 5_i64.into(), "text".into(), list(&["x"])] {
        row(
            &format!("_mine of {data:?}"),
            m1.load("_mine").set("data", data),
        );
    }
    let many = |count: usize| Value::map((0..count).map(|number| (format!("f{number}"), 1_i64)));
    for count in [10_001, 300_000] {
        let load = m1.load("_mine").set("data", many(count));
        row(&format!("_mine of {count} functions"), load);
    }
    for pattern in ["(", "(a+)+$\0(", "[z-a]"] {
        let load = m1
            .load("_mine_get")
            .set("tgt", pattern)
            .set("tgt_type", "pcre");
        row(&format!("_mine_get of {pattern:?}"), load.set("fun", "x"));
    }
    let nested = "( ".repeat(10_000);
    let load = m1
        .load("_mine_get")
        .set("tgt", nested.as_str())
        .set("tgt_type", "compound");
    row("_mine_get of a deeply nested target", load.set("fun", "x"));
    for cmd in [
        "minion_pub",
        "minion_publish",
        "minion_runner",
        "_syndic_return",
        "pub_ret",
        "saltern_syndic_frame",
        "saltern_syndic_inventory",
        "saltern_syndic_verdicts",
    ] {
        row(
            &format!("{cmd} without a rule"),
            m1.load(cmd).set("fun", "cmd.run").set("tgt", "*"),
        );
    }
    for resources in [
        Value::from("x"),
        Value::map([("ssh", list(&["m2"]))]),
        Value::map([("../x", list(&["a"]))]),
        Value::map([("t", list(&["r1", "r1"]))]),
    ] {
        let load = m1
            .load("_register_resources")
            .set("resources", resources.clone());
        row(&format!("_register_resources {resources:?}"), load);
    }
    // Grains that would be stored once for each repetition of a name.
    let grains = Value::map([("t:r1", Value::map((0..128).map(|n| (n, Value::Nil))))]);
    let load = m1
        .load("_register_resources")
        .set("resource_grains", grains);
    let repeated = Value::map([("t", list(&vec!["r1"; 10_000]))]);
    row("one resource 10,000 times", load.set("resources", repeated));
    let names: Vec<String> = (0..10_001).map(|number| format!("r{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let load = m1.load("_register_resources");
    row(
        "too many resources",
        load.set("resources", Value::map([("t", list(&names))])),
    );
    let large = Value::Array(vec![Value::Nil; 500_000]);
    for (what, grain) in [("many", large), ("long", "x".repeat(17 << 20).into())] {
        let grains = Value::map([("t:r1", Value::map([("x", grain)]))]);
        let load = m1
            .load("_register_resources")
            .set("resource_grains", grains);
        let load = load.set("resources", Value::map([("t", list(&["r1"]))]));
        row(&format!("_register_resources with {what} grains"), load);
    }
    assert_every_command_is_attacked(commands_attacked);
    all_fail(&site, attacks);
    assert_eq!(site.read("secret").as_deref(), Some("the master's own"));
    site.opens_again();
}

#[test]
fn revoke_auth_deletes_sender_key_only() {
    let site = Site::new("");
    let m1 = Minion::signed_in(&site, "m1");
    site.accept("m2", "large");
    // Stock deletes every key that the id matches as a wildcard.
    let star = Minion::signed_in(&site, "*");
    site.ask(star.sealed(star.load("revoke_auth"), 3));
    assert!(site.read("pki/minions/m1").is_some() && site.read("pki/minions/m2").is_some());
    let load = m1
        .load("revoke_auth")
        .set("preserve_minion_cache", true)
        .set("match", "m2");
    site.ask(m1.sealed(load, 3));
    assert!(site.read("pki/minions/m2").is_some());
}

/// A fault of the configuration is logged once, not once for each request of each minion.
#[test]
fn missing_master_tops_modules_are_logged_once() {
    let lines_of = |options: &str, requests: u64| {
        let count = Arc::new(AtomicUsize::new(0));
        let lines = Lines(Arc::clone(&count), Level::WARN);
        tracing::subscriber::with_default(lines, || {
            let site = Site::new(options);
            let m1 = Minion::signed_in(&site, "m1");
            let refused = site.refused();
            for _ in 0..requests {
                let reply = site.ask(m1.sealed(m1.load("_master_tops"), 3)).reply;
                assert_eq!(m1.open(&reply, 3), "".into());
            }
            assert_eq!(site.refused() - refused, requests);
        });
        count.load(Ordering::Relaxed)
    };
    let modules = "master_tops: {cobbler: {}, reclass: {}}\n";
    assert_eq!(lines_of(modules, 3), lines_of("", 0) + 1);
}
