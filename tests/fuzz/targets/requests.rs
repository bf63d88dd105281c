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

/// Parts of loads that are written as JSON, in which a mutation leaves the rest of the load whole.
const JSON_WORDS: &[&[u8]] = &[
    b"\"cmd\":",
    b"\"id\":",
    b"\"tgt\":",
    b"\"tgt_type\":\"compound\",",
    b"\"fun\":",
    b"\"jid\":",
    b"\"data\":",
    b"\"tag\":",
    b"\"path\":",
    b"\"saltenv\":",
    b"\"kwargs\":{\"metadata\":{}},",
    b"\"\"",
    b"null",
    b"[]",
    b"{}",
    b"[1,[2]]",
    b"true",
    b"-1",
    b"1e308",
    b"99999999999999999999",
    b"\"../../x\"",
    b"\"/etc/passwd\"",
    b"\"a\\u0000b\"",
    b"\"*\"",
    b"\"m2\"",
    b"{\"a\":",
    b",",
    b":",
    b"\"req\"",
    b"\"salt/auth\"",
];

/// Loads of minions with what their handlers look for.
const MINION_LOADS: &[&str] = &[
    r#"{"cmd":"_return","jid":"20260102030405060708","fun":"test.ping","fun_args":[1,{"a":2}],"return":{"a":true},"retcode":0,"success":true,"out":"nested"}"#,
    r#"{"cmd":"_return","jid":"req","fun":"state.apply","return":{"x_|-a_|-b_|-c":{"result":false,"changes":{},"comment":"no","__run_num__":0}},"resource_id":"r1"}"#,
    r#"{"cmd":"_minion_event","tag":"my/tag","pretag":null,"data":{"a":1},"events":[{"tag":"a","data":{}},{"tag":5}]}"#,
    r#"{"cmd":"_pillar","grains":{"os":"Debian","id":"m1"},"saltenv":"base","pillarenv":null,"ver":"2","pillar_override":{"a":1},"ext":{"git":["x"]},"extra_minion_data":{}}"#,
    r#"{"cmd":"_mine","data":{"network.ip_addrs":["10.0.0.1"],"f":{"a":1}},"clear":false}"#,
    r#"{"cmd":"_mine_get","tgt":"web* and G@os:Debian","tgt_type":"compound","fun":["f","g"]}"#,
    r#"{"cmd":"_mine_delete","fun":"f"}"#,
    r#"{"cmd":"_file_recv","path":["a","b"],"loc":0,"size":4,"data":"abcd"}"#,
    r#"{"cmd":"_serve_file","path":"a/b","saltenv":"base","loc":0,"gzip":6}"#,
    r#"{"cmd":"_file_find","path":"a?saltenv=dev","saltenv":"base"}"#,
    r#"{"cmd":"_file_list","saltenv":"base","prefix":"a/"}"#,
    r#"{"cmd":"_master_opts","env_only":true}"#,
    r#"{"cmd":"_master_tops","opts":{"id":"m1"},"grains":{}}"#,
    r#"{"cmd":"minion_pub","fun":"test.ping","arg":["a"],"tgt":"*","ret":"","tmo":5,"form":"full","tgt_type":"glob"}"#,
    r#"{"cmd":"minion_runner","fun":"jobs.list_jobs","arg":[]}"#,
    r#"{"cmd":"pub_ret","jid":"20260102030405060708"}"#,
    r#"{"cmd":"_syndic_return","load":[{"jid":"20260102030405060708","fun":"f","load":{"tgt":"*","Minions":["a"]},"return":{"a":{"return":1,"retcode":0}},"id":"m1"}]}"#,
    r#"{"cmd":"_register_resources","resources":{"t":["r1","r2"]},"resource_grains":{"t:r1":{"os":"x"}}}"#,
    r#"{"cmd":"saltern_syndic_frame","epoch":"x","stream":0,"session":1,"number":1,"load":[{"jid":"20260102030405060708","fun":"f","return":{"a":{"return":1}}}]}"#,
    r#"{"cmd":"saltern_syndic_inventory","epoch":"x","list":1,"part":0,"last":true,"partial":false,"minions":[["a",null,{"os":"x"}]],"gone":["b"]}"#,
    r#"{"cmd":"saltern_syndic_verdicts","verdicts":[["20260102030405060708",0,"unknown: x",["a","b"]],["20260102030405060708",1,null,null]]}"#,
    r#"{"cmd":"verify_minion","id_":"m1","token":"x"}"#,
];

/// Loads of users.
const USER_LOADS: &[&str] = &[
    r#"{"cmd":"publish","tgt":"web*","tgt_type":"glob","fun":["test.ping","cmd.run"],"arg":[[],["id"]],"jid":"","ret":"","user":"root","key":"0","kwargs":{"delimiter":":","metadata":{"a":1},"show_jid":false}}"#,
    r#"{"cmd":"publish","tgt":["a","b"],"tgt_type":"list","fun":"saltutil.find_job","arg":["20260102030405060708"],"user":"sudo_a","kwargs":{"token":"0a","auth_list":["*"]}}"#,
    r#"{"cmd":"mk_token","eauth":"sharedsecret","username":"ana","password":"wrong","token_expire":5,"groups":["x"]}"#,
    r#"{"cmd":"runner","fun":"jobs.list_jobs","kwarg":{"arg":[1],"kwarg":{}},"token":"0123456789abcdef"}"#,
    r#"{"cmd":"wheel","fun":"key.accept","match":"*","user":"root","key":["x"],"__jid__":"20260102030405060708"}"#,
    r#"{"cmd":"saltern_query","fun":"jobs.page","arguments":{"limit":5,"before":null},"token":"0a"}"#,
    r#"{"cmd":"saltern_batch","tgt":"*","fun":"test.ping","batch":"10%","arg":[],"user":"root","key":"0"}"#,
    r#"{"cmd":"get_token","token":"../../x"}"#,
    r#"{"cmd":"ping","id":"m1"}"#,
];

/// The load of an input that is one in JSON.
fn of_json(bytes: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(bytes)
        .ok()
        .filter(|text| text.starts_with('{'))?;
    saltern_wire::json::parse(text).ok()
}

/// A request in clear: a load in JSON, or the bytes as they are.
fn clear_of(bytes: &[u8]) -> Bytes {
    match of_json(bytes) {
        Some(load) => clear(load).into(),
        None => Bytes::copy_from_slice(bytes),
    }
}

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
    let in_json = serde_json::json!({
        "cmd": "_auth", "id": "m1", "nonce": NONCE, "enc_algo": "OAEP-SHA224", "sig_algo": "PKCS1v15-SHA224",
        "pub": key, "token": "x", "autosign_grains": {"uuid": ["a"]},
    });
    let in_json = in_json.to_string().into_bytes();
    Fuzz {
        name: "auth_load",
        seeds: vec![clear(auth("m1", &key)), clear(with_token), in_json],
        words: &[WORDS, JSON_WORDS].concat(),
        count: 2_500,
    }
    .run(|bytes| assert_starts_nothing(&ask(&services, clear_of(bytes))));
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
    seeds.extend(USER_LOADS.iter().map(|load| load.as_bytes().to_vec()));
    Fuzz {
        name: "clear_load",
        seeds,
        words: &[WORDS, JSON_WORDS].concat(),
        count: 12_000,
    }
    .run(|bytes| assert_starts_nothing(&ask(&services, clear_of(bytes))));
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
            .chain(MINION_LOADS.iter().map(|load| load.as_bytes().to_vec()))
            .collect(),
        words: &[WORDS, JSON_WORDS].concat(),
        count: 2_500,
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
