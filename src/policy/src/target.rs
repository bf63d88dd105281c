//! Resolution of a target expression to minions.
//!
//! The candidates are the minions whose keys are accepted; whether they are connected is not asked
//! here. What needs nothing but ids (glob, list, pcre) is resolved here, everything else in
//! [`crate::matching`].

use std::fmt;

use saltern_model::{MinionId, Target, TargetType};
use saltern_python::expression::ExpressionError;

use crate::expression::PatternCache;
use crate::matching::{MatchOptions, RangeError, Site};

/// The accepted minions, sorted by id.
pub trait Candidates {
    /// All of them, in order of their ids.
    fn ids(&self) -> &[MinionId];
    /// The accepted minion of this name.
    fn find(&self, id: &str) -> Option<&MinionId>;
}

/// The minions that a target means.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// The minions that match.
    pub minions: Vec<MinionId>,
    /// Names in a list target without an accepted key.
    pub missing: Vec<String>,
    /// Invalid parts, which match no minion.
    pub problems: Problems,
    /// Whether minions that are not among these may find that the target means them: something took
    /// more than a match may cost here, or is no expression here, and so counts as no match.
    pub may_mean_more: bool,
}

/// Errors in parts of a target of which the rest still counts; stock logs each as an error. The
/// first few are kept: the client chooses the target, and so their number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problems(Vec<String>);

impl Problems {
    const MAX_PROBLEMS: usize = 3;

    /// Adds the problem `what` of a part, of which only the beginning is shown.
    pub(crate) fn add(&mut self, part: &str, what: &str) {
        if self.0.len() < Self::MAX_PROBLEMS {
            let shown: String = part.chars().take(100).collect();
            self.0.push(format!("{shown:?} {what}"));
        }
    }

