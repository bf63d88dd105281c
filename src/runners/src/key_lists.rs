//! Names of keys in lists, one for each state, and which of them a pattern selects: for the wheels and
//! for `salt-key`.

use std::collections::HashSet;

use saltern_model::KeyState;
use saltern_model::key_state::sorted_ignoring_case;
use saltern_python::fnmatch::Glob;
use saltern_wire::msgpack::Value;

/// Section of a listing with the master's own keys.
pub const LOCAL: &str = "local";

/// Names up to which a list is searched by comparing.
const MAX_COMPARED: usize = 1_000;

/// Names of keys below the names of their directories, in stock's order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyLists(Vec<(String, Vec<String>)>);

impl KeyLists {
    /// Lists that are already in order.
    #[must_use]
    pub const fn new(lists: Vec<(String, Vec<String>)>) -> Self {
        Self(lists)
    }

    /// The lists of a mapping, as the master gives them.
    #[must_use]
    pub fn from_value(value: &Value) -> Option<Self> {
        let lists = value.as_map()?.iter().map(|(name, keys)| {
            let keys = keys.as_array()?.iter();
            let keys = keys.filter_map(|key| key.as_str().map(str::to_owned));
            Some((name.as_str()?.to_owned(), keys.collect()))
        });
        lists.collect::<Option<_>>().map(Self)
    }

    /// Leaves out the list of this name.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.0.retain(|(known, _)| known != name);
        self
    }

    /// Adds a list at the end.
    pub fn push(&mut self, name: &str, keys: Vec<String>) {
        self.0.push((name.to_owned(), keys));
    }

    /// Keeps the lists of these names, in this order; a missing one stays out.
    #[must_use]
    pub fn only(&self, names: &[&str]) -> Self {
        let lists = names.iter().filter_map(|name| {
            let list = self.0.iter().find(|(known, _)| known == name)?;
            Some(list.clone())
        });
        Self(lists.collect())
    }

    /// Leaves out empty lists.
    #[must_use]
    pub fn without_empty(mut self) -> Self {
        self.0.retain(|(_, keys)| !keys.is_empty());
        self
    }

    /// Whether there is no list.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The lists, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[String])> {
        self.0
            .iter()
            .map(|(name, keys)| (name.as_str(), keys.as_slice()))
    }

    /// The keys of one list.
    pub fn keys(&self, name: &str) -> &[String] {
        let list = self.0.iter().find(|(known, _)| known == name);
        list.map_or(&[], |(_, keys)| keys)
    }

    /// Takes keys out of a list.
    pub fn remove(&mut self, name: &str, unwanted: &HashSet<String>) {
        let list = self.0.iter_mut().find(|(known, _)| known == name);
        if let Some((_, keys)) = list {
            keys.retain(|key| !unwanted.contains(key));
        }
    }

    /// The same for sorted names. A few of them are found sooner by comparing than by hashing a hundred
    /// thousand keys.
    fn remove_sorted(&mut self, name: &str, unwanted: &[String]) {
        if unwanted.len() > MAX_COMPARED {
            return self.remove(name, &unwanted.iter().cloned().collect());
        }
        let list = self.0.iter_mut().find(|(known, _)| known == name);
        if let Some((_, keys)) = list.filter(|_| !unwanted.is_empty()) {
            keys.retain(|key| unwanted.binary_search(key).is_err());
        }
    }

    /// Each key as often as `times` says: one that two patterns match is there twice, as in stock.
    /// Empty lists are left out.
    #[must_use]
    pub fn repeated(mut self, times: impl Fn(&str) -> usize) -> Self {
        for (_, keys) in &mut self.0 {
            let repeat = |key: String| {
                let count = times(&key);
                std::iter::repeat_n(key, count)
            };
            *keys = std::mem::take(keys).into_iter().flat_map(repeat).collect();
        }
        self.without_empty()
    }

    /// The keys that a pattern selects; with commas it is several. Empty lists are left out.
    #[must_use]
    pub fn matching(self, pattern: &str) -> Self {
        let globs: Vec<Glob> = match pattern {
            // 3008 knows this one by itself; for the others it selects the same.
            "*" => return self.without_empty(),
            _ => pattern.split(',').map(Glob::new).collect(),
        };
        self.repeated(|key| globs.iter().filter(|glob| glob.matches(key)).count())
    }

    /// In 3008 a minion is in one state only: rejected before pending before accepted.
    pub fn leave_one_state_each(&mut self) {
        let order = [KeyState::Rejected, KeyState::Pending, KeyState::Accepted];
        let mut seen: Vec<String> = Vec::new();
        for state in order.map(KeyState::directory) {
            self.remove_sorted(state, &seen);
            if state != KeyState::Accepted.directory() {
                seen.extend(self.keys(state).iter().cloned());
                seen.sort_unstable();
            }
        }
    }

    /// Present lists of the keys of `changed` (`Key.dict_match`); each name counts as a pattern.
    #[must_use]
    pub fn of_changed(&self, changed: &Self) -> Self {
        let states = KeyState::ALL.map(KeyState::directory);
        let known = states.map(|state| {
            let keys: HashSet<&str> = self.keys(state).iter().map(String::as_str).collect();
            keys
        });
        let mut found = Self::default();
        for (_, keys) in &changed.0 {
            for key in &sorted_ignoring_case(keys.clone()) {
                let glob = key.contains(['*', '?', '[']).then(|| Glob::new(key));
                for (state, known) in states.iter().zip(&known) {
                    let is_there = match &glob {
                        None => known.contains(key.as_str()),
                        Some(glob) => known.iter().any(|one| glob.matches(one)),
                    };
                    if is_there {
                        found.add(state, key.clone());
                    }
                }
            }
        }
        found
    }

    fn add(&mut self, name: &str, key: String) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, keys)) => keys.push(key),
            None => self.push(name, vec![key]),
        }
    }

    /// The lists as a mapping.
    #[must_use]
    pub fn into_value(self) -> Value {
        let lists = self.0.into_iter().map(|(name, keys)| {
            let keys = keys.into_iter().map(Value::from).collect();
            (Value::from(name), Value::Array(keys))
        });
        Value::Map(lists.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(lists: &[(&str, &[&str])]) -> KeyLists {
        let owned = |keys: &[&str]| keys.iter().map(|key| (*key).to_owned()).collect();
        KeyLists(
            lists
                .iter()
                .map(|(name, keys)| ((*name).to_owned(), owned(keys)))
                .collect(),
        )
    }

    #[test]
    fn pattern_with_commas_is_several() {
        let all = lists(&[("minions", &["a1", "a2", "b"]), ("minions_pre", &["c"])]);
        assert_eq!(all.clone().matching("*"), all);
        assert_eq!(
            all.clone().matching("a*,b,?1"),
            lists(&[("minions", &["a1", "a1", "a2", "b"])])
        );
        assert!(all.matching("").is_empty());
    }

    #[test]
    fn changed_keys_are_listed_where_they_are_now() {
        let now = lists(&[
            ("minions", &["a", "B"]),
            ("minions_pre", &["c"]),
            ("minions_rejected", &[]),
            ("minions_denied", &["a"]),
        ]);
        let changed = lists(&[("minions_pre", &["B", "a", "gone"])]);
        assert_eq!(
            now.of_changed(&changed),
            lists(&[("minions", &["a", "B"]), ("minions_denied", &["a"])])
        );
    }
}
