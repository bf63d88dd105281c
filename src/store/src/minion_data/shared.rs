//! Data of minions that the members of a cluster share: what was changed on the active member, and what a member
//! takes from it.
//!
//! Pillars are not shared: they are secrets of a minion, and the active member makes them.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use saltern_base::chain;
use saltern_model::MinionId;
use saltern_wire::msgpack::{Dialect, Value, encode};

use super::{Bank, FILE_BYTES, MinionDataStore, decoded};
use crate::error::{Result, StoreError};
use crate::files::{self, Stat, Version};

/// A kind of data that is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DataKind {
    /// The grains.
    Grains,
    /// The mine.
    Mine,
}

/// A kind of data of a minion.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct DataName {
    pub(crate) kind: DataKind,
    pub(crate) minion: MinionId,
}

/// Outcome of [`MinionDataStore::replace`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplacedData {
    /// It was the same.
    Same,
    /// It is now.
    Written,
    /// It is now, in the place of a file that was damaged.
    Mended,
    /// The one here is newer, and stays.
    Kept,
}

/// Names of what was changed since somebody asked; nothing is noted for nobody.
#[derive(Default)]
pub(super) struct ChangedData {
    /// Each with whether it was removed, whatever came after.
    names: Mutex<Option<BTreeMap<DataName, bool>>>,
}

impl ChangedData {
    /// Notes a change in a file of a minion.
    pub(super) fn note(&self, minion: &MinionId, bank: Bank) {
        self.put(minion, bank, false);
    }

    /// Notes that it is gone.
    pub(super) fn note_removed(&self, minion: &MinionId, bank: Bank) {
        self.put(minion, bank, true);
    }

    fn put(&self, minion: &MinionId, bank: Bank, is_removed: bool) {
        if let Some(name) = name_of(minion, bank)
            && let Some(changed) = &mut *self.names.lock()
        {
            // What follows a removal does not make it undone.
            *changed.entry(name).or_default() |= is_removed;
        }
    }

    pub(super) fn has(&self, name: &DataName) -> bool {
        self.change(name).is_some()
    }

    /// Whether what was changed was removed.
    fn change(&self, name: &DataName) -> Option<bool> {
        let changed = self.names.lock();
        changed.as_ref()?.get(name).copied()
    }
}

fn name_of(minion: &MinionId, bank: Bank) -> Option<DataName> {
    let kind = match bank {
        Bank::Data | Bank::Grains => DataKind::Grains,
        Bank::Mine => DataKind::Mine,
        Bank::Pillar => return None,
    };
    let minion = minion.clone();
    Some(DataName { kind, minion })
}

impl MinionDataStore {
    /// Begins to note what is changed, before all that is shared was read, and what is removed of rows before a version.
    pub(crate) fn note_changes(&self, first_version: i64) {
        self.begin_versions(first_version);
        self.mine_edits.begin();
        self.changed.names.lock().get_or_insert_default();
        self.note_forgotten();
    }

    /// All that is shared was read.
    pub(crate) fn end_merging(&self) {
        self.mine_edits.end();
        self.forgotten.end_merging();
    }

