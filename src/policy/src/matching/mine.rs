//! Access to mines: `_mine_get` (`salt/daemons/masterapi.py`, `salt/utils/mine.py`).
//!
//! Two locks. The master's option `mine_get` says which minions may ask for which functions; each
//! entry of a mine may name the minions that it is for (`allow_tgt`). Where the mines lie is the
//! store's business, what the request looks like on the wire that of `requests`.
//!
//! # Where this differs from stock, and why
//! - `allow_tgt` never grants anything to a minion about which nothing is known: it is resolved
//!   without greed. Stock's `ipcidr` would.
//! - Pillar targets that a minion chooses are compared exactly, `pillar_pcre` too: with an
//!   expression a minion could find out other minions' pillars. Stock forgets `pillar_pcre`.
//! - A colon in an id or in a function's name makes no difference; in stock it opens the entry to
//!   everybody.
//! - An answer takes at most 256 MiB, ten seconds of the processor and 10,000 different `allow_tgt`,
//!   and a request names at most 256 functions.
//! - An expression in `mine_get` that does not parse matches nothing; in stock the request fails.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use saltern_config::yaml::Node;
use saltern_model::{MinionId, Target, TargetType};
use saltern_python::expression::Pattern;
use saltern_wire::msgpack::Value;

use super::MatchOptions;
use super::budget::Allowance;

/// Marks an entry of a mine that has an `allow_tgt`.
const ACL_MARK: &str = "__saltmine_acl__";

/// Key of the data in such an entry.
const ACL_DATA: &str = "__data__";

/// The largest answer, in bytes of memory as [`weight`] estimates them.
const MAX_ANSWER_BYTES: usize = 256 << 20;

/// The most functions that one request asks for.
const MAX_FUNCTIONS: usize = 256;

/// The most different `allow_tgt` that one answer is held against: minions choose them, and each is
/// a search.
const MAX_PERMISSIONS: usize = 10_000;

/// Why a request for mines is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MineError {
    /// Stock answers an incomplete request with an empty mapping.
    #[error("the request is incomplete or of a wrong kind")]
    Incomplete,
    /// More functions than one request may name.
    #[error("one request names at most 256 functions")]
    TooManyFunctions,
    /// The mines of all minions together have no bound of their own.
    #[error("the mines that are asked for take more than 256 MiB")]
    TooLarge,
    /// The entries are too many, or have too many different `allow_tgt`.
    #[error("it takes too long to collect the mines that are asked for")]
    TooMuchWork,
}

/// The master's option `mine_get`, ready for use.
#[derive(Default)]
pub struct MineAccess(Rules);

#[derive(Default)]
enum Rules {
    /// No option: every minion may ask for everything.
    #[default]
    Open,
    /// Not a mapping: no minion may ask for anything.
    Closed,
    /// Expressions over ids, each with expressions over functions.
    Listed(Vec<(Pattern, Vec<Pattern>)>),
}

impl MineAccess {
    /// Reads the option as it stands in the configuration; `None` when it is not there.
    pub fn from_option(option: Option<&Node>) -> Self {
        let Some(option) = option else {
            return Self(Rules::Open);
        };
        let Some(entries) = option.as_map() else {
            return Self(Rules::Closed);
        };
        let compiled = |text: &str| match Pattern::regex_at_start(text) {
            Ok(pattern) => Some(pattern),
            Err(error) => {
                tracing::error!(%error, "an expression in \"mine_get\" matches nothing");
                None
            }
        };
        let rules = entries.iter().filter_map(|(minions, entry)| {
            let functions = entry.value.as_seq()?.iter().filter_map(Node::as_str);
            Some((
                compiled(minions.as_str()?)?,
                functions.filter_map(compiled).collect(),
            ))
        });
        Self(Rules::Listed(rules.collect()))
    }

    /// Whether the master lets this minion ask for this function of a mine.
    pub fn allows(&self, id: &MinionId, function: &str) -> bool {
        match &self.0 {
            Rules::Open => true,
            Rules::Closed => false,
            Rules::Listed(rules) => rules.iter().any(|(minions, functions)| {
                minions.matches(id.as_str()) && functions.iter().any(|fun| fun.matches(function))
            }),
        }
    }
}

