//! Which minions a target of any kind means: what stock's `CkMinions` does
//! (`salt/utils/minions.py`).
//!
//! Candidates are the accepted minions; grains and pillars are those that the master has cached
//! and come through [`MinionData`]. An answer is what the master *expects*; each minion decides for
//! itself once more. Whoever wants stock's behaviour takes an error for "nobody".
//!
//! # Where this differs from stock, and why
//! - Only minions with an accepted key, and what these manage, are ever found. Stock's non-greedy
//!   searches go over the cache, where the data of a deleted key may still lie.
//! - `ipcidr`: a grain that holds no address matches nothing. In stock it is an error, so that one
//!   minion could make every such target mean nobody.
//! - A cache entry that cannot be read counts as absent; in stock the whole target means nobody.
//! - `R@` and `range` work without a range server as far as the expression allows. In stock `R@`
//!   is an error always, `range` wherever `seco.range` is not installed.
//! - `minion_data_cache: False` with a compound target means all minions, as in 3006 and 3007;
//!   3008 fails and means nobody.
//! - A target has at most 64 KiB, lists of ids aside, and a compound target at most 10,000 words.
//! - A value costs a bounded number of steps, a regular expression is held against texts of at most
//!   16 KiB, and a path has bounds on its length, its parts and its nesting. Beyond them nothing
//!   matches. What a search costs in all has a bound too (`budget.rs`); beyond it the target is an
//!   error.
//! - `T@type:id` of a resource that nobody has registered means nobody; stock 3008 waits for it all
//!   the same. A resource never has the name of an accepted minion.
//! - Regular expressions are those of `fancy-regex`; Python's rarer syntax (`(?(1)a|b)` on
//!   names, `\N{…}`) is an error.

mod bits;
mod budget;
mod compound;
#[cfg(test)]
mod differential;
mod glob;
mod index;
#[cfg(test)]
mod index_tests;
mod ipcidr;
pub mod mine;
mod nodegroups;
mod pool;
mod python;
mod range;
mod resources;
pub mod single;
mod subdict;
mod view;

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use saltern_model::{Compat, MinionId, Target, TargetType};
use saltern_wire::msgpack::Value;

pub use nodegroups::Nodegroups;
pub use range::RangeError;
pub use resources::{Inventory, Resource};

use crate::expression::PatternCache;
use crate::target::{Candidates, Problems, Resolved, TargetError, Targeting};
use bits::Bits;
use budget::{Allowance, Budget};
use compound::Word;
use glob::Stars;
use index::{Index, Kind, Order, Question};
use ipcidr::Network;
use resources::Universe;
use subdict::{How, Subdict};
use view::Test;

/// The most bytes that a target may have, beside lists of ids.
const MAX_BYTES: usize = 64 << 10;

/// The grains and pillars that the master has cached.
pub trait MinionData: Send + Sync {
    /// The cached grains of a minion; nothing when there are none.
    fn grains(&self, id: &MinionId) -> Option<Arc<Value>>;
    /// The cached pillar of a minion.
    fn pillar(&self, id: &MinionId) -> Option<Arc<Value>>;
    /// The minions with an entry in the cache, sorted: in 3008 those with grains, before those
    /// with a directory of their own.
    fn known(&self) -> Arc<[MinionId]>;
    /// What has changed after the generation `since`, and which generation it is now.
    ///
    /// An entry that changes after this call must be part of a later generation, so that whoever
    /// reads the data after this call misses nothing.
    fn changes(&self, since: Option<u64>) -> Changes;
}

/// An answer of [`MinionData::changes`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// The present generation. It never returns to a number that it had.
    pub generation: u64,
    /// What has changed since the generation in the question.
    pub changed: Changed,
}

/// Which minions' data has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// These; it may also be that some of them have not.
    These(Vec<MinionId>),
    /// Possibly all.
    Everything,
}

/// What targets of a site mean, beside the ids of its minions.
pub struct Site {
    /// The version whose rules hold (`salt_compat`).
    pub compat: Compat,
    /// The option `nodegroups`.
    pub nodegroups: Nodegroups,
    /// The cached grains and pillars; nothing with `minion_data_cache: False`.
    pub data: Option<Arc<dyn MinionData>>,
    /// The resources that minions have registered; only 3008 looks at them.
    resources: RwLock<Arc<Inventory>>,
    index: Mutex<Index>,
}

