//! The decision table of the envelope (protocol.md, 2.2), row by row.

use std::time::Duration;

use bytes::Bytes;
use saltern_base::clock::Clock;
use saltern_requests::NO_ANSWER;
use saltern_wire::msgpack::Value;

use crate::wire::client::{Load, Minion, NONCE, clear};
use crate::wire::site::{Site, decode};

/// A reply of at most 31 characters: one fixstr.
fn fixstr(text: &str) -> Vec<u8> {
    assert!(text.len() < 32);
    let mut packed = vec![0xa0 | u8::try_from(text.len()).unwrap()];
    packed.extend_from_slice(text.as_bytes());
    packed
}

/// A longer one: raw16, never the str8 of the new dialect.
fn raw16(text: &str) -> Vec<u8> {
    let mut packed = vec![0xda, 0, u8::try_from(text.len()).unwrap()];
    packed.extend_from_slice(text.as_bytes());
    packed
}

fn bad_load() -> Vec<u8> {
    fixstr("bad load")
}

#[test]
fn malformed_msgpack_is_answered_as_by_each_release() {
    let table = [
        ("3006", &b"\x81\xa3msg\xa8bad load"[..]),
        ("3007", b"\x81\xa3msg\xa8bad load"),
        ("3008", b"\x81\xa5error\xadRouting error"),
    ];
    for (compat, expected) in table {
        let site = Site::new(&format!("salt_compat: {compat}\n"));
        for payload in [
            &b""[..],
            b"\xc1",
            b"\x83\xa3enc",
            b"\x80\x00",
            b"\xdf\xff\xff\xff\xff",
        ] {
            let reply = site.ask_in_vain(compat, Bytes::from(payload));
            assert_eq!(reply, expected, "{compat} {payload:?}");
        }
        let deep = [b"\x82\xa3enc\xa5clear\xa4load".to_vec(), vec![0x91; 5000]].concat();
        assert_eq!(site.ask_in_vain("too deep", deep), expected);
    }
}

#[test]
fn malformed_envelopes_and_clear_loads_are_refused() {
    let ping = || Load::new().set("cmd", "ping");
    let id = |id: Value| clear(ping().set("id", id), 3);
    let not_a_dict = fixstr("payload and load must be a dict");
    let table: Vec<(&str, Bytes, Vec<u8>)> = vec![
        ("a number", Bytes::from_static(b"\x05"), bad_load()),
        ("a list", Bytes::from_static(b"\x91\xa3enc"), bad_load()),
        ("an empty map", Bytes::from_static(b"\x80"), bad_load()),
        (
            "no load",
            Load::new().set("enc", "clear").packed(),
            bad_load(),
        ),
        (
            "no enc",
            Load::new().set("load", ping()).packed(),
            bad_load(),
        ),
        ("no version", clear_without_version(ping()), bad_load()),
        ("version 2", clear(ping(), 2), bad_load()),
        ("version x", with_version(ping(), "x".into()), bad_load()),
        ("version -1", clear(ping(), -1), bad_load()),
        (
            "version nil",
            with_version(ping(), Value::Nil),
            fixstr_no_answer(),
        ),
        (
            "a list as version",
            with_version(ping(), Value::Array(vec![])),
            fixstr_no_answer(),
        ),
        ("text as load", clear("x", 3), not_a_dict.clone()),
        (
            "list as load",
            clear(Value::Array(vec![]), 3),
            not_a_dict.clone(),
        ),
        ("nil as load", clear(Value::Nil, 3), not_a_dict),
        (
            "NUL",
            id("a\0b".into()),
            raw16("bad load: id contains a null byte"),
        ),
        (
            "5",
            id(5_i64.into()),
            fixstr("bad load: id 5 is not a string"),
        ),
        (
            "nil",
            id(Value::Nil),
            raw16("bad load: id None is not a string"),
        ),
        (
            "True",
            id(true.into()),
            raw16("bad load: id True is not a string"),
        ),
        (
            "2.5",
            id(2.5.into()),
            raw16("bad load: id 2.5 is not a string"),
        ),
        (
            "bytes",
            id(Value::Bin(Bytes::from_static(b"\xff'\0\n"))),
            raw16("bad load: id b\"\\xff'\\x00\\n\" is not a string"),
        ),
    ];
    let site = Site::new("");
    for (what, payload, expected) in table {
        assert_eq!(site.ask_in_vain(what, payload), expected, "{what}");
    }
    for enc in ["foo", "pub", "CLEAR", "aes ", ""] {
        let payload = Load::new()
            .set("enc", enc)
            .set("load", ping())
            .set("version", 3_i64);
        assert_eq!(
            site.ask_in_vain(enc, payload.packed()),
            bad_load(),
            "{enc:?}"
        );
    }
}

