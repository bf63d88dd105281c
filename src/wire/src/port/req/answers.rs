//! Memory budget of replies that wait for their readers.
//!
//! A reply is charged from the moment it is queued until the kernel has taken all of it. When the
//! budget is used up, a connection is evicted: of the network with the largest total, the
//! connection with the largest. Stalled connections of that network come first. Not across
//! networks: a slow reader that stalls is no worse than a hoarder that reads a little now and then.
//!
//! Not here: the minimum rate of a single reader ([`Progress`](crate::port::Progress)).

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::connection::Connection;
use crate::port::metrics::Close;

/// Time after which a waiting reply makes its reader stalled, also after each write that the
/// kernel took: it takes a third of its buffer at once, so a slow reader moves in steps.
const STALL: Duration = Duration::from_secs(5);

/// Memory budget of the replies to one group of peers.
pub(super) struct AnswerBudget {
    ledger: Mutex<Ledger<Weak<Connection>>>,
}

/// A reply's share of the budget, freed on drop.
pub(super) struct Charge {
    budget: Arc<AnswerBudget>,
    connection: u64,
    holder: u64,
    bytes: usize,
}

impl AnswerBudget {
    /// Budget of `limit` bytes. One reply always fits when no other one waits.
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            ledger: Mutex::new(Ledger::new(limit)),
        })
    }

    /// Bytes in use.
    pub(super) fn held(&self) -> usize {
        self.ledger.lock().bytes
    }

    /// Charges a reply of `bytes` to `connection`, and evicts connections until it fits; this one,
    /// if it is the largest. Must not be called with the state of a connection locked.
    pub(super) fn charge(self: &Arc<Self>, connection: &Arc<Connection>, bytes: usize) -> Charge {
        let number = connection.number();
        let (holder, evicted) = {
            let mut ledger = self.ledger.lock();
            let now = Instant::now();
            let holder = ledger.charge((number, connection.network()), bytes, now, || {
                Arc::downgrade(connection)
            });
            (holder, ledger.make_room(now))
        };
        for connection in evicted {
            if let Some(connection) = connection.upgrade() {
                connection.end(Close::AnswerMemory);
            }
        }
        Charge {
            budget: Arc::clone(self),
            connection: number,
            holder,
            bytes,
        }
    }
}

impl Charge {
    /// Records that the kernel has taken a part of the reply.
    pub(super) fn moved(&self) {
        let mut ledger = self.budget.ledger.lock();
        ledger.moved((self.connection, self.holder), Instant::now());
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let mut ledger = self.budget.ledger.lock();
        ledger.release((self.connection, self.holder), self.bytes, Instant::now());
    }
}

/// Ledger of an account, ordered so that the next connection to evict is found without a scan.
struct Ledger<C> {
    /// In bytes.
    limit: usize,
    bytes: usize,
    next_holder: u64,
    /// By number of the connection.
    holders: HashMap<u64, Holder<C>>,
    /// Holders that are not known to be stalled, by their last movement.
    by_movement: BTreeSet<(Instant, u64)>,
    ranking: Ranking,
}

/// A connection with charged replies.
struct Holder<C> {
    /// A connection that is evicted and charged again is another holder.
    id: u64,
    connection: C,
    network: IpAddr,
    bytes: usize,
    replies: usize,
    moved: Instant,
    is_stalled: bool,
}

