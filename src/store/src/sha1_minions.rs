//! Minions whose last authentication used an algorithm with SHA-1: kept in a small file, where
//! `saltern doctor` finds them. Under `fips_mode` they are those that cannot connect.
//!
//! The list outlasts a restart, as sessions do: a minion need not authenticate after one.
//!
//! Only of minions with an accepted key, so strangers cannot fill the list. Whoever has seen such a
//! key can put its minion on the list, or take it off, because `_auth` is not authenticated.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use saltern_model::MinionId;

use crate::error::Result;
use crate::files::{self, Create};

/// Maximum bytes of the listed ids; of more the first are enough to find the cause.
const MAX_BYTES: usize = 512 << 10;

/// Minimum seconds between two writes.
const WRITE_INTERVAL: i64 = 5;

/// The list. Written with an authentication: one that changed it within `WRITE_INTERVAL` of another
/// is written with the next, or by the maintenance.
pub struct Sha1Minions {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    minions: BTreeSet<MinionId>,
    bytes: usize,
    is_changed: bool,
    written_at: Option<i64>,
}

impl State {
    fn remove(&mut self, minion: &MinionId) {
        if self.minions.remove(minion) {
            self.bytes -= bytes_of(minion);
            self.is_changed = true;
        }
    }

    fn retain(&mut self, keep: impl Fn(&MinionId) -> bool) {
        let before = self.minions.len();
        self.minions.retain(keep);
        if self.minions.len() != before {
            self.bytes = self.minions.iter().map(bytes_of).sum();
            self.is_changed = true;
        }
    }
}

/// Bytes of a minion in the file.
fn bytes_of(minion: &MinionId) -> usize {
    minion.as_str().len() + 1
}

fn path_in(private_dir: &Path) -> PathBuf {
    private_dir.join("sha1_minions")
}

impl Sha1Minions {
    /// Starts with the list in the directory of this master's own files; with an empty one where that
    /// cannot be read.
    pub(crate) fn new(private_dir: &Path) -> Self {
        let minions = minions_with_sha1(private_dir).unwrap_or_else(|error| {
            tracing::warn!(%error, "the list of minions with SHA-1 cannot be read: it begins anew");
            Vec::new()
        });
        let minions = BTreeSet::from_iter(minions);
        let state = State {
            bytes: minions.iter().map(bytes_of).sum(),
            minions,
            is_changed: false,
            written_at: None,
        };
        Self {
            path: path_in(private_dir),
            state: Mutex::new(state),
        }
    }

    /// Takes note of an authentication, at a time in seconds since 1970.
    pub fn note(&self, minion: &MinionId, uses_sha1: bool, now: i64) {
        let mut state = self.state.lock();
        let bytes = bytes_of(minion);
        if !uses_sha1 {
            state.remove(minion);
        } else if !state.minions.contains(minion) && state.bytes + bytes <= MAX_BYTES {
            state.minions.insert(minion.clone());
            state.bytes += bytes;
            state.is_changed = true;
        }
        self.write(&mut state, now);
    }

    /// Forgets a minion whose key is gone, at a time in seconds since 1970.
    pub(crate) fn forget(&self, minion: &MinionId, now: i64) {
        let mut state = self.state.lock();
        state.remove(minion);
        self.write(&mut state, now);
    }

    /// Forgets all minions but those to keep, at a time in seconds since 1970.
    pub(crate) fn forget_all_but(&self, keep: impl Fn(&MinionId) -> bool, now: i64) {
        let mut state = self.state.lock();
        state.retain(keep);
        self.write(&mut state, now);
    }

    /// Writes what has changed, at a time in seconds since 1970.
    pub fn flush(&self, now: i64) {
        self.write(&mut self.state.lock(), now);
    }

