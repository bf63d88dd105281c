//! Admission control for keys that are not accepted. Any peer that reaches the request port can
//! make the master keep keys, each under another id. So their total number is bounded, and the
//! number that one block of addresses adds.
//!
//! # When there is no room
//!
//! A minion without a pending key is invisible to operators, so a flood must not keep new minions
//! out. Where no more pending keys fit, the newest key of the largest contributor gives way to a
//! new minion of a network that would still have fewer keys. Blocks of addresses are compared first
//! (/24, /48), then the networks of the block (one address, /64). Floods from many blocks leave
//! each new minion the same share as each of them, and then it ends: between equals nothing is
//! replaced.
//!
//! The newest key goes, not the oldest. An operator may be looking at an older one, and its id must
//! not become free for another key while its fingerprint is compared. A minion whose key gave way
//! has been answered as pending and retries every few seconds, so only a slot is lost, not a
//! minion. Its id stays reserved for its key for one to two hours, in memory: who fills the pending
//! keys would otherwise take over ids in front of the operator.
//!
//! Rejected and denied keys do not give way: their minions are refused in any case, and the files
//! are notes for the operator.
//!
//! The contributors of keys from before this process started are unknown until their minions retry;
//! until then the keys count together, as those of one block. What is known of a contributor is also
//! shown to whoever decides about the key.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use parking_lot::Mutex;
use saltern_model::{KeyState, MinionId};
use saltern_store::{PkiTree, StoreError};

/// The divisor of all keys for one block of addresses: a block may contribute half of them. Minions
/// behind one NAT or load balancer share a block.
const BLOCK_SHARE: usize = 2;

/// Minimum time for which the id of a key that gave way is reserved for it, in seconds; at most
/// twice as long.
const RESERVED_FOR: i64 = 3_600;

/// Admits keys to the pending, rejected and denied ones.
pub(crate) struct KeyAdmission {
    /// The most keys in each of these states (`saltern_max_pending`); 0 for no bound.
    most: usize,
    pools: Mutex<HashMap<KeyState, Pool>>,
    evicted: Mutex<EvictedKeys>,
}

/// Pending keys that gave way, by id, in two generations of which the older one is forgotten as a
/// whole.
#[derive(Default)]
struct EvictedKeys {
    current: HashMap<MinionId, u64>,
    previous: HashMap<MinionId, u64>,
    /// In seconds since 1970.
    began: i64,
    hash: RandomState,
}

impl EvictedKeys {
    fn add(&mut self, id: MinionId, pem: &str, (most, now): (usize, i64)) {
        self.age(now);
        if self.current.len() >= most {
            self.begin(now);
        }
        let digest = self.digest(pem);
        self.current.insert(id, digest);
    }

    /// Whether the id is reserved for another key.
    fn is_of_another(&mut self, id: &MinionId, pem: &str, now: i64) -> bool {
        self.age(now);
        let reserved = self.current.get(id).or_else(|| self.previous.get(id));
        reserved.is_some_and(|digest| *digest != self.digest(pem))
    }

    /// Of the key as stock compares it: without its kind of line ends.
    fn digest(&self, pem: &str) -> u64 {
        let lines: Vec<&str> = pem.trim().lines().map(str::trim_end).collect();
        self.hash.hash_one(lines)
    }

    fn age(&mut self, now: i64) {
        let age = now.saturating_sub(self.began);
        // A clock that was set back ends a generation, too.
        if !(0..RESERVED_FOR).contains(&age) {
            self.begin(now);
        }
        if age >= 2 * RESERVED_FOR {
            self.previous.clear();
        }
    }

    fn begin(&mut self, now: i64) {
        self.previous = std::mem::take(&mut self.current);
        self.began = now;
    }
}

/// Verdict on one more key.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It may be kept.
    Admitted,
    /// It may be kept; the pending key of this minion was removed for it.
    InPlaceOf(MinionId),
    /// It may not be kept.
    Full,
}

/// Addresses that likely belong to one party.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Network {
    /// /24 or /48.
    block: IpAddr,
    /// The address; for IPv6 the network of 64 bits, all of which a host has.
    own: IpAddr,
}

