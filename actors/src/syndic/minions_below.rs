//! The minions below this master as its inventory names them: its own, and those of the inventories of
//! syndics below it.

use std::sync::Arc;

use saltern_model::{Absence, Changed, DataChanges, MinionId, Standing};
use saltern_requests::{KeyDigest, Services, absence_below, inventories_are_whole, key_digest};
use saltern_store::AcceptedIds;
use saltern_wire::msgpack::Value;

use super::inventory::{MinionChanges, MinionsBelow};

/// Minions of this master.
pub(crate) struct ServicesBelow(pub(crate) Arc<Services>);

/// Data that was seen last: generations of the minions' own and of the inventories, and the accepted keys.
#[derive(Default)]
pub(crate) struct Generations {
    own: Option<u64>,
    below: Option<u64>,
    /// Another list is made whenever a key comes, goes or is replaced.
    accepted: Option<Arc<AcceptedIds>>,
}

impl MinionsBelow for ServicesBelow {
    type Cursor = Generations;

    fn ids(&self) -> Option<Vec<MinionId>> {
        let services = &self.0;
        let accepted = services.keys.pki.accepted();
        let accepted = accepted
            .inspect_err(|error| {
                tracing::error!(%error, "no inventory goes up: keys cannot be listed");
            })
            .ok()?;
        let own = accepted.sorted().iter();
        let mut ids: Vec<MinionId> = own
            .filter(|id| !services.minions.syndics.has(id))
            .cloned()
            .collect();
        let below = services.minions.inventories.ids();
        let below = below.sorted().iter();
        ids.extend(below.filter(|id| !accepted.contains(id.as_str())).cloned());
        Some(ids)
    }

    fn is_partial(&self) -> bool {
        !inventories_are_whole(&self.0)
    }

    fn away(&self, minion: &MinionId) -> Option<String> {
        let Standing::Away(absence) = self.0.minions.presence.state(minion) else {
            return None;
        };
        // Without a key here it is below a syndic.
        let below = (absence == Absence::NoKey).then(|| absence_below(minion, &self.0));
        match below.flatten() {
            Some(why) => why.map(|why| why.to_string()),
            None => Some(Standing::Away(absence).to_string()),
        }
    }

    fn grains(&self, minion: &MinionId) -> Option<Value> {
        let minions = &self.0.minions;
        let grains = minions
            .inventories
            .grains_beside(minion, &minions.data, &*minions.presence);
        grains.map(|grains| (*grains).clone())
    }

    fn key(&self, minion: &MinionId) -> Option<KeyDigest> {
        let services = &self.0;
        key_digest(minion, services).or_else(|| services.minions.inventories.key(minion))
    }

    fn changes(&self, since: Option<&Generations>) -> MinionChanges<Generations> {
        let minions = &self.0.minions;
        // Before anything is looked for: a key that changes meanwhile is looked at once more.
        let accepted = self.0.keys.pki.accepted().ok();
        let (own_seen, below_seen) = since.map_or((None, None), |seen| (seen.own, seen.below));
        let own = minions.data.changes(own_seen).unwrap_or_else(|error| {
            tracing::error!(%error, "the cache of minion data cannot be listed");
            DataChanges {
                generation: 0,
                changed: Changed::Everything,
            }
        });
        let below = minions.inventories.changes(below_seen);
        let seen = since.and_then(|seen| seen.accepted.as_ref());
        let has_same_keys = match (seen, &accepted) {
            (Some(seen), Some(accepted)) => Arc::ptr_eq(seen, accepted),
            _ => false,
        };
        let (grains, keys) = match (own.changed, below.changed) {
            (Changed::These(mut own), Changed::These(below)) => {
                own.extend(below.iter().cloned());
                (Changed::These(own), Changed::These(below))
            }
            _ => (Changed::Everything, Changed::Everything),
        };
        MinionChanges {
            grains,
            keys: if has_same_keys {
                keys
            } else {
                Changed::Everything
            },
            cursor: Generations {
                own: Some(own.generation),
                below: Some(below.generation),
                accepted,
            },
        }
    }
}
