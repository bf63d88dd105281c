//! Compiled patterns: `fnmatch` wildcards and regular expressions of `re`, with bounds on the memory
//! and the steps that they take.
//!
//! [`Pattern`] is for what decides over access and targets: what may mean something else here than
//! in CPython is refused. [`Expression`] is for what the site itself writes, in templates and in its
//! configuration, where a near reading is better than none.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use fancy_regex::{Captures, Regex, RegexBuilder};

use crate::fnmatch::Glob;
use crate::re::{Flags, Tail, Translation, translate};

/// Why an expression cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExpressionError {
    /// Longer than [`MAX_BYTES`].
    #[error("an expression may have at most 65536 bytes, this one has {0}")]
    TooLong(usize),
    /// Not a regular expression.
    #[error("\"{expression}\" is not a regular expression: {reason}")]
    Syntax {
        /// The expression, shortened for the log.
        expression: String,
        /// The error of the parser.
        reason: String,
    },
}

impl ExpressionError {
    /// Whether Python may know the expression all the same.
    fn is_of_python(&self) -> bool {
        matches!(self, Self::Syntax { reason, .. } if reason.contains("not supported"))
    }

    fn syntax(expression: &str, reason: impl ToString) -> Self {
        Self::Syntax {
            expression: expression.chars().take(200).collect(),
            reason: reason.to_string(),
        }
    }
}

fn check_size(expression: &str) -> Result<(), ExpressionError> {
    match expression.len() > MAX_BYTES {
        true => Err(ExpressionError::TooLong(expression.len())),
        false => Ok(()),
    }
}

/// The most bytes an expression may have.
pub const MAX_BYTES: usize = 65_536;

/// How many steps one match may take before it counts as no match. Python has no such limit, and
/// an expression from a client could hold a worker for ever.
const BACKTRACK_LIMIT: usize = 200_000;

/// How many steps nearly every match makes do with. Who takes more is tried again with the full
/// limit, and so it is known that the match was expensive: the engine itself does not count.
const USUAL_BACKTRACKS: usize = 1_000;

/// The longest text, in bytes, that a regular expression of a target is held against.
const MAX_TEXT: usize = 16 << 10;

/// A compiled pattern over minion ids and the like.
#[derive(Clone)]
pub struct Pattern(Kind);

#[derive(Clone)]
enum Kind {
    Glob(Arc<Glob>),
    Regex(Arc<Limited>),
}

/// A regular expression with the usual limit and, once it was needed, with the full one.
struct Limited {
    usual: Regex,
    full: OnceLock<Option<Regex>>,
    /// About how many bytes it may take.
    size: usize,
}

/// How many bytes an expression takes that is kept or compiled for many places.
const LIGHT: usize = 256 << 10;

/// The most bytes that an expression may take.
const HEAVY: usize = 16 << 20;

/// The most bytes that one automaton of it may take.
const AUTOMATON: usize = 4 << 20;

/// The most instructions of an expression. The engine writes out what calls itself.
const MAX_INSTRUCTIONS: usize = 20_000;

impl Limited {
    fn compile(regex: &str) -> Result<Self, fancy_regex::Error> {
        let build = |size| build(regex, USUAL_BACKTRACKS, size).map(|usual| (usual, size));
        let (usual, size) = build(LIGHT).or_else(|_| build(HEAVY))?;
        Ok(Self {
            usual,
            full: OnceLock::new(),
            size,
        })
    }

    /// Whether it matches, as far as the limit lets that be known, and whether the usual limit did
    /// not suffice to say so.
    fn matches(&self, text: &str) -> (Option<bool>, bool) {
        if let Ok(is_match) = self.usual.is_match(text) {
            return (Some(is_match), false);
        }
        let full = self.full.get_or_init(|| {
            let full = build(self.usual.as_str(), BACKTRACK_LIMIT, self.size);
            full.ok()
        });
        let full = full.as_ref();
        (full.and_then(|full| full.is_match(text).ok()), true)
    }
}

/// `size` is for all the automata together that the expression is made of.
fn build(regex: &str, backtracks: usize, size: usize) -> Result<Regex, fancy_regex::Error> {
    let size = AUTOMATON.min(size / pieces(regex));
    RegexBuilder::new(regex)
        .backtrack_limit(backtracks)
        .max_prog_size(MAX_INSTRUCTIONS)
        .delegate_size_limit(size)
        .delegate_dfa_size_limit(size)
        .delegate_dfa_skip_cache_capacity_check(false)
        .build()
}

