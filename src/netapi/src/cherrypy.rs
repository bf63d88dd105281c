//! The dialect of rest_cherrypy (`salt/netapi/rest_cherrypy/app.py`): its pages, status codes, and
//! CherryPy's own page for errors.
//!
//! Longer than 500 lines because it is the whole of one contract: each page is a few lines.

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

use crate::answer::{Form, accepted, form, response, text};
use crate::api::{Api, TOKEN_HEADER, cookie, credential, peer, whole_body};
use crate::body::{self, Reading};
use crate::events;
use crate::files::{self, SiteFile};
use crate::hook::Hooks;
use crate::hooks;
use crate::low_data::{Answered, CLIENTS, CallError, Calls, Chunk};
use crate::permissions::permissions;
use crate::stream::{Dialect, SocketRequest, StreamRefusal};

/// The content type of the page for errors.
const HTML: &str = "text/html;charset=utf-8";

/// The header with the id of the job of an answer.
const JID_HEADER: &str = "x-saltern-jid";

/// By which a browser says how the page that sends a request and this server are related.
const FETCH_SITE: &str = "sec-fetch-site";

/// Seconds after which a client that found no room tries again.
const RETRY_AFTER: &str = "1";

/// The parameter of a websocket that asks for formatted events.
const FORMAT: &str = "format_events";

/// Why a cookie alone is not enough.
const FOREIGN: &str = "A request from another origin needs the header X-Auth-Token.";

/// A page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Page {
    Index,
    Login,
    Logout,
    Token,
    Minions,
    Run,
    Jobs,
    Keys,
    Stats,
    App,
}

impl Page {
    fn named(name: &str, server: &ApiServer) -> Option<Self> {
        let page = match name {
            "" | "index" => Self::Index,
            "login" => Self::Login,
            "logout" => Self::Logout,
            "token" => Self::Token,
            "minions" => Self::Minions,
            "run" => Self::Run,
            "jobs" => Self::Jobs,
            "keys" => Self::Keys,
            "stats" => Self::Stats,
            name if name == server.app_path.trim_start_matches('/') => Self::App,
            _ => return None,
        };
        let of_sessions = [Self::Login, Self::Logout, Self::Minions, Self::Jobs];
        (server.enable_sessions || !of_sessions.contains(&page)).then_some(page)
    }

    /// Its methods, as the header `Allow` names them.
    fn allowed(self) -> &'static str {
        match self {
            Self::Stats | Self::App => "GET, HEAD",
            // Each has both: what a page lacks it has from the index.
            _ => "GET, HEAD, POST",
        }
    }

    /// Whether it takes a session whatever the method.
    fn needs_session(self, server: &ApiServer) -> bool {
        match self {
            Self::Minions | Self::Jobs | Self::Logout => true,
            Self::Stats => !server.stats_disable_auth,
            _ => false,
        }
    }

    /// The most path segments behind its name.
    fn segments(self, is_read: bool) -> usize {
        match self {
            Self::Minions | Self::Jobs | Self::Keys if is_read => 1,
            Self::App => usize::MAX,
            _ => 0,
        }
    }

    /// The name of the parameter that stands in the path.
    fn parameters(self) -> &'static [&'static str] {
        match self {
            Self::Minions | Self::Keys => &["mid"],
            Self::Jobs => &["jid", "timeout"],
            _ => &[],
        }
    }
}

/// Why a request has another answer.
#[derive(Debug)]
struct Failure {
    status: StatusCode,
    /// CherryPy's own sentence for the status when absent.
    message: Option<String>,
    /// As an object, not as a page.
    is_object: bool,
}

impl From<StatusCode> for Failure {
    fn from(status: StatusCode) -> Self {
        Self {
            status,
            message: None,
            is_object: false,
        }
    }
}

