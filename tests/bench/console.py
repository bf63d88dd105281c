#!/usr/bin/env python3
"""Measures the web console of a large site: pages of a master with 20,000 minions and 1,000,000 jobs.

Each page is fetched by HTTP (time and size of its HTML) and opened in Chromium (first paint); then
returns a second are measured twice, without a console and with ten that are open: each follows the
changes of its page and fetches its live part again, as the script in a browser does. Needs
`saltern-lab`, and `chromium` with `chromedriver` for the paints. Stock has nothing to compare with.

`make bench` runs it last; its figures stand in results.json under "console". Alone:
`tests/bench/console.py [--minions N] [--jobs N] [--consoles N] [--swarm N] [--seconds N] [--out DIR]`.
"""

import argparse
import contextlib
import http.client
import json
import multiprocessing
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse

import results
from run import LAB, STOCK_VERSION, Master, free_port, machine, put_load, wait_for
from store import fill
from storm import Place

USER, PASSWORD = "bench", "a password"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}

# What a page may have in bytes before its data, and what it may have in all.
MAX_HTML = 200_000

PAGES = {
    "now": "/console/",
    "jobs": "/console/jobs",
    "jobs_failed": "/console/jobs?state=failed",
    "minions": "/console/minions",
    "minions_target": "/console/minions?target=*1*",
    "minions_last": "/console/minions?grains=os,version,last_job,highstate",
    "drift": "/console/drift",
    "drift_unknown": "/console/drift?verdict=unknown",
    "keys": "/console/keys",
    "run": "/console/run?tgt=*&fun=test.ping",
    "events": "/console/events",
    "batches": "/console/batches",
    "audit": "/console/audit",
}

# Pages of the consoles that are open while returns come, in turn.
WATCHED = ["now", "jobs", "minions", "drift", "minions_last"]