/// Request of a minion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MineRequest {
    /// The minion that asks; authenticated by the caller.
    pub id: MinionId,
    /// The minions whose mines are read.
    pub target: Target,
    /// Whether pillars are compared exactly for this target.
    pub exact_pillar: bool,
    /// The functions.
    pub functions: Vec<String>,
    /// Whether the answer has a level for the functions.
    pub by_function: bool,
}

impl MineRequest {
    /// Reads the load of `_mine_get`.
    ///
    /// # Errors
    /// [`MineError::Incomplete`] and [`MineError::TooManyFunctions`].
    pub fn read(id: &MinionId, load: &Value) -> Result<Self, MineError> {
        let (functions, by_function) = match load.get("fun").ok_or(MineError::Incomplete)? {
            Value::Str(names) => {
                let names = names.split(',').take(MAX_FUNCTIONS + 1);
                let mut functions: Vec<String> = names.map(str::to_owned).collect();
                check_count(&functions)?;
                functions.sort_unstable();
                functions.dedup();
                let by_function = functions.len() > 1;
                (functions, by_function)
            }
            Value::Array(names) => {
                let names = names.iter().filter_map(Value::as_str);
                let names = names.take(MAX_FUNCTIONS + 1);
                (names.map(str::to_owned).collect(), true)
            }
            _ => return Err(MineError::Incomplete),
        };
        check_count(&functions)?;
        let kind = match (load.get("tgt_type"), load.get("expr_form")) {
            (Some(kind), _) => kind.as_str(),
            (None, Some(old)) if !old.is_nil() => old.as_str(),
            (None, _) => Some("glob"),
        };
        let kind = kind.ok_or(MineError::Incomplete)?;
        let exact_kind = match kind.to_lowercase().as_str() {
            "pillar" | "pillar_pcre" => "pillar_exact",
            "compound" | "compound_pillar_exact" => "compound",
            _ => kind,
        };
        let target = load.get("tgt").and_then(|tgt| target(tgt, exact_kind));
        Ok(Self {
            id: id.clone(),
            target: target.ok_or(MineError::Incomplete)?,
            exact_pillar: true,
            functions,
            by_function,
        })
    }

    /// Answer for the minion: minions and their data, or functions, minions and their data.
    ///
    /// `resolve` finds the minions of a target, nobody for a target in error; `mine` reads a
    /// minion's mine.
    ///
    /// # Errors
    /// [`MineError::TooLarge`] and [`MineError::TooMuchWork`].
    pub fn answer(
        &self,
        access: &MineAccess,
        resolve: impl Fn(&Target, &MatchOptions<'_>) -> Vec<MinionId>,
        mine: impl Fn(&MinionId) -> Option<Arc<Value>>,
    ) -> Result<Value, MineError> {
        let is_allowed = |function: &&String| access.allows(&self.id, function);
        let mut functions: Vec<&String> = Vec::new();
        let mut columns: HashMap<&[u8], usize> = HashMap::new();
        for function in self.functions.iter().filter(is_allowed) {
            columns.entry(function.as_bytes()).or_insert_with(|| {
                functions.push(function);
                functions.len() - 1
            });
        }
        if functions.is_empty() {
            return Ok(Value::Map(Vec::new()));
        }
        let allowance = Allowance::of_answer();
        let mut room = MAX_ANSWER_BYTES;
        let options = MatchOptions {
            greedy: false,
            exact_pillar: self.exact_pillar,
            ..MatchOptions::default()
        };
        let mut permissions = Permissions::new(&self.id, &resolve, &allowance);
        let mut found: Vec<Vec<(Value, Value)>> = functions.iter().map(|_| Vec::new()).collect();
        for minion in resolve(&self.target, &options) {
            let Some(mine) = mine(&minion) else { continue };
            let entries = mine.as_map().unwrap_or_default();
            if !allowance.spend(1 + entries.len()) {
                return Err(MineError::TooMuchWork);
            }
            for (at, entry) in wanted(entries, &columns) {
                if let (Some(data), Some(found)) = (permissions.open(entry)?, found.get_mut(at)) {
                    room = room.checked_sub(weight(data)).ok_or(MineError::TooLarge)?;
                    found.push((minion.as_str().into(), data.clone()));
                }
            }
        }
        let mut found = functions.iter().zip(found);
        if self.by_function {
            let found = found.filter(|(_, minions)| !minions.is_empty());
            return Ok(Value::map(found.map(|(function, minions)| {
                (Value::from(function.as_str()), Value::Map(minions))
            })));
        }
        let minions = found.next().map(|(_, minions)| minions);
        Ok(Value::Map(minions.unwrap_or_default()))
    }
}

fn check_count(functions: &[String]) -> Result<(), MineError> {
    match functions.len() > MAX_FUNCTIONS {
        true => Err(MineError::TooManyFunctions),
        false => Ok(()),
    }
}

/// The entries of a mine for the functions in `columns`, with their places there. A function that
/// comes twice counts with its last entry, as in Python.
fn wanted<'v>(
    entries: &'v [(Value, Value)],
    columns: &HashMap<&[u8], usize>,
) -> BTreeMap<usize, &'v Value> {
    let place = |(name, entry): &'v (Value, Value)| {
        let at = columns.get(name.as_bytes()?)?;
        Some((*at, entry))
    };
    entries.iter().filter_map(place).collect()
}

