//! The options of the metrics endpoint: `saltern_metrics_address`, `saltern_metrics_ssl`,
//! `metrics_compat` and `saltern_metrics_minion_labels`.

use std::net::SocketAddr;

use crate::listeners::{TlsConfig, tls_of};
use crate::reader::Reader;
use crate::ssl::PeerCertificates;
use crate::yaml::{Node, NodeValue};

/// Further names under which metrics are exposed beside our own (`metrics_compat`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetricsCompat {
    /// Names of the program salt-exporter.
    pub salt_exporter: bool,
    /// Names that 3008 sends by OpenTelemetry.
    pub opentelemetry: bool,
    /// Whether salt-exporter's have its label `minion` (`saltern_metrics_minion_labels`).
    pub minion_labels: bool,
}

/// Reads `saltern_metrics_address`; `None` when it is empty, and when it is wrong.
pub(crate) fn address(reader: &mut Reader<'_>) -> Option<SocketAddr> {
    let name = "saltern_metrics_address";
    let text = reader.optional_text(name)?;
    let address = text.parse().ok();
    if address.is_none() {
        let message = format!("\"{text}\" is not an IP address and a port, as 127.0.0.1:4507 is");
        reader.error(name, message);
    }
    address
}

/// Reads `saltern_metrics_ssl`, as `ssl`.
pub(crate) fn tls(reader: &mut Reader<'_>) -> Option<TlsConfig> {
    tls_of(reader, "saltern_metrics_ssl", PeerCertificates::NotAsked)
}

/// Reads `metrics_compat`: a list of names, or one of them.
pub(crate) fn compat(reader: &mut Reader<'_>) -> MetricsCompat {
    let name = "metrics_compat";
    let mut compat = MetricsCompat {
        minion_labels: reader.bool("saltern_metrics_minion_labels"),
        ..MetricsCompat::default()
    };
    let one;
    let words = match reader.applies(name) {
        None => return compat,
        Some(node) => match &node.value {
            NodeValue::Null | NodeValue::Bool(false) => return compat,
            NodeValue::Seq(words) => words.as_slice(),
            _ => {
                one = [node.clone()];
                &one
            }
        },
    };
    let words: Vec<Option<&str>> = words.iter().map(Node::as_str).collect();
    for word in words {
        match word {
            Some("salt-exporter") => compat.salt_exporter = true,
            Some("opentelemetry") => compat.opentelemetry = true,
            _ => reader.error(name, "is not a list of salt-exporter and opentelemetry"),
        }
    }
    compat
}