impl Failure {
    fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            message: Some(message.into()),
            ..status.into()
        }
    }

    fn no_mapping() -> Self {
        Self::new(StatusCode::BAD_REQUEST, "A command is a mapping")
    }

    /// Stock's answer to what it did not expect.
    fn unexpected() -> Self {
        Self {
            is_object: true,
            ..StatusCode::INTERNAL_SERVER_ERROR.into()
        }
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Refused(text) | CallError::TokenRefused(text) => {
                Self::new(StatusCode::UNAUTHORIZED, text)
            }
            CallError::Malformed(text) => Self::new(StatusCode::BAD_REQUEST, text),
            CallError::Busy(text) => Self::new(StatusCode::SERVICE_UNAVAILABLE, text),
            CallError::Timeout => StatusCode::GATEWAY_TIMEOUT.into(),
            CallError::Unsupported(text) => Self {
                message: Some(text),
                ..Self::unexpected()
            },
            CallError::Failed(text) => {
                tracing::warn!(error = text, "a call of the API failed");
                Self::unexpected()
            }
        }
    }
}

/// Result of a handler.
#[derive(Debug, Default)]
struct Done {
    value: Value,
    status: Option<StatusCode>,
    headers: HeaderMap,
}

impl Done {
    fn of(value: Value) -> Self {
        Self {
            value,
            ..Self::default()
        }
    }

    /// The values of commands under `return`, and the ids of their jobs in the header.
    fn of_calls(answered: Answers) -> Self {
        let mut done = Self::of(returned(Value::Array(answered.values)));
        done.headers = answered.jids;
        done
    }

    fn header(&mut self, name: &'static str, value: &str) {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.append(name, value);
        }
    }
}

/// The answers of several commands.
#[derive(Debug, Default)]
struct Answers {
    values: Vec<Value>,
    jids: HeaderMap,
}

impl Answers {
    fn add(&mut self, answered: Answered) {
        self.values.extend(answered.values);
        let jid = answered
            .jid
            .and_then(|jid| HeaderValue::from_str(&jid).ok());
        if let Some(jid) = jid {
            self.jids.append(JID_HEADER, jid);
        }
    }

    fn first(self) -> (Value, HeaderMap) {
        (
            self.values.into_iter().next().unwrap_or_default(),
            self.jids,
        )
    }
}

fn returned(value: Value) -> Value {
    Value::map([("return", value)])
}

/// A request as the pages see it.
struct Asked<'a> {
    api: &'a Arc<Api>,
    server: &'a ApiServer,
    calls: Calls<'a>,
    from: SocketAddr,
    headers: HeaderMap,
    /// The token of its session.
    token: Option<Zeroizing<String>>,
    /// The value of its body; none of a request that reads, or of an empty body.
    body: Option<Value>,
    /// The path behind the page's name, or the parameter of its name.
    argument: Option<String>,
}

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
        None => None,
    };
    served(file)
}

