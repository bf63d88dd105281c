//! Retention: removes jobs by age and by number, events and rows of the audit trail, a slice at a time.
//!
//! Not by size: PostgreSQL gives space back when it pleases, so a bound on bytes would remove more and
//! more.

use saltern_model::Jid;
use saltern_store::jobs::{Reason, Removed, Retention};
use tokio_postgres::types::ToSql;

use super::session::Session;
use crate::error::SqlError;

/// The row of `meta` with the last row of the audit trail that was removed, as `NUMBER:HASH`.
pub(super) const ANCHOR: &str = "audit_anchor";

/// Progress of removing a job.
pub(super) struct DeletedRows {
    pub(super) rows: usize,
    /// Nothing of the job is left.
    pub(super) is_gone: bool,
}

const OLDEST_BEFORE: &str = "SELECT jid FROM jobs WHERE created < $1 AND NOT EXISTS \
     (SELECT 1 FROM batches WHERE batches.jid = jobs.jid AND is_open) ORDER BY created LIMIT 1";

const OLDEST_ENDED: &str = "SELECT jid FROM jobs WHERE state <> 0 AND NOT EXISTS \
     (SELECT 1 FROM batches WHERE batches.jid = jobs.jid AND is_open) ORDER BY created LIMIT 1";

/// Returns are numbered as they arrive, so the oldest have the lowest numbers.
const ORPHANS: &str = "DELETE FROM returns WHERE id IN \
     (SELECT id FROM (SELECT id, jid, received FROM returns ORDER BY id LIMIT $2) AS r \
      WHERE received < $1 AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.jid = r.jid))";

/// No number is given twice, so there are no more jobs than from the first to the last.
const JOBS_IF_MORE: &str = "SELECT CASE WHEN coalesce(max(id) - min(id) + 1, 0) <= $1 THEN 0 \
     ELSE (SELECT count(*) FROM jobs) END FROM jobs";

/// Removes about `slice` rows at most that need not be kept; `None` says that everything else is to be
/// kept. `excess` is how many jobs there are above the bound, as counted last.
pub(super) async fn remove_slice(
    session: &mut Session,
    retention: &Retention,
    slice: usize,
    excess: &mut u64,
) -> Result<Option<Removed>, SqlError> {
    let slice = i64::try_from(slice.max(1)).unwrap_or(i64::MAX);
    let removed = |reason, rows| {
        let jobs = Vec::new();
        Ok(Some(Removed { reason, rows, jobs }))
    };
    if let Some(before) = retention.jobs_before() {
        let rows = expire(session, before, slice).await?;
        if rows > 0 {
            // Counted before these went.
            *excess = 0;
            return removed(Reason::Age, rows);
        }
    }
    if let Some((reason, rows)) = remove_audit(session, retention, slice).await? {
        return removed(reason, rows);
    }
    for of_minion in [true, false] {
        if let Some((reason, rows)) = remove_events(session, of_minion, retention, slice).await? {
            return removed(reason, rows);
        }
    }
    if let Some(most) = retention.most_jobs
        && *excess == 0
    {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let jobs = number(session, JOBS_IF_MORE, &[&most]).await?.unwrap_or(0);
        *excess = jobs.saturating_sub(most).max(0).unsigned_abs();
    }
    match *excess {
        0 => Ok(None),
        _ => remove_oldest(session, slice, excess).await,
    }
}

async fn number(
    session: &mut Session,
    sql: &str,
    values: &[&(dyn ToSql + Sync)],
) -> Result<Option<i64>, SqlError> {
    let rows = session.rows(sql, values).await?;
    let found = rows.first().map(|row| row.try_get(0)).transpose()?;
    Ok(found.flatten())
}

async fn oldest(
    session: &mut Session,
    sql: &str,
    values: &[&(dyn ToSql + Sync)],
) -> Result<Option<String>, SqlError> {
    let rows = session.rows(sql, values).await?;
    Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
}

async fn expire(session: &mut Session, before: i64, slice: i64) -> Result<usize, SqlError> {
    let mut removed = 0;
    let left = |removed: usize| slice - i64::try_from(removed).unwrap_or(slice);
    while left(removed) > 0 {
        let Some(jid) = oldest(session, OLDEST_BEFORE, &[&before]).await? else {
            let orphans = session.execute(ORPHANS, &[&before, &left(removed)]).await?;
            return Ok(removed + usize::try_from(orphans).unwrap_or(0));
        };
        removed += delete_job(session, &jid, left(removed)).await?.rows;
    }
    Ok(removed)
}

