//! A member's own past, as it knows it when it is started: in a file, so that it neither takes what it made as the
//! active one for older than it is, nor overlooks that removals were expired before it saw them.
//!
//! `cachedir/saltern/cluster_data`: a line with the first version of the rows of its last time as the active one, one
//! with the time of the table when it had read all of it, and one with the revision of the table then. Without the file
//! it was never active, nor when the table is an earlier one: then versions count anew.

use std::path::{Path, PathBuf};

use saltern_base::chain;

use crate::files::{self, Create};

/// Room for two lines.
const MAX_FILE_LEN: usize = 256;

const ACTIVE: &str = "active";
const SEEN: &str = "seen";
const HEAD: &str = "head";

/// The past of this member.
pub(super) struct Past {
    path: PathBuf,
    /// The first version of its rows when it was active last.
    active: Option<i64>,
    /// When it had read the whole table, in microseconds since 1970 by the clock of the table.
    seen: Option<i64>,
    /// The same, as the file has it.
    saved: Option<i64>,
    /// The last revision of the table then.
    head: i64,
}

impl Past {
    /// That of a process before.
    pub(super) fn read(cachedir: &Path) -> Self {
        let path = cachedir.join("saltern").join("cluster_data");
        let text = files::read_replaceable(&path, MAX_FILE_LEN).unwrap_or_else(|error| {
            let error = chain(&error);
            tracing::warn!(
                error,
                "when this member shared grains and mines last is not known"
            );
            None
        });
        let value = |name: &str| {
            let mut lines = text.iter().flat_map(|text| text.lines());
            let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            value.and_then(|value| value.parse().ok())
        };
        let (active, seen) = (value(ACTIVE), value(SEEN));
        Self {
            path,
            active,
            seen,
            saved: seen,
            head: value(HEAD).unwrap_or_default(),
        }
    }

    /// Whether another member's row of that version was written after this member was active last; `None` when nobody
    /// knows that it ever was.
    pub(super) fn precedes(&self, version: i64) -> Option<bool> {
        self.active.map(|first| version >= first)
    }

    /// Notes which revision a table has that is about to be read.
    pub(super) fn note_head(&mut self, head: i64) {
        if head < self.head {
            self.active = None;
        }
        self.head = head;
    }

    /// Notes that this member is active.
    pub(super) fn note_active(&mut self, first_version: i64) {
        self.active = Some(first_version);
        self.save();
    }

    /// Notes that the whole table was read; the microseconds since the last time, also over a restart.
    pub(super) fn note_seen(&mut self, (now, head): (i64, i64), save_interval: i64) -> i64 {
        self.head = head;
        let before = self.seen.replace(now);
        let is_due = |saved: i64| now.abs_diff(saved) >= save_interval.unsigned_abs();
        if self.saved.is_none_or(is_due) {
            self.saved = self.seen;
            self.save();
        }
        before.map_or(0, |before| now.saturating_sub(before))
    }

    fn save(&self) {
        let value = |name, value: Option<i64>| match value {
            Some(value) => format!("{name} {value}\n"),
            None => String::new(),
        };
        let text =
            value(ACTIVE, self.active) + &value(SEEN, self.seen) + &value(HEAD, Some(self.head));
        let directory = self.path.parent();
        let made = directory.map_or(Ok(()), |directory| files::ensure_dir(directory, 0o700));
        let create = Create::PRIVATE.derived();
        let saved = made.and_then(|()| files::write_atomic(&self.path, text.as_bytes(), create));
        if let Err(error) = saved {
            // Pillars of minions that were forgotten meanwhile go once more when it is started again.
            let error = chain(&error);
            tracing::warn!(
                error,
                "when this member shared grains and mines last cannot be noted"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn past_outlives_the_process_and_a_damaged_file_is_none() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut past = Past::read(dir.path());
        assert_eq!(past.precedes(1), None);
        assert_eq!(past.note_seen((100, 5), 60), 0);
        past.note_active(7);
        assert_eq!(past.note_seen((150, 6), 60), 50);
        let mut past = Past::read(dir.path());
        assert_eq!(
            (past.precedes(7), past.precedes(6)),
            (Some(true), Some(false))
        );
        // Noted in the file once in that time.
        assert_eq!(past.note_seen((200, 9), 60), 100);
        assert_eq!(Past::read(dir.path()).note_seen((201, 9), 60), 1);
        // A table that was restored from a backup.
        let mut past = Past::read(dir.path());
        past.note_head(9);
        assert_eq!(past.precedes(7), Some(true));
        past.note_head(8);
        assert_eq!(past.precedes(6), None);
        let path = dir.path().join("saltern/cluster_data");
        for damaged in ["", "active\nseen x\n", "\u{fffd}", "7 8"] {
            fs::write(&path, damaged).expect("damaged");
            let mut past = Past::read(dir.path());
            assert_eq!(past.precedes(6), None, "{damaged}");
            assert_eq!(past.note_seen((900, 1), 60), 0, "{damaged}");
        }
    }
}
