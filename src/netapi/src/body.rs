//! Forms of request bodies: forms, JSON, YAML and text, made into values.

use axum::http::{HeaderMap, header};
use saltern_base::{form_pairs, percent_decoded};
use saltern_config::yaml::{Limits, parse as parse_yaml};
use saltern_requests::{typed_argument, yaml_value};
use saltern_wire::msgpack::Value;

use crate::answer::text;

/// Bounds on YAML bodies; their size is bounded before.
const YAML: Limits = Limits {
    depth: 64,
    nodes: 200_000,
    bytes: 64 << 20,
};

/// Why a body is no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyError {
    /// A content type that nobody reads.
    #[error("Content type not supported")]
    ContentType,
    /// No JSON.
    #[error("Invalid JSON document")]
    Json,
    /// No YAML.
    #[error("Invalid YAML document")]
    Yaml,
    /// A form that is no text.
    #[error("Invalid form")]
    Form,
}

/// The content type without its parameters, as it is written: stock knows no other spelling.
pub(crate) fn content_type(headers: &HeaderMap) -> String {
    let whole = text(headers, header::CONTENT_TYPE).unwrap_or_default();
    let media = whole.split(';').next().unwrap_or_default();
    media.trim().to_owned()
}

/// The server whose way of reading bodies is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// In forms, `arg` and `kwarg` are read as on the command line, and `arg` is always a list.
    /// Fields without a value do not count. Text that is no JSON stays a text.
    CherryPy,
    /// Forms have texts alone, without blanks at their ends. Text is JSON. A content type may have
    /// capitals, and one that is none counts as text.
    Tornado,
}

impl Reading {
    fn media(self, headers: &HeaderMap) -> String {
        let media = content_type(headers);
        match self {
            Self::CherryPy => media,
            Self::Tornado => media_type(&media),
        }
    }
}

/// A media type as Python's `email` reads it: in small letters, and text where it is none.
pub(crate) fn media_type(media: &str) -> String {
    match media.matches('/').count() {
        1 => media.to_ascii_lowercase(),
        _ if media.is_empty() => String::new(),
        _ => "text/plain".to_owned(),
    }
}

/// Reads a body.
pub(crate) fn read(headers: &HeaderMap, body: &[u8], reading: Reading) -> Result<Value, BodyError> {
    let as_text = |error| std::str::from_utf8(body).map_err(|_| error);
    match reading.media(headers).as_str() {
        "application/x-www-form-urlencoded" => {
            let text = as_text(BodyError::Form)?;
            match reading {
                Reading::CherryPy => Ok(typed(form(text))),
                Reading::Tornado => form_of_texts(text),
            }
        }
        "application/json" => json(as_text(BodyError::Json)?).ok_or(BodyError::Json),
        "application/x-yaml" | "text/yaml" => {
            let node = parse_yaml(as_text(BodyError::Yaml)?, "body", &YAML);
            node.map(|node| yaml_value(&node))
                .map_err(|_| BodyError::Yaml)
        }
        "text/plain" => {
            let text = as_text(BodyError::Json)?;
            match (json(text), reading) {
                (Some(value), _) => Ok(value),
                (None, Reading::CherryPy) => Ok(text.into()),
                (None, Reading::Tornado) => Err(BodyError::Json),
            }
        }
        _ => Err(BodyError::ContentType),
    }
}

/// A JSON document; deeper than 128 levels it is none.
pub(crate) fn json(text: &str) -> Option<Value> {
    serde_json::from_str::<serde_json::Value>(text)
        .ok()
        .map(of_json)
}

pub(crate) fn of_json(json: serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::Nil,
        serde_json::Value::Bool(flag) => Value::Bool(flag),
        serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => number.into(),
            (None, Some(number)) => number.into(),
            (None, None) => number.as_f64().into(),
        },
        serde_json::Value::String(text) => text.into(),
        serde_json::Value::Array(items) => Value::Array(items.into_iter().map(of_json).collect()),
        serde_json::Value::Object(entries) => {
            let entries = entries.into_iter();
            Value::Map(
                entries
                    .map(|(key, value)| (key.into(), of_json(value)))
                    .collect(),
            )
        }
    }
}

/// The fields of a form; one that comes several times is a list. Fields without a value do not
/// count, as for Python's `parse_qsl`.
fn form(text: &str) -> Value {
    grouped(form_pairs(text).filter(|(_, value)| !value.is_empty()))
}

