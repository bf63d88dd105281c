//! `/v1/keys`: keys of minions, and what is done with them.

use axum::Json;
use axum::extract::{Path, State};
use saltern_model::query;
use saltern_python::fnmatch::escaped;
use saltern_wire::msgpack::Value;

use super::caller::{Caller, Params};
use super::jobs::text;
use super::problem::Problem;
use super::schema::{Key, KeyChange, Keys, KeysParams};
use super::{Shared, ask};

/// Keys, sorted by minion.
#[utoipa::path(
    get,
    path = "/v1/keys",
    params(KeysParams),
    responses(
        (status = 200, body = Keys),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn list(
    State(backend): State<Shared>,
    caller: Caller,
    Params(params): Params<KeysParams>,
) -> Result<Json<Keys>, Problem> {
    let arguments = vec![
        ("match", text(params.pattern)),
        ("state", text(params.state)),
        ("after", text(params.cursor)),
        ("limit", params.limit.map(Value::from)),
    ];
    let page: query::KeysPage = ask::query(&backend, &caller, "keys.page", arguments).await?;
    Ok(Json(page.into()))
}

/// Accepts a pending or rejected key.
#[utoipa::path(
    post,
    path = "/v1/keys/{id}/accept",
    params(("id" = String, Path, description = "The minion's id.")),
    responses(
        (status = 200, body = KeyChange),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn accept(
    State(backend): State<Shared>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<KeyChange>, Problem> {
    let flag = ("include_rejected", true.into());
    change(
        (&backend, &caller),
        id,
        "key.accept",
        vec![flag],
        "accepted",
    )
    .await
}

/// Rejects a pending or accepted key.
#[utoipa::path(
    post,
    path = "/v1/keys/{id}/reject",
    params(("id" = String, Path, description = "The minion's id.")),
    responses(
        (status = 200, body = KeyChange),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn reject(
    State(backend): State<Shared>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<KeyChange>, Problem> {
    let flag = ("include_accepted", true.into());
    change(
        (&backend, &caller),
        id,
        "key.reject",
        vec![flag],
        "rejected",
    )
    .await
}

/// Deletes the keys of a minion, whatever their state.
#[utoipa::path(
    post,
    path = "/v1/keys/{id}/delete",
    params(("id" = String, Path, description = "The minion's id.")),
    responses(
        (status = 200, body = KeyChange),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn delete(
    State(backend): State<Shared>,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Json<KeyChange>, Problem> {
    change((&backend, &caller), id, "key.delete", Vec::new(), "deleted").await
}

/// Calls a wheel function for exactly this id, when there is a key that it can change: the functions
/// pass over what is not there.
async fn change(
    (backend, caller): (&Shared, &Caller),
    id: String,
    fun: &'static str,
    flags: Vec<(&'static str, Value)>,
    state: &'static str,
) -> Result<Json<KeyChange>, Problem> {
    let of_minion = vec![("match", Some(escaped(&id).into()))];
    let page: query::KeysPage = ask::query(backend, caller, "keys.page", of_minion).await?;
    let keys = Keys::from(page).keys;
    let is_of_minion = |key: &&Key| key.minion == id;
    let states: Vec<&str> = keys
        .iter()
        .filter(is_of_minion)
        .map(|key| key.state.as_str())
        .collect();
    let can_change = match state {
        "deleted" => !states.is_empty(),
        _ => states
            .iter()
            .any(|known| *known != state && *known != "denied"),
    };
    if states.is_empty() {
        return Err(Problem::not_found(format!("there is no key of \"{id}\"")));
    }
    if !can_change {
        let states = states.join(" and ");
        return Err(Problem::conflict(format!(
            "the key of \"{id}\" is {states}"
        )));
    }
    let mut arguments = vec![("match", Value::Array(vec![escaped(&id).into()]))];
    arguments.extend(flags);
    ask::wheel(backend, caller, fun, arguments).await?;
    let state = state.to_owned();
    Ok(Json(KeyChange { minion: id, state }))
}
