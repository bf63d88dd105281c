//! The cached grains and pillars of all minions, laid out for matching.
//!
//! Minions resemble each other, so every different value of a top-level grain is kept once and a
//! minion is a short list of pairs of numbers (name, value). A target is then held against each
//! different value once, not against each minion, and the answer is kept until some minion's data
//! really changes. What has changed is asked of the [`MinionData`], which alone knows the disk.
//!
//! Nothing here holds an expression against data: that takes as long as others want, and all
//! searches share one index. It hands out a [`View`] for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use saltern_model::{Changed, MinionId};
use saltern_wire::msgpack::Value;

use super::MinionData;
use super::bits::Bits;
use super::pool::{NONE, Pool, Values};
use super::python::Loaded;
use super::subdict::MatchKind;
use super::view::{Minions, Outdated, Test, View, lookup};

/// How many names are kept ready as columns, in each of grains and pillars.
const COLUMNS: usize = 48;

/// How many bytes the answers that are kept may take, in each of grains and pillars.
const ANSWERS: usize = 16 << 20;

/// The longest expression, in bytes, whose answer is kept: minions choose them, too.
const MAX_KEPT_LENGTH: usize = 1024;

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
    order: Arc<Order>,
    progress: Arc<Progress>,
}

/// How far a reading of all minions is. Read by those who cannot wait for the index.
#[derive(Debug, Default)]
pub(super) struct Progress {
    read: AtomicUsize,
    minions: AtomicUsize,
}

impl Progress {
    /// How many minions have been read, and how many there are.
    pub(super) fn now(&self) -> (usize, usize) {
        let read = self.read.load(Ordering::Relaxed);
        (read, self.minions.load(Ordering::Relaxed))
    }
}

/// Changes of this many minions at most are read before the index is locked: they are all in memory
/// at a time.
const READ_AHEAD: usize = 64;

/// Grains and pillar of one minion.
type Read = (Option<Arc<Value>>, Option<Arc<Value>>);

/// The data of minions that have changed, read without the index.
pub(super) struct Fresh {
    generation: u64,
    /// `None` for a minion without data any more.
    minions: Vec<(MinionId, Option<Read>)>,
}

impl Fresh {
    /// Reads the changes since; `None` when there are none, or too many.
    pub(super) fn read(data: &dyn MinionData, since: Option<u64>) -> Option<Self> {
        let changes = data.changes(since);
        let Changed::These(ids) = changes.changed else {
            return None;
        };
        if since == Some(changes.generation) || ids.len() > READ_AHEAD {
            return None;
        }
        let known = data.known();
        let read = |id: MinionId| {
            let is_known = known.binary_search(&id).is_ok();
            let read = is_known.then(|| (data.grains(&id), data.pillar(&id)));
            (id, read)
        };
        Some(Self {
            generation: changes.generation,
            minions: ids.into_iter().map(read).collect(),
        })
    }
}

/// Position of each minion in a sorted list of candidates.
#[derive(Default)]
pub(super) struct Order {
    ids: Vec<MinionId>,
    slots: Vec<u32>,
    membership: u64,
}

impl Index {
    /// Up to which change the data is known.
    pub(super) fn seen(&self) -> Option<u64> {
        self.seen
    }

    /// How far a reading of all minions is, without the index.
    pub(super) fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    /// Takes over what was read beside the index; `false`, and nothing has changed, when others have
    /// taken over changes since.
    pub(super) fn take_over(&mut self, since: Option<u64>, fresh: &Fresh) -> bool {
        if self.seen != since {
            return false;
        }
        for (id, data) in &fresh.minions {
            match data {
                Some((grains, pillar)) => self.place(id, grains.as_deref(), pillar.as_deref()),
                None => self.remove(id),
            }
        }
        self.seen = Some(fresh.generation);
        true
    }

    /// Applies changes.
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
                self.progress.minions.store(known.len(), Ordering::Relaxed);
                self.progress.read.store(0, Ordering::Relaxed);
                for id in known.iter() {
                    self.load(id, data);
                    self.progress.read.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        self.seen = Some(changes.generation);
    }

