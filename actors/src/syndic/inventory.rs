//! Inventory of the minions below, as it goes up to one master of ours (`saltern_syndic_inventory`):
//! a full list in numbered parts, then what has changed. No actor and no socket.
//!
//! A part is sent until it is answered. A master above that missed one, or that was started anew, asks
//! for a full list. Where it has kept the grains of the list before, as after a lost connection, only those
//! that have changed go up again. So does one that refuses it, after a pause; one that
//! knows no such syndic gets it once more at once, after the start event. While nothing changes, an empty part now and
//! then finds that out.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::{DefaultHasher, Hasher};
use std::time::Duration;

use bytes::Bytes;
use saltern_model::{Changed, MinionId};
use saltern_requests::KeyDigest;
use saltern_wire::msgpack::{Dialect, Value, encode};
use tokio::time::Instant;

/// Most minions of one part, and most that are gone; the bytes of grains after which no other minion
/// is added.
const MAX_MINIONS: usize = 500;
const MAX_BYTES: usize = 256 << 10;

/// The longest pause between two parts.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Pause before a full list goes to a master that has refused the one before.
const PAUSE_AFTER_REFUSAL: Duration = Duration::from_secs(600);

/// Pause before a full list goes to a master that did not know this syndic, and does not although the start event came.
const PAUSE_UNKNOWN: Duration = HEARTBEAT;

/// The longest reason for an absence, in bytes.
const MAX_REASON: usize = 200;

/// The minions below this master.
pub(crate) trait MinionsBelow {
    /// Generations of the data that were seen last.
    type Cursor: Default;

    /// Their ids; without syndics, with those below these. `None` when they cannot be listed.
    fn ids(&self) -> Option<Vec<MinionId>>;
    /// Whether there may be others, which are in no inventory of a syndic below.
    fn is_partial(&self) -> bool;
    /// Why a minion receives nothing; `None` when it may.
    fn away(&self, minion: &MinionId) -> Option<String>;
    /// Its grains, if they are known.
    fn grains(&self, minion: &MinionId) -> Option<Value>;
    /// Digest of its public key, if it is known.
    fn key(&self, minion: &MinionId) -> Option<KeyDigest>;
    /// The minions that may have changed.
    fn changes(&self, since: Option<&Self::Cursor>) -> MinionChanges<Self::Cursor>;
}

/// Minions that may have changed since they were looked for.
pub(crate) struct MinionChanges<C> {
    /// Those whose grains may have.
    pub(crate) grains: Changed,
    /// Those whose public keys may have.
    pub(crate) keys: Changed,
    /// The new cursor.
    pub(crate) cursor: C,
}

/// Whether a minion is among those that may have changed.
struct MayHaveChanged(Option<HashSet<MinionId>>);

impl From<Changed> for MayHaveChanged {
    fn from(changed: Changed) -> Self {
        match changed {
            Changed::These(ids) => Self(Some(ids.into_iter().collect())),
            Changed::Everything => Self(None),
        }
    }
}

impl MayHaveChanged {
    fn has(&self, minion: &MinionId) -> bool {
        self.0.as_ref().is_none_or(|these| these.contains(minion))
    }
}

/// Inventory on its way to one master above.
pub(crate) struct InventorySender<B: MinionsBelow> {
    below: B,
    /// The epoch that the session names, and the moment since which the connection stands.
    agreed: Option<(String, Option<i64>)>,
    /// The epoch that parts bear.
    epoch: String,
    list: u64,
    part: u64,
    cursor: Option<B::Cursor>,
    announced: HashMap<MinionId, AnnouncedMinion>,
    /// Minions to announce.
    pending: VecDeque<MinionId>,
    /// Minions to announce as gone.
    gone: VecDeque<MinionId>,
    /// There may have been others when they were found.
    is_partial: bool,
    /// The same as the last part said it.
    announced_partial: bool,
    /// The minions of the full list have been found.
    is_listed: bool,
    /// The last part of the full list has not been made.
    is_first_list: bool,
    in_flight: Option<InventoryPart>,
    /// The minions in it.
    unanswered: Vec<MinionId>,
    last_answer: Option<Instant>,
    /// Until when the master above, which has refused it, gets no other.
    refused_until: Option<Instant>,
    /// The last answer was that the master above knows no such syndic.
    is_unknown: bool,
}

/// A minion as it was announced.
#[derive(PartialEq, Eq)]
struct AnnouncedMinion {
    away: Option<String>,
    /// Digest of its grains.
    grains: u64,
    /// Of its public key.
    key: Option<KeyDigest>,
}

/// One part.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct InventoryPart {
    epoch: String,
    list: u64,
    part: u64,
    is_last: bool,
    is_partial: bool,
    minions: Vec<Value>,
    /// Digests of their public keys, nil where it is not known.
    keys: Vec<Value>,
    gone: Vec<Value>,
}

