//! `_auth`, clear: a minion presents its public key and, if that is accepted, receives the keys to
//! communicate with (`_auth` in `salt/channel/server.py` of 3006 and 3007, in `salt/master.py` of
//! 3008).
//!
//! Costs two private RSA operations: decrypting the minion's token and signing the answer. Values
//! that are constant for a key (the signatures of the AES key and of the public key) are not
//! computed here.

use bytes::Bytes;
use saltern_crypto::{EncAlgo, PublicKey, SigAlgo, clean_key};
use saltern_model::{Compat, KeyState, MinionId, Tag};
use saltern_policy::key_gate::{Decision, Situation, decide};
use saltern_store::{BothKeys, MasterKey, StoreError};
use saltern_wire::msgpack::{Bin, Dialect, MapView, Value, lenient, pack};
use serde::{Deserialize, Deserializer, Serialize};

use crate::commands::ClearRequest;
use crate::envelope::{allowed, is_nonce};
use crate::handle::Class;
use crate::key_admission::Admission;
use crate::known_key::{KeyLookupError, known_key};
use crate::origin::Origin;
use crate::syndic_frames::FrameAgreement;
use crate::{Outcome, Services, event_data, events, python_text, reply};

/// Answer without keys.
enum Negative {
    /// `ret: False`: the minion gives up.
    Refused,
    /// `ret: True`: the key is pending, the minion retries.
    Pending,
    /// The master cannot decide now, for a reason of its own. Sent as [`Negative::Pending`]: a stock
    /// minion takes `ret: False` for "rejected" and ends.
    Unable,
    /// `ret: "full"`.
    Full,
}

/// Results of authentications that are answered without keys for their algorithms' sake.
const BAD_ENC_ALGO: &str = "bad_enc_algo";
const BAD_SIG_ALGO: &str = "bad_sig_algo";

/// The longest public key that is considered, in bytes; one of 16,384 bits has 2,800. Keys of
/// unknown peers are kept on disk, and stock has no bound: anyone could fill the disk.
const MAX_KEY_LENGTH: usize = 4096;

/// The load of a request. A field of another type counts as missing.
#[derive(Deserialize)]
struct Load<'a> {
    /// The minion's id.
    #[serde(borrow, default, deserialize_with = "lenient")]
    id: Option<&'a str>,
    /// Its public key, PEM.
    #[serde(borrow, default, deserialize_with = "lenient", rename = "pub")]
    key: Option<&'a str>,
    /// To be repeated in the answer, since version 2 of the protocol.
    #[serde(borrow, default, deserialize_with = "lenient")]
    nonce: Option<&'a [u8]>,
    /// A random text for the master to decrypt, since its key is not trusted yet.
    #[serde(borrow, default, deserialize_with = "lenient")]
    token: Option<&'a [u8]>,
    /// How keys and token are encrypted, and how answers are signed: since 3007. The inner `None` is
    /// no name at all.
    #[serde(borrow, default, deserialize_with = "algorithm_name")]
    enc_algo: Option<Option<&'a str>>,
    #[serde(borrow, default, deserialize_with = "algorithm_name")]
    sig_algo: Option<Option<&'a str>>,
    /// Grains by which the key may be accepted.
    #[serde(default)]
    autosign_grains: Value,
}

fn algorithm_name<'de, D>(input: D) -> Result<Option<Option<&'de str>>, D::Error>
where
    D: Deserializer<'de>,
{
    lenient(input).map(Some)
}

/// The algorithm of a name; the first one that there was where none is given.
fn algorithm<A>(
    name: Option<Option<&str>>,
    default: A,
    from_wire: fn(&str) -> Option<A>,
) -> Option<A> {
    name.map_or(Some(default), |name| name.and_then(from_wire))
}

