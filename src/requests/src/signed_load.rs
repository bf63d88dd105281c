//! Signed returns (`minion_sign_messages` on the minion).
//!
//! Stock masters look the algorithm up under `signing_algorithm`, which is no master option, so
//! stock drops every signed return unless a site sets it. Here the minion's own default is used.

use saltern_wire::msgpack::{Dialect, MapView, encode};

use crate::Context;
use crate::envelope::{LOAD_LIMITS, Sealed};

/// Whether the load may be used: signed as the options demand.
pub(crate) fn acceptable(sealed: &Sealed, context: &Context) -> bool {
    let minion = &sealed.minion;
    if !sealed.load.contains("sig") {
        if context.config.require_minion_sign_messages {
            tracing::warn!(%minion, "return dropped: it is not signed, and \
                require_minion_sign_messages is on");
            return false;
        }
        return true;
    }
    if is_genuine(sealed, context) {
        return true;
    }
    if context.config.drop_messages_signature_fail {
        tracing::warn!(%minion, "return dropped: its signature does not fit");
        return false;
    }
    tracing::info!(%minion, "signature does not fit; the return is taken, because \
        drop_messages_signature_fail is off");
    true
}

fn is_genuine(sealed: &Sealed, context: &Context) -> bool {
    let algorithm = context.site.signing_algorithm;
    if context.config.fips_mode && !algorithm.is_fips() {
        return false;
    }
    let key = &sealed.key;
    let mut load = sealed.load.clone();
    let Some(signature) = load.remove("sig") else {
        return false;
    };
    let Some(signature) = signature.as_bytes() else {
        return false;
    };
    key.key.verify(algorithm, &as_signed(&load), signature)
}

/// The bytes that the minion signed: the load packed with bin types, keys in the order they came.
fn as_signed(load: &MapView) -> Vec<u8> {
    match saltern_wire::msgpack::decode_wire(&load.pack(), &LOAD_LIMITS) {
        Ok(value) => encode(&value, Dialect::Bin),
        Err(_) => Vec::new(),
    }
}
