//! The option `tracing`: sampling and export of traces (3008's option; its meaning is in stock's
//! `salt/utils/tracing.py`).

use saltern_base::trace::Sampler;

use crate::finding::Severity;
use crate::reader::Reader;
use crate::values::Secret;
use crate::yaml::{Mapping, Node};

/// The option, where it is on.
#[derive(Clone)]
pub struct TracingOptions {
    /// Spans are sent somewhere; else only the place in a trace goes on to others.
    pub is_exported: bool,
    /// Address of the collector; empty for the one in the environment.
    pub endpoint: String,
    /// Headers for there; they may be what lets us in.
    pub headers: Vec<(String, Secret)>,
    /// The name of the service.
    pub service_name: String,
    /// Further attributes of the resource.
    pub resource_attributes: Vec<(String, String)>,
    /// Sampling of traces.
    pub sampler: Sampler,
}

const NAME: &str = "tracing";

/// Reads it; `None` where it is off.
pub(crate) fn take(reader: &mut Reader<'_>) -> Option<TracingOptions> {
    let node = reader.written(NAME)?;
    let Some(map) = node.as_map() else {
        // Stock takes whatever is empty for nothing.
        if node.is_truthy() {
            reader.error(NAME, "is not a map");
        }
        return None;
    };
    if !map.get("enabled").is_some_and(Node::is_truthy) {
        return None;
    }
    Some(TracingOptions {
        is_exported: is_exported(reader, map),
        endpoint: text(map, "endpoint").unwrap_or_default(),
        headers: pairs(reader, map, "headers")
            .into_iter()
            .map(|(name, value)| (name, Secret::new(&value)))
            .collect(),
        service_name: text(map, "service_name").unwrap_or_else(|| "salt-master".to_owned()),
        resource_attributes: pairs(reader, map, "resource_attributes"),
        sampler: sampler(reader, map),
    })
}

fn is_exported(reader: &mut Reader<'_>, map: &Mapping) -> bool {
    let exporter = text(map, "exporter").unwrap_or_else(|| "otlp-http".to_owned());
    let is_known = exporter.eq_ignore_ascii_case("otlp-http");
    if !is_known {
        let message = format!(
            "the exporter \"{exporter}\" is not supported, only otlp-http: the master's own spans \
             go nowhere"
        );
        reader.find(Severity::Warning, NAME, message);
    }
    is_known
}

fn sampler(reader: &mut Reader<'_>, map: &Mapping) -> Sampler {
    // A number or its text, as Python's `float` takes it; stock takes all where it is neither.
    let part = match map.get("sampler_arg") {
        None => 1.0,
        Some(node) => match node.as_str() {
            Some(text) => text.trim().parse().unwrap_or(1.0),
            None => node.as_f64().unwrap_or(1.0),
        },
    };
    let name = text(map, "sampler").unwrap_or_else(|| "parent_based".to_owned());
    match name.to_ascii_lowercase().as_str() {
        "always_on" => Sampler::AlwaysOn,
        "always_off" => Sampler::AlwaysOff,
        "trace_id_ratio" => Sampler::TraceIdRatio(part),
        "parent_based" => Sampler::ParentBased(part),
        _ => {
            let message = format!("the sampler \"{name}\" is unknown: parent_based is used");
            reader.find(Severity::Warning, NAME, message);
            Sampler::ParentBased(1.0)
        }
    }
}

/// An entry that is text and not empty.
fn text(map: &Mapping, name: &str) -> Option<String> {
    let text = map.get(name).and_then(Node::as_str)?;
    (!text.is_empty()).then(|| text.to_owned())
}

fn pairs(reader: &mut Reader<'_>, map: &Mapping, name: &str) -> Vec<(String, String)> {
    let entries = match map.get(name) {
        Some(node) if node.is_truthy() => match node.as_map() {
            Some(entries) => entries,
            None => {
                reader.error(NAME, format!("\"{name}\" is not a map"));
                return Vec::new();
            }
        },
        _ => return Vec::new(),
    };
    let mut pairs = Vec::new();
    for (key, entry) in entries.iter() {
        let node = &entry.value;
        let value = match (node.as_str(), node.as_i64(), node.as_bool()) {
            (Some(text), ..) => Some(text.to_owned()),
            (None, Some(number), _) => Some(number.to_string()),
            (None, None, Some(flag)) => Some(flag.to_string()),
            _ => None,
        };
        match value {
            Some(value) => pairs.push((key.to_string(), value)),
            None => reader.error(NAME, format!("\"{key}\" in \"{name}\" is no text")),
        }
    }
    pairs
}
