//! Whether a grain or pillar matches `path:pattern`, as stock's `subdict_match` and
//! `traverse_dict_and_list` decide it (`salt/utils/data.py`).
//!
//! An expression is compiled once and then held against many values. Where the path ends and the
//! pattern begins is open (both may contain the delimiter), so every split is tried, longest path
//! first.

use std::collections::HashMap;
use std::rc::Rc;

use saltern_python::expression::Pattern;
use saltern_wire::msgpack::Value;

use super::budget::Budget;
use super::python::{self, Index, Loaded};
use crate::expression::PatternCache;

/// How a pattern is held against a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum MatchKind {
    Glob,
    Regex,
    Exact,
    /// Not a path at all: the grain with the minion's addresses, see [`super::ipcidr`].
    Network,
}

/// The most parts that an expression may have, whether its own delimiter separates them or the
/// colon, which separates them inside dictionaries. It bounds how deep what is compiled is nested.
const MAX_PARTS: usize = 128;

/// The most bytes of an expression: each of its parts begins a text that is kept.
const MAX_BYTES: usize = 16 << 10;

/// The most patterns of an expression that take much memory; others of the kind match nothing.
const MAX_HEAVY: usize = 4;

/// An expression such as `os_family:Debian` or `network:*:eth0`, compiled.
pub(super) struct Subdict {
    parts: Vec<Rc<Part>>,
    /// For each place where the pattern may begin (the index of its first part, from 1), the
    /// pattern. The first is left out when it would be the pattern that this belongs to.
    patterns: Vec<Option<Rc<Rest>>>,
}

/// One part of a path.
pub(super) struct Part {
    pub(super) text: String,
    pub(super) loaded: Option<Loaded>,
    index: Option<Index>,
}

/// A pattern, which may itself be a path and a pattern inside the value that was reached.
pub(super) struct Rest {
    text: String,
    test: Test,
    /// The rest after a leading `*:`.
    behind_star: Option<Rc<Rest>>,
    nested: Option<Subdict>,
}

enum Test {
    Exactly(String),
    Pattern(Pattern),
    /// Not a regular expression, or one too many that is heavy: matches nothing.
    Never,
}

/// Compiles expressions of one kind; what occurs in several places is compiled once. Every text is
/// an end of the whole expression, so there are at most as many as it has parts.
struct Compiler<'a> {
    how: MatchKind,
    patterns: &'a PatternCache,
    known: HashMap<&'a str, Rc<Rest>>,
    parts: HashMap<&'a str, Rc<Part>>,
    /// How many of the patterns are heavy.
    heavy: usize,
}

impl Subdict {
    /// Nothing when the expression has no delimiter, and so can match nothing, or when it is too
    /// long or has too many parts.
    pub(super) fn compile<'a>(
        text: &'a str,
        delimiter: &str,
        how: MatchKind,
        patterns: &'a PatternCache,
    ) -> Option<Self> {
        if text.len() > MAX_BYTES || text.matches(':').take(MAX_PARTS).count() == MAX_PARTS {
            return None;
        }
        let mut compiler = Compiler {
            how,
            patterns,
            known: HashMap::new(),
            parts: HashMap::new(),
            heavy: 0,
        };
        compiler.subdict(text, delimiter, false)
    }

    /// The first part of the path, which is a name of the whole data.
    pub(super) fn first(&self) -> &Part {
        self.parts
            .first()
            .expect("invariant: an expression has at least two parts")
    }

    /// The pattern for the data as a whole, when the expression begins with a star.
    pub(super) fn over_everything(&self) -> Option<&Rest> {
        (self.first().text == "*").then_some(())?;
        self.patterns.first()?.as_deref()
    }

    /// Whether it matches data in which the first part of the path leads to `value`.
    pub(super) fn matches_under_first(&self, value: &Value, budget: &Budget<'_>) -> bool {
        let starts_with_star = self.first().text == "*";
        let shortest = if starts_with_star { 2 } else { 1 };
        (shortest..self.parts.len()).rev().any(|end| {
            let path = self.parts.get(1..end).unwrap_or_default();
            let pattern = self.patterns.get(end - 1).and_then(Option::as_deref);
            match (traverse(value, path, budget), pattern) {
                (Some(reached), Some(pattern)) => pattern.matches(reached, budget),
                _ => false,
            }
        })
    }

    /// Whether it matches the data.
    pub(super) fn matches(&self, data: &Value, budget: &Budget<'_>) -> bool {
        let under_first =
            step(data, self.first()).is_some_and(|value| self.matches_under_first(value, budget));
        under_first
            || self
                .over_everything()
                .is_some_and(|everything| everything.matches(data, budget))
    }
}