fn served(file: Option<SiteFile>) -> Response {
    match file {
        Some(file) => response(StatusCode::OK, file.content_type, file.content),
        None => error_page(&StatusCode::NOT_FOUND.into()),
    }
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
        Some(token) => api.is_good(&token).await,
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

/// The answer of a page: a value in the form that the client accepts, or a response of its own.
enum Outcome {
    Value(Done),
    Response(Response),
}

impl Asked<'_> {
    async fn answer(self, page: Page, is_read: bool) -> Result<Outcome, Failure> {
        let done = match (page, is_read) {
            (Page::Index | Page::Logout | Page::Token | Page::Run, true) => welcome(),
            (Page::Index | Page::Jobs, false) => {
                let token = self.token.clone();
                Done::of_calls(self.commands(None, token.as_deref()).await?)
            }
            (Page::Login, true) => please_log_in(),
            (Page::Login, false) => self.log_in().await?,
            (Page::Logout, false) => self.log_out().await,
            (Page::Token, false) => self.make_tokens().await?,
            (Page::Run, false) => Done::of_calls(self.commands(None, None).await?),
            (Page::Minions, true) => self.minions().await?,
            (Page::Minions, false) => self.begin_jobs().await?,
            (Page::Jobs, true) => self.jobs().await?,
            (Page::Keys, true) => self.keys().await?,
            (Page::Keys, false) => return self.make_keys().await.map(Outcome::Response),
            (Page::Stats, _) => Done::of(Value::Map(Vec::new())),
            (Page::App, _) => {
                return Ok(Outcome::Response(site_file(self.server.app.clone()).await));
            }
        };
        Ok(Outcome::Value(done))
    }

    /// The commands of the body: a list, or one.
    fn low_state(&self) -> Result<Vec<Value>, Failure> {
        match &self.body {
            Some(Value::Array(chunks)) => Ok(chunks.clone()),
            Some(one) if one.as_map().is_some_and(|entries| !entries.is_empty()) => {
                Ok(vec![one.clone()])
            }
            _ => {
                let message = "Lowstates must be a list";
                Err(Failure::new(StatusCode::BAD_REQUEST, message))
            }
        }
    }

    async fn commands(
        &self,
        client: Option<&str>,
        token: Option<&String>,
    ) -> Result<Answers, Failure> {
        let chunks = self.low_state()?;
        let chunks = chunks.into_iter().map(Chunk::of);
        self.run(chunks, client, token).await
    }

    /// Runs commands, one after the other, until one fails.
    async fn run(
        &self,
        chunks: impl Iterator<Item = Option<Chunk>> + Send,
        client: Option<&str>,
        token: Option<&String>,
    ) -> Result<Answers, Failure> {
        let mut answers = Answers::default();
        for chunk in chunks {
            let mut chunk = chunk.ok_or_else(Failure::no_mapping)?;
            if let Some(token) = token {
                chunk.set("token", token.as_str());
            }
            if !chunk.has_usable_token() {
                return Err(Failure::new(StatusCode::UNAUTHORIZED, "Invalid token"));
            }
            if let Some(client) = client {
                chunk.set("client", client);
            }
            chunk.list_arguments();
            answers.add(self.calls.run(chunk).await?);
        }
        Ok(answers)
    }

    /// Runs one command with the token of the session.
    async fn one(&self, chunk: Chunk) -> Result<(Value, HeaderMap), Failure> {
        let token = self.token.clone();
        let answers = self
            .run([Some(chunk)].into_iter(), None, token.as_deref())
            .await?;
        Ok(answers.first())
    }

    async fn minions(&self) -> Result<Done, Failure> {
        let tgt = self.argument.as_deref().unwrap_or("*");
        let chunk = Chunk::new([("client", "local"), ("tgt", tgt), ("fun", "grains.items")]);
        let (value, headers) = self.one(chunk).await?;
        Ok(Done {
            headers,
            ..Done::of(returned(Value::Array(vec![value])))
        })
    }

    async fn begin_jobs(&self) -> Result<Done, Failure> {
        let token = self.token.clone();
        let answers = self.commands(Some("local_async"), token.as_deref()).await?;
        let jids = answers.values.iter();
        let jids = jids.filter_map(|job| job.get("jid").and_then(Value::as_str));
        let links = jids.map(|jid| Value::map([("href", format!("/jobs/{jid}"))]));
        let links = Value::map([("jobs", Value::Array(links.collect()))]);
        let value = [("return", Value::Array(answers.values)), ("_links", links)];
        Ok(Done {
            value: Value::map(value),
            status: Some(StatusCode::ACCEPTED),
            headers: answers.jids,
        })
    }

    async fn jobs(&self) -> Result<Done, Failure> {
        let Some(jid) = self.argument.as_deref() else {
            let chunk = Chunk::new([("client", "runner"), ("fun", "jobs.list_jobs")]);
            let (jobs, _) = self.one(chunk).await?;
            return Ok(Done::of(returned(Value::Array(vec![jobs]))));
        };
        let fun = "jobs.list_job";
        let chunk = Chunk::new([("client", "runner"), ("fun", fun), ("jid", jid)]);
        let (job, _) = self.one(chunk).await?;
        let results = job.get("Result").and_then(Value::as_map);
        let results = results.ok_or_else(Failure::unexpected)?.iter();
        let returns: Value = results
            .map(|(id, result)| {
                (
                    id.clone(),
                    result.get("return").cloned().unwrap_or_default(),
                )
            })
            .collect();
        let value = [
            ("info", Value::Array(vec![job])),
            ("return", Value::Array(vec![returns])),
        ];
        Ok(Done::of(Value::map(value)))
    }

    async fn keys(&self) -> Result<Done, Failure> {
        let chunk = match self.argument.as_deref() {
            None => Chunk::new([("client", "wheel"), ("fun", "key.list_all")]),
            Some(id) => Chunk::new([("client", "wheel"), ("fun", "key.finger"), ("match", id)]),
        };
        let (answer, _) = self.one(chunk).await?;
        let value = answer.get("data").and_then(|data| data.get("return"));
        Ok(Done::of(returned(
            value.cloned().unwrap_or(Value::Map(Vec::new())),
        )))
    }

    /// Makes a key pair, accepts its public half, and answers with an archive of both.
    async fn make_keys(&self) -> Result<Response, Failure> {
        let chunk = self.low_state()?.into_iter().next().and_then(Chunk::of);
        let mut chunk = chunk.ok_or_else(Failure::no_mapping)?;
        chunk.set("client", "wheel");
        chunk.set("fun", "key.gen_accept");
        if let Some(id) = chunk.take("mid") {
            chunk.set("id_", id);
        }
        let id = chunk.text("id_").map(str::to_owned);
        let id = id.ok_or_else(|| Failure::new(StatusCode::BAD_REQUEST, "'mid' is missing"))?;
        let answers = self.run([Some(chunk)].into_iter(), None, None).await?;
        let (answer, _) = answers.first();
        let pair = answer.get("data").and_then(|data| data.get("return"));
        let half = |name| {
            let text = pair.and_then(|pair| pair.get(name)).and_then(Value::as_str);
            text.unwrap_or_default().to_owned()
        };
        let files = [("minion.pub", half("pub")), ("minion.pem", half("priv"))];
        let mut response = response(StatusCode::OK, "application/x-tar", archive(&files));
        let headers = response.headers_mut();
        let name = format!("attachment; filename=\"saltkeys-{id}.tar\"");
        if let Ok(name) = HeaderValue::from_str(&name) {
            headers.insert(header::CONTENT_DISPOSITION, name);
        }
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        Ok(response)
    }

    async fn make_tokens(&self) -> Result<Done, Failure> {
        let mut chunks = Vec::new();
        for chunk in self.low_state()? {
            let mut chunk = Chunk::of(chunk).ok_or_else(Failure::no_mapping)?;
            let names = ["username", "password", "eauth"];
            let kwarg = names.map(|name| Some((Value::from(name), chunk.get(name)?.clone())));
            let kwarg: Option<Vec<_>> = kwarg.into_iter().collect();
            let message = "Require \"username\", \"password\", and \"eauth\" params";
            let kwarg = kwarg.ok_or_else(|| Failure::new(StatusCode::BAD_REQUEST, message))?;
            chunk.set("client", "runner");
            chunk.set("fun", "auth.mk_token");
            chunk.set("kwarg", Value::Map(kwarg));
            chunks.push(Some(chunk));
        }
        let answers = self.run(chunks.into_iter(), None, None).await?;
        Ok(Done::of(Value::Array(answers.values)))
    }

    async fn log_in(&self) -> Result<Done, Failure> {
        let first = match &self.body {
            Some(Value::Array(chunks)) => chunks.first().cloned(),
            other => other.clone(),
        };
        let load = first.and_then(Chunk::of).ok_or_else(|| {
            let message = "Name, password and eauth are expected";
            Failure::new(StatusCode::BAD_REQUEST, message)
        })?;
        let user = load.text("username").unwrap_or_default();
        if !may_use_api(self.server, user, self.from) {
            return Err(StatusCode::UNAUTHORIZED.into());
        }
        let token = self.calls.log_in(load).await?.ok_or_else(|| {
            let message = "Could not authenticate using provided credentials";
            Failure::new(StatusCode::UNAUTHORIZED, message)
        })?;
        let text = |name: &str| token.get(name).and_then(Value::as_str).unwrap_or_default();
        let expire = token
            .get("expire")
            .and_then(Value::as_f64)
            .unwrap_or_default();
        let (sessions, secret) = (self.api.sessions().clone(), text("token").to_owned());
        let secret = Zeroizing::new(secret);
        let made = tokio::task::spawn_blocking(move || sessions.create(&secret, expire)).await;
        let session = made.map_err(|_| Failure::unexpected())?.map_err(|error| {
            tracing::error!(%error, "a session of the API cannot be kept");
            let message = "The session cannot be kept; try again later.";
            Failure::new(StatusCode::SERVICE_UNAVAILABLE, message)
        })?;
        let part = |name: &str| token.get(name).cloned().unwrap_or_default();
        let permissions = permissions(&token, self.api.config());
        let permissions = permissions.filter(|permissions| !permissions.is_empty());
        let nothing = Value::Map(Vec::new());
        let record = Value::map([
            ("token", Value::from(session.as_str())),
            ("expire", part("expire")),
            ("start", part("start")),
            ("user", part("name")),
            ("eauth", part("eauth")),
            ("perms", permissions.map_or(nothing, Value::Array)),
        ]);
        let mut done = Done::of(returned(Value::Array(vec![record])));
        done.header(TOKEN_HEADER, &session);
        let secure = if self.server.tls.is_some() {
            "; Secure"
        } else {
            ""
        };
        let cookie = format!(
            "session_id={}; Path=/; HttpOnly; SameSite=Strict{secure}",
            session.as_str()
        );
        done.header("set-cookie", &cookie);
        Ok(done)
    }

    async fn log_out(&self) -> Done {
        let id = credential(&self.headers).unwrap_or_default();
        let api = Arc::clone(self.api);
        let ended = tokio::task::spawn_blocking(move || api.log_out(&id));
        if ended.await.is_err() {
            tracing::error!("a session of the API was not ended");
        }
        let mut done = Done::of(returned("Your token has been cleared".into()));
        done.header("set-cookie", "session_id=; Path=/; Max-Age=0");
        done
    }
}