    fn load(&mut self, id: &MinionId, data: &dyn MinionData) {
        self.place(id, data.grains(id).as_deref(), data.pillar(id).as_deref());
    }

    fn place(&mut self, id: &MinionId, grains: Option<&Value>, pillar: Option<&Value>) {
        let slot = self.slots.get(id).copied().unwrap_or_else(|| {
            let next = u32::try_from(self.slots.len()).unwrap_or(NONE);
            let slot = self.free.pop().unwrap_or(next);
            self.slots.insert(id.clone(), slot);
            self.membership += 1;
            slot
        });
        self.grains.replace(slot, grains);
        self.pillar.replace(slot, pillar);
    }

    fn remove(&mut self, id: &MinionId) {
        if let Some(slot) = self.slots.remove(id) {
            self.grains.replace(slot, None);
            self.pillar.replace(slot, None);
            self.free.push(slot);
            self.membership += 1;
        }
    }

    /// The place of a minion; [`NONE`] without cached data.
    pub(super) fn slot(&self, id: &MinionId) -> u32 {
        self.slots.get(id).copied().unwrap_or(NONE)
    }

    /// For one grain the number of each minion's value, by slot.
    pub(super) fn grain_column(&mut self, name: &str) -> Arc<Vec<u32>> {
        self.grains.column(name, None)
    }

    /// The values of grains by their numbers.
    pub(super) fn grain_values(&self) -> Values {
        self.grains.values.values().clone()
    }

    /// The present order of `candidates`. `last` is the earlier result for the same candidates.
    pub(super) fn arrange(
        &mut self,
        candidates: &[MinionId],
        last: Option<&Arc<Order>>,
    ) -> Arc<Order> {
        if let Some(last) = last.filter(|last| last.membership == self.membership) {
            return Arc::clone(last);
        }
        let is_current = self.order.membership == self.membership;
        if !is_current || !is_same_list(&self.order.ids, candidates) {
            self.order = Arc::new(Order {
                slots: candidates.iter().map(|id| self.slot(id)).collect(),
                ids: candidates.to_vec(),
                membership: self.membership,
            });
        }
        Arc::clone(&self.order)
    }

    /// The answer to a question, if it was given before and nothing has changed.
    pub(super) fn answer(&self, kind: Kind, question: &QueryKey<'_>) -> Option<Arc<Bits>> {
        self.facet(kind).answer(question)
    }

    /// The data that a test reads to answer the query.
    pub(super) fn view(
        &mut self,
        kind: Kind,
        question: &QueryKey<'_>,
        test: Option<&Test>,
    ) -> View {
        self.facet_mut(kind).view(question, test)
    }

    /// Keeps an answer that was given to a view of this moment.
    pub(super) fn remember(
        &mut self,
        kind: Kind,
        question: &QueryKey<'_>,
        bits: Arc<Bits>,
        at: u64,
    ) {
        self.facet_mut(kind)
            .remember(question, CachedMatch { bits, at });
    }

    fn facet(&self, kind: Kind) -> &Facet {
        match kind {
            Kind::Grains => &self.grains,
            Kind::Pillar => &self.pillar,
        }
    }

    fn facet_mut(&mut self, kind: Kind) -> &mut Facet {
        match kind {
            Kind::Grains => &mut self.grains,
            Kind::Pillar => &mut self.pillar,
        }
    }
}

