//! The tree as a mirror: single files, whatever lies beside them. Used by members of a cluster.

use std::fs::File;
use std::io;
use std::path::PathBuf;

use saltern_model::{KeyState, MinionId};

use saltern_crypto::clean_key;

use super::{KEY_BYTES, PkiTree};
use crate::error::{Result, StoreError};
use crate::files::{self, Version};

/// Files of which each is synced by itself; of more the whole file system is.
const MAX_SINGLE_SYNCS: usize = 32;

impl PkiTree {
    /// The version of the directory of a state: it changes with each key that comes or goes.
    pub(crate) fn directory_version(&self, state: KeyState) -> Result<Version> {
        let path = self.root.join(state.directory());
        let stat = Version::of(&path, true)?.ok_or_else(|| StoreError::Missing {
            path,
            reason: "keys of minions lie there",
        })?;
        Ok(stat.version)
    }

    /// Writes a key, or removes it, and nothing else; not yet on the disk
    /// ([`sync_keys`](Self::sync_keys)).
    pub(crate) fn put(&self, id: &MinionId, state: KeyState, pem: Option<&str>) -> Result<()> {
        match pem {
            Some(pem) => self.write_derived(id, state, pem),
            None => self.remove(id, state).map(|_| ()),
        }
    }

    /// Waits until keys that came or went are on the disk.
    pub(crate) fn sync_keys(&self, ids: &[MinionId]) -> Result<()> {
        if ids.len() > MAX_SINGLE_SYNCS {
            let failed = |source| StoreError::io("write to the disk", &self.root, source);
            let root = File::open(&self.root).map_err(failed)?;
            return rustix::fs::syncfs(root).map_err(|error| failed(error.into()));
        }
        for state in KeyState::ALL {
            for id in ids {
                let path = self.path(id, state)?;
                match File::open(&path).and_then(|file| file.sync_all()) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => {
                        return Err(StoreError::io("write to the disk", path, error));
                    }
                    _ => {}
                }
            }
            files::sync_dir(&self.root.join(state.directory()))?;
        }
        Ok(())
    }

    /// The files that the public half of the master's own key may have.
    pub(crate) fn master_public_files(&self) -> &[PathBuf] {
        &self.master_public_files
    }

    /// Whether the directory has this public key of a master: it is that master's then.
    pub fn is_of_master(&self, public_pem: &str) -> Result<bool> {
        for path in &self.master_public_files {
            let text = files::read_text(path, KEY_BYTES)?;
            if text.is_some_and(|text| clean_key(&text) == clean_key(public_pem)) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
