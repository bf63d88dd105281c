//! How many keys that nobody has accepted are kept on disk. Whoever reaches the request port can
//! make the master keep keys, each under another id, so there is a bound on them altogether, and on
//! what one address adds.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv6Addr};

use parking_lot::Mutex;
use saltern_model::{KeyState, MinionId};
use saltern_store::{PkiTree, StoreError};

/// The part of all keys that may come from one address. Minions behind a translator of addresses
/// or a load balancer share one.
const ADDRESS_SHARE: usize = 2;

/// Seconds for which a count of the files holds: they are counted for strangers.
const COUNT_LASTS: i64 = 1;

/// Admits keys to the pending, rejected and denied ones.
pub(crate) struct KeyAdmission {
    /// Keys in each of these states (`saltern_max_pending`); 0 for no bound.
    most: usize,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    counts: HashMap<KeyState, Count>,
    /// The ids whose keys an address has added.
    added: HashMap<IpAddr, HashSet<MinionId>>,
    /// All of these ids.
    ids: usize,
    /// When ids that are settled were last taken out.
    pruned: i64,
}

#[derive(Clone, Copy)]
struct Count {
    keys: usize,
    /// Seconds since 1970.
    at: i64,
}

impl KeyAdmission {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            table: Mutex::default(),
        }
    }

    /// Whether one more key may be kept in a state; then it counts. `now` is in seconds since 1970.
    pub(crate) fn admits(
        &self,
        pki: &PkiTree,
        (id, state): (&MinionId, KeyState),
        from: IpAddr,
        now: i64,
    ) -> Result<bool, StoreError> {
        if self.most == 0 {
            return Ok(true);
        }
        let mut table = self.table.lock();
        let known = table.counts.get(&state).copied();
        let known = known.filter(|known| (0..COUNT_LASTS).contains(&(now - known.at)));
        let count = match known {
            Some(count) => count,
            None => Count {
                keys: pki.count(state)?,
                at: now,
            },
        };
        table.counts.insert(state, count);
        if count.keys >= self.most {
            return Ok(false);
        }
        let network = network(from);
        let share = (self.most / ADDRESS_SHARE).max(1);
        let has_room = |table: &Table| {
            let added = table.added.get(&network);
            added.is_none_or(|added| added.len() < share || added.contains(id))
        };
        let is_long = table.ids >= self.most.saturating_mul(4);
        if (is_long || !has_room(&table)) && table.pruned != now {
            table.pruned = now;
            table.prune(pki);
        }
        if !has_room(&table) {
            return Ok(false);
        }
        if table.added.entry(network).or_default().insert(id.clone()) {
            table.ids += 1;
        }
        let keys = count.keys + 1;
        table.counts.insert(state, Count { keys, ..count });
        Ok(true)
    }
}

impl Table {
    /// Takes out the ids whose keys were accepted or removed.
    fn prune(&mut self, pki: &PkiTree) {
        let is_unsettled = |id: &MinionId| {
            let state = pki.state(id).ok().flatten();
            matches!(state, Some(KeyState::Pending | KeyState::Rejected))
                || pki.is_denied(id).unwrap_or(true)
        };
        for ids in self.added.values_mut() {
            ids.retain(is_unsettled);
        }
        self.added.retain(|_, ids| !ids.is_empty());
        self.ids = self.added.values().map(HashSet::len).sum();
    }
}

/// The address, of IPv6 the network of 64 bits: a host has all of them.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        v4 => v4,
    }
}
