"""Listens to a websocket of events with `websocket-client`, as the manual of rest_cherrypy shows.

`websocket_client.py URL [TOKEN]`: connects, with the token in a header where there is one, and prints
`open`, or why it was not let in. A line is a text to wait for: it is answered with the first message
that contains it, as JSON, and an empty one with what came of closing.
"""

import json
import sys

import websocket


def main():
    url, *token = sys.argv[1:]
    sys.stdin.readline()
    try:
        socket = websocket.create_connection(url, header=[f"X-Auth-Token: {one}" for one in token], timeout=60)
    except websocket.WebSocketBadStatusException as error:
        print(f"refused: {error.status_code}", flush=True)
        return
    socket.send("websocket client ready")
    print("open", flush=True)
    for line in sys.stdin:
        text = line.strip()
        if not text:
            socket.close()
            print("closed", flush=True)
            return
        message = ""
        while text not in message:
            message = socket.recv()
        print(json.dumps(message), flush=True)


main()
