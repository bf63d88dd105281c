#!/usr/bin/env python3
"""Measures stock's command line and ours beside each other: time and peak memory of whole processes.

Both talk to the same master, one of ours, so that the figures differ by the command alone:
`salt one test.ping` of a native and of a stock minion, `salt '*' test.ping` of 1,000 and of 9,000
native minions, `salt-key -L` of 100,000 keys, `salt-run jobs.list_jobs` of 100,000 jobs, and
`salt --help`. What stock has no command for is measured alone: `saltern minions` of 20,000 minions
whose cached grains a master that has just started has yet to read, and the completion of words.

`make bench` runs it last and adds what it found to results.*. Alone:
`tests/bench/cli.py [--minions N] [--many N] [--keys N] [--jobs N] [--fleet N] [--rounds N]
[--only saltern] [--out DIR]`.
"""

import argparse
import contextlib
import ctypes
import os
import pathlib
import re
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

import results
from run import LAB, SALTERN, STOCK, STOCK_VERSION, Master, machine, wait_for
from storm import Place
from store import fill, put_keys

COMMANDS = ["salt", "salt-key", "salt-run"]

# Commands that take longer are run once: they are stock's, by a thousand times.
LONG = 2.0

# The jobs that are listed are older than a master keeps any. The ping of all of a large fleet takes
# stock's command longer than it waits by default.
OPTIONS = "keep_jobs_seconds: 0\ntimeout: 60\n"

PR_SET_CHILD_SUBREAPER = 36


class Programs:
    """The commands of one kind in a directory: stock's as they are, ours by links to one binary."""

    def __init__(self, kind, top, version=STOCK_VERSION):
        self.kind = kind
        self.dir = STOCK / version / "bin"
        if kind == "saltern":
            self.dir = top / "commands"
            self.dir.mkdir()
            for name in COMMANDS:
                (self.dir / name).symlink_to(SALTERN.resolve())

    def command(self, name, master, *words):
        return [self.dir / name, "-c", master.dir / "conf", *map(str, words)]


class Failed(Exception):
    """A command that ended with an error, or printed too little."""


def run_once(command, output):
    """Runs a command with its output into a file; its peak memory in bytes and its time in seconds.

    The kernel counts to the peak of a process what the one had that forked it, and this one is as
    large as what is measured. A shell forks it, then, and ends; its child becomes ours.
    """
    words = ["sh", "-c", '"$@" </dev/null >"$0" & echo $!', output, *command]
    began = time.perf_counter()
    shell = subprocess.run(words, check=True, stdout=subprocess.PIPE)
    _, status, usage = os.wait4(int(shell.stdout), 0)
    took = time.perf_counter() - began
    code = os.waitstatus_to_exitcode(status)
    if code != 0:
        raise Failed(f"{' '.join(map(str, command))} ended with {code}")
    return usage.ru_maxrss * 1024, took


def time_once(command):
    began = time.perf_counter()
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def measure(name, command, rounds, expected=None):
    """The median time of a command, and its peak memory. `expected` is what a function finds in its
    output, and how much of it there must be."""
    with tempfile.TemporaryDirectory() as top:
        output = pathlib.Path(top) / "output"
        memory, took = run_once(command, output)
        text = output.read_text()
    if expected is not None and (found := expected[0](text)) != expected[1]:
        raise Failed(f"{name}: {found} of {expected[1]} in the output of {command}: {text[:2000]}")
    times = [took] if took > LONG else [time_once(command) for _ in range(rounds)]
    found = {f"cli_{name}_ms": 1000 * statistics.median(times), f"cli_{name}_megabytes": memory / 1e6}
    print(f"    {name}: {found}", flush=True)
    return found


def pings(count):
    return (lambda text: text.count("True"), count)


@contextlib.contextmanager
def running(master):
    """The master without the listeners of other benches."""
    master.start()
    try:
        wait_for("the master", lambda: master.serves(master.dir / "run/master_event_pub.ipc"))
        yield master
    finally:
        master.kill()


SUBSCRIBERS = re.compile(
    r'^saltern_port_connections\{listener="publish",state="open",transport="zeromq"\} (\d+)', re.M
)


def subscribers(master):
    """The minions that hear what our master publishes; `None` for a master that does not count them."""
    if master.kind != "saltern":
        return None
    address = f"http://127.0.0.1:{master.metrics_port}/metrics"
    with urllib.request.urlopen(address) as answer:
        found = SUBSCRIBERS.search(answer.read().decode())
    return int(found[1]) if found else 0