fn welcome() -> Done {
    let clients = CLIENTS.iter().map(|client| Value::from(*client));
    let value = [
        ("return", Value::from("Welcome")),
        ("clients", Value::Array(clients.collect())),
    ];
    Done::of(Value::map(value))
}

fn please_log_in() -> Done {
    let value = [("status", Value::Nil), ("return", "Please log in".into())];
    let mut done = Done::of(Value::map(value));
    done.header("www-authenticate", "Session");
    done
}

/// Whether a user may log in from this address (`api_acl`).
pub(crate) fn may_use_api(server: &ApiServer, user: &str, from: std::net::SocketAddr) -> bool {
    let Some(users) = &server.api_acl else {
        return true;
    };
    let of = |name: &str| users.iter().find(|(user, _)| user == name);
    let address = from.ip().to_canonical().to_string();
    of(user).or_else(|| of("*")).is_some_and(|(_, addresses)| {
        addresses
            .iter()
            .any(|allowed| allowed == "*" || *allowed == address)
    })
}

/// An archive of texts, as Python's `tarfile` makes it.
fn archive(files: &[(&str, String)]) -> Vec<u8> {
    const BLOCK: usize = 512;
    const RECORD: usize = 10_240;
    let mut archive = Vec::new();
    for (name, text) in files {
        let mut head = Vec::with_capacity(BLOCK);
        let field = |head: &mut Vec<u8>, text: &str, length: usize| {
            let end = head.len() + length;
            head.extend(text.bytes().take(length));
            head.resize(end, 0);
        };
        field(&mut head, name, 100);
        field(&mut head, "0000644", 8);
        field(&mut head, "0000000", 8);
        field(&mut head, "0000000", 8);
        field(&mut head, &format!("{:011o}", text.len()), 12);
        field(&mut head, "00000000000", 12);
        let before = head.len();
        field(&mut head, "        ", 8);
        field(&mut head, "0", 1);
        field(&mut head, "", 100);
        field(&mut head, "ustar\x0000", 8);
        field(&mut head, "", 247);
        let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
        let sum = format!("{sum:06o}\0 ");
        for (place, byte) in head.iter_mut().skip(before).zip(sum.bytes()) {
            *place = byte;
        }
        archive.extend(head);
        archive.extend(text.bytes());
        archive.resize(archive.len().next_multiple_of(BLOCK), 0);
    }
    archive.resize((archive.len() + 2 * BLOCK).next_multiple_of(RECORD), 0);
    archive
}

