//! The dialect of rest_tornado (`salt/netapi/rest_tornado/saltnado.py`): tokens are those of Salt,
//! and a command that fails is a text among the answers of the others.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use futures_util::future::BoxFuture;
use saltern_config::ApiServer;
use saltern_wire::msgpack::Value;
use zeroize::Zeroizing;

use crate::answer::{Form, response, text};
use crate::api::{Api, credential, peer, whole_body};
use crate::body::{self, BodyError, Reading};
use crate::events;
use crate::hook::{HookRefusal, Hooks};
use crate::hooks::{self, HookFailure};
use crate::low_data::{CallError, Calls, Chunk};
use crate::master::UncheckedToken;
use crate::permissions::permissions;
use crate::stream::{Dialect, SocketRequest, StreamRefusal};

/// The clients that stock's server has.
const CLIENTS: [&str; 4] = ["local", "local_async", "runner", "runner_async"];

const HTML: &str = "text/html; charset=UTF-8";

/// By which a browser says how the page that sends a request and this server are related.
const FETCH_SITE: &str = "sec-fetch-site";

/// Answers a request.
pub(crate) async fn answer(
    api: &Arc<Api>,
    (server, hooks): (&ApiServer, Option<&Hooks>),
    request: Request,
) -> Response {
    let headers = request.headers().clone();
    let mut response = match answered(api, (server, hooks), request).await {
        Ok(response) => response,
        Err(status) => error_page(status),
    };
    let origin = text(&headers, header::ORIGIN);
    let mut origins = server.cors_origin.iter().map(String::as_str);
    let allowed = origins.find(|allowed| *allowed == "*" || Some(*allowed) == origin);
    if let Some(Ok(origin)) = allowed.map(HeaderValue::from_str) {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
    response
}

/// Fires the event of a hook (`WebhookSaltAPIHandler` in stock's file).
async fn hook_answer(
    api: &Arc<Api>,
    (server, hooks): (&ApiServer, &Hooks),
    path: &str,
    request: Request,
) -> Result<Response, StatusCode> {
    if request.method() != Method::POST {
        return Err(StatusCode::METHOD_NOT_ALLOWED);
    }
    let from = peer(&request);
    let (parts, body) = request.into_parts();
    let content = whole_body(body, server.max_body).await;
    let content = content.ok_or(StatusCode::PAYLOAD_TOO_LARGE)?;
    let is_logged_in = match credential(&parts.headers) {
        Some(token) => api.is_good(&token).await.map_err(unchecked)?,
        None => false,
    };
    let with = (&**api, hooks, Reading::Tornado);
    let fired = hooks::answer(with, &parts, (from, path), &content, is_logged_in).await;
    match fired {
        Ok(fired) => {
            let value = Value::map([("success", fired)]);
            write(&parts.headers, StatusCode::OK, &value)
        }
        Err(HookFailure::Refused(HookRefusal::NotLoggedIn)) => Ok(redirect()),
        Err(failure) => Err(failure.status()),
    }
}

async fn answered(
    api: &Arc<Api>,
    (server, hooks): (&ApiServer, Option<&Hooks>),
    request: Request,
) -> Result<Response, StatusCode> {
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let headers = request.headers().clone();
    let from = peer(&request);
    let hook = hooks.zip(hooks::path_of(server, &path));
    if server.websockets && method == Method::GET {
        for (name, is_formatted) in [("all_events", false), ("formatted_events", true)] {
            if let Some(token) = events::socket_token(&path, name) {
                let (mut parts, _) = request.into_parts();
                return socket((api, server), (&mut parts, from), token, is_formatted).await;
            }
        }
    }
    if hook.is_none() && !is_page(&path) {
        return Err(StatusCode::NOT_FOUND);
    }
    if method == Method::OPTIONS {
        return Ok(preflight(&headers));
    }
    if path == "/events" && method == Method::GET {
        let (parts, _) = request.into_parts();
        return event_stream(api, &parts).await;
    }
    Form::first_named(&headers).ok_or(StatusCode::NOT_ACCEPTABLE)?;
    if let Some((hooks, path)) = hook {
        return hook_answer(api, (server, hooks), path, request).await;
    }
    let content = whole_body(request.into_body(), server.max_body).await;
    let content = content.ok_or(StatusCode::PAYLOAD_TOO_LARGE)?;
    let payload = match content.is_empty() {
        true => None,
        false => Some(read(&headers, &content)?),
    };
    let mut segments = path.trim_matches('/').splitn(2, '/');
    let page = segments.next().unwrap_or_default();
    let argument = segments
        .next()
        .map(body::decoded_path)
        .filter(|argument| !argument.is_empty());
    let token = credential(&headers);
    let is_proved = match &token {
        Some(token) => api.is_good(token).await.map_err(unchecked)?,
        None => false,
    };
    let token = token.as_ref().map(|token| token.as_str());
    let calls = Calls::new(api, from).without_silent();
    if method != Method::GET && method != Method::POST {
        return Err(StatusCode::METHOD_NOT_ALLOWED);
    }
    match (page, method == Method::GET) {
        ("" | "run", true) => {
            let clients = CLIENTS.iter().map(|client| Value::from(*client));
            let welcome = [
                ("clients", Value::Array(clients.collect())),
                ("return", "Welcome".into()),
            ];
            write(&headers, StatusCode::OK, &Value::map(welcome))
        }
        ("login", true) => {
            let value = [("status", "401 Unauthorized"), ("return", "Please log in")];
            let mut response = write(&headers, StatusCode::UNAUTHORIZED, &Value::map(value))?;
            let session = HeaderValue::from_static("Session");
            response
                .headers_mut()
                .insert(header::WWW_AUTHENTICATE, session);
            Ok(response)
        }
        ("login", false) => log_in(api, &calls, &headers, payload).await,
        ("run", false) => commands(&calls, &headers, chunks(payload)?, token).await,
        (_, false) | ("minions" | "jobs", true) if !is_proved => Ok(redirect()),
        ("" | "events", false) => commands(&calls, &headers, chunks(payload)?, token).await,
        ("minions", true) => {
            let tgt = argument.as_deref().unwrap_or("*");
            let chunk = Chunk::new([("client", "local"), ("tgt", tgt), ("fun", "grains.items")]);
            commands(&calls, &headers, vec![Some(chunk)], token).await
        }
        ("minions", false) => {
            let mut chunks = chunks(payload)?;
            for chunk in chunks.iter_mut().flatten() {
                match chunk.text("client") {
                    None => chunk.set("client", "local_async"),
                    Some("local_async") => {}
                    Some(_) => {
                        let text = "We don't serve your kind here";
                        return Ok(response(StatusCode::BAD_REQUEST, HTML, text));
                    }
                }
            }
            commands(&calls, &headers, chunks, token).await
        }
        ("jobs", true) => {
            let mut chunk = Chunk::new([("client", "runner"), ("fun", "jobs.list_jobs")]);
            if let Some(jid) = argument {
                chunk.set("fun", "jobs.list_job");
                chunk.set("jid", jid);
            }
            commands(&calls, &headers, vec![Some(chunk)], token).await
        }
        ("jobs", false) if argument.is_none() => {
            commands(&calls, &headers, chunks(payload)?, token).await
        }
        ("jobs", false) => Err(StatusCode::METHOD_NOT_ALLOWED),
        _ => Err(StatusCode::NOT_FOUND),
    }
}

/// Opens a websocket (`saltnado_websockets.py`).
async fn socket(
    (api, server): (&Arc<Api>, &ApiServer),
    (parts, from): (&mut Parts, SocketAddr),
    token: Option<String>,
    is_formatted: bool,
) -> Result<Response, StatusCode> {
    // Stock's pattern of the path takes hexadecimal digits only.
    let is_token = |text: &str| text.bytes().all(|digit| digit.is_ascii_hexdigit());
    if !token.as_deref().is_none_or(is_token) {
        return Err(StatusCode::NOT_FOUND);
    }
    let named = token.clone().map(Zeroizing::new);
    let named = named.or_else(|| credential(&parts.headers));
    let when_ready = named.filter(|_| is_formatted).map(|token| {
        let api = Arc::clone(api);
        let asked: BoxFuture<'static, ()> = Box::pin(ask_for_grains(api, from, token));
        asked
    });
    let request = SocketRequest {
        token: token.as_deref(),
        is_foreign: is_foreign(&parts.headers, server),
        is_formatted,
        when_ready,
    };
    let answer = events::socket(api, Dialect::Tornado, parts, request).await;
    let answer = answer.ok_or(StatusCode::NOT_FOUND)?;
    match answer.extensions().get() {
        Some(StreamRefusal::NotLoggedIn) => Err(StatusCode::UNAUTHORIZED),
        _ => Ok(answer),
    }
}

/// The job with which a stream of formatted events begins: it shows all minions. What the user may
/// not do, or the site has disabled, is not done.
async fn ask_for_grains(api: Arc<Api>, from: SocketAddr, token: Zeroizing<String>) {
    let mut chunk = Chunk::new([("client", "local"), ("tgt", "*"), ("fun", "grains.items")]);
    chunk.set("token", token.as_str());
    if let Err(error) = Calls::new(&api, from).run(chunk).await {
        tracing::debug!(%error, "a stream of formatted events begins without grains");
    }
}

/// Whether a page of another origin asks for a websocket, as Tornado decides it.
fn is_foreign(headers: &HeaderMap, server: &ApiServer) -> bool {
    let origin = text(headers, header::ORIGIN);
    let is_allowed = origin.is_some_and(|origin| {
        let mut origins = server.cors_origin.iter();
        origins.any(|allowed| allowed == "*" || allowed == origin)
    });
    match headers.get(FETCH_SITE).map(HeaderValue::as_bytes) {
        Some(b"same-origin" | b"none") => false,
        Some(_) => !is_allowed,
        None => {
            let host = text(headers, header::HOST).unwrap_or_default();
            let is_own = origin.is_none_or(|origin| {
                let origin = origin.split_once("://").map_or("", |(_, origin)| origin);
                origin.eq_ignore_ascii_case(host)
            });
            // An origin that is no text is none of ours.
            !is_own && !is_allowed || origin.is_none() && headers.contains_key(header::ORIGIN)
        }
    }
}

/// Whether a server of this dialect has a page of this path.
fn is_page(path: &str) -> bool {
    let pages = ["/", "/login", "/run", "/minions", "/jobs", "/events"];
    let with_argument = ["/minions/", "/jobs/"];
    pages.contains(&path) || with_argument.iter().any(|page| path.starts_with(page))
}

/// `GET /events`.
async fn event_stream(api: &Arc<Api>, parts: &Parts) -> Result<Response, StatusCode> {
    let answer = events::answer(api, Dialect::Tornado, parts).await;
    let answer = answer.ok_or(StatusCode::NOT_FOUND)?;
    match answer.extensions().get() {
        Some(StreamRefusal::NotLoggedIn) => Ok(redirect()),
        _ => Ok(answer),
    }
}

fn read(headers: &HeaderMap, content: &[u8]) -> Result<Value, StatusCode> {
    body::read(headers, content, Reading::Tornado).map_err(|error| match error {
        BodyError::ContentType => StatusCode::NOT_ACCEPTABLE,
        _ => StatusCode::BAD_REQUEST,
    })
}

/// The commands of a body; none in the place of what is no mapping.
fn chunks(payload: Option<Value>) -> Result<Vec<Option<Chunk>>, StatusCode> {
    let chunks = match payload {
        None => return Err(StatusCode::BAD_REQUEST),
        Some(Value::Array(chunks)) => chunks,
        Some(one) => vec![one],
    };
    let mut chunks: Vec<_> = chunks.into_iter().map(Chunk::of).collect();
    chunks.iter_mut().flatten().for_each(Chunk::list_arguments);
    Ok(chunks)
}

/// The name of a command's client, if it is one of these.
fn client(chunk: &Chunk) -> Option<&'static str> {
    let named = chunk.text("client")?;
    CLIENTS.iter().copied().find(|client| *client == named)
}

