//! Opens the reply to `_pillar`: a fresh key that only this minion can decrypt, and under it the
//! pillar with the master's signature over pillar, key and nonce
//! (`crypted_transfer_decode_dictentry` in `salt/channel/client.py`).
//!
//! The swarm has no other use for a pillar than to see that it is the right one; what a pillar
//! means is nothing that these minions know.

use saltern_crypto::{Crypticle, EncAlgo, KeyString, PublicKey, SigAlgo};
use saltern_wire::msgpack::{Limits, Value, decode_wire};

use saltern_channel::MinionKeys;

/// Why a reply is not the answer to a request for a pillar.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PrivateReplyError {
    /// It has not the shape of one; the master's words, if it sent some.
    #[error("it is no private reply: {0}")]
    Shape(String),
    /// The key is not encrypted for this minion.
    #[error("its key cannot be decrypted")]
    Key,
    /// The pillar is not encrypted with that key.
    #[error("its pillar cannot be decrypted")]
    Sealed,
    /// The signature is not the master's.
    #[error("its signature is not the master's")]
    Signature,
    /// It is the reply to another request.
    #[error("it is the reply to another request")]
    Foreign,
}

/// Keys and algorithms with which a reply is verified and opened.
pub(crate) struct PrivateReply<'a> {
    pub(crate) keys: &'a MinionKeys,
    pub(crate) master: &'a PublicKey,
    pub(crate) enc_algo: EncAlgo,
    pub(crate) sig_algo: SigAlgo,
}

impl PrivateReply<'_> {
    /// The pillar of the reply, after every check that a stock minion makes.
    pub(crate) fn open(&self, reply: &[u8], nonce: &str) -> Result<Value, PrivateReplyError> {
        let outer = sealed_parts(reply)?;
        let (sealed_key, sealed_pillar) = (bytes(&outer, "key"), bytes(&outer, "pillar"));
        let key = self.keys.private.decrypt(self.enc_algo, sealed_key);
        let key = key.map_err(|_| PrivateReplyError::Key)?;
        let key = std::str::from_utf8(key.expose()).map_err(|_| PrivateReplyError::Key)?;
        let key = KeyString::parse(key).map_err(|_| PrivateReplyError::Key)?;
        let signed = Crypticle::new(&key).loads(sealed_pillar);
        let signed = decode(&signed.map_err(|_| PrivateReplyError::Sealed)?)?;
        let (data, signature) = (bytes(&signed, "data"), bytes(&signed, "sig"));
        if !self.master.verify(self.sig_algo, data, signature) {
            return Err(PrivateReplyError::Signature);
        }
        let data = decode(data)?;
        if bytes(&data, "key") != sealed_key || bytes(&data, "nonce") != nonce.as_bytes() {
            return Err(PrivateReplyError::Foreign);
        }
        let pillar = data.get("pillar").cloned();
        pillar.ok_or_else(|| PrivateReplyError::Shape("no pillar".to_owned()))
    }
}

/// The reply's parts, neither of which is empty: all that can be seen without a private operation.
pub(crate) fn sealed_parts(reply: &[u8]) -> Result<Value, PrivateReplyError> {
    let outer = decode(reply)?;
    if bytes(&outer, "key").is_empty() || bytes(&outer, "pillar").is_empty() {
        let words = outer.as_str().unwrap_or("it has no key and pillar");
        return Err(PrivateReplyError::Shape(format!("\"{words}\"")));
    }
    Ok(outer)
}

fn decode(packed: &[u8]) -> Result<Value, PrivateReplyError> {
    decode_wire(packed, &Limits::WIRE).map_err(|error| PrivateReplyError::Shape(error.to_string()))
}

fn bytes<'a>(of: &'a Value, name: &str) -> &'a [u8] {
    of.get(name).and_then(Value::as_bytes).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use saltern_crypto::PrivateKey;
    use saltern_wire::msgpack::{Dialect, encode};

    use super::*;

    const NONCE: &str = "0123456789abcdef0123456789abcdef";

    fn bin(bytes: Vec<u8>) -> Value {
        Value::from(Bytes::from(bytes))
    }

    /// A reply as `_encrypt_private` of a master makes it.
    fn reply(master: &PrivateKey, minion: &PublicKey, nonce: &str, inner_key: &[u8]) -> Vec<u8> {
        let key = KeyString::generate();
        let sealed_key = minion.encrypt(EncAlgo::default(), key.as_str().as_bytes());
        let sealed_key = sealed_key.expect("the key is long enough");
        let named = if inner_key.is_empty() {
            &sealed_key
        } else {
            inner_key
        };
        let data = Value::map([
            ("key", bin(named.to_vec())),
            ("pillar", Value::map([("role", "web")])),
            ("nonce", Value::from(nonce)),
        ]);
        let data = encode(&data, Dialect::Raw);
        let sig = master.sign(SigAlgo::default(), &data).expect("it signs");
        let signed = Value::map([("data", bin(data)), ("sig", bin(sig))]);
        let pillar = Crypticle::new(&key).dumps(&encode(&signed, Dialect::Raw), None);
        let outer = Value::map([("key", bin(sealed_key)), ("pillar", bin(pillar))]);
        encode(&outer, Dialect::Raw)
    }

    #[test]
    fn foreign_or_forged_private_reply_is_refused() {
        let keys = MinionKeys::generate(2048).expect("a key pair");
        let other = MinionKeys::generate(2048).expect("a key pair");
        let master = PrivateKey::generate(2048).expect("a key");
        let mine = keys.private.public();
        let expects = PrivateReply {
            keys: &keys,
            master: master.public(),
            enc_algo: EncAlgo::default(),
            sig_algo: SigAlgo::default(),
        };
        let pillar = expects.open(&reply(&master, mine, NONCE, b""), NONCE);
        assert_eq!(pillar, Ok(Value::map([("role", "web")])));
        let refused = [
            (
                reply(&master, mine, "another", b""),
                PrivateReplyError::Foreign,
            ),
            (
                reply(&master, mine, NONCE, b"x"),
                PrivateReplyError::Foreign,
            ),
            (
                reply(&other.private, mine, NONCE, b""),
                PrivateReplyError::Signature,
            ),
            (
                reply(&master, other.private.public(), NONCE, b""),
                PrivateReplyError::Key,
            ),
            (
                encode(&Value::from("bad load"), Dialect::Raw),
                PrivateReplyError::Shape("\"bad load\"".to_owned()),
            ),
        ];
        for (reply, error) in refused {
            assert_eq!(expects.open(&reply, NONCE), Err(error));
        }
    }
}
