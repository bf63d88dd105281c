//! Shared parts of all pages: the session of a request, forms with their token, and responses with
//! the headers that keep other sites and caches out.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Redirect, Response};
use saltern_base::clock::Clock;
use saltern_base::{form_pairs, percent_encoded};
use saltern_http::{Peer, cookie};
use saltern_netapi::v1::{Caller, Problem, ask};
use saltern_wire::msgpack::Value;
use serde::Serialize;
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

use crate::backend::Backend;
use crate::session::{Activity, ConsoleSessions, csrf_token, is_csrf_token};
use crate::view::{Frame, Templates, View};

/// The cookie of a session.
pub(crate) const SESSION_COOKIE: &str = "saltern_console";

/// The cookie with the colours that were chosen.
pub(crate) const THEME_COOKIE: &str = "saltern_theme";

/// Header of a request of the script, for the part of a page that is called `live`.
const FRAGMENT_HEADER: &str = "x-saltern-fragment";

/// The form field with the token against cross-site requests.
pub(crate) const CSRF_FIELD: &str = "csrf";

/// The largest form, in bytes.
const MAX_FORM: usize = 256 << 10;

/// Only own files, and nothing inline.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      img-src 'self' data:; connect-src 'self'; form-action 'self'; \
                      base-uri 'none'; frame-ancestors 'none'";

/// The console on one server.
pub(crate) struct Site {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) is_secure: bool,
    pub(crate) sessions: Arc<ConsoleSessions>,
    pub(crate) templates: Arc<Templates>,
    /// A permit for each stream that may be open at a time.
    pub(crate) streams: Arc<Semaphore>,
    pub(crate) clock: Clock,
}

pub(crate) type Shared = Arc<Site>;

/// Functions of the master whose pages and buttons are offered to those who may call them.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(crate) struct Permissions {
    pub(crate) jobs: bool,
    pub(crate) job: bool,
    pub(crate) returns: bool,
    pub(crate) minions: bool,
    pub(crate) pillar: bool,
    pub(crate) keys: bool,
    pub(crate) accept: bool,
    pub(crate) reject: bool,
    pub(crate) delete: bool,
    pub(crate) health: bool,
    pub(crate) version: bool,
    pub(crate) batches: bool,
    pub(crate) stop_batch: bool,
    pub(crate) pause_batch: bool,
    pub(crate) resume_batch: bool,
    pub(crate) audit: bool,
    pub(crate) audit_verify: bool,
    pub(crate) mine: bool,
    pub(crate) running: bool,
    pub(crate) orchestrate: bool,
    pub(crate) reactor: bool,
    pub(crate) dead_letters: bool,
    pub(crate) replay: bool,
    pub(crate) schedule: bool,
}

/// In the order of the fields.
const FUNCTIONS: [&str; 24] = [
    "runner jobs.list_jobs",
    "runner jobs.list_job",
    "runner jobs.lookup_jid",
    "runner cache.grains",
    "runner cache.pillar",
    "wheel key.list_all",
    "wheel key.accept",
    "wheel key.reject",
    "wheel key.delete",
    "runner saltern.health",
    "runner saltern.version",
    "runner batch.list_active",
    "runner batch.stop",
    "runner batch.pause",
    "runner batch.resume",
    "runner audit.list",
    "runner audit.verify",
    "runner cache.mine",
    "runner jobs.master",
    "runner state.orchestrate",
    "runner reactor.list",
    "runner reactor.dead_letters",
    "runner reactor.replay",
    "runner schedule.list",
];

impl Permissions {
    fn of(flags: &[bool]) -> Self {
        let mut flags = flags.iter().copied();
        let mut next = || flags.next().unwrap_or_default();
        Self {
            jobs: next(),
            job: next(),
            returns: next(),
            minions: next(),
            pillar: next(),
            keys: next(),
            accept: next(),
            reject: next(),
            delete: next(),
            health: next(),
            version: next(),
            batches: next(),
            stop_batch: next(),
            pause_batch: next(),
            resume_batch: next(),
            audit: next(),
            audit_verify: next(),
            mine: next(),
            running: next(),
            orchestrate: next(),
            reactor: next(),
            dead_letters: next(),
            replay: next(),
            schedule: next(),
        }
    }
}

/// A request of a user who is logged in. Has no `Debug`: it holds a token.
pub(crate) struct Visit {
    pub(crate) caller: Caller,
    pub(crate) user: String,
    /// The id of the session.
    pub(crate) session: Zeroizing<String>,
    pub(crate) may: Permissions,
    pub(crate) theme: &'static str,
    /// Whether only the part called `live` is wanted.
    pub(crate) is_fragment: bool,
    /// Path and query.
    pub(crate) path: String,
    /// When it came, in microseconds since 1970.
    pub(crate) now: i64,
}

impl Visit {
    pub(crate) fn csrf(&self) -> String {
        csrf_token(&self.session)
    }
}

