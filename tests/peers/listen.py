"""Prints every event of a master's bus as one JSON line, seen through stock Salt's own listener.

Run by the Python of the Salt release under test: `listen.py SOCK_DIR CONFIG_FILE`. The first line
is {"listening": true}, written once the event socket is connected. It deliberately interprets
nothing: the tests look at the fields.
"""

import json
import sys

import salt.config
import salt.utils.event


def plain(value):
    """Bytes and other values JSON does not know, in a form a test can compare."""
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    return {"object": repr(value)}


def main():
    sock_dir, config = sys.argv[1:]
    opts = salt.config.client_config(config)
    bus = salt.utils.event.get_event("master", sock_dir=sock_dir, opts=opts, listen=True)
    if not bus.connect_pub(timeout=180):
        sys.exit(f"cannot connect to the event socket in {sock_dir}")
    print(json.dumps({"listening": True}), flush=True)
    while True:
        # For ever: a wait that runs out cancels a read under way, and what it had read is lost.
        event = bus.get_event(wait=0, full=True)
        if event is None:
            sys.exit("the event socket was closed")
        print(json.dumps(event, default=plain), flush=True)


main()
