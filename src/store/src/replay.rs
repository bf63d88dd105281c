//! Replay protection: admits each sealed request of a session once.
//!
//! An eavesdropper can send a request again; only the minion can make another. Nonces are
//! remembered for two generations, each as long as the window. When a generation is dropped, the
//! newest `ts` in it becomes the low watermark ("floor"): nothing as old is admitted any more. The
//! floor is a time of the minion's own clock, so a clock that is wrong by days changes nothing.
//!
//! A request below the floor may come from a minion whose clock was set back. It cannot be
//! distinguished from a replay, so the session ends: the minion authenticates and gets a new key,
//! under which nothing was sent yet. No minion is locked out, and recorded requests are worthless.
//!
//! After a restart the master's clock stands in for the lost memory: of a session that an earlier
//! process made, only requests of about this time are taken at first.
//!
//! # Memory
//!
//! A nonce takes 8 to 16 bytes. A session keeps at most two generations of `MAX_IN_GENERATION`,
//! all sessions together `MAX_IN_ALL` plus `GUARANTEED` each for two generations. Nothing is
//! ever admitted without being remembered, and nothing is refused for want of room: with the common
//! room used up, a session whose generation has its guaranteed size begins the next one, so that
//! its own window becomes shorter, and gives the room of the generation before back.
//!
//! For 10,000 minions at the default window of 600 seconds: the common room is used up when each
//! sends a request that is remembered every 11 seconds (an hourly mine, a pillar and a few beacons
//! are one every few minutes). Then a generation lasts for 32 requests, 352 seconds, in place of
//! 600; at 1,000 such requests a second in all it is 320 seconds. An honest request would have to
//! be underway for longer than that to be stale, and then costs its minion one authentication. At
//! most 1,048,576 + 10,000 × 64 nonces are kept, about 26 MiB, and more for a moment of a session
//! with hundreds of requests in one second (`MAX_IN_SECOND`). Refusing for want of room would
//! cost every minion of such a site its events for up to 20 minutes; shortening the windows of
//! those who send most costs nobody a request.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;

/// Nonces of one generation of a session; one more begins the next generation.
const MAX_IN_GENERATION: usize = 4_096;

/// Nonces of all sessions together, above which a generation ends at [`GUARANTEED`]: about 16 MiB.
const MAX_IN_ALL: usize = 1 << 20;

/// Nonces that a generation of any session may hold whatever the others keep. More than a minion
/// has under way at once: the floor comes no nearer to the present than this many requests.
const GUARANTEED: usize = 32;

/// The same while all of them are of one second: `ts` counts seconds, so no floor lies between
/// them.
const MAX_IN_SECOND: usize = 512;

/// Randomly keyed hasher of nonces, so that peers cannot predict digests.
static DIGEST: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Verdict on a request's age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// It is to be carried out.
    Fresh,
    /// Its nonce was seen before.
    Repeated,
    /// It was seen before, or held back on its way: a newer request of the kind that supersedes it
    /// has been taken.
    Superseded,
    /// It is older than the remembered window.
    Stale,
}

/// Replay window of one session.
pub struct ReplayWindow {
    /// Seconds; zero turns the checks off.
    window: i64,
    state: Mutex<State>,
    has_seen_stale: AtomicBool,
    kept_in_all: Arc<AtomicUsize>,
}