/// The keys in one state. The files are authoritative: they are listed at most once a second, and
/// once more before a key is refused.
#[derive(Default)]
struct Pool {
    /// All keys in this state, by the last listing and what was admitted since.
    keys: usize,
    /// When they were last listed, in seconds since 1970.
    listed: Option<i64>,
    /// When they were last listed for want of room.
    listed_when_full: Option<i64>,
    /// The network of each key, where known.
    origins: HashMap<MinionId, Network>,
    /// The ids of each network, the newest last.
    networks: HashMap<Network, Vec<MinionId>>,
    blocks: HashMap<IpAddr, usize>,
    /// Keys of unknown network, each with the time of its file in microseconds.
    unknown: HashMap<MinionId, i64>,
}

/// Next step of an admission.
enum Step {
    Done(Admission),
    /// The files have to be listed first; whether for want of room.
    List {
        is_full: bool,
    },
}

impl KeyAdmission {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            pools: Mutex::default(),
            evicted: Mutex::default(),
        }
    }

    /// Whether the id is reserved for another key than the presented one: that of a pending minion
    /// that gave way. `now` is in seconds since 1970.
    pub(crate) fn is_of_another(&self, id: &MinionId, presented: &str, now: i64) -> bool {
        self.evicted.lock().is_of_another(id, presented, now)
    }

    /// Admits one more key to a state and counts it. `now` is in seconds since 1970. Files are
    /// listed and removed without the lock.
    pub(crate) fn admit(
        &self,
        pki: &PkiTree,
        (id, state): (&MinionId, KeyState),
        from: IpAddr,
        now: i64,
    ) -> Result<Admission, StoreError> {
        if self.most == 0 {
            return Ok(Admission::Admitted);
        }
        let network = Network::of(from);
        loop {
            let step = {
                let mut pools = self.pools.lock();
                let pool = pools.entry(state).or_default();
                pool.step(id, network, (self.most, state), now)
            };
            match step {
                Step::Done(Admission::InPlaceOf(victim)) => {
                    let pem = pki.stored_pem(&victim, KeyState::Pending)?;
                    pki.remove(&victim, KeyState::Pending)?;
                    if let Some(pem) = pem {
                        let mut evicted = self.evicted.lock();
                        evicted.add(victim.clone(), &pem, (self.most, now));
                    }
                    return Ok(Admission::InPlaceOf(victim));
                }
                Step::Done(admission) => return Ok(admission),
                Step::List { is_full } => {
                    let listed = pki.list(state)?;
                    let unknown = self.times_of_unknown(pki, state, &listed);
                    let mut pools = self.pools.lock();
                    let pool = pools.entry(state).or_default();
                    pool.take(&listed, unknown);
                    // Only now: without a listing, older knowledge decides nothing.
                    pool.listed = Some(now);
                    pool.listed_when_full = is_full.then_some(now);
                }
            }
        }
    }

    /// Records the network of a pending minion that retries.
    pub(crate) fn heard(&self, id: &MinionId, from: IpAddr) {
        if self.most == 0 {
            return;
        }
        let mut pools = self.pools.lock();
        let pool = pools.entry(KeyState::Pending).or_default();
        if !pool.origins.contains_key(id) {
            pool.add(id, Network::of(from));
        }
    }

    /// The address that a key came from, of IPv6 the network; nothing where it is not known.
    pub(crate) fn origin(&self, id: &MinionId, state: KeyState) -> Option<String> {
        let pools = self.pools.lock();
        let network = pools.get(&state)?.origins.get(id)?;
        Some(match network.own {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(network) => format!("{network}/64"),
        })
    }

    /// The keys of unknown network, with the times of their files.
    fn times_of_unknown(
        &self,
        pki: &PkiTree,
        state: KeyState,
        listed: &[MinionId],
    ) -> HashMap<MinionId, i64> {
        let (strange, mut times) = {
            let mut pools = self.pools.lock();
            let pool = pools.entry(state).or_default();
            let is_strange = |id: &&MinionId| !pool.origins.contains_key(*id);
            let strange: Vec<MinionId> = listed.iter().filter(is_strange).cloned().collect();
            (strange, std::mem::take(&mut pool.unknown))
        };
        let time_of = |id: MinionId| {
            let known = times.remove(&id);
            let time = known.or_else(|| Some(pki.version(&id, state).ok()??.modified_micros()));
            Some((id, time?))
        };
        strange.into_iter().filter_map(time_of).collect()
    }
}

