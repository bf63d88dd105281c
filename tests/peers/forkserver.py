"""Forks the programs of one stock release off a process that has imported Salt once.

`forkserver.py SOCKET RUN` is started by a release's own Python, with `SOCKET.log` as its standard error,
prints a line once SOCKET (a Unix
socket of packets) accepts connections, and serves until the process RUN has ended and no connection
is open, or nobody has asked for anything for `IDLE` seconds. A connection is one process. Its only
packet is a JSON object (`tests/src/forkserver.rs`) with the descriptors for standard input, output
and error. It is answered with the process id, as four bytes, and, once the process has ended, with
its wait status, as four more. The process is reaped when the peer closes the connection, so that its
id stays valid that long; one that still runs then is killed with its process group.

The forked process is as good as a fresh one only while importing Salt leaves nothing behind that
belongs to one process: no thread, no open file, no process id. That is checked at the start.
"""

import gc
import importlib.machinery
import json
import os
import resource
import selectors
import signal
import socket
import sys
import threading
import types

# What is sent to the group of the test that needed this first is not for the others.
os.setsid()
# Of whoever started this: nothing may come from there into a forked program.
os.closerange(3, os.sysconf("SC_OPEN_MAX"))
# Its own directory is not for Salt's imports, nor for those of another script.
del sys.path[0]

# What a forked program finds imported: what the entry points import before they read their options,
# and what most of them need soon after.
import salt.cli.api
import salt.cli.call
import salt.cli.daemons
import salt.cli.key
import salt.cli.run
import salt.cli.salt
import salt.client
import salt.grains.core
import salt.master
import salt.minion
import salt.runner
import salt.scripts
import salt.transport.tcp
import salt.transport.zeromq
import salt.wheel
from salt._logging import in_mainprocess

IDLE = 600  # seconds
REQUEST = 1 << 18  # bytes


class Program:
    """A forked process and the connection of whoever asked for it."""

    def __init__(self, pid, connection):
        self.pid = pid
        self.connection = connection
        # None once it has ended, as the connection once the peer is gone.
        self.pidfd = os.pidfd_open(pid)

    def report(self, message):
        try:
            self.connection.send(message.to_bytes(4, sys.byteorder))
        except OSError:
            pass  # the peer is gone, and its end of the connection with it

    def kill(self):
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def invalidate_in_threads():
    """Lets several threads forget at once what importlib has cached.

    The workers of a master of 3008 load modules in threads, and so call `PathFinder.invalidate_caches`, in
    which CPython 3.11 removes an entry that another thread may have removed: a worker to which that happens
    is without modules for good ("failed to load modules, worker will be non-functional").
    """
    finder = importlib.machinery.PathFinder
    invalidate = finder.invalidate_caches

    def retried():
        while True:
            try:
                return invalidate()
            except KeyError:
                pass  # the other thread has removed it

    finder.invalidate_caches = staticmethod(retried)


def check_nothing_is_left_behind():
    others = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
    # The one that lists them is closed by then.
    listed = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    descriptors = [name for name in listed if os.path.lexists(name)][3:]
    pid = getattr(in_mainprocess, "__pid__", None)
    if others or descriptors or pid or len(os.listdir("/proc/self/task")) != 1:
        sys.exit(f"importing Salt left threads {others}, descriptors {descriptors}, pid {pid}")


