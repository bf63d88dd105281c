//! Validation of a configuration as a whole; single values are validated where they are read.
//!
//! Every option in the files is checked once: known or not, honoured or not, of this version or
//! another. Then options are checked together. Nothing is created or bound here.

use std::path::Path;

use saltern_model::Compat;

use crate::finding::{Finding, Severity};
use crate::identity;
use crate::listeners::{self, AlsoListen};
use crate::master::MasterConfig;
use crate::options::{self, ConfigOption, Kind, Status};
use crate::reader::{Reader, shown};
use crate::values::{HashType, SigningAlgorithm};
use crate::yaml::{Key, Mark, Node, NodeValue};

/// The longest path of a Unix socket on Linux, without the closing zero.
const SUN_PATH: usize = 107;

/// The longest name of a socket in `sock_dir`, with the slash: each is bound under a name of its own
/// and renamed when it can be used.
const MAX_SOCKET_LENGTH: usize = "/master_event_pull.ipc-new".len();

/// Looks at every option that was written.
pub(crate) fn options(reader: &mut Reader<'_>, compat: Compat) {
    let settings = reader.settings;
    for (key, entry) in settings.iter() {
        let mark = &entry.key_mark;
        let Key::Str(name) = key else {
            let message = format!("the option name {key} is not text");
            reader.findings.push(Finding::new(
                Severity::Warning,
                mark,
                &key.to_string(),
                message,
            ));
            continue;
        };
        if options::ours(name).is_some() {
            continue;
        }
        match options::stock(name) {
            Some(option) => known(reader, compat, option, mark, &entry.value),
            None => unknown(reader, name, mark, &entry.value),
        }
    }
}

fn unknown(reader: &mut Reader<'_>, name: &str, mark: &Mark, value: &Node) {
    // Of a returner that is built in.
    if reader.is_read(name) {
        return;
    }
    if let Some(module) = options::module_of(name, value) {
        let message = format!("kept for the module \"{module}\", which runs in Python");
        let finding = Finding::new(Severity::Info, mark, name, message);
        return reader.findings.push(finding);
    }
    let message = "no such option; modules and templates can still read its value";
    let finding = Finding::new(Severity::Warning, mark, name, message);
    reader.findings.push(match options::nearest(name) {
        Some(nearest) => finding.suggest(format!("did you mean \"{nearest}\"?")),
        None => finding,
    });
}

fn known(
    reader: &mut Reader<'_>,
    compat: Compat,
    option: &ConfigOption,
    mark: &Mark,
    value: &Node,
) {
    let mut say = |severity, message: String| {
        reader
            .findings
            .push(Finding::new(severity, mark, option.name, message));
    };
    if !option.is_known_to(compat) && option.name != "keep_jobs" {
        let lines: Vec<String> = Compat::ALL
            .iter()
            .filter(|line| option.is_known_to(**line))
            .map(ToString::to_string)
            .collect();
        let lines = lines.join(" and ");
        say(
            Severity::Info,
            format!("Salt {compat} has no such option, only {lines}"),
        );
    }
    let status = option.status;
    if status == Status::Honoured && is_from_sdb(value) {
        let message = "values from an sdb are not built yet; write the value itself";
        reader
            .findings
            .push(Finding::new(Severity::Error, mark, option.name, message));
    }
    let is_default = value.is_null() || reader.defaults.get(option.name) == Some(value);
    if !reader.is_read(option.name) && !value.is_null() {
        wrong_type(reader, option, mark, value);
    }
    if is_default {
        return;
    }
    let (severity, message) = match status {
        Status::Honoured => return,
        Status::NotBuilt(part) => (
            Severity::Warning,
            format!("not honoured yet ({})", part.part()),
        ),
        Status::Refused(why) => (
            Severity::Error,
            format!("{} cannot be used: {why}", shown(option.name, value)),
        ),
        Status::NoEffect(why) => (Severity::Info, format!("has no effect: {why}")),
        Status::InPython => (
            Severity::Info,
            "kept for a module that runs in Python".to_owned(),
        ),
    };
    reader
        .findings
        .push(Finding::new(severity, mark, option.name, message));
}

/// Consequences of an option of the wrong type.
const LOST: &[(&str, &str)] = &[
    ("external_auth", "nobody can log in"),
    ("file_roots", "/srv/salt is served as base in its place"),
    ("peer", "no minion may publish"),
    ("peer_run", "no minion may run functions of the master"),
    (
        "pillar_roots",
        "pillars are read from /srv/pillar in its place",
    ),
    ("publisher_acl", "nobody gets any rights"),
    ("publisher_acl_blacklist", "no user or function is refused"),
    ("schedule", "nothing is scheduled"),
];

