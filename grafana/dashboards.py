#!/usr/bin/env python3
"""The dashboards as code: writes dashboards/*.json, which Grafana is given as they are.

    grafana/dashboards.py            writes the files
    grafana/dashboards.py --check    fails if a file is not what this program would write

In a query `{I` stands for "of the masters chosen at the top of the page". Grafana shows the
description of a panel at its title.
"""

import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent / "dashboards"
WIDTH = 24


def rate(metric, by="", more="", zero=False):
    """How often a second, summed; with `zero` a line at 0 where nothing was counted yet."""
    labels = f"I,{more}" if more else "I"
    grouped = f"sum by ({by})" if by else "sum"
    expression = f"{grouped} (rate({metric}{{{labels}}}[$__rate_interval]))"
    return f"{expression} or vector(0)" if zero else expression


def quantile(share, metric, by=""):
    """The value that `share` of the observations stay below."""
    by = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, sum by ({by}) (rate({metric}_bucket{{I}}[$__rate_interval])))"


def graph(title, unit, *queries, about, width=8, stacked=False):
    """Lines over time; a query is an expression with its legend."""
    return {
        "type": "timeseries",
        "title": title,
        "about": about,
        "unit": unit,
        "queries": queries,
        "size": (width, 8),
        "stacked": stacked,
    }


def number(title, unit, query, *, about, bad=None, width=4):
    """One number as it is now; red from `bad` on."""
    return {
        "type": "stat",
        "title": title,
        "about": about,
        "unit": unit,
        "queries": [(query, "")],
        "size": (width, 4),
        "bad": bad,
    }


BUSY = (
    'sum by (instance) (rate(saltern_request_handling_seconds_sum{I}[$__rate_interval]))'
    ' / on (instance) saltern_actor_up{I,actor="mworker"}'
)

OVERVIEW = {
    "The master": [
        number("Ready", "none", "min(saltern_check_passed{I})",
               about="1 when every check of /readyz passes; the next panel says which one does not."),
        number("Failed checks", "none", "sum(1 - saltern_check_passed{I})", bad=1,
               about="Checks of /readyz that do not pass. Ask the master: curl /readyz."),
        number("Up since", "dateTimeFromNow", "min(process_start_time_seconds{I}) * 1000",
               about="When the master that started first was started."),
        number("Minions connected", "none", 'sum(saltern_minions{I,standing="connected"})',
               about="Minions with an accepted key and a connection to the publish port."),
        number("Jobs open", "none", "sum(saltern_jobs_open{I})",
               about="Jobs that have not ended."),
        number("Disk left", "bytes", "min(saltern_store_free_bytes{I})",
               about="What the job database can still take."),
    ],
    "What it does": [
        graph("Requests", "reqps", (rate("saltern_requests_total", "class"), "{{class}}"),
              about="Requests that came in. Minions ask with their session key, clients in clear; "
                    "authentications are dear and wait apart."),
        graph("Returns stored", "ops", (rate("saltern_returns_total"), "returns"),
              (rate("saltern_returns_duplicate_total"), "twice"),
              about="Returns that are on the disk, and those that came once more."),
        graph("Jobs ended", "ops", (rate("saltern_jobs_finished_total", "verdict", zero=True), "{{verdict}}"),
              about="Complete: every minion has returned. Expired: some have not, and the event of "
                    "the end names them with the reason."),
        graph("Workers in use", "percentunit", (BUSY, "{{instance}}"),
              about="Share of the workers' time that is spent on requests. Above 0.9 requests wait."),
        graph("Turned away", "ops", (rate("saltern_requests_shed_total"), "requests"),
              (rate("saltern_authentications_turned_away_total"), "authentications"),
              (rate("saltern_requests_refused_total", zero=True), "failed a check"),
              (rate("saltern_store_refused_total"), "not stored"),
              (rate("saltern_reports_refused_total"), "over a minion's quota"),
              about="Everything that was not served, by reason."),
        graph("Restarts of actors", "none",
              ("sum by (actor) (increase(saltern_actor_restarts_total{I}[$__rate_interval]))", "{{actor}}"),
              about="Actors rebuilt after a panic; other actors are not affected."),
    ],
    "What it costs": [
        graph("Processor", "percentunit",
              ("rate(process_cpu_seconds_total{I}[$__rate_interval])", "{{instance}}"),
              about="Processor seconds a second: 1 is one core."),
        graph("Memory", "bytes", ("process_resident_memory_bytes{I}", "in RAM {{instance}}"),
              ("process_virtual_memory_bytes{I}", "address space {{instance}}"),
              about="Memory of the process; what counts is that in RAM."),
        graph("Files and threads", "none", ("process_open_fds{I}", "files"),
              ("process_max_fds{I}", "files at most"), ("saltern_open_files_limit{I}", "as asked for"), ("process_threads{I}", "threads"),
              about="Each connection is a file. At the limit new connections wait."),
        graph("Builds", "none", ("count by (version, salt_compat) (saltern_build_info{I})",
                                 "{{version}}, serves {{salt_compat}}"),
              about="Which build runs on how many masters.", width=12),
        graph("HTTP requests", "ops", (rate("saltern_http_requests_total", "server, method, code"), "{{server}} {{method}} {{code}}"),
              (rate("saltern_http_refused_total", "reason"), "refused: {{reason}}"),
              (quantile(0.99, "saltern_http_request_seconds", "server"), "{{server}}: seconds a request, p99"),
              (quantile(0.99, "saltern_scrape_seconds"), "seconds a scrape, p99"),
              about="Requests over HTTP, those for metrics and health included; this dashboard needs them.", width=12),
        graph("HTTP connections", "none", ("sum by (server) (saltern_http_connections{I})", "{{server}} connections"),
              ("sum by (server) (saltern_http_streams{I})", "{{server}} streams"),
              (rate("saltern_http_certificate_reloads_total", "server, outcome"), "{{server}} certificate {{outcome}}, a second"),
              about="Open connections, long streams among them, and changed certificates that were read.", width=12),
    ],
}

