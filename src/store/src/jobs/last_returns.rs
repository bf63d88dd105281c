//! The last return of each minion, from the newest returns of all jobs.
//!
//! A look-up among the newest returns reads tens of thousands of rows. So it is kept, and the next
//! one reads only what has come since.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use saltern_model::MinionId;

use super::{JobQueries, NewestReturn};
use crate::error::{Result, StoreError};

/// The last return of a minion, without its load. What many minions returned is held once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastReturn {
    /// The job.
    pub jid: Arc<str>,
    /// Its function.
    pub fun: Arc<str>,
    /// When the return came, in microseconds since 1970.
    pub received: i64,
    /// Its return code.
    pub retcode: i64,
}

impl From<&NewestReturn<'_>> for LastReturn {
    fn from(one: &NewestReturn<'_>) -> Self {
        Self {
            jid: one.jid.into(),
            fun: one.fun.into(),
            received: one.received,
            retcode: one.retcode,
        }
    }
}

impl LastReturn {
    /// The same, sharing its texts with another one of the same job.
    #[must_use]
    pub fn sharing(one: &NewestReturn<'_>, other: Option<&Self>) -> Self {
        match other {
            Some(other) if *other.jid == *one.jid && *other.fun == *one.fun => Self {
                received: one.received,
                retcode: one.retcode,
                ..other.clone()
            },
            _ => Self::from(one),
        }
    }
}

/// A search among the newest returns of all jobs.
pub trait ReturnSearch {
    /// Whether a return of this minion is to be looked at; `None` ends the search.
    fn wants(&mut self, minion: &str) -> Option<bool>;

    /// Takes a return that is to be looked at.
    fn take(&mut self, one: NewestReturn<'_>);
}

/// Returns among which the last one of a minion is looked for, and minions of which one is kept.
pub const MAX_LAST_RETURNS: i64 = 200_000;

/// Returns of one read: bounds the time for which the reader is held.
const SLICE: i64 = 20_000;

/// Maximum wait for another look-up to end.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// The last returns that are known so far.
#[derive(Default)]
pub struct LastReturns(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// The number of the last return that was looked at.
    through: i64,
    /// That return. A database that has another one under its number has another history.
    mark: Option<Mark>,
    /// Each with its number.
    by_minion: HashMap<MinionId, (i64, LastReturn)>,
}

impl LastReturns {
    /// The last return of each of these minions, in their order. A minion whose last return was
    /// older than the newest [`MAX_LAST_RETURNS`] when it was first asked for has none here.
    ///
    /// # Errors
    /// The job database cannot be read, or another look-up goes on.
    pub fn of<'a>(
        &self,
        reader: &dyn JobQueries,
        minions: impl IntoIterator<Item = &'a MinionId>,
    ) -> Result<Vec<Option<LastReturn>>> {
        let known = self.0.try_lock_for(MAX_WAIT);
        let mut known = known.ok_or(StoreError::LastReturnsBusy)?;
        known.catch_up(reader)?;
        let minions = minions.into_iter();
        let last = minions.map(|id| known.by_minion.get(id).map(|(_, last)| last.clone()));
        Ok(last.collect())
    }
}

/// A return under a number.
#[derive(PartialEq, Eq)]
struct Mark {
    minion: String,
    jid: String,
    received: i64,
}

/// Reads one return.
#[derive(Default)]
struct Marked(Option<Mark>);

impl ReturnSearch for Marked {
    fn wants(&mut self, _minion: &str) -> Option<bool> {
        self.0.is_none().then_some(true)
    }

    fn take(&mut self, one: NewestReturn<'_>) {
        self.0 = Some(Mark {
            minion: one.minion.to_owned(),
            jid: one.jid.to_owned(),
            received: one.received,
        });
    }
}

/// The return of a number, if it is there.
fn mark_of(reader: &dyn JobQueries, number: i64) -> Result<Option<Mark>> {
    let mut found = Marked::default();
    if number > 0 {
        reader.newest_returns((number - 1, number), &mut found)?;
    }
    Ok(found.0)
}

impl Known {
    fn catch_up(&mut self, reader: &dyn JobQueries) -> Result<()> {
        let (first, last) = reader.return_span()?;
        let is_too_large = self.by_minion.len() > MAX_LAST_RETURNS.unsigned_abs() as usize;
        // PostgreSQL loses what no standby had when another machine takes its place, and the numbers are
        // given again. A return that was removed by its age says nothing, and costs one whole read.
        if last < self.through || is_too_large || mark_of(reader, self.through)? != self.mark {
            // Another database, or more minions than are kept.
            *self = Self::default();
        }
        let from = self.through.max(last.saturating_sub(MAX_LAST_RETURNS));
        let mut newest = Newest::default();
        let mut end = last;
        while end > from {
            let above = from.max(end.saturating_sub(SLICE));
            reader.newest_returns((above, end), &mut newest)?;
            end = above;
        }
        // Only now, when all is read: what fails half-way is read again.
        self.by_minion.extend(newest.found);
        // Jobs that are kept no longer.
        self.by_minion.retain(|_, (id, _)| *id >= first);
        self.mark = mark_of(reader, last)?;
        self.through = last;
        Ok(())
    }
}

/// The newest return of every minion.
#[derive(Default)]
struct Newest {
    found: HashMap<MinionId, (i64, LastReturn)>,
    last: Option<LastReturn>,
}

impl ReturnSearch for Newest {
    fn wants(&mut self, minion: &str) -> Option<bool> {
        Some(!self.found.contains_key(minion))
    }

    fn take(&mut self, one: NewestReturn<'_>) {
        // A minion of the database has an id that is one.
        let Ok(minion) = MinionId::parse(one.minion) else {
            return;
        };
        let last = LastReturn::sharing(&one, self.last.as_ref());
        self.last = Some(last.clone());
        self.found.insert(minion, (one.id, last));
    }
}
