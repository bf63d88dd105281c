//! Reads of returns.

use saltern_model::{Jid, MinionId, Packed, ReturnRecord};
use saltern_store::Result;
use saltern_store::jobs::{
    NewestReturn, Numbered, ReturnHead, ReturnRun, ReturnSearch, ReturnsOf, ReturnsPage,
};
use tokio_postgres::Row;

use super::jobs::{left_of, within};
use super::reader::{ClusterReader, clamp, counted, jid_of, kept, minion_of, parsed};
use super::text::original;
use crate::error::SqlError;

/// The columns of [`numbered_of`].
const COLUMNS: &str = "id, jid, minion, received, fun, retcode, success, load";

/// Rows of one query for the newest returns.
const CHUNK: usize = 500;

/// Of [`ClusterReader::returns_of`]: rows that are looked at, most of which are of other functions; then
/// bytes and rows that are given.
const SPAN: i64 = 5_000;
const BATCH_BYTES: usize = 4 << 20;
const BATCH_ROWS: usize = 50;

impl ClusterReader {
    pub(super) fn returns(&self, jid: &Jid) -> Result<Vec<ReturnRecord>> {
        let sql = format!("SELECT {COLUMNS} FROM returns WHERE jid = $1 ORDER BY id");
        self.read("read returns of", |link| {
            kept(&link.rows(&sql, &[&jid.as_str()])?, record_of)
        })
    }

    pub(super) fn return_of(&self, jid: &Jid, minion: &MinionId) -> Result<Option<ReturnRecord>> {
        let sql = format!("SELECT {COLUMNS} FROM returns WHERE jid = $1 AND minion = $2");
        self.read("read a return of", |link| {
            let row = link.row(&sql, &[&jid.as_str(), &minion.as_str()])?;
            Ok(row.as_ref().map(record_of).transpose()?.flatten())
        })
    }

    pub(super) fn returns_page(
        &self,
        jid: &Jid,
        after: Option<&str>,
        limit: usize,
        most_bytes: usize,
    ) -> Result<ReturnsPage> {
        // In the order of the minions, which takes the place of that of the numbers.
        let sql = format!(
            "SELECT {COLUMNS}, rows FROM (SELECT *, count(*) OVER () AS rows, \
             sum(octet_length(load)) OVER (ORDER BY minion) AS total FROM \
             (SELECT {COLUMNS} FROM returns WHERE jid = $1 AND minion > $2 ORDER BY minion LIMIT $3) \
             AS r) AS t WHERE total <= $4 OR total = octet_length(load) ORDER BY minion"
        );
        self.read("read returns of", |link| {
            let (after, limit, bytes) =
                (after.unwrap_or_default(), clamp(limit), clamp(most_bytes));
            let rows = link.rows(&sql, &[&jid.as_str(), &after, &limit, &bytes])?;
            let all: i64 = match rows.last() {
                Some(last) => last.try_get(8)?,
                None => 0,
            };
            Ok(ReturnsPage {
                returns: kept(&rows, record_of)?,
                is_cut: rows.len() < counted(all),
            })
        })
    }

    pub(super) fn return_heads(&self, jid: &Jid) -> Result<Vec<ReturnHead>> {
        self.read("read returns of", |link| {
            let sql = "SELECT minion, received, retcode FROM returns WHERE jid = $1 ORDER BY id";
            kept(&link.rows(sql, &[&jid.as_str()])?, head_of)
        })
    }

    pub(super) fn returned_minions(&self, jid: &Jid) -> Result<Vec<MinionId>> {
        self.read("read returns of", |link| {
            let sql = "SELECT minion FROM returns WHERE jid = $1 ORDER BY minion";
            kept(&link.rows(sql, &[&jid.as_str()])?, |row| minion_of(row, 0))
        })
    }

    pub(super) fn last_return_at(&self, jid: &Jid) -> Result<Option<i64>> {
        self.read("read returns of", |link| {
            let sql = "SELECT max(received) FROM returns WHERE jid = $1";
            let row = link.row(sql, &[&jid.as_str()])?;
            Ok(row.map(|row| row.try_get(0)).transpose()?.flatten())
        })
    }

