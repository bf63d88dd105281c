//! The minion's configuration file, `MCONF/minion`, and the defaults of stock's
//! `DEFAULT_MINION_OPTS`.
//!
//! Every option that this minion does not honour is reported, never ignored in silence: it is a
//! small minion, and a stock configuration says much that it cannot do.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use saltern_config::yaml::{self, Limits, Node, NodeValue};
use saltern_config::{PeerCertificates, SslProblem, TlsRole, host_id, read_ssl};
use saltern_crypto::{EncAlgo, SigAlgo};
use saltern_model::MinionId;
use saltern_wire::client::{ClientTls, ClientTlsOptions, Route};
use saltern_wire::port::{KeepAlive, TlsError, Transport};

/// How the minion is set up. Field names are the option names.
#[derive(Debug, Clone)]
pub struct MinionConfig {
    /// The minion's id; the host name when the file has none.
    pub id: MinionId,
    /// The master's host name or address.
    pub master: String,
    /// The master's request port.
    pub master_port: u16,
    /// The master's publish port; the port that the master names when it is 4506 (as in stock).
    pub publish_port: u16,
    /// Directory of `minion.pem`, `minion.pub` and `minion_master.pub`.
    pub pki_dir: PathBuf,
    /// Directory of stock's caches; this minion writes nothing there.
    pub cachedir: PathBuf,
    /// The fingerprint that the master's key must have; empty for any.
    pub master_finger: String,
    /// The same for the master above a syndic; `master_finger` when empty.
    pub syndic_finger: String,
    /// The hash of these fingerprints.
    pub hash_type: String,
    /// Wants the master's key signed by the key `master_sign_key_name`.
    pub verify_master_pubkey_sign: bool,
    /// Checks that signature also when the key has not changed.
    pub always_verify_signature: bool,
    /// The file in `pki_dir`, without `.pub`, that `verify_master_pubkey_sign` uses.
    pub master_sign_key_name: String,
    /// The pause before asking again while the key is pending.
    pub acceptance_wait_time: Duration,
    /// Up to where that pause doubles; zero for not at all.
    pub acceptance_wait_time_max: Duration,
    /// Keeps asking after the master rejected the key.
    pub rejected_retry: bool,
    /// How long one sign-in may take.
    pub auth_timeout: Duration,
    /// How often a sign-in that gets no answer is repeated at once.
    pub auth_tries: u32,
    /// The upper bound of a random pause before a minion that lost its master signs in again.
    pub random_reauth_delay: Duration,
    /// The shortest pause before reconnecting.
    pub recon_default: Duration,
    /// The bound to which the pause grows.
    pub recon_max: Duration,
    /// Whether the pause is drawn at random.
    pub recon_randomize: bool,
    /// The pause before a return is sent again.
    pub return_retry_timer: Duration,
    /// The upper bound of that pause; zero for no randomness.
    pub return_retry_timer_max: Duration,
    /// How often a return is sent at most.
    pub return_retry_tries: u32,
    /// How long one request may take.
    pub request_channel_timeout: Duration,
    /// Refuses publications without the master's signature.
    pub sign_pub_messages: bool,
    /// Signs requests (`sig` in the load).
    pub minion_sign_messages: bool,
    /// Subscribes to this minion's own topic instead of everything.
    pub zmq_filtering: bool,
    /// The transport.
    pub transport: Transport,
    /// TLS towards the master, which ZeroMQ has not.
    pub ssl: Option<ClientTlsOptions>,
    /// TCP keepalive of connections to the master (`tcp_keepalive…`). What is not written is sooner than
    /// stock's.
    pub keepalive: KeepAlive,
    /// Also sends the old `minion_start` event.
    pub enable_legacy_startup_events: bool,
    /// It is that of a syndic; no option.
    pub is_syndic: bool,
    /// How asymmetric messages are encrypted.
    pub encryption_algorithm: EncAlgo,
    /// How messages are signed.
    pub signing_algorithm: SigAlgo,
    /// The size of a new key pair in bits.
    pub keysize: u32,
    /// The local address that connections are made from; the kernel's choice when absent.
    pub source_address: Option<IpAddr>,
    /// How many jids are remembered so that no job runs twice.
    pub minion_jid_queue_hwm: usize,
    /// How many jobs run at once; more wait. Stock's -1 (no limit) becomes 64 here.
    pub process_count_max: usize,
    /// Additional grains.
    pub grains: Vec<(String, yaml::Node)>,
}

