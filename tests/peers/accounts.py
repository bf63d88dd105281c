"""Compares what a fleet was acknowledged with what its master has stored.

`accounts.py DATABASE LEDGER`: the ledger is what `saltern-lab swarm --acknowledged` wrote. Prints one
JSON object: how many returns there are on either side, and lists of what is wrong with them. Opens
the database as any other program could, with Python's own SQLite.
"""

import collections
import hashlib
import itertools
import json
import sqlite3
import sys

import msgpack

# The only one that is compared: what it returns is known from its arguments, and, for jobs that
# nobody published, from the jid and the minion.
FUNCTION = "test.echo"


def unpack(blob):
    return msgpack.unpackb(blob, raw=False, strict_map_key=False)


def digest(value):
    return hashlib.sha256(msgpack.packb(value, use_bin_type=True)).hexdigest()


def made_up(jid, minion, length):
    """What a minion of a swarm returns for a job that nobody published."""
    return "".join(itertools.islice(itertools.cycle(f"{jid} {minion} "), length))


def main():
    path, ledger = sys.argv[1:]
    acknowledged = {}
    with open(ledger, encoding="utf-8") as lines:
        for line in lines:
            jid, minion, function, content = line.split()
            if function == FUNCTION:
                acknowledged[jid, minion] = content

    database = sqlite3.connect(path, timeout=180)
    jobs, states = {}, collections.Counter()
    for jid, state, load in database.execute("SELECT jid, state, load FROM jobs"):
        arguments = unpack(load).get("arg") or []
        jobs[jid] = arguments[0] if arguments else None
        states[state] += 1

    stored = collections.Counter()
    changed, foreign = [], []
    rows = database.execute("SELECT jid, minion, load FROM returns WHERE fun = ?", [FUNCTION])
    for jid, minion, load in rows:
        value = unpack(load)["return"]
        name = f"{jid} {minion}"
        stored[jid, minion] += 1
        if acknowledged.get((jid, minion), digest(value)) != digest(value):
            changed.append(name)
        expected = jobs.get(jid)
        if expected is None and isinstance(value, str):
            expected = made_up(jid, minion, len(value))
        if value != expected:
            foreign.append(name)

    report = {
        "acknowledged": len(acknowledged),
        "stored": len(stored),
        "jobs": sorted(jobs),
        "open": states[0],
        "lost": [" ".join(key) for key in acknowledged if key not in stored],
        "doubled": [" ".join(key) for key, count in stored.items() if count > 1],
        "changed": changed,
        "foreign": foreign,
    }
    print(json.dumps(report))


main()