/// Into how many automata the engine divides an expression, at most: one, unless something in it
/// needs backtracking.
fn pieces(regex: &str) -> usize {
    let bytes = regex.as_bytes();
    let needs_backtracking = bytes.windows(2).any(|pair| match pair {
        [b'\\', behind] => behind.is_ascii_digit() || b"kgKGRXO".contains(behind),
        [b'*' | b'+' | b'?' | b'}', b'+'] => true,
        _ => false,
    });
    let has_extension = bytes
        .windows(3)
        .any(|three| matches!(three, [b'(', b'?', behind] if !b":imsx-".contains(behind)));
    if !needs_backtracking && !has_extension {
        return 1;
    }
    let parting = bytes.iter().filter(|byte| b"(|*+?{\\".contains(byte));
    1 + parting.count()
}

impl Pattern {
    /// A wildcard pattern as Python's `fnmatch.fnmatchcase` reads it: `*`, `?`, `[seq]`, `[!seq]`;
    /// it must match the whole text.
    pub fn glob(pattern: &str) -> Result<Self, ExpressionError> {
        check_size(pattern)?;
        Ok(Self(Kind::Glob(Arc::new(Glob::new(pattern)))))
    }

    /// A regular expression as Python's `re.match` applies it: from the start of the text, not
    /// necessarily to its end.
    pub fn regex_at_start(expression: &str) -> Result<Self, ExpressionError> {
        Self::regex(expression, Tail::Open, "")
    }

    /// A regular expression that must match the whole text.
    pub fn regex_whole(expression: &str) -> Result<Self, ExpressionError> {
        Self::regex(expression, Tail::End, r"\z")
    }

    fn regex(expression: &str, tail: Tail, end: &str) -> Result<Self, ExpressionError> {
        check_size(expression)?;
        let translation = translate(expression, tail, Flags::default());
        let Translation { regex, .. } =
            translation.map_err(|reason| ExpressionError::syntax(expression, reason))?;
        Limited::compile(&format!(r"\A(?:{regex}){end}"))
            .map(|limited| Self(Kind::Regex(Arc::new(limited))))
            .map_err(|error| ExpressionError::syntax(expression, error))
    }

    /// Whether the pattern matches. A match that takes too many steps is none.
    pub fn matches(&self, text: &str) -> bool {
        self.decide(text) == Some(true)
    }

    /// The same, but nothing where it takes too many steps to find out.
    pub fn decide(&self, text: &str) -> Option<bool> {
        match &self.0 {
            Kind::Glob(glob) => glob.matches_counting(text).0,
            Kind::Regex(regex) => regex.matches(text).0,
        }
    }

    /// Whether the pattern matches, and about how many steps of a thousand backtracks each it took
    /// to find out. Nothing where that takes too many, or for a regular expression and a text above
    /// 16 KiB.
    pub fn matches_counting(&self, text: &str) -> (Option<bool>, usize) {
        match &self.0 {
            Kind::Regex(_) if text.len() > MAX_TEXT => (None, 1),
            Kind::Regex(regex) => {
                let (is_match, is_expensive) = regex.matches(text);
                let steps = if is_expensive {
                    BACKTRACK_LIMIT / USUAL_BACKTRACKS
                } else {
                    0
                };
                (is_match, 1 + text.len() / 64 + steps)
            }
            Kind::Glob(glob) => glob.matches_counting(text),
        }
    }

    /// Whether it takes so much memory that only a few should be kept.
    pub fn is_heavy(&self) -> bool {
        match &self.0 {
            Kind::Glob(glob) => glob.size() > LIGHT,
            Kind::Regex(regex) => regex.size > LIGHT,
        }
    }

    /// The only text that this pattern can match, if there is one.
    pub fn literal(&self) -> Option<&str> {
        match &self.0 {
            Kind::Glob(glob) => glob.literal(),
            Kind::Regex(_) => None,
        }
    }
}

/// A regular expression of a template or of the configuration, searched for anywhere in a text.
///
/// An expression that [`Pattern`] refuses because CPython may read it otherwise is left to the
/// engine here: the site writes these itself, they grant nothing, and most such expressions mean
/// the same.
#[derive(Debug)]
pub struct Expression {
    regex: Regex,
    /// The numbers of the groups with a name; nothing where the engine reads the expression itself.
    names: Option<HashMap<String, usize>>,
}

