//! A table of configurations: what the check says of each, and what a start does with it.
//!
//! A start that is refused was an error of the check, a check without such an error is followed by
//! a start, and nothing of a site is lost without a word. A few of these are started with the real
//! program by `tests/e2e/check_config.rs`.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use saltern_actors::{Master, MasterParts};
use saltern_automation::reactor::Reactions;
use saltern_base::clock::Clock;
use saltern_base::metrics::Registry;
use saltern_config::options::{self, ConfigOption, Kind, Status};
use saltern_config::{Finding, MasterConfig, Severity, load_master, read_master};
use saltern_crypto::PrivateKey;
use saltern_model::Compat;
use saltern_requests::Stores;
use saltern_store::sqlite::{DatabaseLimits, JobDatabase};
use saltern_wire::port::Inherited;
use serde_json::Value;

use super::look_further;
use Says::{Error, Hint, Nothing, Python, Warning};

/// The worst that the check says about an option.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Says {
    /// An error, and the start is refused.
    Error,
    /// An error about what only Python can run; the master starts.
    Python,
    Warning,
    Hint,
    Nothing,
}

/// The configuration, the option in question, and the finding. `DIR` is the directory of the site,
/// in which there are `salt`, `pillar`, `x.sls` and `no.pem`, which is no certificate.
#[rustfmt::skip]
const TABLE: &[(&str, &str, Says)] = &[
    // Files.
    ("file_roots: /srv/salt", "file_roots", Warning),
    ("file_roots: {base: DIR/salt}", "file_roots", Warning),
    ("file_roots: {base: [DIR/none]}", "file_roots", Warning),
    ("file_roots: {base: [3]}", "file_roots", Error),
    ("file_roots: {base: [DIR/salt]}", "file_roots", Nothing),
    ("file_roots: [DIR/salt]", "file_roots", Warning),
    ("pillar_roots: DIR/pillar", "pillar_roots", Warning),
    ("pillar_roots: {base: [DIR/none]}", "pillar_roots", Warning),
    ("pillar_roots: {base: [{a: 1}]}", "pillar_roots", Error),
    ("pillar_roots: {base: [DIR/pillar]}", "pillar_roots", Nothing),
    ("fileserver_backend: [hg]", "fileserver_backend", Error),
    ("fileserver_backend: [roots, svn]", "fileserver_backend", Error),
    ("fileserver_backend: [roots, s3fs]", "fileserver_backend", Error),
    ("fileserver_backend: {a: 1}", "fileserver_backend", Error),
    ("fileserver_backend: [roots, minionfs]", "fileserver_backend", Warning),
    ("fileserver_backend: [roots]", "fileserver_backend", Nothing),
    ("file_buffer_size: 0", "file_buffer_size", Error),
    ("file_buffer_size: lots", "file_buffer_size", Error),
    ("file_recv_max_size: lots", "file_recv_max_size", Error),
    ("fileserver_list_cache_time: lots", "fileserver_list_cache_time", Error),
    ("file_ignore_regex: ['(']", "file_ignore_regex", Warning),
    ("file_ignore_glob: [[1]]", "file_ignore_glob", Error),
    ("minionfs_env: [1]", "minionfs_env", Error),
    ("minionfs_whitelist: [[1]]", "minionfs_whitelist", Error),
    ("hash_type: whirlpool", "hash_type", Error),
    ("fileserver_backend: [gitfs]\ngitfs_remotes: [{a: b}]", "gitfs_remotes", Error),
    ("fileserver_backend: [gitfs]\ngitfs_remotes: ['file://DIR/salt': [{nosuch: 1}]]", "gitfs_remotes", Error),
    ("fileserver_backend: [gitfs]\ngitfs_remotes: [3]", "gitfs_remotes", Error),
    ("gitfs_remotes: ['file://DIR/salt']", "gitfs_remotes", Warning),
    // No Salt is found here, so nothing keeps the clones of its salt-run.
    ("fileserver_backend: [gitfs]\ngitfs_remotes: ['file://DIR/salt']", "saltern_gitfs_for_salt_run", Hint),
    ("fileserver_backend: [git, roots]\ngitfs_remotes: ['file://DIR/salt']\nsaltern_gitfs_for_salt_run: True", "saltern_gitfs_for_salt_run", Warning),
    ("fileserver_backend: [gitfs]\ngitfs_remotes: ['file://DIR/salt']\nsaltern_gitfs_for_salt_run: False", "saltern_gitfs_for_salt_run", Nothing),
    ("fileserver_backend: [roots]", "saltern_gitfs_for_salt_run", Nothing),
    ("hgfs_remotes: [x]", "hgfs_remotes", Warning),
    // Pillars.
    ("ext_pillar: {git: x}", "ext_pillar", Warning),
    ("ext_pillar: [git]", "ext_pillar", Warning),
    ("ext_pillar: [{git: [{}]}]", "ext_pillar", Error),
    ("ext_pillar: [{nosuch: x}]", "ext_pillar", Python),
    ("ext_pillar: [{nosuch: x}]\nexclude_ext_pillar: [nosuch]", "ext_pillar", Nothing),
    ("ext_pillar: [{cmd_yaml: 'true'}]", "ext_pillar", Nothing),
    ("pillarenv: [1]", "pillarenv", Error),
    ("pillar_cache: true\npillar_cache_backend: redis", "pillar_cache_backend", Error),
    ("pillar_cache: true\npillar_cache_ttl: soon", "pillar_cache_ttl", Error),
    ("pillar_source_merging_strategy: nonsense", "pillar_source_merging_strategy", Warning),
    ("pillar_source_merging_strategy: [1]", "pillar_source_merging_strategy", Error),
    ("renderer: [jinja]", "renderer", Error),
    ("renderer: jinja|mako", "renderer", Python),
    ("renderer_whitelist: {a: 1}", "renderer_whitelist", Error),
    ("renderer_blacklist: [[1]]", "renderer_blacklist", Error),
    ("gpg_keydir: [1]", "gpg_keydir", Error),
    ("env_order: [[1]]", "env_order", Error),
    ("on_demand_ext_pillar: [[1]]", "on_demand_ext_pillar", Error),
    ("state_top: [1]", "state_top", Error),
    ("pillar_raise_on_missing: true", "pillar_raise_on_missing", Warning),
    ("decrypt_pillar: 3", "decrypt_pillar", Warning),
    ("master_tops: [x]", "master_tops", Warning),
    ("master_tops: {cobbler: {}}", "master_tops", Python),
    // The network.
    ("interface: 192.0.2.1", "interface", Error),
    ("interface: '2001:db8::1'", "interface", Error),
    ("interface: example.com", "interface", Error),
    ("interface: 127.0.0.2", "interface", Nothing),
    ("ret_port: 4505\npublish_port: 4505", "ret_port", Error),
    ("ret_port: 99999", "ret_port", Error),
    ("ret_port: four", "ret_port", Error),
    ("publish_port: 0", "publish_port", Error),
    ("transport: detect", "transport", Error),
    ("tcp_keepalive_cnt: 1000", "tcp_keepalive", Error),
    ("tcp_keepalive_idle: 100000", "tcp_keepalive", Error),
    ("tcp_keepalive: maybe", "tcp_keepalive", Error),
    ("zmq_backlog: none", "zmq_backlog", Error),
    ("pub_hwm: 0", "pub_hwm", Error),
    ("transport: tcp\nssl: {certfile: DIR/none.pem}", "ssl", Error),
    ("transport: tcp\nssl: {certfile: DIR/no.pem}", "ssl", Error),
    ("transport: tcp\nssl: {}", "ssl", Error),
    ("transport: tcp\nssl: true", "ssl", Error),
    ("saltern_metrics_address: 192.0.2.1:4507", "saltern_metrics_address", Error),
    ("saltern_metrics_address: here", "saltern_metrics_address", Error),
    ("saltern_metrics_address: 127.0.0.1:0\nsaltern_metrics_ssl: {certfile: DIR/none.pem}", "saltern_metrics_ssl", Error),
    ("saltern_metrics_ssl: {certfile: DIR/none.pem}", "saltern_metrics_ssl", Warning),
    ("saltern_also_listen: [{transport: zeromq}]", "saltern_also_listen", Error),
    ("saltern_also_listen: tcp", "saltern_also_listen", Error),
    // The process and its places.
    ("user: nosuchuser", "user", Error),
    ("user: [1]", "user", Error),
    ("id: 'a/b'", "id", Error),
    ("loop_interval: 0", "loop_interval", Warning),
    ("loop_interval: often", "loop_interval", Error),
    ("worker_threads: 0", "worker_threads", Error),
    ("worker_threads: many", "worker_threads", Error),
    ("max_open_files: 0", "max_open_files", Error),
    ("sock_dir: /LONG104\ncachedir: /LONG104", "sock_dir", Error),
    ("sock_dir: /LONG200\ncachedir: /LONG200", "sock_dir", Error),
    ("sock_dir: DIR/x.sls", "sock_dir", Error),
    ("cachedir: DIR/x.sls", "cachedir", Error),
    ("pki_dir: DIR/x.sls", "pki_dir", Error),
    ("pki_dir: [1]", "pki_dir", Error),
    ("log_file: DIR/salt", "log_file", Error),
    ("log_file: file:///dev/log", "log_file", Warning),
    ("log_level: loud", "log_level", Error),
    ("log_granular_levels: [1]", "log_granular_levels", Error),
    ("pidfile: DIR/salt", "pidfile", Warning),
    ("saltern_job_database: DIR/salt", "saltern_job_database", Error),
    ("autosign_file: DIR/salt", "autosign_file", Error),
    ("autosign_grains_dir: DIR/x.sls", "autosign_grains_dir", Error),
    ("cluster_id: one", "cluster_id", Error),
    ("saltern_cluster: [a]", "saltern_cluster", Error),
    ("saltern_cluster: {postgres: 'host=db'}", "saltern_cluster", Error),
    ("saltern_cluster: {postgres: 'host=db user=salt'}", "saltern_cluster", Nothing),
    ("keys.cache_driver: mmap_key", "keys.cache_driver", Error),
    ("cache: redis", "cache", Error),
    // Keys.
    ("key_pass: sdb://x/y", "key_pass", Error),
    ("master_sign_pubkey: true\nmaster_use_pubkey_signature: true", "pki_dir", Error),
    ("master_sign_key_name: a/b", "master_sign_key_name", Error),
    ("keysize: 512", "keysize", Error),
    ("publish_session: 0", "publish_session", Error),
    ("open_mode: true", "open_mode", Warning),
    ("auto_accept: yes please", "auto_accept", Error),
    ("minimum_auth_version: 9", "minimum_auth_version", Error),
    // Authorization.
    ("external_auth: [pam]", "external_auth", Warning),
    ("external_auth: pam", "external_auth", Warning),
    ("external_auth: {pam: [fred]}", "external_auth", Warning),
    ("external_auth: {ldap: {fred: [test.*]}}", "external_auth", Python),
    ("external_auth: {pam: {fred: [test.*]}}", "external_auth", Nothing),
    ("publisher_acl: [fred]", "publisher_acl", Warning),
    ("publisher_acl_blacklist: [fred]", "publisher_acl_blacklist", Warning),
    ("peer: [test.ping]", "peer", Warning),
    ("peer: {'.*': test.ping}", "peer", Warning),
    ("peer_run: {'.*': manage.up}", "peer_run", Warning),
    ("mine_get: [a]", "mine_get", Warning),
    ("token_expire: long", "token_expire", Warning),
    // Groups of minions.
    ("nodegroups: [a]", "nodegroups", Warning),
    ("nodegroups: {a: 'N@b', b: 'N@a'}", "nodegroups", Warning),
    ("nodegroups: {a: ['N@a', 'or', 'x']}", "nodegroups", Warning),
    ("nodegroups: {a: 'N@nosuch or x'}", "nodegroups", Warning),
    ("nodegroups: {a: {x: 1}}", "nodegroups", Warning),
    ("nodegroups: {a: 'web*', b: 'N@a and db*'}", "nodegroups", Nothing),
    // What happens by itself.
    ("reactor: [{'salt/x': [DIR/none.sls]}]", "reactor", Warning),
    ("reactor: [{'salt/x': ['salt://none.sls']}]", "reactor", Warning),
    ("reactor: [{'salt/x': [DIR/x.sls]}]", "reactor", Nothing),
    ("reactor: [{'salt/x': [3]}]", "reactor", Warning),
    ("reactor: {'salt/x': [DIR/x.sls]}", "reactor", Warning),
    ("reactor: DIR/none.conf", "reactor", Warning),
    ("reactor: DIR/rules.conf", "reactor", Nothing),
    ("reactor: [x]", "reactor", Warning),
    ("saltern_reactor_limits: {x: {rate: many}}", "saltern_reactor_limits", Error),
    ("saltern_reactor_limits: [x]", "saltern_reactor_limits", Error),
    ("schedule: [x]", "schedule", Warning),
    ("schedule: {a: {function: no.such, seconds: 5}}", "schedule", Warning),
    ("schedule: {a: {function: state.orchestrat, seconds: 5}}", "schedule", Warning),
    ("schedule: {a: {function: mine.update, seconds: 5}}", "schedule", Warning),
    ("schedule: {a: {function: state.orchestrate, seconds: 5}}", "schedule", Python),
    ("schedule: {a: {function: manage.status, seconds: 5}}", "schedule", Nothing),
    ("schedule: {a: {function: manage.status, seconds: often}}", "schedule", Warning),
    ("schedule: {a: {seconds: 5}}", "schedule", Warning),
    ("engines: 3", "engines", Warning),
    ("engines: [script]", "engines", Warning),
    ("engines: [nosuch]", "engines", Python),
    ("event_return: nosuch", "event_return", Python),
    ("event_return: {a: 1}", "event_return", Error),
    ("thorium_interval: 5", "thorium_interval", Warning),
    // Jobs.
    ("keep_jobs_seconds: long", "keep_jobs_seconds", Error),
    ("timeout: 0", "timeout", Error),
    ("job_cache: maybe", "job_cache", Error),
    ("max_event_size: 3", "max_event_size", Error),
    ("batch_safe_limit: 100", "batch_safe_limit", Hint),
    // Names.
    ("worker_thread: 3", "worker_thread", Warning),
    ("our_own_data: {a: 1}", "our_own_data", Warning),
    ("mysql.host: db", "mysql.host", Hint),
    ("master_job_cache: mysql\nmysql.port: 0", "mysql.port", Error),
    ("event_return: pgjsonb\nreturner.pgjsonb.sslcrl: /crl", "returner.pgjsonb.sslcrl", Warning),
    ("masterkeyring: {driver: keyring, service: system}", "masterkeyring", Hint),
    ("vault: {url: x}", "vault", Hint),
    ("gitfs_provider: pygit2", "gitfs_provider", Hint),
    ("git_pillar_provider: gitpython", "git_pillar_provider", Hint),
    ("roster_file: /etc/salt/roster", "roster_file", Hint),
    ("syndic_forward_all_events: true", "syndic_forward_all_events", Hint),
    ("syndic_master_port: 0", "syndic_master_port", Error),
    ("syndic_master: 'top:x'", "syndic_master", Error),
    ("syndic_mode: both", "syndic_mode", Error),
    ("syndic_failover: maybe", "syndic_failover", Error),
    ("saltern_syndic: maybe", "saltern_syndic", Error),
    ("saltern_syndic_keep_returns: 0", "saltern_syndic_keep_returns", Error),
    ("strip_colors: false", "strip_colors", Hint),
];

