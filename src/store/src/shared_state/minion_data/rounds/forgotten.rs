//! Data without rows that a member has the others forget of a minion, and that it forgets for them: pillars, and data
//! that was too large to be shared.
//!
//! A row says that it is forgotten, and nothing that comes later replaces it, as data of the next owner replaces a row
//! without content. Whoever reads it has nothing that is newer, unless it was active since: then it had read the row
//! when it took over. So no clock decides.

use std::collections::BTreeMap;

use saltern_base::chain;
use saltern_model::MinionId;

use super::{Change, RETRY_INTERVAL, Rounds, Subject, UPKEEP_INTERVAL};
use crate::error::{Result, StoreError};
use crate::minion_data::{DataKind, DataName, Forgotten};
use crate::shared_state::MAX_ROWS;
use crate::shared_state::minion_data::{DataWrite, FORGOTTEN, content};
use crate::shared_state::row::{self, RowContent, RowError};

/// Kinds of which a minion may have data.
const KINDS: [DataKind; 2] = [DataKind::Grains, DataKind::Mine];

/// Minions of which something is forgotten, between the rounds.
#[derive(Default)]
pub(super) struct Forgetting {
    /// Not in the table yet.
    pub(super) to_write: BTreeMap<MinionId, Forgotten>,
    /// In the table for an hour at most: meanwhile no other member makes what a second row would be about.
    pub(super) written: BTreeMap<MinionId, Forgotten>,
    /// Still here, for want of rights or of the disk.
    pub(super) failed: BTreeMap<MinionId, Forgotten>,
    /// When these were tried last, in microseconds since 1970.
    pub(super) tried_at: Option<i64>,
}

/// The content of a row: no data begins so.
const fn packed(what: Forgotten) -> &'static [u8] {
    match what {
        Forgotten::Pillars => b"pillars",
        Forgotten::Owner => b"owner",
    }
}

fn unpacked(packed: &[u8]) -> Option<Forgotten> {
    let mut all = [Forgotten::Pillars, Forgotten::Owner].into_iter();
    all.find(|what| self::packed(*what) == packed)
}

impl Rounds {
    /// Has the other members forget what was forgotten here, as far as they may have something.
    pub(super) fn begin_forgetting(&mut self) {
        for (minion, here) in self.parts.store.take_forgotten() {
            let has_row = |kind| {
                let minion = minion.clone();
                self.has_row(&DataName { kind, minion })
            };
            let may_have_any =
                here.had_any || !self.has_read_all() || KINDS.into_iter().any(has_row);
            let Forgetting {
                to_write, written, ..
            } = &mut self.forgetting;
            let is_written = written.get(&minion).is_some_and(|what| *what >= here.what);
            if may_have_any && !is_written {
                let what = to_write.entry(minion).or_insert(here.what);
                *what = here.what.max(*what);
            }
        }
    }

    /// The rows about it, with the version behind them.
    pub(super) fn forgotten_rows(&self, mut version: i64) -> Result<(Vec<Change>, i64)> {
        let mut changes = Vec::new();
        let now = self.parts.clock.unix_micros();
        for (minion, what) in self.forgetting.to_write.iter().take(MAX_ROWS) {
            let content = self.parts.writer.put_before(packed(*what));
            let row = row::seal_kind(
                &self.parts.cipher,
                (FORGOTTEN, minion.as_str()),
                (now, &content),
                version,
            );
            let row = row.map_err(StoreError::Sealed)?;
            version += 1;
            changes.push(Change {
                subject: Subject::Forgotten(minion.clone(), *what),
                // As one it goes when nobody needs it any more.
                write: DataWrite {
                    row,
                    is_tombstone: true,
                },
            });
        }
        Ok((changes, version))
    }

    /// Notes that the table has such a row.
    pub(super) fn note_forgotten(&mut self, minion: MinionId, what: Forgotten) {
        self.forgetting.to_write.remove(&minion);
        self.forgetting.written.insert(minion, what);
    }

    /// Forgets what another member forgot.
    pub(super) fn take_forgotten(&mut self, version: i64, row: &RowContent) {
        let (writer, packed) = content::split(&row.content);
        let (Some(what), Ok(minion)) = (unpacked(packed), MinionId::parse(&row.name)) else {
            return self.refuse(&RowError::Unknown.to_string());
        };
        // What this member wrote it had done before.
        let is_own = writer == Some(self.parts.writer);
        if !self.has_taken_over && !is_own && self.past.precedes(version) != Some(false) {
            self.forget(minion, what);
        }
    }

    fn forget(&mut self, minion: MinionId, what: Forgotten) {
        let is_too_large = |kind: &DataKind| {
            let minion = minion.clone();
            self.is_too_large(&DataName {
                kind: *kind,
                minion,
            })
        };
        let too_large: Vec<DataKind> = match what {
            Forgotten::Pillars => Vec::new(),
            Forgotten::Owner => KINDS.into_iter().filter(is_too_large).collect(),
        };
        match self.parts.store.forget(&minion, &too_large) {
            Ok(()) => {
                self.forgetting.failed.remove(&minion);
            }
            Err(error) => {
                self.log_file_failure(&error);
                self.forgetting.failed.insert(minion, what);
                let now = self.parts.clock.unix_micros();
                self.forgetting.tried_at.get_or_insert(now);
            }
        }
    }

    /// Notes that the whole table was read, up to a revision. What could not be forgotten is tried again now and then.
    pub(super) fn note_read(&mut self, head: i64) {
        let now = self.parts.clock.unix_micros();
        self.past.note_read(head, now, UPKEEP_INTERVAL);
        if self.has_taken_over || !self.is_over(self.forgetting.tried_at, RETRY_INTERVAL) {
            return;
        }
        self.forgetting.tried_at = Some(now);
        for (minion, what) in std::mem::take(&mut self.forgetting.failed) {
            self.forget(minion, what);
        }
    }

    /// Ends it where this member makes pillars itself from here on.
    pub(super) fn end_forgetting(&mut self) {
        for minion in std::mem::take(&mut self.forgetting.failed).into_keys() {
            tracing::error!(
                %minion,
                "a pillar that another member has removed cannot be removed here, and counts until the minion asks for its own"
            );
        }
        self.note_active();
    }

    /// Notes that this member is active, and what it makes newer than rows of before.
    pub(super) fn note_active(&mut self) {
        match self.parts.table.first_version() {
            Ok(first) => self.past.note_active(first),
            Err(error) => {
                let error = chain(&error);
                tracing::debug!(error, "this member is not active any more");
            }
        }
    }
}
