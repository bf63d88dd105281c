//! Tokens that were good when they were looked at last: requests that bear one come from somebody
//! who has logged in, so admission gives them the share of known peers before the gate has read them.
//!
//! Not here: whether a token is good now. That is for the gate to say, whatever this says.

use std::collections::HashMap;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

/// Tokens that are remembered.
const MAX_TOKENS: usize = 50_000;

/// Hash of a token.
type TokenHash = [u8; 32];

/// Tokens that were good, with the end of each in seconds since 1970.
#[derive(Default)]
pub(crate) struct ProvedTokens(Mutex<HashMap<TokenHash, f64>>);

impl ProvedTokens {
    /// Remembers a token that is good; without room, only once others have ended.
    pub(crate) fn insert(&self, token: &str, ends: f64, now: f64) {
        let mut tokens = self.0.lock();
        let hash = hash_of(token);
        if tokens.len() >= MAX_TOKENS && !tokens.contains_key(&hash) {
            tokens.retain(|_, ends| *ends > now);
            if tokens.len() >= MAX_TOKENS {
                return;
            }
        }
        tokens.insert(hash, ends);
    }

    /// Forgets a token.
    pub(crate) fn remove(&self, token: &str) {
        self.0.lock().remove(&hash_of(token));
    }

    /// The end of a token that was good, in seconds since 1970.
    pub(crate) fn end(&self, token: &str) -> Option<f64> {
        self.0.lock().get(&hash_of(token)).copied()
    }

    /// Whether a token was good, and has not ended since.
    pub(crate) fn contains(&self, token: &str, now: f64) -> bool {
        let tokens = self.0.lock();
        tokens.get(&hash_of(token)).is_some_and(|ends| *ends > now)
    }
}

fn hash_of(token: &str) -> TokenHash {
    Sha256::digest(token.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_proved_until_it_ends_or_is_removed() {
        let tokens = ProvedTokens::default();
        tokens.insert("a", 10.0, 0.0);
        tokens.insert("b", 10.0, 0.0);
        tokens.remove("b");
        assert!(tokens.contains("a", 9.0) && !tokens.contains("a", 10.0));
        assert!(!tokens.contains("b", 0.0) && !tokens.contains("c", 0.0));
    }

    #[test]
    fn tokens_are_bounded_and_ended_ones_make_room() {
        let tokens = ProvedTokens::default();
        for number in 0..MAX_TOKENS {
            tokens.insert(&number.to_string(), 10.0, 0.0);
        }
        tokens.insert("late", 20.0, 0.0);
        assert!(!tokens.contains("late", 0.0) && tokens.contains("0", 0.0));
        tokens.insert("late", 20.0, 11.0);
        assert!(tokens.contains("late", 11.0));
        assert_eq!(tokens.0.lock().len(), 1);
    }
}
