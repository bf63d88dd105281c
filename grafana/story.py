#!/usr/bin/env python3
"""A supervised-restart story: actors are killed under load, one after the other, and no job fails.

    grafana/story.py    starts the demo with Prometheus in .story/, adds a swarm and a stock minion,
                        keeps jobs running, makes each actor that the demo has panic, one every ten
                        seconds, draws what Prometheus and `saltern top` saw into pictures/, and stops
                        everything

It fails when a job failed, a return is missing, an actor was not restarted, or a client ran no job
after that. Jobs are `test.ping`, run by `saltern cmd` and by stock's own `salt`: actors that these do
not need (the runners, the login workers) are killed while they are idle, and those that the demo is not
configured for (the reactor, engines, returners, the exporter of traces) are not there at all.

SALTERN names the binary, beside which saltern-lab is; it must be built with the feature `fault-injection` (`make story` does);
DEMO names another directory than .story.

The pictures show the dashboards' own queries, from dashboards/*.json, drawn by picture.py: Grafana is
in no registry that we use. Two panels are the story's own: how long its clients waited.
"""

import argparse
import concurrent.futures
import contextlib
import itertools
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time

import boards
import picture

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
STOCK_VERSION = "3008.3"
STOCK = pathlib.Path(os.environ.get("SALTERN_STOCK", pathlib.Path.home() / ".cache/saltern/stock"))

SCRAPE = 1
SWARM = 50
DEMO_MINIONS = 3
ALL = SWARM + DEMO_MINIONS + 1

# Who runs jobs: at whom, and how many these are. A stock minion takes a process for each job, so
# that it is spared the many.
CLIENTS = {"saltern cmd": ("swarm-*", SWARM), "salt": ("*", ALL)}

# Longest that a job, a restart or a start-up may take, in seconds.
PATIENCE = 60

# Signals that end the story before its time, as Ctrl-C does.
ENDINGS = (signal.SIGTERM, signal.SIGHUP)

# Panels of the story, from the top: dashboard, title.
PANELS = [
    ("overview", "Restarts of actors"),
    ("overview", "Jobs ended"),
    ("overview", "Returns stored"),
    ("workers", "Time of a worker, p99"),
    ("overview", "Workers in use"),
    ("minions", "By standing"),
]


class Site:
    """The demo, the swarm and the stock minion; stopped on the way out."""

    def __init__(self, place, saltern):
        self.place = place
        self.saltern = saltern
        self.conf = str(place / "conf")
        self.environment = {**os.environ, "DEMO": str(place), "SALTERN": str(saltern), "SCRAPE": f"{SCRAPE}s"}
        self.started = []

    def __enter__(self):
        try:
            self.watched("start")
            config = (self.place / "conf/master").read_text()
            port = re.search(r"^ret_port: (\d+)", config, re.MULTILINE)[1]
            self.start("swarm", self.saltern.with_name("saltern-lab"), "swarm", "--minions", SWARM, "--master", f"127.0.0.1:{port}")
            stock = STOCK / STOCK_VERSION / "bin"
            self.start("stock-minion", stock / "python", stock / "salt-minion", "-c", self.stock_minion(port))
            wait_until("all minions to answer", lambda: not self.job("salt").failed)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        for process in self.started:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
        self.watched("stop")

    def watched(self, verb):
        subprocess.run([HERE / "run.sh", verb], env=self.environment, check=verb == "start")

    def start(self, name, *command):
        with (self.place / f"log/{name}").open("w") as log:
            self.started.append(subprocess.Popen([str(word) for word in command], stdout=log, stderr=log,
                                                 stdin=subprocess.DEVNULL, start_new_session=True))
        self.note(self.started[-1].pid)

    def note(self, pid):
        """A process that `run.sh stop` ends if this program cannot any more."""
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
        # The time of its start is the 22nd field; the 2nd is a name that may have blanks.
        began = stat.rpartition(")")[2].split()[19]
        with (self.place / "watch-pids").open("a") as ids:
            ids.write(f"{pid} {began}\n")

    def stock_minion(self, port):
        """The configuration directory of a minion of stock's."""
        home = self.place / "minions/stock"
        home.mkdir()
        own = {"id": "stock", "master": "127.0.0.1", "master_port": port, "user": "root", "root_dir": home,
               "pki_dir": home / "pki", "acceptance_wait_time": 1}
        (home / "minion").write_text("".join(f"{key}: {value}\n" for key, value in own.items()))
        return home

    def ask(self, *words):
        """What our program prints; None when it fails."""
        command = [self.saltern, *words[:2], "-c", self.conf, *words[2:]]
        done = subprocess.run(command, check=False, text=True, capture_output=True, timeout=PATIENCE)
        return done.stdout if done.returncode == 0 else None

    def job(self, client):
        """One job of one of CLIENTS."""
        stock = STOCK / STOCK_VERSION / "bin"
        program = [stock / "python", stock / "salt"] if client == "salt" else [self.saltern, "cmd"]
        command = [*map(str, program), "-c", self.conf, "--no-color", CLIENTS[client][0], "test.ping"]
        return Job(client, command)

    def restarts(self):
        """How often each actor was restarted, by name and instance."""
        lines = (self.ask("debug", "actors") or "").split("\n")
        return {tuple(words[:2]): int(words[2]) for words in map(str.split, lines) if len(words) == 3}

    def incomplete(self):
        """How many jobs the master itself calls ended without being complete."""
        page = self.ask("metrics")
        if page is None:
            sys.exit("story: the master serves no metrics")
        verdicts = dict(re.findall(r'^saltern_jobs_finished_total\{verdict="(\w+)"\} (\d+)$', page, re.MULTILINE))
        if "complete" not in verdicts:
            sys.exit("story: the master exposes no verdicts of jobs")
        return sum(int(count) for verdict, count in verdicts.items() if verdict != "complete")


