//! Which sealed requests of a session were carried out already, so that none is twice.
//!
//! Whoever sees a request on the wire can send it again; only the minion can make another. Nonces
//! are remembered for two generations, each as long as the window. When a generation is dropped, the
//! newest `ts` in it becomes the floor: nothing as old is taken any more. The floor is a time of the
//! minion's own clock, so a clock that is wrong by days changes nothing.
//!
//! A request below the floor may come from a minion whose clock was set back. It cannot be told from
//! a replay, so the session ends: the minion authenticates and gets a new key, under which nothing
//! was sent yet. Nobody is locked out, and what was recorded before is worth nothing.
//!
//! What a restart forgets is made up for by the master's clock: of a session that an earlier process
//! made, only requests of about this time are taken at first.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;

/// Nonces of one generation of a session; one more begins the next generation.
const MAX_IN_GENERATION: usize = 4_096;

/// Nonces of all sessions together: about 16 MiB.
const MAX_IN_ALL: usize = 1 << 20;

/// What is remembered of a nonce: a digest that nobody outside can foresee.
static DIGEST: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// What is known of a request's age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// It is to be carried out.
    Fresh,
    /// Its nonce was seen before.
    Repeated,
    /// It is older than what is remembered.
    Stale,
}

/// The requests of one session.
pub struct ReplayWindow {
    /// Seconds; zero turns the checks off.
    window: i64,
    state: Mutex<State>,
    has_seen_stale: AtomicBool,
    kept_in_all: Arc<AtomicUsize>,
}

struct State {
    /// When the current generation began, in seconds since 1970 by the master's clock.
    began: i64,
    current: Generation,
    former: Generation,
    /// The last `ts` that is not taken any more.
    floor: i64,
    /// The last `ts` that is taken, until one is.
    ceiling: Option<i64>,
}

#[derive(Default)]
struct Generation {
    nonces: HashSet<u64>,
    newest: Option<i64>,
}

impl ReplayWindow {
    /// For a key that nobody has used yet.
    pub(crate) fn of_new_key(window: Duration, now: i64, kept_in_all: &Arc<AtomicUsize>) -> Self {
        Self {
            window: i64::try_from(window.as_secs()).unwrap_or(i64::MAX),
            state: Mutex::new(State {
                began: now,
                current: Generation::default(),
                former: Generation::default(),
                floor: i64::MIN,
                ceiling: None,
            }),
            has_seen_stale: AtomicBool::new(false),
            kept_in_all: Arc::clone(kept_in_all),
        }
    }

    /// For a key that an earlier process made, and may have had requests under.
    pub(crate) fn of_old_key(window: Duration, now: i64, kept_in_all: &Arc<AtomicUsize>) -> Self {
        let new = Self::of_new_key(window, now, kept_in_all);
        {
            let mut state = new.state.lock();
            state.floor = now.saturating_sub(new.window);
            state.ceiling = Some(now.saturating_add(new.window));
        }
        new
    }

    /// Looks at a request that the minion certainly made, at `ts` by its own clock. With a nonce it
    /// is taken once, without one (it may be carried out as often as it comes) any number of times.
    pub fn admit(&self, nonce: Option<&[u8]>, ts: Option<i64>, now: i64) -> Freshness {
        if self.window == 0 {
            return Freshness::Fresh;
        }
        let mut state = self.state.lock();
        self.turn_by_time(&mut state, now);
        let is_stale = |ts: i64| ts <= state.floor || state.ceiling.is_some_and(|last| ts > last);
        if ts.is_some_and(is_stale) {
            self.has_seen_stale.store(true, Ordering::Relaxed);
            return Freshness::Stale;
        }
        if let Some(nonce) = nonce {
            let digest = DIGEST.hash_one(nonce);
            if state.current.nonces.contains(&digest) || state.former.nonces.contains(&digest) {
                return Freshness::Repeated;
            }
            self.remember(&mut state, digest, now);
        }
        state.ceiling = None;
        state.current.newest = state.current.newest.max(ts);
        Freshness::Fresh
    }

    /// Whether the next authentication of the minion is to get a new key.
    pub(crate) fn needs_new_key(&self) -> bool {
        self.has_seen_stale.load(Ordering::Relaxed)
    }

    fn remember(&self, state: &mut State, digest: u64, now: i64) {
        if state.current.nonces.len() >= MAX_IN_GENERATION {
            self.turn(state, now);
        }
        // Without room it is taken and not remembered. A floor near the present would make up for
        // that, and have every minion of a large site authenticate again and again.
        if self.kept_in_all.load(Ordering::Relaxed) >= MAX_IN_ALL {
            return;
        }
        state.current.nonces.insert(digest);
        self.kept_in_all.fetch_add(1, Ordering::Relaxed);
    }

