//! The tree of minion keys under `pki_dir`, exactly as stock keeps it.
//!
//! The disk is the source of truth: stock's `salt-key` works on the same files at the same time,
//! and its changes hold from the next message. Keys are cached; every lookup costs one `stat`,
//! which shows whether the cached key is current. Which state a minion gets is decided above this
//! crate.
//!
//! Sources: `salt/key.py`, `salt/channel/server.py` (`_auth`), `salt/cache/localfs_key.py` and
//! `salt/daemons/masterapi.py` (`AutoKey`).

mod accepted;
mod key_cache;
mod mirrored;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use dashmap::DashMap;
use parking_lot::RwLock;
use saltern_base::clock::Clock;
use saltern_config::MasterConfig;
use saltern_crypto::{PublicKey, clean_key};
use saltern_model::{Compat, KeyState, MinionId};

pub use accepted::{AcceptedIds, AcceptedKey};

use crate::error::{Result, StoreError};
use crate::files::{self, Create, Stat, Version};
use crate::master_keys::stem;
use crate::options::StoreOptions;

/// A public key of 16384 bits has less than 3 KiB of PEM.
const KEY_BYTES: usize = 64 << 10;

/// The directory of autosign stubs.
const AUTOSIGN: &str = "minions_autosign";

/// The minion keys on disk.
pub struct PkiTree {
    root: PathBuf,
    /// The files that the public half of the master's own key may have.
    master_public_files: Vec<PathBuf>,
    compat: Compat,
    clock: Clock,
    keys: DashMap<MinionId, RememberedKey>,
    ids: RwLock<Option<RememberedIds>>,
}

struct RememberedKey {
    version: Version,
    settled: bool,
    key: Arc<AcceptedKey>,
}

struct RememberedIds {
    version: Version,
    settled: bool,
    ids: Arc<AcceptedIds>,
}

impl PkiTree {
    /// Opens the tree of a configuration and makes the directories that are missing.
    pub fn open(config: &MasterConfig, clock: Clock) -> Result<Self> {
        Self::with_options(&StoreOptions::from(config), clock)
    }

    /// The tree of a configuration as it is there: nothing is made, nor is a mode changed.
    pub fn existing(config: &MasterConfig, clock: Clock) -> Self {
        Self::of_options(&StoreOptions::from(config), clock)
    }

    /// The same with this crate's options.
    ///
    /// As stock does at start (`salt/utils/verify.py`, `verify_env`), `pki_dir` is brought to mode
    /// 0700 unless it has 0700 or 0750; the directories in it are made with 0755.
    pub fn with_options(options: &StoreOptions, clock: Clock) -> Result<Self> {
        let root = &options.pki_dir;
        files::ensure_dir(root, 0o700)?;
        restrict(root)?;
        for name in KeyState::ALL
            .map(KeyState::directory)
            .iter()
            .chain(&[AUTOSIGN])
        {
            files::ensure_dir(&root.join(name), 0o755)?;
        }
        Ok(Self::of_options(options, clock))
    }

    fn of_options(options: &StoreOptions, clock: Clock) -> Self {
        Self {
            root: options.pki_dir.clone(),
            master_public_files: ["master", stem(options)]
                .map(|stem| files::child(&options.pki_dir, &format!("{stem}.pub")))
                .into_iter()
                .flatten()
                .collect(),
            compat: options.compat,
            clock,
            keys: DashMap::new(),
            ids: RwLock::new(None),
        }
    }

    /// The state that decides an authentication, `None` for an unknown key.
    ///
    /// A key may lie in several directories; then the first of stock's order counts, which is
    /// rejected, accepted, pending in 3006 and 3007, and rejected, pending, accepted in 3008.
    /// [`KeyState::Denied`] is never the answer: a denied key is a note beside the others, see
    /// [`PkiTree::is_denied`].
    ///
    /// One thing is not left as it is found: a key that is accepted and, the same key, pending too.
    /// 3008's `salt-key -a` takes the pending key away before it writes the accepted one, and a
    /// minion that asks in between is written down as pending once more; under a stock master it
    /// then stays out until somebody accepts it again. Here the acceptance counts.
    pub fn state(&self, id: &MinionId) -> Result<Option<KeyState>> {
        let order = match self.compat {
            Compat::V3006 | Compat::V3007 => {
                [KeyState::Rejected, KeyState::Accepted, KeyState::Pending]
            }
            Compat::V3008 => [KeyState::Rejected, KeyState::Pending, KeyState::Accepted],
        };
        for state in order {
            if self.stat(id, state)?.is_some() {
                let is_left_over = state == KeyState::Pending && self.is_accepted_too(id)?;
                return Ok(Some(match is_left_over {
                    true => KeyState::Accepted,
                    false => state,
                }));
            }
        }
        Ok(None)
    }

    /// Whether the pending key is a copy of the accepted one; then it is removed.
    fn is_accepted_too(&self, id: &MinionId) -> Result<bool> {
        let Some(accepted) = self.stored_pem(id, KeyState::Accepted)? else {
            return Ok(false);
        };
        let pending = self.stored_pem(id, KeyState::Pending)?;
        let is_copy = pending.is_some_and(|pending| clean_key(&pending) == clean_key(&accepted));
        if is_copy && self.remove(id, KeyState::Pending)? {
            tracing::info!(minion = %id, "the key was accepted while the minion asked again");
        }
        Ok(is_copy)
    }