impl<C> Ledger<C> {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            bytes: 0,
            next_holder: 0,
            holders: HashMap::new(),
            by_movement: BTreeSet::new(),
            ranking: Ranking::default(),
        }
    }

    /// Adds a reply, and gives the holder that it belongs to.
    fn charge(
        &mut self,
        (number, network): (u64, IpAddr),
        bytes: usize,
        now: Instant,
        connection: impl FnOnce() -> C,
    ) -> u64 {
        self.bytes += bytes;
        let next_holder = &mut self.next_holder;
        let by_movement = &mut self.by_movement;
        let holder = self.holders.entry(number).or_insert_with(|| {
            *next_holder += 1;
            by_movement.insert((now, number));
            Holder {
                id: *next_holder,
                connection: connection(),
                network,
                bytes: 0,
                replies: 0,
                moved: now,
                is_stalled: false,
            }
        });
        let before = holder.rank();
        holder.bytes += bytes;
        holder.replies += 1;
        self.ranking
            .change((holder.network, number), (before, holder.rank()));
        holder.id
    }

    /// Records that the reader of a holder took something.
    fn moved(&mut self, (number, id): (u64, u64), now: Instant) {
        let holder = self.holders.get_mut(&number);
        let Some(holder) = holder.filter(|holder| holder.id == id) else {
            return;
        };
        if holder.is_stalled {
            let before = holder.rank();
            holder.is_stalled = false;
            self.ranking
                .change((holder.network, number), (before, holder.rank()));
        } else {
            self.by_movement.remove(&(holder.moved, number));
        }
        holder.moved = now;
        self.by_movement.insert((now, number));
    }

    /// Frees a reply's share, unless its holder was evicted. Its reader took the rest of it, which
    /// may be all of it.
    fn release(&mut self, (number, id): (u64, u64), bytes: usize, now: Instant) {
        let holder = self.holders.get_mut(&number);
        let Some(holder) = holder.filter(|holder| holder.id == id) else {
            return;
        };
        if holder.replies <= 1 {
            self.remove(number);
            return;
        }
        let before = holder.rank();
        holder.bytes = holder.bytes.saturating_sub(bytes);
        holder.replies -= 1;
        self.bytes -= before.bytes - holder.bytes;
        self.ranking
            .change((holder.network, number), (before, holder.rank()));
        self.moved((number, id), now);
    }

    /// Evicts holders until the rest fits.
    fn make_room(&mut self, now: Instant) -> Vec<C> {
        let mut evicted = Vec::new();
        if self.bytes > self.limit {
            self.note_stalled(now);
        }
        while self.bytes > self.limit && !self.is_lone_reply() {
            let largest = self.ranking.largest();
            let Some(holder) = largest.and_then(|number| self.remove(number)) else {
                break;
            };
            evicted.push(holder.connection);
        }
        evicted
    }

    fn is_lone_reply(&self) -> bool {
        let mut holders = self.holders.values();
        self.holders.len() == 1 && holders.all(|holder| holder.replies == 1)
    }

    fn note_stalled(&mut self, now: Instant) {
        while let Some((moved, number)) = self.by_movement.first().copied() {
            if now.saturating_duration_since(moved) < STALL {
                return;
            }
            self.by_movement.pop_first();
            if let Some(holder) = self.holders.get_mut(&number) {
                let before = holder.rank();
                holder.is_stalled = true;
                self.ranking
                    .change((holder.network, number), (before, holder.rank()));
            }
        }
    }

    fn remove(&mut self, number: u64) -> Option<Holder<C>> {
        let holder = self.holders.remove(&number)?;
        if !holder.is_stalled {
            self.by_movement.remove(&(holder.moved, number));
        }
        let none = Rank {
            bytes: 0,
            ..holder.rank()
        };
        self.ranking
            .change((holder.network, number), (holder.rank(), none));
        self.bytes -= holder.bytes;
        Some(holder)
    }
}

/// Place of a connection among those of its network: the stalled ones come last.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    is_stalled: bool,
    bytes: usize,
}

impl<C> Holder<C> {
    fn rank(&self) -> Rank {
        Rank {
            is_stalled: self.is_stalled,
            bytes: self.bytes,
        }
    }
}

/// Networks by their bytes, and in each the connections.
#[derive(Default)]
struct Ranking {
    networks: HashMap<IpAddr, Network>,
    by_bytes: BTreeSet<(usize, IpAddr)>,
}

#[derive(Default)]
struct Network {
    bytes: usize,
    /// Of equal ones the oldest comes last.
    connections: BTreeSet<(Rank, Reverse<u64>)>,
}

impl Ranking {
    /// Records that a connection changed from `before` to `after`; at zero bytes it is removed.
    fn change(&mut self, (network, connection): (IpAddr, u64), (before, after): (Rank, Rank)) {
        let entry = self.networks.entry(network).or_default();
        self.by_bytes.remove(&(entry.bytes, network));
        entry.connections.remove(&(before, Reverse(connection)));
        entry.bytes = (entry.bytes - before.bytes) + after.bytes;
        if after.bytes > 0 {
            entry.connections.insert((after, Reverse(connection)));
        }
        if entry.bytes == 0 {
            self.networks.remove(&network);
        } else {
            self.by_bytes.insert((entry.bytes, network));
        }
    }

