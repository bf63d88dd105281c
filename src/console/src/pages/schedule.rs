//! The master's schedule: when each job runs next, and what became of its latest runs.

use axum::extract::State as Site;
use axum::response::Response;
use saltern_model::query::{ScheduleReport, ScheduledJob, ScheduledRun};
use saltern_netapi::v1::Problem;
use serde::Serialize;

use super::{State, job_path};
use crate::moment::{Moment, duration, span};
use crate::site::{Shared, Visit};
use crate::view::View;

/// Jobs of the page.
const MAX_JOBS: usize = 200;

#[derive(Serialize)]
struct ScheduleView {
    jobs: Vec<JobView>,
    more: usize,
    zone: String,
}

#[derive(Serialize)]
struct JobView {
    name: String,
    function: String,
    timing: String,
    at_start: bool,
    next: Option<Next>,
    /// Why it will not run then.
    skip: Option<String>,
    state: State,
    begun: u64,
    failed: u64,
    skipped: u64,
    last_skip: String,
    last: Option<RunView>,
    runs: Vec<RunView>,
}

/// A moment to come.
#[derive(Serialize)]
struct Next {
    at: Moment,
    /// How long until then.
    wait: String,
}

#[derive(Serialize, Clone)]
struct RunView {
    jid: String,
    function: String,
    began: Moment,
    took: String,
    state: State,
    reason: String,
    /// The page of its return, where that is kept.
    path: Option<String>,
}

/// The page.
pub(crate) async fn page(Site(site): Site<Shared>, visit: Visit) -> Response {
    let view = view(&site, &visit).await;
    site.respond(&visit, view)
}

async fn view(site: &Shared, visit: &Visit) -> Result<View, Problem> {
    let report: ScheduleReport = site.query(visit, "schedule.report", Vec::new()).await?;
    let jobs = report.jobs;
    let content = ScheduleView {
        more: jobs.len().saturating_sub(MAX_JOBS),
        jobs: jobs
            .into_iter()
            .take(MAX_JOBS)
            .map(|job| job_view(job, visit))
            .collect(),
        zone: report.zone,
    };
    let view = View::new("schedule.html", "schedule", "Schedule", content);
    Ok(view
        .cli(["saltern schedule".to_owned()])
        .live(["__schedule_return"]))
}

fn job_view(job: ScheduledJob, visit: &Visit) -> JobView {
    let runs: Vec<RunView> = job.runs.iter().map(|run| run_view(run, visit)).collect();
    let last = runs.first().cloned();
    let (word, tone) = match (&job.skip, &last) {
        (Some(skip), _) if skip == "disabled" => ("disabled", "mute"),
        (_, Some(last)) => (last.state.word, last.state.tone),
        (Some(_), None) => ("skipped", "mute"),
        (None, None) => ("waiting", "mute"),
    };
    JobView {
        state: State { word, tone },
        next: job.next.map(|next| Next {
            at: Moment::new(next, visit.now),
            wait: wait(next - visit.now),
        }),
        last,
        runs,
        name: job.name,
        function: job.function,
        timing: job.timing,
        at_start: job.at_start,
        skip: job.skip.map(|skip| in_words(&skip)),
        begun: job.begun,
        failed: job.failed,
        skipped: job.skipped,
        last_skip: job
            .last_skip
            .map(|skip| in_words(&skip))
            .unwrap_or_default(),
    }
}

/// How long until a moment, in microseconds.
fn wait(micros: i64) -> String {
    match micros.div_euclid(1_000_000) {
        ..1 => "now".to_owned(),
        seconds => format!("in {}", span(seconds)),
    }
}

/// The reason why a turn brings no run.
fn in_words(skip: &str) -> String {
    match skip {
        "disabled" => "disabled",
        "not_in_range" => "outside of its range",
        "in_skip_range" => "within skip_during_range",
        "until_passed" => "its until has passed",
        "after_not_passed" => "before its after",
        "maxrunning" => "maxrunning are under way",
        "missed" => "its time has passed",
        "repeated" => "the clock went back",
        "queue_full" => "too many calls wait",
        other => other,
    }
    .to_owned()
}

fn run_view(run: &ScheduledRun, visit: &Visit) -> RunView {
    let (word, tone) = match run.outcome.as_str() {
        "running" => ("running", "run"),
        "done" => ("done", "ok"),
        "lost" => ("lost", "bad"),
        _ => ("failed", "bad"),
    };
    let is_shown = run.is_kept && visit.may.job && run.ended.is_some();
    RunView {
        jid: run.jid.to_string(),
        function: run.function.clone(),
        began: Moment::new(run.began, visit.now),
        took: duration(run.ended.unwrap_or(visit.now) - run.began),
        state: State { word, tone },
        reason: run.reason.clone().unwrap_or_default(),
        path: is_shown.then(|| job_path(run.jid.as_str())),
    }
}
