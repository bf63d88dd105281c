#!/usr/bin/env python3
"""Kills, freezes and cuts off members of a cluster and fails its PostgreSQL over, under load, and has
chaos_history.py compare what clients and minions saw with what is stored in the end.

`make chaos [KILLS=n] [FREEZES=n] [CUTS=n] [FAILOVERS=n] [MINIONS=n] [STOCK=n] [SEED=n] [LENIENT=1]`; without numbers it is the
run that issue 21 asks for, of several hours. Members listen on loopback addresses of their own and relay to the active
one. HAProxy with the checks of docs/cluster.md is what the native minions know; those of stock (chaos_stock.py) come
through it or to the members themselves, and commands to each member in turn.
A fault hits the active member or another one, by turns of the dice. The order of faults and the pauses follow from
the seed, which is printed; what the machine does meanwhile does not. A member that has ended is started again, as
systemd would. Exit code 1: there are anomalies, which are printed and kept with the histories.

Needs `make lab` and `tests/install-stock.sh`; SALTERN=target/debug/saltern takes the programs of the tests.
"""

import argparse
import collections
import contextlib
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

import chaos_history
import chaos_stock
from databases import PASSWORD, Postgres
from member import Place, Standby, make_cluster
from run import LAB, SALTERN, STOCK, STOCK_VERSION, Master, free_port, wait_for
from results import ROOT, raise_descriptor_limit

# When a job is judged without a cluster at the latest: `timeout` and `gather_job_timeout`, seconds.
TIMEOUT, GATHER = 5, 10
# Seconds for which a member stands still.
FREEZE = 15
# Seconds in which minions may reconnect after a takeover, before a master gives them up
# (actors/src/jobs/job_tracker/machine.rs).
RECONNECTING = 10
# Targets of jobs; each of all native minions is followed by some of a tenth of them.
TENTHS = 10
# Seconds that may pass until all is well after a fault: far longer than any of it should take.
LIMIT = 300
BALANCER = """\
defaults
    mode tcp
    option httpchk GET /readyz
    default-server check inter 1s fall 2 rise 1 on-marked-down shutdown-sessions
    timeout connect 5s
    timeout check 5s
    timeout client 1m
    timeout server 1m
"""
# The digests of all returns, by a Python that has msgpack; the same bytes as in src/minion/src/acknowledged.rs.
DIGESTS = """
import hashlib, json, msgpack, sys
for line in sys.stdin:
    jid, minion, load = line.rstrip("\\n").split("|")
    value = msgpack.unpackb(bytes.fromhex(load), raw=False, strict_map_key=False)["return"]
    packed = msgpack.packb(value, use_bin_type=True)
    print(json.dumps([jid, minion, hashlib.sha256(packed).hexdigest()]))
"""
# When each minion of a job was given up first, from the events `saltern/job/JID/verdict`.
GIVEN_UP = """
import json, msgpack, sys
for line in sys.stdin:
    tag, at, data = line.rstrip("\\n").split("|")
    for minion, of_it in msgpack.unpackb(bytes.fromhex(data), raw=False)["minions"].items():
        if of_it["verdict"] in ("unreachable", "unknown"):
            print(json.dumps([tag.split("/")[2], minion, int(at)]))
"""


# Which minions signed in, from the events `salt/auth`.
SIGNED_IN = """
import json, msgpack, sys
for line in sys.stdin:
    data = msgpack.unpackb(bytes.fromhex(line.strip()), raw=False)
    if data.get("result") and data.get("act") == "accept":
        print(json.dumps(data.get("id")))
"""