/// An option that has no effect, or not the one that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The option.
    pub option: String,
    /// Its position, as `file:line:column`.
    pub place: String,
    /// The reason.
    pub message: String,
}

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration \"{path}\"")]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system call.
        #[source]
        source: std::io::Error,
    },
    /// The file is not YAML.
    #[error("the configuration is not valid YAML: {0}")]
    Yaml(String),
    /// A setting in `ssl` cannot be honoured.
    #[error("{place}: in \"ssl\", {message}")]
    Ssl {
        /// Its position.
        place: String,
        /// The reason.
        message: String,
    },
    /// `ssl` is asked for, and the transport has none.
    #[error(
        "\"ssl\" is set, and the transport \"zeromq\" has no TLS; the traffic would not be as asked"
    )]
    SslOverZeroMq,
    /// A value is of the wrong kind.
    #[error("{place}: \"{option}\" must be {expected}")]
    Value {
        /// Its position.
        place: String,
        /// The option.
        option: String,
        /// The expected kind of value.
        expected: String,
    },
}

/// Result of [`MinionConfig::load`].
#[derive(Debug, Clone)]
pub struct LoadedMinion {
    /// The configuration.
    pub config: MinionConfig,
    /// Options without effect.
    pub findings: Vec<Finding>,
}

impl MinionConfig {
    /// Stock's defaults for a minion with this id, everything under `root`.
    #[must_use]
    pub fn new(id: MinionId, root: &Path) -> Self {
        Self {
            id,
            master: "salt".to_owned(),
            master_port: 4506,
            publish_port: 4506,
            pki_dir: root.join("etc/salt/pki/minion"),
            cachedir: root.join("var/cache/salt/minion"),
            master_finger: String::new(),
            syndic_finger: String::new(),
            hash_type: "sha256".to_owned(),
            verify_master_pubkey_sign: false,
            always_verify_signature: false,
            master_sign_key_name: "master_sign".to_owned(),
            acceptance_wait_time: Duration::from_secs(10),
            acceptance_wait_time_max: Duration::ZERO,
            rejected_retry: false,
            auth_timeout: Duration::from_secs(5),
            auth_tries: 7,
            random_reauth_delay: Duration::from_secs(10),
            recon_default: Duration::from_millis(1000),
            recon_max: Duration::from_millis(10_000),
            recon_randomize: true,
            return_retry_timer: Duration::from_secs(5),
            return_retry_timer_max: Duration::from_secs(10),
            return_retry_tries: 3,
            request_channel_timeout: Duration::from_secs(60),
            sign_pub_messages: false,
            minion_sign_messages: false,
            zmq_filtering: false,
            transport: Transport::ZeroMq,
            ssl: None,
            keepalive: KeepAlive::default(),
            enable_legacy_startup_events: true,
            is_syndic: false,
            encryption_algorithm: EncAlgo::OaepSha1,
            signing_algorithm: SigAlgo::Pkcs1v15Sha1,
            keysize: 2048,
            source_address: None,
            minion_jid_queue_hwm: 100,
            process_count_max: 64,
            grains: Vec::new(),
        }
    }

    /// Reads `path`, a file or a directory with a file `minion` in it, and `minion.d/*.conf`
    /// beside that file, in the order of their names.
    pub fn load(path: &Path) -> Result<LoadedMinion, ConfigError> {
        let file = if path.is_dir() {
            path.join("minion")
        } else {
            path.to_owned()
        };
        let mut documents = vec![read(&file)?];
        for part in included(&file) {
            documents.push(read(&part)?);
        }
        from_documents(&documents, "/", &[])
    }

    /// The identity and settings of the syndic beside the master whose configuration is in this
    /// directory: stock's syndic reads them of the file `minion` there. Without that file they are
    /// the defaults, below `root`. The masters of that file are those of a minion and do not count.
    ///
    /// # Errors
    /// The file cannot be read, or an option in it has a wrong value.
    pub fn load_for_syndic(directory: &Path, root: &str) -> Result<Self, ConfigError> {
        let file = directory.join("minion");
        let mut documents = Vec::new();
        if file.exists() {
            documents.push(read(&file)?);
        }
        for part in included(&file) {
            documents.push(read(&part)?);
        }
        Ok(from_documents(&documents, root, &["master", "master_port"])?.config)
    }

