//! `_pillar`: the pillar of a minion, in a reply that only this minion can read and that is bound
//! to its request.
//!
//! This release renders no pillar. A site without pillar files gets the empty pillar that stock
//! would give; a site with some gets a pillar error, so that no state is applied without the
//! pillar that it was written for.

use std::sync::Arc;

use bytes::Bytes;
use saltern_crypto::{Crypticle, KeyString};
use saltern_model::Event;
use saltern_wire::msgpack::{Dialect, Encoder, Value, encode};

use crate::envelope::{Refusal, Sealed};
use crate::handle::value_of;
use crate::{Finished, Outcome, Services, data_cache, reply};

/// Answers with the pillar. It is compiled beside the workers: a template may run for long.
pub(crate) fn handle(sealed: Sealed, services: &Arc<Services>) -> Outcome {
    let private = sealed.load.str("ver") == Some("2") || services.site.pillar_version != 1;
    if private && sealed.answer.version > 1 && sealed.answer.nonce.is_none() {
        return Outcome::reply(reply::plain_error("Nonce not included in request"));
    }
    let services = Arc::clone(services);
    Outcome::later(move || {
        let pillar = pillar_of(&sealed, &services);
        let reply = if private {
            match private_reply(&sealed, &pillar, &services) {
                Ok(reply) => reply,
                Err(refusal) => return refused(refusal, &services),
            }
        } else {
            sealed.answer.seal(&encode(&pillar, Dialect::Raw))
        };
        let events = remember(&sealed, &pillar, &services).into_iter().collect();
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

/// Keeps what came and what was answered, for targets; the event that tells of it.
fn remember(sealed: &Sealed, pillar: &Value, services: &Services) -> Option<Event> {
    let Value::Map(mut grains) = value_of(&sealed.load, "grains") else {
        return None;
    };
    // The id is the channel's, whatever the grains say.
    grains.retain(|(name, _)| name.as_str() != Some("id"));
    grains.push(("id".into(), sealed.minion.as_str().into()));
    let grains = Value::Map(grains);
    let pillarenv = sealed.load.str("pillarenv");
    data_cache::remember(services, &sealed.minion, &grains, pillar, pillarenv)
}

fn pillar_of(sealed: &Sealed, services: &Services) -> Value {
    if !services.site.has_pillar {
        return Value::Map(Vec::new());
    }
    tracing::error!(
        minion = %sealed.minion,
        "pillar refused: this release renders no pillar, but pillar_roots or ext_pillar has one"
    );
    let text = "this Saltern release renders no pillar yet, but this master is configured with one";
    Value::map([("_errors", Value::Array(vec![text.into()]))])
}

/// `{"key": …, "pillar": …}`: a fresh key for this minion alone, and under it the pillar with the
/// master's signature over pillar, key and nonce (`_encrypt_private` in `salt/channel/server.py`).
fn private_reply(sealed: &Sealed, pillar: &Value, services: &Services) -> Result<Bytes, Refusal> {
    let public = sealed
        .key
        .as_ref()
        .ok_or_else(|| Refusal::no_answer("no_key"))?;
    let enc_algo = sealed
        .enc_algo
        .ok_or_else(|| Refusal::no_answer("enc_algo"))?;
    let key = KeyString::generate();
    let sealed_key = public
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
    let mut reply = Vec::with_capacity(inner.len() + 512);
    let ciphertext = Crypticle::new(&key).dumps(&inner, None);
    let mut encoder = Encoder::new(&mut reply, Dialect::Raw);
    encoder
        .map(2)
        .str("key")
        .bin(&sealed_key)
        .str("pillar")
        .bin(&ciphertext);
    Ok(reply.into())
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
    let mut data = Vec::new();
    let mut encoder = Encoder::new(&mut data, Dialect::Raw);
    encoder
        .map(3)
        .str("key")
        .bin(sealed_key)
        .str("pillar")
        .value(pillar)
        .str("nonce")
        .bin(nonce);
    let signature = services
        .master
        .private
        .sign(sig_algo, &data)
        .map_err(|error| {
            tracing::error!(%error, "pillar cannot be signed");
            Refusal::no_answer("sig_algo")
        })?;
    let mut packed = Vec::with_capacity(data.len() + signature.len() + 32);
    Encoder::new(&mut packed, Dialect::Raw)
        .map(2)
        .str("data")
        .bin(&data)
        .str("sig")
        .bin(&signature);
    Ok(packed)
}