JOBS = {
    "Jobs": [
        graph("Open", "none", ("sum(saltern_jobs_open{I})", "open"),
              about="Jobs that have not ended."),
        graph("Ended", "ops", (rate("saltern_jobs_finished_total", "verdict", zero=True), "{{verdict}}"),
              about="One that a late return completes counts once more."),
        graph("How long they took", "s",
              (quantile(0.5, "saltern_job_seconds", "verdict") + " or vector(0)", "{{verdict}} p50"),
              (quantile(0.95, "saltern_job_seconds", "verdict") + " or vector(0)", "{{verdict}} p95"),
              about="From the beginning of a job to its end. An expired one took until its timeout."),
        graph("Minions given up, or back", "ops",
              (rate("saltern_minion_verdicts_total", "verdict", zero=True), "{{verdict}}"),
              about="Unreachable: it has no connection. Unknown: it does not answer. Back and late amend either."),
        graph("Published", "ops", (rate("saltern_publishes_total"), "loads"),
              (rate("saltern_publishes_not_sent_total"), "not sent"),
              about="Loads that went to the publish port; not sent: they could not be sealed."),
        graph("Returns", "ops", (rate("saltern_returns_total"), "stored"),
              (rate("saltern_returns_duplicate_total"), "stored already"),
              (rate("saltern_syndic_minions_refused_total"), "minions of syndics not waited for"),
              about="Each return is stored once, however often it is sent."),
    ],
    "Probes of running jobs": [
        graph("Asked", "ops", (rate("saltern_probe_rounds_total"), "silences"),
              (rate("saltern_probes_total"), "probes published"),
              (rate("saltern_probes_merged_total"), "merged with an open probe"),
              (rate("saltern_probes_capped_total"), "had to wait"),
              (rate("saltern_probe_answers_expired_total"), "answered too late"),
              about="Minions that are silent for long are probed for running jobs, all in one publication."),
        graph("Minions asked", "ops", (rate("saltern_probed_minions_total"), "minions"),
              about="How many minions those probes named."),
        graph("Answered for minions", "ops", (rate("saltern_polls_answered_total"), "polls of clients"),
              (rate("saltern_poll_answers_total"), "answers"),
              about="find_job rounds of clients that the master answered without asking a minion."),
    ],
    "Batches": [
        graph("Batches", "none", ("sum(saltern_batches_open{I})", "open"),
              ("sum(saltern_batch_minions_running{I})", "minions at work"),
              about="Batches that the master drives (salt -b … --async)."),
        graph("Parts", "ops", (rate("saltern_batch_parts_total"), "parts"),
              (rate("saltern_batches_finished_total", "verdict", zero=True), "over: {{verdict}}"),
              about="Parts that were sent, and batches that are over."),
        graph("Peer calls", "none",
              ("sum(saltern_peer_calls_waiting{I})", "waiting"),
              (rate("saltern_peer_calls_unfinished_total", "reason", zero=True), "given up: {{reason}}"),
              about="publish.publish and publish.runner of minions."),
    ],
}

