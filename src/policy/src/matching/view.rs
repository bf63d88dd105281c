//! A snapshot of the cached data of all minions, matched against one expression.
//!
//! Expressions and values come from outside and may be made to take long, so this is done without
//! the lock of [`super::index`], which every search needs.

use std::sync::Arc;

use super::bits::Bits;
use super::budget::{Allowance, Budget};
use super::ipcidr::Network;
use super::pool::{NONE, Pages, Values};
use super::subdict::{Part, Rest, Subdict};

/// Test for a minion's data.
pub(super) enum Test {
    /// A path and a pattern.
    Subdict(Subdict),
    /// One grain with addresses.
    Network(Network),
}

/// For each minion, by slot, pairs of the numbers of name and value, sorted by name.
pub(super) type Minions = Pages<Arc<[(u32, u32)]>>;

/// An answer that was given before, and the slots whose data has changed since.
pub(super) struct Outdated {
    pub(super) bits: Arc<Bits>,
    pub(super) changed: Vec<u32>,
}

/// Grains, or pillars, at one moment.
pub(super) struct View {
    pub(super) minions: Minions,
    pub(super) names: Values,
    pub(super) values: Values,
    /// The values under the name that the test begins with.
    pub(super) column: Arc<Vec<u32>>,
    /// How many changes there had been.
    pub(super) at: u64,
    pub(super) outdated: Option<Outdated>,
}

impl View {
    /// The slots that match. Worth nothing when the search has nothing left afterwards.
    pub(super) fn matching(&self, test: Option<&Test>, search: &Allowance) -> Bits {
        let Some(test) = test else {
            return Bits::none(self.minions.len());
        };
        let looks_at_everything = matches!(
            test,
            Test::Subdict(subdict) if subdict.over_everything().is_some()
        );
        match &self.outdated {
            Some(outdated) if !looks_at_everything => self.again(outdated, test, search),
            _ => self.afresh(test, search),
        }
    }

    fn afresh(&self, test: &Test, search: &Allowance) -> Bits {
        let mut matching = self.holding(&self.column, search, |number| {
            self.holds(test, number, search)
        });
        if let Test::Subdict(subdict) = test
            && let Some(everything) = subdict.over_everything()
        {
            matching.unite(&self.matching_everything(everything, search));
        }
        matching
    }

    /// Looks again at the minions that have changed since the answer was given.
    fn again(&self, outdated: &Outdated, test: &Test, search: &Allowance) -> Bits {
        let mut bits = (*outdated.bits).clone();
        bits.grow(self.minions.len());
        for slot in outdated.changed.iter().map(|slot| *slot as usize) {
            let number = self.column.get(slot).copied().unwrap_or(NONE);
            match self.holds(test, number, search) {
                true => bits.insert(slot),
                false => bits.remove(slot),
            }
        }
        bits
    }

    fn holds(&self, test: &Test, number: u32, search: &Allowance) -> bool {
        let Some(value) = self.values.get(number) else {
            return false;
        };
        match test {
            Test::Subdict(subdict) => subdict.matches_under_first(value, &Budget::of(search)),
            Test::Network(network) => {
                search.spend(1) && network.holds(value, || self.values.addresses(number))
            }
        }
    }

    /// The minions whose value in the column satisfies `holds`; each distinct value is tested once.
    fn holding(&self, column: &[u32], search: &Allowance, holds: impl Fn(u32) -> bool) -> Bits {
        // Sets and not a list of answers: there may be millions of values.
        let mut asked = Bits::none(self.values.len());
        let mut held = Bits::none(self.values.len());
        Bits::of(column.len(), |slot| {
            let number = column.get(slot).copied().unwrap_or(NONE);
            if number == NONE || search.is_exhausted() {
                return false;
            }
            let at = number as usize;
            if asked.contains(at) {
                return held.contains(at);
            }
            asked.insert(at);
            let holds = holds(number);
            if holds {
                held.insert(at);
            }
            holds
        })
    }

    /// The expression begins with a star: the data as a whole is the dictionary to match.
    fn matching_everything(&self, rest: &Rest, search: &Allowance) -> Bits {
        let core = rest.core();
        if core.is_star() {
            return Bits::of(self.minions.len(), |slot| !self.pairs(slot).is_empty());
        }
        let mut nested = match core.nested() {
            Some(nested) => self.matching_under_first(nested, search),
            None => Bits::none(self.minions.len()),
        };
        if core.is_wild() {
            nested.unite(&self.matching_everything(core, search));
        }
        let names = self
            .names
            .test(|name| core.matches_name(name, &Budget::of(search)));
        let values = match rest.is_wild() {
            true => self
                .values
                .test(|value| core.matches_below_star(value, &Budget::of(search))),
            false => Bits::none(0),
        };
        Bits::of(self.minions.len(), |slot| {
            let pairs = self.pairs(slot);
            let is_named = |(name, value): &(u32, u32)| {
                names.contains(*name as usize) || values.contains(*value as usize)
            };
            search.spend(1 + pairs.len() / 16)
                && (nested.contains(slot) || pairs.iter().any(is_named))
        })
    }

    fn matching_under_first(&self, subdict: &Subdict, search: &Allowance) -> Bits {
        let column = self.column(subdict.first(), search);
        self.holding(&column, search, |number| {
            let value = self.values.get(number);
            value.is_some_and(|value| subdict.matches_under_first(value, &Budget::of(search)))
        })
    }

    /// The values under a name that is not the first of the expression, which are not cached.
    fn column(&self, part: &Part, search: &Allowance) -> Vec<u32> {
        let by_text = self.names.test(|name| name.as_str() == Some(&part.text));
        let loaded = part.loaded.as_ref();
        let by_value = self
            .names
            .test(|name| loaded.is_some_and(|loaded| loaded.is_key(name)));
        let keys: Vec<u32> = by_text
            .iter()
            .chain(by_value.iter())
            .map(|at| at as u32)
            .collect();
        if !search.spend(self.names.len() + self.minions.len()) {
            return Vec::new();
        }
        let values = self.minions.iter().map(|pairs| lookup(pairs, &keys));
        values.collect()
    }

    fn pairs(&self, slot: usize) -> &[(u32, u32)] {
        self.minions.get(slot).map(Arc::as_ref).unwrap_or_default()
    }
}

/// The value under the first of `keys` that the minion has.
pub(super) fn lookup(pairs: &[(u32, u32)], keys: &[u32]) -> u32 {
    let value = |key: &u32| {
        let at = pairs.binary_search_by_key(key, |(name, _)| *name).ok()?;
        pairs.get(at).map(|(_, value)| *value)
    };
    keys.iter().find_map(value).unwrap_or(NONE)
}
