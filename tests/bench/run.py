#!/usr/bin/env python3
"""Measures stock salt-master 3008.3 and our master in one run, with the same swarm.

`make bench`, or `tests/bench/run.py [--minions N] [--only saltern|stock] [--phases P,…]`. The load
is `saltern-lab bench`, which says on standard output which phase begins and what each came to; this
script makes the site that both masters serve (site_files.py), starts the masters, gives both two
listeners on the event bus, and reads from /proc what the master's processes cost meanwhile. For
targets each master is started anew with a fleet that exists only in its files.
Results: results.json, results.md, results.svg beside it, when both masters ran all phases.

Needs only Python's standard library. It does not judge: targets are in the issue, not here.
"""

import argparse
import contextlib
import datetime
import fcntl
import getpass
import json
import os
import pathlib
import platform
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import results
from results import HERE, ROOT
from site_files import Site

STOCK = pathlib.Path(
    os.environ.get("SALTERN_STOCK", pathlib.Path.home() / ".cache/saltern/stock")
)
STOCK_VERSION = "3008.3"
SALTERN = pathlib.Path(os.environ.get("SALTERN", ROOT / "target/release/saltern"))
LAB = SALTERN.with_name("saltern-lab")
TICKS = os.sysconf("SC_CLK_TCK")
PHASES = ["auth", "returns", "jobs", "open-jobs", "pillar", "files", "tcp", "targets"]

# What is measured again with `transport: tcp`, each master started anew.
OVER_TCP = "returns,jobs"

# Reads and drops everything, as cheaply as a process can: two of them stand on the bus.
LISTENER = (
    "import socket, sys\n"
    "s = socket.socket(socket.AF_UNIX)\n"
    "s.connect(sys.argv[1])\n"
    "while s.recv(1 << 20): pass\n"
)


class Master:
    """A master in a directory of its own, with everything but the site at its defaults."""

    # Of stock's.
    version = STOCK_VERSION

    def __init__(self, kind, site, more=""):
        self.kind = kind
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix=f"{kind}-", dir=site.top))
        self.listeners = []
        self.process = None
        (self.dir / "conf").mkdir()
        self.publish_port, self.ret_port = free_port(), free_port()
        self.metrics_port = free_port()
        options = {
            "interface": "127.0.0.1",
            "publish_port": self.publish_port,
            "ret_port": self.ret_port,
            "user": getpass.getuser(),
            "root_dir": self.dir,
            "pki_dir": self.dir / "pki",
            "cachedir": self.dir / "cache",
            "sock_dir": self.dir / "run",
            "pidfile": self.dir / "master.pid",
            "log_file": self.dir / "log",
            "auto_accept": True,
            # Stock knows no such option, and passes over it.
            "saltern_metrics_address": f"127.0.0.1:{self.metrics_port}",
            # The swarm returns jobs that nobody has published, more than a minion may.
            "saltern_max_reports": 0,
            "saltern_max_report_bytes": 0,
        }
        lines = [f"{name}: {value}\n" for name, value in options.items()]
        lines.append(site.options())
        (self.dir / "conf/master").write_text("".join(lines) + more)

    def __enter__(self):
        # What earlier phases wrote must not be on its way to the disk while this master commits.
        os.sync()
        self.start()
        bus = self.dir / "run/master_event_pub.ipc"
        wait_for("the master to serve", lambda: self.serves(bus))
        for _ in range(2):
            command = [sys.executable, "-c", LISTENER, bus]
            self.listeners.append(subprocess.Popen(command))
        return self

    def start(self):
        program = (
            [STOCK / self.version / "bin/salt-master"]
            if self.kind == "stock"
            else [SALTERN, "master"]
        )
        with open(self.dir / "output", "ab") as output:
            self.process = subprocess.Popen(
                [*program, "-c", self.dir / "conf"],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                # A group, not a session: Linux schedules each session as one (autogroup), so that a
                # master that is busy would keep its clients, another session, from their CPU.
                process_group=0,
            )

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def serves(self, bus):
        if self.process.poll() is not None:
            sys.exit((self.dir / "output").read_text())
        for address, family in (
            (("127.0.0.1", self.publish_port), socket.AF_INET),
            (("127.0.0.1", self.ret_port), socket.AF_INET),
            (str(bus), socket.AF_UNIX),
        ):
            with socket.socket(family) as probe:
                if probe.connect_ex(address) != 0:
                    return False
        return (self.dir / "run/publish_pull.ipc").exists()

    def __exit__(self, *_):
        for listener in self.listeners:
            listener.kill()
            listener.wait()
        self.kill()

    def processes(self):
        """The ids of all processes of the master: it leads a group of its own."""
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with contextlib.suppress(OSError):
                    if os.getpgid(int(entry)) == self.process.pid:
                        found.append(int(entry))
        return found

    def cpu(self):
        """Seconds of processor time so far, children that have ended included."""
        return cpu_seconds(self.processes())

    def pss(self, of="Pss"):
        """Proportional memory of all processes, in bytes; with "Pss_Anon" without the pages of files, of which a
        process pays more when another one of the same program ends."""
        total = 0
        for process in self.processes():
            with contextlib.suppress(OSError):
                rollup = pathlib.Path(f"/proc/{process}/smaps_rollup").read_text()
                for line in rollup.splitlines():
                    if line.startswith(f"{of}:"):
                        total += int(line.split()[1]) * 1024
        return total


