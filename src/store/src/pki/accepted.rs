//! Cached accepted keys and the list of their ids.

use std::collections::HashSet;
use std::sync::OnceLock;

use saltern_crypto::{PublicKey, clean_key, ct_eq};
use saltern_model::MinionId;

/// Plain text of a minion's `tok` (`salt/channel/server.py`, `validate_token`).
const TOKEN_TEXT: &[u8] = b"salt";

/// An accepted minion's key, ready for use.
pub struct AcceptedKey {
    /// The key itself.
    pub key: PublicKey,
    token: OnceLock<Box<[u8]>>,
}

impl AcceptedKey {
    pub(super) fn new(key: PublicKey) -> Self {
        Self {
            key,
            token: OnceLock::new(),
        }
    }

    /// The key's text in the normal form in which keys are compared and sent.
    pub fn pem(&self) -> &str {
        self.key.pem()
    }

    /// Whether `text` is this key, whatever its line ends.
    pub(super) fn is_of(&self, text: &str) -> bool {
        clean_key(text) == self.key.pem()
    }

    /// Whether only the owner of the key can have made `token`, the `tok` of a request.
    ///
    /// A key's token is always the same, so the RSA operation is done for the first valid one and
    /// every later request is a comparison in constant time. A wrong token is not remembered.
    pub fn token_valid(&self, token: &[u8]) -> bool {
        if let Some(known) = self.token.get()
            && ct_eq(known, token)
        {
            return true;
        }
        let valid = self
            .key
            .x931_recover(token)
            .is_ok_and(|text| ct_eq(&text, TOKEN_TEXT));
        if valid {
            // A second valid one exists for every key (n minus the first); the first one stays.
            let _ = self.token.set(token.into());
        }
        valid
    }
}

/// The ids of all accepted minions, for matching targets.
pub struct AcceptedIds {
    sorted: Vec<MinionId>,
    set: HashSet<MinionId>,
}

impl AcceptedIds {
    /// `sorted` must be sorted.
    pub fn new(sorted: Vec<MinionId>) -> Self {
        let set = sorted.iter().cloned().collect();
        Self { sorted, set }
    }

    /// All of them, sorted.
    pub fn sorted(&self) -> &[MinionId] {
        &self.sorted
    }

    /// Whether this text is an accepted id.
    pub fn contains(&self, id: &str) -> bool {
        self.set.contains(id)
    }

    /// The accepted id with this text.
    pub fn get(&self, id: &str) -> Option<&MinionId> {
        self.set.get(id)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.sorted.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sorted.is_empty()
    }
}