WORKERS = {
    "Requests": [
        graph("Waiting, by class", "none", ("sum by (class) (saltern_requests_waiting{I})", "{{class}}"),
              about="Requests that wait for a worker. Classes wait apart and take turns."),
        graph("Time to the answer, p99", "s", (quantile(0.99, "saltern_request_seconds", "class"), "{{class}}"),
              about="How long a peer waits, from the arrival of a request to its answer: for a worker, the "
                    "worker itself, the disk. Functions of the master take as long as they take."),
        graph("Time of a worker, p99", "s",
              (quantile(0.99, "saltern_request_handling_seconds", "cmd"), "{{cmd}}"),
              about="Time that a worker spends on one request; waiting for the disk is not in it."),
        graph("Time of workers by command", "percentunit",
              (rate("saltern_request_handling_seconds_sum", "cmd"), "{{cmd}}"), stacked=True,
              about="What the workers are busy with, in workers."),
        graph("Traces", "ops", (rate("saltern_trace_spans_total", zero=True), "spans"),
              (rate("saltern_trace_spans_dropped_total", "reason", zero=True), "dropped: {{reason}}"),
              (rate("saltern_trace_exports_failed_total", zero=True), "exports failed"),
              about="Spans for a collector (tracing), and those that were dropped."),
        graph("Turned away", "ops", (rate("saltern_requests_shed_total", "class"), "{{class}}"),
              about="The backlog of the class was full; minions retry."),
        graph("Refused", "ops", (rate("saltern_requests_refused_total", "reason", zero=True), "{{reason}}"),
              (rate("saltern_log_lines_suppressed_total"), "log lines not written"),
              about="Requests that failed a check, by check."),
        graph("Workers in use", "percentunit", (BUSY, "{{instance}}"),
              about="Share of the workers' time that is spent on requests."),
    ],
    "Actors": [
        graph("Mailboxes", "none", ("sum by (actor) (saltern_actor_mailbox_depth{I})", "{{actor}}"),
              about="Messages that wait for an actor."),
        graph("Handling, p99", "s", (quantile(0.99, "saltern_actor_handling_seconds", "actor"), "{{actor}}"),
              about="Time for which an actor held its thread. Renderers and runners may, the others should not."),
        graph("Messages", "ops", (rate("saltern_actor_messages_total", "actor"), "{{actor}}"),
              about="Messages given to a handler."),
        graph("Running", "none", ("sum by (actor) (saltern_actor_up{I})", "{{actor}}"),
              about="Actors that are there now."),
        graph("Restarts", "none",
              ("sum by (actor) (increase(saltern_actor_restarts_total{I}[$__rate_interval]))", "{{actor}}"),
              about="Actors that were restarted after a panic."),
        graph("Checks", "none", ("min by (check) (saltern_check_passed{I})", "{{check}}"),
              about="The checks of /readyz: 1 passes."),
    ],
    "Maintenance tasks": [
        graph("Runs", "ops", (rate("saltern_maintenance_runs_total", "task, result", zero=True), "{{task}} {{result}}"),
              about="Runs of the master's maintenance tasks, by result."),
        graph("Time of a run, p99", "s",
              (quantile(0.99, "saltern_maintenance_duration_seconds", "task"), "{{task}}"),
              about="How long a maintenance task takes."),
        graph("Since the last run", "s",
              ("time() - max by (task) (saltern_maintenance_last_run_timestamp_seconds{I})", "{{task}}"),
              about="A line that grows is a task that does not run any more."),
    ],
    "Schedules of the master": [
        graph("Runs", "ops", (rate("saltern_schedule_runs_total", zero=True), "begun"),
              (rate("saltern_schedule_skipped_total", "reason", zero=True), "skipped: {{reason}}"),
              about="Scheduled jobs of the master that were begun, and turns that brought no run."),
        graph("Late by", "s", (quantile(0.99, "saltern_schedule_late_seconds") + " or vector(0)", "p99"),
              about="Time between the turn of a scheduled job and its run."),
        graph("Since the last run", "s",
              ("time() - max(saltern_schedule_last_run_timestamp_seconds{I} > 0) or vector(0)", "any job"),
              about="How long ago a scheduled job was begun."),
    ],
    "Pillars, functions of the master, log-ins": [
        graph("Waiting", "none", ("sum(saltern_renderings_waiting{I})", "pillars and files"),
              ("sum(saltern_wheels_waiting{I})", "wheel functions"),
              ("sum by (asker) (saltern_runs_waiting{I})", "runners: {{asker}}"),
              ("sum(saltern_logins_waiting{I})", "log-ins"),
              about="Work that waits for a thread that may block."),
        graph("Refused or given up", "ops", (rate("saltern_renderings_shed_total"), "pillars refused"),
              (rate("saltern_renderings_abandoned_total"), "pillars whose minion left"),
              (rate("saltern_wheels_shed_total"), "wheels refused"),
              (rate("saltern_wheels_abandoned_total"), "wheels whose client left"),
              (rate("saltern_runs_shed_total", "asker"), "runners refused: {{asker}}"),
              (rate("saltern_logins_shed_total"), "log-ins refused"),
              (rate("saltern_login_refusals_early_total"), "log-ins answered early"),
              about="Queues are bounded; when one is full, the request is refused at once."),
        graph("Pillars and files, p99", "s",
              (quantile(0.99, "saltern_rendering_seconds", "cmd") + " or vector(0)", "{{cmd}}"),
              about="Time of one request beside the workers."),
        graph("Functions, p99", "s",
              (quantile(0.99, "saltern_run_seconds", "asker") + " or vector(0)", "runners: {{asker}}"),
              (quantile(0.99, "saltern_wheel_seconds", "cmd") + " or vector(0)", "wheels: {{cmd}}"),
              (quantile(0.99, "saltern_login_seconds") + " or vector(0)", "log-ins"),
              about="Time that a function of the master takes."),
        graph("Python helpers", "none", ("sum by (lane) (saltern_bridge_helpers{I})", "{{lane}}"),
              ("sum by (lane) (saltern_bridge_waiting{I})", "waiting: {{lane}}"),
              about="Helper processes for modules that only Python can run."),
        graph("Python calls", "ops",
              (rate("saltern_bridge_calls_total", "lane, result", zero=True), "{{lane}} {{result}}"),
              (rate("saltern_bridge_starts_total", "lane"), "started: {{lane}}"),
              (rate("saltern_bridge_lines_dropped_total", "lane"), "log lines dropped: {{lane}}"),
              (quantile(0.99, "saltern_bridge_seconds", "lane") + " or vector(0)", "seconds, p99: {{lane}}"),
              about="Calls of helpers by result, and the time they take."),
    ],
}

