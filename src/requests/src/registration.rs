//! Identity of a TCP subscriber (`presence_callback` in `salt/channel/server.py`): `{"id", "tok"}`,
//! encrypted with the shared key.
//!
//! It is no request: no answer is expected. Stock lets any holder of the shared key name any minion
//! whose token it has seen; so does this master, because only presence and the choice of loads that
//! any peer could read depend on it.

use bytes::Bytes;
use saltern_model::MinionId;
use saltern_wire::msgpack::MapView;

use crate::Services;
use crate::envelope;

/// The minion that `words` prove, if they prove one.
pub fn registered_minion(words: &Bytes, services: &Services) -> Option<MinionId> {
    let frame = MapView::parse(words.clone(), &envelope::LOAD_LIMITS).ok()?;
    if frame.str("enc") != Some("aes") {
        return None;
    }
    match envelope::registration(frame.get("load")?, services) {
        Ok(minion) => Some(minion),
        Err(refusal) => {
            services.metrics.refuse(refusal.reason);
            tracing::debug!(
                reason = refusal.reason,
                "a subscriber is not the minion that it claims to be"
            );
            None
        }
    }
}
