//! Rows that a member takes over.

use saltern_base::chain;
use saltern_model::MinionId;

use super::{CLOCKS_DIFFER, Known, Rounds, TICK, digest_of};
use crate::error::StoreError;
use crate::minion_data::{DataKind, DataName, ReplacedData};
use crate::shared_state::SealedRow;
use crate::shared_state::minion_data::{FORGOTTEN, MAX_DATA_LEN, content, number_of};
use crate::shared_state::row::{self, RowContent, RowError};

impl Rounds {
    pub(super) fn refuse(&mut self, reason: &str) {
        self.counts.refused += 1;
        if let Some(times) = self.row_failures.record() {
            tracing::warn!(reason, times, "a row of a minion's data is not used");
        }
    }

    pub(super) fn log_file_failure(&self, error: &StoreError) {
        if let Some(times) = self.file_failures.record() {
            let error = chain(error);
            tracing::warn!(
                error,
                times,
                "grains or a mine are not shared with the cluster"
            );
        }
    }

    /// Takes a row over.
    pub(super) fn take(&mut self, sealed: &SealedRow) {
        let row = match row::open_kind(&self.parts.cipher, sealed) {
            Ok(row) => row,
            Err(error) => return self.refuse(&error.to_string()),
        };
        self.note_writer(sealed.version, &row);
        if row.kind == FORGOTTEN {
            return self.take_forgotten(sealed.version, &row);
        }
        let mut kinds = [DataKind::Grains, DataKind::Mine].into_iter();
        let kind = kinds.find(|kind| number_of(*kind) == row.kind);
        let (Some(kind), Ok(minion)) = (kind, MinionId::parse(&row.name)) else {
            return self.refuse(&RowError::Unknown.to_string());
        };
        if !self.parts.kinds.contains(&kind) {
            return;
        }
        let name = DataName { kind, minion };
        let (writer, packed) = content::split(&row.content);
        let known = self.known.get(&name).copied();
        if known.is_some_and(|known| sealed.version < known.version) {
            self.note_older(name, packed);
            return self.refuse("it is older than the one that was there");
        }
        if !self.has_taken_over
            && let Some(removed_at) = self.parts.store.removed_at(&name)
        {
            if sealed.version <= removed_at {
                // It was killed before it wrote so, and a file here is of a later owner.
                self.dirty.insert(name.clone());
                return self.note(name, (sealed.version, packed), 0);
            }
            self.parts.store.settle([name.clone()].into_iter());
        }
        // What this member has written as the active one counts, whatever is read later.
        if !self.has_taken_over || self.failed.contains(&name) {
            // A row that follows one that was seen is newer than any file here.
            let newest = match known {
                Some(known) if known.version < sealed.version => None,
                // What this machine has changed since it wrote the row.
                _ if writer == Some(self.parts.writer) => Some(row.modified.saturating_sub(TICK)),
                _ => Some(row.modified.saturating_add(CLOCKS_DIFFER)),
            };
            let is_own_tombstone = packed.is_empty() && writer == Some(self.parts.writer);
            let replaced = match is_own_tombstone && self.is_too_large(&name) {
                // The row ended that of an owner before, beside files that were too large for another one.
                true => Ok(ReplacedData::Kept),
                false => self.parts.store.replace(&name, (packed, newest)),
            };
            match replaced {
                Ok(replaced) => {
                    self.failed.remove(&name);
                    if replaced != ReplacedData::Kept {
                        self.dirty.remove(&name);
                    }
                    let is_mended = replaced == ReplacedData::Mended;
                    self.counts.applied +=
                        u64::from(is_mended || replaced == ReplacedData::Written);
                    self.counts.damaged += u64::from(is_mended);
                }
                Err(error) => {
                    self.log_file_failure(&error);
                    self.failed.insert(name.clone());
                }
            }
        }
        self.note(name, (sealed.version, packed), 0);
    }

    /// Notes that another member was active since this one was: it has reported its own losses, and nobody confirms one
    /// of before any more.
    fn note_writer(&mut self, version: i64, row: &RowContent) {
        let is_of_others = || {
            let (writer, _) = content::split(&row.content);
            writer.is_some_and(|writer| writer != self.parts.writer)
        };
        let is_later = self.past.precedes(version) == Some(true);
        if !self.has_taken_over && !self.has_followed && is_later && is_of_others() {
            self.has_followed = true;
            self.mass_loss.end();
        }
    }

    /// Whether the data here is not shared for its length.
    pub(super) fn is_too_large(&self, name: &DataName) -> bool {
        let packed = self.parts.store.packed(name);
        packed.is_ok_and(|packed| packed.len() > MAX_DATA_LEN)
    }

    /// Remembers what the table has.
    pub(super) fn note(&mut self, name: DataName, (version, content): (i64, &[u8]), written: i64) {
        let known = Known {
            version,
            digest: digest_of(content),
            written,
            seen: self.parts.clock.unix_micros(),
        };
        self.known.insert(name, known);
    }

    /// Remembers that the table has an older row again: this member writes its own anew, when it is the active one.
    fn note_older(&mut self, name: DataName, content: &[u8]) {
        if let Some(known) = self.known.get_mut(&name) {
            known.digest = digest_of(content);
            known.written = 0;
        }
        if !self.failed.contains(&name) {
            self.dirty.insert(name);
        }
    }
}
