#!/usr/bin/env python3
"""Mutates the code that decides who may do what, and lets the tests of its own crate find it.

    tests/mutants.py [--package NAME]... [--file GLOB]... [--minutes N]
                     [--at-once | [--shard K/N] [--tests 'NAME…']]

By default all that docs/mutants.md names, which takes hours. Each mutant that no test finds has to stand
in tests/mutants.list with the reason why none can; the run fails on any other one, and on an entry that a
test does find. A mutant with which the tests hang is found.

With --at-once one build has all mutants that can be placed so (mutants_at_once.py): minutes for hours.

The sources are copied into target/mutants/tree and mutated there, one at a time, so that the working tree
and its own build are left alone. With --minutes the run ends then, and says how many are left. With that or
--shard not all mutants of a name may be tried, so no entry of the list is called found.
"""

import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import mutants_at_once

ROOT = pathlib.Path(__file__).resolve().parent.parent
LIST = ROOT / "tests/mutants.list"
TARGET = ROOT / "target/mutants"

# By crate: what is mutated. "The gate" is what stands between a request and what it asks for.
SCOPE = {
    "saltern-policy": ["src/policy/src/**"],
    "saltern-crypto": ["src/crypto/src/**"],
    "saltern-requests": [
        f"src/requests/src/{name}.rs"
        for name in [
            "credentials",
            "envelope",
            "master_gate",
            "minion_runner",
            "peer_publish",
            "proved",
            "targets",
            "key_admission",
            "job/jid_owner",
            "job/refusal",
        ]
    ],
}

# How cargo-mutants calls an outcome, and how it is called here.
OUTCOMES = {
    "CaughtMutant": "found",
    "Timeout": "found by hanging",
    "Unviable": "does not build",
    "MissedMutant": "not found",
}


def main():
    arguments = parsed()
    packages = arguments.package or list(SCOPE)
    end = arguments.minutes and time.monotonic() + arguments.minutes * 60
    tools = install()
    copy_sources()
    tried, listed = [], 0
    for package in packages:
        left = end and end - time.monotonic()
        run = at_once if arguments.at_once else mutate
        outcomes, count = run(package, arguments, tools, left)
        tried += outcomes
        listed += count
    if not listed:
        globs = " ".join(arguments.file or [])
        sys.exit(f"mutants: no mutants in {' '.join(packages)} {globs}".rstrip())
    if not tried:
        sys.exit(f"mutants: none of {listed} was tried in this time")
    print_table(tried)
    print(f"mutants: {len(tried)} of {listed} tried")
    is_whole = not (arguments.minutes or arguments.shard)
    faults = compare(tried, known_survivors(), is_whole)
    for fault in faults:
        print(f"mutants: {fault}", file=sys.stderr)
    sys.exit(1 if faults else 0)


def parsed():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--package", action="append", choices=list(SCOPE))
    parser.add_argument("--file", action="append")
    parser.add_argument("--shard")
    # Quicker; what these do not find, others of the crate may.
    parser.add_argument("--tests")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--at-once", action="store_true")
    given = parser.parse_args()
    if given.at_once and (given.shard or given.tests):
        parser.error("--at-once chooses the tests itself, and has no shards")
    return given


def install():
    """The environment in which `cargo mutants` is found."""
    script = [str(ROOT / "tests/install-tools.sh"), "--mutants"]
    path = subprocess.run(script, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    return {
        **os.environ,
        "PATH": f"{os.environ['PATH']}:{path}",
        "CARGO_TARGET_DIR": str(TARGET / "build"),
    }


def copy_sources():
    """Copies what has changed since the last run, so that cargo builds no more than that."""
    tree = TARGET / "tree"
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout
    names = {name for name in names.split("\0") if name and (ROOT / name).is_file()}
    for name in names:
        source, copy = ROOT / name, tree / name
        if copy.is_file() and copy.read_bytes() == source.read_bytes():
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, copy, follow_symlinks=True)
        # Newer than what an interrupted run built of a mutant.
        os.utime(copy)
    for path in sorted(tree.rglob("*")):
        if path.is_file() and str(path.relative_to(tree)) not in names:
            path.unlink()