/// A site of one configuration.
struct Site {
    dir: tempfile::TempDir,
}

impl Site {
    fn new(options: &str) -> Self {
        static KEY: OnceLock<String> = OnceLock::new();
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().display().to_string();
        for name in ["salt", "pillar", "pki", "cache", "sock"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
        }
        let key = KEY.get_or_init(|| {
            let key = PrivateKey::generate(2048).unwrap();
            key.to_pem(None).unwrap().expose().to_owned()
        });
        for name in ["m", "master_sign"] {
            std::fs::write(dir.path().join(format!("pki/{name}.pem")), key).unwrap();
        }
        std::fs::write(dir.path().join("x.sls"), "{}\n").unwrap();
        std::fs::write(dir.path().join("rules.conf"), "[]\n").unwrap();
        std::fs::write(dir.path().join("no.pem"), "nothing\n").unwrap();
        // What is written wins over these, as the last of two of one name does not: YAML refuses
        // it.
        let base = "root_dir: DIR\npki_dir: DIR/pki\ncachedir: DIR/cache\nsock_dir: DIR/sock\n\
                    id: m\ninterface: 127.0.0.1\nworker_threads: 1\nsaltern_metrics_address: ''\n\
                    log_file: DIR/log\npython_bridge: DIR/nowhere\n";
        let of_name = |line: &str| line.split(':').next().unwrap_or_default().to_owned();
        let written: Vec<String> = options.lines().map(of_name).collect();
        let base = base.lines();
        let base = base.filter(|line| !written.contains(&of_name(line)));
        let mut text: Vec<&str> = base.collect();
        text.push(options);
        let text = text.join("\n").replace("/LONG104", &at_length(&at, 104));
        let text = text.replace("/LONG200", &at_length(&at, 200));
        // Not below root_dir twice.
        let text = text.replace("DIR", &at);
        std::fs::write(dir.path().join("master"), text).unwrap();
        Self { dir }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    /// The findings of the check.
    fn findings(&self) -> Vec<Finding> {
        let mut reading = read_master(self.path());
        assert!(reading.is_whole(), "{:?}", reading.findings);
        look_further(&reading.config, &mut reading.findings);
        reading.findings
    }

    /// Starts a master on free ports by what the program starts one with, and stops it; the text is
    /// why it does not start.
    fn start(&self) -> Result<(), String> {
        let loaded = load_master(self.path()).map_err(|errors| errors.to_string())?;
        let mut config = loaded.config;
        crate::privileges::become_user(&config.user).map_err(|error| error.to_string())?;
        (config.ret_port, config.publish_port) = (0, 0);
        let config = Arc::new(config);
        actix_rt::System::new().block_on(async move {
            let master = Master::start(parts(&config)?).map_err(|error| error.to_string())?;
            let stop = master.shutdown();
            // A second call stops everybody at once.
            tokio::join!(stop, master.shutdown());
            Ok(())
        })
    }
}

/// A path below a directory for which that of the longest socket has so many bytes.
fn at_length(directory: &str, length: usize) -> String {
    let socket = "/master_event_pull.ipc".len();
    let left = length.saturating_sub(directory.len() + 1 + socket);
    format!("{directory}/{}", "x".repeat(left))
}

fn parts(config: &Arc<MasterConfig>) -> Result<MasterParts, String> {
    let clock = Clock::system();
    let stores = Stores::open(config, &clock).map_err(|error| error.to_string())?;
    let reactions = Reactions::open(config, &clock, &stores).map_err(|error| error.to_string())?;
    let database = &config.saltern_job_database;
    std::fs::create_dir_all(database.parent().unwrap()).map_err(|error| error.to_string())?;
    let database =
        JobDatabase::open(database, DatabaseLimits::default()).and_then(JobDatabase::into_engine);
    Ok(MasterParts {
        config: config.clone(),
        clock,
        stores,
        reactions: Arc::new(reactions),
        database: database.map_err(|error| error.to_string())?,
        registry: Registry::new(),
        member_tls: None,
        inherited: Inherited::default(),
        log_levels: None,
        diagnose: None,
    })
}

/// The worst that is said about an option.
fn said(findings: &[Finding], option: &str) -> Says {
    let about = findings.iter().filter(|finding| finding.option == option);
    let worst = about.min_by_key(|finding| (finding.severity, !finding.refuses_start()));
    match worst {
        None => Nothing,
        Some(finding) if finding.refuses_start() => Error,
        Some(finding) => match finding.severity {
            Severity::Error => Python,
            Severity::Warning => Warning,
            Severity::Info => Hint,
        },
    }
}

#[test]
fn check_of_each_configuration_says_what_its_start_does() {
    assert!(TABLE.len() >= 120);
    // Each start waits for its threads more than it computes.
    let chunks = TABLE.chunks(TABLE.len().div_ceil(8));
    let wrong: Vec<String> = std::thread::scope(|scope| {
        let workers: Vec<_> = chunks
            .map(|rows| scope.spawn(|| contradictions(rows)))
            .collect();
        let joined = workers.into_iter().map(|worker| worker.join().unwrap());
        joined.flatten().collect()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The rows of the table that are not so.
fn contradictions(rows: &[(&str, &str, Says)]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (options, option, expected) in rows {
        let site = Site::new(options);
        let findings = site.findings();
        let said = said(&findings, option);
        let refuses = findings.iter().any(Finding::refuses_start);
        let started = site.start();
        if said != *expected || refuses == started.is_ok() {
            let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
            wrong.push(format!(
                "{options}\n  says {said:?}, not {expected:?}; start {started:?}\n  {lines:?}"
            ));
        }
    }
    wrong
}

/// A value of another type than an option has.
fn of_wrong_type(types: &[Kind]) -> Option<&'static str> {
    let has = |kind| types.contains(&kind);
    match () {
        () if types.is_empty() => None,
        () if !has(Kind::Map) => Some("{x: 1}"),
        () if !has(Kind::List) => Some("[[1]]"),
        () => Some("3.5").filter(|_| !has(Kind::Float)),
    }
}

/// The type that an option of ours has, by its default. `None` where that does not say it, and of
/// mappings: the part that uses one reads it, which the table above tries.
fn kind_of_default(option: &ConfigOption) -> Option<Kind> {
    let default = option.default(Compat::V3008)?;
    match serde_json::from_str(default).unwrap() {
        Value::Bool(_) => Some(Kind::Bool),
        Value::Number(_) => Some(Kind::Int),
        Value::String(_) => Some(Kind::Str),
        Value::Array(_) => Some(Kind::List),
        Value::Object(_) | Value::Null => None,
    }
}

#[test]
fn wrong_type_of_an_option_is_always_found() {
    let of_stock = options::all().iter().filter(|option| {
        // Of others the value is not looked at.
        !matches!(option.status, Status::NoEffect(_) | Status::InPython)
    });
    let of_stock = of_stock.map(|option| (option, option.types.to_vec()));
    let ours = options::OURS.iter();
    let ours = ours.map(|option| (option, kind_of_default(option).into_iter().collect()));
    let mut silent = Vec::new();
    for (option, types) in of_stock.chain(ours) {
        let Some(value) = of_wrong_type(&types) else {
            continue;
        };
        let site = Site::new(&format!("{}: {value}", option.name));
        let reading = read_master(site.path());
        let mut findings = reading.findings.iter();
        let is_about = |finding: &Finding| {
            finding.severity != Severity::Info
                && (finding.option == option.name || finding.option.is_empty())
        };
        if !findings.any(is_about) {
            silent.push(option.name);
        }
    }
    assert!(silent.is_empty(), "{silent:?}");
}

/// Every option of the shipped configuration of stock, with the value that it is shown with.
#[test]
fn shipped_configuration_uncommented_gives_no_false_finding() {
    let vectors = include_str!("../../../../tests/vectors/master_conf.json");
    let vectors: Value = serde_json::from_str(vectors).unwrap();
    let mut wrong = Vec::new();
    for (version, listed) in vectors.as_object().unwrap() {
        let line = version.split('.').next().unwrap();
        for pair in listed.as_array().unwrap() {
            let name = pair[0].as_str().unwrap();
            let text = format!("salt_compat: {line}\n{name}: {}", pair[1]);
            let site = Site::new(&text);
            let findings = read_master(site.path()).findings;
            for finding in findings.iter().filter(|finding| finding.option == name) {
                let is_unknown = finding.message.contains("no such option");
                let is_refused =
                    finding.severity == Severity::Error && !REFUSED_AS_SHIPPED.contains(&name);
                if is_unknown || is_refused || finding.message.contains("Salt wants") {
                    wrong.push(format!("{version}: {finding}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Options that the shipped configuration shows and this master refuses: clusters, secrets of an
/// sdb, and TLS without a transport that has it.
const REFUSED_AS_SHIPPED: &[&str] = &[
    "cluster_id",
    "cluster_peers",
    "cluster_pki_dir",
    "cluster_secret",
    "key_pass",
    "signing_key_pass",
    "ssl",
];
