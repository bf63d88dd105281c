//! `/v1/minions`: accepted minions with presence and grains.

use axum::Json;
use axum::extract::{Path, State};
use saltern_model::query;
use saltern_wire::msgpack::Value;

use super::caller::{Caller, Params};
use super::jobs::text;
use super::problem::Problem;
use super::schema::{Minion, MinionParams, Minions, MinionsParams};
use super::{Shared, ask};

/// Accepted minions, sorted by id.
#[utoipa::path(
    get,
    path = "/v1/minions",
    params(MinionsParams),
    responses(
        (status = 200, body = Minions),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn list(
    State(backend): State<Shared>,
    caller: Caller,
    Params(params): Params<MinionsParams>,
) -> Result<Json<Minions>, Problem> {
    let paths = paths(params.grains.as_deref());
    let arguments = vec![
        ("target", text(params.target)),
        ("present", params.present.map(Value::from)),
        ("grains", Some(list_of(&paths))),
        ("after", text(params.cursor)),
        ("limit", params.limit.map(Value::from)),
    ];
    let page: query::MinionsPage<Value> =
        ask::query(&backend, &caller, "minions.page", arguments).await?;
    Ok(Json(Minions::of(page, &paths)))
}

/// One accepted minion.
#[utoipa::path(
    get,
    path = "/v1/minions/{id}",
    params(("id" = String, Path, description = "The minion's id."), MinionParams),
    responses(
        (status = 200, body = Minion),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn one(
    State(backend): State<Shared>,
    caller: Caller,
    Path(id): Path<String>,
    Params(params): Params<MinionParams>,
) -> Result<Json<Minion>, Problem> {
    let paths = paths(params.grains.as_deref());
    let missing = format!("no accepted minion is called \"{id}\"");
    let arguments = vec![
        ("minion", Some(id.into())),
        ("grains", Some(list_of(&paths))),
    ];
    let page: query::MinionsPage<Value> =
        ask::query(&backend, &caller, "minions.page", arguments).await?;
    let found = Minions::of(page, &paths).minions.pop();
    found.map(Json).ok_or_else(|| Problem::not_found(missing))
}

fn paths(grains: Option<&str>) -> Vec<String> {
    let paths = grains.unwrap_or_default().split(',').map(str::trim);
    paths
        .filter(|path| !path.is_empty())
        .map(str::to_owned)
        .collect()
}

fn list_of(paths: &[String]) -> Value {
    Value::Array(paths.iter().map(|path| path.as_str().into()).collect())
}