impl Pool {
    fn step(
        &mut self,
        id: &MinionId,
        network: Network,
        (most, state): (usize, KeyState),
        now: i64,
    ) -> Step {
        // Another thread may be a second ahead.
        let is_of_now = |at: Option<i64>| at.is_some_and(|at| (now..=now + 1).contains(&at));
        if !is_of_now(self.listed) {
            return Step::List { is_full: false };
        }
        let share = (most / BLOCK_SHARE).max(1);
        let of_block = self.blocks.get(&network.block).copied().unwrap_or(0);
        let has_share = of_block < share || self.origins.contains_key(id);
        if self.keys < most && has_share {
            self.add(id, network);
            self.keys += 1;
            return Step::Done(Admission::Admitted);
        }
        if !is_of_now(self.listed_when_full) {
            return Step::List { is_full: true };
        }
        let victim = match (state, has_share) {
            (KeyState::Pending, true) => self.newest_of_most(network, of_block),
            (KeyState::Pending, false) => self.newest_of_block(network),
            _ => None,
        };
        let Some(victim) = victim else {
            return Step::Done(Admission::Full);
        };
        self.forget(&victim);
        self.add(id, network);
        Step::Done(Admission::InPlaceOf(victim))
    }

    /// The newest key of the block with most keys, if that leaves it no fewer than the new
    /// minion's.
    fn newest_of_most(&self, newcomer: Network, of_block: usize) -> Option<MinionId> {
        let most = self.blocks.iter().max_by_key(|(_, keys)| **keys);
        let most = most.map(|(block, keys)| (*block, *keys));
        let of_most = most.map_or(0, |(_, keys)| keys);
        if self.unknown.len() > of_most.max(of_block + 1) {
            let newest = self.unknown.iter().max_by_key(|(_, time)| **time);
            return newest.map(|(id, _)| id.clone());
        }
        let (block, keys) = most?;
        if block == newcomer.block {
            return self.newest_of_block(newcomer);
        }
        let largest = self.largest_network(block)?;
        (keys > of_block + 1)
            .then(|| largest.last().cloned())
            .flatten()
    }

    /// The newest key of the network with most keys in the new minion's own block, if that leaves
    /// it no fewer than the new minion's.
    fn newest_of_block(&self, newcomer: Network) -> Option<MinionId> {
        let own = self.networks.get(&newcomer).map_or(0, Vec::len);
        let largest = self.largest_network(newcomer.block)?;
        (largest.len() > own + 1)
            .then(|| largest.last().cloned())
            .flatten()
    }

    fn largest_network(&self, block: IpAddr) -> Option<&Vec<MinionId>> {
        let networks = self.networks.iter();
        let of_block = networks.filter(|(network, _)| network.block == block);
        of_block.map(|(_, ids)| ids).max_by_key(|ids| ids.len())
    }

    fn add(&mut self, id: &MinionId, network: Network) {
        self.forget(id);
        self.origins.insert(id.clone(), network);
        self.networks.entry(network).or_default().push(id.clone());
        *self.blocks.entry(network.block).or_default() += 1;
    }

    fn forget(&mut self, id: &MinionId) {
        self.unknown.remove(id);
        let Some(network) = self.origins.remove(id) else {
            return;
        };
        if let Some(ids) = self.networks.get_mut(&network) {
            // Usually the newest.
            if let Some(place) = ids.iter().rposition(|known| known == id) {
                ids.remove(place);
            }
            if ids.is_empty() {
                self.networks.remove(&network);
            }
        }
        if let Some(keys) = self.blocks.get_mut(&network.block) {
            *keys -= 1;
            if *keys == 0 {
                self.blocks.remove(&network.block);
            }
        }
    }

    /// Applies a listing: keys that were accepted or removed are gone.
    fn take(&mut self, listed: &[MinionId], unknown: HashMap<MinionId, i64>) {
        let there: HashSet<&MinionId> = listed.iter().collect();
        let gone = self.origins.keys().filter(|id| !there.contains(id));
        let gone: HashSet<MinionId> = gone.cloned().collect();
        self.origins.retain(|id, _| !gone.contains(id));
        for ids in self.networks.values_mut() {
            ids.retain(|id| !gone.contains(id));
        }
        self.networks.retain(|_, ids| !ids.is_empty());
        self.blocks.clear();
        for (network, ids) in &self.networks {
            *self.blocks.entry(network.block).or_default() += ids.len();
        }
        self.unknown = unknown;
        self.unknown.retain(|id, _| !self.origins.contains_key(id));
        self.keys = listed.len();
    }
}

impl Network {
    fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Self {
                    block: Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0).into(),
                    own: Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into(),
                }
            }
            IpAddr::V4(address) => {
                let [a, b, c, _] = address.octets();
                Self {
                    block: Ipv4Addr::new(a, b, c, 0).into(),
                    own: address.into(),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
