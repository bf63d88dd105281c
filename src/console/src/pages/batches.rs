//! Batches that are not over.

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use saltern_netapi::v1::Problem;
use saltern_netapi::v1::schema::Batch;
use saltern_wire::msgpack::Value;
use serde::Serialize;

use super::job_path;
use crate::cli;
use crate::site::{Shared, Submitted, Visit, encoded};
use crate::view::View;

#[derive(Serialize)]
struct BatchesView {
    batches: Vec<BatchLine>,
}

#[derive(Serialize)]
struct BatchLine {
    jid: String,
    path: String,
    stop_path: String,
    pause_path: String,
    pause_line: String,
    is_paused: bool,
    user: String,
    total: usize,
    completed: usize,
    active: usize,
    pending: usize,
    failed: usize,
    halted: Option<String>,
    line: String,
}

/// The page.
pub(crate) async fn page(State(site): State<Shared>, visit: Visit) -> Response {
    let view = view(&site, &visit).await;
    site.respond(&visit, view)
}

async fn view(site: &Shared, visit: &Visit) -> Result<View, Problem> {
    let batches: Vec<Batch> = site.query(visit, "batches.page", Vec::new()).await?;
    let lines = batches.into_iter().map(|batch| BatchLine {
        path: job_path(&batch.jid),
        stop_path: format!("/console/batches/{}/stop", encoded(&batch.jid)),
        pause_path: format!(
            "/console/batches/{}/{}",
            encoded(&batch.jid),
            other_way(&batch)
        ),
        pause_line: cli::line(["saltern", "batch", other_way(&batch), &batch.jid]),
        is_paused: batch.paused_since.is_some(),
        user: batch.user.unwrap_or_default(),
        total: batch.total,
        completed: batch.completed,
        active: batch.active,
        pending: batch.pending,
        failed: batch.failed,
        halted: batch
            .halted
            .then(|| batch.halted_reason.unwrap_or_default()),
        line: cli::line(["salt-run", "batch.stop", &batch.jid]),
        jid: batch.jid,
    });
    let content = BatchesView {
        batches: lines.collect(),
    };
    let view = View::new("batches.html", "batches", "Batches", content);
    Ok(view
        .cli(["salt-run batch.list_active".to_owned()])
        .live(["salt/batch/*", "salt/job/*/ret/*"]))
}

/// The word for what can be done with a batch beside stopping it.
fn other_way(batch: &Batch) -> &'static str {
    match batch.paused_since {
        None => "pause",
        Some(_) => "resume",
    }
}

/// Pauses a batch: minions that have begun go on, the others wait.
pub(crate) async fn pause(
    State(site): State<Shared>,
    Path(jid): Path<String>,
    submitted: Submitted,
) -> Response {
    change(&site, &submitted.visit, &jid, "batches.pause").await
}

/// Has a paused batch go on.
pub(crate) async fn resume(
    State(site): State<Shared>,
    Path(jid): Path<String>,
    submitted: Submitted,
) -> Response {
    change(&site, &submitted.visit, &jid, "batches.resume").await
}

/// Stops a batch: minions that have begun go on, the others are sent nothing.
pub(crate) async fn stop(
    State(site): State<Shared>,
    Path(jid): Path<String>,
    submitted: Submitted,
) -> Response {
    change(&site, &submitted.visit, &jid, "batches.stop").await
}

async fn change(site: &Shared, visit: &Visit, jid: &str, query: &'static str) -> Response {
    let arguments = vec![("jid", Some(Value::from(jid)))];
    let done: Result<bool, Problem> = site.query(visit, query, arguments).await;
    match done {
        Ok(true) => Redirect::to("/console/batches").into_response(),
        Ok(false) => {
            let problem = Problem::conflict("there is no such batch, or it is over");
            site.respond(visit, Err(problem))
        }
        Err(problem) => site.respond(visit, Err(problem)),
    }
}
