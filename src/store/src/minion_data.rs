//! Minion data cache: grains, pillar and mine of each minion, in the files in which stock's tools
//! look for them.
//!
//! The disk is the source of truth, in the banks of the version (`salt/cache/localfs.py`): 3006 and
//! 3007 have a directory for each minion, `minions/<id>/data.p` with `{grains, pillar}` and
//! `mine.p`; 3008 has a directory for each kind, `grains/<id>.p`, `pillar/<id>.p` and
//! `mine/<id>.p`. Reads are cached within a bound; every lookup costs one `stat`.
//!
//! An index of all minions' data follows it by [`MinionDataStore::changes`]. Own writes are in it
//! at once; changes by other programs are found when the entry is read, or by
//! [`MinionDataStore::refresh`], which looks at every file and is for the background.
//!
//! Not here: who may read whose mine (`policy`), whether data is kept at all (the options
//! `minion_data_cache`, `enforce_mine_cache` and `preserve_minion_cache` are the caller's).

mod age;
mod bound;
mod clear;
mod environments;
mod forgotten;
mod known;
mod memory;
mod mine_edits;
mod removals;
mod shared;
#[cfg(test)]
mod tests;
mod unremoved;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};
use saltern_config::MasterConfig;
use saltern_model::{Compat, DataChanges, MinionId};
use saltern_wire::msgpack::{Dialect, Limits, Value, decode_exact, encode};

pub use bound::KeptGrains;
pub(crate) use forgotten::Forgotten;
pub use forgotten::PILLAR_CACHE;
pub use shared::DataKind;
pub(crate) use shared::{DataName, ReplacedData};

use crate::error::{Result, StoreError};
use crate::files::{self, Create, Stat, Version};
use crate::options::StoreOptions;
use forgotten::ForgottenData;
use known::{Known, Stamps};
use memory::{Memory, Parts, Remembered};
use mine_edits::MineEdits;
use removals::Removals;
use shared::ChangedData;
use unremoved::UnremovedFiles;

/// The largest file that is read, in bytes.
const FILE_BYTES: usize = 64 << 20;

/// Stock nests no deeper than its own packer can.
const LIMITS: Limits = Limits {
    bytes: FILE_BYTES,
    ..Limits::WIRE
};

/// The most functions in one mine.
pub const MINE_FUNCTIONS: usize = 10_000;

/// How many writers can work at a time.
const WRITERS: usize = 64;

/// A kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Bank {
    /// Grains and pillar together, 3006 and 3007.
    Data,
    Grains,
    Pillar,
    Mine,
}

/// Grains, pillars and mines of all minions.
pub struct MinionDataStore {
    cachedir: PathBuf,
    compat: Compat,
    memory: Mutex<Memory>,
    known: RwLock<Known>,
    /// For the other masters of a cluster.
    changed: ChangedData,
    forgotten: ForgottenData,
    mine_edits: MineEdits,
    removals: Removals,
    unremoved: UnremovedFiles,
    /// Held while a minion's files are written or removed, and while its mine is read, changed and
    /// written back; by hash of the id.
    writers: [Mutex<()>; WRITERS],
}

impl MinionDataStore {
    /// Opens the cache of this configuration. Nothing is read yet.
    pub fn open(config: &MasterConfig) -> Self {
        Self::with_options(&StoreOptions::from(config))
    }

    /// Opens the cache below `cachedir`. Nothing is read yet.
    pub fn with_options(options: &StoreOptions) -> Self {
        Self {
            cachedir: options.cachedir.clone(),
            compat: options.compat,
            memory: Mutex::default(),
            known: RwLock::default(),
            changed: ChangedData::default(),
            forgotten: ForgottenData::default(),
            mine_edits: MineEdits::default(),
            removals: Removals::new(&options.cachedir),
            unremoved: UnremovedFiles::default(),
            writers: std::array::from_fn(|_| Mutex::new(())),
        }
    }

    /// The cached grains; nothing when there are none.
    pub fn grains(&self, id: &MinionId) -> Result<Option<Arc<Value>>> {
        let read = self.read(id, self.bank_of(Bank::Grains))?;
        Ok(read.and_then(|parts| parts.grains.clone()))
    }