impl Load<'_> {
    /// How secrets are encrypted for the minion; `None` is unknown, or not allowed.
    fn encryption(&self, services: &Services) -> Option<EncAlgo> {
        allowed(self.named_encryption(), EncAlgo::is_fips, services)
    }

    /// How answers are signed, likewise.
    fn signing(&self, services: &Services) -> Option<SigAlgo> {
        allowed(self.named_signing(), SigAlgo::is_fips, services)
    }

    fn named_encryption(&self) -> Option<EncAlgo> {
        algorithm(self.enc_algo, EncAlgo::OaepSha1, EncAlgo::from_wire)
    }

    fn named_signing(&self) -> Option<SigAlgo> {
        algorithm(self.sig_algo, SigAlgo::Pkcs1v15Sha1, SigAlgo::from_wire)
    }

    /// Whether it names an algorithm with SHA-1, or none at all, which is the same.
    fn uses_sha1(&self) -> bool {
        let is_sha1 = self.named_encryption().is_some_and(|one| !one.is_fips());
        is_sha1 || self.named_signing().is_some_and(|one| !one.is_fips())
    }
}

/// The answer with the keys to communicate with.
#[derive(Serialize)]
struct Keys<'a> {
    /// `pub`.
    enc: &'static str,
    /// The master's public key.
    pub_key: &'a str,
    publish_port: u16,
    /// The signature of that key by the master's signing key (`master_sign_pubkey`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub_sig: Option<&'a str>,
    /// The minion's token, encrypted for the minion.
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<Bin<'a>>,
    /// The shared key, encrypted for the minion.
    aes: Bin<'a>,
    /// The minion's session key, likewise.
    session: Bin<'a>,
    /// The signature of the shared key.
    sig: Bin<'a>,
    /// Since version 2 of the protocol.
    #[serde(skip_serializing_if = "Option::is_none")]
    nonce: Option<Bin<'a>>,
    /// That this master takes inventories (`saltern_syndic_inventory`), and the epoch that they have
    /// to bear. Other peers than our own syndics do not look at it. It is signed with the nonce of
    /// the request, so nobody on the way can add it or take it away.
    #[serde(skip_serializing_if = "Option::is_none")]
    saltern_syndic_inventory: Option<&'a str>,
    /// That this master takes returns in frames (`saltern_syndic_frames`), likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    saltern_syndic_frames: Option<FrameAgreement<'a>>,
    /// That this master takes verdicts of syndics (`saltern_syndic_verdicts`), likewise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    saltern_syndic_verdicts: bool,
    /// This master and those above it (`syndic_path`), likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    saltern_syndic_path: Option<Vec<String>>,
    /// While the master's key is rotated, in answers under the previous key: the new one, which is
    /// signed by the previous one thereby. Our own minions and syndics keep it; stock's do not look.
    #[serde(skip_serializing_if = "Option::is_none")]
    saltern_next_key: Option<&'a str>,
}

/// The answer without keys.
#[derive(Serialize)]
struct NoKeys<'a> {
    /// Whether to retry; or `full`, or why not.
    ret: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    nonce: Option<Bin<'a>>,
}

/// A signed answer.
#[derive(Serialize)]
struct Signed<'a> {
    /// `clear`.
    enc: &'static str,
    load: Bin<'a>,
    sig: Bin<'a>,
}

/// An answer that is not signed.
#[derive(Serialize)]
struct Unsigned<'a> {
    /// `clear`.
    enc: &'static str,
    load: NoKeys<'a>,
}

impl Unsigned<'_> {
    fn reply(ret: Value) -> Bytes {
        let load = NoKeys { ret, nonce: None };
        reply::clear(&Self { enc: "clear", load })
    }
}

/// Inputs that all answers share.
struct Asker<'a> {
    services: &'a Services,
    nonce: Option<&'a [u8]>,
    version: i64,
    sig_algo: Option<SigAlgo>,
    /// The port of the publications.
    publish_port: u16,
    master: Signer<'a>,
}

/// The master's key that answers a minion.
#[derive(Clone, Copy)]
struct Signer<'a> {
    key: MasterKey<'a>,
    /// The master's keys, while it is rotated; which of them a request knows shows in its session.
    rotation: Option<BothKeys<'a>>,
}