impl InventoryPart {
    /// The fields of the request.
    pub(crate) fn fields(&self) -> [(&'static str, Value); 9] {
        let number = |number: u64| Value::Int(i64::try_from(number).unwrap_or(i64::MAX));
        [
            ("cmd", Value::from("saltern_syndic_inventory")),
            ("epoch", Value::from(self.epoch.as_str())),
            ("list", number(self.list)),
            ("part", number(self.part)),
            ("last", Value::Bool(self.is_last)),
            ("partial", Value::Bool(self.is_partial)),
            ("minions", Value::Array(self.minions.clone())),
            ("keys", Value::Array(self.keys.clone())),
            ("gone", Value::Array(self.gone.clone())),
        ]
    }
}

/// Answer of the master above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    /// It goes on.
    Taken,
    /// A full list begins.
    Anew,
    /// Not before a pause, or before the connection is made anew.
    Refused,
    /// The start event goes first: the master above does not know this syndic.
    NotSyndic,
}

impl<B: MinionsBelow> InventorySender<B> {
    /// Nothing is sent before a master above has agreed.
    pub(crate) fn new(below: B) -> Self {
        Self {
            below,
            agreed: None,
            epoch: String::new(),
            list: 0,
            part: 0,
            cursor: None,
            announced: HashMap::new(),
            pending: VecDeque::new(),
            gone: VecDeque::new(),
            is_partial: false,
            announced_partial: false,
            is_listed: false,
            is_first_list: false,
            in_flight: None,
            unanswered: Vec::new(),
            last_answer: None,
            refused_until: None,
            is_unknown: false,
        }
    }

    /// Takes over what the session says: its epoch, and since when the connection stands. `list` is
    /// larger than the number of any list before.
    pub(crate) fn agree(&mut self, epoch: &str, since: Option<i64>, list: u64) {
        let before = self.agreed.replace((epoch.to_owned(), since));
        let is_same = |(known, _): &(String, Option<i64>)| known == epoch;
        match before {
            Some(before) if is_same(&before) && self.refused_until.is_none() => {
                // Whoever is there now may have missed a part.
                if before.1 != since {
                    self.last_answer = None;
                }
            }
            Some(before) if is_same(&before) && before.1 == since => {}
            _ => self.begin(epoch, list),
        }
    }

    /// Begins with a full list, of a master that has nothing of the one before.
    fn begin(&mut self, epoch: &str, list: u64) {
        self.announced.clear();
        self.begin_again(epoch, list);
    }

    /// Begins with a full list, of a master that has kept the grains it was sent. Whether it has those of a
    /// part without an answer is not known.
    fn begin_again(&mut self, epoch: &str, list: u64) {
        epoch.clone_into(&mut self.epoch);
        (self.list, self.part) = (list, 0);
        for id in &self.unanswered {
            self.announced.remove(id);
        }
        self.pending.clear();
        self.gone.clear();
        (self.is_listed, self.is_first_list) = (false, true);
        self.in_flight = None;
        self.unanswered.clear();
        self.refused_until = None;
    }

    /// Finds the minions of the full list; `None` when they cannot be listed now.
    fn find_all(&mut self) -> Option<()> {
        if !self.is_listed {
            let cursor = self.below.changes(None).cursor;
            // Before the ids: those of an inventory that is full from now on are among them.
            self.is_partial = self.below.is_partial();
            let ids = self.below.ids()?;
            // The list that begins does not name the others, so that the master above has them no longer:
            // one that comes again is announced, also when it is as before.
            let there: HashSet<&MinionId> = ids.iter().collect();
            self.announced.retain(|id, _| there.contains(id));
            self.pending = ids.into();
            self.cursor = Some(cursor);
            self.is_listed = true;
        }
        Some(())
    }

    /// The part to send now; the same until it is answered. None while minions cannot be listed, so
    /// that the inventory above becomes outdated.
    pub(crate) fn next(&mut self, now: Instant) -> Option<InventoryPart> {
        let (epoch, _) = self.agreed.as_ref()?;
        if let Some(until) = self.refused_until {
            if now < until {
                return None;
            }
            let epoch = epoch.clone();
            self.begin(&epoch, self.list + 1);
        }
        self.find_all()?;
        if self.in_flight.is_none() {
            if self.pending.is_empty() && self.gone.is_empty() && !self.is_first_list {
                self.look()?;
            }
            let is_due = self.last_answer.is_none_or(|last| now - last >= HEARTBEAT);
            let is_empty = self.pending.is_empty()
                && self.gone.is_empty()
                && self.is_partial == self.announced_partial;
            if is_empty && !self.is_first_list && !is_due {
                return None;
            }
            self.in_flight = Some(self.make());
        }
        self.in_flight.clone()
    }