/// The fields of a form as Tornado reads them: without a value too, and without blanks at the ends
/// of their values.
fn form_of_texts(text: &str) -> Result<Value, BodyError> {
    let as_text = |part: &str| {
        let bytes = percent_decoded(&part.replace('+', " "));
        String::from_utf8(bytes).map_err(|_| BodyError::Form)
    };
    let fields = text.split('&').filter(|field| !field.is_empty());
    let fields: Result<Vec<_>, _> = fields
        .map(|field| {
            let (name, value) = field.split_once('=').unwrap_or((field, ""));
            Ok((as_text(name)?, as_text(value)?.trim().to_owned()))
        })
        .collect();
    Ok(grouped(fields?.into_iter()))
}

/// Fields in the order in which their names come first.
fn grouped(pairs: impl Iterator<Item = (String, String)>) -> Value {
    let mut fields: Vec<(Value, Vec<Value>)> = Vec::new();
    for (name, value) in pairs {
        let (name, value) = (Value::from(name), Value::from(value));
        match fields.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) => values.push(value),
            None => fields.push((name, vec![value])),
        }
    }
    let fields = fields.into_iter().map(|(name, mut values)| {
        let value = match values.len() {
            1 => values.pop().unwrap_or_default(),
            _ => Value::Array(values),
        };
        (name, value)
    });
    Value::Map(fields.collect())
}

fn typed(form: Value) -> Value {
    let Value::Map(fields) = form else {
        return form;
    };
    let one = |value: Value| match value {
        Value::Str(text) => typed_argument(&text),
        other => other,
    };
    let fields = fields.into_iter().map(|(name, value)| {
        let value = match (name.as_str(), value) {
            (Some("kwarg"), value) => one(value),
            (Some("arg"), Value::Array(items)) => {
                Value::Array(items.into_iter().map(one).collect())
            }
            (Some("arg"), value) => Value::Array(vec![one(value)]),
            (_, value) => value,
        };
        (name, value)
    });
    Value::Map(fields.collect())
}

/// A part of a path: `%XX` is a byte.
pub(crate) fn decoded_path(text: &str) -> String {
    String::from_utf8_lossy(&percent_decoded(text)).into_owned()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn read_as(content_type: &'static str, body: &[u8]) -> Result<Value, BodyError> {
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
        read(&headers, body, Reading::CherryPy)
    }

    #[test]
    fn tornado_reads_texts_alone() {
        let read_as = |media: &'static str, body: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
            read(&headers, body, Reading::Tornado)
        };
        let form = "application/x-www-form-urlencoded";
        let expected = Value::map([
            ("tgt", Value::from("*")),
            ("arg", Value::Array(vec!["#a b".into(), "".into()])),
        ]);
        assert_eq!(read_as(form, b"tgt=%2A&arg=+%23a+b&arg"), Ok(expected));
        assert_eq!(read_as(form, b"a=%FF"), Err(BodyError::Form));
        assert_eq!(read_as("text/plain", b"{"), Err(BodyError::Json));
        assert_eq!(
            read_as("Application/JSON", b"[]"),
            Ok(Value::Array(Vec::new()))
        );
        assert_eq!(read_as("nonsense", b"1"), Ok(1_i64.into()));
        assert_eq!(read_as("image/png", b"1"), Err(BodyError::ContentType));
    }

    #[test]
    fn forms_are_read_as_on_the_command_line() {
        let form = "application/x-www-form-urlencoded; charset=utf-8";
        let read = read_as(form, b"tgt=%2A&arg=a+b&arg=1&kwarg={x: 2}&empty=&none").unwrap();
        let expected = Value::map([
            ("tgt", Value::from("*")),
            ("arg", Value::Array(vec!["a b".into(), 1_i64.into()])),
            ("kwarg", Value::map([("x", 2_i64)])),
        ]);
        assert_eq!(read, expected);
        let one = read_as(form, b"arg=1%").unwrap();
        assert_eq!(one, Value::map([("arg", Value::Array(vec!["1%".into()]))]));
    }

    #[test]
    fn bodies_that_are_no_values_are_refused() {
        let deep = "[".repeat(100_000);
        let cases: [(&'static str, &[u8], BodyError); 6] = [
            ("application/json", b"{", BodyError::Json),
            ("application/json", b"\"\xff\"", BodyError::Json),
            ("application/json", deep.as_bytes(), BodyError::Json),
            ("text/yaml", b"a: b: c", BodyError::Yaml),
            ("text/yaml", deep.as_bytes(), BodyError::Yaml),
            ("image/png", b"x", BodyError::ContentType),
        ];
        for (content_type, body, expected) in cases {
            assert_eq!(read_as(content_type, body), Err(expected), "{content_type}");
        }
        assert_eq!(read_as("text/plain", b"{"), Ok("{".into()));
        assert_eq!(
            read_as("text/plain", b"[1]"),
            Ok(Value::Array(vec![1_i64.into()]))
        );
    }
}
