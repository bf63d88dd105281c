//! `_register_resources`, from 3008 minions at start-up and after a pillar refresh: the resources
//! that a minion manages, and their grains (`AESFuncs._register_resources` in `salt/master.py`).
//!
//! A resource returns and is targeted under a name of its own, so it may not bear that of a minion.
//! Then the whole registration is refused, like one whose names could leave their directories.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use saltern_model::{Event, MinionId, Tag};
use saltern_policy::matching::{Inventory, Resource};
use saltern_store::{Registered, ResourceStore, StoreError};
use saltern_wire::msgpack::{Dialect, Value, encode};

use crate::envelope::Sealed;
use crate::events::ResourceRefresh;
use crate::handle::value_of;
use crate::{Finished, Outcome, Services, event_data};

/// The most resources of one minion.
const MAX_RESOURCES: usize = 10_000;

/// The longest type of a resource, in bytes; with the id it is a file name.
const MAX_TYPE_LENGTH: usize = 64;

/// Reason why a registration is refused.
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
    #[error("\"{0}\" is registered twice")]
    Twice(String),
    #[error("\"{0}\" is the name of a minion")]
    Minion(MinionId),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Keeps the resources and answers `True`. Each may be a file, so it is done beside the workers.
pub(crate) fn handle(sealed: Sealed, services: &Arc<Services>) -> Outcome {
    if !sealed.load.contains("resources") {
        let nothing = encode(&Value::Map(Vec::new()), Dialect::Raw);
        return Outcome::reply(sealed.answer.seal(&nothing));
    }
    let services = Arc::clone(services);
    Outcome::later(move || {
        let (answer, events) = match register(&sealed, &services) {
            Ok(()) => (true.into(), registered_event(&sealed.minion, &services)),
            Err(error) => {
                services.metrics.refuse("resources");
                complain!(
                    services, minion = %sealed.minion, %error,
                    "the resources of a minion are refused"
                );
                ("".into(), None)
            }
        };
        Finished {
            reply: sealed.answer.seal(&encode(&answer, Dialect::Raw)),
            events: events.into_iter().collect(),
        }
    })
}

fn registered_event(minion: &MinionId, services: &Services) -> Option<Event> {
    if !(services.site.minion_data_cache && services.site.minion_data_cache_events) {
        return None;
    }
    let tag = Tag::resource_refresh(minion);
    Some(event_data::master_event(
        services,
        tag,
        &ResourceRefresh { minion },
    ))
}

fn register(sealed: &Sealed, services: &Services) -> Result<(), Refused> {
    let minion = &sealed.minion;
    let resources = read(
        &value_of(&sealed.load, "resources"),
        value_of(&sealed.load, "resource_grains"),
    )?;
    for resource in &resources {
        if services.keys.pki.state(&resource.id)?.is_some() {
            return Err(Refused::Minion(resource.id.clone()));
        }
    }
    replace(services, minion, resources)?;
    // The key may have gone since the request came, and its registration with it.
    if services.keys.pki.accepted_key(minion)?.is_none() {
        replace(services, minion, Vec::new())?;
    }
    Ok(())
}

/// Replaces a minion's registration, in the index of targets too.
pub(crate) fn replace(
    services: &Services,
    minion: &MinionId,
    resources: Vec<Registered>,
) -> Result<(), StoreError> {
    let keeps_grains = services.site.minion_data_cache;
    let store = &services.minions.resources;
    if store.register(minion, resources, keeps_grains)? {
        services.targeting.set_resources(|| inventory(store))?;
    }
    Ok(())
}

/// The inventory in which targets look up resources.
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
fn read(resources: &Value, grains: Value) -> Result<Vec<Registered>, Refused> {
    let mut grains = by_name(grains);
    let mut known = HashSet::new();
    let mut read = Vec::new();
    for (kind, names) in resources.as_map().ok_or(Refused::Malformed)? {
        let kind = kind.as_str().ok_or(Refused::Malformed)?;
        let is_bad = |c: char| c == '/' || c == ':' || c.is_control();
        if kind.is_empty() || kind.len() > MAX_TYPE_LENGTH || kind.contains(is_bad) {
            return Err(Refused::Type(kind.chars().take(MAX_TYPE_LENGTH).collect()));
        }
        let names = match names {
            Value::Nil => &[],
            names => names.as_array().ok_or(Refused::Malformed)?,
        };
        if read.len() + names.len() > MAX_RESOURCES {
            return Err(Refused::TooMany);
        }
        for name in names {
            let name = name.as_str().ok_or(Refused::Malformed)?;
            let shown = || name.chars().take(MAX_TYPE_LENGTH).collect();
            let id = MinionId::parse(name).map_err(|_| Refused::Name(shown()))?;
            let whole = format!("{kind}:{name}");
            // Each value of the grains goes to one resource, so they are moved and never copied.
            let grains = grains.remove(&whole);
            if !known.insert(whole) {
                return Err(Refused::Twice(shown()));
            }
            read.push(Registered {
                kind: kind.to_owned(),
                id,
                grains,
            });
        }
    }
    Ok(read)
}

fn by_name(grains: Value) -> HashMap<String, Value> {
    let Value::Map(entries) = grains else {
        return HashMap::new();
    };
    let named = entries.into_iter().filter_map(|entry| match entry {
        (Value::Str(name), grains @ Value::Map(_)) => Some((name, grains)),
        _ => None,
    });
    named.collect()
}