/// The flags that `re.compile` takes as an argument.
#[derive(Clone, Copy, Debug, Default)]
pub struct ExpressionFlags {
    /// `re.IGNORECASE`.
    pub ignores_case: bool,
    /// `re.MULTILINE`.
    pub is_multiline: bool,
}

/// A search that took too many steps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a regular expression takes too many steps: {0}")]
pub struct SearchError(String);

impl Expression {
    /// Compiles an expression.
    ///
    /// # Errors
    /// When Python knows no such expression, or it takes too much memory.
    pub fn new(expression: &str, flags: ExpressionFlags) -> Result<Self, ExpressionError> {
        check_size(expression)?;
        let translated = translate(expression, Tail::End, Flags::from(flags))
            .map_err(|reason| ExpressionError::syntax(expression, reason));
        let (regex, names) = match translated {
            Ok(Translation { regex, names }) => (regex, Some(names)),
            Err(error) if error.is_of_python() => (untranslated(expression, flags), None),
            Err(error) => return Err(error),
        };
        let regex = build(&regex, BACKTRACK_LIMIT, HEAVY);
        let regex = regex.map_err(|error| ExpressionError::syntax(expression, error))?;
        Ok(Self { regex, names })
    }

    /// Whether it matches anywhere (`re.search`).
    ///
    /// # Errors
    /// When that takes too many steps to find out.
    pub fn is_match(&self, text: &str) -> Result<bool, SearchError> {
        let found = self.regex.is_match(text);
        found.map_err(|error| SearchError(error.to_string()))
    }

    /// The groups of the first match at `start` or behind (`re.search`).
    ///
    /// # Errors
    /// When that takes too many steps to find out.
    pub fn captures<'t>(
        &self,
        text: &'t str,
        start: usize,
    ) -> Result<Option<Captures<'t, str>>, SearchError> {
        let found = self.regex.captures_from_pos(text, start);
        found.map_err(|error| SearchError(error.to_string()))
    }

    /// The group of a match with this name.
    #[must_use]
    pub fn group<'t>(&self, captures: &Captures<'t, str>, name: &str) -> Option<&'t str> {
        let group = match &self.names {
            Some(names) => names.get(name).and_then(|number| captures.get(*number)),
            None => captures.name(name),
        };
        group.map(|group| group.as_str())
    }

    /// Whether it has a group with this name.
    #[must_use]
    pub fn has_group(&self, name: &str) -> bool {
        match &self.names {
            Some(names) => names.contains_key(name),
            None => self
                .regex
                .capture_names()
                .flatten()
                .any(|known| known == name),
        }
    }

    /// Whether it is read as CPython reads it, and not left to the engine.
    #[must_use]
    pub fn is_translated(&self) -> bool {
        self.names.is_some()
    }
}

/// An expression for the engine as it is written, but for the end of the text, which has another
/// letter there.
fn untranslated(expression: &str, flags: ExpressionFlags) -> String {
    let expression = expression.replace(r"\Z", r"\z");
    let marks = match (flags.ignores_case, flags.is_multiline) {
        (true, true) => "(?im)",
        (true, false) => "(?i)",
        (false, true) => "(?m)",
        (false, false) => "",
    };
    format!("{marks}{expression}")
}

/// Stock's `expr_match` (`salt/utils/stringutils.py`): equal, or a wildcard match, or a regular
/// expression over the whole text. Used for lines of autosign files and for blacklists.
#[derive(Default)]
pub struct AnyOf {
    exact: Vec<String>,
    patterns: Vec<Pattern>,
}

