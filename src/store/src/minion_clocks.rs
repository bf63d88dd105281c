//! Minions whose clocks differ from the master's: kept in a small file, where `saltern doctor`
//! finds them. A wrong clock is not held against a minion.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use saltern_model::MinionId;

use crate::error::Result;
use crate::files::{self, Create};

/// Clock skew above which a clock counts as wrong, in seconds.
const MAX_SKEW: i64 = 300;

/// Maximum number of minions listed; of more the first are enough to find the cause.
const MAX_MINIONS: usize = 100;

/// Minimum seconds between two writes.
const WRITE_INTERVAL: i64 = 60;

const FILE_BYTES: usize = 64 << 10;

/// The clocks that were wrong at the last request of their minion.
pub struct MinionClocks {
    path: PathBuf,
    /// Whether any minion is listed: a fast path for minions whose clock is right.
    has_any: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Seconds ahead of the master.
    skews: BTreeMap<MinionId, i64>,
    is_written: bool,
    written_at: Option<i64>,
}

impl MinionClocks {
    /// Starts with an empty list in the directory of this master's own files.
    pub(crate) fn new(private_dir: &Path) -> Self {
        let path = private_dir.join("minion_clocks");
        if let Err(error) = files::remove(&path) {
            tracing::warn!(%error, "the list of wrong clocks cannot be cleared");
        }
        Self {
            path,
            has_any: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// Takes note of the time that a minion wrote into a request, in seconds since 1970.
    pub fn note(&self, minion: &MinionId, ts: i64, now: i64) {
        let skew = ts.saturating_sub(now);
        let is_wrong = skew.saturating_abs() > MAX_SKEW;
        if !is_wrong && !self.has_any.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state.lock();
        if is_wrong {
            let has_room = state.skews.len() < MAX_MINIONS;
            if !state.skews.contains_key(minion) && has_room {
                tracing::warn!(%minion, seconds = skew, "the clock of a minion is wrong");
                state.skews.insert(minion.clone(), skew);
                state.is_written = false;
            }
        } else if state.skews.remove(minion).is_some() {
            tracing::info!(%minion, "the clock of a minion is right again");
            state.is_written = false;
        }
        self.write(&mut state, now);
        let has_any = !state.skews.is_empty() || !state.is_written;
        self.has_any.store(has_any, Ordering::Relaxed);
    }

    fn write(&self, state: &mut State, now: i64) {
        let is_due = state
            .written_at
            .is_none_or(|at| !(0..WRITE_INTERVAL).contains(&now.saturating_sub(at)));
        if state.is_written || !is_due {
            return;
        }
        let lines = state.skews.iter();
        let text: String = lines.map(|(id, skew)| format!("{skew} {id}\n")).collect();
        let written = files::write_atomic(&self.path, text.as_bytes(), Create::PRIVATE.derived());
        state.written_at = Some(now);
        match written {
            Ok(()) => state.is_written = true,
            Err(error) => tracing::debug!(%error, "the list of wrong clocks cannot be written"),
        }
    }
}

/// The minions whose clocks are wrong, by the master that runs or ran last, and by how many seconds
/// they are ahead.
///
/// # Errors
/// When the list is there and cannot be read.
pub fn wrong_clocks(private_dir: &Path) -> Result<Vec<(MinionId, i64)>> {
    let text = files::read_replaceable(&private_dir.join("minion_clocks"), FILE_BYTES)?;
    let text = text.unwrap_or_default();
    let parse = |line: &str| {
        let (skew, id) = line.split_once(' ')?;
        Some((MinionId::parse(id).ok()?, skew.parse().ok()?))
    };
    Ok(text.lines().filter_map(parse).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_clock_is_listed_until_it_is_right() {
        let dir = tempfile::tempdir().unwrap();
        let clocks = MinionClocks::new(dir.path());
        let id = |text: &str| MinionId::parse(text).unwrap();
        let listed = || wrong_clocks(dir.path()).unwrap();
        let now = 1_795_000_000;
        clocks.note(&id("right"), now - 300, now);
        assert!(listed().is_empty());
        clocks.note(&id("late"), now - 301, now);
        assert_eq!(listed(), [(id("late"), -301)]);
        clocks.note(&id("early"), now + 86_400, now);
        assert_eq!(listed().len(), 1, "not written again at once");
        clocks.note(&id("late"), now + 60, now + 60);
        assert_eq!(listed(), [(id("early"), 86_400)]);
        for number in 0..500 {
            let minion = id(&format!("m{number}"));
            clocks.note(&minion, 0, now + 200 + number);
        }
        clocks.note(&id("right"), now + 9_000, now + 9_000);
        assert_eq!(listed().len(), MAX_MINIONS);
        MinionClocks::new(dir.path());
        assert!(listed().is_empty(), "a start begins anew");
    }
}
