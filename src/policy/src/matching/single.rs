//! Matches one minion against a target by given data: what the matchers of a minion do
//! (`salt/matchers/*.py`), which stock also asks for the top files of pillars.
//!
//! The answer differs from that of [`super`], which searches the master's cache: here a compound
//! expression is one of truth values, and a list is a text with commas.
//!
//! # Where this differs from stock, and why
//! - `data` is unknown: the data store that it asks is a minion's.
//! - `range` and `R@` never match, as in stock without `seco.range`.
//! - A grain that holds no address does not match `ipcidr`; in stock it is an error.

use saltern_model::Compat;
use saltern_python::expression::ExpressionError;
use saltern_wire::msgpack::Value;

use super::budget::{Allowance, Budget};
use super::compound::{EngineWord, MAX_DEPTH};
use super::ipcidr::{self, Network};
use super::nodegroups::{MAX_WORDS, Nodegroups, OPERATORS};
use super::subdict::{MatchKind, Subdict};
use crate::expression::PatternCache;
use crate::target::{Problems, names_in_list};

/// Why there is no answer. Stock raises an exception for these.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SingleError {
    /// There is no matcher of this name.
    #[error("there is no matcher \"{0}\"")]
    UnknownMatcher(String),
    /// The pattern is none.
    #[error(transparent)]
    Expression(#[from] ExpressionError),
}

/// One minion, and what its targets are matched against.
pub struct Single<'a> {
    /// Its id.
    pub id: &'a str,
    /// Its grains.
    pub grains: &'a Value,
    /// Its pillar, as far as it is known.
    pub pillar: &'a Value,
    /// The option `nodegroups`.
    pub nodegroups: &'a Nodegroups,
    /// The version whose rules hold.
    pub compat: Compat,
    /// Compiled patterns.
    pub patterns: &'a PatternCache,
}

