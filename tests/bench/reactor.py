#!/usr/bin/env python3
"""Many events that match one rule of the reactor, for stock salt-master 3008.3 and for ours in one
run: 20,000 events a second, if the master takes them.

How quickly does everybody else hear of them meanwhile, how much memory does the master take, and
what became of each event: reacted to, or dropped and counted? The reaction is a function of the
master, whose end is an event of its own. Of stock, what its log says it had no room for counts as
counted.

`make bench` runs it after storm.py and adds what it found to results.*. Alone:
`tests/bench/reactor.py [--rate N] [--seconds N] [--drain SECONDS] [--only MASTER] [--out DIR]`.
"""

import argparse
import array
import contextlib
import multiprocessing
import os
import pathlib
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time

import results
from run import SALTERN, STOCK_VERSION, Master, machine, wait_for

TAG = "bench/reactor"

# The data of an event up to its number, in msgpack: a map of three, with a time as stock adds one.
START = b"\x83\xa6_stamp\xba2026-01-01T00:00:00.000000\xa6number\xce"
SENT = b"\xa4sent\xcb"
# Whichever an event of the bus is: one of ours with the time it was sent, or the end of a reaction.
HEARD = re.compile(rb"\xa6number\xce....\xa4sent\xcb(.{8})|salt/run/\d{20}/ret\n\n", re.DOTALL)
# Longer than what HEARD finds.
OVERLAP = 128

# Frames handed to the kernel at once.
BATCH = 100

SLS = f"""
react:
  runner.test.arg:
    - args:
      - number: {{{{ data['number'] }}}}
"""


class Place:
    """Where the masters put their directories, and the rule that both have."""

    def __init__(self, top):
        self.top = top
        (top / "react.sls").write_text(SLS)

    def options(self):
        return f"reactor:\n  - {TAG}: {self.top}/react.sls\n"


def frame(number):
    """An event as stock's clients hand it to the bus (salt/transport/frame.py)."""
    data = START + struct.pack(">I", number) + SENT + struct.pack(">d", time.monotonic())
    body = TAG.encode() + b"\n\n" + data
    message = b"\x82\xa4head\x80\xa4body\xc4" + bytes([len(body)]) + body
    return struct.pack(">I", len(message)) + message


def connected(path):
    bus = socket.socket(socket.AF_UNIX)
    bus.connect(str(path))
    return bus


def send(path, rate, seconds, fired):
    """Fires events at this rate, or as many as are taken, and counts them."""
    bus = connected(path)
    start = time.monotonic()
    sent = 0
    while (elapsed := time.monotonic() - start) < seconds:
        due = min(int(elapsed * rate) - sent, BATCH)
        if due <= 0:
            time.sleep(0.0005)
            continue
        bus.sendall(b"".join(frame(sent + number) for number in range(due)))
        sent += due
        fired.value += due
    bus.close()


def listen(path, heard, reacted, stop, result):
    """Follows the bus as another subscriber would; how late each event came, in the end."""
    bus = connected(path)
    bus.settimeout(0.2)
    delays = array.array("d")
    rest = b""
    while not stop.is_set():
        try:
            chunk = bus.recv(1 << 20)
        except TimeoutError:
            continue
        if not chunk:
            break
        now = time.monotonic()
        data = rest + chunk
        end = 0
        for match in HEARD.finditer(data):
            end = match.end()
            if match[1] is None:
                reacted.value += 1
            else:
                delays.append(now - struct.unpack(">d", match[1])[0])
        heard.value = len(delays)
        rest = data[max(end, len(data) - OVERLAP) :]
    delays = sorted(delays)
    result.send(delays[int(len(delays) * 0.99)] * 1000 if delays else None)


