//! Listing of keys by state, and the selection of keys by pattern or mapping.

use saltern_model::key_state::sorted_ignoring_case;
use saltern_model::{Compat, KeyState, MinionId};
use saltern_python::expression::Pattern;
use saltern_store::files;
use saltern_wire::msgpack::Value;

use crate::call::RunnerError;
use crate::key_lists::{KeyLists, LOCAL};
use crate::python;
use crate::registry::RunnerContext;

/// The keys of minions (`Key.list_keys`).
pub(super) fn managed(context: &RunnerContext) -> Result<KeyLists, RunnerError> {
    let pki = &context.master()?.pki;
    let order = KeyState::in_listings(context.config.salt_compat);
    let mut lists = Vec::with_capacity(order.len());
    for state in order {
        let ids = pki.list(state)?.into_iter();
        let ids = ids.map(|id| id.as_str().to_owned()).collect();
        lists.push((state.directory().to_owned(), sorted_ignoring_case(ids)));
    }
    let mut lists = KeyLists::new(lists);
    if context.config.salt_compat == Compat::V3008 {
        lists.leave_one_state_each();
    }
    Ok(lists)
}

/// With the master's own keys (`Key.all_keys`).
pub(super) fn all(context: &RunnerContext) -> Result<KeyLists, RunnerError> {
    let mut lists = managed(context)?;
    lists.push(LOCAL, local(context)?);
    Ok(lists)
}

/// The keys of minions in lists, with their states.
pub(super) fn selected(lists: &KeyLists) -> Vec<(KeyState, MinionId)> {
    let states = KeyState::ALL.into_iter();
    let of_state = |state: KeyState| {
        let ids = lists.keys(state.directory()).iter();
        ids.filter_map(move |id| Some((state, MinionId::parse(id).ok()?)))
    };
    states.flat_map(of_state).collect()
}

/// The lists of a mapping that a caller gives, for [`KeyLists::of_changed`].
pub(super) fn lists_of(mapping: &Value) -> Result<KeyLists, RunnerError> {
    let lists = mapping.as_map().unwrap_or_default().iter();
    let lists = lists.map(|(name, keys)| {
        let keys = keys.as_array().unwrap_or_default().iter();
        let keys: Vec<String> = keys.filter_map(python::scalar).collect();
        keys.iter().try_for_each(|key| pattern(key).map(drop))?;
        Ok((name.as_str().unwrap_or_default().to_owned(), keys))
    });
    Ok(KeyLists::new(lists.collect::<Result<_, RunnerError>>()?))
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

    /// The keys that the patterns match; one that two of them match is there twice, as in stock.
    pub(super) fn choose_from(&self, lists: KeyLists) -> KeyLists {
        lists.repeated(|key| self.0.iter().filter(|one| one.matches(key)).count())
    }
}

fn pattern(text: &str) -> Result<Pattern, RunnerError> {
    Pattern::glob(text).map_err(|error| RunnerError::Refused(error.to_string()))
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
