//! Minions whose last authentication used an algorithm with SHA-1: kept in a small file, where
//! `saltern doctor` finds them. Under `fips_mode` they are those that cannot connect.
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

/// The list. Written with an authentication: one that changed it within [`WRITE_INTERVAL`] of another
/// is written with the next. Minions that are refused come again within seconds.
pub struct Sha1Minions {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    minions: BTreeSet<MinionId>,
    bytes: usize,
    is_changed: bool,
    written_at: Option<i64>,
}

impl Sha1Minions {
    /// Starts with an empty list in the directory of this master's own files.
    pub(crate) fn new(private_dir: &Path) -> Self {
        let path = private_dir.join("sha1_minions");
        if let Err(error) = files::remove(&path) {
            tracing::warn!(%error, "the list of minions with SHA-1 cannot be cleared");
        }
        Self {
            path,
            state: Mutex::default(),
        }
    }

    /// Takes note of an authentication, at a time in seconds since 1970.
    pub fn note(&self, minion: &MinionId, uses_sha1: bool, now: i64) {
        let mut state = self.state.lock();
        let bytes = minion.as_str().len() + 1;
        if !uses_sha1 {
            if state.minions.remove(minion) {
                state.bytes -= bytes;
                state.is_changed = true;
            }
        } else if !state.minions.contains(minion) && state.bytes + bytes <= MAX_BYTES {
            state.minions.insert(minion.clone());
            state.bytes += bytes;
            state.is_changed = true;
        }
        self.write(&mut state, now);
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

/// The minions whose last authentication with the master that runs or ran last used SHA-1, sorted.
///
/// # Errors
/// When the list is there and cannot be read.
pub fn minions_with_sha1(private_dir: &Path) -> Result<Vec<MinionId>> {
    let text = files::read_replaceable(&private_dir.join("sha1_minions"), MAX_BYTES)?;
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
        Sha1Minions::new(dir.path());
        assert!(listed().is_empty(), "a start begins anew");
    }
}
