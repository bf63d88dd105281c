//! Envelope checks: whether a request is well-formed, who sent it, and whether it is authentic.
//!
//! The checks and their order are those of stock's `handle_message` (`salt/channel/server.py`),
//! with one deliberate difference: an `enc` other than `clear` and `aes` is refused, where 3007 and
//! 3008 run it unauthenticated.

use std::sync::Arc;

use bytes::Bytes;
use saltern_crypto::{Crypticle, EncAlgo, NONCE_LEN, SigAlgo};
use saltern_model::MinionId;
use saltern_store::{AcceptedKey, Freshness, Session, SharedKey};
use saltern_wire::msgpack::{Dialect, Encoder, Kind, Limits, MapView, RawValue};

use crate::commands::{ClearCommand, MinionCommand, Repeated};
use crate::{Services, reply};

/// Limits on a decrypted or clear load. Its size is bounded by the listener already.
pub(crate) const LOAD_LIMITS: Limits = Limits::WIRE;

/// Limits on the load of a clear command that carries no arguments of a function: any peer may send
/// one. The largest legitimate one is an `_auth` with a public key and `autosign_grains`.
const SMALL_LIMITS: Limits = Limits {
    depth: 16,
    bytes: 64 << 10,
    items: 1_000,
};

/// The most bytes of an unauthenticated peer's value that an answer quotes.
const MAX_QUOTED: usize = 200;

/// A request that has passed every check of its envelope.
pub(crate) enum Opened {
    /// Not encrypted and not authenticated.
    Clear {
        /// The load.
        load: MapView,
        /// The protocol version of its sender.
        version: i64,
    },
    /// Encrypted with a key that only an authenticated minion has.
    Minion(Sealed),
}

/// Request of an authenticated minion.
pub(crate) struct Sealed {
    /// The sender, as the channel knows it; ids in the load are unproved text.
    pub minion: MinionId,
    /// The command; `None` where the load names none that is known.
    pub command: Option<&'static MinionCommand>,
    /// The load, without `tok` and `nonce`.
    pub load: MapView,
    /// The encryption of the answer.
    pub answer: ReplyEncryption,
    /// The sender's accepted key.
    pub key: Arc<AcceptedKey>,
    /// `enc_algo` and `sig_algo` of the envelope.
    pub enc_algo: Option<EncAlgo>,
    /// From the envelope, like `enc_algo`.
    pub sig_algo: Option<SigAlgo>,
    /// The minion has sent a newer one of its kind since: it is answered, and its data is not
    /// stored.
    pub is_superseded: bool,
}

impl Sealed {
    /// The command's name, for logs.
    pub(crate) fn command_name(&self) -> &'static str {
        self.command.map_or("-", |command| command.name)
    }
}

/// Encryption of the answer to an encrypted request.
#[derive(Clone)]
pub(crate) struct ReplyEncryption {
    key: AnswerKey,
    /// Prefixed to the answer; `None` for the oldest protocol.
    pub nonce: Option<Bytes>,
    /// The protocol version of the sender.
    pub version: i64,
}

#[derive(Clone)]
enum AnswerKey {
    Session(Arc<Session>),
    Shared(Arc<SharedKey>),
    /// The shared key before the current one.
    Former(Arc<SharedKey>),
}

impl ReplyEncryption {
    /// Encrypts one packed value, and packs the ciphertext as bytes: the whole reply.
    pub(crate) fn seal(&self, packed: &[u8]) -> Bytes {
        let ciphertext = self.key.crypticle().dumps(packed, self.nonce.as_deref());
        let mut reply = Vec::with_capacity(ciphertext.len() + 5);
        Encoder::new(&mut reply, Dialect::Raw).bin(&ciphertext);
        reply.into()
    }

    /// While the master's key is rotated: whether the minion has authenticated under the one that
    /// was made. Before version 3 of the protocol nothing shows it.
    pub(crate) fn is_under_made_key(&self) -> bool {
        matches!(&self.key, AnswerKey::Session(session) if session.is_under_made_key)
    }
}