impl<'a> Signer<'a> {
    /// While the master's key is rotated, a minion whose token is encrypted with the previous key is
    /// answered with that one: stock refuses any other, unless a signing key vouches for it.
    fn of(load: &Load<'_>, services: &'a Services) -> Self {
        let rotation = services.both_master_keys();
        let current = Self {
            key: services.keys.master.current(),
            rotation,
        };
        let Some(keys) = rotation else {
            return current;
        };
        let enc_algo = load.encryption(services);
        let (Some(token), Some(enc_algo)) = (load.token, enc_algo) else {
            return current;
        };
        let opens = |key: MasterKey<'_>| key.private.decrypt(enc_algo, token).is_ok();
        match !opens(keys.current) && opens(keys.previous) {
            true => Self {
                key: keys.previous,
                rotation,
            },
            false => current,
        }
    }

    /// The key that was made, of a minion that knows it.
    fn made_key(&self) -> Option<&'a str> {
        let made = self.rotation?.made().public_pem;
        (made == self.key.public_pem).then_some(made)
    }

    /// The present key, for a minion that is answered under the previous one.
    fn next_key(&self) -> Option<&'a str> {
        let current = self.rotation?.current.public_pem;
        (current != self.key.public_pem).then_some(current)
    }
}

/// Authenticates a minion, or answers with a refusal. One that was not recognised as a log-in has
/// bypassed their queue, and is not handled.
pub(crate) fn handle(request: ClearRequest<'_>, services: &Services) -> Outcome {
    let ClearRequest {
        load,
        version,
        class,
        origin,
    } = request;
    if class != Class::Auth {
        services.metrics.refuse("not_admitted");
        return Outcome::reply(reply::no_answer());
    }
    let Ok(load) = &load.read::<Load<'_>>() else {
        return Outcome::reply(reply::no_answer());
    };
    let Some(mut asker) = Asker::of(load, version, services) else {
        return Outcome::reply(reply::no_answer());
    };
    if let Some(port) = origin.publish_port {
        asker.publish_port = port;
    }
    let Some(id) = load.id else {
        return Outcome::reply(reply::no_answer());
    };
    let Ok(minion) = MinionId::parse(id) else {
        complain!(
            services,
            cmd = "_auth",
            "request refused: the id is not valid"
        );
        return asker.negative(Negative::Refused, "invalid_id");
    };
    let Some(presented) = load.key.map(|text| presented_key(text, services)) else {
        return Outcome::reply(reply::no_answer());
    };
    if presented.len() > MAX_KEY_LENGTH || PublicKey::from_pem(&presented).is_err() {
        complain!(
            services,
            %minion,
            bytes = presented.len(),
            "request refused: that is no public key"
        );
        return asker.negative(Negative::Refused, "bad_key");
    }
    if is_full(&minion, services) {
        let event = auth_event(services, &minion, &presented, false, Some("full"));
        return with_event(asker.negative(Negative::Full, "full"), event);
    }
    match gate(load, &minion, &presented, services) {
        Ok(Decision::Pend) if is_of_another(&minion, &presented, services) => {
            complain!(
                services,
                %minion,
                "a key is not kept: another key was pending under this id until lately, and was \
                 removed because too many wait (saltern_max_pending)"
            );
            asker.negative(Negative::Pending, "keys_full")
        }
        Ok(decision) => match is_kept(decision, &minion, &origin, services) {
            Ok(true) => carry_out(decision, &asker, load, &minion, &presented),
            Ok(false) => keys_full(decision, &asker, &minion),
            Err(error) => not_stored(&asker, &minion, &error),
        },
        Err(error @ KeyLookupError::Changed) => {
            tracing::warn!(%minion, %error, "the minion is asked to retry");
            asker.negative(Negative::Unable, "error")
        }
        Err(error) => {
            tracing::error!(%minion, %error, "the key cannot be looked up");
            asker.negative(Negative::Unable, "error")
        }
    }
}

