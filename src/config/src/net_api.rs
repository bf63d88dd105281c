//! The options of the HTTP API: stock's sections `rest_cherrypy`, `rest_tornado` and `rest_wsgi`, what
//! stands beside them, and our own `saltern_api`.
//!
//! Each section that stock's salt-api would serve is a server. `saltern_api: stock` leaves all of them
//! to a salt-api beside this master, `false` serves none.

use std::path::PathBuf;
use std::time::Duration;

use crate::finding::Severity;
use crate::identity;
use crate::listeners::TlsConfig;
use crate::reader::Reader;
use crate::ssl::PeerCertificates;
use crate::yaml::{Mapping, Node, NodeValue};

/// Name of our own option.
const OWN: &str = "saltern_api";

/// The option that turns the console on or off.
const CONSOLE: &str = "saltern_console";

/// The port of our own server, that of stock's examples.
const OWN_PORT: u16 = 8000;

/// The largest body unless the section says otherwise, in bytes.
const MAX_BODY: i64 = 1_048_576;

/// Name of our own sub-option: the authorities of the certificates that clients have to show.
const CLIENT_CA: &str = "saltern_client_ca";

/// Sub-options without meaning here: there are no threads for requests, and no log of its own.
const NO_EFFECT: [&str; 15] = [
    "address",
    "collect_stats",
    "debug",
    "expire_responses",
    "log_access_file",
    "log_error_file",
    "num_processes",
    "pub_uri",
    "queue_size",
    "root_prefix",
    "socket_queue_size",
    "ssl_chain",
    "static_content",
    "thread_pool",
    "websockets",
];

/// Sub-options that are honoured.
const HONOURED: [&str; 21] = [
    "api_acl",
    "app",
    "app_path",
    "authorized_ips",
    "cors_origin",
    "disable_ssl",
    "enable_sessions",
    "favicon",
    "host",
    "max_request_body_size",
    "max_buffer_size",
    "port",
    CLIENT_CA,
    "ssl_crt",
    "ssl_key",
    "static",
    "static_path",
    "stats_disable_auth",
    "webhook_disable_auth",
    "webhook_url",
    "url",
];

/// Dialect of a server: stock's API module whose requests and answers it speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiDialect {
    /// Stock's rest_cherrypy.
    CherryPy,
    /// Stock's rest_tornado.
    Tornado,
    /// Stock's rest_wsgi.
    Wsgi,
}

/// A server of the API.
#[derive(Clone, Debug)]
pub struct ApiServer {
    /// The option that asks for it.
    pub option: &'static str,
    /// Its dialect.
    pub dialect: ApiDialect,
    /// The host that it listens on, a name or an address.
    pub host: String,
    /// The port.
    pub port: u16,
    /// TLS, unless `disable_ssl`.
    pub tls: Option<TlsConfig>,
    /// The largest body of a request, in bytes.
    pub max_body: usize,
    /// The page of the site's own application (`app`).
    pub app: Option<PathBuf>,
    /// Path of that application.
    pub app_path: String,
    /// A directory of files (`static`).
    pub static_dir: Option<PathBuf>,
    /// Path of the static files.
    pub static_path: String,
    /// The icon.
    pub favicon: Option<PathBuf>,
    /// Path of the hooks, without slashes around it.
    pub webhook_url: String,
    /// Whether hooks need no session.
    pub webhook_disable_auth: bool,
    /// Whether the statistics need none.
    pub stats_disable_auth: bool,
    /// Whether there are sessions, and the pages that need them.
    pub enable_sessions: bool,
    /// The addresses that may send requests; empty for all.
    pub authorized_ips: Vec<String>,
    /// Addresses from which users may log in (`api_acl`), by name; `None` for no such rule.
    pub api_acl: Option<Vec<(String, Vec<String>)>>,
    /// Other origins whose pages may send requests.
    pub cors_origin: Vec<String>,
    /// Whether it serves the console, too (`saltern_console`).
    pub console: bool,
    /// Whether events are also served over websockets.
    pub websockets: bool,
}

/// The API.
#[derive(Clone, Debug)]
pub struct NetApiOptions {
    /// Its servers; without any it is off.
    pub servers: Vec<ApiServer>,
    /// The clients that may be used (`netapi_enable_clients`).
    pub enabled_clients: Vec<String>,
    /// Whether commands may have `raw_shell` (`netapi_allow_raw_shell`).
    pub allow_raw_shell: bool,
    /// How long a runner function is waited for (`rest_timeout`).
    pub rest_timeout: Duration,
    /// Where users reach the console (`saltern_console_url`); nothing for its own server.
    pub console_url: Option<String>,
}