impl AnswerKey {
    fn crypticle(&self) -> &Crypticle {
        match self {
            Self::Session(session) => &session.crypticle,
            Self::Shared(shared) | Self::Former(shared) => &shared.crypticle,
        }
    }
}

/// Request that failed a check: its answer and the reason to count.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// The bytes of the answer.
    pub reply: Bytes,
    /// The reason, from a closed set.
    pub reason: &'static str,
}

impl Refusal {
    pub(crate) fn bad_load(reason: &'static str) -> Self {
        Self {
            reply: reply::bad_load(),
            reason,
        }
    }

    pub(crate) fn no_answer(reason: &'static str) -> Self {
        Self {
            reply: reply::no_answer(),
            reason,
        }
    }
}

/// Opens a request.
pub(crate) fn open(payload: Bytes, services: &Services) -> Result<Opened, Refusal> {
    let envelope = parse(payload, services)?;
    let version = version_of(&envelope)?;
    let oldest = i64::from(services.config.minimum_auth_version);
    if oldest > 0 && version < oldest {
        return Err(Refusal::bad_load("version"));
    }
    let load = envelope
        .get("load")
        .ok_or_else(|| Refusal::bad_load("no_load"))?;
    match envelope.str("enc") {
        Some("clear") => {
            let load = check_size(load)?;
            check_id_text(&load)?;
            Ok(Opened::Clear { load, version })
        }
        Some("aes") => open_sealed(&envelope, load, version, services).map(Opened::Minion),
        _ => Err(Refusal::bad_load("enc")),
    }
}

fn parse(payload: Bytes, services: &Services) -> Result<MapView, Refusal> {
    use saltern_wire::msgpack::DecodeError;
    match MapView::parse(payload, &LOAD_LIMITS) {
        Ok(envelope) if envelope.contains("enc") && envelope.contains("load") => Ok(envelope),
        Ok(_) => Err(Refusal::bad_load("no_load")),
        Err(DecodeError::NotAMap) => Err(Refusal::bad_load("not_a_map")),
        Err(_) => Err(Refusal {
            reply: reply::not_msgpack(services.config.salt_compat),
            reason: "not_msgpack",
        }),
    }
}

/// Python's `int(version)`: a text that is no number counts as 0, other kinds are an error that
/// stock does not catch.
fn version_of(envelope: &MapView) -> Result<i64, Refusal> {
    let Some(version) = envelope.get("version") else {
        return Ok(0);
    };
    if let Some(number) = version.as_i64() {
        return Ok(number);
    }
    if let Some(flag) = version.as_bool() {
        return Ok(i64::from(flag));
    }
    if let Some(number) = version.as_f64() {
        return Ok(number as i64);
    }
    match version.as_bytes() {
        Some(text) => Ok(std::str::from_utf8(text)
            .ok()
            .and_then(|t| t.trim().parse().ok())
            .unwrap_or(0)),
        None => Err(Refusal::no_answer("version")),
    }
}

fn as_load(load: &RawValue) -> Result<MapView, Refusal> {
    load.as_map().ok_or_else(|| Refusal {
        reply: reply::text("payload and load must be a dict"),
        reason: "load_not_a_map",
    })
}

/// Refuses a large load of a command that needs none, before anything of it is decoded.
fn check_size(load: &RawValue) -> Result<MapView, Refusal> {
    let map = as_load(load)?;
    let command = || map.str("cmd").and_then(ClearCommand::named);
    let is_large_command = || command().is_some_and(ClearCommand::takes_large_loads);
    if is_large_command() || RawValue::parse(load.bytes().clone(), &SMALL_LIMITS).is_ok() {
        return Ok(map);
    }
    Err(Refusal::bad_load("load_too_large"))
}

/// Decides by kind and length; quotes only short values.
fn check_id_text(load: &MapView) -> Result<(), Refusal> {
    let Some(id) = load.get("id") else {
        return Ok(());
    };
    match id.as_str() {
        Some(text) if text.contains('\0') => Err(Refusal {
            reply: reply::text("bad load: id contains a null byte"),
            reason: "id",
        }),
        Some(_) => Ok(()),
        None => {
            let shown = quoted(id);
            Err(Refusal {
                reply: reply::text(&format!("bad load: id {shown} is not a string")),
                reason: "id",
            })
        }
    }
}