fn fixstr_no_answer() -> Vec<u8> {
    raw16(NO_ANSWER)
}

fn clear_without_version(load: Load) -> Bytes {
    Load::new().set("enc", "clear").set("load", load).packed()
}

fn with_version(load: Load, version: Value) -> Bytes {
    let envelope = Load::new().set("enc", "clear").set("load", load);
    envelope.set("version", version).packed()
}

#[test]
fn protocol_version_is_parsed_as_by_python() {
    let site = Site::new("minimum_auth_version: 2\n");
    let ping = Load::new().set("cmd", "ping");
    let echo = ping.clone().packed();
    let table = [
        ("2", Value::from("2"), true),
        (" 3 ", " 3 ".into(), true),
        ("1", "1".into(), false),
        ("2.9", 2.9.into(), true),
        ("1.9", 1.9.into(), false),
        ("True", true.into(), false),
        ("2^64-1", Value::Uint(u64::MAX), true),
        ("bytes", Value::Bin(Bytes::from_static(b"\xff")), false),
    ];
    for (what, version, served) in table {
        let reply = site.ask_in_vain(what, with_version(ping.clone(), version));
        let expected = if served {
            echo.clone()
        } else {
            bad_load().into()
        };
        assert_eq!(reply, expected, "{what}");
    }
}

#[test]
fn every_protocol_version_is_served_without_a_least_one() {
    let site = Site::new("minimum_auth_version: 0\n");
    let ping = Load::new().set("cmd", "ping");
    for version in [-1, 0, 1, 4] {
        let reply = site.ask_in_vain("ping", clear(ping.clone(), version));
        assert_eq!(reply, ping.clone().packed(), "{version}");
    }
}

/// A value that is no text is quoted where both its bytes and what Python prints of it are at most 200.
#[test]
fn value_as_id_is_quoted_up_to_a_bound() {
    let site = Site::new("");
    let list = |halves: usize, tens: usize, sevens: usize| {
        let numbers = std::iter::repeat_n(Value::from(0.5), halves)
            .chain(std::iter::repeat_n(Value::from(10_i64), tens))
            .chain(std::iter::repeat_n(Value::from(7_i64), sevens));
        Value::Array(numbers.collect())
    };
    // A half takes nine bytes, any other number one, and the head of such a list three.
    let table = [
        ("200 bytes", list(21, 0, 8), "[0.5, 0.5"),
        ("201 bytes", list(22, 0, 0), "of 201 bytes"),
        ("200 characters", list(0, 2, 64), "[10, 10, 7"),
        ("201 characters", list(0, 0, 67), "of 70 bytes"),
    ];
    for (what, id, expected) in table {
        let load = Load::new().set("cmd", "ping").set("id", id);
        let reply = decode(&site.ask_in_vain(what, clear(load, 3)));
        let expected = format!("bad load: id {expected}");
        let text = reply.as_str().unwrap();
        assert!(text.starts_with(&expected), "{what}: {text}");
    }
}