class Member(Master):
    """A member with an address of its own, and ports that all have."""

    def __init__(self, place, number, databases, ports, lease):
        super().__init__("saltern", place)
        self.name, self.address = chr(ord("a") + number), f"127.0.0.{number + 2}"
        hosts = ",".join(str(server.directory) for server in databases)
        connection = f"host={hosts} user=salt password={PASSWORD} dbname=salt"
        secret = place.top / "secret"
        publish, ret, members = ports
        # A line of an option that is there replaces it.
        lines = dict(line.split(": ", 1) for line in (self.dir / "conf/master").read_text().splitlines())
        lines |= {
            # Paths outside it would be taken for ones below it.
            "root_dir": "/",
            "interface": self.address, "publish_port": publish, "ret_port": ret, "id": self.name,
            "saltern_metrics_address": f"{self.address}:{self.metrics_port}", "pki_dir": place.top / "pki",
            "timeout": TIMEOUT, "gather_job_timeout": GATHER, "saltern_max_connections_per_address": 0,
            # The verdicts are read from them.
            "event_return": "saltern", "saltern_keep_events_count": 100_000_000,
            "saltern_cluster": f"{{postgres: '{connection}', lease: {lease}, secret_file: {secret}, "
            f"advertise: {self.address}, member_port: {members}}}",
        }
        (self.dir / "conf/master").write_text("".join(f"{name}: {value}\n" for name, value in lines.items()))

    def page(self, path):
        """A page of its status port; nothing without an answer."""
        # One that is killed meanwhile may send a part of it.
        with contextlib.suppress(OSError, http.client.HTTPException):
            with urllib.request.urlopen(f"http://{self.address}:{self.metrics_port}{path}", timeout=5) as answer:
                return answer.read().decode()
        return ""

    def is_active(self):
        return "\nsaltern_cluster_active 1\n" in self.page("/metrics") and self.serves()

    def serves(self):
        """Whether it is the active one, or reaches it."""
        return bool(self.page("/readyz"))

    def has_ended(self):
        return self.process.poll() is not None


class History:
    """What this process does, in the form of the swarm's."""

    def __init__(self, path):
        self.path, self.lock = path, threading.Lock()

    def note(self, what, **more):
        line = json.dumps({"at": time.monotonic(), "what": what, **more}) + "\n"
        with self.lock, open(self.path, "a", encoding="utf-8") as file:
            file.write(line)


class Cluster:
    def __init__(self, top, options, rng):
        self.place, self.options, self.rng = Place(top), options, rng
        self.primary = Postgres(top / "p0")
        self.standby = Standby(top / "p1", self.primary)
        self.ports = free_port(), free_port(), free_port()
        servers = (self.primary, self.standby)
        self.members = [Member(self.place, n, servers, self.ports, options.lease) for n in range(options.members)]
        self.balancer = None

    def start(self):
        self.primary.make()
        self.primary.start()
        make_cluster(self.primary, self.members[0])
        self.start_standby()
        self.members[0].start()
        wait_for("the first member", self.members[0].is_active)
        for member in self.members[1:]:
            member.start()
        self.start_balancer()

    def start_standby(self):
        self.standby.make()
        self.standby.start()
        self.primary.sql("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.primary.sql("SELECT pg_reload_conf()")
        wait_for("the standby", self.standby.is_synchronous, LIMIT)

    def start_balancer(self):
        usr = pathlib.Path.home() / ".cache/saltern/tools/haproxy/usr"
        text = BALANCER
        for name, port in zip(("publish", "request"), self.ports):
            text += f"listen {name}\n    bind 127.0.0.1:{port}\n"
            for member in self.members:
                text += f"    server {member.name} {member.address}:{port} port {member.metrics_port}\n"
        path = self.place.top / "haproxy.cfg"
        path.write_text(text)
        libraries = ":".join(map(str, (usr / "lib").glob("*-linux-gnu")))
        with open(self.place.top / "haproxy.out", "ab") as output:
            self.balancer = subprocess.Popen(
                [usr / "sbin/haproxy", "-db", "-f", path],
                env=os.environ | {"LD_LIBRARY_PATH": libraries}, stdout=output, stderr=output,
            )

    def active(self):
        """The active member; one that has ended is started again meanwhile."""
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            for member in self.members:
                if member.has_ended():
                    member.start()
            for member in self.members:
                if member.is_active():
                    return member
            time.sleep(0.1)
        sys.exit("no member is active")

    def has_standby(self):
        statement = "SELECT count(*) FROM saltern.member WHERE role = 'standby' AND until > clock_timestamp()"
        return int(self.primary.sql(statement, "salt")) >= len(self.members) - 1

    def wait_until_whole(self):
        self.active()
        whole = lambda: bool(self.active()) and self.has_standby() and all(one.serves() for one in self.members)
        wait_for("all to serve", whole, LIMIT)

    def victim(self):
        """A member, and whether it is the active one."""
        active = self.active()
        others = [member for member in self.members if member is not active]
        if self.rng.random() >= self.options.standbys or not others:
            return active, True
        return self.rng.choice(others), False

    def kill(self):
        member, is_active = self.victim()
        member.kill()
        return is_active

    def freeze(self):
        member, is_active = self.victim()
        os.killpg(member.process.pid, signal.SIGSTOP)
        time.sleep(FREEZE)
        os.killpg(member.process.pid, signal.SIGCONT)
        # It has no lease for longer than two thirds of one without a renewal.
        if is_active and FREEZE > self.options.lease * 2 / 3:
            wait_for("the frozen member to end", member.has_ended, LIMIT)
        return is_active

    def cut(self):
        statement = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = 'salt'"
        self.primary.sql(statement + " AND backend_type = 'client backend' AND pid <> pg_backend_pid()")
        return True

    def failover(self):
        process = self.primary.process
        process.send_signal(signal.SIGSTOP)
        children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.kill()
        process.wait()
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)
        lost = self.primary
        self.standby.sql("SELECT pg_promote(true, 120)")
        # The lost one is made anew as the copy of the other.
        self.primary, self.standby = self.standby, Standby(lost.directory, self.standby)
        shutil.rmtree(lost.directory / "data")
        self.start_standby()
        return True

    def stop(self):
        for member in self.members:
            if member.process and not member.has_ended():
                member.kill()
        if self.balancer:
            self.balancer.kill()
            self.balancer.wait()
        for server in (self.standby, self.primary):
            with contextlib.suppress(OSError):
                server.stop()


