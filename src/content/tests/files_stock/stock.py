"""Answers of stock Salt's file server, for tests/files_stock/mod.rs.

Reads a list of cases as JSON from the standard input: {"config": path of a master's file, "calls":
[[function, arguments...], ...]}. Writes the list of lists of answers. An exception is the answer
{"exception": its type}, bytes are {"hex": ...}.
"""

import gzip
import json
import logging
import os
import sys
from types import SimpleNamespace

import salt.config
import salt.fileserver
import salt.master

logging.disable(logging.CRITICAL)


def as_json(value):
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [as_json(item) for item in value]
    return value


def file_recv(opts, minion, parts, loc, data):
    handler = getattr(salt.master.AESFuncs, "_sync_file_recv", salt.master.AESFuncs._file_recv)
    load = {"id": minion, "path": parts, "loc": loc, "data": bytes.fromhex(data), "size": 0}
    return handler(SimpleNamespace(opts=opts), load)


def received(opts):
    files = {}
    top = os.path.join(opts["cachedir"], "minions")
    for directory, _, names in os.walk(top):
        for name in names:
            path = os.path.join(directory, name)
            with open(path, "rb") as file:
                files[os.path.relpath(path, top)] = file.read().hex()
    return files


def call(opts, server, function, arguments):
    if function == "file_recv":
        return file_recv(opts, *arguments)
    if function == "received":
        return received(opts)
    if function == "file_envs":
        return sorted(server.file_envs({}))
    names = {
        "file_find": ["path", "saltenv"],
        "file_hash": ["path", "saltenv"],
        "file_hash_and_stat": ["path", "saltenv"],
        "serve_file": ["path", "saltenv", "loc", "gzip"],
    }.get(function, ["saltenv", "prefix"])
    load = dict(zip(names, arguments))
    answer = getattr(server, "_find_file" if function == "file_find" else function)(load)
    if function == "serve_file":
        if isinstance(answer.get("data"), str):
            answer["data"] = answer["data"].encode()
        if "gzip" in answer:
            answer["data"] = gzip.decompress(answer["data"])
    return answer


def answers(case):
    opts = salt.config.master_config(case["config"])
    server = salt.fileserver.Fileserver(opts)
    for function, *arguments in case["calls"]:
        try:
            yield as_json(call(opts, server, function, arguments))
        except Exception as error:  # whatever it is, a handler would answer ""
            yield {"exception": type(error).__name__}


json.dump([list(answers(case)) for case in json.load(sys.stdin)], sys.stdout)
