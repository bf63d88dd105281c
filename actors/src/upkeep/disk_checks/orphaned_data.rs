//! Purges cached data of minions whose key was deleted or replaced.
//!
//! `salt-key` and people change keys while the master runs and while it does not. So the first
//! look checks every minion with cached data for a key of any state; later looks compare with the
//! one before. Changes by the master itself are followed at once (`Minions::forget` in `requests`).
//! A key that was replaced while the master was stopped is not noticed: the data does not say
//! which key it belongs to.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};

use saltern_model::{KeyState, MinionId};
use saltern_requests::Services;
use saltern_store::StoreError;
use saltern_store::files::Version;

/// Result of the last look.
#[derive(Default)]
pub(super) struct OrphanedData {
    /// Randomly seeded, so that no key can be made that collides with another one.
    hasher: RandomState,
    /// `None` before the first look.
    last: Option<Seen>,
}

#[derive(Default)]
struct Seen {
    /// The minions with a key of any state.
    present: HashSet<MinionId>,
    accepted: HashMap<MinionId, Key>,
}

#[derive(Clone, Copy)]
struct Key {
    version: Version,
    fingerprint: u64,
}

impl OrphanedData {
    /// Compares the keys and purges; gives the number of minions with purged data.
    pub(super) fn forget(&mut self, services: &Services) -> Result<usize, StoreError> {
        let now = self.look(services)?;
        // What was seen of a directory that is not mounted says nothing.
        services.require_pki()?;
        let forgotten = match &self.last {
            None => forget_without_key(services, &now)?,
            Some(last) => forget_changed(services, last, &now)?,
        };
        self.last = Some(now);
        Ok(forgotten)
    }

    fn look(&self, services: &Services) -> Result<Seen, StoreError> {
        let mut seen = Seen::default();
        for state in KeyState::ALL {
            seen.present.extend(services.keys.pki.list(state)?);
        }
        for minion in services.keys.pki.accepted()?.sorted() {
            if let Some(key) = self.key(services, minion)? {
                seen.accepted.insert(minion.clone(), key);
            }
        }
        Ok(seen)
    }

    /// The accepted key. Read only when its file is not the one that was seen last.
    fn key(&self, services: &Services, minion: &MinionId) -> Result<Option<Key>, StoreError> {
        let Some(version) = services.keys.pki.version(minion, KeyState::Accepted)? else {
            return Ok(None);
        };
        let known = self
            .last
            .as_ref()
            .and_then(|last| last.accepted.get(minion));
        if let Some(known) = known.filter(|known| known.version == version) {
            return Ok(Some(*known));
        }
        let pem = services.keys.pki.stored_pem(minion, KeyState::Accepted)?;
        Ok(pem.map(|pem| Key {
            version,
            fingerprint: self.hasher.hash_one(pem.trim()),
        }))
    }
}

fn forget_without_key(services: &Services, now: &Seen) -> Result<usize, StoreError> {
    // Once more: between two looks at four directories a key may have moved.
    let has_key = |minion: &MinionId| {
        now.present.contains(minion) || !matches!(services.keys.pki.state(minion), Ok(None))
    };
    let forgotten = services.minions.forget_all_but(has_key)?;
    if forgotten > 0 {
        tracing::info!(
            minions = forgotten,
            "removed the cached data of minions without a key"
        );
    }
    Ok(forgotten)
}

