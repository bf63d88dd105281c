//! Cache of a minion's data after its pillar was compiled: the grains that came with the request,
//! and the pillar (`_pillar` in `salt/master.py`). Targets are matched against it.

use saltern_model::{Event, MinionId, SaltEnv, Tag};
use saltern_store::StoreError;
use saltern_wire::msgpack::Value;

use crate::events::MinionRefresh;
use crate::{Services, event_data};

/// The part that is cached beside the grains.
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

/// Caches grains and pillar, as `minion_data_cache` asks; returns the event to fire then
/// (`minion_data_cache_events`).
///
/// Failures are logged; the pillar is answered all the same, as it is in stock when the cache
/// fails.
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
    Some(event_data::master_event(
        services,
        tag,
        &MinionRefresh { minion },
    ))
}

/// `false`: nothing is cached, because the key is gone since the request came, and the minion's
/// cached data with it; or because the environment has no usable name.
fn keep(
    services: &Services,
    minion: &MinionId,
    grains: &Value,
    kept: Kept<'_>,
) -> Result<bool, StoreError> {
    let data = &services.minions.data;
    if services.keys.pki.accepted_key(minion)?.is_none() {
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
        // Here, beside the workers, and not when a target is matched.
        services.targeting.refresh();
    }
    Ok(true)
}
