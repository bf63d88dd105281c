//! Requests of one class that wait for a worker: in lanes by what is known of their peers, in each
//! lane by turns of the addresses they come from.
//!
//! A lane with better peers is served more often, and none is left out: junk waits behind junk, and
//! a stranger is served beside a thousand minions. When all places are taken, a request of a worse
//! lane gives way; within a lane, an address with more than an even share gives way to one with
//! less; and no address of a better lane takes the last places of a lane.
//!
//! Not here: what a request says. A minion that connects anew for each request, as stock's do, is
//! told from others at its address by nothing, until one of them has been refused.

use std::net::IpAddr;
use std::sync::Arc;

use saltern_requests::Class;
use saltern_wire::port::{Incoming, Standing, network};

use crate::fair_queue::FairQueue;
use crate::window::{Ticket, Windows};

/// Requests from so many bytes on wait with those of suspects, unless their peers have proved who
/// they are: what they say is known only after a time in proportion to their length. Returns of
/// minions behind known networks may be large.
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

/// How many requests of a lane are handed over before the next lane has its turn.
fn turn_of(standing: Standing) -> usize {
    match standing {
        Standing::Proved => 8,
        Standing::Known => 4,
        Standing::Unknown => 2,
        Standing::Suspect => 1,
    }
}

/// One place of so many is not kept from a lane by one address of a better lane.
const FLOOR: usize = 8;

/// The lanes of one class.
pub(super) struct Lanes {
    class: Class,
    /// In the order of [`Standing::ALL`].
    lanes: [FairQueue<IpAddr, Incoming>; Standing::ALL.len()],
    places: usize,
    len: usize,
    /// The lane whose turn it is, and how many more it may hand over.
    turn: (usize, usize),
}

impl Lanes {
    /// Lanes with so many places together.
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

    /// Takes one more, and gives back the one for which there is no place: it, or another one.
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

    /// The request that gives way to one of this lane and address, if one does.
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

    /// The next request, with a place for it; of the lanes for which there is a place.
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
        // Whoever has gone away is passed over.
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
