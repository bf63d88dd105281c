"""Fires events on a master's bus through stock's own client, as fast as the master takes them.

`flood_events.py SOCK_DIR CONFIG_FILE COUNT BYTES`: so many events tagged `flood/NUMBER`, each with
so many bytes of data. Ends when the last one is handed over.

`flood_events.py SOCK_DIR CONFIG_FILE COUNT BYTES END`: one every five milliseconds, until there is a file
END or COUNT are fired. Prints how many were.
"""

import os
import sys
import time

import salt.config
import salt.utils.event


def main():
    sock_dir, config, count, size, *end = sys.argv[1:]
    opts = salt.config.client_config(config)
    bus = salt.utils.event.get_event("master", sock_dir=sock_dir, opts=opts, listen=False)
    data = {"filling": "x" * int(size)}
    fired = 0
    for number in range(int(count)):
        if end and os.path.exists(end[0]):
            break
        if end:
            time.sleep(0.005)
        # Milliseconds to connect; a busy machine may take longer than stock's one second.
        if not bus.fire_event(data, f"flood/{number}", timeout=180_000):
            sys.exit(f"event {number} was not taken")
        fired += 1
    print(fired)


main()
