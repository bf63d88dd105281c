"""Asks the master as a minion does, by stock's request channel, many questions in one process.

`ask_master.py MINION_CONFIG` reads one load a line as JSON and answers each with one line of JSON:
what the master answered. The minion's id is added.
"""

import json
import sys

import salt.channel.client
import salt.config


def main():
    opts = salt.config.minion_config(sys.argv[1])
    opts["master_uri"] = f"tcp://{opts['master']}:{opts['master_port']}"
    with salt.channel.client.ReqChannel.factory(opts) as channel:
        for line in sys.stdin:
            load = {"id": opts["id"], **json.loads(line)}
            print(json.dumps(channel.send(load), sort_keys=True), flush=True)


main()
