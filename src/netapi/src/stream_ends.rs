//! When the token behind an open stream ends: at once where it is revoked here, at its time, and
//! within `TOKEN_INTERVAL` when another process removes its file.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use crate::api::Api;

/// How often the token of an open stream is looked at: other processes may remove it too.
const TOKEN_INTERVAL: Duration = Duration::from_secs(2);

/// Longest time for which a stream goes on while nobody knows whether its token is good.
const MAX_UNCHECKED: Duration = Duration::from_secs(60);

/// Shortest time between two looks, as at the end of a token.
const MIN_INTERVAL: Duration = Duration::from_millis(1);

/// Entries before those of ended streams are removed for the first time.
const FEW: usize = 64;

/// Hash of a token.
type TokenHash = [u8; 32];

/// The tokens of open streams.
#[derive(Default)]
pub(crate) struct StreamEnds {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    tokens: HashMap<TokenHash, Weak<CancellationToken>>,
    /// Entries at which those of ended streams are removed.
    full: usize,
}

impl StreamEnds {
    /// The token that is cancelled when a session's token is revoked in this process.
    fn of(&self, token: &str) -> Arc<CancellationToken> {
        let mut state = self.state.lock();
        let hash = hash_of(token);
        if let Some(known) = state.tokens.get(&hash).and_then(Weak::upgrade) {
            return known;
        }
        if state.tokens.len() >= state.full {
            state.tokens.retain(|_, known| known.strong_count() > 0);
            state.full = FEW.max(2 * state.tokens.len());
        }
        let revoked = Arc::new(CancellationToken::new());
        state.tokens.insert(hash, Arc::downgrade(&revoked));
        revoked
    }

    /// Ends the streams of a token that was revoked.
    pub(crate) fn revoked(&self, token: &str) {
        let removed = self.state.lock().tokens.remove(&hash_of(token));
        if let Some(revoked) = removed.and_then(|known| known.upgrade()) {
            revoked.cancel();
        }
    }
}

/// Resolves when a token is good no more, or nobody has known it for [`MAX_UNCHECKED`]; `ends` is the end of the
/// token, in seconds since 1970, as far as that is known.
pub(crate) async fn ended(api: Arc<Api>, token: Zeroizing<String>, mut ends: f64) {
    // Before the first look, so that no revocation falls between the two.
    let revoked = api.stream_ends().of(&token);
    let mut checked = Instant::now();
    loop {
        match api.owner_of(&token).await {
            Ok(Some(owner)) => (ends, checked) = (owner.ends, Instant::now()),
            Ok(None) => return,
            // Nobody knows.
            Err(_) if api.now() < ends && checked.elapsed() < MAX_UNCHECKED => {}
            Err(_) => return,
        }
        let left = Duration::try_from_secs_f64((ends - api.now()).max(0.0));
        let left = left.unwrap_or(TOKEN_INTERVAL);
        let pause = left.clamp(MIN_INTERVAL, TOKEN_INTERVAL);
        tokio::select! {
            () = revoked.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

fn hash_of(token: &str) -> TokenHash {
    Sha256::digest(token.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use saltern_base::clock::Clock;

    use super::*;
    use crate::api::tests::{TOKEN, Trusting, open};

    #[tokio::test(start_paused = true)]
    async fn token_that_cannot_be_looked_at_is_looked_at_seldom_and_not_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let master = Arc::<Trusting>::default();
        master.is_broken.store(true, Ordering::SeqCst);
        let api = open(dir.path(), "rest_tornado", (Clock::system(), &master));
        let began = Instant::now();
        ended(api, Zeroizing::new(TOKEN.to_owned()), f64::INFINITY).await;
        let took = began.elapsed();
        assert!(
            (MAX_UNCHECKED..MAX_UNCHECKED + TOKEN_INTERVAL).contains(&took),
            "{took:?}"
        );
        let looks = master.looks.load(Ordering::SeqCst);
        assert!((30..=31).contains(&looks), "{looks} looks");
    }

    #[test]
    fn revoked_token_ends_its_streams_only() {
        let ends = StreamEnds::default();
        let (one, same, other) = (ends.of("a"), ends.of("a"), ends.of("b"));
        ends.revoked("a");
        assert!(one.is_cancelled() && same.is_cancelled() && !other.is_cancelled());
        assert!(!ends.of("a").is_cancelled());
    }

    #[test]
    fn tokens_of_ended_streams_are_forgotten() {
        let ends = StreamEnds::default();
        let kept = ends.of("kept");
        for number in 0..10 * FEW {
            drop(ends.of(&number.to_string()));
        }
        assert!(ends.state.lock().tokens.len() <= FEW);
        ends.revoked("kept");
        assert!(kept.is_cancelled());
    }
}