    /// The cached pillar.
    pub fn pillar(&self, id: &MinionId) -> Result<Option<Arc<Value>>> {
        let read = self.read(id, self.bank_of(Bank::Pillar))?;
        Ok(read.and_then(|parts| parts.pillar.clone()))
    }

    /// The minion's mine: functions and their results.
    pub fn mine(&self, id: &MinionId) -> Result<Option<Arc<Value>>> {
        let read = self.read(id, Bank::Mine)?;
        Ok(read.and_then(|parts| parts.mine.clone()))
    }

    /// Keeps what the master has just rendered for a minion (`_pillar` in `salt/master.py`).
    pub fn store_grains_and_pillar(
        &self,
        id: &MinionId,
        grains: &Value,
        pillar: &Value,
    ) -> Result<KeptGrains> {
        let (grains, kept) = KeptGrains::of(grains);
        let _writing = self.writer(id).lock();
        self.forgotten.note_sender(id);
        if self.has_banks() {
            self.write(id, Bank::Grains, &grains)?;
            self.write(id, Bank::Pillar, pillar)?;
            return Ok(kept);
        }
        let data = Value::map([("grains", grains.into_owned()), ("pillar", pillar.clone())]);
        self.write(id, Bank::Data, &data)?;
        Ok(kept)
    }

    /// Stores only the grains, after a pillar rendered with the minion's own data
    /// (`pillar_override`).
    pub fn store_grains(&self, id: &MinionId, grains: &Value) -> Result<KeptGrains> {
        let (grains, kept) = KeptGrains::of(grains);
        let _writing = self.writer(id).lock();
        if self.has_banks() {
            self.write(id, Bank::Grains, &grains)?;
            return Ok(kept);
        }
        // One file has both; the pillar in it is read and written back under the same lock.
        let pillar = self.pillar(id)?;
        let pillar = pillar.map_or(Value::Map(Vec::new()), |pillar| pillar.as_ref().clone());
        let data = Value::map([("grains", grains.into_owned()), ("pillar", pillar)]);
        self.write(id, Bank::Data, &data)?;
        Ok(kept)
    }

    /// Adds functions to a mine, or with `clear` replaces it (`_mine` in
    /// `salt/daemons/masterapi.py`, whose `clear` fails). `false` when `data` is no mapping.
    ///
    /// # Errors
    /// Also when the mine would hold more than [`MINE_FUNCTIONS`]; then it stays as it is.
    pub fn mine_update(&self, id: &MinionId, data: &Value, clear: bool) -> Result<bool> {
        let Some(new) = data.as_map() else {
            return Ok(false);
        };
        let path = self.path(id, Bank::Mine)?;
        let too_many = || StoreError::TooMany {
            path: path.clone(),
            limit: MINE_FUNCTIONS,
        };
        if new.len() > MINE_FUNCTIONS {
            return Err(too_many());
        }
        let _writing = self.writer(id).lock();
        let mut before = self.mine_before(id)?;
        let old = match clear {
            true => None,
            false => self.mine(id).or_else(|error| match error.is_damaged() {
                true => {
                    tracing::warn!(minion = %id, %error, "a damaged mine is replaced");
                    // Nothing of it counts against the shared one.
                    before = None;
                    Ok(None)
                }
                false => Err(error),
            })?,
        };
        let old = old.as_deref().and_then(Value::as_map).unwrap_or_default();
        let mine = [old, new].concat().into_iter().collect::<Value>();
        if mine
            .as_map()
            .is_some_and(|mine| mine.len() > MINE_FUNCTIONS)
        {
            return Err(too_many());
        }
        self.write(id, Bank::Mine, &mine)?;
        match clear {
            true => self.mine_edits.note_all(id),
            false => {
                let functions = new.iter().map(|(name, _)| name);
                self.mine_edits.note(id, functions, before);
            }
        }
        Ok(true)
    }