    /// The connection that holds most in the network that holds most, stalled ones first.
    fn largest(&self) -> Option<u64> {
        let (_, network) = self.by_bytes.last()?;
        let (_, Reverse(connection)) = self.networks.get(network)?.connections.last()?;
        Some(*connection)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn network(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    /// Charges a reply; gives its holder and the evicted connections.
    fn charge(
        ledger: &mut Ledger<u64>,
        (number, last): (u64, u8),
        bytes: usize,
        now: Instant,
    ) -> ((u64, u64), Vec<u64>) {
        let holder = ledger.charge((number, network(last)), bytes, now, || number);
        ((number, holder), ledger.make_room(now))
    }

    #[test]
    fn full_budget_closes_connection_of_largest_network() {
        let now = Instant::now();
        let mut ledger = Ledger::new(100);
        // The oldest reply is that of a network with little.
        charge(&mut ledger, (1, 1), 30, now);
        charge(&mut ledger, (2, 2), 20, now);
        charge(&mut ledger, (3, 2), 25, now);
        charge(&mut ledger, (4, 2), 25, now);
        // Of two that hold the same the older one.
        assert_eq!(charge(&mut ledger, (5, 3), 20, now).1, [3]);
        assert_eq!(charge(&mut ledger, (6, 2), 90, now).1, [6], "its own");
        assert_eq!(ledger.bytes, 95);
    }

    #[test]
    fn full_budget_closes_stalled_reader_of_largest_network_first() {
        let start = Instant::now();
        let mut ledger = Ledger::new(100);
        let (moving, _) = charge(&mut ledger, (1, 1), 40, start);
        charge(&mut ledger, (2, 1), 30, start);
        charge(&mut ledger, (3, 3), 20, start);
        let later = start + STALL;
        ledger.moved(moving, later);
        assert_eq!(charge(&mut ledger, (4, 4), 15, later).1, [2]);
        assert_eq!(charge(&mut ledger, (5, 4), 30, later).1, [5], "its own");
        // A stalled reader that takes something moves again.
        let (again, _) = charge(&mut ledger, (6, 1), 5, later);
        let latest = later + STALL;
        ledger.note_stalled(latest);
        ledger.moved(again, latest);
        ledger.moved(moving, latest);
        assert_eq!(charge(&mut ledger, (7, 7), 30, latest).1, [1]);
    }

    /// A slow reader moves in steps of a kernel buffer, further apart than `STALL`.
    #[test]
    fn full_budget_closes_no_stalled_reader_of_network_with_less() {
        let start = Instant::now();
        let mut ledger = Ledger::new(100);
        charge(&mut ledger, (1, 1), 30, start);
        let hoarders = [2, 3, 4].map(|number| charge(&mut ledger, (number, 2), 20, start).0);
        let later = start + STALL;
        for hoarder in hoarders {
            ledger.moved(hoarder, later);
        }
        assert_eq!(charge(&mut ledger, (5, 2), 20, later).1, [2]);
    }

    #[test]
    fn reply_written_whole_counts_as_movement() {
        let start = Instant::now();
        let mut ledger = Ledger::new(100);
        let (reader, _) = charge(&mut ledger, (1, 1), 50, start);
        charge(&mut ledger, (1, 1), 10, start);
        charge(&mut ledger, (2, 1), 30, start);
        let later = start + STALL;
        ledger.release(reader, 10, later);
        assert_eq!(charge(&mut ledger, (3, 3), 30, later).1, [2]);
    }

    #[test]
    fn lone_reply_larger_than_budget_fits() {
        let now = Instant::now();
        let mut ledger = Ledger::new(100);
        let (large, evicted) = charge(&mut ledger, (1, 1), 500, now);
        assert!(evicted.is_empty());
        assert_eq!(charge(&mut ledger, (1, 1), 1, now).1, [1], "no second one");
        ledger.release(large, 500, now);
        assert_eq!((ledger.bytes, ledger.holders.len()), (0, 0));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Charge(u64, usize),
        Move(usize),
        Release(usize),
        Wait(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..12_u64, 1..40_usize).prop_map(|(number, bytes)| Step::Charge(number, bytes)),
            2 => any::<usize>().prop_map(Step::Move),
            2 => any::<usize>().prop_map(Step::Release),
            1 => (0..4_u64).prop_map(Step::Wait),
        ];
        proptest::collection::vec(step, 0..200)
    }

    proptest! {
        #[test]
        fn ledger_agrees_with_its_charges(steps in steps()) {
            let mut ledger = Ledger::new(150);
            let mut charges: Vec<((u64, u64), usize)> = Vec::new();
            let mut now = Instant::now();
            for step in steps {
                match step {
                    Step::Charge(number, bytes) => {
                        let at = (number, (number % 4) as u8);
                        let (holder, _) = charge(&mut ledger, at, bytes, now);
                        charges.push((holder, bytes));
                    }
                    Step::Move(index) if !charges.is_empty() => {
                        ledger.moved(charges[index % charges.len()].0, now);
                    }
                    Step::Release(index) if !charges.is_empty() => {
                        let (holder, bytes) = charges.remove(index % charges.len());
                        ledger.release(holder, bytes, now);
                    }
                    Step::Wait(seconds) => now += Duration::from_secs(seconds),
                    _ => {}
                }
                // A charge of an evicted holder holds nothing.
                let is_held = |(number, id): (u64, u64)| {
                    ledger.holders.get(&number).is_some_and(|holder| holder.id == id)
                };
                let held = charges.iter().filter(|(holder, _)| is_held(*holder));
                prop_assert_eq!(ledger.bytes, held.map(|(_, bytes)| bytes).sum::<usize>());
                prop_assert!(ledger.bytes <= 150);
                let ranked = ledger.ranking.by_bytes.iter().map(|(bytes, _)| bytes);
                prop_assert_eq!(ranked.sum::<usize>(), ledger.bytes);
                let networks = ledger.ranking.networks.values();
                let ranked = networks.map(|network| network.connections.len());
                prop_assert_eq!(ranked.sum::<usize>(), ledger.holders.len());
                let moving = ledger.holders.values().filter(|holder| !holder.is_stalled);
                prop_assert_eq!(moving.count(), ledger.by_movement.len());
            }
            for (holder, bytes) in charges {
                ledger.release(holder, bytes, now);
            }
            prop_assert!(ledger.holders.is_empty() && ledger.by_movement.is_empty());
            let ranking = &ledger.ranking;
            prop_assert!(ranking.networks.is_empty() && ranking.by_bytes.is_empty());
        }
    }
}
