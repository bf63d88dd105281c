//! The minion's side of the wire, as stock's `salt/channel/client.py` does it.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use saltern_crypto::{Crypticle, EncAlgo, KeyString, PrivateKey, PublicKey, SigAlgo};
use saltern_requests::minion_commands;
use saltern_wire::msgpack::{Dialect, Value, encode};

use crate::wire::site::{START, Site, decode, key_pair};

pub(crate) const NONCE: &str = "0123456789abcdef0123456789abcdef";

/// The jid of [`published_by_root`].
pub(crate) const JID: &str = "20260102030405060708";

/// Every command that a minion can send encrypted, served or not. The last is `revoke_auth`, for after
/// it the key is gone.
pub(crate) fn commands() -> Vec<&'static str> {
    let mut commands: Vec<_> = minion_commands().collect();
    commands.sort_unstable_by_key(|name| (*name == "revoke_auth", *name));
    commands
}

/// A map, entry by entry; a later entry replaces an earlier one, `None` takes it out.
#[derive(Clone, Default)]
pub(crate) struct Load(Vec<(Value, Value)>);

impl Load {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// The key of root, which a local client of stock's puts into its loads.
    pub(crate) fn with_key_of_root(self, site: &Site) -> Self {
        let rules = site.services.users.rules();
        let key = rules.users.key("root").unwrap();
        self.set("key", key.expose())
    }

    pub(crate) fn set(mut self, name: &str, value: impl Into<Value>) -> Self {
        let value = value.into();
        match self
            .0
            .iter_mut()
            .find(|(key, _)| key.as_str() == Some(name))
        {
            Some((_, old)) => *old = value,
            None => self.0.push((name.into(), value)),
        }
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.0.retain(|(key, _)| key.as_str() != Some(name));
        self
    }

    pub(crate) fn value(self) -> Value {
        Value::Map(self.0)
    }

    pub(crate) fn packed(self) -> Bytes {
        encode(&self.value(), Dialect::Raw).into()
    }
}

/// `{"enc": "clear", …}`.
pub(crate) fn clear(load: impl Into<Value>, version: i64) -> Bytes {
    let envelope = Load::new().set("enc", "clear").set("load", load.into());
    envelope.set("version", version).packed()
}

impl From<Load> for Value {
    fn from(load: Load) -> Self {
        load.value()
    }
}