@contextlib.contextmanager
def swarm(master, prefix, minions, *more):
    """So many native minions that hear what is published; `more` are arguments of their program."""
    before = subscribers(master)
    address = f"127.0.0.1:{master.ret_port}"
    command = [LAB, "swarm", "--prefix", prefix, "--minions", str(minions), "--master", address, *map(str, more)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        if b"signed in" not in process.stdout.readline():
            sys.exit(f"the {minions} minions {prefix}-* did not sign in")
        try:
            # A minion subscribes once it has signed in.
            if before is not None:
                wait_for("the subscriptions", lambda: subscribers(master) >= before + minions)
            yield
        finally:
            process.kill()


@contextlib.contextmanager
def stock_minion(master, programs):
    before = subscribers(master)
    top = master.dir / "minion"
    (top / "conf").mkdir(parents=True)
    options = {
        "id": "stock",
        "master": "127.0.0.1",
        "master_port": master.ret_port,
        "publish_port": master.publish_port,
        "root_dir": top,
        "pki_dir": top / "pki",
        "cachedir": top / "cache",
        "sock_dir": top / "run",
        "log_file": top / "log",
    }
    text = "".join(f"{name}: {value}\n" for name, value in options.items())
    (top / "conf/minion").write_text(text)
    program = STOCK / STOCK_VERSION / "bin/salt-minion"
    with subprocess.Popen(
        [program, "-c", top / "conf"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        process_group=0,
    ) as process:
        try:
            ping = programs.command("salt", master, "-t", "2", "stock", "test.ping")
            answers = lambda: b"True" in subprocess.run(ping, capture_output=True).stdout
            wait_for("the stock minion", answers)
            yield
        finally:
            os.killpg(process.pid, 9)
            # Later subscribers are counted from here.
            wait_for("the end of its subscription", lambda: subscribers(master) <= before)


def measure_salt(kinds, place, options, found):
    """`salt` with one minion, with a stock one, with a fleet and with a large one."""
    with contextlib.ExitStack() as stack:
        master = stack.enter_context(running(Master("saltern", place, OPTIONS)))

        def each(name, minions, *words):
            print(f"  salt {' '.join(words)}: {minions} minions", flush=True)
            for kind, programs in kinds.items():
                command = programs.command("salt", master, *words)
                try:
                    found[kind] |= measure(name, command, options.rounds, pings(minions))
                except Failed as failure:
                    # On a slow machine stock's command gives up on a large fleet.
                    if kind != "stock" or name != "many":
                        raise
                    print(f"    {failure}", flush=True)

        stack.enter_context(swarm(master, "one", 1))
        each("ping", 1, "one-0", "test.ping")
        if "stock" in kinds:
            with stock_minion(master, kinds["saltern"]):
                each("ping_stock", 1, "stock", "test.ping")
        stack.enter_context(swarm(master, "fleet", options.minions - 1))
        (master.dir / "pki/minions/stock").unlink(missing_ok=True)
        each("all", options.minions, "*", "test.ping")
        stack.enter_context(swarm(master, "many", options.many - options.minions))
        each("many", options.many, "*", "test.ping")


def measure_lists(kinds, place, options, found):
    """`salt-key` and `salt-run` over much, and `salt --help`."""
    master = Master("saltern", place, OPTIONS)
    # Makes the master's own keys.
    with running(master):
        pass
    put_keys(master, options.keys)
    fill(master, options.jobs, 1, 1)
    with running(master):
        jobs = master.dir / "cache/jobs"
        wait_for(
            "the job cache on disk, which stock's command reads",
            lambda: sum(len(os.listdir(first)) for first in jobs.glob("??")) >= options.jobs,
            limit=900,
        )
        os.sync()
        keys = (lambda text: text.count("minion-"), options.keys)
        listed = (lambda text: text.count("StartTime:"), options.jobs)
        for name, lines, program, *words in (
            ("help", None, "salt", "--help"),
            ("keys", keys, "salt-key", "-L"),
            ("jobs", listed, "salt-run", "jobs.list_jobs"),
        ):
            print(f"  {program} {' '.join(words)}", flush=True)
            for kind, programs in kinds.items():
                command = programs.command(program, master, *words)
                if name == "jobs" and kind == "saltern":
                    # Without it ours lists the newest 10,000.
                    command.append(f"limit={options.jobs}")
                found[kind] |= measure(name, command, options.rounds, lines)


def measure_inventory(place, options):
    """`saltern minions` right after a start, and later; and the completion of words. The job
    database has as many returns of other minions as are looked at for the last job of each; for
    `last_job` they have returned another one since, for `no_last_job` not."""
    master = Master("saltern", place, OPTIONS)
    print(f"  saltern minions: {options.fleet} minions", flush=True)
    with running(master):
        pass
    make = [LAB, "bench", "-c", master.dir / "conf", "--make-fleet", str(options.fleet)]
    subprocess.run(make, check=True)
    fill(master, options.returns // 10, 10, 1)
    os.sync()

    def ours(*words):
        return [SALTERN, words[0], "-c", master.dir / "conf", *words[1:]]

    found = {"minions": options.fleet, "returns": options.returns, "refused": 0}
    listing = ours("minions", "--columns", "id,os,ip4_interfaces:eth0:0", "--out", "csv")
    with running(master):
        began = time.perf_counter()
        while (done := subprocess.run(listing, capture_output=True, text=True)).returncode != 0:
            found["refused"] += 1
            if found["refused"] > 60:
                sys.exit(f"no inventory: {done.stderr}")
            time.sleep(0.2)
        found["first_seconds"] = time.perf_counter() - began
        # A head stands above the rows.
        lines = (lambda text: len(text.splitlines()) - 1, options.fleet)
        for name, command, expected in (
            ("grains", listing, lines),
            ("no_last_job", ours("minions", "--out", "csv"), lines),
            ("complete_ids", ours("complete", "minions", "web"), None),
            ("complete_functions", ours("complete", "functions", "state"), None),
        ):
            measured = measure(name, command, options.rounds, expected)
            found |= {key.removeprefix("cli_"): value for key, value in measured.items()}
    put_job_of_fleet(master)
    with running(master):
        measured = measure("last_job", ours("minions", "--out", "csv"), options.rounds, lines)
        found |= {key.removeprefix("cli_"): value for key, value in measured.items()}
    return found


def put_job_of_fleet(master):
    """Another row of the newest job, and one of a return of it for each minion."""
    with contextlib.closing(sqlite3.connect(master.dir / "cache/saltern/jobs.sqlite")) as database, database:
        jid = "20991231235959000000"
        others = "created, user, fun, tgt, tgt_type, nocache, state, load, notes, published, finished"
        database.execute(
            f"INSERT INTO jobs (id, jid, {others}) SELECT id + 1, ?, {others} FROM jobs ORDER BY id DESC LIMIT 1",
            [jid],
        )
        others = "received, fun, retcode, success, load"
        database.executemany(
            f"INSERT INTO returns (id, jid, minion, {others}) SELECT id + 1, ?, ?, {others} FROM returns ORDER BY id DESC LIMIT 1",
            [(jid, minion) for minion in sorted(os.listdir(master.dir / "pki/minions"))],
        )


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minions", type=int, default=1_000)
    parser.add_argument("--many", type=int, default=9_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--fleet", type=int, default=20_000, help="minions of the inventory")
    parser.add_argument("--returns", type=int, default=200_000, help="in its job database")
    parser.add_argument("--rounds", type=int, default=9, help="of commands that are quick")
    parser.add_argument("--parts", default="salt,lists,inventory", help="only these")
    results.add_arguments(parser, only=("saltern",))
    return parser.parse_args()


def main():
    options = arguments()
    parts = options.parts.split(",")
    results.raise_descriptor_limit()
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        sys.exit("this kernel lets no process adopt the children of its children")
    record = results.load(options.out, STOCK_VERSION)
    # Beside figures of another day theirs stays.
    record.setdefault("machine", machine())
    record["cli_machine"] = machine()
    record["cli_load"] = os.getloadavg()[0]
    print("command lines, both with a master of ours", flush=True)
    with tempfile.TemporaryDirectory(prefix="slt-cli-", dir="/tmp") as top:
        place = Place(pathlib.Path(top))
        kinds = {kind: Programs(kind, place.top) for kind in results.kinds(options)}
        found = {kind: {} for kind in kinds}
        if "salt" in parts:
            measure_salt(kinds, place, options, found)
        if "lists" in parts:
            measure_lists(kinds, place, options, found)
        if "inventory" in parts:
            record["inventory"] = measure_inventory(place, options)
            print(f"  {record['inventory']}", flush=True)
    for kind in kinds:
        results.of_master(record, kind).update(found[kind])
    if options.only:
        return
    results.write(record, options.out)


if __name__ == "__main__":
    os.umask(0o077)
    main()