fn is_of_another(minion: &MinionId, presented: &str, services: &Services) -> bool {
    let now = services.clock.unix();
    services
        .keys
        .admission
        .is_of_another(minion, presented, now)
}

/// Whether there is room for the key in the state that the decision gives it. An accepted key needs
/// none.
fn is_kept(
    decision: Decision,
    minion: &MinionId,
    origin: &Origin,
    services: &Services,
) -> Result<bool, StoreError> {
    let state = match decision {
        Decision::Pend => KeyState::Pending,
        Decision::Reject => KeyState::Rejected,
        Decision::Deny => KeyState::Denied,
        Decision::StillPending => {
            services.keys.admission.heard(minion, origin.address);
            return Ok(true);
        }
        _ => return Ok(true),
    };
    // An existing file is replaced.
    if state == KeyState::Denied && services.keys.pki.is_denied(minion)? {
        return Ok(true);
    }
    let (admission, now) = (&services.keys.admission, services.clock.unix());
    let admission = admission.admit(&services.keys.pki, (minion, state), origin.address, now)?;
    if let Admission::InPlaceOf(other) = &admission {
        complain!(
            services,
            %minion,
            removed = %other,
            "a pending key is removed for another one: too many wait, most of them of its address \
             (saltern_max_pending)"
        );
    }
    Ok(admission != Admission::Full)
}

/// Refuses to keep a key, because too many are kept. A minion whose key would be pending retries.
fn keys_full(decision: Decision, asker: &Asker<'_>, minion: &MinionId) -> Outcome {
    complain!(
        asker.services,
        %minion,
        "a key is not kept: too many wait, or too many of its address (saltern_max_pending)"
    );
    let negative = match decision {
        Decision::Pend => Negative::Pending,
        _ => Negative::Refused,
    };
    asker.negative(negative, "keys_full")
}

/// Asks the minion to retry later, without looking at its key.
///
/// Answered as if the key were pending: only that makes stock minions of 3006, 3007 and 3008 wait
/// (`acceptance_wait_time`) with the request or publication that they authenticate for, and retry
/// (`_authenticate` in `salt/crypt.py`). "full" and malformed answers end the attempt, and the
/// request that led to it is sent anew at once.
pub(crate) fn retry_later(load: &MapView, version: i64, services: &Services) -> Outcome {
    let load = load.read::<Load<'_>>().ok();
    match load.and_then(|load| Asker::of(&load, version, services)) {
        Some(asker) => asker.negative(Negative::Pending, "come_again"),
        None => Outcome::reply(reply::no_answer()),
    }
}

/// 3008 strips the key before it stores it; 3006 and 3007 keep it as it came.
fn presented_key(text: &str, services: &Services) -> String {
    match services.config.salt_compat {
        Compat::V3008 => text.trim().to_owned(),
        Compat::V3006 | Compat::V3007 => text.to_owned(),
    }
}

impl<'a> Asker<'a> {
    /// `None` when the request lacks fields that stock needs to answer it at all.
    fn of(load: &Load<'a>, version: i64, services: &'a Services) -> Option<Self> {
        let nonce = load.nonce.filter(|nonce| is_nonce(nonce));
        if version > 1 && nonce.is_none() {
            return None;
        }
        let sig_algo = load.signing(services);
        Some(Self {
            services,
            nonce,
            version,
            sig_algo,
            publish_port: services.config.publish_port,
            master: Signer::of(load, services),
        })
    }