/// Stock's schema, for options whose type the reader does not look at: a warning, as in stock.
fn wrong_type(reader: &mut Reader<'_>, option: &ConfigOption, mark: &Mark, value: &Node) {
    // The type of a value from an sdb is not known here.
    if option.types.is_empty()
        || is_from_sdb(value)
        || option.types.iter().any(|kind| fits(*kind, value))
    {
        return;
    }
    let kinds: Vec<&str> = option.types.iter().map(|kind| kind.name()).collect();
    let message = format!(
        "{} is {}; Salt wants {}{}",
        shown(option.name, value),
        value.kind(),
        kinds.join(" or "),
        LOST.iter()
            .find(|(name, _)| *name == option.name)
            .map_or_else(String::new, |(_, lost)| format!("; {lost}")),
    );
    reader
        .findings
        .push(Finding::new(Severity::Warning, mark, option.name, message));
}

fn is_from_sdb(value: &Node) -> bool {
    value
        .as_str()
        .is_some_and(|text| text.starts_with("sdb://"))
}

fn fits(kind: Kind, value: &Node) -> bool {
    match (kind, &value.value) {
        (Kind::Str, NodeValue::Str(_) | NodeValue::Timestamp(_) | NodeValue::Int(_)) => true,
        (Kind::Bool, NodeValue::Bool(_)) => true,
        (Kind::Int | Kind::Float, NodeValue::Int(_) | NodeValue::BigInt(_)) => true,
        (Kind::Float, NodeValue::Float(_)) => true,
        (Kind::Int, NodeValue::Str(text)) => text.trim().parse::<i64>().is_ok(),
        (Kind::Float, NodeValue::Str(text)) => text.trim().parse::<f64>().is_ok(),
        (Kind::List, NodeValue::Seq(_)) | (Kind::Map, NodeValue::Map(_)) => true,
        (Kind::Null, NodeValue::Null) => true,
        // As stock's shipped configuration shows it.
        (Kind::Null, NodeValue::Str(text)) => text == "None",
        _ => false,
    }
}

/// Looks at options together.
pub(crate) fn config(reader: &mut Reader<'_>, config: &MasterConfig) {
    network(reader, config);
    process(reader, config);
    keys(reader, config);
    jobs(reader, config);
    site_paths(reader, config);
}

fn network(reader: &mut Reader<'_>, config: &MasterConfig) {
    if config.publish_port == config.ret_port {
        let name = if reader.written("ret_port").is_some() {
            "ret_port"
        } else {
            "publish_port"
        };
        let message = format!("publish_port and ret_port are both {}", config.ret_port);
        reader.error(name, message);
    }
    let first = AlsoListen {
        transport: config.transport,
        ret_port: config.ret_port,
        publish_port: config.publish_port,
    };
    listeners::check(reader, first, &config.saltern_also_listen);
    if let Some(ipv6) = reader.written("ipv6")
        && !matches!(ipv6.value, NodeValue::Bool(_) | NodeValue::Null)
    {
        reader.error(
            "ipv6",
            format!("{} is not true or false", shown("ipv6", ipv6)),
        );
    }
    if config.ipv6 && config.interface.is_ipv4() && reader.written("ipv6").is_some() {
        let message = format!("has no effect with the IPv4 address {}", config.interface);
        let mut finding = Finding::new(Severity::Warning, &reader.mark("ipv6"), "ipv6", message);
        finding = finding.suggest("to serve both, set \"interface: '::'\"");
        reader.findings.push(finding);
    }
    if config.saltern_metrics_ssl.is_some() && config.saltern_metrics_address.is_none() {
        let message = "has no effect while saltern_metrics_address is empty";
        reader.find(Severity::Warning, "saltern_metrics_ssl", message);
    }
    if !config.tcp_keepalive {
        for name in [
            "tcp_keepalive_idle",
            "tcp_keepalive_cnt",
            "tcp_keepalive_intvl",
        ] {
            if reader.written(name).is_some() {
                reader.find(
                    Severity::Info,
                    name,
                    "has no effect while tcp_keepalive is false",
                );
            }
        }
    }
    if config.saltern_max_unauthenticated_size > config.saltern_max_message_size {
        let name = "saltern_max_unauthenticated_size";
        reader.error(name, "must not be larger than saltern_max_message_size");
    }
    // Connections of both kinds of port, each twice where it may be relayed to another member, and a
    // margin for files and sockets of the master itself.
    let sockets = if config.member_port().is_some() { 4 } else { 2 };
    let needed = (config.saltern_max_connections as u64)
        .saturating_mul(sockets)
        .saturating_add(1024);
    let asked = ["saltern_max_connections", "max_open_files"]
        .into_iter()
        .find(|name| reader.written(name).is_some());
    if let Some(name) = asked.filter(|_| needed > config.max_open_files) {
        let message = format!(
            "saltern_max_connections is {} for each of two ports, which takes {needed} open files, but \
             max_open_files is {}",
            config.saltern_max_connections, config.max_open_files
        );
        reader.find(Severity::Warning, name, message);
    }
}

