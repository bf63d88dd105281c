//! The cached grains and pillars of all minions, laid out for matching.
//!
//! Minions resemble each other, so every different value of a top-level grain is kept once and a
//! minion is a short list of pairs of numbers (name, value). A target is then held against each
//! different value once, not against each minion, and the answer is kept until some minion's data
//! really changes. What has changed is asked of the [`MinionData`], which alone knows the disk.

use std::collections::HashMap;
use std::sync::Arc;

use saltern_model::MinionId;
use saltern_wire::msgpack::Value;

use super::bits::Bits;
use super::ipcidr::Network;
use super::pool::{NONE, Pool};
use super::python::Loaded;
use super::subdict::{Budget, How, Part, Rest, Subdict};
use super::{Changed, MinionData};

/// How many names are kept ready as columns, in each of grains and pillars.
const COLUMNS: usize = 48;

/// How many answers are kept, in each of grains and pillars.
const ANSWERS: usize = 512;

/// How many changes are remembered one by one, in each of grains and pillars.
const CHANGES: usize = 4096;

/// Grains or pillars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Grains,
    Pillar,
}

/// All minions with cached data.
#[derive(Default)]
pub(super) struct Index {
    /// Up to which change the data is known.
    seen: Option<u64>,
    slots: HashMap<MinionId, u32>,
    free: Vec<u32>,
    /// Counts minions that came or went.
    membership: u64,
    grains: Facet,
    pillar: Facet,
    order: Order,
}

/// Where in a sorted list of candidates each minion stands.
#[derive(Default)]
struct Order {
    ids: Vec<MinionId>,
    slots: Vec<u32>,
    membership: u64,
}

impl Index {
    /// Takes over what has changed.
    pub(super) fn refresh(&mut self, data: &dyn MinionData) {
        let changes = data.changes(self.seen);
        if self.seen == Some(changes.generation) {
            return;
        }
        let known = data.known();
        match changes.changed {
            Changed::These(ids) => {
                for id in ids {
                    match known.binary_search(&id) {
                        Ok(_) => self.load(&id, data),
                        Err(_) => self.remove(&id),
                    }
                }
            }
            Changed::Everything => {
                let is_gone = |id: &&MinionId| known.binary_search(id).is_err();
                let gone: Vec<MinionId> = self.slots.keys().filter(is_gone).cloned().collect();
                for id in &gone {
                    self.remove(id);
                }
                for id in known.iter() {
                    self.load(id, data);
                }
            }
        }
        self.seen = Some(changes.generation);
    }

    fn load(&mut self, id: &MinionId, data: &dyn MinionData) {
        let slot = self.slots.get(id).copied().unwrap_or_else(|| {
            let next = u32::try_from(self.slots.len()).unwrap_or(NONE);
            let slot = self.free.pop().unwrap_or(next);
            self.slots.insert(id.clone(), slot);
            self.membership += 1;
            slot
        });
        self.grains.replace(slot, data.grains(id).as_deref());
        self.pillar.replace(slot, data.pillar(id).as_deref());
    }

    fn remove(&mut self, id: &MinionId) {
        if let Some(slot) = self.slots.remove(id) {
            self.grains.replace(slot, None);
            self.pillar.replace(slot, None);
            self.free.push(slot);
            self.membership += 1;
        }
    }

    /// Takes `candidates` for the list that the following questions are about.
    pub(super) fn arrange(&mut self, candidates: &[MinionId]) {
        if self.order.membership == self.membership && is_same_list(&self.order.ids, candidates) {
            return;
        }
        let slot = |id: &MinionId| self.slots.get(id).copied().unwrap_or(NONE);
        self.order = Order {
            slots: candidates.iter().map(slot).collect(),
            ids: candidates.to_vec(),
            membership: self.membership,
        };
    }

    /// Which of the candidates match the question.
    pub(super) fn matching(
        &mut self,
        kind: Kind,
        question: Question<'_>,
        compile: impl FnOnce() -> Option<Test>,
    ) -> Bits {
        let facet = match kind {
            Kind::Grains => &mut self.grains,
            Kind::Pillar => &mut self.pillar,
        };
        let answer = facet.answer(&question, compile);
        self.standing(|slot| answer.contains(slot))
    }

    /// Which of the candidates have cached data, matching or not.
    pub(super) fn known(&self) -> Bits {
        self.standing(|_| true)
    }

    fn standing(&self, holds: impl Fn(usize) -> bool) -> Bits {
        let slots = &self.order.slots;
        Bits::of(slots.len(), |at| {
            slots
                .get(at)
                .is_some_and(|slot| *slot != NONE && holds(*slot as usize))
        })
    }
}

/// Whether two lists name the same minions. Mostly the ids are even the same text in memory, which
/// is seen without looking at it.
fn is_same_list(one: &[MinionId], other: &[MinionId]) -> bool {
    let is_same = |(one, other): (&MinionId, &MinionId)| {
        std::ptr::eq(one.as_str(), other.as_str()) || one == other
    };
    one.len() == other.len() && one.iter().zip(other).all(is_same)
}

