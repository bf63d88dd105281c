//! Target resolution for requests: the accepted minions, their cached data, and the rules of the
//! version.
//!
//! `policy` does the matching. An unusable target matches no minion, as in stock, where any
//! exception ends so (`CkMinions.check_minions` in `salt/utils/minions.py`).

use std::sync::Arc;

use saltern_config::MasterConfig;
use saltern_model::{Changed, Compat, DataChanges, MinionId, Target, TargetType};
use saltern_policy::matching::{MatchOptions, MinionData, NoData, Nodegroups, Site as TargetSite};
use saltern_policy::target::{Candidates, Resolved, Targeting};
use saltern_store::{AcceptedIds, MinionDataStore, StoreError};
use saltern_wire::msgpack::Value;

use crate::Services;

/// The accepted minions as the candidates of a target.
pub(crate) struct Accepted<'a>(pub(crate) &'a AcceptedIds);

impl Candidates for Accepted<'_> {
    fn ids(&self) -> &[MinionId] {
        self.0.sorted()
    }

    fn find(&self, id: &str) -> Option<&MinionId> {
        self.0.get(id)
    }
}

/// Cache of minion data, as the matcher reads it. Unreadable data counts as absent.
struct Cached(Arc<MinionDataStore>);

impl Cached {
    fn or_nothing<T>(read: Result<Option<T>, StoreError>, id: &MinionId) -> Option<T> {
        read.unwrap_or_else(|error| {
            tracing::warn!(minion = %id, %error, "cached data cannot be read: it counts as absent");
            None
        })
    }
}

impl MinionData for Cached {
    fn grains(&self, id: &MinionId) -> Option<Arc<Value>> {
        Self::or_nothing(self.0.grains(id), id)
    }

    fn pillar(&self, id: &MinionId) -> Option<Arc<Value>> {
        Self::or_nothing(self.0.pillar(id), id)
    }

    fn known(&self) -> Arc<[MinionId]> {
        self.0.known().unwrap_or_else(|error| {
            tracing::error!(%error, "the cache of minion data cannot be listed");
            Arc::default()
        })
    }

    fn changes(&self, since: Option<u64>) -> DataChanges {
        match self.0.changes(since) {
            Ok(changes) => changes,
            Err(error) => {
                tracing::error!(%error, "the cache of minion data cannot be listed");
                // The store never counts down to this number, so the next query reads again.
                DataChanges {
                    generation: 0,
                    changed: Changed::Everything,
                }
            }
        }
    }
}

/// Targets of this site.
pub(crate) fn of_site(
    config: &MasterConfig,
    is_cached: bool,
    data: &Arc<MinionDataStore>,
) -> Targeting {
    let cached = || Arc::new(Cached(data.clone())) as Arc<dyn MinionData>;
    of_data(config, is_cached.then(cached))
}

/// Targets among the minions of which this is known.
pub(crate) fn of_data(config: &MasterConfig, data: Option<Arc<dyn MinionData>>) -> Targeting {
    let nodegroups = config.nodegroups().node();
    Targeting::of(TargetSite::new(
        config.salt_compat,
        nodegroups.map(Nodegroups::from_node).unwrap_or_default(),
        data,
    ))
}

/// The target of a load; `None` for one that matches no minion in stock, because its kind is
/// unknown or takes no list.
pub(crate) fn of_load(tgt: &Value, tgt_type: Option<&Value>, compat: Compat) -> Option<Target> {
    let kind = match tgt_type {
        None => TargetType::Glob,
        Some(name) => TargetType::from_wire(name.as_str()?)?,
    };
    let texts = |items: &[Value]| -> Vec<String> {
        let texts = items.iter().filter_map(Value::as_str);
        texts.map(str::to_owned).collect()
    };
    match tgt {
        Value::Str(text) => Some(Target::Expression(kind, text.clone())),
        Value::Nil => Some(Target::Expression(kind, String::new())),
        Value::Array(names) => match kind {
            TargetType::List => Some(Target::List(texts(names))),
            TargetType::Compound if names.iter().all(|name| name.as_str().is_some()) => {
                Some(Target::Words(texts(names)))
            }
            // 3008 takes a list of wildcards, and a text with commas for one (`glob_match` in
            // `salt/key.py`).
            TargetType::Glob if compat == Compat::V3008 => {
                Some(Target::Expression(kind, texts(names).join(",")))
            }
            _ => None,
        },
        _ => None,
    }
}

