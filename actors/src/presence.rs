//! Which minions are there: the one truth that `manage.*`, presence events, jobs and the limit on
//! minions read.
//!
//! Two things are kept apart. When and where each minion was last heard is written by every worker
//! with every request, so it is a map of atomics. Who sits on which connection changes rarely, and
//! is a [`Table`] behind a lock, with the reasoning in it. Both outlive the actors, and neither
//! outlives the process: after a start a minion is `Known` until it connects or is heard.
//!
//! Not here: sending the questions and ending the connections that are not wanted any more, which
//! [`Maintenance`](crate::maintenance) does.

mod metrics;
mod questions;
mod table;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dashmap::DashMap;
use parking_lot::Mutex;
use saltern_base::clock::Clock;
use saltern_base::metrics::Registry;
use saltern_model::{Absence, Jid, MinionId, Standing};
use saltern_requests::Surroundings;
use saltern_store::AcceptedIds;
use saltern_wire::zmtp::{Close, SubscriberWatch};
use tokio::time::Instant;

use self::questions::Questions;
use self::table::Table;

/// See the module; shared by all workers.
pub(crate) struct Presence {
    heard: DashMap<MinionId, Heard>,
    table: Mutex<Table>,
    questions: Questions,
    accepted: Mutex<Arc<AcceptedIds>>,
    /// Who was present at the last comparison, sorted.
    before: Mutex<Vec<MinionId>>,
    /// Minions subscribe to topics of their own (`zmq_filtering`).
    filtering: bool,
    clock: Clock,
    started: Instant,
}

struct Heard {
    from: IpAddr,
    /// Microseconds since `started`: a step of the clock does not move it.
    at: AtomicU64,
}

/// What changed between two looks at who is present; all sorted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) present: Vec<MinionId>,
    pub(crate) new: Vec<MinionId>,
    pub(crate) lost: Vec<MinionId>,
}

impl Presence {
    pub(crate) fn new(filtering: bool, clock: Clock, registry: &Registry) -> Arc<Self> {
        let presence = Arc::new(Self {
            heard: DashMap::new(),
            table: Mutex::new(Table::new()),
            questions: Questions::new(registry),
            accepted: Mutex::new(Arc::new(AcceptedIds::new(Vec::new()))),
            before: Mutex::default(),
            filtering,
            clock,
            started: Instant::now(),
        });
        metrics::register(registry, Arc::downgrade(&presence));
        presence
    }

    /// The accepted minions are these. Forgets all others, and gives their connections, which are
    /// to be ended.
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
        // After the table: who is heard meanwhile must come by it again.
        self.heard
            .retain(|minion, _| accepted.contains(minion.as_str()));
        ended
    }

    /// The connections to ask now who they are, at most `most`, each with the jid of its question.
    pub(crate) fn to_ask(&self, most: usize, mint: impl Fn() -> Jid) -> Vec<(u64, Jid)> {
        let now = Instant::now();
        let connections = self.table.lock().to_ask(most, now);
        let asked = connections.into_iter().map(|connection| {
            let jid = mint();
            self.questions.ask(&jid, connection, now);
            (connection, jid)
        });
        asked.collect()
    }

    /// Who is present, and what has changed since this was last called.
    pub(crate) fn change(&self) -> Change {
        let present = self.connected();
        let mut before = self.before.lock();
        let beside = |these: &[MinionId], those: &[MinionId]| -> Vec<MinionId> {
            let only = these.iter().filter(|id| those.binary_search(id).is_err());
            only.cloned().collect()
        };
        let change = Change {
            new: beside(&present, &before),
            lost: beside(&before, &present),
            present: present.clone(),
        };
        *before = present;
        change
    }
}

impl Surroundings for Presence {
    fn connected(&self) -> Vec<MinionId> {
        self.table.lock().present(Instant::now())
    }

    fn heard(&self, minion: &MinionId, from: IpAddr) {
        let now = Instant::now();
        let at = now.duration_since(self.started).as_micros();
        let at = u64::try_from(at).unwrap_or(u64::MAX);
        if let Some(heard) = self.heard.get(minion.as_str())
            && heard.from == from
        {
            heard.at.store(at, Ordering::Relaxed);
            return;
        }
        let heard = Heard {
            from,
            at: AtomicU64::new(at),
        };
        self.heard.insert(minion.clone(), heard);
        self.table.lock().heard(minion, from.to_canonical(), now);
    }

    fn state(&self, minion: &MinionId) -> Standing {
        self.table.lock().standing(minion, Instant::now())
    }

    fn last_heard(&self, minion: &MinionId) -> Option<i64> {
        let at = self.heard.get(minion.as_str())?.at.load(Ordering::Relaxed);
        let now = self.started.elapsed().as_micros();
        let ago = now.saturating_sub(u128::from(at));
        let ago = i64::try_from(ago).unwrap_or(i64::MAX);
        Some(self.clock.unix_micros().saturating_sub(ago))
    }

    fn address(&self, minion: &MinionId) -> Option<IpAddr> {
        self.table.lock().address(minion)
    }

    fn is_answer(&self, minion: &MinionId, jid: &str) -> bool {
        let now = Instant::now();
        let Some(connection) = self.questions.answered(jid, now) else {
            return false;
        };
        self.table.lock().answered(connection, minion, now);
        true
    }
}

impl SubscriberWatch for Presence {
    fn subscribed(&self, connection: u64, address: SocketAddr, topic: &[u8]) {
        let address = address.ip().to_canonical();
        let now = Instant::now();
        let mut table = self.table.lock();
        table.subscribed(connection, address, topic, now);
    }

    fn asked(&self, connection: u64) {
        self.table.lock().silent(connection, Instant::now());
    }

    fn answered(&self, connection: u64) {
        self.table.lock().alive(connection);
    }

    fn left(&self, connection: u64, reason: Close) {
        let why = absence(reason, self.clock.unix_micros());
        self.table.lock().left(connection, why, Instant::now());
    }
}

fn absence(reason: Close, at: i64) -> Absence {
    match reason {
        Close::PeerClosed | Close::Truncated | Close::PeerError => Absence::Closed { at },
        Close::Heartbeat | Close::Unreachable | Close::Io => Absence::Lost { at },
        _ => Absence::CutOff { at },
    }
}

/// What a minion subscribes to when minions filter (`hexid` in `salt/transport/zeromq.py`).
fn topic_of(minion: &MinionId) -> Box<[u8]> {
    let topic = saltern_crypto::sha1_hex(minion.as_str().as_bytes());
    topic.into_bytes().into()
}

#[cfg(test)]
mod tests;