/// What a minion's data is held against.
pub(super) enum Test {
    /// A path and a pattern.
    Subdict(Subdict),
    /// One grain with addresses.
    Network(Network),
}

/// What an answer was given to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Question<'a> {
    pub(super) text: &'a str,
    pub(super) delimiter: &'a str,
    pub(super) how: How,
}

/// The grains, or the pillars, of all minions.
#[derive(Default)]
struct Facet {
    /// By slot: pairs of name and value, sorted by name.
    minions: Vec<Box<[(u32, u32)]>>,
    names: Pool,
    values: Pool,
    columns: HashMap<String, Column>,
    answers: HashMap<(String, String, How), Answer>,
    /// The slots whose data has changed, oldest first.
    changed: Vec<u32>,
    /// How many changes stood before those in `changed`.
    dropped: u64,
    /// Counts uses of columns, to know the one that was not used for the longest time.
    uses: u64,
}

/// Which minions matched, when the changes up to a number were known.
struct Answer {
    bits: Arc<Bits>,
    at: u64,
}

/// For one top-level name the value of each minion, by slot.
struct Column {
    values: Arc<Vec<u32>>,
    loaded: Option<Loaded>,
    used: u64,
}

impl Facet {
    fn replace(&mut self, slot: u32, data: Option<&Value>) {
        let slot = slot as usize;
        if self.minions.len() <= slot {
            self.minions.resize_with(slot + 1, Box::default);
            for column in self.columns.values_mut() {
                Arc::make_mut(&mut column.values).resize(slot + 1, NONE);
            }
        }
        let entries = data.and_then(Value::as_map).unwrap_or_default();
        let mut pairs: Vec<(u32, u32)> = entries
            .iter()
            .map(|(name, value)| (self.names.take(name), self.values.take(value)))
            .collect();
        // A name that comes twice counts with its last value, as in Python.
        pairs.reverse();
        pairs.sort_by_key(|(name, _)| *name);
        let mut surplus = Vec::new();
        pairs.dedup_by(|later, kept| {
            let is_same = later.0 == kept.0;
            if is_same {
                surplus.push(*later);
            }
            is_same
        });
        for (name, value) in surplus {
            self.names.give_back(name);
            self.values.give_back(value);
        }
        let Some(place) = self.minions.get_mut(slot) else {
            return;
        };
        let is_changed = **place != *pairs;
        let old = std::mem::replace(place, pairs.into_boxed_slice());
        for (name, value) in old {
            self.names.give_back(name);
            self.values.give_back(value);
        }
        if is_changed {
            self.update_columns(slot);
            self.changed.push(slot as u32);
            if self.changed.len() > CHANGES {
                self.dropped += self.changed.len() as u64;
                self.changed.clear();
            }
        }
    }

    fn update_columns(&mut self, slot: usize) {
        let pairs = self.minions.get(slot).map(Box::as_ref).unwrap_or_default();
        for (name, column) in &mut self.columns {
            let value = lookup(pairs, &self.names.keys(name, column.loaded.as_ref()));
            if let Some(place) = Arc::make_mut(&mut column.values).get_mut(slot) {
                *place = value;
            }
        }
    }

    /// An answer that was given before is only brought up to date.
    fn answer(
        &mut self,
        question: &Question<'_>,
        compile: impl FnOnce() -> Option<Test>,
    ) -> Arc<Bits> {
        let key = (
            question.text.to_owned(),
            question.delimiter.to_owned(),
            question.how,
        );
        let now = self.dropped + self.changed.len() as u64;
        let old = self
            .answers
            .remove(&key)
            .filter(|old| old.at >= self.dropped);
        let bits = match old {
            Some(old) if old.at == now => old.bits,
            Some(old) => Arc::new(self.again(old, compile())),
            None => Arc::new(self.matching(compile())),
        };
        if self.answers.len() >= ANSWERS {
            self.answers.clear();
        }
        let answer = Answer {
            bits: Arc::clone(&bits),
            at: now,
        };
        self.answers.insert(key, answer);
        bits
    }

    fn matching(&mut self, test: Option<Test>) -> Bits {
        match test {
            Some(Test::Subdict(subdict)) => {
                let mut matching = self.matching_under_first(&subdict);
                if let Some(everything) = subdict.over_everything() {
                    matching.unite(&self.matching_everything(everything));
                }
                matching
            }
            Some(Test::Network(network)) => {
                let column = self.column(network.grain(), None);
                let values = &self.values;
                self.holding(&column, |value, number| {
                    network.holds(value, || values.addresses(number))
                })
            }
            None => Bits::none(self.minions.len()),
        }
    }