    /// Whether a key of this minion was denied.
    pub fn is_denied(&self, id: &MinionId) -> Result<bool> {
        Ok(self.stat(id, KeyState::Denied)?.is_some())
    }

    /// The key as it lies in the directory of `state`, not cleaned.
    pub fn stored_pem(&self, id: &MinionId, state: KeyState) -> Result<Option<String>> {
        match self.stat(id, state)? {
            Some(_) => files::read_text(&self.path(id, state)?, KEY_BYTES),
            None => Ok(None),
        }
    }

    /// Version of this key file, from one `stat`; `None` when there is none.
    pub fn version(&self, id: &MinionId, state: KeyState) -> Result<Option<Version>> {
        Ok(self.stat(id, state)?.map(|stat| stat.version))
    }

    /// Stores the key as accepted and takes it out of the pending ones.
    ///
    /// 3008 also takes it out of the rejected ones, 3006 and 3007 leave a rejected key rejected
    /// (it matters when `open_mode` is turned off again).
    pub fn accept(&self, id: &MinionId, pem: &str) -> Result<()> {
        self.write(id, KeyState::Accepted, pem)?;
        self.remove(id, KeyState::Pending)?;
        if self.compat == Compat::V3008 {
            self.remove(id, KeyState::Rejected)?;
        }
        Ok(())
    }

    /// Stores the key as waiting for an operator.
    pub fn pend(&self, id: &MinionId, pem: &str) -> Result<()> {
        self.write(id, KeyState::Pending, pem)
    }

    /// Stores the key as rejected and takes it out of the pending ones.
    pub fn reject(&self, id: &MinionId, pem: &str) -> Result<()> {
        self.write(id, KeyState::Rejected, pem)?;
        self.remove(id, KeyState::Pending)?;
        Ok(())
    }

    /// Keeps a key that did not match the known one, for the operator to see.
    pub fn deny(&self, id: &MinionId, pem: &str) -> Result<()> {
        self.write(id, KeyState::Denied, pem)
    }

    /// Moves the key as it is from one state to another; `false` when it was not there.
    pub fn move_to(&self, id: &MinionId, from: KeyState, to: KeyState) -> Result<bool> {
        if self.stat(id, from)?.is_none() {
            return Ok(false);
        }
        let (source, target) = (self.path(id, from)?, self.path(id, to)?);
        let moved = match fs::rename(&source, &target) {
            Ok(()) => true,
            // `salt-key` was quicker.
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(StoreError::io("move the key", source, error)),
        };
        self.forget(id);
        Ok(moved)
    }

    /// Removes the key from the directory of `state`; `false` when it was not there.
    pub fn remove(&self, id: &MinionId, state: KeyState) -> Result<bool> {
        let removed = files::remove(&self.path(id, state)?)?;
        if state == KeyState::Accepted {
            self.forget(id);
        }
        Ok(removed)
    }

    /// Uses up the stub that lets this minion in unseen; `true` when there was one.
    ///
    /// Stubs older than `timeout` are removed first, all of them; a `timeout` of zero keeps them
    /// for ever (`autosign_timeout`, in stock minutes).
    pub fn take_autosign_stub(&self, id: &MinionId, timeout: Duration) -> Result<bool> {
        let dir = self.root.join(AUTOSIGN);
        if !timeout.is_zero() {
            self.expire_stubs(&dir, timeout)?;
        }
        files::remove(&files::child(&dir, id.as_str())?)
    }

    /// The accepted key of a minion, ready for use; `None` when it is not accepted.
    ///
    /// Costs one `stat` as long as the file is the one that was read.
    ///
    /// # Errors
    /// [`StoreError::Key`] when the file holds no usable key.
    pub fn accepted_key(&self, id: &MinionId) -> Result<Option<Arc<AcceptedKey>>> {
        let Some(stat) = self.stat(id, KeyState::Accepted)? else {
            self.keys.remove(id);
            return Ok(None);
        };
        if let Some(known) = self.keys.get(id)
            && known.settled
            && known.version == stat.version
        {
            return Ok(Some(Arc::clone(&known.key)));
        }
        // Asked before reading: what changes from here on has another stamp.
        let settled = stat.version.is_settled();
        let path = self.path(id, KeyState::Accepted)?;
        let Some(text) = files::read_text(&path, KEY_BYTES)? else {
            self.keys.remove(id);
            return Ok(None);
        };
        // The same text again: keep the key, and with it what it remembers.
        if let Some(mut known) = self.keys.get_mut(id)
            && known.key.is_of(&text)
        {
            known.version = stat.version;
            known.settled = settled;
            return Ok(Some(Arc::clone(&known.key)));
        }
        let key = PublicKey::from_pem(&text).map_err(|source| StoreError::Key { path, source })?;
        let key = Arc::new(AcceptedKey::new(key));
        let remembered = RememberedKey {
            version: stat.version,
            settled,
            key: Arc::clone(&key),
        };
        self.keys.insert(id.clone(), remembered);
        Ok(Some(key))
    }