impl NetApiOptions {
    /// The address of a page of the console; nothing where no server serves it.
    pub fn console_page(&self, page: &str) -> Option<String> {
        let server = self.servers.iter().find(|server| server.console)?;
        let base = match &self.console_url {
            Some(url) => url.trim_end_matches('/').to_owned(),
            None => server.url(),
        };
        Some(format!("{base}/console/{page}"))
    }
}

impl ApiServer {
    /// Its address, by the name of this host where it listens on all addresses.
    fn url(&self) -> String {
        let scheme = match self.tls {
            Some(_) => "https",
            None => "http",
        };
        let host = match self.host.as_str() {
            "" | "0.0.0.0" | "::" => identity::host_name(),
            host if host.contains(':') => format!("[{host}]"),
            host => host.to_owned(),
        };
        format!("{scheme}://{host}:{}", self.port)
    }
}

/// Reads all of them.
pub(crate) fn take(reader: &mut Reader<'_>) -> NetApiOptions {
    let enabled = reader.applies("netapi_enable_clients");
    reader.mark_read("netapi_enable_clients");
    let enabled_clients = enabled.map(texts).unwrap_or_default();
    if enabled.is_some_and(|node| !matches!(node.value, NodeValue::Seq(_) | NodeValue::Null)) {
        let message = "is no list such as [local, runner]";
        reader.find(Severity::Warning, "netapi_enable_clients", message);
    }
    let rest_timeout = match reader.written("rest_timeout") {
        Some(_) => reader.seconds("rest_timeout"),
        None => Duration::from_secs(300),
    };
    let sections = [
        ("rest_cherrypy", ApiDialect::CherryPy),
        ("rest_tornado", ApiDialect::Tornado),
        ("rest_wsgi", ApiDialect::Wsgi),
    ];
    let mut servers = Vec::new();
    for (name, dialect) in sections {
        reader.mark_read(name);
        let written = reader.written(name);
        let section = written.and_then(Node::as_map);
        if written.is_some_and(|node| section.is_none() && node.value != NodeValue::Null) {
            reader.find(
                Severity::Warning,
                name,
                "is no mapping, so it is not served",
            );
        }
        servers.extend(section.and_then(|section| of_section(reader, (name, dialect), section)));
    }
    reader.mark_read(OWN);
    match reader.applies(OWN).map(|node| &node.value) {
        None | Some(NodeValue::Null) => {}
        Some(NodeValue::Bool(false)) => servers.clear(),
        Some(NodeValue::Str(text)) if text == "stock" => servers.clear(),
        Some(NodeValue::Bool(true)) => servers.push(own(&Mapping::default())),
        Some(NodeValue::Map(section)) => {
            report(reader, OWN, section);
            servers.push(own(section));
        }
        Some(_) => reader.error(
            OWN,
            "is not true, false, stock or a mapping such as {port: 8000}",
        ),
    }
    let console = match reader.applies(CONSOLE).is_none_or(Node::is_null) {
        true => {
            reader.mark_read(CONSOLE);
            None
        }
        false => Some(reader.bool(CONSOLE)),
    };
    for server in &mut servers {
        // Who upgrades a site of stock's gets no new pages on its ports unasked.
        server.console = console.unwrap_or(server.option == OWN);
    }
    if servers.is_empty() {
        // Nobody is asked, so nothing is enabled.
    } else if enabled_clients.is_empty() {
        let message = "is empty, so the API runs no commands";
        reader.find(Severity::Info, "netapi_enable_clients", message);
    }
    NetApiOptions {
        servers,
        enabled_clients,
        allow_raw_shell: reader.bool("netapi_allow_raw_shell"),
        rest_timeout,
        console_url: Some(reader.text("saltern_console_url")).filter(|url| !url.is_empty()),
    }
}

