//! Summaries of jobs and returns: what a row of a list shows, without the loads, which may be
//! large.

use rusqlite::{Connection, Row};
use saltern_model::Jid;

use super::reader::{JobReader, clamp, jid_of, kept, minion_of};
use crate::error::Result;
use crate::jobs::{JobState, JobSummary, NewestReturn, ReturnHead, ReturnSearch};

impl JobReader {
    /// Goes down in slices: while a search wants most returns, each slice is one statement for all
    /// columns; while it passes over most, the other columns are read of the wanted ones only.
    pub(super) fn newest_returns(&self, limit: usize, search: &mut dyn ReturnSearch) -> Result<()> {
        self.read("read returns of", |connection| {
            let (mut below, mut left) = (i64::MAX, limit);
            let mut read: ReadSlice = whole_returns;
            while left > 0 {
                let size = left.min(SLICE);
                let Some(slice) = read(connection, (below, size), search)? else {
                    return Ok(());
                };
                if slice.rows < size {
                    return Ok(());
                }
                read = match slice.wanted * 2 < slice.rows {
                    true => wanted_returns,
                    false => whole_returns,
                };
                (below, left) = (slice.last, left - size);
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

/// Returns in a slice of the newest ones.
const SLICE: usize = 1_000;

/// Gives a search at most so many returns below a number, newest first; nothing once it ended.
type ReadSlice =
    fn(&Connection, (i64, usize), &mut dyn ReturnSearch) -> rusqlite::Result<Option<Slice>>;

/// Counts of a slice that was read.
#[derive(Default)]
struct Slice {
    rows: usize,
    wanted: usize,
    /// The number of the oldest return.
    last: i64,
}

impl Slice {
    fn count(&mut self, id: i64, is_wanted: bool) {
        self.rows += 1;
        self.wanted += usize::from(is_wanted);
        self.last = id;
    }
}

/// Reads all columns of each return.
fn whole_returns(
    connection: &Connection,
    (below, size): (i64, usize),
    search: &mut dyn ReturnSearch,
) -> rusqlite::Result<Option<Slice>> {
    let mut statement = connection.prepare_cached(
        "SELECT jid, fun, received, retcode, minion, id FROM returns WHERE id < ?1
          ORDER BY id DESC LIMIT ?2",
    )?;
    let mut rows = statement.query((below, clamp(size)))?;
    let mut slice = Slice::default();
    while let Some(row) = rows.next()? {
        // A name that is no text is nobody's.
        let minion = row.get_ref(4)?.as_str().ok();
        let Some(is_wanted) = minion.map_or(Some(false), |minion| search.wants(minion)) else {
            return Ok(None);
        };
        slice.count(row.get(5)?, is_wanted);
        if let Some(minion) = minion.filter(|_| is_wanted) {
            give(search, minion, row)?;
        }
    }
    Ok(Some(slice))
}

/// Reads the other columns of the wanted returns only.
fn wanted_returns(
    connection: &Connection,
    (below, size): (i64, usize),
    search: &mut dyn ReturnSearch,
) -> rusqlite::Result<Option<Slice>> {
    let mut newest = connection
        .prepare_cached("SELECT minion, id FROM returns WHERE id < ?1 ORDER BY id DESC LIMIT ?2")?;
    let mut whole = connection
        .prepare_cached("SELECT jid, fun, received, retcode FROM returns WHERE id = ?1")?;
    let mut rows = newest.query((below, clamp(size)))?;
    let mut slice = Slice::default();
    while let Some(row) = rows.next()? {
        let minion = row.get_ref(0)?.as_str().ok();
        let Some(is_wanted) = minion.map_or(Some(false), |minion| search.wants(minion)) else {
            return Ok(None);
        };
        let id: i64 = row.get(1)?;
        slice.count(id, is_wanted);
        if let Some(minion) = minion.filter(|_| is_wanted) {
            whole.query_row([id], |row| give(search, minion, row))?;
        }
    }
    Ok(Some(slice))
}

/// Gives a search a return, unless its texts are none.
fn give(search: &mut dyn ReturnSearch, minion: &str, row: &Row<'_>) -> rusqlite::Result<()> {
    let text = |column| row.get_ref(column).ok()?.as_str().ok();
    if let (Some(jid), Some(fun)) = (text(0), text(1)) {
        search.take(NewestReturn {
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
