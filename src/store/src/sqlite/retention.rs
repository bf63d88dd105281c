//! Retention: removes jobs by age, by number and by total size.
//!
//! Rows are removed a slice at a time, so that returns never wait for long. The file does not
//! shrink: pages that become free are used again before it grows, so with a bound on the size it
//! stays within that bound and what one slice and the write-ahead log need.

use rusqlite::{OptionalExtension, Transaction, params};
use saltern_model::Jid;

use super::JobDatabase;
use super::database::{delete_job, remember_next_ids};
use super::events::Table;
use super::schema::{PAGE_BYTES, wrap};
use crate::error::Result;
use crate::jobs::{Reason, Removed, Retention, Size};

impl JobDatabase {
    /// Removes about `slice` rows at most that need not be kept, in one short transaction; `None`
    /// says that everything else is to be kept.
    pub fn remove_slice(&mut self, retention: &Retention, slice: usize) -> Result<Option<Removed>> {
        let slice = i64::try_from(slice.max(1)).unwrap_or(i64::MAX);
        if let Some(before) = retention.jobs_before() {
            let rows = self.remove(|transaction| expire(transaction, before, slice))?;
            if rows > 0 {
                // Counted before these went.
                self.excess = 0;
                return Ok(Some(Removed {
                    reason: Reason::Age,
                    rows,
                    jobs: Vec::new(),
                }));
            }
        }
        if let Some(removed) = self.remove_audit(retention, slice)? {
            return Ok(Some(removed));
        }
        if let Some(removed) = self.remove_events(retention, slice)? {
            return Ok(Some(removed));
        }
        if let Some(most) = retention.most_jobs
            && self.excess == 0
        {
            self.excess = self.count_above(most)?;
        }
        if self.excess > 0 {
            return self.remove_jobs(Reason::Count, self.excess, slice);
        }
        if !self.is_larger_than(retention.most_bytes)? {
            return Ok(None);
        }
        if let Some(removed) = self.remove_oldest_events(Table::Minions, slice)? {
            return Ok(Some(removed));
        }
        match self.remove_jobs(Reason::Size, u64::MAX, slice)? {
            Some(removed) => Ok(Some(removed)),
            None => self.remove_oldest_events(Table::Master, slice),
        }
    }

    fn is_larger_than(&self, most_bytes: Option<u64>) -> Result<bool> {
        let Some(most) = most_bytes else {
            return Ok(false);
        };
        let size = self.size()?;
        Ok(size.file.saturating_sub(size.free) > most)
    }

    /// Removes the oldest of the jobs that are not waited for.
    fn remove_jobs(
        &mut self,
        reason: Reason,
        most_jobs: u64,
        slice: i64,
    ) -> Result<Option<Removed>> {
        let mut jobs = Vec::new();
        let rows =
            self.remove(|transaction| remove_oldest(transaction, most_jobs, slice, &mut jobs));
        // After an error it is counted anew: others may have gone by then.
        let rows = rows.inspect_err(|_| self.excess = 0)?;
        // All that are left may be waited for: then nothing is in excess.
        let gone = if rows == 0 {
            u64::MAX
        } else {
            jobs.len() as u64
        };
        self.excess = self.excess.saturating_sub(gone);
        Ok((rows > 0).then_some(Removed { reason, rows, jobs }))
    }

    /// Size of the database on the disk, without its write-ahead log.
    pub fn size(&self) -> Result<Size> {
        let pages = |name: &str| -> rusqlite::Result<u64> {
            let pages: i64 = self
                .connection
                .pragma_query_value(None, name, |row| row.get(0))?;
            Ok(pages.unsigned_abs() * PAGE_BYTES)
        };
        let size = || -> rusqlite::Result<Size> {
            Ok(Size {
                file: pages("page_count")?,
                free: pages("freelist_count")?,
            })
        };
        size().map_err(|error| wrap(&self.path, "measure", error))
    }

    pub(super) fn remove(
        &mut self,
        rows: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<usize>,
    ) -> Result<usize> {
        let next = self.next;
        self.transact("remove old jobs", |transaction| {
            let removed = rows(transaction)?;
            if removed > 0 {
                remember_next_ids(transaction, next)?;
            }
            Ok(removed)
        })
    }

    /// How many jobs there are above `most`. Counts only when the numbers of the jobs leave it
    /// open: there are no more than from the first to the last.
    fn count_above(&self, most: u64) -> Result<u64> {
        let read = |sql: &str| -> rusqlite::Result<i64> {
            self.connection
                .prepare_cached(sql)?
                .query_row([], |row| row.get(0))
        };
        let span =
            "SELECT coalesce((SELECT max(id) FROM jobs) - (SELECT min(id) FROM jobs) + 1, 0)";
        let count = || -> rusqlite::Result<u64> {
            if read(span)?.unsigned_abs() <= most {
                return Ok(0);
            }
            let jobs = read("SELECT count(*) FROM jobs")?.unsigned_abs();
            Ok(jobs.saturating_sub(most))
        };
        count().map_err(|error| wrap(&self.path, "count the jobs of", error))
    }
}

fn expire(transaction: &Transaction<'_>, cutoff: i64, slice: i64) -> rusqlite::Result<usize> {
    let mut removed = 0;
    loop {
        let left = slice - i64::try_from(removed).unwrap_or(slice);
        if left <= 0 {
            return Ok(removed);
        }
        let oldest: Option<String> = transaction
            .prepare_cached(
                "SELECT jid FROM jobs
                 WHERE created < ?1 AND jid NOT IN (SELECT jid FROM batches WHERE is_open = 1)
                 ORDER BY created LIMIT 1",
            )?
            .query_row([cutoff], |row| row.get(0))
            .optional()?;
        let Some(jid) = oldest else { break };
        removed += delete_job(transaction, &jid, left)?.rows;
    }
    let left = slice - i64::try_from(removed).unwrap_or(slice);
    // Returns are numbered as they arrive, so the oldest have the lowest numbers.
    removed += transaction
        .prepare_cached(
            "DELETE FROM returns WHERE id IN (
                 SELECT id FROM (SELECT id, jid, received FROM returns ORDER BY id LIMIT ?2)
                 WHERE received < ?1 AND jid NOT IN (SELECT jid FROM jobs))",
        )?
        .execute(params![cutoff, left])?;
    Ok(removed)
}

/// Removes the oldest jobs that are not waited for, nor between two parts of a batch; names those
/// that are gone as a whole.
fn remove_oldest(
    transaction: &Transaction<'_>,
    most_jobs: u64,
    slice: i64,
    gone: &mut Vec<Jid>,
) -> rusqlite::Result<usize> {
    let mut removed = 0;
    while (gone.len() as u64) < most_jobs {
        let left = slice - i64::try_from(removed).unwrap_or(slice);
        if left <= 0 {
            break;
        }
        let oldest: Option<String> = transaction
            .prepare_cached(
                "SELECT jid FROM jobs
                 WHERE state <> 0 AND jid NOT IN (SELECT jid FROM batches WHERE is_open = 1)
                 ORDER BY created LIMIT 1",
            )?
            .query_row([], |row| row.get(0))
            .optional()?;
        let Some(jid) = oldest else { break };
        let deleted = delete_job(transaction, &jid, left)?;
        removed += deleted.rows;
        if deleted.is_gone {
            gone.extend(Jid::parse(&jid));
        }
    }
    Ok(removed)
}
