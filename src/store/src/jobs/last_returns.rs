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
    let mut wanted: HashMap<&str, (&MinionId, Option<LastReturn>)> =
        minions.map(|id| (id.as_str(), (id, None))).collect();
    let mut left = wanted.len();
    reader.newest_returns(limit, &mut |one| {
        if let Some((_, place)) = wanted.get_mut(one.minion)
            && place.is_none()
            && is_wanted(one.fun)
        {
            left -= 1;
            *place = Some(LastReturn::from(&one));
        }
        left > 0
    })?;
    let found = wanted.into_values();
    let found = found.filter_map(|(minion, last)| Some((minion.clone(), last?)));
    Ok(found.collect())
}
