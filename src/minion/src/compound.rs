//! Compound targets (`salt/matchers/compound_match.py`): terms with `and`, `or`, `not` and parentheses, each a word
//! of its own. `not` binds closest, then `and`, as in the Python expression that stock makes of them.

use std::iter::Peekable;
use std::str::SplitWhitespace;

/// Parentheses and negations within each other.
const MAX_DEPTH: usize = 64;

/// Whether a compound target matches, whose terms `term` judges; none when it is malformed, or when a term is
/// none that `term` knows.
pub(crate) fn matches(target: &str, term: &dyn Fn(&str) -> Option<bool>) -> Option<bool> {
    let words = target.split_whitespace().peekable();
    let mut expression = Expression { words, term };
    let found = expression.either(0)?;
    expression.words.next().is_none().then_some(found)
}

struct Expression<'a> {
    words: Peekable<SplitWhitespace<'a>>,
    term: &'a dyn Fn(&str) -> Option<bool>,
}

impl Expression<'_> {
    fn either(&mut self, depth: usize) -> Option<bool> {
        let mut found = self.both(depth)?;
        while self.words.next_if_eq(&"or").is_some() {
            found |= self.both(depth)?;
        }
        Some(found)
    }

    fn both(&mut self, depth: usize) -> Option<bool> {
        let mut found = self.one(depth)?;
        while self.words.next_if_eq(&"and").is_some() {
            found &= self.one(depth)?;
        }
        Some(found)
    }

    fn one(&mut self, depth: usize) -> Option<bool> {
        if depth > MAX_DEPTH {
            return None;
        }
        match self.words.next()? {
            "not" => self.one(depth + 1).map(|found| !found),
            "(" => {
                let found = self.either(depth + 1)?;
                self.words.next_if_eq(&")").map(|_| found)
            }
            "and" | "or" | ")" => None,
            word => (self.term)(word),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_bind_as_in_python() {
        let term = |word: &str| match word {
            "t" => Some(true),
            "f" => Some(false),
            _ => None,
        };
        let deep = format!("{}t{}", "( ".repeat(1000), " )".repeat(1000));
        for (target, found) in [
            ("t", Some(true)),
            ("not t", Some(false)),
            ("not not t", Some(true)),
            ("t or t and f", Some(true)),
            ("( t or t ) and f", Some(false)),
            ("not f and f", Some(false)),
            ("f or not ( f and t )", Some(true)),
            ("", None),
            ("t t", None),
            ("t and", None),
            ("or t", None),
            ("( t", None),
            ("t )", None),
            ("t or I@a:b", None),
            (deep.as_str(), None),
        ] {
            assert_eq!(matches(target, &term), found, "{target:.40}");
        }
    }
}