impl FromRequestParts<Shared> for Visit {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, site: &Shared) -> Result<Self, Response> {
        let is_fragment = parts.headers.contains_key(FRAGMENT_HEADER);
        let is_read = parts.method == Method::GET || parts.method == Method::HEAD;
        let path = parts.uri.path_and_query();
        let path = path.map_or("/console/", |path| path.as_str()).to_owned();
        let to_log_in = || match (is_fragment, is_read) {
            (true, _) => StatusCode::UNAUTHORIZED.into_response(),
            (false, true) => Redirect::to(&log_in_path(&path)).into_response(),
            (false, false) => Redirect::to("/console/login").into_response(),
        };
        let session = cookie(&parts.headers, SESSION_COOKIE).unwrap_or_default();
        let session = Zeroizing::new(session.to_owned());
        let accept = parts.headers.get(header::ACCEPT);
        let is_stream = accept.is_some_and(|accept| accept == "text/event-stream");
        let activity = match is_fragment || is_stream {
            true => Activity::Page,
            false => Activity::User,
        };
        let token = site.sessions.token(&session, activity);
        let token = token.ok_or_else(to_log_in)?;
        let theme = theme(&parts.headers);
        let user = site.backend.user_of(&token).await.map_err(|_| {
            let problem = Problem::busy("your session cannot be checked now");
            site.failure(&problem, theme)
        })?;
        let user = user.ok_or_else(to_log_in)?;
        let caller = Caller {
            token,
            from: Peer::of(&parts.extensions),
        };
        let functions = FUNCTIONS.iter().map(|function| (*function).into());
        let functions = Value::Array(functions.collect());
        let arguments = vec![("functions", Some(functions))];
        let flags: Result<Vec<bool>, Problem> =
            ask::query(&site.backend.gate(), &caller, "access.check", arguments).await;
        let may = match flags {
            Ok(flags) => Permissions::of(&flags),
            Err(problem) if problem.status() == StatusCode::UNAUTHORIZED => {
                return Err(to_log_in());
            }
            Err(problem) => return Err(site.failure(&problem, theme)),
        };
        Ok(Self {
            caller,
            user,
            session,
            may,
            theme,
            is_fragment,
            path,
            now: site.clock.unix_micros(),
        })
    }
}

/// Where to log in, and come back to this page.
fn log_in_path(path: &str) -> String {
    match path {
        "/console/" => "/console/login".to_owned(),
        path => format!("/console/login?next={}", encoded(path)),
    }
}

/// A page of this console that a request names; else the first one.
pub(crate) fn own_path(path: Option<&str>) -> &str {
    let is_own = |path: &&str| {
        path.starts_with("/console/")
            && path
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && byte != b'\\')
    };
    path.filter(is_own).unwrap_or("/console/")
}

/// Percent-encoded for a path or a query.
pub(crate) fn encoded(text: &str) -> String {
    percent_encoded(text.as_bytes(), "-_.~")
}

/// The colours that were chosen; `auto` follows the system.
pub(crate) fn theme(headers: &HeaderMap) -> &'static str {
    match cookie(headers, THEME_COOKIE) {
        Some("dark") => "dark",
        Some("light") => "light",
        _ => "auto",
    }
}

/// Fields of a query or a form; of several with one name, all are kept.
#[derive(Debug, Default)]
pub(crate) struct Fields(HashMap<String, Vec<String>>);

impl Fields {
    /// Those of a query, or of a body that is written as one.
    pub(crate) fn parse(text: &str) -> Self {
        let mut fields: HashMap<String, Vec<String>> = HashMap::new();
        for (name, value) in form_pairs(text) {
            fields.entry(name).or_default().push(value);
        }
        Self(fields)
    }

    /// The trimmed text of a field; nothing where it is empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let text = self.0.get(name)?.first()?.trim();
        (!text.is_empty()).then_some(text)
    }

    /// The text of a field as it was sent.
    pub(crate) fn verbatim(&self, name: &str) -> &str {
        let text = self.0.get(name).and_then(|texts| texts.first());
        text.map(String::as_str).unwrap_or_default()
    }

    /// The texts of all fields of a name.
    pub(crate) fn all(&self, name: &str) -> &[String] {
        self.0.get(name).map(Vec::as_slice).unwrap_or_default()
    }

    /// Whether a box is ticked.
    pub(crate) fn is_on(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

/// The query of a request.
pub(crate) struct Params(pub(crate) Fields);

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(Fields::parse(parts.uri.query().unwrap_or_default())))
    }
}

/// A form, as it was sent.
pub(crate) struct Form(pub(crate) Fields);

impl FromRequest<Shared> for Form {
    type Rejection = Response;

    async fn from_request(request: Request, _: &Shared) -> Result<Self, Response> {
        let body = axum::body::to_bytes(request.into_body(), MAX_FORM).await;
        let body = body.map_err(|_| StatusCode::PAYLOAD_TOO_LARGE.into_response())?;
        let text = std::str::from_utf8(&body);
        let text = text.map_err(|_| StatusCode::BAD_REQUEST.into_response())?;
        Ok(Self(Fields::parse(text)))
    }
}