    /// The way to the master of this name, at its address. Checks the files of `ssl`, which each connection
    /// reads again where they have changed.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub async fn route(&self, host: &str, to: SocketAddr) -> Result<Route, TlsError> {
        let tls = self.ssl.as_ref();
        let tls = tls.map(|options| ClientTls::new(options, host, to.ip()));
        if let Some(tls) = &tls {
            tls.check().await?;
        }
        Ok(Route {
            to,
            from: self.source_address,
            transport: self.transport,
            tls,
            keepalive: self.keepalive,
        })
    }
}

fn included(file: &Path) -> Vec<PathBuf> {
    let directory = file.with_file_name("minion.d");
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut paths: Vec<PathBuf> = paths
        .filter(|path| path.extension().is_some_and(|kind| kind == "conf"))
        .collect();
    paths.sort();
    paths
}

fn read(path: &Path) -> Result<Node, ConfigError> {
    let text = fs::read(path).map_err(|source| ConfigError::Read {
        path: path.to_owned(),
        source,
    })?;
    yaml::parse_bytes(&text, &path.display().to_string(), &Limits::DEFAULT)
        .map_err(|error| ConfigError::Yaml(format!("{}: {}", error.mark, error.message)))
}

/// The options of these documents but the `skipped` ones; `root` counts where they name no `root_dir`.
fn from_documents(
    documents: &[Node],
    root: &str,
    skipped: &[&str],
) -> Result<LoadedMinion, ConfigError> {
    let mut options: Vec<(String, &Node)> = Vec::new();
    for document in documents {
        if document.is_null() {
            continue;
        }
        let map = document.as_map().ok_or_else(|| ConfigError::Value {
            place: document.mark.to_string(),
            option: "the whole file".to_owned(),
            expected: "a map of options".to_owned(),
        })?;
        for (key, entry) in map.iter() {
            let name = key.as_str().unwrap_or_default().to_owned();
            options.retain(|(known, _)| *known != name);
            options.push((name, &entry.value));
        }
    }
    let text = |name: &str| {
        let found = options.iter().find(|(option, _)| option == name);
        found.and_then(|(_, node)| node.as_str()).map(str::to_owned)
    };
    let root = PathBuf::from(text("root_dir").unwrap_or_else(|| root.to_owned()));
    let id = text("id").unwrap_or_else(|| host_id(&root.display().to_string()));
    let id = MinionId::parse(&id).map_err(|error| ConfigError::Value {
        place: "id".to_owned(),
        option: "id".to_owned(),
        expected: format!("a minion id ({error})"),
    })?;
    let mut config = MinionConfig::new(id, &root);
    let mut findings = Vec::new();
    let read = options.iter();
    let read = read.filter(|(name, _)| !skipped.contains(&name.as_str()));
    for (name, node) in read {
        if let Some(message) = apply(&mut config, &root, name, node)? {
            findings.push(Finding {
                option: name.clone(),
                place: node.mark.to_string(),
                message: message.to_owned(),
            });
        }
    }
    if config.ssl.is_some() && config.transport == Transport::ZeroMq {
        return Err(ConfigError::SslOverZeroMq);
    }
    Ok(LoadedMinion { config, findings })
}

