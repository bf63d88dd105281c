//! Spans as OTLP wants them in JSON (`opentelemetry.io/docs/specs/otlp`, "JSON Protobuf Encoding"):
//! ids in hexadecimal digits, 64-bit numbers as text.

use std::fmt::LowerHex;

use saltern_base::trace::{Attribute, FinishedSpan};
use serde::Serialize;

/// `ExportTraceServiceRequest`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Request<'a> {
    resource_spans: [ResourceSpans<'a>; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceSpans<'a> {
    resource: Resource<'a>,
    scope_spans: [ScopeSpans<'a>; 1],
}

#[derive(Serialize)]
struct Resource<'a> {
    attributes: Vec<KeyValue<'a>>,
}

#[derive(Serialize)]
struct ScopeSpans<'a> {
    scope: Scope,
    spans: Vec<Span<'a>>,
}

/// `InstrumentationScope`.
#[derive(Serialize)]
struct Scope {
    name: &'static str,
    version: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Span<'a> {
    trace_id: String,
    span_id: String,
    parent_span_id: String,
    trace_state: &'a str,
    name: &'a str,
    kind: u8,
    start_time_unix_nano: String,
    end_time_unix_nano: String,
    attributes: Vec<KeyValue<'a>>,
}

#[derive(Serialize)]
struct KeyValue<'a> {
    key: &'a str,
    value: AnyValue<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum AnyValue<'a> {
    StringValue(&'a str),
    IntValue(String),
}

/// The body of a request with these spans; `resource` says who sends them.
pub(super) fn request(resource: &[(String, String)], spans: &[FinishedSpan]) -> String {
    let attributes = resource.iter().map(|(key, value)| KeyValue {
        key,
        value: AnyValue::StringValue(value),
    });
    let scope = Scope {
        name: "saltern",
        version: env!("CARGO_PKG_VERSION"),
    };
    let spans = spans.iter().map(Span::of).collect();
    let request = Request {
        resource_spans: [ResourceSpans {
            resource: Resource {
                attributes: attributes.collect(),
            },
            scope_spans: [ScopeSpans { scope, spans }],
        }],
    };
    serde_json::to_string(&request).expect("invariant: texts and numbers make JSON")
}

impl<'a> Span<'a> {
    fn of(span: &'a FinishedSpan) -> Self {
        let attributes = span.attributes.iter().map(|(key, value)| KeyValue {
            key,
            value: match value {
                Attribute::Text(text) => AnyValue::StringValue(text),
                Attribute::Number(number) => AnyValue::IntValue(number.to_string()),
            },
        });
        Self {
            trace_id: format!("{:032x}", span.context.trace()),
            span_id: id(span.context.span()),
            parent_span_id: span.parent.map(id).unwrap_or_default(),
            trace_state: span.context.state().unwrap_or_default(),
            name: &span.name,
            kind: span.kind as u8,
            start_time_unix_nano: nanoseconds(span.began),
            end_time_unix_nano: nanoseconds(span.ended),
            attributes: attributes.collect(),
        }
    }
}

fn id(id: impl LowerHex) -> String {
    format!("{id:016x}")
}

fn nanoseconds(micros: i64) -> String {
    (i128::from(micros.max(0)) * 1000).to_string()
}
