//! Compound targets: `G@os:Debian and not ( web* or E@db\d )`.
//!
//! Stock turns the words into a Python expression over sets and evaluates that, so its grammar is
//! Python's: `and` binds tighter than `or`, `not` is the difference from all minions and stands for
//! `and not` behind a set, two sets side by side are an error, and any error means nobody
//! (`_check_compound_minions` in `salt/utils/minions.py`).

use std::cell::RefCell;

use super::bits::Bits;
use super::nodegroups::{Nodegroups, OPERATORS};
use crate::target::{Problems, TargetError};
use saltern_model::Compat;

/// The deepest nesting of parentheses; that of Python's own parser.
pub(super) const MAX_DEPTH: usize = 200;

/// The most words of an expression, with those that nodegroups stand for: each has a set of minions.
const MAX_WORDS: usize = 10_000;

/// One word with an engine before its `@`, or a wildcard over ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EngineWord<'a> {
    /// Its letter; nothing for a wildcard.
    pub(super) engine: Option<char>,
    /// The character between the letter and the `@`.
    pub(super) delimiter: Option<char>,
    pub(super) pattern: &'a str,
}

impl<'a> EngineWord<'a> {
    /// Reads a word as stock's `parse_target`; a word without an engine of the version is a wildcard.
    pub(super) fn parse(word: &'a str, compat: Compat) -> Self {
        let wildcard = Self {
            engine: None,
            delimiter: None,
            pattern: word,
        };
        let mut chars = word.chars();
        let Some(engine) = chars.next() else {
            return wildcard;
        };
        let is_engine = match engine {
            'T' | 'M' => compat == Compat::V3008,
            other => "GPIJLNSER".contains(other),
        };
        if !is_engine {
            return wildcard;
        }
        let behind = chars.as_str();
        let usable = |pattern: &'a str| {
            // The expression that stock uses ends at the end of a line.
            let pattern = pattern.strip_suffix('\n').unwrap_or(pattern);
            (!pattern.is_empty() && !pattern.contains('\n')).then_some(pattern)
        };
        let mut rest = behind.chars();
        if "GPIJ".contains(engine)
            && let Some(delimiter) = rest.next().filter(|c| *c != '\n')
            && let Some(pattern) = rest.as_str().strip_prefix('@').and_then(usable)
        {
            return Self {
                engine: Some(engine),
                delimiter: Some(delimiter),
                pattern,
            };
        }
        match behind.strip_prefix('@').and_then(usable) {
            Some(pattern) => Self {
                engine: Some(engine),
                delimiter: None,
                pattern,
            },
            None => wildcard,
        }
    }
}

enum Token {
    Open,
    Close,
    And,
    Or,
    /// All minions without what follows.
    AllBut,
    Set(Bits),
}

