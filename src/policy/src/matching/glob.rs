//! The wildcard patterns that people mostly write, those with stars only, without the detour over a
//! regular expression: a target looks at every minion.

/// Texts that must follow each other, with anything between them.
pub(super) struct Stars {
    start: String,
    middle: Vec<String>,
    end: String,
}

impl Stars {
    /// Nothing when the pattern has no star, or more than stars.
    pub(super) fn read(pattern: &str) -> Option<Self> {
        if pattern.contains(['?', '[']) {
            return None;
        }
        let (start, rest) = pattern.split_once('*')?;
        let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
        let middle = middle.split('*').filter(|text| !text.is_empty());
        Some(Self {
            start: start.to_owned(),
            middle: middle.map(str::to_owned).collect(),
            end: end.to_owned(),
        })
    }

    /// Whether the whole text matches.
    pub(super) fn matches(&self, text: &str) -> bool {
        let Some(rest) = text.strip_prefix(self.start.as_str()) else {
            return false;
        };
        let Some(mut rest) = rest.strip_suffix(self.end.as_str()) else {
            return false;
        };
        // The first place is always the best: more is left for what follows.
        for wanted in &self.middle {
            match rest.split_once(wanted.as_str()) {
                Some((_, behind)) => rest = behind,
                None => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::expression::Pattern;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn star_patterns_match_like_the_general_engine(
            pattern in "[ab*ü]{0,8}", text in "[abü]{0,12}",
        ) {
            let general = Pattern::glob(&pattern).unwrap().matches(&text);
            let stars = Stars::read(&pattern).map(|stars| stars.matches(&text));
            prop_assert_eq!(stars.unwrap_or(general), general);
            prop_assert_eq!(Stars::read(&pattern).is_some(), pattern.contains('*'));
        }
    }
}