    /// The nonce for an answer of a protocol that has one.
    fn nonce(&self) -> Option<Bin<'a>> {
        self.nonce.filter(|_| self.version > 1).map(Bin)
    }

    fn negative(&self, negative: Negative, result: &'static str) -> Outcome {
        let cannot_sign = self.version > 1 && self.sig_algo.is_none();
        self.count(if cannot_sign { BAD_SIG_ALGO } else { result });
        let ret = match negative {
            Negative::Refused => Value::Bool(false),
            Negative::Pending | Negative::Unable => Value::Bool(true),
            Negative::Full => "full".into(),
        };
        if self.version < 2 {
            return Outcome::reply(Unsigned::reply(ret));
        }
        let nonce = self.nonce();
        Outcome::reply(self.signed(&pack(&NoKeys { ret, nonce }, Dialect::Raw)))
    }

    fn count(&self, result: &str) {
        let authentications = &self.services.metrics.authentications;
        authentications.with_label_values(&[result]).inc();
    }

    /// Answers that an algorithm of the request is unknown, or not allowed.
    fn bad_algorithm(&self, minion: &MinionId, result: &str, answer: Bytes) -> Outcome {
        self.count(result);
        complain!(
            self.services,
            %minion,
            result,
            fips_mode = self.services.config.fips_mode,
            "authentication refused: its algorithms are unknown, or have SHA-1 and fips_mode is on"
        );
        Outcome::reply(answer)
    }

    fn signed(&self, inner: &[u8]) -> Bytes {
        let Some(algorithm) = self.sig_algo else {
            return unsigned_text("bad sig algo");
        };
        match self.master.key.private.sign(algorithm, inner) {
            Ok(signature) => reply::clear(&Signed {
                enc: "clear",
                load: Bin(inner),
                sig: Bin(&signature),
            }),
            Err(error) => {
                tracing::error!(%error, "the answer cannot be signed");
                reply::no_answer()
            }
        }
    }
}

/// The one answer that is never signed.
fn unsigned_text(text: &str) -> Bytes {
    Unsigned::reply(text.into())
}

/// `max_minions`: more minions are connected than allowed, and this one is not among them.
fn is_full(minion: &MinionId, services: &Services) -> bool {
    let Some(limit) = services.config.max_minions else {
        return false;
    };
    let around = &services.minions.presence;
    around.are_more_connected_than(limit) && !around.state(minion).is_present()
}

fn gate(
    load: &Load<'_>,
    minion: &MinionId,
    presented: &str,
    services: &Services,
) -> Result<Decision, KeyLookupError> {
    let known = known_key(minion, services)?;
    let known = known.as_ref().map(|(state, pem)| (*state, pem.as_str()));
    let auto_reject = services.users.rules().autosign.rejects(minion.as_str());
    let is_new = matches!(known, None | Some((KeyState::Pending, _)));
    let auto_sign = is_new && auto_signs(load, minion, services)?;
    Ok(decide(&Situation {
        open_mode: services.config.open_mode,
        auto_reject,
        auto_sign,
        known,
        presented,
    }))
}

/// Consumes a stub in `minions_autosign`, as stock does.
fn auto_signs(load: &Load<'_>, minion: &MinionId, services: &Services) -> Result<bool, StoreError> {
    if services.users.rules().autosign.accepts(minion.as_str()) {
        return Ok(true);
    }
    if services
        .keys
        .pki
        .take_autosign_stub(minion, services.config.autosign_timeout)?
    {
        return Ok(true);
    }
    let pairs: Vec<(String, String)> = load
        .autosign_grains
        .as_map()
        .unwrap_or_default()
        .iter()
        .filter_map(|(name, value)| Some((name.as_str()?.to_owned(), python_text::str(value)?)))
        .collect();
    Ok(services.users.rules().autosign.accepts_grains(&pairs))
}

