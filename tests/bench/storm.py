#!/usr/bin/env python3
"""Two things that a master of thousands meets, for stock salt-master 3008.3 and for ours in one run.

Storm: the master is killed with all minions connected and started at once; how long until each of
them is served again, what became of the job that was running, and how long clients wait meanwhile.
Watch: twenty long jobs, each followed by a client as stock's command line follows one, with some
minions that are slow to answer; how many publications ask the minions what they run, and how often
a client receives “did not return” for a minion that was at work.

`make bench` runs it after run.py and adds what it found to results.* there, and storm.svg. Alone:
`tests/bench/storm.py [--minions N] [--limit SECONDS] [--out DIR]`.
"""

import argparse
import json
import os
import pathlib
import tempfile

import results
from report import write_storm_svg
from run import STOCK_VERSION, Master, machine, put_load


class Place:
    """Where the masters put their directories; they serve no files."""

    def __init__(self, top):
        self.top = top

    def options(self):
        return ""


def storm(kind, place, options):
    print(f"{kind}: {options.minions} minions, kill -9", flush=True)
    with Master(kind, place) as master:
        arguments = ["--minions", options.minions, "--seconds", options.limit]
        return put_load(master, [*arguments, "--phases", "storm"])


def watch(kind, place, options):
    print(f"{kind}: {options.watched} minions, twenty long jobs", flush=True)
    with Master(kind, place) as master:
        return put_load(master, ["--minions", options.watched, "--phases", "watch"])["watch"]


def figures(stormed, watched, options):
    """The figures for the table; a time that was not waited for is at least the limit."""
    found = stormed["storm"]
    whole = found["done"] >= options.minions
    return {
        "storm_all_served_seconds": found["all_served_seconds"],
        "storm_sign_ins": found["sign_ins"],
        "storm_publish_p99_ms": found["publish_p99_ms"],
        "storm_publishes_failed": found["publishes_failed"],
        "storm_job_lost": found["job_minions"] - found["job_returned"],
        "watch_find_job_publishes": watched["find_job_publishes"],
        "watch_wrong_verdicts": watched["wrong_verdicts"],
    }, ([] if whole else ["storm_all_served_seconds"])


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minions", type=int, default=5000, help="of the storm")
    parser.add_argument("--limit", type=int, default=60, help="seconds to wait for the last one")
    parser.add_argument("--watched", type=int, default=500, help="minions that run long jobs")
    results.add_arguments(parser)
    return parser.parse_args()


def main():
    options = arguments()
    results.raise_descriptor_limit()
    record = results.load(options.out, STOCK_VERSION)
    record["machine"] = machine()
    curves = {}
    with tempfile.TemporaryDirectory(prefix="storm-") as top:
        place = Place(pathlib.Path(top))
        for kind in results.kinds(options):
            stormed = storm(kind, place, options)
            watched = watch(kind, place, options)
            master = results.of_master(record, kind)
            of_storm, capped = figures(stormed, watched, options)
            kept = [key for key in master.get("capped", []) if not key.startswith("storm_")]
            master.update(of_storm, capped=kept + capped)
            curves[kind] = stormed.get("storm_curve", [])
    if options.only:
        print(json.dumps(record["masters"][options.only], indent=2))
        return
    record["storm"] = {"minions": options.minions, "limit": options.limit, "curves": curves}
    results.write(record, options.out)
    write_storm_svg(record, options.out / "storm.svg")


if __name__ == "__main__":
    os.umask(0o077)
    main()
