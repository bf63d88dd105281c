//! The last job that each minion returned, from the newest returns of the job database.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use saltern_config::MasterConfig;
use saltern_model::MinionId;
use saltern_python::fnmatch::Glob;
use saltern_store::StoreError;
use saltern_store::jobs::NewestReturn;
use saltern_store::open_reader;

/// Returns that are looked at: a minion that is not among these has no last job here.
const MAX_RETURNS: usize = 200_000;

/// A minion's last return.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LastJob {
    /// The job.
    pub(super) jid: String,
    /// Its function.
    pub(super) fun: String,
    /// When the return came, in microseconds since 1970.
    pub(super) received: i64,
    /// Its return code.
    pub(super) retcode: i64,
}

/// Ids of the minions whose last jobs are wanted, once they are known.
#[derive(Default)]
pub(super) struct WantedMinions(OnceLock<HashSet<String>>);

impl WantedMinions {
    /// Names them.
    pub(super) fn set<'a>(&self, ids: impl Iterator<Item = &'a MinionId>) {
        // They are named once.
        let _ = self.0.set(ids.map(ToString::to_string).collect());
    }
}

/// The last jobs of some minions.
#[derive(Default)]
pub(super) struct LastJobs(HashMap<String, LastJob>);

impl LastJobs {
    /// Reads those of the wanted minions; with `function` only jobs of such functions count. Begins
    /// before it is known who is wanted, so that the master can be asked for that meanwhile.
    pub(super) fn read(
        config: &MasterConfig,
        wanted: &WantedMinions,
        function: Option<&str>,
    ) -> Result<Self, StoreError> {
        let mut search = JobSearch {
            function: function.map(Glob::new),
            found: HashMap::new(),
            wanted: None,
        };
        let reader = open_reader(config)?;
        reader.newest_returns(MAX_RETURNS, &mut |one| search.take(&one, wanted))?;
        Ok(Self(search.found))
    }

    pub(super) fn of(&self, minion: &MinionId) -> Option<&LastJob> {
        self.0.get(minion.as_str())
    }
}

/// A search among the newest returns.
struct JobSearch<'a> {
    function: Option<Glob>,
    found: HashMap<String, LastJob>,
    /// The wanted minions, as soon as they are known, and how many of them are not found yet.
    wanted: Option<(&'a HashSet<String>, usize)>,
}

impl<'a> JobSearch<'a> {
    /// Takes a return; whether more are needed.
    fn take(&mut self, one: &NewestReturn<'_>, wanted: &'a WantedMinions) -> bool {
        if self.wanted.is_none()
            && let Some(ids) = wanted.0.get()
        {
            self.found.retain(|id, _| ids.contains(id));
            self.wanted = Some((ids, ids.len() - self.found.len()));
        }
        let is_wanted = self.wanted.is_none_or(|(ids, _)| ids.contains(one.minion));
        if is_wanted && !self.found.contains_key(one.minion) && self.is_such(one.fun) {
            self.found.insert(one.minion.to_owned(), LastJob::of(one));
            if let Some((_, left)) = &mut self.wanted {
                *left -= 1;
            }
        }
        self.wanted.is_none_or(|(_, left)| left > 0)
    }

    fn is_such(&self, function: &str) -> bool {
        let glob = self.function.as_ref();
        glob.is_none_or(|glob| glob.matches(function))
    }
}

impl LastJob {
    fn of(one: &NewestReturn<'_>) -> Self {
        Self {
            jid: one.jid.to_owned(),
            fun: one.fun.to_owned(),
            received: one.received,
            retcode: one.retcode,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one<'a>(minion: &'a str, fun: &'a str) -> NewestReturn<'a> {
        NewestReturn {
            minion,
            jid: "20260102030405060708",
            fun,
            received: 1,
            retcode: 0,
        }
    }

    fn ids(names: &[&str]) -> Vec<MinionId> {
        let ids = names
            .iter()
            .map(|name| MinionId::parse(name).expect("an id"));
        ids.collect()
    }

    #[test]
    fn search_ends_with_the_last_wanted_minion_whenever_they_are_named() {
        let returns = ["a", "x", "a", "b", "c"];
        for named_before in 0..=3 {
            let wanted = WantedMinions::default();
            let mut search = JobSearch {
                function: None,
                found: HashMap::new(),
                wanted: None,
            };
            let mut taken = 0;
            for (number, minion) in returns.iter().enumerate() {
                if number == named_before {
                    wanted.set(ids(&["a", "b"]).iter());
                }
                taken += 1;
                if !search.take(&one(minion, "test.ping"), &wanted) {
                    break;
                }
            }
            assert_eq!(taken, 4, "named before {named_before}");
            let mut found: Vec<_> = search.found.into_keys().collect();
            found.sort_unstable();
            assert_eq!(found, ["a", "b"]);
        }
    }

    #[test]
    fn search_passes_over_other_functions_and_ends_where_nobody_is_wanted() {
        let wanted = WantedMinions::default();
        let mut search = JobSearch {
            function: Some(Glob::new("state.*")),
            found: HashMap::new(),
            wanted: None,
        };
        assert!(search.take(&one("a", "test.ping"), &wanted));
        assert!(search.take(&one("a", "state.apply"), &wanted));
        assert_eq!(search.found["a"].fun, "state.apply");
        wanted.set(ids(&[]).iter());
        assert!(!search.take(&one("a", "state.apply"), &wanted));
    }
}
