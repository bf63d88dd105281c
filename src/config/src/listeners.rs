//! Listeners: transports, ports and TLS (`transport`, `saltern_also_listen`, `ssl`).
//!
//! The form of `ssl` is read by the module of that name; here stands what a listener needs of it.

use std::path::PathBuf;

use saltern_model::Compat;

use crate::reader::{Reader, shown};
use crate::ssl::{PeerCertificates, SslOption, SslProblem, TlsRole, is_off, read_ssl};
use crate::values::{Choice, TransportName};
use crate::yaml::{Key, Mark, Node, NodeValue};
use crate::{Finding, Severity};

/// A pair of ports beside `ret_port` and `publish_port`, with a transport of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlsoListen {
    /// The transport of both ports.
    pub transport: TransportName,
    /// For requests.
    pub ret_port: u16,
    /// For publications.
    pub publish_port: u16,
}

/// `ssl`: TLS on the ports of TCP and websockets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsConfig {
    /// PEM file of the certificate chain (`certfile`).
    pub certificate: PathBuf,
    /// PEM file of its key (`keyfile`); the same file unless it is named.
    pub key: PathBuf,
    /// PEM files of the certificate authorities for peers (`ca_certs`, `verify_locations`).
    pub authorities: Vec<PathBuf>,
    /// Certificates required of peers (`cert_reqs`).
    pub peers: PeerCertificates,
    /// TLS 1.2 and nothing else (`ssl_version: PROTOCOL_TLSv1_2`).
    pub only_tls12: bool,
    /// OpenSSL's names of the ciphers of TLS 1.2 that may be used (`ciphers`).
    pub ciphers: Option<Vec<String>>,
}

/// Reads `saltern_also_listen`.
pub(crate) fn also_listen(reader: &mut Reader<'_>) -> Vec<AlsoListen> {
    let name = "saltern_also_listen";
    let items = match reader.applies(name).map(|node| &node.value) {
        None | Some(NodeValue::Null) => return Vec::new(),
        Some(NodeValue::Seq(items)) => items,
        Some(_) => {
            reader.error(name, "is not a list of mappings");
            return Vec::new();
        }
    };
    let mut listeners = Vec::new();
    for item in items {
        match one(item) {
            Ok(listener) => listeners.push(listener),
            Err((mark, message)) => error_at(reader, &mark, name, message),
        }
    }
    listeners
}

fn error_at(reader: &mut Reader<'_>, mark: &Mark, name: &str, message: String) {
    let finding = Finding::new(Severity::Error, mark, name, message);
    reader.findings.push(finding);
}

fn one(item: &Node) -> Result<AlsoListen, (Mark, String)> {
    let wanted = "is not a mapping of transport, ret_port and publish_port";
    let wrong = |node: &Node, message: String| (node.mark.clone(), message);
    let map = item
        .as_map()
        .ok_or_else(|| wrong(item, format!("{} {wanted}", item.kind())))?;
    for (key, entry) in map.iter() {
        let known = ["transport", "ret_port", "publish_port"];
        if !matches!(key, Key::Str(name) if known.contains(&name.as_str())) {
            let message = format!("\"{key}\" is not one of {}", known.join(", "));
            return Err((entry.key_mark.clone(), message));
        }
    }
    let value = |name: &str| {
        map.get(name)
            .ok_or_else(|| wrong(item, format!("{name} is missing")))
    };
    let port = |name: &str| {
        let node = value(name)?;
        let port = node.as_i64().and_then(|port| u16::try_from(port).ok());
        port.filter(|port| *port > 0)
            .ok_or_else(|| wrong(node, format!("{} is not a port", shown(name, node))))
    };
    let node = value("transport")?;
    let transport = node.as_str().and_then(TransportName::from_name);
    let transport = transport.ok_or_else(|| {
        let names: Vec<&str> = TransportName::CHOICES
            .iter()
            .map(|(name, _)| *name)
            .collect();
        let message = format!(
            "{} is not one of {}",
            shown("transport", node),
            names.join(", ")
        );
        wrong(node, message)
    })?;
    Ok(AlsoListen {
        transport,
        ret_port: port("ret_port")?,
        publish_port: port("publish_port")?,
    })
}

/// Looks at the ports together: no port and no transport twice.
pub(crate) fn check(reader: &mut Reader<'_>, first: AlsoListen, others: &[AlsoListen]) {
    let name = "saltern_also_listen";
    let mut ports = vec![first.ret_port, first.publish_port];
    let mut transports = vec![first.transport];
    for other in others {
        if transports.contains(&other.transport) {
            let message = format!("the transport \"{}\" is in use already", other.transport);
            reader.error(name, message);
        }
        transports.push(other.transport);
        for port in [other.ret_port, other.publish_port] {
            if ports.contains(&port) {
                reader.error(name, format!("the port {port} is taken already"));
            }
            ports.push(port);
        }
    }
    let is_asked = reader.applies("ssl").is_some_and(|ssl| !is_off(ssl));
    if is_asked && transports.contains(&TransportName::ZeroMq) {
        match transports.len() {
            1 => reader.error(
                "ssl",
                "the transport \"zeromq\" has no TLS; the traffic would not be as asked",
            ),
            _ => reader.find(
                Severity::Warning,
                "ssl",
                "covers the ports of the other transports; \"zeromq\" has no TLS",
            ),
        }
    }
}

/// Reads `ssl`. `None` also if it is invalid, which is then a finding.
pub(crate) fn tls(reader: &mut Reader<'_>, compat: Compat) -> Option<TlsConfig> {
    // Without `cert_reqs` 3006 and 3007 ask for no certificate, 3008 requires one.
    let default = match compat {
        Compat::V3006 | Compat::V3007 => PeerCertificates::NotAsked,
        Compat::V3008 => PeerCertificates::Required,
    };
    tls_of(reader, "ssl", default)
}

/// Reads an option with the form of `ssl`.
pub(crate) fn tls_of(
    reader: &mut Reader<'_>,
    name: &'static str,
    default: PeerCertificates,
) -> Option<TlsConfig> {
    match read_ssl(name, reader.applies(name)?, TlsRole::Server) {
        Ok(written) => config_of(reader, name, written?, default),
        Err(problems) => {
            for SslProblem { mark, message } in problems {
                error_at(reader, &mark, name, message);
            }
            None
        }
    }
}

/// The settings of a listener, which needs a certificate.
fn config_of(
    reader: &mut Reader<'_>,
    name: &'static str,
    written: SslOption,
    default: PeerCertificates,
) -> Option<TlsConfig> {
    let peers = written.peers.unwrap_or(default);
    let Some(certificate) = written.certificate else {
        let message = "certfile is missing: without a certificate no client can connect";
        reader.error(name, message);
        return None;
    };
    if peers != PeerCertificates::NotAsked && written.authorities.is_empty() {
        let message = "peers must show certificates, but ca_certs names no authority for \
                       them (cert_reqs: CERT_NONE asks for none)";
        reader.error(name, message);
        return None;
    }
    Some(TlsConfig {
        key: written.key.unwrap_or_else(|| certificate.clone()),
        certificate,
        authorities: written.authorities,
        peers,
        only_tls12: written.only_tls12,
        ciphers: written.ciphers,
    })
}
