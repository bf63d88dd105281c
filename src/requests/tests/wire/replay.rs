//! Replay protection: a sealed request is carried out once, and a wrong clock locks no minion out.

use std::time::Duration;

use bytes::Bytes;
use saltern_crypto::{EncAlgo, SigAlgo};
use saltern_model::MinionId;
use saltern_store::minion_clocks::wrong_clocks;
use saltern_wire::msgpack::Value;

use crate::wire::client::{Load, Minion, clear, commands};
use crate::wire::site::{START, Site};

const BAD_LOAD: &[u8] = b"\xa8bad load";

fn now(site: &Site) -> i64 {
    site.clock.unix()
}

fn event(minion: &Minion, ts: i64) -> Bytes {
    let load = minion.load("_minion_event").set("tag", "x").set("ts", ts);
    minion.sealed(load.set("data", Load::new()), 3)
}

/// Authenticates once more, with the key file left as it is.
fn authenticate(site: &Site, minion: &mut Minion) {
    let outcome = site.ask(clear(minion.auth(), 3));
    let keys = minion.verified(&outcome.reply, SigAlgo::Pkcs1v15Sha1);
    minion.take_keys(&keys, EncAlgo::OaepSha1);
}

#[test]
fn replayed_request_is_refused_at_once_and_for_ever() {
    let site = Site::new("");
    let minion = Minion::signed_in(&site, "m1");
    let recorded = event(&minion, now(&site));
    assert_eq!(site.ask(recorded.clone()).effects.len(), 1);
    for wait in [0, 1, 500, 700, 3_600, 40_000] {
        site.clock.advance(Duration::from_secs(wait));
        let reply = site.ask_in_vain("replayed", recorded.clone());
        assert_eq!(reply, BAD_LOAD, "{wait}");
    }
}

#[test]
fn replayed_command_with_effect_is_refused() {
    let site = Site::new("allow_minion_key_revoke: True\nfile_recv: True\n");
    let minion = Minion::signed_in(&site, "m1");
    let single = [
        "_file_recv",
        "_mine",
        "_mine_delete",
        "_mine_flush",
        "_minion_event",
        "_register_resources",
        "_syndic_return",
        "minion_pub",
        "minion_publish",
        "minion_runner",
        "revoke_auth",
        "saltern_syndic_inventory",
    ];
    for cmd in commands() {
        let request = minion.sealed(minion.load(cmd), 3);
        site.ask(request.clone());
        let is_refused = site.ask(request).reply == BAD_LOAD;
        // A return without a jid asks for one of its own; `verify_minion` gets no answer.
        let is_single = single.contains(&cmd) || ["_return", "verify_minion"].contains(&cmd);
        assert_eq!(is_refused, is_single, "{cmd}");
    }
}

#[test]
fn resent_bytes_are_answered_where_stock_resends() {
    let site = Site::new("");
    let minion = Minion::signed_in(&site, "m1");
    let grains = Value::map([("os", "Debian")]);
    let pillar = minion.load("_pillar").set("grains", grains).set("ver", "2");
    let returned = minion.load("_return").set("jid", "20260102030405060708");
    let returned = returned.set("fun", "test.ping").set("return", true);
    for load in [pillar, returned] {
        let request = minion.sealed(load, 3);
        for _ in 0..3 {
            assert_ne!(site.ask(request.clone()).reply, BAD_LOAD);
        }
    }
}

/// Whether the grains of a request for a pillar are kept; it is answered in any case.
fn keeps_grains(site: &Site, request: &Bytes) -> bool {
    let outcome = site.ask(request.clone());
    assert_ne!(outcome.reply, BAD_LOAD);
    !outcome.effects.is_empty()
}

#[test]
fn replayed_pillar_request_restores_no_old_grains() {
    let site = Site::new("minion_data_cache_events: True\n");
    let minion = Minion::signed_in(&site, "m1");
    let pillar = |role: &str| {
        let grains = Value::map([("role", role)]);
        minion.sealed(
            minion.load("_pillar").set("grains", grains).set("ver", "2"),
            3,
        )
    };
    let kept = || {
        let grains = site
            .services
            .minions
            .data
            .grains(&MinionId::parse(&minion.id).unwrap())
            .unwrap()
            .unwrap();
        grains
            .get("role")
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let (old, new) = (pillar("old"), pillar("new"));
    for request in [&old, &old, &new, &new] {
        assert!(keeps_grains(&site, request));
    }
    assert!(!keeps_grains(&site, &old), "answered, not kept");
    assert_eq!(kept().as_deref(), Some("new"));
    assert!(keeps_grains(&site, &new), "the newest may be repeated");
}

#[test]
fn sweep_drops_nonces_of_silent_minions() {
    let site = Site::new("");
    let minion = Minion::signed_in(&site, "m1");
    site.ask(event(&minion, now(&site)));
    assert_eq!(site.services.minions.sessions.nonces(), 1);
    site.clock.advance(Duration::from_secs(1_300));
    site.services.minions.sessions.sweep_nonces();
    assert_eq!(site.services.minions.sessions.nonces(), 0);
}

#[test]
fn minion_with_wrong_clock_is_served_and_reported() {
    let site = Site::new("");
    let listed = || wrong_clocks(&site.path("cache/saltern")).unwrap();
    for (id, skew) in [("late", -7_200), ("early", 90_000)] {
        let minion = Minion::signed_in(&site, id);
        for _ in 0..20 {
            let request = event(&minion, now(&site) + skew);
            assert_eq!(site.ask(request).effects.len(), 1, "{id}");
            site.clock.advance(Duration::from_secs(100));
        }
        assert!(listed().iter().any(|(known, _)| known.as_str() == id));
    }
}

/// After a step back an honest request looks like a replay: the session ends, and its recorded
/// requests are useless.
#[test]
fn minion_whose_clock_was_set_back_authenticates_and_goes_on() {
    let site = Site::new("");
    let mut minion = Minion::signed_in(&site, "m1");
    let recorded = event(&minion, now(&site));
    for _ in 0..5 {
        assert_eq!(site.ask(event(&minion, now(&site))).effects.len(), 1);
        site.clock.advance(Duration::from_secs(400));
    }
    let first = key(&minion);
    authenticate(&site, &mut minion);
    assert_eq!(key(&minion), first, "no new key without need");
    let set_back = now(&site) - 86_400;
    let reply = site.ask_in_vain("set back", event(&minion, set_back));
    assert_eq!(reply, BAD_LOAD);
    authenticate(&site, &mut minion);
    assert_ne!(key(&minion), first);
    assert_eq!(site.ask(event(&minion, set_back)).effects.len(), 1);
    assert_eq!(site.ask_in_vain("old session", recorded), BAD_LOAD);
    let second = key(&minion);
    authenticate(&site, &mut minion);
    assert_eq!(key(&minion), second);
}

fn key(minion: &Minion) -> String {
    minion.session.as_ref().unwrap().as_str().to_owned()
}

#[test]
fn replay_window_of_zero_accepts_requests_as_stock() {
    let site = Site::new("saltern_replay_window: 0\n");
    let minion = Minion::signed_in(&site, "m1");
    let recorded = event(&minion, i64::try_from(START).unwrap());
    for _ in 0..2 {
        site.clock.advance(Duration::from_secs(3_600));
        assert_eq!(site.ask(recorded.clone()).effects.len(), 1);
    }
}
