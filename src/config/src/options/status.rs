//! The status of each option of stock in this program, decided by hand, name by name.
//!
//! A test checks that every name of `stock.rs` is decided here and that nothing is decided twice.
//! When an option is wired, its name moves to [`HONOURED`].

/// What happens to a value that differs from the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is done as asked.
    Honoured,
    /// The master starts and warns: this part is not built yet.
    NotBuilt(NotBuilt),
    /// The master does not start: doing less than asked would be dangerous or plainly wrong.
    Refused(&'static str),
    /// Nothing is lost: the text says why the value does not matter here.
    NoEffect(&'static str),
    /// Nothing is lost: the value is handed to what runs in Python.
    InPython,
}

/// The parts of a Salt master that are still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotBuilt {
    /// Serving files to minions.
    Files,
    /// Git, Mercurial, Subversion and S3 as sources of files and pillars.
    Remotes,
    /// Pillars.
    Pillar,
    /// Rendering and states on the master.
    States,
    /// Range servers, and minions of other masters.
    Targeting,
    /// Permissions of users and of external authentication.
    Permissions,
    /// Thorium and processes of the site.
    Automation,
    /// Returners for events and jobs.
    Returners,
    /// salt-ssh.
    Ssh,
    /// Runners and wheels.
    Runners,
    /// Statistics and telemetry.
    Insight,
    /// How results are printed.
    Output,
    /// What `saltern cmd` does with a command.
    CommandLine,
}

impl NotBuilt {
    /// The part as words for "not honoured yet (…)".
    pub fn part(self) -> &'static str {
        match self {
            NotBuilt::Files => "this part of the file server",
            NotBuilt::Remotes => "remote sources of files and pillars",
            NotBuilt::Pillar => "pillar",
            NotBuilt::States => "rendering on the master",
            NotBuilt::Targeting => "this way to find minions",
            NotBuilt::Permissions => "access control beyond the user keys",
            NotBuilt::Automation => "thorium and ext_processes",
            NotBuilt::Returners => "returners",
            NotBuilt::Ssh => "salt-ssh",
            NotBuilt::Runners => "runners on the master",
            NotBuilt::Insight => "this kind of events and statistics",
            NotBuilt::Output => "this part of the output",
            NotBuilt::CommandLine => "saltern cmd; stock's salt does it",
        }
    }
}

