//! Sessions of rest_cherrypy: the id that a client holds stands for a token of Salt.
//!
//! One file a session, readable by the master's user only, so that sessions survive a restart. Its
//! name is the hash of the id, and the token in it is sealed with a key made of the id: who reads
//! the directory learns neither. Ids are looked up by their hash, which shows an attacker nothing
//! about the bytes of an id by the time it takes.
//!
//! A session ends with its token: each request is checked with the token, by the gate.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use hmac::{Hmac, KeyInit, Mac};
use parking_lot::Mutex;
use saltern_base::clock::Clock;
use saltern_base::{hex, unhex};
use saltern_store::StoreError;
use saltern_store::files::{self, Create};
use saltern_store::{SharedState, StateKind};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// Sessions at a time. Each took a log-in, and expired ones are swept.
const MAX_SESSIONS: usize = 50_000;

/// Minimum time between two sweeps.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// Bytes of an id; its text has two digits for each, as stock's.
const ID_BYTES: usize = 20;

/// The longest token that is kept.
const MAX_TOKEN: usize = 512;

/// Bytes of a file at most: two digits a byte of the token, and the time.
const FILE_BYTES: usize = 2 * MAX_TOKEN + 64;

/// Hash of an id.
type IdHash = [u8; 32];

/// The sessions.
pub struct Sessions {
    dir: PathBuf,
    clock: Clock,
    /// Other masters of a cluster have the files, too.
    shared: SharedState,
    kind: StateKind,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    sessions: HashMap<IdHash, Session>,
    swept: i64,
}

/// A session, as it is kept.
struct Session {
    /// The token, sealed with the id.
    sealed: Vec<u8>,
    /// When it ends, in seconds since 1970.
    expire: f64,
}

impl Sessions {
    /// The sessions that an earlier process left in `dir`, which is made if there is none.
    ///
    /// # Errors
    /// When the directory cannot be made or read.
    pub fn open(
        dir: PathBuf,
        clock: Clock,
        (shared, kind): (&SharedState, StateKind),
    ) -> Result<Self, StoreError> {
        files::ensure_dir(&dir, 0o700)?;
        files::remove_stale(&dir)?;
        let mut names = Vec::new();
        files::each_entry(&dir, |name, _| {
            if names.len() < MAX_SESSIONS {
                names.push(name.to_owned());
            }
        })?;
        let sessions = Self {
            dir,
            clock,
            shared: shared.clone(),
            kind,
            state: Mutex::default(),
        };
        for name in names {
            sessions.restore(&name)?;
        }
        Ok(sessions)
    }

    fn restore(&self, name: &str) -> Result<(), StoreError> {
        let path = files::child(&self.dir, name)?;
        let text = files::read_text(&path, FILE_BYTES)?;
        let hash = unhex(name).and_then(|bytes| IdHash::try_from(bytes).ok());
        let session = text.as_deref().and_then(parse);
        match (hash, session) {
            (Some(hash), Some(session)) if session.expire > self.now() => {
                self.state.lock().sessions.insert(hash, session);
            }
            // Expired, damaged, or no session at all.
            _ => {
                files::remove(&path)?;
                self.shared.remove(self.kind, name);
            }
        }
        Ok(())
    }

    fn now(&self) -> f64 {
        self.clock.unix() as f64
    }

    /// Makes a session for a token that ends at `expire`, in seconds since 1970; gives its id.
    /// Blocks: it writes a file.
    ///
    /// # Errors
    /// When it cannot be written, or there are too many.
    pub fn create(&self, token: &str, expire: f64) -> Result<Zeroizing<String>, SessionError> {
        if token.len() > MAX_TOKEN {
            return Err(SessionError::Token);
        }
        self.sweep();
        let mut id = Zeroizing::new([0_u8; ID_BYTES]);
        getrandom::fill(&mut *id).map_err(SessionError::Random)?;
        let id = Zeroizing::new(hex(&*id));
        let hash = hash_of(&id);
        let session = Session {
            sealed: sealed(&id, token.as_bytes()),
            expire,
        };
        let text = format!("{}\n{}\n", session.expire, hex(&session.sealed));
        {
            let mut state = self.state.lock();
            if state.sessions.len() >= MAX_SESSIONS {
                return Err(SessionError::TooMany);
            }
            state.sessions.insert(hash, session);
        }
        let name = hex(&hash);
        let path = self.dir.join(&name);
        if let Err(error) = files::write_atomic(&path, text.as_bytes(), Create::PRIVATE) {
            self.state.lock().sessions.remove(&hash);
            return Err(error.into());
        }
        let content = (text.as_bytes(), self.clock.unix_micros());
        self.shared.put(self.kind, &name, content);
        Ok(id)
    }

    /// The token of a session; `None` for an unknown or expired one.
    pub fn token(&self, id: &str) -> Option<Zeroizing<String>> {
        self.token_until(id).map(|(token, _)| token)
    }