    /// Takes a function out of a mine. `false` when the mine is damaged; that the function was not
    /// there is no failure, as in stock.
    pub fn mine_delete(&self, id: &MinionId, function: &Value) -> Result<bool> {
        let _writing = self.writer(id).lock();
        let mine = match self.mine(id) {
            Err(error) if error.is_damaged() => return Ok(false),
            mine => mine?,
        };
        if self.mine_edits.is_on() {
            let before = self.mine_before(id)?;
            self.mine_edits.note(id, std::iter::once(function), before);
            self.changed.note(id, Bank::Mine);
        }
        let Some(mine) = mine else {
            return Ok(true);
        };
        let Some(entries) = mine.as_map() else {
            return Ok(false);
        };
        let keep = |(known, _): &&(Value, Value)| known != function;
        let rest: Vec<(Value, Value)> = entries.iter().filter(keep).cloned().collect();
        if rest.len() < entries.len() {
            self.write(id, Bank::Mine, &Value::Map(rest))?;
        }
        Ok(true)
    }

    /// Removes a mine; `false` when there was none.
    pub fn mine_flush(&self, id: &MinionId) -> Result<bool> {
        let _writing = self.writer(id).lock();
        let removed = files::remove(&self.path(id, Bank::Mine)?)?;
        self.memory.lock().forget(id);
        self.mine_edits.note_all(id);
        self.note_removed(id, Bank::Mine);
        Ok(removed)
    }

    /// The minions with an entry, sorted, as stock's `cache.list` counts them: in 3008 those with
    /// grains, before those with a directory.
    pub fn known(&self) -> Result<Arc<[MinionId]>> {
        self.load_known()?;
        Ok(self.known.write().all())
    }

    /// Changes in grains, pillars and the list of minions since a generation.
    pub fn changes(&self, since: Option<u64>) -> Result<DataChanges> {
        self.load_known()?;
        Ok(self.known.read().changes(since))
    }

    /// Looks at every file for changes that other programs made; gives the number of minions that
    /// have changed. Costs one or two `stat` for each minion: for a thread that may wait.
    pub fn refresh(&self) -> Result<usize> {
        let mut present = Vec::new();
        for id in self.list_known()? {
            let stamps = self.stamps(&id)?;
            present.push((id, stamps));
        }
        let environments = match self.has_banks() {
            true => self.list_environments()?,
            false => Vec::new(),
        };
        Ok(self.known.write().take_over(present, environments))
    }

    fn load_known(&self) -> Result<()> {
        if !self.known.read().is_loaded() {
            self.refresh()?;
        }
        Ok(())
    }

    fn read(&self, id: &MinionId, bank: Bank) -> Result<Option<Arc<Parts>>> {
        let path = self.path(id, bank)?;
        let stat = Version::of(&path, true)?.filter(Stat::is_file);
        let stat = stat.filter(|stat| !self.unremoved.has(id, bank, &stat.version));
        let Some(stat) = stat else {
            self.memory.lock().forget_one(id, bank);
            self.notice(id, bank, None);
            return Ok(None);
        };
        if let Some(parts) = self.memory.lock().get(id, bank, &stat.version) {
            return Ok(Some(parts));
        }
        // Asked before reading: what changes from here on has another stamp.
        let settled = stat.version.is_settled();
        let Some(packed) = files::read(&path, FILE_BYTES)? else {
            return Ok(None);
        };
        let value = decoded(&packed, path)?;
        let parts = Arc::new(Parts::new(bank, value));
        let remembered = Remembered::new(stat.version, packed.len(), Arc::clone(&parts));
        if settled {
            self.memory.lock().put(id, bank, remembered);
        }
        self.notice(id, bank, Some(stat.version));
        Ok(Some(parts))
    }

    fn write(&self, id: &MinionId, bank: Bank, value: &Value) -> Result<()> {
        let path = self.path(id, bank)?;
        if let Some(dir) = path.parent() {
            files::ensure_dir(dir, 0o755)?;
        }
        let packed = Bytes::from(encode(value, Dialect::Bin));
        files::readable(&packed, &LIMITS, &path)?;
        // 3008's banks are directories of all minions, which other programs list; before, each
        // minion has a directory.
        let create = Create::PRIVATE.derived();
        let create = match self.has_banks() {
            true => create.above(),
            false => create,
        };
        files::write_atomic(&path, &packed, create)?;
        self.memory.lock().forget_one(id, bank);
        self.changed.note(id, bank);
        let is_listed = bank == Bank::Grains || !self.has_banks();
        let version = Version::of(&path, true)?.map(|stat| stat.version);
        self.known
            .write()
            .written(id, place(bank), version, is_listed);
        Ok(())
    }