#[test]
fn open_clear_commands_change_nothing() {
    let site = Site::new("");
    let ping = Load::new()
        .set("cmd", "ping")
        .set("bytes", Value::Bin(Bytes::from_static(b"\xff")))
        .set("number", 5_i64);
    assert_eq!(
        site.ask_in_vain("ping", clear(ping.clone(), 3)),
        ping.packed()
    );
    for cmd in ["nope", "_return", "__init__", "_prep_pub", ""] {
        let payload = clear(Load::new().set("cmd", cmd), 3);
        assert_eq!(site.ask_in_vain(cmd, payload), &b"\x80"[..], "{cmd:?}");
    }
    for load in [
        Load::new(),
        Load::new().set("cmd", 5_i64),
        Load::new().set("cmd", Value::Nil),
    ] {
        assert_eq!(site.ask_in_vain("no text", clear(load, 3)), &b"\x80"[..]);
    }
    for (cmd, reply) in [("get_token", &b"\xc2"[..]), ("mk_token", b"\xa0")] {
        let handled = site.handle(clear(Load::new().set("cmd", cmd), 3));
        assert!(handled.outcome.effects.is_empty());
        assert_eq!(handled.outcome.reply, reply, "{cmd}");
        assert_eq!(handled.command, cmd);
    }
}

#[test]
fn large_value_as_id_is_refused_by_its_size() {
    let site = Site::new("");
    let large = Value::Array(vec![7_i64.into(); 300_000]);
    let nested = Value::map([("a", Value::Array(vec!["x".repeat(190).as_str().into()]))]);
    let escaped = Value::Bin(vec![0xff; 150].into());
    for (cmd, id) in [("publish", large), ("ping", nested), ("ping", escaped)] {
        let load = Load::new().set("cmd", cmd).set("id", id);
        let reply = decode(&site.ask_in_vain(cmd, clear(load, 3)));
        let text = reply.as_str().unwrap();
        assert!(text.starts_with("bad load: id of "), "{text}");
        assert!(text.len() < 100, "{text}");
    }
}

#[test]
fn large_load_of_a_small_clear_command_is_refused() {
    let site = Site::new("");
    let mut deep = Value::Nil;
    for _ in 0..20 {
        deep = Value::Array(vec![deep]);
    }
    let tables = [
        ("bytes", Value::from("x".repeat(65 << 10))),
        ("items", Value::Array(vec![Value::Nil; 1_001])),
        ("depth", deep),
    ];
    let minion = Minion::new("m1", "minion");
    for (what, pad) in tables {
        for cmd in ["_auth", "get_token", "ping", "nope"] {
            let load = minion.auth().set("cmd", cmd).set("pad", pad.clone());
            let reply = site.ask_in_vain(cmd, clear(load, 3));
            assert_eq!(reply, bad_load(), "{cmd} {what}");
        }
    }
}