class Top:
    """`saltern top` in a terminal of its own, until the end of the story."""

    def __init__(self, site):
        self.tmux = ["tmux", "-f", "/dev/null", "-S", str(site.place / "run/tmux")]
        command = shlex.join([str(site.saltern), "top", "-c", site.conf])
        subprocess.run([*self.tmux, "new-session", "-d", "-x", "136", "-y", "24", command], check=True)
        server = subprocess.run([*self.tmux, "display-message", "-p", "#{pid}"], check=True, text=True,
                                capture_output=True)
        site.note(int(server.stdout))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run([*self.tmux, "kill-server"], check=False)

    def view(self, key, shows):
        """The lines of the view of that key, once they show a word."""
        subprocess.run([*self.tmux, "send-keys", key], check=True)
        wait_until(f"saltern top to show {shows}", lambda: shows in self.screen())
        return self.screen().splitlines()

    def screen(self):
        return subprocess.run([*self.tmux, "capture-pane", "-p"], check=True, text=True, capture_output=True).stdout


class Job:
    """A job that has been run to its end: what became of it."""

    def __init__(self, client, command):
        self.client = client
        self.began = time.time()
        try:
            done = subprocess.run(command, check=False, text=True, capture_output=True, timeout=PATIENCE)
            self.code, self.output = done.returncode, done.stdout + done.stderr
        except subprocess.TimeoutExpired:
            self.code, self.output = None, f"no end within {PATIENCE} s"
        self.seconds = time.time() - self.began
        self.expected = CLIENTS[client][1]
        self.returned = len(re.findall(r"^ +True$", self.output, re.MULTILINE))
        self.failed = self.code != 0 or self.returned != self.expected


class Load:
    """Clients side by side, each of which runs one job after the other at a steady pace."""

    def __init__(self, site, options):
        self.jobs = []
        self.over = threading.Event()
        clients = ["salt"] + ["saltern cmd"] * options.clients
        # When the last job of each that has ended was begun.
        self.latest = [0.0] * len(clients)
        pool = concurrent.futures.ThreadPoolExecutor(len(clients))
        self.runs = [pool.submit(self.run, site, number, client, options.pause)
                     for number, client in enumerate(clients)]

    def run(self, site, number, client, pause):
        while not self.over.is_set():
            begun = time.monotonic()
            job = site.job(client)
            self.jobs.append(job)
            self.latest[number] = job.began
            self.over.wait(max(begun + pause - time.monotonic(), 0))

    def goes_on_since(self, moment):
        """Whether every client has begun and ended a job since; fails when one of them is gone."""
        for run in self.runs:
            if run.done():
                run.result()
        return min(self.latest) > moment

    def close(self):
        """Fails as the client did that failed."""
        self.over.set()
        concurrent.futures.wait(self.runs)
        for run in self.runs:
            run.result()


def wait_until(what, holds):
    until = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > until:
            sys.exit(f"story: waited in vain for {what}")
        time.sleep(0.1)


def victims(actors):
    """One of each kind: of a pool the first, which is one of those that serve minions or users."""
    first = {}
    for name, instance in sorted(actors, key=lambda actor: (actor[0], int(actor[1]))):
        first.setdefault(name, instance)
    if not first:
        sys.exit("story: the master lists no actors")
    return first.items()


def kill(site, name, instance):
    """Makes an actor panic; when it did so. The master has restarted it afterwards."""
    before = site.restarts()[(name, instance)]
    killed = time.time()
    if site.ask("debug", "panic", name, "--instance", instance) is None:
        sys.exit(f"story: {name} cannot be made to panic: is this a build with fault injection?")
    wait_until(f"{name} to be restarted", lambda: site.restarts().get((name, instance)) == before + 1)
    return killed, name