/// The options that are done as asked.
#[rustfmt::skip]
pub(super) const HONOURED: &[&str] = &[
    // Network.
    "interface", "ipv6", "pub_hwm", "publish_drain_timeout", "publish_port", "ret_port", "ssl",
    "tcp_keepalive", "tcp_keepalive_cnt", "tcp_keepalive_idle", "tcp_keepalive_intvl", "transport",
    "zmq_backlog", "zmq_filtering",
    // Process.
    "append_domain", "cachedir", "conf_file", "default_include", "id", "include", "loop_interval",
    "max_open_files", "pidfile", "pki_dir", "root_dir", "sock_dir", "user", "worker_threads",
    // Users.
    "auth.pam.service", "client_acl_verify", "external_auth", "keep_acl_in_token",
    "permissive_acl", "publisher_acl", "publisher_acl_blacklist", "sharedsecret", "sudo_acl",
    "token_expire", "token_expire_user_override",
    // Log.
    "log_datefmt", "log_datefmt_logfile", "log_dir", "log_file", "log_fmt_console", "log_fmt_jid",
    "log_fmt_logfile", "log_granular_levels", "log_level", "log_level_logfile",
    "log_rotate_backup_count", "log_rotate_max_bytes", "tracing",
    // Jobs and events.
    "auth_events", "event_return", "event_return_blacklist", "event_return_queue",
    "event_return_queue_max_seconds", "event_return_whitelist", "ext_job_cache",
    "gather_job_timeout", "job_cache", "job_cache_store_endtime", "keep_jobs", "keep_jobs_seconds",
    "master_job_cache", "max_event_size", "presence_events", "returner_dirs", "runner_returns",
    "timeout", "unique_jid",
    // What happens by itself.
    "engines", "reactor", "reactor_worker_hwm", "reactor_worker_threads", "schedule",
    // Masters above and below; what only stock's salt-syndic reads is for the one beside this master.
    "master_id", "order_masters", "syndic_event_forward_timeout", "syndic_failover",
    "syndic_jid_forward_cache_hwm", "syndic_log_file", "syndic_master", "syndic_mode",
    "syndic_pidfile", "syndic_user", "syndic_wait",
    // Targets and what is kept of minions.
    "allow_minion_key_revoke", "enforce_mine_cache", "mine_get", "minion_data_cache", "peer",
    "peer_run",
    "minion_data_cache_events", "nodegroups", "preserve_minion_cache", "rotate_aes_key",
    // States.
    "master_tops",
    // Modules of the site's own: Python reads these.
    "clean_dynamic_modules", "extension_modules", "extmod_blacklist", "extmod_whitelist",
    "module_dirs", "runner_dirs",
    // States of minions: the minions receive these.
    "default_top", "failhard", "state_aggregate", "state_auto_order", "state_events",
    "state_top_saltenv", "top_file_merging_strategy",
    // Pillars.
    "decrypt_pillar", "decrypt_pillar_default", "decrypt_pillar_delimiter",
    "decrypt_pillar_renderers", "env_order", "exclude_ext_pillar", "ext_pillar", "ext_pillar_first",
    "gpg_decrypt_must_succeed", "gpg_keydir", "jinja_env", "jinja_lstrip_blocks", "jinja_sls_env",
    "jinja_trim_blocks", "on_demand_ext_pillar", "pillar_cache", "pillar_cache_backend",
    "pillar_cache_ttl", "pillar_includes_override_sls", "pillar_merge_lists", "pillar_opts",
    "pillar_roots", "pillar_safe_render_error", "pillar_source_merging_strategy", "pillar_version",
    "pillarenv", "renderer", "renderer_blacklist", "renderer_whitelist", "saltenv", "state_top",
    // Files.
    "file_buffer_size", "file_ignore_glob", "file_ignore_regex", "file_recv", "file_recv_max_size",
    "file_roots", "fileserver_backend", "fileserver_events", "fileserver_followsymlinks",
    "fileserver_ignoresymlinks", "fileserver_list_cache_time", "minionfs_blacklist", "minionfs_env", "minionfs_mountpoint",
    "minionfs_whitelist", "roots_update_interval",
    // Remotes.
    "git_pillar_base", "git_pillar_branch", "git_pillar_depth", "git_pillar_env",
    "git_pillar_fallback", "git_pillar_includes", "git_pillar_insecure_auth", "git_pillar_password",
    "git_pillar_privkey", "git_pillar_proxy", "git_pillar_refspecs", "git_pillar_root",
    "git_pillar_ssl_verify", "git_pillar_update_interval", "git_pillar_user", "gitfs_base",
    "gitfs_depth", "gitfs_disable_saltenv_mapping", "gitfs_fallback", "gitfs_insecure_auth",
    "gitfs_mountpoint", "gitfs_password", "gitfs_privkey", "gitfs_proxy", "gitfs_ref_types",
    "gitfs_refspecs", "gitfs_remotes", "gitfs_root", "gitfs_saltenv", "gitfs_saltenv_blacklist",
    "gitfs_saltenv_whitelist", "gitfs_ssl_verify", "gitfs_update_interval", "gitfs_user",
    "http_connect_timeout", "http_max_body", "http_request_timeout",
    // Keys and authentication.
    "auto_accept", "autoreject_file", "autosign_file",
    "autosign_grains_dir", "autosign_timeout", "drop_messages_signature_fail", "hash_type",
    "key_cache", "key_pass", "keysize", "master_pubkey_signature", "master_sign_key_name",
    "master_sign_pubkey", "master_use_pubkey_signature", "max_minions", "minimum_auth_version",
    "open_mode", "permissive_pki_access", "ping_on_rotate", "publish_session",
    "publish_signing_algorithm", "request_server_ttl",
    "require_minion_sign_messages", "sign_pub_messages", "signing_key_pass",
];

const PASSPHRASE: &str =
    "system git cannot be given it; use an ssh-agent, or a key without a passphrase";

