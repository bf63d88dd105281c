//! `revoke_auth`: a minion asks for its own key to be deleted (`saltutil.revoke_auth`).
//!
//! Stock takes the minion's id for a wildcard over all keys (`RemoteFuncs.revoke_auth`,
//! `Key.delete_key`); here it is this id and no other.

use bytes::Bytes;
use saltern_model::{KeyState, Tag};
use saltern_store::{StoreError, dropfile};
use saltern_wire::msgpack::{Dialect, Value, encode};

use crate::envelope::Sealed;
use crate::events::KeyDeleted;
use crate::{Context, Effect, Keys, Minions, Outcome, event_data};

/// Deletes the key and answers `True`; where that is not allowed, answers with the load.
pub(crate) fn handle(
    sealed: &Sealed,
    context: &Context,
    (keys, minions): (&Keys, &Minions),
) -> Outcome {
    let minion = &sealed.minion;
    if !context.config.allow_minion_key_revoke {
        complain!(
            context,
            %minion,
            "a minion asked for its key to be deleted, but allow_minion_key_revoke is off"
        );
        return Outcome::reply(sealed.answer.seal(&sealed.load.pack()));
    }
    let (answer, deleted) = match delete(sealed, context, (keys, minions)) {
        Ok(deleted) => (Value::Bool(true), deleted),
        Err(error) => {
            tracing::error!(%minion, %error, "the key of a minion that asked for it is not deleted");
            (Value::from(""), 0)
        }
    };
    let packed: Bytes = encode(&answer, Dialect::Raw).into();
    let mut outcome = Outcome::reply(sealed.answer.seal(&packed));
    let deletion = KeyDeleted {
        result: true,
        act: "delete",
        id: minion,
    };
    let events = (0..deleted).map(|_| event_data::master_event(context, Tag::key(), &deletion));
    outcome.effects.extend(events.map(Effect::Fire));
    outcome
}

/// Deletes the minion's key in every state, then its cached data; asks for a new shared key, which
/// the minion would still have. Returns the number of key files.
fn delete(
    sealed: &Sealed,
    context: &Context,
    (keys, minions): (&Keys, &Minions),
) -> Result<usize, StoreError> {
    let minion = &sealed.minion;
    let mut deleted = 0;
    for state in KeyState::ALL {
        deleted += usize::from(keys.pki.remove(minion, state)?);
    }
    tracing::info!(%minion, "the key was deleted, as the minion asked");
    minions.forget(minion);
    if context.config.rotate_aes_key {
        dropfile::request(&context.config)?;
    }
    Ok(deleted)
}
