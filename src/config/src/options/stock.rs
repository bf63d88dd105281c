//! Every option name of stock Salt, a row each: what stock has (origin, versions, types, defaults), what
//! this program does with it, what it means, and whether SIGHUP takes a change over.
//!
//! The table is compared with `tests/vectors/options.json`, which `tests/vectors/make_options.py`
//! writes from 3006.28, 3007.15, 3008.3; status and meaning are decided here, by hand. An option
//! that is no longer "not built" becomes `honoured`, and a test then asks for the field that reads
//! it. The file is long because Salt has that many options.

use super::ConfigOption;
use super::Kind::{Bool, Float, Int, List, Map, Null, Str};
use super::NotBuilt::{
    Automation, Files, Insight, Permissions, Pillar, Remotes, Returners, Runners, Ssh, States,
    Targeting,
};
use super::Origin::{self, Master, Minion, Schema, Undeclared};

// Which of 3006, 3007 and 3008 know an option.
const ALL: [bool; 3] = [true, true, true];
const ONLY_3006: [bool; 3] = [true, false, false];
const UNTIL_3007: [bool; 3] = [true, true, false];
const NOT_3007: [bool; 3] = [true, false, true];
const SINCE_3007: [bool; 3] = [false, true, true];
const SINCE_3008: [bool; 3] = [false, false, true];

// Reasons that several options share.
const PASSPHRASE: &str =
    "system git cannot be given it; use an ssh-agent, or a key without a passphrase";
const CLONES: &str = "each clone has a lock of its own, which ends with the process that holds it";
const CLUSTER: &str = "stock's cluster of masters is not built, and nothing else uses it";
const OWN_CLUSTER: &str = "stock's cluster of masters is not built; saltern_cluster is another one, with PostgreSQL and one active master";
const NICENESS: &str = "there is one process; set its priority where it is started";
const PORTS: &str = "the event sockets are Unix sockets";
const POOLS: &str = "every class of requests has a queue of its own, so none can starve another";
const SALT_API: &str = "stock's salt-api reads it, and works beside this master";
const RETIRED: &str = "stock does not use it either";
const THREADS: &str = "there are no worker processes to hand it to";
const MINION: &str = "it is an option for minions";
const CLI: &str = "commands such as salt read it from the same file, stock's and ours";
const GIT: &str = "the system's git is used, which needs no provider";
const SALT_SSH: &str = "stock's salt-ssh reads it from the same file";
const INDEX: &str = "resources are indexed by this master's own rules";
const MMAP: &str = "only the cache \"localfs\" can be used, which does not read it";

/// A row without its status.
const fn stock(
    name: &'static str,
    origin: Origin,
    known: [bool; 3],
    types: &'static [super::Kind],
    defaults: &'static [Option<&'static str>],
) -> ConfigOption {
    ConfigOption::of_stock(name, origin, known, types, defaults)
}

