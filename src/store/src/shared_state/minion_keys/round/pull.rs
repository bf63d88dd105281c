//! Changes of other members: rows are read, and the files of this machine made so.

use saltern_base::chain;
use saltern_model::{KeyState, MinionId};

use super::{MAX_ROW_AGE, Reading, Rounds};
use crate::error::Result;
use crate::shared_state::minion_keys::memory::Known;
use crate::shared_state::minion_keys::record::{Digests, KeyRecord, merge};
use crate::shared_state::minion_keys::scan::read_record;
use crate::shared_state::minion_keys::{KIND, KeyPosition, MARKER};
use crate::shared_state::row::{self, RowError};
use crate::shared_state::{MAX_ROWS, SealedRow};

impl Rounds {
    /// Whether the table has the keys of the cluster: the row that says so is written last.
    pub(super) fn has_marker(&self) -> Result<bool> {
        let marker = self.marker();
        let mut position = KeyPosition::default();
        loop {
            let page = self.table.changed_after(&position)?;
            let found = page.rows.iter().find(|(_, row)| row.id == marker);
            if let Some((_, found)) = found {
                return Ok(row::open_kind(&self.cipher, found).is_ok());
            }
            match page.rows.last() {
                Some((revision, row)) if page.rows.len() >= MAX_ROWS => {
                    let (revision, id) = (*revision, row.id);
                    position = KeyPosition { revision, id };
                }
                _ => return Ok(false),
            }
        }
    }

    /// Reads what was changed, and makes the files so.
    pub(super) fn pull(&mut self) -> Result<()> {
        loop {
            let page = self.table.changed_after(&self.position)?;
            if page.head < self.position.revision {
                // Another database, or one of an earlier time.
                self.begin_reading();
                continue;
            }
            for (revision, sealed) in &page.rows {
                if let Err(error) = self.take(sealed) {
                    // The others must not wait for it: one may take a key away.
                    self.must_read = true;
                    if let Some(times) = self.file_failures.record() {
                        let error = chain(&error);
                        tracing::warn!(error, times, "a key of the cluster is not written here");
                    }
                }
                let (revision, id) = (*revision, sealed.id);
                self.position = KeyPosition { revision, id };
            }
            if page.rows.len() < MAX_ROWS {
                break;
            }
        }
        match self.reading.take() {
            Some(reading) => self.compare(reading),
            None => Ok(()),
        }
    }

    fn refuse(&mut self, reason: &str) {
        self.counts.refused += 1;
        if let Some(times) = self.row_failures.record() {
            tracing::warn!(reason, times, "a row of a minion's keys is not used");
        }
    }

    /// Takes a row over.
    fn take(&mut self, sealed: &SealedRow) -> Result<()> {
        let opened = row::open_kind(&self.cipher, sealed);
        let content = match opened {
            Ok(content) if content.kind == KIND => content,
            Ok(_) => {
                self.refuse(&RowError::Unknown.to_string());
                return Ok(());
            }
            Err(error) => {
                self.refuse(&error.to_string());
                return Ok(());
            }
        };
        if content.name == MARKER {
            if let Some(reading) = &mut self.reading {
                reading.has_marker = true;
            }
            self.is_founded = true;
            return Ok(());
        }
        let id = MinionId::parse(&content.name).ok();
        let record = KeyRecord::decode(&content.content);
        let (Some(id), Some(record)) = (id, record) else {
            self.refuse("it is of a newer release, or malformed");
            return Ok(());
        };
        if let Some(reading) = &mut self.reading {
            reading.seen.insert(id.clone());
        }
        let (known, keys) = (self.memory.get(&id), record.digests());
        if sealed.version == known.version && keys == known.keys {
            self.older.remove(&id);
            return Ok(());
        }
        if sealed.version <= known.version {
            // Put back by somebody, or by a backup: what was seen after it counts.
            self.refuse("it is older than the one that was there");
            self.older.insert(id.clone(), sealed.version);
            self.candidates.insert(id);
            return Ok(());
        }
        let is_new = known.version == 0 && self.memory.is_joined;
        if is_new && content.modified < self.memory.synced.saturating_sub(MAX_ROW_AGE) {
            self.refuse("it is of a time when there was none, or a clock is wrong");
            return Ok(());
        }
        let known_after = Known {
            version: sealed.version,
            keys,
        };
        self.apply(&id, (known.keys, &record))?;
        self.memory.set(&id, known_after);
        self.older.remove(&id);
        self.collided.remove(&id);
        self.candidates.insert(id);
        Ok(())
    }

