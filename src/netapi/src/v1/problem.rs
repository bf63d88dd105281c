//! Errors as `application/problem+json` (RFC 9457).

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

/// An error.
#[derive(Debug, Serialize, ToSchema)]
pub struct Problem {
    /// The kind of the problem: `urn:saltern:problem:…`.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The kind in words.
    title: &'static str,
    /// The status of the response.
    status: u16,
    /// Detail of this occurrence.
    detail: String,
    /// The field of the request that is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
}

impl Problem {
    /// The kind in words.
    pub fn title(&self) -> &'static str {
        self.title
    }

    /// The status of the response.
    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// Detail of this occurrence.
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// The field of the request that is wrong.
    pub fn field(&self) -> Option<&str> {
        self.field.as_deref()
    }

    fn new(status: StatusCode, kind: &'static str, title: &'static str, detail: String) -> Self {
        Self {
            kind,
            title,
            status: status.as_u16(),
            detail,
            field: None,
        }
    }

    /// The request cannot be understood, because of this field if it is known.
    pub fn invalid(field: Option<&str>, detail: impl Into<String>) -> Self {
        Self {
            field: field.map(str::to_owned),
            ..Self::new(
                StatusCode::BAD_REQUEST,
                "urn:saltern:problem:invalid-request",
                "The request is invalid",
                detail.into(),
            )
        }
    }

    /// Nobody is proved to ask.
    pub(super) fn unauthenticated() -> Self {
        Self::new(
            StatusCode::UNAUTHORIZED,
            "urn:saltern:problem:unauthenticated",
            "Not authenticated",
            "a token that is known and has not expired is needed".to_owned(),
        )
    }

    /// The rules do not allow it.
    pub(super) fn forbidden() -> Self {
        Self::new(
            StatusCode::FORBIDDEN,
            "urn:saltern:problem:forbidden",
            "Not permitted",
            "no rule of the master permits this to the owner of the token".to_owned(),
        )
    }

    /// There is no such thing.
    pub fn not_found(detail: impl Into<String>) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "urn:saltern:problem:not-found",
            "Not found",
            detail.into(),
        )
    }

    /// It is not in a state in which that can be done.
    pub fn conflict(detail: impl Into<String>) -> Self {
        Self::new(
            StatusCode::CONFLICT,
            "urn:saltern:problem:conflict",
            "Not in that state",
            detail.into(),
        )
    }

    /// The path has no such method.
    pub(super) fn wrong_method() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "urn:saltern:problem:method",
            "Wrong method",
            "the path has other methods".to_owned(),
        )
    }

    /// The master cannot do it now.
    pub fn busy(detail: impl Into<String>) -> Self {
        Self::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "urn:saltern:problem:busy",
            "Try again later",
            detail.into(),
        )
    }

    /// The master failed.
    pub fn failed(detail: impl Into<String>) -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "urn:saltern:problem:failed",
            "The master failed",
            detail.into(),
        )
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status);
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (status, body).into_response();
        let headers = response.headers_mut();
        let json = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, json);
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        match status {
            StatusCode::UNAUTHORIZED => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            StatusCode::SERVICE_UNAVAILABLE => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}

/// A refusal of axum's readers of queries and bodies, with the field that its text names.
pub(super) fn unreadable(text: &str) -> Problem {
    let quoted = || text.split('`').nth(1);
    let named = ["unknown field", "missing field"];
    let field = match named.iter().any(|words| text.contains(words)) {
        true => quoted(),
        // `Failed to …: field: what is wrong`
        false => text.split(": ").nth(1).filter(|field| is_name(field)),
    };
    Problem::invalid(field, text)
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_of_a_reader_names_the_field() {
        for (text, field) in [
            (
                "Failed to deserialize query string: limit: invalid digit",
                Some("limit"),
            ),
            (
                "Failed to deserialize query string: unknown field `x`, expected",
                Some("x"),
            ),
            (
                "Failed to …: missing field `target` at line 1 column 2",
                Some("target"),
            ),
            (
                "Expected request with `Content-Type: application/json`",
                None,
            ),
        ] {
            assert_eq!(unreadable(text).field.as_deref(), field, "{text}");
        }
    }
}
