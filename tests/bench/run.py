#!/usr/bin/env python3
"""Measures stock salt-master 3008.3 and our master in one run, with the same swarm.

`make bench`, or `tests/bench/run.py [--minions N] [--only saltern|stock]`. The load is
`saltern bench`, which says on standard output which phase begins and what each came to; this
script starts the masters, gives both two listeners on the event bus, and reads from /proc what the
master's processes cost meanwhile. Results: results.json, results.md, results.svg beside it.

Needs only Python's standard library. It does not judge: targets are in the issue, not here.
"""

import argparse
import contextlib
import datetime
import getpass
import json
import os
import pathlib
import platform
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time

from report import write_markdown, write_readme, write_svg

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
STOCK = pathlib.Path(
    os.environ.get("SALTERN_STOCK", pathlib.Path.home() / ".cache/saltern/stock")
)
STOCK_VERSION = "3008.3"
SALTERN = pathlib.Path(os.environ.get("SALTERN", ROOT / "target/release/saltern"))
TICKS = os.sysconf("SC_CLK_TCK")

# Reads and drops everything, as cheaply as a process can: two of them stand on the bus.
LISTENER = (
    "import socket, sys\n"
    "s = socket.socket(socket.AF_UNIX)\n"
    "s.connect(sys.argv[1])\n"
    "while s.recv(1 << 20): pass\n"
)


class Master:
    """A master of its own in a temporary directory, with everything at its defaults."""

    def __init__(self, kind):
        self.kind = kind
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="slt-bench-", dir="/tmp"))
        self.listeners = []
        self.process = None
        (self.dir / "conf").mkdir()
        self.publish_port, self.ret_port = free_port(), free_port()
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
        }
        lines = [f"{name}: {value}\n" for name, value in options.items()]
        (self.dir / "conf/master").write_text("".join(lines))

    def __enter__(self):
        program = (
            [STOCK / STOCK_VERSION / "bin/salt-master"]
            if self.kind == "stock"
            else [SALTERN, "master"]
        )
        with open(self.dir / "output", "wb") as output:
            self.process = subprocess.Popen(
                [*program, "-c", self.dir / "conf"],
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        bus = self.dir / "run/master_event_pub.ipc"
        wait_for("the master to serve", lambda: self.serves(bus))
        for _ in range(2):
            command = [sys.executable, "-c", LISTENER, bus]
            self.listeners.append(subprocess.Popen(command))
        return self

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
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        # A hundred thousand small files: gone in their own time, not in ours.
        subprocess.Popen(["rm", "-rf", self.dir], start_new_session=True)

    def processes(self):
        """The ids of all processes of the master: it leads a session of its own."""
        found = []
        for entry in os.listdir("/proc"):
            if entry.isdigit():
                with contextlib.suppress(OSError):
                    if os.getsid(int(entry)) == self.process.pid:
                        found.append(int(entry))
        return found

    def cpu(self):
        """Seconds of processor time so far, children that have ended included."""
        total = 0
        for process in self.processes():
            with contextlib.suppress(OSError):
                stat = pathlib.Path(f"/proc/{process}/stat").read_text()
                fields = stat.rpartition(")")[2].split()
                total += sum(int(field) for field in fields[11:15])
        return total / TICKS

    def pss(self):
        """Proportional memory of all processes, in bytes."""
        total = 0
        for process in self.processes():
            with contextlib.suppress(OSError):
                rollup = pathlib.Path(f"/proc/{process}/smaps_rollup").read_text()
                for line in rollup.splitlines():
                    if line.startswith("Pss:"):
                        total += int(line.split()[1]) * 1024
        return total


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(what, ready, limit=120):
    end = time.monotonic() + limit
    while not ready():
        if time.monotonic() > end:
            sys.exit(f"waited {limit} s in vain for {what}")
        time.sleep(0.05)


def measure(kind, minions, seconds):
    """One master under the whole load; a map from phase to what came of it."""
    results = {}
    with Master(kind) as master:
        command = [SALTERN, "bench", "-c", master.dir / "conf", "--json"]
        command += ["--minions", str(minions), "--seconds", str(seconds)]
        print(f"{kind}: {minions} minions", flush=True)
        load = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        before = 0.0
        for line in load.stdout:
            message = json.loads(line)
            if "begin" in message:
                before = master.cpu()
            elif "end" in message:
                phase = message.pop("end")
                message["master_cpu_seconds"] = round(master.cpu() - before, 3)
                message["master_pss_bytes"] = master.pss()
                results[phase] = message
                print(f"  {phase}: {message}", flush=True)
        if load.wait() != 0:
            print((master.dir / "output").read_text()[-4000:], file=sys.stderr)
            sys.exit(f"the load on {kind} failed")
    return summarise(results, minions)


def summarise(phases, minions):
    """The figures that the issue asks for, from what the phases measured."""

    def per_thousand(phase, *later):
        """CPU seconds for a thousand returns, with what the master still did for them later."""
        seconds = phases[phase]["master_cpu_seconds"]
        seconds += sum(phases[name]["master_cpu_seconds"] for name in later if name in phases)
        return 1000 * seconds / max(phases[phase]["done"], 1)

    ping = phases["jobs"]
    return {
        "minions": minions,
        "authentications_per_second": phases["auth"]["per_second"],
        "returns_per_second_kept": phases["returns"]["per_second"],
        "returns_per_second_fresh": phases["returns_fresh"]["per_second"],
        "publish_to_last_delivery_ms": ping["delivery_p50_ms"],
        "job_p50_ms": ping["p50_ms"],
        "job_p99_ms": ping["p99_ms"],
        "cpu_seconds_per_1000_returns": per_thousand("returns"),
        "cpu_seconds_per_1000_returns_mirrored": per_thousand("returns", "mirror_after_returns"),
        "cpu_seconds_per_1000_returns_fresh": per_thousand("returns_fresh"),
        "pss_megabytes": ping["master_pss_bytes"] / 1e6,
        "phases": phases,
    }


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


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minions", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=10, help="how long each phase lasts")
    parser.add_argument("--only", choices=["stock", "saltern"])
    parser.add_argument("--out", type=pathlib.Path, default=HERE, help="where results.* go")
    options = parser.parse_args()

    busy = os.getloadavg()[0]
    if busy > 0.5:
        print(f"note: this machine is busy (load {busy:.1f}); the figures will be too low")

    # Every minion has two connections, and both ends are on this machine.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    kinds = [options.only] if options.only else ["stock", "saltern"]
    results = {
        "machine": machine(),
        "stock": STOCK_VERSION,
        "masters": {kind: measure(kind, options.minions, options.seconds) for kind in kinds},
    }
    if options.only:
        print(json.dumps(results, indent=2))
        return
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "results.json").write_text(json.dumps(results, indent=2) + "\n")
    write_markdown(results, options.out / "results.md")
    write_svg(results, options.out / "results.svg")
    table = (options.out / "results.md").read_text()
    if options.out == HERE:
        write_readme(table, ROOT / "README.md")
    print(table)


if __name__ == "__main__":
    main()