BUS = {
    "Events": [
        graph("Events", "ops", (rate("saltern_bus_events_total"), "events"),
              about="Events put on the bus."),
        graph("Listeners", "none", ("sum(saltern_bus_subscribers{I})", "listeners"),
              ("sum(saltern_bus_senders{I})", "senders"),
              about="Local programs that subscribe to events, and that fire them."),
        graph("Longest queue", "none", ("max(saltern_bus_longest_queue{I})", "events"),
              about="Events that wait for the slowest listener. At saltern_event_queue_length it misses some."),
    ],
    "Slow subscribers": [
        graph("Dropped", "ops", (rate("saltern_bus_events_dropped_total"), "events"),
              (rate("saltern_bus_gaps_total"), "gaps reported"), width=12,
              about="Events that a listener missed because its queue was full; it is sent their number."),
        graph("Cut off", "ops", (rate("saltern_bus_subscribers_cut_off_total"), "took nothing for too long"),
              (rate("saltern_bus_connections_refused_total", "socket"), "too many: {{socket}}"), width=12,
              about="Listeners that were disconnected, and connections that were not taken."),
    ],
    "Streams and hooks of the API": [
        graph("Streams", "none", ("sum(saltern_api_streams{I}) or vector(0)", "open"),
              ("sum(saltern_event_feed_ring_events{I}) or vector(0)", "live events in memory"),
              ("max(saltern_api_call_events_longest_queue{I}) or vector(0)", "longest queue of a call"), width=6,
              about="Clients that follow events over HTTP, and the events that they share or wait for."),
        graph("Streams that ended", "ops",
              (rate("saltern_api_streams_closed_total", "reason", zero=True), "{{reason}}"),
              (rate("saltern_api_streams_refused_total", zero=True), "refused: too many"), width=6,
              about="By reason. A slow client is cut off; it resumes at its last position."),
        graph("Catching up", "ops",
              (rate("saltern_event_feed_pages_total", zero=True), "pages read"),
              (rate("saltern_api_stream_gaps_total", zero=True), "gaps announced"),
              (rate("saltern_api_call_events_dropped_total", zero=True), "dropped for calls"), width=6,
              about="Reads of kept events for clients that come back, and events that are no longer kept."),
        graph("Hooks", "ops",
              (rate("saltern_api_hooks_total", "result", zero=True), "{{result}}"), width=6,
              about="Requests to hooks by result."),
    ],
}