/// The minions that the words mean, and the names that lists did not find.
///
/// `minions` are all of them, which `not` takes away from. `engine` answers one word; its flag says
/// that names which are not found shall not count.
pub(super) fn resolve(
    words: Vec<String>,
    nodegroups: &Nodegroups,
    compat: Compat,
    minions: &Bits,
    problems: &RefCell<Problems>,
    mut engine: impl FnMut(EngineWord<'_>, bool) -> Result<(Bits, Vec<String>), TargetError>,
) -> Result<(Bits, Vec<String>), TargetError> {
    let malformed = || TargetError::Compound("its words make no expression");
    let too_many = || TargetError::Compound("it has too many words");
    if words.len() > MAX_WORDS {
        return Err(too_many());
    }
    let mut tokens = Vec::new();
    // What is still to be closed: an opened parenthesis, or a difference.
    let mut open: Vec<Token> = Vec::new();
    let mut missing = Vec::new();
    let mut words: Vec<String> = words.into_iter().rev().collect();
    while let Some(word) = words.pop() {
        if OPERATORS.contains(&word.as_str()) {
            operator(&word, &mut tokens, &mut open).ok_or_else(malformed)?;
        } else {
            let parsed = EngineWord::parse(&word, compat);
            if parsed.engine == Some('N') {
                let group = nodegroups.expand(parsed.pattern, &mut problems.borrow_mut())?;
                words.extend(group.into_iter().rev());
                if words.len() + tokens.len() > MAX_WORDS {
                    return Err(too_many());
                }
                continue;
            }
            let ignores_missing = matches!(tokens.last(), Some(Token::AllBut));
            let (set, not_found) = engine(parsed, ignores_missing)?;
            tokens.push(Token::Set(set));
            missing.extend(not_found);
            close_difference(&mut tokens, &mut open);
        }
        if open.len() > MAX_DEPTH {
            return Err(TargetError::Compound("it is nested too deeply"));
        }
    }
    tokens.extend(open.iter().map(|_| Token::Close));
    let mut tokens = tokens.into_iter().peekable();
    let value = alternatives(&mut tokens, minions).ok_or_else(malformed)?;
    match (value, tokens.next()) {
        (Operand::Set(set), None) => Ok((set, missing)),
        (Operand::Nothing, None) => {
            let mut nobody = minions.clone();
            nobody.subtract(minions);
            Ok((nobody, missing))
        }
        (_, Some(_)) => Err(malformed()),
    }
}

/// Nothing where stock refuses the expression already while reading it.
fn operator(word: &str, tokens: &mut Vec<Token>, open: &mut Vec<Token>) -> Option<()> {
    let is_binary = matches!(word, "and" | "or");
    if is_binary && matches!(tokens.last(), None | Some(Token::Open)) {
        return None;
    }
    match word {
        "and" => tokens.push(Token::And),
        "or" => tokens.push(Token::Or),
        "not" => {
            let is_joined = matches!(
                tokens.last(),
                None | Some(Token::And | Token::Or | Token::Open)
            );
            if !is_joined {
                tokens.push(Token::And);
            }
            tokens.push(Token::Open);
            tokens.push(Token::AllBut);
            open.push(Token::AllBut);
        }
        "(" => {
            tokens.push(Token::Open);
            open.push(Token::Open);
        }
        _ => {
            matches!(open.last(), Some(Token::Open)).then_some(())?;
            open.pop();
            tokens.push(Token::Close);
            close_difference(tokens, open);
        }
    }
    Some(())
}

fn close_difference(tokens: &mut Vec<Token>, open: &mut Vec<Token>) {
    if matches!(open.last(), Some(Token::AllBut)) {
        open.pop();
        tokens.push(Token::Close);
    }
}

enum Operand {
    Set(Bits),
    /// `( )`, Python's empty tuple: no operator takes it.
    Nothing,
}

type Tokens = std::iter::Peekable<std::vec::IntoIter<Token>>;

fn alternatives(tokens: &mut Tokens, minions: &Bits) -> Option<Operand> {
    let mut left = conjunction(tokens, minions)?;
    while tokens.next_if(|token| matches!(token, Token::Or)).is_some() {
        let (Operand::Set(mut set), Operand::Set(right)) = (left, conjunction(tokens, minions)?)
        else {
            return None;
        };
        set.unite(&right);
        left = Operand::Set(set);
    }
    Some(left)
}

fn conjunction(tokens: &mut Tokens, minions: &Bits) -> Option<Operand> {
    let mut left = operand(tokens, minions)?;
    while tokens
        .next_if(|token| matches!(token, Token::And))
        .is_some()
    {
        let (Operand::Set(mut set), Operand::Set(right)) = (left, operand(tokens, minions)?) else {
            return None;
        };
        set.intersect(&right);
        left = Operand::Set(set);
    }
    Some(left)
}

fn operand(tokens: &mut Tokens, minions: &Bits) -> Option<Operand> {
    match tokens.next()? {
        Token::Set(set) => Some(Operand::Set(set)),
        Token::AllBut => match operand(tokens, minions)? {
            Operand::Set(set) => {
                let mut rest = minions.clone();
                rest.subtract(&set);
                Some(Operand::Set(rest))
            }
            Operand::Nothing => None,
        },
        Token::Open => {
            if tokens
                .next_if(|token| matches!(token, Token::Close))
                .is_some()
            {
                return Some(Operand::Nothing);
            }
            let inner = alternatives(tokens, minions)?;
            matches!(tokens.next()?, Token::Close).then_some(inner)
        }
        Token::Close | Token::And | Token::Or => None,
    }
}

/// Splits a compound expression into its words.
pub(super) fn words(text: &str) -> Vec<String> {
    saltern_python::text::split(text)
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compound_words_select_their_engines() {
        let word = |engine, delimiter, pattern| EngineWord {
            engine,
            delimiter,
            pattern,
        };
        let table = [
            ("web*", word(None, None, "web*")),
            ("G@os:Debian", word(Some('G'), None, "os:Debian")),
            ("G|@os|Debian", word(Some('G'), Some('|'), "os|Debian")),
            ("G@@os", word(Some('G'), Some('@'), "os")),
            ("G@@", word(Some('G'), None, "@")),
            ("G@", word(None, None, "G@")),
            ("L|@a", word(None, None, "L|@a")),
            ("E@a@b", word(Some('E'), None, "a@b")),
            ("Q@a", word(None, None, "Q@a")),
            ("T@a", word(Some('T'), None, "a")),
            ("@a", word(None, None, "@a")),
            ("", word(None, None, "")),
        ];
        for (text, expected) in table {
            assert_eq!(EngineWord::parse(text, Compat::V3008), expected, "{text}");
        }
        assert_eq!(
            EngineWord::parse("T@a", Compat::V3007),
            word(None, None, "T@a")
        );
    }

    /// Four minions, a to d; a word means the minions whose letters it has, L@ misses one.
    fn evaluate(text: &str) -> Result<String, ()> {
        evaluate_with(text, &Nodegroups::default())
    }

    fn evaluate_with(text: &str, groups: &Nodegroups) -> Result<String, ()> {
        let engine = |word: EngineWord<'_>, ignores_missing: bool| {
            let set = Bits::of(4, |at| word.pattern.contains(["a", "b", "c", "d"][at]));
            let missing = match word.engine == Some('L') && !ignores_missing {
                true => vec!["ghost".to_owned()],
                false => Vec::new(),
            };
            Ok((set, missing))
        };
        let (all, problems) = (Bits::all(4), RefCell::default());
        let found = resolve(words(text), groups, Compat::V3008, &all, &problems, engine);
        let (set, missing) = found.map_err(|_| ())?;
        let ids: String = set.iter().map(|at| ["a", "b", "c", "d"][at]).collect();
        Ok(ids + &missing.concat())
    }

    #[test]
    fn compound_expressions_evaluate_as_in_python() {
        let table = [
            ("ab", "ab"),
            ("ab or c and d", "ab"),
            ("( ab or c ) and bc", "bc"),
            ("not a", "bcd"),
            ("not ( a or b )", "cd"),
            ("not a and not b", "cd"),
            ("abc not b", "ac"),
            ("ab and not L@b", "a"),
            ("ab and L@b", "bghost"),
            ("( ab", "ab"),
            ("not ( a or ( b", "cd"),
            ("( )", ""),
            ("( ( ) )", ""),
            ("x", ""),
            ("( not a ) and bc", "bc"),
        ];
        for (text, expected) in table {
            assert_eq!(evaluate(text), Ok(expected.to_owned()), "{text}");
        }
        for text in [
            "",
            "and a",
            "or a",
            "a and",
            "a or",
            "a b",
            "not",
            "not not a",
            "a )",
            "( and a )",
            "( a ) ( b )",
            "a ( b )",
            "( ) or a",
            "a and ( )",
            "not and a",
            "( not )",
            "not ( )",
            "a and or b",
        ] {
            assert_eq!(evaluate(text), Err(()), "{text}");
        }
        let words = |count: usize| vec!["a"; count].join(" or ");
        assert_eq!(evaluate(&words(5_000)), Ok("a".to_owned()));
        assert!(evaluate(&words(5_001)).is_err());
        assert!(evaluate(&"( ".repeat(5000)).is_err());
        assert!(evaluate(&"not ( ".repeat(5000)).is_err());
    }

    #[test]
    fn compound_expression_at_a_bound_is_evaluated_and_beyond_it_is_not() {
        // 9,999 words.
        let words = vec!["a"; 5_000].join(" or ");
        let all = Ok("abcd".to_owned());
        assert_eq!(evaluate(&format!("not {words}")), all);
        assert!(evaluate(&format!("( not {words}")).is_err());
        let yaml = format!("g: {words}");
        let node =
            saltern_config::yaml::parse(&yaml, "test", &saltern_config::yaml::Limits::DEFAULT);
        let groups = Nodegroups::from_node(&node.unwrap());
        // A difference opens a parenthesis before itself, which counts.
        assert_eq!(evaluate_with("( N@g", &groups), Ok("a".to_owned()));
        assert!(evaluate_with("( ( N@g", &groups).is_err());
        let nested = |depth| evaluate(&("( ".repeat(depth) + "a"));
        assert_eq!(nested(200), Ok("a".to_owned()));
        assert!(nested(201).is_err());
    }
}
