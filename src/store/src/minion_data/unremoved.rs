//! Files of a minion whose key is gone that could not be removed: they are taken for none until there are others in
//! their place, so that the next owner of the name does not answer with them. Not remembered over a restart.

use std::collections::BTreeMap;
use std::path::Path;

use parking_lot::Mutex;
use saltern_model::MinionId;

use super::{Bank, MinionDataStore};
use crate::error::Result;
use crate::files::{Stat, Version};

#[derive(Default)]
pub(super) struct UnremovedFiles {
    minions: Mutex<BTreeMap<MinionId, Vec<(Bank, Version)>>>,
}

impl UnremovedFiles {
    fn note(&self, id: &MinionId, files: Vec<(Bank, Version)>) {
        let mut minions = self.minions.lock();
        match files.is_empty() {
            true => minions.remove(id),
            false => minions.insert(id.clone(), files),
        };
    }

    /// Whether a file is one of them.
    pub(super) fn has(&self, id: &MinionId, bank: Bank, version: &Version) -> bool {
        let minions = self.minions.lock();
        let mut files = minions.get(id).into_iter().flatten();
        files.any(|(of, left)| *of == bank && left.has_content_of(version))
    }

    fn is_empty(&self) -> bool {
        self.minions.lock().is_empty()
    }
}

impl MinionDataStore {
    /// The files of which a minion has one each.
    pub(super) fn banks(&self) -> &'static [Bank] {
        match self.has_banks() {
            true => &[Bank::Grains, Bank::Pillar, Bank::Mine],
            false => &[Bank::Data, Bank::Mine],
        }
    }

    /// Notes which files of a minion are left although all were to be removed.
    pub(super) fn note_unremoved(&self, id: &MinionId) -> Result<()> {
        let mut left = Vec::new();
        for bank in self.banks() {
            let stat = Version::of(&self.path(id, *bank)?, true)?.filter(Stat::is_file);
            left.extend(stat.map(|stat| (*bank, stat.version)));
        }
        self.unremoved.note(id, left);
        Ok(())
    }

    /// Whether the file at this path is one that could not be removed.
    pub(super) fn is_unremoved(&self, id: &MinionId, (bank, path): (Bank, &Path)) -> Result<bool> {
        if self.unremoved.is_empty() {
            return Ok(false);
        }
        let stat = Version::of(path, true)?;
        Ok(stat.is_some_and(|stat| self.unremoved.has(id, bank, &stat.version)))
    }
}
