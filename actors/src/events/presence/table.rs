//! Table of the publish port's connections: which minion holds which, and how that is inferred.
//!
//! A ZeroMQ subscriber does not authenticate, so a connection is tied to a minion by what the wire
//! gives, the surest first:
//!
//! 1. probe: it answered an unguessable probe that was sent down this connection alone, from
//!    whatever address;
//! 2. statement: it registered with a token of the minion (TCP), or subscribed to the hash of the
//!    minion's id (`zmq_filtering`);
//! 3. counts: an address has at least as many untied connections as minions whose last request
//!    came from it and that are not tied elsewhere: then each has one.
//!
//! With fewer connections, some of those minions are away and the counts do not show which. They
//! are stale until the connections have been probed (1). A connection is probed only after another
//! one left its address or the counts made it matter. One that does not answer belongs to no known
//! minion, and is not counted. A subscription carries no proof, so any client that reaches the
//! port can forge it; the first and the third never make a minion present without a request
//! authenticated by its key.
//!
//! The two ports may see a minion come from different addresses (translated ones, a balancer). So
//! while the counts leave connections over, a minion without one is not away, but merely known,
//! and those connections are probed, too. A connection that did not answer is probed again now and
//! then, as long as a minion is missing.
//!
//! Pure: time is an argument, nothing is sent. Bounded by the accepted keys and by the limit on
//! connections.

mod asking;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use saltern_model::{Absence, Doubt, MinionId, Standing};
use saltern_store::AcceptedIds;
use tokio::time::Instant;

/// Grace period after a PING before the connection counts as silent.
const SILENCE: Duration = Duration::from_secs(2);

/// Length of the topic of a minion: the hex digits of a SHA-1.
const TOPIC: usize = 40;

/// Connections, minions and addresses, with the ties between them.
pub(super) struct Table {
    accepted: Arc<AcceptedIds>,
    /// The accepted minions by the topic that each subscribes to; empty unless minions filter.
    by_topic: HashMap<Box<[u8]>, MinionId>,
    connections: HashMap<u64, Connection>,
    seats: HashMap<MinionId, MinionConnections>,
    places: HashMap<IpAddr, AddressConnections>,
    /// Addresses with connections to probe.
    unclear: BTreeSet<IpAddr>,
    /// Addresses with more connections than minions.
    spare: BTreeSet<IpAddr>,
    /// Addresses with more minions than connections.
    lacking: HashSet<IpAddr>,
    /// Connections that did not answer, and when they were last probed. Each once; ended ones stay
    /// until their turn comes, so the probe rate bounds the queue.
    strangers: VecDeque<(Instant, u64)>,
}

/// A connection of the publish port.
struct Connection {
    address: IpAddr,
    /// Its minion, if known.
    minion: Option<MinionId>,
    /// The first topic that may be a minion's.
    topic: Option<Box<[u8]>>,
    /// The minion whose token it showed.
    claim: Option<MinionId>,
    /// Since when a PING is unanswered.
    silent: Option<Instant>,
    asked: Asked,
}

#[derive(Clone, Copy, PartialEq)]
enum Asked {
    No,
    At(Instant),
    /// Probed without an answer.
    Stranger,
}

/// An accepted minion with a request or a connection.
#[derive(Default)]
struct MinionConnections {
    /// Address of its last request.
    address: Option<IpAddr>,
    /// The connections that are tied to it.
    held: Vec<u64>,
    /// Why it holds no tied connection any more.
    absence: Option<Absence>,
    /// Its last request came to the master before this one.
    is_recalled: bool,
}

/// Untied connections and minions of one address.
#[derive(Default)]
struct AddressConnections {
    connections: HashSet<u64>,
    minions: HashSet<MinionId>,
    /// How the last untied connection ended.
    ended: Option<Absence>,
    /// When connections or minions changed so that the counts may mislead.
    unclear: Option<Instant>,
    /// Since when there are more connections than minions.
    spare: Option<Instant>,
}

