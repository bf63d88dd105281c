//! `_pillar`, the answers verified as a stock minion does.

use bytes::Bytes;
use saltern_crypto::{Crypticle, EncAlgo, KeyString, PublicKey, SigAlgo};
use saltern_model::MinionId;
use saltern_requests::NO_ANSWER;
use saltern_wire::msgpack::{Dialect, Value, encode};

use crate::wire::client::{Load, Minion, master_key};
use crate::wire::site::{Site, decode, tags};

pub(crate) fn pillar_load(minion: &Minion) -> Load {
    let load = minion
        .load("_pillar")
        .set("ver", "2")
        .set("grains", Load::new());
    load.set("saltenv", Value::Nil)
        .set("pillar_override", Load::new())
}

/// The content of a private answer, as `crypted_transfer_decode_dictentry` checks it.
fn private(minion: &Minion, reply: &[u8], enc: EncAlgo) -> Value {
    let outer = decode(reply);
    let sealed_key = outer.get("key").and_then(Value::as_bytes).unwrap();
    let key = minion.private.decrypt(enc, sealed_key).unwrap();
    let key = KeyString::parse(std::str::from_utf8(key.expose()).unwrap()).unwrap();
    let pillar = outer.get("pillar").and_then(Value::as_bytes).unwrap();
    decode(&Crypticle::new(&key).loads(pillar).unwrap())
}

pub(crate) fn verified(minion: &Minion, reply: &[u8], enc: EncAlgo, sig: SigAlgo) -> Value {
    verified_by(&master_key(), minion, reply, (enc, sig))
}

/// The same under a key of the master's.
pub(crate) fn verified_by(
    master: &PublicKey,
    minion: &Minion,
    reply: &[u8],
    (enc, sig): (EncAlgo, SigAlgo),
) -> Value {
    let inner = private(minion, reply, enc);
    let signed = inner.get("data").and_then(Value::as_bytes).unwrap();
    let signature = inner.get("sig").and_then(Value::as_bytes).unwrap();
    assert!(master.verify(sig, signed, signature));
    let data = decode(signed);
    let nonce = data.get("nonce").and_then(Value::as_str).unwrap();
    assert!(minion.has_asked_with(nonce));
    assert_eq!(
        data.get("key"),
        decode(reply).get("key"),
        "the key that is signed is the one sent"
    );
    data.get("pillar").cloned().unwrap()
}