/// The server of a section of stock's; `None` where stock's salt-api would not start it either.
fn of_section(
    reader: &mut Reader<'_>,
    (name, dialect): (&'static str, ApiDialect),
    section: &Mapping,
) -> Option<ApiServer> {
    report(reader, name, section);
    let port = section.get("port").and_then(Node::as_i64);
    let Some(port) = port.and_then(|port| u16::try_from(port).ok()) else {
        reader.find(Severity::Warning, name, "has no port, so it is not served");
        return None;
    };
    let tls = match dialect {
        ApiDialect::Wsgi => None,
        _ if is_true(section, "disable_ssl") => None,
        _ => {
            let file = |option| {
                section
                    .get(option)
                    .and_then(Node::as_str)
                    .map(PathBuf::from)
            };
            let (Some(certificate), Some(key)) = (file("ssl_crt"), file("ssl_key")) else {
                let message =
                    "has neither ssl_crt and ssl_key nor disable_ssl, so it is not served";
                reader.find(Severity::Warning, name, message);
                return None;
            };
            Some(tls(certificate, key, file(CLIENT_CA)))
        }
    };
    let host = match dialect {
        ApiDialect::Wsgi => "localhost",
        ApiDialect::CherryPy => section
            .get("host")
            .and_then(Node::as_str)
            .unwrap_or("0.0.0.0"),
        ApiDialect::Tornado => section
            .get("address")
            .and_then(Node::as_str)
            .unwrap_or("0.0.0.0"),
    };
    Some(server((name, dialect), (host, port), tls, section))
}

/// Our own server: on this machine only, unless another host is named.
fn own(section: &Mapping) -> ApiServer {
    let text = |option| section.get(option).and_then(Node::as_str);
    let port = section.get("port").and_then(Node::as_i64);
    let port = port
        .and_then(|port| u16::try_from(port).ok())
        .unwrap_or(OWN_PORT);
    let tls = match (text("ssl_crt"), text("ssl_key")) {
        (Some(certificate), Some(key)) => {
            let authority = text(CLIENT_CA).map(PathBuf::from);
            Some(tls(certificate.into(), key.into(), authority))
        }
        _ => None,
    };
    let host = text("host").unwrap_or("127.0.0.1");
    server((OWN, ApiDialect::CherryPy), (host, port), tls, section)
}

fn tls(certificate: PathBuf, key: PathBuf, authority: Option<PathBuf>) -> TlsConfig {
    let peers = match authority {
        Some(_) => PeerCertificates::Required,
        None => PeerCertificates::NotAsked,
    };
    TlsConfig {
        certificate,
        key,
        authorities: authority.into_iter().collect(),
        peers,
        only_tls12: false,
        ciphers: None,
    }
}

fn server(
    (option, dialect): (&'static str, ApiDialect),
    (host, port): (&str, u16),
    tls: Option<TlsConfig>,
    section: &Mapping,
) -> ApiServer {
    let text = |option: &str| section.get(option).and_then(Node::as_str);
    let path = |option: &str| text(option).map(PathBuf::from);
    let max_body = ["max_request_body_size", "max_buffer_size"];
    let max_body = max_body
        .iter()
        .find_map(|option| section.get(option)?.as_i64());
    let default = match dialect {
        ApiDialect::Tornado => 100 << 20,
        _ => MAX_BODY,
    };
    ApiServer {
        option,
        dialect,
        host: host.to_owned(),
        port,
        tls,
        max_body: usize::try_from(max_body.unwrap_or(default)).unwrap_or(usize::MAX),
        app: path("app"),
        app_path: text("app_path").unwrap_or("/app").to_owned(),
        static_dir: path("static"),
        static_path: text("static_path").unwrap_or("/static").to_owned(),
        favicon: path("favicon"),
        webhook_url: text("webhook_url")
            .unwrap_or("hook")
            .trim_matches('/')
            .to_owned(),
        webhook_disable_auth: is_true(section, "webhook_disable_auth"),
        stats_disable_auth: is_true(section, "stats_disable_auth"),
        enable_sessions: section.get("enable_sessions").is_none_or(Node::is_truthy),
        authorized_ips: section.get("authorized_ips").map(texts).unwrap_or_default(),
        api_acl: section
            .get("api_acl")
            .filter(|acl| acl.is_truthy())
            .map(api_acl),
        cors_origin: section.get("cors_origin").map(texts).unwrap_or_default(),
        console: false,
        websockets: match dialect {
            // Without an option in stock, too: there its Python package decides.
            ApiDialect::CherryPy => true,
            ApiDialect::Tornado => is_true(section, "websockets"),
            ApiDialect::Wsgi => false,
        },
    }
}

fn api_acl(acl: &Node) -> Vec<(String, Vec<String>)> {
    let users = acl
        .as_map()
        .and_then(|acl| acl.get("users"))
        .and_then(Node::as_map);
    let users = users.into_iter().flat_map(Mapping::iter);
    users
        .map(|(user, entry)| (user.to_string(), texts(&entry.value)))
        .collect()
}

fn is_true(section: &Mapping, option: &str) -> bool {
    section.get(option).is_some_and(Node::is_truthy)
}

/// The texts of a list, or the one text.
fn texts(node: &Node) -> Vec<String> {
    let items = match node.as_seq() {
        Some(items) => items,
        None => std::slice::from_ref(node),
    };
    items
        .iter()
        .filter_map(Node::as_str)
        .map(str::to_owned)
        .collect()
}

/// Reports sub-options that do nothing here, or that nobody knows.
fn report(reader: &mut Reader<'_>, name: &str, section: &Mapping) {
    for (key, _) in section.iter() {
        let key = key.to_string();
        let of_tornado = ["address", "websockets"].contains(&key.as_str());
        if (name == "rest_tornado" && of_tornado) || HONOURED.contains(&key.as_str()) {
            continue;
        }
        let message = match NO_EFFECT.contains(&key.as_str()) {
            true => format!("\"{key}\" in it has no effect in this master"),
            false => format!("\"{key}\" in it is not known"),
        };
        reader.find(Severity::Info, name, message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> NetApiOptions {
        let dir = tempfile::tempdir().unwrap();
        let text = format!("root_dir: /nowhere\nid: m\n{text}");
        std::fs::write(dir.path().join("master"), text).unwrap();
        let loaded = crate::load_master(dir.path());
        let loaded = loaded.map_err(|errors| errors.to_string());
        loaded.unwrap().config.net_api
    }

    #[test]
    fn api_is_off_unless_a_section_asks_for_it() {
        assert!(options("").servers.is_empty());
        let section = "rest_cherrypy: {port: 8000, disable_ssl: true}\n";
        let served = options(section).servers;
        assert_eq!((served[0].host.as_str(), served[0].port), ("0.0.0.0", 8000));
        for without in [
            "rest_cherrypy: {port: 8000}\n",
            "rest_cherrypy: {disable_ssl: true}\n",
        ] {
            assert!(options(without).servers.is_empty(), "{without}");
        }
        for word in ["stock", "false"] {
            assert!(
                options(&format!("{section}saltern_api: {word}\n"))
                    .servers
                    .is_empty()
            );
        }
    }

    #[test]
    fn websockets_of_tornado_are_served_where_its_section_says_so() {
        for (section, expected) in [
            ("rest_tornado: {port: 1, disable_ssl: true}", false),
            (
                "rest_tornado: {port: 1, disable_ssl: true, websockets: true}",
                true,
            ),
            ("rest_cherrypy: {port: 1, disable_ssl: true}", true),
            ("rest_wsgi: {port: 1}", false),
        ] {
            assert_eq!(
                options(section).servers[0].websockets,
                expected,
                "{section}"
            );
        }
    }

    #[test]
    fn own_section_is_served_on_this_machine() {
        let served = options("saltern_api: true\n").servers;
        assert_eq!(
            (served[0].host.as_str(), served[0].port),
            ("127.0.0.1", 8000)
        );
        let served = options("saltern_api: {port: 9000, host: '::'}\n").servers;
        assert_eq!((served[0].host.as_str(), served[0].port), ("::", 9000));
    }

    #[test]
    fn page_of_the_console_is_named_by_the_address_of_its_server() {
        let host = identity::host_name();
        for (text, expected) in [
            ("", None),
            ("saltern_api: true\nsaltern_console: false\n", None),
            (
                "saltern_api: true\n",
                Some("http://127.0.0.1:8000/console/jobs/1".to_owned()),
            ),
            (
                "saltern_api: {host: '::1', port: 9}\n",
                Some("http://[::1]:9/console/jobs/1".to_owned()),
            ),
            (
                "saltern_api: {host: 0.0.0.0}\n",
                Some(format!("http://{host}:8000/console/jobs/1")),
            ),
            (
                "saltern_api: true\nsaltern_console_url: https://salt.example.com/\n",
                Some("https://salt.example.com/console/jobs/1".to_owned()),
            ),
        ] {
            assert_eq!(options(text).console_page("jobs/1"), expected, "{text}");
        }
    }

    #[test]
    fn console_is_served_beside_our_own_section_unless_an_option_says_otherwise() {
        let section = "rest_cherrypy: {port: 1, disable_ssl: true}\n";
        for (text, expected) in [
            ("saltern_api: true\n", vec![false, true]),
            (
                "saltern_api: true\nsaltern_console: false\n",
                vec![false, false],
            ),
            (
                "saltern_api: true\nsaltern_console: true\n",
                vec![true, true],
            ),
            ("saltern_console: true\n", vec![true]),
            ("", vec![false]),
        ] {
            let served = options(&format!("{section}{text}")).servers;
            let console: Vec<bool> = served.iter().map(|server| server.console).collect();
            assert_eq!(console, expected, "{text}");
        }
    }
}
