//! The dialect of rest_cherrypy (`salt/netapi/rest_cherrypy/app.py`): its pages, status codes, and
//! CherryPy's own page for errors.
//!
//! Here a request finds its page; what the page does is in `handlers`, how it is answered in `reply`.

mod handlers;
mod page;
mod reply;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use saltern_base::form_pairs;
use saltern_config::ApiServer;
use saltern_http::Peer;
use saltern_wire::msgpack::Value;
use zeroize::Zeroizing;

pub(crate) use handlers::may_use_api;

use crate::answer::{accepted, response, text};
use crate::api::{Api, TOKEN_HEADER, cookie, peer, whole_body};
use crate::body::{self, Reading};
use crate::events;
use crate::files::{self, SiteFile};
use crate::hook::Hooks;
use crate::hooks;
use crate::low_data::Calls;
use crate::stream::{Dialect, SocketRequest, StreamRefusal};
use handlers::Asked;
use page::Page;
use reply::{Done, Failure, Outcome, error_page, finish};

/// By which a browser says how the page that sends a request and this server are related.
const FETCH_SITE: &str = "sec-fetch-site";

/// The parameter of a websocket that asks for formatted events.
const FORMAT: &str = "format_events";

/// Why a cookie alone is not enough.
const FOREIGN: &str = "A request from another origin needs the header X-Auth-Token.";

/// Answers a request.
pub(crate) async fn answer(
    api: &Arc<Api>,
    (server, hooks): (&ApiServer, Option<&Hooks>),
    request: Request,
) -> Response {
    let headers = request.headers().clone();
    let method = request.method().clone();
    let path = request.uri().path().to_owned();
    let (mut response, page) = match is_for_app(server, &headers, &path) {
        true => (site_file(server.app.clone()).await, None),
        false => resolved(api, (server, hooks), request).await,
    };
    let answer = response.headers_mut();
    let origin = headers.get(header::ORIGIN).cloned();
    let origin = origin.unwrap_or(HeaderValue::from_static("*"));
    answer.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    let fixed = [
        (header::ACCESS_CONTROL_EXPOSE_HEADERS, "GET, POST"),
        (header::ACCESS_CONTROL_ALLOW_CREDENTIALS, "true"),
    ];
    for (name, value) in fixed {
        answer.insert(name, HeaderValue::from_static(value));
    }
    if let Some(page) = page {
        answer.insert(header::ALLOW, HeaderValue::from_static(page.allowed()));
    }
    if method == Method::OPTIONS {
        preflight(&headers, answer);
    }
    response
}

