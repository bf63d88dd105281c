//! Minions with cached data, and a bounded change log for the index of targets.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use saltern_model::{Changed, DataChanges, MinionId};

use crate::files::Version;

/// Maximum length of the change log.
const REMEMBERED: usize = 1 << 16;

/// The versions of a minion's files: grains (or both in one), pillar.
pub(super) type Stamps = [Option<Version>; 2];

/// The minions with an entry.
#[derive(Default)]
pub(super) struct Known {
    is_loaded: bool,
    minions: BTreeMap<MinionId, Stamps>,
    /// The names of `minions`, made when they are asked for.
    names: Option<Arc<[MinionId]>>,
    environments: HashMap<MinionId, HashSet<String>>,
    generation: u64,
    log: VecDeque<(u64, MinionId)>,
    /// Changes up to this generation are no longer in the log.
    forgotten: u64,
}

impl Known {
    /// Whether the disk was scanned.
    pub(super) fn is_loaded(&self) -> bool {
        self.is_loaded
    }

    pub(super) fn all(&mut self) -> Arc<[MinionId]> {
        let minions = &self.minions;
        let names = self
            .names
            .get_or_insert_with(|| minions.keys().cloned().collect());
        Arc::clone(names)
    }

    pub(super) fn changes(&self, since: Option<u64>) -> DataChanges {
        let changed = match since {
            Some(since) if since >= self.forgotten => {
                let newer = self
                    .log
                    .partition_point(|(generation, _)| *generation <= since);
                let ids: HashSet<&MinionId> = self.log.range(newer..).map(|(_, id)| id).collect();
                Changed::These(ids.into_iter().cloned().collect())
            }
            _ => Changed::Everything,
        };
        DataChanges {
            generation: self.generation,
            changed,
        }
    }

    /// Whether this file was last seen like this.
    pub(super) fn is_current(&self, id: &MinionId, place: usize, version: Option<Version>) -> bool {
        let seen = self.minions.get(id).and_then(|stamps| stamps.get(place));
        match seen {
            Some(seen) => *seen == version,
            // A minion that is not listed has no data; before the first scan nothing is known.
            None => version.is_none() || !self.is_loaded,
        }
    }

    /// A file was written, or was found to be another one; `is_listed` when it makes the minion one
    /// of the known.
    pub(super) fn written(
        &mut self,
        id: &MinionId,
        place: Option<usize>,
        version: Option<Version>,
        is_listed: bool,
    ) {
        if !self.is_loaded {
            return;
        }
        let mut is_new = false;
        if is_listed && !self.minions.contains_key(id) {
            self.minions.insert(id.clone(), Stamps::default());
            self.names = None;
            is_new = true;
        }
        let Some(place) = place else {
            if is_new {
                self.log(id);
            }
            return;
        };
        if let Some(stamp) = self
            .minions
            .get_mut(id)
            .and_then(|stamps| stamps.get_mut(place))
        {
            *stamp = version;
            self.log(id);
        }
    }

    /// Nothing is left of the minion.
    pub(super) fn remove(&mut self, id: &MinionId) {
        self.environments.remove(id);
        self.unlist(id);
    }

    /// The minion is no longer one of the known.
    pub(super) fn unlist(&mut self, id: &MinionId) {
        if self.minions.remove(id).is_some() {
            self.names = None;
        }
        // Also when it was not listed: a reader may have been quicker than this.
        self.log(id);
    }

    pub(super) fn add_environment(&mut self, id: &MinionId, environment: &str) {
        let environments = self.environments.entry(id.clone()).or_default();
        environments.insert(environment.to_owned());
    }

    pub(super) fn environments(&self, id: &MinionId) -> Vec<String> {
        let environments = self.environments.get(id).into_iter().flatten();
        environments.cloned().collect()
    }

    /// Merges the result of a scan of the disk; gives the number of changes.
    pub(super) fn take_over(
        &mut self,
        present: Vec<(MinionId, Stamps)>,
        environments: Vec<(MinionId, String)>,
    ) -> usize {
        for (id, environment) in environments {
            self.add_environment(&id, &environment);
        }
        let present: BTreeMap<MinionId, Stamps> = present.into_iter().collect();
        if !self.is_loaded {
            self.is_loaded = true;
            self.minions = present;
            self.names = None;
            // A generation from before the first scan covers nothing.
            self.generation += 1;
            self.forgotten = self.generation;
            return self.minions.len();
        }
        let is_gone = |id: &&MinionId| !present.contains_key(*id);
        let gone: Vec<MinionId> = self.minions.keys().filter(is_gone).cloned().collect();
        let is_other = |(id, stamps): &(MinionId, Stamps)| self.minions.get(id) != Some(stamps);
        let other: Vec<(MinionId, Stamps)> = present.into_iter().filter(is_other).collect();
        let count = gone.len() + other.len();
        if count > 0 {
            self.names = None;
        }
        for id in gone {
            self.minions.remove(&id);
            self.log(&id);
        }
        for (id, stamps) in other {
            self.log(&id);
            self.minions.insert(id, stamps);
        }
        count
    }

    fn log(&mut self, id: &MinionId) {
        self.generation += 1;
        self.log.push_back((self.generation, id.clone()));
        if self.log.len() > REMEMBERED
            && let Some((generation, _)) = self.log.pop_front()
        {
            self.forgotten = generation;
        }
    }
}
