#!/usr/bin/env python3
"""Watches whether our master grows under a steady load: `tests/bench/soak.py [--minutes 44]`.

A swarm of minions returns at a steady rate, jobs are published, two listeners stand on the event
bus, old jobs expire: 2,000 returns and as many events a second. Memory (PSS), descriptors and
threads of the master are read every few seconds; after the warm-up, in which caches fill and the
first jobs expire, a straight line is laid through them. The exit code is 1 when one of the slopes
exceeds a tenth of what Salt's own nightly test allows (`tests/monitoring/analyze_stats.py`).

Needs only Python's standard library and the program in target/release (`make lab`).
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from run import LAB, SALTERN, Master, wait_for

# What a slope may be at most, a second: a tenth of 10 KB, 0.01 descriptors and 0.001 processes.
GATES = {"pss_kb": 1.0, "descriptors": 0.001, "threads": 0.0001}
SAMPLE_SECONDS = 5
# How long jobs are kept: well within the warm-up, so that as much goes as comes.
KEEP_SECONDS = 240
PUBLISH_SECONDS = 10


class Plain:
    """A site with nothing but a directory."""

    def __init__(self, top):
        self.top = top

    def options(self):
        return (
            f"keep_jobs_seconds: {KEEP_SECONDS}\n"
            "loop_interval: 10\n"
            # A file a return would measure the disk.
            "local_cache_mirror: loads\n"
        )


def sample(master):
    process = master.process.pid
    return {
        "seconds": time.monotonic(),
        "pss_kb": master.pss() / 1024,
        "descriptors": len(os.listdir(f"/proc/{process}/fd")),
        "threads": len(os.listdir(f"/proc/{process}/task")),
    }


def metric(master, name):
    command = [SALTERN, "metrics", "-c", master.dir / "conf"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = (line.rpartition(" ") for line in text.splitlines())
    return sum(float(value) for key, _, value in lines if key.partition("{")[0] == name)


def slope(samples, name):
    """The slope a second of the straight line with the least squares."""
    times = [one["seconds"] for one in samples]
    values = [one[name] for one in samples]
    middle, mean = sum(times) / len(times), sum(values) / len(values)
    across = sum((moment - middle) ** 2 for moment in times)
    both = zip(times, values, strict=True)
    return sum((moment - middle) * (value - mean) for moment, value in both) / across


def start_swarm(master, options):
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
    wait_for("the swarm to sign in", lambda: b"signed in;" in output.read_bytes())
    return swarm


def watch(master, options):
    """Samples until the time is up, and how many events a second there were."""
    samples = []
    end = time.monotonic() + 60 * options.minutes
    events, began = metric(master, "saltern_bus_events_total"), time.monotonic()
    next_job = began
    while time.monotonic() < end:
        if master.process.poll() is not None:
            sys.exit("the master ended:\n" + (master.dir / "output").read_text()[-4000:])
        if time.monotonic() >= next_job:
            next_job += PUBLISH_SECONDS
            command = [SALTERN, "cmd", "--async", "-c", master.dir / "conf", "soak-1*", "test.ping"]
            subprocess.run(command, capture_output=True, check=True)
        samples.append(sample(master))
        time.sleep(SAMPLE_SECONDS)
    events = metric(master, "saltern_bus_events_total") - events
    return samples, events / (time.monotonic() - began)


def judge(samples, options):
    """The slopes after the warm-up, by name; prints them beside what they may be."""
    begin = samples[0]["seconds"] + 60 * options.warm_up
    late = [one for one in samples if one["seconds"] >= begin]
    if len(late) < 10:
        sys.exit("too little time after the warm-up")
    slopes = {name: slope(late, name) for name in GATES}
    for name, gate in GATES.items():
        first, last = late[0][name], late[-1][name]
        print(
            f"{name}: {first:.0f} -> {last:.0f}, slope {slopes[name]:+.5f}/s, "
            f"at most {gate}/s: {'ok' if slopes[name] <= gate else 'TOO MUCH'}"
        )
    return slopes


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=44)
    parser.add_argument("--warm-up", type=float, default=14, help="minutes that do not count")
    parser.add_argument("--minions", type=int, default=500)
    parser.add_argument("--rate", type=int, default=2000, help="returns a second")
    parser.add_argument("--samples", type=pathlib.Path, help="also write the samples here (JSON)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="slt-soak-", dir="/tmp") as top:
        with Master("saltern", Plain(pathlib.Path(top))) as master:
            swarm = start_swarm(master, options)
            try:
                samples, events = watch(master, options)
            finally:
                swarm.terminate()
                swarm.wait()
    if options.samples:
        options.samples.write_text(json.dumps(samples))
    print(f"{options.minutes:g} minutes, {options.rate} returns/s, {events:.0f} events/s")
    slopes = judge(samples, options)
    sys.exit(any(slopes[name] > gate for name, gate in GATES.items()))


if __name__ == "__main__":
    main()
