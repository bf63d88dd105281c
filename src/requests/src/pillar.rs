//! `_pillar`: the pillar of a minion, in a reply that only this minion can read and that is bound
//! to its request.
//!
//! `content` compiles it. That may take long, so it is done beside the workers; the checks that
//! need no pillar come before.

use std::sync::Arc;

use bytes::Bytes;
use saltern_content::pillar::PillarRequest;
use saltern_crypto::{Crypticle, KeyString};
use saltern_wire::msgpack::{Bin, Dialect, Value, encode, lenient, pack};
use serde::{Deserialize, Serialize};

use crate::data_cache::Kept;
use crate::envelope::{Refusal, Sealed};
use crate::{Finished, Outcome, Services, data_cache, reply};

/// The load of a request. A text or flag of another type counts as missing.
#[derive(Deserialize)]
struct Load {
    /// Without a map there is no pillar.
    #[serde(default)]
    grains: Value,
    /// The environment; `env` is its older name.
    #[serde(default, deserialize_with = "lenient")]
    saltenv: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    env: Option<String>,
    /// The environment of the pillar, where it is another.
    #[serde(default, deserialize_with = "lenient")]
    pillarenv: Option<String>,
    /// Merged over the pillar.
    #[serde(default)]
    pillar_override: Value,
    /// Data of the minion for `ext_pillar`.
    #[serde(default)]
    extra_minion_data: Value,
    /// Names of `ext_pillar`.
    #[serde(default)]
    ext: Value,
    /// Compile it anew, whatever `pillar_cache` says.
    #[serde(default, deserialize_with = "lenient")]
    clean_cache: Option<bool>,
}

/// The reply that only one minion can read.
#[derive(Serialize)]
struct Private<'a> {
    /// A fresh key, encrypted for the minion.
    key: Bin<'a>,
    /// The pillar (before version 2 of the protocol), or [`Signed`], encrypted with that key.
    pillar: Bin<'a>,
}

/// Signed part of the answer.
#[derive(Serialize)]
struct Bound<'a> {
    key: Bin<'a>,
    pillar: &'a Value,
    nonce: Bin<'a>,
}

/// [`Bound`], packed, with its signature.
#[derive(Serialize)]
struct Signed<'a> {
    data: Bin<'a>,
    sig: Bin<'a>,
}

/// Answers with the pillar. It is compiled beside the workers: a template may run for long.
pub(crate) fn handle(sealed: Sealed, services: &Arc<Services>) -> Outcome {
    let private = sealed.load.str("ver") == Some("2") || services.site.pillar_version != 1;
    if private && sealed.answer.version > 1 && sealed.answer.nonce.is_none() {
        return Outcome::reply(reply::plain_error("Nonce not included in request"));
    }
    let services = Arc::clone(services);
    Outcome::later(move || {
        let request = request_of(&sealed);
        let pillar = match &request {
            Some(request) => services.content.pillars.compile(request),
            // No pillar without grains; stock's private answer is then an empty pillar
            // (`_encrypt_private` in `salt/channel/server.py`).
            None if private => Value::Map(Vec::new()),
            None => Value::Bool(false),
        };
        let reply = if private {
            match private_reply(&sealed, &pillar, &services) {
                Ok(reply) => reply,
                Err(refusal) => return refused(refusal, &services),
            }
        } else {
            sealed.answer.seal(&encode(&pillar, Dialect::Raw))
        };
        let is_kept = !sealed.is_superseded;
        let event = request.filter(|_| is_kept).and_then(|request| {
            let (minion, grains) = (&sealed.minion, &request.grains);
            let kept = match &request.pillarenv {
                // A pillar with data of the minion's choice is not cached for targets.
                _ if request.is_particular() => Kept::Grains,
                Some(environment) => Kept::PillarOf(environment, &pillar),
                None => Kept::Pillar(&pillar),
            };
            data_cache::remember(&services, minion, grains, kept)
        });
        let events = event.into_iter().collect();
        Finished { reply, events }
    })
}

fn refused(refusal: Refusal, services: &Services) -> Finished {
    let refused = &services.metrics.refused;
    refused.with_label_values(&[refusal.reason]).inc();
    Finished {
        reply: refusal.reply,
        events: Vec::new(),
    }
}

/// The pillar to compile; `None` for a load without grains.
fn request_of(sealed: &Sealed) -> Option<PillarRequest> {
    let load: Load = sealed.load.read().ok()?;
    let Value::Map(mut grains) = load.grains else {
        return None;
    };
    // The id is the channel's; ids in the grains do not count, however often they occur.
    let is_id = |(name, _): &(Value, Value)| name.as_bytes() == Some(b"id");
    let place = grains.iter().position(is_id).unwrap_or(grains.len());
    grains.retain(|entry| !is_id(entry));
    grains.insert(place, ("id".into(), sealed.minion.as_str().into()));
    let given = |value: Value| match value {
        Value::Nil => None,
        Value::Map(entries) if entries.is_empty() => None,
        value => Some(value),
    };
    Some(PillarRequest {
        minion: sealed.minion.clone(),
        grains: Arc::new(Value::Map(grains)),
        saltenv: load.saltenv.or(load.env),
        pillarenv: load.pillarenv,
        pillar_override: given(load.pillar_override),
        extra_minion_data: given(load.extra_minion_data),
        ext: given(load.ext),
        clean_cache: load.clean_cache == Some(true),
    })
}

/// `{"key": …, "pillar": …}`: a fresh key for this minion alone, and under it the pillar with the
/// master's signature over pillar, key and nonce (`_encrypt_private` in `salt/channel/server.py`).
fn private_reply(sealed: &Sealed, pillar: &Value, services: &Services) -> Result<Bytes, Refusal> {
    let enc_algo = sealed
        .enc_algo
        .ok_or_else(|| Refusal::no_answer("enc_algo"))?;
    let key = KeyString::generate();
    let sealed_key = sealed
        .key
        .key
        .encrypt(enc_algo, key.as_str().as_bytes())
        .map_err(|error| {
            tracing::warn!(minion = %sealed.minion, %error, "pillar key cannot be encrypted");
            Refusal::no_answer("enc_algo")
        })?;
    let inner = match &sealed.answer.nonce {
        Some(nonce) => signed(sealed, pillar, nonce, &sealed_key, services)?,
        None => encode(pillar, Dialect::Raw),
    };
    let ciphertext = Crypticle::new(&key).dumps(&inner, None);
    let (key, pillar) = (Bin(&sealed_key), Bin(&ciphertext));
    Ok(pack(&Private { key, pillar }, Dialect::Raw).into())
}

fn signed(
    sealed: &Sealed,
    pillar: &Value,
    nonce: &[u8],
    sealed_key: &[u8],
    services: &Services,
) -> Result<Vec<u8>, Refusal> {
    let sig_algo = sealed
        .sig_algo
        .ok_or_else(|| Refusal::no_answer("sig_algo"))?;
    let bound = Bound {
        key: Bin(sealed_key),
        pillar,
        nonce: Bin(nonce),
    };
    let data = pack(&bound, Dialect::Raw);
    let signer = match services.both_master_keys() {
        Some(keys) if sealed.answer.is_under_made_key() => keys.made(),
        Some(keys) => keys.first(),
        None => services.keys.master.current(),
    };
    let signature = signer.private.sign(sig_algo, &data).map_err(|error| {
        tracing::error!(%error, "pillar cannot be signed");
        Refusal::no_answer("sig_algo")
    })?;
    let (data, sig) = (Bin(&data), Bin(&signature));
    Ok(pack(&Signed { data, sig }, Dialect::Raw))
}
