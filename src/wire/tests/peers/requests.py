"""Asks a request listener as libzmq does: python requests.py ADDRESS SCENARIO.

The listener answers with the payload. A scenario that needs the test to do something in between
prints a line and waits for one.
"""

import sys

import zmq

address, scenario = sys.argv[1:]
context = zmq.Context()


def connected(kind, identity=None, **options):
    socket = context.socket(kind)
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.RCVTIMEO, 20000)
    socket.setsockopt(zmq.SNDTIMEO, 20000)
    socket.setsockopt(zmq.RECONNECT_IVL, 20)
    if identity:
        socket.setsockopt(zmq.IDENTITY, identity)
    for name, value in options.items():
        socket.setsockopt(getattr(zmq, name), value)
    socket.connect(address)
    return socket


def ask(socket, payload=b"hello"):
    socket.send(payload)
    assert socket.recv() == payload


def tell(text):
    print(text, flush=True)
    assert sys.stdin.readline(), "the test is gone"


if scenario == "req":
    socket = connected(zmq.REQ, b"salt-req/minion/m1/4711/0")
    for size in [0, 1, 255, 256, 4096, 100000, 1000000]:
        ask(socket, b"x" * size)
    # What follows the payload is ignored.
    socket.send_multipart([b"payload", b"ignored"])
    assert socket.recv_multipart() == [b"payload"]
elif scenario == "many":
    socket = connected(zmq.REQ)
    for number in range(1000):
        ask(socket, b"message %d" % number)
elif scenario == "fresh":
    for number in range(200):
        socket = connected(zmq.REQ)
        ask(socket, b"message %d" % number)
        socket.close()
elif scenario == "correlated":
    socket = connected(zmq.REQ, REQ_CORRELATE=1, REQ_RELAXED=1)
    for number in range(10):
        ask(socket, b"message %d" % number)
elif scenario == "dealer":
    socket = connected(zmq.DEALER, b"dealer")
    for number in range(1000):
        socket.send_multipart([b"%d" % number, b"", b"payload %d" % number])
    answers = [socket.recv_multipart() for _ in range(1000)]
    assert answers == [[b"%d" % n, b"", b"payload %d" % n] for n in range(1000)]
elif scenario == "router":
    socket = connected(zmq.ROUTER, CONNECT_ROUTING_ID=b"master", ROUTER_MANDATORY=1)
    poller = zmq.Poller()
    poller.register(socket, zmq.POLLOUT)
    assert poller.poll(20000)
    socket.send_multipart([b"master", b"", b"from a router"])
    assert socket.recv_multipart() == [b"master", b"", b"from a router"]
elif scenario == "handover":
    old = connected(zmq.REQ, b"same", RECONNECT_IVL=-1)
    ask(old)
    new = connected(zmq.REQ, b"same")
    ask(new)
    tell("taken over")
    ask(new)
elif scenario == "reconnect":
    socket = connected(zmq.REQ, b"again")
    ask(socket)
    tell("restart")
    ask(socket)
elif scenario == "heartbeat":
    # The client's own PINGs, short enough that it would give up without PONGs.
    socket = connected(zmq.REQ, HEARTBEAT_IVL=50, HEARTBEAT_TIMEOUT=1000)
    ask(socket)
    tell("connected")
    ask(socket)
else:
    sys.exit("unknown scenario")

context.destroy()
print("done", flush=True)
