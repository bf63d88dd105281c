//! Requests while the master's own key is rotated: each minion is answered under the key that it
//! knows, which nobody else can make the master believe.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use saltern_crypto::{EncAlgo, PrivateKey, PublicKey, SigAlgo};
use saltern_wire::msgpack::Value;

use crate::wire::client::{Minion, clear, master_key};
use crate::wire::pillar::{pillar_load, verified_by};
use crate::wire::site::{START, Site, decode, key_pair};

const ENC: EncAlgo = EncAlgo::OaepSha1;
const SIG: SigAlgo = SigAlgo::Pkcs1v15Sha1;

/// A time beyond any clock of these tests.
const UNTIL: i64 = 9_000_000_000;

/// A line of the file of statements: the replaced key about its successor.
fn statement(replaced: &str, successor: &str) -> String {
    statement_until(UNTIL, replaced, successor)
}

fn statement_until(until: i64, replaced: &str, successor: &str) -> String {
    let replaced = PrivateKey::from_pem(key_pair(replaced).private, None).unwrap();
    let successor = PublicKey::from_pem(key_pair(successor).public).unwrap();
    let message = format!(
        "saltern master key rotation\nuntil {until}\n{}\n",
        successor.pem()
    );
    let signature = replaced.sign(SigAlgo::Pkcs1v15Sha224, message.as_bytes());
    format!("{until} {}\n", STANDARD.encode(signature.unwrap()))
}

/// A master whose previous key is the large one, with these statements.
fn with_statements(options: &str, statements: String) -> Site {
    let files = [
        ("pki/master_previous.pem", key_pair("large").private),
        ("pki/master_previous.sig", statements),
    ];
    Site::with_files(options, &files)
}

/// A master whose previous key is the large one.
fn rotating(options: &str) -> Site {
    with_statements(options, statement("large", "master"))
}

fn previous_key() -> PublicKey {
    PublicKey::from_pem(key_pair("large").public).unwrap()
}

/// A minion that knows this key of the master's, signed in.
fn signed_in(site: &Site, id: &str, known: &PublicKey) -> Minion {
    let mut minion = Minion::new(id, "minion");
    // A key that is written anew has a new session.
    if !site.path("pki/minions").join(id).exists() {
        site.accept(id, "minion");
    }
    let token = known.encrypt(ENC, b"proof").unwrap();
    let load = minion.auth().set("token", Value::Bin(token.into()));
    let reply = site.ask(clear(load, 3)).reply;
    let keys = minion.verified_by(known, &reply, SIG);
    let echo = keys.get("token").and_then(Value::as_bytes).unwrap();
    assert_eq!(
        minion.private.decrypt(ENC, echo).unwrap().expose(),
        b"proof"
    );
    minion.take_keys_of(known, &keys, ENC);
    minion
}

fn has_pillar(site: &Site, minion: &Minion, known: &PublicKey) {
    let reply = site.ask(minion.sealed(pillar_load(minion), 3)).reply;
    verified_by(known, minion, &reply, (ENC, SIG));
}

#[test]
fn each_minion_is_answered_under_the_key_it_knows() {
    let site = rotating("");
    let (new, previous) = (master_key(), previous_key());
    let left = signed_in(&site, "m1", &previous);
    has_pillar(&site, &left, &previous);
    // Handed over: it keeps its session until it authenticates again.
    let has_it = signed_in(&site, "m1", &new);
    has_pillar(&site, &has_it, &new);
    has_pillar(&site, &left, &previous);
    let (one, other) = (
        left.session.as_ref().unwrap(),
        has_it.session.as_ref().unwrap(),
    );
    assert!(!one.same_as(other));
    // A new minion knows none, and gets the new one.
    let mut first = Minion::new("m2", "minion");
    site.accept("m2", "minion");
    let reply = site.ask(clear(first.auth(), 3)).reply;
    let keys = first.verified_by(&new, &reply, SIG);
    first.take_keys_of(&new, &keys, ENC);
    has_pillar(&site, &first, &new);
}

/// An `_auth` is not authenticated: that somebody sends one for a minion must not change how the
/// minion is answered.
#[test]
fn forged_authentication_does_not_change_the_key_of_answers() {
    let site = rotating("");
    let (new, previous) = (master_key(), previous_key());
    let left = signed_in(&site, "m1", &previous);
    let has_it = signed_in(&site, "m2", &new);
    signed_in(&site, "m1", &new);
    signed_in(&site, "m2", &previous);
    has_pillar(&site, &left, &previous);
    has_pillar(&site, &has_it, &new);
}

#[test]
fn pending_minion_is_answered_under_the_key_it_knows() {
    let site = rotating("");
    let previous = previous_key();
    let minion = Minion::new("m1", "minion");
    let token = previous.encrypt(ENC, b"proof").unwrap();
    let load = minion.auth().set("token", Value::Bin(token.into()));
    let reply = site.ask(clear(load, 3)).reply;
    let pending = minion.verified_by(&previous, &reply, SIG);
    assert_eq!(pending.get("ret"), Some(&Value::Bool(true)));
}

