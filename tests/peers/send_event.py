"""Sends events to the master over one session of a minion, through stock's own request channel.

`send_event.py MINION_CONFIG` reads tags from standard input, one a line, or, as JSON, what the load
has beside the minion's id, and answers each with "ok" once the master acknowledged the event. At
the first refusal it ends with exit code 1; it deliberately does not wait and ask again as a minion
would. `patience` in such a JSON is the time, in seconds, after which no answer is a refusal.
"""

import json
import os
import signal
import sys

import salt.channel.client
import salt.config


def main():
    opts = salt.config.minion_config(sys.argv[1])
    opts["master_uri"] = f"tcp://{opts['master']}:{opts['master_port']}"
    opts["auth_tries"] = 1
    # A busy master may take longer than stock's five seconds.
    opts["auth_timeout"] = 60
    opts["rejected_retry"] = False
    with salt.channel.client.ReqChannel.factory(opts) as channel:
        for line in sys.stdin:
            said = json.loads(line) if line.startswith("{") else {"tag": line.strip(), "data": {}}
            # What is not acknowledged by then is refused: stock waits for ever for a pending key.
            patience = said.pop("patience", 120)
            signal.alarm(patience)
            load = {"cmd": "_minion_event", "id": opts["id"], "pretag": None, **said}
            channel.send(load, tries=1, timeout=patience)
            signal.alarm(0)
            print("ok", flush=True)


try:
    main()
except BaseException as error:  # stock raises SystemExit too when its key is refused
    print(f"refused: {error!r}", file=sys.stderr, flush=True)
    os._exit(1)