/// The response of a page, in the form that the client accepts.
fn finish(headers: &HeaderMap, done: Result<Outcome, Failure>) -> Response {
    let done = match done {
        Ok(Outcome::Response(response)) => return response,
        Ok(Outcome::Value(done)) => done,
        Err(failure) if failure.is_object => {
            let message = failure.message.as_deref();
            let value = [
                ("status", Value::from(500_i64)),
                (
                    "return",
                    message.unwrap_or("An unexpected error occurred").into(),
                ),
            ];
            Done {
                status: Some(failure.status),
                ..Done::of(Value::map(value))
            }
        }
        Err(failure) => return error_page(&failure),
    };
    let Some(form) = form(headers) else {
        let sent = text(headers, header::ACCEPT).unwrap_or_default();
        let message = format!(
            "Your client sent this Accept header: {sent}. But this resource only emits these \
             media types: {}, {}.",
            Form::Json.content_type(),
            Form::Yaml.content_type()
        );
        let mut response = error_page(&Failure::new(StatusCode::NOT_ACCEPTABLE, message));
        response.headers_mut().extend(done.headers);
        return response;
    };
    let Some(body) = form.write(&done.value) else {
        let message = "Could not serialize the return data from Salt.";
        return error_page(&Failure::new(StatusCode::INTERNAL_SERVER_ERROR, message));
    };
    let status = done.status.unwrap_or(StatusCode::OK);
    let mut response = response(status, form.content_type(), body);
    let own = response.headers_mut();
    own.extend(done.headers);
    response
}