fn carry_out(
    decision: Decision,
    asker: &Asker<'_>,
    load: &Load<'_>,
    minion: &MinionId,
    presented: &str,
) -> Outcome {
    let services = asker.services;
    let pki = &services.keys.pki;
    let (stored, negative, result, act) = match decision {
        Decision::Proceed => return keys(asker, load, minion, presented),
        Decision::Accept => {
            // Data kept under this id belongs to the owner of another key.
            services.minions.forget(minion);
            return match pki.accept(minion, presented) {
                Ok(()) => keys(asker, load, minion, presented),
                Err(error) => not_stored(asker, minion, &error),
            };
        }
        Decision::Pend => {
            services.minions.forget(minion);
            (
                pki.pend(minion, presented),
                Negative::Pending,
                "pend",
                "pend",
            )
        }
        Decision::StillPending => (Ok(()), Negative::Pending, "pend", "pend"),
        Decision::Rejected => (Ok(()), Negative::Refused, "rejected", "reject"),
        Decision::Reject => (
            pki.reject(minion, presented),
            Negative::Refused,
            "reject",
            "reject",
        ),
        Decision::Deny => {
            complain!(
                services,
                %minion,
                "authentication refused: another key is known under this id; this may be an attack"
            );
            (
                pki.deny(minion, presented),
                Negative::Refused,
                "denied",
                "denied",
            )
        }
        Decision::NoKey => return asker.negative(Negative::Refused, "no_key"),
    };
    if let Err(error) = stored {
        return not_stored(asker, minion, &error);
    }
    if decision == Decision::Pend {
        tracing::info!(%minion, "new key is pending");
    }
    let pending = matches!(negative, Negative::Pending);
    let names_act = decision != Decision::Rejected || services.config.salt_compat == Compat::V3008;
    let event = auth_event(
        services,
        minion,
        presented,
        pending,
        names_act.then_some(act),
    );
    with_event(asker.negative(negative, result), event)
}

fn not_stored(asker: &Asker<'_>, minion: &MinionId, error: &StoreError) -> Outcome {
    tracing::error!(%minion, %error, "the key cannot be stored");
    asker.negative(Negative::Unable, "error")
}

fn auth_event(
    services: &Services,
    minion: &MinionId,
    presented: &str,
    result: bool,
    act: Option<&str>,
) -> Option<saltern_model::Event> {
    if !services.config.auth_events {
        return None;
    }
    let data = events::Auth {
        result,
        act,
        id: minion,
        key: presented,
    };
    Some(event_data::master_event(services, Tag::auth(), &data))
}

fn with_event(outcome: Outcome, event: Option<saltern_model::Event>) -> Outcome {
    match event {
        Some(event) => outcome.and_fire(event),
        None => outcome,
    }
}

/// The positive answer.
fn keys(asker: &Asker<'_>, load: &Load<'_>, minion: &MinionId, presented: &str) -> Outcome {
    let services = asker.services;
    let sha1 = &services.minions.sessions.sha1;
    sha1.note(minion, load.uses_sha1(), services.clock.unix());
    match packed_keys(asker, load, minion) {
        Ok(inner) => {
            asker.count("accept");
            let event = auth_event(services, minion, presented, true, Some("accept"));
            let answer = if asker.version > 1 {
                asker.signed(&inner)
            } else {
                Bytes::from(inner)
            };
            with_event(Outcome::reply(answer), event)
        }
        Err(KeysError::BadEncAlgo) => {
            asker.bad_algorithm(minion, BAD_ENC_ALGO, unsigned_text("bad enc algo"))
        }
        Err(KeysError::NoEncAlgo) => asker.bad_algorithm(minion, BAD_ENC_ALGO, reply::no_answer()),
        Err(KeysError::BadSigAlgo) => {
            asker.bad_algorithm(minion, BAD_SIG_ALGO, unsigned_text("bad sig algo"))
        }
        Err(KeysError::BadKey(reason)) => {
            complain!(services, %minion, reason, "authentication refused: the key cannot be used");
            asker.negative(Negative::Refused, "bad_key")
        }
        Err(KeysError::Unable(error)) => {
            let reason: &dyn std::error::Error = &error;
            tracing::error!(%minion, reason, "the keys for a minion cannot be read; it is asked to retry");
            asker.negative(Negative::Unable, "error")
        }
    }
}

