"""Serves our client ends with libzmq's sockets: python listeners.py KIND.

Prints its port first. `router` and `rep` echo for ever; `pub` and `xpub` wait for a subscription
or a line, then publish, and end when their input does.
"""

import sys

import zmq

kind = sys.argv[1]
context = zmq.Context()
socket = context.socket(getattr(zmq, kind.upper()))
socket.setsockopt(zmq.LINGER, 0)
socket.setsockopt(zmq.HEARTBEAT_IVL, 50)
socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 2000)
print(socket.bind_to_random_port("tcp://127.0.0.1"), flush=True)

if kind == "router":
    while True:
        identity, empty, payload = socket.recv_multipart()
        socket.send_multipart([identity, empty, identity + b":" + payload])
elif kind == "rep":
    while True:
        socket.send(b":" + socket.recv())
elif kind == "xpub":
    print(socket.recv(), flush=True)
    for number in range(1000):
        socket.send_multipart([b"topic", b"%d" % number])
    sys.stdin.read()
