#!/usr/bin/env python3
"""Kills the masters of a tree of three levels at random under load, and has chaos_history.py compare what clients
and minions saw with what the top has stored in the end.

`make tree-chaos [KILLS=n] [JOBS=n] [MINIONS=n] [FRAMES=1] [SEED=n]`. One master at the top, two syndics below it, one
below each of these, and native minions below the four of them. A client at the top publishes jobs for all in a row.
Which master is killed (-9), and the pauses, follow from the seed, which is printed. In the end everything that was
acknowledged to a minion is stored at the top, once, and a job is complete exactly when all its minions have returned.
Exit code 1: there are anomalies, which are printed and kept with the histories.

Needs `make lab` and `tests/install-stock.sh`.
"""

import argparse
import contextlib
import pathlib
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

import chaos_history
from chaos import GATHER, LIMIT, TIMEOUT, History, digests, note_publication, report, start_swarm
from run import SALTERN, wait_for
from results import raise_descriptor_limit
from syndic import Alone, Place, metric, write_identity

# Each level names the one above.
TREE = {"top": None, "middle-a": "top", "middle-b": "top", "low-a": "middle-a", "low-b": "middle-b"}
# A job that misses a minion is closed after this time, so that the run ends.
JOB_TIMEOUT = 20
STATES = ("open", "complete", "expired", "killed")


def options_of(upper, frames):
    options = {
        "order_masters": True, "saltern_syndic_inventory": True, "saltern_syndic_frames": frames,
        "timeout": TIMEOUT, "gather_job_timeout": GATHER, "saltern_job_timeout": JOB_TIMEOUT,
        "saltern_max_connections_per_address": 0,
    }
    if upper:
        options |= {"syndic_master": f"127.0.0.1:{upper.ret_port}", "syndic_failover": "ordered"}
    return "".join(f"{name}: {value}\n" for name, value in options.items())


class Tree:
    def __init__(self, top, frames):
        place, self.masters = Place(top), {}
        for number, (name, above) in enumerate(TREE.items()):
            master = Alone("saltern", place, options_of(self.masters.get(above), frames))
            if above:
                write_identity(master, name, f"127.0.0.{number + 2}", retry=5)
            self.masters[name] = master

    @property
    def top(self):
        return self.masters["top"]

    @property
    def syndics(self):
        return [master for name, master in self.masters.items() if TREE[name]]

    def start(self, master):
        master.start()
        bus = master.dir / "run/master_event_pub.ipc"
        wait_for("a master to serve", lambda: master.serves(bus), LIMIT)

    def is_idle(self):
        """Whether each syndic is connected, and nothing waits to go up."""
        with contextlib.suppress(OSError):
            is_up = lambda it: metric(it, "saltern_syndic_connected") == 1 and metric(it, "saltern_syndic_lag_rows") == 0
            return all(map(is_up, self.syndics))
        return False

    def stop(self):
        for master in self.masters.values():
            if master.process:
                master.kill()


def rows(master, statement):
    path = master.dir / "cache/saltern/jobs.sqlite"
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        return database.execute(statement).fetchall()


def stored(top, jids):
    """What the top has stored of these jobs, in the form of the checker."""
    found = rows(top, "SELECT jid, minion, hex(load) FROM returns")
    returns = digests("".join("|".join(row) + "\n" for row in found))
    states = {jid: STATES[state] for jid, state in rows(top, "SELECT jid, state FROM jobs") if jid in jids}
    expected = {jid: [] for jid in states}
    for jid, minion in rows(top, "SELECT jid, minion FROM expected"):
        if jid in expected:
            expected[jid].append(minion)
    return {
        "returns": returns,
        # When each job had its verdict is not judged here.
        "jobs": {jid: None if state == "open" else 0 for jid, state in states.items()},
        "verdicts": {jid: (state, expected[jid]) for jid, state in states.items()},
    }


def publish(top, options, history, stop, killed):
    """Publishes jobs one after the other, spread over all kills; whether one without an answer was published is not
    known."""
    for number in range(options.jobs):
        while len(killed) * options.jobs < number * options.kills and not stop.is_set():
            stop.wait(0.1)
        command = [SALTERN, "cmd", "-c", top.dir / "conf", "--async", "*", "test.echo", f"job {number}"]
        began = time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            note_publication(subprocess.run(command, capture_output=True, text=True, timeout=60), began, history)
        stop.wait(0.5)


def kill_at_random(tree, options, rng, history, killed):
    for number in range(1, options.kills + 1):
        time.sleep(rng.random() * 2)
        name = rng.choice(list(TREE))
        history.note("fault", kind=f"kill {name}")
        print(f"{number} of {options.kills}: {name}", flush=True)
        tree.masters[name].kill()
        killed.append(name)
        # Mostly at once, as systemd would; sometimes others have to wait for it.
        time.sleep(rng.choice((0, 0, rng.random() * 5)))
        tree.start(tree.masters[name])


def settle(tree, jids):
    """Waits until everything has gone up and each job has its verdict; what has none by then is an anomaly."""
    end, quiet = time.monotonic() + LIMIT, 0
    while time.monotonic() < end and quiet < 3:
        is_open = {jid for (jid,) in rows(tree.top, "SELECT jid FROM jobs WHERE state = 0")}
        quiet = quiet + 1 if tree.is_idle() and not is_open & jids else 0
        time.sleep(0.5)


def published(history):
    return {line["jid"] for line in chaos_history.read(history.path) if line["what"] == "published"}


def run(tree, options, rng, top):
    history, stop = History(top / "clients.history"), threading.Event()
    histories, swarms, killed = [history.path], [], []
    for master in tree.masters.values():
        tree.start(master)
    wait_for("the syndics", tree.is_idle, LIMIT)
    try:
        for name, master in tree.masters.items():
            if TREE[name]:
                histories.append(top / f"{name}.history")
                minions = max(1, options.minions // len(tree.syndics))
                swarms.append(start_swarm(master.ret_port, minions, histories[-1], "--prefix", name))
        client = threading.Thread(target=publish, args=(tree.top, options, history, stop, killed), daemon=True)
        client.start()
        kill_at_random(tree, options, rng, history, killed)
        # The last jobs meet a whole tree.
        client.join(LIMIT + options.jobs)
        jids = published(history)
        settle(tree, jids)
        lines = [line for path in histories for line in chaos_history.read(path)]
        anomalies = report(lines, stored(tree.top, jids))
        verdicts = [state for state, _ in stored(tree.top, jids)["verdicts"].values()]
        print("verdicts:", {state: verdicts.count(state) for state in sorted(set(verdicts))}, flush=True)
        return anomalies
    finally:
        stop.set()
        for swarm in swarms:
            swarm.kill()
            swarm.wait()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("kills", 20), ("jobs", 60), ("minions", 200)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--frames", action="store_true", help="returns go up in frames")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    return parser.parse_args()


def main():
    options = arguments()
    raise_descriptor_limit()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="tree-chaos-", dir="/tmp") as top:
        top, anomalies = pathlib.Path(top), ["the run did not end"]
        tree = Tree(top, options.frames)
        try:
            anomalies = run(tree, options, random.Random(options.seed), top)
        finally:
            tree.stop()
            if anomalies:
                kept = pathlib.Path(f"target/tree-chaos-{options.seed}")
                shutil.copytree(top, kept, dirs_exist_ok=True, ignore=shutil.ignore_patterns("pki", "run"))
                print(f"histories, databases and logs are in {kept}", flush=True)
    return 1 if anomalies else 0


if __name__ == "__main__":
    sys.exit(main())
