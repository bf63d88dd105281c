#!/usr/bin/env python3
"""Watches whether our master grows with everything on: `make soak`, `tests/bench/soak.py [--minutes 44]`.

A swarm of minions returns at a steady rate; jobs, batches, hooks that the reactor answers, a schedule,
streams of the API and pages of the console go on beside it (soak_load.py), a PostgreSQL server follows,
old jobs expire, and the master is killed and started anew. Memory (PSS), descriptors, threads, disk and
the time of a `test.ping` are read every few seconds. After the warm-up of each life of the master, in
which caches fill and the first jobs expire, a straight line is laid through them (slopes.py). The exit
code is 1 when a slope is surely more than it may be, by twice its error; memory, descriptors and
threads may grow by a tenth of what Salt's own nightly test allows (`tests/monitoring/analyze_stats.py`).

Needs `make lab` and `tests/install-stock.sh --databases`.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import results
from databases import PASSWORD, Postgres, started
from report import write_soak_svg
from run import SALTERN, Master, free_port, machine, wait_for
from slopes import slope
from soak_load import configuration, loads, start_swarm

# Title, unit of the picture, its share of the unit sampled, and what the slope may be at most, a second
# in the unit sampled.
SERIES = {
    "pss_kb": ("Memory (PSS)", "MB", 1 / 1024, 1.0),
    "descriptors": ("Open descriptors", "", 1, 0.001),
    "threads": ("Threads, pools aside", "", 1, 0.0001),
    "pool_threads": ("Threads of pools", "", 1, 0.002),
    "disk_kb": ("Files of the master", "MB", 1 / 1024, 20.0),
    "ping_ms": ("test.ping over the API, median", "ms", 1, 0.002),
}
SAMPLE_SECONDS = 5
# How long jobs are kept: well within the warm-up, so that as much goes as comes.
KEEP_SECONDS = 240


class Plain:
    """A site with nothing but a directory."""

    def __init__(self, top):
        self.top = top

    def options(self):
        return (
            f"keep_jobs_seconds: {KEEP_SECONDS}\n"
            "loop_interval: 10\n"
            # A file a return would measure the disk.
            "local_cache_mirror: loads\n"
        )


def followed_by(server):
    """The options of a master whose jobs PostgreSQL has, too."""
    values = {"host": str(server.directory), "user": "salt", "pass": PASSWORD, "db": "salt"}
    named = {f"returner.pgjsonb.{name}": value for name, value in values.items()}
    return {"master_job_cache": "pgjsonb"} | named


def metrics(master):
    """The sum of the series of each metric."""
    with urllib.request.urlopen(f"http://127.0.0.1:{master.metrics_port}/metrics", timeout=60) as page:
        lines = page.read().decode().splitlines()
    sums = {}
    for line in lines:
        if not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            name = series.partition("{")[0]
            sums[name] = sums.get(name, 0.0) + float(value)
    return sums


def disk(directory):
    """Bytes of the files below a directory; one that is removed meanwhile does not count."""
    total = 0
    for root, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += os.stat(os.path.join(root, name)).st_blocks * 512
    return total


def threads(process):
    """How many threads a process has of each name; numbers at the end do not count."""
    names = collections.Counter()
    for thread in os.listdir(f"/proc/{process}/task"):
        # It may end meanwhile.
        with contextlib.suppress(OSError):
            name = pathlib.Path(f"/proc/{process}/task/{thread}/comm").read_text().rstrip("\n")
            names[re.sub(r"-?\d+(?=-pool$|$)", "", name)] += 1
    return names


def is_pool(name):
    """Whether threads of this name are of a pool for work that blocks: it has as many as calls ever blocked
    at once, and keeps each that is not idle for ten seconds (src/supervise/src/thread.rs)."""
    return name.endswith("-pool") or name == "tokio-rt-worker"


def sample(master, life, times):
    """What the master is at a moment, and how long pings took since the last one."""
    process = master.process.pid
    names = threads(process)
    pooled = sum(count for name, count in names.items() if is_pool(name))
    return {
        "seconds": time.monotonic(),
        "life": life,
        "pss_kb": master.pss() / 1024,
        "descriptors": len(os.listdir(f"/proc/{process}/fd")),
        "threads": sum(names.values()) - pooled,
        "pool_threads": pooled,
        "names": names,
        "disk_kb": disk(master.dir / "cache") / 1024,
        "ping_ms": statistics.median(times) if times else None,
    }


class Soak:
    """A run: the master, the loads, and what is seen of them."""

    def __init__(self, master, port, options):
        self.master, self.options = master, options
        self.loads = loads(master, port, options)
        self.pings = next(load for load in self.loads if load.name == "pings")
        self.samples, self.life, self.counted = [], 0, {}
        self.before = metrics(master)

    def run(self):
        """Runs to the end; afterwards no load begins anything new."""
        try:
            return self.watch()
        finally:
            for load in self.loads:
                load.over.set()

    def watch(self):
        for load in self.loads:
            load.start()
        began = time.monotonic()
        kills = self.kills(began)
        while time.monotonic() < began + 60 * self.options.minutes:
            if self.master.process.poll() is not None:
                sys.exit("the master ended:\n" + (self.master.dir / "output").read_text()[-4000:])
            if kills and time.monotonic() >= kills[0]:
                kills.pop(0)
                self.kill()
            self.samples.append(sample(self.master, self.life, self.pings.taken()))
            time.sleep(SAMPLE_SECONDS)
        self.count()
        return time.monotonic() - began

    def kills(self, began):
        """When the master is killed: all in the first half, so that its last life is a long one."""
        apart = 30 * self.options.minutes / (self.options.kills + 1)
        return [began + apart * (number + 1) for number in range(self.options.kills)]

    def kill(self):
        self.count()
        self.master.kill()
        self.master.start()
        bus = self.master.dir / "run/master_event_pub.ipc"
        wait_for("the master to serve again", lambda: self.master.serves(bus))
        self.life += 1
        self.before = {}
        print(f"  killed with -9 and started again: life {self.life + 1}", flush=True)

    def count(self):
        """Adds what this life of the master counted."""
        for name, value in metrics(self.master).items():
            grown = value - self.before.get(name, 0.0)
            self.counted[name] = self.counted.get(name, 0.0) + grown


def judge(samples, options):
    """Slope and error of each series after the warm-ups; prints them beside what they may be."""
    found = {}
    for name, (title, unit, share, gate) in SERIES.items():
        lives = settled(samples, name, options.warm_up)
        rise, error = slope(lives)
        surely = rise - 2 * error > gate
        verdict = "TOO MUCH" if surely else "ok" if rise + 2 * error <= gate else "ok, not surely"
        hour = 3600 * share
        found[name] = {"per_hour": rise * hour, "error": 2 * error * hour, "is_too_much": surely}
        print(
            f"{title}: {lives[-1][0][1] * share:.1f} -> {lives[-1][-1][1] * share:.1f} {unit}, "
            f"{rise * hour:+.2f} ± {2 * error * hour:.2f} {unit}/h, at most {gate * hour:.2f}: {verdict}"
        )
    return found


def tell_threads(samples):
    """Prints by name how many threads the last life of the master had, where that changed."""
    last = [one["names"] for one in samples if one["life"] == samples[-1]["life"]]
    for name in sorted(set().union(*last)):
        counts = [names.get(name, 0) for names in last]
        tenth = len(counts) // 10 or 1
        begin, end = statistics.mean(counts[:tenth]), statistics.mean(counts[-tenth:])
        if min(counts) != max(counts):
            print(f"  threads {name}: {begin:.1f} -> {end:.1f}, {min(counts)} to {max(counts)}")


def settled(samples, name, warm_up):
    """The samples of each life after its warm-up, as (seconds, value)."""
    lives = {}
    for one in samples:
        lives.setdefault(one["life"], []).append(one)
    found = []
    for life in lives.values():
        begin = life[0]["seconds"] + 60 * warm_up
        late = [(one["seconds"], one[name]) for one in life if one["seconds"] >= begin]
        late = [point for point in late if point[1] is not None]
        if len(late) >= 10:
            found.append(late)
    if not found:
        sys.exit(f"too little time after the warm-up for {name}")
    return found


def tell(soak, seconds):
    """Prints what was done meanwhile."""
    for load in soak.loads:
        seen = getattr(load, "events", getattr(load, "refreshes", None))
        more = "" if seen is None else f", {seen} seen"
        last = "" if load.last_failure is None else f" (last: {load.last_failure!r:.200})"
        print(f"  {load.name}: {load.done} done, {load.failed} failed{last}{more}")
    for name in ("saltern_returns_total", "saltern_bus_events_total", "saltern_reactions_total"):
        if name in soak.counted:
            print(f"  {name}: {soak.counted[name] / seconds:.1f}/s")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=44)
    parser.add_argument("--warm-up", type=float, default=14, help="minutes of each life that do not count")
    parser.add_argument("--minions", type=int, default=500)
    parser.add_argument("--rate", type=int, default=2000, help="returns a second")
    parser.add_argument("--streams", type=int, default=10, help="streams of events")
    parser.add_argument("--kills", type=int, default=1, help="of the master, with -9")
    parser.add_argument("--lenient", action="store_true", help="exit with 0 whatever the slopes are")
    parser.add_argument("--samples", type=pathlib.Path, help="also write the samples here (JSON)")
    parser.add_argument("--picture", type=pathlib.Path, help="also draw them here (SVG)")
    return parser.parse_args()


def watch(top, server, options):
    """The finished run, and how many seconds it took."""
    port = free_port()
    more = configuration(top, port) | followed_by(server)
    lines = [f"{name}: {json.dumps(value)}\n" for name, value in more.items()]
    with Master("saltern", Plain(top), "".join(lines)) as master:
        with start_swarm(master, options):
            soak = Soak(master, port, options)
            seconds = soak.run()
    for load in soak.loads:
        load.end()
    return soak, seconds


def stop(*_):
    """Leaves as at an error, with all that was started stopped; a second signal does not break that off."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit("stopped")


def main():
    options = arguments()
    signal.signal(signal.SIGTERM, stop)
    results.raise_descriptor_limit()
    with tempfile.TemporaryDirectory(prefix="slt-soak-", dir="/tmp") as top:
        top = pathlib.Path(top)
        with started(Postgres(top / "server")) as server:
            server.sql("CREATE DATABASE salt")
            make_tables(top, server)
            soak, seconds = watch(top, server, options)
    if options.samples:
        options.samples.write_text(json.dumps(soak.samples))
    print(f"{options.minutes:g} minutes, {options.rate} returns/s, {options.kills} kills")
    tell(soak, seconds)
    tell_threads(soak.samples)
    found = judge(soak.samples, options)
    if options.picture:
        write_soak_svg(soak.samples, SERIES, found, machine(), options.picture)
    sys.exit(not options.lenient and any(series["is_too_much"] for series in found.values()))


def make_tables(top, server):
    """The tables as `saltern sql create` makes them."""
    directory = top / "tables"
    directory.mkdir()
    lines = [f"{name}: {json.dumps(value)}\n" for name, value in followed_by(server).items()]
    (directory / "master").write_text("".join(lines))
    subprocess.run([SALTERN, "sql", "create", "-c", directory], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    os.umask(0o077)
    main()