MINIONS = {
    "Minions": [
        graph("By standing", "none", ("sum by (standing) (saltern_minions{I})", "{{standing}}"), stacked=True,
              about="Connected: tied to a connection. Stale: it was seen lately. Away: it has no connection."),
        graph("Keys", "none", ("sum by (state) (saltern_keys{I})", "{{state}}"),
              about="Keys on disk. Pending ones wait to be accepted."),
        graph("Connections of the publish port", "none", ("sum by (tie) (saltern_subscribers{I})", "{{tie}}"),
              about="Connections by whether their minion is known."),
    ],
    "Authentication": [
        graph("Authentications", "ops", (rate("saltern_authentications_total", "result", zero=True), "{{result}}"),
              about="A fleet that authenticates again and again has lost its sessions: see the runbook."),
        graph("Turned away", "ops", (rate("saltern_authentications_turned_away_total", "reason"), "{{reason}}"),
              about="The queue was full, or the minion had left when its turn came."),
        graph("Identity probes", "ops", (rate("saltern_presence_probes_total"), "asked"),
              (rate("saltern_presence_probe_answers_total"), "answered"),
              about="Minions that share an address are probed for their ids."),
    ],
    "The two ports": [
        graph("Connections", "none",
              ("sum by (listener, transport, state) (saltern_port_connections{I})", "{{listener}} {{transport}} {{state}}"),
              about="Open connections."),
        graph("Taken", "ops", (rate("saltern_port_accepted_total", "listener"), "{{listener}}"),
              (rate("saltern_port_refused_total", "listener, reason"), "{{listener}} refused: {{reason}}"),
              about="New connections, and those over a limit."),
        graph("Ended", "ops", (rate("saltern_port_closed_total", "reason") + " > 0 or vector(0)", "{{reason}}"),
              about="Why connections ended. peer_closed is what it should be."),
        graph("Traffic", "Bps", (rate("saltern_port_bytes_total", "listener, direction"), "{{listener}} {{direction}}"),
              about="Bytes on the wire."),
        graph("Messages", "ops", (rate("saltern_port_messages_total", "listener, direction"), "{{listener}} {{direction}}"),
              (rate("saltern_port_unanswered_total", "listener"), "{{listener}} not handled"),
              about="Messages on the wire; not handled: the peer was answered so and retries."),
        graph("Deliveries", "ops", (rate("saltern_deliveries_total"), "queued"),
              (rate("saltern_deliveries_dropped_total"), "dropped"),
              (rate("saltern_port_dropped_total", "listener"), "{{listener}} dropped"),
              about="Copies of loads queued for minions; dropped: the minion's queue was full."),
        graph("Queued for minions", "bytes", ("sum(saltern_port_queued_bytes{I})", "bytes"), width=8,
              about="Publications that wait for their subscribers."),
        graph("Held by requests and replies", "bytes",
              ("sum by (kind, peers) (saltern_port_held_bytes{I})", "{{kind}} {{peers}}"), width=8,
              about="Large requests until they are answered, and replies until they are read, of their budgets."),
        graph("Cached data", "none", ("sum(saltern_minion_data_minions{I})", "minions with grains"),
              (rate("saltern_minion_data_changed_outside_total"), "changed by others"),
              (rate("saltern_minions_forgotten_total"), "forgotten"),
              (rate("saltern_grains_cut_total"), "too large to be kept whole"), width=8,
              about="Grains and pillars that targets are matched against."),
    ],
}

REACTOR = {
    "The reactor": [
        graph("Events", "ops", (rate("saltern_reactor_events_total", zero=True), "matched a rule"),
              about="Events that matched a rule. A site without a reactor has a line at 0."),
        graph("Waiting", "none", ("sum(saltern_reactor_waiting{I}) or vector(0)", "events"),
              about="Events that wait for the reactor."),
        graph("Dropped", "ops", (rate("saltern_reactor_dropped_total", "reason", zero=True), "{{reason}}"),
              (rate("saltern_reactor_dead_letters_dropped_total", zero=True), "dead letters"),
              about="Events and calls that lead to nothing, by reason, and dead letters that are not kept."),
        graph("Reactions", "ops", (rate("saltern_reactor_reactions_total", "type, result", zero=True), "{{type}} {{result}}"),
              about="Reactions that have ended, by result.", width=12),
        graph("Rendering", "s", (quantile(0.99, "saltern_reactor_rendering_seconds") + " or vector(0)", "p99"),
              about="Time that rendering the files of one event takes.", width=12),
    ],
    "Engines": [
        graph("Running", "none", ("sum by (engine) (saltern_engines_running{I}) or vector(0)", "{{engine}}"),
              about="Engines that run, by their name in the configuration."),
        graph("Events of engines", "ops", (rate("saltern_engine_events_total", "engine", zero=True), "{{engine}}"),
              about="Events that engines fired."),
        graph("Ends", "none",
              ("sum by (engine) (increase(saltern_engine_failures_total{I}[$__rate_interval])) or vector(0)", "ended: {{engine}}"),
              ("sum by (engine) (saltern_engines_given_up_total{I}) or vector(0)", "given up: {{engine}}"),
              about="Engines that ended by themselves, and those that are not started again."),
    ],
}