    /// Looks again at the minions that have changed since the answer was given.
    fn again(&mut self, old: Answer, test: Option<Test>) -> Bits {
        let mut bits = (*old.bits).clone();
        bits.grow(self.minions.len());
        let first_new = usize::try_from(old.at - self.dropped).unwrap_or(0);
        let changed: Vec<u32> = self.changed.get(first_new..).unwrap_or_default().to_vec();
        let (name, loaded) = match &test {
            Some(Test::Subdict(subdict)) if subdict.over_everything().is_some() => {
                return self.matching(test);
            }
            Some(Test::Subdict(subdict)) => {
                let first = subdict.first();
                (first.text.as_str(), first.loaded.clone())
            }
            Some(Test::Network(network)) => (network.grain(), None),
            None => return bits,
        };
        let column = self.column(name, loaded);
        for slot in changed.into_iter().map(|slot| slot as usize) {
            let number = column.get(slot).copied().unwrap_or(NONE);
            let holds = self.values.get(number).is_some_and(|value| match &test {
                Some(Test::Subdict(subdict)) => subdict.matches_under_first(value, &Budget::new()),
                Some(Test::Network(network)) => {
                    network.holds(value, || self.values.addresses(number))
                }
                None => false,
            });
            match holds {
                true => bits.insert(slot),
                false => bits.remove(slot),
            }
        }
        bits
    }

    fn matching_under_first(&mut self, subdict: &Subdict) -> Bits {
        let Part { text, loaded, .. } = subdict.first();
        let column = self.column(text, loaded.clone());
        self.holding(&column, |value, _| {
            subdict.matches_under_first(value, &Budget::new())
        })
    }

    /// The expression begins with a star: the data as a whole is the dictionary to match.
    fn matching_everything(&mut self, rest: &Rest) -> Bits {
        let core = rest.core();
        if core.is_star() {
            return Bits::of(self.minions.len(), |slot| {
                self.minions
                    .get(slot)
                    .is_some_and(|pairs| !pairs.is_empty())
            });
        }
        let mut nested = match core.nested() {
            Some(nested) => self.matching_under_first(nested),
            None => Bits::none(self.minions.len()),
        };
        if core.is_wild() {
            nested.unite(&self.matching_everything(core));
        }
        let names = self
            .names
            .test(|name| core.matches_name(name, &Budget::new()));
        let values = match rest.is_wild() {
            true => {
                let test = |value: &Value| core.matches_below_star(value, &Budget::new());
                self.values.test(test)
            }
            false => Bits::none(0),
        };
        Bits::of(self.minions.len(), |slot| {
            let pairs = self.minions.get(slot).map(Box::as_ref).unwrap_or_default();
            let is_named = |(name, value): &(u32, u32)| {
                names.contains(*name as usize) || values.contains(*value as usize)
            };
            nested.contains(slot) || pairs.iter().any(is_named)
        })
    }

    /// The minions whose value in the column `holds` says yes to; each value is asked for once.
    fn holding(&self, column: &[u32], holds: impl Fn(&Value, u32) -> bool) -> Bits {
        // Sets and not a list of answers: there may be millions of values.
        let mut asked = Bits::none(self.values.len());
        let mut held = Bits::none(self.values.len());
        Bits::of(column.len(), |slot| {
            let number = column.get(slot).copied().unwrap_or(NONE);
            if number == NONE {
                return false;
            }
            let at = number as usize;
            if asked.contains(at) {
                return held.contains(at);
            }
            asked.insert(at);
            let holds = self
                .values
                .get(number)
                .is_some_and(|value| holds(value, number));
            if holds {
                held.insert(at);
            }
            holds
        })
    }

    fn column(&mut self, name: &str, loaded: Option<Loaded>) -> Arc<Vec<u32>> {
        self.uses += 1;
        // A grain asked for by its exact name and one asked for as part of a path may differ.
        let key = match &loaded {
            Some(_) => format!("{name}\0loaded"),
            None => name.to_owned(),
        };
        if let Some(column) = self.columns.get_mut(&key) {
            column.used = self.uses;
            return Arc::clone(&column.values);
        }
        let keys = self.names.keys(&key, loaded.as_ref());
        let values = self.minions.iter().map(|pairs| lookup(pairs, &keys));
        let values = Arc::new(values.collect::<Vec<u32>>());
        if self.columns.len() >= COLUMNS {
            let oldest = self.columns.iter().min_by_key(|(_, column)| column.used);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                self.columns.remove(&oldest);
            }
        }
        let column = Column {
            values: Arc::clone(&values),
            loaded,
            used: self.uses,
        };
        self.columns.insert(key, column);
        values
    }
}

/// The value under the first of `keys` that the minion has.
fn lookup(pairs: &[(u32, u32)], keys: &[u32]) -> u32 {
    let value = |key: &u32| {
        let at = pairs.binary_search_by_key(key, |(name, _)| *name).ok()?;
        pairs.get(at).map(|(_, value)| *value)
    };
    keys.iter().find_map(value).unwrap_or(NONE)
}