fn process(reader: &mut Reader<'_>, config: &MasterConfig) {
    if config.id.is_empty() || config.id.contains(['/', '\0', '\n']) {
        reader.error("id", "must not be empty or hold a slash or line end");
    }
    if reader.written("id").is_none() {
        let message = format!("not set; the id of this master is \"{}\"", config.id);
        reader.find(Severity::Info, "id", message);
    }
    let current = identity::current_user();
    if config.user != current {
        let user = &config.user;
        if current != "root" {
            reader.error(
                "user",
                format!("this process runs as \"{current}\", not as \"{user}\""),
            );
        }
    }
}

/// Looks at what does not go with `fips_mode`.
fn fips(reader: &mut Reader<'_>, config: &MasterConfig) {
    let message = "minions whose encryption_algorithm or signing_algorithm has SHA-1, which is their \
                   default, are refused; AES, HMAC and TLS of this program are not FIPS-validated";
    reader.find(Severity::Warning, "fips_mode", message);
    if config.publish_signing_algorithm == SigningAlgorithm::Pkcs1v15Sha1 {
        let message = "fips_mode allows \"PKCS1v15-SHA224\" alone";
        reader.error("publish_signing_algorithm", message);
    }
    if config.master_use_pubkey_signature && config.master_sign_pubkey {
        let message = "the ready signature must have SHA-224, which salt-key of 3006 and 3007 does not make; \
                       the start verifies it where the public half of the signing key is in pki_dir";
        reader.find(Severity::Info, "master_use_pubkey_signature", message);
    }
    if config.hash_type == HashType::Md5 {
        let message = "fips_mode does not allow \"md5\"";
        reader.error("hash_type", message);
    }
}

fn keys(reader: &mut Reader<'_>, config: &MasterConfig) {
    let followed = config.followed();
    if config.saltern_config_wheels {
        let message = "users with @wheel may run anything as the user of the master";
        reader.find(Severity::Warning, "saltern_config_wheels", message);
    }
    if config.open_mode {
        let message = "every key is accepted, also one that replaces a known minion's";
        reader.find(Severity::Warning, "open_mode", message);
    } else if followed.auto_accept {
        let message = "every new minion is accepted without approval";
        reader.find(Severity::Warning, "auto_accept", message);
    }
    if config.fips_mode {
        fips(reader, config);
    }
    if config.keysize < 2048 {
        let message = format!("keys of {} bits can be broken", config.keysize);
        reader.find(Severity::Warning, "keysize", message);
    }
    if config.minimum_auth_version < 3 {
        let message = "minions with protocols that allow replay are served";
        reader.find(Severity::Warning, "minimum_auth_version", message);
    }
    if !config.sign_pub_messages {
        let message = "minions cannot verify that a publish is from this master";
        reader.find(Severity::Warning, "sign_pub_messages", message);
    }
    if config.master_use_pubkey_signature && !config.master_sign_pubkey {
        let message = "has no effect while master_sign_pubkey is false";
        reader.find(Severity::Warning, "master_use_pubkey_signature", message);
    }
    if config.signing_key_pass.is_some() && !config.master_sign_pubkey {
        let message = "has no effect while master_sign_pubkey is false";
        reader.find(Severity::Info, "signing_key_pass", message);
    }
    for (name, value) in [
        ("master_sign_key_name", &config.master_sign_key_name),
        ("master_pubkey_signature", &config.master_pubkey_signature),
    ] {
        // One derived from the id is only wrong if the id is, which is reported itself.
        let made = name == "master_pubkey_signature" && reader.written(name).is_none();
        if !made && (value.is_empty() || value.contains('/')) {
            reader.error(
                name,
                format!("\"{value}\" is not the name of a file in pki_dir"),
            );
        }
    }
    for (name, path) in [
        ("autosign_file", &followed.autosign_file),
        ("autoreject_file", &followed.autoreject_file),
    ] {
        if path.as_ref().is_some_and(|path| path.is_dir()) {
            reader.error(name, "is a directory, not a file");
        }
    }
    if followed
        .autosign_grains_dir
        .as_ref()
        .is_some_and(|path| path.is_file())
    {
        reader.error("autosign_grains_dir", "is a file, not a directory");
    }
    if config.publish_session.is_zero() {
        reader.error("publish_session", "must be more than zero seconds");
    }
}

