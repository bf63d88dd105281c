//! Packs requests and opens what comes back (protocol.md, sections 2 to 5). No sockets, no files.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use saltern_crypto::{Crypticle, EncAlgo, KeyString, PublicKey, SigAlgo, public_random};
use saltern_wire::msgpack::{Dialect, Encoder, Limits, MapView, Value, decode_wire, encode};

use crate::keys::MinionKeys;

/// The version of the protocol: session keys, and the id in the envelope.
pub const VERSION: i64 = 3;

/// Session of a minion after signing in.
pub struct Session {
    /// Opens publications; the same for every minion of a master.
    pub shared: Crypticle,
    /// Seals requests and opens their replies; this minion's own.
    pub own: Crypticle,
    /// The shared key, to see whether signing in brought a new one.
    pub aes: KeyString,
    /// The publish port that the master names.
    pub publish_port: u16,
    /// The master's public key.
    pub master: Arc<PublicKey>,
    /// The serial of the last publication that was opened with the shared key.
    pub serial: AtomicI64,
    /// Epoch that the master wants in inventories of a syndic (`saltern_syndic_inventory`), from the
    /// signed part of its answer; `None`: it takes none.
    pub inventory_epoch: Option<String>,
    /// That the master takes returns of a syndic in frames (`saltern_syndic_frames`), likewise.
    /// Each sign-in makes one of its own.
    pub frames: Option<Arc<FrameAgreement>>,
    /// That the master takes verdicts of a syndic on silent minions (`saltern_syndic_verdicts`), likewise.
    pub takes_verdicts: bool,
    /// The master and those above it, as it names them (`saltern_syndic_path`), likewise.
    pub path: Vec<String>,
    /// Whether the answer handed over another key of the master, which is the trusted one by now.
    pub has_next_key: bool,
}

/// Terms of a master for the frames in which a syndic sends returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameAgreement {
    /// Epoch that each frame has to bear.
    pub epoch: String,
    /// Largest request that the master takes, in bytes.
    pub bytes: usize,
}

impl Session {
    /// Whether the master is one of ours, by what it has agreed on.
    pub fn is_of_ours(&self) -> bool {
        self.inventory_epoch.is_some() || self.frames.is_some() || !self.path.is_empty()
    }

    /// Whether a publication is newer than all before it; a master may leave the serial out.
    /// A message that is not newer is a replay.
    pub fn is_next(&self, load: &MapView) -> bool {
        let Some(serial) = load.get("serial") else {
            return true;
        };
        serial
            .as_i64()
            .is_some_and(|serial| self.serial.fetch_max(serial, Relaxed) < serial)
    }
}

/// Fields of every request besides its own.
pub struct Sealing<'a> {
    /// The id of the minion.
    pub id: &'a str,
    /// Its keys.
    pub keys: &'a MinionKeys,
    /// The padding of encryption.
    pub enc_algo: EncAlgo,
    /// The algorithm of signatures.
    pub sig_algo: SigAlgo,
    /// Whether the load is signed (`minion_sign_messages`).
    pub sign: bool,
    /// Seconds since 1970.
    pub unix: i64,
}

/// 32 random hexadecimal digits.
pub fn nonce() -> String {
    format!("{:032x}", u128::from_be_bytes(public_random()))
}

