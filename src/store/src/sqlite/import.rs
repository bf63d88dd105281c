//! Import of jobs that this master did not publish, out of stock's job cache.
//!
//! They are numbered below all others, downwards from -1. Followers of the database (the mirror,
//! returners) begin at 0 and so never meet them: their files are there already, and what was to be
//! given to returners was given to them by the master that published the job.

use rusqlite::{OptionalExtension, Transaction, params};

use super::JobDatabase;
use super::database::{NextIds, insert_job_as, insert_return, replace_reported, set_reporter};
use super::reader::JobReader;
use crate::error::Result;
use crate::jobs::{AuditHead, Imported, JobState, Written};
use crate::mirror::CachedJob;

/// The row of `meta` that says that the job cache has been read.
pub(super) const DONE: &str = "job_cache_imported";

impl JobDatabase {
    /// Adds jobs and returns that are not there yet; what is there stays as it is, but for a job
    /// that is only known by the report of a peer: that one is replaced by a published one, and
    /// keeps its number. A report that the mirror wrote is a report again.
    ///
    /// # Errors
    /// As for [`JobDatabase::commit`]; nothing of the slice is kept then.
    pub fn import(&mut self, slice: &[CachedJob]) -> Result<Imported> {
        self.transact("import jobs into", |transaction| {
            let mut imported = Imported::default();
            let mut next = NextIds {
                job: below(transaction, "jobs")?,
                returned: below(transaction, "returns")?,
                // None is imported.
                event: 0,
                sent_event: 0,
                audit: AuditHead::default(),
            };
            for cached in slice {
                if let Some(job) = &cached.job {
                    if insert_job_as(transaction, next.job, job, JobState::Expired)? {
                        if let Some(reporter) = &cached.reporter {
                            set_reporter(transaction, &job.jid, reporter)?;
                        }
                        next.job -= 1;
                        imported.jobs += 1;
                    } else if cached.reporter.is_none() && replace_reported(transaction, job)? {
                        imported.jobs += 1;
                    }
                }
                for record in &cached.returns {
                    let mut numbers = next;
                    if let Written::New { .. } = insert_return(transaction, &mut numbers, record)? {
                        next.returned -= 1;
                        imported.returns += 1;
                    }
                }
                if cached.is_whole {
                    conclude(transaction, cached.jid.as_str())?;
                }
            }
            Ok(imported)
        })
    }

    /// Remembers that the job cache has been read.
    pub fn finish_import(&mut self) -> Result<()> {
        self.transact("write", |transaction| {
            transaction.execute(
                "INSERT OR REPLACE INTO meta (name, value) VALUES (?1, 1)",
                [DONE],
            )?;
            Ok(())
        })
    }
}

impl JobReader {
    pub(super) fn has_imported(&self) -> Result<bool> {
        self.read("read", |connection| {
            let found = connection
                .query_row("SELECT 1 FROM meta WHERE name = ?1", [DONE], |_| Ok(()))
                .optional()?;
            Ok(found.is_some())
        })
    }
}

/// One less than every number that was ever given below 0.
fn below(transaction: &Transaction<'_>, table: &'static str) -> rusqlite::Result<i64> {
    transaction.query_row(
        &format!("SELECT min(coalesce(min(id), 0), 0) - 1 FROM {table}"),
        [],
        |row| row.get(0),
    )
}

/// An imported job is complete when as many returned as were expected. One that took the place of a
/// report has ended when it was made, as no job does that this master has published.
fn conclude(transaction: &Transaction<'_>, jid: &str) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "UPDATE jobs SET
                 state = CASE WHEN
                     (SELECT count(*) FROM returns WHERE returns.jid = jobs.jid) >=
                     (SELECT coalesce(sum(json_array_length(minions)), 0)
                        FROM expected_part WHERE expected_part.jid = jobs.jid)
                     THEN ?2 ELSE ?3 END,
                 published = CASE WHEN reporter IS NULL
                     THEN coalesce(published, created) ELSE published END,
                 finished = coalesce(
                     (SELECT max(received) FROM returns WHERE returns.jid = jobs.jid), created)
             WHERE jid = ?1 AND (id < 0 OR (state = ?3 AND finished = created))",
        )?
        .execute(params![
            jid,
            JobState::Complete.code(),
            JobState::Expired.code()
        ])?;
    Ok(())
}
