//! Bounded queue of authentications that wait for a worker: two lanes, each fair between the
//! addresses they come from.
//!
//! An authentication is the one request that costs private RSA operations. Anybody can send it, and
//! after a rotation of the shared key all minions send theirs at once. So each address (of IPv6 each
//! network of 64 bits) has its turn, however many wait behind one of them. A full queue is shared
//! evenly: an address above its share gives way to one below it.
//!
//! Strangers may have many addresses. So requests from known networks, in which a minion has lately
//! authenticated, have a lane of their own: it is served more often, and in a full queue the others
//! give way to it, but for a few places.
//!
//! A request that is shed gets no ordinary error: a stock minion would retry at once. As many as
//! the workers have time for get the "retry later" answer (see `retry_later` in `requests`), at
//! most every second turn. The connections of the others are closed, which stock minions take for
//! silence until `auth_timeout`. Requests whose sender has disconnected are skipped: serving them
//! would prolong an overload.
//!
//! Not here: authentication itself. Only addresses are looked at.

use std::collections::VecDeque;
use std::net::IpAddr;

use saltern_base::metrics::{IntCounter, Registry, counter_vec};
use saltern_wire::port::{Incoming, Standing, network};

use crate::messages::Treatment;
use crate::shared::fair_queue::FairQueue;

/// Requests that may wait for the "retry later" answer: a fraction of a second of a worker's time.
const MAX_TURNED_AWAY: usize = 256;

/// Metrics of the queue.
#[derive(Clone)]
pub(crate) struct AuthMetrics {
    retry_later: IntCounter,
    hung_up: IntCounter,
    gone: IntCounter,
}

impl AuthMetrics {
    pub(crate) fn new(registry: &Registry) -> Self {
        let turned_away = counter_vec(
            registry,
            "saltern_authentications_turned_away_total",
            "Authentications that were shed or whose sender had gone, by what became of them.",
            &["reason"],
        );
        let of = |reason| turned_away.with_label_values(&[reason]);
        Self {
            retry_later: of("retry_later"),
            hung_up: of("hung_up"),
            gone: of("gone"),
        }
    }
}

/// Requests of known networks for each one of another.
const KNOWN_PER_STRANGER: usize = 4;

/// One slot in this many is reserved for strangers.
const FLOOR: usize = 8;

/// Bounded queue of authentications, served in turns by address.
pub(crate) struct AuthQueue {
    places: usize,
    known: FairQueue<IpAddr, Incoming>,
    strangers: FairQueue<IpAddr, Incoming>,
    /// Requests of known networks since the last one of another.
    known_in_turn: usize,
    /// Requests that were shed and wait for the "retry later" answer.
    turned_away: VecDeque<Incoming>,
    /// Whether a shed request is next when both kinds wait.
    turns_away_next: bool,
    /// Requests since disconnected senders were last looked for.
    since_look: usize,
    metrics: AuthMetrics,
}

impl AuthQueue {
    /// Queue of `places` requests.
    pub(crate) fn new(places: usize, metrics: AuthMetrics) -> Self {
        Self {
            places: places.max(1),
            known: FairQueue::default(),
            strangers: FairQueue::default(),
            known_in_turn: 0,
            turned_away: VecDeque::new(),
            turns_away_next: false,
            since_look: 0,
            metrics,
        }
    }

    /// Length of the queue, shed requests included.
    pub(crate) fn len(&self) -> usize {
        self.waiting() + self.turned_away.len()
    }

    fn waiting(&self) -> usize {
        self.known.len() + self.strangers.len()
    }

    /// Adds a request; it, or another one, may be shed for it.
    pub(crate) fn push(&mut self, request: Incoming) {
        self.since_look = self.since_look.saturating_add(1);
        if self.waiting() >= self.places && self.since_look > self.places / 4 {
            self.forget_gone();
        }
        // The address that takes turns: of IPv6 its network.
        let address = network(request.peer.address.ip());
        let is_known = request.reply.standing() <= Standing::Known;
        if self.waiting() >= self.places {
            match self.give_way(address, is_known) {
                Some(other) => self.turn_away(other),
                None => return self.turn_away(request),
            }
        }
        self.lane(is_known).push(address, request);
    }

    fn lane(&mut self, is_known: bool) -> &mut FairQueue<IpAddr, Incoming> {
        match is_known {
            true => &mut self.known,
            false => &mut self.strangers,
        }
    }

    /// The request that is shed for one of this address, if one is.
    fn give_way(&mut self, address: IpAddr, is_known: bool) -> Option<Incoming> {
        let floor = self.places / FLOOR;
        if is_known && self.strangers.len() > floor {
            let strangers = &mut self.strangers;
            return strangers.pop_over(1).or_else(|| strangers.pop_last());
        }
        let lane = self.lane(is_known);
        let share = lane.share_of(&address, lane.len());
        let has_less = lane.len_of(&address) < share;
        let other = has_less.then(|| lane.pop_over(share)).flatten();
        if other.is_none() && !is_known && self.strangers.len() < floor {
            return self.known.pop_over(1).or_else(|| self.known.pop_last());
        }
        other
    }

    /// The next request, and how to treat it.
    pub(crate) fn pop(&mut self) -> Option<(Incoming, Treatment)> {
        if std::mem::take(&mut self.turns_away_next)
            && let Some(request) = self.next_turned_away()
        {
            return Some((request, Treatment::RetryLater));
        }
        match self.next_waiting() {
            Some(request) => {
                self.turns_away_next = true;
                Some((request, Treatment::Handle))
            }
            None => {
                let request = self.next_turned_away()?;
                Some((request, Treatment::RetryLater))
            }
        }
    }

    fn next_waiting(&mut self) -> Option<Incoming> {
        loop {
            let is_turn_of_strangers = self.known_in_turn >= KNOWN_PER_STRANGER;
            let is_known =
                self.known.len() > 0 && !(is_turn_of_strangers && self.strangers.len() > 0);
            let request = self.lane(is_known).pop()?;
            if !request.reply.is_gone() {
                self.known_in_turn = if is_known { self.known_in_turn + 1 } else { 0 };
                return Some(request);
            }
            self.metrics.gone.inc();
        }
    }

    fn next_turned_away(&mut self) -> Option<Incoming> {
        loop {
            let request = self.turned_away.pop_front()?;
            if !request.reply.is_gone() {
                self.metrics.retry_later.inc();
                return Some(request);
            }
            self.metrics.gone.inc();
        }
    }

    fn turn_away(&mut self, request: Incoming) {
        if self.turned_away.len() < MAX_TURNED_AWAY {
            self.turned_away.push_back(request);
        } else {
            self.metrics.hung_up.inc();
            request.reply.hang_up();
        }
    }

    fn forget_gone(&mut self) {
        self.since_look = 0;
        let lanes = [&mut self.known, &mut self.strangers];
        let gone = lanes.map(|lane| lane.retain(|request| !request.reply.is_gone()));
        let gone: usize = gone.iter().sum();
        self.metrics.gone.inc_by(gone as u64);
    }
}

#[cfg(test)]
mod tests;
