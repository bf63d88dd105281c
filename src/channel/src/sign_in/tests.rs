//! Tests of sign-in against a fake master: every forged answer must be rejected.

use std::path::Path;
use std::sync::LazyLock;

use saltern_base::clock::Clock;
use saltern_crypto::PrivateKey;
use saltern_model::MinionId;
use saltern_wire::msgpack::{Dialect, encode};

use super::*;
use crate::keys::{MasterKeyStore, MemoryStore, MinionKeys};

/// Key pairs are expensive; all tests share three.
static MINION: LazyLock<Arc<MinionKeys>> =
    LazyLock::new(|| Arc::new(MinionKeys::generate(2048).expect("a key pair")));
static MASTER: LazyLock<PrivateKey> =
    LazyLock::new(|| PrivateKey::generate(2048).expect("a key pair"));
static OTHER: LazyLock<PrivateKey> =
    LazyLock::new(|| PrivateKey::generate(2048).expect("a key pair"));

fn minion() -> (Identity, Arc<MemoryStore>) {
    let id = MinionId::parse("m1").expect("a minion id");
    let store = Arc::new(MemoryStore::default());
    let who = Identity {
        config: Arc::new(MinionConfig::new(id.clone(), Path::new("/"))),
        id,
        keys: Arc::clone(&MINION),
        store: Arc::clone(&store) as _,
        clock: Clock::system(),
    };
    (who, store)
}

fn trust(store: &MemoryStore, key: &PrivateKey) {
    let key = PublicKey::from_pem(key.public().pem()).expect("a public key");
    store.store(&Arc::new(key)).expect("it is kept in memory");
}

/// The answer of a fake master; each test changes one thing in it.
struct Master {
    key: &'static PrivateKey,
    aes: KeyString,
    fields: Vec<(&'static str, Value)>,
}

impl Master {
    /// An honest answer to `request`.
    fn accepting(request: &SignInRequest) -> Self {
        let aes = KeyString::generate();
        let algo = saltern_crypto::EncAlgo::OaepSha1;
        let seal = |text: &str| {
            let public = MINION.private.public();
            Value::from(Bytes::from(
                public.encrypt(algo, text.as_bytes()).expect("it fits"),
            ))
        };
        let proof = MASTER
            .x931_sign(aes.digest_hex().as_bytes())
            .expect("it fits");
        let mut fields = vec![
            ("enc", Value::from("pub")),
            ("pub_key", Value::from(MASTER.public().pem())),
            ("publish_port", Value::from(4505_i64)),
            ("aes", seal(aes.as_str())),
            ("session", seal(KeyString::generate().as_str())),
            ("sig", Value::from(Bytes::from(proof))),
            ("nonce", Value::from(request.nonce.as_str())),
        ];
        if let Some(token) = &request.token {
            fields.push(("token", seal(token.as_str())));
        }
        Self {
            key: &MASTER,
            aes,
            fields,
        }
    }

    /// A verdict without keys.
    fn saying(request: &SignInRequest, ret: impl Into<Value>) -> Self {
        let nonce = Value::from(request.nonce.as_str());
        let fields = vec![("ret", ret.into()), ("nonce", nonce)];
        Self {
            key: &MASTER,
            aes: KeyString::generate(),
            fields,
        }
    }

    fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        self.fields.retain(|(known, _)| *known != name);
        self.fields.push((name, value.into()));
    }

    fn reply(&self) -> Vec<u8> {
        let load = encode(&Value::map(self.fields.clone()), Dialect::Raw);
        let signature = self
            .key
            .sign(saltern_crypto::SigAlgo::Pkcs1v15Sha1, &load)
            .expect("it can be signed");
        let reply = Value::map([
            ("enc", Value::from("clear")),
            ("load", Value::from(Bytes::from(load))),
            ("sig", Value::from(Bytes::from(signature))),
        ]);
        encode(&reply, Dialect::Raw)
    }
}

