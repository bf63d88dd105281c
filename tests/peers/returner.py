"""Publishes jobs to one minion and returns them in its name, telling of every acknowledged return.

`returner.py MASTER_CONFIG MINION_CONFIG COUNT` prints {"acked": jid} the moment the master's reply
to a return arrived, through stock's own clients. It ends with exit code 1 as soon as the master
no longer answers; it deliberately does not retry, so what it printed is what it was promised.
"""

import json
import sys

import salt.channel.client
import salt.client
import salt.config


def main():
    master, minion, count = sys.argv[1:]
    opts = salt.config.minion_config(minion)
    opts["master_uri"] = f"tcp://{opts['master']}:{opts['master_port']}"
    opts["auth_tries"] = 1
    local = salt.client.LocalClient(master)
    jids = [local.cmd_async(opts["id"], "test.echo", [str(n)]) for n in range(int(count))]
    with salt.channel.client.ReqChannel.factory(opts) as channel:
        for number, jid in enumerate(jids):
            load = {
                "cmd": "_return",
                "id": opts["id"],
                "jid": jid,
                "fun": "test.echo",
                "fun_args": [str(number)],
                "return": str(number),
                "retcode": 0,
                "success": True,
            }
            channel.send(load, tries=1, timeout=15)
            print(json.dumps({"acked": jid}), flush=True)


try:
    main()
except BaseException as error:
    sys.exit(f"ended: {error!r}")
