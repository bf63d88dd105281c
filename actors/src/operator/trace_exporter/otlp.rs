//! Spans as OTLP wants them in JSON (`opentelemetry.io/docs/specs/otlp`, "JSON Protobuf Encoding"):
//! ids in hexadecimal digits, 64-bit numbers as text.

use saltern_base::trace::{Attribute, FinishedSpan};
use serde_json::{Value, json};

/// The body of a request with these spans; `resource` says who sends them.
pub(super) fn request(resource: &[(String, String)], spans: &[FinishedSpan]) -> String {
    let resource: Vec<Value> = resource
        .iter()
        .map(|(name, value)| json!({"key": name, "value": {"stringValue": value}}))
        .collect();
    let spans: Vec<Value> = spans.iter().map(span).collect();
    json!({"resourceSpans": [{
        "resource": {"attributes": resource},
        "scopeSpans": [{
            "scope": {"name": "saltern", "version": env!("CARGO_PKG_VERSION")},
            "spans": spans,
        }],
    }]})
    .to_string()
}

fn span(span: &FinishedSpan) -> Value {
    let attribute = |(name, value): &(&'static str, Attribute)| {
        let value = match value {
            Attribute::Text(text) => json!({"stringValue": text}),
            Attribute::Number(number) => json!({"intValue": number.to_string()}),
        };
        json!({"key": name, "value": value})
    };
    let attributes: Vec<Value> = span.attributes.iter().map(attribute).collect();
    let parent = span.parent.map(|parent| format!("{parent:016x}"));
    json!({
        "traceId": format!("{:032x}", span.context.trace()),
        "spanId": format!("{:016x}", span.context.span()),
        "parentSpanId": parent.unwrap_or_default(),
        "traceState": span.context.state().unwrap_or_default(),
        "name": span.name,
        "kind": span.kind as u8,
        "startTimeUnixNano": nanoseconds(span.began),
        "endTimeUnixNano": nanoseconds(span.ended),
        "attributes": attributes,
    })
}

fn nanoseconds(micros: i64) -> String {
    (i128::from(micros.max(0)) * 1000).to_string()
}
