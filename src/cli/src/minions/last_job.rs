//! The last job that each minion returned: a running master keeps them. Where none runs, and for the
//! last one of some functions, the newest returns of the job database are read.

use std::sync::{Arc, OnceLock};

use hashbrown::{HashMap, HashSet};
use saltern_config::MasterConfig;
use saltern_model::MinionId;
use saltern_model::control::LastJobs as NamedJobs;
use saltern_python::fnmatch::Glob;
use saltern_sql::open_reader;
use saltern_store::StoreError;
use saltern_store::jobs::{MAX_LAST_RETURNS, NewestReturn, ReturnSearch};

use super::Minion;

pub(super) use saltern_store::jobs::LastReturn as LastJob;

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
            last: None,
            named: wanted,
            left: None,
        };
        let reader = open_reader(config)?;
        let (_, last) = reader.last_ids()?;
        let span = (last.saturating_sub(MAX_LAST_RETURNS), last);
        reader.newest_returns(span, &mut search)?;
        Ok(Self(search.found))
    }

    /// Those of these minions, in their order.
    pub(super) fn of(mut self, minions: &[Minion]) -> Vec<Option<LastJob>> {
        let ids = minions.iter().map(|minion| minion.row.minion.id.as_str());
        ids.map(|id| self.0.remove(id)).collect()
    }
}

/// Those that a master has named, in the order of its minions.
pub(super) fn of_master(named: NamedJobs) -> Vec<Option<LastJob>> {
    let texts = named.jobs.into_iter();
    let jobs: Vec<(Arc<str>, Arc<str>)> =
        texts.map(|(jid, fun)| (jid.into(), fun.into())).collect();
    let returns = named.returns.into_iter().map(|one| {
        let (number, received, retcode) = one?;
        let (jid, fun) = jobs.get(number)?.clone();
        Some(LastJob {
            jid,
            fun,
            received,
            retcode,
        })
    });
    returns.collect()
}

/// A search among the newest returns.
struct JobSearch<'a> {
    function: Option<Glob>,
    found: HashMap<String, LastJob>,
    last: Option<LastJob>,
    named: &'a WantedMinions,
    /// The wanted minions that are not found yet, as soon as they are known.
    left: Option<HashSet<&'a str>>,
}

impl ReturnSearch for JobSearch<'_> {
    fn wants(&mut self, minion: &str) -> Option<bool> {
        // One look-up for each return: most of the time goes into them.
        if let Some(left) = &self.left {
            return (!left.is_empty()).then(|| left.contains(minion));
        }
        let Some(ids) = self.named.0.get() else {
            return Some(!self.found.contains_key(minion));
        };
        self.found.retain(|id, _| ids.contains(id));
        let left = ids.iter().filter(|id| !self.found.contains_key(*id));
        self.left = Some(left.map(String::as_str).collect());
        self.wants(minion)
    }

    fn take(&mut self, one: NewestReturn<'_>) {
        if self.is_such(one.fun) {
            let last = LastJob::sharing(&one, self.last.as_ref());
            self.last = Some(last.clone());
            self.found.insert(one.minion.to_owned(), last);
            if let Some(left) = &mut self.left {
                left.remove(one.minion);
            }
        }
    }
}

impl JobSearch<'_> {
    fn is_such(&self, function: &str) -> bool {
        let glob = self.function.as_ref();
        glob.is_none_or(|glob| glob.matches(function))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives the search a return; whether it goes on.
    fn give(search: &mut JobSearch<'_>, minion: &str, fun: &str) -> bool {
        let wants = search.wants(minion);
        if wants == Some(true) {
            search.take(NewestReturn {
                id: 1,
                minion,
                jid: "20260102030405060708",
                fun,
                received: 1,
                retcode: 0,
            });
        }
        wants.is_some()
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
                last: None,
                named: &wanted,
                left: None,
            };
            let mut taken = 0;
            for (number, minion) in returns.iter().enumerate() {
                if number == named_before {
                    wanted.set(ids(&["a", "b"]).iter());
                }
                if !give(&mut search, minion, "test.ping") {
                    break;
                }
                taken += 1;
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
            last: None,
            named: &wanted,
            left: None,
        };
        assert!(give(&mut search, "a", "test.ping"));
        assert!(give(&mut search, "a", "state.apply"));
        assert_eq!(&*search.found["a"].fun, "state.apply");
        wanted.set(ids(&[]).iter());
        assert!(!give(&mut search, "a", "state.apply"));
    }
}
