//! Matching: the minions of a target of any kind, as stock's `CkMinions` finds them
//! (`salt/utils/minions.py`).
//!
//! Candidates are the accepted minions; grains and pillars are those that the master has cached
//! and come through [`MinionData`]. An answer is what the master *expects*; each minion decides for
//! itself once more. A caller that wants stock's behaviour takes an error for "nobody".
//!
//! # Where this differs from stock, and why
//! - Only minions with an accepted key, and what these manage, are ever found. Stock's non-greedy
//!   searches go over the cache, where the data of a deleted key may still lie.
//! - `ipcidr`: a grain that holds no address matches nothing. In stock it is an error, so that one
//!   minion could make every such target mean nobody.
//! - A cache entry that cannot be read counts as absent; in stock the whole target means nobody.
//! - `R@` and `range` work without a range server as far as the expression allows, where the master
//!   alone decides ([`MatchOptions::expands_ranges`]). In stock `R@` is an error always, `range`
//!   wherever `seco.range` is not installed.
//! - `minion_data_cache: False` with a compound target means all minions, as in 3006 and 3007;
//!   3008 fails and means nobody.
//! - A target has at most 64 KiB, lists of ids aside, and a compound target at most 10,000 words.
//! - A value costs a bounded number of steps, a regular expression is held against texts of at most
//!   16 KiB, and a path has bounds on its length, its parts and its nesting. Beyond them nothing
//!   matches. What a search costs in all has a bound too (`budget.rs`); beyond it the target is an
//!   error. The minions know no such bounds, so where one was met the answer says that it may be
//!   too small ([`Resolved::may_mean_more`]).
//! - `T@type:id` of a resource that nobody has registered means nobody; stock 3008 waits for it all
//!   the same. A resource never has the name of an accepted minion.
//! - Regular expressions are read as CPython's `re` reads them, or are an error: `\N{…}`, `(?(1)a|b)`,
//!   `(?>…)`, `a*+`, flags behind the beginning, and references without regard to case
//!   (`expression/python_regex.rs`).

mod bits;
mod budget;
mod columns;
mod compound;
#[cfg(test)]
mod differential_tests;
mod explained;
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
mod search;
pub mod single;
mod subdict;
mod view;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use saltern_model::{Changed, Compat, DataChanges, MinionId, Target, TargetType};
use saltern_wire::msgpack::Value;

pub use explained::explain_compound;
pub use nodegroups::Nodegroups;
pub use range::RangeError;
pub use resources::{Inventory, Resource};

use crate::target::{Candidates, Resolved, TargetError, Targeting};
use index::{Fresh, Index, Progress};
use resources::Universe;
use search::Search;

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
    /// The changes after the generation `since`, and the present generation.
    ///
    /// An entry that changes after this call must be part of a later generation, so that a
    /// reader of the data after this call misses nothing.
    fn changes(&self, since: Option<u64>) -> DataChanges;
}

/// A cache in which nothing is, and never will be.
pub struct NoData;

impl MinionData for NoData {
    fn grains(&self, _: &MinionId) -> Option<Arc<Value>> {
        None
    }

    fn pillar(&self, _: &MinionId) -> Option<Arc<Value>> {
        None
    }

    fn known(&self) -> Arc<[MinionId]> {
        Arc::default()
    }

    fn changes(&self, _: Option<u64>) -> DataChanges {
        DataChanges {
            generation: 1,
            changed: Changed::Everything,
        }
    }
}

/// Site data for targets, beside the ids of its minions.
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
    progress: Arc<Progress>,
}

/// The index of all minions is being made, by another thread, and was not waited for any longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the grains of all minions are being read, as after each start: {read} of {minions} so far; \
     ask again in a moment"
)]
pub struct BeingIndexed {
    /// Minions that have been read.
    pub read: usize,
    /// Minions with cached data.
    pub minions: usize,
}

impl Site {
    /// A site with this cache.
    pub fn new(compat: Compat, nodegroups: Nodegroups, data: Option<Arc<dyn MinionData>>) -> Self {
        let index = Index::default();
        Self {
            compat,
            nodegroups,
            data,
            resources: RwLock::default(),
            progress: index.progress(),
            index: Mutex::new(index),
        }
    }