impl Site {
    /// A site with this cache.
    pub fn new(compat: Compat, nodegroups: Nodegroups, data: Option<Arc<dyn MinionData>>) -> Self {
        Self {
            compat,
            nodegroups,
            data,
            resources: RwLock::default(),
            index: Mutex::default(),
        }
    }
}

/// How a target is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchOptions<'a> {
    /// What separates the parts of a path in grain and pillar targets. Compound targets have their
    /// own.
    pub delimiter: &'a str,
    /// Whether a minion without cached data may be part of the answer. Only `ipcidr` and a master
    /// without a cache make a difference. `false` where an answer grants something.
    pub greedy: bool,
    /// Pillars are compared exactly, also by `I@`, `J@`, `pillar` and `pillar_pcre`: stock's
    /// `pillar_exact` and `compound_pillar_exact`, for targets that minions choose.
    pub exact_pillar: bool,
    /// Minions answer for their resources in one return (`state.apply` and its kin), so a wildcard
    /// means the minions alone.
    pub merges_resources: bool,
    /// The search may cost a tenth of what others may: one answer needs many.
    pub is_brief: bool,
}

impl Default for MatchOptions<'_> {
    fn default() -> Self {
        Self {
            delimiter: ":",
            greedy: true,
            exact_pillar: false,
            merges_resources: false,
            is_brief: false,
        }
    }
}

/// One target being resolved.
struct Search<'a> {
    site: &'a Site,
    patterns: &'a PatternCache,
    ids: &'a [MinionId],
    /// With resources among the ids.
    universe: Option<&'a Universe<'a>>,
    options: MatchOptions<'a>,
    /// What all words together may still cost.
    allowance: Allowance,
    /// Whether the index knows what had changed before the search began. Each word then sees the
    /// index of its own moment, as in stock each word reads the cache.
    is_refreshed: Cell<bool>,
    order: RefCell<Option<Arc<Order>>>,
    problems: RefCell<Problems>,
}

impl Targeting {
    /// The minions among `candidates` that `target` means.
    ///
    /// # Errors
    /// Where stock logs an error and goes on with nobody, and beyond the limits on what a target
    /// may be and cost.
    pub fn resolve_with(
        &self,
        target: &Target,
        candidates: &impl Candidates,
        options: &MatchOptions<'_>,
    ) -> Result<Resolved, TargetError> {
        check_size(target, options)?;
        let Some(site) = &self.site else {
            return self.resolve_ids(target, candidates);
        };
        let inventory = match site.compat {
            Compat::V3008 => Arc::clone(&site.resources.read()),
            Compat::V3006 | Compat::V3007 => Arc::default(),
        };
        if inventory.is_empty() {
            return self.resolve_among(site, None, target, candidates, options);
        }
        let universe = Universe::new(&inventory, candidates.ids());
        self.resolve_among(site, Some(&universe), target, candidates, options)
    }

    fn resolve_among(
        &self,
        site: &Site,
        universe: Option<&Universe<'_>>,
        target: &Target,
        candidates: &impl Candidates,
        options: &MatchOptions<'_>,
    ) -> Result<Resolved, TargetError> {
        let (kind, text) = match target {
            Target::List(_) | Target::Expression(TargetType::List, _) => {
                let resolved = self.resolve_ids(target, candidates)?;
                return Ok(match universe {
                    Some(universe) => universe.found_among_missing(resolved),
                    None => resolved,
                });
            }
            Target::Expression(kind, text) => (*kind, text.as_str()),
            Target::Words(_) => (TargetType::Compound, ""),
        };
        if kind == TargetType::Range {
            let names = range::expand(text)?;
            let names = names.iter().map(String::as_str);
            return Ok(crate::target::by_list(names, candidates));
        }
        let search = Search {
            site,
            patterns: &self.patterns,
            ids: universe.map_or(candidates.ids(), |universe| &universe.ids),
            universe,
            options: *options,
            allowance: Allowance::of_search(options.is_brief),
            is_refreshed: Cell::new(false),
            order: RefCell::new(None),
            problems: RefCell::default(),
        };
        let (found, missing) = match kind {
            TargetType::Compound => search.compound(match target {
                Target::Words(words) => words.clone(),
                _ => compound::words(text),
            })?,
            TargetType::Nodegroup => {
                let groups = &site.nodegroups;
                let words = groups.expand(text, &mut search.problems.borrow_mut())?;
                search.compound(words)?
            }
            TargetType::Glob => (search.glob_with_resources(text)?, Vec::new()),
            other => (search.simple(other, text, options.delimiter)?, Vec::new()),
        };
        let minions = found.iter().filter_map(|at| search.ids.get(at).cloned());
        Ok(Resolved {
            minions: minions.collect(),
            missing,
            problems: search.problems.take(),
        })
    }
}

