//! The options that only this program has, in one table, each with what it means.
//!
//! Stock tolerates unknown options, so a configuration with these still works there.

/// An option of this program.
#[derive(Debug)]
pub struct OurOption {
    /// The name in the file.
    pub name: &'static str,
    /// The default as JSON text.
    pub default: &'static str,
    /// What it does, with its unit.
    pub doc: &'static str,
}

/// Our own options.
#[rustfmt::skip]
pub const OURS: &[OurOption] = &[
    OurOption { name: "salt_compat", default: "3008",
        doc: "The line of Salt (3006, 3007 or 3008; 3008.3 is understood too) whose tools use this \
              master's files and sockets. Minions of all lines may connect in any case." },
    OurOption { name: "local_cache_mirror", default: "\"full\"",
        doc: "Mirror to stock's job-cache files, for stock tools: \"full\" writes jobs and \
              returns, \"loads\" only the jobs, \"off\" nothing. The job database has it all." },
    OurOption { name: "saltern_job_database", default: "\"\"",
        doc: "Path of the job database; empty means \"saltern/jobs.sqlite\" under cachedir." },
    OurOption { name: "saltern_keep_jobs_count", default: "0",
        doc: "Maximum number of stored jobs: beyond it the oldest are removed, whatever their age, but \
              no open one; 0 for no such bound." },
    OurOption { name: "saltern_keep_events_count", default: "100000",
        doc: "Maximum number of events that \"event_return: saltern\" stores in the job database: \
              beyond it the oldest are removed. Events whose number peers choose (custom tags, \
              returns, authentications) get at most half of it; 0 for no such bound. Events are \
              also removed with the jobs of their age." },
    OurOption { name: "saltern_keep_jobs_size", default: "68719476736",
        doc: "While the rows of the job database take more bytes than this (or text such as \
              \"10 GiB\"), or more than half of its disk, the oldest jobs are removed, as above. \
              The file does not shrink, it is filled again; 0 for no such bound." },
    OurOption { name: "saltern_max_reports", default: "20000",
        doc: "Returns that no job of this master expects (salt-call, the schedule of a minion) which \
              are stored of one minion in a day (UTC). Further ones are refused and counted; the \
              minion is answered that they were not stored. 0 for no such bound." },
    OurOption { name: "saltern_max_report_bytes", default: "268435456",
        doc: "Bytes (or text such as \"256 MiB\") that such returns of one minion may take in the \
              job database in a day, as above; 0 for no such bound." },
    OurOption { name: "saltern_disk_low", default: "536870912",
        doc: "With less room than this for the job database (bytes or text such as \"1 GiB\", at \
              most a twentieth of its disk) a warning is logged and the event saltern/store/low fired. \
              With less than a sixteenth of it nothing is written until there is room again: jobs \
              are refused, returns are not acknowledged. 0 leaves it to the disk." },
    OurOption { name: "saltern_max_connections", default: "40000",
        doc: "Most connections at a time on each of the two ports. Further ones are closed." },
    OurOption { name: "saltern_max_connections_per_address", default: "10000",
        doc: "Most connections at a time from one address on each port; 0 is no such limit." },
    OurOption { name: "saltern_max_message_size", default: "104857600",
        doc: "Largest message in bytes (or text such as \"100 MiB\") from a peer that has proved \
              who it is." },
    OurOption { name: "saltern_max_unauthenticated_size", default: "33554432",
        doc: "Largest message from a connection that has not. Stock minions open a new connection \
              for every return, so this bounds their largest return." },
    OurOption { name: "saltern_handshake_timeout", default: "10",
        doc: "Seconds a new connection has to finish the ZMTP handshake." },
    OurOption { name: "saltern_idle_timeout", default: "300",
        doc: "Seconds without a byte before a peer of the request port is probed with a ZMTP PING; \
              30 more without an answer end the connection." },
    OurOption { name: "saltern_heartbeat_interval", default: "30",
        doc: "Seconds without a byte before a subscriber of the publish port is probed with a ZMTP \
              PING; as many more without an answer end the connection, and its minion is away. \
              Subscribers that do not speak ZMTP 3.1 are left to TCP keepalive." },
    OurOption { name: "saltern_tcp_user_timeout", default: "105",
        doc: "Seconds that data, or a probe of TCP keepalive, may stay unacknowledged on a \
              connection of either port before the system gives it up (TCP_USER_TIMEOUT); 0 leaves \
              it to the system, which tries for a quarter of an hour." },
    OurOption { name: "saltern_also_listen", default: "[]",
        doc: "Transports beside `transport`: a list of mappings {transport: zeromq, tcp or \
              ws, ret_port: …, publish_port: …}, each transport once. All share the limits on \
              connections." },
    OurOption { name: "saltern_presence_probe_rate", default: "20",
        doc: "Rate of identity probes: subscribers of the publish port that are asked per second for \
              their id, where several minions share an address and one connection closed; 0 asks \
              none, and such minions stay stale. With order_masters none is asked." },
    OurOption { name: "saltern_max_subscriptions", default: "64",
        doc: "Most subscriptions a connection of the publish port may hold." },
    OurOption { name: "saltern_subscriber_queue_size", default: "16777216",
        doc: "Bytes that may wait for one slow subscriber of the publish port. Beyond it, or \
              beyond pub_hwm messages, new publishes to it are dropped and counted." },
    OurOption { name: "saltern_reply_budget", default: "268435456",
        doc: "Bytes (or text such as \"256 MiB\") of replies that may wait for their readers on the \
              request port, over all connections; a quarter of it for peers that have not proved who \
              they are. Beyond it connections are closed: those that read nothing first, and of \
              those the ones of the address that holds most." },
    OurOption { name: "saltern_event_queue_length", default: "10000",
        doc: "Events that may wait for one slow listener of the event socket. Then the gap is \
              announced to it and counted." },
    OurOption { name: "saltern_probe_rate", default: "2",
        doc: "Maximum rate of probes for running jobs (saltutil.running, for all silent jobs and all \
              waiting clients together), in publications per second." },
    OurOption { name: "saltern_probe_interval", default: "60",
        doc: "Longest time in seconds between two such probes of one job. Until then the \
              time between them grows, and follows what its function took before." },
    OurOption { name: "saltern_job_timeout", default: "300",
        doc: "Seconds that a job stays open all of whose missing minions are unreachable or \
              unknown. Later returns are stored, and amend the job's verdict." },
    OurOption { name: "saltern_request_backlog", default: "10000",
        doc: "Requests of one class that may wait for a free worker; for authentications see \
              saltern_auth_backlog." },
    OurOption { name: "saltern_auth_backlog", default: "5000",
        doc: "Authentications that may wait for a free worker, shared evenly by the addresses they \
              come from. Beyond it a minion is answered to retry after its acceptance_wait_time; \
              when many are, its connection is closed and it retries after its auth_timeout." },
    OurOption { name: "saltern_gitfs_for_salt_run", default: "true",
        doc: "Whether, after gitfs brought something new, stock's own fileserver.update is run by the \
              Salt installation of python_bridge: `salt-run state.orchestrate` and `salt-run \
              fileserver.*` read stock's clones in `cachedir/gitfs`, not this master's. Each remote \
              is then fetched and kept twice." },
    OurOption { name: "saltern_max_pending", default: "20000",
        doc: "Keys that wait to be accepted, at most; of those one block of addresses (/24, of IPv6 \
              /48) adds no more than half. When there is no more room, the newest key of the block \
              with most of them is removed for a newcomer of one with fewer. A minion that finds no \
              room is answered to retry later, and its key is not kept. The same bound, without removal, \
              holds for rejected and for denied keys; 0 for none." },
    OurOption { name: "saltern_key_overlap", default: "300",
        doc: "Seconds for which requests encrypted with the previous shared key are still accepted \
              after a new one was made, if they carry a token of an accepted key. Concerns minions \
              that speak protocol 2 or older (minimum_auth_version); others have a key each, \
              which a new shared key leaves alone." },
    OurOption { name: "saltern_replay_window", default: "600",
        doc: "Seconds for which the nonce of a minion's request is remembered at least, so that a \
              recorded request cannot be replayed. An older request, by the minion's own \
              clock, makes the minion authenticate for a new session. 0 takes requests as often as \
              they come, as stock does." },
    OurOption { name: "saltern_render_threads", default: "0",
        doc: "Threads that compile pillars, beside the workers; 0 for one a processor core." },
    OurOption { name: "saltern_render_backlog", default: "10000",
        doc: "Requests for pillars that may wait for such a thread. Beyond it a minion is answered \
              that its request was not handled, and retries." },
    OurOption { name: "saltern_render_timeout", default: "30",
        doc: "Seconds of processor time that rendering one file, of a pillar or of a reaction, may \
              take; by the clock four times as many." },
    OurOption { name: "saltern_pillar_timeout", default: "60",
        doc: "Seconds by the clock that compiling the whole pillar of a minion may take, with all \
              programs, external pillars and gpg. Then it has an error." },
    OurOption { name: "saltern_config_wheels", default: "false",
        doc: "Whether the wheel functions config.update_config and config.apply write files of \
              options into the directory of default_include, for users with @wheel: users who may \
              write the configuration may run anything as the user of the master." },
    OurOption { name: "saltern_stop_timeout", default: "10",
        doc: "Seconds that requests in flight have when the master is asked to stop." },
    OurOption { name: "saltern_reactor_acl", default: "null",
        doc: "Permissions of reactions: a list of rules as one user has in publisher_acl, with @runner \
              and @wheel for functions of the master; functions of `caller` count as run on a \
              minion of the master's id. Unset, reactions may do everything, as in stock." },
    OurOption { name: "saltern_reactor_limits", default: "{}",
        doc: "Limits on events that lead to reactions, by patterns of tags: {pattern: {rate: 10/s, \
              concurrency: 2}}. Events beyond the rate (a number, or with /s, /m, /h) are dropped, \
              counted and reported on the bus; those beyond the concurrency wait until the reactions \
              of others have ended. Of several patterns for a tag the first one holds." },
    OurOption { name: "saltern_batch_resume_delay", default: "10",
        doc: "Seconds after the start of the master before batches in progress send their \
              next part: publications are lost while minions are still reconnecting. Stock \
              minions take up to recon_max, 10 seconds by default." },
    OurOption { name: "saltern_log_format", default: "\"text\"",
        doc: "\"text\" writes the log as log_fmt_console and log_fmt_logfile say; \"json\" writes \
              one object a line, on the console and in the file, with \"time\", \"level\", \
              \"target\", \"message\" and the fields of the line, such as \"jid\" and \"minion\"." },
    OurOption { name: "saltern_metrics_address", default: "\"127.0.0.1:4507\"",
        doc: "Where /metrics, /healthz and /readyz are served over HTTP: an IP address and a port; \
              empty for nowhere. They are not authenticated: beyond this machine, require \
              certificates with saltern_metrics_ssl. If the default address is in use the master \
              runs without them; if a configured address is in use, it does not start." },
    OurOption { name: "saltern_metrics_ssl", default: "null",
        doc: "TLS for that address, a mapping as in `ssl`; cert_reqs is CERT_NONE unless it is \
              given." },
    OurOption { name: "saltern_engine_restarts", default: "20",
        doc: "Restarts of an engine within saltern_engine_restart_window, with a back-off of up to a \
              minute. Beyond them it is not restarted, which is logged and fired as an event; \
              other engines go on." },
    OurOption { name: "saltern_engine_restart_window", default: "3600",
        doc: "Seconds of that window." },
    OurOption { name: "metrics_compat", default: "[]",
        doc: "Further names under which metrics are exposed, for existing dashboards: a list of \
              salt-exporter (the names of that program) and opentelemetry (those of 3008's exporter \
              as they look in Prometheus). Those of salt-exporter that have a minion in a label are \
              exposed without it, for all minions together, unless saltern_metrics_minion_labels \
              asks for it." },
    OurOption { name: "saltern_metrics_minion_labels", default: "false",
        doc: "Whether the metrics of salt-exporter (metrics_compat) have its label \"minion\": \
              salt_responses_total, salt_function_status, salt_health_last_heartbeat and \
              salt_responses_last_received_response, a series for each of the first 10,000 minions \
              that send something. For fleets whose Prometheus has room for that." },
    OurOption { name: "python_bridge", default: "\"auto\"",
        doc: "The Python of a Salt installation, for modules that only Python can run (renderers such \
              as py, external pillars, functions, runners and wheels that are not built in): the path \
              of a Python or of an installation; \"auto\" looks in the usual places; false runs \
              none, and modules that need it are refused by name." },
    OurOption { name: "python_bridge_processes", default: "2",
        doc: "Helper processes of that Python that work for pillars at a time, each with about \
              100 MiB; none is started before it is needed." },
    OurOption { name: "python_bridge_timeout", default: "30",
        doc: "Seconds that one call of such a helper may take, waiting and its start included. \
              Then it is killed and the call fails." },
    OurOption { name: "python_bridge_runners", default: "4",
        doc: "Runner and wheel functions that run in Python at a time; each has a helper of its \
              own. Further ones wait." },
    OurOption { name: "python_bridge_runner_timeout", default: "86400",
        doc: "Seconds that one of them may take, waiting included." },
    OurOption { name: "python_bridge_memory", default: "1073741824",
        doc: "Bytes of address space (or text such as \"1 GiB\") that a helper, and each process \
              that it starts, may use; 0 for no such bound." },
    OurOption { name: "saltern_strict_minion_events", default: "true",
        doc: "Whether events of minions are refused whose tag belongs to the master (salt/job/*, \
              salt/key, salt/auth, salt/run/* and the like) or bears another minion's name. Stock \
              refuses a few of these, and only in one of two forms." },
];