/// Options of which only the default can be used.
pub(super) const REFUSED: &[(&str, &str)] = &[
    (
        "disable_aes_with_tls",
        "loads are encrypted inside TLS too; minions must expect it",
    ),
    (
        "cluster_id",
        "clusters of masters are not built yet; two masters would overwrite keys",
    ),
    ("cluster_peers", "clusters of masters are not built yet"),
    ("cluster_pki_dir", "clusters of masters are not built yet"),
    ("cluster_secret", "clusters of masters are not built yet"),
    ("cluster_mode", "clusters of masters are not built yet"),
    (
        "cluster_isolated_filesystem",
        "clusters of masters are not built yet",
    ),
    (
        "keys.cache_driver",
        "only \"localfs_key\", the directories of the PKI tree, can be used",
    ),
    ("cache", "only \"localfs\" can be used"),
    (
        "ipc_mode",
        "only \"ipc\" can be used: the event sockets are Unix sockets",
    ),
    (
        "fips_mode",
        "this program has no FIPS-validated cryptography",
    ),
    ("gitfs_passphrase", PASSPHRASE),
    ("git_pillar_passphrase", PASSPHRASE),
    ("serial", "only \"msgpack\" can be used"),
];

const CLONES: &str = "each clone has a lock of its own, which ends with the process that holds it";
const CLUSTER: &str = "clusters of masters are not built, and nothing else uses it";
const NICENESS: &str = "there is one process; set its priority where it is started";
const PORTS: &str = "the event sockets are Unix sockets";
const POOLS: &str = "every class of requests has a queue of its own, so none can starve another";
const SALT_API: &str = "stock's salt-api reads it, and works beside this master";
const RETIRED: &str = "stock does not use it either";
const THREADS: &str = "there are no worker processes to hand it to";
const MINION: &str = "it is an option for minions";
const CLI: &str = "stock's command line reads it from the same file";
const GIT: &str = "the system's git is used, which needs no provider";
const SALT_SSH: &str = "stock's salt-ssh reads it from the same file";
const INDEX: &str = "resources are indexed by this master's own rules";
const MMAP: &str = "only the cache \"localfs\" can be used, which does not read it";

