//! A member's own past, as it knows it when it is started: in a file, so that it does not take what it made as the
//! active one for older than it is.
//!
//! `cachedir/saltern/cluster_data`: a line with the first version of the rows of its last time as the active one, and one
//! with the revision of the table when it had read all of it. Without the file it was never active, nor when the table
//! is an earlier one: then versions count anew.

use std::path::{Path, PathBuf};

use saltern_base::chain;

use crate::files::{self, Create};

/// Room for two lines.
const MAX_FILE_LEN: usize = 256;

const ACTIVE: &str = "active";
const HEAD: &str = "head";

/// The past of this member.
pub(super) struct Past {
    path: PathBuf,
    /// The first version of its rows when it was active last.
    active: Option<i64>,
    /// The last revision of the table when it had read all of it.
    head: i64,
    /// When the file was written last, in microseconds since 1970.
    saved_at: Option<i64>,
}

impl Past {
    /// That of a process before.
    pub(super) fn read(cachedir: &Path) -> Self {
        let path = cachedir.join("saltern").join("cluster_data");
        let text = files::read_replaceable(&path, MAX_FILE_LEN).unwrap_or_else(|error| {
            let error = chain(&error);
            tracing::warn!(error, "when this member was active last is not known");
            None
        });
        let value = |name: &str| {
            let mut lines = text.iter().flat_map(|text| text.lines());
            let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            value.and_then(|value| value.parse().ok())
        };
        let (active, head) = (value(ACTIVE), value(HEAD).unwrap_or_default());
        Self {
            path,
            active,
            head,
            saved_at: None,
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

    /// Notes at `now` that the table was read up to a revision; in the file once in that time.
    pub(super) fn note_read(&mut self, head: i64, now: i64, save_interval: i64) {
        self.head = head;
        let is_due = |saved: i64| now.abs_diff(saved) >= save_interval.unsigned_abs();
        if self.saved_at.is_none_or(is_due) {
            self.saved_at = Some(now);
            self.save();
        }
    }

    fn save(&self) {
        let active = self.active.map(|first| format!("{ACTIVE} {first}\n"));
        let text = format!("{}{HEAD} {}\n", active.unwrap_or_default(), self.head);
        let directory = self.path.parent();
        let made = directory.map_or(Ok(()), |directory| files::ensure_dir(directory, 0o700));
        let create = Create::PRIVATE.derived();
        let saved = made.and_then(|()| files::write_atomic(&self.path, text.as_bytes(), create));
        if let Err(error) = saved {
            // What it made since then counts as older than rows about pillars that were removed before.
            let error = chain(&error);
            tracing::warn!(error, "that this member is active cannot be noted");
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
        past.note_active(7);
        past.note_read(9, 100, 60);
        let mut past = Past::read(dir.path());
        assert_eq!(
            (past.precedes(7), past.precedes(6)),
            (Some(true), Some(false))
        );
        // Written once in that time.
        for (head, now, saved) in [(10, 100, 10), (11, 159, 10), (12, 160, 12)] {
            past.note_read(head, now, 60);
            assert_eq!(Past::read(dir.path()).head, saved, "{now}");
        }
        // A table that was restored from a backup.
        past.note_head(12);
        assert_eq!(past.precedes(7), Some(true));
        past.note_head(11);
        assert_eq!(past.precedes(7), None);
        let path = dir.path().join("saltern").join("cluster_data");
        fs::write(path, [0xff; 300]).expect("written");
        assert_eq!(Past::read(dir.path()).precedes(7), None);
    }
}