/// An encrypted request: `fields` in their order, then nonce, time, proof and id.
pub fn seal(
    session: &Crypticle,
    fields: &[(&str, Value)],
    nonce: &str,
    with: &Sealing<'_>,
) -> Bytes {
    let mut load = Vec::with_capacity(512 + 64 * fields.len());
    let id_is_there = fields.iter().any(|(name, _)| *name == "id");
    let signature = with
        .sign
        .then(|| signature(fields, id_is_there, with))
        .flatten();
    let entries = fields.len() + 3 + usize::from(!id_is_there) + usize::from(signature.is_some());
    let mut encoder = Encoder::new(&mut load, Dialect::Raw);
    encoder.map(entries);
    for (name, value) in fields {
        encoder.str(name).value(value);
    }
    encoder.str("nonce").str(nonce).str("ts").int(with.unix);
    encoder.str("tok").bin(&with.keys.token);
    if !id_is_there {
        encoder.str("id").str(with.id);
    }
    if let Some(signature) = signature {
        encoder.str("sig").bin(&signature);
    }
    let sealed = session.dumps(&load, None);
    let mut envelope = Vec::with_capacity(sealed.len() + 128);
    let mut encoder = Encoder::new(&mut envelope, Dialect::Raw);
    encoder
        .map(6)
        .str("enc")
        .str("aes")
        .str("load")
        .bin(&sealed);
    encoder.str("version").int(VERSION).str("id").str(with.id);
    encoder.str("enc_algo").str(with.enc_algo.wire_name());
    encoder.str("sig_algo").str(with.sig_algo.wire_name());
    Bytes::from(envelope)
}

/// Identifies the subscriber over TCP.
pub fn registration(session: &Session, with: &Sealing<'_>) -> Vec<u8> {
    let mut load = Vec::with_capacity(512);
    Encoder::new(&mut load, Dialect::Raw)
        .map(2)
        .str("id")
        .str(with.id)
        .str("tok")
        .bin(&with.keys.token);
    let sealed = session.shared.dumps(&load, None);
    let mut frame = Vec::with_capacity(sealed.len() + 64);
    let mut encoder = Encoder::new(&mut frame, Dialect::Raw);
    encoder.map(3).str("enc").str("aes");
    encoder.str("load").bin(&sealed);
    encoder.str("version").int(VERSION);
    frame
}

/// The minion's signature: over the load without nonce and proof, packed in the newer dialect,
/// in the order of the load (protocol.md, 5.4).
fn signature(fields: &[(&str, Value)], id_is_there: bool, with: &Sealing<'_>) -> Option<Vec<u8>> {
    let mut signed = Vec::new();
    let mut encoder = Encoder::new(&mut signed, Dialect::Bin);
    encoder.map(fields.len() + 1 + usize::from(!id_is_there));
    for (name, value) in fields {
        encoder.str(name).value(value);
    }
    encoder.str("ts").int(with.unix);
    if !id_is_there {
        encoder.str("id").str(with.id);
    }
    with.keys.private.sign(with.sig_algo, &signed).ok()
}

/// Why a reply is not the answer to the request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// It cannot be decrypted: the master does not know this session any more, or refused the
    /// request with one of its clear error texts.
    #[error("{0}")]
    Unopened(String),
    /// It was decrypted but is not for this request, or is no message.
    #[error("it is not the reply to this request")]
    Foreign,
}

/// Opens the reply to a sealed request.
pub fn open(session: &Crypticle, reply: &[u8], nonce: &str) -> Result<Value, ReplyError> {
    let outer = decode_wire(reply, &Limits::WIRE)
        .map_err(|error| ReplyError::Unopened(error.to_string()))?;
    let Some(sealed) = outer.as_bytes() else {
        return Err(ReplyError::Unopened("it is not encrypted".to_owned()));
    };
    if session.decrypt(sealed).is_err() {
        let clear = outer
            .as_str()
            .map_or_else(|| "wrong key".to_owned(), |s| format!("\"{s}\""));
        return Err(ReplyError::Unopened(clear));
    }
    let plain = session
        .loads_with_nonce(sealed, nonce.as_bytes())
        .map_err(|_| ReplyError::Foreign)?;
    decode_wire(&plain, &Limits::WIRE).map_err(|_| ReplyError::Foreign)
}

/// Why a publication is not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PublicationError {
    /// It is no envelope.
    #[error("it is malformed")]
    Malformed,
    /// Signatures are wanted and it has none.
    #[error("it is not signed")]
    Unsigned,
    /// Its signature is not the master's.
    #[error("its signature is not the master's")]
    BadSignature,
    /// It was encrypted with a key that this minion does not have.
    #[error("it is encrypted with another key")]
    OtherKey,
}