/// A peer's value as Python prints it, where that takes at most [`MAX_QUOTED`] bytes; else its
/// size. The value is decoded only when it is short.
fn quoted(value: &RawValue) -> String {
    let bytes = value.bytes().len();
    let shown = (bytes <= MAX_QUOTED).then(|| saltern_python::repr(value.decode()));
    shown
        .filter(|shown| shown.len() <= MAX_QUOTED)
        .unwrap_or_else(|| format!("of {bytes} bytes"))
}

fn open_sealed(
    envelope: &MapView,
    ciphertext: &RawValue,
    version: i64,
    services: &Services,
) -> Result<Sealed, Refusal> {
    let ciphertext = match ciphertext.kind() {
        Kind::Str | Kind::Bin => ciphertext.as_bytes().unwrap_or_default(),
        _ => return Err(Refusal::bad_load("ciphertext")),
    };
    let (key, envelope_id) = answer_key(envelope, version, services)?;
    let (key, plain) = decrypt(key, ciphertext, services)?;
    let mut load = match MapView::parse(plain, &LOAD_LIMITS) {
        Ok(load) => load,
        Err(saltern_wire::msgpack::DecodeError::NotAMap) => {
            return Err(Refusal {
                reply: reply::text("payload and load must be a dict"),
                reason: "load_not_a_map",
            });
        }
        Err(_) => return Err(Refusal::bad_load("load")),
    };
    check_id_text(&load)?;
    let nonce = take_nonce(&mut load, version)?;
    let (minion, key_on_disk) = match envelope_id {
        Some(id) => check_identity(&mut load, id, services)?,
        None => check_legacy_identity(&mut load, &key, services)?,
    };
    let command = load.str("cmd").and_then(MinionCommand::named);
    let repeated = command.map_or(Repeated::Refused, |command| command.repeated);
    let is_superseded = match &key {
        AnswerKey::Session(session) => is_superseded(
            &minion,
            session,
            (repeated, &load),
            nonce.as_deref(),
            services,
        )?,
        _ => false,
    };
    Ok(Sealed {
        command,
        minion,
        load,
        answer: ReplyEncryption {
            key,
            nonce,
            version,
        },
        key: key_on_disk,
        enc_algo: allowed(
            algorithm(envelope, "enc_algo", EncAlgo::OaepSha1, EncAlgo::from_wire),
            EncAlgo::is_fips,
            services,
        ),
        sig_algo: allowed(
            algorithm(
                envelope,
                "sig_algo",
                SigAlgo::Pkcs1v15Sha1,
                SigAlgo::from_wire,
            ),
            SigAlgo::is_fips,
            services,
        ),
        is_superseded,
    })
}

/// The minion named in `{"id", "tok"}`, encrypted with the shared key, with the key that proves it.
pub(crate) fn registration(
    ciphertext: &RawValue,
    services: &Services,
) -> Result<MinionId, Refusal> {
    let ciphertext = ciphertext
        .as_bytes()
        .ok_or_else(|| Refusal::bad_load("ciphertext"))?;
    let key = AnswerKey::Shared(services.keys.shared.current());
    let (_, plain) = decrypt(key, ciphertext, services)?;
    let load = MapView::parse(plain, &LOAD_LIMITS).map_err(|_| Refusal::bad_load("load"))?;
    let id = load.str("id").ok_or_else(|| Refusal::bad_load("no_id"))?;
    let id = MinionId::parse(id).map_err(|_| Refusal::bad_load("id"))?;
    let token = load
        .get("tok")
        .ok_or_else(|| Refusal::bad_load("no_token"))?;
    valid_token(&id, token, services)?;
    Ok(id)
}

/// The algorithm, unless it is one that `fips_mode` does not allow: that one is unknown, as to a
/// stock master whose OpenSSL is in FIPS mode (`_enforce_fips` in `crypt.py`).
pub(crate) fn allowed<A: Copy>(
    algorithm: Option<A>,
    is_fips: fn(A) -> bool,
    services: &Services,
) -> Option<A> {
    algorithm.filter(|algorithm| !services.config.fips_mode || is_fips(*algorithm))
}

