//! Listeners: transports, ports and TLS (`transport`, `saltern_also_listen`, `ssl`).
//!
//! `ssl` is read as stock's `_update_ssl_config` and `ssl_context` (`salt/config/__init__.py`,
//! `salt/transport/base.py`) do. A setting that cannot be honoured is an error with its line, so
//! that no port is less safe than configured. The TLS code finds out whether the files can be used.

use std::path::PathBuf;

use saltern_model::Compat;

use crate::reader::{Reader, shown};
use crate::values::{Choice, TransportName};
use crate::yaml::{Key, Mapping, Mark, Node, NodeValue};
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

/// `cert_reqs`: what peers have to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerCertificates {
    /// Nothing is asked for.
    NotAsked,
    /// A certificate signed by one of `ca_certs`, or none.
    Optional,
    /// A certificate signed by one of `ca_certs`.
    Required,
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

fn is_off(ssl: &Node) -> bool {
    matches!(ssl.value, NodeValue::Null | NodeValue::Bool(false))
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
    let ssl = reader.applies(name).filter(|ssl| !is_off(ssl))?;
    let empty = Mapping::default();
    let map = match &ssl.value {
        NodeValue::Bool(true) => &empty,
        NodeValue::Map(map) => map,
        _ => {
            let message = format!(
                "{} is neither true or false nor a mapping",
                shown(name, ssl)
            );
            reader.error(name, message);
            return None;
        }
    };
    let before = reader.findings.len();
    let config = Tls { reader, name, map }.read(default);
    (reader.findings.len() == before).then_some(config?)
}

/// The entries of an option like `ssl` while they are read.
struct Tls<'r, 'a> {
    reader: &'r mut Reader<'a>,
    name: &'static str,
    map: &'r Mapping,
}

impl Tls<'_, '_> {
    fn read(mut self, default: PeerCertificates) -> Option<TlsConfig> {
        for (key, entry) in self.map.iter() {
            let message = match key {
                Key::Str(name) => match name.as_str() {
                    "certfile" | "keyfile" | "ca_certs" | "cert_reqs" | "ssl_version"
                    | "ciphers" | "verify_locations" => continue,
                    "verify_flags" => "verify_flags cannot be honoured here".to_owned(),
                    _ => format!("\"{name}\" is no option of {}", self.name),
                },
                key => format!("\"{key}\" is no option of {}", self.name),
            };
            self.error(&entry.key_mark, message);
        }
        let certificate = self.path("certfile");
        if self.map.get("certfile").is_none() {
            let message = "certfile is missing: without a certificate no client can connect";
            self.reader.error(self.name, message);
        }
        let certificate = certificate?;
        let mut authorities: Vec<PathBuf> = self.path("ca_certs").into_iter().collect();
        authorities.extend(self.verify_locations());
        let peers = self.peers(default)?;
        if peers != PeerCertificates::NotAsked && authorities.is_empty() {
            let message = "peers must show certificates, but ca_certs names no authority for \
                           them (cert_reqs: CERT_NONE asks for none)";
            self.reader.error(self.name, message);
        }
        Some(TlsConfig {
            key: self.path("keyfile").unwrap_or_else(|| certificate.clone()),
            certificate,
            authorities,
            peers,
            only_tls12: self.only_tls12()?,
            ciphers: self.text("ciphers").map(|names| {
                let names = names.split([':', ',', ' ']);
                names
                    .filter(|name| !name.is_empty())
                    .map(str::to_owned)
                    .collect()
            }),
        })
    }

    fn error(&mut self, mark: &Mark, message: String) {
        error_at(self.reader, mark, self.name, message);
    }

    fn text(&mut self, name: &str) -> Option<String> {
        let node = self.map.get(name).filter(|node| !node.is_null())?;
        let text = node.as_str().filter(|text| !text.is_empty());
        if text.is_none() {
            self.error(&node.mark, format!("{name} is {}, not text", node.kind()));
        }
        text.map(str::to_owned)
    }

    fn path(&mut self, name: &str) -> Option<PathBuf> {
        self.text(name).map(PathBuf::from)
    }

    fn verify_locations(&mut self) -> Vec<PathBuf> {
        let Some(node) = self.map.get("verify_locations") else {
            return Vec::new();
        };
        let mut paths = Vec::new();
        let items = node.as_seq().unwrap_or_default();
        let mut is_understood = node.as_seq().is_some();
        for item in items {
            match (item.as_str(), item.as_map()) {
                (Some(path), _) => paths.push(PathBuf::from(path)),
                (None, Some(map)) if map.len() == 1 => match map.get("cafile") {
                    Some(path) if let Some(path) = path.as_str() => paths.push(path.into()),
                    _ => is_understood = false,
                },
                _ => is_understood = false,
            }
        }
        if !is_understood {
            let message = "verify_locations can only be a list of files (cafile) here";
            self.error(&node.mark, message.to_owned());
        }
        paths
    }

    fn peers(&mut self, default: PeerCertificates) -> Option<PeerCertificates> {
        let Some(text) = self.text("cert_reqs") else {
            return Some(default);
        };
        match text.as_str() {
            "CERT_NONE" => Some(PeerCertificates::NotAsked),
            "CERT_OPTIONAL" => Some(PeerCertificates::Optional),
            "CERT_REQUIRED" => Some(PeerCertificates::Required),
            _ => self.not_one_of(
                "cert_reqs",
                &text,
                "CERT_NONE, CERT_OPTIONAL, CERT_REQUIRED",
            ),
        }
    }

    fn only_tls12(&mut self) -> Option<bool> {
        let Some(text) = self.text("ssl_version") else {
            return Some(false);
        };
        match text.as_str() {
            // All of these mean "whatever both can do".
            "PROTOCOL_TLS" | "PROTOCOL_TLS_SERVER" | "PROTOCOL_SSLv23" => Some(false),
            "PROTOCOL_TLSv1_2" => Some(true),
            "PROTOCOL_TLSv1" | "PROTOCOL_TLSv1_1" | "PROTOCOL_SSLv2" | "PROTOCOL_SSLv3" => {
                let message = format!("{text} is too old to be safe; use TLS 1.2 or 1.3");
                let mark = self.mark("ssl_version");
                self.error(&mark, message);
                None
            }
            _ => self.not_one_of("ssl_version", &text, "PROTOCOL_TLS, PROTOCOL_TLSv1_2"),
        }
    }

    fn not_one_of<T>(&mut self, name: &str, text: &str, known: &str) -> Option<T> {
        let mark = self.mark(name);
        self.error(&mark, format!("{name} \"{text}\" is not one of {known}"));
        None
    }

    fn mark(&self, name: &str) -> Mark {
        match self.map.get_entry(name) {
            Some(entry) => entry.value.mark.clone(),
            None => self.reader.mark(self.name),
        }
    }
}
