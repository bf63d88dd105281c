#!/usr/bin/env python3
"""Measures a master of a cluster on PostgreSQL beside one on SQLite, and beside stock's, in one run.

`make bench`, or `tests/bench/member.py [--only saltern]`. PostgreSQL of Debian shares the cores with
everything else; once alone, once with a synchronous standby that does, too. The load is that of run.py.
Processor time is that of the master and of the database, for each thing done. Then the active of two
masters is killed, and the other one takes over.
Results: `member` in results.json, and the figures `member_…` of ours; they are printed.

Needs `make lab` and `tests/install-stock.sh`.
"""

import argparse
import contextlib
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import results
from databases import PASSWORD, Postgres, run, started
from run import SALTERN, STOCK_VERSION, Master, machine, put_load, wait_for

# Seconds: the default, and a short one for takeovers, when nothing else is under way. Under load a renewal
# waits for the disk and the cores as everything does.
LEASE = 15
SHORT_LEASE = 6

# Returns a second while publications are measured: what a cluster is to reach, and what stock's master can do.
RATE, STOCK_RATE = 5_000, 100

# Of a phase.
MEASURED = ("per_second", "p50_ms", "p99_ms", "returns_per_second", "delivery_p50_ms", "delivery_p99_ms")


class Place:
    """What `Master` wants of a site: a directory, and the options of every master here."""

    def __init__(self, top):
        self.top = top

    def options(self):
        return ""


class Standby(Postgres):
    """A copy of a primary, which confirms each commit of it."""

    def __init__(self, directory, primary):
        super().__init__(directory)
        self.primary = primary

    def make(self):
        data = self.directory / "data"
        run("pg_basebackup", "-D", data, "-R", "-c", "fast", "-h", self.primary.directory, "-U", "salt")

    def is_synchronous(self):
        return self.primary.sql("SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == "1"


@contextlib.contextmanager
def standby_of(primary, directory):
    with started(Standby(directory, primary)) as standby:
        primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
        primary.sql("SELECT pg_reload_conf()")
        wait_for("the standby", standby.is_synchronous)
        yield standby


def options_of(server, name, lease):
    connection = f"host={server.directory} user=salt password={PASSWORD} dbname=salt"
    return f"id: {name}\nsaltern_cluster: {{postgres: '{connection}', lease: {lease}}}\n"


class Member(Master):
    """The only master of a cluster; its processor time is also that of the databases."""

    def __init__(self, place, server, databases, name="a", lease=LEASE):
        super().__init__("saltern", place, options_of(server, name, lease))
        self.databases = databases

    def cpu(self):
        return super().cpu() + sum(server.cpu() for server in self.databases)


def make_cluster(server, master):
    server.sql("DROP DATABASE IF EXISTS salt WITH (FORCE)")
    server.sql("CREATE DATABASE salt")
    command = [SALTERN, "cluster", "init", "-c", master.dir / "conf"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def measure(master, options, rate=RATE):
    """Figures of a master under load, with processor time for each thing done."""
    arguments = ["--minions", options.minions, "--seconds", options.seconds, "--phases", "auth,returns,jobs,publish"]
    arguments += ["--returns-per-second", rate]
    with master:
        phases = put_load(master, arguments)
    found = {}
    for phase, measured in phases.items():
        for name in MEASURED:
            if name in measured:
                found[f"{phase}_{name}"] = measured[name]
        if measured.get("done"):
            found[f"{phase}_cpu_ms"] = 1000 * measured["master_cpu_seconds"] / measured["done"]
    return found


def takeovers(place, server, options):
    """Seconds from a kill until the other master serves."""
    times = []
    for turn in range(options.kills):
        first = Member(place, server, [], "a", options.lease)
        make_cluster(server, first)
        second = Member(place, server, [], "b", options.lease)
        # It has the same keys.
        (second.dir / "pki").symlink_to(first.dir / "pki")
        with first:
            second.start()
            state = lambda: server.sql("SELECT count(*) FROM saltern.member WHERE role = 'standby'", "salt")
            wait_for("the standby", lambda: state() == "1")
            # At different times after a renewal.
            time.sleep(options.lease / 6 * turn / options.kills)
            first.kill()
            began = time.monotonic()
            bus = second.dir / "run/master_event_pub.ipc"
            wait_for("the takeover", lambda: second.serves(bus))
            times.append(time.monotonic() - began)
        second.kill()
    return {"median_seconds": statistics.median(times), "worst_seconds": max(times), "lease_seconds": options.lease}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minions", type=int, default=1_000)
    parser.add_argument("--seconds", type=int, default=10, help="how long each load lasts")
    parser.add_argument("--kills", type=int, default=5, help="takeovers")
    parser.add_argument("--lease", type=int, default=SHORT_LEASE, help="seconds, for takeovers")
    parser.add_argument("--parts", default="stock,sqlite,postgresql", help="only these; nothing is written then")
    results.add_arguments(parser, only=("saltern",))
    return parser.parse_args()


def main():
    options = arguments()
    results.raise_descriptor_limit()
    record = results.load(options.out, STOCK_VERSION)
    found = {}

    def keep(name, figures):
        print(f"{name}: {figures}", flush=True)
        found[name] = figures

    with tempfile.TemporaryDirectory(prefix="member-", dir="/tmp") as top:
        place = Place(pathlib.Path(top))
        parts = options.parts.split(",")
        if "stock" in parts and not options.only:
            keep("stock", measure(Master("stock", place), options, STOCK_RATE))
        if "sqlite" in parts:
            keep("sqlite", measure(Master("saltern", place), options))
        with started(Postgres(place.top / "primary")) as primary:
            member = Member(place, primary, [primary])
            make_cluster(primary, member)
            keep("postgresql", measure(member, options))
            keep("takeover", takeovers(place, primary, options))
            with standby_of(primary, place.top / "standby") as standby:
                member = Member(place, primary, [primary, standby])
                make_cluster(primary, member)
                keep("postgresql_and_standby", measure(member, options))
                # It waits for no standby that is gone.
                primary.sql("ALTER SYSTEM RESET synchronous_standby_names")
                primary.sql("SELECT pg_reload_conf()")
    if options.only or len(parts) < 3:
        return
    record["member"] = found | {"minions": options.minions, "machine": machine(), "load": os.getloadavg()[0]}
    results.write(record, options.out)


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main())
