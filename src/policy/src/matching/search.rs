//! One search: the candidates that each engine of a target matches.
//!
//! Work whose cost clients or minions choose is charged to one budget, and done without the lock of
//! the index.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use saltern_model::{Compat, MinionId, TargetType};

use super::bits::Bits;
use super::budget::{Allowance, Budget};
use super::compound::{self, EngineWord};
use super::index::{Index, Kind, Order, QueryKey};
use super::ipcidr::Network;
use super::range;
use super::resources::Universe;
use super::subdict::{MatchKind, Subdict};
use super::view::Test;
use super::{MatchOptions, MinionData, Site};
use crate::expression::PatternCache;
use crate::target::{Problems, TargetError, names_in_list};

/// One target being resolved.
pub(super) struct Search<'a> {
    site: &'a Site,
    patterns: &'a PatternCache,
    pub(super) ids: &'a [MinionId],
    /// With resources among the ids.
    universe: Option<&'a Universe<'a>>,
    options: MatchOptions<'a>,
    /// Remaining budget for all words together.
    allowance: Allowance,
    /// Whether the index knows what had changed before the search began. Each word then sees the
    /// index of its own moment, as in stock each word reads the cache.
    is_refreshed: Cell<bool>,
    order: RefCell<Option<Arc<Order>>>,
    pub(super) problems: RefCell<Problems>,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        site: &'a Site,
        patterns: &'a PatternCache,
        ids: &'a [MinionId],
        universe: Option<&'a Universe<'a>>,
        options: MatchOptions<'a>,
    ) -> Self {
        Self {
            site,
            patterns,
            ids,
            universe,
            options,
            allowance: Allowance::of_search(options.is_brief),
            is_refreshed: Cell::new(false),
            order: RefCell::new(None),
            problems: RefCell::default(),
        }
    }
}