/// Options whose value cannot make a difference.
pub(super) const NO_EFFECT: &[(&str, &str)] = &[
    ("api_logfile", SALT_API),
    ("api_pidfile", SALT_API),
    ("netapi_disable_clients", SALT_API),
    ("color_theme", CLI),
    ("nested_indent", CLI),
    ("no_color", CLI),
    ("output_indent", CLI),
    ("preserve_minions", CLI),
    ("state_output_exclude", CLI),
    ("state_output_terse", CLI),
    ("state_tabular", CLI),
    ("strip_colors", CLI),
    ("cluster_port", CLUSTER),
    ("git_pillar_provider", GIT),
    ("gitfs_provider", GIT),
    ("winrepo_provider", GIT),
    ("pillar_gitfs_ssl_verify", RETIRED),
    ("win_gitrepos", RETIRED),
    ("win_repo", RETIRED),
    ("win_repo_mastercachefile", RETIRED),
    ("winrepo_mastercachefile", RETIRED),
    ("yaml_utf8", RETIRED),
    ("ignore_host_keys", SALT_SSH),
    ("known_hosts_file", SALT_SSH),
    ("no_host_keys", SALT_SSH),
    ("roster_defaults", SALT_SSH),
    ("roster_dir", SALT_SSH),
    ("roster_domain", SALT_SSH),
    ("roster_file", SALT_SSH),
    ("roster_order", SALT_SSH),
    ("rosters", SALT_SSH),
    ("salt_ssh_recursion_depth", SALT_SSH),
    ("ssh_known_hosts_file", SALT_SSH),
    ("ssh_wipe", SALT_SSH),
    ("lazy_loader_strict_matching", "no Python runs here"),
    ("virtual_timer", "no Python runs here"),
    ("use_yamlloader_old", "no Python runs here"),
    ("mmap_cache_key_size", MMAP),
    ("mmap_cache_max_segment_bytes", MMAP),
    ("mmap_cache_size", MMAP),
    ("mmap_cache_slot_size", MMAP),
    ("mmap_key_id_size", MMAP),
    ("mmap_key_max_segment_bytes", MMAP),
    ("mmap_key_size", MMAP),
    ("mmap_key_slot_size", MMAP),
    ("resource_index_primary_capacity", INDEX),
    ("resource_index_primary_slot_size", INDEX),
    ("resource_registry_compact_load_factor", INDEX),
    ("resource_registry_compact_min_interval", INDEX),
    ("resource_registry_compact_tombstone_ratio", INDEX),
    ("skip_grains", "grains are collected by minions, not here"),
    ("syndic_dir", "it is always below cachedir, in stock too"),
    ("token_dir", "it is always below cachedir, in stock too"),
    (
        "syndic_master_port",
        "stock's salt-syndic reads it, and works beside this master",
    ),
    ("userdata_template", "salt-cloud reads it"),
    ("archive_jobs", "only the returner pgjsonb uses it"),
    (
        "auth_mode",
        "stock uses it only to report refused calls twice",
    ),
    (
        "batch_manager_loop_interval",
        "batches proceed with each return here",
    ),
    ("cache_sreqs", THREADS),
    ("cluster_auto_replace_voters", CLUSTER),
    ("cluster_demote_cooldown", CLUSTER),
    ("cluster_election_max", CLUSTER),
    ("cluster_election_min", CLUSTER),
    ("cluster_encryption_algorithm", CLUSTER),
    ("cluster_join_timeout", CLUSTER),
    ("cluster_key_pass", CLUSTER),
    ("cluster_max_log_size", CLUSTER),
    ("cluster_max_voters", CLUSTER),
    ("cluster_min_voters", CLUSTER),
    ("cluster_pool_port", CLUSTER),
    ("cluster_pub_fingerprint", CLUSTER),
    ("cluster_voter_health_check_interval", CLUSTER),
    ("cluster_voter_timeout", CLUSTER),
    ("con_cache", "the connected minions are always known here"),
    ("cython_enable", "no Python runs here"),
    ("dummy_pub", RETIRED),
    ("gitfs_global_lock", CLONES),
    ("gitfs_pubkey", "ssh needs only the private key"),
    (
        "git_pillar_disable_saltenv_mapping",
        "stock does not use it for pillars either",
    ),
    ("git_pillar_global_lock", CLONES),
    ("git_pillar_pubkey", "ssh needs only the private key"),
    (
        "git_pillar_ref_types",
        "stock looks for branches and tags whatever it says",
    ),
    (
        "git_pillar_verify_config",
        "the remotes are always checked at the start",
    ),
    ("fileserver_interval", "no process needs periodic restarts"),
    ("event_publisher_niceness", NICENESS),
    ("event_return_niceness", NICENESS),
    ("fileserver_update_niceness", NICENESS),
    (
        "features",
        "the features it turns on are in minions and states",
    ),
    (
        "ipc_write_buffer",
        "the queue of each listener has its own bound",
    ),
    ("key_logfile", "salt-key writes that file itself"),
    ("lock_saltenv", MINION),
    ("log_fmt_minion_id", "stock's master does not use it"),
    ("maintenance_interval", "no process needs periodic restarts"),
    ("maintenance_niceness", NICENESS),
    ("master_async_mworker", POOLS),
    ("master_mworker_max_inflight", POOLS),
    (
        "memcache_debug",
        "stored data is cached by its own rules here",
    ),
    (
        "memcache_expire_seconds",
        "stored data is cached by its own rules here",
    ),
    (
        "memcache_full_cleanup",
        "stored data is cached by its own rules here",
    ),
    (
        "memcache_max_items",
        "stored data is cached by its own rules here",
    ),
    (
        "minionfs_update_interval",
        "what minions push is served at once; there is nothing to update",
    ),
    ("mworker_niceness", NICENESS),
    ("mworker_queue_niceness", NICENESS),
    ("netapi_allow_raw_shell", SALT_API),
    ("netapi_enable_clients", SALT_API),
    ("optimization_order", "no Python runs here"),
    ("pub_server_niceness", NICENESS),
    (
        "pub_server_write_queue_size",
        "saltern_event_queue_length bounds what waits for a listener",
    ),
    ("reactor_niceness", NICENESS),
    (
        "reactor_refresh_interval",
        "reactions use no cached clients",
    ),
    ("req_server_niceness", NICENESS),
    ("request_server_aes_session", RETIRED),
    ("rest_cherrypy", SALT_API),
    ("rest_timeout", SALT_API),
    ("rest_tornado", SALT_API),
    (
        "run_schedule_jobs_in_background",
        "scheduled jobs always run beside everything else",
    ),
    ("search", RETIRED),
    ("sock_pool_size", THREADS),
    ("tcp_master_pub_port", PORTS),
    ("tcp_master_publish_pull", PORTS),
    ("tcp_master_pull_port", PORTS),
    ("tcp_master_workers", PORTS),
    (
        "transport_opts",
        "saltern_also_listen opens the ports of other transports",
    ),
    ("syndic_forward_all_events", "nothing in stock reads it"),
    ("use_os_truststore", "no Python runs here"),
    ("utils_dirs", "no Python runs here"),
    (
        "verify_env",
        "directories are always checked and created as needed",
    ),
    ("worker_pools", POOLS),
    ("worker_pools_enabled", POOLS),
    (
        "zmq_heartbeat_ivl",
        "saltern_heartbeat_interval and saltern_idle_timeout say when a silent peer is probed",
    ),
    (
        "zmq_heartbeat_timeout",
        "saltern_heartbeat_interval says when a silent subscriber is dropped",
    ),
    ("zmq_monitor", "metrics count what the monitor would log"),
    ("auth.pam.python", "pam is asked by this program itself"),
    // Read by the command-line tools of stock, which read the same file themselves.
    (
        "publish_timeout",
        "stock's command line reads it from the same file",
    ),
    (
        "token_file",
        "stock's command line reads it from the same file",
    ),
    ("tgt_type", "it is no option of a file in stock either"),
    (
        "environment",
        "it is the old name of saltenv, and only minions and runners use that",
    ),
];

