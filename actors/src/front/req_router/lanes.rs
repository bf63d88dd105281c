//! Queue of one class of requests: lanes by peer standing, each lane fair by address.
//!
//! A lane with better peers is served more often, and none is left out: junk waits behind junk,
//! and a stranger is served beside a thousand minions. In a full queue, a request of a worse lane
//! is shed; within a lane, an address above an even share gives way to one below it; and no
//! address of a better lane takes the last slots of a lane.
//!
//! Not here: request contents. A minion that reconnects for each request, as stock's do, cannot be
//! distinguished from others at its address, until one of them has been refused.

use std::net::IpAddr;
use std::sync::Arc;

use saltern_requests::Class;
use saltern_wire::port::{Incoming, Standing, network};

use crate::shared::fair_queue::FairQueue;
use crate::shared::window::{Ticket, Windows};

/// Requests of this many bytes or more wait with those of suspects, unless their peers are
/// authenticated: decrypting takes time in proportion to their length. Returns of minions behind
/// known networks may be large.
const LARGE_OF_UNKNOWN: usize = 64 << 10;
const LARGE_OF_KNOWN: usize = 1 << 20;

/// The lane of a request.
pub(super) fn standing_of(request: &Incoming) -> Standing {
    let length = request.payload.len();
    match request.reply.standing() {
        Standing::Known if length >= LARGE_OF_KNOWN => Standing::Suspect,
        Standing::Unknown if length >= LARGE_OF_UNKNOWN => Standing::Suspect,
        standing => standing,
    }
}

/// Requests of a lane per turn.
fn turn_of(standing: Standing) -> usize {
    match standing {
        Standing::Proved => 8,
        Standing::Known => 4,
        Standing::Unknown => 2,
        Standing::Suspect => 1,
    }
}

/// One slot in this many is reserved in each lane against any single address of a better lane.
const FLOOR: usize = 8;

/// The lanes of one class.
pub(super) struct Lanes {
    class: Class,
    /// In the order of [`Standing::ALL`].
    lanes: [FairQueue<IpAddr, Incoming>; Standing::ALL.len()],
    places: usize,
    len: usize,
    /// The lane whose turn it is, and the rest of its turn.
    turn: (usize, usize),
}

impl Lanes {
    /// Lanes with `places` slots in total.
    pub(super) fn new(class: Class, places: usize) -> Self {
        Self {
            class,
            lanes: Default::default(),
            places: places.max(1),
            len: 0,
            turn: (0, 0),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds a request; gives back the one that is shed for it: it, or another one.
    pub(super) fn push(&mut self, request: Incoming) -> Option<Incoming> {
        let standing = standing_of(&request) as usize;
        let address = network(request.peer.address.ip());
        let given_up = if self.len < self.places {
            None
        } else {
            match self.give_way(standing, address) {
                Some(other) => Some(other),
                None => return Some(request),
            }
        };
        if let Some(lane) = self.lanes.get_mut(standing) {
            lane.push(address, request);
            self.len += 1;
        }
        given_up
    }

    /// The request that is shed for one of this lane and address, if one is.
    fn give_way(&mut self, standing: usize, address: IpAddr) -> Option<Incoming> {
        let floor = self.places / FLOOR;
        let (better, rest) = self.lanes.split_at_mut_checked(standing)?;
        let (own, worse) = rest.split_first_mut()?;
        let mut other = worse.iter_mut().rev().find_map(FairQueue::pop_last);
        if other.is_none() {
            let share = own.share_of(&address, own.len());
            let has_less = own.len_of(&address) < share;
            other = has_less.then(|| own.pop_over(share)).flatten();
        }
        if other.is_none() && own.len() < floor {
            other = better
                .iter_mut()
                .rev()
                .find_map(|lane| lane.pop_over(floor));
        }
        self.len -= usize::from(other.is_some());
        other
    }

    /// The next request, with a worker's slot; only from lanes for which there is a slot.
    pub(super) fn pop(&mut self, windows: &Arc<Windows>) -> Option<(Incoming, Ticket)> {
        for _ in 0..=self.lanes.len() {
            let (index, left) = self.turn;
            if left > 0
                && let Some(next) = self.pop_from(index, windows)
            {
                self.turn.1 -= 1;
                return Some(next);
            }
            let next = (index + 1) % self.lanes.len();
            self.turn = (next, Standing::ALL.get(next).map_or(0, |it| turn_of(*it)));
        }
        None
    }

    fn pop_from(&mut self, index: usize, windows: &Arc<Windows>) -> Option<(Incoming, Ticket)> {
        let lane = self.lanes.get_mut(index)?;
        if lane.len() == 0 {
            return None;
        }
        let ticket = windows.take(self.class, *Standing::ALL.get(index)?)?;
        // Requests of disconnected peers are skipped.
        while let Some(request) = lane.pop() {
            self.len -= 1;
            if !request.reply.is_gone() {
                return Some((request, ticket));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