    /// Records a change when a file is not the one that was last seen.
    fn notice(&self, id: &MinionId, bank: Bank, version: Option<Version>) {
        let Some(place) = place(bank) else { return };
        if self.known.read().is_current(id, place, version) {
            return;
        }
        let mut known = self.known.write();
        // Looked at once more: a writer may have been at work since, and has recorded its change.
        let Ok(stat) = self
            .path(id, bank)
            .and_then(|path| Version::of(&path, true))
        else {
            return;
        };
        let version = stat.filter(Stat::is_file).map(|stat| stat.version);
        if version.is_none() && bank == Bank::Grains {
            return known.unlist(id);
        }
        let is_listed = version.is_some() && bank != Bank::Pillar;
        known.written(id, Some(place), version, is_listed);
    }

    fn stamps(&self, id: &MinionId) -> Result<Stamps> {
        let banks: &[Bank] = match self.has_banks() {
            true => &[Bank::Grains, Bank::Pillar],
            false => &[Bank::Data],
        };
        let mut stamps = Stamps::default();
        for bank in banks {
            let stat = Version::of(&self.path(id, *bank)?, true)?;
            if let Some(stamp) = place(*bank).and_then(|place| stamps.get_mut(place)) {
                *stamp = stat.filter(Stat::is_file).map(|stat| stat.version);
            }
        }
        Ok(stamps)
    }

    fn has_banks(&self) -> bool {
        self.compat == Compat::V3008
    }

    fn bank_of(&self, bank: Bank) -> Bank {
        if self.has_banks() { bank } else { Bank::Data }
    }

    fn path(&self, id: &MinionId, bank: Bank) -> Result<PathBuf> {
        let name = match bank {
            Bank::Data => "data",
            Bank::Grains => "grains",
            Bank::Pillar => "pillar",
            Bank::Mine => "mine",
        };
        if self.has_banks() {
            return files::child(&self.cachedir.join(name), &format!("{}.p", id.as_str()));
        }
        let dir = files::child(&self.cachedir.join("minions"), id.as_str())?;
        Ok(dir.join(format!("{name}.p")))
    }

    fn list_known(&self) -> Result<Vec<MinionId>> {
        if self.has_banks() {
            return self.list("grains");
        }
        let mut ids = Vec::new();
        files::each_entry(&self.cachedir.join("minions"), |name, entry| {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                ids.extend(MinionId::parse(name));
            }
        })?;
        ids.sort_unstable();
        Ok(ids)
    }

    /// The ids in a bank of 3008, sorted.
    fn list(&self, bank: &str) -> Result<Vec<MinionId>> {
        let mut ids = Vec::new();
        files::each_entry(&self.cachedir.join(bank), |name, _| {
            let stem = name.strip_suffix(".p").filter(|stem| !stem.contains(':'));
            ids.extend(stem.and_then(|stem| MinionId::parse(stem).ok()));
        })?;
        ids.sort_unstable();
        Ok(ids)
    }

    fn writer(&self, id: &MinionId) -> &Mutex<()> {
        let mut hasher = DefaultHasher::new();
        id.hash(&mut hasher);
        let at = hasher.finish() as usize % WRITERS;
        self.writers.get(at).unwrap_or(&self.writers[0])
    }
}

/// The stamp of a minion that belongs to a bank; a mine has none.
fn place(bank: Bank) -> Option<usize> {
    match bank {
        Bank::Data | Bank::Grains => Some(0),
        Bank::Pillar => Some(1),
        Bank::Mine => None,
    }
}

/// The value in a file of the cache.
fn decoded(packed: &[u8], path: PathBuf) -> Result<Value> {
    decode_exact(packed, &LIMITS).map_err(|_| StoreError::Malformed {
        path,
        reason: "it is not msgpack",
    })
}
