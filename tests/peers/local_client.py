"""Calls minions through stock's own client, many calls in one process.

`local_client.py MASTER_CONFIG` reads one JSON object a line: `tgt`, `tgt_type`, `fun`, `arg`, and
`publish` when nobody is to be waited for. It answers each with one line of JSON: the minions that
the master expects, sorted, or with the returns of all minions; or the text of what stock raised.
"""

import json
import sys

import salt.client


def answer(client, call):
    publish = call.pop("publish", False)
    try:
        if publish:
            return sorted(client.pub(**call).get("minions", []))
        return client.cmd(timeout=30, **call)
    except Exception as error:  # whatever stock raises is the answer
        return f"{type(error).__name__}: {error}"


def main():
    with salt.client.LocalClient(sys.argv[1]) as client:
        for line in sys.stdin:
            print(json.dumps(answer(client, json.loads(line)), sort_keys=True), flush=True)


main()