impl AnyOf {
    /// Compiles the entries; one that is not a regular expression still works as a wildcard.
    pub fn new<'a>(entries: impl IntoIterator<Item = &'a str>) -> Self {
        let mut any = Self::default();
        for entry in entries {
            any.exact.push(entry.to_owned());
            let is_wild = entry.contains(['*', '?', '[']);
            any.patterns
                .extend(Pattern::glob(entry).ok().filter(|_| is_wild));
            match Pattern::regex_whole(entry) {
                Ok(pattern) => any.patterns.push(pattern),
                Err(error) if error.is_of_python() => {
                    tracing::error!(%error, "an entry counts as a text and a wildcard only");
                }
                Err(_) => {}
            }
        }
        any
    }

    /// Whether any entry matches, or takes too many steps to find out: where a match forbids.
    pub fn may_match(&self, text: &str) -> bool {
        self.exact.iter().any(|entry| entry == text)
            || self
                .patterns
                .iter()
                .any(|pattern| pattern.decide(text) != Some(false))
    }

    /// Whether any entry matches.
    pub fn matches(&self, text: &str) -> bool {
        self.exact.iter().any(|entry| entry == text)
            || self.patterns.iter().any(|pattern| pattern.matches(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn wildcards_as_python_reads_them() {
        let table = [
            ("*", "anything", true),
            ("web*", "web1", true),
            ("web*", "1web", false),
            ("w?b", "web", true),
            ("w?b", "wb", false),
            ("web[0-9]", "web5", true),
            ("web[!0-9]", "web5", false),
            ("web[!0-9]", "webx", true),
            ("[]]", "]", true),
            ("[!]]", "a", true),
            ("[abc", "[abc", true),
            ("a.b", "axb", false),
            ("a.b", "a.b", true),
            ("[z-a]", "b", false),
            ("[a-]", "-", true),
            ("[\\]x", "\\x", true),
            ("größ*", "größer", true),
            ("", "", true),
            ("*\n", "a\n", true),
            ("[^a]", "^", true),
            ("[&&]", "&", true),
        ];
        for (pattern, text, expected) in table {
            let compiled = Pattern::glob(pattern).unwrap();
            assert_eq!(compiled.matches(text), expected, "{pattern:?} {text:?}");
        }
    }

    #[test]
    fn regular_expressions_are_anchored_at_the_start_only() {
        let web = Pattern::regex_at_start("web(1|2)").unwrap();
        assert!(web.matches("web1"));
        assert!(web.matches("web10"));
        assert!(!web.matches("xweb1"));
        assert!(Pattern::regex_at_start("a|b").unwrap().matches("bc"));
        assert!(Pattern::regex_at_start("(?=w)web").unwrap().matches("web"));
        assert!(Pattern::regex_at_start("(").is_err());
    }

    #[test]
    fn a_match_that_explodes_ends_as_no_match() {
        let bomb = Pattern::regex_at_start(r"(a|a|(?=a)a)*\1b").unwrap();
        assert!(!bomb.matches(&"a".repeat(200)));
        let (is_match, steps) = bomb.matches_counting(&"a".repeat(200));
        assert_eq!(is_match, None);
        assert!(steps > BACKTRACK_LIMIT / USUAL_BACKTRACKS);
        assert_eq!(bomb.matches_counting("ab"), (Some(false), 1));
        assert!(bomb.matches("aab"));
    }

    #[test]
    fn what_would_take_much_memory_is_heavy_or_refused() {
        let compile = |text: &str| Pattern::regex_at_start(text);
        for light in [
            r"web\d+",
            r"(?!db).*\.example\.com",
            "(web|db)[0-9]+",
            r"(a|b)\1",
        ] {
            assert!(!compile(light).unwrap().is_heavy(), "{light}");
        }
        assert!(compile(r"\w{40}").unwrap().is_heavy());
        assert!(compile(r"\w{100000}").is_err());
        // Many automata, each small enough; a call of itself that is written out.
        let many = |count: usize| r"(?=a)\w{20}".repeat(count);
        assert!(compile(&many(1)).is_ok());
        assert!(compile(&many(1_500)).is_err());
        assert!(compile(r"(a\g<1>\g<1>\g<1>|b)").is_err());
    }

    #[test]
    fn what_takes_more_than_the_usual_steps_still_matches() {
        let pattern = Pattern::regex_at_start(r"(?=(a|a)*\1c|a)a*b").unwrap();
        let (is_match, steps) = pattern.matches_counting(&("a".repeat(12) + "b"));
        assert_eq!(is_match, Some(true));
        assert!(steps > BACKTRACK_LIMIT / USUAL_BACKTRACKS);
        let text = "a".repeat(MAX_TEXT + 1);
        let (is_match, _) = Pattern::regex_at_start("a")
            .unwrap()
            .matches_counting(&text);
        assert_eq!(is_match, None);
    }

    #[test]
    fn an_autosign_line_is_text_wildcard_or_expression() {
        let any = AnyOf::new(["web-*", r"db\d+", "("]);
        for good in ["web-1", "db12", "(", "web-*"] {
            assert!(any.matches(good), "{good}");
        }
        for bad in ["db", "xdb1", "db1x", ""] {
            assert!(!any.matches(bad), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn every_wildcard_pattern_compiles(pattern in ".{0,40}", text in ".{0,20}") {
            let compiled = Pattern::glob(&pattern);
            prop_assert!(compiled.is_ok());
            compiled.unwrap().matches(&text);
        }
    }
}
