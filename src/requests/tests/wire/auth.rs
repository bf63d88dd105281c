//! `_auth`: the decision about a key, the answer, the events and the stored state.

use std::net::IpAddr;
use std::time::Duration;

use bytes::Bytes;
use saltern_crypto::{EncAlgo, SigAlgo};
use saltern_model::MinionId;
use saltern_requests::{NO_ANSWER, handle};
use saltern_store::sha1_minions::minions_with_sha1;
use saltern_wire::msgpack::Value;

use crate::wire::auth_decisions::assert_event;
use crate::wire::client::{Load, Minion, NONCE, clear, master_key};
use crate::wire::site::{Site, data, decode, events, key_pair, names, tags};

const ACCEPTED: &str = "pki/minions/m1";
const REJECTED: &str = "pki/minions_rejected/m1";

#[test]
fn auth_reply_has_form_of_protocol_version() {
    let site = Site::new("minimum_auth_version: 0\npublish_port: 4711\n");
    site.accept("m1", "minion");
    let mut minion = Minion::new("m1", "minion");
    for version in [0, 1] {
        let load = minion.auth().without("nonce");
        let keys = decode(&site.ask(clear(load, version)).reply);
        let order = ["enc", "pub_key", "publish_port", "aes", "session", "sig"];
        assert_eq!(names(&keys), order, "version {version}");
        minion.take_keys(&keys, EncAlgo::OaepSha1);
    }
    for version in [2, 3] {
        let reply = site.ask(clear(minion.auth(), version)).reply;
        let keys = minion.verified(&reply, SigAlgo::Pkcs1v15Sha1);
        let order = [
            "enc",
            "pub_key",
            "publish_port",
            "aes",
            "session",
            "sig",
            "nonce",
        ];
        assert_eq!(names(&keys), order, "version {version}");
        assert_eq!(keys.get("publish_port"), Some(&Value::Int(4711)));
        minion.take_keys(&keys, EncAlgo::OaepSha1);
    }
    let denied = Minion::new("m1", "large").auth();
    let reply = site.ask(clear(denied, 1)).reply;
    assert_eq!(reply, &b"\x82\xa3enc\xa5clear\xa4load\x81\xa3ret\xc2"[..]);
    let reply = site.ask(clear(Minion::new("m9", "large").auth(), 0)).reply;
    assert_eq!(reply, &b"\x82\xa3enc\xa5clear\xa4load\x81\xa3ret\xc3"[..]);
}

/// Signatures that are constant for the AES key and for a minion's key are computed once: after
/// that, an authentication costs opening the minion's token and signing the reply, and a request
/// nothing.
#[test]
fn auth_costs_two_private_operations_and_request_none() {
    let site = Site::new("");
    site.accept("m1", "minion");
    let minion = Minion::new("m1", "minion");
    let token = master_key().encrypt(EncAlgo::OaepSha1, b"proof").unwrap();
    let auth = || minion.auth().set("token", Value::Bin(token.clone().into()));
    site.ask(clear(auth(), 3));
    let mut spent = site.services.keys.master.private.operations();
    for _ in 0..5 {
        let keys = site.ask(clear(auth(), 3)).reply;
        minion.verified(&keys, SigAlgo::Pkcs1v15Sha1);
        let now = site.services.keys.master.private.operations();
        assert_eq!(now - spent, 2);
        spent = now;
    }
    let signed_in = Minion::signed_in(&site, "m2");
    spent = site.services.keys.master.private.operations();
    for number in 0..5 {
        let load = signed_in
            .load("_return")
            .set("jid", format!("2026010203040506070{number}"))
            .set("fun", "test.ping")
            .set("return", true);
        let outcome = site.ask(signed_in.sealed(load, 3));
        assert_eq!(signed_in.open(&outcome.reply, 3), Value::Nil);
    }
    assert_eq!(site.services.keys.master.private.operations(), spent);
}

