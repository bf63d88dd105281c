#!/usr/bin/env python3
"""Measures how quickly a syndic of ours catches up with a master above that was away, with one
`_syndic_return` after the other and with frames (saltern_syndic_frames), in one run.

`tests/bench/syndic.py [--minions N] [--seconds N] [--rtt MS,…]`. A swarm returns to the master below
while the one above is away; then that is started, and the clock runs until nothing waits any more.
A proxy between the two makes the time that a request takes there and back.

`--outage SECONDS --rate N` cuts the syndic off for so long while so many returns a second come in all the time, and says
how much faster they go up afterwards, by frames and without, how much memory both masters took (without pages of files), and whether each
minion's returns are stored above in the order in which they are stored below.

`--ping ROUNDS` measures a `test.ping` of all minions through one syndic instead: in turn with our master
without a syndic, and beside stock's masters with `salt-syndic`. A time is that of the whole command, of ours
at our masters (`salt`) and of stock's at both; processor time is that of both masters and the syndic. Stock is 3007.15 here.
The figures are `syndic` in results.json; `make bench` takes them.

`make bench-check` runs all three for a moment. Needs only Python's standard library. It does not judge.
"""

import argparse
import asyncio
import contextlib
import hashlib
import json
import multiprocessing
import pathlib
import sqlite3
import subprocess
import tempfile
import time
import urllib.request

import results
from cli import Programs, swarm
from run import STOCK, STOCK_VERSION, Master, free_port, put_load, wait_for

ABOVE = "order_masters: True\nsaltern_syndic_frames: {frames}\n"
BELOW = (
    "order_masters: False\nsaltern_syndic_frames: {frames}\n"
    "syndic_master: 127.0.0.1:{port}\nsyndic_failover: ordered\n"
)


# The syndic of 3008.3 stalls even between masters of its own.
STOCK_TREE_VERSION = "3007.15"


class Place:
    """Where the masters put their directories; they serve nothing."""

    def __init__(self, top):
        self.top = top

    def options(self):
        return ""


class Alone(Master):
    """A master without listeners on its bus: those of one that is killed would fail."""

    version = STOCK_TREE_VERSION

    def __enter__(self):
        self.start()
        bus = self.dir / "run/master_event_pub.ipc"
        wait_for("the master to serve", lambda: self.serves(bus))
        return self


async def forward(reader, writer, delay):
    """Passes on what comes, each piece as much later, in order."""
    waiting = asyncio.Queue()

    async def write():
        while True:
            due, piece = await waiting.get()
            await asyncio.sleep(max(0, due - time.monotonic()))
            writer.write(piece)
            await writer.drain()
            if not piece:
                writer.close()
                return

    writing = asyncio.create_task(write())
    with contextlib.suppress(OSError):
        while piece := await reader.read(1 << 16):
            waiting.put_nowait((time.monotonic() + delay, piece))
    waiting.put_nowait((time.monotonic() + delay, b""))
    with contextlib.suppress(OSError):
        await writing


def proxy(port, to, delay):
    """A proxy that takes `delay` seconds in each direction."""

    async def connected(reader, writer):
        try:
            above, up = await asyncio.open_connection("127.0.0.1", to)
        except OSError:
            writer.close()
            return
        await asyncio.gather(forward(reader, up, delay), forward(above, writer, delay))

    async def serve():
        server = await asyncio.start_server(connected, "127.0.0.1", port)
        async with server:
            await server.serve_forever()

    asyncio.run(serve())


def metric(master, name):
    """The sum of a metric of a master."""
    page = f"http://127.0.0.1:{master.metrics_port}/metrics"
    with urllib.request.urlopen(page) as answer:
        lines = answer.read().decode().splitlines()
    found = (line.rpartition(" ")[2] for line in lines if line.split("{")[0].split(" ")[0] == name)
    return sum(map(float, found))


def write_identity(below, name="relay", address="127.0.0.2", retry=60):
    """The file in which the syndic finds who it is."""
    root = below.dir / "syndic"
    root.mkdir()
    (below.dir / "conf/minion").write_text(
        f"id: {name}\nroot_dir: {root}\npki_dir: {root}/pki\nsource_address: {address}\n"
        # The value that means: the port that each master names.
        "publish_port: 4506\nacceptance_wait_time: 1\nrecon_default: 100\nrecon_max: 200\n"
        f"return_retry_timer: {retry}\nreturn_retry_timer_max: {retry}\n"
    )