def cpu_seconds(processes):
    """Seconds of processor time of some processes and of their children that have ended."""
    total = 0
    for process in processes:
        with contextlib.suppress(OSError):
            stat = pathlib.Path(f"/proc/{process}/stat").read_text()
            fields = stat.rpartition(")")[2].split()
            total += sum(int(field) for field in fields[11:15])
    return total / TICKS


# The locks of the ports that this process took; they go with it.
PORTS_TAKEN = []


def free_port():
    """A port that nobody listens on, below those that the kernel gives to outgoing connections. It stays this
    process's own: by the range and the locks of `tests/src/port.rs`, which says why."""
    locks = pathlib.Path(tempfile.gettempdir(), f"saltern-test-ports-{os.getuid()}")
    locks.mkdir(exist_ok=True)
    for port in random.sample(range(12_000, 32_000), 1000):
        lock = open(locks / str(port), "ab")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            lock.close()
            continue
        PORTS_TAKEN.append(lock)
        return port
    sys.exit("no free port between 12000 and 31999")


def wait_for(what, ready, limit=120):
    end = time.monotonic() + limit
    while not ready():
        if time.monotonic() > end:
            sys.exit(f"waited {limit} s in vain for {what}")
        time.sleep(0.05)


# Times that the metrics are asked for, one after the other.
SCRAPES = 200


def measure_scrapes(master):
    """What it costs our master to be asked for its metrics once: processor time and series."""
    address = f"http://127.0.0.1:{master.metrics_port}/metrics"
    before = master.cpu()
    for _ in range(SCRAPES):
        with urllib.request.urlopen(address) as answer:
            page = answer.read().decode()
    cost = {
        "cpu_ms": 1000 * (master.cpu() - before) / SCRAPES,
        "series": sum(not line.startswith("#") for line in page.splitlines()),
    }
    print(f"  scrape: {cost}", flush=True)
    return cost


def put_load(master, arguments, may_fail=False):
    """Puts a load on a running master; a map from phase to what came of it. A master that may fail
    has no figures of the phase in which it does, nor of later ones."""
    results = {}
    command = [LAB, "bench", "-c", master.dir / "conf", "--json", *map(str, arguments)]
    load = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    before = 0.0
    for line in load.stdout:
        message = json.loads(line)
        if "begin" in message:
            before = master.cpu()
        elif "restart" in message:
            master.kill()
            # Its clock runs from here.
            print(file=load.stdin, flush=True)
            master.start()
            before = 0.0
        elif "curve" in message:
            results[f"{message['curve']}_curve"] = message["points"]
        elif "end" in message:
            phase = message.pop("end")
            message["master_cpu_seconds"] = round(master.cpu() - before, 3)
            message["master_pss_bytes"] = master.pss()
            results[phase] = message
            print(f"  {phase}: {message}", flush=True)
    if load.wait() != 0:
        if may_fail:
            print(f"  the load on {master.kind} failed; there are no further figures", flush=True)
            return results
        print((master.dir / "output").read_text()[-4000:], file=sys.stderr)
        sys.exit(f"the load on {master.kind} failed")
    return results


