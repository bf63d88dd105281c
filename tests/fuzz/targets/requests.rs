//! Loads of port 4506: as strangers send them, and sealed by an accepted minion.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use bytes::Bytes;
use saltern_crypto::PrivateKey;
use saltern_fuzz::Fuzz;
use saltern_model::MinionId;
use saltern_requests::{Effect, Outcome, Services, handle, minion_commands};
use saltern_wire::msgpack::{Dialect, Value, encode};

use crate::site::{key_pair, services};

const NONCE: &str = "0123456789abcdef0123456789abcdef";

/// Names and values that a handler looks for.
const WORDS: &[&[u8]] = &[
    b"\xa3cmd",
    b"\xa2id",
    b"\xa3tgt",
    b"\xa3fun",
    b"\xa3jid",
    b"\xa4load",
    b"\xa3enc",
    b"\xa3key",
    b"\xa5nonce",
    b"\xa3tok",
    b"\xa4data",
    b"\xa3tag",
    b"\xa6return",
    b"\xa8saltenv\x20",
    b"\xa4path",
    b"\xa5../..",
    b"\xa0",
    b"\xc0",
    b"\x90",
    b"\x80",
    b"\x81\xa1a\x01",
    b"\xa1*",
    b"\xc4\x02\xff\xfe",
    b"\xa420260102030405060708",
];

/// Carries a request out as the workers do, up to its effects.
fn ask(services: &Arc<Services>, payload: Bytes) -> Outcome {
    let from = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let mut handled = handle(payload, from, services);
    if let Some(Effect::LogIn(_)) = handled.outcome.effects.first()
        && let Some(Effect::LogIn(log_in)) = handled.outcome.effects.pop()
    {
        handled = log_in.run().handled;
    }
    let mut outcome = handled.outcome;
    if let Some(later) = outcome.later.take() {
        outcome.reply = later.run().reply;
    }
    outcome
}

/// Nobody here may start anything.
fn assert_starts_nothing(outcome: &Outcome) {
    for effect in &outcome.effects {
        let starts = matches!(
            effect,
            Effect::StartJob(_) | Effect::Run(_) | Effect::RunPeerCall(_) | Effect::StartBatch(_)
        );
        assert!(!starts, "a job or a function is started");
    }
}

fn clear(load: Value) -> Vec<u8> {
    let envelope = Value::map([
        ("enc", Value::from("clear")),
        ("load", load),
        ("version", Value::from(3_i64)),
    ]);
    encode(&envelope, Dialect::Raw)
}

fn auth(id: &str, key: &str) -> Value {
    Value::map([
        ("cmd", Value::from("_auth")),
        ("id", id.into()),
        ("nonce", NONCE.into()),
        ("enc_algo", "OAEP-SHA1".into()),
        ("sig_algo", "PKCS1v15-SHA1".into()),
        ("pub", key.trim().into()),
    ])
}

#[test]
fn auth_load() {
    let dir = tempfile::tempdir().unwrap();
    let services = services(dir.path(), "");
    let key = key_pair("minion").public;
    let mut with_token = auth("m2", &key);
    if let Value::Map(entries) = &mut with_token {
        entries.push(("token".into(), Value::Bin(Bytes::from(vec![1; 256]))));
        entries.push(("autosign_grains".into(), Value::map([("uuid", "x")])));
    }
    Fuzz {
        name: "auth_load",
        seeds: vec![clear(auth("m1", &key)), clear(with_token)],
        words: WORDS,
        count: 2_500,
    }
    .run(|bytes| assert_starts_nothing(&ask(&services, Bytes::copy_from_slice(bytes))));
}

#[test]
fn clear_load() {
    let dir = tempfile::tempdir().unwrap();
    let login =
        "sharedsecret: s3cret\nexternal_auth: {sharedsecret: {ana: ['.*', '@runner', '@wheel']}}\n";
    let services = services(dir.path(), login);
    let load = |entries: &[(&str, Value)]| {
        let base = [
            ("tgt", Value::from("*")),
            ("tgt_type", "glob".into()),
            ("fun", "test.ping".into()),
            ("arg", Value::Array(Vec::new())),
            ("user", "root".into()),
            ("key", "0".into()),
        ];
        clear(Value::map(entries.iter().chain(&base).cloned()))
    };
    let mut seeds: Vec<Vec<u8>> = saltern_requests::clear_commands()
        .map(|command| load(&[("cmd", command.into())]))
        .collect();
    seeds.push(load(&[
        ("cmd", "mk_token".into()),
        ("eauth", "sharedsecret".into()),
        ("username", "ana".into()),
        ("password", "wrong".into()),
    ]));
    seeds.push(load(&[
        ("cmd", "runner".into()),
        ("token", "0123456789abcdef".into()),
    ]));
    Fuzz {
        name: "clear_load",
        seeds,
        words: WORDS,
        count: 8_000,
    }
    .run(|bytes| assert_starts_nothing(&ask(&services, Bytes::copy_from_slice(bytes))));
}

/// Loads of an accepted minion, which has no right to start anything.
#[test]
fn sealed_load() {
    let dir = tempfile::tempdir().unwrap();
    let pair = key_pair("minion");
    let services = services(
        dir.path(),
        "file_recv: True\nrequest_server_ttl: 0\nsaltern_replay_window: 0\n",
    );
    std::fs::write(dir.path().join("pki/minions/m1"), &pair.public).unwrap();
    ask(&services, clear(auth("m1", &pair.public)).into());
    let id = MinionId::parse("m1").unwrap();
    let session = services.minions.sessions.get(&id).unwrap().unwrap();
    let private = PrivateKey::from_pem(pair.private, None).unwrap();
    let token = Bytes::from(private.x931_sign(b"salt").unwrap());
    let load = |command: &str| {
        let map = Value::map([
            ("cmd", Value::from(command)),
            ("id", "m1".into()),
            ("nonce", NONCE.into()),
            ("tok", Value::Bin(token.clone())),
            ("jid", "20260102030405060708".into()),
            ("fun", "test.ping".into()),
            ("return", Value::map([("a", true)])),
            ("data", Value::map([("a", 1_i64)])),
            ("tag", "my/tag".into()),
            ("path", "a".into()),
            ("saltenv", "base".into()),
            ("loc", 0_i64.into()),
            ("tgt", "*".into()),
            ("grains", Value::map([("os", "Debian")])),
        ]);
        encode(&map, Dialect::Raw)
    };
    Fuzz {
        name: "sealed_load",
        // `revoke_auth` would end the run.
        seeds: minion_commands()
            .filter(|command| *command != "revoke_auth")
            .map(load)
            .collect(),
        words: WORDS,
        count: 1_500,
    }
    .run(|bytes| {
        let envelope = Value::map([
            ("enc", Value::from("aes")),
            (
                "load",
                Value::Bin(session.crypticle.dumps(bytes, None).into()),
            ),
            ("version", 3_i64.into()),
            ("id", "m1".into()),
        ]);
        let payload = encode(&envelope, Dialect::Raw);
        assert_starts_nothing(&ask(&services, payload.into()));
    });
}
