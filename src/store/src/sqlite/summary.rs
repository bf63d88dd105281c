//! Summaries of jobs and returns: what a row of a list shows, without the loads, which may be
//! large.

use rusqlite::{Connection, Row};
use saltern_model::Jid;

use super::reader::{JobReader, clamp, jid_of, kept, minion_of};
use crate::error::Result;
use crate::jobs::{JobState, JobSummary, NewestReturn, ReturnHead, ReturnSearch};

impl JobReader {
    /// The other columns are read of wanted returns only: of most that a search looks at, it wants none.
    pub(super) fn newest_returns(
        &self,
        span: (i64, i64),
        search: &mut dyn ReturnSearch,
    ) -> Result<()> {
        self.read("read returns of", |connection| {
            let mut newest = connection.prepare_cached(
                "SELECT minion, id FROM returns WHERE id > ?1 AND id <= ?2 ORDER BY id DESC",
            )?;
            let mut whole = connection
                .prepare_cached("SELECT jid, fun, received, retcode FROM returns WHERE id = ?1")?;
            let mut rows = newest.query(span)?;
            while let Some(row) = rows.next()? {
                let Ok(minion) = row.get_ref(0)?.as_str() else {
                    continue;
                };
                let Some(is_wanted) = search.wants(minion) else {
                    break;
                };
                if is_wanted {
                    let id: i64 = row.get(1)?;
                    whole.query_row([id], |row| give(search, (id, minion), row))?;
                }
            }
            Ok(())
        })
    }

    pub(super) fn latest_jobs(&self, limit: usize) -> Result<Vec<JobSummary>> {
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

    pub(super) fn return_heads(&self, jid: &Jid) -> Result<Vec<ReturnHead>> {
        self.read("read returns of", |connection| {
            return_heads(connection, jid)
        })
    }
}

/// Gives a search a return, unless its texts are none.
fn give(
    search: &mut dyn ReturnSearch,
    (id, minion): (i64, &str),
    row: &Row<'_>,
) -> rusqlite::Result<()> {
    let text = |column| row.get_ref(column).ok()?.as_str().ok();
    if let (Some(jid), Some(fun)) = (text(0), text(1)) {
        search.take(NewestReturn {
            id,
            minion,
            jid,
            fun,
            received: row.get(2)?,
            retcode: row.get(3)?,
        });
    }
    Ok(())
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
