//! Authentication (`_auth`): sends the request, and accepts the answer only when everything that a
//! stock minion checks is right (`salt/crypt.py`, `AsyncAuth`; protocol.md, section 3). No sockets.
//!
//! Stricter than stock in one point: a master's key seen for the first time is kept only after
//! all checks, its fingerprint among them, have passed; stock writes it first.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use saltern_crypto::{Crypticle, HashType, KeyString, PublicKey, clean_key, ct_eq};
use saltern_wire::msgpack::{Limits, Value, decode_wire};

use crate::channel::Identity;
use crate::config::MinionConfig;
use crate::envelope::{FrameAgreement, Session, clear, nonce};
use crate::keys::KeyError;

/// Longest epoch for inventories and for frames that is kept, in bytes.
pub const MAX_EPOCH: usize = 64;

/// Most masters of a path, and the longest name of one in bytes.
const MAX_PATH: usize = 16;
const MAX_NAME: usize = 300;

/// Why signing in failed.
#[derive(Debug, thiserror::Error)]
pub enum SignInError {
    /// No answer to any of the tries; why the last one failed.
    #[error("the master did not answer: {0}")]
    NoAnswer(String),
    /// The answer is no answer to `_auth`.
    #[error("the answer is malformed: {0}")]
    Malformed(String),
    /// The master rejected this minion's key.
    #[error(
        "the master has rejected this minion's key; delete the key on the master and start again"
    )]
    Rejected,
    /// The master has as many minions as it may (`max_minions`).
    #[error("the master is full")]
    Full,
    /// The master does not support one of the configured algorithms.
    #[error("the master says \"{0}\"")]
    Algorithm(String),
    /// Another key than the one that was trusted before.
    #[error(
        "the master's key has changed; if that is right, remove \"{file}\" in pki_dir and start \
         again"
    )]
    MasterKeyChanged {
        /// The file with the key that was trusted.
        file: String,
    },
    /// The key has not the configured fingerprint.
    #[error("the master's key has the fingerprint \"{0}\", not the one in \"master_finger\"")]
    Finger(String),
    /// `verify_master_pubkey_sign` and what the master sent do not go together.
    #[error("the master's key is {0}")]
    KeySignature(&'static str),
    /// One of the proofs in the answer is wrong.
    #[error("the {0} in the master's answer is wrong")]
    Proof(&'static str),
    /// The files of the keys.
    #[error(transparent)]
    Keys(#[from] KeyError),
}

impl SignInError {
    /// Whether one side does not trust the other, so that trying again is in vain.
    pub fn is_refusal(&self) -> bool {
        matches!(
            self,
            Self::Rejected
                | Self::Algorithm(_)
                | Self::MasterKeyChanged { .. }
                | Self::Finger(_)
                | Self::KeySignature(_)
                | Self::Proof(_)
        )
    }
}

/// One request to sign in.
pub struct SignInRequest {
    /// The packed request.
    pub payload: Bytes,
    nonce: String,
    token: Option<KeyString>,
    /// The master's key as it was known when the request was made: the answer is to that one, also
    /// where another minion with the same store has got the next key meanwhile.
    known: Option<Arc<PublicKey>>,
}

/// Verdict of the master.
pub enum SignInAnswer {
    /// The key is accepted; the session.
    Accepted(Box<Session>),
    /// The key waits for somebody to accept it.
    Pending,
    /// Rejected, but `rejected_retry` wants to go on asking.
    RejectedForNow,
}

/// Relation of the key in an answer to the key that is trusted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// The same.
    Unchanged,
    /// None is trusted yet.
    FirstContact,
    /// Another one.
    Changed,
}

impl SignInRequest {
    /// Packs a request; with a token when the master's key is known already.
    pub fn new(who: &Identity) -> Result<Self, SignInError> {
        let config = &who.config;
        let nonce = nonce();
        let text = |text: &str| Value::from(text);
        let mut load = vec![
            (text("cmd"), text("_auth")),
            (text("id"), text(who.id.as_str())),
            (text("nonce"), text(&nonce)),
            (
                text("enc_algo"),
                text(config.encryption_algorithm.wire_name()),
            ),
            (text("sig_algo"), text(config.signing_algorithm.wire_name())),
        ];
        let mut token = None;
        let known = who.store.load()?;
        if let Some(master) = &known {
            let secret = KeyString::generate();
            let sealed = master.encrypt(config.encryption_algorithm, secret.as_str().as_bytes());
            if let Ok(sealed) = sealed {
                load.push((text("token"), Value::from(Bytes::from(sealed))));
                token = Some(secret);
            }
        }
        load.push((text("pub"), text(&who.keys.public_pem)));
        Ok(Self {
            payload: clear(&Value::Map(load)),
            nonce,
            token,
            known,
        })
    }

    /// Reads and checks the answer.
    pub fn answer(&self, reply: &[u8], who: &Identity) -> Result<SignInAnswer, SignInError> {
        let config = &who.config;
        let outer = decode(reply)?;
        let load = outer.get("load");
        if let Some(refusal) = load.and_then(|load| load.get("ret")) {
            return Err(match refusal.as_str() {
                Some(text) => SignInError::Algorithm(text.to_owned()),
                None => SignInError::Malformed("its load is not signed".to_owned()),
            });
        }
        let (Some(signed), Some(signature)) = (
            load.and_then(Value::as_bytes),
            outer.get("sig").and_then(Value::as_bytes),
        ) else {
            return Err(SignInError::Malformed(match outer.as_str() {
                Some(text) => format!("\"{text}\""),
                None => "it has no signed load".to_owned(),
            }));
        };
        let inner = decode(signed)?;
        let known = match &self.known {
            Some(known) => Some(Arc::clone(known)),
            None => who.store.load()?,
        };
        let Some(offered) = inner.get("pub_key").and_then(Value::as_str) else {
            // Nothing but a verdict: believed only from a master that is known, or from nobody
            // known yet.
            if let Some(master) = &known {
                check_outer(master, config, signed, signature)?;
            }
            self.check_nonce(&inner)?;
            return verdict(&inner, config);
        };
        let offered = clean_key(offered);
        let is_first_contact = known.is_none();
        let unchanged = known.filter(|known| known.pem() == offered);
        let master = match &unchanged {
            Some(known) => Arc::clone(known),
            None => Arc::new(
                PublicKey::from_pem(&offered)
                    .map_err(|error| SignInError::Malformed(error.to_string()))?,
            ),
        };
        let trust = match (&unchanged, is_first_contact) {
            (Some(_), _) => Trust::Unchanged,
            (None, true) => Trust::FirstContact,
            (None, false) => Trust::Changed,
        };
        let aes = self.verify_master(&inner, &master, trust, who)?;
        let session = open_key(&inner, "session", who)?;
        check_outer(&master, config, signed, signature)?;
        self.check_nonce(&inner)?;
        check_finger(&master, config)?;
        let port = inner.get("publish_port").and_then(Value::as_u64);
        let publish_port = port.and_then(|port| u16::try_from(port).ok());
        let publish_port =
            publish_port.ok_or_else(|| SignInError::Malformed("no publish port".to_owned()))?;
        let next_key = next_key(&inner, config).filter(|_| unchanged.is_some());
        if let Some(next_key) = &next_key {
            who.store.store(next_key)?;
        } else if unchanged.is_none() {
            who.store.store(&master)?;
        }
        Ok(SignInAnswer::Accepted(Box::new(Session {
            shared: Crypticle::new(&aes),
            own: Crypticle::new(&session),
            aes,
            publish_port,
            master,
            serial: AtomicI64::new(0),
            inventory_epoch: epoch(inner.get("saltern_syndic_inventory")),
            frames: inner
                .get("saltern_syndic_frames")
                .and_then(frames)
                .map(Arc::new),
            takes_verdicts: inner.get("saltern_syndic_verdicts") == Some(&Value::Bool(true)),
            path: path(inner.get("saltern_syndic_path")),
            has_next_key: next_key.is_some(),
        })))
    }

    /// Decides whether the offered key is the master's, and takes the shared key out of the
    /// answer with every proof that comes with it.
    fn verify_master(
        &self,
        inner: &Value,
        master: &PublicKey,
        trust: Trust,
        who: &Identity,
    ) -> Result<KeyString, SignInError> {
        let config = &who.config;
        let unchanged = trust == Trust::Unchanged;
        let key_signature = inner.get("pub_sig").and_then(Value::as_str);
        match (key_signature.is_some(), config.verify_master_pubkey_sign) {
            (true, false) => {
                return Err(SignInError::KeySignature(
                    "signed, but \"verify_master_pubkey_sign\" is off",
                ));
            }
            (false, true) => return Err(SignInError::KeySignature("not signed")),
            _ => {}
        }
        if trust == Trust::Changed && !config.verify_master_pubkey_sign {
            return Err(SignInError::MasterKeyChanged {
                file: who.store.file_name().to_owned(),
            });
        }
        if let Some(signature) = key_signature
            && (!unchanged || config.always_verify_signature)
        {
            check_key_signature(inner, signature, who)?;
        }
        let aes = open_key(inner, "aes", who)?;
        let digest = inner.get("sig").and_then(Value::as_bytes);
        let digest = digest.and_then(|sig| master.x931_recover(sig).ok());
        if !digest.is_some_and(|digest| ct_eq(&digest, aes.digest_hex().as_bytes())) {
            return Err(SignInError::Proof("signature of the key"));
        }
        if let Some(token) = self.token.as_ref().filter(|_| unchanged) {
            let sealed = inner.get("token").and_then(Value::as_bytes);
            let opened = sealed.and_then(|sealed| {
                who.keys
                    .private
                    .decrypt(config.encryption_algorithm, sealed)
                    .ok()
            });
            if !opened.is_some_and(|opened| ct_eq(opened.expose(), token.as_str().as_bytes())) {
                return Err(SignInError::Proof("token"));
            }
        }
        Ok(aes)
    }

    fn check_nonce(&self, inner: &Value) -> Result<(), SignInError> {
        if inner.get("nonce").and_then(Value::as_str) == Some(self.nonce.as_str()) {
            Ok(())
        } else {
            Err(SignInError::Proof("nonce"))
        }
    }

    /// Checks signature and nonce only, with the master's key known: what a load generator
    /// does when it wants to measure the master and not itself. Returns whether a key came along.
    pub fn is_answered_by(
        &self,
        master: &PublicKey,
        config: &MinionConfig,
        reply: &[u8],
    ) -> Result<bool, SignInError> {
        let outer = decode(reply)?;
        let signed = outer
            .get("load")
            .and_then(Value::as_bytes)
            .unwrap_or_default();
        let signature = outer
            .get("sig")
            .and_then(Value::as_bytes)
            .unwrap_or_default();
        check_outer(master, config, signed, signature)?;
        let inner = decode(signed)?;
        self.check_nonce(&inner)?;
        Ok(inner.get("aes").is_some())
    }
}

fn decode(packed: &[u8]) -> Result<Value, SignInError> {
    decode_wire(packed, &Limits::WIRE).map_err(|error| SignInError::Malformed(error.to_string()))
}

fn verdict(inner: &Value, config: &MinionConfig) -> Result<SignInAnswer, SignInError> {
    match inner.get("ret") {
        Some(Value::Bool(true)) => Ok(SignInAnswer::Pending),
        Some(Value::Bool(false)) if config.rejected_retry => Ok(SignInAnswer::RejectedForNow),
        Some(Value::Bool(false)) => Err(SignInError::Rejected),
        Some(ret) if ret.as_str() == Some("full") => Err(SignInError::Full),
        _ => Err(SignInError::Malformed("it says nothing".to_owned())),
    }
}

fn check_outer(
    master: &PublicKey,
    config: &MinionConfig,
    signed: &[u8],
    signature: &[u8],
) -> Result<(), SignInError> {
    if master.verify(config.signing_algorithm, signed, signature) {
        Ok(())
    } else {
        Err(SignInError::Proof("signature"))
    }
}

/// One of the keys in the answer, decrypted.
fn open_key(inner: &Value, name: &'static str, who: &Identity) -> Result<KeyString, SignInError> {
    let sealed = inner
        .get(name)
        .and_then(Value::as_bytes)
        .ok_or(SignInError::Proof(name))?;
    let opened = who
        .keys
        .private
        .decrypt(who.config.encryption_algorithm, sealed);
    let opened = opened.map_err(|_| SignInError::Proof(name))?;
    let text = std::str::from_utf8(opened.expose()).map_err(|_| SignInError::Proof(name))?;
    KeyString::parse(text).map_err(|_| SignInError::Proof(name))
}

/// The key that the master changes to, in an answer under the trusted one, whose signature over the
/// whole answer is the proof. A minion to which the trusted one is pinned takes none, nor does one that
/// takes any key which the signing key vouches for.
fn next_key(inner: &Value, config: &MinionConfig) -> Option<Arc<PublicKey>> {
    if !config.master_finger.is_empty() || config.verify_master_pubkey_sign {
        return None;
    }
    let offered = inner.get("saltern_next_key").and_then(Value::as_str)?;
    PublicKey::from_pem(clean_key(offered)).ok().map(Arc::new)
}

fn check_key_signature(inner: &Value, signature: &str, who: &Identity) -> Result<(), SignInError> {
    // Python's encoder breaks the line at its end; its decoder skips what is not base64.
    let text: String = signature
        .chars()
        .filter(|c| !c.is_ascii_whitespace())
        .collect();
    let bytes = BASE64
        .decode(text)
        .map_err(|_| SignInError::Proof("signature of its key"))?;
    let key = who
        .store
        .load_signing(&who.config.master_sign_key_name)?
        .ok_or(SignInError::KeySignature(
            "signed, but the verification key is not in pki_dir",
        ))?;
    let signed = inner
        .get("pub_key")
        .and_then(Value::as_bytes)
        .unwrap_or_default();
    if key.verify(who.config.signing_algorithm, signed, &bytes) {
        Ok(())
    } else {
        Err(SignInError::Proof("signature of its key"))
    }
}

fn check_finger(master: &PublicKey, config: &MinionConfig) -> Result<(), SignInError> {
    if config.master_finger.is_empty() {
        return Ok(());
    }
    let hash = HashType::from_name(&config.hash_type)
        .ok_or_else(|| SignInError::Malformed(format!("no hash \"{}\"", config.hash_type)))?;
    let finger = master
        .fingerprint(hash)
        .map_err(|error| SignInError::Malformed(error.to_string()))?;
    if finger == config.master_finger {
        Ok(())
    } else {
        Err(SignInError::Finger(finger))
    }
}

/// An epoch in the signed part of an answer.
fn epoch(value: Option<&Value>) -> Option<String> {
    let epoch = value.and_then(Value::as_str);
    epoch.filter(|it| it.len() <= MAX_EPOCH).map(str::to_owned)
}

/// The masters above, likewise; names beyond the bounds are left out.
fn path(value: Option<&Value>) -> Vec<String> {
    let names = value.and_then(Value::as_array).unwrap_or_default();
    let names = names.iter().take(MAX_PATH).filter_map(Value::as_str);
    let names = names.filter(|name| name.len() <= MAX_NAME);
    names.map(str::to_owned).collect()
}

/// The agreement on frames, likewise.
fn frames(agreed: &Value) -> Option<FrameAgreement> {
    let bytes = agreed.get("bytes").and_then(Value::as_u64)?;
    Some(FrameAgreement {
        epoch: epoch(agreed.get("epoch"))?,
        bytes: usize::try_from(bytes).ok()?,
    })
}

#[cfg(test)]
mod tests;