#[test]
fn forged_or_malformed_sealed_requests_are_refused() {
    let site = Site::new("request_server_ttl: 60\n");
    let m1 = Minion::signed_in(&site, "m1");
    let m2 = Minion::signed_in(&site, "m2");
    site.accept("unused", "minion");
    let stranger = Minion::new("m1", "large");
    let event = || {
        m1.load("_minion_event")
            .set("tag", "x")
            .set("data", Load::new())
    };
    let seal = |load: Load| m1.sealed(load, 3);
    let outer = |name: &str, value: Value| m1.envelope(event(), 3).set(name, value).packed();
    let raw = |plain: &[u8]| {
        let ciphertext = m1.crypticle(3).encrypt(plain);
        m1.envelope(event(), 3)
            .set("load", Value::Bin(ciphertext.into()))
            .packed()
    };
    let too_old = i64::try_from(crate::wire::site::START).unwrap() - 61;
    let bytes = |text: &'static [u8]| Value::Bin(Bytes::from_static(text));
    let table: Vec<(&str, Bytes)> = vec![
        (
            "no id outside",
            m1.envelope(event(), 3).without("id").packed(),
        ),
        ("number as id outside", outer("id", 5_i64.into())),
        ("a path as id outside", outer("id", "../m1".into())),
        ("id outside without a session", outer("id", "unused".into())),
        ("foreign session", outer("id", "m2".into())),
        ("foreign id inside", seal(event().set("id", "m2"))),
        (
            "both ids foreign, own session",
            m1.envelope(event().set("id", "m2"), 3)
                .set("id", "m2")
                .packed(),
        ),
        (
            "both ids foreign, its session, own token",
            m2.sealed(event().set("id", "m1"), 3),
        ),
        ("no id inside", seal(event().without("id"))),
        ("no token", seal(event().without("tok"))),
        ("nil as token", seal(event().set("tok", Value::Nil))),
        ("empty token", seal(event().set("tok", ""))),
        (
            "random token",
            seal(event().set("tok", Value::Bin(vec![0xff; 256].into()))),
        ),
        (
            "token of another key",
            seal(event().set("tok", stranger.token())),
        ),
        (
            "shared key",
            outer(
                "load",
                Value::Bin(m1.crypticle(2).dumps(b"\x80", None).into()),
            ),
        ),
        (
            "random ciphertext",
            outer("load", Value::Bin(vec![1; 96].into())),
        ),
        ("empty ciphertext", outer("load", bytes(b""))),
        ("nil as ciphertext", outer("load", Value::Nil)),
        ("a clear map", outer("load", event().value())),
        ("plain text is no msgpack", raw(b"pickle::\xc1")),
        ("too old", seal(event().set("ts", too_old))),
        ("no ts", seal(event().without("ts"))),
        ("text as ts", seal(event().set("ts", "now"))),
        ("not a number as ts", seal(event().set("ts", f64::NAN))),
    ];
    for (what, payload) in table {
        assert_eq!(site.ask_in_vain(what, payload), bad_load(), "{what}");
    }
    let others: Vec<(&str, Bytes, Vec<u8>)> = vec![
        (
            "text inside",
            m1.sealed("x", 3),
            fixstr("payload and load must be a dict"),
        ),
        (
            "number as id",
            seal(event().set("id", 5_i64)),
            fixstr("bad load: id 5 is not a string"),
        ),
        (
            "NUL in the id",
            seal(event().set("id", "m1\0")),
            raw16("bad load: id contains a null byte"),
        ),
        (
            "no cmd",
            seal(m1.load("x").without("cmd")),
            fixstr_no_answer(),
        ),
        (
            "short nonce",
            seal(event().set("nonce", "abc")),
            fixstr_no_answer(),
        ),
        (
            "long nonce",
            seal(event().set("nonce", format!("{NONCE}0").as_str())),
            fixstr_no_answer(),
        ),
        (
            "nonce of other digits",
            seal(event().set("nonce", "x".repeat(32).as_str())),
            fixstr_no_answer(),
        ),
        (
            "bytes as nonce",
            seal(event().set("nonce", Value::Bin(vec![0xff; 32].into()))),
            fixstr_no_answer(),
        ),
        (
            "number as nonce",
            seal(event().set("nonce", 5_i64)),
            fixstr_no_answer(),
        ),
    ];
    for (what, payload, expected) in others {
        assert_eq!(site.ask_in_vain(what, payload), expected, "{what}");
    }
}

#[test]
fn valid_sealed_requests_are_served() {
    let site = Site::new("request_server_ttl: 60\nminimum_auth_version: 0\n");
    let m1 = Minion::signed_in(&site, "m1");
    let event = || {
        m1.load("_minion_event")
            .set("tag", "x")
            .set("data", Load::new())
    };
    let now = i64::try_from(crate::wire::site::START).unwrap();
    let table = [
        ("newest protocol", event(), 3),
        ("at the limit", event().set("ts", now - 60), 3),
        ("from the future", event().set("ts", now + 5000), 3),
        ("fraction as ts", event().set("ts", now as f64 - 0.5), 3),
        ("protocol 2", event(), 2),
        (
            "protocol 2 without token",
            event().without("tok").without("ts"),
            2,
        ),
        ("protocol 1", event().without("nonce"), 1),
        ("protocol 0", event().without("nonce"), 0),
    ];
    for (what, load, version) in table {
        let handled = site.handle(m1.sealed(load, version));
        let outcome = handled.outcome;
        assert_eq!(m1.open(&outcome.reply, version), Value::Nil, "{what}");
        // Packed as bytes: IV, one or three blocks, MAC.
        let length = if version > 1 { 96 } else { 64 };
        assert_eq!(outcome.reply[..3], [0xda, 0, length], "{what}");
        assert_eq!(outcome.effects.len(), 1, "{what}");
        assert_eq!(
            handled.minion.as_ref().map(|id| id.as_str()),
            Some("m1"),
            "{what}"
        );
    }
    let bad_token = event().set("tok", Value::Bin(vec![0xff; 256].into()));
    assert_eq!(
        site.ask_in_vain("bad token", m1.sealed(bad_token, 2)),
        bad_load()
    );
    let nothing: [(&str, Value); 2] = [("empty", "".into()), ("nil", Value::Nil)];
    let without = nothing.map(|(what, nonce)| (what, event().set("nonce", nonce)));
    for (what, load) in [("none", event().without("nonce"))]
        .into_iter()
        .chain(without)
    {
        let reply = site.ask(m1.sealed(load, 3)).reply;
        let plain = m1.crypticle(3).loads(decode(&reply).as_bytes().unwrap());
        assert_eq!(
            plain.unwrap(),
            &b"\xc0"[..],
            "{what}: no nonce in, none out"
        );
    }
    assert_eq!(site.around.heard.lock().len(), 11);
}