/// Sets one option; the text says why it has no effect.
fn apply(
    config: &mut MinionConfig,
    root: &Path,
    name: &str,
    node: &Node,
) -> Result<Option<&'static str>, ConfigError> {
    let value = Reader { name, node };
    match name {
        "id" | "root_dir" => {}
        "master" => {
            config.master = match &node.value {
                NodeValue::Seq(_) => return Err(value.wrong("one master; a list is not supported")),
                _ => value.text()?,
            };
        }
        "master_port" => config.master_port = value.port()?,
        "publish_port" => config.publish_port = value.port()?,
        "pki_dir" => config.pki_dir = value.path(root)?,
        "cachedir" => config.cachedir = value.path(root)?,
        "syndic_finger" => config.syndic_finger = value.text()?,
        "master_finger" => config.master_finger = value.text()?,
        "hash_type" => config.hash_type = value.text()?,
        "verify_master_pubkey_sign" => config.verify_master_pubkey_sign = value.truth()?,
        "always_verify_signature" => config.always_verify_signature = value.truth()?,
        "master_sign_key_name" => config.master_sign_key_name = value.text()?,
        "acceptance_wait_time" => config.acceptance_wait_time = value.seconds()?,
        "acceptance_wait_time_max" => config.acceptance_wait_time_max = value.seconds()?,
        "rejected_retry" => config.rejected_retry = value.truth()?,
        "auth_timeout" => config.auth_timeout = value.seconds()?,
        "auth_tries" => config.auth_tries = value.count()?.max(1),
        "random_reauth_delay" => config.random_reauth_delay = value.seconds()?,
        "recon_default" => config.recon_default = value.milliseconds()?,
        "recon_max" => config.recon_max = value.milliseconds()?,
        "recon_randomize" => config.recon_randomize = value.truth()?,
        "return_retry_timer" => config.return_retry_timer = value.seconds()?,
        "return_retry_timer_max" => config.return_retry_timer_max = value.seconds()?,
        "return_retry_tries" => config.return_retry_tries = value.count()?.max(1),
        "request_channel_timeout" => config.request_channel_timeout = value.seconds()?,
        "sign_pub_messages" => config.sign_pub_messages = value.truth()?,
        "minion_sign_messages" => config.minion_sign_messages = value.truth()?,
        "zmq_filtering" => config.zmq_filtering = value.truth()?,
        "enable_legacy_startup_events" => config.enable_legacy_startup_events = value.truth()?,
        "encryption_algorithm" => {
            config.encryption_algorithm = EncAlgo::from_wire(&value.text()?)
                .ok_or_else(|| value.wrong("\"OAEP-SHA1\" or \"OAEP-SHA224\""))?;
        }
        "signing_algorithm" => {
            config.signing_algorithm = SigAlgo::from_wire(&value.text()?)
                .ok_or_else(|| value.wrong("\"PKCS1v15-SHA1\" or \"PKCS1v15-SHA224\""))?;
        }
        "keysize" => config.keysize = value.count()?,
        "source_address" => config.source_address = Some(value.address()?),
        "minion_jid_queue_hwm" => config.minion_jid_queue_hwm = value.count()? as usize,
        "process_count_max" => {
            if let Some(most @ 1..) = node.as_i64() {
                config.process_count_max = usize::try_from(most).unwrap_or(usize::MAX);
            }
        }
        "grains" => {
            let map = node.as_map().ok_or_else(|| value.wrong("a map"))?;
            let grains = map.iter();
            config.grains = grains
                .filter_map(|(key, entry)| Some((key.as_str()?.to_owned(), entry.value.clone())))
                .collect();
        }
        "transport" => {
            config.transport = match node.as_str() {
                Some("zeromq") => Transport::ZeroMq,
                Some("tcp") => Transport::Tcp,
                Some("ws") => Transport::WebSocket,
                _ => return Err(value.wrong("\"zeromq\", \"tcp\" or \"ws\"")),
            };
        }
        "ssl" => config.ssl = tls_options(node)?,
        "tcp_keepalive" => config.keepalive.enabled = value.truth()?,
        "tcp_keepalive_idle" => config.keepalive.idle = value.of_kernel(32_767)?.map(seconds),
        "tcp_keepalive_intvl" => config.keepalive.interval = value.of_kernel(32_767)?.map(seconds),
        "tcp_keepalive_cnt" => config.keepalive.count = value.of_kernel(127)?,
        // Where it logs to is the caller's business, and it is not a daemon.
        "log_level" | "log_file" | "log_level_logfile" | "user" | "sock_dir" | "pidfile" => {
            return Ok(Some("is not used by this minion"));
        }
        "open_mode" => {
            return Ok(Some(
                "is not honoured: a changed master key is always refused",
            ));
        }
        _ => return Ok(Some("is not an option of this minion")),
    }
    Ok(None)
}

fn seconds(number: u32) -> Duration {
    Duration::from_secs(number.into())
}

