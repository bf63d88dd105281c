//! The master's options as one plain struct, and its loading from a path.
//!
//! Field names are the option names (dots become underscores). Paths are resolved, times are
//! durations, choices are enums: a value that was read needs no further check. Options whose form
//! belongs to the part that uses them are methods (`option_value.rs`), and those that SIGHUP takes over
//! stand apart ([`Followed`]).
//!
//! Longer than 500 lines because it has a field for each option.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use saltern_model::Compat;

use crate::bridge::BridgeOptions;
use crate::check;
use crate::cluster::ClusterConfig;
use crate::engines::{self, EngineConfig};
use crate::files::{self, Files};
use crate::finding::{self, ConfigErrors, Finding, Severity};
use crate::followed::{Current, Followed};
use crate::listeners::{self, AlsoListen, TlsConfig};
use crate::logging::{self, LogOptions};
use crate::lost;
use crate::net_api::{self, NetApiOptions};
use crate::option_value::{self, OptionValue};
use crate::options;
use crate::paths::absolute;
use crate::reader::{Reader, is_secret};
use crate::returners::ReturnerOptions;
use crate::served;
use crate::site_paths::{SitePaths, take_id, take_user};
use crate::syndic::SyndicOptions;
use crate::tracing::{self, TracingOptions};
use crate::values::{HashType, LocalCacheMirror, Secret, SigningAlgorithm, TransportName};
use crate::watching::{self, MetricsCompat};
use crate::yaml::{self, Entry, Key, Limits, Mapping, Mark, Node};

/// A usable configuration, and what the check has to say about it nevertheless.
pub struct Loaded {
    /// The configuration.
    pub config: MasterConfig,
    /// Warnings and hints, in the order of the files; never an error.
    pub findings: Vec<Finding>,
}

/// The options of the master. See Salt's manual for what each means; documented here is the form
/// of its value.
#[derive(Clone)]
pub struct MasterConfig {
    /// The line of Salt whose tools use this master's files and sockets.
    pub salt_compat: Compat,
    /// The file that was asked for, whether it exists or not.
    pub conf_file: PathBuf,

    // The network.
    /// The address that both ports are bound to.
    pub interface: IpAddr,
    /// Whether an IPv6 `interface` of `::` serves IPv4 peers too; stock's `ipv6: true`.
    pub ipv6: bool,
    /// The port of the publish channel.
    pub publish_port: u16,
    /// The port of the request channel.
    pub ret_port: u16,
    /// The transport of these two ports.
    pub transport: TransportName,
    /// Further transports, on ports of their own.
    pub saltern_also_listen: Vec<AlsoListen>,
    /// TLS on the ports of TCP and websockets.
    pub ssl: Option<TlsConfig>,
    /// Address of the status port (metrics and health); `None` for no such port.
    pub saltern_metrics_address: Option<SocketAddr>,
    /// TLS there.
    pub saltern_metrics_ssl: Option<TlsConfig>,
    /// Further names under which metrics are exposed.
    pub metrics_compat: MetricsCompat,
    /// Messages that may wait for one slow subscriber.
    pub pub_hwm: usize,
    /// The length of the accept queues. Unset it is 4096, not stock's 1000.
    pub zmq_backlog: u32,
    /// Whether publishes are sent only to the minions meant, by topic.
    pub zmq_filtering: bool,
    /// Whether TCP keepalive is on.
    pub tcp_keepalive: bool,
    /// Idle time before the first probe; `None` leaves it to the system.
    pub tcp_keepalive_idle: Option<Duration>,
    /// Number of probes; `None` leaves it to the system.
    pub tcp_keepalive_cnt: Option<u32>,
    /// Time between probes; `None` leaves it to the system.
    pub tcp_keepalive_intvl: Option<Duration>,
    /// How long a subscriber may leave its queue unread before it counts as stuck.
    pub publish_drain_timeout: Duration,

