//! Forms of answers: JSON and YAML as Python writes them, chosen by `Accept`.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use saltern_output::Shown;
use saltern_python::fnmatch::Glob;
use saltern_python::json::{self, Style};
use saltern_python::repr::Limits;
use saltern_python::{Node, yaml};
use saltern_wire::msgpack::Value;

use crate::body::media_type;

/// Forms of an answer, the preferred one first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `application/json`.
    Json,
    /// `application/x-yaml`.
    Yaml,
}

/// The forms with their content types.
const FORMS: [(Form, &str); 2] = [
    (Form::Json, "application/json"),
    (Form::Yaml, "application/x-yaml"),
];

/// For values that were bounded when they were read.
const LIMITS: Limits = Limits {
    depth: 1_000,
    bytes: usize::MAX,
};

impl Form {
    /// The content type.
    pub(crate) fn content_type(self) -> &'static str {
        let [(_, json), (_, yaml)] = FORMS;
        match self {
            Self::Json => json,
            Self::Yaml => yaml,
        }
    }

    /// The first range of `Accept` that one of the forms matches, whatever its quality: how
    /// rest_tornado chooses.
    pub(crate) fn first_named(headers: &HeaderMap) -> Option<Self> {
        let accept = text(headers, header::ACCEPT).unwrap_or("*/*");
        accept.split(',').find_map(|range| {
            let media = range.split(';').next().unwrap_or_default().trim();
            let pattern = Glob::new(&media_type(media));
            let mut forms = FORMS.iter();
            forms
                .find(|(_, media)| pattern.matches(media))
                .map(|(form, _)| *form)
        })
    }

    /// A value in this form with YAML's shortest lists and maps, as rest_tornado writes it.
    pub(crate) fn write_short(self, value: &Value) -> Option<String> {
        match self {
            Self::Json => self.write(value),
            Self::Yaml => yaml::safe_dump_mixed(&Node::read(value).ok()?).ok(),
        }
    }

    /// A value in this form; `None` for one that has none.
    pub(crate) fn write(self, value: &Value) -> Option<String> {
        match self {
            Self::Json => {
                let style = Style {
                    ascii: false,
                    sorted: false,
                    indent: None,
                };
                let mut out = String::new();
                json::write(&mut out, Shown::Value(value), style, LIMITS).ok()?;
                Some(out)
            }
            Self::Yaml => {
                let style = yaml::Style {
                    flow: false,
                    indent: None,
                };
                yaml::safe_dump(&Node::read(value).ok()?, style).ok()
            }
        }
    }
}

/// One media range of `Accept`, with its quality.
#[derive(Debug)]
struct Range<'a> {
    media: &'a str,
    quality: f32,
}

fn ranges(accept: &str) -> Vec<Range<'_>> {
    let mut ranges: Vec<Range<'_>> = accept
        .split(',')
        .map(str::trim)
        .filter(|range| !range.is_empty())
        .map(|range| {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let quality = parts.find_map(|part| part.strip_prefix("q="));
            Range {
                media,
                quality: quality.and_then(|text| text.parse().ok()).unwrap_or(1.0),
            }
        })
        .collect();
    // Stable: of equal ones the first is preferred.
    ranges.sort_by(|one, other| other.quality.total_cmp(&one.quality));
    ranges
}

/// The first of `media` that the client accepts, its own order first; `None` when it accepts none.
/// Without a header anything is accepted.
pub(crate) fn accepted<'m>(accept: Option<&str>, media: &[&'m str]) -> Option<&'m str> {
    let ranges = ranges(accept.unwrap_or_default());
    if ranges.is_empty() {
        return media.first().copied();
    }
    ranges
        .iter()
        .filter(|range| range.quality > 0.0)
        .find_map(|range| {
            let mut media = media.iter().copied();
            match range.media.strip_suffix('*') {
                Some("*/") => media.next(),
                Some(prefix) if prefix.ends_with('/') => media.find(|one| one.starts_with(prefix)),
                _ => media.find(|one| *one == range.media),
            }
        })
}

/// The form that the client accepts.
pub(crate) fn form(headers: &HeaderMap) -> Option<Form> {
    let media = FORMS.map(|(_, media)| media);
    let best = accepted(text(headers, header::ACCEPT), &media)?;
    FORMS
        .iter()
        .find(|(_, media)| *media == best)
        .map(|(form, _)| *form)
}

/// A header as text.
pub(crate) fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// A response with a body.
pub(crate) fn response(status: StatusCode, content_type: &str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    if let Ok(content_type) = HeaderValue::from_str(content_type) {
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, content_type);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accept_header_chooses_the_form() {
        let cases = [
            (None, Some("application/json")),
            (Some("*/*"), Some("application/json")),
            (Some("application/x-yaml"), Some("application/x-yaml")),
            (
                Some("text/html, application/x-yaml;q=0.5"),
                Some("application/x-yaml"),
            ),
            (
                Some("application/json;q=0.1, application/x-yaml"),
                Some("application/x-yaml"),
            ),
            (Some("application/*"), Some("application/json")),
            (Some("text/html"), None),
            (Some("application/json;q=0"), None),
        ];
        let media = FORMS.map(|(_, media)| media);
        for (accept, expected) in cases {
            assert_eq!(accepted(accept, &media), expected, "{accept:?}");
        }
    }

    #[test]
    fn tornado_takes_the_first_range_that_matches() {
        let chosen = |accept: Option<&'static str>| {
            let accept = accept.map(HeaderValue::from_static);
            Form::first_named(
                &accept
                    .map(|value| (header::ACCEPT, value))
                    .into_iter()
                    .collect(),
            )
        };
        let cases = [
            (None, Some(Form::Json)),
            (
                Some("application/json;q=0.5, application/x-yaml"),
                Some(Form::Json),
            ),
            (
                Some("text/html, Application/X-YAML;q=0.1"),
                Some(Form::Yaml),
            ),
            (Some("*/*"), Some(Form::Json)),
            (Some("text/plain"), None),
            (Some("nonsense"), None),
        ];
        for (accept, expected) in cases {
            assert_eq!(chosen(accept), expected, "{accept:?}");
        }
    }

    #[test]
    fn values_are_written_as_python_writes_them() {
        let value = Value::map([("b", Value::from(1_i64)), ("a", Value::Bin("ü".into()))]);
        assert_eq!(
            Form::Json.write(&value).as_deref(),
            Some("{\"b\": 1, \"a\": \"ü\"}")
        );
        let value = Value::map([("b", Value::from(1_i64)), ("a", Value::Array(Vec::new()))]);
        assert_eq!(Form::Yaml.write(&value).as_deref(), Some("a: []\nb: 1\n"));
    }
}
