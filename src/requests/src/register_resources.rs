//! `_register_resources`, from 3008 minions at start-up and after a pillar refresh: what a minion
//! manages, and the grains of that (`AESFuncs._register_resources` in `salt/master.py`).
//!
//! A resource returns and is targeted under a name of its own, so it may not bear that of a minion:
//! then the whole registration is refused, as one whose names could leave their directories.

use saltern_model::{MinionId, Tag};
use saltern_policy::matching::{Inventory, Resource};
use saltern_store::{Registered, ResourceStore, StoreError};
use saltern_wire::msgpack::{Dialect, Value, encode};

use crate::envelope::Sealed;
use crate::event_data::fields;
use crate::handle::value_of;
use crate::{Outcome, Services, event_data};

/// The most resources of one minion.
const MOST: usize = 10_000;

/// The longest type of a resource, in bytes; with the id it is a file name.
const LONGEST_TYPE: usize = 64;

/// Why a registration is refused.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("the resources are no mapping of types to lists of names")]
    Malformed,
    #[error("there are more than 10000 resources")]
    TooMany,
    #[error("\"{0}\" cannot be the type of a resource")]
    Type(String),
    #[error("\"{0}\" cannot be the name of a resource")]
    Name(String),
    #[error("\"{0}\" is the name of a minion")]
    Minion(MinionId),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Keeps the resources and answers `True`.
pub(crate) fn handle(sealed: &Sealed, services: &Services) -> Outcome {
    let minion = &sealed.minion;
    let seal = |answer: Value| sealed.answer.seal(&encode(&answer, Dialect::Raw));
    if !sealed.load.contains("resources") {
        return Outcome::reply(seal(Value::Map(Vec::new())));
    }
    if let Err(error) = register(sealed, services) {
        services.metrics.refuse("resources");
        complain!(services, %minion, %error, "the resources of a minion are refused");
        return Outcome::reply(seal("".into()));
    }
    let outcome = Outcome::reply(seal(true.into()));
    if !(services.site.minion_data_cache && services.site.minion_data_cache_events) {
        return outcome;
    }
    let told = fields([("Resource cache refresh", minion.as_str().into())]);
    let tag = Tag::resource_refresh(minion);
    outcome.and_fire(event_data::event(services, tag, told))
}

fn register(sealed: &Sealed, services: &Services) -> Result<(), Refused> {
    let resources = read(
        &value_of(&sealed.load, "resources"),
        &value_of(&sealed.load, "resource_grains"),
    )?;
    for resource in &resources {
        if services.pki.state(&resource.id)?.is_some() {
            return Err(Refused::Minion(resource.id.clone()));
        }
    }
    replace(services, &sealed.minion, resources).map_err(Refused::Store)
}

/// Replaces what a minion has registered, for targets too.
pub(crate) fn replace(
    services: &Services,
    minion: &MinionId,
    resources: Vec<Registered>,
) -> Result<(), StoreError> {
    let keeps_grains = services.site.minion_data_cache;
    let store = &services.resources;
    if store.register(minion, resources, keeps_grains)? {
        services.targeting.set_resources(|| inventory(store))?;
    }
    Ok(())
}

/// What targets find.
pub(crate) fn inventory(store: &ResourceStore) -> Result<Inventory, StoreError> {
    let all = store.all()?.into_iter();
    let resources = all.map(|(owner, registered)| Resource {
        id: registered.id,
        kind: registered.kind,
        owner,
        grains: registered.grains,
    });
    Ok(Inventory::new(resources.collect()))
}

/// `{type: [name, …]}` and `{type:name: {grain: …}}`.
fn read(resources: &Value, grains: &Value) -> Result<Vec<Registered>, Refused> {
    let mut read = Vec::new();
    for (kind, names) in resources.as_map().ok_or(Refused::Malformed)? {
        let kind = kind.as_str().ok_or(Refused::Malformed)?;
        let is_bad = |c: char| c == '/' || c == ':' || c.is_control();
        if kind.is_empty() || kind.len() > LONGEST_TYPE || kind.contains(is_bad) {
            return Err(Refused::Type(kind.chars().take(LONGEST_TYPE).collect()));
        }
        let names = match names {
            Value::Nil => &[],
            names => names.as_array().ok_or(Refused::Malformed)?,
        };
        for name in names {
            let name = name.as_str().ok_or(Refused::Malformed)?;
            let shown = || Refused::Name(name.chars().take(LONGEST_TYPE).collect());
            let id = MinionId::parse(name).map_err(|_| shown())?;
            if read.len() == MOST {
                return Err(Refused::TooMany);
            }
            let grains = grains.get(&format!("{kind}:{name}"));
            read.push(Registered {
                kind: kind.to_owned(),
                id,
                grains: grains.filter(|grains| grains.as_map().is_some()).cloned(),
            });
        }
    }
    Ok(read)
}
