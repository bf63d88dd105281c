//! The list of accepted keys as a file, for programs that do not want to list the directory
//! (`key_cache: sched`; stock's own `salt.utils.minions` reads it instead of the directory).
//!
//! `pki_dir/minions/.key_cache`, a packed list of names (`salt/master.py`, `handle_key_cache`).
//! This master does not read it: its own list follows the directory.

use std::fs;

use saltern_model::{Compat, KeyState};
use saltern_wire::msgpack::{Dialect, Value, encode};

use super::PkiTree;
use crate::error::{Result, StoreError};
use crate::files::{self, Create};

/// Before the umask; stock's under its usual one.
const MODE: u32 = 0o644;

/// Room for a million names.
const FILE_BYTES: usize = 64 << 20;

impl PkiTree {
    /// Writes the list, unless the file holds it already; `false` in that case. Names that are no
    /// text are left out.
    ///
    /// # Errors
    /// When the directory cannot be listed or the file not be written.
    pub fn write_key_cache(&self) -> Result<bool> {
        let packed = encode(&Value::Array(self.cached_names()?), Dialect::Bin);
        let directory = self.root.join(KeyState::Accepted.directory());
        let path = directory.join(".key_cache");
        // A needless write would look like a change to programs that watch the directory.
        if files::read(&path, FILE_BYTES).is_ok_and(|kept| kept.as_deref() == Some(&packed)) {
            return Ok(false);
        }
        let create = Create::PRIVATE.mode(MODE).derived().above();
        files::write_atomic(&path, &packed, create).map(|()| true)
    }

    /// 3006 lists files only, the others whatever lies there; sorted, where stock has the order of
    /// the directory.
    fn cached_names(&self) -> Result<Vec<Value>> {
        let directory = self.root.join(KeyState::Accepted.directory());
        let failed = |source| StoreError::io("list", &directory, source);
        let mut names = Vec::new();
        for entry in fs::read_dir(&directory).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| !name.starts_with('.')) else {
                continue;
            };
            if self.compat != Compat::V3006 || entry.path().is_file() {
                names.push(name.to_owned());
            }
        }
        names.sort_unstable();
        Ok(names.into_iter().map(Value::from).collect())
    }
}
