#!/usr/bin/env python3
"""Measures our job database when it is large, and how long a master with much on its disk takes to
start. Needs a release binary (`make lab`) and about 7 GB below the directory for temporary files.

`tests/bench/store.py [--jobs N] [--minions N] [--keys N]`: fills a database of so many jobs with so
many returns each (`saltern-lab bench-store`), asks it; then starts a master with a tenth of the returns
and so many accepted keys until both ports serve. Prints one JSON object. Stock has nothing to
compare with: it would keep a directory a return.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from run import LAB, Master


class Place:
    """What `Master` wants of a site: a directory, and no options of its own."""

    def __init__(self, top):
        self.top = top

    def options(self):
        return ""


def fill(master, jobs, minions, questions):
    command = [LAB, "bench-store", "-c", master.dir / "conf"]
    for name, value in {"jobs": jobs, "minions": minions, "questions": questions}.items():
        command += [f"--{name}", str(value)]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def put_keys(master, keys):
    accepted = master.dir / "pki/minions"
    accepted.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["openssl", "genrsa", "-out", master.dir / "key.pem", "2048"], check=True, stderr=subprocess.DEVNULL
    )
    public = subprocess.run(
        ["openssl", "rsa", "-in", master.dir / "key.pem", "-pubout"],
        check=True,
        capture_output=True,
    ).stdout
    for number in range(keys):
        (accepted / f"minion-{number:06}").write_bytes(public)


def start(master):
    """Seconds from the start of the process until it serves."""
    bus = master.dir / "run/master_event_pub.ipc"
    began = time.monotonic()
    master.start()
    while not master.serves(bus):
        time.sleep(0.005)
    took = time.monotonic() - began
    master.kill()
    return took


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--minions", type=int, default=10)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--questions", type=int, default=2_000)
    options = parser.parse_args()
    top = pathlib.Path(tempfile.mkdtemp(prefix="saltern-store-"))
    try:
        large = Master("saltern", Place(top))
        lookups = fill(large, options.jobs, options.minions, options.questions)
        shutil.rmtree(large.dir)
        started = Master("saltern", Place(top))
        # Its own first: makes the master's keys.
        first = start(started)
        fill(started, options.jobs, 1, 1)
        put_keys(started, options.keys)
        os.sync()
        starts = [start(started) for _ in range(3)]
    finally:
        shutil.rmtree(top)
    print(
        json.dumps(
            {
                "store": lookups,
                "start": {
                    "keys": options.keys,
                    "jobs": options.jobs,
                    "empty_seconds": round(first, 3),
                    "seconds": [round(took, 3) for took in starts],
                },
            },
            indent=4,
        )
    )


if __name__ == "__main__":
    main()
