//! The syndics below this master (`order_masters`): minions that stand for the minions of a master
//! of their own, and are none themselves.
//!
//! One empty file a syndic in `cachedir/syndics`, named by its id: stock's command line looks there
//! before it says that somebody did not return (`get_cli_event_returns` in
//! `salt/client/__init__.py`), and a master that comes back knows its syndics by them. Nobody is
//! one without an accepted key, so there are never more of them than keys.
//!
//! The minions of each syndic are kept in memory: a minion belongs to the first syndic that claims
//! it, until the claim is ended, that is a syndic no more, or the master restarts. Bounded; a claim above the bound is
//! refused.
//!
//! Not here: who may call itself a syndic, and which claims are outdated (`requests`).

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;

use parking_lot::RwLock;
use saltern_config::MasterConfig;
use saltern_model::MinionId;

use crate::error::Result;
use crate::files::{self, Create};

/// Before the umask; stock's under its usual one.
const MODE: u32 = 0o644;

/// Maximum number of minions that one syndic may claim, and all of them together: about 100 bytes
/// each.
const MAX_LEAVES: (usize, usize) = (100_000, 500_000);

/// Syndics below this master and the minions that each of them has claimed.
pub struct SyndicStore {
    dir: PathBuf,
    known: RwLock<BTreeSet<MinionId>>,
    leaves: RwLock<SpokenFor>,
}

/// Minions by the syndic that claimed them.
#[derive(Default)]
struct SpokenFor {
    syndic_of: HashMap<MinionId, MinionId>,
    /// Number of minions of each syndic.
    counts: HashMap<MinionId, usize>,
}

impl SpokenFor {
    /// See [`SyndicStore::claim`].
    fn claim(&mut self, leaf: &MinionId, syndic: &MinionId, most: (usize, usize)) -> bool {
        if let Some(first) = self.syndic_of.get(leaf) {
            return first == syndic;
        }
        let count = self.counts.entry(syndic.clone()).or_default();
        if *count >= most.0 || self.syndic_of.len() >= most.1 {
            return false;
        }
        *count += 1;
        self.syndic_of.insert(leaf.clone(), syndic.clone());
        true
    }

    fn release_one(&mut self, leaf: &MinionId, syndic: &MinionId) {
        if self.syndic_of.get(leaf) != Some(syndic) {
            return;
        }
        self.syndic_of.remove(leaf);
        if let Some(count) = self.counts.get_mut(syndic) {
            *count = count.saturating_sub(1);
        }
    }

    fn release(&mut self, syndic: &MinionId) {
        if self.counts.remove(syndic).is_some() {
            self.syndic_of.retain(|_, owner| owner != syndic);
        }
    }
}

impl SyndicStore {
    /// Reads the known syndics. Files whose name is no id are left alone.
    ///
    /// # Errors
    /// When the directory is there and cannot be read.
    pub fn open(config: &MasterConfig) -> Result<Self> {
        let dir = config.syndic_dir.clone();
        let mut known = BTreeSet::new();
        files::each_entry(&dir, |name, _| known.extend(MinionId::parse(name)))?;
        Ok(Self {
            dir,
            known: RwLock::new(known),
            leaves: RwLock::default(),
        })
    }

    /// Whether this is a syndic.
    pub fn has(&self, id: &MinionId) -> bool {
        self.known.read().contains(id)
    }

    /// All of them, sorted.
    pub fn ids(&self) -> Vec<MinionId> {
        self.known.read().iter().cloned().collect()
    }

    /// Whether this is so of any of them.
    pub fn any(&self, is_so: impl FnMut(&MinionId) -> bool) -> bool {
        self.known.read().iter().any(is_so)
    }

    /// Adds a syndic; whether it is new.
    ///
    /// # Errors
    /// When its file cannot be written; it is known all the same until the master ends.
    pub fn register(&self, id: &MinionId) -> Result<bool> {
        if self.has(id) {
            return Ok(false);
        }
        if !self.known.write().insert(id.clone()) {
            return Ok(false);
        }
        files::ensure_dir(&self.dir, 0o755)?;
        let path = files::child(&self.dir, id.as_str())?;
        files::create_new(&path, b"", Create::PRIVATE.mode(MODE).above())?;
        Ok(true)
    }

    /// Claims a minion for a syndic; `true` if it is the first to claim it, or did so before.
    pub fn claim(&self, leaf: &MinionId, syndic: &MinionId) -> bool {
        if let Some(first) = self.leaves.read().syndic_of.get(leaf) {
            return first == syndic;
        }
        self.leaves.write().claim(leaf, syndic, MAX_LEAVES)
    }

    /// The syndic that has claimed a minion.
    pub fn claimant(&self, leaf: &MinionId) -> Option<MinionId> {
        self.leaves.read().syndic_of.get(leaf).cloned()
    }

    /// Ends the claim of a syndic to a minion.
    pub fn release(&self, leaf: &MinionId, syndic: &MinionId) {
        self.leaves.write().release_one(leaf, syndic);
    }

    /// The number of minions that a syndic has claimed.
    pub fn claimed_by(&self, syndic: &MinionId) -> usize {
        let leaves = self.leaves.read();
        leaves.counts.get(syndic).copied().unwrap_or(0)
    }

    /// Removes a syndic and its claims; whether it was one.
    ///
    /// # Errors
    /// When its file cannot be removed; the next start would know it again.
    pub fn forget(&self, id: &MinionId) -> Result<bool> {
        if !self.known.write().remove(id) {
            return Ok(false);
        }
        self.leaves.write().release(id);
        files::remove(&files::child(&self.dir, id.as_str())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minion_belongs_to_first_syndic_and_claims_are_bounded() {
        let id = |name: &str| MinionId::parse(name).unwrap();
        let (one, other) = (id("one"), id("other"));
        let mut leaves = SpokenFor::default();
        let mut claim = |leaf: &str, syndic: &MinionId| leaves.claim(&id(leaf), syndic, (2, 3));
        assert!(claim("a", &one) && claim("a", &one) && !claim("a", &other));
        assert!(claim("b", &one) && !claim("c", &one), "two are the most");
        assert!(claim("c", &other) && !claim("d", &other), "three of all");
        leaves.release_one(&id("a"), &other);
        leaves.release_one(&id("b"), &one);
        assert!(
            leaves.claim(&id("d"), &other, (2, 3)),
            "there is room again"
        );
        assert!(
            !leaves.claim(&id("a"), &other, (2, 3)),
            "the claim of \"one\" stands"
        );
        leaves.release_one(&id("d"), &other);
        leaves.release(&one);
        assert_eq!(leaves.syndic_of.len(), 1);
        assert!(leaves.claim(&id("a"), &other, (2, 3)));
    }
}
