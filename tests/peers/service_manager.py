"""Does for one program what systemd does for a service, as far as a master can tell.

`service_manager.py NOTES LIMIT PORT,PORT PROGRAM...`: listens on the ports of 127.0.0.1 and hands
the sockets over at every start (sd_listen_fds(3)), writes what the program says of itself into the
file NOTES, a line for each (sd_notify(3)), and kills and restarts it when it says nothing for LIMIT
seconds. On SIGUSR1 it stops the program, on SIGUSR2 it starts it again, on SIGHUP it passes that on,
on SIGTERM it stops both. A service manager of its own, if there is one, is notified of the same.
"""

import os
import signal
import socket
import sys
import time

FIRST = 3
GLANCE = 0.05


class Service:
    def __init__(self, notes, limit, ports, program):
        self.notes = open(notes, "a", buffering=1)
        self.limit = limit
        self.program = program
        self.ports = [socket.create_server(("127.0.0.1", port)) for port in ports]
        self.news = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.address = f"service-{os.getpid()}"
        self.news.bind(f"\0{self.address}")
        self.news.settimeout(GLANCE)
        self.manager = os.environ.get("NOTIFY_SOCKET")
        self.pid = None
        self.heard = time.monotonic()

    def note(self, text):
        print(text, file=self.notes)

    def start(self):
        self.heard = time.monotonic()
        self.pid = os.fork()
        if self.pid == 0:
            # Out of the way of the numbers that they get.
            held = [os.dup(port.fileno()) for port in self.ports for _ in range(2)][1::2]
            for number, port in enumerate(held, FIRST):
                os.dup2(port, number)
            os.environ.update(
                LISTEN_PID=str(os.getpid()),
                LISTEN_FDS=str(len(held)),
                NOTIFY_SOCKET=f"@{self.address}",
                WATCHDOG_PID=str(os.getpid()),
                WATCHDOG_USEC=str(int(self.limit * 1e6)),
            )
            os.execv(self.program[0], self.program)

    def stop(self, by):
        os.kill(self.pid, by)
        pid, self.pid = self.pid, None
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        while self.hear():
            pass
        self.note(f"exited {code}")
        return code

    def hear(self):
        try:
            said = self.news.recv(4096).decode()
        except TimeoutError:
            return False
        if self.manager:
            self.news.sendto(said.encode(), self.manager)
        self.heard = time.monotonic()
        for line in said.splitlines():
            self.note(line)
        return True

    def is_silent(self):
        return self.pid is not None and time.monotonic() - self.heard > self.limit


def main():
    notes, limit, ports, *program = sys.argv[1:]
    asked = []
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, lambda number, _: asked.append(number))
    service = Service(notes, float(limit), [int(port) for port in ports.split(",")], program)
    service.start()
    while True:
        service.hear()
        if service.is_silent():
            service.note("silent")
            service.stop(signal.SIGKILL)
            service.start()
        for number in [asked.pop(0) for _ in range(len(asked))]:
            if number == signal.SIGTERM:
                sys.exit(service.stop(signal.SIGTERM))
            elif number == signal.SIGHUP:
                os.kill(service.pid, number)
            elif number == signal.SIGUSR1:
                service.stop(signal.SIGTERM)
            else:
                service.start()


main()
