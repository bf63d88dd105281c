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
use super::pool::{NONE, Pool};
use super::python::Loaded;
use super::subdict::{Budget, How, Part, Rest, Subdict};
use super::{Changed, MinionData};

/// How many names are kept ready as columns, in each of grains and pillars.
const COLUMNS: usize = 48;

/// How many answers are kept, in each of grains and pillars.
const ANSWERS: usize = 512;

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

    /// Which of the candidates match the expression.
    pub(super) fn matching(
        &mut self,
        kind: Kind,
        question: Question<'_>,
        candidates: &[MinionId],
        compile: impl FnOnce() -> Option<Subdict>,
    ) -> Bits {
        let facet = self.facet(kind);
        let answer = facet.answer(&question, |facet| match compile() {
            Some(subdict) => facet.matching(&subdict),
            None => Bits::none(facet.minions.len()),
        });
        self.standing(candidates, |slot| answer.contains(slot))
    }

    /// Which of the candidates have a top-level grain that `holds` says yes to.
    pub(super) fn with_grain(
        &mut self,
        name: &str,
        candidates: &[MinionId],
        holds: impl Fn(&Value) -> bool,
    ) -> Bits {
        let facet = &mut self.grains;
        let column = facet.column(name, None);
        let answer = facet.holding(&column, holds);
        self.standing(candidates, |slot| answer.contains(slot))
    }

    /// Which of the candidates have cached data, matching or not.
    pub(super) fn known(&mut self, candidates: &[MinionId]) -> Bits {
        self.standing(candidates, |_| true)
    }

    fn facet(&mut self, kind: Kind) -> &mut Facet {
        match kind {
            Kind::Grains => &mut self.grains,
            Kind::Pillar => &mut self.pillar,
        }
    }

    fn standing(&mut self, candidates: &[MinionId], holds: impl Fn(usize) -> bool) -> Bits {
        if self.order.membership != self.membership || self.order.ids != candidates {
            let slot = |id: &MinionId| self.slots.get(id).copied().unwrap_or(NONE);
            self.order = Order {
                slots: candidates.iter().map(slot).collect(),
                ids: candidates.to_vec(),
                membership: self.membership,
            };
        }
        let slots = &self.order.slots;
        Bits::of(slots.len(), |at| {
            slots
                .get(at)
                .is_some_and(|slot| *slot != NONE && holds(*slot as usize))
        })
    }
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
    answers: HashMap<(String, String, How), Arc<Bits>>,
    /// Counts uses of columns, to know the one that was not used for the longest time.
    uses: u64,
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
            self.answers.clear();
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
            self.answers.clear();
            self.update_columns(slot);
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

    fn answer(
        &mut self,
        question: &Question<'_>,
        ask: impl FnOnce(&mut Self) -> Bits,
    ) -> Arc<Bits> {
        let key = (
            question.text.to_owned(),
            question.delimiter.to_owned(),
            question.how,
        );
        if let Some(known) = self.answers.get(&key) {
            return Arc::clone(known);
        }
        let answer = Arc::new(ask(self));
        if self.answers.len() >= ANSWERS {
            self.answers.clear();
        }
        self.answers.insert(key, Arc::clone(&answer));
        answer
    }

    fn matching(&mut self, subdict: &Subdict) -> Bits {
        let mut matching = self.matching_under_first(subdict);
        if let Some(everything) = subdict.over_everything() {
            matching.unite(&self.matching_everything(everything));
        }
        matching
    }

    fn matching_under_first(&mut self, subdict: &Subdict) -> Bits {
        let Part { text, loaded, .. } = subdict.first();
        let column = self.column(text, loaded.clone());
        self.holding(&column, |value| {
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
    fn holding(&self, column: &[u32], holds: impl Fn(&Value) -> bool) -> Bits {
        let mut answers: Vec<Option<bool>> = vec![None; self.values.len()];
        Bits::of(column.len(), |slot| {
            let Some(value) = column.get(slot).copied().filter(|value| *value != NONE) else {
                return false;
            };
            let Some(answer) = answers.get_mut(value as usize) else {
                return false;
            };
            *answer.get_or_insert_with(|| self.values.get(value).is_some_and(&holds))
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
