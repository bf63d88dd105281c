//! Files of histories that people read: what rules and jobs of the schedule did, over restarts.
//!
//! One file a history, bounded, readable by the master's user only, replaced as a whole. Nothing is
//! decided by one, so no write waits for the disk, and a damaged file counts as an empty history. Not
//! here: what a history holds, and when it is written.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use saltern_base::chain;
use saltern_base::log_throttle::LogThrottle;
use saltern_config::MasterConfig;
use saltern_wire::msgpack::{self, Dialect, Limits, pack};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Result, StoreError};
use crate::files::{self, Create};

/// Maximum size of a file, in bytes.
const MAX_BYTES: usize = 4 << 20;

/// Failed writes are logged at most once per `LOG_INTERVAL`.
const LOG_INTERVAL: Duration = Duration::from_secs(600);

/// Content of a file.
pub trait SavedHistory: Serialize + DeserializeOwned {
    /// Drops the older half of the entries; `false` when none is left.
    fn shorten(&mut self) -> bool;
}

/// File of one history. Changes are numbered by whoever keeps the history.
pub struct HistoryFile {
    path: PathBuf,
    /// The number of the last change that is written.
    written: AtomicU64,
    /// One write at a time: an older snapshot must not replace a newer one.
    turn: Mutex<()>,
    failures: LogThrottle,
}

impl HistoryFile {
    /// The file of a history of this name, among the master's own in its cache directory.
    pub fn new(config: &MasterConfig, name: &'static str) -> Self {
        Self {
            path: config.cachedir.join("saltern").join(name),
            written: AtomicU64::new(0),
            turn: Mutex::default(),
            failures: LogThrottle::new(LOG_INTERVAL),
        }
    }

    /// The history that an earlier process left; nothing where there is none, or none that can be
    /// read.
    pub fn read<T: SavedHistory>(&self) -> Option<T> {
        let read = files::read(&self.path, MAX_BYTES);
        let read = read.and_then(|packed| match packed {
            None => Ok(None),
            Some(packed) => match msgpack::from_slice(&packed, &Limits::WIRE) {
                Ok(history) => Ok(Some(history)),
                Err(_) => Err(StoreError::Malformed {
                    path: self.path.clone(),
                    reason: "it holds no history",
                }),
            },
        });
        read.unwrap_or_else(|error| {
            let error = chain(&error);
            tracing::warn!(error, "a history cannot be read, and begins anew");
            None
        })
    }

    /// Whether this change has not been written.
    pub fn lacks(&self, change: u64) -> bool {
        self.written.load(Ordering::Relaxed) != change
    }

    /// Writes a snapshot and the number of its last change. Blocks. A failure is logged; then the
    /// file still lacks the change.
    pub fn save<T: SavedHistory>(&self, snapshot: impl FnOnce() -> (T, u64)) {
        let _turn = self.turn.lock();
        let (history, change) = snapshot();
        if !self.lacks(change) {
            return;
        }
        match self.write(history) {
            Ok(()) => self.written.store(change, Ordering::Relaxed),
            Err(error) => {
                if let Some(times) = self.failures.record() {
                    let error = chain(&error);
                    tracing::warn!(
                        error,
                        times,
                        "a history cannot be written; it is tried again"
                    );
                }
            }
        }
    }

    fn write<T: SavedHistory>(&self, mut history: T) -> Result<()> {
        let packed = loop {
            let packed = pack(&history, Dialect::Bin);
            if packed.len() <= MAX_BYTES {
                break packed;
            }
            if !history.shorten() {
                return Err(StoreError::TooLarge {
                    path: self.path.clone(),
                    limit: MAX_BYTES,
                });
            }
        };
        if let Some(dir) = self.path.parent() {
            files::ensure_dir(dir, 0o700)?;
        }
        files::write_atomic(&self.path, &packed, Create::PRIVATE.derived())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Lines(Vec<String>);

    impl SavedHistory for Lines {
        fn shorten(&mut self) -> bool {
            self.0.truncate(self.0.len() / 2);
            !self.0.is_empty()
        }
    }

    fn lines(text: &str, count: usize) -> Lines {
        Lines(vec![text.to_owned(); count])
    }

    fn file(dir: &tempfile::TempDir) -> HistoryFile {
        HistoryFile {
            path: dir.path().join("saltern").join("a_history"),
            written: AtomicU64::new(0),
            turn: Mutex::default(),
            failures: LogThrottle::new(LOG_INTERVAL),
        }
    }

    #[test]
    fn history_is_read_by_the_next_process_and_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let kept = file(&dir);
        assert_eq!(kept.read::<Lines>(), None);
        assert!(!kept.lacks(0));
        kept.save(|| (lines("a", 3), 7));
        assert!(!kept.lacks(7) && kept.lacks(8));
        assert_eq!(file(&dir).read(), Some(lines("a", 3)));
        let mode = fs::metadata(&kept.path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn damaged_or_oversized_file_is_an_empty_history() {
        let dir = tempfile::tempdir().unwrap();
        let kept = file(&dir);
        kept.save(|| (lines("a", 3), 1));
        let whole = fs::read(&kept.path).unwrap();
        for damaged in [
            whole.get(..whole.len() - 1).unwrap(),
            b"",
            b"\x81\xa1a\x01",
            &vec![0xc0; MAX_BYTES + 1],
        ] {
            fs::write(&kept.path, damaged).unwrap();
            assert_eq!(file(&dir).read::<Lines>(), None);
        }
        kept.save(|| (lines("b", 1), 2));
        assert_eq!(file(&dir).read(), Some(lines("b", 1)));
    }

    #[test]
    fn oversized_history_keeps_the_newer_part() {
        let dir = tempfile::tempdir().unwrap();
        let kept = file(&dir);
        kept.save(|| (lines(&"x".repeat(1 << 20), 9), 1));
        let left = file(&dir).read::<Lines>().unwrap().0.len();
        assert_eq!(left, 2);
        kept.save(|| (lines(&"x".repeat(MAX_BYTES), 1), 2));
        assert!(kept.lacks(2), "nothing is left");
    }

    #[test]
    fn failed_write_leaves_the_old_file_and_can_be_tried_again() {
        let dir = tempfile::tempdir().unwrap();
        let kept = file(&dir);
        // A file where its directory has to be.
        fs::write(dir.path().join("saltern"), "").unwrap();
        kept.save(|| (lines("a", 1), 1));
        assert!(kept.lacks(1));
        fs::remove_file(dir.path().join("saltern")).unwrap();
        kept.save(|| (lines("a", 1), 1));
        assert!(!kept.lacks(1));
        assert_eq!(file(&dir).read(), Some(lines("a", 1)));
    }
}
