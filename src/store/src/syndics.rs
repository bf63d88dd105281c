//! The syndics below this master (`order_masters`): minions that stand for the minions of a master
//! of their own, and are none themselves.
//!
//! One empty file a syndic in `cachedir/syndics`, named by its id: stock's command line looks there
//! before it says that somebody did not return (`get_cli_event_returns` in
//! `salt/client/__init__.py`), and a master that comes back knows its syndics by them. Nobody is
//! one without an accepted key, so there are never more of them than keys.
//!
//! The machine of a syndic may have a minion of the same id and key. Nothing on the wire tells them apart, so what
//! only minions send ends the role of a syndic only where nothing that only syndics send has come for long
//! ([`SyndicStore::note_minion_act`]). Before, the id is both. Times are monotonic, since the start of the master.
//!
//! The minions of each syndic are kept in memory: a minion belongs to the first syndic that claims
//! it, until the claim is ended, that is a syndic no more, or the master restarts. Bounded; a claim above the bound is
//! refused.
//!
//! Not here: who may call itself a syndic, which claims are outdated, and how long a role is kept (`requests`).

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::Duration;

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
    known: RwLock<BTreeMap<MinionId, Role>>,
    leaves: RwLock<SpokenFor>,
}

/// Last acts of a known syndic, in time since the start of the master.
#[derive(Clone, Copy, Debug, Default)]
struct Role {
    /// Last request that only syndics send; zero for one that is known by its file.
    acted: Duration,
    /// When its role became doubtful: a request that only minions send came long after `acted`.
    doubted: Option<Duration>,
    /// Last request that only minions send.
    minion: Option<Duration>,
}

/// Time for which the role of a syndic is kept that acts as a minion.
#[derive(Clone, Copy, Debug)]
pub struct RoleBounds {
    /// Time since its last act as a syndic, from which on its role is doubtful.
    pub kept: Duration,
    /// Time for which it is doubtful before it ends.
    pub doubt: Duration,
}

/// Effect of an act as a minion on the role of a syndic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleAfter {
    /// It is no syndic.
    NoSyndic,
    /// It is a syndic and a minion from now on.
    Both,
    /// It is both, as before.
    BothStill,
    /// It is a syndic no more, and is to be forgotten as one.
    Ended,
}

/// Minions by the syndic that claimed them.
#[derive(Default)]
struct SpokenFor {
    syndic_of: HashMap<MinionId, MinionId>,
    /// Number of minions of each syndic.
    counts: HashMap<MinionId, usize>,
    /// Last search for claims that have ended, in time since the start of the master.
    searched: Option<Duration>,
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

    fn release_where(&mut self, is_so: impl Fn(&MinionId, &MinionId) -> bool) -> usize {
        let Self {
            syndic_of, counts, ..
        } = self;
        let before = syndic_of.len();
        syndic_of.retain(|leaf, syndic| {
            let ends = is_so(leaf, syndic);
            if ends && let Some(count) = counts.get_mut(syndic) {
                *count = count.saturating_sub(1);
            }
            !ends
        });
        before - syndic_of.len()
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
        let mut known = BTreeMap::new();
        files::each_entry(&dir, |name, _| {
            known.extend(MinionId::parse(name).map(|id| (id, Role::default())));
        })?;
        Ok(Self {
            dir,
            known: RwLock::new(known),
            leaves: RwLock::default(),
        })
    }

    /// Whether this is a syndic.
    pub fn has(&self, id: &MinionId) -> bool {
        self.known.read().contains_key(id)
    }

    /// Whether this is a syndic, and no minion beside that as far as is known.
    pub fn is_only_syndic(&self, id: &MinionId) -> bool {
        let known = self.known.read();
        known.get(id).is_some_and(|role| role.minion.is_none())
    }

    /// Records a request that only syndics send.
    pub fn note_act(&self, id: &MinionId, now: Duration) {
        if let Some(role) = self.known.write().get_mut(id) {
            (role.acted, role.doubted) = (now, None);
        }
    }

    /// Records that a syndic starts. That it is a minion, too, counts from then on only if it acted as one since
    /// `is_minion_since`.
    pub fn note_start(&self, id: &MinionId, now: Duration, is_minion_since: Duration) {
        if let Some(role) = self.known.write().get_mut(id) {
            (role.acted, role.doubted) = (now, None);
            role.minion = role.minion.filter(|at| *at >= is_minion_since);
        }
    }

    /// Records a request that only minions send: from then on the id is both, unless its role as a syndic has ended.
    pub fn note_minion_act(&self, id: &MinionId, now: Duration, bounds: RoleBounds) -> RoleAfter {
        let mut known = self.known.write();
        let Some(role) = known.get_mut(id) else {
            return RoleAfter::NoSyndic;
        };
        if now.saturating_sub(role.acted) >= bounds.kept {
            let doubted = *role.doubted.get_or_insert(now);
            if now.saturating_sub(doubted) >= bounds.doubt {
                return RoleAfter::Ended;
            }
        }
        match role.minion.replace(now) {
            None => RoleAfter::Both,
            Some(_) => RoleAfter::BothStill,
        }
    }

    /// Time since the last request of a syndic that only syndics send.
    pub fn silence(&self, id: &MinionId, now: Duration) -> Option<Duration> {
        let known = self.known.read();
        known.get(id).map(|role| now.saturating_sub(role.acted))
    }

    /// All of them, sorted.
    pub fn ids(&self) -> Vec<MinionId> {
        self.known.read().keys().cloned().collect()
    }

    /// Whether this is so of any of them.
    pub fn any(&self, is_so: impl FnMut(&MinionId) -> bool) -> bool {
        self.known.read().keys().any(is_so)
    }

    /// Adds a syndic; whether it is new.
    ///
    /// # Errors
    /// When its file cannot be written; it is known all the same until the master ends.
    pub fn register(&self, id: &MinionId) -> Result<bool> {
        if self.has(id) {
            return Ok(false);
        }
        match self.known.write().entry(id.clone()) {
            Entry::Occupied(_) => return Ok(false),
            Entry::Vacant(new) => new.insert(Role::default()),
        };
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

    /// Ends the claims of which this is so, given the minion and its syndic; gives their number.
    pub fn release_where(&self, is_so: impl Fn(&MinionId, &MinionId) -> bool) -> usize {
        self.leaves.write().release_where(is_so)
    }

    /// Whether claims may be searched again for those that have ended: not within this time of the last search.
    pub fn may_search(&self, now: Duration, interval: Duration) -> bool {
        let mut leaves = self.leaves.write();
        let last = leaves.searched;
        let may = last.is_none_or(|last| now.saturating_sub(last) >= interval);
        if may {
            leaves.searched = Some(now);
        }
        may
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
        if self.known.write().remove(id).is_none() {
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
        assert_eq!(leaves.release_where(|leaf, _| leaf.as_str() == "x"), 0);
        let is_of_other = |_: &MinionId, syndic: &MinionId| *syndic == other;
        assert_eq!(leaves.release_where(is_of_other), 1);
        assert_eq!(leaves.counts.get(&other), Some(&0));
        assert!(leaves.claim(&id("a"), &other, (2, 3)));
    }
}
