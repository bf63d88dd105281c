//! Sessions of the console: those of `/login` (`saltern_netapi::Sessions`) in a directory of their own,
//! with an end after idle time and an absolute one, both kept by the server.
//!
//! A session survives a restart of the master; its idle time begins anew then. The token against
//! cross-site requests is derived from the session's id, so it is kept nowhere.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use parking_lot::Mutex;
use saltern_base::clock::Clock;
use saltern_base::hex;
use saltern_netapi::{SessionError, Sessions};
use saltern_store::{SharedState, StateKind, StoreError};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use crate::backend::NewToken;

/// Time without a request of the user after which a session ends.
const IDLE_TIME: Duration = Duration::from_secs(30 * 60);

/// Time after which a session ends in any case, unless its token ends before.
const SESSION_TIME: Duration = Duration::from_secs(12 * 3600);

/// Sessions whose last use is known; beyond it those that are idle are removed.
const MAX_USES: usize = 10_000;

/// Purpose of the key of cross-site tokens.
const CSRF_PURPOSE: &[u8] = b"saltern-console-csrf";

type IdHash = [u8; 32];

/// The sessions of the console.
pub(crate) struct ConsoleSessions {
    kept: Sessions,
    /// When the user of each last asked for something, in seconds since 1970.
    used: Mutex<HashMap<IdHash, i64>>,
    clock: Clock,
}

/// Origin of a request: the user with a click, or an open page that keeps itself up to date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
    /// Starts the idle time anew.
    User,
    /// Does not.
    Page,
}

impl ConsoleSessions {
    /// The sessions that an earlier process left in `dir`.
    pub(crate) fn open(
        dir: PathBuf,
        clock: Clock,
        shared: &SharedState,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            kept: Sessions::open(dir, clock.clone(), (shared, StateKind::ConsoleSession))?,
            used: Mutex::default(),
            clock,
        })
    }

    /// Makes a session for a token; gives its id. Blocks: it writes a file.
    pub(crate) fn create(&self, token: &NewToken) -> Result<Zeroizing<String>, SessionError> {
        let end = self.clock.unix() as f64 + SESSION_TIME.as_secs_f64();
        let id = self.kept.create(&token.token, token.expire.min(end))?;
        self.touch(&id);
        Ok(id)
    }

    fn touch(&self, id: &str) {
        let now = self.clock.unix();
        let mut used = self.used.lock();
        if used.len() >= MAX_USES {
            used.retain(|_, last| now - *last <= seconds(IDLE_TIME));
        }
        used.insert(hash_of(id), now);
    }

    /// The token of a session that has not ended.
    pub(crate) fn token(&self, id: &str, activity: Activity) -> Option<Zeroizing<String>> {
        let token = self.kept.token(id)?;
        let now = self.clock.unix();
        let last = *self.used.lock().entry(hash_of(id)).or_insert(now);
        if now - last > seconds(IDLE_TIME) {
            return None;
        }
        if activity == Activity::User {
            self.touch(id);
        }
        Some(token)
    }

    /// Ends a session, whatever its state, once its token is revoked here. Blocks: it removes a file.
    ///
    /// # Errors
    /// The token may still be good, and the session goes on; unless that [is done here](StoreError::is_done_here).
    pub(crate) fn end(
        &self,
        id: &str,
        revoke: impl FnOnce(&str) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let token = self.kept.token(id);
        let revoked = token.map_or(Ok(()), |token| revoke(&token));
        if revoked.as_ref().err().is_none_or(StoreError::is_done_here) {
            self.kept.end(id);
            self.used.lock().remove(&hash_of(id));
        }
        revoked
    }
}

fn seconds(time: Duration) -> i64 {
    i64::try_from(time.as_secs()).unwrap_or(i64::MAX)
}

fn hash_of(id: &str) -> IdHash {
    Sha256::digest(id.as_bytes()).into()
}

/// The token against cross-site requests of a session, or of the cookie before it.
pub(crate) fn csrf_token(id: &str) -> String {
    // A key of any length is one.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(id.as_bytes()) else {
        return String::new();
    };
    mac.update(CSRF_PURPOSE);
    hex(&mac.finalize().into_bytes())
}

/// Whether a form has the token of this session. Takes the same time for every wrong one.
pub(crate) fn is_csrf_token(id: &str, given: &str) -> bool {
    let expected = csrf_token(id);
    !expected.is_empty() && bool::from(expected.as_bytes().ct_eq(given.as_bytes()))
}

/// Random text for the cookie of a browser that is not logged in.
pub(crate) fn random_id() -> Option<String> {
    let mut bytes = [0_u8; 20];
    getrandom::fill(&mut bytes).ok()?;
    Some(hex(&bytes))
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    fn clock() -> Clock {
        Clock::manual(UNIX_EPOCH + Duration::from_secs(1_000_000))
    }

    fn token(clock: &Clock) -> NewToken {
        NewToken {
            token: Zeroizing::new("abc".to_owned()),
            expire: clock.unix() as f64 + 43_200.0,
        }
    }

    #[test]
    fn idle_session_ends_and_pages_that_update_themselves_keep_none_alive() {
        let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
        let sessions = ConsoleSessions::open(
            dir.path().to_owned(),
            clock.clone(),
            &SharedState::default(),
        )
        .unwrap();
        let id = sessions.create(&token(&clock)).unwrap();
        clock.advance(IDLE_TIME);
        assert!(sessions.token(&id, Activity::User).is_some());
        clock.advance(IDLE_TIME);
        assert!(sessions.token(&id, Activity::Page).is_some());
        clock.advance(Duration::from_secs(1));
        assert!(sessions.token(&id, Activity::Page).is_none());
        assert!(sessions.token(&id, Activity::User).is_none());
    }

    #[test]
    fn session_ends_absolutely_and_survives_a_restart_until_then() {
        let (dir, clock) = (tempfile::tempdir().unwrap(), clock());
        let sessions = ConsoleSessions::open(
            dir.path().to_owned(),
            clock.clone(),
            &SharedState::default(),
        )
        .unwrap();
        let id = sessions.create(&token(&clock)).unwrap();
        let sessions = ConsoleSessions::open(
            dir.path().to_owned(),
            clock.clone(),
            &SharedState::default(),
        )
        .unwrap();
        for _ in 0..47 {
            clock.advance(Duration::from_secs(15 * 60));
            assert!(sessions.token(&id, Activity::User).is_some());
        }
        clock.advance(Duration::from_secs(15 * 60));
        assert!(sessions.token(&id, Activity::User).is_none());
    }

    #[test]
    fn cross_site_token_is_of_one_session() {
        let token = csrf_token("one");
        assert!(is_csrf_token("one", &token));
        assert!(!is_csrf_token("two", &token));
        assert!(!is_csrf_token("one", ""));
    }
}