def measure(kinds, site, options):
    """Each master under the whole load, and then for each fleet; the figures of all of it.

    The fleets come last: their files are many, and what the disk still does for them would be
    measured with the returns of whoever comes next.
    """
    phases = [phase for phase in options.phases if phase not in ("tcp", "targets")]
    results = {kind: {} for kind in kinds}
    fleets = {kind: {} for kind in kinds}
    for kind in kinds if phases else []:
        print(f"{kind}: {options.minions} minions", flush=True)
        with Master(kind, site) as master:
            arguments = ["--minions", options.minions, "--seconds", options.seconds]
            results[kind] = put_load(master, [*arguments, "--phases", ",".join(phases)])
            if kind == "saltern":
                results[kind]["scrape"] = measure_scrapes(master)
    if "tcp" in options.phases:
        for kind in kinds:
            print(f"{kind}: {options.minions} minions over TCP", flush=True)
            with Master(kind, site, "transport: tcp\n") as master:
                arguments = ["--minions", options.minions, "--seconds", options.seconds]
                # Over TCP, stock loses returns of a job that all minions answer at once.
                may_fail = kind == "stock"
                over_tcp = put_load(master, [*arguments, "--phases", OVER_TCP], may_fail)
            named = {f"tcp_{phase}": result for phase, result in over_tcp.items()}
            results[kind].update(named)
    if "targets" in options.phases:
        for kind in kinds:
            for fleet in options.fleets:
                print(f"{kind}: a fleet of {fleet} minions", flush=True)
                fleets[kind][fleet] = measure_targets(kind, site, fleet, options)
    return {kind: summarise(results[kind], fleets[kind], options.minions) for kind in kinds}


def measure_targets(kind, site, fleet, options):
    """A master that finds keys and cached data of its minions when it starts."""
    nodegroups = [LAB, "bench", "--print-nodegroups"]
    nodegroups = subprocess.run(nodegroups, check=True, capture_output=True, text=True).stdout
    master = Master(kind, site, nodegroups)
    make = [LAB, "bench", "-c", master.dir / "conf", "--make-fleet", str(fleet)]
    subprocess.run(make, check=True)
    # So that the kernel does not write a fleet to disk while something is measured.
    os.sync()
    with master:
        arguments = ["--phases", "targets", "--fleet", fleet, "--seconds", options.seconds]
        measured = put_load(master, [*arguments, "--target-cap", options.target_cap])
        if kind == "saltern":
            measured["scrape"] = measure_scrapes(master)
        return measured


def summarise(phases, fleets, minions):
    """The figures that the issues ask for, from what the phases measured."""

    def cpu(phase, *later):
        """CPU seconds for each thing done, with what the master still did for them later."""
        seconds = phases[phase]["master_cpu_seconds"]
        seconds += sum(phases[name]["master_cpu_seconds"] for name in later if name in phases)
        return seconds / max(phases[phase]["done"], 1)

    # At least this, because the answer was not waited for any longer.
    found = {"minions": minions, "capped": []}
    if "auth" in phases:
        found["authentications_per_second"] = phases["auth"]["per_second"]
    if "returns" in phases:
        found["returns_per_second_kept"] = phases["returns"]["per_second"]
        found["returns_per_second_fresh"] = phases["returns_fresh"]["per_second"]
        found["cpu_seconds_per_1000_returns"] = 1000 * cpu("returns")
        mirrored = cpu("returns", "mirror_after_returns")
        found["cpu_seconds_per_1000_returns_mirrored"] = 1000 * mirrored
        found["cpu_seconds_per_1000_returns_fresh"] = 1000 * cpu("returns_fresh")
    if "jobs" in phases:
        found["publish_to_last_delivery_ms"] = phases["jobs"]["delivery_p50_ms"]
        found["job_p50_ms"] = phases["jobs"]["p50_ms"]
        found["job_p99_ms"] = phases["jobs"]["p99_ms"]
        found["pss_megabytes"] = phases["jobs"]["master_pss_bytes"] / 1e6
    if "tcp_returns" in phases:
        found["tcp_returns_per_second_kept"] = phases["tcp_returns"]["per_second"]
        found["tcp_returns_per_second_fresh"] = phases["tcp_returns_fresh"]["per_second"]
    if "tcp_jobs" in phases:
        found["tcp_publish_to_last_delivery_ms"] = phases["tcp_jobs"]["delivery_p50_ms"]
        found["tcp_job_p50_ms"] = phases["tcp_jobs"]["p50_ms"]
        found["tcp_job_p99_ms"] = phases["tcp_jobs"]["p99_ms"]
    for open_jobs in (1, 10, 100):
        phase = f"open_jobs_{open_jobs}"
        if phase in phases:
            found[f"{phase}_returns_per_second"] = phases[phase]["per_second"]
    if "pillar" in phases:
        found["pillars_per_second"] = phases["pillar"]["per_second"]
        found["pillar_p50_ms"] = phases["pillar"]["p50_ms"]
        found["pillar_p99_ms"] = phases["pillar"]["p99_ms"]
        found["cpu_ms_per_pillar"] = 1000 * cpu("pillar")
    if "files_small" in phases:
        for name in ("files_small", "files_small_together"):
            found[f"{name}_per_second"] = phases[name]["per_second"]
        for name in ("files_large", "files_large_together"):
            found[f"{name}_megabytes_per_second"] = phases[name]["megabytes_per_second"]
    scrapes = {minions: phases["scrape"]} if "scrape" in phases else {}
    scrapes |= {fleet: found["scrape"] for fleet, found in fleets.items() if "scrape" in found}
    if scrapes:
        found["scrapes"] = scrapes
    for fleet, measured in fleets.items():
        for name in ("p50_ms", "p99_ms"):
            found[f"target_{fleet}_{name}"] = measured["targets"][name]
            if measured["targets"]["capped"]:
                found["capped"].append(f"target_{fleet}_{name}")
    found["phases"] = phases
    found["fleets"] = fleets
    return found


