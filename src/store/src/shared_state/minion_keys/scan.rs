//! The keys on disk. A look costs one `stat` for each directory while none comes or goes; all files are looked
//! at when one does, and when the caller asks for it: a file that is written in its place changes no directory.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use saltern_base::chain;
use saltern_base::log_throttle::LogThrottle;
use saltern_model::{KeyState, MinionId};

use super::record::{Digest, Digests, KeyRecord, MAX_KEY_LEN, digest, place_of};
use crate::PkiTree;
use crate::error::Result;
use crate::files::Version;

/// Minimum time between two log lines about files that cannot be read.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// A key file as it was read.
struct SeenKey {
    state: KeyState,
    version: Version,
    is_settled: bool,
    /// `None` for a file that holds no key.
    digest: Option<Digest>,
}

/// All key files as they were read.
pub(super) struct Scanner {
    tree: Arc<PkiTree>,
    /// Those that are as they were when they were listed.
    directories: [Option<Version>; 4],
    keys: HashMap<MinionId, Vec<SeenKey>>,
    /// Minions whose files were changed since somebody asked.
    changed: HashSet<MinionId>,
    /// Minions of which a file could not be read when it was looked at last.
    unreadable: HashMap<MinionId, HashSet<usize>>,
    failures: LogThrottle,
}

impl Scanner {
    pub(super) fn new(tree: Arc<PkiTree>) -> Self {
        Self {
            tree,
            directories: [None; 4],
            keys: HashMap::new(),
            changed: HashSet::new(),
            unreadable: HashMap::new(),
            failures: LogThrottle::new(LOG_INTERVAL),
        }
    }

    /// Looks at the directories that were changed, or at all.
    ///
    /// # Errors
    /// A directory cannot be listed.
    pub(super) fn scan(&mut self, is_full: bool) -> Result<()> {
        for state in KeyState::ALL {
            let version = self.tree.directory_version(state)?;
            let known = self.directories.get(place_of(state)).copied().flatten();
            if !is_full && known == Some(version) {
                continue;
            }
            // Asked before listing.
            let is_settled = version.is_settled();
            let ids = self.tree.list(state)?;
            for id in &ids {
                self.look(id, state);
            }
            let present: HashSet<&MinionId> = ids.iter().collect();
            let is_gone = |key: &SeenKey| key.state == state;
            let gone = self
                .keys
                .iter()
                .filter(|(id, keys)| keys.iter().any(is_gone) && !present.contains(*id));
            let gone: Vec<MinionId> = gone.map(|(id, _)| id.clone()).collect();
            for id in gone {
                self.forget(&id, state);
            }
            if let Some(slot) = self.directories.get_mut(place_of(state)) {
                *slot = is_settled.then_some(version);
            }
        }
        Ok(())
    }

    /// Looks at the files of one minion.
    pub(super) fn look_at(&mut self, id: &MinionId) {
        for state in KeyState::ALL {
            self.look(id, state);
        }
    }

    /// Looks at one file. One that cannot be read concerns its minion only, which has no keys that are known then.
    fn look(&mut self, id: &MinionId, state: KeyState) {
        match self.try_look(id, state) {
            Ok(()) => self.is_readable(id, state),
            Err(error) => {
                let unreadable = self.unreadable.entry(id.clone()).or_default();
                unreadable.insert(place_of(state));
                if let Some(times) = self.failures.record() {
                    let error = chain(&error);
                    tracing::warn!(
                        error,
                        times,
                        "a minion's key is not shared with the cluster"
                    );
                }
            }
        }
    }

    fn is_readable(&mut self, id: &MinionId, state: KeyState) {
        if let Some(unreadable) = self.unreadable.get_mut(id) {
            unreadable.remove(&place_of(state));
            if unreadable.is_empty() {
                self.unreadable.remove(id);
            }
        }
    }

    fn try_look(&mut self, id: &MinionId, state: KeyState) -> Result<()> {
        let Some(version) = self.tree.version(id, state)? else {
            self.forget(id, state);
            return Ok(());
        };
        let known = self.keys.get(id).and_then(|keys| key_of(keys, state));
        if known.is_some_and(|known| known.is_settled && known.version == version) {
            return Ok(());
        }
        let is_settled = version.is_settled();
        let digest = match read(&self.tree, id, state)? {
            Read::Key(pem) => Some(digest(&pem)),
            Read::Unusable => None,
            Read::Nothing => {
                self.forget(id, state);
                return Ok(());
            }
        };
        let is_same = known.is_some_and(|known| known.digest == digest);
        let keys = self.keys.entry(id.clone()).or_default();
        keys.retain(|key| key.state != state);
        keys.push(SeenKey {
            state,
            version,
            is_settled,
            digest,
        });
        if !is_same {
            self.changed.insert(id.clone());
        }
        Ok(())
    }

    fn forget(&mut self, id: &MinionId, state: KeyState) {
        let Some(keys) = self.keys.get_mut(id) else {
            return;
        };
        let before = keys.len();
        keys.retain(|key| key.state != state);
        if keys.len() != before {
            self.changed.insert(id.clone());
        }
        if keys.is_empty() {
            self.keys.remove(id);
        }
    }

    /// The keys of a minion; `None` when a file of it holds none or cannot be read.
    pub(super) fn keys(&self, id: &MinionId) -> Option<Digests> {
        if self.unreadable.contains_key(id) {
            return None;
        }
        let mut digests = Digests::default();
        for key in self.keys.get(id).into_iter().flatten() {
            digests.set(key.state, Some(key.digest?));
        }
        Some(digests)
    }

    /// All minions that have a file.
    pub(super) fn ids(&self) -> impl Iterator<Item = &MinionId> {
        self.keys.keys()
    }

    /// The minions whose files were changed since the last call.
    pub(super) fn take_changed(&mut self) -> HashSet<MinionId> {
        std::mem::take(&mut self.changed)
    }
}

fn key_of(keys: &[SeenKey], state: KeyState) -> Option<&SeenKey> {
    keys.iter().find(|key| key.state == state)
}

/// Content of a key file.
enum Read {
    Key(String),
    /// No text, or too long: nothing that a master or `salt-key` wrote.
    Unusable,
    Nothing,
}

fn read(tree: &PkiTree, id: &MinionId, state: KeyState) -> Result<Read> {
    match tree.stored_pem(id, state) {
        Ok(Some(pem)) if pem.len() <= MAX_KEY_LEN => Ok(Read::Key(pem)),
        Ok(Some(_)) => Ok(Read::Unusable),
        Ok(None) => Ok(Read::Nothing),
        Err(error) if error.is_damaged() => Ok(Read::Unusable),
        Err(error) => Err(error),
    }
}

/// The keys of a minion as they are on disk now; `None` when a file of it holds none.
///
/// # Errors
/// A file cannot be read.
pub(super) fn read_record(tree: &PkiTree, id: &MinionId) -> Result<Option<KeyRecord>> {
    let mut record = KeyRecord::default();
    for state in KeyState::ALL {
        match read(tree, id, state)? {
            Read::Key(pem) => record.set(state, Some(pem)),
            Read::Unusable => return Ok(None),
            Read::Nothing => {}
        }
    }
    Ok(Some(record))
}
