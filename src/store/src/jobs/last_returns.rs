//! The last return of each of some minions, from the newest returns of all jobs.

use std::collections::HashMap;

use saltern_model::MinionId;

use super::{JobQueries, NewestReturn};
use crate::error::Result;

/// The last return of a minion, without its load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastReturn {
    /// The job.
    pub jid: String,
    /// Its function.
    pub fun: String,
    /// When the return came, in microseconds since 1970.
    pub received: i64,
    /// Its return code.
    pub retcode: i64,
}

impl From<&NewestReturn<'_>> for LastReturn {
    fn from(one: &NewestReturn<'_>) -> Self {
        Self {
            jid: one.jid.to_owned(),
            fun: one.fun.to_owned(),
            received: one.received,
            retcode: one.retcode,
        }
    }
}

/// The last returns of these minions among the newest `limit` of all; only functions that
/// `is_wanted` takes count. A minion whose last return is older has none here.
pub fn last_returns<'a>(
    reader: &dyn JobQueries,
    minions: impl IntoIterator<Item = &'a MinionId>,
    limit: usize,
    is_wanted: impl Fn(&str) -> bool,
) -> Result<HashMap<MinionId, LastReturn>> {
    let minions = minions.into_iter();
    let mut search = LastReturns {
        left: minions.map(|id| (id.as_str(), id)).collect(),
        found: HashMap::new(),
        is_wanted,
    };
    reader.newest_returns(limit, &mut search)?;
    Ok(search.found)
}

/// A search among the newest returns of all jobs.
pub trait ReturnSearch {
    /// Whether a return of this minion is to be looked at; `None` ends the search.
    fn wants(&mut self, minion: &str) -> Option<bool>;

    /// Takes a return that is to be looked at.
    fn take(&mut self, one: NewestReturn<'_>);
}

/// The search of [`last_returns`].
struct LastReturns<'a, F> {
    /// The minions without a return so far.
    left: HashMap<&'a str, &'a MinionId>,
    found: HashMap<MinionId, LastReturn>,
    is_wanted: F,
}

impl<F: Fn(&str) -> bool> ReturnSearch for LastReturns<'_, F> {
    fn wants(&mut self, minion: &str) -> Option<bool> {
        (!self.left.is_empty()).then(|| self.left.contains_key(minion))
    }

    fn take(&mut self, one: NewestReturn<'_>) {
        if (self.is_wanted)(one.fun)
            && let Some(minion) = self.left.remove(one.minion)
        {
            self.found.insert(minion.clone(), LastReturn::from(&one));
        }
    }
}
