"""Calls minions, and functions of the master, through stock's own clients, many calls in one
process.

`local_client.py MASTER_CONFIG` reads one JSON object a line: `tgt`, `tgt_type`, `fun`, `arg`, and
`publish` when nobody is to be waited for. It answers each with one line of JSON: the minions that
the master expects, sorted, or with the returns of all minions; or the text of what stock raised.
With `runner`, which is what `RunnerClient.cmd_sync` takes, it answers what the function returned;
with `own_runner`, what stock's own function returns, which runs here, as in `salt-run`; with `wheel`,
which is what `WheelClient.master_call` takes, all that the master answered; with `event`, which has
`tag` and `data`, whether the event was handed to the bus. With `user` a call of minions is that of this user, by
the key that the master made for it.
"""

import json
import os
import sys

import salt.client
import salt.runner
import salt.wheel


def prove(client, low):
    with open(os.path.join(client.opts["cachedir"], f".{client.opts['user']}_key")) as key:
        low.update(user=client.opts["user"], key=key.read())
    return low


def run(client, low):
    return salt.runner.RunnerClient(client.opts).cmd_sync(prove(client, low), timeout=120)


def answer(client, call):
    if "runner" in call:
        return run(client, call["runner"])
    if "own_runner" in call:
        low = call["own_runner"]
        with salt.runner.RunnerClient(client.opts) as runners:
            return runners.cmd(low["fun"], low["arg"], kwarg=low["kwarg"], print_event=False)
    if "wheel" in call:
        with salt.wheel.WheelClient(client.opts) as wheels:
            return wheels.master_call(**prove(client, call["wheel"]))
    if "event" in call:
        return client.event.fire_event(call["event"]["data"], call["event"]["tag"])
    if "user" in call:
        client.salt_user = call.pop("user")
        with open(os.path.join(client.opts["cachedir"], f".{client.salt_user}_key")) as key:
            client.key = key.read()
    publish = call.pop("publish", False)
    try:
        if publish:
            return sorted(client.pub(**call).get("minions", []))
        # Of stock are five seconds: a busy machine takes its time.
        return client.cmd(timeout=120, **call)
    except Exception as error:  # whatever stock raises is the answer
        return f"{type(error).__name__}: {error}"


def main():
    with salt.client.LocalClient(sys.argv[1]) as client:
        for line in sys.stdin:
            print(json.dumps(answer(client, json.loads(line)), sort_keys=True), flush=True)


main()