def catch_up(place, options, frames, rtt):
    """Returns a second, and processor time of both masters, until a cut-off syndic has caught up."""
    port = free_port()
    above = Alone("saltern", place, ABOVE.format(frames=frames))
    delay = rtt / 2000
    between = multiprocessing.Process(target=proxy, args=(port, above.ret_port, delay), daemon=True)
    between.start()
    below = Alone("saltern", place, BELOW.format(frames=frames, port=port))
    write_identity(below)

    def connected():
        return metric(below, "saltern_syndic_connected") == 1

    def caught_up():
        return metric(below, "saltern_syndic_lag_rows") == 0

    try:
        with below, above:
            wait_for("the syndic to connect", connected)
            above.kill()
            load = ["--minions", options.minions, "--seconds", options.seconds]
            put_load(below, [*load, "--phases", "returns"])
            waiting = metric(below, "saltern_returns_total")
            above.start()
            wait_for("the syndic to connect", connected)
            begin, before = time.monotonic(), above.cpu() + below.cpu()
            sent = metric(below, "saltern_syndic_returns_total")
            wait_for("the syndic to catch up", caught_up, limit=1200)
            took = time.monotonic() - begin
            returns = metric(below, "saltern_syndic_returns_total") - sent
            cpu = above.cpu() + below.cpu() - before
    finally:
        between.kill()
    found = {
        "frames": frames,
        "rtt_ms": rtt,
        "waiting": waiting,
        "returns_per_second": round(returns / took),
        "cpu_ms_per_1000": round(1e6 * cpu / max(returns, 1)),
    }
    print(json.dumps(found), flush=True)
    return found


# Returns of an outage that the swarm has under way at a time.
IN_FLIGHT = 64
# Beyond a million rows the outbox drops the oldest ones; the bench is not about that.
KEEP = "saltern_syndic_keep_returns: 100000000\n"


def orders(master):
    """A digest of the jobs of each minion, in the order in which its returns were stored."""
    path = master.dir / "cache/saltern/jobs.sqlite"
    minions = {}
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        for jid, minion in database.execute("SELECT jid, minion FROM returns ORDER BY id"):
            minions.setdefault(minion, hashlib.blake2b(digest_size=16)).update(jid.encode())
    return {minion: digest.digest() for minion, digest in minions.items()}


def outage(place, options, frames):
    """What a syndic does that was cut off for long while returns came in, and go on to."""
    above = Alone("saltern", place, ABOVE.format(frames=frames))
    below = Alone("saltern", place, BELOW.format(frames=frames, port=above.ret_port) + KEEP)
    write_identity(below, retry=5)
    load = ["--returns", IN_FLIGHT, "--rate", options.rate]
    lag = lambda: metric(below, "saltern_syndic_lag_rows")
    sent = lambda: metric(below, "saltern_syndic_returns_total")
    with below, above:
        wait_for("the syndic to connect", lambda: metric(below, "saltern_syndic_connected") == 1)
        with swarm(below, "outage", options.minions, *load):
            wait_for("returns to go up", lambda: sent() > 0)
            memory = {}

            def watch(seconds, *names):
                """Notes the most memory of this time under each name."""
                end = time.monotonic() + seconds
                while time.monotonic() < end:
                    time.sleep(min(1, seconds))
                    for name in names:
                        memory[name] = max(memory.get(name, 0), below.pss("Pss_Anon"))

            # The same load beforehand: else its own share would count as that of the outage.
            watch(min(options.outage / 2, 60), "connected")
            above.kill()
            began, came = time.monotonic(), metric(below, "saltern_returns_total")
            watch(options.outage / 2, "cut_off", "first_half")
            watch(options.outage / 2, "cut_off")
            rate = (metric(below, "saltern_returns_total") - came) / (time.monotonic() - began)
            above.start()
            before = sent()
            wait_for("returns to go up again", lambda: sent() > before, limit=300)
            began, before, waiting = time.monotonic(), sent(), lag()
            while lag() > rate / 2:
                time.sleep(0.2)
                memory["catching_up"] = max(memory.get("catching_up", 0), below.pss("Pss_Anon"))
                memory["above"] = max(memory.get("above", 0), above.pss("Pss_Anon"))
            speed = (sent() - before) / (time.monotonic() - began)
        wait_for("the rest to go up", lambda: lag() == 0, limit=300)
        low, top = orders(below), orders(above)
        found = {
            "frames": frames,
            "in_per_second": round(rate),
            "waiting": waiting,
            "up_per_second": round(speed),
            "times": round(speed / rate, 1),
            "mb": {when: round(bytes_ / 1e6) for when, bytes_ in memory.items()},
            "minions_out_of_order": sum(low[minion] != top.get(minion) for minion in low),
            "dropped": metric(below, "saltern_syndic_returns_dropped_total"),
        }
    print(json.dumps(found), flush=True)


def start_stock_syndic(below):
    """Starts `salt-syndic` in the process group of the master below, which ends it."""
    with open(below.dir / "output", "ab") as output:
        subprocess.Popen(
            [STOCK / STOCK_TREE_VERSION / "bin/salt-syndic", "-c", below.dir / "conf"],
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            process_group=below.process.pid,
        )


@contextlib.contextmanager
def tree(kind, place):
    """A master, and a syndic below it with a master of its own: the two masters."""
    both = "saltern_syndic_inventory: True\n" if kind == "saltern" else ""
    above = Alone(kind, place, ABOVE.format(frames=True) + both)
    below = Alone(kind, place, BELOW.format(frames=True, port=above.ret_port) + both)
    write_identity(below)
    with above, below:
        if kind == "stock":
            start_stock_syndic(below)
        else:
            wait_for("the syndic to connect", lambda: metric(below, "saltern_syndic_connected") == 1)
        yield above, below