fn jobs(reader: &mut Reader<'_>, config: &MasterConfig) {
    if let Some(number) = reader.written("loop_interval").and_then(Node::as_f64)
        && number < 1.0
    {
        let message = "less than a second; one second is used";
        reader.find(Severity::Warning, "loop_interval", message);
    }
    if reader.written("keep_jobs").is_some() {
        let (severity, message) = match config.salt_compat {
            Compat::V3008 => (Severity::Warning, "has no effect in 3008"),
            _ if reader.written("keep_jobs_seconds").is_some() => {
                (Severity::Warning, "has no effect beside keep_jobs_seconds")
            }
            _ => (Severity::Info, "is the old name"),
        };
        let finding = Finding::new(severity, &reader.mark("keep_jobs"), "keep_jobs", message);
        reader
            .findings
            .push(finding.suggest("use keep_jobs_seconds, which counts seconds"));
    }
    for (name, time) in [
        ("timeout", config.timeout),
        ("gather_job_timeout", config.gather_job_timeout),
        (
            "saltern_handshake_timeout",
            config.saltern_handshake_timeout,
        ),
        ("saltern_idle_timeout", config.saltern_idle_timeout),
        ("saltern_render_timeout", config.saltern_render_timeout),
        ("saltern_pillar_timeout", config.saltern_pillar_timeout),
        (
            "saltern_heartbeat_interval",
            config.saltern_heartbeat_interval,
        ),
    ] {
        if time.is_zero() {
            reader.error(name, "must be more than zero seconds");
        }
    }
}

/// Directories must be there, or there must be one above in which they can be made.
fn site_paths(reader: &mut Reader<'_>, config: &MasterConfig) {
    let socket = config.sock_dir.as_os_str().len() + MAX_SOCKET_LENGTH;
    if socket > SUN_PATH {
        let message = format!(
            "the sockets in \"{}\" would have paths of {socket} bytes, {SUN_PATH} are possible",
            config.sock_dir.display()
        );
        reader.error("sock_dir", message);
    }
    for (name, path) in [
        ("pki_dir", &config.pki_dir),
        ("cachedir", &config.cachedir),
        ("sock_dir", &config.sock_dir),
    ] {
        if let Some(message) = unusable(path) {
            reader.error(name, message);
        }
    }
    // SQLite makes files beside the database.
    let database = &config.saltern_job_database;
    if let Some(message) = directory(database).or_else(|| database.parent().and_then(unusable)) {
        reader.error("saltern_job_database", message);
    }
    let log_file = Path::new(&config.log.file);
    if !crate::paths::is_uri(&config.log.file)
        && let Some(message) = unwritable(log_file)
    {
        reader.error("log_file", message);
    }
    // Stock goes on without one too (`set_pidfile` in `salt/utils/process.py`), as its service
    // does: its default lies where only root can make files.
    if let Some(message) = unwritable(&config.pidfile) {
        reader.find(Severity::Warning, "pidfile", message);
    }
}

fn directory(path: &Path) -> Option<String> {
    let is_there = path.is_dir();
    is_there.then(|| format!("\"{}\" is a directory", path.display()))
}

/// Why a file cannot be written; `None` if it is there and writable, or can be made.
fn unwritable(path: &Path) -> Option<String> {
    if path.is_file() {
        let written = rustix::fs::access(path, rustix::fs::Access::WRITE_OK);
        let message = |problem| format!("\"{}\" cannot be written: {problem}", path.display());
        return written.err().map(message);
    }
    directory(path).or_else(|| path.parent().and_then(unusable))
}

/// Why a directory cannot be used; `None` if it is there and writable, or can be made.
fn unusable(path: &Path) -> Option<String> {
    let there = path
        .ancestors()
        .find(|above| above.symlink_metadata().is_ok())?;
    if !there.is_dir() {
        return Some(format!("\"{}\" is not a directory", there.display()));
    }
    let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    rustix::fs::access(there, access).err().map(|problem| {
        let doing = if there == path {
            "written to"
        } else {
            "given a new directory"
        };
        format!("\"{}\" cannot be {doing}: {problem}", there.display())
    })
}