/// The algorithm named under `key`; the default if none is named; `None` if it is unknown.
pub(crate) fn algorithm<A>(
    map: &MapView,
    key: &str,
    default: A,
    from_wire: fn(&str) -> Option<A>,
) -> Option<A> {
    match map.get(key) {
        None => Some(default),
        Some(name) => name.as_str().and_then(from_wire),
    }
}

/// The key that the request is encrypted with: the session key of the minion that the envelope
/// names, or, before version 3 of the protocol, the shared key.
fn answer_key(
    envelope: &MapView,
    version: i64,
    services: &Services,
) -> Result<(AnswerKey, Option<MinionId>), Refusal> {
    if version < 3 {
        return Ok((AnswerKey::Shared(services.keys.shared.current()), None));
    }
    let id = envelope
        .str("id")
        .ok_or_else(|| Refusal::bad_load("no_id"))?;
    let id = MinionId::parse(id).map_err(|_| Refusal::bad_load("id"))?;
    match services.minions.sessions.get(&id) {
        Ok(Some(session)) => Ok((AnswerKey::Session(session), Some(id))),
        Ok(None) => Err(Refusal::bad_load("no_session")),
        Err(error) => {
            tracing::error!(minion = %id, %error, "session key cannot be read");
            Err(Refusal::bad_load("no_session"))
        }
    }
}

/// Decrypts the load, and returns the key that fitted: after a rotation a minion that uses the
/// shared key stays with the previous one until it learns of the new one. While the master's own key
/// is rotated, a minion has one session under each of its keys.
fn decrypt(
    key: AnswerKey,
    ciphertext: &[u8],
    services: &Services,
) -> Result<(AnswerKey, Bytes), Refusal> {
    let refused = |_| Refusal::bad_load("decrypt");
    match (key.crypticle().loads(ciphertext), &key) {
        (Ok(plain), _) => Ok((key, plain)),
        (Err(_), AnswerKey::Shared(_)) if let Some(previous) = services.keys.shared.previous() => {
            let plain = previous.crypticle.loads(ciphertext).map_err(refused)?;
            Ok((AnswerKey::Former(previous), plain))
        }
        (Err(_), AnswerKey::Session(session)) if let Some(keys) = services.both_master_keys() => {
            let made = keys.made().public_pem;
            let session = services.minions.sessions.under_made_key(session, made);
            let plain = session.crypticle.loads(ciphertext).map_err(refused)?;
            Ok((AnswerKey::Session(session), plain))
        }
        (Err(error), _) => Err(refused(error)),
    }
}

/// Whether it is a nonce as every stock client makes one (`uuid.uuid4().hex`): 32 hexadecimal digits.
///
/// Nonces are signed, and go in front of the sealed answer. A sender who could choose other bytes
/// would have the master sign a text of the sender's choice: with the shared key one that minions
/// take for a publication, whose last 32 bytes are an HMAC.
pub(crate) fn is_nonce(bytes: &[u8]) -> bool {
    bytes.len() == NONCE_LEN && bytes.iter().all(u8::is_ascii_hexdigit)
}

/// Takes the nonce that the answer must carry. One of another form would make stock fail later, in
/// a way that its caller does not see.
fn take_nonce(load: &mut MapView, version: i64) -> Result<Option<Bytes>, Refusal> {
    if version < 2 {
        return Ok(None);
    }
    let Some(nonce) = load.remove("nonce") else {
        return Ok(None);
    };
    match nonce.as_shared_bytes() {
        Some(bytes) if is_nonce(&bytes) => Ok(Some(bytes)),
        Some(bytes) if bytes.is_empty() => Ok(None),
        None if nonce.is_nil() => Ok(None),
        _ => Err(Refusal::no_answer("nonce")),
    }
}

/// Whether a copy of the request is answered.
fn is_repeatable(repeated: Repeated, load: &MapView) -> bool {
    match repeated {
        Repeated::Refused => false,
        Repeated::AnsweredByJid => load.str("jid").is_some_and(|jid| jid != "req"),
        Repeated::Answered | Repeated::AnsweredWhileNewest => true,
    }
}