    // The process.
    /// The name of this master; without `id` in the file it ends in `_master`.
    pub id: String,
    /// The user to run as.
    pub user: String,
    /// Number of workers. Unset it is the number of cores, not stock's 5.
    pub worker_threads: usize,
    /// The limit of open files to ask the system for.
    pub max_open_files: u64,
    /// Pause of the periodic maintenance.
    pub loop_interval: Duration,
    /// The root that other paths are below.
    pub root_dir: PathBuf,
    /// The PKI tree.
    pub pki_dir: PathBuf,
    /// The cache directory.
    pub cachedir: PathBuf,
    /// The directory of the event sockets; `cachedir/.salt-unix` if that of the file is too long.
    pub sock_dir: PathBuf,
    /// The file with the process id.
    pub pidfile: PathBuf,
    /// The tokens, below `cachedir`.
    pub token_dir: PathBuf,
    /// The syndics that are known, below `cachedir`.
    pub syndic_dir: PathBuf,
    /// The queues of stock's runner `queue`, in SQLite.
    pub sqlite_queue_dir: PathBuf,

    /// The log.
    pub log: LogOptions,
    /// `tracing`, where it is on.
    pub tracing: Option<TracingOptions>,

    // Jobs and events.
    /// How long a client waits before it probes for running jobs.
    pub timeout: Duration,
    /// How long it waits for the answer to that.
    pub gather_job_timeout: Duration,
    /// Retention time of jobs; `None` keeps them for ever. Has `keep_jobs` in it for 3006 and 3007.
    pub keep_jobs: Option<Duration>,
    /// Whether jobs that are purged from a SQL database go into archive tables.
    pub archive_jobs: bool,
    /// Whether returns are stored at all.
    pub job_cache: bool,
    /// Whether the end of each job is stored in the job-cache files.
    pub job_cache_store_endtime: bool,
    /// Whether jids carry the process id.
    pub unique_jid: bool,
    /// The largest event in bytes; larger ones lose their values.
    pub max_event_size: usize,
    /// Whether authentications fire events.
    pub auth_events: bool,
    /// Whether presence events are fired.
    pub presence_events: bool,

    // Keys and authentication.
    /// Whether every key is accepted, changed ones too. Only a literal `true` counts.
    pub open_mode: bool,
    /// How long a stub file in `minions_autosign` counts.
    pub autosign_timeout: Duration,
    /// The most minions; `None` for no limit.
    pub max_minions: Option<usize>,
    /// Whether a minion may ask for its own key to be deleted.
    pub allow_minion_key_revoke: bool,
    /// The length of new keys in bits.
    pub keysize: u32,
    /// The digest of fingerprints and job directories.
    pub hash_type: HashType,
    /// The passphrase of the master's key.
    pub key_pass: Option<Secret>,
    /// The passphrase of the signing key.
    pub signing_key_pass: Option<Secret>,
    /// Whether replies to authentications carry a signature of the public key.
    pub master_sign_pubkey: bool,
    /// The name of the signing key pair.
    pub master_sign_key_name: String,
    /// Whether that signature is read from a file.
    pub master_use_pubkey_signature: bool,
    /// The name of that file in `pki_dir`.
    pub master_pubkey_signature: String,
    /// Rotation interval of the AES key.
    pub publish_session: Duration,
    /// Whether deleting or rejecting a key changes the AES key.
    pub rotate_aes_key: bool,
    /// Whether all minions are pinged after the AES key changed.
    pub ping_on_rotate: bool,
    /// Whether publishes are signed.
    pub sign_pub_messages: bool,
    /// The algorithm they are signed with; without SHA-1 in FIPS mode.
    pub publish_signing_algorithm: SigningAlgorithm,
    /// Whether algorithms with SHA-1 are refused.
    pub fips_mode: bool,
    /// The oldest version of the authentication protocol that is served, 0 to 3.
    pub minimum_auth_version: u8,
    /// The oldest request that is served; `None` for no limit.
    pub request_server_ttl: Option<Duration>,
    /// Whether returns must be signed by the minion.
    pub require_minion_sign_messages: bool,
    /// Whether a return with a wrong signature is dropped.
    pub drop_messages_signature_fail: bool,