impl<'a> Compiler<'a> {
    /// `inside` says that this is what the pattern of the same text is inside a dictionary.
    fn subdict(&mut self, text: &'a str, delimiter: &str, inside: bool) -> Option<Subdict> {
        if delimiter.is_empty() {
            return None;
        }
        let parts: Vec<&str> = text.split(delimiter).take(MAX_PARTS + 1).collect();
        if parts.len() < 2 || parts.len() > MAX_PARTS {
            return None;
        }
        let mut patterns = Vec::with_capacity(parts.len() - 1);
        let mut rest = text;
        for part in parts.iter().take(parts.len() - 1) {
            rest = rest
                .get(part.len() + delimiter.len()..)
                .expect("invariant: the parts and delimiters make up the text");
            // A star in the first place means the whole data, and the pattern is the whole text.
            let is_everything = patterns.is_empty() && *part == "*";
            let pattern = match is_everything {
                true if inside => None,
                true => Some(self.rest(text)),
                false => Some(self.rest(rest)),
            };
            patterns.push(pattern);
        }
        Some(Subdict {
            parts: parts.into_iter().map(|part| self.part(part)).collect(),
            patterns,
        })
    }

    fn part(&mut self, text: &'a str) -> Rc<Part> {
        let part = self.parts.entry(text);
        Rc::clone(part.or_insert_with(|| Rc::new(Part::new(text))))
    }

    fn rest(&mut self, text: &'a str) -> Rc<Rest> {
        if let Some(known) = self.known.get(text) {
            return Rc::clone(known);
        }
        let rest = Rc::new(Rest {
            text: text.to_owned(),
            test: self.test(text),
            behind_star: text.strip_prefix("*:").map(|behind| self.rest(behind)),
            nested: self.subdict(text, ":", true),
        });
        self.known.insert(text, Rc::clone(&rest));
        rest
    }

    fn test(&mut self, text: &str) -> Test {
        let lower = text.to_lowercase();
        let compiled = match self.how {
            MatchKind::Exact | MatchKind::Network => return Test::Exactly(lower),
            MatchKind::Glob => self.patterns.glob(&lower),
            MatchKind::Regex => self.patterns.regex_at_start(&lower),
        };
        match compiled {
            Ok(pattern) if pattern.is_heavy() && self.heavy == MAX_HEAVY => Test::Never,
            Ok(pattern) => {
                self.heavy += usize::from(pattern.is_heavy());
                Test::Pattern(pattern)
            }
            Err(_) => Test::Never,
        }
    }
}

impl Part {
    fn new(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            loaded: Loaded::read(text),
            index: Index::read(text),
        }
    }

    /// Whether a dictionary finds `key` under this part, by its text or, failing that, by what the
    /// text is as YAML.
    fn find<'a>(&self, entries: &'a [(Value, Value)]) -> Option<&'a Value> {
        let by = |is_key: &dyn Fn(&Value) -> bool| {
            let mut newest_first = entries.iter().rev();
            newest_first.find(|(key, _)| is_key(key)).map(|(_, v)| v)
        };
        by(&|key| matches!(key, Value::Str(name) if *name == self.text)).or_else(|| {
            let loaded = self.loaded.as_ref()?;
            by(&|key| loaded.is_key(key))
        })
    }
}

impl Rest {
    /// Whether the value that a path led to matches.
    fn matches(&self, value: &Value, budget: &Budget<'_>) -> bool {
        match value {
            Value::Map(entries) => !entries.is_empty() && self.matches_dict(entries, budget),
            Value::Array(items) => items.iter().any(|item| {
                let in_dict = match item {
                    Value::Map(entries) => self.matches_dict(entries, budget),
                    _ => false,
                };
                in_dict || self.matches_text(item, budget)
            }),
            scalar => self.matches_text(scalar, budget),
        }
    }