STORAGE = {
    "The job database": [
        graph("Commits, time", "s", (quantile(0.5, "saltern_store_commit_seconds"), "p50"),
              (quantile(0.99, "saltern_store_commit_seconds"), "p99"),
              about="One commit stores everything that waits. A return is acknowledged after it."),
        graph("Written", "ops", (rate("saltern_store_writes_total"), "changes"),
              (rate("saltern_store_commit_seconds_count"), "commits"),
              about="Changes and the commits they went in."),
        graph("Size", "bytes", ("sum by (what) (saltern_store_bytes{I})", "{{what}}"), stacked=True,
              about="The main file: rows, and room for new ones."),
        graph("Disk left", "bytes", ("min(saltern_store_free_bytes{I})", "left"),
              ("min(predict_linear(saltern_store_free_bytes{I}[1h], 86400))", "in a day, as it goes now"),
              about="What the job database can still take."),
        graph("Not stored", "ops", (rate("saltern_store_commits_failed_total"), "commits failed"),
              (rate("saltern_store_refused_total"), "requests refused"),
              ("max(saltern_store_read_only{I})", "1: the disk is full"),
              ("max(saltern_store_failing{I})", "1: the last commit failed"),
              ("max(saltern_store_restoring{I})", "1: the database was removed and is written anew"),
              about="Minions keep what was refused and send it again."),
        graph("Removed", "ops", (rate("saltern_store_rows_removed_total", "reason", zero=True), "{{reason}}"),
              about="Rows that need not be kept any longer."),
        graph("Audit trail", "ops", (rate("saltern_audit_rows_total", "door, verdict", zero=True), "{{door}} {{verdict}}"),
              (rate("saltern_audit_suppressed_total"), "refusals without a row"),
              about="Rows about who had the master do what; of unproved senders only some refusals have one."),
        graph("Checkpoint", "s", (quantile(0.99, "saltern_store_checkpoint_seconds") + " or vector(0)", "p99"),
              about="Checkpoints of the write-ahead log into the main file, beside the commits."),
    ],
    "Files for stock's tools, and others'": [
        graph("Job cache behind by", "none", ("max(saltern_mirror_lag_rows{I})", "rows"),
              about="Jobs and returns that are stored but not yet in stock's job cache."),
        graph("Job cache written", "ops", (rate("saltern_mirror_rows_total"), "rows"),
              about="Jobs and returns written as job-cache files."),
        graph("Git remotes", "s", (quantile(0.99, "saltern_remotes_seconds", "what") + " or vector(0)", "{{what}}"),
              about="How long a fetch of git remotes takes."),
    ],
}