    // Our own; `options::OURS` documents them.
    /// Jobs that are mirrored to stock's job-cache files.
    pub local_cache_mirror: LocalCacheMirror,
    /// The job database, where it is not that of a cluster.
    pub saltern_job_database: PathBuf,
    /// The cluster of masters that this one is a member of, with the job database.
    pub saltern_cluster: Option<ClusterConfig>,
    /// Most connections of a port.
    pub saltern_max_connections: usize,
    /// Most connections of an address to a port; `None` for no limit.
    pub saltern_max_connections_per_address: Option<usize>,
    /// With less room than this for the job database there is a warning, and with a sixteenth of it
    /// nothing is written; 0 leaves it to the disk.
    pub saltern_disk_low: usize,
    /// Of more jobs than this the oldest are removed; 0 for no such bound.
    pub saltern_keep_jobs_count: usize,
    /// Of more kept events than this the oldest are removed; 0 for no such bound.
    pub saltern_keep_events_count: usize,
    /// How long rows of the audit trail are kept, in days; 0 for ever.
    pub saltern_audit_keep_days: usize,
    /// Of more rows of the audit trail than this the oldest are removed; 0 for no such bound.
    pub saltern_audit_keep_count: usize,
    /// While the rows of the job database take more bytes, the oldest jobs are removed; 0 for no
    /// such bound.
    pub saltern_keep_jobs_size: usize,
    /// Keys that wait to be accepted, at most; 0 for no such bound.
    pub saltern_max_pending: usize,
    /// Returns that no job expects which are stored of one minion in a day; 0 for no such bound.
    pub saltern_max_reports: usize,
    /// The bytes of those; 0 for no such bound.
    pub saltern_max_report_bytes: usize,
    /// Largest message of a known peer, in bytes.
    pub saltern_max_message_size: usize,
    /// Largest message of an unknown peer, in bytes.
    pub saltern_max_unauthenticated_size: usize,
    /// Time for the ZMTP handshake.
    pub saltern_handshake_timeout: Duration,
    /// Silence after which a peer of the request port is probed.
    pub saltern_idle_timeout: Duration,
    /// Silence after which a subscriber is probed, and then given up.
    pub saltern_heartbeat_interval: Duration,
    /// Time that what was sent may stay unacknowledged; `None` leaves it to the system.
    pub saltern_tcp_user_timeout: Option<Duration>,
    /// Identity probes of subscribers per second.
    pub saltern_presence_probe_rate: usize,
    /// Most subscriptions of a connection.
    pub saltern_max_subscriptions: usize,
    /// Bytes that may wait for a subscriber.
    pub saltern_subscriber_queue_size: usize,
    /// Bytes of replies that may wait for their readers on the request port.
    pub saltern_reply_budget: usize,
    /// Events that may wait for a listener of the event socket.
    pub saltern_event_queue_length: usize,
    /// Questions to minions what they run that are published in a second at most.
    pub saltern_probe_rate: u32,
    /// Longest time between two such questions about one job.
    pub saltern_probe_interval: Duration,
    /// How long a job stays open that awaits no minion.
    pub saltern_job_timeout: Duration,
    /// Requests of one class that may wait for a worker.
    pub saltern_request_backlog: usize,
    /// Authentications that may wait for a worker.
    pub saltern_auth_backlog: usize,
    /// How long the previous shared key is accepted beside the current one.
    pub saltern_key_overlap: Duration,
    /// For how long a sealed request is remembered, so that it is not carried out again.
    pub saltern_replay_window: Duration,
    /// Whether stock's clones of gitfs are kept up to date for its `salt-run`.
    pub saltern_gitfs_for_salt_run: bool,
    /// Time for requests in flight when stopping.
    pub saltern_stop_timeout: Duration,
    /// Threads that compile pillars.
    pub saltern_render_threads: usize,
    /// Requests that may wait for one of them.
    pub saltern_render_backlog: usize,
    /// Whether wheel functions may write options.
    pub saltern_config_wheels: bool,
    /// Processor time for rendering one file.
    pub saltern_render_timeout: Duration,
    /// Time for a whole pillar.
    pub saltern_pillar_timeout: Duration,
    /// Time after the start before batches that were under way go on.
    pub saltern_batch_resume_delay: Duration,
    /// Whether minions are kept from tags of the master and of each other.
    pub saltern_strict_minion_events: bool,

