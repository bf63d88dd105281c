"""Sends one event to the master with the keys of a minion, through stock's own request channel.

`send_event.py MINION_CONFIG TAG`; exit code 0 once the master acknowledged it, 1 if it refused.
It tries once and reports; it deliberately does not retry as a minion would.
"""

import sys

import salt.channel.client
import salt.config


def main():
    config, tag = sys.argv[1:]
    opts = salt.config.minion_config(config)
    opts["master_uri"] = f"tcp://{opts['master']}:{opts['master_port']}"
    opts["auth_tries"] = 1
    opts["auth_safemode"] = False
    load = {"cmd": "_minion_event", "id": opts["id"], "tag": tag, "data": {}, "pretag": None}
    with salt.channel.client.ReqChannel.factory(opts) as channel:
        channel.send(load, tries=1, timeout=10)


try:
    main()
except BaseException as error:  # stock raises SystemExit too when its key is refused
    sys.exit(f"refused: {error!r}")