/// A form that a user who is logged in sent from a page of his session.
pub(crate) struct Submitted {
    pub(crate) visit: Visit,
    pub(crate) form: Fields,
}

impl FromRequest<Shared> for Submitted {
    type Rejection = Response;

    async fn from_request(request: Request, site: &Shared) -> Result<Self, Response> {
        let (mut parts, body) = request.into_parts();
        let visit = Visit::from_request_parts(&mut parts, site).await?;
        let Form(form) = Form::from_request(Request::from_parts(parts, body), site).await?;
        if !is_csrf_token(&visit.session, form.verbatim(CSRF_FIELD)) {
            let detail = "the form is not of this session; open the page again and repeat it";
            let refused = Problem::conflict(detail);
            let refused = site.refusal(&visit, StatusCode::FORBIDDEN, &refused);
            return Err(refused);
        }
        Ok(Self { visit, form })
    }
}

impl Site {
    /// Asks a query in the name of the visitor.
    pub(crate) async fn query<T: serde::de::DeserializeOwned>(
        &self,
        visit: &Visit,
        fun: &'static str,
        arguments: ask::Arguments,
    ) -> Result<T, Problem> {
        ask::query(&self.backend.gate(), &visit.caller, fun, arguments).await
    }

    /// Whether the visitor may publish each of these jobs (`fun`, `arg`, a list `tgt`).
    pub(crate) async fn may_publish(
        &self,
        visit: &Visit,
        jobs: Vec<Value>,
    ) -> Result<Vec<bool>, Problem> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let arguments = vec![("functions", Some(Value::Array(jobs)))];
        self.query(visit, "access.check", arguments).await
    }

    /// The page of a view, or of what keeps it from being shown.
    pub(crate) fn respond(&self, visit: &Visit, view: Result<View, Problem>) -> Response {
        match view {
            Ok(view) => self.page(visit, StatusCode::OK, view),
            Err(problem) if problem.status() == StatusCode::UNAUTHORIZED => {
                match visit.is_fragment {
                    true => StatusCode::UNAUTHORIZED.into_response(),
                    false => Redirect::to(&log_in_path(&visit.path)).into_response(),
                }
            }
            Err(problem) => self.refusal(visit, problem.status(), &problem),
        }
    }

    /// The page of an error, with the way back.
    pub(crate) fn refusal(&self, visit: &Visit, status: StatusCode, problem: &Problem) -> Response {
        self.page(visit, status, View::of_problem(problem))
    }

    fn page(&self, visit: &Visit, status: StatusCode, view: View) -> Response {
        let frame = Frame::of(visit, &view);
        self.rendered(status, &view, &frame)
    }

    /// The page of an error for somebody who is not logged in.
    pub(crate) fn failure(&self, problem: &Problem, theme: &'static str) -> Response {
        let view = View::of_problem(problem);
        self.rendered(problem.status(), &view, &Frame::of_nobody(theme, &view))
    }

    pub(crate) fn rendered(&self, status: StatusCode, view: &View, frame: &Frame) -> Response {
        match self.templates.render(view, frame) {
            Ok(html) => (status, Html(html)).into_response(),
            Err(error) => {
                let error = saltern_base::chain(&error);
                tracing::error!(error, template = view.template, "a page cannot be made");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
        }
    }

    /// A cookie for the console alone.
    pub(crate) fn cookie(&self, name: &str, value: &str, rest: &str) -> HeaderValue {
        let secure = if self.is_secure { "; Secure" } else { "" };
        let cookie = format!("{name}={value}; Path=/console; SameSite=Strict{secure}{rest}");
        // Names and values are our own.
        HeaderValue::from_str(&cookie).unwrap_or_else(|_| HeaderValue::from_static(""))
    }
}

/// Refuses what must not get to a page, and adds the headers of every response.
pub(crate) async fn guard(State(site): State<Shared>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    let fetched_by = parts.headers.get("sec-fetch-site");
    let fetched_by = fetched_by.and_then(|site| site.to_str().ok());
    let is_foreign = matches!(fetched_by, Some("cross-site" | "same-site"));
    let is_change = parts.method != Method::GET && parts.method != Method::HEAD;
    let mut response =
        match site.backend.admits(Peer::of(&parts.extensions)) && !(is_foreign && is_change) {
            true => next.run(Request::from_parts(parts, body)).await,
            false => StatusCode::FORBIDDEN.into_response(),
        };
    let fixed: [(HeaderName, &str); 5] = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
    ];
    let headers = response.headers_mut();
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers
        .entry(header::CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    response
}

/// The console without the slash.
pub(crate) async fn to_front() -> Redirect {
    Redirect::to("/console/")
}

/// The page of a path that is none.
pub(crate) async fn no_such_page(State(site): State<Shared>, visit: Visit) -> Response {
    let problem = Problem::not_found("there is no such page in the console");
    site.refusal(&visit, StatusCode::NOT_FOUND, &problem)
}

/// The answer to a method that a page does not have.
pub(crate) async fn no_such_method() -> StatusCode {
    StatusCode::METHOD_NOT_ALLOWED
}
