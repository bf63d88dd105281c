//! Statements of a batch: the rows that it depends on, and what it changes, each over arrays.

use std::borrow::Cow;
use std::collections::HashSet;

use saltern_model::{Jid, JobRecord, MinionId};
use saltern_store::jobs::{AUDIT_COLUMNS, AuditValue, JobState, Write};
use tokio_postgres::types::ToSql;

use super::decide::{BatchChange, Changes, JobChange, JobKind, KnownJob, KnownReturn, Picture};
use super::session::Session;
use super::text::{original, stored};
use crate::error::SqlError;

const KNOWN_JOBS: &str =
    "SELECT jid, returns_before, reporter IS NOT NULL FROM jobs WHERE jid = ANY($1::text[])";

/// Each is looked for by its key: the planner, which knows nothing of the array, might read the whole
/// table otherwise.
const KNOWN_RETURNS: &str = "SELECT r.jid, r.minion, r.id, r.fun, r.load \
     FROM unnest($1::text[], $2::text[]) AS n(jid, minion) \
     CROSS JOIN LATERAL (SELECT * FROM returns WHERE returns.jid = n.jid \
                         AND returns.minion = n.minion LIMIT 1) AS r";

const KNOWN_BATCHES: &str = "SELECT jid, is_open FROM batches WHERE jid = ANY($1::text[])";

const INSERT_JOBS: &str = "INSERT INTO jobs (jid, created, username, fun, tgt, tgt_type, nocache, \
     load, state, finished, notes, published, publisher, returns_before, id, reporter) \
     SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], \
     $7::bool[], $8::bytea[], $9::bigint[], $10::bigint[], $11::bytea[], $12::bigint[], $13::text[], \
     $14::bigint[], $15::bigint[], $16::text[])";

const REPLACE_JOBS: &str = "UPDATE jobs AS j SET created = n.created, username = n.username, \
     fun = n.fun, tgt = n.tgt, tgt_type = n.tgt_type, nocache = n.nocache, load = n.load, \
     state = n.state, finished = n.finished, notes = coalesce(n.notes, j.notes), \
     published = n.published, publisher = n.publisher, reporter = NULL, \
     returns_before = coalesce(n.returns_before, j.returns_before) \
     FROM unnest($1::text[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], \
     $7::bool[], $8::bytea[], $9::bigint[], $10::bigint[], $11::bytea[], $12::bigint[], $13::text[], \
     $14::bigint[]) \
     AS n(jid, created, username, fun, tgt, tgt_type, nocache, load, state, finished, notes, \
     published, publisher, returns_before) WHERE j.jid = n.jid";

const UPDATE_JOBS: &str = "UPDATE jobs AS j SET state = coalesce(n.state, j.state), \
     finished = CASE WHEN n.state IS NULL THEN j.finished ELSE n.finished END, \
     notes = coalesce(n.notes, j.notes), published = coalesce(j.published, n.published), \
     publisher = coalesce(n.publisher, j.publisher) \
     FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bytea[], $5::bigint[], $6::text[]) \
     AS n(jid, state, finished, notes, published, publisher) WHERE j.jid = n.jid";

const FORGET_EXPECTED: &str = "DELETE FROM expected_part WHERE jid = ANY($1::text[])";

/// Lists come as JSON: an array of arrays must be a rectangle.
const EXPECT: &str = "INSERT INTO expected_part (jid, minions) \
     SELECT n.jid, ARRAY(SELECT jsonb_array_elements_text(n.minions::jsonb)) \
     FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS n(jid, minions, number) ORDER BY n.number";

const INSERT_RETURNS: &str = "INSERT INTO returns (id, jid, minion, received, fun, retcode, success, \
     load) SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::bigint[], $5::text[], \
     $6::bigint[], $7::bool[], $8::bytea[])";

const NEW_BATCH: &str = "INSERT INTO batches (jid, is_open, plan) VALUES ($1, true, $2)";
const PAUSE_BATCH: &str = "UPDATE batches SET paused_since = $2 WHERE jid = $1 AND is_open";
const END_BATCH: &str = "UPDATE batches SET is_open = false, halted = $2 WHERE jid = $1";