#[test]
fn unknown_sealed_commands_get_empty_map() {
    let site = Site::new("");
    let m1 = Minion::signed_in(&site, "m1");
    for cmd in ["nope", "__init__", "ping", "publish", ""] {
        let reply = site.ask_in_vain(cmd, m1.sealed(m1.load(cmd), 3));
        assert_eq!(m1.open(&reply, 3), Value::Map(Vec::new()), "{cmd:?}");
    }
    for cmd in [Value::Nil, 5_i64.into(), Value::Array(Vec::new())] {
        let reply = site.ask_in_vain("no text", m1.sealed(m1.load("x").set("cmd", cmd), 3));
        assert_eq!(m1.open(&reply, 3), Value::Map(Vec::new()));
    }
}

#[test]
fn key_changed_on_disk_counts_with_next_request() {
    let site = Site::new("");
    let m1 = Minion::signed_in(&site, "m1");
    let event = || {
        m1.sealed(
            m1.load("_minion_event")
                .set("tag", "x")
                .set("data", Load::new()),
            3,
        )
    };
    assert_eq!(site.ask(event()).effects.len(), 1);
    std::fs::remove_file(site.path("pki/minions/m1")).unwrap();
    assert_eq!(site.ask_in_vain("deleted", event()), bad_load());
    site.accept("m1", "large");
    assert_eq!(site.ask_in_vain("replaced", event()), bad_load());
    site.accept("m1", "minion");
    assert_eq!(site.ask(event()).effects.len(), 1);
    site.write("pki/minions/m1", "not a key\n");
    assert_eq!(site.ask_in_vain("damaged", event()), bad_load());
}

#[test]
fn expired_session_makes_minion_authenticate_anew() {
    let site = Site::new("publish_session: 3600\n");
    // The age of a session is that of its file, which has the time of the real clock.
    let now = Clock::system().now();
    site.clock.set(now);
    let m1 = Minion::signed_in(&site, "m1");
    let event = |m: &Minion| {
        m.sealed(
            m.load("_minion_event")
                .set("tag", "x")
                .set("data", Load::new()),
            3,
        )
    };
    let age = |seconds: u64| {
        let file = std::fs::File::options()
            .write(true)
            .open(site.path("cache/sessions/m1"));
        file.unwrap()
            .set_modified(now - Duration::from_secs(seconds))
            .unwrap();
    };
    // Seven eighths, so that sessions do not all end at once.
    age(3100);
    assert_eq!(site.ask(event(&m1)).effects.len(), 1);
    age(3700);
    assert_eq!(site.ask(event(&m1)).reply, bad_load());
    let again = Minion::signed_in(&site, "m1");
    assert!(
        !again
            .session
            .as_ref()
            .unwrap()
            .same_as(m1.session.as_ref().unwrap())
    );
    assert_eq!(site.ask(event(&again)).effects.len(), 1);
    assert_eq!(site.ask(event(&m1)).reply, bad_load());
}