def start_swarm(port, minions, path, *more):
    command = [LAB, "swarm", "--minions", minions, "--master", f"127.0.0.1:{port}"]
    command += ["--reconnect", 100, "--history", path, *more]
    out = path.with_suffix(".out")
    with open(out, "wb") as output:
        swarm = subprocess.Popen([str(word) for word in command], stdout=output, stderr=output)
    wait_for("the swarm", lambda: swarm.poll() is not None or "are signed in" in out.read_text(), LIMIT)
    if swarm.poll() is not None:
        sys.exit(out.read_text())
    return swarm


def note_publication(ran, began, history):
    """Writes down the job of an asynchronous command that has ended."""
    words = [word.strip(".,:'\"") for word in ran.stdout.split()]
    jids = [word for word in words if len(word) == 20 and word.isdigit()]
    if ran.returncode == 0 and jids:
        history.note("published", jid=jids[0], deadline=time.monotonic() + TIMEOUT + GATHER)
    else:
        history.note("unknown", began=began, said=(ran.stdout + ran.stderr)[-300:])


def targets(stock_every):
    """Targets of jobs, without an end: all native minions, some tenths of them, and now and then all minions."""
    since = time.monotonic()
    while True:
        yield "swarm-*"
        for tenth in range(TENTHS):
            yield f"swarm-*{tenth}"
            if time.monotonic() > since + stock_every:
                since = time.monotonic()
                yield "*"


def publish(cluster, history, stop):
    """Publishes jobs at each member in turn until it is stopped; whether one without an answer was published
    is not known."""
    of_all = targets(cluster.options.stock_every)
    number = 0
    while not stop.wait(cluster.options.pause):
        number += 1
        member = cluster.members[number % len(cluster.members)]
        command = [SALTERN, "cmd", "-c", member.dir / "conf", "--async"]
        at = time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            if member.serves():
                command += [next(of_all), "test.echo", f"job {number}"]
                ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
                note_publication(ran, at, history)


def digests(rows):
    """The returns of a store, one `jid|minion|load in hexadecimal` a line, in the form of the checker."""
    return unpacked(DIGESTS, rows)


def unpacked(script, rows):
    """What a script of a Python that has msgpack prints of rows."""
    python = STOCK / STOCK_VERSION / "bin/python"
    done = subprocess.run([python, "-c", script], input=rows, text=True, check=True, stdout=subprocess.PIPE)
    return [json.loads(line) for line in done.stdout.splitlines()]


