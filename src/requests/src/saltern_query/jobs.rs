//! `jobs.page`, `jobs.explain` and `jobs.returns`.

use bytes::Bytes;
use saltern_model::query::{AskedFrom, JobRequest, JobRow, JobsPage, ReturnRow, ReturnsPage};
use saltern_model::{Jid, MinionId, ReturnRecord};
use saltern_store::jobs::{JobSearch, JobState, JobSummary, StateFilter};
use saltern_wire::msgpack::{Limits, MapView, Value, decode_exact};

use super::arguments::QueryArguments;
use super::{QueryError, answer};
use crate::Services;
use crate::explain::{Evidence, Standing, state_word};

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
    let found = services.runners.jobs().search_jobs(&JobSearch {
        before: arguments.text("before")?,
        since: arguments.time("since")?,
        until: arguments.time("until")?,
        function: function.as_ref(),
        user: arguments.text("user")?,
        target: target.as_ref(),
        minion: minion.as_ref(),
        state: arguments.one_of("state", &STATES)?,
        limit: arguments.rows()?,
    })?;
    Ok(answer(&JobsPage {
        jobs: found.jobs.into_iter().map(row).collect(),
        next: found.next,
    }))
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
    let jobs = services.runners.jobs();
    let job = jobs.load(&jid)?;
    let job = job.ok_or_else(|| QueryError::NoJob(jid.to_string()))?;
    let evidence = Evidence {
        standing: ask(job.state == JobState::Open)?,
        returns: jobs.return_heads(&jid)?,
        paused_since: jobs.batch_paused_since(&jid)?,
        job,
    };
    Ok(answer(&evidence.report()))
}

pub(super) fn request(
    arguments: &QueryArguments<'_>,
    services: &Services,
) -> Result<Bytes, QueryError> {
    let jid = arguments.needed("jid", Jid::parse)?;
    let job = services.runners.jobs().load(&jid)?;
    let job = job.ok_or_else(|| QueryError::NoJob(jid.to_string()))?;
    let record = job.record;
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
        reporter: job.reporter,
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
        let one = jobs.return_of(&jid, &minion)?;
        return Ok(answer(&ReturnsPage {
            returns: one.into_iter().map(returned).collect(),
            next: None,
        }));
    }
    let page = jobs.returns_page(&jid, after, limit, MAX_BYTES)?;
    if page.returns.is_empty() && after.is_none() && !jobs.has(&jid)? {
        return Err(QueryError::NoJob(jid.to_string()));
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