class Console:
    """The console of a master, and the cookie of a user who is logged in."""

    def __init__(self, port):
        self.port = port
        self.cookie = None

    def connection(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def log_in(self):
        connection = self.connection()
        with contextlib.closing(connection):
            connection.request("GET", "/console/login")
            response = connection.getresponse()
            page = response.read().decode()
            before = response.headers["Set-Cookie"].split(";")[0]
            token = re.search(r'name="csrf" value="([0-9a-f]+)"', page)[1]
            form = {"username": USER, "password": PASSWORD, "eauth": "file", "csrf": token}
            headers = FORM | {"Cookie": before}
            connection.request("POST", "/console/login", urllib.parse.urlencode(form), headers)
            response = connection.getresponse()
            response.read()
            found = [
                value.split(";")[0]
                for name, value in response.headers.items()
                if name.lower() == "set-cookie" and value.startswith("saltern_console=")
            ]
            if response.status != 303 or not found:
                sys.exit(f"the log-in was answered with {response.status}")
            self.cookie = found[0]
        return self

    def get(self, connection, path, is_fragment=False):
        headers = {"Cookie": self.cookie}
        if is_fragment:
            headers["X-Saltern-Fragment"] = "1"
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise ValueError(f"{path}: {response.status}")
        return body


def measure_pages(console, rounds):
    """Milliseconds until a page is there, and its size in bytes."""
    connection = console.connection()
    found = {}
    with contextlib.closing(connection):
        for name, path in PAGES.items():
            console.get(connection, path)
            times = []
            for _ in range(rounds):
                began = time.perf_counter()
                html = console.get(connection, path)
                times.append((time.perf_counter() - began) * 1e3)
            found[name] = {"html_bytes": len(html), "ms": round(statistics.median(times), 1)}
            print(f"  {name}: {found[name]}", flush=True)
    return found


class Browser:
    """Chromium behind its driver (WebDriver)."""

    def __enter__(self):
        self.port = free_port()
        self.home = tempfile.mkdtemp(prefix="slt-browser-")
        environment = os.environ | {"HOME": self.home}
        self.driver = subprocess.Popen(
            ["chromedriver", f"--port={self.port}"],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_for("chromedriver", self.is_up, 30)
        options = {"args": ["--headless=new", "--no-sandbox", f"--user-data-dir={self.home}/profile"]}
        wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
        self.session = f"/session/{self.call('/session', wanted)['sessionId']}"
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError, http.client.HTTPException):
            self.call(self.session, method="DELETE")
        self.driver.terminate()
        self.driver.wait()
        shutil.rmtree(self.home, ignore_errors=True)

    def is_up(self):
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            return self.call("/status", method="GET")["ready"]
        return False

    def call(self, path, body=None, method="POST"):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            text = None if method == "GET" else json.dumps(body or {})
            connection.request(method, path, text, {"Content-Type": "application/json"})
            value = json.loads(connection.getresponse().read())["value"]
        if isinstance(value, dict) and "error" in value:
            raise ValueError(value["message"])
        return value

    def open(self, url):
        self.call(f"{self.session}/url", {"url": url})

    def script(self, script):
        return self.call(f"{self.session}/execute/sync", {"script": script, "args": []})


PAINT = "return performance.getEntriesByName('first-contentful-paint').map((paint) => paint.startTime)[0]"


def measure_paints(console, rounds):
    """Milliseconds from the start of a navigation to its first paint with content."""
    if shutil.which("chromedriver") is None:
        print("  no chromedriver: first paints are not measured", flush=True)
        return {}
    found = {}
    with Browser() as browser:
        browser.open(f"http://127.0.0.1:{console.port}/console/login")
        name, value = console.cookie.split("=", 1)
        cookie = {"name": name, "value": value, "path": "/console"}
        browser.call(f"{browser.session}/cookie", {"cookie": cookie})
        for name, path in PAGES.items():
            paints = []
            for _ in range(rounds):
                browser.open(f"http://127.0.0.1:{console.port}{path}")
                wait_for("the first paint", lambda: browser.script(PAINT) is not None, 30)
                paints.append(browser.script(PAINT))
            found[name] = round(statistics.median(paints))
            print(f"  first paint of {name}: {found[name]} ms", flush=True)
    return found


def watch(console, path, opened, stop, result):
    """Follows a page as the script in a browser does; how often it was fetched again, in what time."""
    pages = console.connection()
    page = console.get(pages, path).decode()
    live = re.search(r'data-live="([^"]+)"', page)[1]
    # Paths are escaped as attributes are.
    live = live.replace("&amp;", "&").replace("&#x2f;", "/")
    changes = console.connection()
    headers = {"Cookie": console.cookie, "Accept": "text/event-stream"}
    changes.request("GET", live, headers=headers)
    stream = changes.getresponse()
    opened.release()
    times = []
    while not stop.is_set():
        # Comments come at least every few seconds.
        if stream.readline().startswith(b"event: change"):
            began = time.perf_counter()
            console.get(pages, path, is_fragment=True)
            times.append(time.perf_counter() - began)
    result.send(times)


@contextlib.contextmanager
def consoles(console, count, found):
    """So many open pages."""
    opened, stop = multiprocessing.Semaphore(0), multiprocessing.Event()
    watchers = []
    for number in range(count):
        receiver, sender = multiprocessing.Pipe(duplex=False)
        path = PAGES[WATCHED[number % len(WATCHED)]]
        # Without this, a failure would wait for them.
        process = multiprocessing.Process(
            target=watch, args=(console, path, opened, stop, sender), daemon=True
        )
        process.start()
        watchers.append((process, receiver))
    for _ in watchers:
        if not opened.acquire(timeout=60):
            sys.exit("a console did not open")
    yield
    stop.set()
    times = []
    for process, receiver in watchers:
        if not receiver.poll(60):
            sys.exit("a console did not end")
        times += receiver.recv()
        process.join()
    found["refreshes"] = len(times)
    if times:
        times.sort()
        found["refresh_p99_ms"] = round(times[int(len(times) * 0.99)] * 1e3, 1)


def returns_per_second(master, options):
    arguments = ["--minions", options.swarm, "--seconds", options.seconds, "--phases", "returns"]
    # Names of phases and figures are those of run.py.
    return put_load(master, arguments)["returns"]["per_second"]


def measure(place, options):
    port = free_port()
    users = place.top / "users"
    users.write_text(f"{USER}:{PASSWORD}\n")
    everything = [".*", "@runner", "@wheel", "@jobs", "@events"]
    more = {
        "saltern_api": {"port": port},
        "external_auth": {"file": {"^filename": str(users), USER: everything}},
        # The jobs of the database are old.
        "keep_jobs_seconds": 2_000_000_000,
        # Each load brings a swarm with keys of its own, under the ids of the one before.
        "open_mode": True,
        # Stock's job cache would be a million directories, and each return two files to remove.
        "local_cache_mirror": "off",
    }
    lines = [f"{name}: {json.dumps(value)}\n" for name, value in more.items()]
    master = Master("saltern", place, "".join(lines))
    with master:
        pass
    make = [LAB, "bench", "-c", master.dir / "conf", "--make-fleet", str(options.minions)]
    subprocess.run(make, check=True)
    fill(master, options.jobs, 1, 1)
    os.sync()
    found = {"minions": options.minions, "jobs": options.jobs, "consoles": options.consoles}
    with master:
        console = Console(port)
        wait_for("the console", lambda: answers(console))
        console.log_in()
        wait_for("the index", lambda: shows_minions(console))
        found["pages"] = measure_pages(console, options.rounds)
        found["first_paint_ms"] = measure_paints(console, options.rounds)
        found["returns_per_second_alone"] = returns_per_second(master, options)
        with consoles(console, options.consoles, found):
            found["returns_per_second_watched"] = returns_per_second(master, options)
    alone, watched = found["returns_per_second_alone"], found["returns_per_second_watched"]
    found["returns_share"] = round(watched / alone, 3) if alone else None
    return found


def answers(console):
    with contextlib.suppress(OSError, http.client.HTTPException):
        connection = console.connection()
        with contextlib.closing(connection):
            connection.request("GET", "/console/login")
            return connection.getresponse().status == 200
    return False


def shows_minions(console):
    """After a start the cached data of all minions is read."""
    with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
        connection = console.connection()
        with contextlib.closing(connection):
            return b'id="minions"' in console.get(connection, PAGES["minions"])
    return False


def wrong(found):
    """What must not be, however slow the machine is."""
    large = {
        name: page["html_bytes"]
        for name, page in found["pages"].items()
        if page["html_bytes"] > MAX_HTML
    }
    if large:
        return f"pages of more than {MAX_HTML} bytes: {large}"
    if not found["refreshes"]:
        return "no console saw a change"
    return None


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minions", type=int, default=20_000)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--consoles", type=int, default=10)
    parser.add_argument("--swarm", type=int, default=1_000, help="minions that return")
    parser.add_argument("--seconds", type=int, default=20, help="of each load")
    parser.add_argument("--rounds", type=int, default=5, help="of each page")
    results.add_arguments(parser, only=("saltern",))
    return parser.parse_args()


def main():
    options = arguments()
    results.raise_descriptor_limit()
    record = results.load(options.out, STOCK_VERSION)
    record["machine"] = machine()
    with tempfile.TemporaryDirectory(prefix="slt-console-", dir="/tmp") as top:
        found = measure(Place(pathlib.Path(top)), options)
        # Before the directory is removed, which takes its time.
        print(json.dumps(found, indent=4), flush=True)
    if problem := wrong(found):
        sys.exit(problem)
    if options.only:
        return
    record["console"] = found
    results.write(record, options.out)


if __name__ == "__main__":
    os.umask(0o077)
    main()
