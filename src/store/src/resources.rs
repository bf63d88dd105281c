//! The resources of minions (3008), as the minions themselves have registered them.
//!
//! Kept in memory and in one file a minion, `cachedir/saltern/resources/<id>.p`. Their grains are
//! also written where stock's tools look for them, `cachedir/resource_grains/<type>:<id>.p`.
//! Stock's own index of resources, a hash table mapped into memory
//! (`salt/utils/resource_registry.py`), is not written: only its own processes read it.
//!
//! Nothing is written that could not be read again, so a bound holds for what is kept of a minion,
//! in its file and in memory. A file that cannot be read all the same is set aside under another
//! name: it costs its minion a registration, and nobody else anything.
//!
//! Not here: whether a minion may register what it says (`requests`), what a target finds
//! (`policy`).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use saltern_config::MasterConfig;
use saltern_model::MinionId;
use saltern_wire::msgpack::{Dialect, Limits, Value, decode_exact, encode};

use crate::error::{Result, StoreError};
use crate::files::{self, Create, Version};
use crate::options::StoreOptions;

/// Bounds of one minion's registration, on disk and so in memory.
const LIMITS: Limits = Limits {
    bytes: 16 << 20,
    items: 500_000,
    ..Limits::WIRE
};

/// Suffix of a file that could not be read.
const DAMAGED: &str = ".damaged";

/// One resource of a minion.
#[derive(Clone, Debug, PartialEq)]
pub struct Registered {
    /// Its type.
    pub kind: String,
    /// Its name.
    pub id: MinionId,
    /// Its grains, if they are known.
    pub grains: Option<Value>,
}

impl Registered {
    /// `<type>:<id>`, under which stock keeps its grains.
    fn name(&self) -> String {
        format!("{}:{}", self.kind, self.id)
    }
}

/// The resources of all minions.
pub struct ResourceStore {
    dir: PathBuf,
    grains: PathBuf,
    /// Held while files are written and removed.
    writing: Mutex<()>,
    /// `None` before the disk was read. Never held during I/O, except for that first read.
    known: Mutex<Option<Known>>,
}

#[derive(Default)]
struct Known {
    by_owner: BTreeMap<MinionId, Owned>,
    /// How many minions have registered a resource of this name.
    owners: HashMap<String, usize>,
}

/// Registration of a minion, and its names alone.
struct Owned {
    resources: Arc<[Registered]>,
    ids: HashSet<MinionId>,
}

impl Owned {
    fn new(resources: Arc<[Registered]>) -> Self {
        let ids = resources.iter().map(|resource| resource.id.clone());
        Self {
            ids: ids.collect(),
            resources,
        }
    }
}

impl Known {
    /// Replaces what a minion has registered; gives the names that no minion has registered now.
    fn replace(&mut self, owner: &MinionId, resources: Arc<[Registered]>) -> HashSet<String> {
        for name in names(&resources) {
            *self.owners.entry(name).or_default() += 1;
        }
        let before = match resources.is_empty() {
            true => self.by_owner.remove(owner),
            false => self.by_owner.insert(owner.clone(), Owned::new(resources)),
        };
        let mut gone = HashSet::new();
        for name in before.iter().flat_map(|before| names(&before.resources)) {
            let left = self.owners.get(&name).map_or(0, |owners| owners - 1);
            match left {
                0 => {
                    self.owners.remove(&name);
                    gone.insert(name);
                }
                _ => {
                    self.owners.insert(name, left);
                }
            }
        }
        gone
    }
}

fn names(resources: &[Registered]) -> HashSet<String> {
    resources.iter().map(Registered::name).collect()
}

impl ResourceStore {
    /// Opens the registry of this configuration. Nothing is read yet.
    pub fn open(config: &MasterConfig) -> Self {
        Self::with_options(&StoreOptions::from(config))
    }

    /// [`ResourceStore::open`] with this crate's options.
    pub fn with_options(options: &StoreOptions) -> Self {
        Self {
            dir: options.private_dir().join("resources"),
            grains: options.cachedir.join("resource_grains"),
            writing: Mutex::new(()),
            known: Mutex::new(None),
        }
    }

