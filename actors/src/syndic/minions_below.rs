//! The minions below this master as its inventory names them: its own, and those of the inventories of
//! syndics below it.

use std::sync::Arc;
use std::time::Duration;

use saltern_model::{Absence, Changed, DataChanges, MinionId, Standing};
use saltern_requests::{KeyDigest, Services, absence_below, inventories_are_whole, key_digest};
use saltern_store::AcceptedIds;
use saltern_wire::msgpack::Value;
use tokio::time::Instant;

use super::inventory::{MinionChanges, MinionsBelow};

/// The shortest time between two comparisons of the digests of all keys, each of which reads the file of a key.
const KEY_INTERVAL: Duration = Duration::from_secs(10);

/// Minions of this master.
pub(crate) struct ServicesBelow(pub(crate) Arc<Services>);

/// Data that was seen last: generations of the minions' own and of the inventories, and the accepted keys.
#[derive(Default)]
pub(crate) struct Generations {
    own: Option<u64>,
    below: Option<u64>,
    /// Another list is made when a key comes or goes, or a file takes the place of its own. A file that is overwritten in
    /// place is not seen: the digest goes up with the next change of a key, or the next full list.
    accepted: Option<Arc<AcceptedIds>>,
    /// When all keys were compared last.
    compared: Option<Instant>,
}

impl MinionsBelow for ServicesBelow {
    type Cursor = Generations;

    fn ids(&self) -> Option<Vec<MinionId>> {
        let services = &self.0;
        let accepted = services.keys.pki.accepted();
        let accepted = accepted
            .inspect_err(|error| {
                tracing::error!(%error, "no inventory goes up: keys cannot be listed");
            })
            .ok()?;
        let own = accepted.sorted().iter();
        let mut ids: Vec<MinionId> = own
            .filter(|id| !services.minions.syndics.is_only_syndic(id))
            .cloned()
            .collect();
        let below = services.minions.inventories.ids();
        let below = below.sorted().iter();
        ids.extend(below.filter(|id| !accepted.contains(id.as_str())).cloned());
        Some(ids)
    }

    fn is_partial(&self) -> bool {
        !inventories_are_whole(&self.0)
    }

    fn away(&self, minion: &MinionId) -> Option<String> {
        let Standing::Away(absence) = self.0.minions.presence.state(minion) else {
            return None;
        };
        // Without a key here it is below a syndic.
        let below = (absence == Absence::NoKey).then(|| absence_below(minion, &self.0));
        match below.flatten() {
            Some(why) => why.map(|why| why.to_string()),
            None => Some(Standing::Away(absence).to_string()),
        }
    }

    fn grains(&self, minion: &MinionId) -> Option<Value> {
        let minions = &self.0.minions;
        let grains = minions
            .inventories
            .grains_beside(minion, &minions.data, &*minions.presence);
        grains.map(|grains| (*grains).clone())
    }

    fn key(&self, minion: &MinionId) -> Option<KeyDigest> {
        let services = &self.0;
        key_digest(minion, services).or_else(|| services.minions.inventories.key(minion))
    }

