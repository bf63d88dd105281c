//! Reads old jobs and their returns from one SQL database, whoever wrote them: this master or stock's
//! returner.
//!
//! A [`SqlReader`] may be asked on any thread, also on one of an actor. The one connection is that of a
//! thread of its own, which opens it with the first question, once more when it was lost, and closes it
//! when nobody asks. After a failed attempt, questions are refused at once until the back-off is over.
//! Every statement is bounded in rows, bytes and time, changes nothing, and has its values as parameters.

mod link;
mod queries;
mod rows;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use saltern_config::SqlStore;
use saltern_model::{Jid, JobRecord, MinionId, ReturnRecord};
use saltern_store::jobs::ReturnsPage;

use self::link::Link;
use self::queries::Queries;
use crate::error::SqlError;

/// Questions that wait for the connection; further ones are refused.
const MAX_WAITING: usize = 32;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Jobs of one statement.
const JOBS: usize = 256;

/// Jids of one statement that counts returns.
const COUNTED: usize = 256;

/// A question, with its answer's way back in it.
type Question = Box<dyn FnOnce(&mut Link) + Send>;

/// The reader of one SQL database.
pub struct SqlReader {
    questions: SyncSender<Question>,
}

/// Which jobs a page has. Jids are times, so they are compared as such.
#[derive(Clone, Debug, Default)]
pub struct JobRange {
    /// Only jobs whose jid is below this one.
    pub before: Option<String>,
    /// Only jobs whose jid is this one or above.
    pub from: Option<String>,
    /// How many rows at most.
    pub limit: usize,
}

/// Some jobs.
#[derive(Debug, Default)]
pub struct JobSlice {
    /// The jobs, highest jid first. Rows whose jid is none are left out.
    pub jobs: Vec<JobRecord>,
    /// For [`JobRange::before`]; none at the end.
    pub next: Option<String>,
}

/// Returns of a job, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReturnCounts {
    /// Minions that returned.
    pub returned: usize,
    /// Those of them whose return is no success.
    pub failed: usize,
    /// When the last return came, in microseconds since 1970.
    pub last: Option<i64>,
}

impl SqlReader {
    /// A reader, which connects when it is asked.
    ///
    /// # Errors
    /// The system gives no thread, or no runtime.
    pub fn new(store: SqlStore) -> io::Result<Self> {
        let (questions, asked) = sync_channel::<Question>(MAX_WAITING);
        let mut link = Link::new(store)?;
        thread::Builder::new()
            .name("sql-reader".to_owned())
            .spawn(move || {
                loop {
                    match asked.recv_timeout(link::IDLE) {
                        Ok(question) => {
                            // A panic ends the question; the reader has more to answer.
                            let asked = catch_unwind(AssertUnwindSafe(|| question(&mut link)));
                            if asked.is_err() {
                                link.disconnect();
                                link.pause("the last question ended without an answer");
                            }
                        }
                        Err(RecvTimeoutError::Timeout) => link.disconnect(),
                        Err(RecvTimeoutError::Disconnected) => return,
                    }
                }
            })?;
        Ok(Self { questions })
    }

