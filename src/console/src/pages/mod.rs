//! The pages, one file each; and what several of them show.

pub(crate) mod audit;
pub(crate) mod batches;
pub(crate) mod drift;
pub(crate) mod events;
pub(crate) mod job;
pub(crate) mod jobs;
pub(crate) mod keys;
pub(crate) mod log_in;
pub(crate) mod minion;
pub(crate) mod minions;
pub(crate) mod now;
pub(crate) mod orchestrations;
pub(crate) mod reactor;
pub(crate) mod run;
pub(crate) mod schedule;

use axum::http::StatusCode;
use saltern_model::query::{JobRow, JobsPage, KeyRow};
use saltern_netapi::v1::{Problem, ask::Arguments};
use saltern_wire::msgpack::Value;
use serde::Serialize;

use crate::highstate::nested;
use crate::moment::{Moment, duration, typed};
use crate::site::{Fields, Shared, Visit, encoded};

/// A job of a list.
#[derive(Serialize)]
pub(crate) struct JobLine {
    jid: String,
    path: String,
    function: String,
    user: String,
    target: String,
    target_type: String,
    created: Moment,
    /// How long it took, or has taken.
    took: String,
    state: State,
    expected: usize,
    returned: usize,
    failed: usize,
}

/// A state in one word, and how it looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct State {
    pub(crate) word: &'static str,
    /// `ok`, `bad`, `warn`, `run` or `mute`.
    pub(crate) tone: &'static str,
}

impl State {
    /// Of a job by its stored state and the return codes of its minions.
    pub(crate) fn of_job(state: &str, (expected, returned, failed): (usize, usize, usize)) -> Self {
        let (word, tone) = match state {
            "open" => ("running", "run"),
            "killed" => ("killed", "mute"),
            _ if failed > 0 => ("failed", "bad"),
            _ if returned < expected => ("incomplete", "warn"),
            _ => ("complete", "ok"),
        };
        Self { word, tone }
    }
}

impl JobLine {
    fn new(job: JobRow, now: i64) -> Self {
        let counts = (job.expected, job.returned, job.failed);
        Self {
            path: job_path(job.jid.as_str()),
            state: State::of_job(&job.state, counts),
            created: Moment::new(job.created, now),
            took: duration(job.finished.unwrap_or(now) - job.created),
            jid: job.jid.to_string(),
            function: job.function,
            user: job.user,
            target: job.target,
            target_type: job.target_type,
            expected: job.expected,
            returned: job.returned,
            failed: job.failed,
        }
    }
}

/// The page of a job.
pub(crate) fn job_path(jid: &str) -> String {
    format!("/console/jobs/{}", encoded(jid))
}

/// The page of a minion.
pub(crate) fn minion_path(id: &str) -> String {
    format!("/console/minions/{}", encoded(id))
}

/// A target as text, a list joined by commas; also several functions.
pub(crate) fn text_of(target: &Value) -> String {
    match target.as_array() {
        Some(list) => {
            let ids: Vec<&str> = list.iter().filter_map(Value::as_str).collect();
            ids.join(",")
        }
        None => nested(target),
    }
}

/// The path with the parameters that have a value.
pub(crate) fn with_query(path: &str, parameters: &[(&str, Option<&str>)]) -> String {
    let pairs = parameters.iter();
    let pairs = pairs.filter_map(|(name, value)| Some(format!("{name}={}", encoded((*value)?))));
    let pairs: Vec<String> = pairs.collect();
    match pairs.is_empty() {
        true => path.to_owned(),
        false => format!("{path}?{}", pairs.join("&")),
    }
}

/// Some jobs, and the cursor of the next ones.
pub(crate) async fn job_lines(
    site: &Shared,
    visit: &Visit,
    arguments: Arguments,
) -> Result<(Vec<JobLine>, Option<String>), Problem> {
    let page = job_page(site, visit, arguments).await?;
    Ok((page.lines, page.next))
}

/// Jobs as lines, and why old ones are missing.
#[derive(Default)]
pub(crate) struct JobLines {
    pub(crate) lines: Vec<JobLine>,
    pub(crate) next: Option<String>,
    pub(crate) incomplete: Option<String>,
}

/// The jobs that a query finds.
pub(crate) async fn job_page(
    site: &Shared,
    visit: &Visit,
    arguments: Arguments,
) -> Result<JobLines, Problem> {
    let page: JobsPage = site.query(visit, "jobs.page", arguments).await?;
    let jobs = page.jobs.into_iter();
    let lines = jobs.map(|job| JobLine::new(job, visit.now));
    Ok(JobLines {
        lines: lines.collect(),
        next: page.next,
        incomplete: page.incomplete,
    })
}

/// Nothing where the rules do not allow it: the rest of the page is shown.
pub(crate) fn if_allowed<T>(found: Result<T, Problem>) -> Result<Option<T>, Problem> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(problem) if problem.status() == StatusCode::FORBIDDEN => Ok(None),
        Err(problem) => Err(problem),
    }
}

/// A filter that is a time, as people type it; in microseconds since 1970.
pub(crate) fn time_filter(
    params: &Fields,
    name: &'static str,
    now: i64,
) -> Result<Option<Value>, Problem> {
    let Some(text) = params.text(name) else {
        return Ok(None);
    };
    let wrong = || {
        let detail = format!("\"{text}\" is no time such as 1h, 7d or 2026-01-31 12:00");
        Problem::invalid(Some(name), detail)
    };
    let micros = typed(text, now).ok_or_else(wrong)?;
    Ok(Some(micros.into()))
}

/// Splits off the problem of a filter, which is shown beside the filters over an empty list.
pub(crate) fn beside_filters<T>(
    found: Result<T, Problem>,
    empty: T,
) -> Result<(T, Option<String>), Problem> {
    match found {
        Ok(found) => Ok((found, None)),
        Err(problem) if problem.field().is_some() => Ok((empty, Some(problem.detail().to_owned()))),
        Err(problem) => Err(problem),
    }
}

/// A key.
#[derive(Serialize)]
pub(crate) struct KeyLine {
    minion: String,
    path: Option<String>,
    state: String,
    tone: &'static str,
    fingerprint: String,
    written: Option<Moment>,
    last_heard: Option<Moment>,
    is_present: Option<bool>,
    address: String,
    /// The fingerprint and the id: what a form sends, so that no other key is changed.
    value: String,
    is_compared: bool,
}

impl KeyLine {
    fn new(key: KeyRow, now: i64, compared: Option<&str>) -> Self {
        let fingerprint = key.fingerprint.unwrap_or_default();
        Self {
            path: (key.state == "accepted").then(|| minion_path(key.minion.as_str())),
            tone: match key.state.as_str() {
                "accepted" => "ok",
                "pending" => "warn",
                "rejected" => "mute",
                _ => "bad",
            },
            written: key.written.map(|written| Moment::new(written, now)),
            last_heard: key.last_heard.map(|heard| Moment::new(heard, now)),
            is_present: key.is_present,
            address: key.address.unwrap_or_default(),
            value: format!("{fingerprint} {}", key.minion),
            is_compared: compared.is_some_and(|text| text == plain(&fingerprint)),
            minion: key.minion.to_string(),
            state: key.state,
            fingerprint,
        }
    }
}

/// A fingerprint without what separates its digits.
pub(crate) fn plain(fingerprint: &str) -> String {
    let digits = fingerprint.chars().filter(char::is_ascii_hexdigit);
    digits.map(|digit| digit.to_ascii_lowercase()).collect()
}