/// Refuses a replayed request. The answer makes a legitimate minion, whose clock was set back,
/// authenticate and seal its request anew. `true`: to be answered, but its data is old.
fn is_superseded(
    minion: &MinionId,
    session: &Session,
    (repeated, load): (Repeated, &MapView),
    nonce: Option<&[u8]>,
    services: &Services,
) -> Result<bool, Refusal> {
    let now = services.clock.unix();
    let ts = load.get("ts").and_then(RawValue::as_f64);
    let ts = ts.filter(|ts| ts.is_finite()).map(|ts| ts as i64);
    let freshness = match repeated {
        Repeated::AnsweredWhileNewest => session.replay.admit_latest(nonce, ts, now),
        _ => {
            let nonce = nonce.filter(|_| !is_repeatable(repeated, load));
            session.replay.admit(nonce, ts, now)
        }
    };
    match freshness {
        Freshness::Fresh => {
            if let Some(ts) = ts {
                services.minions.sessions.clocks.note(minion, ts, now);
            }
            Ok(false)
        }
        Freshness::Superseded => Ok(true),
        Freshness::Repeated => {
            complain!(services, %minion, "request refused: it was carried out before");
            Err(Refusal::bad_load("replayed"))
        }
        Freshness::Stale => Err(Refusal::bad_load("stale")),
    }
}

type Identity = (MinionId, Arc<AcceptedKey>);

/// Version 3: the session key belongs to `id`; the load must name the same minion and carry a
/// token that the accepted key of this minion made.
fn check_identity(
    load: &mut MapView,
    id: MinionId,
    services: &Services,
) -> Result<Identity, Refusal> {
    if let Some(oldest) = services.config.request_server_ttl {
        let sent = load.get("ts").and_then(RawValue::as_f64);
        let now = services.clock.unix_micros() as f64 / 1e6;
        let is_late = |sent: f64| sent.is_nan() || now - sent > oldest.as_secs_f64();
        if sent.is_none_or(is_late) {
            return Err(Refusal::bad_load("ttl"));
        }
    }
    if load.str("id") != Some(id.as_str()) {
        return Err(Refusal::bad_load("id_mismatch"));
    }
    let token = load
        .remove("tok")
        .ok_or_else(|| Refusal::bad_load("no_token"))?;
    let key = valid_token(&id, &token, services)?;
    Ok((id, key))
}

/// Before version 3: any holder of the shared key may claim to be any accepted minion; a token is
/// checked if there is one. Under the previous key a token is required: that key is usually held by
/// a minion that was shut out.
fn check_legacy_identity(
    load: &mut MapView,
    key: &AnswerKey,
    services: &Services,
) -> Result<Identity, Refusal> {
    let id = load.str("id").ok_or_else(|| Refusal::bad_load("no_id"))?;
    let id = MinionId::parse(id).map_err(|_| Refusal::bad_load("id"))?;
    let accepted = match (load.remove("tok"), key) {
        (Some(token), _) => valid_token(&id, &token, services)?,
        (None, AnswerKey::Former(_)) => return Err(Refusal::bad_load("no_token")),
        (None, _) => accepted_key(&id, services)?.ok_or_else(|| Refusal::bad_load("no_key"))?,
    };
    Ok((id, accepted))
}

fn valid_token(
    id: &MinionId,
    token: &RawValue,
    services: &Services,
) -> Result<Arc<AcceptedKey>, Refusal> {
    let key = accepted_key(id, services)?.ok_or_else(|| Refusal::bad_load("no_key"))?;
    let token = token.as_bytes().ok_or_else(|| Refusal::bad_load("token"))?;
    if key.token_valid(token) {
        Ok(key)
    } else {
        Err(Refusal::bad_load("token"))
    }
}

fn accepted_key(id: &MinionId, services: &Services) -> Result<Option<Arc<AcceptedKey>>, Refusal> {
    services.keys.pki.accepted_key(id).map_err(|error| {
        tracing::error!(minion = %id, %error, "accepted key cannot be read");
        Refusal::bad_load("no_key")
    })
}
