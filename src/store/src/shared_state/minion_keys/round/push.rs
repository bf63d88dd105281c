//! Changes of this machine: rows are written in place of those that were seen.

use std::collections::{BTreeMap, HashSet};

use saltern_model::{KeyState, MinionId};

use super::Rounds;
use crate::error::{Result, StoreError};
use crate::shared_state::mass_loss::MAX_LOST;
use crate::shared_state::minion_keys::memory::Known;
use crate::shared_state::minion_keys::record::Digests;
use crate::shared_state::minion_keys::scan::read_record;
use crate::shared_state::minion_keys::{KIND, KeyWrite, MARKER};
use crate::shared_state::row;
use crate::shared_state::{MAX_ROWS, RowId};

/// Bytes of the rows of one write, unless one alone has more.
const MAX_WRITE_LEN: usize = 1 << 20;

impl Rounds {
    /// Writes what was changed here. Keys that came or went among the accepted ones come first; of the others, which
    /// any peer can cause, a bounded number has its turn in each round.
    pub(super) fn push(&mut self) -> Result<()> {
        let mut first = Vec::new();
        let mut rest = Vec::new();
        let mut same = Vec::new();
        for id in &self.candidates {
            let Some(keys) = self.scanner.keys(id) else {
                continue;
            };
            let known = self.memory.get(id).keys;
            if self.unknown.contains_key(id) {
                continue;
            }
            if keys == known && !self.older.contains_key(id) {
                same.push(id.clone());
            } else if keys.admitted() != known.admitted() || self.older.contains_key(id) {
                first.push(id.clone());
            } else {
                rest.push(id.clone());
            }
        }
        for id in same {
            self.candidates.remove(&id);
        }
        let gone = self.gone();
        let held_back = match gone.len() > MAX_LOST {
            true => {
                let numbers = (gone.len(), self.memory.accepted());
                let reason = "are gone from this machine at once, and their deletion is not shared";
                self.require_few(numbers, reason)
            }
            false => Ok(()),
        };
        if held_back.is_err() {
            first.retain(|id| !gone.contains(id));
            rest.retain(|id| !gone.contains(id));
        }
        // A key that is taken away before one that is given.
        first.sort_unstable_by_key(|id| {
            let keys = self.scanner.keys(id).unwrap_or_default();
            (keys.admitted().is_some(), id.clone())
        });
        rest.truncate(MAX_ROWS);
        first.extend(rest);
        self.write_all(first)?;
        held_back
    }

    /// Minions whose accepted key is not here any more, in whatever directory.
    fn gone(&self) -> HashSet<MinionId> {
        let is_gone = |id: &&MinionId| {
            let known = self.memory.get(id).keys.get(KeyState::Accepted);
            let own = self.scanner.keys(id);
            let own = own.filter(|_| !self.unknown.contains_key(*id));
            let has =
                |keys: Digests| keys.get(KeyState::Accepted).is_some() || keys.0.contains(&known);
            known.is_some() && own.is_some_and(|keys| !has(keys))
        };
        self.candidates.iter().filter(is_gone).cloned().collect()
    }

    fn write_all(&mut self, ids: Vec<MinionId>) -> Result<()> {
        let mut writes: BTreeMap<RowId, (MinionId, KeyWrite, Known)> = BTreeMap::new();
        let mut length = 0;
        for id in ids {
            let Some((write, known)) = self.write_of(&id)? else {
                continue;
            };
            let more = write.row.sealed.len();
            if writes.len() >= MAX_ROWS || (length + more > MAX_WRITE_LEN && !writes.is_empty()) {
                self.write(std::mem::take(&mut writes))?;
                length = 0;
            }
            length += more;
            writes.insert(write.row.id, (id, write, known));
        }
        match writes.is_empty() {
            true => Ok(()),
            false => self.write(writes),
        }
    }

    /// The row of a minion as its files are now; `None` when there is nothing to write.
    fn write_of(&mut self, id: &MinionId) -> Result<Option<(KeyWrite, Known)>> {
        let record = match read_record(&self.tree, id) {
            Ok(Some(record)) => record,
            Ok(None) => return Ok(None),
            Err(error) => {
                // It concerns no other minion.
                self.log_file_failure(&error);
                return Ok(None);
            }
        };
        let (keys, known) = (record.digests(), self.memory.get(id));
        let older = self.older.get(id).copied();
        let is_as_seen = self.scanner.keys(id) == Some(keys);
        if !is_as_seen || (keys == known.keys && older.is_none()) {
            // Changed since the look on which the bound of deletions rests: the next round has it.
            self.scanner.look_at(id);
            return Ok(None);
        }
        let replaces = older.unwrap_or(known.version);
        // Also above those of a row that was removed long ago and that another member still remembers.
        let now = self.clock.unix_micros();
        let version = known.version.max(replaces).saturating_add(1).max(now);
        let content = record.encode();
        let content = (now, content.as_slice());
        let row = row::seal_kind(&self.cipher, (KIND, id.as_str()), content, version);
        let write = KeyWrite {
            row: row.map_err(StoreError::Sealed)?,
            replaces,
            is_tombstone: keys.is_empty(),
        };
        Ok(Some((write, Known { version, keys })))
    }

    fn write(&mut self, writes: BTreeMap<RowId, (MinionId, KeyWrite, Known)>) -> Result<()> {
        let rows: Vec<KeyWrite> = writes.values().map(|(_, write, _)| write.clone()).collect();
        let written = self.table.write(&rows);
        self.has_failed |= written.is_err();
        let written = written?;
        for (row, (id, _, known)) in writes {
            if !written.contains(&row) {
                // The row of another member is read next. One that is not newer is found by reading all.
                if !self.collided.insert(id) {
                    self.must_read = true;
                }
                continue;
            }
            self.counts.published += 1;
            self.memory.set(&id, known);
            self.older.remove(&id);
            self.collided.remove(&id);
            self.unsynced.insert(id.clone());
            if self.scanner.keys(&id) == Some(known.keys) {
                self.candidates.remove(&id);
            }
        }
        Ok(())
    }

    pub(super) fn write_marker(&mut self) -> Result<()> {
        let content = (self.clock.unix_micros(), &[][..]);
        let row = row::seal_kind(&self.cipher, (KIND, MARKER), content, 1);
        let write = KeyWrite {
            row: row.map_err(StoreError::Sealed)?,
            replaces: 0,
            is_tombstone: false,
        };
        self.table.write(&[write])?;
        self.is_founded = true;
        Ok(())
    }
}
