"""As much of Salt as the program of the helpers needs to run a runner function or a returner, for
tests."""

import os
import re
import signal
import sys
import types


def module(name, **contents):
    made = types.ModuleType(name)
    made.__dict__.update(contents)
    sys.modules[name] = made
    parent, _, last = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], last, made)
    return made


# --- MessagePack, as far as requests and answers here have it


def pack(value, **_options):
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return b"\xcf" + value.to_bytes(8, "big")
    if isinstance(value, str):
        text = value.encode()
        return b"\xdb" + len(text).to_bytes(4, "big") + text
    if isinstance(value, list):
        return b"\xdd" + len(value).to_bytes(4, "big") + b"".join(map(pack, value))
    if isinstance(value, dict):
        entries = (pack(part) for entry in value.items() for part in entry)
        return b"\xdf" + len(value).to_bytes(4, "big") + b"".join(entries)
    raise TypeError(f"{type(value).__name__} cannot be packed")


def unpack(packed, **_options):
    if b"fake_returner" in packed:
        return {
            "do": "returner",
            "name": "fake_returner",
            "needs": "save_load",
            "patience": 9,
            "steps": [
                [{"fun": "save_load", "args": [jid.decode()], "kwargs": {}, "decides": True}]
                for jid in re.findall(rb"kept|raised|forked|died", packed)
            ],
        }
    names = [name for name in RunnerClient.functions if name.encode() in packed]
    return {
        "do": "runner",
        "fun": names[0] if names else "",
        "positional": [],
        "named": {},
        "jid": "",
        "user": "",
        "tag": "",
    }


# --- the functions


def leave():
    os._exit(0)


def interrupt():
    raise KeyboardInterrupt


def mute():
    class Mute(Exception):
        def __str__(self):
            raise ValueError

    raise Mute


def strange():
    return object()


def umask():
    inherited = os.umask(0)
    os.umask(inherited)
    return f"{inherited:03o}"


def split():
    if os.fork():
        os.wait()
    return "one"


def die_while_it_answers():
    write = os.write

    def write_a_little_and_die(to, piece):
        write(to, piece[:3])
        os.kill(os.getpid(), signal.SIGKILL)

    os.write = write_a_little_and_die
    return "never said"


def die_after_its_answer():
    leave = os._exit

    def die(_status):
        os.kill(os.getpid(), signal.SIGKILL)
        leave(1)

    os._exit = die
    return "said"


def save_load(jid):
    if jid == "raised":
        raise ValueError(jid)
    if jid == "forked" and os.fork():
        os.wait()
    if jid == "died":
        os.kill(os.getpid(), signal.SIGKILL)


class State:
    """Runs states one after the other, as far as their ends are seen."""

    def __init__(self):
        self.procs = {}

    def event(self, chunk_ret, length, fire_event=False):
        assert length == 4

    def reconcile_procs(self, running):
        for tag, ret in running.items():
            if "proc" in ret:
                running[tag] = {"result": False, "comment": ["it", "died"], "changes": {}}
        if "second" in self.procs:
            del self.procs["second"]
        elif "first" in self.procs:
            running["first"].update({"result": True, "changes": {"a": 1}})
            del self.procs["first"]
        return True

    def run(self):
        running = {}
        for number, result in enumerate([True, None, False]):
            running[number] = {
                "__id__": f"id {number}",
                "__sls__": "orch",
                "name": f"name {number}",
                "result": result,
                "comment": "c" * 600,
                "changes": {"a": 1} if result else {},
            }
            self.event(running[number], 4, fire_event=False)
        running[3] = {"__id__": "parallel", "name": "test.ping", "result": None, "proc": self}
        self.event(running[3], 4)
        if os.fork() == 0:
            self.event(running[0], 4)
            os._exit(0)
        os.wait()
        self.event("no state", 4)
        # As 3008 has them.
        for tag in ("first", "second"):
            low = {"__id__": tag, "name": "test.ping"}
            self.procs[tag] = types.SimpleNamespace(low=low)
            running[tag] = {**low, "result": None, "comment": "", "changes": {}}
            self.event(running[tag], 4)
        for _ in range(3):
            self.reconcile_procs(running)


def orchestrate():
    State().run()
    return "done"


class MasterMinion:
    returners = {"fake_returner.save_load": save_load}

    def __init__(self, _opts, **_without):
        pass


class RunnerClient:
    functions = {
        f"fake.{function.__name__}": function
        for function in (
            leave,
            interrupt,
            mute,
            strange,
            split,
            umask,
            die_while_it_answers,
            die_after_its_answer,
        )
    }

    functions["state.orchestrate"] = orchestrate

    def __init__(self, _opts):
        pass

    def destroy(self):
        pass

    def low(self, fun, _low, **_options):
        return self.functions[fun]()


module("salt")
module("salt.config", master_config=lambda _path: {})
module("salt.payload", loads=unpack, dumps=pack)
module("salt.version", __version__="0")
module("salt.minion", MasterMinion=MasterMinion)
module("salt.runner", RunnerClient=RunnerClient)
module("salt.state", State=State)
module("salt.client")
module("salt.utils")
module("salt.utils.event")
module("salt.client.mixins", salt=sys.modules["salt"])
module("salt.exceptions", CommandExecutionError=OSError, SaltInvocationError=TypeError)
