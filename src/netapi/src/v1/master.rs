//! `/v1/health`, `/v1/version` and `/v1/openapi.json`.

use std::sync::LazyLock;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use saltern_model::query;

use super::caller::Caller;
use super::problem::Problem;
use super::schema::{Health, Version};
use super::{Shared, ask};

/// Whether the master serves, with the reason of each check.
#[utoipa::path(
    get,
    path = "/v1/health",
    responses(
        (status = 200, body = Health),
        (status = 503, description = "A check has not passed.", body = Health),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn health(
    State(backend): State<Shared>,
    caller: Caller,
) -> Result<Response, Problem> {
    let health: query::Health = ask::query(&backend, &caller, "saltern.health", Vec::new()).await?;
    let status = match health.is_ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    Ok((status, Json(Health::from(health))).into_response())
}

/// Versions of the running master.
#[utoipa::path(
    get,
    path = "/v1/version",
    responses(
        (status = 200, body = Version),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn version(
    State(backend): State<Shared>,
    caller: Caller,
) -> Result<Json<Version>, Problem> {
    let versions: query::Versions =
        ask::query(&backend, &caller, "saltern.version", Vec::new()).await?;
    Ok(Json(Version {
        saltern: versions.saltern,
        salt: versions.salt,
    }))
}

static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| {
    let document = serde_json::to_vec(&super::document());
    document.unwrap_or_default().into()
});

/// It changes with the program only.
const ETAG: &str = concat!("\"", env!("CARGO_PKG_VERSION"), "\"");

/// This document. It needs no token.
#[utoipa::path(
    get,
    path = "/v1/openapi.json",
    security(()),
    responses(
        (status = 200, description = "The document.", body = serde_json::Value),
        (status = 304, description = "It has not changed."),
    )
)]
pub(super) async fn openapi(headers: HeaderMap) -> Response {
    let known = headers.get(header::IF_NONE_MATCH);
    let etag = [(header::ETAG, ETAG)];
    if known.is_some_and(|known| known.as_bytes() == ETAG.as_bytes()) {
        return (StatusCode::NOT_MODIFIED, etag).into_response();
    }
    let json = [(header::CONTENT_TYPE, "application/json")];
    (etag, json, DOCUMENT.clone()).into_response()
}