impl Order {
    /// The candidates that match, where `holds` knows it of slots.
    pub(super) fn standing(&self, holds: impl Fn(usize) -> bool) -> Bits {
        Bits::of(self.slots.len(), |at| {
            let slot = self.slots.get(at);
            slot.is_some_and(|slot| *slot != NONE && holds(*slot as usize))
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

/// Key of a cached answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueryKey<'a> {
    pub(super) text: &'a str,
    pub(super) delimiter: &'a str,
    pub(super) how: MatchKind,
}

impl QueryKey<'_> {
    fn key(&self) -> (String, String, MatchKind) {
        (self.text.to_owned(), self.delimiter.to_owned(), self.how)
    }

    /// How many bytes it takes to keep this answer.
    fn size(&self, answer: &CachedMatch) -> usize {
        let texts = self.text.len() + self.delimiter.len();
        texts
            + answer.bits.size()
            + size_of::<CachedMatch>()
            + size_of::<(String, String, MatchKind)>()
    }
}

/// The grains, or the pillars, of all minions.
#[derive(Default)]
struct Facet {
    minions: Minions,
    names: Pool,
    values: Pool,
    /// By name, and whether a name that is something else as YAML counts, too: what is asked for by
    /// its exact name and what is part of a path may differ.
    columns: HashMap<(String, bool), Column>,
    answers: HashMap<(String, String, MatchKind), CachedMatch>,
    /// How many bytes the answers take.
    kept: usize,
    /// The slots whose data has changed, oldest first.
    changed: Vec<u32>,
    /// How many changes stood before those in `changed`.
    dropped: u64,
    /// Counts uses of columns, to know the one that was not used for the longest time.
    uses: u64,
}

/// Minions that matched, when the changes up to a number were known.
struct CachedMatch {
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
        while self.minions.len() <= slot {
            self.minions.push(Arc::default());
            for column in self.columns.values_mut() {
                Arc::make_mut(&mut column.values).push(NONE);
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
        let old = std::mem::replace(place, pairs.into());
        for (name, value) in old.iter().copied() {
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
        let pairs = self.minions.get(slot).map(Arc::as_ref).unwrap_or_default();
        for ((name, _), column) in &mut self.columns {
            let value = lookup(pairs, &self.names.keys(name, column.loaded.as_ref()));
            if let Some(place) = Arc::make_mut(&mut column.values).get_mut(slot) {
                *place = value;
            }
        }
    }

    /// How many changes there have been.
    fn now(&self) -> u64 {
        self.dropped + self.changed.len() as u64
    }

    fn answer(&self, question: &QueryKey<'_>) -> Option<Arc<Bits>> {
        let answer = self.answers.get(&question.key())?;
        (answer.at == self.now()).then(|| Arc::clone(&answer.bits))
    }

    fn view(&mut self, question: &QueryKey<'_>, test: Option<&Test>) -> View {
        let column = match test {
            Some(Test::Subdict(subdict)) => {
                let first = subdict.first();
                self.column(&first.text, first.loaded.clone())
            }
            Some(Test::Network(network)) => self.column(network.grain(), None),
            None => Arc::default(),
        };
        let old = self.answers.get(&question.key());
        let outdated = old.and_then(|old| {
            let first_new = usize::try_from(old.at.checked_sub(self.dropped)?).ok()?;
            Some(Outdated {
                bits: Arc::clone(&old.bits),
                changed: self.changed.get(first_new..)?.to_vec(),
            })
        });
        View {
            minions: self.minions.clone(),
            names: self.names.values().clone(),
            values: self.values.values().clone(),
            column,
            at: self.now(),
            outdated,
        }
    }

    fn remember(&mut self, question: &QueryKey<'_>, answer: CachedMatch) {
        let key = question.key();
        let size = question.size(&answer);
        let is_long = question.text.len() + question.delimiter.len() > MAX_KEPT_LENGTH;
        let known = self.answers.get(&key);
        if is_long || size > ANSWERS || known.is_some_and(|known| known.at > answer.at) {
            return;
        }
        if self.kept + size > ANSWERS {
            self.answers.clear();
            self.kept = 0;
        }
        self.kept += size;
        if let Some(old) = self.answers.insert(key, answer) {
            self.kept -= question.size(&old);
        }
    }

    fn column(&mut self, name: &str, loaded: Option<Loaded>) -> Arc<Vec<u32>> {
        self.uses += 1;
        let key = (name.to_owned(), loaded.is_some());
        if let Some(column) = self.columns.get_mut(&key) {
            column.used = self.uses;
            return Arc::clone(&column.values);
        }
        let keys = self.names.keys(name, loaded.as_ref());
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