/// Options of modules in Python, which have no name of the module in theirs.
const IN_PYTHON: &[&str] = &[
    "pepa_delimiter",
    "pepa_grains",
    "pepa_pillar",
    "pepa_roots",
    "pepa_validate",
    "reclass_source_path",
    "runner_queue",
    "stateconf_end_marker",
    "stateconf_goal_state",
    "stateconf_start_state",
    "stateconf_state_func",
];

/// Options of parts that are still to come.
#[rustfmt::skip]
pub(super) const NOT_YET: &[(NotBuilt, &[&str])] = &[
    (NotBuilt::Files, &[
        "file_client", "fileserver_ftp_timeout", "fileserver_verify_config", "salt_cp_chunk_size",
        "master_roots",
    ]),
    (NotBuilt::Pillar, &[
        "gpg_cache", "gpg_cache_backend", "gpg_cache_ttl", "pass_dir", "pass_gnupghome",
        "pass_strict_fetch", "pillar_raise_on_missing", "pass_to_ext_pillars", "pass_variable_prefix", "pillar.cache_driver",
        "pillar_mask_output",
    ]),
    (NotBuilt::States, &[
        "local", "master_tops_first", "state_max_parallel", "test",
        "enable_gpu_grains",
    ]),
    (NotBuilt::Targeting, &[
        "range_server", "detect_remote_minions", "remote_minions_port",
    ]),
    (NotBuilt::Permissions, &[
        "auth.enable_expanded_auth_matching", "django_auth_path", "django_auth_settings",
        "eauth_acl_module", "eauth_redis_host", "eauth_redis_port", "eauth_tokens",
        "eauth_tokens.cache_driver", "eauth_tokens.cluster_id",
    ]),
    (NotBuilt::Automation, &[
        "ext_processes", "thorium_interval", "thorium_recompile", "thorium_roots", "thorium_top",
        "thoriumenv",
    ]),
    (NotBuilt::Returners, &["return"]),
    (NotBuilt::Ssh, &[
        "enable_ssh_minions", "min_extra_mods", "regen_thin", "roster", "ssh_config_file",
        "ssh_ext_alternatives", "ssh_identities_only", "ssh_keepalive", "ssh_keepalive_count_max",
        "ssh_keepalive_interval", "ssh_list_nodegroups", "ssh_log_file", "ssh_max_procs",
        "ssh_minion_opts", "ssh_options", "ssh_passwd", "ssh_port", "ssh_priv", "ssh_priv_passwd",
        "ssh_run_pre_flight", "ssh_scan_ports", "ssh_scan_timeout", "ssh_sudo", "ssh_sudo_user",
        "ssh_timeout", "ssh_update_roster", "ssh_use_home_key", "ssh_user", "thin_dir",
        "thin_exclude_saltexts", "thin_extra_mods", "thin_saltext_allowlist",
        "thin_saltext_blocklist",
    ]),
    (NotBuilt::Runners, &[
        "outputter_dirs",
        "queue_dirs", "sqlite_queue_dir", "no_proxy",
        "winrepo_branch", "winrepo_cachefile", "winrepo_depth", "winrepo_dir", "winrepo_dir_ng",
        "winrepo_fallback", "winrepo_insecure_auth", "winrepo_passphrase", "winrepo_password",
        "winrepo_privkey", "winrepo_proxy", "winrepo_pubkey", "winrepo_refspecs",
        "winrepo_remotes", "winrepo_remotes_ng", "winrepo_ssl_verify", "winrepo_user",
    ]),
    (NotBuilt::Insight, &[
        "auth_events_autosign_grains", "auth_events_pend_autosign_grains", "discovery",
        "event_match_type", "master_stats", "master_stats_event_iter", "metrics",
    ]),
    (NotBuilt::CommandLine, &["batch_safe_limit", "batch_safe_size"]),
    (NotBuilt::Output, &[
        "cli_summary", "color", "force_color", "output", "output_file", "show_jid",
        "show_timeout", "state_compress_ids", "state_output", "state_output_diff",
        "state_output_pct", "state_output_profile", "state_verbose",
    ]),
];

