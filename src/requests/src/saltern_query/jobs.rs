//! `jobs.page`, `jobs.explain` and `jobs.returns`.

use bytes::Bytes;
use saltern_model::query::{AskedFrom, JobRequest, JobRow, JobsPage, ReturnRow, ReturnsPage};
use saltern_model::{Jid, MinionId, ReturnRecord};
use saltern_store::jobs::{JobSearch, JobState, JobSummary, ReturnHead, StateFilter, StoredJob};
use saltern_wire::msgpack::{Limits, MapView, Value, decode_exact};

use saltern_runners::OldJobsAway;

use super::arguments::QueryArguments;
use super::old_jobs::{self, OldRows};
use super::{QueryError, answer};
use crate::Services;
use crate::explain::{Standing, state_word, with_syndics};

/// The parameters of `jobs.page`.
pub(super) const PAGE: &[&str] = &[
    "function", "user", "target", "minion", "state", "since", "until", "before", "limit",
];

/// The most packed bytes of returns in one page; one larger return makes a page of its own.
const MAX_BYTES: usize = 4 << 20;

const STATES: [(&str, StateFilter); 3] = [
    ("open", StateFilter::Open),
    ("ended", StateFilter::Ended),
    ("failed", StateFilter::Failed),
];

pub(super) fn page(
    arguments: &QueryArguments<'_>,
    services: &Services,
) -> Result<Bytes, QueryError> {
    let function = arguments.glob("function")?;
    let target = arguments.glob("target")?;
    let minion = arguments.parsed("minion", MinionId::parse)?;
    let search = JobSearch {
        before: arguments.text("before")?,
        since: arguments.time("since")?,
        until: arguments.time("until")?,
        function: function.as_ref(),
        user: arguments.text("user")?,
        target: target.as_ref(),
        minion: minion.as_ref(),
        state: arguments.one_of("state", &STATES)?,
        limit: arguments.rows()?,
    };
    let own = services.runners.jobs();
    let found = own.search_jobs(&search)?;
    let page = JobsPage {
        jobs: found.jobs.into_iter().map(row).collect(),
        next: found.next,
        incomplete: None,
    };
    Ok(answer(&match services.runners.old_jobs() {
        Some(old) => {
            let between = old_jobs::between(old, own, &search, page.next.as_deref())?;
            merged(page, between, search.limit)
        }
        None => page,
    }))
}

/// A page with old jobs at their places, and no longer than it may be.
fn merged(page: JobsPage, old: OldRows, limit: usize) -> JobsPage {
    let mut jobs = page.jobs;
    jobs.extend(old.jobs);
    jobs.sort_by(|one, other| other.jid.cmp(&one.jid));
    let mut next = page.next;
    if let Some(end) = old.end {
        jobs.retain(|job| job.jid.as_str() >= end.as_str());
        next = Some(end);
    }
    if jobs.len() > limit {
        jobs.truncate(limit);
        next = jobs.last().map(|last| last.jid.to_string());
    }
    JobsPage {
        jobs,
        next,
        incomplete: old.problem,
    }
}

/// A job of the job database, or an old one, with its returns.
fn whole(jid: &Jid, services: &Services) -> Result<(StoredJob, Vec<ReturnHead>), QueryError> {
    let jobs = services.runners.jobs();
    if let Some(job) = jobs.load(jid)? {
        return Ok((job, jobs.return_heads(jid)?));
    }
    let found = match services.runners.old_jobs() {
        Some(old) => old_jobs::whole(old, jid).map_err(|away| not_asked(jid, away))?,
        None => None,
    };
    found.ok_or_else(|| QueryError::NoJob(jid.to_string()))
}

fn not_asked(jid: &Jid, away: OldJobsAway) -> QueryError {
    let jid = jid.to_string();
    QueryError::OldJobsAway { jid, away }
}

fn row(job: JobSummary) -> JobRow {
    JobRow {
        jid: job.jid,
        created: job.created,
        finished: job.finished,
        user: job.user,
        function: job.fun,
        target: job.tgt,
        target_type: job.tgt_type,
        state: state_word(job.state).to_owned(),
        expected: job.expected.max(job.returned),
        returned: job.returned,
        failed: job.failed,
    }
}