    /// Asks on the thread of the connection, and waits.
    fn ask<T: Send + 'static>(
        &self,
        read: impl Fn(&mut Link) -> Result<T, SqlError> + Send + 'static,
    ) -> Result<T, SqlError> {
        let (answer, answered) = sync_channel(1);
        let question: Question = Box::new(move |link| {
            let read = link.retrying(&read);
            // Whoever asked may have given up.
            let _ = answer.send(read);
        });
        self.questions
            .try_send(question)
            .map_err(|error| match error {
                TrySendError::Full(_) => SqlError::Busy(MAX_WAITING),
                TrySendError::Disconnected(_) => {
                    SqlError::Runtime(io::ErrorKind::BrokenPipe.into())
                }
            })?;
        match answered.recv_timeout(PATIENCE) {
            Ok(read) => read,
            Err(RecvTimeoutError::Timeout) => Err(SqlError::Timeout(PATIENCE.as_secs())),
            Err(RecvTimeoutError::Disconnected) => Err(SqlError::Ended),
        }
    }

    /// A job, with its load as it was published.
    ///
    /// # Errors
    /// The database cannot be asked.
    pub fn job(&self, jid: &Jid) -> Result<Option<JobRecord>, SqlError> {
        let jid = jid.clone();
        self.ask(move |link| {
            let queries = Queries(link.schema());
            let found = link.select(&queries.job(), &[jid.as_str()])?;
            Ok(found.iter().find_map(|row| rows::job(queries.0, row)))
        })
    }

    /// A page of jobs. Arguments that are too long for a list are replaced by a mark.
    ///
    /// # Errors
    /// The database cannot be asked.
    pub fn jobs(&self, range: &JobRange) -> Result<JobSlice, SqlError> {
        let range = range.clone();
        self.ask(move |link| {
            let queries = Queries(link.schema());
            let limit = range.limit.min(JOBS);
            let bounds = (range.before.as_deref(), range.from.as_deref());
            let bounds: Vec<&str> = [bounds.0, bounds.1].into_iter().flatten().collect();
            let sql = queries.jobs(range.before.is_some(), range.from.is_some(), limit);
            let found = link.select(&sql, &bounds)?;
            let mut slice = JobSlice {
                next: match found.len() == limit {
                    true => found.last().and_then(|row| row.first().cloned().flatten()),
                    false => None,
                },
                ..JobSlice::default()
            };
            for row in &found {
                if !rows::is_too_long(row) {
                    slice.jobs.extend(rows::job(queries.0, row));
                    continue;
                }
                let Some(jid) = row.first().and_then(Option::as_deref) else {
                    continue;
                };
                let whole = link.select(&queries.job(), &[jid])?;
                let job = whole.iter().find_map(|row| rows::job(queries.0, row));
                slice.jobs.extend(job.map(rows::shortened));
            }
            Ok(slice)
        })
    }

    /// Returns of a job by minion, from behind `after` on. Ends early, but not before the first return,
    /// when they have more than `most_bytes`.
    ///
    /// # Errors
    /// The database cannot be asked.
    pub fn returns(
        &self,
        jid: &Jid,
        after: Option<&str>,
        limit: usize,
        most_bytes: usize,
    ) -> Result<ReturnsPage, SqlError> {
        let (jid, after) = (jid.clone(), after.unwrap_or_default().to_owned());
        self.ask(move |link| {
            let queries = Queries(link.schema());
            let bounds = [jid.as_str(), after.as_str()];
            let sizes = link.select(&queries.return_sizes(limit), &bounds)?;
            let (last, is_cut) = rows::within(&sizes, most_bytes);
            let Some(last) = last else {
                return Ok(ReturnsPage {
                    returns: Vec::new(),
                    is_cut: false,
                });
            };
            let bounds = [jid.as_str(), after.as_str(), last];
            let found = link.select(&queries.returns(), &bounds)?;
            Ok(ReturnsPage {
                returns: rows::returns(queries.0, &jid, &found),
                is_cut,
            })
        })
    }

    /// The return of one minion.
    ///
    /// # Errors
    /// The database cannot be asked.
    pub fn return_of(
        &self,
        jid: &Jid,
        minion: &MinionId,
    ) -> Result<Option<ReturnRecord>, SqlError> {
        let (jid, minion) = (jid.clone(), minion.clone());
        self.ask(move |link| {
            let queries = Queries(link.schema());
            let found = link.select(&queries.return_of(), &[jid.as_str(), minion.as_str()])?;
            Ok(rows::returns(queries.0, &jid, &found).pop())
        })
    }

    /// How many returns some jobs have, in their order.
    ///
    /// # Errors
    /// The database cannot be asked.
    pub fn counts(&self, jids: &[Jid]) -> Result<Vec<ReturnCounts>, SqlError> {
        let jids = jids.to_vec();
        self.ask(move |link| {
            let queries = Queries(link.schema());
            let mut counts = Vec::with_capacity(jids.len());
            for jids in jids.chunks(COUNTED) {
                let names: Vec<&str> = jids.iter().map(Jid::as_str).collect();
                let found = link.select(&queries.counts(names.len()), &names)?;
                counts.extend(jids.iter().map(|jid| rows::counts_of(&found, jid)));
            }
            Ok(counts)
        })
    }

    /// The newest return of a function by each minion, as stock's `get_fun`; no more than `limit`.
    ///
    /// # Errors
    /// The database cannot be asked.
    pub fn newest_returns(&self, fun: &str, limit: usize) -> Result<Vec<ReturnRecord>, SqlError> {
        let fun = fun.to_owned();
        self.ask(move |link| {
            let queries = Queries(link.schema());
            let found = link.select(&queries.newest_returns(limit), &[&fun])?;
            Ok(rows::newest_returns(queries.0, &found))
        })
    }

    /// Minions that returned something, sorted, as stock's `get_minions`; no more than `limit`.
    ///
    /// # Errors
    /// The database cannot be asked.
    pub fn minions(&self, limit: usize) -> Result<Vec<String>, SqlError> {
        self.ask(move |link| {
            let found = link.select(&Queries(link.schema()).minions(limit), &[])?;
            let ids = found.into_iter().filter_map(|row| row.into_iter().next()?);
            Ok(ids.collect())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::tests::store;

    #[test]
    fn question_that_panics_is_no_timeout_and_the_next_ones_wait() {
        let reader = SqlReader::new(store("pgjsonb", "127.0.0.1")).expect("a reader");
        reader.ask(Link::stop_clock).expect("its time stands still");
        let panicked = reader.ask(|_| -> Result<(), SqlError> { panic!("a test of a panic") });
        assert!(matches!(panicked, Err(SqlError::Ended)), "{panicked:?}");
        let refused = reader.minions(1);
        assert!(
            matches!(refused, Err(SqlError::Away { .. })),
            "no attempt at once: {refused:?}"
        );
    }
}