    /// All accepted ids. Costs one `stat` as long as the directory has not changed.
    pub fn accepted(&self) -> Result<Arc<AcceptedIds>> {
        let dir = self.root.join(KeyState::Accepted.directory());
        let stat = Version::of(&dir, true)?.ok_or_else(|| StoreError::Missing {
            path: dir.clone(),
            reason: "accepted keys lie there",
        })?;
        if let Some(known) = self.ids.read().as_ref()
            && known.settled
            && known.version == stat.version
        {
            return Ok(Arc::clone(&known.ids));
        }
        let settled = stat.version.is_settled();
        let ids = Arc::new(AcceptedIds::new(self.list(KeyState::Accepted)?));
        *self.ids.write() = Some(RememberedIds {
            version: stat.version,
            settled,
            ids: Arc::clone(&ids),
        });
        Ok(ids)
    }

    /// The ids with a key in this state, sorted. Hidden files and what is no regular file do not
    /// count, as with stock; a name that is no minion id is passed over.
    pub fn list(&self, state: KeyState) -> Result<Vec<MinionId>> {
        let dir = self.root.join(state.directory());
        let failed = |source| StoreError::io("list", &dir, source);
        let mut ids = Vec::new();
        for entry in fs::read_dir(&dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else {
                continue;
            };
            // From the directory itself, as a rule without a further call.
            let kind = entry.file_type().map_err(failed)?;
            let is_key = kind.is_file()
                || (kind.is_symlink() && self.follows_links() && entry.path().is_file());
            if is_key && let Ok(id) = MinionId::parse(name) {
                ids.push(id);
            }
        }
        ids.sort_unstable();
        Ok(ids)
    }

    /// How many keys are in this state.
    pub fn count(&self, state: KeyState) -> Result<usize> {
        match state {
            KeyState::Accepted => Ok(self.accepted()?.len()),
            _ => Ok(self.list(state)?.len()),
        }
    }

    fn path(&self, id: &MinionId, state: KeyState) -> Result<PathBuf> {
        files::child(&self.root.join(state.directory()), id.as_str())
    }

    /// The key file's `stat`, `None` when there is no key file that stock would take for one.
    fn stat(&self, id: &MinionId, state: KeyState) -> Result<Option<Stat>> {
        let stat = Version::of(&self.path(id, state)?, self.follows_links())?;
        Ok(stat.filter(Stat::is_file))
    }

    /// 3008's key driver takes no symbolic link for a key; the others do not look.
    fn follows_links(&self) -> bool {
        self.compat != Compat::V3008
    }

    /// 3008 strips the key and keeps it to its owner; the others write it as it came with the
    /// process umask.
    ///
    /// Any peer can cause a denied key, so it is written without waiting for the disk.
    fn write(&self, id: &MinionId, state: KeyState, pem: &str) -> Result<()> {
        let create = match state {
            KeyState::Denied => Create::PRIVATE.derived(),
            _ => Create::PRIVATE,
        };
        self.write_as(id, (state, pem), create)
    }

    fn write_derived(&self, id: &MinionId, state: KeyState, pem: &str) -> Result<()> {
        self.write_as(id, (state, pem), Create::PRIVATE.derived())
    }

    fn write_as(
        &self,
        id: &MinionId,
        (state, pem): (KeyState, &str),
        create: Create,
    ) -> Result<()> {
        let path = self.path(id, state)?;
        let (mode, content) = match self.compat {
            Compat::V3006 | Compat::V3007 => (0o644, pem),
            Compat::V3008 => (0o600, pem.trim()),
        };
        let written = files::write_atomic(&path, content.as_bytes(), create.mode(mode).above());
        if state == KeyState::Accepted {
            self.forget(id);
        }
        written
    }

    fn forget(&self, id: &MinionId) {
        self.keys.remove(id);
        *self.ids.write() = None;
    }

    fn expire_stubs(&self, dir: &Path, timeout: Duration) -> Result<()> {
        let failed = |source| StoreError::io("list", dir, source);
        let oldest = self.clock.now().checked_sub(timeout).unwrap_or(UNIX_EPOCH);
        for entry in fs::read_dir(dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let expired = entry
                .metadata()
                .is_ok_and(|meta| meta.is_file() && meta.modified().is_ok_and(|at| at < oldest));
            if expired && files::remove(&entry.path())? {
                tracing::warn!(stub = %entry.path().display(), "an autosign stub has expired");
            }
        }
        Ok(())
    }
}

/// Stock's rule for the mode of `pki_dir`.
fn restrict(root: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    let failed = |source| StoreError::io("restrict access to", root, source);
    let mode = fs::metadata(root).map_err(failed)?.permissions().mode() & 0o7777;
    if matches!(mode, 0o700 | 0o750) {
        return Ok(());
    }
    tracing::warn!(
        path = %root.display(),
        "pki_dir was open to others and is now open to its owner only"
    );
    fs::set_permissions(root, fs::Permissions::from_mode(0o700)).map_err(failed)
}
