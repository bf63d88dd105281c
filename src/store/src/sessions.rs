//! One symmetric key a minion, for its requests and their replies.
//!
//! They lie where stock keeps them, `cachedir/sessions/<id>`, so minions stay logged in over a
//! restart and over a change between stock and this master. A file's modification time is the
//! clock of its rotation (`salt/channel/server.py`, `session_key`).
//!
//! In a cluster the files are shared ([`crate::shared_state`]), behind the reply: a minion whose key is
//! lost on the way authenticates with the master that takes over, and nothing else is lost.
//!
//! Minions that came together do not all authenticate again together: each session lasts a little
//! less than `publish_session`, by an amount that depends on the minion's id.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use dashmap::{DashMap, Entry};
use saltern_base::clock::Clock;
use saltern_base::fail_point::FailPoint;
use saltern_config::MasterConfig;
use saltern_crypto::{Crypticle, KeyString, SecretString};
use saltern_model::MinionId;

use crate::error::{Result, StoreError};
use crate::files::{self, Create, Stat, Version};
use crate::minion_clocks::MinionClocks;
use crate::options::StoreOptions;
use crate::replay::ReplayWindow;
use crate::sha1_minions::Sha1Minions;
use crate::shared_state::{SharedState, StateKind};

/// A key string has 76 bytes; whatever is larger is none.
const FILE_BYTES: usize = 1 << 10;

/// A minion's session.
pub struct Session {
    /// The key as it is sent to the minion.
    pub key: KeyString,
    /// The key made ready for use.
    pub crypticle: Crypticle,
    /// Requests under it that were carried out.
    pub replay: ReplayWindow,
    /// Whether it was given out by [`Sessions::under_made_key`].
    pub is_under_made_key: bool,
    /// That session, once it was needed.
    under_made_key: OnceLock<Arc<Session>>,
}

impl Session {
    fn new(key: KeyString, replay: ReplayWindow) -> Self {
        let crypticle = Crypticle::new(&key);
        Self {
            key,
            crypticle,
            replay,
            is_under_made_key: false,
            under_made_key: OnceLock::new(),
        }
    }

    /// Whether the next authentication of the minion is to get a new key.
    fn needs_new_key(&self) -> bool {
        let other = self.under_made_key.get();
        self.replay.needs_new_key() || other.is_some_and(|other| other.replay.needs_new_key())
    }
}

/// The sessions of all minions.
pub struct Sessions {
    dir: PathBuf,
    lifetime: Duration,
    clock: Clock,
    known: DashMap<MinionId, Remembered>,
    /// Whether the log has a line about the disk's clock.
    has_complained: AtomicBool,
    replay_window: Duration,
    shared: SharedState,
    /// Nonces that are remembered in all sessions.
    nonces: Arc<AtomicUsize>,
    /// Clocks of the minions, as their requests show them.
    pub clocks: MinionClocks,
    /// Minions that authenticated with SHA-1.
    pub sha1: Sha1Minions,
}

/// Seconds by which the clocks of a disk and a machine may differ.
const CLOCKS_DIFFER: i64 = 60;

struct Remembered {
    version: Version,
    settled: bool,
    session: Arc<Session>,
    /// When this process made it, in microseconds since 1970. The file may say something else: a
    /// file server has a clock of its own.
    made: Option<i64>,
}

impl Remembered {
    /// Identity of the file, and when it was made.
    fn made_at(&self) -> Option<(Version, i64)> {
        self.made.map(|made| (self.version, made))
    }
}

impl Sessions {
    /// Opens `cachedir/sessions` of a configuration, which is made when it is not there.
    pub fn open(config: &MasterConfig, clock: Clock) -> Result<Self> {
        Self::with_options(&StoreOptions::from(config), clock)
    }

    /// The same with this crate's options.
    pub fn with_options(options: &StoreOptions, clock: Clock) -> Result<Self> {
        let dir = options.cachedir.join("sessions");
        files::ensure_dir(&dir, 0o700)?;
        Ok(Self {
            dir,
            lifetime: options.publish_session,
            clock,
            known: DashMap::new(),
            has_complained: AtomicBool::new(false),
            replay_window: options.replay_window,
            shared: SharedState::default(),
            nonces: Arc::default(),
            clocks: MinionClocks::new(&options.private_dir()),
            sha1: Sha1Minions::new(&options.private_dir()),
        })
    }

    /// The same, shared with the other masters of a cluster from here on.
    #[must_use]
    pub fn shared_by(self, shared: &SharedState) -> Self {
        let shared = shared.clone();
        Self { shared, ..self }
    }

    /// The session of a minion; `None` when it has none or its time is over.
    ///
    /// Costs one `stat` as long as the file is the one that was read. Unlike stock, which makes a
    /// key for any sender that claims to be a minion, this writes nothing: the sender has not
    /// proved its identity yet.
    pub fn get(&self, id: &MinionId) -> Result<Option<Arc<Session>>> {
        Ok(self.find(id)?.map(|(session, _)| session))
    }

