//! Returns of some functions in the order of their numbers, for followers that need no others.

use super::reader::{JobReader, clamp, numbered_return_of, select_returns, within};
use crate::error::Result;
use crate::jobs::ReturnsOf;

/// Rows that one read looks at, most of which are of other functions: bounds the time for which the
/// reader is held.
const SPAN: i64 = 5_000;

/// Bytes of the loads that one read gives, unless a single one is larger.
const BATCH_BYTES: usize = 4 << 20;

/// Returns that one read gives.
const BATCH_ROWS: usize = 50;

impl JobReader {
    pub(super) fn returns_of(&self, functions: &[&str], cursor: i64) -> Result<ReturnsOf> {
        // Functions are named by this program, and have no quotes.
        let names = functions.iter().map(|name| format!("'{name}'"));
        let names = names.collect::<Vec<_>>().join(", ");
        self.read("read returns of", |connection| {
            let last: i64 = connection
                .prepare_cached("SELECT coalesce(max(id), 0) FROM returns")?
                .query_row([], |row| row.get(0))?;
            let end = cursor.saturating_add(SPAN).min(last);
            let condition =
                format!("WHERE id > ?1 AND id <= ?2 AND fun IN ({names}) ORDER BY id LIMIT ?3");
            let mut statement = connection.prepare_cached(&select_returns(&condition))?;
            let rows = statement.query_map((cursor, end, clamp(BATCH_ROWS)), numbered_return_of)?;
            let rows = rows.filter_map(rusqlite::Result::transpose);
            let (returns, left) = within(rows, BATCH_BYTES, |row| row.record.load.bytes().len())?;
            let is_cut = left == 0 || returns.len() >= BATCH_ROWS;
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

#[cfg(test)]
mod tests {
    use saltern_model::{Jid, MinionId, Packed, ReturnRecord};

    use super::super::{DatabaseLimits, JobDatabase};
    use super::*;
    use crate::jobs::Write;

    fn record(number: usize, fun: &str) -> ReturnRecord {
        ReturnRecord {
            jid: Jid::parse("20260102030405060708").unwrap(),
            minion: MinionId::parse(&format!("m{number}")).unwrap(),
            received: number as i64,
            fun: fun.to_owned(),
            retcode: 0,
            success: true,
            load: Packed::new(vec![0x80_u8]),
        }
    }

    #[test]
    fn walk_gives_every_return_of_a_function_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs.sqlite");
        let mut database = JobDatabase::open(&path, DatabaseLimits::default()).unwrap();
        let fun = |number: usize| match number % 3 {
            0 => "state.apply",
            _ => "test.ping",
        };
        let all: Vec<Write> = (0..6_000)
            .map(|number| Write::Return(record(number, fun(number))))
            .collect();
        database.commit(&all).unwrap();
        let reader = database.reader().unwrap();
        let (mut cursor, mut seen) = (0, Vec::new());
        loop {
            let step = reader.returns_of(&["state.apply"], cursor).unwrap();
            assert!(step.through > cursor || step.through == step.last);
            assert!(step.returns.len() <= BATCH_ROWS);
            seen.extend(step.returns.iter().map(|row| row.record.received));
            cursor = step.through;
            if cursor == step.last {
                break;
            }
        }
        let wanted: Vec<i64> = (0..6_000).step_by(3).collect();
        assert_eq!(seen, wanted);
        let step = reader.returns_of(&["state.apply"], cursor).unwrap();
        assert!(step.returns.is_empty() && step.through == cursor);
    }
}
