//! Changes of other members: rows are read, and the files of this machine made so.

use std::collections::HashMap;

use saltern_model::{KeyState, MinionId};

use super::{MAX_ROW_AGE, Reading, Rounds};
use crate::error::{Result, StoreError};
use crate::shared_state::minion_keys::memory::Known;
use crate::shared_state::minion_keys::record::{Digests, KeyRecord, digest, merge};
use crate::shared_state::minion_keys::scan::read_record;
use crate::shared_state::minion_keys::{KIND, MARKER, TOMBSTONE_AGE};
use crate::shared_state::row::{self, RowError};
use crate::shared_state::{RowPosition, SealedRow};

impl Rounds {
    /// The keys of the cluster, if the table has them all: the row that says so is written last.
    pub(super) fn survey(&mut self) -> Result<Option<HashMap<MinionId, Digests>>> {
        let (mut keys, mut has_marker) = (HashMap::new(), false);
        let mut position = RowPosition::default();
        loop {
            let page = self.table.changed_after(&position)?;
            self.table_now = page.now;
            for (revision, sealed) in &page.rows {
                position = RowPosition::of(*revision, sealed);
                let opened = row::open_kind(&self.cipher, sealed).ok();
                let Some(content) = opened.filter(|content| content.kind == KIND) else {
                    continue;
                };
                if content.name == MARKER {
                    has_marker = true;
                    continue;
                }
                let id = MinionId::parse(&content.name).ok();
                let record = KeyRecord::decode(&content.content);
                if let (Some(id), Some(record)) = (id, record) {
                    keys.insert(id, record.digests());
                }
            }
            if page.is_last {
                return Ok(has_marker.then_some(keys));
            }
        }
    }

