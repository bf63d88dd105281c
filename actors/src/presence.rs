//! Which minions are there, as far as the connections tell.
//!
//! Like stock, a minion counts as connected when the address that it was last heard from holds a
//! connection to the publish port; unlike stock the address is the one it really came from, not
//! one of its grains, so network address translation does not hide it.

use std::collections::HashSet;
use std::net::IpAddr;

use dashmap::DashMap;
use saltern_model::MinionId;
use saltern_requests::Surroundings;
use saltern_store::AcceptedIds;
use saltern_wire::zmtp::PubHandle;

/// The index; shared by all workers, survives every actor.
pub(crate) struct Presence {
    last_address: DashMap<MinionId, IpAddr>,
    subscribers: PubHandle,
}

impl Presence {
    pub(crate) fn new(subscribers: PubHandle) -> Self {
        Self {
            last_address: DashMap::new(),
            subscribers,
        }
    }
}

impl Presence {
    /// Forgets minions that are not accepted any more; without this, a site whose minions come and
    /// go would be remembered for ever.
    pub(crate) fn forget_others(&self, accepted: &AcceptedIds) {
        self.last_address
            .retain(|minion, _| accepted.contains(minion.as_str()));
    }
}

impl Surroundings for Presence {
    fn connected(&self) -> Vec<MinionId> {
        let subscribers = self.subscribers.subscribers();
        let present: HashSet<IpAddr> = subscribers.iter().map(|s| s.address.ip()).collect();
        self.last_address
            .iter()
            .filter(|entry| present.contains(entry.value()))
            .map(|entry| entry.key().clone())
            .collect()
    }

    fn heard(&self, minion: &MinionId, from: IpAddr) {
        if self
            .last_address
            .get(minion.as_str())
            .is_some_and(|known| *known == from)
        {
            return;
        }
        self.last_address.insert(minion.clone(), from);
    }
}