fn forget_changed(services: &Services, last: &Seen, now: &Seen) -> Result<usize, StoreError> {
    let mut forgotten = 0;
    for minion in last.present.difference(&now.present) {
        let is_gone = matches!(services.keys.pki.state(minion), Ok(None));
        if is_gone && services.minions.forget(minion) {
            forgotten += 1;
            tracing::info!(%minion, "the key is gone; removed the cached data of the minion");
        }
    }
    for (minion, key) in &now.accepted {
        let before = last.accepted.get(minion);
        let is_another = before.is_some_and(|before| before.fingerprint != key.fingerprint);
        if is_another && services.minions.forget_replaced(minion, &key.version)? {
            forgotten += 1;
            tracing::warn!(%minion, "the key was replaced; removed the cached data of the minion");
        }
    }
    Ok(forgotten)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use saltern_base::clock::Clock;
    use saltern_base::metrics::Registry;
    use saltern_config::load_master;
    use saltern_requests::{Stores, Unwatched};
    use saltern_runners::{RunnerContext, Runners};
    use saltern_store::{DatabaseLimits, JobDatabase, Registered};
    use saltern_wire::msgpack::Value;

    use super::*;

    struct Site {
        dir: tempfile::TempDir,
        options: &'static str,
    }

    impl Site {
        fn new(options: &'static str) -> Self {
            let dir = tempfile::tempdir().unwrap();
            Self { dir, options }
        }

        /// The master of this directory, as after a start.
        fn services(&self) -> Services {
            let root = self.dir.path();
            let shown = root.display();
            let text = format!(
                "root_dir: {shown}\npki_dir: {shown}/pki\ncachedir: {shown}/cache\nid: m\n\
                 sock_dir: {shown}/run\n{}",
                self.options
            );
            fs::create_dir_all(root.join("pki/minions")).unwrap();
            fs::create_dir_all(root.join("cache")).unwrap();
            fs::write(root.join("master"), text).unwrap();
            let loaded = load_master(root).map_err(|errors| errors.to_string());
            let config = Arc::new(loaded.unwrap().config);
            let clock = Clock::system();
            let stores = Stores::open(&config, &clock).unwrap();
            let database = root.join("jobs.sqlite");
            let database = JobDatabase::open(&database, DatabaseLimits::default()).unwrap();
            let knowledge = RunnerContext::new(config.clone(), database.reader().unwrap());
            Services::new(
                config,
                clock,
                stores,
                (Runners::new(knowledge), database.reader().unwrap()),
                Arc::new(Unwatched),
                &Registry::new(),
            )
        }
    }

    fn id(name: &str) -> MinionId {
        MinionId::parse(name).unwrap()
    }

    fn keep(services: &Services, name: &str) {
        let data = Value::map([("of", name)]);
        let store = &services.minions.data;
        store
            .store_grains_and_pillar(&id(name), &data, &data)
            .unwrap();
        store.mine_update(&id(name), &data, true).unwrap();
        let resource = Registered {
            kind: "switch".to_owned(),
            id: id(&format!("sw-{name}")),
            grains: None,
        };
        services
            .minions
            .resources
            .register(&id(name), vec![resource], true)
            .unwrap();
    }

    /// Whether there are grains, a mine and resources.
    fn kept(services: &Services, name: &str) -> [bool; 3] {
        [
            services.minions.data.grains(&id(name)).unwrap().is_some(),
            services.minions.data.mine(&id(name)).unwrap().is_some(),
            !services.minions.resources.of(&id(name)).unwrap().is_empty(),
        ]
    }

    #[test]
    fn key_deleted_while_stopped_purges_its_data() {
        for (options, data) in [
            ("salt_compat: 3006\n", false),
            ("salt_compat: 3008\n", false),
            ("salt_compat: 3006\npreserve_minion_cache: True\n", true),
            ("preserve_minion_cache: True\n", true),
        ] {
            let site = Site::new(options);
            let services = site.services();
            for name in ["stays", "waits", "goes"] {
                services.keys.pki.accept(&id(name), "a key").unwrap();
                keep(&services, name);
            }
            services
                .keys
                .pki
                .move_to(&id("waits"), KeyState::Accepted, KeyState::Pending)
                .unwrap();
            services
                .keys
                .pki
                .remove(&id("goes"), KeyState::Accepted)
                .unwrap();
            drop(services);
            let services = site.services();
            OrphanedData::default().forget(&services).unwrap();
            assert_eq!(kept(&services, "goes"), [data, data, false], "{options}");
            assert_eq!(kept(&services, "stays"), [true; 3], "{options}");
            assert_eq!(kept(&services, "waits"), [true; 3], "{options}");
        }
    }

    #[test]
    fn lost_directory_of_keys_purges_nothing() {
        let site = Site::new("");
        let services = site.services();
        services.keys.pki.accept(&id("stays"), "a key").unwrap();
        keep(&services, "stays");
        let mut orphaned_data = OrphanedData::default();
        assert_eq!(orphaned_data.forget(&services).unwrap(), 0);
        let (pki, aside) = (site.dir.path().join("pki"), site.dir.path().join("aside"));
        fs::rename(&pki, &aside).unwrap();
        // As another process leaves it that is started meanwhile.
        for state in KeyState::ALL {
            fs::create_dir_all(pki.join(state.directory())).unwrap();
        }
        assert!(orphaned_data.forget(&services).is_err());
        assert!(OrphanedData::default().forget(&services).is_err());
        fs::remove_dir_all(&pki).unwrap();
        fs::rename(&aside, &pki).unwrap();
        assert_eq!(orphaned_data.forget(&services).unwrap(), 0);
        assert_eq!(kept(&services, "stays"), [true; 3]);
    }

    #[test]
    fn key_deleted_or_replaced_between_looks_purges_its_data() {
        let site = Site::new("");
        let services = site.services();
        for name in ["stays", "goes", "swapped"] {
            services.keys.pki.accept(&id(name), "a key").unwrap();
            keep(&services, name);
        }
        let mut orphaned_data = OrphanedData::default();
        assert_eq!(orphaned_data.forget(&services).unwrap(), 0);
        services
            .keys
            .pki
            .remove(&id("goes"), KeyState::Accepted)
            .unwrap();
        let file = site.dir.path().join("pki/minions/swapped");
        let swap = || {
            fs::write(&file, "another key").unwrap();
            let pki = &services.keys.pki;
            pki.version(&id("swapped"), KeyState::Accepted)
                .unwrap()
                .unwrap()
        };
        // Until the clock that stamps files has ticked.
        while !services
            .minions
            .data
            .is_older_than(&id("swapped"), &swap())
            .unwrap()
        {}
        assert_eq!(orphaned_data.forget(&services).unwrap(), 2);
        assert_eq!(kept(&services, "goes"), [false; 3]);
        assert_eq!(kept(&services, "swapped"), [false; 3]);
        assert_eq!(kept(&services, "stays"), [true; 3]);
        // The same key written again is the same key.
        keep(&services, "swapped");
        fs::write(&file, "another key\n").unwrap();
        assert_eq!(orphaned_data.forget(&services).unwrap(), 0);
        assert_eq!(kept(&services, "swapped"), [true; 3]);
        // Data that the new owner of a name has stored already stays.
        services.minions.forget(&id("stays"));
        services
            .keys
            .pki
            .accept(&id("stays"), "another key")
            .unwrap();
        keep(&services, "stays");
        assert_eq!(orphaned_data.forget(&services).unwrap(), 0);
        assert_eq!(kept(&services, "stays"), [true; 3]);
    }
}
