#!/usr/bin/env python3
"""Measures the HTTP API: stock's salt-api 3008.3 beside stock's master, and ours, in one run.

Log-ins, `local` test.ping and a runner, each by clients with a connection of their own, as many a
second as they get; and streams of events while events are fired: how many of them each stream had,
what the master's memory grew by, and how late another subscriber of the bus was meanwhile.

`make bench` runs it after cli.py and adds what it found to results.*. Alone:
`tests/bench/api.py [--clients N] [--seconds N] [--streams N] [--rate N] [--only MASTER] [--out DIR]`.
"""

import argparse
import contextlib
import http.client
import json
import multiprocessing
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

import results
from cli import swarm
from reactor import TAG, Bus, send
from run import STOCK, STOCK_VERSION, Master, free_port, machine, wait_for
from storm import Place

CREDENTIALS = {"username": "bench", "password": "a password", "eauth": "file"}
KIND = {"Content-Type": "application/json", "Accept": "application/json"}
MINION = "api-0"
PING = [{"client": "local", "tgt": MINION, "fun": "test.ping"}]
RUN = [{"client": "runner", "fun": "test.arg"}]

# An event as both interfaces write it begins so.
BEGINNING = f"tag: {TAG}\n".encode()
# Streams that have nothing more to say for so long, in seconds, have said all.
SILENCE = 10