class Bus:
    """A subscriber of a master's bus, in a process of its own, and what it has heard so far."""

    def __init__(self, master):
        self.heard = multiprocessing.Value("Q")
        self.reacted = multiprocessing.Value("Q")
        self.stop = multiprocessing.Event()
        self.result, sender = multiprocessing.Pipe(duplex=False)
        arguments = (master.dir / "run/master_event_pub.ipc", self.heard, self.reacted, self.stop)
        self.process = multiprocessing.Process(target=listen, args=(*arguments, sender))
        self.process.start()

    def begin(self, dropped):
        """From here on it is counted, beside what the master has counted so far."""
        self.before = (self.heard.value, self.reacted.value, dropped)

    def events(self):
        return self.heard.value - self.before[0]

    def reactions(self):
        return self.reacted.value - self.before[1]

    def end(self):
        """The 99th percentile of the delays, in milliseconds."""
        self.stop.set()
        late = self.result.recv()
        self.process.join()
        return late


def counted_as_dropped(master):
    """The events of which the master itself says that it did not react to them."""
    if master.kind == "stock":
        with contextlib.suppress(FileNotFoundError):
            return (master.dir / "log").read_bytes().count(b"TaskPool queue is full")
        return 0
    command = [SALTERN, "metrics", "-c", master.dir / "conf"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = (line.rpartition(" ") for line in text.splitlines())
    return sum(int(float(value)) for name, _, value in lines if name.startswith(DROPPED))


DROPPED = "saltern_reactor_dropped_total"


def react_once(master, bus):
    """Fires single events until the reactor, which starts late, has reacted to what there is."""
    pull = connected(master.dir / "run/master_event_pull.ipc")
    asked = 0.0

    def reacts():
        nonlocal asked
        if time.monotonic() - asked > 10:
            asked = time.monotonic()
            pull.sendall(frame(0))
        return bus.reacted.value > 0

    wait_for("the first reaction", reacts)
    pull.close()
    reacted = None
    while reacted != bus.reacted.value:
        reacted = bus.reacted.value
        time.sleep(5)


def measure(kind, place, options):
    print(f"{kind}: {options.rate} events/s for {options.seconds} s", flush=True)
    with Master(kind, place) as master:
        bus = Bus(master)
        fired = multiprocessing.Value("Q")
        react_once(master, bus)
        before, memory = master.pss(), []
        bus.begin(counted_as_dropped(master))
        pull = master.dir / "run/master_event_pull.ipc"
        arguments = (pull, options.rate, options.seconds, fired)
        sender = multiprocessing.Process(target=send, args=arguments)
        started = time.monotonic()
        sender.start()
        while sender.is_alive():
            memory.append(master.pss())
            sender.join(1)
        seconds = time.monotonic() - started
        found = {
            "reactor_events_per_second": fired.value / seconds,
            "reactor_reactions_per_second": bus.reactions() / seconds,
            "reactor_pss_growth_megabytes": (max(memory) - before) / 1e6,
        }
        dropped = drained(master, bus, fired, options.drain)
        found |= {
            "reactor_fired": fired.value,
            "reactor_reacted": bus.reactions(),
            "reactor_dropped": dropped,
            "reactor_unaccounted": fired.value - bus.reactions() - dropped,
            "reactor_not_heard": fired.value - bus.events(),
        }
        found["reactor_bus_p99_ms"] = bus.end()
    print(f"  {found}", flush=True)
    return found


def drained(master, bus, fired, limit):
    """Waits until every event is accounted for; how many were dropped."""
    end = time.monotonic() + limit
    while True:
        dropped = counted_as_dropped(master) - bus.before[2]
        whole = min(bus.reactions() + dropped, bus.events()) >= fired.value
        if whole or time.monotonic() > end:
            return dropped
        time.sleep(0.5)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=int, default=20_000, help="events a second")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--drain", type=int, default=60, help="seconds to wait for what is left")
    results.add_arguments(parser)
    return parser.parse_args()


def main():
    options = arguments()
    record = results.load(options.out, STOCK_VERSION)
    record["machine"] = machine()
    with tempfile.TemporaryDirectory(prefix="react-", dir="/tmp") as top:
        place = Place(pathlib.Path(top))
        for kind in results.kinds(options):
            results.of_master(record, kind).update(measure(kind, place, options))
    if options.only:
        return
    record["reactor"] = {"rate": options.rate, "seconds": options.seconds}
    results.write(record, options.out)


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main())
