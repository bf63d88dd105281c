//! A job: what was asked, each minion with its verdict, its returns, and what can be done about it.

use axum::extract::{Path, State as Site};
use axum::response::{IntoResponse, Redirect, Response};
use saltern_model::control::Missing;
use saltern_model::query::{
    AskedFrom, JobReport, JobRequest, ReturnRow, ReturnedMinion, ReturnsPage,
};
use saltern_netapi::v1::{Problem, ask};
use saltern_wire::msgpack::Value;
use serde::Serialize;

use super::run::typed_lines;
use super::{State, job_path, minion_path, text_of, with_query};
use crate::cli;
use crate::highstate::{Returned, Text, nested};
use crate::moment::{Moment, duration};
use crate::site::{Fields, Params, Shared, Submitted, Visit, encoded};
use crate::view::View;

/// Minions of one page.
const ROWS: usize = 100;

/// Jobs of at most so many minions show their returns at once.
const MAX_INLINE: u32 = 20;

/// Bytes of all returns that are shown at once.
const MAX_INLINE_BYTES: usize = 96 << 10;

#[derive(Serialize)]
struct JobView {
    jid: String,
    function: String,
    arguments: Vec<String>,
    target: String,
    target_type: String,
    target_path: Option<String>,
    user: String,
    reporter: Option<String>,
    /// The way in and the address that it came from.
    asked: Option<String>,
    publisher: Option<String>,
    created: Moment,
    published: Option<Moment>,
    finished: Option<Moment>,
    took: String,
    state: State,
    is_open: bool,
    expected: usize,
    returned: usize,
    counts: Counts,
    show: &'static str,
    path: String,
    rows: Vec<MinionRow>,
    earlier: Option<String>,
    later: Option<String>,
    /// How many minions the end of the job would be sent to.
    running: usize,
    kill_cli: String,
    again: String,
    again_failed: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Counts {
    ok: usize,
    failed: usize,
    missing: usize,
}

/// A minion of the job.
#[derive(Serialize)]
struct MinionRow {
    minion: String,
    path: String,
    verdict: Verdict,
    /// Why it has not returned, or what it returned in a few words.
    why: String,
    received: Option<Moment>,
    took: String,
    retcode: Option<i64>,
    /// The page of its return.
    return_path: Option<String>,
    returned: Option<Returned>,
}

/// A verdict in one word, and how it looks.
#[derive(Debug, Serialize)]
struct Verdict {
    word: String,
    tone: &'static str,
}

/// Which minions are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Show {
    All,
    Ok,
    Failed,
    Missing,
}

impl Show {
    fn of(params: &Fields) -> Self {
        match params.text("show") {
            Some("ok") => Self::Ok,
            Some("failed") => Self::Failed,
            Some("missing") => Self::Missing,
            _ => Self::All,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Missing => "missing",
        }
    }
}

/// The page.
pub(crate) async fn page(
    Site(site): Site<Shared>,
    visit: Visit,
    Path(jid): Path<String>,
    Params(params): Params,
) -> Response {
    let view = view(&site, &visit, &jid, &params).await;
    site.respond(&visit, view)
}

async fn view(site: &Shared, visit: &Visit, jid: &str, params: &Fields) -> Result<View, Problem> {
    let of_job = || vec![("jid", Some(Value::from(jid)))];
    let report: JobReport = site.query(visit, "jobs.explain", of_job()).await?;
    let request: JobRequest<Value> = site.query(visit, "jobs.request", of_job()).await?;
    let show = Show::of(params);
    let from: usize = params
        .text("from")
        .and_then(|from| from.parse().ok())
        .unwrap_or_default();
    let mut rows = rows(&report, show, visit.now);
    let total = rows.len();
    let mut rows: Vec<MinionRow> = rows
        .drain(from.min(total)..from.saturating_add(ROWS).min(total))
        .collect();
    let is_small = u32::try_from(report.returned.len()).is_ok_and(|count| count <= MAX_INLINE);
    if is_small && visit.may.returns && !report.returned.is_empty() {
        let mut arguments = of_job();
        arguments.push(("limit", Some(MAX_INLINE.into())));
        let page: ReturnsPage<Value> = site.query(visit, "jobs.returns", arguments).await?;
        put_in(&mut rows, page.returns);
    }
    if !visit.may.returns {
        rows.iter_mut().for_each(|row| row.return_path = None);
    }
    let path = job_path(jid);
    let page_from = |from: usize| {
        let (show, from) = (show.word(), from.to_string());
        with_query(&path, &[("show", Some(show)), ("from", Some(&from))])
    };
    let failed = report
        .returned
        .iter()
        .filter(|one| one.retcode != 0)
        .count();
    let counts = Counts {
        ok: report.returned.len() - failed,
        failed,
        missing: report.missing.len(),
    };
    let is_open = report.state == "open";
    let target = text_of(&request.target);
    let again = with_query("/console/run", &[("again", Some(jid))]);
    let again_failed = with_query(
        "/console/run",
        &[("again", Some(jid)), ("only", Some("failed"))],
    );
    let title = format!("{} · {jid}", report.function);
    let content = JobView {
        function: report.function.clone(),
        arguments: argument_lines(&request),
        target_path: super::run::compound(&target, &report.target_type)
            .map(|target| with_query("/console/minions", &[("target", Some(&target))])),
        target: target.clone(),
        target_type: report.target_type.clone(),
        user: report.user.clone(),
        asked: request.asked.as_ref().map(asked_words),
        reporter: request.reporter.map(|reporter| reporter.to_string()),
        publisher: report.publisher.as_ref().map(ToString::to_string),
        created: Moment::new(report.created, visit.now),
        published: report
            .published
            .map(|published| Moment::new(published, visit.now)),
        finished: report
            .finished
            .map(|finished| Moment::new(finished, visit.now)),
        took: duration(report.finished.unwrap_or(visit.now) - report.created),
        state: State::of_job(
            &report.state,
            (report.expected, report.returned.len(), failed),
        ),
        is_open,
        expected: report.expected,
        returned: report.returned.len(),
        counts,
        show: show.word(),
        path: path.clone(),
        rows,
        earlier: (from > 0).then(|| page_from(from.saturating_sub(ROWS))),
        later: (from.saturating_add(ROWS) < total).then(|| page_from(from.saturating_add(ROWS))),
        running: report.missing.len(),
        kill_cli: kill_line(&report),
        again,
        again_failed: (counts.failed + counts.missing > 0 && !is_open).then_some(again_failed),
        jid: jid.to_owned(),
    };
    let command = match is_open {
        true => "follow",
        false => "explain",
    };
    let view = View::new("job.html", "jobs", title, content).cli([
        cli::line(["saltern", command, jid]),
        cli::line(["salt-run", "jobs.lookup_jid", jid]),
    ]);
    Ok(match is_open {
        true => {
            let tags = [
                format!("salt/job/{jid}/ret/*"),
                format!("saltern/job/{jid}/*"),
            ];
            view.live(tags.iter().map(String::as_str)).watched()
        }
        false => view,
    })
}