def slices(primary):
    """The returns with their loads, in parts that fit into memory."""
    last, size = int(primary.sql("SELECT coalesce(max(id), 0) FROM saltern.returns", "salt")), 100_000
    for first in range(0, last + 1, size):
        where = f"WHERE id > {first} AND id <= {first + size}"
        yield primary.sql(f"SELECT jid, minion, encode(load, 'hex') FROM saltern.returns {where}", "salt")


def stored(primary):
    """The store in the form of the checker."""
    returns = [row for part in slices(primary) for row in digests(part)]
    return {"returns": returns, "jobs": verdicts(primary)}


def sign_ins(primary):
    """How often each minion authenticated, as the events that were kept say."""
    rows = primary.sql("SELECT encode(data, 'hex') FROM saltern.events WHERE tag = 'salt/auth'", "salt")
    return collections.Counter(unpacked(SIGNED_IN, rows))


def verdicts(primary):
    """When each job had its verdict, or `None`."""
    # Wall-clock microseconds, as the master's.
    shift = time.monotonic() - time.time()
    answers = collections.defaultdict(dict)
    statement = "SELECT tag, received, encode(data, 'hex') FROM saltern.events WHERE tag LIKE 'saltern/job/%/verdict'"
    given_up = unpacked(GIVEN_UP, primary.sql(statement, "salt"))
    rows = primary.sql("SELECT jid, minion, received FROM saltern.returns", "salt").splitlines()
    for jid, minion, at in [*given_up, *(row.split("|") for row in rows)]:
        at = int(at) / 1e6 + shift
        answers[jid][minion] = min(at, answers[jid].get(minion, at))
    expected = collections.defaultdict(set)
    for row in primary.sql("SELECT jid, unnest(minions) FROM saltern.expected_part", "salt").splitlines():
        jid, minion = row.split("|")
        expected[jid].add(minion)
    jobs = {}
    rows = primary.sql("SELECT jid, state, coalesce(finished, 0) FROM saltern.jobs", "salt")
    for row in rows.splitlines():
        jid, state, finished = row.split("|")
        ended = None if state == "0" else int(finished) / 1e6 + shift
        jobs[jid] = chaos_history.verdict(ended, expected[jid], answers[jid])
    return jobs


def unjudged(jobs, lines):
    """The published jobs that are stored and have no verdict."""
    jids = [line["jid"] for line in lines if line["what"] == "published"]
    return [jid for jid in jids if jid in jobs and not jobs[jid]]


