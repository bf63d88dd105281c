//! What is common to everything that comes from syndics: who is one, for whom it may speak, and
//! which minions it says have a job too.
//!
//! Nothing on the wire tells a syndic from a minion. Without `order_masters` there are none. With
//! it, whoever does what only syndics do is one, so every minion could; but in the name of a minion
//! whose key this master has accepted nobody speaks but that minion itself, unless a site turns
//! `saltern_strict_minion_events` off.

use std::collections::{BTreeMap, BTreeSet};

use saltern_model::{Jid, MinionId};
use saltern_wire::msgpack::{MapView, RawValue};

use crate::Services;
use crate::outcome::Leaves;

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

/// Whether a syndic may return, and be waited for, in the name of this minion.
pub(crate) fn may_speak_for(syndic: &MinionId, minion: &MinionId, services: &Services) -> bool {
    // The machine of a syndic may have a minion of the same name below.
    if minion == syndic || !services.config.saltern_strict_minion_events {
        return true;
    }
    // Who cannot be looked up is not spoken for.
    matches!(services.pki.accepted_key(minion), Ok(None))
}

/// The minions below a syndic that have jobs, as its events tell: gathered over one request.
///
/// 3006 and 3007 forward `<jid>` and `salt/job/<jid>/new`, 3008 the latter, each with a list
/// `minions`; from a third level they come as `syndic/<id>/…` (`_handle_minion_event` in
/// `salt/master.py`, `_process_event` in `salt/minion.py`).
#[derive(Default)]
pub(crate) struct Announced(BTreeMap<String, BTreeSet<MinionId>>);

impl Announced {
    /// Looks at one event of a syndic.
    pub(crate) fn look(
        &mut self,
        tag: &str,
        data: &MapView,
        syndic: &MinionId,
        services: &Services,
    ) {
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
        let minions = minions.iter().filter_map(RawValue::as_str);
        let minions = minions.filter_map(|name| MinionId::parse(name).ok());
        let minions = minions.filter(|minion| may_speak_for(syndic, minion, services));
        self.0.entry(jid.to_owned()).or_default().extend(minions);
    }

    /// What was found, for each job that has any minion there.
    pub(crate) fn into_leaves(self, syndic: &MinionId) -> Vec<Leaves> {
        let found = self.0.into_iter();
        let found = found.filter(|(_, minions)| !minions.is_empty());
        found
            .filter_map(|(jid, minions)| {
                Some(Leaves {
                    jid: Jid::parse(&jid).ok()?,
                    syndic: syndic.clone(),
                    minions: minions.into_iter().collect(),
                })
            })
            .collect()
    }
}
