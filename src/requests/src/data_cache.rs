//! What the master keeps of a minion for which it has just compiled a pillar: the grains that came
//! with the request, and the pillar (`_pillar` in `salt/master.py`). Targets live from it.

use saltern_model::{Event, MinionId, SaltEnv, Tag};
use saltern_store::StoreError;
use saltern_wire::msgpack::Value;

use crate::event_data::fields;
use crate::{Services, event_data, register_resources};

/// What is kept beside the grains.
pub(crate) enum Kept<'a> {
    /// Nothing: the pillar was made with data that the minion brought along (`pillar_override`). In
    /// 3006 and 3007 that was kept too, and let a minion choose which pillar targets it belongs to;
    /// 3008 keeps it apart (`CachedPillar` in `salt/pillar/__init__.py`).
    Grains,
    /// The pillar.
    Pillar(&'a Value),
    /// The pillar of an environment that the minion asked for: 3008 keeps it apart from the one that
    /// targets look at.
    PillarOf(&'a str, &'a Value),
}

/// Keeps grains and pillar, as `minion_data_cache` asks; gives the event that is to be fired then
/// (`minion_data_cache_events`).
///
/// What cannot be kept is logged; the pillar is answered all the same, as it is in stock when the
/// cache fails.
pub(crate) fn remember(
    services: &Services,
    minion: &MinionId,
    grains: &Value,
    kept: Kept<'_>,
) -> Option<Event> {
    if !services.site.minion_data_cache {
        return None;
    }
    match keep(services, minion, grains, kept) {
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

/// `false`: nothing is to be kept, because the key is gone since the request came, and what was kept
/// of the minion with it; or because the request makes no sense.
fn keep(
    services: &Services,
    minion: &MinionId,
    grains: &Value,
    kept: Kept<'_>,
) -> Result<bool, StoreError> {
    let data = &services.minion_data;
    if services.pki.accepted_key(minion)?.is_none() {
        return Ok(false);
    }
    let kept = match kept {
        Kept::Grains => data.store_grains(minion, grains)?,
        Kept::Pillar(pillar) => data.store_grains_and_pillar(minion, grains, pillar)?,
        Kept::PillarOf(environment, _) if SaltEnv::parse(environment).is_err() => {
            services.metrics.refuse("pillarenv");
            complain!(
                services,
                %minion,
                pillarenv = environment,
                "nothing is kept of a minion that asks for a pillar environment with no usable name"
            );
            return Ok(false);
        }
        Kept::PillarOf(environment, pillar) => {
            data.store_with_pillarenv(minion, grains, pillar, environment)?
        }
    };
    if kept.left_out > 0 {
        services.metrics.grains_cut.inc();
        complain!(
            services,
            %minion,
            grains = kept.left_out,
            "grains are too large to be kept whole: targets do not find those left out"
        );
    }
    if kept.is_large {
        // Here, beside the workers, and not when somebody asks for a target.
        services.targeting.refresh();
    }
    Ok(true)
}

/// Forgets what is kept of a minion whose key was deleted or replaced, but its grains, pillar and
/// mine where the site wants those kept (`preserve_minion_cache`). `true` when there was something
/// of these to forget.
///
/// Session and resources go always: the session must not be the next owner's, and the names of
/// resources are the next owner's to register, or nobody's. So does what is known of a syndic: the
/// next owner may be a minion, of whom returns are expected.
pub fn forget_minion(services: &Services, minion: &MinionId) -> bool {
    services.pillars.forget(minion);
    if let Err(error) = services.sessions.remove(minion) {
        tracing::error!(%minion, %error, "the session of a former minion cannot be removed");
    }
    if let Err(error) = register_resources::replace(services, minion, Vec::new()) {
        tracing::error!(%minion, %error, "the resources of a former minion cannot be removed");
    }
    if let Err(error) = services.syndics.forget(minion) {
        tracing::error!(%minion, %error, "a former syndic cannot be forgotten");
    }
    if services.site.preserve_minion_cache {
        return false;
    }
    services.minion_data.purge(minion).unwrap_or_else(|error| {
        tracing::error!(%minion, %error, "the data of a former minion cannot be removed");
        false
    })
}
