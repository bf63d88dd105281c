//! `/hook/…` in the dialects: which server's hooks a request is for, and what it posts.

use std::sync::Arc;

use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use saltern_base::clock::Clock;
use saltern_base::form_pairs;
use saltern_config::{ApiDialect, ApiServer};
use saltern_model::Tag;
use saltern_wire::msgpack::Value;

use crate::api::Api;
use crate::body::{self, BodyError, Reading};
use crate::hook::{HookBus, HookMetrics, HookRefusal, HookRequest, HookSecrets, Hooks, Posted};
use crate::stream::Dialect;

/// State that the hooks of all servers share.
pub(crate) struct SharedHooks {
    pub(crate) secrets: Arc<HookSecrets>,
    pub(crate) clock: Clock,
    pub(crate) metrics: HookMetrics,
}

impl SharedHooks {
    /// The hooks of one server; `None` where its dialect has none.
    pub(crate) fn of(&self, server: &ApiServer) -> Option<Hooks> {
        let dialect = match server.dialect {
            ApiDialect::CherryPy => Dialect::Cherrypy,
            ApiDialect::Tornado => Dialect::Tornado,
            ApiDialect::Wsgi => return None,
        };
        Some(Hooks::new(
            self.secrets.clone(),
            server.webhook_disable_auth,
            dialect,
            self.clock.clone(),
            self.metrics.clone(),
        ))
    }
}

impl HookBus for Api {
    fn fire(&self, tag: Tag, data: Value) -> BoxFuture<'_, bool> {
        self.master().fire(tag, data)
    }
}

/// Why a hook does not answer that it has fired.
#[derive(Debug)]
pub(crate) enum HookFailure {
    /// It is refused.
    Refused(HookRefusal),
    /// Its body cannot be read.
    Body(BodyError),
}

impl HookFailure {
    /// The status of the answer.
    pub(crate) fn status(&self) -> StatusCode {
        match self {
            Self::Refused(refusal) => {
                StatusCode::from_u16(refusal.status()).unwrap_or(StatusCode::BAD_REQUEST)
            }
            Self::Body(BodyError::ContentType) => StatusCode::NOT_ACCEPTABLE,
            Self::Body(_) => StatusCode::BAD_REQUEST,
        }
    }

    /// The reason, for the client.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Refused(refusal) => refusal.to_string(),
            Self::Body(error) => error.to_string(),
        }
    }
}

/// The path behind the hooks' own, percent-encoded; `None` for the path of another page.
pub(crate) fn path_of<'a>(server: &ApiServer, path: &'a str) -> Option<&'a str> {
    let rest = path.strip_prefix('/')?.strip_prefix(&*server.webhook_url)?;
    match rest.strip_prefix('/') {
        Some(rest) => Some(rest),
        None => rest.is_empty().then_some(""),
    }
}

/// Fires the event of a request; whether the bus took it.
pub(crate) async fn answer(
    (api, hooks, reading): (&Api, &Hooks, Reading),
    parts: &Parts,
    (from, path): (std::net::SocketAddr, &str),
    content: &Bytes,
    is_logged_in: bool,
) -> Result<bool, HookFailure> {
    let request = HookRequest {
        peer: from.ip(),
        path,
        headers: &parts.headers,
        body: content,
        is_logged_in,
    };
    let tag = hooks.admit(&request).map_err(HookFailure::Refused)?;
    let posted = posted(&parts.headers, (content, reading), parts.uri.query());
    let posted = posted.map_err(HookFailure::Body)?;
    Ok(hooks.fire(api, tag, &request, posted).await)
}

fn posted(
    headers: &HeaderMap,
    (content, reading): (&Bytes, Reading),
    query: Option<&str>,
) -> Result<Posted, BodyError> {
    let post = match content.is_empty() {
        true => Value::Map(Vec::new()),
        false => body::read(headers, content, reading)?,
    };
    // rest_cherrypy has the text of a form nowhere.
    let is_form = body::content_type(headers) == "application/x-www-form-urlencoded";
    let text = match is_form {
        true => String::new(),
        false => String::from_utf8_lossy(content).into_owned(),
    };
    Ok(Posted {
        body: text.as_str().into(),
        post,
        get: Value::Map(parameters(query.unwrap_or_default())),
    })
}

/// The parameters of a query; those with several values have a list of them.
fn parameters(query: &str) -> Vec<(Value, Value)> {
    let mut found: Vec<(Value, Value)> = Vec::new();
    for (name, value) in form_pairs(query) {
        let (name, value) = (Value::from(name), Value::from(value));
        match found.iter_mut().find(|(known, _)| *known == name) {
            None => found.push((name, value)),
            Some((_, Value::Array(values))) => values.push(value),
            Some((_, one)) => *one = Value::Array(vec![std::mem::take(one), value]),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_parameters_become_a_list() {
        let text = |text: &str| Value::from(text);
        let list = Value::Array(vec![text("1"), text("x y")]);
        let found = parameters("a=1&b=&a=x+y&%63");
        let expected = [("a", list), ("b", text("")), ("c", text(""))];
        assert_eq!(Value::Map(found), Value::map(expected));
    }
}