/// Takes what has no meaning in this dialect, and makes a time-out an argument of its runner.
fn as_in_this_dialect(chunk: &mut Chunk, client: &str) {
    if client.starts_with("local") {
        for name in ["full_return", "raw_shell"] {
            let _ = chunk.take(name);
        }
    } else if let Some(timeout) = chunk.take("timeout") {
        let mut kwarg = match chunk.take("kwarg") {
            Some(Value::Map(entries)) => entries,
            _ => Vec::new(),
        };
        kwarg.push(("timeout".into(), timeout));
        chunk.set("kwarg", Value::Map(kwarg));
    }
}

/// Stock's answer to a command of a client that it does not have.
fn unknown_client() -> Response {
    let text = "400 Invalid Client: Client not found in salt clients";
    response(StatusCode::BAD_REQUEST, HTML, text)
}

async fn commands(
    calls: &Calls<'_>,
    headers: &HeaderMap,
    chunks: Vec<Option<Chunk>>,
    token: Option<&str>,
) -> Result<Response, StatusCode> {
    let mut values = Vec::new();
    for chunk in chunks {
        let Some((mut chunk, client)) = chunk.and_then(|chunk| {
            let client = client(&chunk)?;
            Some((chunk, client))
        }) else {
            return Ok(unknown_client());
        };
        if let (Some(token), None) = (token, chunk.get("token")) {
            chunk.set("token", token);
        }
        as_in_this_dialect(&mut chunk, client);
        match calls.run(chunk).await {
            // Stock answers a target without minions with this sentence.
            Ok(answered) if client == "local" && answered.jid.is_none() => {
                let text = "No minions matched the target. No command was sent, no jid was \
                            assigned.";
                values.push(text.into());
            }
            Ok(answered) => values.extend(answered.values),
            Err(CallError::Refused(_)) => {
                values.push("Failed to authenticate".into());
                break;
            }
            Err(CallError::Busy(_)) => return Err(StatusCode::SERVICE_UNAVAILABLE),
            Err(CallError::Timeout) => values.push("Timeout waiting for runner to execute".into()),
            Err(error) => {
                values.push(format!("Unexpected exception while handling request: {error}").into());
            }
        }
    }
    let value = Value::map([("return", Value::Array(values))]);
    write(headers, StatusCode::OK, &value)
}

