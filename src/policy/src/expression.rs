//! Cache of compiled patterns, and wildcards that everybody reads alike. The patterns themselves are in
//! `saltern_python::expression`.

mod plain;

pub use plain::PlainWildcard;

use dashmap::DashMap;
use saltern_python::expression::{ExpressionError, Pattern};

/// Cache of compiled patterns, because the same few targets recur.
#[derive(Default)]
pub struct PatternCache {
    patterns: DashMap<(bool, String), Pattern>,
}

/// Above this many entries the cache starts anew: clients choose the keys. Heavy patterns are not
/// kept.
const CACHE_ENTRIES: usize = 256;

/// The most bytes of a text whose pattern is kept.
const MAX_KEPT_BYTES: usize = 1024;

impl PatternCache {
    /// The wildcard pattern, compiled at most once.
    pub fn glob(&self, pattern: &str) -> Result<Pattern, ExpressionError> {
        self.cached(false, pattern, Pattern::glob)
    }

    /// The regular expression anchored at the start, compiled at most once.
    pub fn regex_at_start(&self, expression: &str) -> Result<Pattern, ExpressionError> {
        self.cached(true, expression, Pattern::regex_at_start)
    }

    fn cached(
        &self,
        is_regex: bool,
        text: &str,
        compile: fn(&str) -> Result<Pattern, ExpressionError>,
    ) -> Result<Pattern, ExpressionError> {
        if text.len() > MAX_KEPT_BYTES {
            return compile(text);
        }
        let key = (is_regex, text.to_owned());
        if let Some(known) = self.patterns.get(&key) {
            return Ok(known.clone());
        }
        let pattern = compile(text)?;
        if pattern.is_heavy() {
            return Ok(pattern);
        }
        if self.patterns.len() >= CACHE_ENTRIES {
            self.patterns.clear();
        }
        self.patterns.insert(key, pattern.clone());
        Ok(pattern)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heavy_pattern_is_not_kept() {
        let cache = PatternCache::default();
        assert!(cache.regex_at_start(r"\w{40}").unwrap().is_heavy());
        assert!(cache.patterns.is_empty());
        cache.regex_at_start("web").unwrap();
        assert_eq!(cache.patterns.len(), 1);
    }

    #[test]
    fn cache_is_bounded_in_entries_and_in_their_length() {
        let cache = PatternCache::default();
        for bytes in [MAX_KEPT_BYTES, MAX_KEPT_BYTES + 1] {
            cache.glob(&"a".repeat(bytes)).unwrap();
            assert_eq!(cache.patterns.len(), 1, "{bytes}");
        }
        for number in 1..CACHE_ENTRIES {
            cache.glob(&format!("web{number}")).unwrap();
        }
        assert_eq!(cache.patterns.len(), CACHE_ENTRIES);
        cache.glob("web1").unwrap();
        assert_eq!(cache.patterns.len(), CACHE_ENTRIES, "it was there");
        cache.glob("db1").unwrap();
        assert_eq!(cache.patterns.len(), 1);
    }

    #[test]
    fn one_text_is_kept_as_wildcard_and_as_regular_expression() {
        let cache = PatternCache::default();
        for _ in 0..2 {
            assert!(cache.regex_at_start("web.").unwrap().matches("web1"));
            assert!(!cache.glob("web.").unwrap().matches("web1"));
        }
        assert!(cache.regex_at_start("(").is_err());
        assert_eq!(cache.patterns.len(), 2);
    }
}
