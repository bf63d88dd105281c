//! `_pillar`, the answers verified as a stock minion does.

use saltern_crypto::{Crypticle, EncAlgo, KeyString, SigAlgo};
use saltern_requests::NO_ANSWER;
use saltern_wire::msgpack::Value;

use crate::client::{Load, Minion, NONCE, master_key};
use crate::site::{Site, decode, tags};

fn pillar_load(minion: &Minion) -> Load {
    let load = minion
        .load("_pillar")
        .set("ver", "2")
        .set("grains", Load::new());
    load.set("saltenv", Value::Nil)
        .set("pillar_override", Load::new())
}

/// What is in a private answer, as `crypted_transfer_decode_dictentry` checks it.
fn private(minion: &Minion, reply: &[u8], enc: EncAlgo) -> Value {
    let outer = decode(reply);
    let sealed_key = outer.get("key").and_then(Value::as_bytes).unwrap();
    let key = minion.private.decrypt(enc, sealed_key).unwrap();
    let key = KeyString::parse(std::str::from_utf8(key.expose()).unwrap()).unwrap();
    let pillar = outer.get("pillar").and_then(Value::as_bytes).unwrap();
    decode(&Crypticle::new(&key).loads(pillar).unwrap())
}

fn verified(minion: &Minion, reply: &[u8], enc: EncAlgo, sig: SigAlgo) -> Value {
    let inner = private(minion, reply, enc);
    let signed = inner.get("data").and_then(Value::as_bytes).unwrap();
    let signature = inner.get("sig").and_then(Value::as_bytes).unwrap();
    assert!(master_key().verify(sig, signed, signature));
    let data = decode(signed);
    assert_eq!(data.get("nonce").and_then(Value::as_str), Some(NONCE));
    assert_eq!(
        data.get("key"),
        decode(reply).get("key"),
        "the key that is signed is the one sent"
    );
    data.get("pillar").cloned().unwrap()
}

#[test]
fn a_site_without_pillar_gives_the_empty_one_in_a_private_answer() {
    let site = Site::new("minimum_auth_version: 0\nminion_data_cache: False\n");
    let m1 = Minion::signed_in(&site, "m1");
    let ask = |payload| site.ask_in_vain("pillar", payload);
    let (enc, sig) = (EncAlgo::OaepSha1, SigAlgo::Pkcs1v15Sha1);
    for version in [3, 2] {
        let reply = ask(m1.sealed(pillar_load(&m1), version));
        assert_eq!(
            verified(&m1, &reply, enc, sig),
            Value::Map(Vec::new()),
            "{version}"
        );
    }
    let newer = m1
        .envelope(pillar_load(&m1), 3)
        .set("enc_algo", "OAEP-SHA224");
    let reply = ask(newer.set("sig_algo", "PKCS1v15-SHA224").packed());
    let pillar = verified(&m1, &reply, EncAlgo::OaepSha224, SigAlgo::Pkcs1v15Sha224);
    assert_eq!(pillar, Value::Map(Vec::new()));
    for version in [1, 0] {
        let reply = ask(m1.sealed(pillar_load(&m1).without("nonce"), version));
        assert_eq!(
            private(&m1, &reply, enc),
            Value::Map(Vec::new()),
            "{version}: not signed"
        );
    }
    for name in ["enc_algo", "sig_algo"] {
        let payload = m1.envelope(pillar_load(&m1), 3).set(name, "x").packed();
        assert_eq!(decode(&ask(payload)), NO_ANSWER.into(), "{name}");
    }
    let reply = ask(m1.sealed(pillar_load(&m1).without("nonce"), 3));
    assert_eq!(
        decode(&reply),
        Value::map([("error", "Nonce not included in request")])
    );
}

#[test]
fn the_old_form_is_given_where_the_site_allows_it() {
    let site = Site::new("pillar_version: 1\nminion_data_cache: False\n");
    let m1 = Minion::signed_in(&site, "m1");
    let reply = site.ask_in_vain("old", m1.sealed(pillar_load(&m1).without("ver"), 3));
    assert_eq!(m1.open(&reply, 3), Value::Map(Vec::new()));
    let reply = site.ask_in_vain("new", m1.sealed(pillar_load(&m1), 3));
    let pillar = verified(&m1, &reply, EncAlgo::OaepSha1, SigAlgo::Pkcs1v15Sha1);
    assert_eq!(pillar, Value::Map(Vec::new()));
}

#[test]
fn without_grains_the_pillar_is_empty() {
    let site = Site::new("pillar_version: 1\n");
    let m1 = Minion::signed_in(&site, "m1");
    let load = || pillar_load(&m1).without("grains");
    let reply = site.ask_in_vain("private", m1.sealed(load(), 3));
    let pillar = verified(&m1, &reply, EncAlgo::OaepSha1, SigAlgo::Pkcs1v15Sha1);
    assert_eq!(pillar, Value::Map(Vec::new()));
    let reply = site.ask_in_vain("old", m1.sealed(load().without("ver"), 3));
    assert_eq!(m1.open(&reply, 3), Value::Bool(false));
}

/// What a minion brings along is in its own pillar, never in the one that targets look at.
#[test]
fn an_override_is_answered_and_not_kept() {
    let site = Site::new("");
    site.write("pillar/top.sls", "base:\n  '*':\n    - role\n");
    site.write(
        "pillar/role.sls",
        "role: {{ grains.id }}-{{ 40 + 2 }}\nlist: [1, yes]\n",
    );
    let m1 = Minion::signed_in(&site, "m1");
    let id = saltern_model::MinionId::parse("m1").unwrap();
    let ask = |load: Load| {
        let outcome = site.ask(m1.sealed(load, 3));
        assert_eq!(tags(&outcome), ["minion/refresh/m1"]);
        verified(
            &m1,
            &outcome.reply,
            EncAlgo::OaepSha1,
            SigAlgo::Pkcs1v15Sha1,
        )
    };
    let own = Value::map([
        ("role", Value::from("m1-42")),
        ("list", Value::Array(vec![1_i64.into(), true.into()])),
    ]);
    assert_eq!(ask(pillar_load(&m1)), own);
    let given = Load::new().set("role", "database");
    let answered = ask(pillar_load(&m1).set("pillar_override", given));
    assert_eq!(answered.get("role"), Some(&"database".into()));
    let kept = site.services.minion_data.pillar(&id).unwrap();
    assert_eq!(kept.as_deref(), Some(&own));
}