/// The minions that are shown: first those that failed, then those that are missing.
fn rows(report: &JobReport, show: Show, now: i64) -> Vec<MinionRow> {
    let jid = report.jid.as_str();
    let (ok, failed): (Vec<_>, Vec<_>) = report.returned.iter().partition(|one| one.retcode == 0);
    let returned = |one: &&ReturnedMinion| returned_row(jid, one, report.created, now);
    let mut rows = Vec::new();
    if matches!(show, Show::All | Show::Failed) {
        rows.extend(failed.iter().map(returned));
    }
    if matches!(show, Show::All | Show::Missing) {
        let is_open = report.state == "open";
        let missing = report.missing.iter();
        rows.extend(missing.map(|missing| missing_row(missing, is_open)));
    }
    if matches!(show, Show::All | Show::Ok) {
        rows.extend(ok.iter().map(returned));
    }
    rows
}

fn returned_row(jid: &str, one: &ReturnedMinion, created: i64, now: i64) -> MinionRow {
    let (word, tone) = match one.retcode {
        0 => ("ok", "ok"),
        _ => ("failed", "bad"),
    };
    MinionRow {
        minion: one.minion.to_string(),
        path: minion_path(one.minion.as_str()),
        verdict: Verdict {
            word: word.to_owned(),
            tone,
        },
        why: String::new(),
        received: Some(Moment::new(one.received, now)),
        took: duration(one.received - created),
        retcode: Some(one.retcode),
        return_path: Some(return_path(jid, one.minion.as_str())),
        returned: None,
    }
}

fn missing_row(missing: &Missing, is_open: bool) -> MinionRow {
    MinionRow {
        minion: missing.minion.to_string(),
        path: minion_path(missing.minion.as_str()),
        verdict: Verdict {
            tone: match missing.state.as_str() {
                "unreachable" => "bad",
                _ if is_open => "run",
                _ => "warn",
            },
            word: missing.state.clone(),
        },
        why: missing.why.clone(),
        received: None,
        took: String::new(),
        retcode: None,
        return_path: None,
        returned: None,
    }
}

fn return_path(jid: &str, minion: &str) -> String {
    format!("{}/minions/{}", job_path(jid), encoded(minion))
}

/// Puts values into the rows of their minions, as long as a page has room for them.
fn put_in(rows: &mut [MinionRow], returns: Vec<ReturnRow<Value>>) {
    let mut left = MAX_INLINE_BYTES;
    for one in returns {
        let row = rows
            .iter_mut()
            .find(|row| row.minion == one.minion.as_str());
        let Some(row) = row else { continue };
        let size = nested(&one.value).len();
        row.why = summary(&one.value);
        if size <= left {
            left -= size;
            row.returned = Some(Returned::of(&one.value));
        }
    }
}

/// A return in a few words.
fn summary(value: &Value) -> String {
    const CHARACTERS: usize = 100;
    let returned = Returned::of(value);
    if let Some(report) = returned.report {
        let counts = [
            (report.failed, "failed"),
            (report.changed, "changed"),
            (report.would_change, "would change"),
            (report.succeeded, "succeeded"),
        ];
        let counts = counts.iter().filter(|(count, _)| *count > 0);
        let counts: Vec<String> = counts
            .map(|(count, word)| format!("{count} {word}"))
            .collect();
        return counts.join(", ");
    }
    let text = returned
        .text
        .map(|Text { text, .. }| text)
        .unwrap_or_default();
    let line = text
        .lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default();
    line.trim().chars().take(CHARACTERS).collect()
}