/// A browser asks whether it may send a request to another origin.
fn preflight(asked: &HeaderMap, answer: &mut HeaderMap) {
    let method = text(asked, header::ACCESS_CONTROL_REQUEST_METHOD);
    if matches!(method, Some("GET" | "POST")) {
        let fixed = [
            (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST"),
            (
                header::ACCESS_CONTROL_ALLOW_HEADERS,
                "Content-Type, X-Auth-Token, X-Requested-With",
            ),
            (header::ACCESS_CONTROL_MAX_AGE, "1400"),
        ];
        for (name, value) in fixed {
            answer.insert(name, HeaderValue::from_static(value));
        }
    }
}

/// Whether a browser asks for a page of the site's own application.
fn is_for_app(server: &ApiServer, headers: &HeaderMap, path: &str) -> bool {
    let accept = text(headers, header::ACCEPT);
    server.app.is_some()
        && !path.starts_with(&server.app_path)
        && !path.starts_with(&server.static_path)
        && accept != Some("*/*")
        && accepted(accept, &["text/html"]).is_some()
}

async fn site_file(path: Option<std::path::PathBuf>) -> Response {
    let file = match path {
        Some(path) => files::named(path).await,
        None => Ok(None),
    };
    served(file)
}

fn served(file: io::Result<Option<SiteFile>>) -> Response {
    let status = match file {
        Ok(Some(file)) => return response(StatusCode::OK, file.content_type, file.content),
        Ok(None) => StatusCode::NOT_FOUND,
        Err(error) => match error.kind() {
            io::ErrorKind::WouldBlock => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        },
    };
    error_page(&status.into())
}

async fn resolved(
    api: &Arc<Api>,
    (server, hooks): (&ApiServer, Option<&Hooks>),
    request: Request,
) -> (Response, Option<Page>) {
    let path = request.uri().path().to_owned();
    let is_read = [Method::GET, Method::HEAD].contains(request.method());
    if let (Some(dir), true) = (&server.static_dir, is_read)
        && let Some(rest) = path.strip_prefix(server.static_path.as_str())
    {
        return (
            served(files::below(dir, &body::decoded_path(rest)).await),
            None,
        );
    }
    if path == "/favicon.ico" && server.favicon.is_some() && is_read {
        return (site_file(server.favicon.clone()).await, None);
    }
    if server.enable_sessions
        && path.trim_end_matches('/') == "/events"
        && request.method() != Method::OPTIONS
    {
        let is_get = request.method() == Method::GET;
        let (parts, _) = request.into_parts();
        let answer = match is_get {
            true => event_stream((api, server), &parts).await,
            false => Err(StatusCode::METHOD_NOT_ALLOWED.into()),
        };
        let answer = answer.unwrap_or_else(|failure| error_page(&failure));
        return (allowing(answer, "GET, HEAD"), None);
    }
    if server.enable_sessions
        && request.method() == Method::GET
        && let Some(token) = events::socket_token(&path, "ws")
    {
        let (mut parts, _) = request.into_parts();
        let answer = socket((api, server), &mut parts, token).await;
        return (answer.unwrap_or_else(|failure| error_page(&failure)), None);
    }
    if let (Some(hooks), Some(hook)) = (hooks, hooks::path_of(server, &path))
        && request.method() != Method::OPTIONS
    {
        let headers = request.headers().clone();
        let is_private = !server.webhook_disable_auth && api.session_token(&headers).is_some();
        let done = hook_answer(api, (server, hooks), hook, request).await;
        let answer = allowing(finish(&headers, done), "POST");
        return (only_for_session(answer, is_private), None);
    }
    let mut segments = path.trim_matches('/').split('/');
    let page = Page::named(segments.next().unwrap_or_default(), server);
    if request.method() == Method::OPTIONS {
        return (response(StatusCode::OK, "text/html", Body::empty()), page);
    }
    let Some(page) = page else {
        let message = format!("The path '{path}' was not found.");
        return (
            error_page(&Failure::new(StatusCode::NOT_FOUND, message)),
            None,
        );
    };
    let segments: Vec<String> = segments.map(body::decoded_path).collect();
    let headers = request.headers().clone();
    let takes_session =
        page.needs_session(server) || (page == Page::Index && request.method() == Method::POST);
    let token = api.session_token(&headers);
    let is_private = takes_session && token.is_some();
    let done = match takes_session && token.is_none() {
        true => Err(StatusCode::UNAUTHORIZED.into()),
        false => page_answer(page, (api, server), (request, token), segments).await,
    };
    let response = only_for_session(finish(&headers, done), is_private);
    (response, Some(page))
}

/// Keeps caches between from holding what one session has got.
fn only_for_session(mut response: Response, is_private: bool) -> Response {
    if is_private {
        let private = HeaderValue::from_static("private");
        response
            .headers_mut()
            .insert(header::CACHE_CONTROL, private);
    }
    response
}

/// With the methods of a page that is none of [`Page`].
fn allowing(mut response: Response, methods: &'static str) -> Response {
    let methods = HeaderValue::from_static(methods);
    response.headers_mut().insert(header::ALLOW, methods);
    response
}

/// Refuses an address that `authorized_ips` does not name.
fn check_address(server: &ApiServer, from: Option<SocketAddr>) -> Result<(), Failure> {
    let authorized = &server.authorized_ips;
    let address = from.map(|from| from.ip().to_canonical().to_string());
    match authorized.is_empty() || address.is_some_and(|address| authorized.contains(&address)) {
        true => Ok(()),
        false => Err(Failure::new(StatusCode::FORBIDDEN, "Bad IP")),
    }
}

/// `GET /events`.
async fn event_stream(
    (api, server): (&Arc<Api>, &ApiServer),
    parts: &Parts,
) -> Result<Response, Failure> {
    if is_foreign(&parts.headers, server) {
        return Err(Failure::new(StatusCode::FORBIDDEN, FOREIGN));
    }
    let from = parts.extensions.get::<Peer>();
    check_address(server, from.map(|peer| peer.0))?;
    let answer = events::answer(api, Dialect::Cherrypy, parts).await;
    stream_answer(answer)
}

fn stream_answer(answer: Option<Response>) -> Result<Response, Failure> {
    let answer = answer.ok_or(StatusCode::NOT_FOUND)?;
    match answer.extensions().get() {
        // CherryPy's own sentence.
        Some(StreamRefusal::NotLoggedIn) => Err(StatusCode::UNAUTHORIZED.into()),
        Some(refusal) => Err(Failure::new(answer.status(), refusal.to_string())),
        None => Ok(answer),
    }
}

/// `GET /ws` and `/ws/<session>`. With the session in the path a page needs no cookie, so it may be
/// of any origin.
async fn socket(
    (api, server): (&Arc<Api>, &ApiServer),
    parts: &mut Parts,
    token: Option<String>,
) -> Result<Response, Failure> {
    if token.is_none() && is_foreign(&parts.headers, server) {
        return Err(Failure::new(StatusCode::FORBIDDEN, FOREIGN));
    }
    let from = parts.extensions.get::<Peer>();
    check_address(server, from.map(|peer| peer.0))?;
    let query = parts.uri.query().unwrap_or_default().split('&');
    let mut names = query.map(|pair| pair.split_once('=').map_or(pair, |(name, _)| name));
    let request = SocketRequest {
        token: token.as_deref(),
        is_foreign: false,
        is_formatted: names.any(|name| name == FORMAT),
        when_ready: None,
    };
    let answer = events::socket(api, Dialect::Cherrypy, parts, request).await;
    stream_answer(answer)
}

async fn page_answer(
    page: Page,
    (api, server): (&Arc<Api>, &ApiServer),
    (request, token): (Request, Option<Zeroizing<String>>),
    segments: Vec<String>,
) -> Result<Outcome, Failure> {
    let method = request.method().clone();
    let is_read = [Method::GET, Method::HEAD].contains(&method);
    let (from, query) = (peer(&request), request.uri().query().map(str::to_owned));
    let (parts, content) = request.into_parts();
    let headers = parts.headers;
    if token.is_some() && is_foreign(&headers, server) {
        return Err(Failure::new(StatusCode::FORBIDDEN, FOREIGN));
    }
    let has_body = [Method::POST, Method::PUT, Method::PATCH].contains(&method);
    let body = match has_body {
        false => None,
        true => {
            let content = whole_body(content, server.max_body).await;
            let content = content.ok_or(StatusCode::PAYLOAD_TOO_LARGE)?;
            read_body(&headers, &content)?
        }
    };
    check_address(server, Some(from))?;
    if !page
        .allowed()
        .split(", ")
        .any(|allowed| allowed == method.as_str())
    {
        return Err(StatusCode::METHOD_NOT_ALLOWED.into());
    }
    if segments.len() > page.segments(is_read) {
        return Err(StatusCode::NOT_FOUND.into());
    }
    let argument = segments
        .into_iter()
        .next()
        .filter(|segment| !segment.is_empty());
    let argument = match is_read && page != Page::App {
        true => with_query(page, argument, query.as_deref())?,
        false => argument,
    };
    let asked = Asked {
        api,
        server,
        calls: Calls::new(api, from),
        from,
        headers,
        token,
        body,
        argument,
    };
    asked.answer(page, is_read).await
}

/// Whether a page of another origin sent the request with nothing but the cookie.
fn is_foreign(headers: &HeaderMap, server: &ApiServer) -> bool {
    if headers.contains_key(TOKEN_HEADER) || cookie(headers).is_none() {
        return false;
    }
    // A browser that names no origin says by this header where the page is from.
    let Some(origin) = headers.get(header::ORIGIN) else {
        return headers
            .get(FETCH_SITE)
            .is_some_and(|site| site == "cross-site");
    };
    let Ok(origin) = origin.to_str() else {
        return true;
    };
    let host = text(headers, header::HOST).unwrap_or_default();
    let own = origin
        .split_once("://")
        .is_some_and(|(_, origin)| origin == host);
    !own && !server.cors_origin.iter().any(|allowed| allowed == origin)
}

fn read_body(headers: &HeaderMap, content: &[u8]) -> Result<Option<Value>, Failure> {
    if content.is_empty() {
        return Ok(None);
    }
    let value = body::read(headers, content, Reading::CherryPy).map_err(|error| {
        let status = match error {
            body::BodyError::ContentType => StatusCode::NOT_ACCEPTABLE,
            _ => StatusCode::BAD_REQUEST,
        };
        Failure::new(status, error.to_string())
    })?;
    Ok(Some(value))
}

/// Fires the event of a hook (`Webhook` in stock's file).
async fn hook_answer(
    api: &Arc<Api>,
    (server, hooks): (&ApiServer, &Hooks),
    path: &str,
    request: Request,
) -> Result<Outcome, Failure> {
    if request.method() != Method::POST {
        return Err(StatusCode::METHOD_NOT_ALLOWED.into());
    }
    let from = peer(&request);
    check_address(server, Some(from))?;
    let (parts, body) = request.into_parts();
    let content = whole_body(body, server.max_body).await;
    let content = content.ok_or(StatusCode::PAYLOAD_TOO_LARGE)?;
    let token = match is_foreign(&parts.headers, server) {
        true => None,
        false => api.session_token(&parts.headers),
    };
    let is_logged_in = match token {
        Some(token) => api.is_good(&token).await?,
        None => false,
    };
    let with = (&**api, hooks, Reading::CherryPy);
    let fired = hooks::answer(with, &parts, (from, path), &content, is_logged_in).await;
    match fired {
        Ok(fired) => Ok(Outcome::Value(Done::of(Value::map([("success", fired)])))),
        // CherryPy's own sentence.
        Err(failure) if failure.status() == StatusCode::UNAUTHORIZED => {
            Err(StatusCode::UNAUTHORIZED.into())
        }
        Err(failure) => Err(Failure::new(failure.status(), failure.message())),
    }
}

/// The argument of a page that reads, from its path or from the query. Other parameters are
/// refused, as CherryPy does.
fn with_query(
    page: Page,
    argument: Option<String>,
    query: Option<&str>,
) -> Result<Option<String>, Failure> {
    let mut argument = argument;
    for (name, value) in form_pairs(query.unwrap_or_default()) {
        let known = page.parameters().iter().position(|known| *known == name);
        match known {
            Some(0) if argument.is_none() => argument = Some(value),
            Some(0) | None => return Err(StatusCode::NOT_FOUND.into()),
            Some(_) => {}
        }
    }
    Ok(argument.filter(|argument| !argument.is_empty()))
}

#[cfg(test)]
mod tests;
