//! The files of keys, as each release of stock keeps and reads them; a master need not run.
//!
//! A listing reads directories only, never a key. 3006 and 3007 move files from directory to
//! directory. 3008 has one key of a minion beside the denied one: what it writes replaces the key in
//! every other state (`salt/cache/localfs_key.py`).

use std::ffi::CStr;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{FileType, Mode, OFlags, RawDir};
use saltern_config::MasterConfig;
use saltern_crypto::{HashType, PublicKey, pem_finger, text_finger};
use saltern_model::key_state::sorted_ignoring_case;
use saltern_model::{Compat, KeyState};
use saltern_runners::{KeyLists, LOCAL};
use saltern_store::files::{self, Create};

use super::error::KeyError;

/// A key of 16384 bits has less than 14 KiB of PEM.
const MAX_KEY_BYTES: usize = 64 << 10;

/// Bytes of directory entries that are read at once.
const ENTRIES: usize = 64 << 10;

/// The keys below a directory.
pub(super) struct KeyFiles {
    root: PathBuf,
    compat: Compat,
}

impl KeyFiles {
    /// The keys of a configuration: below `pki_dir`, with `cluster_id` below `cluster_pki_dir`.
    pub(super) fn of(config: &MasterConfig) -> Self {
        let compat = config.salt_compat;
        let text = |name: &str| config.command_default(name).and_then(|node| node.as_str());
        let is_cluster =
            compat != Compat::V3006 && text("cluster_id").is_some_and(|id| !id.is_empty());
        let cluster = text("cluster_pki_dir").filter(|_| is_cluster);
        let root = cluster.map_or_else(|| config.pki_dir.clone(), PathBuf::from);
        Self { root, compat }
    }

    /// The directory of the master's own keys.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The release whose layout this is.
    pub(super) const fn compat(&self) -> Compat {
        self.compat
    }

    /// The keys of minions (`Key.list_keys`). A directory that is not there has none.
    pub(super) fn managed(&self) -> Result<KeyLists, KeyError> {
        let order = KeyState::in_listings(self.compat);
        let mut lists = Vec::with_capacity(order.len());
        for state in order {
            let keys = self.list(state)?.unwrap_or_default();
            lists.push((state.directory().to_owned(), keys));
        }
        let mut lists = KeyLists::new(lists);
        if self.compat == Compat::V3008 {
            lists.leave_one_state_each();
        }
        Ok(lists)
    }

    /// With the master's own keys (`Key.all_keys`).
    pub(super) fn all(&self) -> Result<KeyLists, KeyError> {
        let mut lists = self.managed()?;
        let mut own = Vec::new();
        let follows = self.compat != Compat::V3008;
        self.each_name(&self.root, |name, entry| {
            let is_key = name.ends_with(".pub") || name.ends_with(".pem");
            if is_key && self.is_own_key(name, entry, follows) {
                own.push(name.to_owned());
            }
        })?;
        lists.push(LOCAL, sorted_ignoring_case(own));
        Ok(lists)
    }

    fn is_own_key(&self, name: &str, entry: FileType, follows: bool) -> bool {
        match entry {
            FileType::RegularFile => true,
            FileType::Directory => false,
            _ => is_file(&self.root.join(name), follows),
        }
    }

    /// The keys of one state, in stock's order; `None` where the directory does not exist. Names that
    /// are no text are left out.
    pub(super) fn list(&self, state: KeyState) -> Result<Option<Vec<String>>, KeyError> {
        let directory = self.root.join(state.directory());
        let mut names = Vec::new();
        let exists = self.each_name(&directory, |name, entry| {
            if self.is_listed(&directory, state, name, entry) {
                names.push(name.to_owned());
            }
        })?;
        Ok(exists.then(|| sorted_ignoring_case(names)))
    }

