//! Listing of keys by state, and the selection of keys by pattern or mapping.

use saltern_model::key_state::sorted_ignoring_case;
use saltern_model::{Compat, KeyState, MinionId};
use saltern_policy::expression::Pattern;
use saltern_store::files;
use saltern_wire::msgpack::Value;

use crate::call::RunnerError;
use crate::python;
use crate::registry::RunnerContext;

/// Where the master's own keys stand in a listing.
pub(super) const LOCAL: &str = "local";

/// Names of keys under the names of their directories, in stock's order.
pub(super) struct KeyLists(Vec<(&'static str, Vec<String>)>);

impl KeyLists {
    /// The keys of minions (`Key.list_keys`).
    pub(super) fn managed(context: &RunnerContext) -> Result<Self, RunnerError> {
        let pki = &context.master()?.pki;
        let order = KeyState::in_listings(context.config.salt_compat);
        let mut lists = Vec::with_capacity(order.len());
        for state in order {
            lists.push((state, pki.list(state)?));
        }
        if context.config.salt_compat == Compat::V3008 {
            one_state_each(&mut lists);
        }
        let named = lists.into_iter().map(|(state, ids)| {
            let ids = ids.iter().map(|id| id.as_str().to_owned());
            (state.directory(), sorted_ignoring_case(ids.collect()))
        });
        Ok(Self(named.collect()))
    }

    /// With the master's own keys (`Key.all_keys`).
    pub(super) fn all(context: &RunnerContext) -> Result<Self, RunnerError> {
        let mut lists = Self::managed(context)?;
        lists.0.push((LOCAL, local(context)?));
        Ok(lists)
    }

    /// Keeps one list.
    pub(super) fn only(mut self, name: &str) -> Self {
        self.0.retain(|(known, _)| *known == name);
        self
    }

    /// The keys that the patterns match; a key that two of them match is there twice, as in stock.
    /// Empty lists are left out.
    pub(super) fn matching(mut self, patterns: &Patterns) -> Self {
        for (_, keys) in &mut self.0 {
            let times = |key: String| {
                let count = patterns.0.iter().filter(|one| one.matches(&key)).count();
                std::iter::repeat_n(key, count)
            };
            *keys = std::mem::take(keys).into_iter().flat_map(times).collect();
        }
        self.0.retain(|(_, keys)| !keys.is_empty());
        self
    }

    /// Where the keys of a mapping are now (`Key.dict_match`); each of them counts as a pattern.
    pub(super) fn of_mapping(&self, mapping: &Value) -> Result<Self, RunnerError> {
        let mut found: Vec<(&'static str, Vec<String>)> = Vec::new();
        let lists = mapping.as_map().unwrap_or_default().iter();
        for (_, keys) in lists {
            let keys = keys.as_array().unwrap_or_default();
            for key in sorted_ignoring_case(keys.iter().filter_map(python::scalar).collect()) {
                let pattern = pattern(&key)?;
                for state in KeyState::ALL {
                    let name = state.directory();
                    let is_there = self.keys(name).iter().any(|known| pattern.matches(known));
                    if !is_there {
                        continue;
                    }
                    match found.iter_mut().find(|(known, _)| *known == name) {
                        Some((_, keys)) => keys.push(key.clone()),
                        None => found.push((name, vec![key.clone()])),
                    }
                }
            }
        }
        Ok(Self(found))
    }

    /// The keys of minions among them, with their states.
    pub(super) fn selected(&self) -> Vec<(KeyState, MinionId)> {
        let states = KeyState::ALL.into_iter();
        let of_state = |state: KeyState| {
            let ids = self.keys(state.directory()).iter();
            ids.filter_map(move |id| Some((state, MinionId::parse(id).ok()?)))
        };
        states.flat_map(of_state).collect()
    }

    /// The lists, in their order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&'static str, &[String])> {
        self.0.iter().map(|(name, keys)| (*name, keys.as_slice()))
    }

    pub(super) fn into_value(self) -> Value {
        let lists = self.0.into_iter().map(|(name, keys)| {
            let keys = keys.into_iter().map(Value::from).collect();
            (Value::from(name), Value::Array(keys))
        });
        Value::Map(lists.collect())
    }

    fn keys(&self, name: &str) -> &[String] {
        let list = self.0.iter().find(|(known, _)| *known == name);
        list.map_or(&[], |(_, keys)| keys)
    }
}

/// The keys that a mapping of states to lists names. Unknown states and invalid minion ids are
/// skipped: they name no key.
pub(super) fn of_mapping(mapping: &Value) -> Vec<(KeyState, MinionId)> {
    let lists = mapping.as_map().unwrap_or_default().iter();
    let of_list = |(name, keys): &(Value, Value)| -> Vec<(KeyState, MinionId)> {
        let name = name.as_str().unwrap_or_default();
        let Some(state) = KeyState::ALL.into_iter().find(|it| it.directory() == name) else {
            return Vec::new();
        };
        let keys = keys.as_array().unwrap_or_default().iter();
        let ids = keys.filter_map(|key| MinionId::parse(&python::scalar(key)?).ok());
        ids.map(|id| (state, id)).collect()
    };
    lists.flat_map(of_list).collect()
}

/// Patterns, of which one has to match.
pub(super) struct Patterns(Vec<Pattern>);

impl Patterns {
    /// A list, or a text with commas.
    pub(super) fn parse(value: &Value) -> Result<Self, RunnerError> {
        let refused = || RunnerError::Refused("\"match\" has to be a text or a list".to_owned());
        let texts: Vec<String> = match value {
            Value::Array(items) => items.iter().filter_map(python::scalar).collect(),
            other => {
                let text = python::scalar(other).ok_or_else(refused)?;
                text.split(',').map(str::to_owned).collect()
            }
        };
        let patterns: Result<Vec<Pattern>, RunnerError> =
            texts.iter().map(|text| pattern(text)).collect();
        Ok(Self(patterns?))
    }
}

fn pattern(text: &str) -> Result<Pattern, RunnerError> {
    Pattern::glob(text).map_err(|error| RunnerError::Refused(error.to_string()))
}

/// In 3008 a minion is in one state only: rejected before pending before accepted.
fn one_state_each(lists: &mut [(KeyState, Vec<MinionId>)]) {
    let of = |lists: &[(KeyState, Vec<MinionId>)], state| {
        let list = lists.iter().find(|(known, _)| *known == state);
        list.map_or_else(Vec::new, |(_, ids)| ids.clone())
    };
    let rejected = of(lists, KeyState::Rejected);
    let pending = of(lists, KeyState::Pending);
    for (state, ids) in lists {
        let is_elsewhere = |id: &MinionId| match *state {
            KeyState::Accepted => {
                rejected.binary_search(id).is_ok() || pending.binary_search(id).is_ok()
            }
            KeyState::Pending => rejected.binary_search(id).is_ok(),
            KeyState::Rejected | KeyState::Denied => false,
        };
        ids.retain(|id| !is_elsewhere(id));
    }
}

/// The key files of the master itself (`Key.local_keys`); 3008 takes no link for a key.
fn local(context: &RunnerContext) -> Result<Vec<String>, RunnerError> {
    let takes_links = context.config.salt_compat != Compat::V3008;
    let mut names = Vec::new();
    files::each_entry(&context.config.pki_dir, |name, entry| {
        let is_key = name.ends_with(".pem") || name.ends_with(".pub");
        let is_file = match entry.file_type() {
            Ok(kind) if kind.is_symlink() => takes_links && entry.path().is_file(),
            Ok(kind) => kind.is_file(),
            Err(_) => false,
        };
        if is_key && is_file {
            names.push(name.to_owned());
        }
    })?;
    names.sort_unstable();
    Ok(sorted_ignoring_case(names))
}