    fn find(&self, id: &MinionId) -> Result<Option<(Arc<Session>, Version)>> {
        let path = files::child(&self.dir, id.as_str())?;
        let made = self.known.get(id).and_then(|known| known.made_at());
        let Some(stat) = self.current(&path, id, made)? else {
            self.known.remove(id);
            return Ok(None);
        };
        if let Some(known) = self.known.get(id)
            && known.settled
            && known.version == stat.version
        {
            return Ok(Some((Arc::clone(&known.session), known.version)));
        }
        // Locked from reading the file to the end: of two workers that meet a session first at once,
        // the second one finds the first one's, which knows the requests that were carried out.
        let entry = self.known.entry(id.clone());
        let Some(found) = self.read(&path, stat.version, id)? else {
            if let Entry::Occupied(known) = entry {
                known.remove();
            }
            return Ok(None);
        };
        let remembered = match &entry {
            // The same key again: keep what was made ready of it.
            Entry::Occupied(known) if known.get().session.key.same_as(&found.session.key) => {
                let known = known.get();
                Remembered {
                    session: Arc::clone(&known.session),
                    made: known.made.filter(|_| known.version == found.version),
                    ..found
                }
            }
            _ => found,
        };
        let known = entry.insert(remembered);
        Ok(Some((Arc::clone(&known.session), known.version)))
    }

    /// The session of a minion that has just proved that it has the key in `key_file`; a new one
    /// when its time is over, or when it is from before that file came to be there: then another
    /// key may have had this name, and its owner knows that session.
    pub fn get_or_create(&self, id: &MinionId, key_file: &Version) -> Result<Arc<Session>> {
        let is_of_this_key = |version: &Version| !version.is_from_before(key_file);
        if let Some((session, version)) = self.find(id)?
            && is_of_this_key(&version)
            && !session.needs_new_key()
        {
            return Ok(session);
        }
        let path = files::child(&self.dir, id.as_str())?;
        // Locked from reading the file to the end of writing it: of two workers that admit the
        // same minion at once, the second one finds the first one's key on the disk.
        let entry = self.known.entry(id.clone());
        let made = match &entry {
            Entry::Occupied(known) => known.get().made_at(),
            Entry::Vacant(_) => None,
        };
        let known = match &entry {
            Entry::Occupied(known) => Some(&known.get().session),
            Entry::Vacant(_) => None,
        };
        let found = match self.current(&path, id, made)? {
            Some(stat) if is_of_this_key(&stat.version) => self.read(&path, stat.version, id)?,
            _ => None,
        };
        let is_known = |found: &Remembered| known.filter(|it| it.key.same_as(&found.session.key));
        let remembered = match found {
            Some(found) => match is_known(&found).cloned() {
                Some(known) if known.needs_new_key() => self.create(&path, id)?,
                Some(session) => Remembered { session, ..found },
                None => found,
            },
            None => self.create(&path, id)?,
        };
        Ok(Arc::clone(&entry.insert(remembered).session))
    }

    /// The session of the same minion while the master's key is rotated, once the minion knows the
    /// key that was made: requests under it show which key their sender believes. Computed from the
    /// session before and the made key, and so the same after a restart.
    pub fn under_made_key(&self, session: &Session, made_key: &str) -> Arc<Session> {
        let derived = session.under_made_key.get_or_init(|| {
            let key = session.key.derived(made_key.as_bytes());
            let replay = self.replay(ReplayWindow::of_old_key);
            Arc::new(Session {
                is_under_made_key: true,
                ..Session::new(key, replay)
            })
        });
        Arc::clone(derived)
    }

    /// Ends a session, for instance because the minion's key was revoked.
    pub fn remove(&self, id: &MinionId) -> Result<bool> {
        let removed = files::remove(&files::child(&self.dir, id.as_str())?);
        self.known.remove(id);
        self.sha1.forget(id, self.clock.unix());
        if !matches!(removed, Ok(false)) {
            self.shared.remove(StateKind::Session, id.as_str());
        }
        removed
    }