#[test]
fn previous_key_counts_no_more_once_its_file_is_gone() {
    let site = rotating("");
    let (new, previous) = (master_key(), previous_key());
    let left = signed_in(&site, "m1", &previous);
    let has_it = signed_in(&site, "m2", &new);
    std::fs::remove_file(site.path("pki/master_previous.sig")).unwrap();
    // The session is refused, so that the minion authenticates: then it goes on as usual.
    let refused = site.ask(has_it.sealed(pillar_load(&has_it), 3)).reply;
    assert_eq!(decode(&refused), Value::from("bad load"));
    let again = signed_in(&site, "m2", &new);
    has_pillar(&site, &again, &new);
    let token = previous.encrypt(ENC, b"proof").unwrap();
    let load = left.auth().set("token", Value::Bin(token.into()));
    let reply = site.ask(clear(load, 3)).reply;
    let keys = left.verified_by(&new, &reply, SIG);
    assert_eq!(keys.get("token"), None, "the minion refuses this answer");
}

/// The time that the old key has signed: until then both are accepted, from then on the new one alone,
/// without a restart.
#[test]
fn previous_key_is_accepted_until_its_time_and_no_longer() {
    let seconds = 100;
    let until = i64::try_from(START + seconds).unwrap();
    let site = with_statements("", statement_until(until, "large", "master"));
    let (new, previous) = (master_key(), previous_key());
    let left = signed_in(&site, "m1", &previous);
    let has_it = signed_in(&site, "m2", &new);
    site.clock.advance(Duration::from_secs(seconds - 1));
    has_pillar(&site, &left, &previous);
    has_pillar(&site, &has_it, &new);
    let log_in = || {
        let token = previous.encrypt(ENC, b"proof").unwrap();
        let load = left.auth().set("token", Value::Bin(token.into()));
        site.ask(clear(load, 3)).reply
    };
    let answered = left.verified_by(&previous, &log_in(), SIG);
    assert!(answered.get("token").is_some());

    site.clock.advance(Duration::from_secs(1));
    let answered = left.verified_by(&new, &log_in(), SIG);
    assert_eq!(
        answered.get("token"),
        None,
        "the minion refuses this answer"
    );
    // The session under the new key goes, so that the minion authenticates: then it goes on as usual.
    let refused = site.ask(has_it.sealed(pillar_load(&has_it), 3)).reply;
    assert_eq!(decode(&refused), Value::from("bad load"));
    let again = signed_in(&site, "m2", &new);
    has_pillar(&site, &again, &new);
}

/// Our own minions get the new key in the answer, signed by the previous one.
#[test]
fn answer_under_the_previous_key_hands_over_the_new_one() {
    let site = rotating("");
    let keys = |known: &PublicKey| {
        let minion = Minion::new("m1", "minion");
        site.accept("m1", "minion");
        let token = known.encrypt(ENC, b"proof").unwrap();
        let load = minion.auth().set("token", Value::Bin(token.into()));
        minion.verified_by(known, &site.ask(clear(load, 3)).reply, SIG)
    };
    let under_previous = keys(&previous_key());
    let next = under_previous
        .get("saltern_next_key")
        .and_then(Value::as_str);
    assert_eq!(next, Some(master_key().pem()));
    assert_eq!(keys(&master_key()).get("saltern_next_key"), None);
}

/// After a return to the first key a minion keeps the session and the key that it had.
#[test]
fn reverted_rotation_answers_each_minion_under_the_key_it_knows() {
    // The master's key was replaced by the large one, and came back.
    let (first, made) = (master_key(), previous_key());
    let statements = statement("large", "master") + &statement("master", "large");
    let site = with_statements("", statements);
    let left = signed_in(&site, "m1", &first);
    has_pillar(&site, &left, &first);
    let has_it = signed_in(&site, "m1", &made);
    has_pillar(&site, &has_it, &made);
    has_pillar(&site, &left, &first);
    // The session under the first key is the one that it would be without a rotation.
    std::fs::remove_file(site.path("pki/master_previous.sig")).unwrap();
    has_pillar(&site, &left, &first);
}

/// The signing key vouches for the key under which a minion is answered.
#[test]
fn signing_key_vouches_for_both_keys() {
    let site = rotating("master_sign_pubkey: True\n");
    let signing = std::fs::read_to_string(site.path("pki/master_sign.pub")).unwrap();
    let signing = PublicKey::from_pem(signing).unwrap();
    for (id, known) in [("m1", master_key()), ("m2", previous_key())] {
        let minion = Minion::new(id, "minion");
        site.accept(id, "minion");
        let token = known.encrypt(ENC, b"proof").unwrap();
        let load = minion.auth().set("token", Value::Bin(token.into()));
        let reply = site.ask(clear(load, 3)).reply;
        let keys = minion.verified_by(&known, &reply, SIG);
        let signature = keys.get("pub_sig").and_then(Value::as_str).unwrap();
        let signature = STANDARD.decode(signature.trim()).unwrap();
        assert!(signing.verify(SIG, known.pem().as_bytes(), &signature));
    }
}
