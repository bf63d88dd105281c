//! A minion whose key was deleted or rejected, and which kept everything it ever got: its session,
//! the shared key, its token. All of its requests are refused.

use bytes::Bytes;

use crate::wire::client::{Load, Minion, clear, commands};
use crate::wire::site::{Site, decode};

fn bad_load() -> Bytes {
    Bytes::from_static(b"\xa8bad load")
}

/// A load with the entries of every command, so that only the key is at fault.
fn load(minion: &Minion, cmd: &str) -> Load {
    minion
        .load(cmd)
        .set("jid", "20260102030405060708")
        .set("fun", "test.ping")
        .set("return", true)
        .set("tag", "a")
        .set("data", Load::new())
        .set("saltenv", "base")
        .set("path", "a")
        .set("loc", 0_i64)
        .set("grains", Load::new())
        .set("tgt", "*")
}

/// Revokes the minion's key, as `salt-key` does it.
fn revoke(site: &Site, to: Option<&str>) {
    let accepted = site.path("pki/minions/m1");
    match to {
        None => std::fs::remove_file(accepted).unwrap(),
        Some(state) => {
            let there = site.path(state);
            std::fs::create_dir_all(&there).unwrap();
            std::fs::rename(accepted, there.join("m1")).unwrap();
        }
    }
}

fn refuses_everything(site: &Site, minion: &Minion, what: &str) {
    for cmd in commands() {
        for version in [3, 2, 1] {
            let name = format!("{what}, {cmd}, protocol {version}");
            let with_token = minion.sealed(load(minion, cmd), version);
            assert_eq!(site.ask_in_vain(&name, with_token), bad_load(), "{name}");
            let without = minion.sealed(load(minion, cmd).without("tok"), version);
            assert_eq!(site.ask_in_vain(&name, without), bad_load(), "{name}");
        }
    }
}

#[test]
fn revoked_minion_can_run_no_command() {
    let states = [None, Some("pki/minions_rejected"), Some("pki/minions_pre")];
    for state in states {
        let site = Site::new("minimum_auth_version: 0\n");
        let minion = Minion::signed_in(&site, "m1");
        revoke(&site, state);
        let heard = site.around.heard.lock().len();
        refuses_everything(&site, &minion, "before the rotation");
        site.services.keys.shared.rotate().unwrap();
        assert!(site.services.keys.shared.previous().is_some());
        refuses_everything(&site, &minion, "in the overlap");
        assert_eq!(site.around.heard.lock().len(), heard, "{state:?}");
    }
}

#[test]
fn command_table_matches_served_commands() {
    let site = Site::new("");
    let minion = Minion::signed_in(&site, "m1");
    for cmd in commands() {
        let handled = site.handle(minion.sealed(minion.load(cmd), 3));
        assert_eq!(handled.command, cmd, "the table has an unknown command");
    }
}

/// Nor does another minion's name help: the previous key alone proves nothing.
#[test]
fn request_under_previous_key_needs_token() {
    let site = Site::new("minimum_auth_version: 0\n");
    let kept = Minion::signed_in(&site, "kept");
    let gone = Minion::new("m1", "large");
    site.accept("m1", "large");
    revoke(&site, None);
    site.services.keys.shared.rotate().unwrap();
    let event = |minion: &Minion| {
        let load = minion.load("_minion_event").set("tag", "x");
        load.set("data", Load::new())
    };
    let forged = event(&gone).set("id", "kept");
    let table = [
        ("no token", forged.clone().without("tok")),
        ("the token of the deleted minion", forged),
        ("both of the deleted minion", event(&gone)),
    ];
    for (what, load) in table {
        for version in [1, 2] {
            let payload = kept.sealed(load.clone(), version);
            assert_eq!(site.ask_in_vain(what, payload), bad_load(), "{what}");
        }
    }
    for version in [1, 2] {
        let outcome = site.ask(kept.sealed(event(&kept), version));
        assert_eq!(
            outcome.effects.len(),
            1,
            "who stays is understood in the overlap"
        );
        kept.open(&outcome.reply, version);
    }
    site.clock.advance(site.services.config.saltern_key_overlap);
    let late = kept.sealed(event(&kept), 2);
    assert_eq!(site.ask_in_vain("after the overlap", late), bad_load());
    let own_session = site.ask(kept.sealed(event(&kept), 3));
    assert_eq!(
        own_session.effects.len(),
        1,
        "a session does not end with the shared key"
    );
}

/// The next owner of the name gets a session that the previous owner does not know, also when the
/// keys were exchanged unnoticed.
#[test]
fn next_owner_of_id_gets_new_session() {
    let site = Site::new("");
    let previous = Minion::signed_in(&site, "m1");
    let session = std::fs::File::options()
        .write(true)
        .open(site.path("cache/sessions/m1"));
    let before = saltern_base::clock::Clock::system().now() - std::time::Duration::from_secs(60);
    session.unwrap().set_modified(before).unwrap();
    site.accept("m1", "large");
    let mut next = Minion::new("m1", "large");
    let reply = site.ask(clear(next.auth(), 3)).reply;
    let keys = next.verified(&reply, saltern_crypto::SigAlgo::Pkcs1v15Sha1);
    next.take_keys(&keys, saltern_crypto::EncAlgo::OaepSha1);
    let (old, new) = (previous.session.as_ref(), next.session.as_ref());
    assert!(!new.unwrap().same_as(old.unwrap()));
    let replayed = previous.load("_minion_event").set("tok", next.token());
    assert_eq!(
        site.ask_in_vain("old session, stolen token", previous.sealed(replayed, 3)),
        bad_load()
    );
}

/// Answer to a minion beyond the limit: as if its key were pending.
#[test]
fn auth_beyond_limit_is_answered_retry_later() {
    let site = Site::new("minimum_auth_version: 0\n");
    let minion = Minion::signed_in(&site, "m1");
    for who in ["m1", "stranger"] {
        let payload = clear(minion.auth().set("id", who), 3);
        let before = site.files();
        let handled = saltern_requests::retry_later(payload, &site.services);
        assert!(handled.outcome.effects.is_empty());
        assert_eq!(site.files(), before, "{who}");
        let inner = minion.verified(
            &handled.outcome.reply,
            saltern_crypto::SigAlgo::Pkcs1v15Sha1,
        );
        assert_eq!(inner.get("ret"), Some(&true.into()), "{who}");
        assert!(inner.get("aes").is_none());
    }
    let payload = clear(minion.auth(), 1);
    let reply = saltern_requests::retry_later(payload, &site.services)
        .outcome
        .reply;
    let load = decode(&reply);
    let ret = load.get("load").and_then(|load| load.get("ret"));
    assert_eq!(ret, Some(&true.into()), "protocol 1 has no signature");
}