/// The way in by which a job was asked for, and from where.
fn asked_words(asked: &AskedFrom) -> String {
    let door = match asked.door.as_str() {
        "port" => "port 4506",
        "api" => "the API",
        "console" => "the console",
        "reactor" => "the reactor",
        "schedule" => "the schedule",
        "minion" => "a minion",
        "syndic" => "a syndic",
        "master" => "the master itself",
        other => other,
    };
    let origin = asked
        .origin
        .as_ref()
        .map(|origin| format!(" from {origin}"));
    let backend = asked
        .backend
        .as_ref()
        .map(|backend| format!(", known by {backend}"));
    [Some(format!("through {door}")), origin, backend]
        .into_iter()
        .flatten()
        .collect()
}

/// The arguments, a line each, as one types them; those of several functions behind these.
fn argument_lines(request: &JobRequest<Value>) -> Vec<String> {
    let arguments = request.arguments.as_array().unwrap_or_default();
    let Some(functions) = request.function.as_array() else {
        return typed_lines(arguments);
    };
    let calls = functions.iter().zip(arguments);
    let calls = calls.map(|(function, arguments)| {
        let arguments = typed_lines(arguments.as_array().unwrap_or_default());
        format!("{}: {}", nested(function), arguments.join(" "))
    });
    calls.collect()
}

fn missing_ids(report: &JobReport) -> Vec<&str> {
    report
        .missing
        .iter()
        .map(|one| one.minion.as_str())
        .collect()
}

fn kill_line(report: &JobReport) -> String {
    const SHOWN: usize = 10;
    let ids = missing_ids(report);
    let shown: Vec<&str> = ids.iter().take(SHOWN).copied().collect();
    let rest = if ids.len() > SHOWN { ",…" } else { "" };
    let target = format!("{}{rest}", shown.join(","));
    let arguments = [report.jid.to_string()];
    cli::salt(&[], (&target, "list"), "saltutil.kill_job", &arguments)
}

#[derive(Serialize)]
struct ReturnView {
    jid: String,
    job_path: String,
    minion: String,
    minion_path: String,
    function: String,
    received: Moment,
    retcode: i64,
    returned: Returned,
}

/// The return of one minion.
pub(crate) async fn returned(
    Site(site): Site<Shared>,
    visit: Visit,
    Path((jid, id)): Path<(String, String)>,
) -> Response {
    let view = return_view(&site, &visit, &jid, &id).await;
    site.respond(&visit, view)
}

async fn return_view(site: &Shared, visit: &Visit, jid: &str, id: &str) -> Result<View, Problem> {
    let arguments = vec![("jid", Some(jid.into())), ("minion", Some(id.into()))];
    let page: ReturnsPage<Value> = site.query(visit, "jobs.returns", arguments).await?;
    let one = page.returns.into_iter().next();
    let missing = || Problem::not_found(format!("\"{id}\" has not returned job {jid}"));
    let one = one.ok_or_else(missing)?;
    let title = format!("{id} · {}", one.function);
    let content = ReturnView {
        jid: jid.to_owned(),
        job_path: job_path(jid),
        minion: id.to_owned(),
        minion_path: minion_path(id),
        received: Moment::new(one.received, visit.now),
        retcode: one.retcode,
        returned: Returned::of(&one.value),
        function: one.function,
    };
    let line = cli::line(["salt-run", "jobs.lookup_jid", jid]);
    Ok(View::new("return.html", "jobs", title, content).cli([line]))
}

/// Sends the end of the job to the minions that have not returned.
pub(crate) async fn kill(
    Site(site): Site<Shared>,
    Path(jid): Path<String>,
    submitted: Submitted,
) -> Response {
    let visit = submitted.visit;
    match killed(&site, &visit, &jid).await {
        Ok(of_kill) => Redirect::to(&job_path(&of_kill)).into_response(),
        Err(problem) => site.respond(&visit, Err(problem)),
    }
}

async fn killed(site: &Shared, visit: &Visit, jid: &str) -> Result<String, Problem> {
    let arguments = vec![("jid", Some(jid.into()))];
    let report: JobReport = site.query(visit, "jobs.explain", arguments).await?;
    let ids = missing_ids(&report);
    if ids.is_empty() {
        return Err(Problem::conflict("no minion is known to run this job"));
    }
    let ids = ids.into_iter().map(Value::from).collect();
    let load = vec![
        ("tgt", Value::Array(ids)),
        ("tgt_type", "list".into()),
        ("fun", "saltutil.kill_job".into()),
        ("arg", Value::Array(vec![jid.into()])),
    ];
    let reply = ask::publish(&site.backend.gate(), &visit.caller, load).await?;
    let of_kill = reply.get("jid").and_then(Value::as_str);
    Ok(of_kill.unwrap_or(jid).to_owned())
}