STORAGE["Returners"] = [
    graph("Events for returners", "ops",
          (rate("saltern_event_return_events_total", "returner, result", zero=True), "{{returner}} {{result}}"),
          ("sum by (returner) (saltern_event_return_waiting{I}) or vector(0)", "waiting: {{returner}}"),
          about="event_return: events by result, and those that wait."),
    graph("Job caches elsewhere", "ops",
          (rate("saltern_job_cache_rows_total", "option, result", zero=True), "{{option}} {{result}}"),
          ("sum by (option) (saltern_job_cache_lag_rows{I}) or vector(0)", "behind by: {{option}}"),
          (rate("saltern_job_cache_changed_total", "option, change", zero=True), "values {{option}} {{change}}"),
          about="Jobs and returns for master_job_cache and ext_job_cache, those not given yet, and values that a SQL database could not take as they were."),
    graph("Old jobs from a SQL database", "ops",
          (rate("saltern_old_job_reads_total", "option, result", zero=True), "{{option}} {{result}}"),
          about="Questions for jobs that the job database no longer has, by result: failed ones were answered without old jobs, or with an error."),
    graph("Cluster of masters", "none",
          ("saltern_cluster_active{I}", "active: {{instance}}"),
          ("saltern_cluster_standbys{I}", "standbys seen by {{instance}}"),
          ("saltern_cluster_epoch{I}", "epoch of the lease, {{instance}}"),
          ("saltern_cluster_renewal_age_seconds{I}", "since the last renewal (s), {{instance}}"),
          ("sum (saltern_cluster_takeovers_total{I}) or vector(0)", "takeovers of running processes"),
          about="Roles in a cluster (saltern_cluster): which master is active, how many stand by, and the age of its lease. All are 0 without a cluster."),
    graph("Connections that members relay", "none",
          (rate("saltern_member_port_total", "outcome", zero=True), "{{outcome}} /s"),
          about="Connections to the member port of the active master, by what became of them. Those that are handed over count as its own in the panels of the ports, and as those of the relay on the member that stands by."),
    graph("Shared state of the cluster", "none",
          ("saltern_cluster_state_pending{I}", "waiting: {{instance}}"),
          (rate("saltern_cluster_state_written_total"), "written /s"),
          (rate("saltern_cluster_state_dropped_total"), "dropped /s"),
          about="Changes of session keys, the shared key and tokens for the other masters of a cluster. Dropped ones cost an authentication or a log-in after a takeover."),
    graph("Keys of minions in the cluster", "none",
          ("saltern_cluster_keys_pending{I}", "waiting: {{instance}}"),
          ("saltern_cluster_keys_demoted{I}", "accepted here only, pending: {{instance}}"),
          ("saltern_cluster_keys_age_seconds{I}", "since they were compared (s), {{instance}}"),
          (rate("saltern_cluster_keys_published_total"), "published /s"),
          (rate("saltern_cluster_keys_applied_total"), "applied /s"),
          (rate("saltern_cluster_keys_conflicts_total"), "changed on two members at once /s"),
          (rate("saltern_cluster_keys_refused_total"), "rows refused /s"),
          about="Keys of minions that each member of a cluster takes from the others and gives them. An age above some seconds means that a key which is deleted on another member still counts here. Refused rows were put back or made by somebody, or a clock is wrong."),
    graph("Grains and mines in the cluster", "none",
          ("saltern_cluster_data_pending{I}", "waiting: {{instance}}"),
          ("saltern_cluster_data_age_seconds{I}", "since they were compared (s), {{instance}}"),
          (rate("saltern_cluster_data_written_total"), "written /s"),
          (rate("saltern_cluster_data_applied_total"), "applied /s"),
          (rate("saltern_cluster_data_refused_total"), "rows refused /s"),
          (rate("saltern_cluster_data_too_large_total"), "too large /s"),
          (rate("saltern_cluster_data_damaged_total"), "damaged files /s"),
          about="Grains and mines of minions that the active member of a cluster writes for the others, and that these follow. An age above some seconds means that a takeover would target by older grains. Changes of one minion wait for up to a minute."),
    graph("Syndic: masters above", "none",
          ("sum by (master) (saltern_syndic_connected{I}) or vector(0)", "connected: {{master}}"),
          (rate("saltern_syndic_connection_failures_total", "master, reason", zero=True), "failures (1/s): {{master}} {{reason}}"),
          ("sum by (outbox) (saltern_syndic_lag_rows{I}) or vector(0)", "rows behind: {{outbox}}"),
          ("sum by (outbox) (saltern_syndic_lag_seconds{I}) or vector(0)", "oldest return (s): {{outbox}}"),
          about="Connections to the masters above, and what waits for them."),
    graph("Syndic: up and down", "ops",
          (rate("saltern_syndic_returns_total", "outbox", zero=True), "returns {{outbox}}"),
          (rate("saltern_syndic_frames_total", "outbox, result", zero=True), "frames {{outbox}} {{result}}"),
          (rate("saltern_syndic_returns_dropped_total", "outbox, reason", zero=True), "returns dropped {{outbox}} {{reason}}"),
          (rate("saltern_syndic_early_jobs_dropped_total", "master", zero=True), "early jobs dropped {{master}}"),
          (rate("saltern_syndic_publications_total", "master, result", zero=True), "publications {{master}} {{result}}"),
          (rate("saltern_syndic_events_total", "master, result", zero=True), "events {{master}} {{result}}"),
          (rate("saltern_syndic_verdicts_total", "master, result", zero=True), "verdicts {{master}} {{result}}"),
          (rate("saltern_syndic_verdicts_received_total", "result", zero=True), "verdicts from below {{result}}"),
          about="Returns and events that went up, returns that were dropped, and publications from above by what became of them."),
    graph("Syndic: inventories from below", "none",
          ("saltern_syndic_inventory_minions{I} or vector(0)", "minions"),
          ("saltern_syndic_inventory_minions_without_grains{I} or vector(0)", "without grains"),
          ("saltern_syndic_inventory_second_ways{I} or vector(0)", "second ways"),
          (rate("saltern_syndic_unannounced_returns_total", zero=True), "returns for others (1/s)"),
          (rate("saltern_syndic_inventories_forgotten_total", zero=True), "forgotten (1/s)"),
          about="Minions below syndics that these have announced (saltern_syndic_inventory), and returns for minions that they have not."),
    graph("Syndic: size of inventories", "bytes",
          ("saltern_syndic_inventory_bytes{I} or vector(0)", "grains"),
          about="Grains of the minions below syndics, packed."),
    graph("Time of a call", "s",
          (quantile(0.99, "saltern_event_return_seconds", "returner") + " or vector(0)", "{{returner}}"),
          about="One call of a returner with events, p99."),
]