    /// Takes over an answer; `list` as in [`Self::agree`].
    pub(crate) fn answered(&mut self, answer: &Value, list: u64, now: Instant) -> Answered {
        let was_unknown = std::mem::take(&mut self.is_unknown);
        match answer.get("result").and_then(Value::as_str) {
            Some("taken") => {
                self.in_flight = None;
                self.unanswered.clear();
                self.part += 1;
                self.last_answer = Some(now);
                Answered::Taken
            }
            Some("begin_anew") => {
                let epoch = answer.get("epoch").and_then(Value::as_str);
                let epoch = epoch.unwrap_or_default().to_owned();
                // A master of an earlier build does not say it.
                let has_grains = answer.get("with_grains") == Some(&Value::Bool(false));
                match has_grains && epoch == self.epoch {
                    true => self.begin_again(&epoch, list),
                    false => self.begin(&epoch, list),
                }
                Answered::Anew
            }
            _ if answer.get("class").and_then(Value::as_str) == Some("not_syndic") => {
                let pause = match was_unknown {
                    true => PAUSE_UNKNOWN,
                    false => Duration::ZERO,
                };
                self.is_unknown = true;
                self.refused_until = Some(now + pause);
                self.in_flight = None;
                Answered::NotSyndic
            }
            _ => {
                self.refused_until = Some(now + PAUSE_AFTER_REFUSAL);
                self.in_flight = None;
                Answered::Refused
            }
        }
    }

    /// Finds what has changed since it was announced; `None` when minions cannot be listed now.
    fn look(&mut self) -> Option<()> {
        let changes = self.below.changes(self.cursor.as_ref());
        let is_partial = self.below.is_partial();
        let ids = self.below.ids()?;
        self.cursor = Some(changes.cursor);
        self.is_partial = is_partial;
        let there: HashSet<&MinionId> = ids.iter().collect();
        let gone = self.announced.keys().filter(|id| !there.contains(id));
        let gone: VecDeque<MinionId> = gone.cloned().collect();
        for id in &gone {
            self.announced.remove(id);
        }
        self.gone = gone;
        let grains = MayHaveChanged::from(changes.grains);
        let keys = MayHaveChanged::from(changes.keys);
        for id in ids {
            let is_as_announced = self.announced.get(&id).is_some_and(|before| {
                before.away == self.away(&id)
                    && (!grains.has(&id) || before.grains == digest(&packed(&self.grains(&id))))
                    && (!keys.has(&id) || before.key == self.below.key(&id))
            });
            if !is_as_announced {
                self.pending.push_back(id);
            }
        }
        Some(())
    }

    fn away(&self, id: &MinionId) -> Option<String> {
        let why = self.below.away(id)?;
        let end = why.floor_char_boundary(MAX_REASON);
        Some(why.get(..end).unwrap_or_default().to_owned())
    }

    /// The grains as they are announced; an empty map where they are not known.
    fn grains(&self, id: &MinionId) -> Value {
        let grains = self.below.grains(id);
        grains.unwrap_or_else(|| Value::Map(Vec::new()))
    }

    fn make(&mut self) -> InventoryPart {
        let (mut minions, mut keys, mut bytes) = (Vec::new(), Vec::new(), 0);
        while minions.len() < MAX_MINIONS
            && bytes < MAX_BYTES
            && let Some(id) = self.pending.pop_front()
        {
            let grains = self.grains(&id);
            let packed = packed(&grains);
            let entry = AnnouncedMinion {
                away: self.away(&id),
                grains: digest(&packed),
                key: self.below.key(&id),
            };
            let before = self.announced.get(&id);
            let is_as_before = before.is_some_and(|before| before.grains == entry.grains);
            let grains = match is_as_before {
                true => Value::Nil,
                false => grains,
            };
            bytes += packed.len();
            let away = entry.away.as_deref().map_or(Value::Nil, Value::from);
            minions.push(Value::Array(vec![id.as_str().into(), away, grains]));
            keys.push(Value::from(
                entry.key.map(|key| Bytes::copy_from_slice(&key)),
            ));
            self.unanswered.push(id.clone());
            self.announced.insert(id, entry);
        }
        let gone = self.gone.drain(..self.gone.len().min(MAX_MINIONS));
        let gone = gone.map(|id| id.as_str().into()).collect();
        let is_last = self.is_first_list && self.pending.is_empty();
        if is_last {
            self.is_first_list = false;
        }
        let has_more = !self.pending.is_empty() || !self.gone.is_empty();
        self.announced_partial = self.is_partial || has_more;
        InventoryPart {
            epoch: self.epoch.clone(),
            list: self.list,
            part: self.part,
            is_last,
            is_partial: self.announced_partial,
            minions,
            keys,
            gone,
        }
    }
}

fn packed(grains: &Value) -> Vec<u8> {
    encode(grains, Dialect::Bin)
}

fn digest(packed: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(packed);
    hasher.finish()
}

#[cfg(test)]
mod tests;