    /// Engines, which run beside the master until it stops.
    pub engines: Vec<EngineConfig>,
    /// Restarts of an engine within the window before it is given up.
    pub saltern_engine_restarts: u32,
    /// The length of that window.
    pub saltern_engine_restart_window: Duration,
    /// Python beside the master: the options `python_bridge…`.
    pub python_bridge: BridgeOptions,
    /// The syndic.
    pub syndic: SyndicOptions,
    /// The returners of events and jobs.
    pub returners: ReturnerOptions,
    /// The HTTP API: `rest_cherrypy` and its like, `saltern_api`.
    pub net_api: NetApiOptions,

    pub(crate) current: Current,
    settings: Mapping,
    defaults: Mapping,
}

impl MasterConfig {
    /// The member port of its cluster, if connections are relayed.
    pub fn member_port(&self) -> Option<u16> {
        self.saltern_cluster.as_ref()?.member_port
    }

    pub(crate) fn value(&self, name: &'static str) -> OptionValue<'_> {
        option_value::value(name, &self.settings, &self.defaults)
    }

    /// An option as it was written, else its default; `None` if it has neither. Passphrases are
    /// not among them.
    pub(crate) fn node(&self, name: &str) -> Option<&Node> {
        self.settings.get(name).or_else(|| self.defaults.get(name))
    }

    /// The default of the command line where its own option is absent: an option that the master
    /// itself does not read, named by the tables of `saltern-cli`.
    pub fn command_default(&self, name: &str) -> Option<&Node> {
        self.node(name)
    }

    /// All options that have a value and may be shown, for those that the configuration is handed on
    /// to: as they were written, then the defaults of the others. Of [secrets](is_secret) there is the
    /// default at most.
    pub fn shown_values(&self) -> impl Iterator<Item = (&str, &Node)> {
        let is_shown = |name: &str| !is_secret(name) && self.settings.get(name).is_some();
        let written = self.settings.iter().filter_map(named);
        let others = self.defaults.iter().filter_map(named);
        let written = written.filter(move |(name, _)| is_shown(name));
        written.chain(others.filter(move |(name, _)| !is_shown(name)))
    }

    /// The names of all options that have a value.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let all = self.settings.iter().chain(self.defaults.iter());
        all.filter_map(named).map(|(name, _)| name)
    }

    /// A finding about an option, where it was written.
    pub fn finding(&self, severity: Severity, option: &str, message: impl Into<String>) -> Finding {
        let entry = self.settings.get_entry(option);
        let mark = entry.map_or_else(|| Mark::nowhere("default"), |entry| entry.key_mark.clone());
        Finding::new(severity, &mark, option, message)
    }

    /// Whether an option was written in a file.
    pub fn is_written(&self, name: &str) -> bool {
        self.settings.get(name).is_some()
    }
}

/// `publish_signing_algorithm`; where nothing is written, `fips_mode` decides.
fn publish_signing_algorithm(reader: &mut Reader<'_>) -> SigningAlgorithm {
    if reader.written("publish_signing_algorithm").is_none() && reader.bool("fips_mode") {
        return SigningAlgorithm::Pkcs1v15Sha224;
    }
    let named = reader.choice("publish_signing_algorithm");
    named.unwrap_or(SigningAlgorithm::Pkcs1v15Sha1)
}