struct State {
    /// The digest of the newest request among those that supersede each other.
    latest: Option<u64>,
    /// The highest `ts` among those.
    latest_ts: Option<i64>,
    /// When the current generation began, in seconds since 1970 by the master's clock.
    began: i64,
    current: Generation,
    previous: Generation,
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
    /// For a key that is new.
    pub(crate) fn of_new_key(window: Duration, now: i64, kept_in_all: &Arc<AtomicUsize>) -> Self {
        Self {
            window: i64::try_from(window.as_secs()).unwrap_or(i64::MAX),
            state: Mutex::new(State {
                latest: None,
                latest_ts: None,
                began: now,
                current: Generation::default(),
                previous: Generation::default(),
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
        let digest = nonce.map(|nonce| DIGEST.hash_one(nonce));
        self.judge(&mut self.state.lock(), digest, ts, now)
    }

    /// The same of a request whose data replaces that of the one before, and that its minion may
    /// send again with the same nonce. It stays [`Freshness::Fresh`] until the next one is taken;
    /// after that it is [`Freshness::Superseded`], and what it says is old. So is one that comes
    /// for the first time with an older `ts`: whoever sees it on its way can hold it back.
    pub fn admit_latest(&self, nonce: Option<&[u8]>, ts: Option<i64>, now: i64) -> Freshness {
        let digest = nonce.map(|nonce| DIGEST.hash_one(nonce));
        let mut state = self.state.lock();
        match self.judge(&mut state, digest, ts, now) {
            Freshness::Fresh if ts.is_some() && ts < state.latest_ts => Freshness::Superseded,
            Freshness::Fresh => {
                state.latest = digest;
                state.latest_ts = ts.or(state.latest_ts);
                Freshness::Fresh
            }
            Freshness::Repeated if state.latest == digest => Freshness::Fresh,
            Freshness::Repeated => Freshness::Superseded,
            other => other,
        }
    }

    fn judge(
        &self,
        state: &mut State,
        digest: Option<u64>,
        ts: Option<i64>,
        now: i64,
    ) -> Freshness {
        if self.window == 0 {
            return Freshness::Fresh;
        }
        self.turn_by_time(state, now);
        let is_stale = |ts: i64| ts <= state.floor || state.ceiling.is_some_and(|last| ts > last);
        if ts.is_some_and(is_stale) {
            self.has_seen_stale.store(true, Ordering::Relaxed);
            return Freshness::Stale;
        }
        if let Some(digest) = digest {
            if state.current.nonces.contains(&digest) || state.previous.nonces.contains(&digest) {
                return Freshness::Repeated;
            }
            self.remember(state, digest, ts, now);
        }
        state.ceiling = None;
        state.current.newest = state.current.newest.max(ts);
        Freshness::Fresh
    }

    /// Forgets the nonces whose time is over, of a session that has had no request since.
    pub(crate) fn sweep(&self, now: i64) {
        if self.window > 0 {
            self.turn_by_time(&mut self.state.lock(), now);
        }
    }

    /// Whether the next authentication of the minion is to get a new key.
    pub(crate) fn needs_new_key(&self) -> bool {
        self.has_seen_stale.load(Ordering::Relaxed)
    }

    fn remember(&self, state: &mut State, digest: u64, ts: Option<i64>, now: i64) {
        let is_full = self.kept_in_all.load(Ordering::Relaxed) >= MAX_IN_ALL;
        let most = match is_full {
            false => MAX_IN_GENERATION,
            // The floor would be this very second, in which an honest minion may send more.
            true if state.previous.newest >= ts => MAX_IN_SECOND,
            true => GUARANTEED,
        };
        if state.current.nonces.len() >= most {
            self.turn(state, now);
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

    /// Drops the previous generation, and begins the next.
    fn turn(&self, state: &mut State, now: i64) {
        let current = std::mem::take(&mut state.current);
        let dropped = std::mem::replace(&mut state.previous, current);
        state.began = now;
        state.floor = state.floor.max(dropped.newest.unwrap_or(i64::MIN));
        self.kept_in_all
            .fetch_sub(dropped.nonces.len(), Ordering::Relaxed);
    }
}

impl Drop for ReplayWindow {
    fn drop(&mut self) {
        let state = self.state.get_mut();
        let kept = state.current.nonces.len() + state.previous.nonces.len();
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

    /// Two requests a second for an hour, in the order sent, each with the clock of its second.
    #[test]
    fn full_memory_of_all_sessions_admits_nothing_twice_and_refuses_nothing() {
        let (window, kept) = new_key();
        kept.store(MAX_IN_ALL, Ordering::Relaxed);
        let time = |number: i64| NOW + number / 2;
        for number in 0..7_200_i64 {
            let nonce = number.to_be_bytes();
            let admit = || window.admit(Some(&nonce), Some(time(number)), time(number));
            assert_eq!(admit(), Freshness::Fresh, "{number}");
            assert_ne!(admit(), Freshness::Fresh, "{number}");
        }
        assert!(!window.needs_new_key());
        assert!(kept.load(Ordering::Relaxed) <= MAX_IN_ALL + 2 * GUARANTEED);
        for number in 0..7_200_i64 {
            let nonce = number.to_be_bytes();
            let again = window.admit(Some(&nonce), Some(time(number)), time(7_199));
            assert_ne!(again, Freshness::Fresh, "{number}");
        }
    }

    #[test]
    fn full_memory_makes_a_large_session_give_its_own_room_back() {
        let (window, kept) = new_key();
        let admit = |number: i64| {
            let nonce = number.to_be_bytes();
            window.admit(Some(&nonce), Some(NOW + number / 300), NOW)
        };
        for number in 0..6_000 {
            assert_eq!(admit(number), Freshness::Fresh);
        }
        kept.fetch_add(MAX_IN_ALL, Ordering::Relaxed);
        // Hundreds within a second are no reason to refuse one, and none is admitted again.
        for number in 6_000..9_000 {
            assert_eq!(admit(number), Freshness::Fresh, "{number}");
            assert_ne!(admit(number), Freshness::Fresh, "{number}");
        }
        let own = kept.load(Ordering::Relaxed) - MAX_IN_ALL;
        assert!(own <= 2 * MAX_IN_SECOND, "{own}");
    }

    #[test]
    fn sweep_forgets_the_nonces_of_an_idle_session_and_admits_none_again() {
        let (window, kept) = new_key();
        window.admit(Some(b"a"), Some(NOW), NOW);
        window.sweep(NOW + 599);
        assert_eq!(kept.load(Ordering::Relaxed), 1);
        window.sweep(NOW + 1_200);
        assert_eq!(kept.load(Ordering::Relaxed), 0);
        let again = window.admit(Some(b"a"), Some(NOW), NOW + 1_200);
        assert_eq!(again, Freshness::Stale);
    }

    #[test]
    fn latest_request_is_fresh_again_until_the_next_supersedes_it() {
        let (window, _) = new_key();
        let admit = |nonce: &[u8]| window.admit_latest(Some(nonce), Some(NOW), NOW);
        assert_eq!(admit(b"a"), Freshness::Fresh);
        assert_eq!(admit(b"a"), Freshness::Fresh);
        // Of another kind: it supersedes nothing.
        window.admit(Some(b"event"), Some(NOW), NOW);
        assert_eq!(admit(b"a"), Freshness::Fresh);
        assert_eq!(admit(b"b"), Freshness::Fresh);
        assert_eq!(admit(b"a"), Freshness::Superseded);
        assert_eq!(admit(b"event"), Freshness::Superseded);
        assert_eq!(admit(b"b"), Freshness::Fresh);
    }

    #[test]
    fn request_held_back_until_after_a_newer_one_is_superseded() {
        let (window, _) = new_key();
        let admit = |nonce: &[u8], ts| window.admit_latest(Some(nonce), ts, NOW);
        assert_eq!(admit(b"a", Some(NOW)), Freshness::Fresh);
        assert_eq!(admit(b"c", Some(NOW + 2)), Freshness::Fresh);
        assert_eq!(admit(b"b", Some(NOW + 1)), Freshness::Superseded);
        assert_eq!(admit(b"b", Some(NOW + 1)), Freshness::Superseded, "again");
        // It supersedes nothing.
        assert_eq!(admit(b"c", Some(NOW + 2)), Freshness::Fresh);
        // `ts` counts seconds, and some requests have none.
        assert_eq!(admit(b"d", Some(NOW + 2)), Freshness::Fresh);
        assert_eq!(admit(b"e", None), Freshness::Fresh);
        assert_eq!(admit(b"f", Some(NOW + 1)), Freshness::Superseded);
        // Of another kind: it is as new as any.
        let other = window.admit(Some(b"event"), Some(NOW + 1), NOW);
        assert_eq!(other, Freshness::Fresh);
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
    fn key_of_earlier_process_admits_only_recent_requests() {
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
    fn nonces_of_a_session_are_bounded_and_freed() {
        let (window, kept) = new_key();
        for number in 0..20_000_i64 {
            let ts = NOW + number / 100;
            let nonce = number.to_be_bytes();
            assert_eq!(window.admit(Some(&nonce), Some(ts), NOW), Freshness::Fresh);
        }
        assert!(kept.load(Ordering::Relaxed) <= 2 * MAX_IN_GENERATION);
        // Requests below the floor are stale.
        for number in [0_i64, 5_000, 11_000, 19_999] {
            let ts = NOW + number / 100;
            let again = window.admit(Some(&number.to_be_bytes()), Some(ts), NOW);
            assert_ne!(again, Freshness::Fresh, "{number}");
        }
        drop(window);
        assert_eq!(kept.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn zero_window_disables_replay_checks() {
        let kept = Arc::default();
        let window = ReplayWindow::of_old_key(Duration::ZERO, NOW, &kept);
        for _ in 0..2 {
            assert_eq!(window.admit(Some(b"a"), Some(5), NOW), Freshness::Fresh);
        }
    }
}
