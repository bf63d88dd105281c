//! What is common to everything that comes from syndics: who is one, for whom it may speak, and
//! which minions it says have a job too.
//!
//! Nothing on the wire tells a syndic from a minion. Without `order_masters` there are none. With
//! it, whoever says that it started as a syndic (`salt/syndic/<id>/start`) is one until it does what
//! only minions do, so every minion could; but in the name of a minion whose key this master has
//! accepted nobody speaks but that minion itself, and in the name of another one only the first
//! syndic that did, unless a site turns `saltern_strict_minion_events` off.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use saltern_model::{Jid, MinionId};
use saltern_store::AcceptedIds;
use saltern_wire::msgpack::{MapView, RawValue};

use crate::Services;
use crate::outcome::SyndicMinions;

/// Minions of which one request may say that they have jobs, over all its jobs.
pub(crate) const MOST_LEAVES: usize = 100_000;

/// Takes note of a syndic; for stock's command line too.
pub(crate) fn register(syndic: &MinionId, services: &Services) {
    match services.syndics.register(syndic) {
        Ok(true) => tracing::info!(%syndic, "a syndic is known from now on"),
        Ok(false) => {}
        Err(error) => {
            tracing::error!(%syndic, %error, "stock's tools take a syndic for a minion");
        }
    }
}

/// Whether this syndic has said that it is one.
pub(crate) fn is_known(syndic: &MinionId, services: &Services) -> bool {
    services.site.order_masters && services.syndics.has(syndic)
}

/// It has done what syndics do not: it is a minion, and is waited for again.
pub(crate) fn is_minion(id: &MinionId, services: &Services) {
    if !is_known(id, services) {
        return;
    }
    match services.syndics.forget(id) {
        Ok(_) => tracing::info!(minion = %id, "a syndic is a minion again"),
        Err(error) => {
            tracing::error!(minion = %id, %error, "stock's tools take a minion for a syndic");
        }
    }
}

/// In whose name a syndic may return, and be waited for; made for one request.
pub(crate) struct SyndicIdentity<'a> {
    syndic: &'a MinionId,
    /// `None` when they cannot be listed: then nobody is spoken for.
    accepted: Option<Arc<AcceptedIds>>,
    services: &'a Services,
}

impl<'a> SyndicIdentity<'a> {
    pub(crate) fn of(syndic: &'a MinionId, services: &'a Services) -> Self {
        let accepted = services.pki.accepted();
        let accepted = accepted
            .inspect_err(|error| tracing::error!(%error, "accepted keys cannot be listed"))
            .ok();
        Self {
            syndic,
            accepted,
            services,
        }
    }

    /// Whose it is.
    pub(crate) fn syndic(&self) -> &MinionId {
        self.syndic
    }

    /// Whether it may speak for this minion.
    pub(crate) fn speaks_for(&self, minion: &MinionId) -> bool {
        // The machine of a syndic may have a minion of the same name below.
        if minion == self.syndic || !self.services.config.saltern_strict_minion_events {
            return true;
        }
        let is_stranger = |ids: &Arc<AcceptedIds>| !ids.contains(minion.as_str());
        if !self.accepted.as_ref().is_some_and(is_stranger) {
            return false;
        }
        let is_its = self.services.syndics.claim(minion, self.syndic);
        if !is_its {
            self.services.metrics.refuse("syndic_leaf");
        }
        is_its
    }
}

/// The minions below a syndic that have jobs, as its events tell: gathered over one request.
///
/// 3006 and 3007 forward `<jid>` and `salt/job/<jid>/new`, 3008 the latter, each with a list
/// `minions`; from a third level they come as `syndic/<id>/…` (`_handle_minion_event` in
/// `salt/master.py`, `_process_event` in `salt/minion.py`).
pub(crate) struct Announced {
    jobs: BTreeMap<String, BTreeSet<MinionId>>,
    /// How many more are listened to.
    room: usize,
}

impl Default for Announced {
    fn default() -> Self {
        Self {
            jobs: BTreeMap::new(),
            room: MOST_LEAVES,
        }
    }
}

impl Announced {
    /// Looks at one event of a syndic.
    pub(crate) fn look(&mut self, tag: &str, data: &MapView, voice: &SyndicIdentity<'_>) {
        let Some(minions) = data.get("minions").and_then(RawValue::as_array) else {
            return;
        };
        let of_tag = || tag.rsplit('/').find(|part| Jid::parse(part).is_ok());
        let Some(jid) = data.str("jid").or_else(of_tag) else {
            return;
        };
        if Jid::parse(jid).is_err() {
            return;
        }
        let heard = minions.len().min(self.room);
        self.room -= heard;
        let minions = minions.iter().take(heard).filter_map(RawValue::as_str);
        let minions = minions.filter_map(|name| MinionId::parse(name).ok());
        let minions = minions.filter(|minion| voice.speaks_for(minion));
        self.jobs.entry(jid.to_owned()).or_default().extend(minions);
    }

    /// What was found, for each job that has any minion there.
    pub(crate) fn into_leaves(self, syndic: &MinionId) -> Vec<SyndicMinions> {
        let found = self.jobs.into_iter();
        let found = found.filter(|(_, minions)| !minions.is_empty());
        found
            .filter_map(|(jid, minions)| {
                Some(SyndicMinions {
                    jid: Jid::parse(&jid).ok()?,
                    syndic: syndic.clone(),
                    minions: minions.into_iter().collect(),
                })
            })
            .collect()
    }
}