impl Targeting {
    /// From now on these are the resources of minions. `inventory` is asked while nobody else can
    /// set them, so the last one to be set is the newest.
    ///
    /// # Errors
    /// Those of `inventory`; then nothing has changed.
    pub fn set_resources<E>(
        &self,
        inventory: impl FnOnce() -> Result<Inventory, E>,
    ) -> Result<(), E> {
        if let Some(site) = &self.site {
            let mut resources = site.resources.write();
            *resources = Arc::new(inventory()?);
        }
        Ok(())
    }

    /// Takes over now what has changed in the cached data, so that the next target need not. Reads
    /// every minion that has changed: for a thread that may wait.
    pub fn refresh(&self) {
        let site = self.site.as_ref();
        if let Some((site, data)) = site.and_then(|site| Some((site, site.data.as_ref()?))) {
            site.index.lock().refresh(data.as_ref());
        }
    }
}

/// One limit at the door for what others choose, before any work is done. Lists of ids are excepted,
/// also as words of compound targets: they are as long as fleets are large.
fn check_size(target: &Target, options: &MatchOptions<'_>) -> Result<(), TargetError> {
    let of_words = |words: &mut dyn Iterator<Item = &str>| {
        let counted = words.filter(|word| !word.starts_with("L@"));
        counted.map(|word| word.len() + 1).sum()
    };
    let size: usize = match target {
        Target::List(_) | Target::Expression(TargetType::List, _) => 0,
        Target::Words(words) => of_words(&mut words.iter().map(String::as_str)),
        Target::Expression(TargetType::Compound, text) => of_words(&mut python::words(text)),
        Target::Expression(_, text) => text.len(),
    };
    match size.saturating_add(options.delimiter.len()) > MAX_BYTES {
        true => Err(TargetError::TooLong),
        false => Ok(()),
    }
}