/// The queue is chosen by the first bytes; an authentication that hides from them has not waited
/// for its turn, and costs nothing.
#[test]
fn auth_that_bypassed_its_queue_is_not_handled() {
    let site = Site::new("");
    site.accept("m1", "minion");
    let minion = Minion::new("m1", "minion");
    for pad in ["x".repeat(200), "aes".repeat(70)] {
        let hidden = Load::new().set("pad", pad.as_str()).set("cmd", "_auth");
        let hidden = hidden
            .set("id", "m1")
            .set("nonce", NONCE)
            .set("pub", minion.public.as_str());
        let spent = site.services.keys.master.private.operations();
        let reply = site.ask_in_vain("hidden", clear(hidden, 3));
        assert_eq!(decode(&reply), NO_ANSWER.into());
        assert_eq!(site.services.keys.master.private.operations(), spent);
    }
    // A name that looks like the mark of another class hides nothing.
    site.accept("aes", "minion");
    let named = site.ask(clear(minion.auth().set("id", "aes"), 3));
    let inner = minion.verified(&named.reply, SigAlgo::Pkcs1v15Sha1);
    assert!(inner.get("session").is_some());
}

#[test]
fn auth_algorithms_and_tokens_are_checked() {
    let site = Site::new("");
    site.accept("m1", "minion");
    let mut minion = Minion::new("m1", "minion");
    let seal = |algo| Value::Bin(master_key().encrypt(algo, b"proof").unwrap().into());
    let both = [
        (
            "OAEP-SHA1",
            EncAlgo::OaepSha1,
            "PKCS1v15-SHA1",
            SigAlgo::Pkcs1v15Sha1,
        ),
        (
            "OAEP-SHA224",
            EncAlgo::OaepSha224,
            "PKCS1v15-SHA224",
            SigAlgo::Pkcs1v15Sha224,
        ),
    ];
    for (enc_name, enc, sig_name, sig) in both {
        let load = minion
            .auth()
            .set("enc_algo", enc_name)
            .set("sig_algo", sig_name);
        let load = load.set("token", seal(enc));
        let keys = minion.verified(&site.ask(clear(load, 3)).reply, sig);
        minion.take_keys(&keys, enc);
        let token = keys.get("token").and_then(Value::as_bytes).unwrap();
        assert_eq!(
            minion.private.decrypt(enc, token).unwrap().expose(),
            b"proof"
        );
    }
    for token in [
        Value::Bin(vec![0xff; 256].into()),
        "".into(),
        Value::Nil,
        5_i64.into(),
    ] {
        let load = minion.auth().set("token", token);
        let keys = minion.verified(&site.ask(clear(load, 3)).reply, SigAlgo::Pkcs1v15Sha1);
        assert!(keys.get("token").is_none(), "a bad token is left out");
        minion.take_keys(&keys, EncAlgo::OaepSha1);
    }
    let bad_enc = || minion.auth().set("enc_algo", "OAEP-MD5");
    let unsigned = |text: &str| {
        let inner = Load::new().set("ret", text);
        Load::new().set("enc", "clear").set("load", inner).packed()
    };
    let token = bad_enc().set("token", seal(EncAlgo::OaepSha1));
    assert_eq!(site.ask(clear(token, 3)).reply, unsigned("bad enc algo"));
    assert_eq!(
        decode(&site.ask(clear(bad_enc(), 3)).reply),
        NO_ANSWER.into()
    );
    let bad_sig = minion.auth().set("sig_algo", "PKCS1v15-MD5");
    assert_eq!(
        site.ask(clear(bad_sig.clone(), 3)).reply,
        unsigned("bad sig algo")
    );
    let pending = bad_sig.set("id", "m2");
    assert_eq!(site.ask(clear(pending, 3)).reply, unsigned("bad sig algo"));
}

