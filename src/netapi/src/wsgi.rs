//! The dialect of rest_wsgi (`salt/netapi/rest_wsgi.py`): one page that takes lists of commands as
//! JSON, each with its credentials.

use std::sync::Arc;

use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use saltern_config::ApiServer;
use saltern_wire::msgpack::Value;

use crate::answer::{Form, response};
use crate::api::{Api, peer, whole_body};
use crate::body;
use crate::low_data::{CallError, Calls, Chunk};

/// Answers a request.
pub(crate) async fn answer(api: &Arc<Api>, server: &ApiServer, request: Request) -> Response {
    let (status, value) = match run(api, server, request).await {
        Ok(value) => (StatusCode::OK, value),
        Err((status, text)) => (status, text.into()),
    };
    let body = Form::Json.write(&Value::map([("return", value)]));
    let mut response = response(status, "application/json", body.unwrap_or_default());
    if status == StatusCode::SERVICE_UNAVAILABLE {
        let retry = HeaderValue::from_static("1");
        response.headers_mut().insert(header::RETRY_AFTER, retry);
    }
    response
}

async fn run(
    api: &Arc<Api>,
    server: &ApiServer,
    request: Request,
) -> Result<Value, (StatusCode, String)> {
    let refused = |status: StatusCode, text: &str| (status, format!("{}: {text}", status.as_u16()));
    if [Method::GET, Method::HEAD].contains(request.method()) {
        return Ok("This is the API of a Salt master; send a list of commands with POST.".into());
    }
    if request.method() != Method::POST {
        return Err(refused(
            StatusCode::METHOD_NOT_ALLOWED,
            "Method Not Allowed",
        ));
    }
    if body::content_type(request.headers()) != "application/json" {
        return Err(refused(StatusCode::NOT_ACCEPTABLE, "JSON required"));
    }
    let calls = Calls::new(api, peer(&request));
    let content = whole_body(request.into_body(), server.max_body).await;
    let too_large = || refused(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large");
    let content = content.ok_or_else(too_large)?;
    let chunks = std::str::from_utf8(&content).ok().and_then(body::json);
    let Some(Value::Array(chunks)) = chunks else {
        return Err(refused(
            StatusCode::BAD_REQUEST,
            "a list of commands is expected",
        ));
    };
    let mut values = Vec::new();
    for chunk in chunks {
        let chunk = Chunk::of(chunk);
        let no_map = || refused(StatusCode::BAD_REQUEST, "a command is no mapping");
        let answered = calls.run(chunk.ok_or_else(no_map)?).await;
        values.extend(
            answered
                .map_err(|error| (status(&error), error.to_string()))?
                .values,
        );
    }
    Ok(Value::Array(values))
}

fn status(error: &CallError) -> StatusCode {
    match error {
        CallError::Refused(_) | CallError::TokenRefused(_) => StatusCode::UNAUTHORIZED,
        CallError::Busy(_) => StatusCode::SERVICE_UNAVAILABLE,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