const GIVE_UP: &str = "INSERT INTO batch_failed (jid, reason, minions) VALUES ($1, $2, $3)";

const KEEP_EVENTS: &str = "INSERT INTO events (position, received, tag, data, of_minion) \
     SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bytea[], $5::bool[])";

type Value<'a> = &'a (dyn ToSql + Sync);

/// Reads what these changes depend on.
pub(super) async fn picture_of(
    session: &mut Session,
    writes: &[Write],
) -> Result<Picture, SqlError> {
    let mut picture = Picture::default();
    let (mut jobs, mut batches) = (HashSet::new(), HashSet::new());
    let mut returns = (Vec::new(), Vec::new());
    for write in writes {
        match write {
            Write::Job(job) | Write::JobPart(job) | Write::ClosedJob { job, .. } => {
                jobs.insert(job.jid.as_str());
            }
            Write::Expected { jid, .. }
            | Write::JobState { jid, .. }
            | Write::Published { jid, .. }
            | Write::PublishedFor { jid, .. } => {
                jobs.insert(jid.as_str());
            }
            Write::Return(record) => {
                jobs.insert(record.jid.as_str());
                returns.0.push(record.jid.as_str());
                returns.1.push(record.minion.as_str());
            }
            Write::Batch { jid, .. }
            | Write::BatchPaused { jid, .. }
            | Write::BatchOver { jid, .. } => {
                batches.insert(jid.as_str());
            }
            Write::BatchFailed { .. }
            | Write::Events { .. }
            | Write::Audit(_)
            | Write::DeleteJob { .. } => {}
        }
    }
    if !jobs.is_empty() {
        let jobs: Vec<&str> = jobs.into_iter().collect();
        for row in session.rows(KNOWN_JOBS, &[&jobs]).await? {
            let known = KnownJob {
                returns_before: row.try_get(1)?,
                is_reported: row.try_get(2)?,
            };
            if let Ok(jid) = Jid::parse(row.try_get(0)?) {
                picture.jobs.insert(jid, known);
            }
        }
    }
    if !returns.0.is_empty() {
        for row in session
            .rows(KNOWN_RETURNS, &[&returns.0, &returns.1])
            .await?
        {
            let known = KnownReturn {
                id: row.try_get(2)?,
                fun: original(row.try_get(3)?),
                load: row.try_get::<_, Vec<u8>>(4)?.into(),
            };
            let key = (
                Jid::parse(row.try_get(0)?),
                MinionId::parse(row.try_get(1)?),
            );
            if let (Ok(jid), Ok(minion)) = key {
                picture.returns.insert((jid, minion), known);
            }
        }
    }
    if !batches.is_empty() {
        let batches: Vec<&str> = batches.into_iter().collect();
        for row in session.rows(KNOWN_BATCHES, &[&batches]).await? {
            if let Ok(jid) = Jid::parse(row.try_get(0)?) {
                picture.batches.insert(jid, row.try_get(1)?);
            }
        }
    }
    Ok(picture)
}