    /// The same, and when the session ends, in seconds since 1970.
    pub(crate) fn token_until(&self, id: &str) -> Option<(Zeroizing<String>, f64)> {
        let hash = hash_of(id);
        let state = self.state.lock();
        let session = state.sessions.get(&hash)?;
        if session.expire <= self.now() {
            return None;
        }
        let token = Zeroizing::new(sealed(id, &session.sealed));
        let token = std::str::from_utf8(&token).ok()?;
        Some((Zeroizing::new(token.to_owned()), session.expire))
    }

    /// Ends a session. Blocks: it removes a file.
    pub fn end(&self, id: &str) {
        let hash = hash_of(id);
        if self.state.lock().sessions.remove(&hash).is_some() {
            self.remove_file(&hash);
        }
    }

    /// Removes the expired ones, if that was not done lately.
    fn sweep(&self) {
        let now = self.clock.unix();
        let expired: Vec<IdHash> = {
            let mut state = self.state.lock();
            let interval = i64::try_from(SWEEP_INTERVAL.as_secs()).unwrap_or(i64::MAX);
            if now - state.swept < interval && state.sessions.len() < MAX_SESSIONS {
                return;
            }
            state.swept = now;
            let all = state.sessions.iter();
            let expired = all.filter(|(_, session)| session.expire <= now as f64);
            let expired: Vec<IdHash> = expired.map(|(hash, _)| *hash).collect();
            for hash in &expired {
                state.sessions.remove(hash);
            }
            expired
        };
        for hash in &expired {
            self.remove_file(hash);
        }
    }

    fn remove_file(&self, hash: &IdHash) {
        let name = hex(hash);
        self.shared.remove(self.kind, &name);
        if let Err(error) = files::remove(&self.dir.join(&name)) {
            tracing::warn!(%error, "the file of a session that has ended cannot be removed");
        }
    }
}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// As many as there may be.
    #[error("there are too many sessions")]
    TooMany,
    /// The token is longer than tokens are.
    #[error("the token is too long")]
    Token,
    /// No random bytes.
    #[error("the system gives no random bytes")]
    Random(#[source] getrandom::Error),
    /// It cannot be kept.
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn hash_of(id: &str) -> IdHash {
    Sha256::digest(id.as_bytes()).into()
}

/// Seals or unseals a token: exclusive-or with a key stream made of the id. Each id seals one token,
/// so no part of the stream is used twice.
fn sealed(id: &str, token: &[u8]) -> Vec<u8> {
    let mut sealed = Vec::with_capacity(token.len());
    for (number, block) in (0_u32..).zip(token.chunks(32)) {
        let mut mac = Hmac::<Sha256>::new_from_slice(id.as_bytes())
            .expect("invariant: HMAC takes keys of any length");
        mac.update(b"saltern session token");
        mac.update(&number.to_be_bytes());
        let stream = mac.finalize().into_bytes();
        sealed.extend(block.iter().zip(stream).map(|(byte, key)| byte ^ key));
    }
    sealed
}

fn parse(text: &str) -> Option<Session> {
    let (expire, sealed) = text.trim_end().split_once('\n')?;
    Some(Session {
        sealed: unhex(sealed)?,
        expire: expire.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    fn open(dir: PathBuf, clock: Clock) -> Result<Sessions, StoreError> {
        Sessions::open(dir, clock, (&SharedState::default(), StateKind::ApiSession))
    }

    const TOKEN: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn clock() -> Clock {
        Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000))
    }

    #[test]
    fn session_survives_a_restart_and_leaks_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("sessions");
        let id = {
            let sessions = open(dir.clone(), clock()).unwrap();
            sessions.create(TOKEN, 2_000.5).unwrap()
        };
        assert_eq!(id.len(), 40);
        for entry in std::fs::read_dir(&dir).unwrap() {
            let entry = entry.unwrap();
            let text = std::fs::read_to_string(entry.path()).unwrap();
            let name = entry.file_name().into_string().unwrap();
            for secret in [id.as_str(), TOKEN] {
                assert!(!text.contains(secret) && !name.contains(secret));
            }
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(
                entry.metadata().unwrap().permissions().mode() & 0o777,
                0o600
            );
        }
        let again = open(dir, clock()).unwrap();
        assert_eq!(again.token(&id).unwrap().as_str(), TOKEN);
        assert!(again.token(&"0".repeat(40)).is_none());
        again.end(&id);
        assert!(again.token(&id).is_none());
    }

    #[test]
    fn expired_session_is_gone_and_swept() {
        let dir = tempfile::tempdir().unwrap();
        let clock = clock();
        let sessions = open(dir.path().to_owned(), clock.clone()).unwrap();
        let id = sessions.create(TOKEN, 1_100.0).unwrap();
        clock.advance(Duration::from_secs(100));
        assert!(sessions.token(&id).is_none());
        let other = sessions.create(TOKEN, 9_000.0).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        clock.set(SystemTime::UNIX_EPOCH + Duration::from_secs(9_001));
        open(dir.path().to_owned(), clock).unwrap();
        assert!(other.len() == 40 && std::fs::read_dir(dir.path()).unwrap().count() == 0);
    }

    #[test]
    fn damaged_session_file_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("x", "y"),
            (&*"0".repeat(64), "2000\nzz\n"),
            (&*"1".repeat(64), ""),
        ] {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        open(dir.path().to_owned(), clock()).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
