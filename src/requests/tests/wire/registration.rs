//! Registration of TCP subscribers, and the publish port that `_auth` names to minions over another
//! transport than that of `publish_port`.

use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use saltern_crypto::{Crypticle, KeyString, SigAlgo};
use saltern_model::AuditDoor;
use saltern_requests::{Origin, handle, registered_minion};
use saltern_wire::msgpack::Value;

use crate::wire::client::{Load, Minion, clear};
use crate::wire::site::{Site, key_pair};

/// `{"id", "tok"}` in the envelope in which stock's `connect_callback` sends it.
fn registration(load: Load, key: &KeyString) -> Bytes {
    let sealed = Crypticle::new(key).dumps(&load.packed(), None);
    Load::new()
        .set("enc", "aes")
        .set("load", Value::Bin(sealed.into()))
        .set("version", 3_i64)
        .packed()
}

#[test]
fn registration_needs_token_of_own_key() {
    let site = Site::new("");
    let m1 = Minion::signed_in(&site, "m1");
    let (shared, session) = (m1.shared.as_ref().unwrap(), m1.session.as_ref().unwrap());
    let words = |id: &str, token: Value| Load::new().set("id", id).set("tok", token);
    let named = |words: &Bytes| {
        let minion = registered_minion(words, &site.services);
        minion.map(|minion| minion.to_string())
    };
    let honest = registration(words("m1", m1.token()), shared);
    assert_eq!(named(&honest).as_deref(), Some("m1"));

    site.write("pki/minions/m2", &key_pair("master").public);
    let stranger = Minion::new("m1", "large");
    let refused = [
        (
            "another's id",
            registration(words("m2", m1.token()), shared),
        ),
        (
            "another's token",
            registration(words("m1", stranger.token()), shared),
        ),
        (
            "no accepted key",
            registration(words("m3", m1.token()), shared),
        ),
        (
            "no id of a minion",
            registration(words("../m1", m1.token()), shared),
        ),
        (
            "no token",
            registration(Load::new().set("id", "m1"), shared),
        ),
        (
            "its own key",
            registration(words("m1", m1.token()), session),
        ),
        ("in the clear", clear(words("m1", m1.token()), 3)),
        ("no map", Bytes::from_static(b"\xa2m1")),
    ];
    let before = site.refused();
    for (what, words) in &refused {
        assert_eq!(named(words), None, "{what}");
    }
    assert!(site.refused() > before);
    std::fs::remove_file(site.path("pki/minions/m1")).unwrap();
    assert_eq!(named(&honest), None, "its key was deleted");
}

#[test]
fn auth_names_publish_port_of_same_transport() {
    let site = Site::new("publish_port: 4711\n");
    site.accept("m1", "minion");
    let m1 = Minion::new("m1", "minion");
    for (publish_port, expected) in [(None, 4711), (Some(4713), 4713)] {
        let origin = Origin {
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            publish_port,
            door: AuditDoor::Port,
        };
        let reply = handle(clear(m1.auth(), 3), origin, &site.services)
            .outcome
            .reply;
        let keys = m1.verified(&reply, SigAlgo::Pkcs1v15Sha1);
        assert_eq!(keys.get("publish_port"), Some(&Value::Int(expected)));
    }
}