/// A configuration as it was read, whether or not it can be used.
pub struct Reading {
    /// The configuration, with the default in place of each value that is wrong.
    pub config: MasterConfig,
    /// All findings: errors first, in the order of the files.
    pub findings: Vec<Finding>,
    /// Whether a file could not be read, as opposed to being wrong.
    pub unreadable: bool,
}

impl Reading {
    /// The configuration if there is no error in it.
    ///
    /// # Errors
    /// [`ConfigErrors`] with every mistake there is, not only the first.
    fn into_loaded(self) -> Result<Loaded, ConfigErrors> {
        let Reading {
            config,
            findings,
            unreadable,
        } = self;
        let is_error = |finding: &Finding| finding.severity == Severity::Error;
        if findings.iter().any(is_error) {
            return Err(ConfigErrors {
                findings,
                unreadable,
            });
        }
        Ok(Loaded { config, findings })
    }

    /// Whether all files could be read and understood, so that nothing of what they say is missing.
    pub fn is_whole(&self) -> bool {
        let of_file = |finding: &Finding| finding.option.is_empty();
        let mut errors = self.findings.iter();
        !errors.any(|finding| finding.severity == Severity::Error && of_file(finding))
    }
}

/// Reads and checks the whole configuration. `path` is the file, or the directory that has a file
/// `master`.
///
/// # Errors
/// [`ConfigErrors`] with every mistake there is, not only the first.
pub fn load_master(path: &Path) -> Result<Loaded, ConfigErrors> {
    read_master(path).into_loaded()
}

/// Like [`load_master`], for a caller that goes on with an invalid configuration, to find all its
/// mistakes.
pub fn read_master(path: &Path) -> Reading {
    read_with(path, None)
}

/// The same with the options of a user's own file on top.
pub(crate) fn read_with(path: &Path, client_file: Option<&Path>) -> Reading {
    let (conf_file, files) = files::read(path, client_file);
    let Files {
        settings,
        mut findings,
        unreadable,
    } = files;
    let compat = compat_of(&settings, &mut findings);
    let defaults = defaults(compat);
    let mut reader = Reader::new(&settings, &defaults, findings);
    let mut config = take_all(&mut reader, compat);
    served::values(&mut reader);
    lost::contents(&mut reader);
    check::config(&mut reader, &config);
    // Last: it checks the types of all options that were not read.
    check::options(&mut reader, compat);

    let mut findings = reader.findings;
    finding::sort(&mut findings);
    config.conf_file = conf_file;
    config.settings = settings;
    for secret in ["key_pass", "signing_key_pass"] {
        config.settings.remove(secret);
    }
    config.defaults = defaults;
    Reading {
        config,
        findings,
        unreadable,
    }
}

fn named<'a>((key, entry): (&'a Key, &'a Entry)) -> Option<(&'a str, &'a Node)> {
    Some((key.as_str()?, &entry.value))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// `salt_compat` decides which defaults apply, so it is read before everything else.
fn compat_of(settings: &Mapping, findings: &mut Vec<Finding>) -> Compat {
    let Some(node) = settings.get("salt_compat") else {
        return Compat::V3008;
    };
    let text = match node.as_f64() {
        // 3008.3 is a number in YAML.
        Some(number) => format!("{number}"),
        None => node.as_str().unwrap_or_default().to_owned(),
    };
    Compat::parse(&text).unwrap_or_else(|| {
        let message = format!(
            "{} is not one of 3006, 3007, 3008",
            crate::reader::shown("", node)
        );
        findings.push(Finding::new(
            Severity::Error,
            &node.mark,
            "salt_compat",
            message,
        ));
        Compat::V3008
    })
}

