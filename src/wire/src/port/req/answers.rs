//! Memory budget of replies that wait for their readers.
//!
//! A reply is charged from the moment it is queued until the kernel has taken all of it. When the
//! budget is used up, a connection is evicted: of the network with the largest total, the
//! connection with the largest. While any connection is stalled, only stalled ones are candidates:
//! a peer that reads loses its reply to no peer that does not.
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
        ledger.release((self.connection, self.holder), self.bytes);
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
    moving: Ranking,
    stalled: Ranking,
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
            moving: Ranking::default(),
            stalled: Ranking::default(),
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
        let ranking = match holder.is_stalled {
            true => &mut self.stalled,
            false => &mut self.moving,
        };
        let before = holder.bytes;
        holder.bytes += bytes;
        holder.replies += 1;
        ranking.change(holder.network, number, (before, holder.bytes));
        holder.id
    }

    /// Records that the reader of a holder took something.
    fn moved(&mut self, (number, id): (u64, u64), now: Instant) {
        let holder = self.holders.get_mut(&number);
        let Some(holder) = holder.filter(|holder| holder.id == id) else {
            return;
        };
        if std::mem::take(&mut holder.is_stalled) {
            let (network, bytes) = (holder.network, holder.bytes);
            self.stalled.change(network, number, (bytes, 0));
            self.moving.change(network, number, (0, bytes));
        } else {
            self.by_movement.remove(&(holder.moved, number));
        }
        holder.moved = now;
        self.by_movement.insert((now, number));
    }

    /// Frees a reply's share, unless its holder was evicted.
    fn release(&mut self, (number, id): (u64, u64), bytes: usize) {
        let holder = self.holders.get_mut(&number);
        let Some(holder) = holder.filter(|holder| holder.id == id) else {
            return;
        };
        if holder.replies <= 1 {
            self.remove(number);
            return;
        }
        let ranking = match holder.is_stalled {
            true => &mut self.stalled,
            false => &mut self.moving,
        };
        let before = holder.bytes;
        holder.bytes = holder.bytes.saturating_sub(bytes);
        holder.replies -= 1;
        self.bytes -= before - holder.bytes;
        ranking.change(holder.network, number, (before, holder.bytes));
    }

    /// Evicts holders until the rest fits.
    fn make_room(&mut self, now: Instant) -> Vec<C> {
        let mut evicted = Vec::new();
        if self.bytes > self.limit {
            self.note_stalled(now);
        }
        while self.bytes > self.limit && !self.is_lone_reply() {
            let largest = self.stalled.largest().or_else(|| self.moving.largest());
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
                holder.is_stalled = true;
                let (network, bytes) = (holder.network, holder.bytes);
                self.moving.change(network, number, (bytes, 0));
                self.stalled.change(network, number, (0, bytes));
            }
        }
    }

    fn remove(&mut self, number: u64) -> Option<Holder<C>> {
        let holder = self.holders.remove(&number)?;
        let ranking = match holder.is_stalled {
            true => &mut self.stalled,
            false => {
                self.by_movement.remove(&(holder.moved, number));
                &mut self.moving
            }
        };
        ranking.change(holder.network, number, (holder.bytes, 0));
        self.bytes -= holder.bytes;
        Some(holder)
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
    connections: BTreeSet<(usize, Reverse<u64>)>,
}

impl Ranking {
    /// Records that a connection changed from `before` to `after` bytes; at zero it is removed.
    fn change(&mut self, network: IpAddr, connection: u64, (before, after): (usize, usize)) {
        let entry = self.networks.entry(network).or_default();
        self.by_bytes.remove(&(entry.bytes, network));
        entry.connections.remove(&(before, Reverse(connection)));
        entry.bytes = (entry.bytes - before) + after;
        if after > 0 {
            entry.connections.insert((after, Reverse(connection)));
        }
        if entry.bytes == 0 {
            self.networks.remove(&network);
        } else {
            self.by_bytes.insert((entry.bytes, network));
        }
    }

    /// The connection that holds most in the network that holds most.
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
    fn full_budget_closes_stalled_reader_before_larger_one_that_moves() {
        let start = Instant::now();
        let mut ledger = Ledger::new(100);
        let (moving, _) = charge(&mut ledger, (1, 1), 60, start);
        charge(&mut ledger, (2, 2), 10, start);
        charge(&mut ledger, (3, 3), 20, start);
        let later = start + STALL;
        ledger.moved(moving, later);
        assert_eq!(charge(&mut ledger, (4, 4), 15, later).1, [3]);
        assert_eq!(charge(&mut ledger, (5, 4), 30, later).1, [2, 1]);
        // A stalled reader that takes something moves again.
        let (stalled, _) = charge(&mut ledger, (6, 6), 50, later);
        let latest = later + STALL;
        assert_eq!(charge(&mut ledger, (7, 7), 10, latest).1, [6]);
        ledger.moved(stalled, latest);
        assert!(!ledger.holders.contains_key(&6), "closed for good");
        let (again, _) = charge(&mut ledger, (6, 6), 40, latest);
        let last = latest + STALL;
        ledger.note_stalled(last);
        ledger.moved(again, last);
        assert_eq!(charge(&mut ledger, (8, 8), 10, last).1, [5]);
    }

    #[test]
    fn lone_reply_larger_than_budget_fits() {
        let now = Instant::now();
        let mut ledger = Ledger::new(100);
        let (large, evicted) = charge(&mut ledger, (1, 1), 500, now);
        assert!(evicted.is_empty());
        assert_eq!(charge(&mut ledger, (1, 1), 1, now).1, [1], "no second one");
        ledger.release(large, 500);
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
                        ledger.release(holder, bytes);
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
                let ranked = [&ledger.moving, &ledger.stalled].map(|ranking| {
                    ranking.by_bytes.iter().map(|(bytes, _)| bytes).sum::<usize>()
                });
                prop_assert_eq!(ranked.iter().sum::<usize>(), ledger.bytes);
                let moving = ledger.holders.values().filter(|holder| !holder.is_stalled);
                prop_assert_eq!(moving.count(), ledger.by_movement.len());
            }
            for (holder, bytes) in charges {
                ledger.release(holder, bytes);
            }
            prop_assert!(ledger.holders.is_empty() && ledger.by_movement.is_empty());
            prop_assert!(ledger.moving.networks.is_empty() && ledger.stalled.by_bytes.is_empty());
        }
    }
}