    /// Whether the release lists this entry as a key: 3006 lists files, 3007 any entry, 3008 files
    /// that are no links and are named as a minion may be.
    fn is_listed(&self, directory: &Path, state: KeyState, name: &str, entry: FileType) -> bool {
        let is_hidden = match (self.compat, state) {
            // The denied keys are listed by another function there.
            (Compat::V3008, KeyState::Denied) => name == ".key_cache",
            _ => name.starts_with('.'),
        };
        if is_hidden {
            return false;
        }
        match (self.compat, entry) {
            (Compat::V3007, _) => true,
            (Compat::V3008, _) if name.contains('\\') => false,
            (_, FileType::RegularFile) => true,
            (_, FileType::Directory) => false,
            (compat, _) => is_file(&directory.join(name), compat != Compat::V3008),
        }
    }

    /// Calls `each` with every name of a directory; `false` where there is none.
    fn each_name(
        &self,
        directory: &Path,
        mut each: impl FnMut(&str, FileType),
    ) -> Result<bool, KeyError> {
        let failed = |error: rustix::io::Errno| KeyError::file(directory, error.into());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = match rustix::fs::open(directory, flags, Mode::empty()) {
            Ok(opened) => opened,
            Err(rustix::io::Errno::NOENT) => return Ok(false),
            Err(error) => return Err(failed(error)),
        };
        let mut buffer = vec![MaybeUninit::uninit(); ENTRIES];
        let mut entries = RawDir::new(opened, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(failed)?;
            let name: &CStr = entry.file_name();
            if let Ok(name) = name.to_str()
                && !matches!(name, "." | "..")
            {
                each(name, entry.file_type());
            }
        }
        Ok(true)
    }

    /// The text of a key in a list.
    pub(super) fn text(&self, list: &str, name: &str) -> Result<String, KeyError> {
        let path = self.path(list, name)?;
        let missing = || KeyError::file(&path, io::ErrorKind::NotFound.into());
        files::read_text(&path, MAX_KEY_BYTES)?.ok_or_else(missing)
    }

    /// The fingerprint of a key in a list.
    pub(super) fn finger(
        &self,
        list: &str,
        name: &str,
        hash_type: HashType,
    ) -> Result<String, KeyError> {
        let path = self.path(list, name)?;
        let missing = || KeyError::file(&path, io::ErrorKind::NotFound.into());
        let pem = files::read(&path, MAX_KEY_BYTES)?.ok_or_else(missing)?;
        finger(self.compat, &pem, hash_type)
    }

    /// When the file of a key was last written; nothing where that is not known.
    pub(super) fn written(&self, list: &str, name: &str) -> Option<SystemTime> {
        let found = fs::symlink_metadata(self.path(list, name).ok()?);
        found.and_then(|found| found.modified()).ok()
    }

    /// Whether a minion could use the key in a list; nothing is held against one that is gone.
    pub(super) fn is_valid(&self, list: &str, name: &str) -> Result<bool, KeyError> {
        let text = files::read(&self.path(list, name)?, MAX_KEY_BYTES)?;
        Ok(text.is_none_or(|text| PublicKey::from_pem(text).is_ok()))
    }

    /// Moves a key to another state and gives its text, where 3008 shows that in its event.
    pub(super) fn move_key(
        &self,
        from: &str,
        to: KeyState,
        name: &str,
    ) -> Result<Option<String>, KeyError> {
        let source = self.path(from, name)?;
        let target = self.path(to.directory(), name)?;
        if self.compat != Compat::V3008 {
            files::ensure_dir(&self.root.join(to.directory()), 0o755)?;
            fs::rename(&source, &target).map_err(|error| KeyError::file(source, error))?;
            return Ok(None);
        }
        let text = self.text(from, name)?;
        files::ensure_dir(&self.root.join(to.directory()), 0o755)?;
        // The new state first, so that the minion has a key at every moment.
        files::write_atomic(&target, text.as_bytes(), Create::PRIVATE.above())?;
        for state in KeyState::ALL {
            let is_other = state != to && (state != KeyState::Denied || from == state.directory());
            if is_other {
                files::remove(&self.path(state.directory(), name)?)?;
            }
        }
        Ok(Some(text))
    }

