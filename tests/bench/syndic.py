#!/usr/bin/env python3
"""Measures how quickly a syndic of ours catches up with a master above that was away, with one
`_syndic_return` after the other and with frames (saltern_syndic_frames), in one run.

`tests/bench/syndic.py [--minions N] [--seconds N] [--rtt MS,…]`. A swarm returns to the master below
while the one above is away; then that is started, and the clock runs until nothing waits any more.
A proxy between the two makes the time that a request takes there and back.

`make bench-check` runs it for a moment. Needs only Python's standard library. It does not judge.
"""

import argparse
import asyncio
import contextlib
import json
import multiprocessing
import pathlib
import subprocess
import tempfile
import time
import urllib.request

from run import Master, free_port, put_load, wait_for

ABOVE = "order_masters: True\nsaltern_syndic_frames: {frames}\n"
BELOW = (
    "order_masters: False\nsaltern_syndic_frames: {frames}\n"
    "syndic_master: 127.0.0.1:{port}\nsyndic_failover: ordered\n"
)


class Place:
    """Where the masters put their directories; they serve nothing."""

    def __init__(self, top):
        self.top = top

    def options(self):
        return ""


class Alone(Master):
    """A master without listeners on its bus: those of one that is killed would fail."""

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


def write_identity(below):
    """The file in which the syndic finds who it is."""
    root = below.dir / "syndic"
    root.mkdir()
    (below.dir / "conf/minion").write_text(
        f"id: relay\nroot_dir: {root}\npki_dir: {root}/pki\nsource_address: 127.0.0.2\n"
        "acceptance_wait_time: 1\nrecon_default: 100\nrecon_max: 200\nreturn_retry_timer: 60\n"
        "return_retry_timer_max: 60\n"
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
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slt-syndic-", dir="/tmp") as top:
        place = Place(pathlib.Path(top))
        for rtt in options.rtt:
            before, after = (catch_up(place, options, frames, rtt) for frames in (False, True))
            ratio = after["returns_per_second"] / max(before["returns_per_second"], 1)
            print(f"{rtt} ms there and back: {ratio:.1f} times as many returns a second by frames")


if __name__ == "__main__":
    main()