def machine():
    model = "unknown"
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(pages / 1e9, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        # Of other work in the minute before, in processes: more than a few tenths spoils the figures.
        "load_before": round(os.getloadavg()[0], 1),
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d"),
    }


def choices(text):
    phases = text.split(",")
    unknown = set(phases) - set(PHASES)
    if unknown:
        raise argparse.ArgumentTypeError(f"no phase {', '.join(sorted(unknown))}")
    return phases


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minions", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=10, help="how long each phase lasts")
    parser.add_argument("--only", choices=["stock", "saltern"])
    parser.add_argument("--phases", type=choices, default=PHASES, help=",".join(PHASES))
    parser.add_argument("--small-files", type=int, default=1000)
    parser.add_argument("--megabytes", type=int, default=500, help="the size of the large file")
    parser.add_argument(
        "--fleets",
        type=lambda text: [int(size) for size in text.split(",")],
        default=[10_000, 100_000],
        help="how many minions a target is looked for among",
    )
    parser.add_argument(
        "--target-cap", type=int, default=60, help="seconds to wait for the answer to one target"
    )
    parser.add_argument("--out", type=pathlib.Path, help="where results.* go")
    parser.add_argument(
        "--update",
        action="store_true",
        help="put what --phases measured among the results of an earlier run",
    )
    return parser.parse_args()


def updated(earlier, found):
    """The results of an earlier run with the figures that were measured again."""
    for kind, master in found["masters"].items():
        known = earlier["masters"].setdefault(kind, {"fleets": {}, "capped": []})
        for name in ("phases", "scrapes"):
            if name in master:
                known[name] = known.get(name, {}) | master.pop(name)
        for name in ("fleets", "capped"):
            known[name] = master.pop(name) or known[name]
        known.update(master)
    return earlier | {"machine": found["machine"]}


def main():
    options = arguments()
    busy = os.getloadavg()[0]
    if busy > 0.5:
        print(f"note: this machine is busy (load {busy:.1f}); the figures will be too low")

    results.raise_descriptor_limit()
    record = {
        "machine": machine(),
        "stock": STOCK_VERSION,
        "site": {"small_files": options.small_files, "megabytes": options.megabytes},
    }
    with Site(options.small_files, options.megabytes, "files" in options.phases) as site:
        record["masters"] = measure(results.kinds(options), site, options)
    is_whole = not options.only and options.phases == PHASES
    out = options.out or HERE
    if options.update:
        record = updated(json.loads((out / "results.json").read_text()), record)
    elif not options.out and not is_whole:
        print(json.dumps(record, indent=2))
        return
    table = results.write(record, out, with_table=not options.only)
    if table:
        print(table)


if __name__ == "__main__":
    main()
