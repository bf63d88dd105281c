//! Removes the cached data of a minion, as a whole or a part of it (`clear_cached_minion_data` in
//! `salt/utils/master.py`).

use std::fs;
use std::io;
use std::sync::Arc;

use saltern_model::MinionId;
use saltern_wire::msgpack::Value;

use super::{Bank, Forgotten, MinionDataStore};
use crate::error::{Result, StoreError};
use crate::files;

impl MinionDataStore {
    /// Forgets everything about a minion: its key was deleted, or another key took its name.
    ///
    /// Call it after the key is gone, so that no request of the old owner stores anything later.
    ///
    /// Stock 3008 leaves the mine behind, so that the next owner of the name answers with it; here
    /// it goes too. In the layout of 3006 and 3007 the minion's whole directory goes, with the
    /// files that it pushed, as in stock.
    ///
    /// `false`: there was nothing. Anybody can cause that for any id, so the index does not hear of it. The other
    /// masters of a cluster do, as far as they have something: `salt-key` removes the files in a process of its own.
    pub fn purge(&self, id: &MinionId) -> Result<bool> {
        let _writing = self.writer(id).lock();
        let removed = self.remove_all(id);
        // What cannot be removed is not to be the next owner's, either.
        let had_any = *removed.as_ref().unwrap_or(&true);
        let left = self.note_unremoved(id);
        if had_any {
            self.memory.lock().forget(id);
            self.known.write().remove(id);
        }
        self.forgotten.note(id, (Forgotten::Owner, had_any));
        self.note_owner(id);
        if had_any {
            for bank in [Bank::Grains, Bank::Mine] {
                self.note_removed(id, bank);
            }
        }
        left.and(removed)
    }

    /// Removes all files of a minion that can be removed; whether there was one.
    fn remove_all(&self, id: &MinionId) -> Result<bool> {
        let mut removed = Ok(false);
        for bank in self.banks() {
            let one = self.path(id, *bank).and_then(|path| files::remove(&path));
            removed = both(removed, one);
        }
        match self.has_banks() {
            true => both(removed, self.remove_environments(id)),
            // The files that it pushed may be of anybody; with them the rest goes, too.
            false => match self.remove_directory(id) {
                Ok(any) => Ok(any || removed.unwrap_or_default()),
                Err(error) => Err(error),
            },
        }
    }

    fn remove_directory(&self, id: &MinionId) -> Result<bool> {
        let dir = files::child(&self.cachedir.join("minions"), id.as_str())?;
        match fs::remove_dir_all(&dir) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(source) => Err(StoreError::io("remove", dir, source)),
        }
    }

    /// Has what the other masters of a cluster have of a minion compared with its files: its key is another one now.
    pub fn note_owner(&self, id: &MinionId) {
        // Before the rest, of which the rows say whether the others have something.
        self.forgotten.note(id, (Forgotten::Owner, false));
        self.mine_edits.note_all(id);
        for bank in [Bank::Grains, Bank::Mine] {
            self.changed.note_removed(id, bank);
        }
    }

    /// Forgets all minions but those that `keep` says yes to (`check_minion_cache` in
    /// `salt/key.py`); gives their number.
    pub fn purge_all_but(&self, keep: impl Fn(&MinionId) -> bool) -> Result<usize> {
        self.refresh()?;
        let mut ids: Vec<MinionId> = self.known.write().all().to_vec();
        if self.has_banks() {
            ids.extend(self.list("mine")?);
            ids.extend(self.list("pillar")?);
            ids.sort_unstable();
            ids.dedup();
        }
        let mut purged = 0;
        for id in ids.iter().filter(|id| !keep(id)) {
            purged += usize::from(self.purge(id)?);
        }
        Ok(purged)
    }

    /// Removes the grains, the pillar, or both. Pillars of environments of their own stay, as in
    /// stock. The other masters of a cluster forget all pillars of the minion with the pillar.
    ///
    /// # Errors
    /// When the disk does.
    pub fn clear(&self, id: &MinionId, grains: bool, pillar: bool) -> Result<()> {
        let _writing = self.writer(id).lock();
        if pillar {
            // First: what fails here is not to stay on the others.
            self.forgotten.note(id, (Forgotten::Pillars, true));
        }
        if self.has_banks() {
            if grains {
                self.remove(id, Bank::Grains)?;
            }
            if pillar {
                self.remove(id, Bank::Pillar)?;
            }
            return Ok(());
        }
        // One file has both.
        let is_without_grains = grains;
        let grains = if grains { None } else { self.grains(id)? };
        let pillar = if pillar { None } else { self.pillar(id)? };
        let of = |part: Option<Arc<Value>>| part.map(|part| part.as_ref().clone());
        self.write_parts(id, (of(grains), of(pillar)))?;
        if is_without_grains {
            self.note_removed(id, Bank::Data);
        }
        Ok(())
    }

    /// Writes the file that has both as far as there is something, and removes it where there is nothing.
    pub(super) fn write_parts(
        &self,
        id: &MinionId,
        (grains, pillar): (Option<Value>, Option<Value>),
    ) -> Result<()> {
        let parts = [("grains", grains), ("pillar", pillar)].into_iter();
        let mut left = parts
            .filter_map(|(name, part)| Some((name, part?)))
            .filter(|(_, part)| part.is_truthy())
            .peekable();
        match left.peek() {
            None => self.remove(id, Bank::Data),
            Some(_) => self.write(id, Bank::Data, &Value::map(left)),
        }
    }

    pub(super) fn remove(&self, id: &MinionId, bank: Bank) -> Result<()> {
        files::remove(&self.path(id, bank)?)?;
        self.memory.lock().forget_one(id, bank);
        self.note_removed(id, bank);
        self.notice(id, bank, None);
        Ok(())
    }
}

fn both(removed: Result<bool>, more: Result<bool>) -> Result<bool> {
    match (removed, more) {
        (Ok(any), Ok(one)) => Ok(any || one),
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use saltern_model::Compat;

    use super::*;
    use crate::options::StoreOptions;

    #[test]
    fn clearing_grains_or_pillar_leaves_the_other() {
        let id = MinionId::parse("m1").unwrap();
        let value = |name: &str| Value::map([(name, 1)]);
        for compat in Compat::ALL {
            for (grains, pillar) in [(true, false), (false, true), (true, true), (false, false)] {
                let dir = tempfile::tempdir().unwrap();
                let store = MinionDataStore::with_options(&StoreOptions::below(dir.path(), compat));
                store
                    .store_grains_and_pillar(&id, &value("grain"), &value("pillar"))
                    .unwrap();
                store.clear(&id, grains, pillar).unwrap();
                let what = format!("{compat:?} {grains} {pillar}");
                assert_eq!(store.grains(&id).unwrap().is_none(), grains, "{what}");
                assert_eq!(store.pillar(&id).unwrap().is_none(), pillar, "{what}");
                // Once more, with an empty cache.
                let store = MinionDataStore::with_options(&StoreOptions::below(dir.path(), compat));
                assert_eq!(store.grains(&id).unwrap().is_none(), grains, "{what}");
                assert_eq!(store.pillar(&id).unwrap().is_none(), pillar, "{what}");
            }
        }
    }
}