    /// Removes a key; `false` when it was not there. 3008 removes it in every state but the denied
    /// one, which has a list of its own.
    pub(super) fn remove(&self, list: &str, name: &str) -> Result<bool, KeyError> {
        let states: &[KeyState] = match (self.compat, list) {
            (Compat::V3006 | Compat::V3007, _) | (_, "minions_denied") => {
                return Ok(files::remove(&self.path(list, name)?)?);
            }
            _ => &[KeyState::Accepted, KeyState::Pending, KeyState::Rejected],
        };
        let mut is_done = false;
        for state in states {
            is_done |= files::remove(&self.path(state.directory(), name)?)?;
        }
        Ok(is_done)
    }

    /// The path of a key in a list.
    pub(super) fn path(&self, list: &str, name: &str) -> Result<PathBuf, KeyError> {
        let directory = match list {
            LOCAL => self.root.clone(),
            list => files::child(&self.root, list)?,
        };
        Ok(files::child(&directory, name)?)
    }
}

/// The fingerprint of a key as a release shows it: 3008 hashes the PEM armour, too.
pub(super) fn finger(compat: Compat, pem: &[u8], hash_type: HashType) -> Result<String, KeyError> {
    Ok(match compat {
        Compat::V3006 | Compat::V3007 => pem_finger(pem, hash_type)?,
        Compat::V3008 => text_finger(pem, hash_type)?,
    })
}

fn is_file(path: &Path, follows: bool) -> bool {
    let found = match follows {
        true => fs::metadata(path),
        false => fs::symlink_metadata(path),
    };
    found.is_ok_and(|found| found.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(compat: Compat) -> (tempfile::TempDir, KeyFiles) {
        let folder = tempfile::tempdir().unwrap();
        for state in KeyState::ALL {
            fs::create_dir(folder.path().join(state.directory())).unwrap();
        }
        let root = folder.path().to_owned();
        (folder, KeyFiles { root, compat })
    }

    fn names(lists: &KeyLists) -> Vec<String> {
        let lists = lists.iter();
        lists
            .flat_map(|(list, keys)| keys.iter().map(move |key| format!("{list}/{key}")))
            .collect()
    }

    #[test]
    fn each_release_lists_what_it_takes_for_a_key() {
        for (compat, expected) in [
            (
                Compat::V3006,
                &["minions/a", "minions/link", "minions_pre/a"][..],
            ),
            (
                Compat::V3007,
                &["minions/a", "minions/dir", "minions/link", "minions_pre/a"],
            ),
            (Compat::V3008, &["minions_pre/a"]),
        ] {
            let (folder, files) = keys(compat);
            let write = |name: &str| fs::write(folder.path().join(name), "x").unwrap();
            write("minions/a");
            write("minions_pre/a");
            write("minions/.hidden");
            fs::create_dir(folder.path().join("minions/dir")).unwrap();
            let link = folder.path().join("minions/link");
            std::os::unix::fs::symlink(folder.path().join("minions/a"), link).unwrap();
            assert_eq!(names(&files.managed().unwrap()), expected, "{compat}");
        }
    }

    #[test]
    fn moved_key_is_in_one_place() {
        for compat in Compat::ALL {
            let (folder, files) = keys(compat);
            fs::write(folder.path().join("minions_pre/a"), "key").unwrap();
            files
                .move_key("minions_pre", KeyState::Accepted, "a")
                .unwrap();
            assert_eq!(names(&files.managed().unwrap()), ["minions/a"]);
            assert!(files.remove("minions", "a").unwrap());
            assert!(!files.remove("minions", "a").unwrap());
        }
    }

    #[test]
    fn missing_directory_has_no_list() {
        let (folder, files) = keys(Compat::V3006);
        fs::remove_dir(folder.path().join("minions_denied")).unwrap();
        assert_eq!(files.list(KeyState::Denied).unwrap(), None);
        assert!(files.managed().unwrap().keys("minions_denied").is_empty());
    }
}
