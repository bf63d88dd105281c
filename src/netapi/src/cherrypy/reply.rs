//! Answers of pages: values in the form that the client accepts, and CherryPy's own page for errors.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use saltern_wire::msgpack::Value;

use crate::answer::{Form, form, response, text};
use crate::low_data::{Answered, CallError};
use crate::master::UncheckedToken;

/// The content type of the page for errors.
const HTML: &str = "text/html;charset=utf-8";

/// The header with the id of the job of an answer.
const JID_HEADER: &str = "x-saltern-jid";

/// Seconds after which a client that found no room tries again.
const RETRY_AFTER: &str = "1";

/// Why a request has another answer.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) status: StatusCode,
    /// CherryPy's own sentence for the status when absent.
    pub(super) message: Option<String>,
    /// As an object, not as a page.
    pub(super) is_object: bool,
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
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            message: Some(message.into()),
            ..status.into()
        }
    }

    pub(super) fn no_mapping() -> Self {
        Self::new(StatusCode::BAD_REQUEST, "A command is a mapping")
    }

    /// Stock's answer to what it did not expect.
    pub(super) fn unexpected() -> Self {
        Self {
            is_object: true,
            ..StatusCode::INTERNAL_SERVER_ERROR.into()
        }
    }
}

/// A token that cannot be looked at is neither good nor bad.
impl From<UncheckedToken> for Failure {
    fn from(_: UncheckedToken) -> Self {
        let message = "The token cannot be checked now; try again later.";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
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
pub(super) struct Done {
    pub(super) value: Value,
    pub(super) status: Option<StatusCode>,
    pub(super) headers: HeaderMap,
}

impl Done {
    pub(super) fn of(value: Value) -> Self {
        Self {
            value,
            ..Self::default()
        }
    }

    /// The values of commands under `return`, and the ids of their jobs in the header.
    pub(super) fn of_calls(answered: Answers) -> Self {
        let mut done = Self::of(returned(Value::Array(answered.values)));
        done.headers = answered.jids;
        done
    }

    pub(super) fn header(&mut self, name: &'static str, value: &str) {
        if let Ok(value) = HeaderValue::from_str(value) {
            self.headers.append(name, value);
        }
    }
}

/// The answers of several commands.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) values: Vec<Value>,
    pub(super) jids: HeaderMap,
}

impl Answers {
    pub(super) fn add(&mut self, answered: Answered) {
        self.values.extend(answered.values);
        let jid = answered
            .jid
            .and_then(|jid| HeaderValue::from_str(&jid).ok());
        if let Some(jid) = jid {
            self.jids.append(JID_HEADER, jid);
        }
    }

    pub(super) fn first(self) -> (Value, HeaderMap) {
        (
            self.values.into_iter().next().unwrap_or_default(),
            self.jids,
        )
    }
}

pub(super) fn returned(value: Value) -> Value {
    Value::map([("return", value)])
}

/// The answer of a page: a value in the form that the client accepts, or a response of its own.
pub(super) enum Outcome {
    Value(Done),
    Response(Response),
}

/// The response of a page, in the form that the client accepts.
pub(super) fn finish(headers: &HeaderMap, done: Result<Outcome, Failure>) -> Response {
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
pub(super) fn error_page(failure: &Failure) -> Response {
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