    pub(super) fn newest_returns(
        &self,
        (above, mut through): (i64, i64),
        search: &mut dyn ReturnSearch,
    ) -> Result<()> {
        let sql = "SELECT id, minion, jid, fun, received, retcode FROM returns \
                   WHERE id > $1 AND id <= $2 ORDER BY id DESC LIMIT $3";
        let chunk = clamp(CHUNK);
        loop {
            let (rows, lowest) = self.read("read returns of", |link| {
                let rows = link.rows(sql, &[&above, &through, &chunk])?;
                let lowest: Option<i64> = rows.last().map(|row| row.try_get(0)).transpose()?;
                Ok((rows, lowest))
            })?;
            for row in &rows {
                let one = || -> std::result::Result<_, SqlError> {
                    Ok((
                        row.try_get(0)?,
                        original(row.try_get(3)?),
                        row.try_get(4)?,
                        row.try_get(5)?,
                    ))
                };
                let names = || -> std::result::Result<(&str, &str), SqlError> {
                    Ok((row.try_get(1)?, row.try_get(2)?))
                };
                let (Ok((id, fun, received, retcode)), Ok((minion, jid))) = (one(), names()) else {
                    continue;
                };
                match search.wants(minion) {
                    None => return Ok(()),
                    Some(false) => {}
                    Some(true) => search.take(NewestReturn {
                        id,
                        minion,
                        jid,
                        fun: &fun,
                        received,
                        retcode,
                    }),
                }
            }
            if counted(chunk) > rows.len() {
                return Ok(());
            }
            // Below the last row even where that was none that can be given.
            through = lowest.map_or(above, |id| id - 1);
        }
    }

    pub(super) fn returns_within(
        &self,
        cursor: i64,
        limit: usize,
        bytes: usize,
    ) -> Result<Vec<Numbered<ReturnRecord>>> {
        let sql = within(&format!(
            "(SELECT {COLUMNS}, octet_length(load) AS size FROM returns WHERE id > $1 \
             ORDER BY id LIMIT $2)"
        ));
        self.read("read returns of", |link| {
            let rows = link.rows(&sql, &[&cursor, &clamp(limit), &clamp(bytes)])?;
            kept(&rows, numbered_of)
        })
    }

    pub(super) fn return_runs(&self, cursor: i64, limit: usize) -> Result<Vec<ReturnRun>> {
        self.read("read returns of", |link| {
            let sql = "SELECT id, jid FROM returns WHERE id > $1 ORDER BY id LIMIT $2";
            let mut runs = Vec::new();
            for row in &link.rows(sql, &[&cursor, &clamp(limit)])? {
                parsed(ReturnRun::add(&mut runs, row.try_get(0)?, row.try_get(1)?));
            }
            Ok(runs)
        })
    }

    pub(super) fn first_return(&self, jid: &Jid, cursor: i64) -> Result<Option<i64>> {
        self.read("look for returns in", |link| {
            // By the index of jids: in the order of numbers all returns behind the cursor might be read.
            let sql = "SELECT min(id + 0) FROM returns WHERE jid = $1 AND id + 0 > $2";
            let row = link.row(sql, &[&jid.as_str(), &cursor])?;
            Ok(row.map(|row| row.try_get(0)).transpose()?.flatten())
        })
    }

    pub(super) fn returns_of(&self, functions: &[&str], cursor: i64) -> Result<ReturnsOf> {
        let sql = within(&format!(
            "(SELECT {COLUMNS}, octet_length(load) AS size FROM returns WHERE id > $1 AND id <= $2 \
             AND fun = ANY($4) ORDER BY id LIMIT {BATCH_ROWS})"
        ));
        self.read("read returns of", |link| {
            let last = link.row("SELECT coalesce(max(id), 0) FROM returns", &[])?;
            let last: i64 = last.map(|row| row.try_get(0)).transpose()?.unwrap_or(0);
            let end = cursor.saturating_add(SPAN).min(last);
            let rows = link.rows(&sql, &[&cursor, &end, &clamp(BATCH_BYTES), &functions])?;
            let is_cut = left_of(&rows, BATCH_BYTES)? == 0 || rows.len() >= BATCH_ROWS;
            let returns = kept(&rows, numbered_of)?;
            let through = match returns.last() {
                Some(last) if is_cut => last.id,
                _ => end,
            };
            Ok(ReturnsOf {
                returns,
                through,
                last,
            })
        })
    }
}

pub(super) fn head_of(row: &Row) -> std::result::Result<Option<ReturnHead>, SqlError> {
    let Some(minion) = minion_of(row, 0)? else {
        return Ok(None);
    };
    Ok(Some(ReturnHead {
        minion,
        received: row.try_get(1)?,
        retcode: row.try_get(2)?,
    }))
}

fn numbered_of(row: &Row) -> std::result::Result<Option<Numbered<ReturnRecord>>, SqlError> {
    let id = row.try_get(0)?;
    Ok(record_of(row)?.map(|record| Numbered { id, record }))
}

fn record_of(row: &Row) -> std::result::Result<Option<ReturnRecord>, SqlError> {
    let (Some(jid), Some(minion)) = (jid_of(row, 1)?, minion_of(row, 2)?) else {
        return Ok(None);
    };
    Ok(Some(ReturnRecord {
        jid,
        minion,
        received: row.try_get(3)?,
        fun: original(row.try_get(4)?),
        retcode: row.try_get(5)?,
        success: row.try_get(6)?,
        load: Packed::new(row.try_get::<_, Vec<u8>>(7)?),
    }))
}