    fn write(&self, state: &mut State, now: i64) {
        let is_due = state
            .written_at
            .is_none_or(|at| !(0..WRITE_INTERVAL).contains(&now.saturating_sub(at)));
        if !state.is_changed || !is_due {
            return;
        }
        let text: String = state.minions.iter().map(|id| format!("{id}\n")).collect();
        let written = files::write_atomic(&self.path, text.as_bytes(), Create::PRIVATE.derived());
        state.written_at = Some(now);
        match written {
            Ok(()) => state.is_changed = false,
            Err(error) => {
                tracing::debug!(%error, "the list of minions with SHA-1 cannot be written")
            }
        }
    }
}

/// The listed minions, sorted, also those whose keys have gone since. A damaged list counts as missing,
/// with a line in the log.
///
/// # Errors
/// When the list is there and cannot be read.
pub fn minions_with_sha1(private_dir: &Path) -> Result<Vec<MinionId>> {
    let text = files::read_replaceable(&path_in(private_dir), MAX_BYTES)?;
    let text = text.unwrap_or_default();
    let ids = text.lines().filter_map(|line| MinionId::parse(line).ok());
    Ok(ids.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minion_is_listed_until_it_authenticates_without_sha1() {
        let dir = tempfile::tempdir().unwrap();
        let minions = Sha1Minions::new(dir.path());
        let id = |text: &str| MinionId::parse(text).unwrap();
        let listed = || minions_with_sha1(dir.path()).unwrap();
        let now = 1_795_000_000;
        minions.note(&id("new"), false, now);
        assert!(listed().is_empty());
        minions.note(&id("old"), true, now);
        assert_eq!(listed(), [id("old")]);
        minions.note(&id("also"), true, now + 1);
        assert_eq!(listed().len(), 1, "not written again at once");
        minions.note(&id("also"), true, now + WRITE_INTERVAL);
        assert_eq!(listed(), [id("also"), id("old")]);
        minions.note(&id("old"), false, now + 2 * WRITE_INTERVAL);
        assert_eq!(listed(), [id("also")]);
        for number in 0..MAX_BYTES / 100 {
            minions.note(&id(&format!("m{number:0110}")), true, now);
        }
        minions.note(&id("last"), true, now + 3 * WRITE_INTERVAL);
        assert!(listed().len() > 1_000);
    }

    #[test]
    fn list_outlasts_a_restart_and_forgets_minions_without_keys() {
        let dir = tempfile::tempdir().unwrap();
        let id = |text: &str| MinionId::parse(text).unwrap();
        let listed = || minions_with_sha1(dir.path()).unwrap();
        let now = 1_795_000_000;
        Sha1Minions::new(dir.path()).note(&id("one"), true, now);
        Sha1Minions::new(dir.path()).note(&id("two"), true, now);
        assert_eq!(listed(), [id("one"), id("two")]);
        let minions = Sha1Minions::new(dir.path());
        minions.note(&id("three"), true, now);
        minions.forget_all_but(|minion| *minion != id("one"), now + WRITE_INTERVAL);
        assert_eq!(listed(), [id("three"), id("two")]);
        minions.forget(&id("three"), now + WRITE_INTERVAL);
        minions.flush(now + 2 * WRITE_INTERVAL);
        assert_eq!(listed(), [id("two")]);
        let minions = Sha1Minions::new(dir.path());
        minions.note(&id("two"), false, now);
        assert!(listed().is_empty());
    }

    #[test]
    fn damaged_list_begins_anew() {
        let id = MinionId::parse("one").unwrap();
        for damage in [&b"\xff\xfe"[..], &vec![b'x'; MAX_BYTES + 1]] {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(path_in(dir.path()), damage).unwrap();
            let minions = Sha1Minions::new(dir.path());
            minions.note(&id, true, 1_795_000_000);
            assert_eq!(
                minions_with_sha1(dir.path()).unwrap().as_slice(),
                std::slice::from_ref(&id)
            );
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(path_in(dir.path())).unwrap();
        Sha1Minions::new(dir.path()).note(&id, true, 1_795_000_000);
    }
}