/// Writes the changes.
pub(super) async fn write(session: &mut Session, changes: &Changes<'_>) -> Result<(), SqlError> {
    write_jobs(session, &changes.jobs).await?;
    if !changes.forgotten.is_empty() {
        let jids = column(&changes.forgotten, |jid| jid.as_str());
        session.execute(FORGET_EXPECTED, &[&jids]).await?;
    }
    if !changes.expected.is_empty() {
        let jids = column(&changes.expected, |(jid, _)| jid.as_str());
        let lists = column(&changes.expected, |(_, minions)| list_of(minions));
        session.execute(EXPECT, &[&jids, &lists]).await?;
    }
    write_returns(session, changes).await?;
    for change in &changes.batches {
        let (sql, jid, value): (_, _, Value<'_>) = match change {
            BatchChange::New(jid, plan) => (NEW_BATCH, jid, &plan.as_ref()),
            BatchChange::Paused(jid, since) => (PAUSE_BATCH, jid, since),
            BatchChange::Over(jid, halted) => {
                let halted = halted.map(stored);
                session
                    .execute(END_BATCH, &[&jid.as_str(), &halted])
                    .await?;
                continue;
            }
        };
        session.execute(sql, &[&jid.as_str(), value]).await?;
    }
    for one in &changes.given_up {
        let minions = column(one.minions, MinionId::as_str);
        let values: [Value<'_>; 3] = [&one.jid.as_str(), &one.reason, &minions];
        session.execute(GIVE_UP, &values).await?;
    }
    if !changes.events.is_empty() {
        let events = &changes.events;
        let positions = column(events, |event| event.position);
        let times = column(events, |event| event.received);
        let tags = column(events, |event| stored(&event.tag));
        let data = column(events, |event| event.data.as_ref());
        let of_minion = column(events, |event| event.of_minion);
        let values: [Value<'_>; 5] = [&positions, &times, &tags, &data, &of_minion];
        session.execute(KEEP_EVENTS, &values).await?;
    }
    for row in &changes.audit {
        insert_audit(session, row).await?;
    }
    Ok(())
}

async fn write_returns(session: &mut Session, changes: &Changes<'_>) -> Result<(), SqlError> {
    let returns = &changes.returns;
    if returns.is_empty() {
        return Ok(());
    }
    let ids = column(returns, |(id, _)| *id);
    let jids = column(returns, |(_, one)| one.jid.as_str());
    let minions = column(returns, |(_, one)| one.minion.as_str());
    let times = column(returns, |(_, one)| one.received);
    let funs = column(returns, |(_, one)| stored(&one.fun));
    let codes = column(returns, |(_, one)| one.retcode);
    let successes = column(returns, |(_, one)| one.success);
    let loads = column(returns, |(_, one)| one.load.as_ref());
    let values: [Value<'_>; 8] = [
        &ids, &jids, &minions, &times, &funs, &codes, &successes, &loads,
    ];
    session.execute(INSERT_RETURNS, &values).await?;
    Ok(())
}

async fn write_jobs(session: &mut Session, jobs: &[JobChange<'_>]) -> Result<(), SqlError> {
    let of_kind = |is_meant: fn(JobKind) -> bool| -> Vec<&JobChange<'_>> {
        jobs.iter().filter(|job| is_meant(job.kind)).collect()
    };
    let new = of_kind(|kind| matches!(kind, JobKind::New(_)));
    if !new.is_empty() {
        let ids = column(&new, |job| match job.kind {
            JobKind::New(id) => id,
            JobKind::Replaced | JobKind::Kept => 0,
        });
        let reporters = column(&new, |job| job.reporter.map(MinionId::as_str));
        whole(session, INSERT_JOBS, &new, &[&ids, &reporters]).await?;
    }
    let replaced = of_kind(|kind| kind == JobKind::Replaced);
    if !replaced.is_empty() {
        whole(session, REPLACE_JOBS, &replaced, &[]).await?;
    }
    let kept = of_kind(|kind| kind == JobKind::Kept);
    if !kept.is_empty() {
        let jids = column(&kept, |job| job.jid.as_str());
        let states = column(&kept, |job| job.state.map(|(state, _)| state.code()));
        let ends = column(&kept, |job| job.state.and_then(|(_, end)| end));
        let notes = column(&kept, |job| job.notes.map(|notes| notes.as_ref()));
        let published = column(&kept, |job| job.published);
        let publishers = column(&kept, |job| job.publisher.map(MinionId::as_str));
        let values: [Value<'_>; 6] = [&jids, &states, &ends, &notes, &published, &publishers];
        session.execute(UPDATE_JOBS, &values).await?;
    }
    Ok(())
}

/// Writes whole rows of jobs, with further columns.
async fn whole(
    session: &mut Session,
    sql: &str,
    jobs: &[&JobChange<'_>],
    more: &[Value<'_>],
) -> Result<(), SqlError> {
    let jids = column(jobs, |job| job.jid.as_str());
    let created = column(jobs, |job| job.record.map(|record| record.created));
    let texts = |part: fn(&JobRecord) -> &str| -> Vec<Option<Cow<'_, str>>> {
        column(jobs, |job| job.record.map(|record| stored(part(record))))
    };
    let users = texts(|record| &record.user);
    let funs = texts(|record| &record.fun);
    let targets = texts(|record| &record.tgt);
    let types = texts(|record| &record.tgt_type);
    let nocache = column(jobs, |job| job.record.map(|record| record.nocache));
    let loads = column(jobs, |job| job.record.map(|record| record.load.as_ref()));
    let open = (JobState::Open, None);
    let states = column(jobs, |job| job.state.unwrap_or(open).0.code());
    let ends = column(jobs, |job| job.state.unwrap_or(open).1);
    let notes = column(jobs, |job| job.notes.map(|notes| notes.as_ref()));
    let published = column(jobs, |job| job.published);
    let publishers = column(jobs, |job| job.publisher.map(MinionId::as_str));
    let before = column(jobs, |job| job.returns_before);
    let mut values: Vec<Value<'_>> = vec![
        &jids,
        &created,
        &users,
        &funs,
        &targets,
        &types,
        &nocache,
        &loads,
        &states,
        &ends,
        &notes,
        &published,
        &publishers,
        &before,
    ];
    values.extend_from_slice(more);
    session.execute(sql, &values).await?;
    Ok(())
}

/// Writes a row of the audit trail.
async fn insert_audit(session: &mut Session, row: &[AuditValue]) -> Result<(), SqlError> {
    let columns = audit_columns();
    let places: Vec<String> = (1..=AUDIT_COLUMNS.len()).map(|n| format!("${n}")).collect();
    let sql = format!(
        "INSERT INTO audit ({columns}) VALUES ({})",
        places.join(", ")
    );
    let values: Vec<Box<dyn ToSql + Sync + Send>> = row.iter().map(value_of).collect();
    let values: Vec<Value<'_>> = values.iter().map(|value| &**value as Value<'_>).collect();
    session.execute(&sql, &values).await?;
    Ok(())
}

/// The columns of the audit trail; `user` is a word of SQL.
pub(super) fn audit_columns() -> String {
    AUDIT_COLUMNS
        .map(|name| if name == "user" { "username" } else { name })
        .join(", ")
}

fn value_of(value: &AuditValue) -> Box<dyn ToSql + Sync + Send> {
    match value {
        AuditValue::Null | AuditValue::Real(_) => Box::new(Nothing),
        AuditValue::Integer(number) => Box::new(*number),
        AuditValue::Text(text) => Box::new(stored(text).into_owned()),
        AuditValue::Blob(bytes) => Box::new(bytes.clone()),
    }
}

/// NULL of whatever type.
#[derive(Debug)]
struct Nothing;

impl ToSql for Nothing {
    fn to_sql(
        &self,
        _: &tokio_postgres::types::Type,
        _: &mut bytes::BytesMut,
    ) -> Result<tokio_postgres::types::IsNull, Box<dyn std::error::Error + Sync + Send>> {
        Ok(tokio_postgres::types::IsNull::Yes)
    }

    fn accepts(_: &tokio_postgres::types::Type) -> bool {
        true
    }

    tokio_postgres::types::to_sql_checked!();
}

/// A list of minions as JSON.
pub(super) fn list_of(minions: &[MinionId]) -> String {
    let names = minions.iter().map(|minion| {
        let name = minion.as_str().replace('"', "\\\"");
        format!("\"{name}\"")
    });
    format!("[{}]", names.collect::<Vec<_>>().join(","))
}

pub(super) fn column<'r, R, T>(rows: &'r [R], value: impl FnMut(&'r R) -> T) -> Vec<T> {
    rows.iter().map(value).collect()
}
