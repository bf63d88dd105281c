//! The mapping of `ssl`, which master and minion write in one form (`_update_ssl_config` in
//! `salt/config/__init__.py`, `ssl_context` in `salt/transport/base.py`).
//!
//! A setting that cannot be honoured is a problem with its line, so that no connection is less safe than
//! configured. The TLS code finds out whether the files can be used.

use std::path::PathBuf;

use crate::reader::shown;
use crate::yaml::{Key, Mapping, Mark, Node, NodeValue};

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

/// Reader of `ssl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsRole {
    /// A listener.
    Server,
    /// A minion, or a syndic.
    Client,
}

/// `ssl` as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SslOption {
    /// PEM file of the certificate chain (`certfile`).
    pub certificate: Option<PathBuf>,
    /// PEM file of its key (`keyfile`).
    pub key: Option<PathBuf>,
    /// PEM files of the certificate authorities for peers (`ca_certs`, `verify_locations`).
    pub authorities: Vec<PathBuf>,
    /// Certificates required of peers (`cert_reqs`); each side has a default of its own.
    pub peers: Option<PeerCertificates>,
    /// TLS 1.2 and nothing else (`ssl_version: PROTOCOL_TLSv1_2`).
    pub only_tls12: bool,
    /// OpenSSL's names of the ciphers of TLS 1.2 that may be used (`ciphers`).
    pub ciphers: Option<Vec<String>>,
}

/// A setting in `ssl` that cannot be honoured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SslProblem {
    /// Its position.
    pub mark: Mark,
    /// The reason.
    pub message: String,
}

/// Whether a value of `ssl` means no TLS.
pub(crate) fn is_off(ssl: &Node) -> bool {
    matches!(ssl.value, NodeValue::Null | NodeValue::Bool(false))
}

/// Reads an option with the form of `ssl`; `None` where it is off.
///
/// # Errors
/// The settings that cannot be honoured.
pub fn read_ssl(
    name: &str,
    ssl: &Node,
    role: TlsRole,
) -> Result<Option<SslOption>, Vec<SslProblem>> {
    let empty = Mapping::default();
    let map = match &ssl.value {
        _ if is_off(ssl) => return Ok(None),
        NodeValue::Bool(true) => &empty,
        NodeValue::Map(map) => map,
        _ => {
            let message = format!(
                "{} is neither true or false nor a mapping",
                shown(name, ssl)
            );
            let mark = ssl.mark.clone();
            return Err(vec![SslProblem { mark, message }]);
        }
    };
    let mut ssl = Ssl {
        name,
        map,
        role,
        problems: Vec::new(),
    };
    let read = ssl.read();
    match ssl.problems.is_empty() {
        true => Ok(Some(read)),
        false => Err(ssl.problems),
    }
}

/// The entries of an option like `ssl` while they are read.
struct Ssl<'a> {
    name: &'a str,
    map: &'a Mapping,
    role: TlsRole,
    problems: Vec<SslProblem>,
}

impl Ssl<'_> {
    fn read(&mut self) -> SslOption {
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
            self.problem(&entry.key_mark, message);
        }
        let mut authorities: Vec<PathBuf> = self.path("ca_certs").into_iter().collect();
        authorities.extend(self.verify_locations());
        SslOption {
            certificate: self.certificate(),
            key: self.path("keyfile"),
            authorities,
            peers: self.peers(),
            only_tls12: self.only_tls12(),
            ciphers: self.ciphers(),
        }
    }

    /// The certificate, without which a client shows nothing: then its key is of no use.
    fn certificate(&mut self) -> Option<PathBuf> {
        let certificate = self.path("certfile");
        let key = self.map.get("keyfile").filter(|node| !node.is_null());
        if let (TlsRole::Client, None, Some(key)) = (self.role, &certificate, key) {
            let message = "keyfile is of no use without certfile";
            self.problem(&key.mark, message.to_owned());
        }
        certificate
    }

    fn ciphers(&mut self) -> Option<Vec<String>> {
        let (names, mark) = self.text("ciphers")?;
        let names = names.split([':', ',', ' ']);
        let names = names.filter(|name| !name.is_empty());
        let names: Vec<String> = names.map(str::to_owned).collect();
        if names.is_empty() {
            self.problem(&mark, "ciphers names no cipher".to_owned());
        }
        Some(names)
    }

    fn problem(&mut self, mark: &Mark, message: String) {
        let mark = mark.clone();
        self.problems.push(SslProblem { mark, message });
    }

    /// A text, with its position.
    fn text(&mut self, name: &str) -> Option<(String, Mark)> {
        let node = self.map.get(name).filter(|node| !node.is_null())?;
        let text = node.as_str().filter(|text| !text.is_empty());
        if text.is_none() {
            self.problem(&node.mark, format!("{name} is {}, not text", node.kind()));
        }
        text.map(|text| (text.to_owned(), node.mark.clone()))
    }

    fn path(&mut self, name: &str) -> Option<PathBuf> {
        self.text(name).map(|(path, _)| PathBuf::from(path))
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
            self.problem(&node.mark, message.to_owned());
        }
        paths
    }

    fn peers(&mut self) -> Option<PeerCertificates> {
        let (text, mark) = self.text("cert_reqs")?;
        match text.as_str() {
            "CERT_NONE" => Some(PeerCertificates::NotAsked),
            "CERT_OPTIONAL" => Some(PeerCertificates::Optional),
            "CERT_REQUIRED" => Some(PeerCertificates::Required),
            _ => {
                let known = "CERT_NONE, CERT_OPTIONAL, CERT_REQUIRED";
                self.not_one_of(("cert_reqs", &text), &mark, known);
                None
            }
        }
    }

    fn only_tls12(&mut self) -> bool {
        let Some((text, mark)) = self.text("ssl_version") else {
            return false;
        };
        match (text.as_str(), self.role) {
            // All of these mean "whatever both can do".
            ("PROTOCOL_TLS" | "PROTOCOL_SSLv23", _)
            | ("PROTOCOL_TLS_SERVER", TlsRole::Server)
            | ("PROTOCOL_TLS_CLIENT", TlsRole::Client) => false,
            ("PROTOCOL_TLSv1_2", _) => true,
            ("PROTOCOL_TLSv1" | "PROTOCOL_TLSv1_1" | "PROTOCOL_SSLv2" | "PROTOCOL_SSLv3", _) => {
                let message = format!("{text} is too old to be safe; use TLS 1.2 or 1.3");
                self.problem(&mark, message);
                false
            }
            _ => {
                let known = "PROTOCOL_TLS, PROTOCOL_TLSv1_2";
                self.not_one_of(("ssl_version", &text), &mark, known);
                false
            }
        }
    }

    fn not_one_of(&mut self, (name, text): (&str, &str), mark: &Mark, known: &str) {
        self.problem(mark, format!("{name} \"{text}\" is not one of {known}"));
    }
}