/// About how many bytes of memory a value takes.
fn weight(value: &Value) -> usize {
    let inner = match value {
        Value::Str(text) => text.len(),
        Value::Bin(bytes) | Value::Ext(_, bytes) => bytes.len(),
        Value::Array(items) => items.iter().map(weight).sum(),
        Value::Map(entries) => entries
            .iter()
            .map(|(name, value)| weight(name) + weight(value))
            .sum(),
        _ => 0,
    };
    inner + size_of::<Value>()
}

/// Opens entries of mines for one minion. Many minions have the same `allow_tgt`, so each is
/// resolved once.
struct Permissions<'a, R> {
    id: &'a MinionId,
    resolve: &'a R,
    allowance: &'a Allowance,
    /// By the target itself: as texts, a list of words and an expression may look the same.
    known: HashMap<Target, bool>,
}

impl<'a, R: Fn(&Target, &MatchOptions<'_>) -> Vec<MinionId>> Permissions<'a, R> {
    fn new(id: &'a MinionId, resolve: &'a R, allowance: &'a Allowance) -> Self {
        Self {
            id,
            resolve,
            allowance,
            known: HashMap::new(),
        }
    }

    /// The data of an entry, if this minion may have it.
    fn open<'v>(&mut self, entry: &'v Value) -> Result<Option<&'v Value>, MineError> {
        if entry.get(ACL_MARK).is_none() {
            return Ok(Some(entry));
        }
        let data = entry.get(ACL_DATA);
        let Some(allowed) = entry.get("allow_tgt") else {
            return Ok(data);
        };
        let kind = match entry.get("allow_tgt_type") {
            Some(kind) => kind.as_str(),
            None => Some("glob"),
        };
        let Some(target) = kind.and_then(|kind| target(allowed, kind)) else {
            return Ok(None);
        };
        let is_allowed = self.allows(target)?;
        Ok(data.filter(|_| is_allowed))
    }

    fn allows(&mut self, target: Target) -> Result<bool, MineError> {
        if let Some(is_allowed) = self.known.get(&target) {
            return Ok(*is_allowed);
        }
        self.allowance.look();
        if self.allowance.is_exhausted() || self.known.len() >= MAX_PERMISSIONS {
            return Err(MineError::TooMuchWork);
        }
        let options = MatchOptions {
            greedy: false,
            is_brief: true,
            ..MatchOptions::default()
        };
        let is_allowed = (self.resolve)(&target, &options).contains(self.id);
        self.known.insert(target, is_allowed);
        Ok(is_allowed)
    }
}

/// A target in a load; nothing when stock would find nobody for its kind.
fn target(tgt: &Value, kind: &str) -> Option<Target> {
    let kind = TargetType::from_wire(kind)?;
    match tgt {
        Value::Str(text) => Some(Target::Expression(kind, text.clone())),
        Value::Nil => Some(Target::Expression(kind, String::new())),
        Value::Array(items) if kind == TargetType::List => {
            let names = items.iter().filter_map(Value::as_str);
            Some(Target::List(names.map(str::to_owned).collect()))
        }
        Value::Array(items) if kind == TargetType::Compound => {
            let words = items.iter().map(|item| item.as_str().map(str::to_owned));
            words.collect::<Option<Vec<String>>>().map(Target::Words)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests;
