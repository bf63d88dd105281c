//! Look-up of the key by which a minion is known. A minion without one is a new owner of its name: its key may be
//! accepted, and all that is kept of the owner before ends. So a key that is out of sight, as while `pki_dir` is not
//! mounted, must not count as none.

use saltern_model::{KeyState, MinionId};
use saltern_store::StoreError;

use crate::Services;

/// Reason for which nobody knows whether a minion has a key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeyLookupError {
    /// It cannot be read, or the directory of the keys is lost.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The minion moves to another state at this moment, or the directory of the keys is mounted or goes away.
    #[error("the key came or went while it was looked up")]
    Changed,
}

/// The state and PEM text of a minion's key; `None` when it has none but denied ones.
///
/// # Errors
/// Nobody knows, and the minion is to retry.
pub(crate) fn known_key(
    minion: &MinionId,
    services: &Services,
) -> Result<Option<(KeyState, String)>, KeyLookupError> {
    let pki = &services.keys.pki;
    key_of(
        || pki.state(minion),
        |state| pki.stored_pem(minion, state),
        || services.require_pki(),
    )
}

/// The directory is looked at between two looks for a key: the first may have been before it was mounted, and a key
/// that was seen is not gone because it is not seen any more.
fn key_of(
    state: impl Fn() -> Result<Option<KeyState>, StoreError>,
    pem: impl Fn(KeyState) -> Result<Option<String>, StoreError>,
    require_directory: impl Fn() -> Result<(), StoreError>,
) -> Result<Option<(KeyState, String)>, KeyLookupError> {
    let known = || Ok::<_, StoreError>(state()?.filter(|state| *state != KeyState::Denied));
    let seen = known()?;
    if let Some(state) = seen
        && let Some(pem) = pem(state)?
    {
        return Ok(Some((state, pem)));
    }
    require_directory()?;
    match seen.is_none() && known()?.is_none() {
        true => Ok(None),
        false => Err(KeyLookupError::Changed),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Whether a minion is known, while the directory is there at these moments of the look-up only; `None` when it is
    /// to retry.
    fn outcome(key: Option<KeyState>, is_there: [bool; 4]) -> Option<bool> {
        let looks = RefCell::new(is_there.into_iter());
        let next = || {
            let next = looks.borrow_mut().next();
            next.expect("no more looks than moments")
        };
        let state = || Ok(key.filter(|_| next()));
        let pem = |_| Ok(next().then(|| "a key".to_owned()));
        let require = || match next() {
            true => Ok(()),
            false => Err(StoreError::LastReturnsBusy),
        };
        let known = key_of(state, pem, require).ok()?;
        Some(known.is_some())
    }

    #[test]
    fn key_out_of_sight_at_any_moment_is_not_taken_for_none() {
        for key in [KeyState::Accepted, KeyState::Pending, KeyState::Rejected] {
            for moments in 0..16 {
                let is_there = std::array::from_fn(|moment| moments & (1 << moment) != 0);
                // It went away and came for the look at it alone, which nobody can see.
                let is_unseen = !is_there[0] && is_there[1] && !is_there[2];
                let known = outcome(Some(key), is_there);
                match (is_there, is_unseen) {
                    ([true, true, ..], _) => assert_eq!(known, Some(true)),
                    (_, true) => assert_eq!(known, Some(false)),
                    _ => assert_eq!(known, None, "{is_there:?}"),
                }
            }
        }
        for none in [None, Some(KeyState::Denied)] {
            assert_eq!(outcome(none, [true; 4]), Some(false));
            assert_eq!(outcome(none, [false; 4]), None);
        }
    }
}