/// Removes the oldest jobs that are not waited for, nor between two parts of a batch; names those that
/// are gone as a whole.
async fn remove_oldest(
    session: &mut Session,
    slice: i64,
    excess: &mut u64,
) -> Result<Option<Removed>, SqlError> {
    let (mut rows, mut jobs) = (0, Vec::new());
    while *excess > 0 {
        let left = slice - i64::try_from(rows).unwrap_or(slice);
        if left <= 0 {
            break;
        }
        let Some(jid) = oldest(session, OLDEST_ENDED, &[]).await? else {
            // All that are left may be waited for.
            *excess = 0;
            break;
        };
        let deleted = delete_job(session, &jid, left).await?;
        rows += deleted.rows;
        if deleted.is_gone {
            jobs.extend(Jid::parse(&jid));
            *excess -= 1;
        }
    }
    let reason = Reason::Count;
    Ok((rows > 0).then_some(Removed { reason, rows, jobs }))
}

/// Removes up to `slice` returns of a job, and the job itself once none are left.
pub(super) async fn delete_job(
    session: &mut Session,
    jid: &str,
    slice: i64,
) -> Result<DeletedRows, SqlError> {
    let returns =
        "DELETE FROM returns WHERE id IN (SELECT id FROM returns WHERE jid = $1 LIMIT $2)";
    let mut rows = session.execute(returns, &[&jid, &slice]).await?;
    let is_gone = i64::try_from(rows).unwrap_or(i64::MAX) < slice;
    if is_gone {
        for table in ["expected_part", "batch_failed", "batches", "jobs"] {
            let sql = format!("DELETE FROM {table} WHERE jid = $1");
            rows += session.execute(&sql, &[&jid]).await?;
        }
    }
    let rows = usize::try_from(rows).unwrap_or(usize::MAX);
    Ok(DeletedRows { rows, is_gone })
}

type ReasonAndRows = Option<(Reason, usize)>;

/// Removes events of one kind that are too many or too old. Those of minions have no more than half of
/// the bound, the master's the rest that is left.
async fn remove_events(
    session: &mut Session,
    of_minion: bool,
    retention: &Retention,
    slice: i64,
) -> Result<ReasonAndRows, SqlError> {
    let count = "SELECT count(*) FROM events WHERE of_minion = $1";
    if let Some(most) = retention.most_events {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let of_minions = number(session, count, &[&true]).await?.unwrap_or(0);
        let (there, share) = match of_minion {
            true => (of_minions, most / 2),
            false => {
                let own = number(session, count, &[&false]).await?.unwrap_or(0);
                (own, most - of_minions.min(most / 2))
            }
        };
        let excess = there.saturating_sub(share).min(slice);
        if excess > 0 {
            let sql = "DELETE FROM events WHERE position IN (SELECT position FROM events \
                       WHERE of_minion = $1 ORDER BY position LIMIT $2)";
            return rows_for(
                Reason::Count,
                session.execute(sql, &[&of_minion, &excess]).await?,
            );
        }
    }
    let Some(before) = retention.before else {
        return Ok(None);
    };
    let sql = "DELETE FROM events WHERE position IN (SELECT position FROM \
               (SELECT position, received FROM events WHERE of_minion = $1 \
                ORDER BY position LIMIT $2) AS e WHERE received < $3)";
    let rows = session.execute(sql, &[&of_minion, &slice, &before]).await?;
    rows_for(Reason::Age, rows)
}

fn rows_for(reason: Reason, rows: u64) -> Result<ReasonAndRows, SqlError> {
    let rows = usize::try_from(rows).unwrap_or(usize::MAX);
    Ok((rows > 0).then_some((reason, rows)))
}

/// Removes the oldest rows of the audit trail that are too many or too old, and keeps the last of them
/// as anchor.
async fn remove_audit(
    session: &mut Session,
    retention: &Retention,
    slice: i64,
) -> Result<ReasonAndRows, SqlError> {
    let ends = "SELECT min(number), max(number) FROM audit";
    let rows = session.rows(ends, &[]).await?;
    let end = |at| -> Result<Option<i64>, SqlError> {
        let end = rows.first().map(|row| row.try_get(at)).transpose()?;
        Ok(end.flatten())
    };
    let (Some(first), Some(last)) = (end(0)?, end(1)?) else {
        return Ok(None);
    };
    let most = retention.most_audit.unwrap_or(u64::MAX);
    let excess = (last - first + 1).saturating_sub(i64::try_from(most).unwrap_or(i64::MAX));
    let (reason, end) = match retention.audit_before {
        _ if excess > 0 => (Reason::Count, first + excess.min(slice)),
        // A clock that was set back must not leave a gap.
        Some(before) => {
            let sql = "SELECT min(number) FROM audit WHERE number < $1 AND at >= $2";
            let end = first + slice;
            let young = number(session, sql, &[&end, &before]).await?;
            (Reason::Age, young.unwrap_or(end))
        }
        None => return Ok(None),
    };
    let anchor = "INSERT INTO meta (name, value) SELECT $2, number || ':' || encode(hash, 'hex') \
                  FROM audit WHERE number < $1 ORDER BY number DESC LIMIT 1 \
                  ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value";
    session.execute(anchor, &[&end, &ANCHOR]).await?;
    let sql = "DELETE FROM audit WHERE number < $1";
    rows_for(reason, session.execute(sql, &[&end]).await?)
}