class Server:
    """The listener and the programs that were forked."""

    def __init__(self, path, run):
        self.path = path
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(path)
        self.listener.listen(128)
        self.events = selectors.DefaultSelector()
        self.events.register(self.listener, selectors.EVENT_READ)
        self.programs = set()
        try:
            self.run = os.pidfd_open(run)
            self.events.register(self.run, selectors.EVENT_READ)
        except ProcessLookupError:
            self.run = None

    def serve(self):
        """Returns a request in each forked process, and None at the end of the server."""
        while self.programs or self.run is not None:
            ready = self.events.select(IDLE)
            if not ready and not self.programs:
                break
            for key, _ in ready:
                if key.data is not None:
                    self.follow(key)
                elif key.fileobj is self.listener:
                    request = self.accept()
                    if request is not None:
                        return request
                else:
                    self.events.unregister(self.run)
                    os.close(self.run)
                    self.run = None
        os.unlink(self.path)
        os.unlink(f"{self.path}.log")
        return None

    def accept(self):
        """Forks what a peer asks for; returns the request in the forked process."""
        connection, _ = self.listener.accept()
        request, descriptors = receive(connection)
        if request is None:
            connection.close()
            return None
        pid = os.fork()
        if pid == 0:
            connection.close()
            self.close()
            become(request, descriptors)
            return request
        for fd in descriptors:
            os.close(fd)
        # The forked process does the same: whoever comes first.
        try:
            os.setpgid(pid, pid)
        except (PermissionError, ProcessLookupError):
            pass
        program = Program(pid, connection)
        self.programs.add(program)
        program.report(pid)
        self.events.register(program.pidfd, selectors.EVENT_READ, program)
        self.events.register(connection, selectors.EVENT_READ, program)
        return None

    def follow(self, key):
        """Something happened to a program: it has ended, or its peer is gone."""
        program = key.data
        self.events.unregister(key.fileobj)
        if key.fileobj is program.connection:
            # Also what a process that has ended left behind in its group.
            program.kill()
            program.connection.close()
            program.connection = None
        else:
            os.close(program.pidfd)
            program.pidfd = None
            if program.connection is not None:
                program.report(wait_status(program.pid))
        if program.pidfd is None and program.connection is None:
            os.waitpid(program.pid, 0)
            self.programs.discard(program)

    def close(self):
        """Closes everything in a forked process, each by its owner, who would close it once more
        when it is collected, and by then whatever has its number."""
        self.events.close()
        self.listener.close()
        for program in self.programs:
            if program.connection is not None:
                program.connection.close()
            if program.pidfd is not None:
                os.close(program.pidfd)
        if self.run is not None:
            os.close(self.run)


def receive(connection):
    # A peer that says nothing must not keep the others waiting.
    connection.settimeout(10)
    try:
        data, descriptors, _, _ = socket.recv_fds(connection, REQUEST, 3)
    except OSError:
        return None, []
    connection.settimeout(None)
    if len(descriptors) != 3:
        return None, []
    return json.loads(data), descriptors


def wait_status(pid):
    """The status of a process that has ended, as waitpid() has it, without reaping it."""
    info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    if info.si_code == os.CLD_EXITED:
        return info.si_status << 8
    return info.si_status | (0x80 if info.si_code == os.CLD_DUMPED else 0)


def become(request, descriptors):
    """Gives this process what a fresh one would have had from its parent."""
    os.setpgid(0, 0)
    for number, fd in enumerate(descriptors):
        os.dup2(fd, number)
        os.close(fd)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (request["open_files"], most))
    script = request["arguments"][0]
    sys.argv[:] = request["arguments"]
    sys.orig_argv[:] = [request["python"], *request["arguments"]]
    sys.executable = request["python"]
    sys.path.insert(0, os.path.dirname(os.path.realpath(script)))
    with open("/proc/self/comm", "w", encoding="utf-8") as comm:
        comm.write(request["name"][:15])


def load(script):
    """The code of a script and the module that it runs in."""
    with open(script, "rb") as file:
        code = compile(file.read(), script, "exec")
    main = types.ModuleType("__main__")
    main.__file__ = script
    sys.modules["__main__"] = main
    return code, main.__dict__


invalidate_in_threads()
check_nothing_is_left_behind()
gc.collect()
gc.freeze()
server = Server(sys.argv[1], int(sys.argv[2]))
print("ready", flush=True)
null = os.open(os.devnull, os.O_RDWR)
os.dup2(null, 1)
os.close(null)
forked = server.serve()
if forked is not None:
    # At the top, so that the interpreter does what it does when any other script ends.
    exec(*load(forked["arguments"][0]))