#[test]
fn fips_mode_takes_sha1_for_an_unknown_algorithm() {
    let site = Site::new("fips_mode: True\n");
    site.accept("m1", "minion");
    let minion = Minion::new("m1", "minion");
    let seal = |algo| Value::Bin(master_key().encrypt(algo, b"proof").unwrap().into());
    let unsigned = |text: &str| {
        let inner = Load::new().set("ret", text);
        Load::new().set("enc", "clear").set("load", inner).packed()
    };
    let (enc, sig) = ("OAEP-SHA224", "PKCS1v15-SHA224");
    let refused = [
        // The defaults of every release.
        (minion.auth(), "bad enc algo"),
        (minion.auth().set("sig_algo", sig), "bad enc algo"),
        (minion.auth().set("enc_algo", enc), "bad sig algo"),
    ];
    for (load, answer) in refused {
        let load = load.set("token", seal(EncAlgo::OaepSha1));
        assert_eq!(site.ask(clear(load, 3)).reply, unsigned(answer));
    }
    let without_token = minion.auth().set("sig_algo", sig);
    let reply = site.ask(clear(without_token, 3)).reply;
    assert_eq!(decode(&reply), NO_ANSWER.into());
    // The answer to a minion with a pending key could not be signed either.
    let pending = minion.auth().set("id", "m2").set("enc_algo", enc);
    assert_eq!(site.ask(clear(pending, 3)).reply, unsigned("bad sig algo"));
    let counted = |result: &str| {
        let authentications = &site.services.metrics.authentications;
        authentications.with_label_values(&[result]).get()
    };
    assert_eq!((counted("bad_enc_algo"), counted("bad_sig_algo")), (3, 2));
    let listed = || minions_with_sha1(&site.path("cache/saltern")).unwrap();
    assert_eq!(listed(), [MinionId::parse("m1").unwrap()]);
    let load = minion.auth().set("enc_algo", enc).set("sig_algo", sig);
    let load = load.set("token", seal(EncAlgo::OaepSha224));
    let reply = site.ask(clear(load, 3)).reply;
    minion.verified(&reply, SigAlgo::Pkcs1v15Sha224);
    assert_eq!(counted("accept"), 1);
}

#[test]
fn incomplete_auth_leaves_no_trace() {
    let site = Site::new("auto_accept: True\n");
    let minion = Minion::new("m1", "minion");
    let table = [
        ("no nonce", minion.auth().without("nonce")),
        ("number as nonce", minion.auth().set("nonce", 5_i64)),
        ("short nonce", minion.auth().set("nonce", &NONCE[1..])),
        (
            "long nonce",
            minion.auth().set("nonce", NONCE.repeat(4).as_str()),
        ),
        (
            "bytes that may be an HMAC as nonce",
            minion
                .auth()
                .set("nonce", Value::Bin(vec![0xff; 32].into())),
        ),
        ("no id", minion.auth().without("id")),
        ("no pub", minion.auth().without("pub")),
        ("number as pub", minion.auth().set("pub", 5_i64)),
    ];
    for (what, load) in table {
        let reply = site.ask_in_vain(what, clear(load, 3));
        assert_eq!(decode(&reply), NO_ANSWER.into(), "{what}");
    }
    for id in [
        "",
        ".",
        "..",
        "a/b",
        "../m1",
        "a\\b",
        "a\nb",
        &"x".repeat(300),
    ] {
        let reply = site.ask_in_vain(id, clear(minion.auth().set("id", id), 3));
        let inner = minion.verified(&reply, SigAlgo::Pkcs1v15Sha1);
        assert_eq!(inner.get("ret"), Some(&false.into()), "{id:?}");
    }
}

#[test]
fn malformed_key_makes_no_file_and_uses_no_autosign_stub() {
    let site = Site::new("open_mode: True\nautosign_timeout: 0\n");
    let minion = Minion::new("m1", "minion");
    site.write("pki/minions_autosign/m1", "");
    let padded = format!("{}{}", "x".repeat(4096), minion.public);
    for text in [
        "no key",
        "",
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----",
        &padded,
    ] {
        let outcome = site.ask(clear(minion.auth().set("pub", text), 3));
        let inner = minion.verified(&outcome.reply, SigAlgo::Pkcs1v15Sha1);
        assert_eq!(inner.get("ret"), Some(&false.into()), "{text}");
        for state in [
            "minions",
            "minions_pre",
            "minions_denied",
            "minions_rejected",
        ] {
            assert!(!site.path(&format!("pki/{state}/m1")).exists(), "{state}");
        }
    }
    assert!(site.path("pki/minions_autosign/m1").exists());
    assert!(!site.path("cache/sessions/m1").exists());
}