enum KeysError {
    /// Unknown, and a token should have been decrypted with it: stock says so.
    BadEncAlgo,
    /// Unknown, and there was no token: stock fails without an answer of its own.
    NoEncAlgo,
    BadSigAlgo,
    BadKey(String),
    /// A fault of the master's own: no descriptors, no disk, an unreadable file.
    Unable(StoreError),
}

impl From<StoreError> for KeysError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Key { .. } => Self::BadKey(error.to_string()),
            error => Self::Unable(error),
        }
    }
}

fn packed_keys(
    asker: &Asker<'_>,
    load: &Load<'_>,
    minion: &MinionId,
) -> Result<Vec<u8>, KeysError> {
    let services = asker.services;
    let enc_algo = load.encryption(services).ok_or(match load.token {
        Some(_) => KeysError::BadEncAlgo,
        None => KeysError::NoEncAlgo,
    })?;
    let bad_key = |error: &dyn std::fmt::Display| KeysError::BadKey(error.to_string());
    let accepted = services
        .keys
        .pki
        .accepted_key(minion)?
        .ok_or_else(|| KeysError::BadKey("it is not among the accepted keys".to_owned()))?;
    let session = services
        .keys
        .pki
        .version(minion, KeyState::Accepted)
        .and_then(|key_file| match key_file {
            Some(key_file) => services
                .minions
                .sessions
                .get_or_create(minion, &key_file)
                .map(Some),
            None => Ok(None),
        })?
        .ok_or_else(|| KeysError::BadKey("it was removed a moment ago".to_owned()))?;
    let shared = services.keys.shared.current();
    // Which of them its requests use shows later which key of the master the minion knows.
    let session = match asker.master.made_key() {
        Some(made) => services.minions.sessions.under_made_key(&session, made),
        None => session,
    };
    let seal = |secret: &[u8]| accepted.key.encrypt(enc_algo, secret);
    let aes = seal(shared.key.as_str().as_bytes()).map_err(|error| bad_key(&error))?;
    let session = seal(session.key.as_str().as_bytes()).map_err(|error| bad_key(&error))?;
    let signature = shared.signature(asker.master.key.private)?;
    let token = load
        .token
        .and_then(|token| echo_token(token, enc_algo, &accepted, asker));
    // The oldest protocols do not sign; then only a signature of the master's key needs it.
    let pub_sig = match asker.sig_algo {
        Some(algorithm) => {
            let master = &services.keys.master;
            master.public_signature(algorithm, asker.master.key.public_pem)
        }
        None if asker.version < 2 && !services.config.master_sign_pubkey => Ok(None),
        None => return Err(KeysError::BadSigAlgo),
    }?;

    let keys = Keys {
        enc: "pub",
        pub_key: &clean_key(asker.master.key.public_pem),
        publish_port: asker.publish_port,
        pub_sig: pub_sig.as_deref(),
        token: token.as_deref().map(Bin),
        aes: Bin(&aes),
        session: Bin(&session),
        sig: Bin(&signature),
        nonce: asker.nonce(),
        saltern_syndic_inventory: services.minions.inventories.agreement(),
        saltern_syndic_frames: services.minions.frames.agreement(),
        saltern_syndic_verdicts: services.minions.inventories.is_on(),
        saltern_syndic_path: services.paths.agreement(),
        saltern_next_key: asker.master.next_key(),
    };
    Ok(pack(&keys, Dialect::Raw))
}

/// Proves to the minion that this master has the private key: its token comes back, encrypted for
/// the minion. A token that cannot be decrypted is left out, and the minion decides.
fn echo_token(
    token: &[u8],
    enc_algo: EncAlgo,
    accepted: &saltern_store::AcceptedKey,
    asker: &Asker<'_>,
) -> Option<Vec<u8>> {
    let services = asker.services;
    let plain = match asker.master.key.private.decrypt(enc_algo, token) {
        Ok(plain) => plain,
        Err(error) => {
            complain!(services, %error, "the token of an authentication does not decrypt");
            return None;
        }
    };
    accepted.key.encrypt(enc_algo, plain.expose()).ok()
}
