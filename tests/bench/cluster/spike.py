#!/usr/bin/env python3
"""Measures what a cluster of masters on one PostgreSQL could reach on this machine, before one is built.

`tests/bench/cluster/spike.py [--seconds N] [--out FILE]`: starts a PostgreSQL of Debian on a socket of
its own, alone and with a synchronous standby, and has `saltern-lab bench-cluster` write and follow: by
size of groups, by number of masters, with and without ticks. Everything shares the cores of this machine:
both servers, all writers and all followers. Prints a table and writes the rows as JSON.

Needs `make lab` and `tests/install-stock.sh --databases`. What it found stands in docs/decisions.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from databases import Postgres, run  # noqa: E402
from results import ROOT  # noqa: E402
from run import LAB, wait_for  # noqa: E402

# `synchronous_commit` without a standby, and with one that has flushed, or applied, what is acknowledged.
STANDBYS = {"none": None, "flushed": "on", "applied": "remote_apply"}


@contextlib.contextmanager
def servers(top, standby):
    """A primary, and a standby that it waits for where there shall be one."""
    primary = Postgres(top / "primary")
    primary.make()
    primary.start()
    running = [primary]
    try:
        if STANDBYS[standby]:
            second = Postgres(top / "standby", {"hot_standby": "on"})
            run(
                "pg_basebackup", "-h", primary.directory, "-U", "salt", "-D", second.directory / "data",
                "-R", "-X", "stream", "-c", "fast",
            )
            with open(second.directory / "data/postgresql.auto.conf", "a") as options:
                options.write(
                    f"primary_conninfo = 'host={primary.directory} user=salt application_name=second'\n"
                )
            second.start()
            running.append(second)
            primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'second'")
            primary.sql(f"ALTER SYSTEM SET synchronous_commit = '{STANDBYS[standby]}'")
            primary.sql("SELECT pg_reload_conf()")
            state = "SELECT sync_state FROM pg_stat_replication"
            wait_for("the standby", lambda: primary.sql(state) == "sync", 60)
            wait_for("the option", lambda: primary.sql("SHOW synchronous_commit") == STANDBYS[standby], 60)
        yield running
    finally:
        for server in reversed(running):
            server.stop()


def trials():
    """Arguments of the trials: what is reached, by groups; then latencies at a stated rate."""
    for group in (16, 64, 256, 1024):
        yield {"masters": 3, "group": group, "rate": 0, "tick": 0, "poll": 5}
    for masters in (1, 3, 8):
        yield {"masters": masters, "group": 16, "rate": 2000, "tick": 0, "poll": 5}
        yield {"masters": masters, "group": 16, "rate": 2000, "tick": 5, "poll": 200}
    yield {"masters": 3, "group": 64, "rate": 5000, "tick": 5, "poll": 200}


def measure(running, trial, seconds):
    before = sum(server.cpu() for server in running)
    command = [str(LAB), "bench-cluster", "--postgres", f"host={running[0].directory} user=salt dbname=postgres"]
    for name, value in (trial | {"seconds": seconds}).items():
        command += [f"--{name}", str(value)]
    begun = os.times()
    line = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    ended = os.times()
    found = json.loads(line)
    spent = sum(server.cpu() for server in running) - before
    returns = max(found["returns"], 1)
    found["database_us_a_return"] = round(spent * 1e6 / returns, 1)
    used = ended.children_user + ended.children_system - begun.children_user - begun.children_system
    found["masters_us_a_return"] = round(used * 1e6 / returns, 1)
    return trial | found


COLUMNS = [
    "standby", "masters", "group", "rate", "tick", "returns_per_second", "commits_per_second",
    "commit_ms", "seen_ms", "log_bytes_a_return", "database_us_a_return", "masters_us_a_return", "takeover_ms",
]


def shown(value):
    return f"{value['p50']} / {value['p99']}" if isinstance(value, dict) else str(value)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "target/cluster-spike.json")
    options = parser.parse_args()
    rows = []
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
    for standby in STANDBYS:
        top = pathlib.Path(tempfile.mkdtemp(prefix="spike-", dir="/tmp"))
        try:
            with servers(top, standby) as running:
                for trial in trials():
                    row = {"standby": standby} | measure(running, trial, options.seconds)
                    rows.append(row)
                    print("| " + " | ".join(shown(row[name]) for name in COLUMNS) + " |", flush=True)
        finally:
            shutil.rmtree(top, ignore_errors=True)
    options.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