    /// Replaces what a minion has registered, and writes the grains if they are to be kept.
    /// `false`: it was so already.
    ///
    /// # Errors
    /// When it cannot be written, or could not be read again; then nothing has changed in memory.
    pub fn register(
        &self,
        owner: &MinionId,
        resources: Vec<Registered>,
        keeps_grains: bool,
    ) -> Result<bool> {
        let before = self.of(owner)?;
        if resources.is_empty() && before.is_empty() {
            return self.clear(owner).map(|()| false);
        }
        let _writing = self.writing.lock();
        let before = self.of(owner)?;
        if *before == *resources {
            return Ok(false);
        }
        self.write(owner, &resources)?;
        let resources: Arc<[Registered]> = resources.into();
        let gone = self.with_known(|known| known.replace(owner, Arc::clone(&resources)))?;
        for name in gone {
            files::remove(&self.grains_file(&name)?)?;
        }
        if keeps_grains {
            self.write_grains(&before, &resources)?;
        }
        Ok(true)
    }

    /// Registration of a minion.
    pub fn of(&self, owner: &MinionId) -> Result<Arc<[Registered]>> {
        self.with_known(|known| match known.by_owner.get(owner) {
            Some(owned) => Arc::clone(&owned.resources),
            None => Arc::default(),
        })
    }

    /// The minions that have registered a resource of this name; scans every minion with resources.
    pub fn owners_of(&self, resource: &MinionId) -> Result<Vec<MinionId>> {
        let owns = |(owner, owned): (&MinionId, &Owned)| {
            owned.ids.contains(resource).then(|| owner.clone())
        };
        self.with_known(|known| known.by_owner.iter().filter_map(owns).collect())
    }

    /// Whether a minion has registered a resource of this name.
    pub fn has(&self, owner: &MinionId, resource: &MinionId) -> Result<bool> {
        let ids = |owned: &Owned| owned.ids.contains(resource);
        self.with_known(|known| known.by_owner.get(owner).is_some_and(ids))
    }

    /// Whether a minion's registration was written before this version of its key file came to be.
    pub fn is_older_than(&self, owner: &MinionId, key: &Version) -> Result<bool> {
        let stat = Version::of(&self.file(owner)?, true)?;
        Ok(stat.is_some_and(|stat| stat.version.is_from_before(key)))
    }

    /// All registered resources, each with its minion.
    pub fn all(&self) -> Result<Vec<(MinionId, Registered)>> {
        let each = |(owner, owned): (&MinionId, &Owned)| (owner.clone(), owned.resources.clone());
        let known: Vec<_> = self.with_known(|known| known.by_owner.iter().map(each).collect())?;
        let each = known.iter().flat_map(|(owner, resources)| {
            let each = resources.iter().cloned();
            each.map(|resource| (owner.clone(), resource))
        });
        Ok(each.collect())
    }

    /// The minions that have registered something.
    pub fn owners(&self) -> Result<Vec<MinionId>> {
        self.with_known(|known| known.by_owner.keys().cloned().collect())
    }

    fn with_known<T>(&self, ask: impl FnOnce(&mut Known) -> T) -> Result<T> {
        let mut known = self.known.lock();
        Ok(ask(loaded(&mut known, || self.read_all())?))
    }

    fn file(&self, owner: &MinionId) -> Result<PathBuf> {
        files::child(&self.dir, &format!("{}.p", owner.as_str()))
    }

    fn grains_file(&self, name: &str) -> Result<PathBuf> {
        files::child(&self.grains, &format!("{name}.p"))
    }

    fn write(&self, owner: &MinionId, resources: &[Registered]) -> Result<()> {
        if resources.is_empty() {
            return self.clear(owner);
        }
        let path = self.file(owner)?;
        let rows = resources.iter().map(|resource| {
            let grains = resource.grains.clone().unwrap_or(Value::Nil);
            let kind = resource.kind.as_str().into();
            Value::Array(vec![kind, resource.id.as_str().into(), grains])
        });
        let packed = Bytes::from(encode(&Value::Array(rows.collect()), Dialect::Bin));
        files::readable(&packed, &LIMITS, &path)?;
        files::ensure_dir(&self.dir, 0o700)?;
        files::write_atomic(&path, &packed, Create::PRIVATE)
    }

