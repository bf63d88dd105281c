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
        if text.len() > 1024 {
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
}
