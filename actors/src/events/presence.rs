//! Presence of minions: the single source for `manage.*`, presence events, jobs and the limit on
//! minions.
//!
//! Two parts. When and from where each minion's last request came is written by every worker with
//! every request, so it is a map of atomics. Which minion holds which connection changes rarely,
//! and is a [`Table`] behind a lock, with the inference in it. Both outlive the actors. Over a
//! restart of the master only the addresses are saved ([`memory`]): a minion is `Known` until a
//! connection comes from its address, or a request.
//!
//! Not here: sending the probes and closing unwanted connections, which
//! [`Maintenance`](crate::upkeep::maintenance) does.

mod memory;
mod metrics;
mod probes;
mod table;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use parking_lot::Mutex;
use saltern_base::clock::Clock;
use saltern_base::metrics::Registry;
use saltern_config::MasterConfig;
use saltern_model::{Absence, Jid, MinionId, Standing};
use saltern_requests::PresenceView;
use saltern_store::AcceptedIds;
use saltern_wire::port::{Close, KnownNetworks};
use tokio::time::Instant;

use self::memory::Memory;
use self::probes::IdentityProbes;
use self::table::Table;

/// Time after a restart during which no connection is probed and no minion is reported lost:
/// minions reconnect.
const RECONNECT_GRACE: Duration = Duration::from_secs(30);

/// Microseconds for which the address of a minion that went away belongs to a known network.
const LATELY: i64 = 86_400_000_000;

/// Presence of all minions; shared by all workers.
pub(crate) struct Presence {
    heard: DashMap<MinionId, Heard>,
    table: Mutex<Table>,
    probes: IdentityProbes,
    accepted: Mutex<Arc<AcceptedIds>>,
    /// Minions present at the last comparison, sorted.
    before: Mutex<Vec<MinionId>>,
    /// Minions subscribe to topics of their own (`zmq_filtering`).
    filtering: bool,
    clock: Clock,
    started: Instant,
    /// The saved state, and whether it has changed since it was written.
    memory: PathBuf,
    is_new: AtomicBool,
}

struct Heard {
    from: IpAddr,
    /// Microseconds since `started`, negative for times before: a step of the clock does not move
    /// it.
    at: AtomicI64,
}

/// Changes between two comparisons; all sorted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) present: Vec<MinionId>,
    pub(crate) new: Vec<MinionId>,
    pub(crate) lost: Vec<MinionId>,
}

impl Presence {
    pub(crate) fn new(config: &MasterConfig, clock: Clock, registry: &Registry) -> Arc<Self> {
        let presence = Arc::new(Self {
            heard: DashMap::new(),
            table: Mutex::new(Table::new()),
            probes: IdentityProbes::new(registry),
            accepted: Mutex::new(Arc::new(AcceptedIds::new(Vec::new()))),
            before: Mutex::default(),
            filtering: config.zmq_filtering,
            clock,
            started: Instant::now(),
            memory: memory::path(&config.cachedir),
            is_new: AtomicBool::new(false),
        });
        metrics::register(registry, Arc::downgrade(&presence));
        presence
    }

    /// Sets the accepted minions. Forgets all others, and gives their connections, which are to be
    /// closed.
    pub(crate) fn accept(&self, accepted: &Arc<AcceptedIds>) -> Vec<u64> {
        let mut known = self.accepted.lock();
        if Arc::ptr_eq(&known, accepted) {
            return Vec::new();
        }
        let is_new = |minion: &&MinionId| self.filtering && !known.contains(minion.as_str());
        let new = accepted.sorted().iter().filter(is_new);
        // Hashed before the table is locked.
        let topics = new.map(|minion| (topic_of(minion), minion.clone()));
        let topics = topics.collect();
        *known = accepted.clone();
        let now = Instant::now();
        let ended = self.table.lock().accept(accepted.clone(), topics, now);
        // After the table: a minion that sends a request meanwhile must be inserted again.
        self.heard
            .retain(|minion, _| accepted.contains(minion.as_str()));
        ended
    }

