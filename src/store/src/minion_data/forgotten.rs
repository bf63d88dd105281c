//! Data that the members of a cluster forget of a minion beside that with a row: its pillars, and with the owner of a name
//! what was too large to be shared.
//!
//! Pillars are not shared, so a member that was active earlier has those that it made then. They are secrets: of a
//! minion whose key is gone they must not be the next owner's.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use saltern_model::MinionId;
use saltern_wire::msgpack::{Dialect, Value, encode};

use super::{Bank, DataKind, DataName, FILE_BYTES, MinionDataStore, decoded};
use crate::error::Result;
use crate::files::{self, Create, Version};

/// The directory below `cachedir` with the pillars of `pillar_cache`, a file for each minion.
pub const PILLAR_CACHE: &str = "pillar_cache";

/// A part of a minion's data that is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Forgotten {
    /// The pillars, which were removed from the cache.
    Pillars,
    /// All data of an owner before: the key was deleted or replaced.
    Owner,
}

/// A minion of which something was forgotten here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ForgottenHere {
    pub(crate) what: Forgotten,
    /// There was something of the minion here. Anybody can have a name forgotten of which nobody has anything.
    pub(crate) had_any: bool,
}

/// Minions of which something was forgotten since somebody asked; nothing is noted for nobody.
#[derive(Default)]
pub(super) struct ForgottenData {
    minions: Mutex<Option<BTreeMap<MinionId, ForgottenHere>>>,
    /// Minions that have sent their grains here, between the two ends of a takeover.
    senders: Mutex<Option<BTreeSet<MinionId>>>,
}

impl ForgottenData {
    fn begin(&self) {
        self.minions.lock().get_or_insert_default();
        self.senders.lock().get_or_insert_default();
    }

    pub(super) fn end_merging(&self) {
        *self.senders.lock() = None;
    }

    /// Notes that a minion has sent its grains, with which its pillar is made.
    pub(super) fn note_sender(&self, id: &MinionId) {
        if let Some(senders) = &mut *self.senders.lock() {
            senders.insert(id.clone());
        }
    }

    fn is_sender(&self, id: &MinionId) -> bool {
        let senders = self.senders.lock();
        senders.as_ref().is_some_and(|senders| senders.contains(id))
    }

    pub(super) fn note(&self, id: &MinionId, (what, had_any): (Forgotten, bool)) {
        if let Some(minions) = &mut *self.minions.lock() {
            let here = minions
                .entry(id.clone())
                .or_insert(ForgottenHere { what, had_any });
            here.what = here.what.max(what);
            here.had_any |= had_any;
        }
    }

    fn take(&self) -> BTreeMap<MinionId, ForgottenHere> {
        let mut minions = self.minions.lock();
        minions.as_mut().map(std::mem::take).unwrap_or_default()
    }

    fn len(&self) -> usize {
        self.minions.lock().as_ref().map_or(0, BTreeMap::len)
    }
}

impl MinionDataStore {
    /// Begins to note what is forgotten.
    pub(super) fn note_forgotten(&self) {
        self.forgotten.begin();
    }

    /// The minions of which something was forgotten since the last call.
    pub(crate) fn take_forgotten(&self) -> BTreeMap<MinionId, ForgottenHere> {
        self.forgotten.take()
    }

    /// How many minions that concerns.
    pub(super) fn forgotten_len(&self) -> usize {
        self.forgotten.len()
    }

    /// Forgets what the active member forgot: the pillars of a minion, and some other data; not what its owner has sent
    /// here since a takeover began. It is no change of this member.
    ///
    /// # Errors
    /// A file cannot be removed, or not be written without its pillar. The others are.
    pub(crate) fn forget(&self, id: &MinionId, others: &[DataKind]) -> Result<()> {
        let _writing = self.writer(id).lock();
        // These, and those of environments, are made anew when they are asked for.
        let kept = files::child(&self.cachedir.join(PILLAR_CACHE), id.as_str())?;
        let mut done = files::remove(&kept).map(|_| ());
        for kind in others {
            let name = DataName {
                kind: *kind,
                minion: id.clone(),
            };
            if !self.changed.has(&name) {
                let removed = self.drop_file(id, self.bank_of_kind(*kind));
                done = done.and(removed);
            }
        }
        if self.has_banks() {
            done = done.and(self.remove_environments(id).map(|_| ()));
        }
        let dropped = match self.has_banks() {
            _ if self.forgotten.is_sender(id) => Ok(()),
            true => self.drop_file(id, Bank::Pillar),
            false => self.drop_pillar(id),
        };
        done.and(dropped)
    }

    fn drop_file(&self, id: &MinionId, bank: Bank) -> Result<()> {
        files::remove(&self.path(id, bank)?)?;
        self.memory.lock().forget_one(id, bank);
        self.notice(id, bank, None);
        Ok(())
    }

    /// Takes the pillar out of the file that has both. The time of the file stays: it says whether the grains are newer
    /// than their row.
    fn drop_pillar(&self, id: &MinionId) -> Result<()> {
        let path = self.path(id, Bank::Data)?;
        let Some(stat) = Version::of(&path, true)? else {
            return Ok(());
        };
        let Some(packed) = files::read(&path, FILE_BYTES)? else {
            return Ok(());
        };
        let Ok(Value::Map(mut parts)) = decoded(&packed, path.clone()) else {
            // Nobody reads a pillar in it, and the row replaces it.
            return Ok(());
        };
        let before = parts.len();
        parts.retain(|(name, _)| name.as_str() != Some("pillar"));
        if parts.len() == before {
            return Ok(());
        }
        if parts.is_empty() {
            return self.drop_file(id, Bank::Data);
        }
        let create = Create::PRIVATE.derived();
        let create = create.modified(stat.version.modified_micros());
        files::write_atomic(&path, &encode(&Value::Map(parts), Dialect::Bin), create)?;
        self.memory.lock().forget_one(id, Bank::Data);
        let version = Version::of(&path, true)?.map(|stat| stat.version);
        self.notice(id, Bank::Data, version);
        Ok(())
    }
}