async fn log_in(
    api: &Api,
    calls: &Calls<'_>,
    headers: &HeaderMap,
    payload: Option<Value>,
) -> Result<Response, StatusCode> {
    let payload = payload.and_then(Chunk::of).ok_or(StatusCode::BAD_REQUEST)?;
    let mut load = Chunk::new([]);
    for name in ["username", "password", "eauth"] {
        let value = payload.get(name).ok_or(StatusCode::BAD_REQUEST)?;
        load.set(name, value.clone());
    }
    let token = match calls.log_in(load).await {
        Ok(token) => token.ok_or(StatusCode::UNAUTHORIZED)?,
        Err(CallError::Busy(_)) => return Err(StatusCode::SERVICE_UNAVAILABLE),
        Err(_) => return Err(StatusCode::INTERNAL_SERVER_ERROR),
    };
    let permissions = permissions(&token, api.config());
    let permissions = permissions.ok_or(StatusCode::INTERNAL_SERVER_ERROR)?;
    let part = |name: &str| token.get(name).cloned().unwrap_or_default();
    let record = Value::map([
        ("token", part("token")),
        ("expire", part("expire")),
        ("start", part("start")),
        ("user", part("name")),
        ("eauth", part("eauth")),
        ("perms", Value::Array(permissions)),
    ]);
    let value = Value::map([("return", Value::Array(vec![record]))]);
    let mut response = write(headers, StatusCode::OK, &value)?;
    let secret = token
        .get("token")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let cookie = format!("session_id={secret}; Path=/; HttpOnly; SameSite=Strict");
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

fn write(headers: &HeaderMap, status: StatusCode, value: &Value) -> Result<Response, StatusCode> {
    let form = Form::first_named(headers).ok_or(StatusCode::NOT_ACCEPTABLE)?;
    let body = form
        .write_short(value)
        .ok_or(StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(response(status, form.content_type(), body))
}

fn redirect() -> Response {
    let mut response = response(StatusCode::FOUND, HTML, Body::empty());
    let to = HeaderValue::from_static("/login");
    response.headers_mut().insert(header::LOCATION, to);
    response
}

fn preflight(headers: &HeaderMap) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let asked = text(headers, header::ACCESS_CONTROL_REQUEST_HEADERS).unwrap_or_default();
    let answer = response.headers_mut();
    if let Ok(asked) = HeaderValue::from_str(asked) {
        answer.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, asked);
    }
    let fixed = [
        (header::ACCESS_CONTROL_EXPOSE_HEADERS, "X-Auth-Token"),
        (header::ACCESS_CONTROL_ALLOW_METHODS, "OPTIONS, GET, POST"),
    ];
    for (name, value) in fixed {
        answer.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// A token that cannot be looked at is neither good nor bad.
fn unchecked(_: UncheckedToken) -> StatusCode {
    StatusCode::SERVICE_UNAVAILABLE
}

/// Tornado's page for an error.
fn error_page(status: StatusCode) -> Response {
    let title = format!(
        "{}: {}",
        status.as_u16(),
        status.canonical_reason().unwrap_or("Unknown")
    );
    let page = format!("<html><title>{title}</title><body>{title}</body></html>");
    let mut response = response(status, HTML, page);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        let retry = HeaderValue::from_static("1");
        response.headers_mut().insert(header::RETRY_AFTER, retry);
    }
    response
}