/// The accepted minions that the target matches; none for a target in error, which is reported as
/// possibly matching more.
///
/// # Errors
/// When the accepted keys cannot be listed.
pub(crate) fn resolve(
    services: &Services,
    target: &Target,
    options: &MatchOptions<'_>,
) -> Result<Resolved, StoreError> {
    let accepted = services.keys.pki.accepted()?;
    let resolved = services
        .targeting
        .resolve_with(target, &Accepted(&accepted), options);
    let resolved = resolved.unwrap_or_else(|error| {
        services.metrics.refuse("target");
        complain!(services, tgt_type = %target.kind(), %error, "a target matches nobody");
        Resolved {
            may_mean_more: true,
            ..Resolved::default()
        }
    });
    if !resolved.problems.is_empty() {
        complain!(
            services,
            tgt_type = %target.kind(), problems = %resolved.problems,
            "parts of a target match no minion"
        );
    }
    Ok(resolved)
}

/// The accepted minions that the target of a rule covers, without greed: a rule grants something.
/// None when the match of even one minion is unknown: behind a `not`, an unknown that counts as no
/// match would become one.
pub(crate) fn of_rule(services: &Services, target: &str) -> Vec<MinionId> {
    let target = Target::Expression(TargetType::Compound, target.to_owned());
    let options = MatchOptions {
        greedy: false,
        ..MatchOptions::default()
    };
    if !services.site.minion_data_cache {
        return without_cache(services, &target, &options);
    }
    match resolve(services, &target, &options) {
        Ok(resolved) => if_certain(resolved),
        Err(error) => {
            tracing::error!(%error, "accepted keys cannot be listed");
            Vec::new()
        }
    }
}

/// Without a cache a compound target matches all minions; a rule would then grant everything to all
/// users that it names, so here the cache counts as empty.
fn without_cache(
    services: &Services,
    target: &Target,
    options: &MatchOptions<'_>,
) -> Vec<MinionId> {
    let nodegroups = services.config.nodegroups().node();
    let targeting = Targeting::of(TargetSite::new(
        services.config.salt_compat,
        nodegroups.map(Nodegroups::from_node).unwrap_or_default(),
        Some(Arc::new(NoData)),
    ));
    let accepted = match services.keys.pki.accepted() {
        Ok(accepted) => accepted,
        Err(error) => {
            tracing::error!(%error, "accepted keys cannot be listed");
            return Vec::new();
        }
    };
    let resolved = targeting.resolve_with(target, &Accepted(&accepted), options);
    resolved.map(if_certain).unwrap_or_default()
}

fn if_certain(resolved: Resolved) -> Vec<MinionId> {
    if resolved.may_mean_more {
        tracing::warn!("the target of a rule takes too much work and covers no minion");
        return Vec::new();
    }
    resolved.minions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_of_wildcards_and_no_target_are_read_as_the_release_reads_them() {
        let glob = |text: &str| Some(Target::Expression(TargetType::Glob, text.to_owned()));
        let names = Value::Array(vec!["a".into(), "b*".into()]);
        for (compat, of_names) in [(Compat::V3006, None), (Compat::V3008, glob("a,b*"))] {
            assert_eq!(of_load(&Value::Nil, None, compat), glob(""), "{compat:?}");
            assert_eq!(of_load(&names, None, compat), of_names, "{compat:?}");
        }
    }
}
