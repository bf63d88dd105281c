"""Everything that a busy site does to a master at once, steadily, for soak.py: each load runs in a
thread of its own, goes on over a killed master, and counts what was done and what failed.
"""

import contextlib
import http.client
import json
import re
import subprocess
import threading
import time
import urllib.parse

from console import PAGES, PASSWORD, USER, Console
from run import LAB, SALTERN, wait_for

# Of a user of the API, as JSON.
JSON = {"Content-Type": "application/json", "Accept": "application/json"}
# Seconds before a client whose master is gone asks again.
PATIENCE = 1.0
# What a client meets while the master is away, or not there yet.
AWAY = (OSError, ValueError, http.client.HTTPException)


def minion(number):
    """The id of a minion of the swarm."""
    return f"soak-{number}"


class Load(threading.Thread):
    """Does the same thing again and again, `pause` seconds apart."""

    def __init__(self, name, pause):
        super().__init__(name=name, daemon=True)
        self.pause, self.over = pause, threading.Event()
        self.done = self.failed = 0
        self.last_failure = None

    def run(self):
        while not self.over.wait(self.pause):
            try:
                self.once()
                self.done += 1
            except AWAY as error:
                self.failed += 1
                self.last_failure = error
                self.over.wait(PATIENCE)

    def end(self):
        self.over.set()
        self.join(timeout=120)


class Commands(Load):
    """A command line of ours: a job for many minions that nobody waits for, or a batch."""

    def __init__(self, name, pause, master, arguments):
        super().__init__(name, pause)
        self.command = [SALTERN, "cmd", "-c", master.dir / "conf", *arguments]

    def once(self):
        ended = subprocess.run(self.command, capture_output=True, timeout=600)
        if ended.returncode != 0:
            raise ValueError(ended.stderr)


class Api:
    """A user of the API, who logs in anew when the token is refused."""

    def __init__(self, port):
        self.port, self.token = port, None

    def ask(self, path, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            if self.token is None:
                login = {"username": USER, "password": PASSWORD, "eauth": "file"}
                self.token = self.post(connection, "/login", login)["return"][0]["token"]
            return self.post(connection, path, body)

    def post(self, connection, path, body):
        headers = JSON if self.token is None else JSON | {"X-Auth-Token": self.token}
        connection.request("POST", path, json.dumps(body), headers)
        response = connection.getresponse()
        text = response.read()
        if response.status == 401:
            self.token = None
        if response.status != 200:
            raise ValueError(text)
        return json.loads(text)


class Pings(Load):
    """`test.ping` of one minion over the API; keeps how long each took, in milliseconds."""

    def __init__(self, port):
        super().__init__("pings", 0.5)
        self.api, self.times, self.lock = Api(port), [], threading.Lock()

    def once(self):
        began = time.monotonic()
        body = [{"client": "local", "tgt": minion(7), "fun": "test.ping"}]
        if self.api.ask("/", body)["return"] != [{minion(7): True}]:
            raise ValueError("the minion did not answer")
        with self.lock:
            self.times.append(1000 * (time.monotonic() - began))

    def taken(self):
        """The times since the last call."""
        with self.lock:
            times, self.times = self.times, []
        return times


class Hooks(Load):
    """A hook a second, to which the reactor answers with a job."""

    def __init__(self, port):
        super().__init__("hooks", 1.0)
        self.api = Api(port)

    def once(self):
        self.api.ask("/hook/soak", {"reason": "soak"})


class Stream(Load):
    """A stream of events, which is read until it is cut."""

    def __init__(self, port, number):
        super().__init__(f"stream {number}", 0.1)
        self.api, self.events = Api(port), 0

    def once(self):
        self.api.ask("/", [{"client": "runner", "fun": "test.arg"}])
        connection = http.client.HTTPConnection("127.0.0.1", self.api.port, timeout=60)
        with contextlib.closing(connection):
            connection.request("GET", "/events", headers={"X-Auth-Token": self.api.token})
            stream = connection.getresponse()
            while not self.over.is_set() and (data := stream.read1(1 << 16)):
                self.events += data.count(b"\ntag: ")


class Watcher(Load):
    """A page of the console that is followed as the script in a browser does."""

    def __init__(self, port, page):
        super().__init__(f"console {page}", 0.1)
        self.port, self.path, self.refreshes = port, PAGES[page], 0

    def once(self):
        console = Console(self.port)
        try:
            console.log_in()
        except SystemExit as refused:
            raise ValueError(refused) from refused
        pages, changes = console.connection(), console.connection()
        with contextlib.closing(pages), contextlib.closing(changes):
            page = console.get(pages, self.path).decode()
            live = re.search(r'data-live="([^"]+)"', page)[1]
            live = live.replace("&amp;", "&").replace("&#x2f;", "/")
            headers = {"Cookie": console.cookie, "Accept": "text/event-stream"}
            changes.request("GET", live, headers=headers)
            self.follow(console, pages, changes.getresponse())

    def follow(self, console, pages, stream):
        while not self.over.is_set() and (line := stream.readline()):
            if line.startswith(b"event: change"):
                console.get(pages, self.path, is_fragment=True)
                self.refreshes += 1


@contextlib.contextmanager
def start_swarm(master, options):
    """The minions: they answer each job, and return others at a steady rate."""
    output = master.dir / "swarm"
    with open(output, "wb") as file:
        swarm = subprocess.Popen(
            [
                *[LAB, "swarm", "--prefix", "soak", "--minions", str(options.minions)],
                *["--master", f"127.0.0.1:{master.ret_port}"],
                *["--returns", "64", "--rate", str(options.rate)],
            ],
            stdout=file,
            stderr=subprocess.DEVNULL,
        )
    try:
        wait_for("the swarm to sign in", lambda: b"signed in;" in output.read_bytes())
        yield
    finally:
        swarm.terminate()
        swarm.wait()


def loads(master, port, options):
    """All loads but the minions' own, not started yet."""
    jobs = ["--async", f"{minion(1)}*", "test.ping"]
    batch = ["--batch", "10", f"{minion(2)}*", "test.ping"]
    watched = ["now", "jobs", "minions", "drift"]
    return [
        Commands("jobs", 10, master, jobs),
        Commands("batches", 30, master, batch),
        Pings(port),
        Hooks(port),
        *(Stream(port, number) for number in range(options.streams)),
        *(Watcher(port, page) for page in watched),
    ]


def configuration(top, port):
    """The options of a master that has everything on."""
    users, rule = top / "users", top / "soak.sls"
    users.write_text(f"{USER}:{PASSWORD}\n")
    rule.write_text(f"answer:\n  local.test.ping:\n    - tgt: {minion(3)}\n")
    return {
        "saltern_api": {"port": port},
        "netapi_enable_clients": ["local", "runner"],
        "external_auth": {"file": {"^filename": str(users), USER: [".*", "@runner", "@wheel", "@jobs", "@events"]}},
        "reactor": [{"salt/netapi/hook/soak": [str(rule)]}],
        "schedule": {"soak": {"function": "manage.present", "seconds": 15}},
    }
