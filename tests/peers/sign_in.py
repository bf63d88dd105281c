"""A minion that only signs in and reads publications, with stock's own code.

`sign_in.py MINION_CONFIG` obeys lines on standard input and answers each with one:
"sign in": what stock makes of the master's answer ("keys", "retry", "full", "False", ...);
"subscribe": "ok" once the publish port may send to it;
"read": "readable" and the function, or "unreadable", of the next publication with the key of the
last sign-in.
"""

import queue
import sys
import threading

import salt.config
import salt.crypt
import salt.payload
import zmq


def receive(subscriber, inbox):
    """All the time, because libzmq subscribes anew after a break only when it is called."""
    while True:
        inbox.put(subscriber.recv_multipart()[-1])


def read(inbox, key):
    """Of the next publication; the questions of masters and clients who runs what do not count."""
    while True:
        payload = salt.payload.loads(inbox.get(timeout=180))
        try:
            function = key.loads(payload["load"])["fun"]
        except salt.crypt.AuthenticationError:
            return "unreadable"
        if function != "saltutil.find_job":
            return f"readable {function}"


def main():
    opts = salt.config.minion_config(sys.argv[1])
    opts["master_uri"] = f"tcp://{opts['master']}:{opts['master_port']}"
    opts["auth_timeout"], opts["auth_tries"] = 30, 1
    keys, inbox = {}, queue.Queue()
    subscriber = zmq.Context.instance().socket(zmq.SUB)
    subscriber.setsockopt(zmq.SUBSCRIBE, b"")
    monitor = subscriber.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
    for line in sys.stdin:
        if line.strip() == "sign in":
            answer = salt.crypt.SAuth(opts).sign_in()
            if isinstance(answer, dict):
                keys, answer = answer, "keys"
        elif line.strip() == "subscribe":
            subscriber.connect(f"tcp://{opts['master']}:{keys['publish_port']}")
            monitor.recv_multipart()
            threading.Thread(target=receive, args=(subscriber, inbox), daemon=True).start()
            answer = "ok"
        else:
            answer = read(inbox, salt.crypt.Crypticle(opts, keys["aes"]))
        print(answer, flush=True)


main()
