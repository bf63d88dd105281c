//! Page of the present: running jobs, recent failures, lost minions, health with the findings of
//! `saltern doctor` and the lag of mirrors and followers.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use saltern_model::query::{DoctorFinding, Health, JobsPage, Lag, MinionsPage, Versions};
use saltern_netapi::v1::Problem;
use saltern_wire::msgpack::Value;
use serde::Serialize;

use super::minions::MinionLine;
use super::{JobLine, job_lines};
use crate::chart::Chart;
use crate::moment::span;
use crate::site::{Shared, Visit};
use crate::view::View;

const RUNNING: i64 = 20;
const FAILED: i64 = 10;
const LOST: i64 = 10;
const FINDINGS: usize = 10;

/// Rows of lag from which a reader of the job database counts as behind.
const BEHIND: u64 = 1_000;

/// Jobs of the chart.
const CHARTED: i64 = 500;

const HOUR: i64 = 3_600_000_000;

#[derive(Serialize)]
struct NowView {
    /// Nothing of what the visitor may not see.
    running: Option<Vec<JobLine>>,
    has_more_running: bool,
    failed: Option<Vec<JobLine>>,
    chart: Option<Chart>,
    lost: Option<Vec<MinionLine>>,
    has_more_lost: bool,
    minions: usize,
    health: Option<HealthView>,
    version: Option<String>,
}

#[derive(Serialize)]
struct HealthView {
    is_ready: bool,
    checks: Vec<Check>,
    /// The gravest first.
    findings: Vec<Finding>,
    more_findings: usize,
    lags: Vec<LagLine>,
}

impl HealthView {
    fn new(health: Health) -> Self {
        let checks = health.checks.into_iter().map(|check| Check {
            name: check.name,
            passed: check.passed,
            reason: check.reason,
        });
        let findings = health.findings.into_iter().map(Finding::new);
        let mut findings: Vec<Finding> = findings.collect();
        findings.sort_by_key(|finding| finding.rank);
        let more_findings = findings.len().saturating_sub(FINDINGS);
        findings.truncate(FINDINGS);
        Self {
            is_ready: health.is_ready,
            checks: checks.collect(),
            findings,
            more_findings,
            lags: health.lags.into_iter().map(LagLine::new).collect(),
        }
    }
}

/// A problem that `saltern doctor` found.
#[derive(Serialize)]
struct Finding {
    subject: String,
    finding: String,
    advice: String,
    tone: &'static str,
    #[serde(skip)]
    rank: u8,
}

impl Finding {
    fn new(found: DoctorFinding) -> Self {
        let (tone, rank) = match found.severity.as_str() {
            "error" => ("bad", 0),
            "warning" => ("warn", 1),
            _ => ("mute", 2),
        };
        Self {
            subject: found.subject,
            finding: found.finding,
            advice: found.advice,
            tone,
            rank,
        }
    }
}

/// Lag of a reader of the job database.
#[derive(Serialize)]
struct LagLine {
    name: String,
    rows: u64,
    age: Option<String>,
    tone: &'static str,
}

impl LagLine {
    fn new(lag: Lag) -> Self {
        let seconds = lag.seconds.filter(|_| lag.rows > 0);
        Self {
            tone: if lag.rows < BEHIND { "ok" } else { "warn" },
            age: seconds.map(|seconds| span(i64::try_from(seconds).unwrap_or(i64::MAX))),
            rows: lag.rows,
            name: lag.name,
        }
    }
}

#[derive(Serialize)]
struct Check {
    name: String,
    passed: bool,
    reason: String,
}

/// The page.
pub(crate) async fn page(State(site): State<Shared>, visit: Visit) -> Response {
    let view = view(&site, &visit).await;
    site.respond(&visit, view)
}

/// Nothing where the rules do not allow it, or it cannot be had now: the rest of the page is shown.
fn if_there<T>(found: Result<T, Problem>) -> Result<Option<T>, Problem> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(problem) if problem.status() == StatusCode::UNAUTHORIZED => Err(problem),
        Err(_) => Ok(None),
    }
}

async fn view(site: &Shared, visit: &Visit) -> Result<View, Problem> {
    let of_jobs = |state: Option<&str>, since: Option<i64>, limit: i64| {
        vec![
            ("state", state.map(Value::from)),
            ("since", since.map(Value::from)),
            ("limit", Some(limit.into())),
        ]
    };
    let (mut running, mut failed, mut chart) = (None, None, None);
    let mut has_more_running = false;
    if visit.may.jobs {
        let open = job_lines(site, visit, of_jobs(Some("open"), None, RUNNING)).await;
        running = if_there(open)?.map(|(lines, next)| {
            has_more_running = next.is_some();
            lines
        });
        let bad = job_lines(site, visit, of_jobs(Some("failed"), None, FAILED)).await;
        failed = if_there(bad)?.map(|(lines, _)| lines);
        let since = Some(visit.now - HOUR);
        let of_hour: Result<JobsPage, Problem> = site
            .query(visit, "jobs.page", of_jobs(None, since, CHARTED))
            .await;
        chart = if_there(of_hour)?.map(|page| {
            let jobs = page.jobs.iter().map(|job| (job.created, job.failed > 0));
            Chart::last_hour(jobs, visit.now)
        });
    }
    let (mut lost, mut minions, mut has_more_lost) = (None, 0, false);
    if visit.may.minions {
        let arguments = vec![
            ("present", Some(false.into())),
            ("limit", Some(LOST.into())),
        ];
        let page: Result<MinionsPage<Value>, Problem> =
            site.query(visit, "minions.page", arguments).await;
        lost = if_there(page)?.map(|page| {
            (minions, has_more_lost) = (page.total, page.next.is_some());
            let rows = page.minions.into_iter();
            rows.map(|row| MinionLine::new(row, visit.now)).collect()
        });
    }
    let mut health = None;
    if visit.may.health {
        let found: Result<Health, Problem> = site.query(visit, "saltern.health", Vec::new()).await;
        health = if_there(found)?.map(HealthView::new);
    }
    let mut version = None;
    if visit.may.version {
        let found: Result<Versions, Problem> =
            site.query(visit, "saltern.version", Vec::new()).await;
        version = if_there(found)?;
    }
    let content = NowView {
        running,
        has_more_running,
        failed,
        chart,
        lost,
        has_more_lost,
        minions,
        health,
        version: version
            .map(|version| format!("Saltern {}, as Salt {}", version.saltern, version.salt)),
    };
    let view = View::new("now.html", "now", "Now", content);
    Ok(view
        .cli(["saltern top".to_owned(), "saltern doctor".to_owned()])
        .live([
            "salt/job/*/new",
            "salt/job/*/ret/*",
            "saltern/job/*/finished",
            "salt/presence/change",
        ]))
}
