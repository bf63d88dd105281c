"""Answers of stock Salt's gitfs, with GitPython, for tests/gitfs_stock/mod.rs.

Reads a list of steps as JSON from the standard input: {"config": path of a master's file, "calls":
[[function, arguments...], ...]}. Each is answered by a fresh file server after an update. Writes
the list of lists of answers; an exception is {"exception": its type}, bytes are {"hex": ...}.

The function "pillar" compiles the pillar of a minion instead: [minion, saltenv, pillarenv].
"""

import gzip
import json
import logging
import sys
import time
import types

import salt.config
import salt.fileserver
import salt.pillar
import salt.pillar.git_pillar
import salt.utils.gitfs

logging.disable(logging.CRITICAL)

# A call that fails leaves the lock of a list behind, and the next one waits a second for whoever holds
# it before it removes it: here that is nobody.
salt.fileserver.time = types.SimpleNamespace(sleep=lambda seconds: None, time=time.time)

ARGUMENTS = {
    "file_find": ["path", "saltenv"],
    "file_hash": ["path", "saltenv"],
    "file_hash_and_stat": ["path", "saltenv"],
    "serve_file": ["path", "saltenv", "loc", "gzip"],
}


def as_json(value):
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    return value


def hash_as_text(answer):
    # The digest is text when it was computed, and bytes when it came from stock's cache.
    for part in answer if isinstance(answer, (list, tuple)) else [answer]:
        if isinstance(part, dict) and isinstance(part.get("hsum"), bytes):
            part["hsum"] = part["hsum"].decode()
    return answer


def pillar(opts, minion, saltenv, pillarenv):
    compiled = salt.pillar.Pillar(opts, {"id": minion}, minion, saltenv, pillarenv=pillarenv)
    return compiled.compile_pillar()


def call(opts, server, function, arguments):
    if function == "pillar":
        return pillar(opts, *arguments)
    if function == "file_envs":
        return sorted(server.file_envs({}))
    load = dict(zip(ARGUMENTS.get(function, ["saltenv", "prefix"]), arguments))
    answer = getattr(server, "_find_file" if function == "file_find" else function)(load)
    if function == "serve_file":
        if isinstance(answer.get("data"), str):
            answer["data"] = answer["data"].encode()
        if "gzip" in answer:
            answer["data"] = gzip.decompress(answer["data"])
    return hash_as_text(answer)


def fetch_pillar(opts):
    for entry in opts["ext_pillar"]:
        if "git" in entry:
            salt.utils.gitfs.GitPillar(
                opts,
                entry["git"],
                per_remote_overrides=salt.pillar.git_pillar.PER_REMOTE_OVERRIDES,
                per_remote_only=salt.pillar.git_pillar.PER_REMOTE_ONLY,
                global_only=salt.pillar.git_pillar.GLOBAL_ONLY,
            ).fetch_remotes()


def answers(case):
    opts = salt.config.master_config(case["config"])
    fetch_pillar(opts)
    # The file server keeps one object for each event loop, which would outlive its configuration.
    salt.utils.gitfs.GitFS.instance_map.clear()
    server = salt.fileserver.Fileserver(opts)
    if any(function != "pillar" for function, *_ in case["calls"]):
        server.update()
    for function, *arguments in case["calls"]:
        try:
            yield as_json(call(opts, server, function, arguments))
        except Exception as error:  # whatever it is, a handler would answer ""
            yield {"exception": type(error).__name__ + str(error)}


json.dump([list(answers(case)) for case in json.load(sys.stdin)], sys.stdout)