    /// Whether everything could be used.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

/// Why a target cannot be resolved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// The expression does not parse.
    #[error(transparent)]
    Expression(#[from] ExpressionError),
    /// A kind of target that needs to know the [`Site`], which was not given.
    #[error("targets of type \"{0}\" are not resolved without the site's data")]
    Unsupported(TargetType),
    /// The words of a compound target make no expression.
    #[error("the compound target cannot be used: {0}")]
    Compound(&'static str),
    /// The nodegroup is neither a text nor a list of texts, or is too large.
    #[error("the nodegroup \"{0}\" cannot be used")]
    Nodegroup(String),
    /// The range expression does not parse or needs a server.
    #[error(transparent)]
    Range(#[from] RangeError),
    /// Longer than anybody writes one.
    #[error("a target may have at most 65536 bytes, beside lists of ids")]
    TooLong,
    /// The expression takes more than one search may cost.
    #[error("the target takes too much work")]
    TooMuchWork,
    /// An empty delimiter separates nothing.
    #[error("the delimiter may not be empty")]
    Delimiter,
}

/// The names of a list target that is one text. Blanks belong to a name, as with stock's minions.
pub fn names_in_list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').filter(|name| !name.is_empty())
}

/// Resolves targets; keeps compiled patterns and, with a [`Site`], an index of its minions' data.
#[derive(Default)]
pub struct Targeting {
    pub(crate) patterns: PatternCache,
    pub(crate) site: Option<Site>,
}

impl Targeting {
    /// Resolves every kind of target. The default resolves only those that need nothing but ids.
    pub fn of(site: Site) -> Self {
        Self {
            patterns: PatternCache::default(),
            site: Some(site),
        }
    }

    /// The minions among `candidates` that `target` means, as stock's `check_minions`
    /// (`salt/utils/minions.py`) finds them for a client.
    pub fn resolve(
        &self,
        target: &Target,
        candidates: &impl Candidates,
    ) -> Result<Resolved, TargetError> {
        self.resolve_with(target, candidates, &MatchOptions::default())
    }

    /// The same for the kinds that need nothing but ids.
    pub(crate) fn resolve_ids(
        &self,
        target: &Target,
        candidates: &impl Candidates,
    ) -> Result<Resolved, TargetError> {
        match target {
            Target::List(names) => Ok(by_list(names.iter().map(String::as_str), candidates)),
            Target::Expression(TargetType::List, names) => {
                Ok(by_list(names_in_list(names), candidates))
            }
            Target::Expression(TargetType::Glob, pattern) => {
                let pattern = self.patterns.glob(pattern)?;
                if let Some(name) = pattern.literal() {
                    return Ok(found(candidates.find(name).into_iter()));
                }
                Ok(found(
                    candidates
                        .ids()
                        .iter()
                        .filter(|id| pattern.matches(id.as_str())),
                ))
            }
            Target::Expression(TargetType::Pcre, expression) => {
                let pattern = self.patterns.regex_at_start(expression)?;
                Ok(found(
                    candidates
                        .ids()
                        .iter()
                        .filter(|id| pattern.matches(id.as_str())),
                ))
            }
            other => Err(TargetError::Unsupported(other.kind())),
        }
    }
}

fn found<'a>(minions: impl Iterator<Item = &'a MinionId>) -> Resolved {
    Resolved {
        minions: minions.cloned().collect(),
        ..Resolved::default()
    }
}

/// Keeps the order of the list; a name that comes twice counts once.
pub(crate) fn by_list<'a>(
    names: impl Iterator<Item = &'a str>,
    candidates: &impl Candidates,
) -> Resolved {
    let mut resolved = Resolved::default();
    let mut seen = std::collections::HashSet::new();
    for name in names.filter(|name| seen.insert(*name)) {
        match candidates.find(name) {
            Some(id) => resolved.minions.push(id.clone()),
            None => resolved.missing.push(name.to_owned()),
        }
    }
    resolved
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// Minions that a target may match.
    pub(crate) struct Fleet(pub(crate) Vec<MinionId>);

    impl Candidates for Fleet {
        fn ids(&self) -> &[MinionId] {
            &self.0
        }

        fn find(&self, id: &str) -> Option<&MinionId> {
            self.0.iter().find(|known| known.as_str() == id)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::Fleet;
    use super::*;

    fn fleet() -> Fleet {
        Fleet(
            ["db1", "web1", "web2"]
                .map(|id| MinionId::parse(id).unwrap())
                .to_vec(),
        )
    }

    #[test]
    fn glob_list_and_pcre_targets_resolve() {
        use TargetType::{Glob, List, Pcre};
        let table: [(TargetType, &str, &[&str], &[&str]); 9] = [
            (Glob, "*", &["db1", "web1", "web2"], &[]),
            (Glob, "web*", &["web1", "web2"], &[]),
            (Glob, "web1", &["web1"], &[]),
            (Glob, "nobody", &[], &[]),
            (Pcre, "web(1|3)", &["web1"], &[]),
            (Pcre, ".b", &["db1"], &[]),
            // Python has no sets in classes.
            (Pcre, "[[d]b", &["db1"], &[]),
            (List, "web2,ghost,db1,web2", &["web2", "db1"], &["ghost"]),
            (List, "", &[], &[]),
        ];
        for (kind, text, minions, missing) in table {
            let target = Target::Expression(kind, text.to_owned());
            let resolved = Targeting::default().resolve(&target, &fleet()).unwrap();
            let ids: Vec<&str> = resolved.minions.iter().map(MinionId::as_str).collect();
            assert_eq!(ids, minions, "{kind} {text}");
            assert_eq!(resolved.missing, missing, "{kind} {text}");
        }
    }

    #[test]
    fn first_problems_are_kept_with_the_beginning_of_their_part() {
        let mut problems = Problems::default();
        assert!(problems.is_empty());
        problems.add(&"x".repeat(101), "is wrong");
        assert!(!problems.is_empty());
        let shown = "x".repeat(100);
        assert_eq!(problems.to_string(), format!("{shown:?} is wrong"));
        for number in 0..5 {
            problems.add(&number.to_string(), "too");
        }
        let all = format!("{shown:?} is wrong; \"0\" too; \"1\" too");
        assert_eq!(problems.to_string(), all);
    }

    #[test]
    fn unsupported_or_malformed_target_is_an_error() {
        let target = Target::Expression(TargetType::Grain, "os:Debian".to_owned());
        let error = Targeting::default().resolve(&target, &fleet()).unwrap_err();
        assert_eq!(error, TargetError::Unsupported(TargetType::Grain));
        let target = Target::Expression(TargetType::Pcre, "(".to_owned());
        assert!(Targeting::default().resolve(&target, &fleet()).is_err());
    }
}
