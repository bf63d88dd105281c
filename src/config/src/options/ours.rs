//! The options that only this program has, a row each: default, meaning with its unit, and whether SIGHUP
//! takes a change over.
//!
//! Stock tolerates unknown options, so a configuration with these still works there.

use super::ConfigOption;

const fn ours(
    name: &'static str,
    default: &'static [Option<&'static str>],
    doc: &'static str,
) -> ConfigOption {
    ConfigOption::of_ours(name, default, doc)
}

/// Our own options. A default is the JSON text of the value.
#[rustfmt::skip]
pub const OURS: &[ConfigOption] = &[
    ours("salt_compat", &[Some("3008")],
        "The line of Salt (3006, 3007 or 3008; 3008.3 is understood too) whose tools use this \
         master's files and sockets. Minions of all lines may connect in any case."),
    ours("local_cache_mirror", &[Some("\"full\"")],
        "Mirror to stock's job-cache files, for stock tools: \"full\" writes jobs and \
         returns, \"loads\" only the jobs, \"off\" nothing. The job database has it all."),
    ours("saltern_job_database", &[Some("\"\"")],
        "Path of the job database; empty means \"saltern/jobs.sqlite\" under cachedir."),
    ours("saltern_cluster", &[Some("null")],
        "A cluster of masters on PostgreSQL, of which one is active and the others stand by: a mapping \
         {postgres: a connection as libpq reads it, with one or more hosts, name: that of the \
         cluster, which its schema bears (saltern), secret_file: the file of the secret under which \
         members share session keys, the shared key and tokens, so that nobody authenticates anew \
         after a takeover, and grains and mines (none), share_keys: whether keys of minions are shared, too: pki_dir of each member \
         follows the others, so end what copies it before (false; only with secret_file, and on all members), advertise: where this master is reached, for people (its id), \
         lease: seconds after which a silent active master is replaced (15), member_port: the port on \
         which the active master takes the connections that the others relay to it, with advertise as \
         its address and only with secret_file; keys of local users follow from the secret then (none: \
         those that stand by have closed ports)}. The jobs are then \
         in PostgreSQL, and saltern_job_database is not used. Members differ in their id, and without \
         share_keys share pki_dir."),
    ours("saltern_syndic", &[Some("\"native\"")],
        "What is the syndic of this master below those of syndic_master: \"native\" this process, \
         \"stock\" a salt-syndic beside it, \"off\" nothing. The native syndic has the id and keys \
         of the minion's configuration file, as salt-syndic has, and stands by while one runs."),
    ours("saltern_syndic_keep_seconds", &[Some("604800")],
        "Seconds after which a return does not go up any more when its master above cannot be \
         reached; each one dropped is counted, and named by an event; 0 for no such bound. Meanwhile \
         jobs are kept beyond keep_jobs_seconds, but not beyond saltern_keep_jobs_count and \
         saltern_keep_jobs_size."),
    ours("saltern_syndic_keep_returns", &[Some("1000000")],
        "Maximum number of rows of the job database, jobs and returns, that one master above may be \
         behind: beyond it its oldest returns are dropped, counted and named by an event. Rows of other \
         masters above count, too, so a return that waits for one that is away is dropped when as many of \
         another one have come."),
    ours("saltern_syndic_inventory", &[Some("true")],
        "Whether masters of this program in a tree agree on inventories: a native syndic sends the \
         ids, standing and grains of the minions below it up, and a master with order_masters \
         takes them, so that targets, batches and manage.status there are exact. Has to be on at \
         both ends; stock never sees it."),
    ours("saltern_syndic_frames", &[Some("true")],
        "Whether masters of this program in a tree agree on frames: a native syndic sends returns up \
         in numbered frames, several of them at the same time, and a master with order_masters \
         answers each when it is committed. A master with order_masters also names itself and those \
         above it to its syndics: one that finds its own master_id in that path, or eight masters, \
         publishes nothing from there. Has to be on at both ends; stock never sees it."),
    ours("saltern_keep_jobs_count", &[Some("0")],
        "Maximum number of stored jobs: beyond it the oldest are removed, whatever their age, but \
         no open one; 0 for no such bound."),
    ours("saltern_keep_events_count", &[Some("100000")],
        "Maximum number of events that \"event_return: saltern\" or the API store in the job \
         database: beyond it the oldest are removed. Events whose number peers choose (custom tags, \
         returns, authentications) get at most half of it; 0 for no such bound. Events are \
         also removed with the jobs of their age."),
    ours("saltern_audit_keep_days", &[Some("400")],
        "Days for which rows of the audit trail are kept in the job database; 0 for ever. What is \
         left can still be verified: \"saltern audit verify\"."),
    ours("saltern_audit_keep_count", &[Some("2000000")],
        "Maximum number of rows of the audit trail: beyond it the oldest are removed; 0 for no \
         such bound. Other bounds of the job database do not hold for them."),
    ours("saltern_audit_redact", &[Some(r#"["*password*", "*passwd*", "*passphrase*", "pass", "pw", "*secret*", "*token*", "*credential*", "*pillar*", "key", "*_key", "*apikey*", "*private*", "auth", "*_auth"]"#)],
        "Names of arguments whose values are hidden in the audit trail, with wildcards and in any \
         case, at any depth. A positional argument that is a text such as \"name=value\" counts \
         as named. The credentials of requests are never in it.").followed(),
    ours("saltern_audit_redact_functions", &[Some(r#"["*password*", "*passwd*", "*secret*", "*token*", "*.user_create", "*.user_chpass", "*.user_add", "auth.*", "vault.*"]"#)],
        "Functions, with wildcards, all of whose arguments are hidden in the audit trail.").followed(),
    ours("saltern_api_event_acl", &[Some("null")],
        "Which events users see over HTTP: a map of users to lists of tags, with wildcards such \
         as \"salt/job/*\"; the user \"*\" stands for all others. Without it everybody who is \
         logged in sees all events, as with stock. Gaps are shown to all.").followed(),
    ours("saltern_hook_secrets", &[Some("null")],
        "Secrets of hooks: a map of paths below \"/hook\" to secrets of at least 16 bytes. \
         Requests to such a path, or below it, must be signed with it (\"X-Hub-Signature-256\", \
         or the secret itself as \"X-Gitlab-Token\") and need no session. With \
         \"X-Saltern-Timestamp\" (Unix seconds) the signature is that of the timestamp, a dot \
         and the body, and holds for 300 seconds."),
    ours("saltern_keep_jobs_size", &[Some("68719476736")],
        "While the rows of the job database take more bytes than this (or text such as \
         \"10 GiB\"), or more than half of its disk, the oldest jobs are removed, as above. \
         The file does not shrink, it is filled again; 0 for no such bound."),
    ours("saltern_max_reports", &[Some("20000")],
        "Returns that no job of this master expects (salt-call, the schedule of a minion) which \
         are stored of one minion in a day (UTC). Further ones are refused and counted; the \
         minion is answered that they were not stored. 0 for no such bound."),
    ours("saltern_max_report_bytes", &[Some("268435456")],
        "Bytes (or text such as \"256 MiB\") that such returns of one minion may take in the \
         job database in a day, as above; 0 for no such bound."),
    ours("saltern_disk_low", &[Some("536870912")],
        "With less room than this for the job database (bytes or text such as \"1 GiB\", at \
         most a twentieth of its disk) a warning is logged and the event saltern/store/low fired. \
         With less than a sixteenth of it nothing is written until there is room again: jobs \
         are refused, returns are not acknowledged. 0 leaves it to the disk."),
    ours("saltern_max_connections", &[Some("40000")],
        "Most connections at a time on each of the two ports. Further ones are closed."),
    ours("saltern_max_connections_per_address", &[Some("10000")],
        "Most connections at a time from one address on each port; 0 is no such limit."),
    ours("saltern_max_message_size", &[Some("104857600")],
        "Largest message in bytes (or text such as \"100 MiB\") from a peer that has proved \
         who it is."),
    ours("saltern_max_unauthenticated_size", &[Some("33554432")],
        "Largest message from a connection that has not. Stock minions open a new connection \
         for every return, so this bounds their largest return."),
    ours("saltern_handshake_timeout", &[Some("10")],
        "Seconds a new connection has to finish the ZMTP handshake."),
    ours("saltern_idle_timeout", &[Some("300")],
        "Seconds without a byte before a peer of the request port is probed with a ZMTP PING; \
         30 more without an answer end the connection."),
    ours("saltern_heartbeat_interval", &[Some("30")],
        "Seconds without a byte before a subscriber of the publish port is probed with a ZMTP \
         PING; as many more without an answer end the connection, and its minion is away. \
         Subscribers that do not speak ZMTP 3.1 are left to TCP keepalive."),
    ours("saltern_tcp_user_timeout", &[Some("105")],
        "Seconds that data, or a probe of TCP keepalive, may stay unacknowledged on a \
         connection of either port before the system gives it up (TCP_USER_TIMEOUT); 0 leaves \
         it to the system, which tries for a quarter of an hour."),
    ours("saltern_also_listen", &[Some("[]")],
        "Transports beside `transport`: a list of mappings {transport: zeromq, tcp or \
         ws, ret_port: …, publish_port: …}, each transport once. All share the limits on \
         connections."),
    ours("saltern_presence_probe_rate", &[Some("20")],
        "Rate of identity probes: subscribers of the publish port that are asked per second for \
         their id, where several minions share an address and one connection closed; 0 asks \
         none, and such minions stay stale. With order_masters none is asked."),
    ours("saltern_max_subscriptions", &[Some("64")],
        "Most subscriptions a connection of the publish port may hold."),
    ours("saltern_subscriber_queue_size", &[Some("16777216")],
        "Bytes that may wait for one slow subscriber of the publish port. Beyond it, or \
         beyond pub_hwm messages, new publishes to it are dropped and counted."),
    ours("saltern_reply_budget", &[Some("268435456")],
        "Bytes (or text such as \"256 MiB\") of replies that may wait for their readers on the \
         request port, over all connections; a quarter of it for peers that have not proved who \
         they are. Beyond it connections are closed: those that read nothing first, and of \
         those the ones of the address that holds most."),
    ours("saltern_event_queue_length", &[Some("10000")],
        "Events that may wait for one slow listener of the event socket. Then the gap is \
         announced to it and counted."),
    ours("saltern_probe_rate", &[Some("2")],
        "Maximum rate of probes for running jobs (saltutil.running, for all silent jobs and all \
         waiting clients together), in publications per second."),
    ours("saltern_probe_interval", &[Some("60")],
        "Longest time in seconds between two such probes of one job. Until then the \
         time between them grows, and follows what its function took before."),
    ours("saltern_job_timeout", &[Some("300")],
        "Seconds that a job stays open all of whose missing minions are unreachable or \
         unknown. Later returns are stored, and amend the job's verdict."),
    ours("saltern_request_backlog", &[Some("10000")],
        "Requests of one class that may wait for a free worker; for authentications see \
         saltern_auth_backlog."),
    ours("saltern_auth_backlog", &[Some("5000")],
        "Authentications that may wait for a free worker, shared evenly by the addresses they \
         come from. Beyond it a minion is answered to retry after its acceptance_wait_time; \
         when many are, its connection is closed and it retries after its auth_timeout."),
    ours("saltern_gitfs_for_salt_run", &[Some("true")],
        "Whether, after gitfs brought something new, stock's own fileserver.update is run by the \
         Salt installation of python_bridge: `salt-run state.orchestrate` and `salt-run \
         fileserver.*` read stock's clones in `cachedir/gitfs`, not this master's. Each remote \
         is then fetched and kept twice."),
    ours("saltern_max_pending", &[Some("20000")],
        "Keys that wait to be accepted, at most; of those one block of addresses (/24, of IPv6 \
         /48) adds no more than half. When there is no more room, the newest key of the block \
         with most of them is removed for a newcomer of one with fewer. A minion that finds no \
         room is answered to retry later, and its key is not kept. The same bound, without removal, \
         holds for rejected and for denied keys; 0 for none."),
    ours("saltern_key_overlap", &[Some("300")],
        "Seconds for which requests encrypted with the previous shared key are still accepted \
         after a new one was made, if they carry a token of an accepted key. Concerns minions \
         that speak protocol 2 or older (minimum_auth_version); others have a key each, \
         which a new shared key leaves alone."),
    ours("saltern_replay_window", &[Some("600")],
        "Seconds for which the nonce of a minion's request is remembered at least, so that a \
         recorded request cannot be replayed. An older request, by the minion's own \
         clock, makes the minion authenticate for a new session. 0 takes requests as often as \
         they come, as stock does."),
    ours("saltern_render_threads", &[Some("0")],
        "Threads that compile pillars, beside the workers; 0 for one a processor core."),
    ours("saltern_render_backlog", &[Some("10000")],
        "Requests for pillars that may wait for such a thread. Beyond it a minion is answered \
         that its request was not handled, and retries."),
    ours("saltern_render_timeout", &[Some("30")],
        "Seconds of processor time that rendering one file, of a pillar or of a reaction, may \
         take; by the clock four times as many."),
    ours("saltern_pillar_timeout", &[Some("60")],
        "Seconds by the clock that compiling the whole pillar of a minion may take, with all \
         programs, external pillars and gpg. Then it has an error."),
    ours("saltern_config_wheels", &[Some("false")],
        "Whether the wheel functions config.update_config and config.apply write files of \
         options into the directory of default_include, for users with @wheel: users who may \
         write the configuration may run anything as the user of the master."),
    ours("saltern_stop_timeout", &[Some("10")],
        "Seconds that requests in flight have when the master is asked to stop."),
    ours("saltern_reactor_acl", &[Some("null")],
        "Permissions of reactions: a list of rules as one user has in publisher_acl, with @runner \
         and @wheel for functions of the master; functions of `caller` count as run on a \
         minion of the master's id. Unset, reactions may do everything, as in stock.").followed(),
    ours("saltern_reactor_limits", &[Some("{}")],
        "Limits on events that lead to reactions, by patterns of tags: {pattern: {rate: 10/s, \
         concurrency: 2}}. Events beyond the rate (a number, or with /s, /m, /h) are dropped, \
         counted and reported on the bus; those beyond the concurrency wait until the reactions \
         of others have ended. Of several patterns for a tag the first one holds."),
    ours("saltern_batch_resume_delay", &[Some("10")],
        "Seconds after the start of the master before batches in progress send their \
         next part: publications are lost while minions are still reconnecting. Stock \
         minions take up to recon_max, 10 seconds by default."),
    ours("saltern_log_format", &[Some("\"text\"")],
        "\"text\" writes the log as log_fmt_console and log_fmt_logfile say; \"json\" writes \
         one object a line, on the console and in the file, with \"time\", \"level\", \
         \"target\", \"message\" and the fields of the line, such as \"jid\" and \"minion\"."),
    ours("saltern_api", &[Some("null")],
        "The HTTP API. Unset, this master serves what rest_cherrypy, rest_tornado and rest_wsgi ask \
         for; \"stock\" leaves these to stock's salt-api beside it, false serves none. true, or a \
         mapping {port: 8000, host: 127.0.0.1, …} with the options of rest_cherrypy, adds a \
         server on this machine. If a port is in use, the master starts without that server."),
    ours("saltern_console", &[Some("null")],
        "Whether the servers of the HTTP API serve the web console, too, below \"/console/\": true \
         or false. Unset, the server of \"saltern_api\" does, those of rest_cherrypy, rest_tornado \
         and rest_wsgi do not."),
    ours("saltern_console_url", &[Some("\"\"")],
        "The address under which users reach the web console, such as https://salt.example.com, for \
         the command lines that name its pages. Empty for that of the server that serves it."),
    ours("saltern_metrics_address", &[Some("\"127.0.0.1:4507\"")],
        "Where /metrics, /healthz and /readyz are served over HTTP: an IP address and a port; \
         empty for nowhere. They are not authenticated: beyond this machine, require \
         certificates with saltern_metrics_ssl. If the default address is in use the master \
         runs without them; if a configured address is in use, it does not start."),
    ours("saltern_metrics_ssl", &[Some("null")],
        "TLS for that address, a mapping as in `ssl`; cert_reqs is CERT_NONE unless it is \
         given."),
    ours("saltern_engine_restarts", &[Some("20")],
        "Restarts of an engine within saltern_engine_restart_window, with a back-off of up to a \
         minute. Beyond them it is not restarted, which is logged and fired as an event; \
         other engines go on."),
    ours("saltern_engine_restart_window", &[Some("3600")],
        "Seconds of that window."),
    ours("metrics_compat", &[Some("[]")],
        "Further names under which metrics are exposed, for existing dashboards: a list of \
         salt-exporter (the names of that program) and opentelemetry (those of 3008's exporter \
         as they look in Prometheus). Those of salt-exporter that have a minion in a label are \
         exposed without it, for all minions together, unless saltern_metrics_minion_labels \
         asks for it."),
    ours("saltern_metrics_minion_labels", &[Some("false")],
        "Whether the metrics of salt-exporter (metrics_compat) have its label \"minion\": \
         salt_responses_total, salt_function_status, salt_health_last_heartbeat and \
         salt_responses_last_received_response, a series for each of the first 10,000 minions \
         that send something. For fleets whose Prometheus has room for that."),
    ours("python_bridge", &[Some("\"auto\"")],
        "The Python of a Salt installation, for modules that only Python can run (renderers such \
         as py, external pillars, functions, runners and wheels that are not built in): the path \
         of a Python or of an installation; \"auto\" looks in the usual places; false runs \
         none, and modules that need it are refused by name."),
    ours("python_bridge_processes", &[Some("2")],
        "Helper processes of that Python that work for pillars at a time, each with about \
         100 MiB; none is started before it is needed."),
    ours("python_bridge_timeout", &[Some("30")],
        "Seconds that one call of such a helper may take, waiting and its start included. \
         Then it is killed and the call fails."),
    ours("python_bridge_runners", &[Some("4")],
        "Runner and wheel functions that run in Python at a time; each has a helper of its \
         own. Further ones wait."),
    ours("python_bridge_runner_timeout", &[Some("86400")],
        "Seconds that one of them may take, waiting included."),
    ours("python_bridge_memory", &[Some("1073741824")],
        "Bytes of address space (or text such as \"1 GiB\") that a helper, and each process \
         that it starts, may use; 0 for no such bound."),
    ours("saltern_strict_minion_events", &[Some("true")],
        "Whether events of minions are refused whose tag belongs to the master (salt/job/*, \
         salt/key, salt/auth, salt/run/* and the like) or bears another minion's name. Stock \
         refuses a few of these, and only in one of two forms."),
];
