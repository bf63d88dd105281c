"""Follows a stream of server-sent events over breaks, as a browser's EventSource does.

`sse_client.py URL TOKEN`: opens the stream and again whenever it ends, with the id of the last event
in `Last-Event-ID`. A line `wait COUNT TEXT` is answered, as soon as so many of the events have the
text in their tags, with one line of JSON: all events so far, `[id, tag]` each. A line `open COUNT`
is answered when the stream was opened so many times.
"""

import http.client
import json
import sys
import threading
import time
import urllib.parse


class Follower(threading.Thread):
    def __init__(self, url, token):
        super().__init__(daemon=True)
        self.url, self.token = urllib.parse.urlsplit(url), token
        self.last = None
        self.opened = 0
        self.events = []
        self.changed = threading.Condition()

    def run(self):
        while True:
            try:
                self.follow()
            except (OSError, http.client.HTTPException):
                pass
            # The server says `retry: 400`; a master that is away is asked more often.
            time.sleep(0.05)

    def follow(self):
        headers = {"X-Auth-Token": self.token, "Accept": "text/event-stream"}
        if self.last is not None:
            headers["Last-Event-ID"] = self.last
        connection = http.client.HTTPConnection(self.url.netloc, timeout=60)
        connection.request("GET", self.url.path, headers=headers)
        response = connection.getresponse()
        if response.status != 200:
            raise OSError(f"{response.status} {response.read()!r}")
        with self.changed:
            self.opened += 1
            self.changed.notify_all()
        block = {}
        for line in iter(response.readline, b""):
            text = line.decode().rstrip("\n")
            if text:
                name, _, value = text.partition(":")
                block[name] = value.removeprefix(" ")
            elif "data" in block:
                self.take(block)
                block = {}

    def take(self, block):
        self.last = block.get("id", self.last)
        with self.changed:
            self.events.append([block.get("id"), block.get("tag")])
            self.changed.notify_all()

    def wait(self, is_there):
        with self.changed:
            self.changed.wait_for(is_there, timeout=120)
            return list(self.events)


def main():
    follower = Follower(*sys.argv[1:])
    follower.start()
    for line in sys.stdin:
        verb, count, *text = line.split()
        if verb == "open":
            follower.wait(lambda: follower.opened >= int(count))
            print(follower.opened, flush=True)
        else:
            tags = lambda: sum(text[0] in str(tag) for _, tag in follower.events)
            print(json.dumps(follower.wait(lambda: tags() >= int(count))), flush=True)


main()