fn text_of(answer: Result<SignInAnswer, SignInError>) -> String {
    match answer {
        Ok(SignInAnswer::Accepted(_)) => "accepted".to_owned(),
        Ok(SignInAnswer::Pending) => "pending".to_owned(),
        Ok(SignInAnswer::RejectedForNow) => "rejected for now".to_owned(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn master_key_is_trusted_on_first_use() {
    let (who, store) = minion();
    let request = SignInRequest::new(&who).expect("a request");
    assert!(request.token.is_none());
    let master = Master::accepting(&request);
    let Ok(SignInAnswer::Accepted(session)) = request.answer(&master.reply(), &who) else {
        panic!("it is an honest answer");
    };
    assert!(session.aes.same_as(&master.aes));
    assert_eq!(session.publish_port, 4505);
    let trusted = store.load().expect("memory").expect("it was stored");
    assert_eq!(trusted.pem(), MASTER.public().pem());

    let request = SignInRequest::new(&who).expect("a request");
    assert!(request.token.is_some(), "a known master is asked for proof");
    assert_eq!(
        text_of(request.answer(&Master::accepting(&request).reply(), &who)),
        "accepted"
    );
}

#[test]
fn forged_sign_in_answers_are_rejected() {
    type Lie = fn(&mut Master);
    let lies: [(&str, Lie); 10] = [
        ("the master's key has changed", |m| {
            m.set("pub_key", OTHER.public().pem())
        }),
        ("the signature in the master's answer is wrong", |m| {
            m.key = &OTHER
        }),
        ("the nonce in", |m| m.set("nonce", "0".repeat(32))),
        ("the token in", |m| {
            m.fields.retain(|(name, _)| *name != "token")
        }),
        ("the token in", |m| {
            m.set("token", Bytes::from_static(&[1; 256]))
        }),
        ("the aes in", |m| {
            m.set("aes", Bytes::from_static(&[1; 256]))
        }),
        ("the session in", |m| {
            m.fields.retain(|(name, _)| *name != "session")
        }),
        ("the signature of the key in", |m| {
            let forged = OTHER
                .x931_sign(m.aes.digest_hex().as_bytes())
                .expect("it fits");
            m.set("sig", Bytes::from(forged));
        }),
        ("signed, but", |m| m.set("pub_sig", "AAAA")),
        ("no publish port", |m| m.set("publish_port", 99_999_i64)),
    ];
    for (place, (expected, lie)) in lies.into_iter().enumerate() {
        let (who, store) = minion();
        trust(&store, &MASTER);
        let request = SignInRequest::new(&who).expect("a request");
        let mut master = Master::accepting(&request);
        lie(&mut master);
        let answer = text_of(request.answer(&master.reply(), &who));
        assert!(answer.contains(expected), "lie {place} gave {answer:?}");
    }
}

#[test]
fn master_key_is_stored_only_after_all_checks() {
    let (mut who, store) = minion();
    let request = SignInRequest::new(&who).expect("a request");
    let mut master = Master::accepting(&request);
    master.key = &OTHER;
    assert!(request.answer(&master.reply(), &who).is_err());
    let config = Arc::get_mut(&mut who.config).expect("nobody else has it");
    config.master_finger = "00:11".to_owned();
    let honest = Master::accepting(&request);
    let answer = text_of(request.answer(&honest.reply(), &who));
    assert!(answer.contains("has the fingerprint"), "{answer}");
    assert!(store.load().expect("memory").is_none());
    let finger = MASTER
        .public()
        .fingerprint(HashType::from_name("sha256").expect("a hash"));
    let config = Arc::get_mut(&mut who.config).expect("nobody else has it");
    config.master_finger = finger.expect("a fingerprint");
    assert_eq!(text_of(request.answer(&honest.reply(), &who)), "accepted");
}

#[test]
fn sign_in_verdicts_are_accepted_from_the_known_master_only() {
    let cases = [
        (Value::from(true), "pending"),
        (
            Value::from(false),
            "the master has rejected this minion's key",
        ),
        (Value::from("full"), "the master is full"),
        (Value::Nil, "it says nothing"),
    ];
    for (ret, expected) in cases {
        let (who, store) = minion();
        let request = SignInRequest::new(&who).expect("a request");
        let mut master = Master::saying(&request, ret);
        let answer = text_of(request.answer(&master.reply(), &who));
        assert!(answer.contains(expected), "{answer}");
        trust(&store, &MASTER);
        master.key = &OTHER;
        let answer = text_of(request.answer(&master.reply(), &who));
        assert!(answer.contains("the signature in"), "{answer}");
    }
}

#[test]
fn malformed_sign_in_answers_are_errors() {
    let (who, _) = minion();
    let request = SignInRequest::new(&who).expect("a request");
    let clear = |ret: &str| {
        let load = Value::map([("ret", Value::from(ret))]);
        encode(
            &Value::map([("enc", Value::from("clear")), ("load", load)]),
            Dialect::Raw,
        )
    };
    let cases = [
        (
            encode(&Value::from("bad load"), Dialect::Raw),
            "malformed: \"bad load\"",
        ),
        (Vec::new(), "malformed"),
        (
            encode(&Value::map([("load", Value::from(1_i64))]), Dialect::Raw),
            "no signed load",
        ),
        (clear("bad sig algo"), "the master says \"bad sig algo\""),
    ];
    for (reply, expected) in cases {
        let answer = text_of(request.answer(&reply, &who));
        assert!(answer.contains(expected), "{answer}");
    }
}

#[test]
fn next_key_is_trusted_only_when_the_trusted_key_signed_it() {
    let held = |store: &MemoryStore| {
        let held = store.load().expect("memory").expect("a key");
        held.pem().to_owned()
    };
    let (mut who, store) = minion();
    trust(&store, &MASTER);
    let request = SignInRequest::new(&who).expect("a request");
    let mut master = Master::accepting(&request);
    master.set("saltern_next_key", OTHER.public().pem());
    master.key = &OTHER;
    assert!(request.answer(&master.reply(), &who).is_err());
    assert_eq!(held(&store), MASTER.public().pem());

    master.key = &MASTER;
    let Ok(SignInAnswer::Accepted(session)) = request.answer(&master.reply(), &who) else {
        panic!("it is an honest answer");
    };
    assert!(session.has_next_key);
    assert_eq!(session.master.pem(), MASTER.public().pem());
    assert_eq!(held(&store), OTHER.public().pem());
    // An answer to a request that was made before is still one under the key of that request.
    assert_eq!(text_of(request.answer(&master.reply(), &who)), "accepted");

    // A key that is pinned stays.
    trust(&store, &MASTER);
    let finger = MASTER
        .public()
        .fingerprint(HashType::from_name("sha256").expect("a hash"));
    let config = Arc::get_mut(&mut who.config).expect("nobody else has it");
    config.master_finger = finger.expect("a fingerprint");
    assert_eq!(text_of(request.answer(&master.reply(), &who)), "accepted");
    assert_eq!(held(&store), MASTER.public().pem());
}