    fn turn_by_time(&self, state: &mut State, now: i64) {
        let age = now.saturating_sub(state.began);
        if age >= self.window.saturating_mul(2) {
            self.turn(state, now);
        }
        if age >= self.window {
            self.turn(state, now);
        } else if age < 0 {
            // The master's clock was set back.
            state.began = now;
        }
    }

    /// Drops the former generation, and begins the next.
    fn turn(&self, state: &mut State, now: i64) {
        let current = std::mem::take(&mut state.current);
        let dropped = std::mem::replace(&mut state.former, current);
        state.began = now;
        state.floor = state.floor.max(dropped.newest.unwrap_or(i64::MIN));
        self.kept_in_all
            .fetch_sub(dropped.nonces.len(), Ordering::Relaxed);
    }
}

impl Drop for ReplayWindow {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let kept = state.current.nonces.len() + state.former.nonces.len();
        self.kept_in_all.fetch_sub(kept, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_795_000_000;
    const WINDOW: Duration = Duration::from_secs(600);

    fn new_key() -> (ReplayWindow, Arc<AtomicUsize>) {
        let kept = Arc::default();
        (ReplayWindow::of_new_key(WINDOW, NOW, &kept), kept)
    }

    #[test]
    fn nonce_is_taken_once_however_long_it_is_kept() {
        // The minion's clock is two days late.
        let skew = -172_800;
        for wait in [0, 1, 599, 601, 1_199, 1_201, 86_400] {
            let (window, _) = new_key();
            let first = window.admit(Some(b"a"), Some(NOW + skew), NOW);
            assert_eq!(first, Freshness::Fresh);
            let later = NOW + wait;
            assert_ne!(
                window.admit(Some(b"a"), Some(NOW + skew), later),
                Freshness::Fresh,
                "{wait}"
            );
            let next = window.admit(Some(b"b"), Some(later + 1 + skew), later);
            assert_eq!(next, Freshness::Fresh, "{wait}");
        }
    }

    #[test]
    fn full_memory_of_all_sessions_makes_no_request_stale() {
        let (window, kept) = new_key();
        kept.store(MAX_IN_ALL, Ordering::Relaxed);
        for nonce in [b"a", b"b", b"c", b"d"] {
            let taken = window.admit(Some(nonce), Some(NOW), NOW);
            assert_eq!(taken, Freshness::Fresh);
        }
        assert!(!window.needs_new_key());
    }

    #[test]
    fn request_without_nonce_is_taken_until_it_is_old() {
        let (window, _) = new_key();
        for wait in [0, 1, 700] {
            assert_eq!(window.admit(None, Some(NOW), NOW + wait), Freshness::Fresh);
        }
        window.admit(None, Some(NOW + 1_300), NOW + 1_300);
        assert_eq!(window.admit(None, Some(NOW), NOW + 2_600), Freshness::Stale);
        assert!(window.needs_new_key());
    }

    #[test]
    fn old_key_takes_what_is_of_this_time() {
        let kept = Arc::default();
        let admit = |ts: i64| {
            let window = ReplayWindow::of_old_key(WINDOW, NOW, &kept);
            window.admit(Some(b"a"), Some(ts), NOW)
        };
        assert_eq!(admit(NOW - 599), Freshness::Fresh);
        assert_eq!(admit(NOW + 600), Freshness::Fresh);
        assert_eq!(admit(NOW - 600), Freshness::Stale);
        assert_eq!(admit(NOW + 601), Freshness::Stale);
    }

    #[test]
    fn memory_is_bounded_for_a_session_and_given_back() {
        let (window, kept) = new_key();
        for number in 0..20_000_i64 {
            let ts = NOW + number / 100;
            let nonce = number.to_be_bytes();
            assert_eq!(window.admit(Some(&nonce), Some(ts), NOW), Freshness::Fresh);
        }
        assert!(kept.load(Ordering::Relaxed) <= 2 * MAX_IN_GENERATION);
        // What is not remembered any more is stale.
        for number in [0_i64, 5_000, 11_000, 19_999] {
            let ts = NOW + number / 100;
            let again = window.admit(Some(&number.to_be_bytes()), Some(ts), NOW);
            assert_ne!(again, Freshness::Fresh, "{number}");
        }
        drop(window);
        assert_eq!(kept.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn zero_turns_the_checks_off() {
        let kept = Arc::default();
        let window = ReplayWindow::of_old_key(Duration::ZERO, NOW, &kept);
        for _ in 0..2 {
            assert_eq!(window.admit(Some(b"a"), Some(5), NOW), Freshness::Fresh);
        }
    }
}