/// Asks for an id with a new key; whether it is pending afterwards.
pub(crate) fn pends(site: &Site, id: &str, from: [u8; 4]) -> bool {
    pends_with(site, (id, "minion"), from)
}

/// The same with this key.
fn pends_with(site: &Site, (id, key): (&str, &str), from: [u8; 4]) -> bool {
    let minion = Minion::new("m1", key);
    let load = clear(minion.auth().set("id", id), 3);
    let outcome = handle(load, IpAddr::from(from), &site.services).outcome;
    let inner = minion.verified(&outcome.reply, SigAlgo::Pkcs1v15Sha1);
    assert_eq!(inner.get("ret"), Some(&true.into()), "{id} comes again");
    let is_kept = site.path(&format!("pki/minions_pre/{id}")).exists();
    assert_eq!(outcome.effects.len(), usize::from(is_kept), "the event");
    is_kept
}

fn pending(site: &Site) -> Vec<String> {
    let ids = site
        .services
        .keys
        .pki
        .list(saltern_model::KeyState::Pending);
    let ids = ids.unwrap().into_iter();
    ids.map(|id| id.as_str().to_owned()).collect()
}

#[test]
fn pending_keys_are_bounded_in_all_and_by_address() {
    let (near, far) = ([10, 0, 0, 1], [10, 0, 1, 2]);
    let site = Site::new("saltern_max_pending: 4\n");
    assert_eq!(
        ["a", "b", "c"].map(|id| pends(&site, id, near)),
        [true, true, false]
    );
    assert_eq!(
        ["d", "e", "f"].map(|id| pends(&site, id, far)),
        [true, true, false]
    );
    assert!(pends(&site, "a", near), "a key that is pending stays");
    let full = &site.services.metrics.authentications;
    assert_eq!(full.with_label_values(&["keys_full"]).get(), 2);
    // From one address again, once its keys are accepted.
    let site = Site::new("saltern_max_pending: 4\n");
    assert!(pends(&site, "a", near) && pends(&site, "b", near));
    for id in ["a", "b"] {
        site.accept(id, "minion");
        std::fs::remove_file(site.path(&format!("pki/minions_pre/{id}"))).unwrap();
    }
    assert!(pends(&site, "c", near));
    let unbounded = Site::new("saltern_max_pending: 0\n");
    assert!(
        ["a", "b", "c", "d", "e"]
            .iter()
            .all(|id| pends(&unbounded, id, near))
    );
}

#[test]
fn flood_of_two_blocks_leaves_third_block_its_share() {
    let site = Site::new("saltern_max_pending: 12\n");
    for number in 0..20_u8 {
        pends(&site, &format!("x{number:02}"), [10, 0, 0, 1]);
        // Many addresses of one block count as one.
        pends(&site, &format!("y{number:02}"), [10, 0, 1, number]);
    }
    assert_eq!(pending(&site).len(), 12);
    let newcomers = ["a", "b", "c", "d", "e"];
    let kept = newcomers.map(|id| pends(&site, id, [192, 168, 0, 7]));
    assert_eq!(
        kept,
        [true, true, true, true, false],
        "a third of the places"
    );
    let now = pending(&site);
    assert_eq!(now.len(), 12, "and no more than there are");
    // The first minions keep their places.
    for early in ["x00", "x01", "x02", "x03", "a", "b", "c", "d"] {
        assert!(now.iter().any(|id| id == early), "{early}: {now:?}");
    }
    // Nothing is replaced between equals, so it ends.
    for id in ["x40", "x05"] {
        assert!(!pends(&site, id, [10, 0, 0, 1]), "{id}");
    }
    assert_eq!(pending(&site), now);
}

