//! Changes to mines on a master that serves before it has read all that its cluster shares. A mine is changed by
//! function: what came here counts for its functions, and the shared one for the others.

use std::collections::{BTreeSet, HashMap};

use parking_lot::Mutex;
use saltern_model::MinionId;
use saltern_wire::msgpack::{Dialect, Value, encode};

use super::{Bank, MINE_FUNCTIONS, MinionDataStore, ReplacedData};
use crate::error::Result;
use crate::files::{Stat, Version};

/// Changes to the mine of a minion.
#[derive(Clone)]
enum Edits {
    /// Nothing of the shared one is to be left.
    All,
    Of(Functions),
}

#[derive(Clone, Default)]
struct Functions {
    /// When the mine of before was written, in microseconds since 1970.
    before: Option<i64>,
    /// Their names, packed.
    names: BTreeSet<Vec<u8>>,
}

/// Nothing is noted but between the two ends of a takeover.
#[derive(Default)]
pub(super) struct MineEdits {
    minions: Mutex<Option<HashMap<MinionId, Edits>>>,
}

impl MineEdits {
    pub(super) fn begin(&self) {
        self.minions.lock().get_or_insert_default();
    }

    pub(super) fn end(&self) {
        *self.minions.lock() = None;
    }

    pub(super) fn is_on(&self) -> bool {
        self.minions.lock().is_some()
    }

    /// Notes that the shared mine counts no longer.
    pub(super) fn note_all(&self, id: &MinionId) {
        if let Some(edits) = &mut *self.minions.lock() {
            edits.insert(id.clone(), Edits::All);
        }
    }

    /// Notes functions that were changed or removed, and when the mine of before was written.
    pub(super) fn note<'a>(
        &self,
        id: &MinionId,
        functions: impl Iterator<Item = &'a Value>,
        before: Option<i64>,
    ) {
        let mut edits = self.minions.lock();
        let Some(edits) = &mut *edits else { return };
        let first = Functions {
            before,
            ..Functions::default()
        };
        let edit = edits.entry(id.clone()).or_insert(Edits::Of(first));
        if let Edits::Of(Functions { names, .. }) = edit {
            names.extend(functions.map(|name| encode(name, Dialect::Bin)));
            if names.len() > MINE_FUNCTIONS {
                *edit = Edits::All;
            }
        }
    }

    fn functions(&self, id: &MinionId) -> Option<Functions> {
        match self.minions.lock().as_ref()?.get(id)? {
            Edits::All => None,
            Edits::Of(functions) => Some(functions.clone()),
        }
    }
}

impl MinionDataStore {
    /// When the mine was written, if that matters.
    pub(super) fn mine_before(&self, id: &MinionId) -> Result<Option<i64>> {
        if !self.mine_edits.is_on() {
            return Ok(None);
        }
        let stat = Version::of(&self.path(id, Bank::Mine)?, true)?.filter(Stat::is_file);
        Ok(stat.map(|stat| stat.version.modified_micros()))
    }

    /// Adds what the shared mine has to one that was changed here, whose lock is held; not when the one of before is
    /// newer than a time.
    pub(super) fn merge_mine(
        &self,
        id: &MinionId,
        (shared, newest): (&[(Value, Value)], Option<i64>),
    ) -> Result<ReplacedData> {
        let Some(Functions { before, names }) = self.mine_edits.functions(id) else {
            return Ok(ReplacedData::Kept);
        };
        let is_newer = before
            .zip(newest)
            .is_some_and(|(before, newest)| before > newest);
        if is_newer {
            return Ok(ReplacedData::Kept);
        }
        let own = self.mine(id)?;
        if own.is_none() && shared.is_empty() {
            return Ok(ReplacedData::Kept);
        }
        let own = own.as_deref().and_then(Value::as_map).unwrap_or_default();
        let is_own = |(name, _): &&(Value, Value)| names.contains(&encode(name, Dialect::Bin));
        let of_others = shared.iter().filter(|entry| !is_own(entry));
        let mine: Vec<(Value, Value)> = of_others
            .chain(own.iter().filter(is_own))
            .cloned()
            .collect();
        if mine.len() > MINE_FUNCTIONS {
            return Ok(ReplacedData::Kept);
        }
        self.write(id, Bank::Mine, &Value::Map(mine))?;
        Ok(ReplacedData::Written)
    }
}