/// `ssl` as a client reads it. The certificate of the master is verified unless `cert_reqs` says that it
/// is not, as by stock 3008.
fn tls_options(node: &Node) -> Result<Option<ClientTlsOptions>, ConfigError> {
    let read = read_ssl("ssl", node, TlsRole::Client).map_err(|problems| {
        let first = problems.into_iter().next();
        let (place, message) = first
            .map_or_else(Default::default, |SslProblem { mark, message }| {
                (mark.to_string(), message)
            });
        ConfigError::Ssl { place, message }
    })?;
    Ok(read.map(|ssl| ClientTlsOptions {
        certificate: ssl.certificate.map(|certificate| {
            let key = ssl.key.unwrap_or_else(|| certificate.clone());
            (certificate, key)
        }),
        authorities: ssl.authorities,
        is_verified: ssl.peers != Some(PeerCertificates::NotAsked),
        only_tls12: ssl.only_tls12,
        ciphers: ssl.ciphers,
    }))
}

/// Reads one value as the kind that its option wants.
struct Reader<'a> {
    name: &'a str,
    node: &'a Node,
}

impl Reader<'_> {
    fn wrong(&self, expected: &str) -> ConfigError {
        ConfigError::Value {
            place: self.node.mark.to_string(),
            option: self.name.to_owned(),
            expected: expected.to_owned(),
        }
    }

    fn text(&self) -> Result<String, ConfigError> {
        match &self.node.value {
            NodeValue::Int(number) => Ok(number.to_string()),
            _ => self
                .node
                .as_str()
                .map(str::to_owned)
                .ok_or_else(|| self.wrong("a text")),
        }
    }

    fn address(&self) -> Result<IpAddr, ConfigError> {
        self.text()?
            .parse()
            .map_err(|_| self.wrong("an IP address"))
    }

    fn path(&self, root: &Path) -> Result<PathBuf, ConfigError> {
        // As in stock, an absolute path is taken below `root_dir` too.
        let text = self.text()?;
        if Path::new(&text).starts_with(root) {
            return Ok(PathBuf::from(text));
        }
        Ok(root.join(text.trim_start_matches('/')))
    }

    fn truth(&self) -> Result<bool, ConfigError> {
        self.node
            .as_bool()
            .ok_or_else(|| self.wrong("true or false"))
    }

    fn count(&self) -> Result<u32, ConfigError> {
        let number = self
            .node
            .as_i64()
            .and_then(|number| u32::try_from(number).ok());
        number.ok_or_else(|| self.wrong("a number from 0"))
    }

    /// A number that the kernel takes, or -1 for the one that it has.
    fn of_kernel(&self, most: u32) -> Result<Option<u32>, ConfigError> {
        let number = self.node.as_i64();
        if number == Some(-1) {
            return Ok(None);
        }
        let number = number.and_then(|number| u32::try_from(number).ok());
        let number = number.filter(|number| (1..=most).contains(number));
        match number {
            Some(number) => Ok(Some(number)),
            None => Err(self.wrong(&format!("-1, or a number from 1 to {most}"))),
        }
    }

    fn port(&self) -> Result<u16, ConfigError> {
        let number = self
            .node
            .as_i64()
            .and_then(|number| u16::try_from(number).ok());
        number
            .filter(|port| *port != 0)
            .ok_or_else(|| self.wrong("a port, 1 to 65535"))
    }

    fn seconds(&self) -> Result<Duration, ConfigError> {
        let number = self
            .node
            .as_f64()
            .filter(|number| (0.0..1e9).contains(number));
        number
            .map(Duration::from_secs_f64)
            .ok_or_else(|| self.wrong("seconds, from 0"))
    }

    fn milliseconds(&self) -> Result<Duration, ConfigError> {
        Ok(Duration::from_millis(u64::from(self.count()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<LoadedMinion, ConfigError> {
        let node = yaml::parse(text, "minion", &Limits::DEFAULT).expect("valid YAML");
        from_documents(&[node], "/", &[])
    }

    #[test]
    fn options_are_taken_and_unknown_ones_are_reported() {
        let loaded = load(
            "root_dir: /r\nid: m1\nmaster: 127.0.0.1\nmaster_port: 1234\nauth_timeout: 2.5\n\
             zmq_filtering: yes\nbeacons: {}\npki_dir: /r/pki\ncachedir: var\n",
        )
        .expect("it is valid");
        let config = loaded.config;
        assert_eq!(config.id.as_str(), "m1");
        assert_eq!(config.master_port, 1234);
        assert_eq!(config.auth_timeout, Duration::from_millis(2500));
        assert!(config.zmq_filtering);
        assert_eq!(config.pki_dir, Path::new("/r/pki"));
        assert_eq!(config.cachedir, Path::new("/r/var"));
        assert_eq!(loaded.findings.len(), 1);
        assert_eq!(loaded.findings[0].option, "beacons");
        assert_eq!(loaded.findings[0].place, "minion:7:10");
    }

    #[test]
    fn keepalive_is_as_written_and_else_sooner_than_stocks() {
        let of = |text: &str| {
            let loaded = load(&format!("id: m1\n{text}")).expect("it is valid");
            assert!(loaded.findings.is_empty(), "{text}");
            loaded.config.keepalive
        };
        assert_eq!(of(""), KeepAlive::default());
        assert!(!of("tcp_keepalive: False").enabled);
        let written = of("tcp_keepalive_idle: 300\ntcp_keepalive_intvl: -1\ntcp_keepalive_cnt: 5");
        let expected = KeepAlive {
            enabled: true,
            idle: Some(seconds(300)),
            interval: None,
            count: Some(5),
        };
        assert_eq!(written, expected);
        assert_eq!(of("tcp_keepalive_cnt: -1").count, None);
    }

    #[test]
    fn master_is_verified_unless_cert_reqs_says_not() {
        let of = |ssl: &str| {
            let loaded = load(&format!("id: m1\ntransport: ws\nssl: {ssl}"));
            loaded.expect("it is valid").config.ssl
        };
        assert_eq!(of("false"), None);
        let plain = of("true").expect("TLS");
        assert!(plain.is_verified && plain.authorities.is_empty() && plain.certificate.is_none());
        let named =
            of("{certfile: /c, ca_certs: /a, verify_locations: [/b], cert_reqs: CERT_OPTIONAL}");
        let named = named.expect("TLS");
        assert!(named.is_verified);
        assert_eq!(named.authorities, [Path::new("/a"), Path::new("/b")]);
        assert_eq!(named.certificate, Some(("/c".into(), "/c".into())));
        assert!(!of("{cert_reqs: CERT_NONE}").expect("TLS").is_verified);
    }

    #[test]
    fn wrong_values_are_refused_with_their_place() {
        let cases = [
            (
                "id: m1\nmaster_port: 0",
                "minion:2:14: \"master_port\" must be a port, 1 to 65535",
            ),
            ("id: a/b", "must be a minion id"),
            ("id: m1\nmaster: [a, b]", "must be one master"),
            ("id: m1\ntransport: udp", "must be \"zeromq\", \"tcp\" or"),
            ("id: m1\nssl: true", "the transport \"zeromq\" has no TLS"),
            (
                "id: m1\ntransport: ws\nssl: {verify_flags: [x]}",
                "minion:3:7: in \"ssl\", verify_flags cannot be honoured",
            ),
            (
                "id: m1\ntransport: ws\nssl: {ciphers: \":\"}",
                "in \"ssl\", ciphers names no cipher",
            ),
            (
                "id: m1\ntransport: ws\nssl: {keyfile: /k}",
                "in \"ssl\", keyfile is of no use without certfile",
            ),
            (
                "id: m1\ntransport: tcp\nssl: 1",
                "1 is neither true or false",
            ),
            (
                "id: m1\ntcp_keepalive_idle: 0",
                "must be -1, or a number from 1 to 32767",
            ),
            (
                "id: m1\ntcp_keepalive_cnt: 128",
                "must be -1, or a number from 1 to 127",
            ),
            ("id: m1\nsigning_algorithm: MD5", "\"PKCS1v15-SHA1\" or"),
            ("- 1", "must be a map of options"),
        ];
        for (text, message) in cases {
            let error = load(text).expect_err(text).to_string();
            assert!(error.contains(message), "{text:?} gave {error:?}");
        }
    }
}