/// A peer that can have a pending key removed must not take over its id.
#[test]
fn id_of_evicted_key_stays_reserved_for_it() {
    let other = ("web1", "large");
    for (hours, is_free) in [(0, false), (1, false), (2, true)] {
        let site = Site::new("saltern_max_pending: 5\n");
        for (id, block) in [
            ("a", 0),
            ("web1", 0),
            ("b", 1),
            ("c", 2),
            ("d", 3),
            ("e", 4),
        ] {
            assert!(pends(&site, id, [10, 0, block, 1]), "{id}");
        }
        assert_eq!(pending(&site), ["a", "b", "c", "d", "e"]);
        site.accept("b", "minion");
        std::fs::remove_file(site.path("pki/minions_pre/b")).unwrap();
        site.clock.advance(Duration::from_secs(hours * 3_600 + 2));
        // There is room.
        assert_eq!(pends_with(&site, other, [10, 0, 5, 1]), is_free, "{hours}");
        if !is_free {
            assert!(pends(&site, "web1", [10, 0, 6, 1]), "its own key");
        }
    }
}

#[test]
fn flood_of_one_address_leaves_neighbours_their_share() {
    let site = Site::new("saltern_max_pending: 8\n");
    for number in 0..10 {
        pends(&site, &format!("x{number}"), [10, 0, 0, 1]);
    }
    let kept = ["a", "b", "c"].map(|id| pends(&site, id, [10, 0, 0, 2]));
    assert_eq!(kept, [true, true, false]);
    assert_eq!(pending(&site), ["a", "b", "x0", "x1"]);
}

#[test]
fn pending_keys_from_before_start_give_way_until_minions_retry() {
    let site = Site::new("saltern_max_pending: 4\n");
    for id in ["o1", "o2", "o3", "o4"] {
        site.write(&format!("pki/minions_pre/{id}"), &key_pair("minion").public);
    }
    assert!(pends(&site, "a", [10, 0, 0, 1]), "in place of one of them");
    assert_eq!(pending(&site).len(), 4);
    let old: Vec<String> = pending(&site).into_iter().filter(|id| id != "a").collect();
    for (id, last) in old.iter().zip(1..) {
        assert!(pends(&site, id, [10, 0, last, 1]), "still pending");
    }
    assert!(
        !pends(&site, "b", [10, 0, 9, 1]),
        "one of each block by now"
    );
}

#[test]
fn rejected_and_denied_keys_are_bounded() {
    let site = Site::new("saltern_max_pending: 4\nautoreject_file: ROOT/rules/reject\n");
    site.write("rules/reject", "bad*\n");
    let minion = Minion::new("m1", "minion");
    let ask = |id: &str| {
        let outcome = site.ask(clear(minion.auth().set("id", id), 3));
        let inner = minion.verified(&outcome.reply, SigAlgo::Pkcs1v15Sha1);
        assert_eq!(inner.get("ret"), Some(&false.into()), "{id}");
    };
    for id in ["a", "b", "c"] {
        site.accept(id, "large");
    }
    // Half of each for one block of addresses, and none gives way: they are notes.
    let ids = ["bad1", "a", "bad2", "b", "bad3", "c"];
    ids.iter().for_each(|id| ask(id));
    let files = |state: &str| {
        std::fs::read_dir(site.path(&format!("pki/{state}")))
            .unwrap()
            .count()
    };
    assert_eq!((files("minions_rejected"), files("minions_denied")), (2, 2));
    assert_eq!(site.read("pki/minions_rejected/bad3"), None);
}

#[test]
fn key_with_other_line_ends_is_the_same() {
    let site = Site::new("");
    site.accept("m1", "minion");
    let minion = Minion::new("m1", "minion");
    for text in [
        minion.public.replace('\n', "\r\n"),
        format!("\n{}\n\n", minion.public),
    ] {
        let outcome = site.ask(clear(minion.auth().set("pub", text.as_str()), 3));
        let inner = minion.verified(&outcome.reply, SigAlgo::Pkcs1v15Sha1);
        assert!(inner.get("session").is_some(), "{text:?}");
    }
}