    /// Removes a minion's file, and one that was set aside.
    fn clear(&self, owner: &MinionId) -> Result<()> {
        let path = self.file(owner)?;
        files::remove(&damaged(&path))?;
        files::remove(&path)?;
        Ok(())
    }

    /// Writes the grains that are new or have changed.
    fn write_grains(&self, before: &[Registered], resources: &[Registered]) -> Result<()> {
        let named = before.iter().map(|resource| (resource.name(), resource));
        let before: HashMap<String, &Registered> = named.collect();
        files::ensure_dir(&self.grains, 0o755)?;
        for resource in resources {
            let name = resource.name();
            let known = before.get(&name).and_then(|known| known.grains.as_ref());
            let grains = resource.grains.as_ref();
            if let Some(grains) = grains.filter(|grains| known != Some(*grains)) {
                let packed = encode(grains, Dialect::Bin);
                let create = Create::PRIVATE.derived();
                files::write_atomic(&self.grains_file(&name)?, &packed, create)?;
            }
        }
        Ok(())
    }

    fn read_all(&self) -> Result<Known> {
        let mut owners = Vec::new();
        files::each_entry(&self.dir, |name, _| {
            let id = name.strip_suffix(".p").map(MinionId::parse);
            owners.extend(id.and_then(std::result::Result::ok));
        })?;
        let mut known = Known::default();
        for owner in owners {
            let path = self.file(&owner)?;
            match read(&path) {
                Ok(resources) => {
                    known.replace(&owner, resources.into());
                }
                Err(error) => set_aside(&path, &owner, &error),
            }
        }
        Ok(known)
    }
}

fn read(path: &Path) -> Result<Vec<Registered>> {
    let packed = files::read(path, LIMITS.bytes)?.unwrap_or_default();
    let malformed = |reason| StoreError::Malformed {
        path: path.to_path_buf(),
        reason,
    };
    let rows = decode_exact(&packed, &LIMITS).map_err(|_| malformed("it is not msgpack"))?;
    let Value::Array(rows) = rows else {
        return Err(malformed("it is no list"));
    };
    let resource = |row: Value| {
        let Value::Array(row) = row else { return None };
        let [kind, id, grains] = <[Value; 3]>::try_from(row).ok()?;
        Some(Registered {
            kind: kind.as_str()?.to_owned(),
            id: MinionId::parse(id.as_str()?).ok()?,
            grains: (!grains.is_nil()).then_some(grains),
        })
    };
    Ok(rows.into_iter().filter_map(resource).collect())
}

fn set_aside(path: &Path, owner: &MinionId, error: &StoreError) {
    let aside = damaged(path);
    tracing::error!(
        minion = %owner, %error, aside = %aside.display(),
        "the resources of a minion cannot be read and are set aside; it will register them anew"
    );
    if let Err(error) = fs::rename(path, &aside) {
        tracing::error!(path = %path.display(), %error, "the file stays where it is");
    }
}

fn damaged(path: &Path) -> PathBuf {
    files::beside(path, DAMAGED)
}

/// The registrations, read from the disk at first use.
fn loaded<T>(known: &mut Option<T>, read: impl FnOnce() -> Result<T>) -> Result<&mut T> {
    let now = match known.take() {
        Some(now) => now,
        None => read()?,
    };
    Ok(known.insert(now))
}

#[cfg(test)]
mod tests {
    use saltern_model::Compat;

    use super::*;

    fn id(text: &str) -> MinionId {
        MinionId::parse(text).unwrap()
    }

    fn resource(kind: &str, name: &str, role: Option<&str>) -> Registered {
        Registered {
            kind: kind.to_owned(),
            id: id(name),
            grains: role.map(|role| Value::map([("role", role)])),
        }
    }

