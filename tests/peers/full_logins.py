"""Logs in many times at once as a user whose backend does not answer yet.

`full_logins.py HOST PORT RELEASE`: opens connections that all log in as `waits`. Once one of them is
answered, which is a refusal for lack of room, the file RELEASE is made: the backend answers then.
Prints the first refusal and the first log-in that succeeded after it, as a list of JSON objects.
"""

import json
import pathlib
import re
import selectors
import socket
import sys

# More than wait for one name, and those that are under way.
LOGINS = 100
PATIENCE = 120


def answers(address):
    """The status and `Retry-After` of each answer, as they come."""
    body = json.dumps({"username": "waits", "password": "secret", "eauth": "pam"})
    request = (
        "POST /login HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAccept: application/json\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    )
    selector = selectors.DefaultSelector()
    for _ in range(LOGINS):
        connection = socket.create_connection(address)
        connection.sendall(request.encode())
        selector.register(connection, selectors.EVENT_READ, [])
    while selector.get_map():
        ready = selector.select(PATIENCE)
        if not ready:
            raise SystemExit("no log-in is answered")
        for key, _ in ready:
            part = key.fileobj.recv(65536)
            if part:
                key.data.append(part)
                continue
            selector.unregister(key.fileobj)
            key.fileobj.close()
            head = b"".join(key.data).partition(b"\r\n\r\n")[0].decode()
            retry = re.search(r"(?i)\r\nretry-after: (\S+)", head)
            status = int(head.split(" ")[1]) if head else 0
            yield {"status": status, "retry-after": retry and retry[1]}


def main():
    host, port, release = sys.argv[1:]
    answered = answers((host, int(port)))
    full = next(answered)
    pathlib.Path(release).touch()
    good = next((answer for answer in answered if answer["status"] == 200), None)
    print(json.dumps([full, good]))


main()
