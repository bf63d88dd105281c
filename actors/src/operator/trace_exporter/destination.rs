//! Destination of spans: the option `tracing`, and otherwise the environment, by the names of
//! OpenTelemetry (as its SDK reads them for stock).

use std::path::PathBuf;
use std::time::Duration;

use saltern_base::percent_decoded;
use saltern_config::{MasterConfig, TracingOptions};
use saltern_http::client::Tls;

/// Destination of spans, and the attributes of this process.
pub(crate) struct Destination {
    pub(super) url: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) tls: Tls,
    pub(super) timeout: Duration,
    /// Attributes of the resource.
    pub(super) resource: Vec<(String, String)>,
}

/// The collectors' default endpoint.
const DEFAULT: &str = "http://localhost:4318/v1/traces";
/// Longest timeout of a request, whatever is configured: a stop of the master waits for the
/// request in progress.
const MAX_TIMEOUT: Duration = Duration::from_secs(2);

impl Destination {
    /// The destination; `environment` gives the value of a variable.
    pub(crate) fn of(
        config: &MasterConfig,
        options: &TracingOptions,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Self {
        let variable = |name: &str| environment(name).filter(|value| !value.is_empty());
        // The variable for traces alone takes precedence.
        let of_exporter = |name: &str| {
            variable(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}"))
                .or_else(|| variable(&format!("OTEL_EXPORTER_OTLP_{name}")))
        };
        let url = match options.endpoint.as_str() {
            "" => variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
                .or_else(|| {
                    let base = variable("OTEL_EXPORTER_OTLP_ENDPOINT")?;
                    Some(format!("{}/v1/traces", base.trim_end_matches('/')))
                })
                .unwrap_or_else(|| DEFAULT.to_owned()),
            endpoint => endpoint.to_owned(),
        };
        let headers = match options.headers.as_slice() {
            [] => pairs(&of_exporter("HEADERS").unwrap_or_default()),
            given => given
                .iter()
                .map(|(name, value)| (name.clone(), value.expose().to_owned()))
                .collect(),
        };
        let seconds = of_exporter("TIMEOUT").and_then(|text| text.trim().parse().ok());
        let timeout = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let mut resource = pairs(&variable("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default());
        resource.push(("service.name".to_owned(), options.service_name.clone()));
        resource.push(("service.instance.id".to_owned(), config.id.to_string()));
        resource.extend(options.resource_attributes.iter().cloned());
        Self {
            url,
            headers,
            tls: Tls {
                verify: true,
                ca_bundle: of_exporter("CERTIFICATE")
                    .or_else(|| config.ca_bundle().map(str::to_owned))
                    .map(PathBuf::from),
            },
            timeout: timeout.map_or(MAX_TIMEOUT, |timeout| timeout.min(MAX_TIMEOUT)),
            resource: the_last_of_each(resource),
        }
    }
}

/// `name=value,…` with percent signs, as in W3C Baggage.
fn pairs(text: &str) -> Vec<(String, String)> {
    let pair = |part: &str| {
        let (name, value) = part.split_once('=')?;
        let name = name.trim().to_owned();
        (!name.is_empty()).then(|| (name, decoded(value.trim())))
    };
    text.split(',').filter_map(pair).collect()
}

fn decoded(text: &str) -> String {
    String::from_utf8_lossy(&percent_decoded(text)).into_owned()
}

/// Of duplicates the last wins: the option.
fn the_last_of_each(pairs: Vec<(String, String)>) -> Vec<(String, String)> {
    let mut kept: Vec<(String, String)> = Vec::with_capacity(pairs.len());
    for (name, value) in pairs {
        kept.retain(|(known, _)| *known != name);
        kept.push((name, value));
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_the_environment_are_read() {
        let expected = [("a", "1"), ("Authorization", "Basic x=y"), ("c", "%zz%")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let text = "a=1, Authorization=Basic%20x=y,nothing,=1,c=%zz%";
        assert_eq!(pairs(text), expected);
    }

    #[test]
    fn the_last_one_counts() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let given = vec![pair("a", "1"), pair("b", "2"), pair("a", "3")];
        assert_eq!(the_last_of_each(given), [pair("b", "2"), pair("a", "3")]);
    }
}