class Api:
    """A master with its web interface: a process of its own for stock, the master itself for ours."""

    def __init__(self, kind, place, options):
        self.port = free_port()
        users = place.top / f"users-{kind}"
        users.write_text("bench:a password\n")
        more = {
            # As many threads as stock's interface has by default.
            "rest_cherrypy": {"port": self.port, "host": "127.0.0.1", "disable_ssl": True},
            "netapi_enable_clients": ["local", "runner"],
            "external_auth": {"file": {"^filename": str(users), "bench": [".*", "@runner"]}},
        }
        # JSON is YAML.
        lines = [f"{name}: {json.dumps(value)}\n" for name, value in more.items()]
        self.master = Master(kind, place, "".join(lines))
        self.process = None

    def __enter__(self):
        self.master.__enter__()
        if self.master.kind == "stock":
            command = [STOCK / STOCK_VERSION / "bin/salt-api", "-c", self.master.dir / "conf"]
            with open(self.master.dir / "api", "ab") as output:
                # In the master's group, so that what both cost is counted as one.
                self.process = subprocess.Popen(
                    command, stdout=output, stderr=output, process_group=self.master.process.pid
                )
        wait_for("the interface", self.listens)
        return self

    def listens(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def __exit__(self, *error):
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        self.master.__exit__(*error)

    def connection(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)


def ask(connection, path, body, token=None):
    headers = KIND if token is None else KIND | {"X-Auth-Token": token}
    connection.request("POST", path, json.dumps(body), headers)
    response = connection.getresponse()
    text = response.read()
    if response.status != 200:
        raise ValueError(f"{response.status}: {text[:300]!r}")
    return json.loads(text)["return"][0]


def log_in(api):
    connection = api.connection()
    with contextlib.closing(connection):
        return ask(connection, "/login", CREDENTIALS)["token"]


def call(port, path, body, token, expected, until, result):
    """Sends the same request until then; the times in seconds, and how many were not answered so."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    times, failed = [], 0
    while (began := time.monotonic()) < until:
        try:
            answer = ask(connection, path, body, token)
            if expected is not None and answer != expected:
                raise ValueError(answer)
            times.append(time.monotonic() - began)
        except (OSError, ValueError, KeyError, http.client.HTTPException):
            failed += 1
            connection.close()
    result.send((times, failed))


def load(api, name, path, body, token, expected, options):
    """A load of many clients: calls a second, the 99th percentile, and failures."""
    began = time.monotonic()
    clients = []
    for _ in range(options.clients):
        result, sender = multiprocessing.Pipe(duplex=False)
        arguments = (api.port, path, body, token, expected, began + options.seconds, sender)
        process = multiprocessing.Process(target=call, args=arguments)
        process.start()
        clients.append((process, result))
    times, failed = [], 0
    for process, result in clients:
        some, of_it = result.recv()
        times += some
        failed += of_it
        process.join()
    seconds = time.monotonic() - began
    times.sort()
    found = {
        f"api_{name}_per_second": len(times) / seconds,
        f"api_{name}_p99_ms": 1000 * times[int(len(times) * 0.99)] if times else 0.0,
        f"api_{name}_failed": failed,
    }
    print(f"  {name}: {found}", flush=True)
    return found


class Streams:
    """Many streams of events, which are counted and dropped by a process of their own."""

    def __init__(self, api, token, count):
        self.opened = multiprocessing.Value("Q")
        self.heard = multiprocessing.Value("Q")
        self.stop = multiprocessing.Event()
        arguments = (api.port, token, count, self.opened, self.heard, self.stop)
        self.process = multiprocessing.Process(target=follow, args=arguments)
        self.process.start()

    def end(self):
        self.stop.set()
        self.process.join()


def follow(port, token, count, opened, heard, stop):
    request = f"GET /events HTTP/1.1\r\nHost: bench\r\nX-Auth-Token: {token}\r\n\r\n".encode()
    poll = select.epoll()
    sockets = {}
    for _ in range(count):
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(request)
        connection.setblocking(False)
        sockets[connection.fileno()] = [connection, b"", False]
        poll.register(connection.fileno(), select.EPOLLIN)
    total = 0
    while not stop.is_set():
        for number, _ in poll.poll(0.2):
            state = sockets[number]
            data = state[0].recv(1 << 18)
            if not data:
                poll.unregister(number)
                continue
            if not state[2] and b"retry:" in state[1] + data:
                state[2] = True
                opened.value += 1
            data = state[1] + data
            total += data.count(BEGINNING)
            # What may be the start of one, and not a whole one, which would be counted twice.
            state[1] = data[-(len(BEGINNING) - 1) :]
        heard.value = total


def measure_streams(api, token, options):
    """Streams while events are fired, and the bus beside them."""
    master = api.master
    bus = Bus(master)
    streams = Streams(api, token, options.streams)
    began = time.monotonic()
    while streams.opened.value < options.streams and time.monotonic() - began < 60:
        time.sleep(0.2)
    opened = streams.opened.value
    fired = multiprocessing.Value("Q")
    before, memory = master.pss(), []
    pull = master.dir / "run/master_event_pull.ipc"
    sender = multiprocessing.Process(
        target=send, args=(pull, options.rate, options.seconds, fired)
    )
    sender.start()
    while sender.is_alive():
        memory.append(master.pss())
        sender.join(1)
    wanted, last, since = fired.value * options.streams, 0, time.monotonic()
    while streams.heard.value < wanted and time.monotonic() - since < SILENCE:
        if streams.heard.value != last:
            last, since = streams.heard.value, time.monotonic()
        time.sleep(0.2)
    found = {
        "api_streams_opened": opened,
        "api_stream_events_lost": wanted - streams.heard.value,
        "api_stream_megabytes": (max(memory) - before) / 1e6,
        "api_stream_bus_p99_ms": bus.end(),
        "api_stream_events_fired": fired.value,
    }
    streams.end()
    print(f"  streams: {found}", flush=True)
    return found


def measure(kind, place, options):
    print(f"{kind}: {options.clients} clients, {options.streams} streams", flush=True)
    with Api(kind, place, options) as api, swarm(api.master, "api", 1):
        wait_for("the first log-in", lambda: can(lambda: log_in(api)))
        token = log_in(api)

        def pings():
            with contextlib.closing(api.connection()) as connection:
                return ask(connection, "/", PING, token) == {MINION: True}

        wait_for("the first ping", lambda: can(pings))
        found = load(api, "logins", "/login", CREDENTIALS, None, None, options)
        found |= load(api, "pings", "/", PING, token, {MINION: True}, options)
        arg = {"args": [], "kwargs": {}}
        found |= load(api, "runners", "/", RUN, token, arg, options)
        return found | measure_streams(api, token, options)


def can(do):
    with contextlib.suppress(OSError, ValueError, KeyError, http.client.HTTPException):
        return bool(do())
    return False


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=int, default=20, help="of each load")
    parser.add_argument("--streams", type=int, default=500)
    parser.add_argument("--rate", type=int, default=1000, help="events a second")
    results.add_arguments(parser)
    return parser.parse_args()


def main():
    options = arguments()
    results.raise_descriptor_limit()
    record = results.load(options.out, STOCK_VERSION)
    record["machine"] = machine()
    with tempfile.TemporaryDirectory(prefix="slt-api-", dir="/tmp") as top:
        place = Place(pathlib.Path(top))
        for kind in results.kinds(options):
            figures = measure(kind, place, options)
            results.of_master(record, kind).update(figures)
            if options.only == "saltern" and (problem := wrong(figures, options)):
                sys.exit(problem)
    if options.only:
        return
    record["api"] = {"clients": options.clients, "streams": options.streams, "rate": options.rate}
    results.write(record, options.out)


def wrong(found, options):
    """What must not be, however slow the machine is."""
    failed = {name: count for name, count in found.items() if name.endswith("_failed") and count}
    if failed:
        return f"calls failed: {failed}"
    if found["api_streams_opened"] < options.streams or found["api_stream_events_lost"]:
        return f"streams missed something: {found}"
    return None


if __name__ == "__main__":
    os.umask(0o077)
    main()