def at_once(package, arguments, environment, left):
    """The same as `mutate`, with one build for all mutants that can be placed in it."""
    end = left and time.monotonic() + left
    listed = list_mutants(package, arguments, environment)
    for number, mutant in enumerate(listed, 1):
        mutant["id"] = number
    if not listed:
        return [], 0
    try:
        found = mutants_at_once.outcomes(package, listed, TARGET / "tree", environment, copy_sources, end)
    except mutants_at_once.Failed as error:
        sys.exit(f"mutants: {error}")
    outcomes = [
        (mutant["file"], plain(mutant), found[mutant["id"]])
        for mutant in listed
        if mutant["id"] in found
    ]
    others = [mutant["name"] for mutant in listed if mutant["id"] not in found]
    if others and (end is None or time.monotonic() < end):
        left = end and end - time.monotonic()
        outcomes += mutate(package, arguments, environment, left, others)[0]
    return outcomes, len(listed)


def mutate(package, arguments, environment, left, names=()):
    """The outcomes of the mutants that were tried in the seconds that are left, and how many there are.

    With `names`, of these alone.
    """
    output = TARGET / package
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    count = len(list_mutants(package, arguments, environment))
    if count == 0 or (left is not None and left <= 0):
        return [], count
    command = ["nice", "-n", "19", "cargo", "mutants", "--in-place", *chosen(package, arguments)]
    command += ["--no-shuffle", "--output", str(output), "--minimum-test-timeout", "180"]
    command += [f"--re=^{re.escape(name)}$" for name in names]
    # Neither examples nor those in the documentation.
    command += ["--cargo-arg=--tests"]
    if arguments.tests:
        command += ["--", "--", *arguments.tests.split()]
    run = subprocess.Popen(command, cwd=TARGET / "tree", env=environment)
    try:
        code = run.wait(left)
        # 2: not found; 3: hangs.
        if code not in (0, 2, 3):
            sys.exit(f"mutants: cargo mutants of {package} ended with {code}")
    except subprocess.TimeoutExpired:
        run.send_signal(signal.SIGINT)
        run.wait()
    results = output / "mutants.out" / "outcomes.json"
    if not results.is_file():
        print(f"mutants: the tests of {package} without a mutant were not over in this time")
        return [], count
    outcomes = json.loads(results.read_text())["outcomes"]
    mutants = [one for one in outcomes if isinstance(one["scenario"], dict)]
    named = [(one["scenario"]["Mutant"], OUTCOMES.get(one["summary"])) for one in mutants]
    return [(mutant["file"], plain(mutant), how) for mutant, how in named if how], count


def list_mutants(package, arguments, environment):
    command = ["cargo", "mutants", "--list", "--json", *chosen(package, arguments)]
    tree = TARGET / "tree"
    listing = subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE)
    if listing.returncode:
        sys.exit(f"mutants: the mutants of {package} cannot be listed")
    return json.loads(listing.stdout)


def chosen(package, arguments):
    """The arguments of cargo mutants that choose what is mutated."""
    globs = arguments.file or SCOPE[package]
    shard = ["--shard", arguments.shard] if arguments.shard else []
    return ["--package", package, *(f"--file={glob}" for glob in globs), *shard]


def plain(mutant):
    """Its name without line and column, which change with every edit."""
    return re.sub(r"^([^:]+):\d+:\d+: ", r"\1: ", mutant["name"])


def known_survivors():
    """The entries of the list: a mutant to how many of that name no test finds."""
    known = {}
    for line in LIST.read_text().splitlines():
        if line and not line.startswith(("#", " ")):
            name, _, times = line.partition(" ×")
            known[name] = int(times or 1)
    return known


def compare(tried, known, is_whole):
    survivors = collections.Counter(name for _, name, how in tried if how == "not found")
    total = collections.Counter(name for _, name, _ in tried)
    faults = [
        f"no test finds: {name}" + (f" ×{count}" if count > 1 else "")
        for name, count in sorted(survivors.items())
        if count > known.get(name, 0)
    ]
    # The others of that name may not be found.
    faults += [
        f"tests/mutants.list has {name}, which a test finds"
        for name, count in sorted(known.items())
        if is_whole and total[name] >= count > survivors[name]
    ]
    return faults


def print_table(tried):
    rows = collections.defaultdict(collections.Counter)
    for file, _, how in tried:
        rows[file][how] += 1
    columns = list(OUTCOMES.values())
    print(f"| file | {' | '.join(columns)} |")
    print(f"|---|{'---|' * len(columns)}")
    for file, counts in sorted(rows.items()):
        print(f"| `{file}` | {' | '.join(str(counts[column]) for column in columns)} |")
    total = sum(rows.values(), collections.Counter())
    print(f"| all | {' | '.join(str(total[column]) for column in columns)} |")


if __name__ == "__main__":
    main()