impl Single<'_> {
    /// Whether the minion matches `target` by the matcher of this name: `glob`, `compound` and so
    /// on. Targets that are no text match nothing, but for lists of ids.
    ///
    /// # Errors
    /// [`SingleError`] for an unknown matcher and for a pattern that is none.
    pub fn matches(&self, matcher: &str, target: &Value) -> Result<bool, SingleError> {
        let known = matches!(
            matcher,
            "glob"
                | "list"
                | "pcre"
                | "grain"
                | "grain_pcre"
                | "pillar"
                | "pillar_pcre"
                | "pillar_exact"
                | "compound"
                | "nodegroup"
                | "ipcidr"
                | "range"
        ) || (self.compat == Compat::V3008
            && matches!(matcher, "resource" | "managing_minion"));
        if !known {
            return Err(SingleError::UnknownMatcher(matcher.to_owned()));
        }
        if let ("list", Value::Array(ids)) = (matcher, target) {
            return Ok(ids.iter().any(|id| id.as_str() == Some(self.id)));
        }
        let Some(text) = target.as_str() else {
            return Ok(false);
        };
        let mut problems = Problems::default();
        let is_match = match matcher {
            "compound" => {
                let words = saltern_python::text::split(text)
                    .map(str::to_owned)
                    .collect();
                self.compound(words, &mut problems)
            }
            "nodegroup" => self.nodegroup(text, &mut problems),
            simple => self.simple(simple, text, ":"),
        };
        if !problems.is_empty() {
            tracing::warn!(%problems, "parts of a target match nothing");
        }
        is_match
    }

    fn simple(&self, matcher: &str, text: &str, delimiter: &str) -> Result<bool, SingleError> {
        Ok(match matcher {
            "glob" => self.patterns.glob(text)?.matches(self.id),
            "list" => names_in_list(text).any(|id| id == self.id),
            "pcre" => {
                let pattern = self.patterns.regex_at_start(text)?;
                pattern.matches(self.id)
            }
            "grain" => self.path(self.grains, text, delimiter, MatchKind::Glob),
            "grain_pcre" => self.path(self.grains, text, delimiter, MatchKind::Regex),
            "pillar" => self.path(self.pillar, text, delimiter, MatchKind::Glob),
            "pillar_pcre" => self.path(self.pillar, text, delimiter, MatchKind::Regex),
            "pillar_exact" => self.path(self.pillar, text, delimiter, MatchKind::Exact),
            "managing_minion" => text == self.id,
            "ipcidr" => Network::parse(text).is_some_and(|network| {
                let grain = self.grains.get(network.grain());
                grain.is_some_and(|grain| {
                    let read = ipcidr::addresses(grain);
                    network.holds(grain, || &read)
                })
            }),
            _ => false,
        })
    }

    fn path(&self, data: &Value, text: &str, delimiter: &str, how: MatchKind) -> bool {
        Subdict::compile(text, delimiter, how, self.patterns).is_some_and(|expression| {
            expression.matches(data, &Budget::of(&Allowance::of_search(false)))
        })
    }

    fn nodegroup(&self, name: &str, problems: &mut Problems) -> Result<bool, SingleError> {
        match self.nodegroups.expand(name, problems) {
            Ok(words) => self.compound(words, problems),
            Err(error) => {
                problems.add(name, &error.to_string());
                Ok(false)
            }
        }
    }

    /// `compound_match.py`: the words become an expression of Python over truth values, and
    /// whatever Python does not read is no match.
    fn compound(&self, words: Vec<String>, problems: &mut Problems) -> Result<bool, SingleError> {
        let mut tokens: Vec<Token> = Vec::new();
        let mut words: Vec<String> = words.into_iter().rev().collect();
        while let Some(word) = words.pop() {
            if OPERATORS.contains(&word.as_str()) {
                if !operator(&word, &mut tokens) {
                    return Ok(false);
                }
                continue;
            }
            let parsed = EngineWord::parse(&word, self.compat);
            let mut buffer = [0; 4];
            let delimiter = parsed.delimiter.map_or(":", |c| c.encode_utf8(&mut buffer));
            let matcher = match parsed.engine {
                None => "glob",
                Some('G') => "grain",
                Some('P') => "grain_pcre",
                Some('I') => "pillar",
                Some('J') => "pillar_pcre",
                Some('L') => "list",
                Some('S') => "ipcidr",
                Some('E') => "pcre",
                Some('T') => "resource",
                Some('M') => "managing_minion",
                Some('N') => {
                    let group = self.nodegroups.expand(parsed.pattern, problems);
                    let group = group.unwrap_or_default();
                    words.extend(group.into_iter().rev());
                    if words.len() + tokens.len() > MAX_WORDS {
                        return Ok(false);
                    }
                    continue;
                }
                Some(_) => return Ok(false),
            };
            let matched = self.simple(matcher, parsed.pattern, delimiter)?;
            tokens.push(Token::Truth(matched));
        }
        let mut tokens = tokens.into_iter().peekable();
        let truth = alternatives(&mut tokens, 0);
        Ok(truth == Some(true) && tokens.next().is_none())
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Token {
    Open,
    Close,
    And,
    Or,
    Not,
    Truth(bool),
}

/// Adds an operator; `false` where stock gives the expression up at once.
fn operator(word: &str, tokens: &mut Vec<Token>) -> bool {
    match (word, tokens.last()) {
        ("and" | "or" | ")", None) | ("and" | "or", Some(Token::Open)) => return false,
        ("not", Some(Token::And | Token::Or | Token::Open) | None) => {}
        ("not", Some(_)) => tokens.push(Token::And),
        _ => {}
    }
    tokens.push(match word {
        "and" => Token::And,
        "or" => Token::Or,
        "not" => Token::Not,
        "(" => Token::Open,
        _ => Token::Close,
    });
    true
}

type Tokens = std::iter::Peekable<std::vec::IntoIter<Token>>;

fn alternatives(tokens: &mut Tokens, depth: usize) -> Option<bool> {
    let mut truth = conjunction(tokens, depth)?;
    while tokens.next_if(|token| *token == Token::Or).is_some() {
        truth |= conjunction(tokens, depth)?;
    }
    Some(truth)
}

fn conjunction(tokens: &mut Tokens, depth: usize) -> Option<bool> {
    let mut truth = operand(tokens, depth)?;
    while tokens.next_if(|token| *token == Token::And).is_some() {
        truth &= operand(tokens, depth)?;
    }
    Some(truth)
}

fn operand(tokens: &mut Tokens, depth: usize) -> Option<bool> {
    if depth > MAX_DEPTH {
        return None;
    }
    match tokens.next()? {
        Token::Truth(truth) => Some(truth),
        Token::Not => operand(tokens, depth + 1).map(|truth| !truth),
        Token::Open => {
            // `( )` is Python's empty tuple, which is false.
            if tokens.next_if(|token| *token == Token::Close).is_some() {
                return Some(false);
            }
            let inner = alternatives(tokens, depth + 1)?;
            (tokens.next()? == Token::Close).then_some(inner)
        }
        Token::Close | Token::And | Token::Or => None,
    }
}

#[cfg(test)]
mod tests {
    use saltern_config::yaml::{Limits, parse};

    use super::*;

    fn ask(matcher: &str, target: &str) -> Result<bool, SingleError> {
        let text = "{two: [web1, web2], deb: 'G@os:Debian and not E@db.*', in: 'N@two'}";
        let node = parse(text, "test", &Limits::DEFAULT).unwrap();
        let list = |items: [&str; 2]| Value::from(items.map(Value::from).to_vec());
        let grains = Value::map([
            ("os", Value::from("Debian")),
            ("roles", list(["web", "app"])),
            ("ipv4", list(["127.0.0.1", "10.0.0.7"])),
        ]);
        let single = Single {
            id: "web1",
            grains: &grains,
            pillar: &Value::map([("tier", "front")]),
            nodegroups: &Nodegroups::from_node(&node),
            compat: Compat::V3008,
            patterns: &PatternCache::default(),
        };
        single.matches(matcher, &Value::from(target))
    }

    #[test]
    fn matchers_answer_as_stock() {
        let table = [
            ("glob", "web*", true),
            ("glob", "db*", false),
            ("list", "db1,web1", true),
            ("list", "web10,db1", false),
            ("pcre", "we(b|x)", true),
            ("pcre", "eb1", false),
            ("grain", "os:deb*", true),
            ("grain", "roles:app", true),
            ("grain", "os", false),
            ("grain_pcre", "os:D.b", true),
            ("pillar", "tier:fr*", true),
            ("pillar_pcre", "tier:fr.nt", true),
            ("pillar_exact", "tier:fr*", false),
            ("pillar_exact", "tier:front", true),
            ("ipcidr", "10.0.0.0/8", true),
            ("ipcidr", "10.0.0.8", false),
            ("ipcidr", "nonsense", false),
            ("nodegroup", "two", true),
            ("nodegroup", "deb", true),
            ("nodegroup", "none", false),
            ("range", "web1", false),
            ("managing_minion", "web1", true),
            ("resource", "x", false),
            ("compound", "G@os:Debian and ( db* or L@web1 )", true),
            ("compound", "not N@in", false),
            ("compound", "web1 not db1", true),
            ("compound", "I@tier:front and S@10.0.0.7", true),
            ("compound", "P|@os|D.b", true),
            ("compound", "db* or web* and not web1", false),
            ("compound", "( )", false),
            ("compound", "not ( )", true),
            ("compound", "web1 web1", false),
            ("compound", "and web1", false),
            // It is given up before the expression is read.
            ("compound", "and E@((", false),
            ("compound", "( web1", false),
            ("compound", "not not web1", false),
            ("compound", "web1 or R@web1", false),
            ("compound", "", false),
        ];
        for (matcher, target, expected) in table {
            assert_eq!(ask(matcher, target), Ok(expected), "{matcher} {target}");
        }
        assert_eq!(
            ask("astrology", "x"),
            Err(SingleError::UnknownMatcher("astrology".to_owned()))
        );
        assert!(ask("pcre", "((").is_err());
        let deep = |open: &str, close: &str, depth: usize| {
            let target = format!("{}web1{}", open.repeat(depth), close.repeat(depth));
            ask("compound", &target)
        };
        for (depth, expected) in [(200, true), (201, false)] {
            assert_eq!(deep("( ", " )", depth), Ok(expected), "{depth}");
        }
        for (depth, expected) in [(100, true), (102, false)] {
            assert_eq!(deep("not ( ", " )", depth), Ok(expected), "{depth}");
        }
        assert_eq!(ask("compound", &"( ".repeat(5000)), Ok(false));
        assert_eq!(ask("compound", &"not ".repeat(5000)), Ok(false));
    }

    /// As in a search of the cache: what is between two commas and empty names nobody.
    #[test]
    fn list_names_minions_by_the_rule_of_all_targets() {
        for (id, expected) in [("a", true), (" b", true), ("b", false), ("", false)] {
            let single = Single {
                id,
                grains: &Value::Nil,
                pillar: &Value::Nil,
                nodegroups: &Nodegroups::default(),
                compat: Compat::V3008,
                patterns: &PatternCache::default(),
            };
            let is_named = single.matches("list", &Value::from("a,, b"));
            assert_eq!(is_named, Ok(expected), "{id:?}");
        }
    }

    #[test]
    fn list_and_groups_of_the_largest_size_match() {
        // 49,999 words.
        let words = vec!["web1"; 25_000].join(" or ");
        let node = parse(&format!("g: {words}"), "test", &Limits::DEFAULT).unwrap();
        let single = Single {
            id: "web1",
            grains: &Value::Nil,
            pillar: &Value::Nil,
            nodegroups: &Nodegroups::from_node(&node),
            compat: Compat::V3008,
            patterns: &PatternCache::default(),
        };
        let matches = |matcher, target: Value| single.matches(matcher, &target);
        assert_eq!(matches("compound", "not N@g and N@g".into()), Ok(true));
        assert_eq!(matches("compound", "( N@g and N@g )".into()), Ok(false));
        let list = |id: &str| Value::from(vec![Value::from("x"), id.into()]);
        assert_eq!(matches("list", list("web1")), Ok(true));
        assert_eq!(matches("list", list("web")), Ok(false));
    }
}
