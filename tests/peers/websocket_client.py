"""Listens to a websocket of events with `websocket-client`, as the manual of rest_cherrypy shows.

`websocket_client.py URL [ORIGIN] [HEADER…]`: connects at the first line, with these headers (`Name: value`)
and as a page of this origin, and prints `open`, or with which status it was refused. Each line after that is
answered with one: `say TEXT` with `said`, `wait TEXT` with the first message that contains the text, as JSON,
`briefly TEXT` with the same, or an empty one when nothing comes for five seconds,
and `end` with the code and the reason of the server's close frame, or `cut` without one. Between two lines
nothing is read.
"""

import json
import struct
import sys

import websocket

# Longer than any wait of a test: seconds without a message.
PATIENCE = 180


def end_of(socket):
    while True:
        try:
            opcode, data = socket.recv_data(control_frame=True)
        except (OSError, websocket.WebSocketException):
            return "cut"
        if opcode == websocket.ABNF.OPCODE_CLOSE:
            code = struct.unpack("!H", data[:2])[0] if len(data) >= 2 else "no code"
            return f"{code} {data[2:].decode()}"


def main():
    url, *options = sys.argv[1:]
    headers = [option for option in options if ": " in option]
    origin = next((option for option in options if ": " not in option), None)
    sys.stdin.readline()
    try:
        socket = websocket.create_connection(url, header=headers, origin=origin, timeout=PATIENCE)
    except websocket.WebSocketBadStatusException as error:
        print(f"refused: {error.status_code}", flush=True)
        return
    print("open", flush=True)
    for line in sys.stdin:
        verb, _, text = line.strip().partition(" ")
        if verb == "say":
            socket.send(text)
            print("said", flush=True)
        elif verb == "end":
            print(end_of(socket), flush=True)
        elif verb == "briefly":
            socket.settimeout(5)
            message = ""
            try:
                while text not in message:
                    message = socket.recv()
            except websocket.WebSocketTimeoutException:
                message = ""
            socket.settimeout(PATIENCE)
            print(json.dumps(message), flush=True)
        else:
            message = ""
            while text not in message:
                message = socket.recv()
            print(json.dumps(message), flush=True)


main()