    /// The connections to probe now, at most `most`, each with the jid of its probe.
    pub(crate) fn take_unasked(&self, most: usize, mint: impl Fn() -> Jid) -> Vec<(u64, Jid)> {
        let now = Instant::now();
        if now < self.started + RECONNECT_GRACE {
            return Vec::new();
        }
        let connections = self.table.lock().take_unasked(most, now);
        let asked = connections.into_iter().map(|connection| {
            let jid = mint();
            self.probes.ask(&jid, connection, now);
            (connection, jid)
        });
        asked.collect()
    }

    /// The probe with this jid was not sent: its connection is probed another time.
    pub(crate) fn not_asked(&self, jid: &Jid) {
        if let Some(connection) = self.probes.take_back(jid) {
            self.table.lock().not_asked(connection);
        }
    }

    /// The present minions, and the changes since the last call, or since the master before this
    /// one saved its state.
    pub(crate) fn change(&self) -> Change {
        let present = self.connected();
        let mut before = self.before.lock();
        let beside = |these: &[MinionId], those: &[MinionId]| -> Vec<MinionId> {
            let only = these.iter().filter(|id| those.binary_search(id).is_err());
            only.cloned().collect()
        };
        let mut lost = beside(&before, &present);
        let new = beside(&present, &before);
        if !(lost.is_empty() && new.is_empty()) {
            // A minion that reconnects need not send a request.
            self.is_to_be_written();
        }
        *before = present.clone();
        let returning = self.returning(&lost);
        lost.retain(|minion| returning.binary_search(minion).is_err());
        before.extend(returning);
        before.sort_unstable();
        Change { present, new, lost }
    }

    /// The minions among these that have time left to reconnect; in the same order.
    fn returning(&self, minions: &[MinionId]) -> Vec<MinionId> {
        if Instant::now() >= self.started + RECONNECT_GRACE {
            return Vec::new();
        }
        let is_known = |minion: &&MinionId| self.state(minion) == Standing::Known;
        minions.iter().filter(is_known).cloned().collect()
    }

    /// Keeps the networks known from which the last requests of the present minions came: one that
    /// has nothing to say stays connected and authenticates no more.
    pub(crate) fn extend(&self, known: &KnownNetworks) {
        for minion in self.connected() {
            let from = self.heard.get(&minion).map(|heard| heard.from);
            if let Some(from) = from {
                known.remember(from);
            }
        }
    }

    /// Starts with these minions, and with what the previous master saved of them. Gives the
    /// addresses that have lately authenticated, the latest first.
    pub(crate) fn begin(&self, accepted: &Arc<AcceptedIds>) -> Vec<IpAddr> {
        self.accept(accepted);
        let memories = memory::read(&self.memory).unwrap_or_else(|error| {
            tracing::warn!(%error, "saved presence cannot be read");
            Vec::new()
        });
        let (now, wall) = (Instant::now(), self.clock.unix_micros());
        let (mut before, mut lately) = (Vec::new(), Vec::new());
        for memory in memories {
            if memory.was_present {
                before.push(memory.minion.clone());
            }
            if !accepted.contains(memory.minion.as_str()) {
                continue;
            }
            // A minion that stays connected sends nothing else that must be seen.
            if memory.was_present || wall.saturating_sub(memory.heard) < LATELY {
                lately.push((memory.heard, memory.from));
            }
            let heard = Heard {
                from: memory.from,
                // A clock that was set back must not make it a request to this master.
                at: AtomicI64::new(memory.heard.saturating_sub(wall).min(-1)),
            };
            self.heard.insert(memory.minion.clone(), heard);
            let from = memory.from.to_canonical();
            self.table.lock().recall(&memory.minion, from, now);
        }
        before.sort_unstable();
        *self.before.lock() = before;
        lately.sort_unstable_by(|one, other| other.cmp(one));
        lately.into_iter().map(|(_, from)| from).collect()
    }

    /// Saves the state for the next master, if it has changed.
    pub(crate) fn remember(&self) {
        if self.is_new.swap(false, Ordering::Relaxed) {
            self.write_down();
        }
    }

    /// Saves it in any case, at the end of this master.
    pub(crate) fn write_down(&self) {
        let mut present = self.connected();
        // Of a master that ends this early, too, they need not have had the time.
        present.extend(self.returning(&self.before.lock()));
        present.sort_unstable();
        let heard = self.heard.iter().map(|entry| Memory {
            minion: entry.key().clone(),
            heard: self.wall(entry.value()),
            from: entry.value().from,
            was_present: present.binary_search(entry.key()).is_ok(),
        });
        let memories: Vec<Memory> = heard.collect();
        if let Err(error) = memory::write(&self.memory, &memories) {
            self.is_new.store(true, Ordering::Relaxed);
            tracing::debug!(%error, "presence cannot be saved");
        }
    }

