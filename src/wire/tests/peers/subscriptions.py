"""Subscribes to a publish listener as libzmq does: python subscriptions.py ADDRESS SCENARIO.

Prints a line when the test is to publish, and waits for one where it has to.
"""

import sys

import zmq

address, scenario = sys.argv[1:]
context = zmq.Context()


def connected(*topics, kind=zmq.SUB):
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.RCVTIMEO, 20000)
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.setsockopt(zmq.RECONNECT_IVL, 20)
    for topic in topics:
        socket.setsockopt(zmq.SUBSCRIBE, topic)
    socket.connect(address)
    return socket


def tell(text):
    print(text, flush=True)
    assert sys.stdin.readline(), "the test is gone"


if scenario == "all":
    socket = connected(b"")
    tell("subscribed")
    for number in range(1000):
        assert socket.recv_multipart() == [b"message %d" % number]
    assert socket.recv_multipart() == [b"x" * 3000000]
elif scenario == "filtered":
    socket = connected(b"broadcast", b"a" * 40)
    tell("subscribed")
    assert socket.recv_multipart() == [b"a" * 40, b"for a"]
    assert socket.recv_multipart() == [b"broadcast", b"for all"]
    socket.setsockopt(zmq.UNSUBSCRIBE, b"a" * 40)
    tell("unsubscribed")
    assert socket.recv_multipart() == [b"broadcast", b"again"]
elif scenario == "xsub":
    socket = connected(kind=zmq.XSUB)
    socket.send(b"\x01broad")
    tell("subscribed")
    assert socket.recv_multipart() == [b"broadcast", b"for all"]
elif scenario == "reconnect":
    socket = connected(b"")
    tell("restart")
    assert socket.recv() == b"after"
else:
    sys.exit("unknown scenario")

context.destroy()
print("done", flush=True)
