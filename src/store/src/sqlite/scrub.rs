//! Scrub of the job database: reads it from end to end, a slice at a time, to find corruption
//! before a query does.
//!
//! Every row is read with all its columns, so every page of the tables is; a page that only an
//! index or the free list has is examined at a start (`quick_check`). Damage that is met is noted
//! for the next start, as any other.

use std::path::Path;

use rusqlite::{Connection, Row};

use super::reader::JobReader;
use super::{DatabaseLimits, schema};
use crate::error::{Result, StoreError};
use crate::jobs::{Scrub, ScrubSlice};

/// The tables, each with a number for each row.
const TABLES: [&str; 3] = ["jobs", "expected_part", "returns"];

/// Reader of its own that reads the database from end to end.
pub struct Scrubber(JobReader);

impl Scrubber {
    /// Opens one.
    pub fn open(path: &Path, limits: DatabaseLimits) -> Result<Self> {
        Ok(Self(JobReader::open(path, limits)?))
    }

    /// Reads the next slice; `true` when that was the last one, and the next begins anew.
    ///
    /// # Errors
    /// [`StoreError::Corrupt`] for damage, which is then passed over by the next slice as far as
    /// it is known where it ends: the next one begins with the next table.
    pub fn scrub(&self, scrub: &mut Scrub, slice: ScrubSlice) -> Result<bool> {
        let Some(table) = TABLES.get(scrub.table) else {
            *scrub = Scrub::default();
            return Ok(true);
        };
        let read = self.0.read("check", |connection| {
            read_rows(connection, table, scrub.after, slice)
        });
        match read {
            Ok(Some(last)) => scrub.after = last,
            Ok(None) => {
                *scrub = Scrub {
                    table: scrub.table + 1,
                    after: 0,
                };
            }
            Err(error) => {
                if matches!(error, StoreError::Corrupt { .. }) {
                    schema::suspect(self.0.path());
                }
                *scrub = Scrub {
                    table: scrub.table + 1,
                    after: 0,
                };
                return Err(error);
            }
        }
        let is_over = scrub.table == TABLES.len();
        if is_over {
            *scrub = Scrub::default();
        }
        Ok(is_over)
    }
}

/// Reads rows above this number; the number of the last one, if there may be more.
fn read_rows(
    connection: &Connection,
    table: &str,
    after: i64,
    slice: ScrubSlice,
) -> rusqlite::Result<Option<i64>> {
    let query = format!("SELECT * FROM {table} WHERE id > ?1 ORDER BY id LIMIT ?2");
    let mut statement = connection.prepare_cached(&query)?;
    let columns = statement.column_count();
    let most = i64::try_from(slice.rows).unwrap_or(i64::MAX);
    let mut rows = statement.query((after, most))?;
    let (mut count, mut bytes, mut last) = (0, 0_usize, after);
    while let Some(row) = rows.next()? {
        last = row.get("id")?;
        count += 1;
        bytes = bytes.saturating_add(read_row(row, columns)?);
        if bytes >= slice.bytes {
            return Ok(Some(last));
        }
    }
    Ok((count == slice.rows).then_some(last))
}

/// Reads all columns; the bytes of texts and blobs.
fn read_row(row: &Row<'_>, columns: usize) -> rusqlite::Result<usize> {
    let mut bytes = 0_usize;
    for column in 0..columns {
        // Overflow pages are only read when their column is.
        let value = row.get_ref(column)?;
        let length = value.as_bytes().map_or(0, <[u8]>::len);
        bytes = bytes.saturating_add(length);
    }
    Ok(bytes)
}