    fn changes(&self, since: Option<&Generations>) -> MinionChanges<Generations> {
        let minions = &self.0.minions;
        // Before anything is looked for: a key that changes meanwhile is looked at once more.
        let accepted = self.0.keys.pki.accepted().ok();
        let (own_seen, below_seen) = since.map_or((None, None), |seen| (seen.own, seen.below));
        let own = minions.data.changes(own_seen).unwrap_or_else(|error| {
            tracing::error!(%error, "the cache of minion data cannot be listed");
            DataChanges {
                generation: 0,
                changed: Changed::Everything,
            }
        });
        let below = minions.inventories.changes(below_seen);
        let seen = since.and_then(|seen| seen.accepted.as_ref());
        let has_same_keys = match (seen, &accepted) {
            (Some(seen), Some(accepted)) => Arc::ptr_eq(seen, accepted),
            _ => false,
        };
        // While keys are being accepted, each look finds another list.
        let compared = since.and_then(|seen| seen.compared);
        let now = Instant::now();
        let is_due = compared.is_none_or(|at| now - at >= KEY_INTERVAL);
        let has_to_compare = !has_same_keys && is_due;
        let (grains, keys) = match (own.changed, below.changed) {
            (Changed::These(mut own), Changed::These(below)) => {
                own.extend(below.iter().cloned());
                (Changed::These(own), Changed::These(below))
            }
            _ => (Changed::Everything, Changed::Everything),
        };
        let (keys, accepted, compared) = match has_to_compare {
            true => (Changed::Everything, accepted, Some(now)),
            false => (keys, seen.cloned(), compared),
        };
        MinionChanges {
            grains,
            keys,
            cursor: Generations {
                own: Some(own.generation),
                below: Some(below.generation),
                accepted,
                compared,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use saltern_base::clock::Clock;
    use saltern_base::metrics::Registry;
    use saltern_config::load_master;
    use saltern_requests::{Stores, Unwatched};
    use saltern_runners::{RunnerContext, Runners};
    use saltern_store::{DatabaseLimits, JobDatabase};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn keys_are_compared_when_one_was_replaced_and_only_at_intervals() {
        let dir = tempfile::tempdir().unwrap();
        let (root, shown) = (dir.path(), dir.path().display());
        let keys = root.join("pki/minions");
        fs::create_dir_all(&keys).unwrap();
        fs::create_dir_all(root.join("cache")).unwrap();
        let places =
            format!("pki_dir: {shown}/pki\ncachedir: {shown}/cache\nsock_dir: {shown}/s\n");
        fs::write(
            root.join("master"),
            format!("root_dir: {shown}\nid: m\n{places}"),
        )
        .unwrap();
        let loaded = load_master(root).map_err(|errors| errors.to_string());
        let config = Arc::new(loaded.unwrap().config);
        let stores = Stores::open(&config, &Clock::system()).unwrap();
        let jobs = JobDatabase::open(&root.join("jobs.sqlite"), DatabaseLimits::default()).unwrap();
        let runners = Runners::new(RunnerContext::new(config.clone(), jobs.reader().unwrap()));
        let below = ServicesBelow(Arc::new(Services::new(
            config,
            Clock::system(),
            stores,
            (runners, jobs.reader().unwrap()),
            Arc::new(Unwatched),
            &Registry::new(),
        )));
        // As its keeper replaces a key: another file takes its place.
        let replace = |text: &str| {
            fs::write(root.join("new"), text).unwrap();
            fs::rename(root.join("new"), keys.join("m1")).unwrap();
        };
        // A list is read anew until its directory is a few of the kernel's ticks old.
        let settle = || {
            let list = || below.0.keys.pki.accepted().unwrap();
            while !Arc::ptr_eq(&list(), &list()) {
                std::thread::yield_now();
            }
        };
        let none = Changed::These(Vec::new());
        replace("one");
        settle();
        let first = below.changes(None);
        assert_eq!(first.keys, Changed::Everything);
        tokio::time::advance(KEY_INTERVAL).await;
        let same = below.changes(Some(&first.cursor));
        assert_eq!(same.keys, none, "no key has changed");
        replace("two");
        settle();
        let other = below.changes(Some(&same.cursor));
        assert_eq!(other.keys, Changed::Everything);
        replace("three");
        settle();
        let soon = below.changes(Some(&other.cursor));
        assert_eq!(soon.keys, none, "the last comparison was a moment ago");
        tokio::time::advance(KEY_INTERVAL).await;
        let later = below.changes(Some(&soon.cursor));
        assert_eq!(later.keys, Changed::Everything, "it is not forgotten");
        tokio::time::advance(KEY_INTERVAL).await;
        assert_eq!(below.changes(Some(&later.cursor)).keys, none);
    }
}