/// Opens a publication; `signed` also wants the master's signature.
pub(crate) fn open_publication(
    session: &Session,
    payload: Bytes,
    signed: bool,
) -> Result<MapView, PublicationError> {
    let malformed = |_| PublicationError::Malformed;
    let envelope = MapView::parse(payload, &Limits::WIRE).map_err(malformed)?;
    if envelope.str("enc") != Some("aes") {
        return Err(PublicationError::Malformed);
    }
    let load = envelope.get("load").and_then(|load| load.as_bytes());
    let load = load.ok_or(PublicationError::Malformed)?;
    if signed {
        let signature = envelope.get("sig").and_then(|sig| sig.as_bytes());
        let algorithm = envelope.str("sig_algo").and_then(SigAlgo::from_wire);
        let (Some(signature), Some(algorithm)) = (signature, algorithm) else {
            return Err(PublicationError::Unsigned);
        };
        if !session.master.verify(algorithm, load, signature) {
            return Err(PublicationError::BadSignature);
        }
    }
    let plain = session
        .shared
        .loads(load)
        .map_err(|_| PublicationError::OtherKey)?;
    MapView::parse(plain, &Limits::WIRE).map_err(malformed)
}

/// A request in clear.
pub fn clear(load: &Value) -> Bytes {
    let mut envelope = Vec::with_capacity(1024);
    let mut encoder = Encoder::new(&mut envelope, Dialect::Raw);
    encoder
        .map(3)
        .str("enc")
        .str("clear")
        .str("load")
        .raw(&encode(load, Dialect::Raw));
    encoder.str("version").int(VERSION);
    Bytes::from(envelope)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        let master = saltern_crypto::PrivateKey::generate(2048).expect("a key");
        let aes = KeyString::generate();
        Session {
            inventory_epoch: None,
            takes_verdicts: false,
            frames: None,
            path: Vec::new(),
            has_next_key: false,
            shared: Crypticle::new(&aes),
            own: Crypticle::new(&aes),
            aes,
            publish_port: 4505,
            master: Arc::new(PublicKey::from_pem(master.public().pem()).expect("a key")),
            serial: AtomicI64::new(0),
        }
    }

    /// Messages in clear were carried out by whoever was sent one, minions and syndics.
    #[test]
    fn cve_2016_1866_publication_in_clear_is_not_opened() {
        let session = session();
        let load = Value::map([("fun", "cmd.run"), ("tgt", "*")]);
        for signed in [true, false] {
            let opened = open_publication(&session, clear(&load), signed);
            assert!(matches!(opened, Err(PublicationError::Malformed)));
        }
        let packed = encode(&load, Dialect::Raw);
        let sealed = Value::map([
            ("enc", Value::from("aes")),
            (
                "load",
                Value::Bin(session.shared.dumps(&packed, None).into()),
            ),
        ]);
        let sealed = Bytes::from(encode(&sealed, Dialect::Raw));
        let opened = open_publication(&session, sealed.clone(), true);
        assert!(matches!(opened, Err(PublicationError::Unsigned)));
        assert!(open_publication(&session, sealed, false).is_ok());
    }

    #[test]
    fn publication_that_is_not_newer_than_all_before_it_is_a_replay() {
        let session = session();
        let is_next = |serial: Value| {
            let load = encode(&Value::map([("serial", serial)]), Dialect::Raw);
            session.is_next(&MapView::parse(load.into(), &Limits::WIRE).expect("a map"))
        };
        assert!(is_next(Value::from(5_i64)));
        assert!(!is_next(Value::from(5_i64)), "a replay");
        assert!(!is_next(Value::from(4_i64)), "a replay of an older one");
        assert!(!is_next(Value::from("6")), "no serial");
        assert!(is_next(Value::from(6_i64)));
    }
}
