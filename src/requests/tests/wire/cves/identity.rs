//! Minions that claim to be others, and messages that come twice or from the wrong side.

use saltern_crypto::{EncAlgo, SigAlgo};
use saltern_model::MinionId;
use saltern_requests::NO_ANSWER;

use super::*;
use crate::wire::client::{JID, Minion, NONCE, commands};
use crate::wire::pillar;
use crate::wire::site::{events, key_pair, tags};

/// Every accepted minion could act in the name of every other.
#[test]
fn cve_2013_4439_minion_acts_in_its_own_name_only() {
    let site = Site::new("");
    let m1 = Minion::signed_in(&site, "m1");
    let _m2 = Minion::signed_in(&site, "m2");
    for cmd in ["_return", "_mine", "_minion_event", "_pillar", "_file_recv"] {
        let load = || m1.load(cmd).set("jid", JID).set("return", true);
        for (what, payload) in [
            ("in the load", m1.sealed(load().set("id", "m2"), 3)),
            (
                "on the envelope",
                m1.envelope(load(), 3).set("id", "m2").packed(),
            ),
            (
                "in both",
                m1.envelope(load().set("id", "m2"), 3)
                    .set("id", "m2")
                    .packed(),
            ),
        ] {
            let reply = site.ask_in_vain(&format!("{cmd}: m2 {what}"), payload);
            assert_eq!(decode(&reply).as_str(), Some("bad load"), "{cmd}: {what}");
        }
    }
}

/// Many methods did not look at the minion's token.
#[test]
fn cve_2024_38822_each_command_checks_the_token() {
    let site = Site::new("");
    let m1 = Minion::signed_in(&site, "m1");
    let other = Minion::new("m1", "large");
    for cmd in commands() {
        for (what, load) in [
            ("none", m1.load(cmd).without("tok")),
            ("of another key", m1.load(cmd).set("tok", other.token())),
        ] {
            let reply = site.ask_in_vain(&format!("{cmd}: {what}"), m1.sealed(load, 3));
            assert_eq!(decode(&reply).as_str(), Some("bad load"), "{cmd}: {what}");
        }
    }
}

/// A minion had jobs run on other minions by messages on the bus of events.
#[test]
fn cve_2025_22236_minion_starts_no_job_for_others() {
    let site = Site::new("");
    let m1 = Minion::signed_in(&site, "m1");
    site.accept("m2", "large");
    for cmd in ["publish", "minion_pub", "minion_publish", "minion_runner"] {
        let load = m1
            .load(cmd)
            .set("tgt", "*")
            .set("tgt_type", "glob")
            .set("fun", "cmd.run")
            .set("arg", Value::Array(vec!["id".into()]))
            .set("ret", "");
        site.ask_in_vain(cmd, m1.sealed(load, 3));
    }
    for tag in [
        "salt/job/20260102030405060708/publish",
        "salt/job/20260102030405060708/new",
        "salt/minion/m2/cmd.run",
        "__master_req_channel_payload/master",
    ] {
        let load = m1.load("_minion_event").set("tag", tag);
        let outcome = site.ask(m1.sealed(load.set("data", Load::new()), 3));
        assert!(!starts_a_job(&outcome), "{tag}");
        let is_of_a_job = |tag: &String| tag.starts_with("salt/job/");
        assert!(!tags(&outcome).iter().any(is_of_a_job), "{tag}");
    }
}

/// A minion put any event on the master's bus.
#[test]
fn cve_2025_22239_minion_forges_no_event_of_the_master() {
    let site = Site::new("");
    let m1 = Minion::signed_in(&site, "m1");
    for tag in [
        "salt/auth",
        "salt/key",
        "salt/job/20260102030405060708/ret/m2",
        "salt/run/20260102030405060708/ret",
        "salt/wheel/20260102030405060708/ret",
        "salt/minion/m2/start",
        "salt/presence/change",
        "salt/beacon/m2/disk/",
        "syndic/m2/20260102030405060708",
    ] {
        for pretag in [Value::Nil, "my".into()] {
            let load = m1
                .load("_minion_event")
                .set("tag", tag)
                .set("pretag", pretag)
                .set("data", Load::new());
            let outcome = site.ask(m1.sealed(load, 3));
            assert_eq!(tags(&outcome), Vec::<String>::new(), "{tag}");
        }
    }
    // In a list, the others still count.
    let listed = |tag: &str| Load::new().set("tag", tag).set("data", Load::new()).value();
    let list = Value::Array(vec![listed("salt/auth"), listed("my/own")]);
    let load = m1.load("_minion_event").set("events", list);
    let outcome = site.ask(m1.sealed(load, 3));
    assert!(!tags(&outcome).contains(&"salt/auth".to_owned()));
}

/// An older form of a request went around the checks of the newer ones.
#[test]
fn cve_2025_62349_older_protocol_is_refused() {
    let site = Site::new("");
    let m1 = Minion::signed_in(&site, "m1");
    for version in 0..3 {
        let what = format!("version {version}");
        let reply = site.ask_in_vain(&what, clear(m1.auth(), version));
        assert_eq!(decode(&reply).as_str(), Some("bad load"), "{what}");
        let load = m1.load("_return").set("jid", JID).set("return", true);
        let reply = site.ask_in_vain(&what, m1.sealed(load, version));
        assert_eq!(decode(&reply).as_str(), Some("bad load"), "{what}");
    }
    let unversioned = Load::new()
        .set("enc", "clear")
        .set("load", m1.auth())
        .packed();
    let reply = site.ask_in_vain("no version", unversioned);
    assert_eq!(decode(&reply).as_str(), Some("bad load"));
}

