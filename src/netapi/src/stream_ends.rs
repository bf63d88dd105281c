//! When the token behind an open stream ends: at once where it is revoked here, at its time, and
//! within `TOKEN_INTERVAL` when another process removes its file.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use crate::api::Api;

/// How often the token of an open stream is looked at: other processes may remove it too.
const TOKEN_INTERVAL: Duration = Duration::from_secs(2);

/// Longest time for which a stream goes on while nobody knows whether its token is good.
const MAX_UNCHECKED: Duration = Duration::from_secs(60);

/// Shortest time that a look may take, so that one after a long stop of the process gets an answer.
const MIN_LOOK: Duration = Duration::from_secs(5);

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

/// Resolves when a token is good no more, or nobody has known it for [`MAX_UNCHECKED`], also while a look at it hangs,
/// which has [`MIN_LOOK`] at least; `ends` is the end of the token, in seconds since 1970, as far as that is known.
pub(crate) async fn ended(api: Arc<Api>, token: Zeroizing<String>, mut ends: f64) {
    // Before the first look, so that no revocation falls between the two.
    let revoked = api.stream_ends().of(&token);
    let mut checked = Instant::now();
    loop {
        let left = left(&api, ends).unwrap_or(MAX_UNCHECKED);
        let unchecked = MAX_UNCHECKED.saturating_sub(checked.elapsed());
        let looked = tokio::select! {
            biased;
            () = revoked.cancelled() => return,
            looked = api.owner_of(&token) => looked,
            () = sleep(left.min(unchecked.max(MIN_LOOK))) => return,
        };
        match looked {
            Ok(Some(owner)) => (ends, checked) = (owner.ends, Instant::now()),
            Ok(None) => return,
            // Nobody knows.
            Err(_) if api.now() < ends && checked.elapsed() < MAX_UNCHECKED => {}
            Err(_) => return,
        }
        let left = self::left(&api, ends).unwrap_or(TOKEN_INTERVAL);
        let pause = left.clamp(MIN_INTERVAL, TOKEN_INTERVAL);
        tokio::select! {
            () = revoked.cancelled() => return,
            () = sleep(pause) => {}
        }
    }
}

/// Time until the end of a token; nothing where it has none.
fn left(api: &Api, ends: f64) -> Option<Duration> {
    Duration::try_from_secs_f64((ends - api.now()).max(0.0)).ok()
}

fn hash_of(token: &str) -> TokenHash {
    Sha256::digest(token.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::atomic::Ordering;

    use futures_util::poll;
    use saltern_base::clock::Clock;
    use tokio::task::yield_now;
    use tokio::time::{advance, timeout};

    use super::*;
    use crate::api::tests::{Held, TOKEN, Trusting, open};

    /// A stream whose look at its token hangs until the first one is dropped.
    async fn hanging(
        (master, api): (&Arc<Trusting>, &Arc<Api>),
        ends: f64,
    ) -> (Held, Pin<Box<impl Future<Output = ()>>>) {
        let held = master.hold();
        master.looks.store(0, Ordering::SeqCst);
        let token = Zeroizing::new(TOKEN.to_owned());
        let mut stream = Box::pin(ended(api.clone(), token, ends));
        assert!(poll!(&mut stream).is_pending());
        while master.looks.load(Ordering::SeqCst) == 0 {
            yield_now().await;
        }
        assert!(poll!(&mut stream).is_pending());
        (held, stream)
    }

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

    #[tokio::test(start_paused = true)]
    async fn look_that_hangs_does_not_keep_a_stream_open() {
        let dir = tempfile::tempdir().unwrap();
        let master = Arc::<Trusting>::default();
        let api = open(dir.path(), "rest_tornado", (Clock::system(), &master));

        let with = (&master, &api);
        let (held, mut stream) = hanging(with, f64::INFINITY).await;
        advance(MAX_UNCHECKED - TOKEN_INTERVAL).await;
        assert!(poll!(&mut stream).is_pending());
        advance(TOKEN_INTERVAL + MIN_INTERVAL).await;
        assert!(poll!(&mut stream).is_ready(), "nobody has known it");
        drop(held);

        let (held, mut stream) = hanging(with, api.now() + 10.0).await;
        advance(Duration::from_secs(11)).await;
        assert!(poll!(&mut stream).is_ready(), "its time is over");
        drop(held);

        let (held, mut stream) = hanging(with, f64::INFINITY).await;
        api.stream_ends().revoked(TOKEN);
        assert!(poll!(&mut stream).is_ready(), "it is revoked");
        drop(held);
    }

    #[tokio::test(start_paused = true)]
    async fn look_after_a_long_stop_of_the_process_has_time_for_an_answer() {
        let dir = tempfile::tempdir().unwrap();
        let master = Arc::<Trusting>::default();
        let api = open(dir.path(), "rest_tornado", (Clock::system(), &master));
        let token = Zeroizing::new(TOKEN.to_owned());
        let mut stream = Box::pin(ended(api, token, f64::INFINITY));
        for looks in 2..=3 {
            // The look before is answered.
            assert!(timeout(MIN_INTERVAL, &mut stream).await.is_err());
            let held = master.hold();
            advance(MAX_UNCHECKED).await;
            assert!(poll!(&mut stream).is_pending());
            while master.looks.load(Ordering::SeqCst) < looks {
                yield_now().await;
            }
            advance(MIN_LOOK - TOKEN_INTERVAL).await;
            assert!(poll!(&mut stream).is_pending(), "the look is given up");
            if looks == 3 {
                advance(TOKEN_INTERVAL).await;
                assert!(poll!(&mut stream).is_ready(), "it hangs");
            }
            drop(held);
        }
    }

    /// That another master still takes it is another question.
    #[tokio::test(start_paused = true)]
    async fn token_that_only_this_master_has_removed_ends_its_streams() {
        let dir = tempfile::tempdir().unwrap();
        let master = Arc::new(Trusting::with_other_owner(dir.path()));
        let api = open(dir.path(), "rest_tornado", (Clock::system(), &master));
        assert!(api.is_good(TOKEN).await.unwrap() && api.is_proved(TOKEN));
        let token = Zeroizing::new(TOKEN.to_owned());
        let mut stream = Box::pin(ended(api.clone(), token, f64::INFINITY));
        assert!(poll!(&mut stream).is_pending());
        let error = api.revoke(TOKEN).err().unwrap();
        assert!(error.is_done_here(), "{error}");
        assert!(poll!(&mut stream).is_ready() && !api.is_proved(TOKEN));
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
