//! `/v1/audit`: the audit trail in pages, and as an export.

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use bytes::Bytes;
use futures_util::stream;
use saltern_base::escaped_json_for_terminal;
use saltern_http::{LongStream, Stopping};
use saltern_model::query::{self, MAX_ROWS};
use saltern_wire::msgpack::Value;
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::ask::{self, Arguments};
use super::caller::{Caller, Params};
use super::jobs::{micros, text};
use super::problem::Problem;
use super::schema::{Audit, AuditParams, AuditRow};

/// Rows of the audit trail, the newest first, and the state of its chain of hashes.
#[utoipa::path(
    get,
    path = "/v1/audit",
    params(AuditParams),
    responses(
        (status = 200, body = Audit),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn list(
    State(backend): State<Shared>,
    caller: Caller,
    Params(params): Params<AuditParams>,
) -> Result<Json<Audit>, Problem> {
    let is_first = params.cursor.is_none();
    let mut arguments = filters(&params)?;
    arguments.push(("before", text(params.cursor)));
    arguments.push(("limit", params.limit.map(Value::from)));
    let page: query::AuditPage = ask::query(&backend, &caller, "audit.page", arguments).await?;
    let chain: Option<query::AuditState> = match is_first {
        true => Some(ask::query(&backend, &caller, "audit.state", Vec::new()).await?),
        false => None,
    };
    Ok(Json(Audit {
        rows: page.rows.into_iter().map(AuditRow::from).collect(),
        next: page.next,
        chain: chain.map(Into::into),
    }))
}

/// The audit trail, the newest row first, as lines of JSON: one `AuditRow` each.
#[utoipa::path(
    get,
    path = "/v1/audit/export",
    params(AuditParams),
    responses(
        (status = 200, description = "Lines of JSON.", body = String, content_type = "application/x-ndjson"),
        (status = "default", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn download(
    State(backend): State<Shared>,
    caller: Caller,
    stopping: Option<Extension<Stopping>>,
    Params(params): Params<AuditParams>,
) -> Result<Response, Problem> {
    let stop = stopping.map(|Extension(Stopping(stop))| stop);
    let filters = filters(&params)?;
    export(backend, caller, filters, stop.unwrap_or_default()).await
}

fn filters(params: &AuditParams) -> Result<Arguments, Problem> {
    Ok(vec![
        ("user", text(params.user.clone())),
        ("door", text(params.door.clone())),
        ("function", text(params.function.clone())),
        ("verdict", text(params.verdict.clone())),
        ("since", micros("since", params.since.clone())?),
        ("until", micros("until", params.until.clone())?),
    ])
}

/// All rows that these filters match, as lines of JSON. Each page passes the gate, and is asked for
/// when the client has taken the one before.
///
/// # Errors
/// What the master refuses: a stream has no status of its own for that.
pub async fn export(
    backend: Shared,
    caller: Caller,
    filters: Arguments,
    stop: CancellationToken,
) -> Result<Response, Problem> {
    let mut export = Export {
        backend,
        caller,
        filters,
        before: None,
        is_over: false,
        stop,
    };
    let first = export.page().await?;
    let lines = stream::unfold((export, Some(first)), |(mut export, first)| async move {
        let chunk = match first {
            Some(first) => first,
            None => export.next().await?,
        };
        Some((Ok::<_, Infallible>(chunk), (export, None)))
    });
    let headers = [
        (header::CONTENT_TYPE, "application/x-ndjson"),
        (header::CACHE_CONTROL, "no-store"),
        (
            header::CONTENT_DISPOSITION,
            "attachment; filename=\"audit.jsonl\"",
        ),
    ];
    Ok((headers, Extension(LongStream), Body::from_stream(lines)).into_response())
}

/// An export in progress.
struct Export {
    backend: Shared,
    caller: Caller,
    filters: Arguments,
    before: Option<String>,
    is_over: bool,
    stop: CancellationToken,
}

impl Export {
    /// The next lines; nothing behind the last one. An export that is cut off ends with a line that
    /// says so.
    async fn next(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        let stop = self.stop.clone();
        let page = tokio::select! {
            () = stop.cancelled() => Err(Problem::busy("the master stops")),
            page = self.page() => page,
        };
        Some(page.unwrap_or_else(|problem| {
            self.is_over = true;
            let line = serde_json::json!({"error": problem.detail()});
            format!("{line}\n").into()
        }))
    }

    /// The lines of the next page, which may be none although more follow.
    async fn page(&mut self) -> Result<Bytes, Problem> {
        let mut arguments = self.filters.clone();
        arguments.push(("before", text(self.before.clone())));
        arguments.push(("limit", Some(Value::from(MAX_ROWS as u64))));
        let page: query::AuditPage =
            ask::query(&self.backend, &self.caller, "audit.page", arguments).await?;
        self.is_over = page.next.is_none();
        self.before = page.next;
        let lines = page.rows.into_iter().map(json_line);
        Ok(lines.collect::<String>().into())
    }
}

/// A row as a line of JSON that is safe to print on a terminal.
pub fn json_line(line: query::AuditLine) -> String {
    let json = serde_json::to_string(&AuditRow::from(line)).unwrap_or_default();
    let mut line = escaped_json_for_terminal(&json);
    line.push('\n');
    line
}
