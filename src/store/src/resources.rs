//! The resources of minions (3008), as the minions themselves have registered them.
//!
//! Kept in memory and in one file a minion, `cachedir/saltern/resources/<id>.p`. Their grains are
//! also written where stock's tools look for them, `cachedir/resource_grains/<type>:<id>.p`. Stock's
//! own index of resources, a hash table mapped into memory (`salt/utils/resource_registry.py`), is
//! not written: only its own processes read it.
//!
//! Not here: whether a minion may register what it says (`requests`), what a target finds
//! (`policy`).

use std::collections::BTreeMap;
use std::path::PathBuf;

use parking_lot::Mutex;
use saltern_config::MasterConfig;
use saltern_model::MinionId;
use saltern_wire::msgpack::{Dialect, Limits, Value, decode_exact, encode};

use crate::error::{Result, StoreError};
use crate::files::{self, Create};
use crate::options::StoreOptions;

/// The largest file of a minion, in bytes.
const FILE_BYTES: usize = 16 << 20;

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
    /// Nothing before the disk was looked at.
    known: Mutex<Option<BTreeMap<MinionId, Vec<Registered>>>>,
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
            known: Mutex::new(None),
        }
    }

    /// Replaces what a minion has registered, and writes the grains if they are to be kept.
    /// `false`: it was so already.
    ///
    /// # Errors
    /// When it cannot be written; then nothing has changed in memory.
    pub fn register(
        &self,
        owner: &MinionId,
        resources: Vec<Registered>,
        keeps_grains: bool,
    ) -> Result<bool> {
        let mut known = self.known.lock();
        let known = loaded(&mut known, || self.read_all())?;
        let before = known.get(owner).map_or(&[][..], Vec::as_slice);
        if before == resources {
            return Ok(false);
        }
        self.write(owner, &resources)?;
        let named = |resources: &[Registered], name: &str| {
            resources.iter().any(|resource| resource.name() == name)
        };
        for gone in before {
            let is_elsewhere = known
                .iter()
                .any(|(other, kept)| other != owner && named(kept, &gone.name()));
            if !named(&resources, &gone.name()) && !is_elsewhere {
                files::remove(&self.grains_file(gone)?)?;
            }
        }
        for resource in resources.iter().filter(|_| keeps_grains) {
            if let Some(grains) = &resource.grains {
                files::ensure_dir(&self.grains, 0o755)?;
                let packed = encode(grains, Dialect::Bin);
                let create = Create::PRIVATE.derived();
                files::write_atomic(&self.grains_file(resource)?, &packed, create)?;
            }
        }
        match resources.is_empty() {
            true => known.remove(owner),
            false => known.insert(owner.clone(), resources),
        };
        Ok(true)
    }

    /// Everything that is registered: the minion and its resource.
    pub fn all(&self) -> Result<Vec<(MinionId, Registered)>> {
        let mut known = self.known.lock();
        let known = loaded(&mut known, || self.read_all())?;
        let each = known.iter().flat_map(|(owner, resources)| {
            let each = resources.iter().cloned();
            each.map(|resource| (owner.clone(), resource))
        });
        Ok(each.collect())
    }

    fn grains_file(&self, resource: &Registered) -> Result<PathBuf> {
        files::child(&self.grains, &format!("{}.p", resource.name()))
    }

    fn write(&self, owner: &MinionId, resources: &[Registered]) -> Result<()> {
        let path = files::child(&self.dir, &format!("{}.p", owner.as_str()))?;
        if resources.is_empty() {
            return files::remove(&path).map(|_| ());
        }
        let rows = resources.iter().map(|resource| {
            let grains = resource.grains.clone().unwrap_or(Value::Nil);
            let kind = resource.kind.as_str().into();
            Value::Array(vec![kind, resource.id.as_str().into(), grains])
        });
        let packed = encode(&Value::Array(rows.collect()), Dialect::Bin);
        if packed.len() > FILE_BYTES {
            let limit = FILE_BYTES;
            return Err(StoreError::TooLarge { path, limit });
        }
        files::ensure_dir(&self.dir, 0o700)?;
        files::write_atomic(&path, &packed, Create::PRIVATE)
    }

    fn read_all(&self) -> Result<BTreeMap<MinionId, Vec<Registered>>> {
        let mut known = BTreeMap::new();
        let mut owners = Vec::new();
        crate::minion_data::each_entry(&self.dir, |name, _| {
            let id = name.strip_suffix(".p").map(MinionId::parse);
            owners.extend(id.and_then(std::result::Result::ok));
        })?;
        for owner in owners {
            let resources = self.read(&owner)?;
            known.insert(owner, resources);
        }
        Ok(known)
    }

    fn read(&self, owner: &MinionId) -> Result<Vec<Registered>> {
        let path = files::child(&self.dir, &format!("{}.p", owner.as_str()))?;
        let packed = files::read(&path, FILE_BYTES)?.unwrap_or_default();
        let limits = Limits {
            bytes: FILE_BYTES,
            ..Limits::WIRE
        };
        let rows = decode_exact(&packed, &limits).map_err(|_| StoreError::Malformed {
            path,
            reason: "it is not msgpack",
        })?;
        let resource = |row: &Value| {
            let [kind, id, grains] = row.as_array()? else {
                return None;
            };
            Some(Registered {
                kind: kind.as_str()?.to_owned(),
                id: MinionId::parse(id.as_str()?).ok()?,
                grains: (!grains.is_nil()).then(|| grains.clone()),
            })
        };
        let rows = rows.as_array().unwrap_or_default();
        Ok(rows.iter().filter_map(resource).collect())
    }
}

/// What is known, read at the first question.
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
    fn what_is_registered_lasts_until_it_is_replaced() {
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
}
