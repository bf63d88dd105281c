//! `/v1/jobs`: lists, explains and publishes jobs.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use saltern_model::query;
use saltern_wire::msgpack::Value;

use crate::body::of_json;

use super::caller::{Body, Caller, Params};
use super::problem::Problem;
use super::schema::{Job, Jobs, JobsParams, NewJob, PageParams, PublishedJob, Returns};
use super::{Shared, ask};

/// Jobs, newest first.
#[utoipa::path(
    get,
    path = "/v1/jobs",
    params(JobsParams),
    responses(
        (status = 200, body = Jobs),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn list(
    State(backend): State<Shared>,
    caller: Caller,
    Params(params): Params<JobsParams>,
) -> Result<Json<Jobs>, Problem> {
    let arguments = vec![
        ("function", text(params.function)),
        ("user", text(params.user)),
        ("target", text(params.target)),
        ("minion", text(params.minion)),
        ("state", text(params.state)),
        ("since", micros("since", params.since)?),
        ("until", micros("until", params.until)?),
        ("before", text(params.cursor)),
        ("limit", params.limit.map(Value::from)),
    ];
    let page: query::JobsPage = ask::query(&backend, &caller, "jobs.page", arguments).await?;
    Ok(Json(page.into()))
}

/// A job, with the verdict for each minion and its reason.
#[utoipa::path(
    get,
    path = "/v1/jobs/{jid}",
    params(("jid" = String, Path, description = "The job's id.")),
    responses(
        (status = 200, body = Job),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn one(
    State(backend): State<Shared>,
    caller: Caller,
    Path(jid): Path<String>,
) -> Result<Json<Job>, Problem> {
    Ok(Json(report(&backend, &caller, &jid).await?.into()))
}

/// The account of a job.
pub(super) async fn report(
    backend: &Shared,
    caller: &Caller,
    jid: &str,
) -> Result<query::JobReport, Problem> {
    let arguments = vec![("jid", Some(jid.into()))];
    ask::query(backend, caller, "jobs.explain", arguments).await
}

/// Returns of a job with their values, by minion.
#[utoipa::path(
    get,
    path = "/v1/jobs/{jid}/returns",
    params(("jid" = String, Path, description = "The job's id."), PageParams),
    responses(
        (status = 200, body = Returns),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn returns(
    State(backend): State<Shared>,
    caller: Caller,
    Path(jid): Path<String>,
    Params(params): Params<PageParams>,
) -> Result<Json<Returns>, Problem> {
    let page = returns_page(&backend, &caller, &jid, (params.cursor, params.limit));
    Ok(Json(page.await?.into()))
}

/// A page of the returns of a job.
pub(super) async fn returns_page(
    backend: &Shared,
    caller: &Caller,
    jid: &str,
    (after, limit): (Option<String>, Option<u32>),
) -> Result<query::ReturnsPage<Value>, Problem> {
    let arguments = vec![
        ("jid", Some(jid.into())),
        ("after", text(after)),
        ("limit", limit.map(Value::from)),
    ];
    ask::query(backend, caller, "jobs.returns", arguments).await
}

/// Publishes a job, and does not wait for it.
#[utoipa::path(
    post,
    path = "/v1/jobs",
    request_body = NewJob,
    responses(
        (status = 201, body = PublishedJob, headers(("Location" = String))),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn publish(
    State(backend): State<Shared>,
    caller: Caller,
    Body(job): Body<NewJob>,
) -> Result<Response, Problem> {
    let mut arguments: Vec<Value> = job.arguments.into_iter().map(of_json).collect();
    if !job.keyword_arguments.is_empty() {
        let mut named = vec![(Value::from("__kwarg__"), Value::from(true))];
        for (name, value) in job.keyword_arguments {
            named.push((name.into(), of_json(value)));
        }
        arguments.push(Value::Map(named));
    }
    let load = vec![
        ("tgt", of_json(job.target)),
        ("tgt_type", job.target_type.into()),
        ("fun", job.function.into()),
        ("arg", Value::Array(arguments)),
    ];
    let reply = ask::publish(&backend, &caller, load).await?;
    let texts = |name: &str| {
        let list = reply.get(name).and_then(Value::as_array);
        let list = list.unwrap_or_default().iter();
        list.filter_map(|id| id.as_str().map(str::to_owned))
            .collect()
    };
    let jid = reply.get("jid").and_then(Value::as_str).unwrap_or_default();
    let published = PublishedJob {
        jid: jid.to_owned(),
        minions: texts("minions"),
        missing: texts("missing"),
    };
    let location = [(header::LOCATION, format!("/v1/jobs/{jid}"))];
    Ok((StatusCode::CREATED, location, Json(published)).into_response())
}

/// An argument that is a text.
pub(super) fn text(text: Option<String>) -> Option<Value> {
    text.map(Value::from)
}

/// A time as the master takes it.
pub(super) fn micros(field: &'static str, text: Option<String>) -> Result<Option<Value>, Problem> {
    let wrong = |error| Problem::invalid(Some(field), format!("\"{field}\" is no time: {error}"));
    text.map(|text| {
        let time: Timestamp = text.parse().map_err(wrong)?;
        Ok(Value::from(time.as_microsecond()))
    })
    .transpose()
}
