//! Log-in, log-out, and the choice of colours.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use saltern_base::{blocking, chain};
use saltern_http::{Peer, cookie};
use saltern_netapi::v1::Problem;
use saltern_netapi::{LogInError, UncheckedToken};
use serde::Serialize;
use zeroize::Zeroizing;

use crate::backend::LogIn;
use crate::session::{Activity, csrf_token, is_csrf_token, random_id};
use crate::site::{
    CSRF_FIELD, Form, Params, SESSION_COOKIE, Shared, Submitted, THEME_COOKIE, own_path,
    theme as theme_of,
};
use crate::view::{Frame, View};

/// The cookie of a browser that is not logged in: the token of the form is derived from it.
const BEFORE_COOKIE: &str = "saltern_console_login";

const SESSION_ENDED: &str = "Your session has ended. Log in to go on where you were.";

const ENDED_HERE: &str = "Your session has ended on this master. Another master of the cluster may still take its \
     token, because their database does not answer.";

#[derive(Serialize)]
struct LogInView<'a> {
    eauths: Vec<String>,
    eauth: &'a str,
    user: &'a str,
    next: &'a str,
    csrf: String,
    problem: Option<&'a str>,
}

/// The form.
pub(crate) async fn page(
    State(site): State<Shared>,
    headers: HeaderMap,
    Params(params): Params,
) -> Response {
    let next = own_path(params.text("next"));
    let notice = has_ended_session(&site, &headers).then_some(SESSION_ENDED);
    form(&site, &headers, (next, "", ""), (StatusCode::OK, notice))
}

/// Whether the browser still names a session that is over.
fn has_ended_session(site: &Shared, headers: &HeaderMap) -> bool {
    let session = cookie(headers, SESSION_COOKIE).filter(|id| !id.is_empty());
    session.is_some_and(|id| site.sessions.token(id, Activity::Page).is_none())
}

fn form(
    site: &Shared,
    headers: &HeaderMap,
    (next, user, eauth): (&str, &str, &str),
    (status, problem): (StatusCode, Option<&str>),
) -> Response {
    let known = cookie(headers, BEFORE_COOKIE).filter(|id| id.len() >= 40);
    let Some(id) = known.map(str::to_owned).or_else(random_id) else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let view = LogInView {
        eauths: site.backend.eauths(),
        eauth,
        user,
        next,
        csrf: csrf_token(&id),
        problem,
    };
    let view = View::new("login.html", "", "Log in", view);
    let frame = Frame::of_nobody(theme_of(headers), &view);
    let mut response = site.rendered(status, &view, &frame);
    let cookie = site.cookie(BEFORE_COOKIE, &id, "; HttpOnly");
    response.headers_mut().append(header::SET_COOKIE, cookie);
    response
}

/// Logs in.
pub(crate) async fn log_in(
    State(site): State<Shared>,
    request: axum::extract::Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let (headers, from) = (parts.headers.clone(), Peer::of(&parts.extensions));
    let request = axum::extract::Request::from_parts(parts, body);
    let fields =
        match <Form as axum::extract::FromRequest<Shared>>::from_request(request, &site).await {
            Ok(Form(fields)) => fields,
            Err(refused) => return refused,
        };
    let next = own_path(fields.text("next")).to_owned();
    let user = fields.text("username").unwrap_or_default();
    let eauth = fields.text("eauth").unwrap_or_default();
    let shown = (next.as_str(), user, eauth);
    let before = cookie(&headers, BEFORE_COOKIE).unwrap_or_default();
    if before.is_empty() || !is_csrf_token(before, fields.verbatim(CSRF_FIELD)) {
        let problem = "The form was too old. Please try once more.";
        return form(
            &site,
            &headers,
            shown,
            (StatusCode::FORBIDDEN, Some(problem)),
        );
    }
    let entered = LogIn {
        user: user.to_owned(),
        password: Zeroizing::new(fields.verbatim("password").to_owned()),
        eauth: eauth.to_owned(),
    };
    let token = match site.backend.log_in(entered, from).await {
        Ok(Some(token)) => token,
        Ok(None) => {
            let problem = "The master does not know this user with this password.";
            return form(
                &site,
                &headers,
                shown,
                (StatusCode::UNAUTHORIZED, Some(problem)),
            );
        }
        Err(error) => {
            let status = match error {
                LogInError::Busy => StatusCode::SERVICE_UNAVAILABLE,
                LogInError::Address => StatusCode::FORBIDDEN,
            };
            let problem = error.to_string();
            return form(&site, &headers, shown, (status, Some(&problem)));
        }
    };
    let sessions = site.sessions.clone();
    let made = blocking::run(move || sessions.create(&token)).await;
    match made {
        Ok(Ok(id)) => {
            let mut response = Redirect::to(&next).into_response();
            let headers = response.headers_mut();
            let cookie = site.cookie(SESSION_COOKIE, &id, "; HttpOnly");
            headers.append(header::SET_COOKIE, cookie);
            let over = site.cookie(BEFORE_COOKIE, "", "; HttpOnly; Max-Age=0");
            headers.append(header::SET_COOKIE, over);
            response
        }
        failed => {
            if let Ok(Err(error)) = failed {
                tracing::error!(%error, "a session of the console cannot be kept");
            }
            let problem = "The session cannot be kept. Please try again later.";
            let status = StatusCode::SERVICE_UNAVAILABLE;
            form(&site, &headers, shown, (status, Some(problem)))
        }
    }
}

/// Ends the session, and revokes its token.
pub(crate) async fn log_out(
    State(site): State<Shared>,
    headers: HeaderMap,
    submitted: Submitted,
) -> Response {
    let (sessions, backend) = (site.sessions.clone(), site.backend.clone());
    let id = submitted.visit.session.clone();
    let ended = blocking::run(move || sessions.end(&id, |token| backend.revoke(token)));
    let ended = ended.await.map_err(UncheckedToken::from);
    let mut response = match ended.and_then(|ended| ended.map_err(UncheckedToken::from)) {
        Ok(()) => Redirect::to("/console/login").into_response(),
        Err(UncheckedToken::Store(error)) if error.is_done_here() => {
            let error = chain(&error);
            tracing::warn!(error, "a session's token was removed on this master only");
            let said = (StatusCode::ACCEPTED, Some(ENDED_HERE));
            form(&site, &headers, ("/console/", "", ""), said)
        }
        Err(error) => {
            let error = chain(&error);
            tracing::error!(error, "a session of the console was not ended");
            let problem = Problem::busy("you are still logged in: the session cannot be ended now");
            return site.refusal(&submitted.visit, problem.status(), &problem);
        }
    };
    let cookie = site.cookie(SESSION_COOKIE, "", "; HttpOnly; Max-Age=0");
    response.headers_mut().append(header::SET_COOKIE, cookie);
    response
}

/// Changes the colours.
pub(crate) async fn theme(State(site): State<Shared>, submitted: Submitted) -> Response {
    let theme = match submitted.form.text("theme") {
        Some("dark") => "dark",
        Some("light") => "light",
        _ => "auto",
    };
    let back = own_path(submitted.form.text("next"));
    let mut response = Redirect::to(back).into_response();
    let cookie = site.cookie(THEME_COOKIE, theme, "; HttpOnly; Max-Age=31536000");
    response.headers_mut().append(header::SET_COOKIE, cookie);
    response
}