    /// Makes the files of a minion those of a row, as far as nothing was changed here since the row of before.
    fn apply(&mut self, id: &MinionId, (before, record): (Digests, &KeyRecord)) -> Result<()> {
        let of_row = record.digests();
        // Read now: `salt-key` may have been here since the last look.
        let own = read_record(&self.tree, id)?.map(|own| own.digests());
        // Of a member that joins, and of a key that nobody knew, the row counts.
        let is_unknown = self.unknown.remove(id).is_some() || !self.memory.is_joined;
        let (merged, have_met) = match own {
            Some(own) if !is_unknown => merge(&before, &own, &of_row),
            // What holds no key is replaced.
            _ => (of_row, false),
        };
        self.counts.conflicts += u64::from(have_met);
        if have_met {
            tracing::warn!(minion = %id, "its keys were changed on two members at once");
        }
        let own_admitted = own.and_then(|own| own.admitted());
        let mut is_changed = false;
        // A key is in its new directory before it leaves the old one.
        for state in [
            KeyState::Rejected,
            KeyState::Accepted,
            KeyState::Pending,
            KeyState::Denied,
        ] {
            let differs = own.is_none_or(|own| own.get(state) != merged.get(state));
            if differs && merged.get(state).is_some() {
                self.tree.put(id, state, record.get(state))?;
                is_changed = true;
            }
        }
        for state in KeyState::ALL {
            let differs = own.is_none_or(|own| own.get(state) != merged.get(state));
            if differs && merged.get(state).is_none() {
                self.tree.put(id, state, None)?;
                is_changed = true;
            }
        }
        if is_changed {
            self.counts.applied += 1;
            self.unsynced.insert(id.clone());
            self.scanner.look_at(id)?;
            if own_admitted.is_some() && own_admitted != merged.admitted() {
                self.has_revoked = true;
                tracing::info!(minion = %id, "another member took its accepted key away");
            }
        }
        Ok(())
    }

    /// After the whole table was read: rows that were seen and are not there any more, and keys here that no row
    /// has.
    fn compare(&mut self, reading: Reading) -> Result<()> {
        self.read_at = Some(self.clock.unix_micros());
        self.is_founded = reading.has_marker;
        if !self.is_founded && (!self.memory.is_joined || self.is_outdated()) {
            return Ok(());
        }
        let now = self.clock.unix_micros();
        let (has_joined, is_outdated) = (!self.memory.is_joined, self.is_outdated());
        if has_joined || is_outdated {
            self.scanner.scan(true)?;
        }
        if has_joined {
            self.memory.is_joined = true;
            tracing::info!(
                minions = reading.seen.len(),
                "keys of minions are those of the cluster"
            );
        }
        let is_gone = |id: &&MinionId| !reading.seen.contains(*id);
        let gone: Vec<MinionId> = self.memory.ids().filter(is_gone).cloned().collect();
        for id in gone {
            if self.memory.get(&id).keys.is_empty() || is_outdated {
                // It was deleted, and nobody remembers.
                self.memory.remove(&id);
            } else {
                self.older.insert(id.clone(), 0);
                self.candidates.insert(id);
            }
        }
        if has_joined || is_outdated {
            for id in self.scanner.ids() {
                let keys = self.scanner.keys(id).unwrap_or_default();
                if keys.get(KeyState::Accepted).is_some() && !self.memory.has(id) {
                    self.unknown.entry(id.clone()).or_insert(now);
                }
            }
        }
        Ok(())
    }
}