def tell(site, options):
    """The story: its jobs, its kills, from when to when it went, and what `saltern top` showed."""
    began = time.time()
    kills = []
    with contextlib.closing(Load(site, options)) as load, Top(site) as top:
        for name, instance in victims(site.restarts()):
            time.sleep(max(began + options.every * (len(kills) + 1) - time.time(), 0))
            kills.append(kill(site, name, instance))
            restarted = time.time()
            wait_until(f"a job of every client after {name}", lambda since=restarted: load.goes_on_since(since))
            print(f"{kills[-1][0] - began:4.0f} s: {name} was killed and restarted, {len(load.jobs)} jobs so far",
                  flush=True)
        time.sleep(options.every)
        screens = [top.view("1", "FUNCTION"), top.view("3", "RESTARTS")]
    return load.jobs, kills, (began, time.time()), screens


def waited(client, jobs, place):
    """A panel of the story's own: how long the jobs of a client took."""
    lines = []
    for word, failed in (("complete", False), ("failed", True)):
        points = [(job.began, job.seconds) for job in jobs if job.client == client and job.failed == failed]
        lines.append((f"{word}: {len(points):,}", points))
    return {"kind": "dots", "title": f"Jobs: “{client}”, from the command's start to its end", "unit": "s",
            "lines": lines, "stacked": False, "place": place}


def places():
    """One panel below the other."""
    for number in itertools.count():
        yield {"x": 0, "y": 6 * number, "w": 24, "h": 6}


def draw(place, out, jobs, kills, span, screens, summary):
    """story.svg, top.svg, and each dashboard as it looked at the end."""
    prometheus = (place / "watch/address").read_text().strip()
    everything = boards.dashboards()
    place_of = places()
    panels = [waited(client, jobs, next(place_of)) for client in CLIENTS]
    for board, title in PANELS:
        panel = next(panel for panel in everything[board]["panels"] if panel["title"] == title)
        drawn = boards.drawn(panel, prometheus, *span, SCRAPE)
        panels.append({**drawn, "title": f"{title} (dashboard “{board}”)", "place": next(place_of)})
    out.mkdir(exist_ok=True)
    title = "Each actor that the demo has is made to panic while jobs run, one after the other"
    (out / "story.svg").write_text(picture.page(title, summary, panels, span, kills))
    (out / "top.svg").write_text(picture.terminal("saltern top, after the last actor was killed", summary, screens))
    for name, board in everything.items():
        panels = [boards.drawn(panel, prometheus, *span, SCRAPE) if panel["type"] != "row"
                  else {"kind": "row", "title": panel["title"], "place": panel["gridPos"]}
                  for panel in board["panels"]]
        (out / f"{name}.svg").write_text(picture.page(board["title"], summary, panels, span))


def end(number, _):
    """Lets a signal stop everything on the way out; once, so that another does not cut that short."""
    for ending in ENDINGS:
        signal.signal(ending, lambda *_: None)
    sys.exit(f"story: ended by {signal.Signals(number).name}")


def main():
    for ending in ENDINGS:
        signal.signal(ending, end)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=float, default=10, help="seconds between two kills")
    parser.add_argument("--clients", type=int, default=4, help="side by side, beside stock's salt")
    parser.add_argument("--pause", type=float, default=0.5, help="seconds between two jobs of a client")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "pictures")
    options = parser.parse_args()
    place = pathlib.Path(os.environ.get("DEMO", ROOT / ".story")).resolve()
    saltern = pathlib.Path(os.environ.get("SALTERN", ROOT / "target/story/release/saltern")).resolve()
    if shutil.which("tmux") is None:
        sys.exit("story: tmux is missing, in which saltern top runs: apt-get install tmux")
    with Site(place, saltern) as site:
        before = site.incomplete()
        jobs, kills, span, screens = tell(site, options)
        incomplete = site.incomplete() - before
        failed = [job for job in jobs if job.failed]
        returned, expected = sum(job.returned for job in jobs), sum(job.expected for job in jobs)
        summary = (f"{len(kills)} actors killed in {span[1] - span[0]:.0f} s; {len(jobs):,} jobs, "
                   f"{len(failed)} failed; {expected:,} returns, {expected - returned} missing. {ALL} minions, one of them stock's "
                   f"{STOCK_VERSION}, clients and master on one machine of {os.cpu_count()} cores.")
        draw(place, options.out, jobs, kills, span, screens, summary)
    print(summary)
    for job in failed:
        print(f"at {job.began - span[0]:.1f} s, exit code {job.code}, {job.returned} of {job.expected}:\n{job.output}",
              file=sys.stderr)
    if failed or incomplete:
        sys.exit(f"story: {len(failed)} jobs failed, and by the master's own count {incomplete}")


if __name__ == "__main__":
    os.umask(0o077)
    main()
