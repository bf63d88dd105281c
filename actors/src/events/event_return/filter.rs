//! Filter of returned events: `event_return_whitelist` and `event_return_blacklist`.

use saltern_config::ReturnerOptions;
use saltern_python::expression::Pattern;

/// Allow list and deny list of event tags.
pub(super) struct Filter {
    /// `None`: every event.
    allowed: Option<Vec<Pattern>>,
    denied: Vec<Pattern>,
}

impl Filter {
    pub(super) fn new(options: &ReturnerOptions) -> Self {
        let allowed = &options.whitelist;
        Self {
            allowed: (!allowed.is_empty()).then(|| patterns(allowed)),
            denied: patterns(&options.blacklist),
        }
    }

    /// Whether an event with this tag is returned; what both lists name is not (`_filter` in
    /// `salt/utils/event.py`).
    pub(super) fn lets_through(&self, tag: &str) -> bool {
        let is_in = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(tag));
        self.allowed.as_deref().is_none_or(is_in) && !is_in(&self.denied)
    }
}

/// Compiles the wildcards. An invalid one matches nothing, and is logged.
fn patterns(wildcards: &[String]) -> Vec<Pattern> {
    let patterns = wildcards.iter().filter_map(|wildcard| {
        Pattern::glob(wildcard)
            .inspect_err(|error| {
                tracing::error!(wildcard, %error, "event_return: a wildcard cannot be used");
            })
            .ok()
    });
    patterns.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_filter_as_in_stock() {
        for (allowed, denied, tag, expected) in [
            (&[][..], &[][..], "salt/auth", true),
            (&["salt/job/*"], &[], "salt/auth", false),
            (&["salt/job/*"], &[], "salt/job/1/ret/m1", true),
            (&["salt/*", "x"], &["*/ret/*"], "salt/job/1/ret/m1", false),
            (&["salt/*", "x"], &["*/ret/*"], "salt/job/1/new", true),
            (&[], &["salt/a[tu]?h"], "salt/auth", false),
            (&[], &["salt"], "salt/auth", true),
            (&["["], &[], "[", true),
        ] {
            let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
            let filter = Filter::new(&ReturnerOptions {
                whitelist: texts(allowed),
                blacklist: texts(denied),
                ..ReturnerOptions::default()
            });
            assert_eq!(
                filter.lets_through(tag),
                expected,
                "{allowed:?} {denied:?} {tag}"
            );
        }
    }
}
