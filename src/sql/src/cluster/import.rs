//! Import of jobs that this master did not publish, out of stock's job cache. They are numbered below
//! all others, so those who follow the numbers never meet them.

use saltern_model::{JobRecord, MinionId};
use saltern_store::CachedJob;
use saltern_store::jobs::{Imported, JobState};
use tokio_postgres::types::ToSql;

use super::changes::{column, list_of};
use super::decide::Numbers;
use super::session::Session;
use super::text::stored;
use crate::error::SqlError;

/// The row of `meta` that says that the job cache has been read.
pub(super) const DONE: &str = "job_cache_imported";

const INSERT_JOB: &str = "INSERT INTO jobs (id, jid, created, username, fun, tgt, tgt_type, nocache, \
     load, state, finished, reporter) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $3, $11) \
     ON CONFLICT (jid) DO NOTHING";

const REPLACE_REPORT: &str = "UPDATE jobs SET created = $2, username = $3, fun = $4, tgt = $5, \
     tgt_type = $6, nocache = $7, load = $8, state = $9, finished = $2, published = NULL, \
     publisher = NULL, reporter = NULL WHERE jid = $1 AND reporter IS NOT NULL";

const EXPECT: &str = "INSERT INTO expected_part (jid, minions) \
     VALUES ($1, ARRAY(SELECT jsonb_array_elements_text($2::text::jsonb)))";

const INSERT_RETURNS: &str = "INSERT INTO returns (id, jid, minion, received, fun, retcode, success, \
     load) SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::text[], \
     $6::bigint[], $7::bool[], $8::bytea[]) ON CONFLICT (jid, minion) DO NOTHING";

/// An imported job is complete when as many returned as were expected. One that took the place of a
/// report has ended when it was made, as no job does that this master has published.
const CONCLUDE: &str = "UPDATE jobs SET \
     state = CASE WHEN (SELECT count(*) FROM returns WHERE returns.jid = jobs.jid) >= \
         (SELECT coalesce(sum(cardinality(minions)), 0) FROM expected_part \
          WHERE expected_part.jid = jobs.jid) THEN $2::bigint ELSE $3::bigint END, \
     published = CASE WHEN reporter IS NULL THEN coalesce(published, created) ELSE published END, \
     finished = coalesce((SELECT max(received) FROM returns WHERE returns.jid = jobs.jid), created) \
     WHERE jid = $1 AND (id < 0 OR (state = $3::bigint AND finished = created))";

pub(super) async fn import(
    session: &mut Session,
    numbers: &mut Numbers,
    slice: &[CachedJob],
) -> Result<Imported, SqlError> {
    let mut imported = Imported::default();
    for cached in slice {
        if let Some(job) = &cached.job {
            let reporter = cached.reporter.as_ref();
            if insert_job(session, numbers, job, reporter).await?
                || reporter.is_none() && replace_report(session, job).await?
            {
                imported.jobs += 1;
            }
        }
        imported.returns += insert_returns(session, numbers, cached).await?;
        if cached.is_whole {
            let states = [JobState::Complete, JobState::Expired].map(JobState::code);
            let jid = cached.jid.as_str();
            session
                .execute(CONCLUDE, &[&jid, &states[0], &states[1]])
                .await?;
        }
    }
    Ok(imported)
}

async fn insert_job(
    session: &mut Session,
    numbers: &mut Numbers,
    job: &JobRecord,
    reporter: Option<&MinionId>,
) -> Result<bool, SqlError> {
    let id = numbers.lowest_job - 1;
    let [user, fun, tgt, tgt_type] =
        [&job.user, &job.fun, &job.tgt, &job.tgt_type].map(|text| stored(text));
    let (state, reporter) = (JobState::Expired.code(), reporter.map(MinionId::as_str));
    let values: [&(dyn ToSql + Sync); 11] = [
        &id,
        &job.jid.as_str(),
        &job.created,
        &user,
        &fun,
        &tgt,
        &tgt_type,
        &job.nocache,
        &job.load.as_ref(),
        &state,
        &reporter,
    ];
    if session.execute(INSERT_JOB, &values).await? == 0 {
        return Ok(false);
    }
    numbers.lowest_job = id;
    expect(session, job).await?;
    Ok(true)
}

/// Puts a job in the place of the report of one; whether there was one.
async fn replace_report(session: &mut Session, job: &JobRecord) -> Result<bool, SqlError> {
    let [user, fun, tgt, tgt_type] =
        [&job.user, &job.fun, &job.tgt, &job.tgt_type].map(|text| stored(text));
    let state = JobState::Expired.code();
    let values: [&(dyn ToSql + Sync); 9] = [
        &job.jid.as_str(),
        &job.created,
        &user,
        &fun,
        &tgt,
        &tgt_type,
        &job.nocache,
        &job.load.as_ref(),
        &state,
    ];
    if session.execute(REPLACE_REPORT, &values).await? == 0 {
        return Ok(false);
    }
    let forget = "DELETE FROM expected_part WHERE jid = $1";
    session.execute(forget, &[&job.jid.as_str()]).await?;
    expect(session, job).await?;
    Ok(true)
}

async fn expect(session: &mut Session, job: &JobRecord) -> Result<(), SqlError> {
    if !job.minions.is_empty() {
        let list = list_of(&job.minions);
        session.execute(EXPECT, &[&job.jid.as_str(), &list]).await?;
    }
    Ok(())
}

async fn insert_returns(
    session: &mut Session,
    numbers: &mut Numbers,
    cached: &CachedJob,
) -> Result<u64, SqlError> {
    let returns = &cached.returns;
    if returns.is_empty() {
        return Ok(0);
    }
    // Numbers of those that are there already are left out for ever.
    let mut id = numbers.lowest_return;
    let ids = column(returns, |_| {
        id -= 1;
        id
    });
    numbers.lowest_return = id;
    let jids = column(returns, |one| one.jid.as_str());
    let minions = column(returns, |one| one.minion.as_str());
    let times = column(returns, |one| one.received);
    let funs = column(returns, |one| stored(&one.fun));
    let codes = column(returns, |one| one.retcode);
    let successes = column(returns, |one| one.success);
    let loads = column(returns, |one| one.load.as_ref());
    let values: [&(dyn ToSql + Sync); 8] = [
        &ids, &jids, &minions, &times, &funs, &codes, &successes, &loads,
    ];
    session.execute(INSERT_RETURNS, &values).await
}

/// Remembers that the job cache has been read.
pub(super) async fn finish(session: &mut Session) -> Result<(), SqlError> {
    let sql = "INSERT INTO meta (name, value) VALUES ($1, '1') ON CONFLICT DO NOTHING";
    session.execute(sql, &[&DONE]).await?;
    Ok(())
}
