"""A minion that only signs in and reads publications, with stock's own code.

`sign_in.py MINION_CONFIG` obeys lines on standard input and answers each with one:
"sign in": what stock makes of the master's answer ("keys", "retry", "full", "False", ...);
"subscribe": "ok" once the publish port may send to it;
"read": "readable" or "unreadable", of the next publication with the key of the last sign-in.
"""

import sys

import salt.config
import salt.crypt
import salt.payload
import zmq


def main():
    opts = salt.config.minion_config(sys.argv[1])
    opts["master_uri"] = f"tcp://{opts['master']}:{opts['master_port']}"
    opts["auth_timeout"], opts["auth_tries"] = 30, 1
    keys = {}
    subscriber = zmq.Context.instance().socket(zmq.SUB)
    subscriber.setsockopt(zmq.SUBSCRIBE, b"")
    subscriber.setsockopt(zmq.RCVTIMEO, 30_000)
    monitor = subscriber.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
    for line in sys.stdin:
        if line.strip() == "sign in":
            answer = salt.crypt.SAuth(opts).sign_in()
            if isinstance(answer, dict):
                keys, answer = answer, "keys"
        elif line.strip() == "subscribe":
            subscriber.connect(f"tcp://{opts['master']}:{keys['publish_port']}")
            monitor.recv_multipart()
            answer = "ok"
        else:
            payload = salt.payload.loads(subscriber.recv_multipart()[-1])
            try:
                salt.crypt.Crypticle(opts, keys["aes"]).loads(payload["load"])
                answer = "readable"
            except salt.crypt.AuthenticationError:
                answer = "unreadable"
        print(answer, flush=True)


main()
