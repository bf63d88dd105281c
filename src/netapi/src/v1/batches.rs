//! `/v1/batches`: batches that are not over. To pause one is not in the machine that drives them.

use axum::Json;
use axum::extract::{Path, State};

use super::caller::{Caller, Params};
use super::problem::Problem;
use super::schema::{Batch, Batches, StopParams, StoppedBatch};
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

/// Stops a batch; answered when its end is stored.
#[utoipa::path(
    post,
    path = "/v1/batches/{jid}/stop",
    params(("jid" = String, Path, description = "The jid of its parts."), StopParams),
    responses(
        (status = 200, body = StoppedBatch),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn stop(
    State(backend): State<Shared>,
    caller: Caller,
    Path(jid): Path<String>,
    Params(params): Params<StopParams>,
) -> Result<Json<StoppedBatch>, Problem> {
    let arguments = vec![
        ("jid", Some(jid.as_str().into())),
        ("kill", params.kill.map(Into::into)),
    ];
    let stopped: bool = ask::query(&backend, &caller, "batches.stop", arguments).await?;
    match stopped {
        true => Ok(Json(StoppedBatch { jid })),
        false => Err(Problem::conflict("there is no such batch, or it is over")),
    }
}
