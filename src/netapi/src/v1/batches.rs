//! `/v1/batches`: batches that are not over, and what is done with them. A batch may be paused,
//! resumed and stopped by the user who began it, and by whoever may call the runner's function.

use axum::Json;
use axum::extract::{Path, State};

use super::caller::{Caller, Params};
use super::problem::Problem;
use super::schema::{Batch, BatchChange, Batches, StopParams};
use super::{Shared, ask};

/// Batches that are not over.
#[utoipa::path(
    get,
    path = "/v1/batches",
    responses(
        (status = 200, body = Batches),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn list(
    State(backend): State<Shared>,
    caller: Caller,
) -> Result<Json<Batches>, Problem> {
    let batches = ask::query(&backend, &caller, "batches.page", Vec::new()).await?;
    Ok(Json(Batches { batches }))
}

/// State of a batch.
#[utoipa::path(
    get,
    path = "/v1/batches/{jid}",
    params(("jid" = String, Path, description = "The jid of its parts.")),
    responses(
        (status = 200, body = Batch),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn one(
    State(backend): State<Shared>,
    caller: Caller,
    Path(jid): Path<String>,
) -> Result<Json<Batch>, Problem> {
    let arguments = vec![("jid", Some(jid.into()))];
    let batch = ask::query(&backend, &caller, "batches.status", arguments).await?;
    Ok(Json(batch))
}

/// Pauses a batch: minions that were sent their part go on, the others are sent nothing until it is
/// resumed. Answered when that is stored, so that it holds over a restart.
#[utoipa::path(
    post,
    path = "/v1/batches/{jid}/pause",
    params(("jid" = String, Path, description = "The jid of its parts.")),
    responses(
        (status = 200, body = BatchChange),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn pause(
    State(backend): State<Shared>,
    caller: Caller,
    Path(jid): Path<String>,
) -> Result<Json<BatchChange>, Problem> {
    change((&backend, &caller), jid, "batches.pause", Vec::new()).await
}

/// Resumes a paused batch; answered when that is stored.
#[utoipa::path(
    post,
    path = "/v1/batches/{jid}/resume",
    params(("jid" = String, Path, description = "The jid of its parts.")),
    responses(
        (status = 200, body = BatchChange),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn resume(
    State(backend): State<Shared>,
    caller: Caller,
    Path(jid): Path<String>,
) -> Result<Json<BatchChange>, Problem> {
    change((&backend, &caller), jid, "batches.resume", Vec::new()).await
}

/// Stops a batch; answered when its end is stored.
#[utoipa::path(
    post,
    path = "/v1/batches/{jid}/stop",
    params(("jid" = String, Path, description = "The jid of its parts."), StopParams),
    responses(
        (status = 200, body = BatchChange),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn stop(
    State(backend): State<Shared>,
    caller: Caller,
    Path(jid): Path<String>,
    Params(params): Params<StopParams>,
) -> Result<Json<BatchChange>, Problem> {
    let kill = ("kill", params.kill.map(Into::into));
    change((&backend, &caller), jid, "batches.stop", vec![kill]).await
}

async fn change(
    (backend, caller): (&Shared, &Caller),
    jid: String,
    fun: &'static str,
    mut arguments: ask::Arguments,
) -> Result<Json<BatchChange>, Problem> {
    arguments.push(("jid", Some(jid.as_str().into())));
    let is_done: bool = ask::query(backend, caller, fun, arguments).await?;
    match is_done {
        true => Ok(Json(BatchChange { jid })),
        false => Err(Problem::conflict("there is no such batch, or it is over")),
    }
}