    /// Ends the sessions of all minions but those to keep; gives how many.
    pub fn remove_all_but(&self, keep: impl Fn(&MinionId) -> bool) -> Result<usize> {
        self.sha1.forget_all_but(&keep, self.clock.unix());
        let failed = |source| StoreError::io("list", &self.dir, source);
        let mut removed = 0;
        for entry in std::fs::read_dir(&self.dir).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            // Files that are not named after a minion are not ours.
            let id = name.to_str().and_then(|name| MinionId::parse(name).ok());
            if let Some(id) = id.filter(|id| !keep(id)) {
                removed += usize::from(self.remove(&id)?);
            }
        }
        Ok(removed)
    }

    /// Forgets expired nonces of all sessions: a session by itself does so with its next request
    /// only.
    pub fn sweep_nonces(&self) {
        let now = self.clock.unix();
        for known in &self.known {
            known.session.replay.sweep(now);
            if let Some(other) = known.session.under_made_key.get() {
                other.replay.sweep(now);
            }
        }
    }

    /// How many nonces the sessions remember.
    pub fn nonces(&self) -> usize {
        self.nonces.load(Ordering::Relaxed)
    }

    /// How many sessions are in memory.
    pub fn remembered(&self) -> usize {
        self.known.len()
    }

    /// The file's `stat` if there is one whose time is not over.
    ///
    /// A lifetime of zero means that keys are not rotated by time. A file from the future (a clock
    /// that was set back) is current. The age of one that this process made is reckoned from when
    /// it did so: else, with a file server days behind, no session would ever be current.
    fn current(
        &self,
        path: &Path,
        id: &MinionId,
        made: Option<(Version, i64)>,
    ) -> Result<Option<Stat>> {
        let stat = Version::of(path, false)?.filter(Stat::is_file);
        let lifetime = self.lifetime.saturating_sub(earlier(self.lifetime, id));
        let lifetime = i64::try_from(lifetime.as_micros()).unwrap_or(i64::MAX);
        Ok(stat.filter(|stat| {
            let made = made.filter(|(version, _)| *version == stat.version);
            let from = made.map_or(stat.version.modified_micros(), |(_, made)| made);
            lifetime == 0 || self.clock.unix_micros().saturating_sub(from) <= lifetime
        }))
    }

    /// The session in a file; `None` when the file has gone, or is damaged or unreadable whatever
    /// its bytes are: then the minion authenticates, and gets a new one in its place.
    fn read(&self, path: &Path, version: Version, id: &MinionId) -> Result<Option<Remembered>> {
        // Asked before reading: what changes from here on has another stamp.
        let settled = version.is_settled();
        let unusable = |error: &(dyn std::error::Error + 'static)| {
            tracing::warn!(error, minion = %id, "a session file is damaged and not used");
            Ok(None)
        };
        let text = match files::read_text(path, FILE_BYTES) {
            Ok(Some(text)) => SecretString::new(text),
            Ok(None) => return Ok(None),
            Err(error) if error.is_damaged() || error.is_forbidden() => return unusable(&error),
            Err(error) => return Err(error),
        };
        match KeyString::parse(text.expose()) {
            Ok(key) => Ok(Some(Remembered {
                version,
                settled,
                session: Arc::new(Session::new(key, self.replay(ReplayWindow::of_old_key))),
                made: None,
            })),
            Err(error) => unusable(&error),
        }
    }

    /// A new key in its file. A power loss may take the file; the minion then authenticates again.
    fn create(&self, path: &Path, id: &MinionId) -> Result<Remembered> {
        let key = KeyString::generate();
        let create = Create::PRIVATE.derived();
        files::write_atomic(path, key.as_str().as_bytes(), create)?;
        FailPoint::SessionBetween.pass();
        let stat = Version::of(path, false)?.ok_or_else(|| StoreError::Missing {
            path: path.to_path_buf(),
            reason: "it was made a moment ago",
        })?;
        let now = self.clock.unix_micros();
        self.compare_clocks(path, &stat.version, now);
        let content = (key.as_str().as_bytes(), stat.version.modified_micros());
        self.shared.put(StateKind::Session, id.as_str(), content);
        Ok(Remembered {
            version: stat.version,
            settled: false,
            session: Arc::new(Session::new(key, self.replay(ReplayWindow::of_new_key))),
            made: Some(now),
        })
    }

    /// Logs once that the disk's clock is not this machine's.
    fn compare_clocks(&self, path: &Path, written: &Version, now: i64) {
        let behind = now.saturating_sub(written.modified_micros()) / 1_000_000;
        if behind.abs() > CLOCKS_DIFFER && !self.has_complained.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                path = %path.display(),
                "the clock of this disk is {behind} s behind this machine's: with more than \
                 publish_session minions authenticate anew after each restart; set both clocks"
            );
        }
    }

    fn replay(&self, make: fn(Duration, i64, &Arc<AtomicUsize>) -> ReplayWindow) -> ReplayWindow {
        make(self.replay_window, self.clock.unix(), &self.nonces)
    }
}

/// By how much the session of this minion ends earlier than configured: up to an eighth, so that
/// sessions made within a minute end over hours. The same at every look, also after a restart.
fn earlier(lifetime: Duration, id: &MinionId) -> Duration {
    const STEPS: u32 = 1 << 16;
    let mut hasher = DefaultHasher::new();
    id.as_str().hash(&mut hasher);
    let step = u32::try_from(hasher.finish() % u64::from(STEPS)).unwrap_or(0);
    lifetime / 8 / STEPS * step
}
