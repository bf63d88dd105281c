//! What the master keeps of a minion for which it has just compiled a pillar: the grains that came
//! with the request, and the pillar (`_pillar` in `salt/master.py`). Targets live from it.

use saltern_model::{Event, MinionId, SaltEnv, Tag};
use saltern_store::StoreError;
use saltern_wire::msgpack::Value;

use crate::event_data::fields;
use crate::{Services, event_data, register_resources};

/// Keeps grains and pillar, as `minion_data_cache` asks; gives the event that is to be fired then
/// (`minion_data_cache_events`).
///
/// `pillarenv` is the environment that the minion asked for, if it did: 3008 keeps such a pillar
/// apart from the one that targets look at. What cannot be kept is logged; the pillar is answered
/// all the same, as it is in stock when the cache fails.
pub(crate) fn remember(
    services: &Services,
    minion: &MinionId,
    grains: &Value,
    pillar: &Value,
    pillarenv: Option<&str>,
) -> Option<Event> {
    if !services.site.minion_data_cache {
        return None;
    }
    match keep(services, minion, grains, pillar, pillarenv) {
        Ok(true) => {}
        Ok(false) => return None,
        Err(error) => {
            tracing::error!(%minion, %error, "grains and pillar cannot be kept for targeting");
            return None;
        }
    }
    if !services.site.minion_data_cache_events {
        return None;
    }
    let tag = Tag::minion_refresh(minion);
    let told = fields([("Minion data cache refresh", minion.as_str().into())]);
    Some(event_data::event(services, tag, told))
}

/// The pillar that is kept of a minion, or an empty one.
///
/// It is what stays kept when a pillar is made with data that the minion brought along
/// (`pillar_override`): in 3006 and 3007 that data was kept too, and let a minion choose which
/// pillar targets it belongs to. 3008 keeps it apart (`CachedPillar` in `salt/pillar/__init__.py`).
pub(crate) fn pillar_of(services: &Services, minion: &MinionId) -> Value {
    match services.minion_data.pillar(minion) {
        Ok(Some(pillar)) => pillar.as_ref().clone(),
        Ok(None) => Value::Map(Vec::new()),
        Err(error) => {
            tracing::error!(%minion, %error, "the kept pillar cannot be read");
            Value::Map(Vec::new())
        }
    }
}

/// `false`: nothing is to be kept, because the key is gone since the request came, and what was kept
/// of the minion with it; or because the request makes no sense.
fn keep(
    services: &Services,
    minion: &MinionId,
    grains: &Value,
    pillar: &Value,
    pillarenv: Option<&str>,
) -> Result<bool, StoreError> {
    let data = &services.minion_data;
    if services.pki.accepted_key(minion)?.is_none() {
        return Ok(false);
    }
    let unusable = |environment: &&str| SaltEnv::parse(environment).is_err();
    if let Some(environment) = pillarenv.filter(unusable) {
        services.metrics.refuse("pillarenv");
        complain!(
            services,
            %minion,
            pillarenv = environment,
            "nothing is kept of a minion that asks for a pillar environment with no usable name"
        );
        return Ok(false);
    }
    match pillarenv {
        Some(environment) => data.store_with_pillarenv(minion, grains, pillar, environment)?,
        None => data.store_grains_and_pillar(minion, grains, pillar)?,
    }
    Ok(true)
}

/// Forgets what is kept of a minion whose key was deleted or replaced, unless the site wants it
/// kept (`preserve_minion_cache`). `true` when there was something to forget.
pub fn forget_minion(services: &Services, minion: &MinionId) -> bool {
    services.pillars.forget(minion);
    if services.site.preserve_minion_cache {
        return false;
    }
    let forgotten = services.minion_data.purge(minion).and_then(|had_any| {
        register_resources::replace(services, minion, Vec::new())?;
        Ok(had_any)
    });
    forgotten.unwrap_or_else(|error| {
        tracing::error!(%minion, %error, "the data of a former minion cannot be removed");
        false
    })
}
