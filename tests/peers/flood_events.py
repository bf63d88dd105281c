"""Fires events on a master's bus through stock's own client, as fast as the master takes them.

`flood_events.py SOCK_DIR CONFIG_FILE COUNT BYTES`: so many events tagged `flood/NUMBER`, each with
so many bytes of data. Ends when the last one is handed over.

`flood_events.py SOCK_DIR CONFIG_FILE COUNT BYTES END SEEN`: until there is a file END or COUNT are fired, no more than
200 beyond the number in the file SEEN. Prints how many were.
"""

import os
import sys
import time

import salt.config
import salt.utils.event

# More than these may not be unseen.
MAX_AHEAD = 200


class Pace:
    """Waits for the number in a file to grow, or for another file to be there."""

    def __init__(self, end, seen):
        self.end, self.path, self.seen = end, seen, 0

    def is_over(self, fired):
        """Whether it is the end; returns when there is room for one more."""
        while not os.path.exists(self.end):
            if fired < self.seen + MAX_AHEAD:
                return False
            time.sleep(0.01)
            try:
                with open(self.path, encoding="ascii") as file:
                    self.seen = int(file.read())
            except (OSError, ValueError):
                # Not there yet, or being written.
                continue
        return True


def main():
    sock_dir, config, count, size, *files = sys.argv[1:]
    pace = Pace(*files) if files else None
    opts = salt.config.client_config(config)
    bus = salt.utils.event.get_event("master", sock_dir=sock_dir, opts=opts, listen=False)
    data = {"filling": "x" * int(size)}
    fired = 0
    for number in range(int(count)):
        if pace and pace.is_over(number):
            break
        # Milliseconds to connect; a busy machine may take longer than stock's one second.
        if not bus.fire_event(data, f"flood/{number}", timeout=180_000):
            sys.exit(f"event {number} was not taken")
        fired += 1
    print(fired)


main()