/// The defaults of one version, ours among them.
pub(crate) fn defaults(compat: Compat) -> Mapping {
    let mut map = Mapping::default();
    let options = options::all().iter().chain(options::OURS);
    for (name, text) in options.filter_map(|o| Some((o.name, o.default(compat)?))) {
        let value = yaml::parse(text, "default", &Limits::DEFAULT)
            .expect("invariant: the table of defaults holds JSON");
        let entry = Entry {
            key_mark: Mark::nowhere("default"),
            value,
        };
        map.insert(Key::Str(name.to_owned()), entry);
    }
    map
}

/// Builds the struct. Every wrong value becomes a finding and is replaced by its default, so the
/// struct is only used if there was none.
pub(crate) fn take_all(reader: &mut Reader<'_>, compat: Compat) -> MasterConfig {
    let site_paths = SitePaths::take(reader);
    let followed = Followed::take(reader, &site_paths.root, &site_paths.log_file);
    take(reader, compat, site_paths, followed)
}

/// Reads all options but those that SIGHUP takes over.
pub(crate) fn take(
    reader: &mut Reader<'_>,
    compat: Compat,
    site_paths: SitePaths,
    followed: Followed,
) -> MasterConfig {
    let id = take_id(reader, &site_paths.root_dir);
    let seconds_or_none = |duration: Duration| (!duration.is_zero()).then_some(duration);
    let count_or_none = |count: usize| (count > 0).then_some(count);
    let keep_jobs = take_keep_jobs(reader, compat);
    let signature_file = match (reader.optional_text("master_pubkey_signature"), compat) {
        (Some(name), _) => name,
        (None, Compat::V3008) => format!("{id}_pubkey_signature"),
        (None, _) => "master_pubkey_signature".to_owned(),
    };
    MasterConfig {
        salt_compat: compat,
        conf_file: PathBuf::new(),
        interface: reader
            .address("interface")
            .unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        ipv6: reader
            .applies("ipv6")
            .and_then(Node::as_bool)
            .unwrap_or(false),
        publish_port: reader.port("publish_port"),
        ret_port: reader.port("ret_port"),
        transport: reader.choice("transport").unwrap_or(TransportName::ZeroMq),
        saltern_also_listen: listeners::also_listen(reader),
        ssl: listeners::tls(reader, compat),
        saltern_metrics_address: watching::address(reader),
        saltern_metrics_ssl: watching::tls(reader),
        net_api: net_api::take(reader),
        metrics_compat: watching::compat(reader),
        pub_hwm: reader.usize("pub_hwm", 1, i64::from(u32::MAX)),
        zmq_backlog: match reader.written("zmq_backlog") {
            Some(_) => reader.u32("zmq_backlog", 1),
            None => 4096,
        },
        zmq_filtering: reader.bool("zmq_filtering"),
        tcp_keepalive: reader.bool("tcp_keepalive"),
        tcp_keepalive_idle: reader.unless_negative("tcp_keepalive_idle").map(seconds),
        tcp_keepalive_cnt: reader.unless_negative("tcp_keepalive_cnt"),
        tcp_keepalive_intvl: reader.unless_negative("tcp_keepalive_intvl").map(seconds),
        publish_drain_timeout: reader.seconds("publish_drain_timeout"),
        saltern_cluster: ClusterConfig::take(reader, &id),
        id,
        user: take_user(reader),
        worker_threads: match reader.written("worker_threads") {
            Some(_) => reader.usize("worker_threads", 1, 1024),
            None => cores(),
        },
        max_open_files: u64::from(reader.u32("max_open_files", 1)),
        loop_interval: reader.seconds("loop_interval").max(Duration::from_secs(1)),
        root_dir: site_paths.root_dir.into(),
        pki_dir: site_paths.pki_dir.into(),
        saltern_job_database: match reader.optional_text("saltern_job_database") {
            Some(path) => absolute(&path).into(),
            None => format!("{}/saltern/jobs.sqlite", site_paths.cachedir).into(),
        },
        cachedir: site_paths.cachedir.into(),
        sock_dir: site_paths.sock_dir.into(),
        pidfile: site_paths.pidfile.into(),
        token_dir: site_paths.token_dir.into(),
        syndic_dir: site_paths.syndic_dir.into(),
        sqlite_queue_dir: site_paths.sqlite_queue_dir.into(),
        log: logging::take(reader, site_paths.log_file),
        tracing: tracing::take(reader),
        timeout: reader.seconds("timeout"),
        gather_job_timeout: reader.seconds("gather_job_timeout"),
        keep_jobs,
        archive_jobs: reader.bool("archive_jobs"),
        job_cache: reader.bool("job_cache"),
        job_cache_store_endtime: reader.bool("job_cache_store_endtime"),
        unique_jid: reader.bool("unique_jid"),
        max_event_size: reader.bytes("max_event_size", 1024),
        auth_events: reader.bool("auth_events"),
        presence_events: reader.bool("presence_events"),
        open_mode: reader.bool("open_mode"),
        autosign_timeout: match reader.written("autosign_timeout") {
            // Stock: minutes.
            Some(_) => reader.seconds("autosign_timeout") * 60,
            None => Duration::from_secs(120 * 60),
        },
        max_minions: count_or_none(reader.usize("max_minions", 0, i64::MAX)),
        allow_minion_key_revoke: reader.bool("allow_minion_key_revoke"),
        keysize: u32::try_from(reader.int("keysize", 1024, 16_384)).unwrap_or(2048),
        hash_type: reader.choice("hash_type").unwrap_or(HashType::Sha256),
        key_pass: reader.secret("key_pass"),
        signing_key_pass: reader.secret("signing_key_pass"),
        master_sign_pubkey: reader.bool("master_sign_pubkey"),
        master_sign_key_name: reader.text("master_sign_key_name"),
        master_use_pubkey_signature: reader.bool("master_use_pubkey_signature"),
        master_pubkey_signature: signature_file,
        publish_session: reader.seconds("publish_session"),
        rotate_aes_key: reader.bool("rotate_aes_key"),
        ping_on_rotate: reader.bool("ping_on_rotate"),
        sign_pub_messages: reader.bool("sign_pub_messages"),
        publish_signing_algorithm: publish_signing_algorithm(reader),
        fips_mode: reader.bool("fips_mode"),
        minimum_auth_version: u8::try_from(reader.int("minimum_auth_version", 0, 3)).unwrap_or(3),
        request_server_ttl: seconds_or_none(reader.seconds("request_server_ttl")),
        require_minion_sign_messages: reader.bool("require_minion_sign_messages"),
        drop_messages_signature_fail: reader.bool("drop_messages_signature_fail"),
        local_cache_mirror: reader
            .choice("local_cache_mirror")
            .unwrap_or(LocalCacheMirror::Full),
        saltern_max_connections: reader.usize("saltern_max_connections", 1, i64::MAX),
        saltern_max_connections_per_address: count_or_none(reader.usize(
            "saltern_max_connections_per_address",
            0,
            i64::MAX,
        )),
        saltern_disk_low: reader.bytes("saltern_disk_low", 0),
        saltern_keep_jobs_count: reader.usize("saltern_keep_jobs_count", 0, i64::MAX),
        saltern_keep_events_count: reader.usize("saltern_keep_events_count", 0, i64::MAX),
        saltern_audit_keep_days: reader.usize("saltern_audit_keep_days", 0, 36_500),
        saltern_audit_keep_count: reader.usize("saltern_audit_keep_count", 0, i64::MAX),
        saltern_keep_jobs_size: reader.bytes("saltern_keep_jobs_size", 0),
        saltern_max_pending: reader.usize("saltern_max_pending", 0, i64::MAX),
        saltern_max_reports: reader.usize("saltern_max_reports", 0, i64::MAX),
        saltern_max_report_bytes: reader.bytes("saltern_max_report_bytes", 0),
        saltern_max_message_size: reader.bytes("saltern_max_message_size", 1 << 16),
        saltern_max_unauthenticated_size: reader.bytes("saltern_max_unauthenticated_size", 1 << 14),
        saltern_handshake_timeout: reader.seconds("saltern_handshake_timeout"),
        saltern_idle_timeout: reader.seconds("saltern_idle_timeout"),
        saltern_heartbeat_interval: reader.seconds("saltern_heartbeat_interval"),
        saltern_tcp_user_timeout: seconds_or_none(reader.seconds("saltern_tcp_user_timeout")),
        saltern_presence_probe_rate: reader.usize("saltern_presence_probe_rate", 0, 10_000),
        saltern_max_subscriptions: reader.usize("saltern_max_subscriptions", 1, 1 << 20),
        saltern_subscriber_queue_size: reader.bytes("saltern_subscriber_queue_size", 1 << 16),
        saltern_reply_budget: reader.bytes("saltern_reply_budget", 16 << 20),
        saltern_event_queue_length: reader.usize("saltern_event_queue_length", 1, 1 << 30),
        saltern_probe_rate: reader.u32("saltern_probe_rate", 1),
        saltern_probe_interval: reader.seconds("saltern_probe_interval"),
        saltern_job_timeout: reader.seconds("saltern_job_timeout"),
        saltern_request_backlog: reader.usize("saltern_request_backlog", 1, 1 << 30),
        saltern_auth_backlog: reader.usize("saltern_auth_backlog", 1, 1 << 20),
        saltern_key_overlap: reader.seconds("saltern_key_overlap"),
        saltern_replay_window: reader.seconds("saltern_replay_window"),
        saltern_gitfs_for_salt_run: reader.bool("saltern_gitfs_for_salt_run"),
        saltern_stop_timeout: reader.seconds("saltern_stop_timeout"),
        saltern_render_threads: match reader.usize("saltern_render_threads", 0, 1024) {
            0 => cores(),
            threads => threads,
        },
        saltern_render_backlog: reader.usize("saltern_render_backlog", 1, 1 << 30),
        saltern_config_wheels: reader.bool("saltern_config_wheels"),
        saltern_render_timeout: reader.seconds("saltern_render_timeout"),
        saltern_pillar_timeout: reader.seconds("saltern_pillar_timeout"),
        saltern_batch_resume_delay: reader.seconds("saltern_batch_resume_delay"),
        saltern_strict_minion_events: reader.bool("saltern_strict_minion_events"),
        engines: engines::read(reader),
        saltern_engine_restarts: reader.u32("saltern_engine_restarts", 0),
        saltern_engine_restart_window: reader.seconds("saltern_engine_restart_window"),
        python_bridge: BridgeOptions::read(reader),
        syndic: SyndicOptions::read(reader, site_paths.syndic_pidfile.into()),
        returners: ReturnerOptions::read(reader),
        current: Current::new(followed),
        settings: Mapping::default(),
        defaults: Mapping::default(),
    }
}

fn seconds(number: u32) -> Duration {
    Duration::from_secs(number.into())
}

/// `keep_jobs` in hours counts for 3006 and 3007 if `keep_jobs_seconds` was left alone
/// (`salt.utils.job.get_keep_jobs_seconds`).
fn take_keep_jobs(reader: &mut Reader<'_>, compat: Compat) -> Option<Duration> {
    let day = Duration::from_secs(86_400);
    let mut kept = reader.seconds("keep_jobs_seconds");
    let hours = reader.int("keep_jobs", 0, i64::from(u32::MAX));
    if compat != Compat::V3008 && kept == day && hours != 24 {
        kept = Duration::from_secs(u64::try_from(hours).unwrap_or(24) * 3600);
    }
    (!kept.is_zero()).then_some(kept)
}