/// Data of a deleted minion was that of the next one with its name.
#[test]
fn cve_2016_9639_next_owner_of_a_name_inherits_nothing() {
    let site = Site::new("auto_accept: True\n");
    let m1 = Minion::signed_in(&site, "m1");
    let mine = Load::new().set("secret", "of the first");
    site.ask(m1.sealed(m1.load("_mine").set("data", mine), 3));
    let id = MinionId::parse("m1").unwrap();
    assert!(site.services.minions.data.mine(&id).unwrap().is_some());
    std::fs::remove_file(site.path("pki/minions/m1")).unwrap();
    let next = Minion::new("m1", "large");
    let outcome = site.ask(clear(next.auth(), 3));
    let keys = next.verified(&outcome.reply, SigAlgo::Pkcs1v15Sha1);
    assert!(site.services.minions.data.mine(&id).unwrap().is_none());
    // The session of the first opens nothing, and its own load is refused.
    assert!(keys.get("session").is_some());
    let reply = site.ask_in_vain("the first", m1.sealed(m1.load("_file_envs"), 3));
    assert_eq!(decode(&reply).as_str(), Some("bad load"));
}

/// A minion with the shared key could pass for the master.
#[test]
fn cve_2017_7893_master_signs_nothing_of_the_peers_choice() {
    let site = Site::new("");
    let m1 = Minion::new("m1", "minion");
    let load = "x".repeat(128);
    for nonce in [load.as_str(), "short", &NONCE.replace('0', "z")] {
        let spent = site.services.keys.master.private.operations();
        let reply = site.ask_in_vain(nonce, clear(m1.auth().set("nonce", nonce), 3));
        assert_eq!(decode(&reply), NO_ANSWER.into());
        assert_eq!(site.services.keys.master.private.operations(), spent);
    }
}

/// Pillars were not signed, so another key's answer could be put in their place.
#[test]
fn cve_2022_22934_pillar_is_signed_and_bound_to_its_request() {
    let site = Site::new("");
    site.write("pillar/top.sls", "base:\n  '*':\n    - role\n");
    site.write("pillar/role.sls", "role: web\n");
    let m1 = Minion::signed_in(&site, "m1");
    let reply = site.ask(m1.sealed(pillar::pillar_load(&m1), 3)).reply;
    // The signature is over the pillar, the nonce of the request and the key that seals it.
    let (enc, sig) = (EncAlgo::OaepSha1, SigAlgo::Pkcs1v15Sha1);
    let pillar = pillar::verified(&m1, &reply, enc, sig);
    assert_eq!(pillar, Value::map([("role", "web")]));
    let without = m1.sealed(pillar::pillar_load(&m1).without("nonce"), 3);
    let reply = decode(&site.ask(without).reply);
    assert_eq!(text(&reply, "error"), Some("Nonce not included in request"));
}

/// A man in the middle ended minions by a refusal that nobody had signed.
#[test]
fn cve_2022_22935_refusals_are_signed() {
    let site = Site::new("");
    site.write("pki/minions_rejected/m1", &key_pair("minion").public);
    let m1 = Minion::new("m1", "minion");
    let outcome = site.ask(clear(m1.auth(), 3));
    let signed = m1.verified(&outcome.reply, SigAlgo::Pkcs1v15Sha1);
    assert_eq!(signed.get("ret"), Some(&false.into()));
}

/// Answers of the file server and jobs could be played again.
#[test]
fn cve_2022_22936_answer_belongs_to_one_request() {
    let site = Site::new("file_roots: {base: [ROOT/salt]}\n");
    site.write("salt/a", "1\n");
    let m1 = Minion::signed_in(&site, "m1");
    let load = m1
        .load("_file_hash")
        .set("path", "a")
        .set("saltenv", "base");
    let nonce = text(&load.clone().value(), "nonce").unwrap().to_owned();
    let reply = site.ask(m1.sealed(load, 3)).reply;
    let sealed = decode(&reply);
    let sealed = sealed.as_bytes().unwrap();
    let crypticle = m1.crypticle(3);
    assert!(crypticle.loads_with_nonce(sealed, nonce.as_bytes()).is_ok());
    let other = m1.load("_file_hash").value();
    let other = text(&other, "nonce").unwrap();
    assert!(
        crypticle
            .loads_with_nonce(sealed, other.as_bytes())
            .is_err()
    );
}

/// Requests could be played again.
#[test]
fn cve_2024_38823_request_is_carried_out_once() {
    let site = Site::new("");
    let m1 = Minion::signed_in(&site, "m1");
    let event = m1.load("_minion_event").set("tag", "my/own");
    let event = m1.sealed(event.set("data", Load::new()), 3);
    assert_eq!(events(&site.ask(event.clone())).len(), 1);
    for _ in 0..2 {
        let reply = site.ask_in_vain("a copy", event.clone());
        assert_eq!(decode(&reply).as_str(), Some("bad load"));
    }
}