    #[test]
    fn registration_survives_restart_until_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let options = StoreOptions::below(dir.path(), Compat::V3008);
        let store = ResourceStore::with_options(&options);
        assert_eq!(store.all().unwrap(), []);
        let both = vec![
            resource("switch", "sw1", Some("core")),
            resource("esx", "h1", None),
        ];
        assert!(store.register(&id("m1"), both.clone(), true).unwrap());
        assert!(!store.register(&id("m1"), both.clone(), true).unwrap());
        assert_eq!(store.owners_of(&id("sw1")).unwrap(), [id("m1")]);
        assert!(store.owners_of(&id("m1")).unwrap().is_empty());
        assert!(store.has(&id("m1"), &id("sw1")).unwrap());
        assert!(!store.has(&id("m2"), &id("sw1")).unwrap());
        assert!(!store.has(&id("m1"), &id("m1")).unwrap());
        let again = ResourceStore::with_options(&options);
        let expected = both.iter().map(|one| (id("m1"), one.clone()));
        assert_eq!(again.all().unwrap(), expected.collect::<Vec<_>>());
        let grains = options.cachedir.join("resource_grains/switch:sw1.p");
        let stored = std::fs::read(&grains).expect("where stock keeps it");
        assert_eq!(
            stored,
            encode(&Value::map([("role", "core")]), Dialect::Bin)
        );
        // Another minion takes it over before the first one lets go.
        let taken = vec![resource("switch", "sw1", Some("core"))];
        again.register(&id("m2"), taken, true).unwrap();
        again.register(&id("m1"), Vec::new(), true).unwrap();
        assert!(grains.exists());
        again.register(&id("m2"), Vec::new(), true).unwrap();
        assert!(!grains.exists());
        assert_eq!(again.all().unwrap(), []);
    }

    #[test]
    fn unreadable_registration_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let options = StoreOptions::below(dir.path(), Compat::V3008);
        let store = ResourceStore::with_options(&options);
        let small = vec![resource("switch", "sw1", Some("core"))];
        assert!(store.register(&id("m1"), small.clone(), true).unwrap());
        let mut deep = Value::Nil;
        for _ in 0..LIMITS.depth {
            deep = Value::Array(vec![deep]);
        }
        for grains in [
            Value::map([("x", Value::Array(vec![Value::Nil; LIMITS.items]))]),
            Value::map([("x", deep)]),
            Value::map([("x", "x".repeat(LIMITS.bytes))]),
        ] {
            let grains = Some(grains);
            let large = vec![Registered {
                grains,
                ..small[0].clone()
            }];
            assert!(store.register(&id("m1"), large, true).is_err());
            assert_eq!(*store.of(&id("m1")).unwrap(), *small);
            let again = ResourceStore::with_options(&options);
            assert_eq!(
                *again.of(&id("m1")).unwrap(),
                *small,
                "and it can be opened"
            );
        }
    }

    #[test]
    fn damaged_file_loses_one_registration_only() {
        let dir = tempfile::tempdir().unwrap();
        let options = StoreOptions::below(dir.path(), Compat::V3008);
        let store = ResourceStore::with_options(&options);
        for owner in ["m1", "m2", "m3"] {
            let own = vec![resource("switch", &format!("sw-{owner}"), None)];
            store.register(&id(owner), own, true).unwrap();
        }
        let files = options.private_dir().join("resources");
        fs::write(files.join("m1.p"), b"\xc1").unwrap();
        fs::write(files.join("m3.p"), b"\xa1x").unwrap();
        let again = ResourceStore::with_options(&options);
        assert_eq!(again.owners().unwrap(), [id("m2")]);
        assert!(files.join("m1.p.damaged").exists() && !files.join("m1.p").exists());
        let anew = vec![resource("switch", "sw-m1", None)];
        assert!(again.register(&id("m1"), anew, true).unwrap());
        again.register(&id("m1"), Vec::new(), true).unwrap();
        again.register(&id("m3"), Vec::new(), true).unwrap();
        let left: Vec<_> = fs::read_dir(&files).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    /// So many that work for every pair of them would not end.
    #[test]
    fn large_registration_is_replaced_in_linear_time() {
        let dir = tempfile::tempdir().unwrap();
        let store = ResourceStore::with_options(&StoreOptions::below(dir.path(), Compat::V3008));
        let many = |prefix: &str| {
            let name = |number| format!("{prefix}{number}");
            let all = (0..100_000).map(|number| resource("switch", &name(number), None));
            all.collect::<Vec<_>>()
        };
        for owner in ["m1", "m2", "m3"] {
            assert!(store.register(&id(owner), many("a"), true).unwrap());
        }
        assert!(store.register(&id("m1"), many("b"), true).unwrap());
        assert!(store.register(&id("m1"), Vec::new(), true).unwrap());
        assert_eq!(store.of(&id("m2")).unwrap().len(), 100_000);
    }
}
