"""Prints what a process was given by its parent, and what Python made of that, as JSON.

`describe.py CODE`: then it exits with this code, or is ended by the signal of this number if it is
negative.
"""

import json
import logging
import multiprocessing
import os
import resource
import signal
import sys
import threading

import salt.cli.daemons
import salt.version


def handler(number):
    found = signal.getsignal(number)
    return getattr(found, "__name__", str(found))


def main():
    status = dict(map(str.strip, line.split(":", 1)) for line in open("/proc/self/status"))
    listed = [int(name) for name in os.listdir("/proc/self/fd")]
    said = {
        "arguments": sys.argv,
        "original arguments": sys.orig_argv,
        "directory": os.getcwd(),
        "environment": dict(os.environ),
        "executable": sys.executable,
        "path": sys.path,
        "flags": str(sys.flags),
        "main": [__name__, __file__, sys.modules["__main__"].__dict__ is globals()],
        "descriptors": [fd for fd in listed if os.path.lexists(f"/proc/self/fd/{fd}")],
        "open files": resource.getrlimit(resource.RLIMIT_NOFILE),
        "umask": status["Umask"],
        "name": status["Name"],
        "signals": {name: status[name] for name in ("SigBlk", "SigIgn", "SigCgt")},
        "handlers": {number: handler(number) for number in range(1, signal.NSIG)},
        "leads its group": os.getpgrp() == os.getpid(),
        "threads": [thread.name for thread in threading.enumerate()],
        "process": multiprocessing.current_process().name,
        "log handlers": [type(found).__name__ for found in logging.root.handlers],
        "encodings": [
            [stream.encoding, stream.errors, stream.line_buffering]
            for stream in (sys.stdin, sys.stdout, sys.stderr)
        ],
        "is forked": "forkserver.py" in open(f"/proc/{os.getppid()}/cmdline").read(),
        "input": sys.stdin.read(),
        "salt": salt.version.__version__,
    }
    print(json.dumps(said, sort_keys=True), flush=True)
    code = int(sys.argv[1])
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


main()