def is_given_up(member, jid):
    """Whether a master says that each minion of an open job that has not returned is given up."""
    command = [SALTERN, "explain", jid, "--json", "-c", member.dir / "conf"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    with contextlib.suppress(ValueError):
        return chaos_history.is_given_up(json.loads(ran.stdout))
    return False


def is_settled(cluster, history):
    jids = unjudged(verdicts(cluster.primary), chaos_history.read(history.path))
    active = cluster.active()
    return all(is_given_up(active, jid) for jid in jids)


def judge_by_master(cluster, lines, jobs):
    """Gives jobs the verdict that the active master has, where the event of one was lost with a master that was
    killed: an event of the bus comes at most once. When it was given is not known, so it is not judged; how many they are."""
    active, count = cluster.active(), 0
    began = {line["jid"]: line["at"] for line in lines if line["what"] == "published"}
    for jid in unjudged(jobs, lines):
        if is_given_up(active, jid):
            jobs[jid], count = began[jid], count + 1
    return count


def run_faults(cluster, options, rng, history):
    faults = ["kill"] * options.kills + ["freeze"] * options.freezes
    faults += ["cut"] * options.cuts + ["failover"] * options.failovers
    rng.shuffle(faults)
    for number, fault in enumerate(faults, 1):
        cluster.wait_until_whole()
        # At different times after a renewal.
        time.sleep(1 + rng.random() * options.lease / 6)
        print(f"{number} of {len(faults)}: {fault}", flush=True)
        history.note("fault", kind=fault)
        is_active = getattr(cluster, fault)()
        history.note("done", kind=fault, active=is_active)
    cluster.wait_until_whole()


def with_verdict(lines, store):
    """The publications whose jobs have a verdict."""
    return [line for line in lines if line["what"] == "published" and store["jobs"].get(line["jid"])]


def say_late(lines, store, lease):
    """Prints which verdicts came later than a lease and two seconds behind the deadline."""
    faults = [line["at"] for line in lines if line["what"] == "fault"]
    judged = with_verdict(lines, store)
    late = [(store["jobs"][line["jid"]] - chaos_history.latest_verdict(line, faults, lease), line) for line in judged]
    late = sorted(((seconds, line) for seconds, line in late if seconds > 0), key=lambda one: one[0])
    at_most = f", by {late[-1][0]:.1f} s at most" if late else ""
    print(f"verdicts later than the lease plus {chaos_history.TAKEOVER} s: {len(late)} of {len(judged)}{at_most}")
    beyond = sum(seconds > RECONNECTING for seconds, _ in late)
    print(f"    of these later than the {RECONNECTING} s in which minions may reconnect: {beyond}")
    for seconds, line in late[-20:]:
        verdict = store["jobs"][line["jid"]]
        near = [fault["kind"] for fault in lines if fault["what"] == "fault" and line["at"] - 20 < fault["at"] < verdict]
        print(f"    {line['jid']}: {seconds:.1f} s, {verdict - line['at']:.1f} s after its publication; faults: {near}")


def say_sign_ins(counts, stock, lines):
    """Prints how often minions authenticated, by kind: a native one once, those of stock also by themselves. A
    minion of stock that has become deaf shows by its last job."""
    native = [count for minion, count in counts.items() if minion.startswith("swarm-")]
    print(f"authentications by events that were kept: native {sum(native)} of {len(native)} minions")
    end = max((line["at"] for line in lines), default=0)
    for minion in stock:
        ran = [line["at"] for line in lines if line["what"] == "executed" and line["minion"] == minion.name]
        last = f"the last {end - max(ran):.0f} s before the end" if ran else "none"
        print(f"    {minion.name}: authenticated {counts[minion.name]} times, ran {len(ran)} jobs, {last}")


def report(lines, store, lease=None, more=()):
    """Prints what the history says; the anomalies, with further ones that the run itself has seen."""
    lines.sort(key=lambda line: line["at"])
    anomalies = [*chaos_history.check(lines, store, lease), *((kind, about, []) for kind, about in more)]
    counts = collections.Counter(line["what"] for line in lines)
    faults = collections.Counter(
        f"{line['kind']} of {'the active one' if line['active'] else 'another one'}" for line in lines if line["what"] == "done"
    )
    print(f"faults: {dict(faults)}")
    took = sorted(store["jobs"][line["jid"]] - line["at"] for line in with_verdict(lines, store)) or [0]
    p50, p99 = (took[int(len(took) * part)] for part in (0.5, 0.99))
    print(f"from a publication to its verdict: p50 {p50:.2f} s, p99 {p99:.1f} s, longest {took[-1]:.1f} s")
    print(f"history: {dict(counts)}; stored: {len(store['returns'])} returns")
    print(f"acknowledged without answers to probes, so compared: {len(chaos_history.acknowledged(lines))}")
    for kind, about, of_it in anomalies[:20]:
        print(f"{kind}: {about}", *(f"    {line}" for line in of_it[:20]), sep="\n")
    print(f"anomalies: {len(anomalies)} {dict(collections.Counter(kind for kind, _, _ in anomalies))}", flush=True)
    return anomalies


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    numbers = (("kills", 200), ("freezes", 50), ("cuts", 50), ("failovers", 20), ("minions", 500), ("members", 3))
    for name, default in numbers:
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--standbys", type=float, default=0.5, help="share of kills and freezes that hit one of these")
    parser.add_argument("--stock", type=int, default=9, help="minions of stock")
    parser.add_argument("--stock-every", type=float, default=15, help="seconds between two jobs of all minions")
    parser.add_argument("--pause", type=float, default=0.5, help="seconds between two publications")
    parser.add_argument("--rate", type=int, default=100, help="returns a second, beside those of jobs")
    parser.add_argument("--lease", type=int, default=15, help="seconds")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    parser.add_argument("--lenient", action="store_true", help="judge no times, on a machine that has much else to do")
    parser.add_argument("--keep", type=pathlib.Path, help="copy histories and logs to this directory in any case")
    return parser.parse_args()


def start_stock(cluster, options):
    """Minions of stock that are ready for jobs."""
    minions = chaos_stock.fleet(cluster.place, options.stock, cluster.members, cluster.ports)
    for minion in minions:
        minion.start()
    started = "SELECT count(DISTINCT tag) FROM saltern.events WHERE tag LIKE 'salt/minion/stock-%/start'"
    wait_for("minions of stock", lambda: int(cluster.primary.sql(started, "salt")) >= len(minions), LIMIT)
    return minions


def settle(cluster, history):
    """A job that has no verdict by then is an anomaly, not the end of the run."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end and not is_settled(cluster, history):
        time.sleep(5)


def read(histories, stock):
    """The lines of all histories."""
    shift, end = time.monotonic() - time.time(), time.monotonic()
    lines = [line for path in histories if path.exists() for line in chaos_history.read(path)]
    return lines + [line for minion in stock for line in minion.history(shift, end)]


def unseen(histories, stock):
    """What has not been seen yet; a deaf minion of 3007 (docs/cluster.md) may run nothing."""
    names = [minion.name for minion in stock if not minion.release.startswith("3007.")]
    return list(chaos_history.unseen(read(histories, stock), names))


def wait_for_work(histories, stock):
    """Waits until jobs run after the last fault. What is not seen by then is an anomaly."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end and unseen(histories, stock):
        time.sleep(5)


def judge(cluster, histories, stock, options, ended):
    """Prints what became of it; the anomalies."""
    lines = read(histories, stock)
    store = stored(cluster.primary)
    lost = judge_by_master(cluster, lines, store["jobs"])
    print(f"verdicts that the master has and whose events were lost with another one: {lost}")
    more = [("ended by itself", what) for what in ended] + unseen(histories, stock)
    anomalies = report(lines, store, None if options.lenient else options.lease, more)
    say_late(lines, store, options.lease)
    say_sign_ins(sign_ins(cluster.primary), stock, lines)
    return anomalies


def main():
    options = arguments()
    raise_descriptor_limit()
    # Whoever stops it finds no process of it afterwards.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))
    print(f"seed {options.seed}", flush=True)
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory(prefix="chaos-", dir="/tmp") as top:
        top = pathlib.Path(top)
        history, swarm_path = History(top / "clients.history"), top / "swarm.history"
        cluster, swarm, stock, stop = Cluster(top, options, rng), None, [], threading.Event()
        anomalies = ["the run did not end"]
        try:
            cluster.start()
            returns = ("--returns", 8, "--rate", options.rate)
            swarm = start_swarm(cluster.ports[1], options.minions, swarm_path, *returns)
            stock = start_stock(cluster, options)
            began = time.monotonic()
            client = threading.Thread(target=publish, args=(cluster, history, stop), daemon=True)
            client.start()
            run_faults(cluster, options, rng, history)
            histories = [history.path, swarm_path]
            wait_for_work(histories, stock)
            ended = [] if client.is_alive() else ["the client"]
            stop.set()
            client.join(LIMIT)
            settle(cluster, history)
            print(f"the run took {time.monotonic() - began:.0f} s, with a load of {os.getloadavg()[0]:.0f}")
            ended += [] if swarm.poll() is None else ["the swarm"]
            swarm.terminate()
            swarm.wait(LIMIT)
            anomalies = judge(cluster, histories, stock, options, ended)
        finally:
            stop.set()
            for minion in stock:
                minion.stop()
            if swarm and swarm.poll() is None:
                swarm.kill()
                swarm.wait()
            cluster.stop()
            if anomalies or options.keep:
                kept = options.keep or ROOT / f"target/chaos-{options.seed}"
                left_out = shutil.ignore_patterns("p0", "p1", "pki", "run", "secret", "cache")
                shutil.copytree(top, kept, dirs_exist_ok=True, ignore=left_out)
                print(f"histories and logs are in {kept}", flush=True)
    return 1 if anomalies else 0


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main())