/// CherryPy's page for an error.
fn error_page(failure: &Failure) -> Response {
    let (reason, sentence) = phrase(failure.status);
    let status = format!("{} {reason}", failure.status.as_u16());
    let message = escaped(failure.message.as_deref().unwrap_or(sentence));
    let page = format!(
        "<!DOCTYPE html PUBLIC\n\"-//W3C//DTD XHTML 1.0 Transitional//EN\"\n\
         \"http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd\">\n<html>\n<head>\n    \
         <meta http-equiv=\"Content-Type\" content=\"text/html; charset=utf-8\"></meta>\n    \
         <title>{status}</title>\n    <style type=\"text/css\">\n    #powered_by {{\n        \
         margin-top: 20px;\n        border-top: 2px solid black;\n        font-style: italic;\n    \
         }}\n\n    #traceback {{\n        color: red;\n    }}\n    </style>\n</head>\n    <body>\n        \
         <h2>{status}</h2>\n        <p>{message}</p>\n        <pre id=\"traceback\"></pre>\n    \
         <div id=\"powered_by\">\n      <span>\n        Powered by <a \
         href=\"http://www.cherrypy.dev\">CherryPy 18.10.0</a>\n      </span>\n    </div>\n    \
         </body>\n</html>\n"
    );
    let mut response = response(failure.status, HTML, page);
    if failure.status == StatusCode::SERVICE_UNAVAILABLE {
        let retry = HeaderValue::from_static(RETRY_AFTER);
        response.headers_mut().insert(header::RETRY_AFTER, retry);
    }
    response
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

/// The reason of a status and CherryPy's sentence for it.
fn phrase(status: StatusCode) -> (&'static str, &'static str) {
    match status.as_u16() {
        400 => ("Bad Request", "Bad request syntax or unsupported method"),
        401 => ("Unauthorized", "No permission -- see authorization schemes"),
        403 => (
            "Forbidden",
            "Request forbidden -- authorization will not help",
        ),
        404 => ("Not Found", "Nothing matches the given URI"),
        405 => (
            "Method Not Allowed",
            "Specified method is invalid for this resource",
        ),
        406 => ("Not Acceptable", "URI not available in preferred format"),
        413 => ("Request Entity Too Large", "Entity is too large"),
        501 => ("Not Implemented", "Server does not support this operation"),
        503 => (
            "Service Unavailable",
            "The server is currently unable to handle the request due to a temporary overloading \
             or maintenance of the server.",
        ),
        504 => (
            "Gateway Timeout",
            "The gateway server did not receive a timely response",
        ),
        _ => (
            "Internal Server Error",
            "The server encountered an unexpected condition which prevented it from fulfilling \
             the request.",
        ),
    }
}

#[cfg(test)]
mod tests;