    /// Names of what was changed since the last call, each with whether it was removed.
    pub(crate) fn take_changed(&self) -> BTreeMap<DataName, bool> {
        let mut changed = self.changed.names.lock();
        changed.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// How much was changed since then.
    pub(crate) fn changed_len(&self) -> usize {
        let changed = self.changed.names.lock();
        changed.as_ref().map_or(0, BTreeMap::len) + self.forgotten_len()
    }

    /// The minions that may have data of a kind.
    ///
    /// # Errors
    /// The directory cannot be listed.
    pub(crate) fn minions_with(&self, kind: DataKind) -> Result<Vec<MinionId>> {
        match kind {
            DataKind::Mine if self.has_banks() => self.list("mine"),
            DataKind::Grains | DataKind::Mine => self.list_known(),
        }
    }

    /// The data as it is packed; empty when there is none. Not cached.
    ///
    /// # Errors
    /// The file cannot be read, or is damaged, as one without content is.
    pub(crate) fn packed(&self, name: &DataName) -> Result<Vec<u8>> {
        let bank = self.bank_of_kind(name.kind);
        let path = self.path(&name.minion, bank)?;
        if self.is_unremoved(&name.minion, (bank, &path))? {
            return Ok(Vec::new());
        }
        let Some(packed) = files::read(&path, FILE_BYTES)? else {
            return Ok(Vec::new());
        };
        let reason = "it is no mapping";
        let Value::Map(parts) = decoded(&packed, path.clone())? else {
            return Err(StoreError::Malformed { path, reason });
        };
        if bank != Bank::Data {
            return Ok(packed);
        }
        let mut parts = parts.into_iter();
        match parts.find(|(name, _)| name.as_str() == Some("grains")) {
            None => Ok(Vec::new()),
            Some((_, grains)) if grains.as_map().is_some() => Ok(encode(&grains, Dialect::Bin)),
            Some(_) => Err(StoreError::Malformed { path, reason }),
        }
    }

    /// Makes the data here that of the active member, and removes it where there is none, with grains the pillar, too; not where it was
    /// changed here since changes are noted, but for functions of a mine that were not, or when the file is newer than a time in microseconds since 1970.
    ///
    /// # Errors
    /// The file cannot be written, or it is no data.
    pub(crate) fn replace(
        &self,
        name: &DataName,
        (packed, newest): (&[u8], Option<i64>),
    ) -> Result<ReplacedData> {
        let (id, bank) = (&name.minion, self.bank_of_kind(name.kind));
        let path = self.path(id, bank)?;
        let value = match packed {
            [] => None,
            packed => Some(decoded(packed, path.clone())?),
        };
        if value.as_ref().is_some_and(|value| value.as_map().is_none()) {
            let reason = "it is no mapping";
            return Err(StoreError::Malformed { path, reason });
        }
        let _writing = self.writer(id).lock();
        if let Some(is_removed) = self.changed.change(name) {
            if is_removed {
                self.removals.note(name);
            }
            if name.kind != DataKind::Mine {
                return Ok(ReplacedData::Kept);
            }
            // Of a mine that is gone nothing is left but what was changed here.
            let shared = value.as_ref().and_then(Value::as_map);
            return self.merge_mine(id, (shared.unwrap_or_default(), newest));
        }
        let is_damaged = match self.packed(name) {
            Ok(own) if own == packed && !(value.is_none() && self.has_pillar(name)?) => {
                return Ok(ReplacedData::Same);
            }
            Ok(_) => false,
            Err(error) if error.is_damaged() => {
                tracing::warn!(minion = %id, error = chain(&error), "it is replaced by what the cluster has");
                true
            }
            Err(error) => return Err(error),
        };
        let stat = Version::of(&path, true)?.filter(Stat::is_file);
        let written = stat.map(|stat| stat.version.modified_micros());
        let is_newer = written
            .zip(newest)
            .is_some_and(|(written, newest)| written > newest);
        if is_newer && !is_damaged {
            return Ok(ReplacedData::Kept);
        }
        match (bank, value) {
            (Bank::Data, Some(grains)) => {
                // Without a pillar, not with an empty one: stock takes that for the minion's.
                let pillar = self.pillar(id).or_else(|error| match error.is_damaged() {
                    true => Ok(None),
                    false => Err(error),
                })?;
                let pillar = pillar.map(|pillar| ("pillar", pillar.as_ref().clone()));
                let parts = [("grains", grains)].into_iter().chain(pillar);
                self.write(id, bank, &Value::map(parts))?;
            }
            (bank, Some(value)) => self.write(id, bank, &value)?,
            (Bank::Grains, None) => {
                // The key may have another owner now.
                self.remove_environments(id)?;
                self.remove(id, Bank::Pillar)?;
                self.remove(id, Bank::Grains)?;
            }
            (bank, None) => self.remove(id, bank)?,
        }
        Ok(match is_damaged {
            true => ReplacedData::Mended,
            false => ReplacedData::Written,
        })
    }

    /// Whether grains that are gone leave a pillar behind.
    fn has_pillar(&self, name: &DataName) -> Result<bool> {
        if name.kind != DataKind::Grains {
            return Ok(false);
        }
        let bank = self.bank_of(Bank::Pillar);
        Ok(Version::of(&self.path(&name.minion, bank)?, true)?.is_some())
    }

    /// Notes that data is gone, also in case that this process is killed.
    pub(super) fn note_removed(&self, id: &MinionId, bank: Bank) {
        if let Some(name) = name_of(id, bank) {
            self.changed.note_removed(id, bank);
            self.removals.note(&name);
        }
    }

    pub(super) fn bank_of_kind(&self, kind: DataKind) -> Bank {
        match kind {
            DataKind::Grains => self.bank_of(Bank::Grains),
            DataKind::Mine => Bank::Mine,
        }
    }
}