    /// Reads what was changed, and makes the files so.
    pub(super) fn pull(&mut self) -> Result<()> {
        let mut has_gone_back = false;
        loop {
            let page = self.table.changed_after(&self.position);
            self.has_failed |= page.is_err();
            let page = page?;
            self.table_now = page.now;
            if self.position.is_ahead_of(&page) {
                self.begin_reading();
                if has_gone_back {
                    return Err(StoreError::RowsGoBack);
                }
                has_gone_back = true;
                continue;
            }
            for (revision, sealed) in &page.rows {
                if let Err(error) = self.take(sealed) {
                    // The others must not wait for it: one may take a key away.
                    self.must_read = true;
                    self.log_file_failure(&error);
                }
                self.position = RowPosition::of(*revision, sealed);
            }
            if page.is_last {
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
        self.failed.remove(&id);
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
        if let Err(error) = self.apply(&id, (known.keys, &record)) {
            let takes_away = self.takes_away(&id, (&known.keys, &keys));
            self.failed.insert(id, takes_away);
            return Err(error);
        }
        self.unknown.remove(&id);
        self.memory.set(&id, known_after);
        self.older.remove(&id);
        self.collided.remove(&id);
        self.candidates.insert(id);
        Ok(())
    }

    /// Whether an accepted key goes by a row.
    fn takes_away(&self, id: &MinionId, (known, row): (&Digests, &Digests)) -> bool {
        let own = read_record(&self.tree, id).ok().flatten();
        let own = own.map_or(*known, |own| own.digests()).admitted();
        own.is_some() && own != row.admitted()
    }

    /// Makes the files of a minion those of a row, as far as nothing was changed here since the row of before.
    fn apply(&mut self, id: &MinionId, (before, record): (Digests, &KeyRecord)) -> Result<()> {
        let of_row = record.digests();
        // Read now: `salt-key` may have been here since the last look.
        let own_record = read_record(&self.tree, id)?;
        let own = own_record.as_ref().map(KeyRecord::digests);
        // Of a member that joins, and of a key that nobody knew, the row counts.
        let is_unknown = self.unknown.contains_key(id) || !self.memory.is_joined;
        let (mut target, mut have_met, mut is_made_pending) = (record.clone(), false, false);
        // What holds no key is replaced.
        if let (Some(own_record), Some(own)) = (&own_record, own) {
            if !is_unknown {
                let (merged, met) = merge(&before, &own, &of_row);
                have_met = met;
                for state in KeyState::ALL {
                    let is_doubtful = self.may_be_of_lost_row(state, (&before, &own));
                    if merged.get(state) != of_row.get(state) && !is_doubtful {
                        target.set(state, own_record.get(state).map(str::to_owned));
                    }
                }
            } else if target.get(KeyState::Rejected).is_none() {
                let rejected = own_record.get(KeyState::Rejected);
                target.set(KeyState::Rejected, rejected.map(str::to_owned));
            }
            // After a start a key that the memory does not have may have come by a row that was not saved.
            let accepted = own.get(KeyState::Accepted);
            let is_unsure = self.read_at.is_none() && accepted != before.get(KeyState::Accepted);
            if (is_unknown && !of_row.is_empty()) || (!is_unknown && is_unsure) {
                is_made_pending = keep_as_pending(own_record, record, &mut target);
            }
        }
        let merged = target.digests();
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
                self.tree.put(id, state, target.get(state))?;
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
            self.scanner.look_at(id);
            if own_admitted.is_some() && own_admitted != merged.admitted() {
                self.has_revoked = true;
                tracing::info!(minion = %id, "another member took its accepted key away");
            }
        }
        if is_made_pending {
            self.memory.demote(id);
            self.made_pending.insert(id.clone());
        }
        Ok(())
    }

    /// Whether a key here, which the memory does not have, may have come by a row that was seen before a crash and not
    /// saved (`Memory::is_due`). The newer row counts then: whoever was accepted, rejected or deleted meanwhile is not
    /// pending, too, and a minion that is comes again.
    fn may_be_of_lost_row(&self, state: KeyState, (before, own): (&Digests, &Digests)) -> bool {
        let is_minor = matches!(state, KeyState::Pending | KeyState::Denied);
        let own = own.get(state);
        is_minor && self.read_at.is_none() && own.is_some() && own != before.get(state)
    }

    /// After the whole table was read: rows that were seen and are not there any more, and keys here that no row
    /// has.
    fn compare(&mut self, reading: Reading) -> Result<()> {
        self.is_founded = reading.has_marker;
        if !self.is_founded && (!self.memory.is_joined || self.is_outdated()) {
            self.read_at = Some(self.clock.unix_micros());
            return Ok(());
        }
        let now = self.clock.unix_micros();
        let (has_joined, is_outdated) = (!self.memory.is_joined, self.is_outdated());
        if has_joined || is_outdated {
            // Until it is done the whole table is read again.
            self.read_at = None;
            self.scanner.scan(true)?;
        }
        if is_outdated && !has_joined {
            let is_accepted = |id: &&MinionId| {
                let keys = self.scanner.keys(id).unwrap_or_default();
                keys.get(KeyState::Accepted).is_some()
            };
            let accepted: Vec<&MinionId> = self.scanner.ids().filter(is_accepted).collect();
            let unknown = accepted.iter().filter(|id| !reading.seen.contains(**id));
            let numbers = (unknown.count(), accepted.len());
            self.require_few(
                numbers,
                "are not in the cluster any more, from which this member was away for long, and would be no longer \
                 accepted here",
            )?;
        }
        self.read_at = Some(now);
        self.failed.retain(|id, _| reading.seen.contains(id));
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
            let known = self.memory.get(&id);
            let age = i64::try_from(TOMBSTONE_AGE.as_micros()).unwrap_or(i64::MAX) - MAX_ROW_AGE;
            let is_old = self.table_now.saturating_sub(known.version) >= age;
            if is_outdated || (known.keys.is_empty() && is_old) {
                // It was deleted, and nobody has to remember. One that is gone earlier was removed by somebody.
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

/// Makes a key pending that is accepted here, unless the row has an accepted one, too, or the same one as rejected.
/// Anybody can cause a pending key: that of the row is denied then, unless one is. Whether it did.
fn keep_as_pending(own: &KeyRecord, row: &KeyRecord, target: &mut KeyRecord) -> bool {
    let Some(accepted) = own.get(KeyState::Accepted) else {
        return false;
    };
    let is_same = |pem: Option<&str>| pem.is_some_and(|pem| digest(pem) == digest(accepted));
    if row.get(KeyState::Accepted).is_some() || is_same(row.get(KeyState::Rejected)) {
        return false;
    }
    target.set(KeyState::Accepted, None);
    let pending = target.get(KeyState::Pending).map(str::to_owned);
    if !is_same(pending.as_deref()) {
        if target.get(KeyState::Denied).is_none() {
            target.set(KeyState::Denied, pending);
        }
        target.set(KeyState::Pending, Some(accepted.to_owned()));
    }
    true
}