/// Families of names that are decided together.
const REMOTES: &[&str] = &["hgfs_", "svnfs_", "s3fs_", "azurefs_"];

/// The status of an option of stock; `None` for a name that is not one.
pub fn status(name: &str) -> Option<Status> {
    let option = super::stock(name)?;
    if HONOURED.contains(&name) {
        return Some(Status::Honoured);
    }
    let of = |table: &[(&str, &'static str)]| {
        table
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, why)| *why)
    };
    if let Some(why) = of(REFUSED) {
        return Some(Status::Refused(why));
    }
    if let Some(why) = of(NO_EFFECT) {
        return Some(Status::NoEffect(why));
    }
    if IN_PYTHON.contains(&name) {
        return Some(Status::InPython);
    }
    if let Some((part, _)) = NOT_YET.iter().find(|(_, names)| names.contains(&name)) {
        return Some(Status::NotBuilt(*part));
    }
    if REMOTES.iter().any(|family| name.starts_with(family)) {
        return Some(Status::NotBuilt(NotBuilt::Remotes));
    }
    match option.origin {
        super::Origin::Minion | super::Origin::Schema => Some(Status::NoEffect(MINION)),
        super::Origin::Master | super::Origin::Undeclared => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_option_status_is_known_and_unique() {
        let mut seen = HashSet::new();
        let tables = REFUSED.iter().chain(NO_EFFECT).map(|(name, _)| *name);
        let parts = NOT_YET.iter().flat_map(|(_, names)| names.iter().copied());
        let modules = IN_PYTHON.iter().copied();
        for name in HONOURED
            .iter()
            .copied()
            .chain(tables)
            .chain(parts)
            .chain(modules)
        {
            assert!(seen.insert(name), "{name} stands in two tables");
            assert!(
                crate::options::stock(name).is_some(),
                "{name} is no option of stock"
            );
            let family = REMOTES.iter().any(|family| name.starts_with(family));
            assert!(!family, "{name} belongs to a family");
        }
    }
}