impl Search<'_> {
    fn simple(&self, kind: TargetType, text: &str, delimiter: &str) -> Result<Bits, TargetError> {
        // A resource answers to its bare name, which only a glob can be.
        let found = self.search(kind, text, delimiter)?;
        let Some(universe) = self.universe.filter(|_| kind != TargetType::Glob) else {
            return Ok(found);
        };
        let mut found = universe.only_minions(found);
        let how = match kind {
            TargetType::Grain => How::Glob,
            TargetType::GrainPcre => How::Regex,
            _ => return Ok(found),
        };
        let test = Subdict::compile(text, delimiter, how, self.patterns);
        if let Some(test) = test.filter(|_| self.site.data.is_some()) {
            let budget = || Budget::of(&self.allowance);
            found.unite(&universe.with_grains(|grains| test.matches(grains, &budget())));
            self.check_allowance()?;
        }
        Ok(found)
    }

    /// A wildcard over minions stands for what they manage, too; a name stands for itself.
    fn glob_with_resources(&self, text: &str) -> Result<Bits, TargetError> {
        let mut found = self.glob(text)?;
        let universe = self.universe.filter(|_| !self.options.merges_resources);
        if let Some(universe) = universe.filter(|_| text.contains(['*', '?', '['])) {
            found.unite(&universe.managed_by(&found));
        }
        Ok(found)
    }

    /// Every minion, without their resources.
    fn everybody(&self) -> Bits {
        match self.universe {
            Some(universe) => universe.minions(),
            None => Bits::all(self.ids.len()),
        }
    }

    fn search(&self, kind: TargetType, text: &str, delimiter: &str) -> Result<Bits, TargetError> {
        let exact = self.options.exact_pillar;
        match kind {
            TargetType::Glob => self.glob(text),
            TargetType::Pcre => {
                let pattern = self.patterns.regex_at_start(text)?;
                self.allowance.look();
                let found = self.matching_ids(|id| {
                    let (is_match, steps) = pattern.matches_counting(id);
                    self.allowance.spend(steps) && is_match
                });
                self.check_allowance()?;
                Ok(found)
            }
            TargetType::Grain => self.data(Kind::Grains, text, delimiter, How::Glob),
            TargetType::GrainPcre => self.data(Kind::Grains, text, delimiter, How::Regex),
            TargetType::Pillar | TargetType::PillarPcre | TargetType::PillarExact => {
                let how = match kind {
                    TargetType::Pillar if !exact => How::Glob,
                    TargetType::PillarPcre if !exact => How::Regex,
                    _ => How::Exact,
                };
                self.data(Kind::Pillar, text, delimiter, how)
            }
            TargetType::Ipcidr => self.network(text),
            TargetType::List | TargetType::Range | TargetType::Nodegroup | TargetType::Compound => {
                Err(TargetError::Unsupported(kind))
            }
        }
    }

    fn compound(&self, words: Vec<String>) -> Result<(Bits, Vec<String>), TargetError> {
        if self.site.data.is_none() {
            return Ok((self.everybody(), Vec::new()));
        }
        compound::resolve(
            words,
            &self.site.nodegroups,
            self.site.compat,
            &self.everybody(),
            &self.problems,
            |word, ignores_missing| self.word(word, ignores_missing),
        )
    }

    fn word(
        &self,
        word: Word<'_>,
        ignores_missing: bool,
    ) -> Result<(Bits, Vec<String>), TargetError> {
        // Every word has a set of its own.
        if !self.allowance.spend(1 + self.ids.len() / 64) {
            return Err(TargetError::TooMuchWork);
        }
        let mut buffer = [0; 4];
        let delimiter = word.delimiter.map_or(":", |c| c.encode_utf8(&mut buffer));
        let kind = match word.engine {
            None | Some('M') => TargetType::Glob,
            Some('G') => TargetType::Grain,
            Some('P') => TargetType::GrainPcre,
            Some('I') => TargetType::Pillar,
            Some('J') => TargetType::PillarPcre,
            Some('S') => TargetType::Ipcidr,
            Some('E') => TargetType::Pcre,
            Some('L') => {
                let names = word.pattern.split(',').filter(|name| !name.is_empty());
                let (found, missing) = self.list(names);
                let missing = if ignores_missing { Vec::new() } else { missing };
                return Ok((found, missing));
            }
            Some('R') => {
                let names = range::expand(word.pattern)?;
                self.allowance.look();
                self.check_allowance()?;
                return Ok((self.list(names.iter().map(String::as_str)).0, Vec::new()));
            }
            // `T@`; without resources nobody.
            Some(_) => {
                let named = self.universe.map(|universe| universe.named(word.pattern));
                return Ok((
                    named.unwrap_or_else(|| Bits::none(self.ids.len())),
                    Vec::new(),
                ));
            }
        };
        Ok((self.simple(kind, word.pattern, delimiter)?, Vec::new()))
    }

    fn list<'n>(&self, names: impl Iterator<Item = &'n str>) -> (Bits, Vec<String>) {
        let mut found = Bits::none(self.ids.len());
        let mut missing = Vec::new();
        for name in names {
            match self.position(name) {
                Some(at) => found.insert(at),
                None => missing.push(name.to_owned()),
            }
        }
        (found, missing)
    }

    /// 3008 takes commas in a wildcard for a list of wildcards (`glob_match` in `salt/key.py`).
    fn glob(&self, text: &str) -> Result<Bits, TargetError> {
        if self.site.compat != Compat::V3008 || !text.contains(',') {
            return self.one_glob(text);
        }
        let mut found = Bits::none(self.ids.len());
        for pattern in text.split(',') {
            found.unite(&self.one_glob(pattern)?);
        }
        Ok(found)
    }

    fn one_glob(&self, text: &str) -> Result<Bits, TargetError> {
        let pattern = self.patterns.glob(text)?;
        if let Some(name) = pattern.literal() {
            return Ok(self.list(std::iter::once(name)).0);
        }
        // The ids that begin as the pattern does stand together.
        let prefix_end = text.find(['*', '?', '[']).unwrap_or(text.len());
        let (prefix, rest) = text.split_at(prefix_end);
        let start = self.ids.partition_point(|id| id.as_str() < prefix);
        let is_alike = |id: &MinionId| id.as_str().starts_with(prefix);
        let alike = self.ids.get(start..).unwrap_or_default();
        let alike = alike.partition_point(is_alike);
        let mut found = Bits::none(self.ids.len());
        let stars = Stars::read(text);
        self.allowance.look();
        if !self.allowance.spend(alike) {
            return Err(TargetError::TooMuchWork);
        }
        let matches = |id: &str| match &stars {
            Some(stars) => stars.matches(id),
            None => pattern.matches(id),
        };
        for (at, id) in self.ids.iter().enumerate().skip(start).take(alike) {
            if rest == "*" || matches(id.as_str()) {
                found.insert(at);
            }
        }
        Ok(match self.universe {
            Some(universe) => universe.only_minions(found),
            None => found,
        })
    }

    fn data(&self, kind: Kind, text: &str, delimiter: &str, how: How) -> Result<Bits, TargetError> {
        if delimiter.is_empty() {
            return Err(TargetError::Delimiter);
        }
        let Some(data) = &self.site.data else {
            return Ok(self.without_cache());
        };
        let question = Question {
            text,
            delimiter,
            how,
        };
        let (_, found) = self.answer(data.as_ref(), kind, &question, || {
            Subdict::compile(text, delimiter, how, self.patterns).map(Test::Subdict)
        })?;
        Ok(found)
    }

    fn network(&self, text: &str) -> Result<Bits, TargetError> {
        let Some(data) = &self.site.data else {
            return Ok(self.without_cache());
        };
        let Some(network) = Network::parse(text) else {
            // No error in stock either: in a compound target the other words still count.
            let mut problems = self.problems.borrow_mut();
            problems.add(text, "is neither an address nor a network");
            return Ok(Bits::none(self.ids.len()));
        };
        let question = Question {
            text,
            delimiter: "",
            how: How::Network,
        };
        let test = || Some(Test::Network(network));
        let (order, found) = self.answer(data.as_ref(), Kind::Grains, &question, test)?;
        if !self.options.greedy {
            return Ok(found);
        }
        // Whoever has no cached data might have the address.
        let mut greedy = Bits::all(self.ids.len());
        greedy.subtract(&order.standing(|_| true));
        greedy.unite(&found);
        Ok(greedy)
    }

    /// Which of the candidates match the question, and where they stand. The index is locked
    /// before and after the work, not during it.
    fn answer(
        &self,
        data: &dyn MinionData,
        kind: Kind,
        question: &Question<'_>,
        compile: impl FnOnce() -> Option<Test>,
    ) -> Result<(Arc<Order>, Bits), TargetError> {
        let known = self.with_index(data, |index, order| {
            let answer = index.answer(kind, question)?;
            Some((Arc::clone(order), answer))
        });
        let (order, answer) = match known {
            Some(known) => known,
            None => {
                let test = compile();
                self.allowance.look();
                self.check_allowance()?;
                let (order, view) = self.with_index(data, |index, order| {
                    (Arc::clone(order), index.view(kind, question, test.as_ref()))
                });
                let answer = Arc::new(view.matching(test.as_ref(), &self.allowance));
                self.check_allowance()?;
                let at = view.at;
                drop(view);
                let mut index = self.site.index.lock();
                index.remember(kind, question, Arc::clone(&answer), at);
                (order, answer)
            }
        };
        let found = order.standing(|slot| answer.contains(slot));
        Ok((order, found))
    }

    fn with_index<T>(
        &self,
        data: &dyn MinionData,
        ask: impl FnOnce(&mut Index, &Arc<Order>) -> T,
    ) -> T {
        let mut index = self.site.index.lock();
        if !self.is_refreshed.replace(true) {
            index.refresh(data);
        }
        let mut order = self.order.borrow_mut();
        let now = index.arrange(self.ids, order.as_ref());
        ask(&mut index, order.insert(now))
    }

    /// Half an answer is none.
    fn check_allowance(&self) -> Result<(), TargetError> {
        match self.allowance.is_exhausted() {
            true => Err(TargetError::TooMuchWork),
            false => Ok(()),
        }
    }

    /// Without a cache every minion may match, or none.
    fn without_cache(&self) -> Bits {
        match self.options.greedy {
            true => Bits::all(self.ids.len()),
            false => Bits::none(self.ids.len()),
        }
    }

    fn matching_ids(&self, matches: impl Fn(&str) -> bool) -> Bits {
        Bits::of(self.ids.len(), |at| {
            self.ids.get(at).is_some_and(|id| matches(id.as_str()))
        })
    }

    fn position(&self, name: &str) -> Option<usize> {
        self.ids.binary_search_by(|id| id.as_str().cmp(name)).ok()
    }
}
