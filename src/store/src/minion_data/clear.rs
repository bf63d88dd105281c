//! Clears a part of the cached data of a minion (`clear_cached_minion_data` in
//! `salt/utils/master.py`). All of it goes by [`MinionDataStore::purge`].

use std::sync::Arc;

use saltern_model::MinionId;
use saltern_wire::msgpack::Value;

use super::{Bank, MinionDataStore};
use crate::error::Result;
use crate::files;

impl MinionDataStore {
    /// Removes the grains, the pillar, or both. Pillars of environments of their own stay, as in
    /// stock.
    ///
    /// # Errors
    /// When the disk does.
    pub fn clear(&self, id: &MinionId, grains: bool, pillar: bool) -> Result<()> {
        let _writing = self.writer(id).lock();
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