impl Search<'_> {
    pub(super) fn simple(
        &self,
        kind: TargetType,
        text: &str,
        delimiter: &str,
    ) -> Result<Bits, TargetError> {
        // A resource answers to its bare name, which only a glob can be.
        let found = self.search(kind, text, delimiter)?;
        let Some(universe) = self.universe.filter(|_| kind != TargetType::Glob) else {
            return Ok(found);
        };
        let mut found = universe.only_minions(found);
        let how = match kind {
            TargetType::Grain => MatchKind::Glob,
            TargetType::GrainPcre => MatchKind::Regex,
            _ => return Ok(found),
        };
        let test = self.compile(text, delimiter, how);
        if let Some(test) = test.filter(|_| self.site.data.is_some()) {
            let budget = || Budget::of(&self.allowance);
            found.unite(&universe.with_grains(|grains| test.matches(grains, &budget())));
            self.check_allowance()?;
        }
        Ok(found)
    }

    /// A wildcard over minions stands for what they manage, too; a name stands for itself.
    pub(super) fn glob_with_resources(&self, text: &str) -> Result<Bits, TargetError> {
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
                let found =
                    self.matching_ids(|id| self.allowance.settle(pattern.matches_counting(id)));
                self.check_allowance()?;
                Ok(found)
            }
            TargetType::Grain => self.data(Kind::Grains, text, delimiter, MatchKind::Glob),
            TargetType::GrainPcre => self.data(Kind::Grains, text, delimiter, MatchKind::Regex),
            TargetType::Pillar | TargetType::PillarPcre | TargetType::PillarExact => {
                let how = match kind {
                    TargetType::Pillar if !exact => MatchKind::Glob,
                    TargetType::PillarPcre if !exact => MatchKind::Regex,
                    _ => MatchKind::Exact,
                };
                self.data(Kind::Pillar, text, delimiter, how)
            }
            TargetType::Ipcidr => self.network(text),
            TargetType::List | TargetType::Range | TargetType::Nodegroup | TargetType::Compound => {
                Err(TargetError::Unsupported(kind))
            }
        }
    }

    pub(super) fn compound(&self, words: Vec<String>) -> Result<(Bits, Vec<String>), TargetError> {
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
        word: EngineWord<'_>,
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
                let (found, missing) = self.list(names_in_list(word.pattern));
                let missing = if ignores_missing { Vec::new() } else { missing };
                return Ok((found, missing));
            }
            Some('R') => {
                let names = range::expand_if(self.options.expands_ranges, word.pattern)?;
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
        self.allowance.look();
        if !self.allowance.spend(alike) {
            return Err(TargetError::TooMuchWork);
        }
        for (at, id) in self.ids.iter().enumerate().skip(start).take(alike) {
            if rest == "*" || pattern.matches(id.as_str()) {
                found.insert(at);
            }
        }
        Ok(match self.universe {
            Some(universe) => universe.only_minions(found),
            None => found,
        })
    }

    fn data(
        &self,
        kind: Kind,
        text: &str,
        delimiter: &str,
        how: MatchKind,
    ) -> Result<Bits, TargetError> {
        if delimiter.is_empty() {
            return Err(TargetError::Delimiter);
        }
        let Some(data) = &self.site.data else {
            return Ok(self.without_cache());
        };
        let question = QueryKey {
            text,
            delimiter,
            how,
        };
        let (_, found) = self.answer(data.as_ref(), kind, &question, || {
            self.compile(text, delimiter, how).map(Test::Subdict)
        })?;
        Ok(found)
    }

    /// Nothing for an expression that matches nothing; where that is because it is too long or has
    /// too many parts, minions may think differently.
    fn compile(&self, text: &str, delimiter: &str, how: MatchKind) -> Option<Subdict> {
        let compiled = Subdict::compile(text, delimiter, how, self.patterns);
        if compiled.is_none() && text.contains(delimiter) {
            self.allowance.cut();
        }
        compiled
    }

    /// Whether minions that this search did not find may still match the target themselves.
    pub(super) fn may_mean_more(&self) -> bool {
        self.allowance.is_cut()
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
        let question = QueryKey {
            text,
            delimiter: "",
            how: MatchKind::Network,
        };
        let test = || Some(Test::Network(network));
        let (order, found) = self.answer(data.as_ref(), Kind::Grains, &question, test)?;
        if !self.options.greedy {
            return Ok(found);
        }
        // A minion without cached data might have the address.
        let mut greedy = Bits::all(self.ids.len());
        greedy.subtract(&order.standing(|_| true));
        greedy.unite(&found);
        Ok(greedy)
    }

    /// The candidates that match the query, and their positions. The index is locked before and
    /// after the work, not during it.
    fn answer(
        &self,
        data: &dyn MinionData,
        kind: Kind,
        question: &QueryKey<'_>,
        compile: impl FnOnce() -> Option<Test>,
    ) -> Result<(Arc<Order>, Bits), TargetError> {
        let known = self.allowance.excuse(|| {
            self.with_index(data, |index, order| {
                let answer = index.answer(kind, question)?;
                Some((Arc::clone(order), answer))
            })
        });
        let (order, answer) = match known {
            Some(known) => known,
            None => {
                let test = compile();
                self.allowance.look();
                self.check_allowance()?;
                let (order, view) = self.allowance.excuse(|| {
                    self.with_index(data, |index, order| {
                        (Arc::clone(order), index.view(kind, question, test.as_ref()))
                    })
                });
                let answer = Arc::new(view.matching(test.as_ref(), &self.allowance));
                self.check_allowance()?;
                let at = view.at;
                drop(view);
                // What is kept does not say that something was cut.
                if !self.allowance.is_cut() {
                    let mut index = self.site.index.lock();
                    index.remember(kind, question, Arc::clone(&answer), at);
                }
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
        let is_refreshed = self.is_refreshed.replace(true);
        if !is_refreshed {
            self.site.read_ahead(data);
        }
        let mut index = self.site.index.lock();
        if !is_refreshed {
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

#[cfg(test)]
mod tests;