@contextlib.contextmanager
def flat(place):
    """Our master alone, as if it were both."""
    with Alone("saltern", place) as master:
        yield master, master


class Pinged:
    """`test.ping` of all minions at the first of the masters, by one `salt`: times, and processor time of all."""

    def __init__(self, name, salt, masters, programs, minions):
        # The one above first; one that is alone stands there twice.
        self.name, self.salt, self.masters, self.minions = name, salt, list(dict.fromkeys(masters)), minions
        self.command = programs.command("salt", masters[0], "--out", "txt", "*", "test.ping")
        self.times, self.cpu, self.missing = [], [0.0] * len(self.masters), 0

    def answers(self):
        run = subprocess.run(self.command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        return run.stdout.count(": True")

    def cpu_of_masters(self):
        return [master.cpu() for master in self.masters]

    def once(self):
        before, began = self.cpu_of_masters(), time.monotonic()
        self.missing += self.minions - self.answers()
        self.times.append(time.monotonic() - began)
        for number, cpu in enumerate(self.cpu_of_masters()):
            self.cpu[number] += cpu - before[number]

    def p50(self):
        return sorted(self.times)[len(self.times) // 2]

    def report(self):
        times, rounds = sorted(self.times), len(self.times)
        return {
            "masters": self.name,
            "salt": self.salt,
            "p50_ms": round(1000 * self.p50()),
            "p99_ms": round(1000 * times[min(rounds - 1, rounds * 99 // 100)]),
            "cpu_ms_of_masters": round(1000 * sum(self.cpu) / rounds),
            "cpu_ms_of_each": [round(1000 * cpu / rounds, 1) for cpu in self.cpu],
            "missing": self.missing,
        }


def measure_pings(place, options):
    """A ping through our tree and by our master alone, in turn, so that what else the machine does slows both;
    and then one through stock's tree, of which a round takes longer than all of ours."""
    (links := place.top / "links").mkdir()
    ours, stock = Programs("saltern", links), Programs("stock", links, STOCK_TREE_VERSION)
    with_stock = options.only != "saltern"
    clients = {"ours": ours, "stock": stock} if with_stock else {"ours": ours}
    with contextlib.ExitStack() as stack:
        served = {
            "tree": stack.enter_context(tree("saltern", place)),
            "flat": stack.enter_context(flat(place)),
        }
        for masters in served.values():
            stack.enter_context(swarm(masters[1], "ping", options.minions))
        by_ours = {
            client: [Pinged(name, client, masters, programs, options.minions) for name, masters in served.items()]
            for client, programs in clients.items()
        }
        for pinged in by_ours.values():
            measure_in_turn(pinged, options.ping)
    through, alone = by_ours["ours"]
    found = {
        "minions": options.minions,
        "times_as_long_as_flat": round(through.p50() / alone.p50(), 2),
        "pings": [pinged.report() for each in by_ours.values() for pinged in each],
    }
    print(f"through our syndic {found['times_as_long_as_flat']} times as long as without one")
    if with_stock:
        with tree("stock", place) as masters, swarm(masters[1], "ping", options.minions):
            below_stock = Pinged("stock's tree", "stock", masters, stock, options.minions)
            measure_in_turn([below_stock], options.ping)
        found["stock"] = STOCK_TREE_VERSION
        found["pings"].append(below_stock.report())
        found["times_quicker_than_stock"] = round(below_stock.p50() / through.p50(), 1)
        print(f"and {found['times_quicker_than_stock']} times quicker than stock's tree")
    record = results.load(options.out, STOCK_VERSION)
    record["syndic"] = found
    results.write(record, options.out)


def measure_in_turn(pinged, rounds):
    """Rounds of each in turn, once all minions have answered all of them."""
    for each in pinged:
        wait_for("all answers", lambda: each.answers() == each.minions, limit=300)
    for _ in range(rounds):
        for each in pinged:
            each.once()
    for each in pinged:
        print(json.dumps(each.report()), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minions", type=int, default=200)
    parser.add_argument("--seconds", type=int, default=10, help="how long returns come in")
    parser.add_argument(
        "--rtt",
        type=lambda text: [int(rtt) for rtt in text.split(",")],
        default=[0, 50],
        help="milliseconds there and back",
    )
    parser.add_argument("--ping", type=int, metavar="ROUNDS", help="measure test.ping instead")
    parser.add_argument("--outage", type=float, metavar="SECONDS", help="measure an outage of the master above instead")
    parser.add_argument("--rate", type=int, default=500, help="returns a second during it")
    results.add_arguments(parser, only=("saltern",))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slt-syndic-", dir="/tmp") as top:
        place = Place(pathlib.Path(top))
        if options.ping:
            measure_pings(place, options)
            return
        if options.outage:
            for frames in (False, True):
                outage(place, options, frames)
            return
        for rtt in options.rtt:
            before, after = (catch_up(place, options, frames, rtt) for frames in (False, True))
            ratio = after["returns_per_second"] / max(before["returns_per_second"], 1)
            print(f"{rtt} ms there and back: {ratio:.1f} times as many returns a second by frames")


if __name__ == "__main__":
    main()
