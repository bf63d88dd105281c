//! Authentications that wait for a worker: bounded, and by turns of the addresses they come from.
//!
//! An authentication is the one request that costs private RSA operations, anybody can send it, and
//! after a rotation of the shared key all minions send theirs at once. So each address (of IPv6 each
//! network of 64 bits) has its turn, however many wait behind one of them, and when all places are
//! taken they are shared evenly: who has more than its share gives way to who has less.
//!
//! Who finds no place is not simply answered: what stock minions take for a failure makes them ask
//! again at once. As many as the workers have time for are told to come again (see `come_again` in
//! `requests`), each second turn at most; the connections of the others are closed, which stock
//! minions take for silence, until their own time is up (`auth_timeout`). Who has gone away
//! meanwhile is passed over: serving those who do not listen any more is how a storm feeds itself.
//!
//! Not here: who is let in. Nothing is looked at but addresses.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};

use saltern_base::metrics::{IntCounter, Registry, counter_vec};
use saltern_wire::port::Incoming;

use crate::messages::Treatment;

/// How many may wait to be told to come again: what a worker does in a fraction of a second.
const TOLD: usize = 256;

/// What the queue counts.
#[derive(Clone)]
pub(crate) struct AuthMetrics {
    told_to_come_again: IntCounter,
    hung_up: IntCounter,
    gone: IntCounter,
}

impl AuthMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let turned_away = counter_vec(
            registry,
            "saltern_authentications_turned_away_total",
            "Authentications that found no room or waited in vain, by what became of them.",
            &["reason"],
        );
        let of = |reason| turned_away.with_label_values(&[reason]);
        Self {
            told_to_come_again: of("told_to_come_again"),
            hung_up: of("hung_up"),
            gone: of("gone"),
        }
    }
}

/// See the module.
pub(crate) struct AuthQueue {
    places: usize,
    taken: usize,
    waiting: HashMap<IpAddr, VecDeque<Incoming>>,
    /// Each address of `waiting` once, the one whose turn it is in front.
    turns: VecDeque<IpAddr>,
    /// Those who found no place.
    turned_away: VecDeque<Incoming>,
    /// Whose turn it is when both wait.
    turns_away_next: bool,
    /// The address that gave way last; as a rule it has still more than its share.
    largest: Option<IpAddr>,
    /// Requests that came since those who have gone away were last looked for.
    since_look: usize,
    metrics: AuthMetrics,
}

impl AuthQueue {
    /// A queue of so many places.
    pub(crate) fn new(places: usize, metrics: AuthMetrics) -> Self {
        Self {
            places: places.max(1),
            taken: 0,
            waiting: HashMap::new(),
            turns: VecDeque::new(),
            turned_away: VecDeque::new(),
            turns_away_next: false,
            largest: None,
            since_look: 0,
            metrics,
        }
    }

    /// How many wait, those to be turned away included.
    pub(crate) fn len(&self) -> usize {
        self.taken + self.turned_away.len()
    }

    /// Takes one more; it, or another one, may be turned away for it.
    pub(crate) fn push(&mut self, request: Incoming) {
        self.since_look = self.since_look.saturating_add(1);
        if self.taken >= self.places && self.since_look > self.places / 4 {
            self.forget_gone();
        }
        if self.taken < self.places {
            self.enter(request);
            return;
        }
        let address = sender(&request);
        let others = self.waiting.len() + usize::from(!self.waiting.contains_key(&address));
        let share = (self.places / others).max(1);
        let has = self.waiting.get(&address).map_or(0, VecDeque::len);
        match (has < share).then(|| self.give_way(share)).flatten() {
            Some(other) => {
                self.turn_away(other);
                self.enter(request);
            }
            None => self.turn_away(request),
        }
    }

    /// The next one, and what is to be done with it.
    pub(crate) fn pop(&mut self) -> Option<(Incoming, Treatment)> {
        if std::mem::take(&mut self.turns_away_next)
            && let Some(request) = self.next_turned_away()
        {
            return Some((request, Treatment::TellToComeAgain));
        }
        match self.next_waiting() {
            Some(request) => {
                self.turns_away_next = true;
                Some((request, Treatment::Handle))
            }
            None => {
                let request = self.next_turned_away()?;
                Some((request, Treatment::TellToComeAgain))
            }
        }
    }

    fn enter(&mut self, request: Incoming) {
        self.taken += 1;
        match self.waiting.entry(sender(&request)) {
            Entry::Occupied(mut entry) => entry.get_mut().push_back(request),
            Entry::Vacant(entry) => {
                self.turns.push_back(*entry.key());
                entry.insert(VecDeque::from([request]));
            }
        }
    }

    fn next_waiting(&mut self) -> Option<Incoming> {
        loop {
            let address = self.turns.pop_front()?;
            let Entry::Occupied(mut entry) = self.waiting.entry(address) else {
                continue;
            };
            let request = entry.get_mut().pop_front();
            if entry.get().is_empty() {
                entry.remove();
            } else {
                self.turns.push_back(address);
            }
            let Some(request) = request else { continue };
            self.taken -= 1;
            if !request.reply.is_gone() {
                return Some(request);
            }
            self.metrics.gone.inc();
        }
    }

    fn next_turned_away(&mut self) -> Option<Incoming> {
        loop {
            let request = self.turned_away.pop_front()?;
            if !request.reply.is_gone() {
                self.metrics.told_to_come_again.inc();
                return Some(request);
            }
            self.metrics.gone.inc();
        }
    }

    fn turn_away(&mut self, request: Incoming) {
        if self.turned_away.len() < TOLD {
            self.turned_away.push_back(request);
        } else {
            self.metrics.hung_up.inc();
            request.reply.hang_up();
        }
    }

    /// The youngest request of an address that has more than its share, if there is one.
    fn give_way(&mut self, share: usize) -> Option<Incoming> {
        let count = |address: &IpAddr| self.waiting.get(address).map_or(0, VecDeque::len);
        let address = match self.largest.filter(|address| count(address) > share) {
            Some(address) => address,
            None => {
                let sizes = self
                    .waiting
                    .iter()
                    .map(|(address, of)| (of.len(), *address));
                sizes.max().filter(|(size, _)| *size > share)?.1
            }
        };
        self.largest = Some(address);
        // It has at least two, so it keeps its turn.
        let request = self.waiting.get_mut(&address)?.pop_back()?;
        self.taken -= 1;
        Some(request)
    }

    fn forget_gone(&mut self) {
        self.since_look = 0;
        self.waiting.retain(|_, of_address| {
            of_address.retain(|request| !request.reply.is_gone());
            !of_address.is_empty()
        });
        let (waiting, before) = (&self.waiting, self.taken);
        self.turns.retain(|address| waiting.contains_key(address));
        self.taken = waiting.values().map(VecDeque::len).sum();
        self.metrics.gone.inc_by((before - self.taken) as u64);
    }
}

/// Who has a turn of its own. A single machine has a network of 64 bits for itself.
fn sender(request: &Incoming) -> IpAddr {
    const NETWORK: u128 = !0 << 64;
    match request.peer.address.ip() {
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(mapped) => IpAddr::V4(mapped),
            None => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & NETWORK)),
        },
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests;