    pub(super) fn matches_text(&self, value: &Value, budget: &Budget<'_>) -> bool {
        if !budget.spend() {
            return false;
        }
        let text = python::lower(value);
        budget.spend_on(&text)
            && match &self.test {
                Test::Exactly(exactly) => text == *exactly,
                Test::Pattern(pattern) => budget.matches(pattern, &text),
                Test::Never => budget.give_up(),
            }
    }

    fn matches_dict(&self, entries: &[(Value, Value)], budget: &Budget<'_>) -> bool {
        let core = self.core();
        if core.is_star()
            || entries
                .iter()
                .any(|(key, _)| core.matches_name(key, budget))
        {
            return true;
        }
        if let Some(nested) = &core.nested
            && budget.spend()
        {
            let data = |part: &Part| part.find(entries);
            if data(nested.first()).is_some_and(|value| nested.matches_under_first(value, budget)) {
                return true;
            }
            // What is nested begins with another star: once more the dictionary as a whole.
            if core.is_wild() && core.matches_dict(entries, budget) {
                return true;
            }
        }
        self.is_wild()
            && entries
                .iter()
                .any(|(_, value)| core.matches_below_star(value, budget))
    }

    /// The pattern for the names of a dictionary.
    pub(super) fn core(&self) -> &Rest {
        self.behind_star.as_deref().unwrap_or(self)
    }

    /// Whether the values of a dictionary count too.
    pub(super) fn is_wild(&self) -> bool {
        self.behind_star.is_some()
    }

    /// Matches as soon as there is a dictionary.
    pub(super) fn is_star(&self) -> bool {
        self.text == "*"
    }

    /// The expression that this pattern is when it is held against a dictionary.
    pub(super) fn nested(&self) -> Option<&Subdict> {
        self.nested.as_ref()
    }

    /// Whether a name in a dictionary matches.
    pub(super) fn matches_name(&self, key: &Value, budget: &Budget<'_>) -> bool {
        matches!(key, Value::Str(name) if *name == self.text) || self.matches_text(key, budget)
    }

    /// Whether a value below a star matches.
    pub(super) fn matches_below_star(&self, value: &Value, budget: &Budget<'_>) -> bool {
        match value {
            Value::Map(entries) => budget.spend() && self.matches_dict(entries, budget),
            Value::Array(items) => items.iter().any(|item| self.matches_text(item, budget)),
            scalar => self.matches_text(scalar, budget),
        }
    }
}

/// Value at the end of a path; `None` is what stock calls the default.
fn traverse<'a>(value: &'a Value, path: &[Rc<Part>], budget: &Budget<'_>) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, part| {
        budget.spend().then_some(())?;
        step(value, part)
    })
}

fn step<'a>(value: &'a Value, part: &Part) -> Option<&'a Value> {
    let items = match value {
        Value::Map(entries) => return part.find(entries),
        Value::Array(items) => items,
        _ => return None,
    };
    let mut dicts = items.iter().filter_map(Value::as_map);
    match part.index {
        None => dicts.find_map(|entries| {
            let mut newest_first = entries.iter().rev();
            let is_named = |key: &Value| matches!(key, Value::Str(name) if *name == part.text);
            newest_first
                .find(|(key, _)| is_named(key))
                .map(|(_, value)| value)
        }),
        Some(Index::Beyond) => None,
        Some(Index::At(index)) => {
            let embedded = dicts.find_map(|entries| {
                let mut newest_first = entries.iter().rev();
                newest_first
                    .find(|(key, _)| python::key_is_int(key, index))
                    .map(|(_, value)| value)
            });
            embedded.or_else(|| {
                let from_start = match index < 0 {
                    true => items.len().checked_sub(index.unsigned_abs() as usize)?,
                    false => index as usize,
                };
                items.get(from_start)
            })
        }
    }
}

#[cfg(test)]
mod tests;
