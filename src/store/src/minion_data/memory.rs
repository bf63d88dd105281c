//! Bounded cache of decoded files of minion data.

use std::collections::HashMap;
use std::sync::Arc;

use saltern_model::MinionId;
use saltern_wire::msgpack::Value;

use super::{Bank, bound};
use crate::files::Version;

/// Maximum size of the cache, in bytes of memory as estimated by [`WEIGHT`].
const LIMIT: usize = 128 << 20;

/// A decoded value takes about so many times the bytes of its file.
const WEIGHT: usize = 6;

/// One file as it was read.
pub(super) struct Remembered {
    version: Version,
    weight: usize,
    parts: Arc<Parts>,
    used: u64,
}

impl Remembered {
    /// `bytes` is the size of the file.
    pub(super) fn new(version: Version, bytes: usize, parts: Arc<Parts>) -> Self {
        Self {
            version,
            weight: bytes.saturating_mul(WEIGHT) + 256,
            parts,
            used: 0,
        }
    }
}

#[derive(Default)]
pub(super) struct Memory {
    files: HashMap<(MinionId, Bank), Remembered>,
    weight: usize,
    uses: u64,
}

impl Memory {
    /// The file, if it is still the one that was read.
    pub(super) fn get(
        &mut self,
        id: &MinionId,
        bank: Bank,
        version: &Version,
    ) -> Option<Arc<Parts>> {
        self.uses += 1;
        let known = self.files.get_mut(&(id.clone(), bank))?;
        known.used = self.uses;
        (known.version == *version).then(|| Arc::clone(&known.parts))
    }

    pub(super) fn put(&mut self, id: &MinionId, bank: Bank, mut file: Remembered) {
        if file.weight > LIMIT / 4 {
            return;
        }
        self.uses += 1;
        file.used = self.uses;
        self.weight += file.weight;
        if let Some(old) = self.files.insert((id.clone(), bank), file) {
            self.weight -= old.weight;
        }
        if self.weight > LIMIT {
            self.shrink();
        }
    }

    pub(super) fn forget_one(&mut self, id: &MinionId, bank: Bank) {
        if let Some(old) = self.files.remove(&(id.clone(), bank)) {
            self.weight -= old.weight;
        }
    }

    pub(super) fn forget(&mut self, id: &MinionId) {
        for bank in [Bank::Data, Bank::Grains, Bank::Pillar, Bank::Mine] {
            self.forget_one(id, bank);
        }
    }

    /// Evicts the least recently used half, so that eviction is rare.
    fn shrink(&mut self) {
        let mut by_use: Vec<(u64, (MinionId, Bank))> = self
            .files
            .iter()
            .map(|(key, file)| (file.used, key.clone()))
            .collect();
        by_use.sort_unstable_by_key(|(used, _)| *used);
        for (_, (id, bank)) in by_use {
            if self.weight <= LIMIT / 2 {
                return;
            }
            self.forget_one(&id, bank);
        }
    }
}

/// An earlier release, or another program, may have kept more.
fn bounded(grains: Value) -> Value {
    bound::cut(&grains).unwrap_or(grains)
}

/// Content of one file.
#[derive(Default)]
pub(super) struct Parts {
    pub(super) grains: Option<Arc<Value>>,
    pub(super) pillar: Option<Arc<Value>>,
    pub(super) mine: Option<Arc<Value>>,
}

impl Parts {
    /// Takes the content of a file apart.
    pub(super) fn new(bank: Bank, value: Value) -> Self {
        let mut parts = Self::default();
        match bank {
            Bank::Grains => parts.grains = Some(Arc::new(bounded(value))),
            Bank::Pillar => parts.pillar = Some(Arc::new(value)),
            Bank::Mine => parts.mine = Some(Arc::new(value)),
            Bank::Data => {
                let Value::Map(entries) = value else {
                    return parts;
                };
                for (name, value) in entries {
                    match name.as_str() {
                        Some("grains") => parts.grains = Some(Arc::new(bounded(value))),
                        Some("pillar") => parts.pillar = Some(Arc::new(value)),
                        _ => {}
                    }
                }
            }
        }
        parts
    }
}