/// Sorted by name. A default is the JSON text of the value: one for all versions or one a version, `None`
/// where there is none.
#[rustfmt::skip]
pub(super) const STOCK: &[ConfigOption] = &[
    stock("acceptance_wait_time", Minion, ALL, &[Float], &[]).no_effect(MINION),
    stock("acceptance_wait_time_max", Minion, ALL, &[Float], &[]).no_effect(MINION),
    stock("add_proxymodule_to_opts", Schema, ALL, &[Bool], &[]).no_effect(MINION),
    stock("allow_minion_key_revoke", Master, ALL, &[Bool], &[Some("true")])
        .honoured("Whether a minion may ask for its own key to be deleted."),
    stock("always_verify_signature", Minion, ALL, &[Bool], &[]).no_effect(MINION),
    stock("api_logfile", Undeclared, ALL, &[Str], &[]).no_effect(SALT_API),
    stock("api_pidfile", Undeclared, ALL, &[Str], &[]).no_effect(SALT_API),
    stock("append_domain", Undeclared, ALL, &[Str], &[])
        .honoured("Domain appended to an id that was made from the host's name."),
    stock("append_minionid_config_dirs", Minion, ALL, &[List], &[]).no_effect(MINION),
    stock("archive_jobs", Master, ALL, &[Bool], &[Some("false")])
        .honoured("Whether old jobs of the SQL database of `master_job_cache` go into `…_archive` tables instead of being deleted."),
    stock("auth.enable_expanded_auth_matching", Undeclared, ALL, &[Bool], &[])
        .not_built(Permissions, "Whether users may run exactly what an expanded rule says."),
    stock("auth.pam.python", Undeclared, ALL, &[Str], &[]).no_effect("pam is asked by this program itself"),
    stock("auth.pam.service", Undeclared, ALL, &[Str], &[])
        .honoured("Service by whose rules PAM checks log-ins of `external_auth: pam`; `login` unless set.").followed(),
    stock("auth_events", Master, ALL, &[Bool], &[Some("true")])
        .honoured("Whether each authentication of a minion fires an event."),
    stock("auth_events_autosign_grains", Schema, SINCE_3008, &[List], &[])
        .not_built(Insight, "Grains for autosigning that events of authentications carry."),
    stock("auth_events_pend_autosign_grains", Master, SINCE_3008, &[], &[None, None, Some("false")])
        .not_built(Insight, "Whether events of pending keys carry them."),
    stock("auth_mode", Master, ALL, &[Int], &[Some("1")])
        .no_effect("stock uses it only to report refused calls twice"),
    stock("auth_retries", Minion, NOT_3007, &[Int], &[]).no_effect(MINION),
    stock("auth_safemode", Minion, ALL, &[Bool], &[]).no_effect(MINION),
    stock("auth_timeout", Minion, ALL, &[Int], &[]).no_effect(MINION),
    stock("auth_tries", Minion, ALL, &[Int], &[]).no_effect(MINION),
    stock("auto_accept", Master, ALL, &[Bool], &[Some("false")])
        .honoured("Whether every new key is accepted. Only a literal `true` counts.").followed(),
    stock("autoload_dynamic_modules", Minion, ALL, &[Bool], &[]).no_effect(MINION),
    stock("autoreject_file", Undeclared, ALL, &[Str], &[])
        .honoured("File of names or patterns of minions whose keys are rejected.").followed(),
    stock("autosign_file", Undeclared, ALL, &[Str], &[])
        .honoured("File of names or patterns of minions whose keys are accepted.").followed(),
    stock("autosign_grains_dir", Undeclared, ALL, &[Str], &[])
        .honoured("Directory of files, named after grains, whose lines are values that get a minion's key accepted.").followed(),
    stock("autosign_timeout", Minion, ALL, &[Int], &[])
        .honoured("Minutes for which a stub file in `minions_autosign` of the PKI tree counts; 120 unless set."),
    stock("azurefs_update_interval", Master, ONLY_3006, &[Int], &[Some("60"), None, None])
        .not_built(Remotes, "Seconds between two looks at containers of Azure."),
    stock("backup_mode", Minion, ALL, &[Str], &[]).no_effect(MINION),
    stock("batch_manager_loop_interval", Undeclared, ALL, &[Int], &[])
        .no_effect("batches proceed with each return here"),
    stock("batch_safe_limit", Undeclared, ALL, &[Int], &[])
        .no_effect(CLI),
    stock("batch_safe_size", Undeclared, ALL, &[Int], &[]).no_effect(CLI),
    stock("beacons_before_connect", Minion, ALL, &[Bool], &[]).no_effect(MINION),
    stock("bootstrap_delay", Schema, ALL, &[Int], &[]).no_effect(MINION),
    stock("ca_bundle", Undeclared, ALL, &[Str], &[])
        .honoured("File of certificates that servers over HTTPS are verified by: those of external pillars and of traces."),
    stock("cache", Master, ALL, &[Str], &[Some("\"localfs\"")])
        .refused("Cache that minion data is stored in.", "only \"localfs\" can be used"),
    stock("cache_jobs", Minion, ALL, &[Bool], &[]).no_effect(MINION),
    stock("cache_sreqs", Master, ALL, &[Bool], &[Some("true")]).no_effect(THREADS),
    stock("cachedir", Master, ALL, &[Str], &[Some("\"/var/cache/salt/master\"")])
        .honoured("Directory of the cache, below root_dir: job database, job-cache files, minion data, sessions, tokens."),
    stock("clean_dynamic_modules", Master, ALL, &[Bool], &[Some("true")])
        .honoured("Whether the runners saltutil.sync_* delete modules that the file server has no more."),
    stock("cli_summary", Master, ALL, &[Bool], &[Some("false")])
        .no_effect(CLI),
    stock("client_acl_verify", Master, ALL, &[Bool], &[Some("true")])
        .honoured("Whether the users of publisher_acl must exist on this machine to get a key.").followed(),
    stock("cluster_auto_replace_voters", Master, SINCE_3008, &[Bool], &[None, None, Some("false")])
        .no_effect(CLUSTER),
    stock("cluster_demote_cooldown", Master, SINCE_3008, &[Float], &[None, None, Some("60.0")]).no_effect(CLUSTER),
    stock("cluster_election_max", Undeclared, ALL, &[Int], &[]).no_effect(CLUSTER),
    stock("cluster_election_min", Undeclared, ALL, &[Int], &[]).no_effect(CLUSTER),
    stock("cluster_encryption_algorithm", Master, SINCE_3008, &[Str], &[None, None, Some("\"OAEP-SHA1\"")])
        .no_effect(CLUSTER),
    stock("cluster_id", Master, SINCE_3007, &[Str], &[None, Some("null"), Some("null")])
        .refused("Name of the cluster of masters that this one is part of.", OWN_CLUSTER),
    stock("cluster_isolated_filesystem", Master, SINCE_3008, &[Bool], &[None, None, Some("false")])
        .refused("Whether the masters share no directories.", OWN_CLUSTER),
    stock("cluster_join_timeout", Undeclared, ALL, &[Float], &[]).no_effect(CLUSTER),
    stock("cluster_key_pass", Master, SINCE_3007, &[Null, Str], &[None, Some("null"), Some("null")])
        .no_effect(CLUSTER),
    stock("cluster_max_log_size", Master, SINCE_3008, &[Null, Int], &[None, None, Some("null")]).no_effect(CLUSTER),
    stock("cluster_max_voters", Master, SINCE_3008, &[Null, Int], &[None, None, Some("null")]).no_effect(CLUSTER),
    stock("cluster_min_voters", Master, SINCE_3008, &[Int], &[None, None, Some("3")]).no_effect(CLUSTER),
    stock("cluster_mode", Master, ALL, &[Bool], &[Some("false")])
        .refused("How the masters of a cluster work together.", OWN_CLUSTER),
    stock("cluster_peers", Master, SINCE_3007, &[List], &[None, Some("[]"), Some("[]")])
        .refused("The other masters of the cluster.", OWN_CLUSTER),
    stock("cluster_pki_dir", Master, SINCE_3007, &[Str], &[None, Some("null"), Some("null")])
        .refused("Directory of the keys that the masters share.", OWN_CLUSTER),
    stock("cluster_pool_port", Master, SINCE_3007, &[Int], &[None, Some("4520"), Some("4520")]).no_effect(CLUSTER),
    stock("cluster_port", Undeclared, ALL, &[Int], &[]).no_effect(CLUSTER),
    stock("cluster_pub_fingerprint", Master, SINCE_3008, &[Str], &[None, None, Some("null")]).no_effect(CLUSTER),
    stock("cluster_secret", Master, SINCE_3008, &[Str], &[None, None, Some("null")])
        .refused("Secret by which a master joins the cluster.", OWN_CLUSTER),
    stock("cluster_voter_health_check_interval", Master, SINCE_3008, &[Float], &[None, None, Some("1.0")])
        .no_effect(CLUSTER),
    stock("cluster_voter_timeout", Master, SINCE_3008, &[Float], &[None, None, Some("10.0")]).no_effect(CLUSTER),
    stock("cmd_safe", Minion, ALL, &[Bool], &[]).no_effect(MINION),
    stock("color", Undeclared, ALL, &[Bool], &[]).no_effect(CLI),
    stock("color_theme", Undeclared, ALL, &[Str], &[]).no_effect(CLI),
    stock("con_cache", Master, ALL, &[Bool], &[Some("false")])
        .no_effect("the connected minions are always known here"),
    stock("conf_file", Master, ALL, &[Str], &[Some("\"/etc/salt/master\"")])
        .handed_on("Path of the main file; it is set by the command line, not by the file."),
    stock("cython_enable", Master, ALL, &[Bool], &[Some("false")]).no_effect("no Python runs here"),
    stock("decrypt_pillar", Master, ALL, &[List], &[Some("[]")])
        .handed_on("Keys of a pillar whose values are decrypted, each perhaps with a renderer."),
    stock("decrypt_pillar_default", Master, ALL, &[Str], &[Some("\"gpg\"")])
        .handed_on("Renderer for keys of decrypt_pillar that name none."),
    stock("decrypt_pillar_delimiter", Master, ALL, &[Str], &[Some("\":\"")])
        .handed_on("Delimiter of nested keys in decrypt_pillar."),
    stock("decrypt_pillar_renderers", Master, ALL, &[List], &[Some("[\"gpg\"]")])
        .handed_on("Renderers that decrypt_pillar may name."),
    stock("default_include", Master, ALL, &[Str], &[Some("\"master.d/*.conf\"")])
        .honoured("Pattern of further files of options beside the main file."),
    stock("default_top", Master, ALL, &[Str], &[Some("\"base\"")])
        .honoured("Environment that a minion without one takes its top file from."),
    stock("detect_remote_minions", Master, ALL, &[Bool], &[Some("false")])
        .not_built(Targeting, "Whether connected minions of other masters count as present."),
    stock("disable_aes_with_tls", Master, SINCE_3008, &[Bool], &[None, None, Some("false")])
        .refused("Whether loads are left unencrypted inside TLS.", "loads are encrypted inside TLS too; minions must expect it"),
    stock("disable_modules", Minion, ALL, &[List], &[]).no_effect(MINION),
    stock("disable_returners", Minion, ALL, &[List], &[]).no_effect(MINION),
    stock("disabled_requisites", Minion, ALL, &[Str, List], &[]).no_effect(MINION),
    stock("discovery", Master, ALL, &[Map, Bool], &[Some("false")])
        .not_built(Insight, "Whether minions find this master by multicast."),
    stock("django_auth_path", Master, ALL, &[Str], &[Some("\"\"")])
        .not_built(Permissions, "Path of the Django project whose users log in."),
    stock("django_auth_settings", Master, ALL, &[Str], &[Some("\"\"")])
        .not_built(Permissions, "Settings of that project."),
    stock("drop_messages_signature_fail", Master, ALL, &[Bool], &[Some("false")])
        .honoured("Whether a minion's message with a wrong signature is dropped."),
    stock("dummy_pub", Master, ALL, &[], &[Some("false")]).no_effect(RETIRED),
    stock("eauth_acl_module", Master, ALL, &[Str], &[Some("\"\"")])
        .not_built(Permissions, "Module that is asked for the rules of a user in place of external_auth; here such users have none.").followed(),
    stock("eauth_redis_host", Undeclared, ALL, &[Str], &[])
        .not_built(Permissions, "Host of the Redis that tokens are stored in."),
    stock("eauth_redis_port", Undeclared, ALL, &[Int], &[]).not_built(Permissions, "Port of that Redis."),
    stock("eauth_tokens", Master, ALL, &[Str], &[Some("\"localfs\"")])
        .not_built(Permissions, "Where tokens are stored."),
    stock("eauth_tokens.cache_driver", Master, SINCE_3008, &[Null, Str], &[None, None, Some("null")])
        .not_built(Permissions, "Cache that tokens are stored in."),
    stock("eauth_tokens.cluster_id", Master, SINCE_3008, &[Null, Str], &[None, None, Some("null")])
        .not_built(Permissions, "Name of the cluster that tokens are shared in."),
    stock("enable_fqdns_grains", Minion, ALL, &[Bool], &[]).no_effect(MINION),
    stock("enable_gpu_grains", Master, ALL, &[Bool], &[Some("false")])
        .not_built(States, "Whether grains name the graphics processors."),
    stock("enable_legacy_startup_events", Minion, ALL, &[Bool], &[]).no_effect(MINION),
    stock("enable_lspci", Schema, ALL, &[Bool], &[]).no_effect(MINION),
    stock("enable_ssh_minions", Master, ALL, &[Bool], &[Some("false")])
        .not_built(Ssh, "Whether minions may publish to hosts of salt-ssh."),
    stock("enable_zip_modules", Minion, ALL, &[Bool], &[]).no_effect(MINION),
    stock("encryption_algorithm", Minion, ALL, &[Str], &[]).no_effect(MINION),
    stock("enforce_mine_cache", Master, ALL, &[], &[Some("false")])
        .honoured("Whether mines are stored while minion_data_cache is off."),
    stock("engines", Master, ALL, &[List], &[Some("[]")])
        .honoured("Processes that run beside the master: `script`, `webhook`, `reactor`, and by python_bridge all others."),
    stock("env_order", Master, ALL, &[List], &[Some("[]")])
        .honoured("Order of the environments when top files are merged."),
    stock("environment", Undeclared, ALL, &[Str], &[])
        .no_effect("it is the old name of saltenv, and only minions and runners use that"),
    stock("event_match_type", Master, ALL, &[Str], &[Some("\"startswith\"")])
        .not_built(Insight, "How tags of events are matched by programs that listen."),
    stock("event_publisher_niceness", Master, ALL, &[Null, Int], &[Some("null")]).no_effect(NICENESS),
    stock("event_return", Master, ALL, &[List, Str], &[Some("\"\"")])
        .honoured("Returners that get every event; `saltern` stores them in the job database."),
    stock("event_return_blacklist", Master, ALL, &[List], &[Some("[]")])
        .honoured("Patterns of tags of events that returners do not get."),
    stock("event_return_niceness", Master, ALL, &[Null, Int], &[Some("null")]).no_effect(NICENESS),
    stock("event_return_queue", Master, ALL, &[Int], &[Some("0")])
        .honoured("Number of events that are handed to a returner at a time; 0 hands each on alone."),
    stock("event_return_queue_max_seconds", Schema, ALL, &[Int], &[])
        .honoured("Longest time in seconds that an event waits for others of its queue."),
    stock("event_return_whitelist", Master, ALL, &[List], &[Some("[]")])
        .honoured("Patterns of tags of the only events that returners get."),
    stock("exclude_ext_pillar", Undeclared, ALL, &[List], &[])
        .honoured("External pillars that are left out where a minion's request does not ask for them."),
    stock("ext_job_cache", Master, ALL, &[Str], &[Some("\"\"")])
        .honoured("Returner that minions send every return of a job to, beside the master."),
    stock("ext_pillar", Master, ALL, &[List], &[Some("[]")])
        .honoured("External pillars: a list of modules with their arguments."),
    stock("ext_pillar_first", Undeclared, ALL, &[Bool], &[])
        .honoured("Whether external pillars are compiled before the files of pillar_roots, which can then use them."),
    stock("ext_processes", Undeclared, ALL, &[List], &[])
        .not_built(Automation, "Classes of Python that run as processes of the master."),
    stock("extension_modules", Master, ALL, &[], &[Some("\"/var/cache/salt/master/extmods\"")])
        .honoured("Directory, below root_dir, of Python modules that the runners saltutil.sync_* write."),
    stock("external_auth", Master, ALL, &[Map], &[Some("{}")])
        .honoured("Users who log in, by backend: which functions each may run, and where.").followed(),
    stock("extmod_blacklist", Master, ALL, &[Map], &[Some("{}")])
        .honoured("Modules, by their form, that the runners saltutil.sync_* leave out."),
    stock("extmod_whitelist", Master, ALL, &[Map], &[Some("{}")])
        .honoured("Modules, by their form, that the runners saltutil.sync_* write; all unless set."),
    stock("failhard", Master, ALL, &[Bool], &[Some("false")])
        .honoured("Whether states of minions end at the first failure; handed to minions."),
    stock("features", Master, ALL, &[Map], &[Some("{}")])
        .no_effect("the features it turns on are in minions and states"),
    stock("file_buffer_size", Master, ALL, &[Int], &[Some("1048576")])
        .honoured("Bytes in one chunk of a served file."),
    stock("file_client", Master, ALL, &[Str], &[Some("\"local\"")]).not_built(Files, "Where files come from."),
    stock("file_ignore_glob", Master, ALL, &[List, Str], &[Some("[]")])
        .honoured("Patterns of paths that are neither listed nor served."),
    stock("file_ignore_regex", Master, ALL, &[List, Str], &[Some("[]")])
        .honoured("Expressions over paths that are neither listed nor served."),
    stock("file_recv", Master, ALL, &[Bool], &[Some("false")])
        .honoured("Whether minions may push files to the master (cp.push)."),
    stock("file_recv_max_size", Master, ALL, &[Int], &[Some("100")]).honoured("Largest pushed file, in MiB."),
    stock("file_roots", Master, ALL, &[Map], &[Some("{\"base\": [\"/srv/salt\", \"/srv/spm/salt\"]}")])
        .honoured("Directories of files by environment; a path may hold wildcards."),
    stock("fileserver_backend", Master, ALL, &[List], &[Some("[\"roots\"]")])
        .honoured("Sources of files in their order: `roots`, `gitfs`, `minionfs`."),
    stock("fileserver_events", Undeclared, ALL, &[Bool], &[])
        .honoured("Whether an event is fired when files of a source changed."),
    stock("fileserver_followsymlinks", Master, ALL, &[Bool], &[Some("true")])
        .honoured("Whether symbolic links that lead out of a root are followed."),
    stock("fileserver_ftp_timeout", Undeclared, ALL, &[Int], &[])
        .not_built(Files, "Seconds to wait for a file over FTP."),
    stock("fileserver_ignoresymlinks", Master, ALL, &[Bool], &[Some("false")])
        .honoured("Whether symbolic links are left out of listings."),
    stock("fileserver_interval", Master, ALL, &[Int], &[Some("3600")])
        .no_effect("no process needs periodic restarts"),
    stock("fileserver_list_cache_time", Undeclared, ALL, &[Int], &[])
        .honoured("Seconds for which a listing of files is kept; 20 unless set."),
    stock("fileserver_update_niceness", Master, ALL, &[Null, Int], &[Some("null")]).no_effect(NICENESS),
    stock("fileserver_verify_config", Master, ALL, &[Bool], &[Some("true")])
        .not_built(Files, "Whether the options of file sources are checked when Salt starts."),
    stock("fips_mode", Master, ALL, &[Bool], &[Some("false")])
        .honoured(
            "Whether algorithms with SHA-1 are refused: minions need `OAEP-SHA224` and `PKCS1v15-SHA224`. \
             AES, HMAC and TLS of this program are not FIPS-validated.",
        ),
    stock("force_color", Undeclared, ALL, &[Bool], &[])
        .no_effect(CLI),
    stock("gather_job_timeout", Master, ALL, &[Int], &[Some("10")])
        .honoured("Seconds that a client waits for the answer to its question which minions run its job."),
    stock("git_pillar_base", Master, ALL, &[], &[Some("\"master\"")])
        .honoured("Branch that stands for the environment `base`."),
    stock("git_pillar_branch", Master, ALL, &[], &[Some("\"master\"")]).honoured("Branch of remotes that name none."),
    stock("git_pillar_depth", Master, SINCE_3008, &[], &[None, None, Some("1")])
        .honoured("Number of commits that are fetched; 0 fetches all."),
    stock("git_pillar_disable_saltenv_mapping", Master, SINCE_3008, &[], &[None, None, Some("false")])
        .no_effect("stock does not use it for pillars either"),
    stock("git_pillar_env", Master, ALL, &[], &[Some("\"\"")])
        .honoured("Environment that a remote's pillars belong to; its branch unless set."),
    stock("git_pillar_fallback", Master, ALL, &[], &[Some("\"\"")])
        .honoured("Branch for environments that a remote has no branch for."),
    stock("git_pillar_global_lock", Master, ALL, &[Bool], &[Some("true")]).no_effect(CLONES),
    stock("git_pillar_includes", Master, ALL, &[Bool], &[Some("true")])
        .honoured("Whether a pillar of one remote may include files of the others."),
    stock("git_pillar_insecure_auth", Master, ALL, &[Bool], &[Some("false")])
        .honoured("Whether a password is sent over HTTP without TLS."),
    stock("git_pillar_passphrase", Master, ALL, &[Str], &[Some("\"\"")])
        .refused("Passphrase of the private key for remotes over SSH.", PASSPHRASE),
    stock("git_pillar_password", Master, ALL, &[Str], &[Some("\"\"")]).honoured("Password for remotes over HTTP."),
    stock("git_pillar_privkey", Master, ALL, &[Str], &[Some("\"\"")]).honoured("Private key for remotes over SSH."),
    stock("git_pillar_provider", Undeclared, ALL, &[Str], &[]).no_effect(GIT),
    stock("git_pillar_proxy", Master, SINCE_3008, &[Str], &[None, None, Some("\"\"")])
        .honoured("HTTP proxy for remotes."),
    stock("git_pillar_pubkey", Master, ALL, &[Str], &[Some("\"\"")]).no_effect("ssh needs only the private key"),
    stock("git_pillar_ref_types", Master, SINCE_3008, &[], &[None, None, Some("[\"branch\", \"tag\", \"sha\"]")])
        .no_effect("stock looks for branches and tags whatever it says"),
    stock("git_pillar_refspecs", Master, ALL, &[List], &[Some("[\"+refs/heads/*:refs/remotes/origin/*\", \"+refs/tags/*:refs/tags/*\"]")])
        .honoured("What is fetched of remotes."),
    stock("git_pillar_root", Master, ALL, &[], &[Some("\"\"")])
        .honoured("Directory in the repository that pillars are below."),
    stock("git_pillar_ssl_verify", Master, ALL, &[Bool], &[Some("true")])
        .honoured("Whether certificates of remotes over HTTPS are verified."),
    stock("git_pillar_update_interval", Master, ALL, &[Int], &[Some("60")]).honoured("Seconds between two fetches."),
    stock("git_pillar_user", Master, ALL, &[Str], &[Some("\"\"")]).honoured("User for remotes over HTTP."),
    stock("git_pillar_verify_config", Master, ALL, &[Bool], &[Some("true")])
        .no_effect("the remotes are always checked at the start"),
    stock("gitfs_base", Master, ALL, &[], &[Some("\"master\"")])
        .honoured("Branch or tag that stands for the environment `base`."),
    stock("gitfs_depth", Master, SINCE_3008, &[], &[None, None, Some("1")])
        .honoured("Number of commits that are fetched; 0 fetches all."),
    stock("gitfs_disable_saltenv_mapping", Master, ALL, &[Bool], &[Some("false")])
        .honoured("Whether branches and tags are environments only where gitfs_saltenv maps them."),
    stock("gitfs_fallback", Master, ALL, &[], &[Some("\"\"")])
        .honoured("Branch or tag for environments that a remote has none for."),
    stock("gitfs_global_lock", Master, ALL, &[Bool], &[Some("true")]).no_effect(CLONES),
    stock("gitfs_insecure_auth", Master, ALL, &[Bool], &[Some("false")])
        .honoured("Whether a password is sent over HTTP without TLS."),
    stock("gitfs_mountpoint", Master, ALL, &[], &[Some("\"\"")])
        .honoured("Path below `salt://` that files of remotes get."),
    stock("gitfs_passphrase", Master, ALL, &[Str], &[Some("\"\"")])
        .refused("Passphrase of the private key for remotes over SSH.", PASSPHRASE),
    stock("gitfs_password", Master, ALL, &[], &[Some("\"\"")]).honoured("Password for remotes over HTTP."),
    stock("gitfs_privkey", Master, ALL, &[Str], &[Some("\"\"")]).honoured("Private key for remotes over SSH."),
    stock("gitfs_provider", Undeclared, ALL, &[Str], &[]).no_effect(GIT),
    stock("gitfs_proxy", Master, SINCE_3008, &[Str], &[None, None, Some("\"\"")]).honoured("HTTP proxy for remotes."),
    stock("gitfs_pubkey", Master, ALL, &[Str], &[Some("\"\"")]).no_effect("ssh needs only the private key"),
    stock("gitfs_ref_types", Master, ALL, &[List], &[Some("[\"branch\", \"tag\", \"sha\"]")])
        .honoured("What of a remote becomes an environment: `branch`, `tag`, `sha`."),
    stock("gitfs_refspecs", Master, ALL, &[List], &[Some("[\"+refs/heads/*:refs/remotes/origin/*\", \"+refs/tags/*:refs/tags/*\"]")])
        .honoured("What is fetched of remotes."),
    stock("gitfs_remotes", Master, ALL, &[List], &[Some("[]")])
        .honoured("Repositories, each perhaps with parameters of its own."),
    stock("gitfs_root", Master, ALL, &[], &[Some("\"\"")])
        .honoured("Directory in the repository that files are served from."),
    stock("gitfs_saltenv", Master, ALL, &[List], &[Some("[]")])
        .honoured("Branch, root or mount point of single environments."),
    stock("gitfs_saltenv_blacklist", Master, ALL, &[List], &[Some("[]")])
        .honoured("Patterns of environments that are not served."),
    stock("gitfs_saltenv_whitelist", Master, ALL, &[List], &[Some("[]")])
        .honoured("Patterns of the only environments that are served."),
    stock("gitfs_ssl_verify", Master, ALL, &[Bool], &[Some("true")])
        .honoured("Whether certificates of remotes over HTTPS are verified."),
    stock("gitfs_update_interval", Master, ALL, &[Int], &[Some("60")]).honoured("Seconds between two fetches."),
    stock("gitfs_user", Master, ALL, &[], &[Some("\"\"")]).honoured("User for remotes over HTTP."),
    stock("global_state_conditions", Minion, ALL, &[Null, Map], &[]).no_effect(MINION),
    stock("gpg_cache", Master, ALL, &[Bool], &[Some("false")]).not_built(Pillar, "Whether decrypted texts are kept."),
    stock("gpg_cache_backend", Master, ALL, &[Str], &[Some("\"disk\"")]).not_built(Pillar, "Where they are kept."),
    stock("gpg_cache_ttl", Master, ALL, &[Int], &[Some("86400")])
        .not_built(Pillar, "Seconds for which they are kept."),
    stock("gpg_decrypt_must_succeed", Master, ALL, &[Bool], &[Some("false"), Some("true"), Some("true")])
        .honoured("Whether a pillar with text that cannot be decrypted is an error."),
    stock("gpg_keydir", Undeclared, ALL, &[Str], &[])
        .honoured("Directory of the keys of gpg; `gpgkeys` beside the main file unless set."),
    stock("grains", Minion, ALL, &[Map], &[]).no_effect(MINION),
    stock("grains_blacklist", Minion, ALL, &[List], &[]).no_effect(MINION),
    stock("grains_cache", Minion, ALL, &[], &[]).no_effect(MINION),
    stock("grains_cache_expiration", Minion, ALL, &[], &[]).no_effect(MINION),
    stock("grains_deep_merge", Minion, ALL, &[], &[]).no_effect(MINION),
    stock("grains_dirs", Minion, ALL, &[List], &[]).no_effect(MINION),
    stock("grains_refresh_every", Minion, ALL, &[Int], &[]).no_effect(MINION),
    stock("grains_refresh_pre_exec", Schema, ALL, &[Bool], &[]).no_effect(MINION),
    stock("hash_type", Master, ALL, &[Str], &[Some("\"sha256\"")])
        .honoured("Digest of fingerprints, file hashes and job directories: `md5`, `sha1`, `sha224`, `sha256`, `sha384`, `sha512`."),
    stock("hgfs_base", Master, ALL, &[Str], &[Some("\"default\"")])
        .not_built(Remotes, "Branch that stands for the environment `base`."),
    stock("hgfs_branch_method", Master, ALL, &[Str], &[Some("\"branches\"")])
        .not_built(Remotes, "What of a Mercurial repository is an environment."),
    stock("hgfs_mountpoint", Master, ALL, &[Str], &[Some("\"\"")])
        .not_built(Remotes, "Path below `salt://` that files of repositories get."),
    stock("hgfs_remotes", Master, ALL, &[List], &[Some("[]")])
        .not_built(Remotes, "Mercurial repositories that files are served from."),
    stock("hgfs_root", Master, ALL, &[Str], &[Some("\"\"")])
        .not_built(Remotes, "Directory in the repository that files are served from."),
    stock("hgfs_saltenv_blacklist", Master, ALL, &[List], &[Some("[]")])
        .not_built(Remotes, "Patterns of environments that are not served."),
    stock("hgfs_saltenv_whitelist", Master, ALL, &[List], &[Some("[]")])
        .not_built(Remotes, "Patterns of the only environments that are served."),
    stock("hgfs_update_interval", Master, ALL, &[Int], &[Some("60")])
        .not_built(Remotes, "Seconds between two pulls."),
    stock("http_connect_timeout", Master, ALL, &[Float], &[Some("20.0")])
        .honoured("Seconds to connect to a server of an external pillar over HTTP."),
    stock("http_max_body", Master, ALL, &[Int], &[Some("107374182400")])
        .honoured("Largest answer of such a server in bytes."),
    stock("http_request_timeout", Master, ALL, &[Float], &[Some("3600.0")])
        .honoured("Seconds that a whole request to such a server may take."),
    stock("id", Minion, ALL, &[Str], &[]).honoured("Name of this master; made from the host's name unless set."),
    stock("id_function", Minion, ALL, &[Map, Str], &[]).no_effect(MINION),
    stock("ignore_host_keys", Undeclared, ALL, &[Bool], &[]).no_effect(SALT_SSH),
    stock("include", Undeclared, ALL, &[Str, List], &[])
        .honoured("Further files of options: a pattern or a list of patterns."),
    stock("interface", Master, ALL, &[Str], &[Some("\"0.0.0.0\"")])
        .honoured("IP address that the ports are bound to."),
    stock("ipc_mode", Master, ALL, &[Str], &[Some("\"ipc\"")])
        .refused("How programs on this machine reach the event bus.", "only \"ipc\" can be used: the event sockets are Unix sockets"),
    stock("ipc_write_buffer", Master, ALL, &[Int, Str], &[Some("0")])
        .no_effect("the queue of each listener has its own bound"),
    stock("ipv6", Master, ALL, &[Null, Bool], &[Some("null")])
        .honoured("Whether an interface of `::` serves IPv4 peers too."),
    stock("jinja_env", Master, ALL, &[Map], &[Some("{}")])
        .honoured("Settings of Jinja in files that states deploy; handed to minions."),
    stock("jinja_lstrip_blocks", Master, ALL, &[Bool], &[Some("false")])
        .honoured("Whether Jinja strips white space before a block; old form of jinja_env."),
    stock("jinja_sls_env", Master, ALL, &[Map], &[Some("{}")]).honoured("Settings of Jinja in SLS files."),
    stock("jinja_trim_blocks", Master, ALL, &[Bool], &[Some("false")])
        .honoured("Whether Jinja strips the line end behind a block; old form of jinja_env."),
    stock("job_cache", Master, ALL, &[Bool], &[Some("true")]).honoured("Whether returns of jobs are stored. A native syndic stores them in any case: they go up from the job database."),
    stock("job_cache_store_endtime", Master, ALL, &[Bool], &[Some("false")])
        .honoured("Whether the end of each job is stored in the job-cache files."),
    stock("keep_acl_in_token", Master, ALL, &[Bool], &[Some("false")])
        .honoured("Whether a token carries the rules that held when it was made.").followed(),
    stock("keep_jobs", Master, ALL, &[], &[Some("24")])
        .honoured("Retention time of jobs in hours; the old form of keep_jobs_seconds, without effect in 3008."),
    stock("keep_jobs_seconds", Master, ALL, &[Int], &[Some("86400")])
        .honoured("Retention time of jobs in seconds; 0 keeps them for ever."),
    stock("key_cache", Master, ALL, &[Str], &[Some("\"\"")])
        .honoured("`sched` writes the names of accepted keys into a file for stock's programs."),
    stock("key_logfile", Master, ALL, &[Str], &[Some("\"/var/log/salt/key\"")])
        .no_effect("salt-key writes that file itself"),
    stock("key_pass", Master, ALL, &[Null, Str], &[Some("null")]).honoured("Passphrase of the master's key."),
    stock("keys.cache_driver", Master, SINCE_3008, &[Null, Str], &[None, None, Some("\"localfs_key\"")])
        .refused("Cache that keys are stored in.", "only \"localfs_key\", the directories of the PKI tree, can be used"),
    stock("keysize", Master, ALL, &[Int], &[Some("2048")]).honoured("Length of new keys in bits."),
    stock("known_hosts_file", Undeclared, ALL, &[Str], &[]).no_effect(SALT_SSH),
    stock("lazy_loader_strict_matching", Undeclared, ALL, &[Bool], &[]).no_effect("no Python runs here"),
    stock("local", Master, ALL, &[Bool], &[Some("true")])
        .not_built(States, "Whether everything runs without a master."),
    stock("lock_saltenv", Master, ALL, &[Bool], &[Some("false")]).no_effect(MINION),
    stock("log_datefmt", Master, ALL, &[Str], &[Some("\"%H:%M:%S\"")])
        .honoured("strftime's format of the time on the console."),
    stock("log_datefmt_logfile", Master, ALL, &[Str], &[Some("\"%Y-%m-%d %H:%M:%S\"")])
        .honoured("strftime's format of the time in the log file."),
    stock("log_dir", Undeclared, ALL, &[Str], &[])
        .honoured("Directory of the log file, where log_file is relative or not set."),
    stock("log_file", Master, ALL, &[Str], &[Some("\"/var/log/salt/master\"")])
        .honoured("Path of the log file, below root_dir."),
    stock("log_fmt_console", Master, ALL, &[Str], &[Some("\"[%(levelname)-8s] %(message)s\"")])
        .honoured("Python's format of a line on the console."),
    stock("log_fmt_jid", Master, ALL, &[Null, Str], &[Some("\"[JID: %(jid)s]\"")])
        .honoured("Python's format of the field `%(jid)s` in lines that belong to a job."),
    stock("log_fmt_logfile", Master, ALL, &[List, Str], &[Some("\"%(asctime)s,%(msecs)03d [%(name)-17s:%(lineno)-4d][%(levelname)-8s][%(process)d] %(message)s\"")])
        .honoured("Python's format of a line in the log file."),
    stock("log_fmt_minion_id", Master, SINCE_3008, &[Null, Str], &[None, None, Some("\"[%(minion_id)s]\"")])
        .no_effect("stock's master does not use it"),
    stock("log_granular_levels", Master, ALL, &[Map], &[Some("{}")])
        .honoured("Levels of single parts of this program, by the name of the module.").followed(),
    stock("log_level", Master, ALL, &[Str], &[Some("\"warning\"")]).honoured("Level of the console.").followed(),
    stock("log_level_logfile", Master, ALL, &[Null, Str], &[Some("null")])
        .honoured("Level of the log file; that of the console unless set.").followed(),
    stock("log_rotate_backup_count", Master, ALL, &[Int], &[Some("0")])
        .honoured("Number of rotated log files that are kept; 0 rotates none."),
    stock("log_rotate_max_bytes", Master, ALL, &[Int], &[Some("0")])
        .honoured("Bytes beyond which the log file is rotated; 0 for never."),
    stock("loop_interval", Master, ALL, &[Float], &[Some("60")])
        .honoured("Seconds between two rounds of maintenance; at least 1."),
    stock("maintenance_interval", Master, ALL, &[Int], &[Some("3600")])
        .no_effect("no process needs periodic restarts"),
    stock("maintenance_niceness", Master, ALL, &[Null, Int], &[Some("null")]).no_effect(NICENESS),
    stock("master", Minion, ALL, &[Str, List], &[]).no_effect(MINION),
    stock("master_alive_interval", Minion, ALL, &[Int], &[]).no_effect(MINION),
    stock("master_async_mworker", Master, SINCE_3008, &[Bool], &[None, None, Some("false")]).no_effect(POOLS),
    stock("master_failback", Minion, ALL, &[Bool], &[]).no_effect(MINION),
    stock("master_failback_interval", Minion, ALL, &[Int], &[]).no_effect(MINION),
    stock("master_finger", Minion, ALL, &[Str], &[]).no_effect(MINION),
    stock("master_id", Undeclared, ALL, &[Str], &[])
        .honoured("Name of the master that a syndic and its minions know it by."),
    stock("master_job_cache", Master, ALL, &[Str], &[Some("\"local_cache\"")])
        .honoured("Returner that jobs are stored by; `local_cache` is the job database with its mirror."),
    stock("master_mworker_max_inflight", Master, SINCE_3008, &[Int], &[None, None, Some("0")]).no_effect(POOLS),
    stock("master_port", Minion, ALL, &[Str, Int], &[]).no_effect(MINION),
    stock("master_pubkey_signature", Master, ALL, &[Null, Str], &[Some("\"master_pubkey_signature\""), Some("\"master_pubkey_signature\""), Some("null")])
        .honoured("Name of the file in pki_dir with a signature of the public key."),
    stock("master_roots", Master, ALL, &[Map], &[Some("{\"base\": [\"/srv/salt-master\"]}")])
        .not_built(Files, "Directories of files for states that run on the master."),
    stock("master_shuffle", Minion, ALL, &[Bool], &[]).no_effect(MINION),
    stock("master_sign_key_name", Master, ALL, &[Str], &[Some("\"master_sign\"")])
        .honoured("Name of the signing key pair in pki_dir."),
    stock("master_sign_pubkey", Master, ALL, &[Bool], &[Some("false")])
        .honoured("Whether replies to authentications carry a signature of the public key."),
    stock("master_stats", Master, ALL, &[Bool], &[Some("false")])
        .not_built(Insight, "Whether events report how long requests took."),
    stock("master_stats_event_iter", Master, ALL, &[Int], &[Some("60")])
        .not_built(Insight, "Seconds between two such events."),
    stock("master_tops", Master, ALL, &[Map], &[Some("{}")])
        .honoured("Sources of states beside top files: `ext_nodes`, and by python_bridge all others."),
    stock("master_tops_first", Master, ALL, &[Bool], &[Some("false")])
        .not_built(States, "Whether states of master_tops come before those of top files."),
    stock("master_tries", Minion, ALL, &[Int], &[]).no_effect(MINION),
    stock("master_type", Minion, ALL, &[Str], &[]).no_effect(MINION),
    stock("master_uri_format", Minion, ALL, &[Str], &[]).no_effect(MINION),
    stock("master_use_pubkey_signature", Master, ALL, &[Bool], &[Some("false")])
        .honoured("Whether that signature is read from a file in place of made."),
    stock("max_event_size", Master, ALL, &[Int], &[Some("1048576")])
        .honoured("Largest event in bytes; larger ones lose their values."),
    stock("max_minions", Master, ALL, &[Int], &[Some("0")])
        .honoured("Most minions that may be connected; 0 for no such bound."),
    stock("max_open_files", Master, ALL, &[Int], &[Some("100000")])
        .honoured("Limit of open files that the system is asked for."),
    stock("memcache_debug", Master, ALL, &[Bool], &[Some("false")])
        .no_effect("stored data is cached by its own rules here"),
    stock("memcache_expire_seconds", Master, ALL, &[Int], &[Some("0")])
        .no_effect("stored data is cached by its own rules here"),
    stock("memcache_full_cleanup", Master, ALL, &[Bool], &[Some("false")])
        .no_effect("stored data is cached by its own rules here"),
    stock("memcache_max_items", Master, ALL, &[Int], &[Some("1024")])
        .no_effect("stored data is cached by its own rules here"),
    stock("metrics", Master, SINCE_3008, &[Map], &[None, None, Some("{\"enabled\": false, \"endpoint\": \"\", \"export_interval_seconds\": 60, \"exporter\": \"otlp-http\", \"headers\": {}, \"histogram_boundaries\": {\"salt.job.duration\": [1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000], \"salt.master.requests.duration\": [1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000], \"salt.minion.exec.duration\": [1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000]}, \"insecure\": true, \"prometheus\": {\"host\": \"127.0.0.1\", \"port\": 9464}, \"resource_attributes\": {}, \"service_name\": \"\"}")])
        .not_built(Insight, "Metrics by OpenTelemetry: whether, and where they are sent."),
    stock("min_extra_mods", Master, ALL, &[Str], &[Some("\"\"")])
        .not_built(Ssh, "Modules that are added to salt-ssh's smallest archive."),
    stock("mine_enabled", Minion, ALL, &[Bool], &[]).no_effect(MINION),
    stock("mine_get", Undeclared, ALL, &[Map], &[])
        .honoured("Which minions may read which functions of the mine; all unless set."),
    stock("mine_interval", Minion, ALL, &[Int], &[]).no_effect(MINION),
    stock("mine_return_job", Minion, ALL, &[Bool], &[]).no_effect(MINION),
    stock("minimum_auth_version", Master, ALL, &[Int], &[Some("3")])
        .honoured("Oldest version of the authentication protocol that is served, 0 to 3."),
    stock("minion_data_cache", Master, ALL, &[Bool], &[Some("true")])
        .honoured("Whether grains, pillars and mines of minions are stored."),
    stock("minion_data_cache_events", Master, ALL, &[Bool], &[Some("true")])
        .honoured("Whether an event reports that they were. Only a literal `true` counts."),
    stock("minion_id_caching", Minion, ALL, &[Bool], &[]).no_effect(MINION),
    stock("minion_id_lowercase", Minion, ALL, &[Bool], &[]).no_effect(MINION),
    stock("minion_id_remove_domain", Minion, ALL, &[Str, Bool], &[]).no_effect(MINION),
    stock("minion_jid_queue_hwm", Minion, ALL, &[Int], &[]).no_effect(MINION),
    stock("minion_memory_headroom", Minion, UNTIL_3007, &[Str, Int, Null], &[]).no_effect(MINION),
    stock("minion_memory_max", Minion, UNTIL_3007, &[Str, Int, Null], &[]).no_effect(MINION),
    stock("minion_restart_command", Minion, ALL, &[List], &[]).no_effect(MINION),
    stock("minion_sign_messages", Minion, ALL, &[Bool], &[]).no_effect(MINION),
    stock("minionfs_blacklist", Master, ALL, &[List], &[Some("[]")])
        .honoured("Patterns of minions whose pushed files are not served."),
    stock("minionfs_env", Master, ALL, &[Str], &[Some("\"base\"")]).honoured("Environment of pushed files."),
    stock("minionfs_mountpoint", Master, ALL, &[Str], &[Some("\"\"")])
        .honoured("Path below `salt://` that pushed files get."),
    stock("minionfs_update_interval", Master, ALL, &[Int], &[Some("60")])
        .no_effect("what minions push is served at once; there is nothing to update"),
    stock("minionfs_whitelist", Master, ALL, &[List], &[Some("[]")])
        .honoured("Patterns of the only minions whose pushed files are served."),
    stock("mmap_cache_key_size", Undeclared, ALL, &[Int], &[]).no_effect(MMAP),
    stock("mmap_cache_max_segment_bytes", Undeclared, ALL, &[Int], &[]).no_effect(MMAP),
    stock("mmap_cache_size", Undeclared, ALL, &[Int], &[]).no_effect(MMAP),
    stock("mmap_cache_slot_size", Undeclared, ALL, &[Int], &[]).no_effect(MMAP),
    stock("mmap_key_id_size", Undeclared, ALL, &[Int], &[]).no_effect(MMAP),
    stock("mmap_key_max_segment_bytes", Undeclared, ALL, &[Int], &[]).no_effect(MMAP),
    stock("mmap_key_size", Undeclared, ALL, &[Int], &[]).no_effect(MMAP),
    stock("mmap_key_slot_size", Undeclared, ALL, &[Int], &[]).no_effect(MMAP),
    stock("module_dirs", Master, ALL, &[List], &[Some("[]")])
        .honoured("Directories of Python modules of the site's own, by kind."),
    stock("modules_max_memory", Minion, ALL, &[Int], &[]).no_effect(MINION),
    stock("multifunc_ordered", Minion, ALL, &[Bool], &[]).no_effect(MINION),
    stock("multiprocessing", Minion, ALL, &[Bool], &[]).no_effect(MINION),
    stock("mworker_niceness", Master, ALL, &[Null, Int], &[Some("null")]).no_effect(NICENESS),
    stock("mworker_queue_niceness", Master, ALL, &[Null, Int], &[Some("null")]).no_effect(NICENESS),
    stock("nested_indent", Undeclared, ALL, &[Int], &[]).no_effect(CLI),
    stock("netapi_allow_raw_shell", Master, ALL, &[Bool], &[Some("false")])
        .honoured("Whether commands of the API may have raw_shell."),
    stock("netapi_disable_clients", Undeclared, ALL, &[List], &[]).no_effect(SALT_API),
    stock("netapi_enable_clients", Master, ALL, &[List], &[Some("[]")])
        .honoured("Clients that the API may run commands with, such as local and runner."),
    stock("no_color", Undeclared, ALL, &[Bool], &[]).no_effect(CLI),
    stock("no_host_keys", Undeclared, ALL, &[Bool], &[]).no_effect(SALT_SSH),
    stock("no_proxy", Schema, ALL, &[List], &[]).not_built(Runners, "Hosts that are reached without a proxy."),
    stock("nodegroups", Master, ALL, &[Map, List], &[Some("{}")]).honoured("Named targets."),
    stock("on_demand_ext_pillar", Master, ALL, &[List], &[Some("[\"libvirt\", \"virtkey\"]")])
        .honoured("External pillars that a minion may ask for by itself."),
    stock("open_mode", Master, ALL, &[Bool], &[Some("false")])
        .honoured("Whether every key is accepted, also one that replaces another. Only a literal `true` counts."),
    stock("optimization_order", Master, ALL, &[List], &[Some("[0, 1, 2]")]).no_effect("no Python runs here"),
    stock("order_masters", Master, ALL, &[Bool], &[Some("false")])
        .honoured("Whether syndics may connect to this master."),
    stock("output", Undeclared, ALL, &[Str], &[]).no_effect(CLI),
    stock("output_file", Undeclared, ALL, &[Str], &[]).no_effect(CLI),
    stock("output_indent", Undeclared, ALL, &[Int, Str], &[]).no_effect(CLI),
    stock("outputter_dirs", Master, ALL, &[List], &[Some("[]")])
        .not_built(Runners, "Directories of outputters of the site's own."),
    stock("pass_dir", Master, ALL, &[Str], &[Some("\"\"")])
        .not_built(Pillar, "Directory of the password store that the renderer `pass` reads."),
    stock("pass_gnupghome", Master, ALL, &[Str], &[Some("\"\"")])
        .not_built(Pillar, "Directory of the keys that open it."),
    stock("pass_strict_fetch", Master, ALL, &[Bool], &[Some("false")])
        .not_built(Pillar, "Whether a missing entry of it is an error."),
    stock("pass_to_ext_pillars", Schema, ALL, &[Str, List], &[])
        .not_built(Pillar, "Options that external pillars are handed."),
    stock("pass_variable_prefix", Master, ALL, &[Str], &[Some("\"\"")])
        .not_built(Pillar, "Beginning of texts that the renderer `pass` replaces."),
    stock("password", Minion, ALL, &[Null, Str], &[]).no_effect(MINION),
    stock("peer", Master, ALL, &[Map], &[Some("{}")])
        .honoured("Which minions may publish which functions to minions.").followed(),
    stock("peer_run", Undeclared, ALL, &[Map], &[]).honoured("Which minions may run which runners.").followed(),
    stock("pepa_delimiter", Undeclared, ALL, &[Str], &[])
        .in_python("Delimiter in keys of the external pillar `pepa`."),
    stock("pepa_grains", Undeclared, ALL, &[Map], &[]).in_python("Grains that `pepa` sees."),
    stock("pepa_pillar", Undeclared, ALL, &[Map], &[]).in_python("Pillar that `pepa` sees."),
    stock("pepa_roots", Undeclared, ALL, &[Map], &[]).in_python("Directories of `pepa` by environment."),
    stock("pepa_validate", Undeclared, ALL, &[Bool], &[]).in_python("Whether `pepa` validates its templates."),
    stock("permissive_acl", Master, ALL, &[Bool], &[Some("false")])
        .honoured("Whether all rules of external_auth that match a user hold, those of groups too.").followed(),
    stock("permissive_pki_access", Master, ALL, &[Bool], &[Some("false")])
        .honoured("Whether the group may read the PKI tree, and write files such as autosign_file.").followed(),
    stock("pidfile", Master, ALL, &[Str], &[Some("\"/var/run/salt-master.pid\"")])
        .honoured("File with the process id, below root_dir."),
    stock("pillar.cache_driver", Master, SINCE_3008, &[Null, Str], &[None, None, Some("null")])
        .not_built(Pillar, "Cache that compiled pillars are kept in."),
    stock("pillar_cache", Master, ALL, &[Bool], &[Some("false")])
        .honoured("Whether compiled pillars are kept for the next request."),
    stock("pillar_cache_backend", Master, ALL, &[Str], &[Some("\"disk\"")])
        .honoured("Where they are kept: `disk` or `memory`."),
    stock("pillar_cache_ttl", Master, ALL, &[Int], &[Some("3600")]).honoured("Seconds for which they are kept."),
    stock("pillar_gitfs_ssl_verify", Undeclared, ALL, &[Bool], &[]).no_effect(RETIRED),
    stock("pillar_includes_override_sls", Master, ALL, &[Bool], &[Some("false")])
        .honoured("Whether an included file wins over the file that includes it."),
    stock("pillar_mask_output", Master, SINCE_3008, &[Bool], &[None, None, Some("true")])
        .not_built(Pillar, "Whether values of pillars are masked where they are printed."),
    stock("pillar_merge_lists", Master, ALL, &[Bool], &[Some("false")])
        .honoured("Whether lists are merged in place of replaced."),
    stock("pillar_opts", Master, ALL, &[Bool], &[Some("false")])
        .honoured("Whether minions get the options of this master in their pillar, without secrets."),
    stock("pillar_raise_on_missing", Undeclared, ALL, &[Bool], &[])
        .not_built(Pillar, "Whether pillar.get of a missing key is an error."),
    stock("pillar_roots", Master, ALL, &[Map], &[Some("{\"base\": [\"/srv/pillar\", \"/srv/spm/pillar\"]}")])
        .honoured("Directories of pillars by environment; a path may hold wildcards."),
    stock("pillar_safe_render_error", Master, ALL, &[Bool], &[Some("true")])
        .honoured("Whether the reason of a failed rendering is kept from the minion."),
    stock("pillar_source_merging_strategy", Master, ALL, &[Str], &[Some("\"smart\"")])
        .honoured("How pillars are merged: `smart`, `recurse`, `aggregate`, `list`, `overwrite`, `none`."),
    stock("pillar_version", Master, ALL, &[Int], &[Some("2")])
        .honoured("Version of the pillar's form that minions get."),
    stock("pillarenv", Master, ALL, &[Null, Str], &[Some("null")])
        .honoured("Environment of pillars for minions that name none."),
    stock("pillarenv_from_saltenv", Minion, ALL, &[Bool], &[])
        .honoured("Whether a minion's saltenv is its pillarenv where it names none."),
    stock("ping_interval", Minion, ALL, &[Int], &[]).no_effect(MINION),
    stock("ping_on_rotate", Master, ALL, &[Bool], &[Some("false")])
        .honoured("Whether all minions are pinged after the AES key changed."),
    stock("pki_dir", Master, ALL, &[Str], &[Some("\"/etc/salt/pki/master\"")])
        .honoured("Directory of the PKI tree, below root_dir."),
    stock("presence_events", Undeclared, ALL, &[Bool], &[])
        .honoured("Whether events report which minions are connected."),
    stock("preserve_minion_cache", Master, ALL, &[Bool], &[Some("false")])
        .honoured("Whether stored data of a minion outlasts its key."),
    stock("preserve_minions", Undeclared, ALL, &[Bool], &[]).no_effect(CLI),
    stock("process_count_max", Minion, ALL, &[Int], &[]).no_effect(MINION),
    stock("providers", Minion, ALL, &[Map], &[]).no_effect(MINION),
    stock("proxy_always_alive", Schema, ALL, &[Bool], &[]).no_effect(MINION),
    stock("proxy_deep_merge_pillar_in_opts", Schema, ALL, &[Bool], &[]).no_effect(MINION),
    stock("proxy_host", Minion, ALL, &[Str], &[])
        .honoured("HTTP proxy; an external pillar over HTTP refuses to run with one."),
    stock("proxy_keep_alive", Schema, ALL, &[Bool], &[]).no_effect(MINION),
    stock("proxy_keep_alive_interval", Schema, ALL, &[Int], &[]).no_effect(MINION),
    stock("proxy_merge_grains_in_module", Schema, ALL, &[Bool], &[]).no_effect(MINION),
    stock("proxy_merge_pillar_in_opts", Schema, ALL, &[Bool], &[]).no_effect(MINION),
    stock("proxy_merge_pillar_in_opts_strategy", Schema, ALL, &[Str], &[]).no_effect(MINION),
    stock("proxy_mines_pillar", Schema, ALL, &[Bool], &[]).no_effect(MINION),
    stock("proxy_password", Minion, ALL, &[Str], &[]).no_effect(MINION),
    stock("proxy_port", Minion, ALL, &[Int], &[]).no_effect(MINION),
    stock("proxy_username", Minion, ALL, &[Str], &[]).no_effect(MINION),
    stock("pub_hwm", Master, ALL, &[Int], &[Some("1000")])
        .honoured("Messages that may wait for one slow subscriber of the publish port."),
    stock("pub_ret", Minion, ALL, &[Bool], &[]).no_effect(MINION),
    stock("pub_server_niceness", Master, ALL, &[Null, Int], &[Some("null")]).no_effect(NICENESS),
    stock("pub_server_write_queue_size", Master, SINCE_3008, &[Int], &[None, None, Some("10000")])
        .no_effect("saltern_event_queue_length bounds what waits for a listener"),
    stock("publish_drain_timeout", Master, ALL, &[Float], &[Some("60.0")])
        .honoured("Seconds that a subscriber may leave its queue unread before it counts as stuck."),
    stock("publish_port", Master, ALL, &[Int], &[Some("4505")]).honoured("Port of the publish channel."),
    stock("publish_session", Master, ALL, &[Int], &[Some("86400")])
        .honoured("Seconds between two rotations of the AES key."),
    stock("publish_signing_algorithm", Master, ALL, &[Str], &[Some("\"PKCS1v15-SHA1\"")])
        .honoured("Algorithm that publications are signed with: `PKCS1v15-SHA1` or `PKCS1v15-SHA224`."),
    stock("publish_timeout", Master, ALL, &[], &[Some("30")])
        .honoured("Seconds that a client waits until the master has accepted a job."),
    stock("publisher_acl", Master, ALL, &[Map], &[Some("{}")])
        .honoured("Users of this machine who may publish: which functions each may run, and where.").followed(),
    stock("publisher_acl_blacklist", Master, ALL, &[Map], &[Some("{}")])
        .honoured("Users and functions that are refused.").followed(),
    stock("queue_dirs", Master, ALL, &[List], &[Some("[]")])
        .not_built(Runners, "Directories of queue modules of the site's own."),
    stock("random_master", Minion, ALL, &[Bool], &[]).no_effect(MINION),
    stock("random_reauth_delay", Minion, ALL, &[Int], &[]).no_effect(MINION),
    stock("random_startup_delay", Minion, ALL, &[Int], &[]).no_effect(MINION),
    stock("range_server", Master, ALL, &[Str], &[Some("\"range:80\"")])
        .not_built(Targeting, "Server of range expressions."),
    stock("reactor", Master, ALL, &[List], &[Some("[]")])
        .honoured("Reactions by patterns of tags: a list, or the path of a file with it.").followed(),
    stock("reactor_niceness", Master, ALL, &[Null, Int], &[Some("null")]).no_effect(NICENESS),
    stock("reactor_refresh_interval", Master, ALL, &[Int], &[Some("60")])
        .no_effect("reactions use no cached clients"),
    stock("reactor_worker_hwm", Master, ALL, &[Int], &[Some("10000")])
        .honoured("Events that may wait for a reaction."),
    stock("reactor_worker_threads", Master, ALL, &[Int], &[Some("10")]).honoured("Reactions that run at a time."),
    stock("reclass_source_path", Undeclared, ALL, &[Str], &[]).in_python("Directory of the source of `reclass`."),
    stock("recon_default", Minion, ALL, &[Float], &[]).no_effect(MINION),
    stock("recon_max", Minion, ALL, &[Float], &[]).no_effect(MINION),
    stock("recon_randomize", Minion, ALL, &[Bool], &[]).no_effect(MINION),
    stock("regen_thin", Master, ALL, &[], &[Some("false")])
        .not_built(Ssh, "Whether salt-ssh makes its archive anew."),
    stock("rejected_retry", Minion, ALL, &[Bool], &[]).no_effect(MINION),
    stock("remote_minions_port", Master, ALL, &[Int], &[Some("22")])
        .not_built(Targeting, "Port by which these are recognised."),
    stock("render_dirs", Minion, ALL, &[List], &[]).no_effect(MINION),
    stock("renderer", Master, ALL, &[Str], &[Some("\"jinja|yaml\"")]).honoured("Renderers of files that name none."),
    stock("renderer_blacklist", Master, ALL, &[List], &[Some("[]")]).honoured("Renderers that may not be used."),
    stock("renderer_whitelist", Master, ALL, &[List], &[Some("[]")])
        .honoured("The only renderers that may be used; all unless set."),
    stock("req_server_niceness", Master, ALL, &[Null, Int], &[Some("null")]).no_effect(NICENESS),
    stock("request_channel_timeout", Minion, ALL, &[Int], &[]).no_effect(MINION),
    stock("request_channel_tries", Minion, ALL, &[Int], &[]).no_effect(MINION),
    stock("request_server_aes_session", Master, ALL, &[Int], &[Some("0")]).no_effect(RETIRED),
    stock("request_server_ttl", Master, ALL, &[Int], &[Some("0")])
        .honoured("Age in seconds beyond which a minion's request is refused; 0 for no such bound."),
    stock("require_minion_sign_messages", Master, ALL, &[Bool], &[Some("false")])
        .honoured("Whether minions must sign their messages."),
    stock("resolve_dns_fallback", Minion, ALL, &[Bool], &[]).no_effect(MINION),
    stock("resource_index_primary_capacity", Undeclared, ALL, &[Int], &[]).no_effect(INDEX),
    stock("resource_index_primary_slot_size", Undeclared, ALL, &[Int], &[]).no_effect(INDEX),
    stock("resource_pillar_key", Minion, SINCE_3008, &[Str], &[]).no_effect(MINION),
    stock("resource_registry_compact_load_factor", Undeclared, ALL, &[Float], &[]).no_effect(INDEX),
    stock("resource_registry_compact_min_interval", Undeclared, ALL, &[Float], &[]).no_effect(INDEX),
    stock("resource_registry_compact_tombstone_ratio", Undeclared, ALL, &[Float], &[]).no_effect(INDEX),
    stock("rest_cherrypy", Undeclared, ALL, &[Map], &[])
        .honoured("Server of the HTTP API with rest_cherrypy's pages; see saltern_api."),
    stock("rest_timeout", Schema, ALL, &[Int], &[])
        .honoured("Seconds that the API waits for a runner function, 300 unless it is given."),
    stock("rest_tornado", Undeclared, ALL, &[Map], &[])
        .honoured("Server of the HTTP API with rest_tornado's pages; see saltern_api."),
    stock("rest_wsgi", Undeclared, ALL, &[Map], &[])
        .honoured("Server of the HTTP API with rest_wsgi's one page; see saltern_api."),
    stock("restart_on_error", Minion, ALL, &[], &[]).no_effect(MINION),
    stock("ret_port", Master, ALL, &[Int], &[Some("4506")]).honoured("Port of the request channel."),
    stock("retry_dns", Minion, ALL, &[Float], &[]).no_effect(MINION),
    stock("retry_dns_count", Minion, ALL, &[Null, Int], &[]).no_effect(MINION),
    stock("return", Schema, ALL, &[Str, List], &[]).not_built(Returners, "Returner that is added to each job."),
    stock("return_retry_timer", Minion, ALL, &[Int], &[]).no_effect(MINION),
    stock("return_retry_timer_max", Minion, ALL, &[Int], &[]).no_effect(MINION),
    stock("return_retry_tries", Minion, ALL, &[Int], &[]).no_effect(MINION),
    stock("returner_dirs", Minion, ALL, &[List], &[])
        .handed_on("Directories of returners of the site's own, which run in Python."),
    stock("root_dir", Master, ALL, &[Str], &[Some("\"/\"")]).honoured("Directory that other paths are below."),
    stock("roots_update_interval", Master, ALL, &[Int], &[Some("60")])
        .honoured("Seconds between two looks for changed files, where fileserver_events asks for them."),
    stock("roster", Undeclared, ALL, &[Str], &[]).not_built(Ssh, "Source of the hosts of salt-ssh."),
    stock("roster_defaults", Undeclared, ALL, &[Map], &[]).no_effect(SALT_SSH),
    stock("roster_dir", Undeclared, ALL, &[Str], &[]).no_effect(SALT_SSH),
    stock("roster_domain", Undeclared, ALL, &[Str], &[]).no_effect(SALT_SSH),
    stock("roster_file", Undeclared, ALL, &[Str], &[]).no_effect(SALT_SSH),
    stock("roster_order", Undeclared, ALL, &[List], &[]).no_effect(SALT_SSH),
    stock("rosters", Undeclared, ALL, &[List], &[]).no_effect(SALT_SSH),
    stock("rotate_aes_key", Master, ALL, &[Bool], &[Some("true")])
        .honoured("Whether deleting or rejecting a key changes the AES key."),
    stock("run_schedule_jobs_in_background", Undeclared, ALL, &[Bool], &[])
        .no_effect("scheduled jobs always run beside everything else"),
    stock("runner_dirs", Master, ALL, &[List], &[Some("[]")])
        .honoured("Directories of runners of the site's own, which run in Python."),
    stock("runner_queue", Undeclared, ALL, &[Map], &[]).in_python("Queue that the runner `queue` puts runners into."),
    stock("runner_returns", Master, ALL, &[Bool], &[Some("true")])
        .honoured("Whether calls of runners are stored like jobs."),
    stock("s3fs_update_interval", Master, ALL, &[Int], &[Some("60")])
        .not_built(Remotes, "Seconds between two looks at buckets of S3."),
    stock("salt_cp_chunk_size", Master, ALL, &[Int], &[Some("98304")])
        .not_built(Files, "Bytes in one chunk of salt-cp."),
    stock("salt_ssh_recursion_depth", Undeclared, ALL, &[Int], &[]).no_effect(SALT_SSH),
    stock("saltenv", Master, ALL, &[Null, Str], &[Some("null")]).honoured("Environment of minions that name none."),
    stock("saltpip_allow_find_links", Minion, SINCE_3008, &[Bool], &[]).no_effect(MINION),
    stock("saltpip_disable_pip_version_check", Minion, SINCE_3008, &[Bool], &[]).no_effect(MINION),
    stock("saltpip_no_deps", Minion, SINCE_3008, &[Bool], &[]).no_effect(MINION),
    stock("saltpip_no_index", Minion, SINCE_3008, &[Bool], &[]).no_effect(MINION),
    stock("saltpip_use_pythonpath", Minion, SINCE_3008, &[Bool], &[]).no_effect(MINION),
    stock("schedule", Master, ALL, &[Map], &[Some("{}")])
        .honoured("Functions that the master runs by itself at times.").followed(),
    stock("scheduler_before_connect", Minion, ALL, &[Bool], &[]).no_effect(MINION),
    stock("search", Master, ALL, &[Str], &[Some("\"\"")]).no_effect(RETIRED),
    stock("serial", Master, ALL, &[Str], &[Some("\"msgpack\"")])
        .refused("How loads are packed.", "only \"msgpack\" can be used"),
    stock("sharedsecret", Undeclared, ALL, &[Str], &[])
        .honoured("Secret by which every user of `external_auth: sharedsecret` logs in.").followed(),
    stock("show_jid", Master, ALL, &[Bool], &[Some("false")]).no_effect(CLI),
    stock("show_timeout", Master, ALL, &[Bool], &[Some("true")])
        .no_effect(CLI),
    stock("sign_pub_messages", Master, ALL, &[Bool], &[Some("true")]).honoured("Whether publications are signed."),
    stock("signing_algorithm", Minion, ALL, &[Str], &[]).honoured("Algorithm by which minions sign their messages."),
    stock("signing_key_pass", Master, ALL, &[Null, Str], &[Some("null")]).honoured("Passphrase of the signing key."),
    stock("skip_grains", Undeclared, ALL, &[Bool], &[]).no_effect("grains are collected by minions, not here"),
    stock("sls_list", Minion, ALL, &[List], &[]).no_effect(MINION),
    stock("snapper_states", Minion, ALL, &[Bool], &[]).no_effect(MINION),
    stock("snapper_states_config", Minion, ALL, &[Str], &[]).no_effect(MINION),
    stock("sock_dir", Master, ALL, &[Str], &[Some("\"/var/run/salt/master\"")])
        .honoured("Directory of the event sockets, below root_dir."),
    stock("sock_pool_size", Master, ALL, &[Int], &[Some("1")]).no_effect(THREADS),
    stock("source_address", Minion, ALL, &[Str], &[]).no_effect(MINION),
    stock("source_interface_name", Minion, ALL, &[Str], &[]).no_effect(MINION),
    stock("source_publish_port", Minion, ALL, &[Str, Int], &[]).no_effect(MINION),
    stock("source_ret_port", Minion, ALL, &[Str, Int], &[]).no_effect(MINION),
    stock("sqlite_queue_dir", Master, ALL, &[Str], &[Some("\"/var/cache/salt/master/queues\"")])
        .honoured("Directory of the queues in SQLite, below root_dir: made for stock's runner `queue`, which python_bridge runs."),
    stock("ssh_config_file", Master, ALL, &[Str], &[Some("\"/root/.ssh/config\"")])
        .not_built(Ssh, "Configuration of ssh for salt-ssh."),
    stock("ssh_ext_alternatives", Undeclared, ALL, &[Map], &[])
        .not_built(Ssh, "Other Pythons and Salts for hosts of salt-ssh."),
    stock("ssh_identities_only", Master, ALL, &[Bool], &[Some("false")])
        .not_built(Ssh, "Whether ssh offers only the named keys."),
    stock("ssh_keepalive", Master, SINCE_3007, &[Bool], &[None, Some("true"), Some("true")])
        .not_built(Ssh, "Whether connections of salt-ssh are kept alive."),
    stock("ssh_keepalive_count_max", Master, SINCE_3007, &[Int], &[None, Some("3"), Some("3")])
        .not_built(Ssh, "Probes before such a connection is given up."),
    stock("ssh_keepalive_interval", Master, SINCE_3007, &[Int], &[None, Some("60"), Some("60")])
        .not_built(Ssh, "Seconds between these probes."),
    stock("ssh_known_hosts_file", Undeclared, ALL, &[Str], &[]).no_effect(SALT_SSH),
    stock("ssh_list_nodegroups", Master, ALL, &[Map], &[Some("{}")])
        .not_built(Ssh, "Named lists of hosts of salt-ssh."),
    stock("ssh_log_file", Master, ALL, &[Str], &[Some("\"/var/log/salt/ssh\"")]).not_built(Ssh, "Log of salt-ssh."),
    stock("ssh_max_procs", Undeclared, ALL, &[Int], &[]).not_built(Ssh, "Hosts that salt-ssh works on at a time."),
    stock("ssh_merge_pillar", Minion, ALL, &[Bool], &[]).no_effect(MINION),
    stock("ssh_minion_opts", Undeclared, ALL, &[Map], &[])
        .not_built(Ssh, "Options of the minion that salt-ssh starts on a host."),
    stock("ssh_options", Undeclared, ALL, &[List], &[]).not_built(Ssh, "Options that are handed to ssh."),
    stock("ssh_passwd", Master, ALL, &[Str], &[Some("\"\"")]).not_built(Ssh, "Password on hosts of salt-ssh."),
    stock("ssh_port", Master, ALL, &[Str], &[Some("\"22\"")]).not_built(Ssh, "Port of hosts of salt-ssh."),
    stock("ssh_priv", Undeclared, ALL, &[Str], &[]).not_built(Ssh, "Private key of salt-ssh."),
    stock("ssh_priv_passwd", Master, ALL, &[], &[Some("\"\"")]).not_built(Ssh, "Passphrase of that key."),
    stock("ssh_run_pre_flight", Schema, ALL, &[Bool], &[])
        .not_built(Ssh, "Whether salt-ssh runs a script on a host first."),
    stock("ssh_scan_ports", Master, ALL, &[Str], &[Some("\"22\"")])
        .not_built(Ssh, "Ports that the roster `scan` looks at."),
    stock("ssh_scan_timeout", Master, ALL, &[Float], &[Some("0.01")])
        .not_built(Ssh, "Seconds that it waits for each."),
    stock("ssh_sudo", Master, ALL, &[Bool], &[Some("false")]).not_built(Ssh, "Whether salt-ssh uses sudo on hosts."),
    stock("ssh_sudo_user", Master, ALL, &[Str], &[Some("\"\"")]).not_built(Ssh, "User that it becomes by sudo."),
    stock("ssh_timeout", Master, ALL, &[Float], &[Some("60")]).not_built(Ssh, "Seconds to connect to a host."),
    stock("ssh_update_roster", Undeclared, ALL, &[Bool], &[])
        .not_built(Ssh, "Whether hosts that were reached are written into the roster."),
    stock("ssh_use_home_key", Master, ALL, &[Bool], &[Some("false")])
        .not_built(Ssh, "Whether the user's own key is used."),
    stock("ssh_user", Master, ALL, &[Str], &[Some("\"root\"")]).not_built(Ssh, "User on hosts of salt-ssh."),
    stock("ssh_wipe", Undeclared, ALL, &[Bool], &[]).no_effect(SALT_SSH),
    stock("ssl", Master, ALL, &[Map, Bool, Null], &[Some("null")])
        .honoured("TLS on the ports of the transports `tcp` and `ws`: `true`, or a mapping of certfile, keyfile and the like."),
    stock("start_event_grains", Minion, ALL, &[], &[]).no_effect(MINION),
    stock("startup_states", Minion, ALL, &[Str], &[]).no_effect(MINION),
    stock("state_aggregate", Master, ALL, &[], &[Some("false")])
        .honoured("Whether states of minions are aggregated; handed to minions."),
    stock("state_auto_order", Master, ALL, &[Bool], &[Some("true")])
        .honoured("Whether states of minions run in the order they are written; handed to minions."),
    stock("state_compress_ids", Schema, ALL, &[Bool], &[])
        .no_effect(CLI),
    stock("state_events", Master, ALL, &[Bool], &[Some("false")])
        .honoured("Whether each state of a minion fires an event; handed to minions."),
    stock("state_max_parallel", Master, SINCE_3008, &[Int], &[None, None, Some("0")])
        .not_built(States, "States that run at a time."),
    stock("state_output", Master, ALL, &[Str], &[Some("\"full\"")])
        .no_effect(CLI),
    stock("state_output_diff", Master, ALL, &[Bool], &[Some("false")])
        .no_effect(CLI),
    stock("state_output_exclude", Undeclared, ALL, &[List], &[]).no_effect(CLI),
    stock("state_output_pct", Schema, ALL, &[Bool], &[])
        .no_effect(CLI),
    stock("state_output_profile", Master, ALL, &[Bool], &[Some("true")])
        .no_effect(CLI),
    stock("state_output_terse", Undeclared, ALL, &[List], &[]).no_effect(CLI),
    stock("state_queue", Minion, ALL, &[Bool, Int], &[]).no_effect(MINION),
    stock("state_tabular", Undeclared, ALL, &[Bool, Str], &[]).no_effect(CLI),
    stock("state_top", Master, ALL, &[Str], &[Some("\"top.sls\"")]).honoured("Name of the top file."),
    stock("state_top_saltenv", Master, ALL, &[Null, Str], &[Some("null")])
        .honoured("Environment that minions take their only top file from; handed to minions."),
    stock("state_verbose", Master, ALL, &[Bool], &[Some("true")])
        .no_effect(CLI),
    stock("stateconf_end_marker", Undeclared, ALL, &[Str], &[])
        .in_python("Text that ends the part of a file that the renderer `stateconf` reads first."),
    stock("stateconf_goal_state", Undeclared, ALL, &[Bool], &[])
        .in_python("Whether `stateconf` adds a state that requires all others of its file."),
    stock("stateconf_start_state", Undeclared, ALL, &[Str], &[])
        .in_python("Name of the state that `stateconf` runs first."),
    stock("stateconf_state_func", Undeclared, ALL, &[Str], &[])
        .in_python("Function of the states that `stateconf` adds."),
    stock("states_dirs", Minion, ALL, &[List], &[]).no_effect(MINION),
    stock("strip_colors", Undeclared, ALL, &[Bool], &[]).no_effect(CLI),
    stock("sudo_acl", Master, ALL, &[Bool], &[Some("false")])
        .honoured("Whether publisher_acl holds for users who come by sudo.").followed(),
    stock("sudo_user", Minion, ALL, &[Str], &[]).no_effect(MINION),
    stock("svnfs_branches", Master, ALL, &[Str], &[Some("\"branches\"")])
        .not_built(Remotes, "Directory of branches in the repository."),
    stock("svnfs_mountpoint", Master, ALL, &[Str], &[Some("\"\"")])
        .not_built(Remotes, "Path below `salt://` that files of repositories get."),
    stock("svnfs_remotes", Master, ALL, &[List], &[Some("[]")])
        .not_built(Remotes, "Subversion repositories that files are served from."),
    stock("svnfs_root", Master, ALL, &[Str], &[Some("\"\"")])
        .not_built(Remotes, "Directory in the repository that files are served from."),
    stock("svnfs_saltenv_blacklist", Master, ALL, &[List], &[Some("[]")])
        .not_built(Remotes, "Patterns of environments that are not served."),
    stock("svnfs_saltenv_whitelist", Master, ALL, &[List], &[Some("[]")])
        .not_built(Remotes, "Patterns of the only environments that are served."),
    stock("svnfs_tags", Master, ALL, &[Str], &[Some("\"tags\"")])
        .not_built(Remotes, "Directory of tags in the repository."),
    stock("svnfs_trunk", Master, ALL, &[Str], &[Some("\"trunk\"")])
        .not_built(Remotes, "Directory of the environment `base` in the repository."),
    stock("svnfs_update_interval", Master, ALL, &[Int], &[Some("60")])
        .not_built(Remotes, "Seconds between two updates."),
    stock("syndic_dir", Undeclared, ALL, &[Str], &[]).no_effect("it is always below cachedir, in stock too"),
    stock("syndic_event_forward_timeout", Master, ALL, &[Float], &[Some("0.5")])
        .honoured("Longest time in seconds that a return or an event waits for others to go up with it. What is above 0.02 counts as 0.02."),
    stock("syndic_failover", Master, ALL, &[Str], &[Some("\"random\"")])
        .honoured("Order in which the masters above are tried for returns of jobs that none of them published: `random` or `ordered`."),
    stock("syndic_finger", Minion, ALL, &[Str], &[]).no_effect(MINION),
    stock("syndic_forward_all_events", Master, ALL, &[Bool], &[Some("false")]).no_effect("events go to every master above, as in stock"),
    stock("syndic_jid_forward_cache_hwm", Master, ALL, &[Int], &[Some("100")])
        .honoured("Jobs that the syndic remembers to have forwarded: the load of each goes up once."),
    stock("syndic_log_file", Master, ALL, &[], &[Some("\"/var/log/salt/syndic\"")]).handed_on("Log of salt-syndic."),
    stock("syndic_master", Master, ALL, &[Str, List], &[Some("\"masterofmasters\"")])
        .honoured("The masters above this one: an address (`host` or `host:port`) or a list. This process is their syndic, see saltern_syndic."),
    stock("syndic_master_port", Undeclared, ALL, &[Int], &[])
        .honoured("Request port of the masters above whose entry in syndic_master names none; 4506 unless set."),
    stock("syndic_mode", Undeclared, ALL, &[Str], &[])
        .honoured("What goes up beside returns: `sync` (the default) all events, `cluster` the minions of jobs alone, and no returns of jobs that bear this master's own master_id."),
    stock("syndic_pidfile", Master, ALL, &[], &[Some("\"/var/run/salt-syndic.pid\"")])
        .honoured("File with the process id of stock's salt-syndic. While one runs, the native syndic stands by."),
    stock("syndic_retries", Minion, ALL, &[Int], &[]).no_effect(MINION),
    stock("syndic_user", Undeclared, ALL, &[Str], &[]).handed_on("User that salt-syndic runs as."),
    stock("syndic_wait", Master, ALL, &[Int], &[Some("5")])
        .honoured("Seconds that syndics have to say which minions below them have a job."),
    stock("tcp_authentication_retries", Minion, ALL, &[Int], &[]).no_effect(MINION),
    stock("tcp_keepalive", Master, ALL, &[Bool], &[Some("true")]).honoured("Whether TCP keepalive is on."),
    stock("tcp_keepalive_cnt", Master, ALL, &[Float], &[Some("-1")])
        .honoured("Probes before a connection is given up; -1 leaves it to the system."),
    stock("tcp_keepalive_idle", Master, ALL, &[Float], &[Some("300")])
        .honoured("Seconds before the first probe; -1 leaves it to the system."),
    stock("tcp_keepalive_intvl", Master, ALL, &[Float], &[Some("-1")])
        .honoured("Seconds between probes; -1 leaves it to the system."),
    stock("tcp_master_pub_port", Master, ALL, &[Int], &[Some("4512")]).no_effect(PORTS),
    stock("tcp_master_publish_pull", Master, ALL, &[Int], &[Some("4514")]).no_effect(PORTS),
    stock("tcp_master_pull_port", Master, ALL, &[Int], &[Some("4513")]).no_effect(PORTS),
    stock("tcp_master_workers", Master, ALL, &[Int], &[Some("4515")]).no_effect(PORTS),
    stock("tcp_pub_port", Minion, ALL, &[Int], &[]).no_effect(MINION),
    stock("tcp_pull_port", Minion, ALL, &[Int], &[]).no_effect(MINION),
    stock("tcp_reconnect_backoff", Minion, ALL, &[Float], &[]).no_effect(MINION),
    stock("test", Master, ALL, &[Bool], &[Some("false")])
        .not_built(States, "Whether states only report what they would change."),
    stock("tgt_type", Undeclared, ALL, &[Str], &[]).no_effect("it is no option of a file in stock either"),
    stock("thin_dir", Undeclared, ALL, &[Str], &[])
        .not_built(Ssh, "Directory on a host that salt-ssh unpacks its archive into."),
    stock("thin_exclude_saltexts", Master, SINCE_3008, &[Bool], &[None, None, Some("false")])
        .not_built(Ssh, "Whether extensions of Salt are left out of that archive."),
    stock("thin_extra_mods", Master, ALL, &[Str], &[Some("\"\"")]).not_built(Ssh, "Modules that are added to it."),
    stock("thin_saltext_allowlist", Master, SINCE_3008, &[Null, List], &[None, None, Some("null")])
        .not_built(Ssh, "The only extensions that are in it."),
    stock("thin_saltext_blocklist", Master, SINCE_3008, &[List], &[None, None, Some("[]")])
        .not_built(Ssh, "Extensions that are not in it."),
    stock("thorium_interval", Master, ALL, &[], &[Some("0.5")])
        .not_built(Automation, "Seconds between two rounds of thorium."),
    stock("thorium_recompile", Undeclared, ALL, &[Int], &[])
        .not_built(Automation, "Seconds after which thorium's files are compiled again."),
    stock("thorium_roots", Master, ALL, &[], &[Some("{\"base\": [\"/srv/thorium\"]}")])
        .not_built(Automation, "Directories of thorium's files by environment."),
    stock("thorium_top", Master, ALL, &[Str], &[Some("\"top.sls\"")])
        .not_built(Automation, "Name of thorium's top file."),
    stock("thoriumenv", Master, ALL, &[Null, Str], &[Some("null")]).not_built(Automation, "Environment of thorium."),
    stock("timeout", Master, ALL, &[], &[Some("5")])
        .honoured("Seconds that a client waits for returns before it asks which minions run its job."),
    stock("token_dir", Undeclared, ALL, &[Str], &[]).no_effect("it is always below cachedir, in stock too"),
    stock("token_expire", Master, ALL, &[Int], &[Some("43200")])
        .honoured("Seconds for which a token is good.").followed(),
    stock("token_expire_user_override", Master, ALL, &[Bool, Map], &[Some("false")])
        .honoured("Who may choose the lifetime of a token: `true` for all, or users by backend.").followed(),
    stock("token_file", Undeclared, ALL, &[Str], &[]).no_effect(CLI),
    stock("top_file", Minion, ALL, &[Str], &[]).no_effect(MINION),
    stock("top_file_merging_strategy", Master, ALL, &[Str], &[Some("\"merge\"")])
        .honoured("How top files of several environments are merged; handed to minions."),
    stock("tracing", Master, SINCE_3008, &[Map], &[None, None, Some("{\"enabled\": false, \"endpoint\": \"\", \"exporter\": \"otlp-http\", \"headers\": {}, \"insecure\": true, \"resource_attributes\": {}, \"sampler\": \"parent_based\", \"sampler_arg\": 1.0, \"service_name\": \"\"}")])
        .honoured("Traces by OpenTelemetry: whether, where they are sent, which part is sampled."),
    stock("transport", Master, ALL, &[Str], &[Some("\"zeromq\"")])
        .honoured("Transport of the two ports: `zeromq`, `tcp` or, since 3007, `ws`."),
    stock("transport_opts", Undeclared, ALL, &[Map], &[])
        .no_effect("saltern_also_listen opens the ports of other transports"),
    stock("unique_jid", Master, ALL, &[Bool], &[Some("false")]).honoured("Whether jids carry the process id."),
    stock("update_restart_services", Minion, ALL, &[List], &[]).no_effect(MINION),
    stock("update_url", Minion, ALL, &[Bool, Str], &[]).no_effect(MINION),
    stock("use_master_when_local", Minion, ALL, &[Bool], &[]).no_effect(MINION),
    stock("use_os_truststore", Master, SINCE_3008, &[Bool], &[None, None, Some("false")])
        .no_effect("no Python runs here"),
    stock("use_yamlloader_old", Undeclared, ALL, &[Bool], &[]).no_effect("no Python runs here"),
    stock("user", Master, ALL, &[Str], &[Some("\"root\"")])
        .honoured("User that the master runs as; the user that starts it unless set."),
    stock("userdata_template", Undeclared, ALL, &[Str], &[]).no_effect("salt-cloud reads it"),
    stock("username", Minion, ALL, &[Null, Str], &[]).no_effect(MINION),
    stock("utils_dirs", Master, ALL, &[List], &[Some("[]")]).no_effect("no Python runs here"),
    stock("verify_env", Master, ALL, &[Bool], &[Some("true")])
        .no_effect("directories are always checked and created as needed"),
    stock("verify_master_pubkey_sign", Minion, ALL, &[Bool], &[]).no_effect(MINION),
    stock("verify_ssl", Undeclared, ALL, &[Bool], &[])
        .honoured("Whether external pillars verify the certificates of servers over HTTPS."),
    stock("virtual_timer", Undeclared, ALL, &[Float], &[]).no_effect("no Python runs here"),
    stock("whitelist_modules", Minion, ALL, &[List], &[]).no_effect(MINION),
    stock("whitelist_state_modules", Minion, SINCE_3008, &[List], &[]).no_effect(MINION),
    stock("win_gitrepos", Undeclared, ALL, &[List], &[]).no_effect(RETIRED),
    stock("win_repo", Undeclared, ALL, &[Str], &[]).no_effect(RETIRED),
    stock("win_repo_mastercachefile", Undeclared, ALL, &[Str], &[]).no_effect(RETIRED),
    stock("winrepo_branch", Master, ALL, &[], &[Some("\"master\"")])
        .not_built(Runners, "Branch of the repositories of Windows packages."),
    stock("winrepo_cache_expire_max", Minion, ALL, &[Int], &[]).no_effect(MINION),
    stock("winrepo_cache_expire_min", Minion, ALL, &[Int], &[]).no_effect(MINION),
    stock("winrepo_cachefile", Master, ALL, &[Str], &[Some("\"winrepo.p\"")])
        .not_built(Runners, "Name of the file that lists Windows packages."),
    stock("winrepo_depth", Master, SINCE_3008, &[], &[None, None, Some("1")])
        .not_built(Runners, "Number of commits that are fetched of them."),
    stock("winrepo_dir", Master, ALL, &[Str], &[Some("\"/srv/salt/win/repo\"")])
        .not_built(Runners, "Directory of Windows packages for old minions."),
    stock("winrepo_dir_ng", Master, ALL, &[Str], &[Some("\"/srv/salt/win/repo-ng\"")])
        .not_built(Runners, "Directory of Windows packages."),
    stock("winrepo_fallback", Master, ALL, &[], &[Some("\"\"")])
        .not_built(Runners, "Branch for environments that a repository has none for."),
    stock("winrepo_insecure_auth", Master, ALL, &[Bool], &[Some("false")])
        .not_built(Runners, "Whether a password is sent over HTTP without TLS."),
    stock("winrepo_installer_cache_expire", Minion, ALL, &[Int], &[]).no_effect(MINION),
    stock("winrepo_mastercachefile", Undeclared, ALL, &[Str], &[]).no_effect(RETIRED),
    stock("winrepo_passphrase", Master, ALL, &[Str], &[Some("\"\"")])
        .not_built(Runners, "Passphrase of the key for repositories over SSH."),
    stock("winrepo_password", Master, ALL, &[Str], &[Some("\"\"")])
        .not_built(Runners, "Password for repositories over HTTP."),
    stock("winrepo_privkey", Master, ALL, &[Str], &[Some("\"\"")])
        .not_built(Runners, "Private key for repositories over SSH."),
    stock("winrepo_provider", Undeclared, ALL, &[Str], &[]).no_effect(GIT),
    stock("winrepo_proxy", Master, SINCE_3008, &[Str], &[None, None, Some("\"\"")])
        .not_built(Runners, "HTTP proxy for repositories."),
    stock("winrepo_pubkey", Master, ALL, &[Str], &[Some("\"\"")])
        .not_built(Runners, "Public key for repositories over SSH."),
    stock("winrepo_refspecs", Master, ALL, &[List], &[Some("[\"+refs/heads/*:refs/remotes/origin/*\", \"+refs/tags/*:refs/tags/*\"]")])
        .not_built(Runners, "What is fetched of repositories."),
    stock("winrepo_remotes", Master, ALL, &[List], &[Some("[\"https://github.com/saltstack/salt-winrepo.git\"]")])
        .not_built(Runners, "Repositories of Windows packages for old minions."),
    stock("winrepo_remotes_ng", Master, ALL, &[List], &[Some("[\"https://github.com/saltstack/salt-winrepo-ng.git\"]")])
        .not_built(Runners, "Repositories of Windows packages."),
    stock("winrepo_source_dir", Minion, ALL, &[Str], &[]).no_effect(MINION),
    stock("winrepo_ssl_verify", Master, ALL, &[Bool], &[Some("true")])
        .not_built(Runners, "Whether certificates of repositories over HTTPS are verified."),
    stock("winrepo_user", Master, ALL, &[Str], &[Some("\"\"")])
        .not_built(Runners, "User for repositories over HTTP."),
    stock("worker_pools", Master, SINCE_3008, &[Map], &[None, None, Some("{}")]).no_effect(POOLS),
    stock("worker_pools_enabled", Master, SINCE_3008, &[Bool], &[None, None, Some("true")]).no_effect(POOLS),
    stock("worker_threads", Master, ALL, &[Int], &[Some("5")])
        .honoured("Number of workers; the number of processor cores unless set."),
    stock("yaml_utf8", Undeclared, ALL, &[Bool], &[]).no_effect(RETIRED),
    stock("zmq_backlog", Master, ALL, &[Int], &[Some("1000")])
        .honoured("Length of the accept queues; 4096 unless set."),
    stock("zmq_filtering", Master, ALL, &[Bool], &[Some("false")])
        .honoured("Whether a publication is sent only to the minions it is meant for."),
    stock("zmq_heartbeat_ivl", Undeclared, ALL, &[Int], &[])
        .no_effect("saltern_heartbeat_interval and saltern_idle_timeout say when a silent peer is probed"),
    stock("zmq_heartbeat_timeout", Undeclared, ALL, &[Int], &[])
        .no_effect("saltern_heartbeat_interval says when a silent subscriber is dropped"),
    stock("zmq_monitor", Master, ALL, &[], &[Some("false")]).no_effect("metrics count what the monitor would log"),
];