    /// Reads what has changed while others can use the index. What is left of the changes, or came
    /// meanwhile, is taken over under the lock ([`Index::refresh`]).
    fn read_ahead(&self, data: &dyn MinionData) {
        let since = self.index.lock().seen();
        if let Some(fresh) = Fresh::read(data, since) {
            self.index.lock().take_over(since, &fresh);
        }
    }
}

/// How a target is to be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchOptions<'a> {
    /// Separator of the parts of a path in grain and pillar targets. Compound targets have their
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
    /// `R@` and `range` are resolved as far as that is possible without a range server. `false`
    /// where minions are to decide for themselves: without `seco.range` they match none.
    pub expands_ranges: bool,
}

impl Default for MatchOptions<'_> {
    fn default() -> Self {
        Self {
            delimiter: ":",
            greedy: true,
            exact_pillar: false,
            merges_resources: false,
            is_brief: false,
            expands_ranges: true,
        }
    }
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
            let names = range::expand_if(options.expands_ranges, text)?;
            let names = names.iter().map(String::as_str);
            return Ok(crate::target::by_list(names, candidates));
        }
        let ids = universe.map_or(candidates.ids(), |universe| &universe.ids);
        let search = Search::new(site, &self.patterns, ids, universe, *options);
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
            may_mean_more: search.may_mean_more(),
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
            site.read_ahead(data.as_ref());
            site.index.lock().refresh(data.as_ref());
        }
    }

    /// Waits until nobody else is reading the data of all minions.
    ///
    /// # Errors
    /// Somebody still is after `limit`.
    pub fn wait_for_index(&self, limit: Duration) -> Result<(), BeingIndexed> {
        match &self.site {
            Some(site) if site.index.try_lock_for(limit).is_none() => Err(self.being_indexed()),
            _ => Ok(()),
        }
    }

    /// How far the reading of all minions is.
    pub fn being_indexed(&self) -> BeingIndexed {
        let progress = self.site.as_ref().map(|site| site.progress.now());
        let (read, minions) = progress.unwrap_or_default();
        BeingIndexed { read, minions }
    }
}

/// Admission check of a target: limits what clients choose, before any work is done. Lists of ids
/// are excepted, also as words of compound targets: they are as long as fleets are large.
fn check_size(target: &Target, options: &MatchOptions<'_>) -> Result<(), TargetError> {
    let of_words = |words: &mut dyn Iterator<Item = &str>| {
        let counted = words.filter(|word| !word.starts_with("L@"));
        counted.map(|word| word.len() + 1).sum()
    };
    let size: usize = match target {
        Target::List(_) | Target::Expression(TargetType::List, _) => 0,
        Target::Words(words) => of_words(&mut words.iter().map(String::as_str)),
        Target::Expression(TargetType::Compound, text) => {
            of_words(&mut saltern_python::text::split(text))
        }
        Target::Expression(_, text) => text.len(),
    };
    match size.saturating_add(options.delimiter.len()) > MAX_BYTES {
        true => Err(TargetError::TooLong),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_of_the_largest_size_is_admitted_and_a_larger_one_is_not() {
        let glob = |size| Target::Expression(TargetType::Glob, "x".repeat(size));
        // A word counts with the space behind it.
        let words = vec!["x".repeat(63); 1_024];
        let ids = format!("{} L@{}", words.join(" "), "x".repeat(1 << 20));
        let table = [
            (glob(64 << 10), "", true),
            (glob(64 << 10), ":", false),
            (glob((64 << 10) + 1), "", false),
            (Target::Words(words.clone()), "", true),
            (Target::Words(words), ":", false),
            // Lists are as long as fleets are large.
            (
                Target::Expression(TargetType::Compound, ids.clone()),
                "",
                true,
            ),
            (Target::Expression(TargetType::Compound, ids), ":", false),
            (
                Target::Expression(TargetType::List, "x".repeat(1 << 20)),
                ":",
                true,
            ),
        ];
        for (at, (target, delimiter, is_admitted)) in table.into_iter().enumerate() {
            let options = MatchOptions {
                delimiter,
                ..MatchOptions::default()
            };
            let checked = check_size(&target, &options);
            assert_eq!(checked.is_ok(), is_admitted, "row {at}");
        }
    }

    #[test]
    fn empty_cache_has_no_minion() {
        let id = MinionId::parse("web1").unwrap();
        assert!(NoData.grains(&id).is_none() && NoData.pillar(&id).is_none());
        assert!(NoData.known().is_empty());
    }
}