#[test]
fn site_without_pillar_answers_empty_private_pillar() {
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
fn old_pillar_form_needs_pillar_version_1() {
    let site = Site::new("pillar_version: 1\nminion_data_cache: False\n");
    let m1 = Minion::signed_in(&site, "m1");
    let reply = site.ask_in_vain("old", m1.sealed(pillar_load(&m1).without("ver"), 3));
    assert_eq!(m1.open(&reply, 3), Value::Map(Vec::new()));
    let reply = site.ask_in_vain("new", m1.sealed(pillar_load(&m1), 3));
    let pillar = verified(&m1, &reply, EncAlgo::OaepSha1, SigAlgo::Pkcs1v15Sha1);
    assert_eq!(pillar, Value::Map(Vec::new()));
}

#[test]
fn request_without_grains_gets_empty_pillar() {
    let site = Site::new("pillar_version: 1\n");
    let m1 = Minion::signed_in(&site, "m1");
    let load = || pillar_load(&m1).without("grains");
    let reply = site.ask_in_vain("private", m1.sealed(load(), 3));
    let pillar = verified(&m1, &reply, EncAlgo::OaepSha1, SigAlgo::Pkcs1v15Sha1);
    assert_eq!(pillar, Value::Map(Vec::new()));
    let reply = site.ask_in_vain("old", m1.sealed(load().without("ver"), 3));
    assert_eq!(m1.open(&reply, 3), Value::Bool(false));
}

/// Data that a minion sends along is in its own pillar, never in the one that targets match.
#[test]
fn pillar_override_is_answered_and_not_cached() {
    let site = Site::new("");
    site.write("pillar/top.sls", "base:\n  '*':\n    - role\n");
    site.write(
        "pillar/role.sls",
        "role: {{ grains.id }}-{{ 40 + 2 }}\nlist: [1, yes]\n",
    );
    let m1 = Minion::signed_in(&site, "m1");
    let id = MinionId::parse("m1").unwrap();
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
    let kept = site.services.minions.data.pillar(&id).unwrap();
    assert_eq!(kept.as_deref(), Some(&own));
}

/// A minion chooses the arguments of its on-demand parts, and so would choose the data that targets
/// match.
#[test]
fn on_demand_pillar_is_answered_and_not_cached() {
    let site = Site::new("salt_compat: '3008'\npillar_version: 1\n");
    site.write("pillar/top.sls", "base:\n  '*':\n    - role\n");
    site.write("pillar/role.sls", "role: web\n");
    let m1 = Minion::signed_in(&site, "m1");
    let ask = |load: Load| m1.open(&site.ask(m1.sealed(load.without("ver"), 3)).reply, 3);
    let pillar_of = |role: &str| Value::map([("role", role)]);
    assert_eq!(ask(pillar_load(&m1)), pillar_of("web"));
    site.write("pillar/role.sls", "role: database\n");
    let on_demand = || {
        let chosen = Load::new().set("role", "admin");
        pillar_load(&m1).set("ext", Load::new().set("custom", chosen))
    };
    assert_eq!(ask(on_demand()), pillar_of("database"));
    ask(on_demand().set("pillarenv", "base"));
    let id = MinionId::parse("m1").unwrap();
    let kept = site.services.minions.data.pillar(&id).unwrap();
    assert_eq!(kept, Some(pillar_of("web").into()));
    assert!(!site.path("cache/pillar/m1:base.p").exists());
}

/// Nor is it cached under an environment, where the minion's next request would find it.
#[test]
fn pillar_override_for_environment_changes_no_cached_pillar() {
    for compat in ["3006", "3007", "3008"] {
        let site = Site::new(&format!("salt_compat: {compat}\npillar_version: 1\n"));
        site.write("pillar/top.sls", "base:\n  '*':\n    - role\n");
        site.write("pillar/role.sls", "role: web\n");
        let m1 = Minion::signed_in(&site, "m1");
        let ask = |load: Load| {
            let load = load
                .without("ver")
                .set("grains", Load::new().set("os", "Arch"));
            site.ask(m1.sealed(load, 3))
        };
        ask(pillar_load(&m1));
        let environment = "cache/pillar/m1:base.p";
        let given = || Load::new().set("role", "database");
        ask(pillar_load(&m1)
            .set("pillar_override", given())
            .set("pillarenv", "base"));
        let id = MinionId::parse("m1").unwrap();
        let kept = site.services.minions.data.pillar(&id).unwrap();
        let own = Value::map([("role", "web")]);
        assert_eq!(kept.as_deref(), Some(&own), "{compat}");
        assert!(!site.path(environment).exists(), "{compat}");
        let grains = site.services.minions.data.grains(&id).unwrap().unwrap();
        assert_eq!(grains.get("os"), Some(&"Arch".into()), "{compat}");
        ask(pillar_load(&m1).set("pillarenv", "base"));
        assert_eq!(site.path(environment).exists(), compat == "3008");
    }
}

/// A map may hold a key twice: one parser would see the sender's id, the other that of its victim.
#[test]
fn repeated_id_does_not_reveal_pillar_of_another() {
    let site = Site::new("pillar_version: 1\n");
    site.write(
        "pillar/top.sls",
        "base:\n  victim:\n    - secret\n  'G@id:victim':\n    - match: compound\n    - secret\n",
    );
    site.write(
        "pillar/secret.sls",
        "password: hunter2\nof: {{ grains.id }}\n",
    );
    let m1 = Minion::signed_in(&site, "m1");
    let id = |text: bool| match text {
        true => Value::from("id"),
        false => Value::Bin(Bytes::from_static(b"id")),
    };
    let mut asked = 0;
    for keys in [[true, true], [true, false], [false, true], [false, false]] {
        for ids in [["m1", "victim"], ["victim", "m1"], ["victim", "victim"]] {
            for others in [0, 20] {
                let said = keys
                    .iter()
                    .zip(ids)
                    .map(|(text, said)| (id(*text), said.into()));
                let others = (0..others).map(|other| (Value::from(other), Value::Nil));
                let grains = Value::Map(said.chain(others).collect());
                let load = m1.load("_pillar").set("grains", grains);
                let load = load.value();
                let packed = encode(&load, Dialect::Bin);
                let sealed = m1.crypticle(3).dumps(&packed, None);
                let envelope = m1.envelope(load, 3);
                let payload = envelope.set("load", Value::Bin(sealed.into())).packed();
                let answer = m1.open(&site.ask(payload).reply, 3);
                assert_eq!(answer, Value::Map(Vec::new()), "{keys:?} {ids:?}");
                let minion = MinionId::parse("m1").unwrap();
                let kept = site.services.minions.data.grains(&minion).unwrap().unwrap();
                let kept = kept.as_map().unwrap().iter();
                let kept = kept.filter(|(name, _)| name.as_bytes() == Some(b"id"));
                assert_eq!(kept.collect::<Vec<_>>(), [&("id".into(), "m1".into())]);
                asked += 1;
            }
        }
    }
    assert_eq!(asked, 24);
}
