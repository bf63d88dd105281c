#!/usr/bin/env python3
"""Stock minions of `make chaos`: three of each release, and what their logs say in the form of the checker
(chaos_history.py).

One of three comes through the balancer, with stock's own timeouts. One has a list of all members and is subscribed
to one at a time (`failover`, in random order), one is subscribed to all of them at once (hot-hot).

A stock minion logs that it starts a job behind its queue of job ids, so a copy of a job has no such line. It logs
that it sends a return, and a warning once nobody has answered all its attempts: a return without that warning,
which is older than the attempts take, was acknowledged, if the minion has logged anything after that time. Its own logs say nothing of authentications: these
are counted by the events `salt/auth`.

`tests/bench/chaos_stock.py` checks the reader of these logs.
"""

import contextlib
import getpass
import os
import re
import signal
import subprocess
import unittest

from run import STOCK

RELEASES = ("3006.28", "3007.15", "3008.3")
KINDS = ("balancer", "failover", "hot")
# Seconds of an attempt to return, and attempts.
ATTEMPT, ATTEMPTS = 10, 6
STAMP = re.compile(r"^(?P<at>\d+\.\d+)\|")
LINE = re.compile(
    r"^(?P<at>\d+\.\d+)\|(?:(?:User \S+ )?Executing command (?P<fun>\S+) with jid (?P<asked>\d{20})"
    r"|Starting a new job (?P<started>\d{20}) with PID"
    r"|Returning information for job: (?P<returned>\d{20})"
    r"|The minion failed to return the job information for job (?P<failed>\d{20}))"
)


class StockMinion:
    def __init__(self, place, release, kind, members, ports):
        self.name, self.release = f"stock-{release.split('.')[0]}-{kind}", release
        self.dir = place.top / self.name
        self.process = None
        publish, ret, _ = ports
        options = {
            "id": self.name, "user": getpass.getuser(), "root_dir": self.dir, "pki_dir": self.dir / "pki",
            "cachedir": self.dir / "cache", "sock_dir": self.dir / "run", "pidfile": self.dir / "minion.pid",
            "master": "127.0.0.1", "master_port": ret, "publish_port": publish, "master_tries": -1,
            "log_file": self.dir / "log", "log_level": "error", "log_level_logfile": "info",
            "log_fmt_logfile": "'%(created)f|%(message)s'",
            "return_retry_timer": ATTEMPT - 1, "return_retry_timer_max": ATTEMPT, "return_retry_tries": ATTEMPTS,
            "acceptance_wait_time": 1, "acceptance_wait_time_max": 2, "random_reauth_delay": 1,
            "recon_default": 100, "recon_max": 1000,
            # No grain that asks the network, nor a module that starts Node.
            "enable_fqdns_grains": False, "enable_gpu_grains": False, "disable_modules": "[npm]",
        }
        if kind != "balancer":
            options["master"] = f"[{', '.join(member.address for member in members)}]"
        if kind == "failover":
            options |= {"master_type": "failover", "master_alive_interval": 5, "retry_dns": 0, "random_master": True}
        (self.dir / "conf").mkdir(parents=True)
        (self.dir / "conf/minion").write_text("".join(f"{name}: {value}\n" for name, value in options.items()))

    def start(self):
        with open(self.dir / "output", "ab") as output:
            self.process = subprocess.Popen(
                [STOCK / self.release / "bin/salt-minion", "-c", self.dir / "conf"],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, process_group=0,
            )

    def stop(self):
        if self.process:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def history(self, shift, end):
        """What its log says, on the clock of the checker: `shift` is what that is ahead of the wall clock."""
        log = self.dir / "log"
        text = log.read_text(errors="replace") if log.exists() else ""
        return history(self.name, text.splitlines(), shift, end)


def history(minion, lines, shift, end):
    """The objects of a log. A return whose attempts may still be under way at the end is left out, as is one after
    whose attempts nothing was logged: the minion may not have lived to warn."""
    functions, found, sent, last = {}, [], {}, 0
    for line in lines:
        stamp = STAMP.match(line)
        last = max(last, float(stamp["at"]) + shift) if stamp else last
        match = LINE.match(line)
        if not match:
            continue
        at = float(match["at"]) + shift
        if match["asked"]:
            if match["asked"] not in functions:
                found.append({"at": at, "what": "received", "minion": minion, "jid": match["asked"]})
            functions[match["asked"]] = match["fun"]
        elif match["started"]:
            found.append({"at": at, "what": "executed", "minion": minion, "jid": match["started"]})
        elif match["returned"]:
            sent[match["returned"]] = at
        else:
            sent.pop(match["failed"], None)
    for jid, at in sent.items():
        is_over = at < end - 2 * ATTEMPT * ATTEMPTS and at < last - ATTEMPT * ATTEMPTS
        if is_over and jid in functions:
            found.append({"at": at, "what": "acknowledged", "minion": minion, "jid": jid, "fun": functions[jid]})
    return found


def fleet(place, count, members, ports):
    """So many minions, whose releases and kinds take turns."""
    kinds = [(release, kind) for kind in KINDS for release in RELEASES]
    return [StockMinion(place, release, kind, members, ports) for release, kind in kinds[:count]]


class Reader(unittest.TestCase):
    """What is read of a log."""

    JIDS = [f"2026112912000000000{number}" for number in range(4)]

    def lines(self):
        once, failed, late, probe = self.JIDS
        yield f"1.0|User root Executing command test.echo with jid {once}"
        # A copy of it, from another member.
        yield f"1.1|User root Executing command test.echo with jid {once}"
        yield f"1.2|Starting a new job {once} with PID 7"
        yield f"1.3|Returning information for job: {once}"
        yield f"2.0|Executing command test.echo with jid {failed}"
        yield f"2.2|Starting a new job {failed} with PID 8"
        yield f"2.3|Returning information for job: {failed}"
        yield "Traceback, and other lines that are no messages"
        yield f"9.0|The minion failed to return the job information for job {failed}. This is often due to ..."
        yield f"900.0|Executing command test.echo with jid {late}"
        yield f"901.0|Returning information for job: {late}"
        yield f"902.0|User root Executing command saltutil.find_job with jid {probe}"

    def test_log_is_read_as_a_history(self):
        once, failed, late, probe = self.JIDS
        found = history("m", self.lines(), 1000, 2000)
        of = lambda what: [line["jid"] for line in found if line["what"] == what]
        self.assertEqual(of("received"), [once, failed, late, probe])
        self.assertEqual(of("executed"), [once, failed])
        self.assertEqual(of("acknowledged"), [once])
        self.assertEqual(found[0], {"at": 1001.0, "what": "received", "minion": "m", "jid": once})
        self.assertEqual(found[-1]["fun"], "test.echo")

    def test_return_after_which_nothing_was_logged_is_left_out(self):
        of = lambda lines: [line["what"] for line in history("m", lines, 0, 2000)]
        lines = [*self.lines()][:4]
        self.assertEqual(of(lines), ["received", "executed"])
        self.assertEqual(of([*lines, "9.0|Anything"]), ["received", "executed"])
        self.assertEqual(of([*lines, "90.0|Anything"]), ["received", "executed", "acknowledged"])


if __name__ == "__main__":
    unittest.main()