#[test]
fn oversize_key_is_not_kept() {
    let site = Site::new("auto_accept: True\n");
    let minion = Minion::new("m1", "minion");
    let long = "k".repeat(16 * 1024 + 1);
    let outcome = site.ask(clear(minion.auth().set("pub", long.as_str()), 3));
    let inner = minion.verified(&outcome.reply, SigAlgo::Pkcs1v15Sha1);
    assert_eq!(inner.get("ret"), Some(&false.into()));
    assert!(outcome.effects.is_empty(), "no event either");
    for state in ["minions", "minions_pre", "minions_denied"] {
        assert!(!site.path(&format!("pki/{state}/m1")).exists(), "{state}");
    }
}

#[test]
fn max_minions_counts_those_connected() {
    let site = Site::new("max_minions: 1\nauto_accept: True\n");
    let minion = Minion::new("m1", "minion");
    let connect = |ids: &[&str]| {
        let ids = ids.iter().map(|id| MinionId::parse(id).unwrap());
        *site.around.connected.lock() = ids.collect();
    };
    let ask = || site.ask(clear(minion.auth(), 3));
    connect(&["a", "b"]);
    let outcome = ask();
    let inner = minion.verified(&outcome.reply, SigAlgo::Pkcs1v15Sha1);
    assert_eq!(inner.get("ret"), Some(&"full".into()));
    assert_event(&outcome, "full", false, &minion, "full");
    assert!(!site.path(ACCEPTED).exists());
    for connected in [&["a"][..], &["a", "b", "m1"]] {
        connect(connected);
        let inner = minion.verified(&ask().reply, SigAlgo::Pkcs1v15Sha1);
        assert!(inner.get("session").is_some(), "{connected:?}");
    }
}

#[test]
fn autosign_grains_and_stubs_accept_key() {
    let site = Site::new("autosign_grains_dir: ROOT/rules/grains\n");
    site.write("rules/grains/uuid", "8d0d7a\n4\n");
    let minion = |id: &str| Minion::new(id, "minion");
    let grains = |grains: Value| move |load: Load| load.set("autosign_grains", grains.clone());
    let is_in = |minion: &Minion, load: Load| {
        let reply = site.ask(clear(load, 3)).reply;
        minion
            .verified(&reply, SigAlgo::Pkcs1v15Sha1)
            .get("session")
            .is_some()
    };
    let table: [(&str, Value, bool); 5] = [
        ("g1", Value::map([("uuid", "8d0d7a")]), true),
        ("g2", Value::map([("uuid", "other")]), false),
        ("g3", Value::map([("../reject", "8d0d7a")]), false),
        ("g4", Value::map([("uuid", Value::Int(4))]), true),
        ("g5", "uuid".into(), false),
    ];
    for (id, value, expected) in table {
        let minion = minion(id);
        let load = grains(value)(minion.auth());
        assert_eq!(is_in(&minion, load), expected, "{id}");
    }
    site.write("pki/minions_autosign/s1", "");
    let stubbed = minion("s1");
    assert!(is_in(&stubbed, stubbed.auth()));
    assert!(
        !site.path("pki/minions_autosign/s1").exists(),
        "it is used up"
    );
}

#[test]
fn auth_event_fields_follow_the_release() {
    for (compat, act) in [("3006", None), ("3007", None), ("3008", Some("reject"))] {
        let site = Site::new(&format!("salt_compat: {compat}\n"));
        site.write(REJECTED, &key_pair("minion").public);
        let minion = Minion::new("m1", "minion");
        let outcome = site.ask(clear(minion.auth(), 3));
        let data = data(&events(&outcome)[0]);
        let shown = data.get("act").and_then(Value::as_str);
        assert_eq!(shown, act, "{compat}");
    }
    let site = Site::new("auth_events: False\n");
    let outcome = site.ask(clear(Minion::new("m1", "minion").auth(), 3));
    assert_eq!(tags(&outcome), Vec::<String>::new());
}

#[test]
fn event_stamp_follows_the_release() {
    for (compat, end) in [("3006", "000000"), ("3007", "000000"), ("3008", "+00:00")] {
        let site = Site::new(&format!("salt_compat: {compat}\n"));
        let outcome = site.ask(clear(Minion::new("m1", "minion").auth(), 3));
        let data = decode(events(&outcome)[0].data.bytes());
        let stamp = data.get("_stamp").and_then(Value::as_str).unwrap();
        assert!(stamp.starts_with("2026-11-18T"), "{stamp}");
        assert!(
            stamp.ends_with(end) || end == "000000" && stamp.len() == 19,
            "{stamp}"
        );
    }
}