DASHBOARDS = {
    "overview": ("Saltern: overview", OVERVIEW),
    "jobs": ("Saltern: jobs", JOBS),
    "workers": ("Saltern: workers and queues", WORKERS),
    "bus": ("Saltern: event bus", BUS),
    "minions": ("Saltern: minions", MINIONS),
    "reactor": ("Saltern: reactor and engines", REACTOR),
    "storage": ("Saltern: storage", STORAGE),
}

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def field_config(panel):
    custom = {}
    if panel["type"] == "timeseries":
        custom = {
            "lineWidth": 1,
            "fillOpacity": 30 if panel["stacked"] else 8,
            "showPoints": "never",
            "stacking": {"mode": "normal" if panel["stacked"] else "none", "group": "A"},
        }
    steps = [{"color": "green", "value": None}]
    if panel.get("bad") is not None:
        steps.append({"color": "red", "value": panel["bad"]})
    defaults = {
        "unit": panel["unit"],
        "min": 0 if panel["type"] == "timeseries" else None,
        "custom": custom,
        "thresholds": {"mode": "absolute", "steps": steps},
    }
    return {"defaults": {k: v for k, v in defaults.items() if v not in (None, {})}, "overrides": []}


def options(panel):
    if panel["type"] == "stat":
        return {
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "colorMode": "value",
            "graphMode": "none",
        }
    return {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def panel_json(number_of, panel, x, y):
    width, height = panel["size"]
    targets = []
    for index, (expression, legend) in enumerate(panel["queries"]):
        targets.append({
            "refId": chr(ord("A") + index),
            "datasource": DATASOURCE,
            "expr": expression.replace("{I", '{instance=~"$instance"'),
            "legendFormat": legend,
            "range": True,
        })
    return {
        "id": number_of,
        "type": panel["type"],
        "title": panel["title"],
        "description": panel["about"],
        "datasource": DATASOURCE,
        "gridPos": {"x": x, "y": y, "w": width, "h": height},
        "fieldConfig": field_config(panel),
        "options": options(panel),
        "targets": targets,
    }


def lay_out(rows):
    """Panels from left to right, row by row, each row under its own heading."""
    panels, y = [], 0
    for title, row in rows.items():
        heading = {"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False,
                   "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1}, "panels": []}
        panels.append(heading)
        x, y, tallest = 0, y + 1, 0
        for panel in row:
            width, height = panel["size"]
            if x + width > WIDTH:
                x, y, tallest = 0, y + tallest, 0
            panels.append(panel_json(len(panels) + 1, panel, x, y))
            x, tallest = x + width, max(tallest, height)
        y += tallest
    return panels


def variables():
    return [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
        {
            "name": "instance",
            "label": "Master",
            "type": "query",
            "datasource": DATASOURCE,
            "query": "label_values(saltern_build_info, instance)",
            "refresh": 2,
            "includeAll": True,
            "multi": True,
            "allValue": ".*",
            "current": {"selected": True, "text": "All", "value": "$__all"},
        },
    ]


def dashboard(name, title, rows):
    links = [{"type": "dashboards", "title": "Saltern", "tags": ["saltern"], "asDropdown": True,
              "includeVars": True, "keepTime": True, "targetBlank": False, "icon": "", "tooltip": "",
              "url": ""}]
    return {
        "uid": f"saltern-{name}",
        "title": title,
        "tags": ["saltern"],
        "schemaVersion": 38,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "links": links,
        "templating": {"list": variables()},
        "panels": lay_out(rows),
    }


def main():
    check = sys.argv[1:] == ["--check"]
    stale = []
    for name, (title, rows) in DASHBOARDS.items():
        text = json.dumps(dashboard(name, title, rows), indent=1, ensure_ascii=False) + "\n"
        path = HERE / f"{name}.json"
        if not check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(path.name)
    known = {f"{name}.json" for name in DASHBOARDS}
    stale += [path.name for path in HERE.glob("*.json") if path.name not in known]
    if stale:
        sys.exit(f"run grafana/dashboards.py: {', '.join(sorted(set(stale)))} are not what it writes")


if __name__ == "__main__":
    main()