pub(super) fn explain(
    arguments: &QueryArguments<'_>,
    services: &Services,
) -> Result<Bytes, QueryError> {
    let jid = arguments.needed("jid", Jid::parse)?;
    let ask = |job_is_open: bool| match (job_is_open, services.runners.live()) {
        (false, _) => Ok(Standing::Over),
        (true, None) => Ok(Standing::Stopped),
        (true, Some(live)) => live
            .account(&jid)
            .map(|account| account.map_or(Standing::Unknown, Standing::Open)),
    };
    let (job, returns) = whole(&jid, services)?;
    let paused_since = services.runners.jobs().batch_paused_since(&jid)?;
    let standing = ask(job.state == JobState::Open)?;
    let evidence = with_syndics(job, (returns, paused_since), standing, services);
    Ok(answer(&evidence.report()))
}

pub(super) fn request(
    arguments: &QueryArguments<'_>,
    services: &Services,
) -> Result<Bytes, QueryError> {
    let jid = arguments.needed("jid", Jid::parse)?;
    let own = services.runners.jobs().load(&jid)?;
    let old = services.runners.old_jobs().filter(|_| own.is_none());
    let old = old.map(|old| old.job(&jid)).transpose();
    let old = old.map_err(|away| not_asked(&jid, away))?.flatten();
    let reporter = own.as_ref().and_then(|job| job.reporter.clone());
    let record = own.map(|job| job.record).or(old);
    let record = record.ok_or_else(|| QueryError::NoJob(jid.to_string()))?;
    let asked = services.jobs.reader.audit_of_job(&jid, record.created)?;
    let load = decode_exact(record.load.bytes(), &Limits::WIRE).unwrap_or(Value::Nil);
    let part = |name: &str| load.get(name).cloned();
    Ok(answer(&JobRequest {
        jid,
        function: part("fun").unwrap_or_else(|| record.fun.into()),
        arguments: part("arg").unwrap_or(Value::Array(Vec::new())),
        target: part("tgt").unwrap_or_else(|| record.tgt.into()),
        target_type: record.tgt_type,
        user: record.user,
        reporter,
        asked: asked.map(|row| AskedFrom {
            door: row.record.door.as_str().to_owned(),
            origin: row.record.origin.map(|origin| origin.to_string()),
            backend: row.record.backend,
        }),
    }))
}

pub(super) fn returns(
    arguments: &QueryArguments<'_>,
    services: &Services,
) -> Result<Bytes, QueryError> {
    let jid = arguments.needed("jid", Jid::parse)?;
    let after = arguments.text("after")?;
    let limit = arguments.rows()?;
    let jobs = services.runners.jobs();
    if let Some(minion) = arguments.parsed("minion", MinionId::parse)? {
        let mut one = jobs.return_of(&jid, &minion)?;
        if one.is_none()
            && !jobs.has(&jid)?
            && let Some(old) = services.runners.old_jobs()
        {
            one = (old.return_of(&jid, &minion)).map_err(|away| not_asked(&jid, away))?;
        }
        return Ok(answer(&ReturnsPage {
            returns: one.into_iter().map(returned).collect(),
            next: None,
        }));
    }
    let mut page = jobs.returns_page(&jid, after, limit, MAX_BYTES)?;
    if page.returns.is_empty() && !jobs.has(&jid)? {
        let old = services.runners.old_jobs();
        let old = old.map(|old| old.returns(&jid, after, limit, MAX_BYTES));
        page = match old.transpose().map_err(|away| not_asked(&jid, away))? {
            Some(page) => page,
            None if after.is_some() => page,
            None => return Err(QueryError::NoJob(jid.to_string())),
        };
    }
    let has_more = page.is_cut || page.returns.len() == limit;
    let last = page.returns.last().map(|last| last.minion.to_string());
    Ok(answer(&ReturnsPage {
        next: last.filter(|_| has_more),
        returns: page.returns.into_iter().map(returned).collect(),
    }))
}

fn returned(record: ReturnRecord) -> ReturnRow<Value> {
    let load = MapView::parse(record.load.bytes().clone(), &Limits::WIRE).ok();
    let value = load.and_then(|load| {
        let packed = load.get("return")?;
        decode_exact(packed.bytes(), &Limits::WIRE).ok()
    });
    ReturnRow {
        minion: record.minion,
        received: record.received,
        function: record.fun,
        retcode: record.retcode,
        success: record.success,
        value: value.unwrap_or(Value::Nil),
    }
}
