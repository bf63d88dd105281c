//! The syndics below this master (`order_masters`): minions that stand for the minions of a master of
//! their own, and are none themselves.
//!
//! One empty file a syndic in `cachedir/syndics`, named by its id: stock's command line looks there
//! before it says that somebody did not return (`get_cli_event_returns` in `salt/client/__init__.py`),
//! and a master that comes back knows its syndics by them. Nobody is one without an accepted key, so
//! there are never more of them than keys.
//!
//! Not here: who may call itself a syndic (`requests`).

use std::collections::BTreeSet;
use std::path::PathBuf;

use parking_lot::RwLock;
use saltern_config::MasterConfig;
use saltern_model::MinionId;

use crate::error::Result;
use crate::files::{self, Create};

/// What stock's `open` asks for, before the umask.
const MODE: u32 = 0o666;

/// See the module.
pub struct SyndicStore {
    dir: PathBuf,
    known: RwLock<BTreeSet<MinionId>>,
}

impl SyndicStore {
    /// Reads who is known. Files whose name is no id are left alone.
    ///
    /// # Errors
    /// When the directory is there and cannot be read.
    pub fn open(config: &MasterConfig) -> Result<Self> {
        let dir = config.syndic_dir.clone();
        let mut known = BTreeSet::new();
        files::each_entry(&dir, |name, _| known.extend(MinionId::parse(name)))?;
        Ok(Self {
            dir,
            known: RwLock::new(known),
        })
    }

    /// Whether this is a syndic.
    pub fn has(&self, id: &MinionId) -> bool {
        self.known.read().contains(id)
    }

    /// All of them, sorted.
    pub fn ids(&self) -> Vec<MinionId> {
        self.known.read().iter().cloned().collect()
    }

    /// Whether this is so of any of them.
    pub fn any(&self, is_so: impl FnMut(&MinionId) -> bool) -> bool {
        self.known.read().iter().any(is_so)
    }

    /// This is a syndic from now on; whether that is new.
    ///
    /// # Errors
    /// When its file cannot be written; it is known all the same until the master ends.
    pub fn register(&self, id: &MinionId) -> Result<bool> {
        if self.has(id) {
            return Ok(false);
        }
        if !self.known.write().insert(id.clone()) {
            return Ok(false);
        }
        files::ensure_dir(&self.dir, 0o755)?;
        let path = files::child(&self.dir, id.as_str())?;
        files::create_new(&path, b"", Create::PRIVATE.mode(MODE))?;
        Ok(true)
    }

    /// This is no syndic any more; whether it was one.
    ///
    /// # Errors
    /// When its file cannot be removed; the next start would know it again.
    pub fn forget(&self, id: &MinionId) -> Result<bool> {
        if !self.known.write().remove(id) {
            return Ok(false);
        }
        files::remove(&files::child(&self.dir, id.as_str())?)
    }
}
