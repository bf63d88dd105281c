//! Position in the job database of whoever follows it: the mirror of stock's files, and returners.

use std::fmt;

use crate::error::Result;
use crate::jobs::JobQueries;

/// Position in the job database: up to which job and which return something is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobCursor {
    pub(crate) jobs: i64,
    pub(crate) returns: i64,
}

impl JobCursor {
    /// The end of what is stored by now.
    ///
    /// # Errors
    /// The database cannot be read.
    pub(crate) fn end_of(reader: &dyn JobQueries) -> Result<Self> {
        let (jobs, returns) = reader.last_ids()?;
        Ok(Self { jobs, returns })
    }

    /// The same, or the end of the database where that is before it: in one that was restored from a
    /// backup, rows that come next have numbers that the cursor has passed.
    pub(crate) fn at_most(self, end: Self) -> Self {
        Self {
            jobs: self.jobs.min(end.jobs),
            returns: self.returns.min(end.returns),
        }
    }

    /// Number of jobs and of returns between it and the end.
    pub(crate) fn behind(self, end: Self) -> (u64, u64) {
        let behind = |last: i64, at: i64| u64::try_from(last - at).unwrap_or(0);
        (
            behind(end.jobs, self.jobs),
            behind(end.returns, self.returns),
        )
    }

    /// Reads what was written by `Display`, behind what stands before it in a file.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        Some(Self {
            jobs: words.next()?.parse().ok()?,
            returns: words.next()?.parse().ok()?,
        })
    }
}

impl fmt::Display for JobCursor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.jobs, self.returns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_is_read_as_it_was_written_and_goes_no_further_than_the_end() {
        let cursor = |jobs, returns| JobCursor { jobs, returns };
        assert_eq!(
            JobCursor::parse(&cursor(7, 3).to_string()),
            Some(cursor(7, 3))
        );
        for damaged in ["", "7", "7 x"] {
            assert_eq!(JobCursor::parse(damaged), None);
        }
        assert_eq!(cursor(7, 3).at_most(cursor(5, 9)), cursor(5, 3));
        assert_eq!(cursor(7, 3).behind(cursor(5, 9)), (0, 6));
    }
}
