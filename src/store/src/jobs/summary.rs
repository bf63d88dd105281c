//! Summaries of jobs and returns: what a row of a list shows, without the loads, which may be
//! large.

use rusqlite::Connection;
use saltern_model::{Jid, MinionId};

use super::JobState;
use super::reader::{JobReader, clamp, jid_of, kept, minion_of};
use crate::error::Result;

/// A job in one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobSummary {
    /// Its id.
    pub jid: Jid,
    /// When it was made, in microseconds since 1970.
    pub created: i64,
    /// When it ended, in microseconds since 1970; none while it is open.
    pub finished: Option<i64>,
    /// The user that published it.
    pub user: String,
    /// The function, or the functions of a compound command joined by commas.
    pub fun: String,
    /// The target as text.
    pub tgt: String,
    /// The name of the target's type.
    pub tgt_type: String,
    /// Its outcome.
    pub state: JobState,
    /// How many minions are expected.
    pub expected: usize,
    /// How many returned.
    pub returned: usize,
    /// How many of these with a return code other than 0.
    pub failed: usize,
}

/// A return without its load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReturnHead {
    /// The minion.
    pub minion: MinionId,
    /// When it came, in microseconds since 1970.
    pub received: i64,
    /// Its return code.
    pub retcode: i64,
}

/// A return with its job, without the load; as it stands in the database, where a reader that looks at
/// many need not copy what it does not want.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewestReturn<'a> {
    /// The minion.
    pub minion: &'a str,
    /// The job.
    pub jid: &'a str,
    /// The function.
    pub fun: &'a str,
    /// When it came, in microseconds since 1970.
    pub received: i64,
    /// Its return code.
    pub retcode: i64,
}

impl JobReader {
    /// The newest returns of all jobs, newest first, at most `limit`, until `take` wants no more.
    pub fn newest_returns(
        &self,
        limit: usize,
        mut take: impl FnMut(NewestReturn<'_>) -> bool,
    ) -> Result<()> {
        self.read("read returns of", |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT minion, jid, fun, received, retcode FROM returns ORDER BY id DESC LIMIT ?1",
            )?;
            let mut rows = statement.query([clamp(limit)])?;
            while let Some(row) = rows.next()? {
                let text = |column| row.get_ref(column).ok()?.as_str().ok();
                let (Some(minion), Some(jid), Some(fun)) = (text(0), text(1), text(2)) else {
                    continue;
                };
                let wants_more = take(NewestReturn {
                    minion,
                    jid,
                    fun,
                    received: row.get(3)?,
                    retcode: row.get(4)?,
                });
                if !wants_more {
                    break;
                }
            }
            Ok(())
        })
    }

    /// The latest jobs, newest first. Counts the returns of each: not for every second.
    pub fn latest_jobs(&self, limit: usize) -> Result<Vec<JobSummary>> {
        self.read("list the jobs of", |connection| {
            let mut statement = connection.prepare_cached(
                "SELECT jid, created, finished, user, fun, tgt, tgt_type, state,
                        (SELECT coalesce(sum(json_array_length(minions)), 0)
                           FROM expected_part WHERE expected_part.jid = jobs.jid),
                        (SELECT count(*) FROM returns WHERE returns.jid = jobs.jid),
                        (SELECT count(*) FROM returns
                          WHERE returns.jid = jobs.jid AND retcode <> 0)
                   FROM jobs ORDER BY jid DESC LIMIT ?1",
            )?;
            let rows = statement.query_map([clamp(limit)], |row| {
                let Some(jid) = jid_of(row.get_ref(0)?) else {
                    return Ok(None);
                };
                let count = |column| row.get::<_, i64>(column).map(counted);
                Ok(Some(JobSummary {
                    jid,
                    created: row.get(1)?,
                    finished: row.get(2)?,
                    user: row.get(3)?,
                    fun: row.get(4)?,
                    tgt: row.get(5)?,
                    tgt_type: row.get(6)?,
                    state: JobState::from_code(row.get(7)?),
                    expected: count(8)?,
                    returned: count(9)?,
                    failed: count(10)?,
                }))
            })?;
            kept(rows)
        })
    }

    /// All returns of a job, without their loads, in the order of their arrival.
    pub fn return_heads(&self, jid: &Jid) -> Result<Vec<ReturnHead>> {
        self.read("read returns of", |connection| {
            return_heads(connection, jid)
        })
    }
}

pub(super) fn return_heads(
    connection: &Connection,
    jid: &Jid,
) -> rusqlite::Result<Vec<ReturnHead>> {
    let mut statement = connection.prepare_cached(
        "SELECT minion, received, retcode FROM returns WHERE jid = ?1 ORDER BY id",
    )?;
    let rows = statement.query_map([jid.as_str()], |row| {
        let Some(minion) = minion_of(row.get_ref(0)?) else {
            return Ok(None);
        };
        Ok(Some(ReturnHead {
            minion,
            received: row.get(1)?,
            retcode: row.get(2)?,
        }))
    })?;
    kept(rows)
}

fn counted(count: i64) -> usize {
    usize::try_from(count).unwrap_or_default()
}