    /// Read first: all workers call this with every request.
    fn is_to_be_written(&self) {
        if !self.is_new.load(Ordering::Relaxed) {
            self.is_new.store(true, Ordering::Relaxed);
        }
    }

    fn wall(&self, heard: &Heard) -> i64 {
        let now = i64::try_from(self.started.elapsed().as_micros()).unwrap_or(i64::MAX);
        let ago = now.saturating_sub(heard.at.load(Ordering::Relaxed));
        self.clock.unix_micros().saturating_sub(ago)
    }
}

/// Events of the publish port's subscribers.
impl Presence {
    /// See [`SubscriberWatch`](saltern_wire::port::SubscriberWatch), also for the next functions.
    pub(crate) fn subscribed(&self, connection: u64, address: SocketAddr, topic: &[u8]) {
        let address = address.ip().to_canonical();
        let now = Instant::now();
        let mut table = self.table.lock();
        table.subscribed(connection, address, topic, now);
    }

    /// The connection has proved that it is this minion's.
    pub(crate) fn registered(&self, connection: u64, minion: &MinionId) {
        let now = Instant::now();
        self.table.lock().registered(connection, minion, now);
    }

    pub(crate) fn asked(&self, connection: u64) {
        self.table.lock().silent(connection, Instant::now());
    }

    pub(crate) fn answered(&self, connection: u64) {
        self.table.lock().alive(connection);
    }

    pub(crate) fn left(&self, connection: u64, reason: Close) {
        let why = absence(reason, self.clock.unix_micros());
        self.table.lock().left(connection, why, Instant::now());
    }
}

impl PresenceView for Presence {
    fn connected(&self) -> Vec<MinionId> {
        self.table.lock().present(Instant::now())
    }

    fn are_more_connected_than(&self, limit: usize) -> bool {
        let table = self.table.lock();
        table.are_more_present_than(limit, Instant::now())
    }

    fn heard(&self, minion: &MinionId, from: IpAddr) {
        let now = Instant::now();
        let at = now.duration_since(self.started).as_micros();
        let at = i64::try_from(at).unwrap_or(i64::MAX);
        if let Some(heard) = self.heard.get(minion.as_str())
            && heard.from == from
            && heard.at.load(Ordering::Relaxed) >= 0
        {
            heard.at.store(at, Ordering::Relaxed);
            self.is_to_be_written();
            return;
        }
        let heard = Heard {
            from,
            at: AtomicI64::new(at),
        };
        self.heard.insert(minion.clone(), heard);
        self.is_to_be_written();
        self.table.lock().heard(minion, from.to_canonical(), now);
    }

    fn state(&self, minion: &MinionId) -> Standing {
        self.table.lock().standing(minion, Instant::now())
    }

    fn last_heard(&self, minion: &MinionId) -> Option<i64> {
        let heard = self.heard.get(minion.as_str())?;
        Some(self.wall(&heard))
    }

    fn address(&self, minion: &MinionId) -> Option<IpAddr> {
        self.table.lock().address(minion)
    }

    fn is_answer(&self, minion: &MinionId, jid: &str) -> bool {
        let now = Instant::now();
        let Some(connection) = self.probes.answered(jid, now) else {
            return false;
        };
        self.table.lock().answered(connection, minion, now);
        true
    }
}

fn absence(reason: Close, at: i64) -> Absence {
    match reason {
        Close::PeerClosed | Close::Truncated | Close::PeerError => Absence::Closed { at },
        Close::Heartbeat | Close::Unreachable | Close::Io => Absence::Lost { at },
        _ => Absence::CutOff { at },
    }
}

/// The topic of a minion when minions filter (`hexid` in `salt/transport/zeromq.py`).
fn topic_of(minion: &MinionId) -> Box<[u8]> {
    let topic = saltern_crypto::sha1_hex(minion.as_str().as_bytes());
    topic.into_bytes().into()
}

#[cfg(test)]
mod tests;