/// The answer is signed, nonce included: a peer that chooses the nonce must not choose the signed
/// bytes. A publication is the bytes that its signature covers, and ends with an HMAC of 32 bytes,
/// which is not made of hexadecimal digits.
#[test]
fn nonce_of_hexadecimal_digits_is_signed_and_nothing_else() {
    let site = Site::new("");
    let minion = Minion::new("m1", "minion");
    let nonces = [NONCE, "0123456789ABCDEF0123456789abcdef"];
    for nonce in nonces.map(|nonce| [nonce.into(), Value::Bin(Bytes::from(nonce))]) {
        for nonce in nonce {
            let reply = site
                .ask(clear(minion.auth().set("nonce", nonce.clone()), 3))
                .reply;
            let signed = decode(&reply);
            let inner = decode(signed.get("load").and_then(Value::as_bytes).unwrap());
            let sent = inner.get("nonce").and_then(Value::as_bytes);
            assert_eq!(sent, nonce.as_bytes());
        }
    }
    for nonce in [
        "",
        "abc",
        &NONCE.replace('0', "g"),
        &NONCE.replace('0', " "),
    ] {
        let load = minion.auth().set("nonce", nonce);
        let spent = site.services.keys.master.private.operations();
        let reply = site.ask_in_vain(nonce, clear(load, 3));
        assert_eq!(decode(&reply), NO_ANSWER.into());
        assert_eq!(site.services.keys.master.private.operations(), spent);
    }
}

/// `ret: False` makes a stock minion end, so a fault of the master's own must not cause it.
#[test]
fn local_fault_asks_minion_to_retry() {
    let ret = |site: &Site, minion: &Minion| {
        let reply = site.ask(clear(minion.auth(), 3)).reply;
        let inner = minion.verified(&reply, SigAlgo::Pkcs1v15Sha1);
        inner.get("ret").cloned()
    };
    let minion = Minion::new("m1", "minion");
    // A directory where a file is read or written fails for root, too.
    let directory = |site: &Site, name: &str| {
        std::fs::create_dir_all(site.path(name).join("x")).unwrap();
    };
    let retry_later = Some(Value::Bool(true));

    let site = Site::new("auto_accept: True\n");
    std::fs::write(site.path("pki/minions/m1"), b"\xff\xfe").unwrap();
    assert_eq!(ret(&site, &minion), retry_later, "unreadable accepted key");

    let site = Site::new("");
    site.accept("m1", "minion");
    directory(&site, "cache/sessions/m1");
    assert_eq!(ret(&site, &minion), retry_later, "no session can be made");
    std::fs::remove_dir_all(site.path("cache/sessions/m1")).unwrap();
    assert_eq!(ret(&site, &minion), None, "it goes on alone");

    let site = Site::new("auto_accept: True\n");
    std::fs::remove_dir_all(site.path("pki/minions")).unwrap();
    site.write("pki/minions", "no directory");
    assert_eq!(ret(&site, &minion), retry_later, "the key cannot be kept");
}

#[test]
fn damaged_session_is_replaced() {
    let site = Site::new("");
    let before = Minion::signed_in(&site, "m1");
    for damage in [&b"\xff\xfe\x00"[..], b"", b"short", &[b'x'; 5000]] {
        std::fs::write(site.path("cache/sessions/m1"), damage).unwrap();
        let event = |minion: &Minion| {
            let load = minion.load("_minion_event").set("tag", "x");
            minion.sealed(load.set("data", Load::new()), 3)
        };
        assert_eq!(site.ask(event(&before)).reply, &b"\xa8bad load"[..]);
        let after = Minion::signed_in(&site, "m1");
        assert_eq!(site.ask(event(&after)).effects.len(), 1, "{damage:?}");
    }
}