/// Counts of each kind, for the metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) known: usize,
    pub(super) connected: usize,
    pub(super) stale: usize,
    pub(super) away: usize,
    /// Connections tied to a minion.
    pub(super) tied: usize,
    /// Connections with nothing known but their address.
    pub(super) untied: usize,
    /// Connections that did not answer a probe.
    pub(super) strangers: usize,
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            accepted: Arc::new(AcceptedIds::new(Vec::new())),
            by_topic: HashMap::new(),
            connections: HashMap::new(),
            seats: HashMap::new(),
            places: HashMap::new(),
            unclear: BTreeSet::new(),
            spare: BTreeSet::new(),
            lacking: HashSet::new(),
            strangers: VecDeque::new(),
        }
    }

    // ---- events

    /// A connection subscribed to `topic`.
    pub(super) fn subscribed(
        &mut self,
        connection: u64,
        address: IpAddr,
        topic: &[u8],
        now: Instant,
    ) {
        let is_new = !self.connections.contains_key(&connection);
        let known = self.connections.entry(connection).or_insert(Connection {
            address,
            minion: None,
            topic: None,
            claim: None,
            silent: None,
            asked: Asked::No,
        });
        if topic.len() == TOPIC && known.topic.is_none() {
            known.topic = Some(topic.into());
        }
        if is_new {
            let place = self.places.entry(address).or_default();
            place.connections.insert(connection);
            self.settle(address, now);
        }
        if let Some(minion) = self.by_topic.get(topic).cloned() {
            self.tie(connection, &minion, now);
        }
    }

    /// The connection showed a token of the minion.
    pub(super) fn registered(&mut self, connection: u64, minion: &MinionId, now: Instant) {
        // The key may have been accepted since the last look at all of them.
        if let Some(known) = self.connections.get_mut(&connection) {
            known.claim = Some(minion.clone());
        }
        if self.accepted.contains(minion.as_str()) {
            self.tie(connection, minion, now);
        }
    }

    /// A PING was sent to the connection.
    pub(super) fn silent(&mut self, connection: u64, now: Instant) {
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.silent = Some(now);
        }
    }

    /// The PING was answered.
    pub(super) fn alive(&mut self, connection: u64) {
        if let Some(connection) = self.connections.get_mut(&connection) {
            connection.silent = None;
        }
    }

    /// A connection ended.
    pub(super) fn left(&mut self, connection: u64, why: Absence, now: Instant) {
        let Some(ended) = self.connections.remove(&connection) else {
            return;
        };
        if let Some(minion) = ended.minion {
            self.release(connection, &minion, Some(why), now);
            return;
        }
        // The end of a connection without a known minion says nothing of the known ones.
        if let Some(place) = self.places.get_mut(&ended.address)
            && place.connections.remove(&connection)
        {
            place.ended = Some(why);
            place.unclear.get_or_insert(now);
            self.settle(ended.address, now);
        }
    }

    /// The minion's last request before the restart came from this address.
    pub(super) fn recall(&mut self, minion: &MinionId, address: IpAddr, now: Instant) {
        if self.accepted.contains(minion.as_str()) && !self.seats.contains_key(minion) {
            self.heard(minion, address, now);
            if let Some(seat) = self.seats.get_mut(minion) {
                seat.is_recalled = true;
            }
        }
    }

    /// A request of the minion came from this address, authenticated by its key.
    pub(super) fn heard(&mut self, minion: &MinionId, address: IpAddr, now: Instant) {
        let seat = self.seats.entry(minion.clone()).or_default();
        seat.is_recalled = false;
        let before = seat.address.replace(address);
        let is_tied = !seat.held.is_empty();
        if before == Some(address) || is_tied {
            return;
        }
        if let Some(before) = before {
            if let Some(place) = self.places.get_mut(&before) {
                place.minions.remove(minion);
            }
            self.settle(before, now);
        }
        let place = self.places.entry(address).or_default();
        place.minions.insert(minion.clone());
        self.settle(address, now);
    }

    /// The minion answered, authenticated by its key, the probe that only this connection got.
    pub(super) fn answered(&mut self, connection: u64, minion: &MinionId, now: Instant) {
        if self.accepted.contains(minion.as_str()) {
            self.tie(connection, minion, now);
        }
    }

    /// Sets the accepted minions, of which `topics` are the new ones. Gives the connections of
    /// minions that are not accepted any more: they are to be closed.
    pub(super) fn accept(
        &mut self,
        accepted: Arc<AcceptedIds>,
        topics: Vec<(Box<[u8]>, MinionId)>,
        now: Instant,
    ) -> Vec<u64> {
        self.accepted = accepted;
        self.by_topic.extend(topics);
        let is_accepted = |minion: &MinionId| self.accepted.contains(minion.as_str());
        self.by_topic.retain(|_, minion| is_accepted(minion));
        let left = self.seats.keys().filter(|minion| !is_accepted(minion));
        let left: Vec<MinionId> = left.cloned().collect();
        let mut ended = Vec::new();
        for minion in left {
            ended.extend(self.forget(&minion, now));
        }
        let claims = self.connections.iter().filter_map(|(number, connection)| {
            let claimed = connection.claim.as_ref();
            let claimed = claimed.filter(|minion| self.accepted.contains(minion.as_str()));
            let minion = claimed.or_else(|| self.by_topic.get(connection.topic.as_ref()?))?;
            connection
                .minion
                .is_none()
                .then(|| (*number, minion.clone()))
        });
        for (connection, minion) in claims.collect::<Vec<_>>() {
            self.tie(connection, &minion, now);
        }
        ended
    }

    // ---- conclusions

    /// Presence state of the minion.
    pub(super) fn standing(&self, minion: &MinionId, now: Instant) -> Standing {
        match self.seats.get(minion) {
            // Only a key gets an entry, perhaps one accepted since the last comparison.
            Some(seat) => self.standing_of(seat, now),
            None if self.accepted.contains(minion.as_str()) => Standing::Known,
            None => Standing::Away(Absence::NoKey),
        }
    }

    fn standing_of(&self, seat: &MinionConnections, now: Instant) -> Standing {
        let silent = |number: &u64| {
            let connection = self.connections.get(number);
            let since = connection.and_then(|connection| connection.silent);
            since.is_some_and(|since| now >= since + SILENCE)
        };
        if !seat.held.is_empty() {
            return match seat.held.iter().all(silent) {
                true => Standing::Stale(Doubt::Silent),
                false => Standing::Connected,
            };
        }
        let place = seat.address.and_then(|address| self.places.get(&address));
        let Some(place) = place.filter(|place| !place.connections.is_empty()) else {
            if seat.is_recalled && place.is_none_or(|place| place.ended.is_none()) {
                return Standing::Known;
            }
            // One of the spare connections from elsewhere may be its own.
            if !self.spare.is_empty() {
                return Standing::Known;
            }
            let ended = seat.absence.or(place.and_then(|place| place.ended));
            return Standing::Away(ended.unwrap_or(Absence::NeverConnected));
        };
        // A minion that lost a tied connection may have another one there, or others may.
        let is_doubtful = seat.absence.is_some() && place.unclear.is_some();
        if is_doubtful || place.connections.len() < place.minions.len() {
            Standing::Stale(Doubt::AddressShared)
        } else if place.connections.iter().all(silent) {
            Standing::Stale(Doubt::Silent)
        } else {
            Standing::Connected
        }
    }

    /// The minions that are, or may be, connected, sorted.
    pub(super) fn present(&self, now: Instant) -> Vec<MinionId> {
        let seats = self.seats.iter();
        let present = seats.filter(|(_, seat)| self.standing_of(seat, now).is_present());
        let mut present: Vec<MinionId> = present.map(|(minion, _)| minion.clone()).collect();
        present.sort_unstable();
        present
    }

    /// Whether more than `limit` minions are present; any authentication may ask.
    pub(super) fn are_more_present_than(&self, limit: usize, now: Instant) -> bool {
        let is_present = |seat: &&MinionConnections| self.standing_of(seat, now).is_present();
        self.seats.len() > limit && self.seats.values().filter(is_present).nth(limit).is_some()
    }

    /// Counts of each kind.
    pub(super) fn counts(&self, now: Instant) -> Counts {
        let mut counts = Counts::default();
        for seat in self.seats.values() {
            match self.standing_of(seat, now) {
                Standing::Known => counts.known += 1,
                Standing::Connected => counts.connected += 1,
                Standing::Stale(_) => counts.stale += 1,
                Standing::Away(_) => counts.away += 1,
            }
        }
        counts.known += self.accepted.len().saturating_sub(self.seats.len());
        for connection in self.connections.values() {
            match (&connection.minion, connection.asked) {
                (Some(_), _) => counts.tied += 1,
                (None, Asked::Stranger) => counts.strangers += 1,
                (None, _) => counts.untied += 1,
            }
        }
        counts
    }

    /// The address of the minion's connection, else that of its last request.
    pub(super) fn address(&self, minion: &MinionId) -> Option<IpAddr> {
        let seat = self.seats.get(minion)?;
        let held = seat.held.last();
        let connection = held.and_then(|number| self.connections.get(number));
        connection
            .map(|connection| connection.address)
            .or(seat.address)
    }

    // ---- internal consistency

    fn tie(&mut self, number: u64, minion: &MinionId, now: Instant) {
        let Some(connection) = self.connections.get_mut(&number) else {
            return;
        };
        let address = connection.address;
        match connection.minion.replace(minion.clone()) {
            Some(before) if before == *minion => return,
            Some(before) => self.release(number, &before, None, now),
            None => {
                if let Some(place) = self.places.get_mut(&address) {
                    place.connections.remove(&number);
                }
            }
        }
        let seat = self.seats.entry(minion.clone()).or_default();
        seat.held.push(number);
        seat.absence = None;
        seat.is_recalled = false;
        let heard_from = seat.address;
        if let Some(place) = heard_from.and_then(|from| self.places.get_mut(&from)) {
            place.minions.remove(minion);
        }
        for address in [Some(address), heard_from].into_iter().flatten() {
            self.settle(address, now);
        }
    }

    /// Unties the connection from the minion.
    fn release(&mut self, number: u64, minion: &MinionId, why: Option<Absence>, now: Instant) {
        let Some(seat) = self.seats.get_mut(minion) else {
            return;
        };
        seat.held.retain(|held| *held != number);
        if !seat.held.is_empty() {
            return;
        }
        seat.absence = why;
        // One of the untied connections from its address may be its next one.
        if let Some(address) = seat.address {
            let place = self.places.entry(address).or_default();
            place.minions.insert(minion.clone());
            place.unclear.get_or_insert(now);
            self.settle(address, now);
        }
    }

    /// Removes a minion; gives its connections. Those that are only inferred to be its own are
    /// among them where no other minion is known at that address.
    fn forget(&mut self, minion: &MinionId, now: Instant) -> Vec<u64> {
        let Some(seat) = self.seats.remove(minion) else {
            return Vec::new();
        };
        let mut connections = seat.held;
        for number in &connections {
            if let Some(connection) = self.connections.get_mut(number) {
                connection.minion = None;
                connection.asked = Asked::Stranger;
            }
        }
        if let Some(address) = seat.address {
            if let Some(place) = self.places.get_mut(&address)
                && place.minions.remove(minion)
            {
                if place.minions.is_empty() {
                    connections.extend(&place.connections);
                }
                place.unclear.get_or_insert(now);
            }
            self.settle(address, now);
        }
        connections
    }

    /// Recomputes whether the connections of an address are to be probed.
    fn settle(&mut self, address: IpAddr, now: Instant) {
        let Some(place) = self.places.get_mut(&address) else {
            return;
        };
        if place.connections.is_empty() || place.minions.is_empty() {
            place.unclear = None;
        } else if place.connections.len() < place.minions.len() {
            place.unclear.get_or_insert(now);
        }
        match place.unclear {
            Some(_) => self.unclear.insert(address),
            None => self.unclear.remove(&address),
        };
        if place.connections.len() > place.minions.len() {
            place.spare.get_or_insert(now);
            self.spare.insert(address);
        } else {
            place.spare = None;
            self.spare.remove(&address);
        }
        match place.connections.len() < place.minions.len() {
            true => self.lacking.insert(address),
            false => self.lacking.remove(&address),
        };
        self.drop_if_empty(address);
    }

    fn drop_if_empty(&mut self, address: IpAddr) {
        let is_empty =
            |place: &AddressConnections| place.connections.is_empty() && place.minions.is_empty();
        if self.places.get(&address).is_some_and(is_empty) {
            self.places.remove(&address);
            self.unclear.remove(&address);
            self.spare.remove(&address);
            self.lacking.remove(&address);
        }
    }
}

#[cfg(test)]
mod tests;