/// A nonce that no request had before.
fn new_nonce() -> String {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    format!("{:032x}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

/// Minion, with the keys that it got from the master once it has signed in.
pub(crate) struct Minion {
    pub(crate) id: String,
    pub(crate) private: Arc<PrivateKey>,
    pub(crate) public: String,
    pub(crate) session: Option<KeyString>,
    pub(crate) shared: Option<KeyString>,
    /// The nonces of all requests that it sealed.
    nonces: Mutex<HashSet<String>>,
}

impl Minion {
    /// A minion with the key `name` of the vectors, a stranger to every master.
    pub(crate) fn new(id: &str, name: &str) -> Self {
        let pair = key_pair(name);
        Self {
            id: id.to_owned(),
            private: Arc::new(PrivateKey::from_pem(pair.private, None).unwrap()),
            public: pair.public.trim().to_owned(),
            session: None,
            shared: None,
            nonces: Mutex::default(),
        }
    }

    /// A minion whose key is accepted and who has signed in.
    pub(crate) fn signed_in(site: &Site, id: &str) -> Self {
        let mut minion = Self::new(id, "minion");
        site.accept(id, "minion");
        let outcome = site.ask(clear(minion.auth(), 3));
        let keys = minion.verified(&outcome.reply, SigAlgo::Pkcs1v15Sha1);
        minion.take_keys(&keys, EncAlgo::OaepSha1);
        minion
    }

    /// The load of `_auth`.
    pub(crate) fn auth(&self) -> Load {
        Load::new()
            .set("cmd", "_auth")
            .set("id", self.id.as_str())
            .set("nonce", NONCE)
            .set("pub", self.public.as_str())
    }

    /// The signed part of an answer to `_auth`, after its signature and nonce were checked.
    pub(crate) fn verified(&self, reply: &[u8], algorithm: SigAlgo) -> Value {
        self.verified_by(&master_key(), reply, algorithm)
    }

    /// The same under a key of the master's.
    pub(crate) fn verified_by(
        &self,
        master: &PublicKey,
        reply: &[u8],
        algorithm: SigAlgo,
    ) -> Value {
        let outer = decode(reply);
        assert_eq!(outer.get("enc").and_then(Value::as_str), Some("clear"));
        let load = outer.get("load").and_then(Value::as_bytes);
        let load = load.expect("the answer is signed");
        let signature = outer.get("sig").and_then(Value::as_bytes).unwrap();
        assert!(master.verify(algorithm, load, signature), "signature");
        let inner = decode(load);
        assert_eq!(inner.get("nonce").and_then(Value::as_str), Some(NONCE));
        inner
    }

    /// Checks the keys as a stock minion does, and keeps them.
    pub(crate) fn take_keys(&mut self, keys: &Value, algorithm: EncAlgo) {
        self.take_keys_of(&master_key(), keys, algorithm);
    }

    /// The same under a key of the master's.
    pub(crate) fn take_keys_of(&mut self, master: &PublicKey, keys: &Value, algorithm: EncAlgo) {
        let open = |name: &str| {
            let sealed = keys.get(name).and_then(Value::as_bytes).unwrap();
            let plain = self.private.decrypt(algorithm, sealed).unwrap();
            KeyString::parse(std::str::from_utf8(plain.expose()).unwrap()).unwrap()
        };
        let (shared, session) = (open("aes"), open("session"));
        let sig = keys.get("sig").and_then(Value::as_bytes).unwrap();
        let digest = master.x931_recover(sig).unwrap();
        assert_eq!(digest, shared.digest_hex().as_bytes());
        assert_eq!(keys.get("enc").and_then(Value::as_str), Some("pub"));
        let public = keys.get("pub_key").and_then(Value::as_str).unwrap();
        assert_eq!(public, master.pem());
        (self.shared, self.session) = (Some(shared), Some(session));
    }

    pub(crate) fn token(&self) -> Value {
        Value::Bin(self.private.x931_sign(b"salt").unwrap().into())
    }

    /// The entries of every encrypted load of protocol 3, and the command.
    pub(crate) fn load(&self, cmd: &str) -> Load {
        Load::new()
            .set("cmd", cmd)
            .set("id", self.id.as_str())
            .set("nonce", new_nonce())
            .set("ts", i64::try_from(START).unwrap())
            .set("tok", self.token())
    }

    pub(crate) fn crypticle(&self, version: i64) -> Crypticle {
        let key = if version > 2 {
            &self.session
        } else {
            &self.shared
        };
        Crypticle::new(key.as_ref().unwrap())
    }

    /// The envelope around a load of this minion.
    pub(crate) fn envelope(&self, load: impl Into<Value>, version: i64) -> Load {
        let load = load.into();
        let nonce = load.get("nonce").and_then(Value::as_str);
        self.nonces.lock().extend(nonce.map(str::to_owned));
        let packed = encode(&load, Dialect::Raw);
        let ciphertext = self.crypticle(version).dumps(&packed, None);
        Load::new()
            .set("enc", "aes")
            .set("load", Value::Bin(ciphertext.into()))
            .set("version", version)
            .set("id", self.id.as_str())
            .set("enc_algo", "OAEP-SHA1")
            .set("sig_algo", "PKCS1v15-SHA1")
    }

    pub(crate) fn sealed(&self, load: impl Into<Value>, version: i64) -> Bytes {
        self.envelope(load, version).packed()
    }

    /// Whether a request of this minion had the nonce.
    pub(crate) fn has_asked_with(&self, nonce: &str) -> bool {
        self.nonces.lock().contains(nonce)
    }

    /// The answer to an encrypted request, after its MAC and nonce were checked.
    pub(crate) fn open(&self, reply: &[u8], version: i64) -> Value {
        let outer = decode(reply);
        let ciphertext = outer.as_bytes().expect("the answer is packed as bytes");
        let crypticle = self.crypticle(version);
        let plain = match version {
            0 | 1 => crypticle.loads(ciphertext),
            _ => crypticle.loads(ciphertext).map(|plain| {
                let nonce = std::str::from_utf8(&plain[..32]).unwrap();
                assert!(self.has_asked_with(nonce), "it answers a request");
                plain.slice(32..)
            }),
        };
        decode(&plain.expect("the answer is sealed for this minion"))
    }
}

pub(crate) fn master_key() -> PublicKey {
    PublicKey::from_pem(key_pair("master").public).unwrap()
}

/// The load of stock's `LocalClient` for root: `test.ping` for a glob.
pub(crate) fn published_by_root(site: &Site, tgt: &str) -> Load {
    Load::new()
        .set("cmd", "publish")
        .set("tgt", tgt)
        .set("fun", "test.ping")
        .set("arg", Value::Array(Vec::new()))
        .with_key_of_root(site)
        .set("tgt_type", "glob")
        .set("ret", "")
        .set("jid", JID)
        .set("user", "root")
}
